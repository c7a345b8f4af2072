"""Which files the command line means, and reading them a few ahead of the model."""

from __future__ import annotations

import glob
import os
import sys
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vit_tutorial.data import Preprocessing, images_in, open_photo
from vit_tutorial.data.photo_files import THREADS, problem_of
from vit_tutorial.data.preprocessing import to_rgb
from vit_tutorial.data.text import printable

if TYPE_CHECKING:
    from PIL import Image as PILImage


def find(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The image files that files, folders and patterns stand for.

    Args:
        names: files, taken as they are, whatever they are called; folders, for the images in them and below
            (:func:`vit_tutorial.data.images_in`); patterns as ``glob`` knows them, for shells that don't expand them.

    Returns:
        The files, in the order of the names, those of a folder or a pattern sorted; and a line for each name that
        stands for no file.

    Raises:
        TypeError: one name in place of several.
    """
    if isinstance(names, str):
        raise TypeError(f"names must be a list, got {names!r}: [{names!r}]")
    files: list[str] = []
    problems: list[str] = []
    for name in names:
        # pathlib's equivalents don't take absolute patterns, match hidden files, and raise for a name that is too long.
        matches = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))  # noqa: PTH110, PTH207
        if not matches:
            hint = ": download it first" if "://" in name else ""
            problems.append(f"{printable(name) or repr(name)} was not found{hint}")
        for match in matches:
            inside = [str(file) for file in images_in(Path(match))] if Path(match).is_dir() else [match]
            files += inside
            if not inside:
                problems.append(f"{printable(match)} holds no files")
    return files, problems


def open_all(names: Sequence[str]) -> tuple[list[str], list[PILImage.Image], list[str]]:
    """The photographs that names stand for (see :func:`find`), all in memory: for the pages.

    Returns:
        The files that can be read, their pictures, and a line for each file or name that was skipped; the lines are
        printed to stderr, too.

    Raises:
        ValueError: not one photograph can be read.
    """
    files, skipped = find(names)
    readable, pictures = [], []
    for file in files:
        try:
            pictures.append(to_rgb(open_photo(file)))
            readable.append(file)
        except ValueError as error:
            skipped.append(problem_of(file, error))
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if not readable:
        raise ValueError(f"no photograph can be read: {'; '.join(skipped[:5])}")
    return readable, pictures, skipped


def read(
    files: Iterable[str], preprocess: Preprocessing, ahead: int
) -> Generator[tuple[str, Tensor | ValueError], None, None]:
    """Each file with its image, (1, C, H, W) normalised, or with what is wrong with it, in the order of ``files``.

    Several threads read; at most ``ahead`` images wait in memory.
    """

    def image_of(path: str) -> Tensor | ValueError:
        try:
            return preprocess(open_photo(path))
        except ImportError:  # a package is missing, and the photograph is all right
            raise
        except Exception as error:  # whatever it is, it concerns this file alone
            return ValueError(problem_of(path, error))

    rest = iter(files)
    waiting: deque[tuple[str, Future[Tensor | ValueError]]] = deque()
    # Without this, each thread would start threads of torch's own, which take the cores from the model's. But it is
    # also torch's number for threads that start later, so it is set back at the end.
    torch_threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for path in islice(rest, ahead):
            waiting.append((path, pool.submit(image_of, path)))
        while waiting:
            path, future = waiting.popleft()
            yield path, future.result()
            for following in islice(rest, 1):
                waiting.append((following, pool.submit(image_of, following)))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(torch_threads)
