"""The options of ``vit-tutorial evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class EvaluateOptions:
    """Measure a trained model on labelled images: its accuracy, by class, and what it confuses."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """A folder with a folder of images for each class, named as in the model; of a data set with splits, one of them:
    pets/test."""

    weights: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """A model, as for predict."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write the confusion matrix, as a table and a picture, and a page of the worst mistakes into this folder."""

    batch_size: int = 64
    """Images per step of the model; fewer need less memory."""

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("--weights is empty: name a model")
        if self.batch_size < 1:
            raise ValueError(f"--batch-size must be at least 1, got {self.batch_size}")
