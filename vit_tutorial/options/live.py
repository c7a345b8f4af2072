"""The options of ``vit-tutorial live``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

PAGES = (".html", ".htm")  # what --out may end in


@dataclass(frozen=True)
class LiveOptions:
    """Write a page that runs a model: draw or drop a picture, watch each step, change the model."""

    photos: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PHOTO ...")] = ()
    """Pictures to begin with (20 or more: the page shows what each part of the model answers to among them, too);
    none: some of the model's own test split."""

    weights: Annotated[str, tyro.conf.arg(metavar="NAME")] = "digits"
    """digits (the model with 4 x 4 patches, digits-patch2), shapes, photographs, or as for predict."""

    image_size: Annotated[int | None, tyro.conf.arg(metavar="PIXELS")] = None
    """Height and width of the photographs, for a published model, whose positions are resized; fewer patches are
    quicker."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("build/live.html")
    """The page. In a clone, git ignores the folder of the default."""

    def __post_init__(self) -> None:
        if self.image_size is not None and not self.photos:
            raise ValueError("--image-size is of the photographs: name some, or leave it out")
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(f"--image-size must be at least 1, got {self.image_size}")
        if self.out.suffix.lower() not in PAGES:
            raise ValueError(f"--out writes a page, whose name ends in {PAGES[0]}, got {self.out}")
