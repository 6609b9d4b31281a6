"""Multi-label ARFF as Mulan, MEKA and Weka write it, and files that are none."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.data.columns import Sparse
from spreadout.data.io import text
from spreadout.data.load import DataConfig, load_data
from spreadout.data.sources.arff import Attribute, Header, read_header
from spreadout.data.sources.arff_rows import _tidy, fast_cells, read_cells, slow_cells
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.unlabelled.tables import read_arff
from spreadout.data.unlabelled.wanted import Wanted

ARFF = """@relation 'toy: -C 2'
% a comment
@attribute f0 {0,1}
@attribute 'f one' numeric
@attribute TAG_a {0,1}
@attribute TAG_b {0,1}

@data
{0 1,2 1}
{1 0.5, 2 1, 3 1}
% {0 7}
{}
1,2.5,0,1
"""
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="TAG_b"/><label name="TAG_a"/></labels>'


def dense(part: Instances | None) -> list[list[float]]:
    assert part is not None
    return part.columns["x"].take(torch.arange(len(part))).tolist()


def sets(part: Instances | None) -> list[list[int]]:
    assert part is not None
    return [part.labels[i].tolist() for i in range(len(part))]


def mulan(folder: Path, content: str = ARFF, xml: str | None = XML) -> RawDataset:
    (folder / "toy.arff").write_text(content)
    if xml is not None:
        (folder / "toy.xml").write_text(xml)
    return MulanArff().parse(folder)


def test_sparse_and_dense_rows_and_labels_in_xml_order(tmp_path: Path) -> None:
    found = mulan(tmp_path)
    assert dense(found.train) == [[1, 0], [0, 0.5], [0, 0], [1, 2.5]]
    assert sets(found.train) == [[1], [0, 1], [], [0]]
    assert found.class_names == ("TAG_b", "TAG_a")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("{0 1,2 1}", "{0 1,9 1}", r"toy.arff:9: attribute '9', but there are 4 \(counted from 0\)"),
        ("{0 1,2 1}", "{0 ?,9 1}", r"toy.arff:9: attribute '9', but there are 4 \(counted from 0\)"),
        ("{0 1,2 1}", "{0 1,2 1", r"toy.arff:9: a sparse row without its closing brace"),
        ("{0 1,2 1}", "{0 ?,2 1", r"toy.arff:9: a sparse row without its closing brace"),
        ("{0 1,2 1}", "{0 1}{2 1}", r"toy.arff:9: an opening brace too many"),
        ("{0 1,2 1}", "{0 1,2 1}, {-5}", r"toy.arff:9: an opening brace too many"),
        ("{0 1,2 1}", "{5}", r"toy.arff:9: '5' is not part of an `attribute value` pair"),
        ("{0 1,2 1}", "{0 1,1 '2x'}", r"toy.arff:9: '2x' is not a number"),
        (
            "'f one' numeric",
            "TAG_a {0,1}",
            r"toy.arff: 2 attributes are called 'TAG_a', the name of a label",
        ),
        ("1,2.5,0,1", "1,2.5,0,1}", r"toy.arff:13: a closing brace too many"),
        ("{0 1,2 1}", "{0 1,2}", r"toy.arff:9: '2' is not part of an `attribute value` pair"),
        ("{0 1,2 1}", "{0 1 1,2 1}", r"toy.arff:9: '1' is not part of an `attribute value` pair"),
        ("{0 1,2 1}", "{0 yes}", r"toy.arff:9: 'yes' is none of the values of 'f0' \{0,1\}"),
        ("{0 1,2 1}", "{0 2}", r"toy.arff:9: '2' is none of the values of 'f0' \{0,1\}"),
        ("{0 1,2 1}\n", "{}\n\n\n  % note\n\n{1 x}\n", r"toy.arff:14: 'x' is not a number"),
        ("{0 1,2 1}", "{1 yes}", r"toy.arff:9: 'yes' is not a number"),
        ("{0 1,2 1}", "{x 1}", r"toy.arff:9: attribute 'x' is not a whole number"),
        ("{0 1,2 1}", "{2 1,0 1,2 1}", r"toy.arff:9: gives attribute 2 \('TAG_a'\) twice"),
        ("{0 1,2 1}", "{2 '1}", r"toy.arff:9: a quote that is not closed"),
        ("{0 1,2 1}", "{2 ?}", r"toy.arff:9: the label 'TAG_a' is missing"),
        ("TAG_a {0,1}\n", "TAG_a real\n%{2 7}\n{2 7}\n", r"toy.arff:7: '\{2 7\}' is no @relation"),
        ("1,2.5,0,1", "1,2.5,0", r"toy.arff:13: 3 values for 4 attributes"),
        ("1,2.5,0,1", "1,?,0", r"toy.arff:13: 3 values for 4 attributes"),
        ("1,2.5,0,1", "1,nan,0,1", r"toy.arff:13: 'nan' is not a finite number"),
        ("1,2.5,0,1", "1,1e99,0,1", r"toy.arff:13: '1e99' is too large"),
        ("1,2.5,0,1", "1,2.5,,0,1", r"toy.arff:13: a value is missing"),
        ("1,2.5,0,1", "?,2.5,0,1,", r"toy.arff:13: a value is missing"),
        ("@data", "@dat", r"toy.arff:8: '@dat' is no @relation, @attribute or @data"),
        ("@data\n", "", r"toy.arff:8: '\{0 1,2 1\}' is no @relation"),
        ("@attribute TAG_b {0,1}\n", "", r"no attribute for the label 'TAG_b'"),
        (
            "TAG_b {0,1}",
            "TAG_b {0,1",
            r"toy.arff:6: the values of attribute 'TAG_b' have no closing brace",
        ),
        ("TAG_b {0,1}", "TAG_b {}", r"toy.arff:6: attribute 'TAG_b' has no values"),
        ("TAG_b {0,1}", "TAG_b", r"toy.arff:6: attribute 'TAG_b' has no type that is known"),
        ("TAG_b {0,1}", "TAG_b relational", r"toy.arff:6: attribute 'TAG_b' is relational"),
        ("TAG_b {0,1}", "TAG_b {1,0,2}", r"the label 'TAG_b' \{1,0,2\} is not \{0,1\}"),
        ("TAG_b {0,1}", "TAG_b {0,1,2}", r"the label 'TAG_b' \{0,1,2\} is not \{0,1\}"),
        ("TAG_b {0,1}", "TAG_b string", r"the label 'TAG_b' text is not \{0,1\}"),
    ],
)
def test_a_broken_arff_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    changed = ARFF.replace(old, new, 1)
    assert changed != ARFF
    with pytest.raises(so.UserError, match=complaint):
        mulan(tmp_path, changed)


@pytest.mark.parametrize("mark", ["", "?"], ids=["numbers alone", "with a missing value"])
def test_weights_of_rows_are_passed_over_and_said(tmp_path: Path, mark: str) -> None:
    rows = "{0 1,2 1}, {0.5}\n{1 0.5, 2 1, 3 1}\n1,2.5,0,1,{3}\n" + (mark and "0,?,0,1\n")
    found = mulan(tmp_path, ARFF.partition("{0 1")[0] + rows)
    assert dense(found.train)[:3] == [[1, 0], [0, 0.5], [1, 2.5]]
    assert sets(found.train)[:3] == [[1], [0, 1], [0]]
    assert found.notes[0].rpartition("/")[2] == "toy.arff: weights of 2 rows left out: rows count alike"


def test_numbers_may_stand_in_quotes(tmp_path: Path) -> None:
    found = mulan(tmp_path, ARFF.replace("1,2.5,0,1", "'1',\"2.5\",0,'1.0'"))
    assert dense(found.train)[-1] == [1, 2.5]
    assert sets(found.train)[-1] == [0]


def test_a_file_that_ends_before_its_data_says_so(tmp_path: Path) -> None:
    for content in ("", "%\n", ARFF.partition("@data")[0]):
        with pytest.raises(so.UserError, match="no @data section; the file may be cut short"):
            mulan(tmp_path, content)
    with pytest.raises(so.UserError, match="declares no @attribute"):
        mulan(tmp_path, "@data\n1,2\n")


def test_a_label_that_is_a_number_must_be_0_or_1(tmp_path: Path) -> None:
    numeric = ARFF.replace("TAG_a {0,1}", "TAG_a integer")
    assert sets(mulan(tmp_path, numeric).train) == [[1], [0, 1], [], [0]]
    with pytest.raises(so.UserError, match=r"toy.arff:9: the label 'TAG_a' is 7, not 0 or 1"):
        mulan(tmp_path, numeric.replace("{0 1,2 1}", "{0 1,2 7}"))


# ---------------------------------------------------------------- names and values as people write them

ODD = r"""  % Weka allows all of this
@RELATION odd
@Attribute	"two words"	REAL
@attribute 'it\'s' {0,1}
@attribute TAG_m\'usica {0,1}
@attribute 'TAG_back\\slash' {0, 1}
@attribute TAG_caf(e){no,'yes'} % a note
@ATTRIBUTE colour {red , 'dark blue', "green"}

@DATA
 1.5 , 1, 0, 1, 'yes', 'dark blue' % first
	{ 2 1 , 5 green }

2.5	0	1	0	no	red
"""
ODD_XML = r"""<labels><label name="TAG_m\'usica"><label name="TAG_back\slash"/></label><label name="TAG_café"/></labels>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_quotes_escapes_cases_tabs_comments_and_line_ends(
    tmp_path: Path, newline: str, encoding: str
) -> None:
    content = ODD.replace("(e)", "é")
    (tmp_path / "odd.arff").write_bytes(content.replace("\n", newline).encode(encoding))
    (tmp_path / "odd.xml").write_text(ODD_XML, encoding="utf-8")
    found = MulanArff().parse(tmp_path)
    # two words, it's, colour = dark blue, colour = green
    assert dense(found.train) == [[1.5, 1, 1, 0], [0, 0, 0, 1], [2.5, 0, 0, 0]]
    assert sets(found.train) == [[1, 2], [0], [0]]
    assert found.class_names == (r"TAG_m\'usica", r"TAG_back\slash", "TAG_café")


@pytest.mark.parametrize(
    ("in_arff", "in_xml"),
    [
        (r"TAG_m\'usica", r"TAG_m\'usica"),  # as Delicious is published
        (r"TAG_m\'usica", "TAG_m'usica"),
        (r"'TAG_m\'usica'", r"TAG_m\'usica"),
        (r"'TAG_m\'usica'", "TAG_m'usica"),
        (r'"TAG_m\'usica"', "TAG_m'usica"),
        (r"TAG_dise\~no", r"TAG_dise\~no"),
        (r"'TAG_dise\~no'", r"TAG_dise\~no"),
        (r"TAG_\u00fc", "TAG_ü"),
        ("TAG_&lt;", "TAG_&amp;lt;"),
    ],
)
def test_a_label_is_found_whichever_side_escapes_it(tmp_path: Path, in_arff: str, in_xml: str) -> None:
    found = mulan(tmp_path, ARFF.replace("TAG_b", in_arff), XML.replace("TAG_b", in_xml))
    assert sets(found.train) == [[1], [0, 1], [], [0]]


def test_two_labels_that_only_a_backslash_tells_apart_stay_two(tmp_path: Path) -> None:
    content = ARFF.replace("TAG_b", r"T\'a").replace("TAG_a", "T'a")
    found = mulan(tmp_path, content, XML.replace("TAG_b", r"T\'a").replace("TAG_a", "T'a"))
    assert sets(found.train) == [[1], [0, 1], [], [0]]
    with pytest.raises(so.UserError, match="two labels in the XML are the attribute 'TAG_a'"):
        mulan(tmp_path, xml=XML.replace("TAG_b", r"TAG\_a"))


def test_nominal_attributes_coded_by_digits_are_indicators_and_said(tmp_path: Path) -> None:
    content = ARFF.replace("f0 {0,1}", "f0 {1,2,3}").replace("{1 0.5", "{0 3, 1 0.5")
    found = mulan(tmp_path, content.replace("{0 1,2 1}", "{0 2,2 1}"))
    # 2 and 3 have an indicator; 1, declared first, is what the sparse row {} leaves out
    assert dense(found.train) == [[1, 0, 0], [0, 1, 0.5], [0, 0, 0], [0, 0, 2.5]]
    (note,) = found.notes
    assert "toy.arff: 1 attribute ('f0') read as 2 indicators: nominal" in note


def test_missing_values_are_the_mean_of_the_training_rows(tmp_path: Path) -> None:
    head = "@relation m\n@attribute a real\n@attribute c {u,v,w}\n@attribute y {0,1}\n@data\n"
    (tmp_path / "m-train.arff").write_text(head + "1,v,0\n?,w,1\n5,v,1\n{2 1}\n{1 v}\n")
    (tmp_path / "m-test.arff").write_text(head + "?,?,1\n{0 ?}\n7,u,0\n")
    (tmp_path / "m.xml").write_text('<labels><label name="y"/></labels>')
    config = DataConfig.model_validate(
        {
            "source": "mulan",
            "path": tmp_path,
            "partition": {"name": "iid", "clients": 1},
            "targets": "all",
        }
    )
    found = load_data(config)
    # a: (1 + 5 + 0 + 0) / 4; c is v three times, w and u once
    train = [[1, 1, 0], [1.5, 0, 1], [5, 1, 0], [0, 0, 0], [0, 1, 0]]
    every = torch.arange(5)
    assert sorted(found.train.columns["x"].take(every).tolist()) == sorted(train)
    assert found.test.inputs["x"].take(every[:3]).tolist() == [[1.5, 1, 0], [1.5, 0, 0], [7, 0, 0]]
    assert "2 attributes ('a', 'c') with missing values: replaced by the mean" in found.notes[-1]


@pytest.mark.parametrize("hash_features", [None, 3])
def test_rows_that_are_held_out_say_nothing_of_what_fills_gaps(
    hash_features: int | None, tmp_path: Path
) -> None:
    """One file without a test part: the slow twin knows which rows train, and fills by them alone."""
    rng = np.random.default_rng(0)
    number = [None if rng.random() < 0.3 else float(rng.integers(0, 9)) for _ in range(60)]
    kind = [None if rng.random() < 0.3 else int(rng.integers(0, 3)) for _ in range(60)]
    lines = [
        f"{i + 1},{'?' if a is None else a},{'?' if c is None else 'uvw'[c]},{'ny'[i % 2]}"
        for i, (a, c) in enumerate(zip(number, kind, strict=True))
    ]
    head = "@relation m\n@attribute row real\n@attribute a real\n@attribute c {u,v,w}\n"
    (tmp_path / "m.arff").write_text(head + "@attribute class {n,y}\n@data\n" + "\n".join(lines))
    config = DataConfig.model_validate(
        {"source": "mulan", "path": tmp_path / "m.arff", "validation_fraction": 0.2}
    )
    found = load_data(config)
    parts = [found.train.columns["x"], found.test.inputs["x"]]
    assert found.validation is not None
    parts.append(found.validation.inputs["x"])
    rows = [x.take(torch.arange(len(x))) for x in parts]  # (n, 4): row, a, c is v, c is w
    place = [(part[:, 0].long() - 1).tolist() for part in rows]
    assert sorted(i for part in place for i in part) == list(range(60))
    assert min(map(len, place)) > 5
    known = [number[i] for i in place[0] if number[i] is not None]
    kinds = [kind[i] for i in place[0] if kind[i] is not None]
    mean, usual = np.mean(known), max(range(3), key=kinds.count)
    everyone = np.mean([one for one in number if one is not None])
    assert abs(mean - everyone) > 0.01  # else the test could not tell
    for part, at in zip(rows, place, strict=True):
        a = [mean if number[i] is None else number[i] for i in at]
        c = [usual if kind[i] is None else kind[i] for i in at]
        expected = torch.tensor([[x, k == 1, k == 2] for x, k in zip(a, c, strict=True)]).float()
        torch.testing.assert_close(part[:, 1:], expected)
    if hash_features is not None:
        short = load_data(config.model_copy(update={"hash_features": hash_features}))
        x = short.test.inputs["x"].take(torch.arange(len(short.test)))
        torch.testing.assert_close(x.sum(1), rows[1].sum(1))  # nothing is lost, and no gap is left


def test_text_and_dates_are_left_out_and_said(tmp_path: Path) -> None:
    content = """@relation t
@attribute id string
@attribute when date "yyyy-MM-dd"
@attribute a numeric
@attribute y {0,1}
@data
'one, two',"2020-01-01",3,1
{0 'x', 3 1}
"""
    found = mulan(tmp_path, content, '<labels><label name="y"/></labels>')
    assert dense(found.train) == [[3], [0]]
    assert found.notes[0].endswith("('id', 'when') left out: text and dates are no features")


def test_a_nominal_attribute_that_names_rows_is_left_out_and_said(tmp_path: Path) -> None:
    names, codes = (",".join(f"{mark}{i}" for i in range(65)) for mark in ("row-", ""))
    content = f"""@relation t
@attribute name {{{names}}}
@attribute few {{{names.rpartition(",")[0]}}}
@attribute code {{{codes}}}
@attribute a numeric
@attribute class {{{names}}}
@data
row-64,row-1,2,3,row-2
row-1,row-0,0,4,row-0
?,row-0,0,5,row-1
"""
    found = mulan(tmp_path, content, None)
    first, *others = dense(found.train)
    assert len(first) == 63 + 64 + 1  # 64 words and 65 numbers have indicators, 65 words have none
    assert (first[0], first[63 + 1], first[-1], sum(first)) == (1, 1, 3, 5)
    assert [sum(row) for row in others] == [4, 5]
    assert sets(found.train) == [[2], [0], [1]]
    assert any(
        note.endswith("1 attribute ('name') left out: words, with more than 64 values")
        for note in found.notes
    )
    assert not any("missing" in note for note in found.notes)
    (tmp_path / "asked.arff").write_text(content)
    wanted = Wanted(features=128, labels=names.split(","), source=MulanArff())
    asked = read_arff(tmp_path / "asked.arff", wanted).x
    assert isinstance(asked, Sparse)
    assert asked.width == 128


@pytest.mark.parametrize(
    ("declared", "on", "expected"),
    [
        ("{1,0}", "1", [[0], [], [0]]),  # what the sparse row leaves out is the first value: on
        ("{no,yes}", "yes", [[0], [], []]),
        ("{TRUE,FALSE}", "TRUE", [[0], [], [0]]),
        ("{0}", "0", [[], [], []]),
        ("{-1,1}", "1", [[0], [], []]),
    ],
)
def test_labels_are_on_by_the_word_not_by_the_place(
    tmp_path: Path, declared: str, on: str, expected: list[list[int]]
) -> None:
    off = next((v for v in declared.strip("{}").split(",") if v != on), on)
    content = (
        f"@relation l\n@attribute a real\n@attribute y {declared}\n@data\n1,{on}\n2,{off}\n{{0 3}}\n"
    )
    assert sets(mulan(tmp_path, content, '<labels><label name="y"/></labels>').train) == expected


@pytest.mark.parametrize(
    ("relation", "names", "labels"),
    [
        ("'toy: -C 2'", ("f0", "f one"), [[0], [1], [], [0]]),
        ("'toy: -C -2 -split-percentage 50'", ("TAG_a", "TAG_b"), [[0], [0, 1], [], [1]]),
        ("toy: -c -1", ("TAG_b",), [[], [0], [], [0]]),
    ],
)
def test_meka_counts_its_labels(
    tmp_path: Path, relation: str, names: tuple[str, ...], labels: list[list[int]]
) -> None:
    content = ARFF.replace("'toy: -C 2'", relation).replace("0.5", "1").replace("2.5", "0")
    found = mulan(tmp_path, content, xml=None)
    assert found.class_names == names
    assert sets(found.train) == labels


def test_without_xml_or_count_it_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match="nothing says which attributes are labels; it needs an XML"):
        mulan(tmp_path, ARFF.replace("-C 2", ""), xml=None)
    for count in ("0", "5", "-5", "999999999"):
        with pytest.raises(so.UserError, match=f"-C {count} in @relation, but there are 4 attributes"):
            mulan(tmp_path, ARFF.replace("-C 2", f"-C {count}"), xml=None)


@pytest.mark.parametrize(
    ("xml", "complaint"),
    [
        ("<labels>", "not well-formed XML"),
        ("<labels/>", "names no labels"),
        ("<labels><label/></labels>", "has a <label> without a name"),
        (XML.replace("TAG_a", "TAG_b"), "names the label 'TAG_b' twice"),
        ('<?xml version="1.0" encoding="nonsense"?><labels/>', "not well-formed XML"),
    ],
)
def test_a_broken_xml_is_refused(tmp_path: Path, xml: str, complaint: str) -> None:
    with pytest.raises(so.UserError, match=complaint):
        mulan(tmp_path, xml=xml)


WEKA = """@relation w
@attribute a real
@attribute colour {red,blue}
@attribute Species {setosa,'two words',other}
@data
1,red,'two words'
{2 other, 0 2.5, 1 blue}
3,blue,setosa
{0 4}
"""


def test_the_last_nominal_attribute_is_the_class_as_in_wekas_files(tmp_path: Path) -> None:
    found = mulan(tmp_path, WEKA, xml=None)
    assert dense(found.train) == [[1, 0], [2.5, 1], [3, 1], [4, 0]]
    assert sets(found.train) == [[1], [2], [0], [0]]  # a sparse row leaves out the first value
    assert found.class_names == ("setosa", "two words", "other")
    assert found.notes[0].endswith("attribute 'Species' is the class: no XML and no -C names labels")


def test_an_attribute_called_class_is_the_class_wherever_it_stands(tmp_path: Path) -> None:
    content = WEKA.replace("colour {red,blue}", "Class {red,blue}")
    assert sets(mulan(tmp_path, content, xml=None).train) == [[0], [1], [1], [0]]
    with pytest.raises(so.UserError, match=r"toy.arff:7: the class is missing"):
        mulan(tmp_path, content.replace("2.5, 1 blue", "2.5, 1 ?"), xml=None)


def test_a_last_attribute_that_is_on_or_off_may_be_one_of_many_labels(tmp_path: Path) -> None:
    for values in ("{0,1}", "{no,yes}", "{TRUE,FALSE}", "{only}", "real"):
        head = f"@relation w\n@attribute a real\n@attribute y {values}\n@data\n"
        with pytest.raises(so.UserError, match=r"nothing says which attributes are labels; .* 'class'"):
            mulan(tmp_path, head, xml=None)


def test_the_user_says_which_attribute_is_the_class(tmp_path: Path) -> None:
    """Not the last, not called so, and on or off: nothing in the file would tell."""
    content = WEKA.replace("Species {setosa,'two words',other}", "leaves real")
    content = content.replace("'two words'", "2").replace("other", "7").replace("setosa", "0")
    with pytest.raises(
        so.UserError, match=r"set data.source.label to the attribute of classes: 'colour'$"
    ):
        mulan(tmp_path, content, xml=None)
    found = MulanArff(label="colour").parse(tmp_path)
    assert dense(found.train) == [[1, 2], [2.5, 7], [3, 0], [4, 0]]
    assert sets(found.train) == [[0], [1], [1], [0]]
    assert found.class_names == ("red", "blue")
    assert found.notes == ()  # nothing was guessed
    # It goes before an XML, before -C, and before an attribute called class.
    put(tmp_path, toy__arff=WEKA.replace("@relation w", "@relation 'w: -C 1'"), toy__xml=XML)
    assert MulanArff(label="colour").parse(tmp_path).class_names == ("red", "blue")
    put(tmp_path, toy__arff=WEKA.replace("Species", "class"))
    assert MulanArff(label="colour").parse(tmp_path).class_names == ("red", "blue")


def test_a_class_that_cannot_be_one_is_refused_with_those_that_can(tmp_path: Path) -> None:
    put(tmp_path, w__arff=WEKA)
    for name, said in (
        ("nothing", "no attribute 'nothing'; set data.source.label to a"),
        ("species", r"no attribute 'species' \(did you mean 'Species'\?\); set data.source.label to a"),
        ("a", "attribute 'a' has no classes; set data.source.label to a"),
    ):
        with pytest.raises(so.UserError, match=f"w.arff: {said} nominal one: 'colour', 'Species'$"):
            MulanArff(label=name).parse(tmp_path)
    put(tmp_path, w__arff=WEKA.replace("attribute a real", "attribute colour real"))
    with pytest.raises(so.UserError, match="2 attributes are called 'colour'"):
        MulanArff(label="colour").parse(tmp_path)


def test_parts_have_the_same_classes(tmp_path: Path) -> None:
    put(tmp_path, w_train__arff=WEKA, w_test__arff=WEKA)
    found = MulanArff().parse(tmp_path)
    assert found.test is not None
    assert sets(found.test) == sets(found.train)
    put(tmp_path, w_test__arff=WEKA.replace("setosa", "virginica"))
    with pytest.raises(so.UserError, match=r"attribute 2 is not the class 'Species' \{setosa,two words"):
        MulanArff().parse(tmp_path)


# ---------------------------------------------------------------- which files

LONGER = ARFF + "{2 1}\n"
OTHER = ARFF.replace("TAG_b", "OTHER")


def put(folder: Path, **files: str) -> None:
    for name, content in files.items():
        (folder / name.replace("__", ".").replace("_", "-")).write_text(content)


@pytest.mark.parametrize(
    ("names", "train", "test"),
    [
        (["toy.arff"], "toy.arff", None),
        (["toy-train.arff", "toy-test.arff", "toy.arff"], "toy-train.arff", "toy-test.arff"),
        (["toy-sparse.arff"], "toy-sparse.arff", None),
        (["toy-sparse.arff", "toy.arff"], "toy.arff", None),
        (
            ["toy_train_sparse.arff", "toy_test_sparse.arff"],
            "toy_train_sparse.arff",
            "toy_test_sparse.arff",
        ),
        (
            ["Toy-sparse-train.ARFF", "Toy-sparse-test.ARFF"],
            "Toy-sparse-train.ARFF",
            "Toy-sparse-test.ARFF",
        ),
        (["toy.arff", "unlike.arff"], "toy.arff", None),  # toy.xml says which
    ],
)
def test_a_folder_is_read_by_the_names_in_it(
    tmp_path: Path, names: list[str], train: str, test: str | None
) -> None:
    for name in names:
        (tmp_path / name).write_text(LONGER if name == train else ARFF)
    (tmp_path / "toy.xml").write_text(XML)
    found = MulanArff().parse(tmp_path)
    assert len(found.train) == 5
    assert (found.test is not None) == (test is not None)


def test_a_named_file_is_the_one_that_is_read(tmp_path: Path) -> None:
    put(tmp_path, toy_train__arff=ARFF, toy_test__arff=ARFF, toy__arff=LONGER, toy__xml=XML)
    put(tmp_path, other__arff=OTHER, other__xml=XML.replace("TAG_b", "OTHER"))
    for name, rows, tested in [("toy", 5, None), ("toy-train", 4, 4), ("toy-test", 4, None)]:
        found = MulanArff().parse(tmp_path / f"{name}.arff")
        assert (len(found.train), None if found.test is None else len(found.test)) == (rows, tested)
        assert found.class_names == ("TAG_b", "TAG_a")
    assert MulanArff().parse(tmp_path / "other.arff").class_names == ("OTHER", "TAG_a")
    with pytest.raises(
        so.UserError, match=r"more than one data set .* name the .arff file in data.path"
    ):
        MulanArff().parse(tmp_path)


def test_each_named_file_has_its_own_cache_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path / "cache"))
    put(tmp_path, toy_train__arff=ARFF, toy_test__arff=ARFF, toy__arff=LONGER, toy__xml=XML)
    for name, rows in [("toy", 5), ("toy-train", 4), ("toy", 5)]:
        assert len(MulanArff().read(tmp_path / f"{name}.arff").train) == rows
    assert MulanArff().read(tmp_path).test is not None
    (tmp_path / "toy.xml").write_text(XML.replace("TAG_b", "f0"))
    assert MulanArff().read(tmp_path / "toy.arff").class_names == ("f0", "TAG_a")


def test_of_several_xml_files_the_one_that_fits_is_taken(tmp_path: Path) -> None:
    fits, other = XML, XML.replace("TAG_b", "NONE")
    put(tmp_path, toy__arff=ARFF, one__xml=other, two__xml=fits)
    assert MulanArff().parse(tmp_path).class_names == ("TAG_b", "TAG_a")
    put(tmp_path, two__xml=other)
    with pytest.raises(
        so.UserError, match=r"of the XML files beside it \(one.xml, two.xml\), none fits"
    ):
        MulanArff().parse(tmp_path)
    put(tmp_path, one__xml=fits, two__xml=fits)
    with pytest.raises(so.UserError, match=r"several fit; leave one there"):
        MulanArff().parse(tmp_path)
    put(tmp_path, toy__xml=fits)  # its name says it
    assert MulanArff().parse(tmp_path).class_names == ("TAG_b", "TAG_a")


def test_parts_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    put(tmp_path, toy_train__arff=ARFF, toy__xml=XML)
    more = ARFF.replace("@data", "@attribute f3 numeric\n@data").replace("1,2.5,0,1", "1,2.5,0,1,0")
    put(tmp_path, toy_test__arff=more)
    with pytest.raises(so.UserError, match=r"has 3 features, toy-train.arff has 2: they must agree"):
        MulanArff().parse(tmp_path)
    put(tmp_path, toy_test__arff=ARFF.replace("f0 {0,1}", "f0 {1,0}"))
    with pytest.raises(
        so.UserError, match=r"declares 'f0' \{1,0\} where toy-train.arff has 'f0' \{0,1\}"
    ):
        MulanArff().parse(tmp_path)


def test_zips_and_packed_files_are_read_in_place(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        archive.writestr("toy/toy-train.arff", ARFF)
        archive.writestr("toy/toy-test.arff", LONGER)
        archive.writestr("toy/toy.xml", XML)
    assert len(MulanArff().parse(tmp_path / "toy.zip").test or []) == 5
    (tmp_path / "toy.arff.gz").write_bytes(gzip.compress(LONGER.encode()))
    (tmp_path / "toy.xml").write_text(XML)
    assert len(MulanArff().parse(tmp_path / "toy.arff.gz").train) == 5


def test_a_folder_without_arff_says_so(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=r"holds no \.arff file"):
        MulanArff().parse(tmp_path)


# ---------------------------------------------------------------- twins

KNOWN = (
    Attribute("a", "number"),
    Attribute("b", "nominal", ("0", "1")),
    Attribute("c", "nominal", ("5", "-2", "3.5")),
    Attribute("d", "nominal", ("1", "0")),
)
number = st.floats(-1e6, 1e6).map(repr) | st.integers(-99, 99).map(str)
values = st.tuples(number, *(st.sampled_from(a.values) for a in KNOWN[1:]))
sparse_row = st.builds(
    lambda row, kept, gap: "{" + f"{gap},".join(f"{i} {row[i]}" for i in sorted(kept)) + "}",
    values,
    st.sets(st.integers(0, 3)),
    st.sampled_from(["", " ", "\t"]),
)
dense_row = st.builds(lambda row, gap: gap.join(row), values, st.sampled_from([",", ", ", " ", "\t , "]))
weighted_row = st.builds(
    lambda row, weight: row + weight,
    sparse_row | dense_row,
    st.sampled_from(["", ",{0.5}", " , { 2 }", "{1e-3}", ", {x}", ",{}"]),
)
lines = st.lists(weighted_row | st.sampled_from(["", "  ", "% note"]), max_size=12)


@given(lines, st.integers(1, 60))
def test_the_fast_way_reads_what_the_slow_way_reads(rows: list[str], size: int) -> None:
    raw = "\n".join(rows).encode()
    (block,) = text.blocks(io.BytesIO(raw + b"\n"), "f")
    try:
        slow = slow_cells(block, KNOWN)
    except so.UserError as refused:  # what is no weight
        with pytest.raises(so.UserError, match=re.escape(str(refused).split(" ")[0])):
            fast_cells(_tidy(block), KNOWN)
        return
    quick = fast_cells(_tidy(block), KNOWN)
    for name in ("row", "attribute", "value", "row_lines", "weighted"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(slow, name))


def test_long_runs_of_spaces_take_no_longer_than_text(tmp_path: Path) -> None:
    """Each of these took quadratic time in some way of reading them."""
    for row in ("1" + " " * 300_000 + ",0,5,1", " " * 300_000 + "1,?,5,1", "1,0,5,1" + " " * 300_000):
        header = Header(KNOWN, 0, None)
        assert len(read_cells(io.BytesIO(row.encode()), "f", header).value) == 4
    read_header(io.BytesIO(b"@attribute a {0," + b" " * 300_000 + b"1}\n@data\n"), "f")


# ---------------------------------------------------------------- the real files


def test_delicious_loads_as_its_authors_publish_it(real_data: Path) -> None:
    found = MulanArff(name="delicious").read(real_data / "delicious")
    assert found.test is not None
    counted = (len(found.train), len(found.test), found.train.columns["x"].options()["width"])
    assert (*counted, found.classes) == (12_920, 3_185, 500, 983)
    assert r"TAG_m\'usica" in found.class_names
    # A twin: the first rows by hand. The labels are the last 983 attributes, in the XML's order.
    rows = (real_data / "delicious" / "delicious-train.arff").read_text().split("@data")[1].split("\n")
    for i, row in enumerate(rows[1:6]):
        on = {int(pair.split()[0]) for pair in row.strip("{}").split(",")}
        x = found.train.columns["x"].take(torch.tensor([i]))[0]
        assert set(x.nonzero()[:, 0].tolist()) == {f for f in on if f < 500}
        assert set(found.train.labels[i].tolist()) == {f - 500 for f in on if f >= 500}


def test_delicious_by_name_is_ready_to_train_on(real_data: Path) -> None:
    data = load_data(DataConfig(source="delicious", path=real_data / "delicious"), seed=0)
    assert data.train.classes == 983
    assert data.train.clients > 0
