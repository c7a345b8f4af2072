"""Lesson 07: what ``pip install vit-tutorial`` leaves out: which extra brings a package, and text for people.

Models, weights on disk and predictions need torch, numpy, pillow and safetensors; tqdm and tyro serve the commands.
Everything else is in the extras of pyproject.toml, so that nobody installs JupyterLab to classify a photograph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EXTRA_OF = {  # a package: the extra that brings it
    "accelerate": "train",
    "torchvision": "train",
    "matplotlib": "plots",
    "huggingface_hub": "weights",
    "timm": "weights",
    "transformers": "weights",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
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


def brief(text: str, limit: int = 1500) -> str:
    """The text on one line, cut in its middle where it is longer."""
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 300]} … {text[-290:]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 image``, ``2,000 images``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_of(lines: Sequence[str], limit: int = 5) -> str:
    """The first lines in one, and how many more there are."""
    return "; ".join(lines[:limit]) + (f"; and {len(lines) - limit:,} more" if len(lines) > limit else "")
