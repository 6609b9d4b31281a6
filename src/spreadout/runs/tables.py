"""Results as tables: of pandas, and of HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spreadout.core.errors import UserError

if TYPE_CHECKING:
    import pandas


def data_frame(records: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """A row for every record, a column for every key; pandas is imported now."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas: pandas is not installed; pip install 'spreadout[pandas]'") from None
    return pandas.DataFrame([dict(record) for record in records])


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in cells, escaped.

    >>> html_table(["a"], [["<1>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
