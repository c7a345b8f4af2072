"""Lesson 07: what ``pip install vit-tutorial`` leaves out, and which extra brings it.

Models, weights on disk and predictions need torch, numpy, pillow, safetensors and tqdm; tyro serves the commands.
Everything else is in the extras of pyproject.toml, so that nobody installs JupyterLab to classify a photograph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]  # the clone, or the folder of installed packages
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
def install_hint() -> Iterator[None]:
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
        text = f"{package} is not installed: pip install {requirement(EXTRA_OF[package])}"
        raise ModuleNotFoundError(text, name=error.name) from None


def requirement(extra: str, source: Path = SOURCE) -> str:
    """What pip is to install, with an extra: the clone that this file lies in, or else the package by its name."""
    if (source / "pyproject.toml").is_file():
        return f'-e "{source}[{extra}]"'
    return f'"vit-tutorial[{extra}]"'
