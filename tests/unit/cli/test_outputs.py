"""What a command writes: refused early, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdd.cli.outputs import check_output, check_output_folder, write_output
from pdd.common.errors import InvalidInput


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    source = tmp_path / "plan.yaml"
    source.write_text("model: x")
    (tmp_path / "link.yaml").symlink_to(source)
    check_output("--out", None)
    check_output("--out", tmp_path / "new.yaml", source=str(source))
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x", "its folder is not there"),
        (source / "x", "its folder is not there"),
        (source, "is the file that is read"),
        (tmp_path / "link.yaml", "is the file that is read"),
    ):
        with pytest.raises(InvalidInput, match=said) as error:
            check_output("--out", path, source=str(source))
        assert (error.value.field, error.value.value) == ("--out", str(path))


def test_a_folder_may_be_made_but_is_no_file(tmp_path: Path) -> None:
    check_output_folder("--pictures", None)
    check_output_folder("--pictures", tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="is no folder"):
            check_output_folder("--pictures", path)


def test_rights_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, so what the system would say is a fake here."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InvalidInput, match="must not be written"):
        check_output("--out", tmp_path / "x")
    with pytest.raises(InvalidInput, match="must not be written"):
        check_output_folder("--pictures", tmp_path / "x")


def test_a_file_is_replaced_whole_and_keeps_its_rights_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "report.html", tmp_path / "latest.html"
    write_output("--report", path, "one")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o640)
    link.symlink_to(path)
    write_output("--report", link, b"two")
    assert link.is_symlink()
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["latest.html", "report.html"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InvalidInput, match="cannot be written: No space left on device"):
        write_output("--report", path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_pipes_are_written_as_they_are(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        write_output("--out", Path(f"/dev/fd/{write}"), "through")
        assert os.read(read, 100) == b"through"
    finally:
        os.close(read)
        os.close(write)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
