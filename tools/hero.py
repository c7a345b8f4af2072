"""Draw the picture at the top of README.md: python tools/hero.py"""

from pathlib import Path

import torch

import vit_tutorial as vt
from vit_tutorial import plots

PICTURE = Path(__file__).resolve().parent.parent / "assets" / "hero.png"


@torch.inference_mode()
def main() -> None:
    torch.manual_seed(0)
    photo = vt.data.photograph(224)  # (3, 224, 224)
    model = vt.ViT(vt.ViTConfig.preset("Ti/16", num_classes=5)).eval()
    tokens = model.embed.patches(photo[None])[0]  # (N, D)
    embedded = model.embed(photo[None])[0]  # (T, D)
    # Untrained projections look everywhere alike, so the pixels themselves are query and key: patches like the cheek's.
    pixels = vt.patchify(photo[None], 16)[0]  # (N, 768)
    pixels = 5 * torch.nn.functional.normalize(pixels - pixels.mean(), dim=1)
    _, weights = vt.attention(pixels, pixels, pixels)  # (N, N)
    probabilities = model(photo[None]).softmax(-1)[0]  # (K,)
    scores = {f"class {k}": p.item() for k, p in enumerate(probabilities)}
    figure = plots.five_steps(photo, 16, tokens, embedded, weights[7 * 14 + 6].reshape(14, 14), scores)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120, facecolor="white", bbox_inches="tight")
    print(f"wrote {PICTURE.relative_to(Path.cwd()) if PICTURE.is_relative_to(Path.cwd()) else PICTURE}")


if __name__ == "__main__":
    main()
