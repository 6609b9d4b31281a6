"""Which attributes of an ARFF file are labels: by Mulan's XML, MEKA's @relation, or Weka's class.

Or by the user, who names the attribute that is the class; whatever else stands there is a feature then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from xml.etree import ElementTree

from spreadout.core.errors import UserError
from spreadout.data.io.archive import Archive
from spreadout.data.sources.arff import Attribute, Header, unescaped
from spreadout.data.sources.mulan_files import ArffName, xml_files

ON = ("1", "true", "yes", "y", "t", "on", "+1")
OFF = ("0", "false", "no", "n", "f", "off", "-1")
CLASS = "class"
SHOWN = 8  # nominal attributes that an error names


def labels_of(archive: Archive, file: str, header: Header) -> list[str]:
    """The label attributes' names as the XML has them, or as MEKA counts them; label i is the i-th."""
    name = ArffName.of(file)
    files = xml_files(archive, None if name is None else name.base)
    label = archive.label(file)
    if len(files) == 1:
        return label_names(archive, files[0])
    fitting = [found for xml in files if (found := _fitting(archive, xml, header, label)) is not None]
    if len(fitting) == 1:
        return fitting[0]
    if files:
        some, which = ", ".join(files[:4]), "several fit" if fitting else "none fits"
        raise UserError(f"{label}: of the XML files beside it ({some}), {which}; leave one there")
    if header.labels is None:
        raise UserError(
            f"{label}: nothing says which attributes are labels; it needs an XML file beside it "
            "(Mulan), -C and their number in @relation (MEKA), or a nominal attribute 'class' (Weka); "
            f"or set data.source.label to the attribute of classes: {_nominal(header)}"
        )
    count, every = header.labels, [attribute.name for attribute in header.attributes]
    if not 0 < abs(count) <= len(every):
        raise UserError(f"{label}: -C {count} in @relation, but there are {len(every)} attributes")
    return every[:count] if count > 0 else every[count:]


def class_named(name: str, header: Header, label: str) -> int:
    """The attribute that the user calls the class, which must be one of several values."""
    found = [place for place, attribute in enumerate(header.attributes) if attribute.name == name]
    remedy = f"set data.source.label to a nominal one: {_nominal(header)}"
    if not found:
        close = get_close_matches(name, [attribute.name for attribute in header.attributes], 1, 0.5)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise UserError(f"{label}: no attribute {name!r}{meant}; {remedy}")
    if len(found) > 1:
        raise UserError(f"{label}: {len(found)} attributes are called {name!r}; rename all but one")
    attribute = header.attributes[found[0]]
    if len(attribute.values) < 2:
        raise UserError(f"{label}: attribute {name!r} has no classes; {remedy}")
    return found[0]


def _nominal(header: Header) -> str:
    """The attributes that could be a class, for errors."""
    names = [attribute.name for attribute in header.attributes if len(attribute.values) > 1]
    some = ", ".join(repr(name[:30]) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return some + more if names else "but it has none"


def class_of(archive: Archive, file: str, header: Header) -> int | None:
    """The one attribute that names a row's class, where neither an XML file nor -C names labels."""
    name = ArffName.of(file)
    if header.labels is not None or xml_files(archive, None if name is None else name.base):
        return None
    return likely_class(header)


def likely_class(header: Header) -> int | None:
    """The attribute that is the class in Weka's files: called so, or the last.

    A last attribute that is on or off is none: it may be the last of many labels whose XML is not here.
    """
    for place, attribute in enumerate(header.attributes):
        if attribute.name.casefold() == CLASS and len(attribute.values) > 1:
            return place
    last = header.attributes[-1]
    switch = {value.casefold() for value in last.values} <= {*ON, *OFF}
    return None if len(last.values) < 2 or switch else len(header.attributes) - 1


def _fitting(archive: Archive, xml: str, header: Header, label: str) -> list[str] | None:
    """The names in an XML file, if it is about this very ARFF file."""
    try:
        names = label_names(archive, xml)
        places_of(names, header, label)
    except UserError:
        return None
    return names


def label_names(archive: Archive, file: str) -> list[str]:
    """The names in an XML file, in its order."""
    try:
        root = ElementTree.fromstring(archive.read(file))
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise UserError(f"{archive.label(file)}: not well-formed XML ({error})") from None
    nodes = [node for node in root.iter() if str(node.tag).rpartition("}")[2] == "label"]
    names = [name for node in nodes if (name := node.get("name")) is not None]
    if not names or len(names) < len(nodes):
        what = "names no labels" if not nodes else "has a <label> without a name"
        raise UserError(f"{archive.label(file)}: {what}")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{archive.label(file)}: names the label {twice[0]!r} twice")
    return names


def places_of(labels: Sequence[str], header: Header, label: str) -> list[int]:
    """Which attribute each label is.

    By its name as it stands, or by what both are without backslashes: publishers escape quotes in the
    ARFF, in the XML, or in both.
    """
    exact = {attribute.name: i for i, attribute in enumerate(header.attributes)}
    loose = {unescaped(name): i for name, i in exact.items()}
    found = [exact.get(name, loose.get(unescaped(name))) for name in labels]
    declared = Counter(attribute.name for attribute in header.attributes)
    meant = [header.attributes[place].name for place in found if place is not None]
    if several := next((name for name in meant if declared[name] > 1), None):
        raise UserError(
            f"{label}: {declared[several]} attributes are called {several!r}, the name of a label; "
            "rename all but one"
        )
    places = [place for place in found if place is not None]
    if len(places) < len(labels):
        raise UserError(
            f"{label}: no attribute for the label {labels[found.index(None)]!r} named in the XML"
        )
    if len(set(places)) < len(places):
        twice = next(place for place, count in Counter(places).items() if count > 1)
        name = header.attributes[twice].name
        raise UserError(f"{label}: two labels in the XML are the attribute {name!r}")
    return places


def is_on_first(attribute: Attribute, file: str) -> bool:
    """Whether the first value declared for a label is the one that means it is on."""
    values = [value.casefold() for value in attribute.values]
    if attribute.kind == "number" or (len(values) == 1 and values[0] in OFF):
        return False
    if len(values) == 2 and values[0] in OFF and values[1] in ON:
        return False
    if (len(values) == 2 and values[0] in ON and values[1] in OFF) or (
        len(values) == 1 and values[0] in ON
    ):
        return True
    raise UserError(
        f"{file}: the label {attribute.shown()} is not {{0,1}}: only labels that are on or off are read"
    )
