"""Draw the picture at the top of README.md: python tools/hero.py"""

from pathlib import Path

import torch
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import plots
from vit_tutorial.analysis import explain

PICTURE = Path(__file__).resolve().parent.parent / "assets" / "hero.png"
SIDE = 64  # pixels that the model is shown: twice those of its training, for twice as many patches per side


@torch.inference_mode()
def main() -> None:
    model, classes, preprocess = vt.load("photographs", image_size=SIDE)
    with Image.open(vt.data.photograph_file("cat")) as picture:
        images = preprocess(picture.convert("RGB"))  # (1, 3, 64, 64)
    tokens = model.embed.patches(images)[0]  # (N, D)
    embedded = model.embed(images)[0]  # (T, D)
    maps = model.attention_maps(images)  # {layer: (1, h, T, T)}
    looked_at = explain.class_attention(explain.rollout(maps), model.config.grid)[0]  # (rows, columns)
    probabilities = model(images).softmax(-1)[0]  # (K,)
    likeliest, order = probabilities.topk(5)
    scores = {classes[k]: p for k, p in zip(order.tolist(), likeliest.tolist(), strict=True)}
    drawn = vt.data.photograph(4 * SIDE, "cat")  # the same crop, drawn finer than the model sees it
    patch = 4 * SIDE // model.config.grid[0]
    figure = plots.five_steps(drawn, patch, tokens, embedded, looked_at, scores)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120, facecolor="white", bbox_inches="tight")
    print(f"wrote {PICTURE.relative_to(Path.cwd()) if PICTURE.is_relative_to(Path.cwd()) else PICTURE}")


if __name__ == "__main__":
    main()
