"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` in place of the file, as :func:`atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


def check_writable(path: Path) -> None:
    """Raise now, before the work, the OSError that :func:`atomic_file` would raise after it; nothing is made."""
    path = _target(path)
    try:
        there = next(folder for folder in path.parents if folder.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` in one move when the block ends well.

    Killed at any moment, the old file or the new one is there; after an error the old one. Of several that write at
    once, the last to end wins. A link stays one: what it leads to is written.

    Raises:
        OSError: that names the folder, for a full disk or one without the right to write; a folder where a file is to
            be, or a file where a folder is.
    """
    path = _target(path)
    partial_file = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")  # nobody else's
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name and no content
        partial_file.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            partial_file.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """The file to write, behind a link."""
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, and a file is to be written: give it another name")
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(f"{path.parent} is a file, and {path.name} is to be written into it: name a folder")
    return path


def _unwritable(path: Path, error: OSError) -> OSError:
    return OSError(
        error.errno,
        f"can't write {path.name} to the folder {path.parent} ({error.strerror}): what was saved there before is "
        "untouched; make room, get the right to write, or close what has it open; then try again, or resume",
    )
