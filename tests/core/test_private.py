"""What a deployment writes is for its owner alone."""

import os
import stat
from pathlib import Path

import pytest

from spreadout.core.errors import UserError
from spreadout.core.private import close_to_others, owner_only


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o027, 0o077])
def test_new_files_are_private_whatever_the_umask_and_it_is_put_back(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with owner_only():
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "file").write_text("a secret")
        found = os.umask(umask)
    finally:
        os.umask(before)
    assert found == umask
    assert mode(tmp_path / "folder") == 0o700
    assert mode(tmp_path / "folder" / "file") == 0o600


def test_what_was_there_before_is_closed_and_links_lead_nowhere_new(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    outside.chmod(0o644)
    run = tmp_path / "run"
    (run / "deep").mkdir(parents=True)
    for path, open_mode in ((run, 0o755), (run / "deep", 0o777)):
        path.chmod(open_mode)
    (run / "deep" / "program").touch()
    (run / "deep" / "program").chmod(0o755)
    (run / "link").symlink_to(outside)
    close_to_others(run)
    assert (mode(run), mode(run / "deep"), mode(run / "deep" / "program")) == (0o700, 0o700, 0o700)
    assert mode(outside) == 0o644


def test_another_users_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").touch()
    (tmp_path / "theirs").chmod(0o644)
    (tmp_path).chmod(0o700)

    def not_yours(self: Path, mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", not_yours)
    with pytest.raises(UserError, match=r"theirs: belongs to another user"):
        close_to_others(tmp_path)
