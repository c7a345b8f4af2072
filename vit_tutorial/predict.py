"""Lesson 09's command line: what is in a photograph, and where the model looked.

``python -m vit_tutorial.predict PHOTO... --weights torchvision/vit_b_16 --attention looked.png``
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from vit_tutorial import explain, plots
from vit_tutorial.files import Trained, write
from vit_tutorial.weights import load


def parser() -> argparse.ArgumentParser:
    """The command line: photographs, weights, how many classes, a picture of the attention."""
    p = argparse.ArgumentParser(
        prog="python -m vit_tutorial.predict",
        description="Name what photographs show: the most likely classes, with their percentages.",
        epilog="The pictures of --attention show the class token's attention, averaged over all layers and heads: of "
        "the maps that lesson 08 scores, the one that points best.",
    )
    p.add_argument("photos", nargs="+", metavar="PHOTO", help="picture files")
    p.add_argument(
        "--weights",
        required=True,
        metavar="NAME",
        help="digits or shapes, which come with the package; a folder that training wrote; a file (.safetensors, .pth, "
        ".npz); or to download: torchvision/vit_b_16, timm/..., hf/..., google/....npz",
    )
    p.add_argument("--top", type=int, default=5, metavar="N", help="how many classes to name (default: 5)")
    p.add_argument("--attention", type=Path, metavar="OUT.png", help="a picture of where the model looked")
    return p


def open_photo(path: str) -> Image.Image:
    """The picture, turned upright as EXIF says. Raises ValueError that names a file which is none."""
    try:
        with Image.open(path) as opened:
            return ImageOps.exif_transpose(opened)
    except FileNotFoundError:
        raise ValueError(f"{path} isn't there") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        raise ValueError(f"{path} is no picture, or damaged ({' '.join(str(error).split())})") from error


def where_it_looked(trained: Trained, images: Tensor, titles: Sequence[str]) -> bytes:
    """A PNG: the pictures as the model gets them, (B, C, H, W) normalised, and below them its attention."""
    model, _, preprocess = trained
    maps = model.attention_maps(images)  # {layer: (B, h, T, T)}
    pictures = explain.class_attention(maps, model.config.grid, prefix_tokens=model.config.prefix_tokens)
    mean, std = (images.new_tensor(values)[:, None, None] for values in (preprocess.mean, preprocess.std))
    seen = (images * std + mean).clamp(0, 1)  # (B, C, H, W)
    figure = plots.overlays(list(seen), {"attention": list(pictures.mean(dim=(0, 2)))}, titles, height=2.4)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a photograph and one a class below it; write the picture, if asked for."""
    args = parser().parse_args(arguments)
    try:
        if args.top < 1:
            raise ValueError(f"--top must be at least 1, got {args.top}")
        photos = [open_photo(path) for path in args.photos]
        trained = load(args.weights)
        if not trained.classes:
            raise ValueError(f"{args.weights} has no head, so it names no classes: use weights that were fine-tuned")
        images = torch.cat([trained.preprocess(photo) for photo in photos])  # (B, C, H, W)
        chances = trained.model(images).softmax(dim=-1)  # (B, K)
        best, order = (x[:, : args.top] for x in chances.sort(descending=True, stable=True))  # (B, N)
        for path, values, indices in zip(args.photos, best.tolist(), order.tolist(), strict=True):
            print(path)
            for value, index in zip(values, indices, strict=True):
                print(f"  {value:6.1%}  {trained.classes[index]}")
        if args.attention:
            titles = [trained.classes[indices[0]] for indices in order.tolist()]
            write(args.attention, where_it_looked(trained, images, titles))
            print(f"where it looked: {args.attention}")
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None


if __name__ == "__main__":
    main(sys.argv[1:])
