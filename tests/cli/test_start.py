"""From a file to a config that trains, presets to look at, and settings tried on validation data."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from command import invoke
from spreadout.config.guess import guessed
from spreadout.config.presets import grouped, preset_text, presets
from spreadout.data.io.csv_table import HEAD
from spreadout.methods import METHODS
from spreadout.runs.compare import Suite
from spreadout.runs.sweep import Sweep

RESULTS = Path(__file__).resolve().parents[2] / "results"
NAMES = np.array(["ash", "fir", "yew"])


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(3), 20)
    x = np.eye(3)[y] * 4 + rng.normal(size=(60, 3))
    rows = [
        f"{a:.3f},{b:.3f},{c:.3f},{'wet' if i % 2 else 'dry'},{NAMES[k]},wood {i % 5}"
        for i, ((a, b, c), k) in enumerate(zip(x, y, strict=True))
    ]
    (tmp_path / "trees.csv").write_text("\n".join(["height,girth,age,soil,kind,site", *rows]) + "\n")
    return tmp_path / "trees.csv"


def test_init_writes_a_config_that_trains_well_on_the_file(
    trees: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = trees.parent / "trees.toml"
    assert invoke(monkeypatch, "init", str(trees), "--out", str(config)) == 0
    assert f"spreadout run {config}" in capsys.readouterr().out
    found = so.Experiment.load(config)
    assert found.data.source.name == "table"
    assert (found.data.source.label, found.data.source.client) == ("kind", "site")
    result = so.run(found.model_copy(update={"rounds": 60}))
    assert result.summary["clients"] == 5
    assert result.metrics["P@1"] > 80
    assert invoke(monkeypatch, "init", str(trees), "--out", str(config)) == 2
    assert "exists; name another file by --out, or --force" in capsys.readouterr().err


def test_init_without_a_terminal_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(monkeypatch, "init") == 2
    assert "name your data: spreadout init FILE" in capsys.readouterr().err
    assert invoke(monkeypatch, "init", "nowhere.csv") == 2
    assert "nowhere.csv: no such file, and no data set of this name" in capsys.readouterr().err
    assert not (tmp_path / "spreadout.toml").exists()


def test_init_asks_four_questions_at_a_terminal(trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([str(trees), "soil", "-", "fedavg"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    config = trees.parent / "asked.toml"
    assert invoke(monkeypatch, "init", "--out", str(config)) == 0
    found = so.Experiment.load(config)
    assert (found.data.source.label, found.method.name) == ("soil", "fedavg")
    assert found.data.source.client is None  # though a column is called "site"
    assert next(answers, None) is None


@pytest.mark.parametrize(
    ("header", "options", "source"),
    [
        ("a,Site,label", (), {"name": "table", "label": "label", "client": "Site"}),
        ("a,Site", ("--label", "Site"), {"name": "table", "label": "Site"}),
        ("a,kind,site", ("--client", "-"), {"name": "table", "label": "kind"}),
        ("a,site", ("--client", "site"), {"name": "table", "label": "a", "client": "site"}),
        (
            "user,item,time,group",
            ("--client", "group"),
            {"name": "interactions", "user": "group", "item": "item", "time": "time"},
        ),
        ("user,item,time", ("--client", "-"), {"name": "table", "label": "time"}),
        ("user,item,time", (), {"name": "interactions", "user": "user", "item": "item", "time": "time"}),
        (
            "userId,movieId,rating,timestamp",
            (),
            {"name": "interactions", "user": "userId", "item": "movieId", "time": "timestamp"},
        ),
        ("a;patient_id;class", (), {"name": "table", "label": "class", "client": "patient_id", "delimiter": ";"}),
        ('"a;b",c', (), {"name": "table", "label": "c"}),
        ("a|b", ("--label", "a"), {"name": "table", "label": "a", "delimiter": "|"}),
    ],
)  # fmt: skip
def test_columns_are_what_was_said_of_them(
    header: str,
    options: tuple[str, ...],
    source: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = re.sub(r'"[^"]*"|[^,;|]+', "1", header)
    (tmp_path / "a.csv").write_text(f"{header}\n{row}\n")
    config = tmp_path / "a.toml"
    assert invoke(monkeypatch, "init", str(tmp_path / "a.csv"), *options, "--out", str(config)) == 0
    assert tomllib.loads(config.read_text())["data"]["source"] == source


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("a.csv", "--client", "owner"), "a.csv: no column 'owner'"),
        (("a.csv", "--label", "kind", "--client", "kind"), "--client kind: is the column of labels too"),
        (("digits", "--client", "site"), "--client site: is for tables, and digits is none"),
    ],
)
def test_an_answer_that_does_not_fit_is_not_dropped(
    options: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("user,item,time,kind\n1,2,3,4\n")
    assert invoke(monkeypatch, "init", *options) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "header", "source", "method"),
    [
        ("events.csv", "user,item,time\n1,2,3", "interactions", "dual_encoder"),
        ("a.npz", "", "npz", "fedaws"),
        ("a.arff", "@relation 'a: -C 1'\n@attribute l {0,1}\n@data", "mulan", "fedaws"),
        ("a.tsv", "x\tlabel\n1\t2", "table", "fedaws"),
        ("a.txt", "3 1:0.5 7:1", "libsvm", "fedaws"),
        ("a.dat", "12 5 3", "xc-text", "fedaws"),
        ("pictures/cat/a.PNG", "", "image-folder", "fedaws"),
        ("ml/u.data", "1\t2\t3\t4", "movielens", "dual_encoder"),
        ("text/train.txt", "2 2 2", "xc-text", "fedaws"),
    ],
)
def test_a_file_is_known_by_its_name_and_header(
    name: str, header: str, source: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(header + "\n")
    config = tmp_path / "a.toml"
    given = tmp_path / Path(name).parts[0]  # a file, or the folder it lies in
    assert invoke(monkeypatch, "init", str(given), "--out", str(config)) == 0
    found = so.Experiment.load(config)
    assert (found.data.source.name, found.method.name) == (source, method)


def test_init_takes_the_class_of_an_arff_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{'ab'[i % 2]},{i % 2}\n" for i in range(20))
    (tmp_path / "w.arff").write_text(
        f"@relation w\n@attribute k {{a,b}}\n@attribute v real\n@data\n{rows}"
    )
    config, given = tmp_path / "w.toml", str(tmp_path / "w.arff")
    assert invoke(monkeypatch, "init", given, "--label", "v", "--out", str(config)) == 2
    assert "attribute 'v' has no classes" in capsys.readouterr().err
    assert invoke(monkeypatch, "init", given, "--label", "k", "--out", str(config)) == 0
    assert capsys.readouterr().out.startswith(
        "k is what is to be told: every value of it becomes a client."
    )
    asked = so.Experiment.load(config).data
    assert asked.source.label == "k"
    assert so.load_data(asked).class_names == ("a", "b")


def test_init_says_which_attribute_of_an_arff_file_it_took_for_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i % 2},{'ab'[i % 2]}\n" for i in range(20))
    header = "@relation w\n@attribute v real\n@attribute Kind {a,b}\n@data\n"
    (tmp_path / "w.arff").write_text(header + rows)
    config, given = tmp_path / "w.toml", str(tmp_path / "w.arff")
    assert invoke(monkeypatch, "init", given, "--out", str(config)) == 0
    assert capsys.readouterr().out.startswith("Kind is what is to be told: every value of it")
    assert so.Experiment.load(config).data.source.label == "Kind"
    (tmp_path / "w.arff").write_text(header.replace("{a,b}", "{0,1}") + rows)  # a switch: one of many?
    assert invoke(monkeypatch, "init", given, "--out", str(config), "--force") == 2
    assert "nothing says which attributes are labels" in capsys.readouterr().err


def test_init_says_what_it_took_the_columns_for_whatever_they_and_the_file_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "größe 1.csv").write_text('a,"kind\nof = [tree"\n1,ash\n')
    config = tmp_path / "my config.toml"
    assert invoke(monkeypatch, "init", str(tmp_path / "größe 1.csv"), "--out", str(config)) == 0
    said = capsys.readouterr().out
    assert said.startswith("kind\\nof = [tree is what is to be told. No column says whose a row is")
    assert f"spreadout run '{config}'" in said
    found = so.Experiment.load(config)
    assert (found.name, found.data.source.label) == ("gr-e-1", "kind\nof = [tree")


def test_a_folder_of_unknown_files_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("hello\n")
    for given in ("notes", "notes/a.md"):
        assert invoke(monkeypatch, "init", str(tmp_path / given), "--out", str(tmp_path / "a.toml")) == 2
        assert "its format is not known by its name; set data.source" in capsys.readouterr().err


def test_every_method_and_every_table_is_a_preset_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = presets()
    assert {f"digits-{name}" for name in METHODS if not METHODS[name].takes_histories} <= set(every)
    tables = {
        "fedaws": ["fedaws/table1-cifar-10", "fedaws/table1-cifar-100", "extreme/table3-amazon-670k", "extreme/table4"],
        "fedss": ["fedss/omniglot", "fedss/table4"],
        "fedmlh": ["fedmlh/bibtex", "fedmlh/eurlex", "fedmlh/wiki31", "fedmlh/amztitle", "fedmlh/wikititle"],
        "dual_encoder": ["dual_encoder/table2", "dual_encoder/centralized", "dual_encoder/figures"],
        "fedalc": ["fedalc/table5", "fedalc/table6"],
    }  # fmt: skip
    assert {name for names in tables.values() for name in names} <= set(every)
    for name in every:
        assert Suite.load([name], None).variants, name
        assert every[name], name
    assert invoke(monkeypatch, "presets", "dual_encoder/table2") == 0
    text = preset_text("dual_encoder/table2")
    assert text is not None
    assert capsys.readouterr().out == text.rstrip() + "\n"
    assert invoke(monkeypatch, "presets", "dual_encoder/table3") == 2
    assert "did you mean 'dual_encoder/table2'" in capsys.readouterr().err


def test_the_arms_of_a_papers_table_have_what_its_results_were_made_with() -> None:
    """The file of results is of an earlier version, of which some names are others now."""
    made = json.loads((RESULTS / "fedalc" / "bibtex.json").read_text())["configs"]
    found = Suite.load(["fedalc/table6"], None).variants
    assert set(found) == set(made)
    renamed = {"spreadout": "spreadout_form", "tables": "hash_tables"}
    idle = {("fedaws-mined", "spreadout_margin")}  # which nobody reads there
    idle |= {(arm, "row_lr") for arm in ("fedmlh", "fedavg-fixed", "fedalc-fixed")}
    for arm, before in made.items():
        now = found[arm].model_dump(mode="json")
        assert (now["rounds"], now["method"]["name"]) == (before["rounds"], before["method"]["name"])
        for section in ("method", "clients", "model"):
            for key, value in before[section].items():
                name = renamed.get(key, key) if section == "method" else key
                if name in now[section] and (arm, name) not in idle:
                    assert now[section][name] == value, (arm, section, name)


def test_presets_are_listed_by_what_they_are_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = grouped()
    titles = ["One for every method", "Tables of the papers", "For benchmarks and attacks"]
    assert list(groups)[:3] == titles
    listed = [name for some in groups.values() for name in some]
    assert sorted(listed) == sorted(presets())
    for name, title in (
        ("digits-fedaws", 0),
        ("fedmlh/bibtex", 1),
        ("attacks/fedss", 2),
        ("extreme/speed", 2),
    ):
        assert name in groups[titles[title]]
    for about in presets().values():
        assert about[-1] not in ".;"
        assert "000" not in about
    assert invoke(monkeypatch, "presets") == 0
    said = capsys.readouterr().out
    places = [said.index(f"{title}:\n") for title in titles]
    assert places == sorted(places)


def test_another_method_or_other_data_of_a_preset_is_chosen_for(tmp_path: Path) -> None:
    same = so.Experiment.load("digits-fedaws", ["method.name=fedaws", "clients.batch=16"])
    assert (same.rounds, same.clients.lr, same.clients.batch) == (200, 0.3, 16)
    other = so.Experiment.load("digits-fedaws", ["method.name=fedavg", "clients.batch=16"])
    assert other.data == same.data.model_copy(
        update={"validation_fraction": other.data.validation_fraction}
    )
    assert set(other.model_dump(exclude_unset=True)) == {"name", "seed", "data", "method", "clients"}
    assert other.clients.model_fields_set == {"batch"}
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=[0, 1])
    mine = so.Experiment.load("digits-fedaws", ["data.source=npz", f"data.path={tmp_path / 'a.npz'}"])
    assert mine.model.model_fields_set == set()
    assert mine.method.name == "fedaws"
    config = tmp_path / "own.toml"  # what stands in a file of one's own stays
    config.write_text(preset_text("digits-fedaws") or "")
    assert so.Experiment.load(config, ["method.name=fedavg"]).clients.lr == 0.3


def test_a_sweep_tries_all_on_validation_data_and_goes_on_where_it_stopped(
    trees: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = trees.parent / "trees.toml", trees.parent / "sweep"
    invoke(monkeypatch, "init", str(trees), "--out", str(config))
    asked = ["sweep", str(config), "rounds=2", "clients.lr=0.01,0.1", "--jobs", "2", "--out", str(out)]
    assert invoke(monkeypatch, *asked) == 0
    first = json.loads((out / "sweep.json").read_text())
    assert sorted(one["settings"][0] for one in first) == ["clients.lr=0.01", "clients.lr=0.1"]
    assert first[0]["score"] >= first[1]["score"]
    best = tomllib.loads((out / "best.toml").read_text())
    assert best["eval"]["split"] == "validation"
    assert best["data"]["validation_fraction"] == 0.1
    assert f"clients.lr={best['clients']['lr']}" == first[0]["settings"][0]
    made = {path: path.stat().st_mtime_ns for path in out.glob("trial-*/summary.json")}
    assert len(made) == 2
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("nothing is to be run again"))
    assert invoke(monkeypatch, *asked) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made
    capsys.readouterr()
    assert invoke(monkeypatch, *asked, "eval.split=test") == 2
    assert "settings that are chosen by the test part are not tested by it" in capsys.readouterr().err


def test_nothing_to_try_is_said() -> None:
    with pytest.raises(so.UserError, match="nothing to try; write values with commas"):
        Sweep.of("digits-fedaws", ["clients.lr=0.1"], Path("nowhere"))


FIRST = "".join(f"{i},{i % 7},{['ash', 'fir', 'yew'][i % 3]}\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv: is empty; a table has a header and rows"),
        ("a,b,kind\n", "t.csv: has a header and no rows"),
        ("a,b,kind\n1,2,ash\n1,2\n", "t.csv:3: 2 fields instead of 3"),
        ("user,item,time\n", "t.csv: has a header and no rows"),
        ("user,item,time\nann,ash,1\nann,ash\n", "t.csv:3: 2 fields instead of 3"),
        ("a,a,kind\n1,2,ash\n", "two columns are called 'a' (1 and 2)"),
        (
            "a,price\n" + "".join(f"1,{i / 7:.3f}\n" for i in range(90)),
            "price looks like a quantity (90 different numbers with fractions in 90 rows), and classes are "
            "needed: cut it into ranges, or name another column by --label",
        ),
        (
            "a,id\n" + "".join(f"1,u-{i:04d}\n" for i in range(30)),
            "id looks like a name of each row (30 different values in 30 rows), and nobody can learn a "
            "class from one example: name another column by --label",
        ),
        (
            "a,n\n" + "".join(f"1,{i * 37}\n" for i in range(30)),
            "n looks like a quantity, or a name of each row (30 different values in 30 rows)",
        ),
    ],
)
def test_init_refuses_what_no_run_could_read(
    text: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "t.csv").write_text(text)
    config = tmp_path / "t.toml"
    assert invoke(monkeypatch, "init", str(tmp_path / "t.csv"), "--out", str(config)) == 2
    assert said in capsys.readouterr().err
    assert not config.exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_init_reads_a_head_that_ends_within_a_cell_of_several_lines(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, path = tmp_path / "first.toml", tmp_path / "t.csv"
    rows = [
        f'"on the first line é,\n{i % 9}\nlast ""line""",{i % 7},{"ab"[i % 2]}\n' for i in range(9999)
    ]
    path.write_text("note,n,kind\n" + "".join(rows), encoding=encoding)
    assert path.stat().st_size > 4 * HEAD
    assert invoke(monkeypatch, "init", str(path), "--out", str(first)) == 0
    raw = so.Experiment.load(first).data.source.read(path)
    assert (len(raw.train.labels), raw.class_names) == (9999, ("a", "b"))
    path.write_text("note,n,kind\n" + "".join(rows[:9]) + "1,2\n", encoding=encoding)
    assert invoke(monkeypatch, "init", str(path), "--out", str(first), "--force") == 2
    assert "t.csv:29: 2 fields instead of 3" in capsys.readouterr().err


def test_events_under_other_names_are_told_by_the_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, config = tmp_path / "log.csv", tmp_path / "log.toml"
    rows = [f"{i % 5}|{i % 3}|2023-05-{i + 1:02d}T10:00|{i % 2}" for i in range(20)]
    path.write_text("\n".join(["kunde|produkt|zeitpunkt|sterne", *rows]) + "\n")
    named = ("init", str(path), "--client", "kunde", "--label", "produkt", "--out", str(config))
    assert invoke(monkeypatch, *named, "--method", "dual_encoder") == 0
    assert "Each kunde is a client; the next produkt, by zeitpunkt, is" in capsys.readouterr().out
    found = so.Experiment.load(config)
    assert found.data.source.name == "interactions"
    assert len(found.data.source.read(path).train.labels) == 15  # all but each user's first
    assert invoke(monkeypatch, *named, "--force") == 0  # any other method learns from a table
    assert so.Experiment.load(config).data.source.name == "table"


def test_init_knows_the_columns_of_parquet_and_that_a_table_is_to_be_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, config = tmp_path / "a.parquet", tmp_path / "a.toml"
    call = ("init", str(path), "--out", str(config))
    parquet.write_table(arrow.table({"userId": [1, 1], "movieId": [3, 4], "timestamp": [5, 6]}), path)
    assert invoke(monkeypatch, *call) == 0
    found = so.Experiment.load(config)
    assert found.data.source.read(found.data.path).class_names == ("", "3", "4")
    parquet.write_table(arrow.table({"a": [1.0], "kind": ["x"]}), path)
    for more in ((), ("--label", "kind")):
        assert invoke(monkeypatch, *call, "--force", *more) == 2
        assert "Parquet files are read as events" in (said := capsys.readouterr().err)
        assert "or write a table as CSV" in said
    path.write_bytes(b"PAR1")
    assert invoke(monkeypatch, *call, "--force") == 2
    assert "not a readable Parquet file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["label", "labels", "Tags"])
def test_labels_may_be_many_in_their_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{name},a\nash,1\nfir,2\n")
    assert guessed(str(tmp_path / "t.csv"))["source"] == {"name": "table", "label": name}


def test_at_a_terminal_another_column_of_labels_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{i % 5},{['ash', 'fir'][i % 2]},{i * 1.5}\n" for i in range(90))
    (tmp_path / "t.csv").write_text("a,b,price\n" + rows)
    answers = iter([str(tmp_path / "t.csv"), "b", "-", "fedaws"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert invoke(monkeypatch, "init", "--out", str(tmp_path / "t.toml")) == 0
    assert so.Experiment.load(tmp_path / "t.toml").data.source.label == "b"


@pytest.mark.parametrize("mark", ["|", ";", ","])
@pytest.mark.parametrize("source", ["table", "texts"])
def test_init_sees_that_cells_are_several_labels(
    mark: str,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = ["ash", "fir", mark.join(["ash", "yew"]), "yew", f"fir{mark} ash"]
    first = [
        str(i % 7) if source == "table" else f"some words no {'abcdefgh'[i % 8] * i}" for i in range(90)
    ]
    rows = [f'{one},"{sets[i % 5]}"' for i, one in enumerate(first)]
    (tmp_path / "t.csv").write_text("\n".join(["first,kinds", *rows]) + "\n")
    config = tmp_path / "t.toml"
    assert invoke(monkeypatch, "init", str(tmp_path / "t.csv"), "--out", str(config)) == 0
    assert f"A cell of it may be several labels, parted by {mark!r}" in capsys.readouterr().out
    found = so.Experiment.load(config)
    assert (found.data.source.name, found.data.source.separator) == (source, mark)
    raw = found.data.source.read(found.data.path)
    assert raw.class_names == ("ash", "fir", "yew")
    assert [sorted(raw.train.labels[i].tolist()) for i in range(5)] == [[0], [1], [0, 2], [2], [0, 1]]
