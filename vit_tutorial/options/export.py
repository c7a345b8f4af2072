"""The options of ``vit-tutorial export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class ExportOptions:
    """Write a model as a file for other runtimes.

    The file is compared with the model on 67 small photographs, and written only if it agrees. It takes "images",
    (B, C, H, W) float32, normalised, for any B (pt2: up to 4,096), and gives "logits"; it also holds the names of the
    classes and the preprocessing.
    """

    weights: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """A model of the package, a folder that training wrote, or a published model, as for predict."""

    to: Literal["onnx", "pt2"]
    """ONNX, or torch.export's format."""

    int8: bool = False
    """ONNX with matrices of one byte a number: a quarter of a large model's size, about half of a small one's, and
    slightly other answers."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The file; by default model.onnx or model.pt2."""

    def __post_init__(self) -> None:
        if self.int8 and self.to != "onnx":
            raise ValueError("--int8 needs --to onnx")
        if self.file.suffix != f".{self.to}":
            raise ValueError(f"--to {self.to} writes a file whose name ends in .{self.to}, got {self.file}")

    @property
    def file(self) -> Path:
        """The file to write."""
        return self.out or Path(f"model.{self.to}")
