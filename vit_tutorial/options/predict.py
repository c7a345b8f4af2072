"""The options of ``vit-tutorial predict``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vit_tutorial.options.processes import processes

TABLES = (".csv", ".jsonl")  # what --out may end in
CLIP = "openai/clip-vit-base-patch32"  # for --labels without --weights
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class PredictOptions:
    """Name what photographs show: the most likely classes, with their probabilities.

    The model runs on a GPU if torch finds one. A photograph that can't be read is named and skipped. Several processes
    share the photographs and write one table: accelerate launch -m vit_tutorial.predict ... --out answers.csv.
    """

    photos: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PHOTO ...")]
    """Image files; folders, for all images in them and below; patterns such as "photos/a?.jpg"."""

    weights: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A model of the package (digits, shapes, photographs, cifar10), a folder that training wrote, or to download:
    torchvision/vit_b_16, timm/..., or a repository on the Hugging Face hub. With --labels by default CLIP's B/32."""

    labels: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT ...")] = ()
    """Of a model with a text tower (CLIP, SigLIP): texts to choose from, as typed: "a cat" "a dog". CLIP's
    probabilities sum to 1; SigLIP judges each text alone."""

    top: int = 5
    """How many classes to name."""

    out: File = None
    """Write a table instead, answers.csv or answers.jsonl: file, class, probability, rank."""

    features: File = None
    """Write what the head reads instead, features.npz: "files", and "features" with a row for each."""

    batch_size: int = 16
    """Photographs per step of the model; fewer need less memory."""

    attention: File = None
    """Draw where the model looked into a .png file: the class token's attention, averaged over all layers and heads,
    for up to 100 photographs."""

    def __post_init__(self) -> None:
        if not self.photos:
            before = ", before --labels" if self.labels else ""  # which would take it for a text
            raise ValueError(f"name at least one photograph or folder{before}")
        if self.weights is None and not self.labels:
            raise ValueError("--weights is needed: name a model")
        for name in ("top", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if self.out and self.out.suffix not in TABLES:
            raise ValueError(f"--out writes {' or '.join(TABLES)} files, got {self.out}")
        if self.features and self.features.suffix != ".npz":
            raise ValueError(f"--features writes an .npz file, got {self.features}")
        if self.features and (self.labels or self.out or self.attention or processes().number > 1):
            raise ValueError("--features goes without --labels, --out and --attention, in one process")
        if self.attention and self.attention.suffix.lower() != ".png":
            raise ValueError(f"--attention writes a .png file, got {self.attention}")

    @property
    def model(self) -> str:
        """The name of the model."""
        return CLIP if self.weights is None else self.weights
