"""Names that were in another module still are, for projects that were made with them."""

from __future__ import annotations

import pytest

import spreadout as so


def test_parts_of_a_data_set_can_be_imported_from_where_they_were() -> None:
    # The line that `spreadout deploy init` wrote into projects.
    from spreadout.data.dataset import Examples, FederatedDataset, Splits

    assert (Examples, FederatedDataset, Splits) == (so.Examples, so.FederatedDataset, so.Splits)


def test_other_names_are_refused_as_ever() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from spreadout.data.dataset import Nothing")
