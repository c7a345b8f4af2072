"""Lesson 07: what ``pip install vit-tutorial`` leaves out: which extra brings a package, and a bar that can do without.

Models, weights on disk and predictions need torch, numpy, pillow and safetensors. Everything else is in the extras of
pyproject.toml, so that nobody installs JupyterLab to classify a photograph.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

EXTRA_OF = {  # a package: the extra that brings it
    "accelerate": "train",
    "torchvision": "train",
    "tqdm": "weights",
    "matplotlib": "plots",
    "huggingface_hub": "weights",
    "transformers": "weights",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "webdataset": "shards",
    "datasets": "shards",
    "IPython": "learn",
    "sklearn": "learn",
    "torchinfo": "learn",
}


@contextmanager
def needed() -> Iterator[None]:
    """Inside, the error for a package that isn't installed says what to type.

    Raises:
        ModuleNotFoundError: a package of :data:`EXTRA_OF` is missing: one sentence, with the line to type.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        text = f'{package} is not installed: pip install "vit-tutorial[{EXTRA_OF[package]}]"'
        raise ModuleNotFoundError(text, name=error.name) from None


def printable(text: str) -> str:
    """The text on one line: line ends, codes that colour a terminal, all that can't be printed as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@contextmanager
def told(stopped: str = "stopped") -> Iterator[None]:
    """For a command: an error that has a cause the user can mend ends it with one line; Ctrl-C with ``stopped``."""
    try:
        yield
    except (ValueError, FloatingPointError, OSError, ImportError, MemoryError, torch.OutOfMemoryError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.strerror:
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise SystemExit(f"error: {' '.join(printable(line.strip()) for line in text.splitlines())}") from error
    except KeyboardInterrupt:
        raise SystemExit(stopped) from None


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 image``, ``2,000 images``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_of(lines: Sequence[str], limit: int = 5) -> str:
    """The first lines in one, and how many more there are."""
    return "; ".join(lines[:limit]) + (f"; and {len(lines) - limit:,} more" if len(lines) > limit else "")


def print_anything() -> None:
    """Let ``print`` write escapes for what stdout has no place for, such as Chinese names in a pipe on Windows."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class NoBar:
    """What stands for a progress bar of tqdm where tqdm isn't installed: it shows nothing, and prints lines."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self) -> bool:
        """Count one step; False, since nothing was drawn."""
        return False

    @staticmethod
    def write(text: str, file: Any = None, end: str = "\n") -> None:
        """Print the text, to stdout if no file is given."""
        print(text, file=file or sys.stdout, end=end)


def progress() -> Any:
    """tqdm, or :class:`NoBar` where it isn't installed."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return NoBar
    return tqdm
