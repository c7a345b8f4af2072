"""Draw the picture at the top of README.md: python tools/hero.py"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import plots
from vit_tutorial.analysis import dense

PICTURE = Path(__file__).resolve().parent.parent / "assets" / "hero.png"
GRID = vt.data.real_features("cat").mask.shape  # (37, 37)
FACE = 9 * GRID[1] + 16  # a patch of the astronaut's face


def lit(image: Tensor, heat: Tensor) -> Tensor:
    """The photograph (C, H, W), dark where the heat (N,) is 0."""
    large = F.interpolate(heat.view(1, 1, *GRID), image.shape[1:])[0]  # (1, H, W)
    return image * (0.25 + 0.75 * large)


def main() -> None:
    photographs = [vt.data.real_features(name) for name in ("astronaut", "hopper")]
    tokens = [F.normalize(photograph.tokens, dim=1) for photograph in photographs]  # (N, D) each
    parts = dense.principal_maps(torch.stack([p.tokens.T.reshape(-1, *GRID) for p in photographs]))  # (2, 3, ., .)
    matches = [(units @ tokens[0][FACE]).clamp(min=0) ** 2 for units in tokens]  # (N,) each
    pictures = [
        picture
        for photograph, part, match in zip(photographs, parts, matches, strict=True)
        for picture in (photograph.image, part, lit(photograph.image, match))
    ]
    titles = ["photograph", "components of its tokens", "like the astronaut's face"] * 2
    figure = plots.pictures(pictures, titles, columns=6, height=2.0)
    for ax in figure.axes:
        ax.title.set_fontsize(9)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120, facecolor="white", bbox_inches="tight")
    print(f"wrote {PICTURE.name}")


if __name__ == "__main__":
    main()
