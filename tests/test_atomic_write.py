"""Files are written whole or not at all, whatever the disk does."""

import errno
import os
from pathlib import Path

import pytest

from vit_tutorial.data.files import atomic_file, check_writable, write


def failing(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


FAULTS = {
    "the disk is full at the sync": (os, "fsync", errno.ENOSPC),
    "the disk is full at the move": (Path, "replace", errno.ENOSPC),
    "the folder can't be written to": (Path, "open", errno.EROFS),
    "the file can't be opened": (Path, "open", errno.EACCES),
    "the folder can't be made": (Path, "mkdir", errno.EROFS),
}


@pytest.mark.parametrize(("where", "name", "number"), FAULTS.values(), ids=FAULTS)
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, refuses, where, name, number):
    path = tmp_path / "folder" / "state.pt"
    write(path, b"old")
    with (
        monkeypatch.context() as patch,
        refuses(OSError, str(path.parent), os.strerror(number), "state.pt", "untouched", "resume"),
    ):
        patch.setattr(where, name, failing(number))
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["state.pt"]
    write(path, b"new")
    assert path.read_bytes() == b"new"


def test_two_that_write_at_once_and_a_file_of_the_user_s(tmp_path):
    path, users = tmp_path / "a.csv", tmp_path / "a.csv.partial"
    users.write_bytes(b"mine")
    with atomic_file(path) as first:
        first.write(b"A" * 10)
        first.flush()
        write(path, b"B")
        assert path.read_bytes() == b"B"
        first.write(b"A" * 10)
    assert path.read_bytes() == b"A" * 20
    assert users.read_bytes() == b"mine"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "a.csv.partial"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "store").mkdir()
    link, real = tmp_path / "a.csv", tmp_path / "store" / "real.csv"
    real.write_bytes(b"old")
    link.symlink_to(real)
    check_writable(link)
    write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_folder_for_a_file_and_a_file_for_a_folder_are_named(tmp_path, refuses):
    (tmp_path / "file").write_bytes(b"")
    with refuses(OSError, f"{tmp_path} is a folder", "another name"):
        write(tmp_path, b"new")
    with refuses(OSError, f"{tmp_path / 'file'} is a file", "name a folder"):
        write(tmp_path / "file" / "state.pt", b"new")


def test_the_error_keeps_its_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "open", failing(errno.EACCES))
    with pytest.raises(PermissionError):
        write(tmp_path / "a", b"")
