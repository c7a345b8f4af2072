"""Lesson 13: what the painter paints, beside fillings that learn nothing or little, by the share that is hidden.

    python benchmarks/fillings.py --data cifar10-jpeg    fillings.csv; one CPU minute

"linear" is the best linear prediction of the hidden pixels from the visible ones: mean and covariance of the pixels of
the painter's 45,000 training photographs give it in closed form (the conditional mean of a normal distribution).
"recognised" is the share of the 200 pictures that ``vt.load("cifar10")`` names right. Differences are the painter's,
paired by picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import sheet
import torch
from photographs import read
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import selfsup

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["measure", "share", "filling", "value", "painter_less", "half"]
SHARES, P, LEARN_FROM = (0.5, 0.625, 0.75, 0.875, 0.95), 4, 45_000  # those of the painter


def smooth(images: Tensor, holes: Tensor, rounds: int) -> Tensor:
    """Hidden pixels become the mean of their four neighbours, many times; at first the mean of the visible ones."""
    mean = (images * ~holes).sum(dim=(2, 3), keepdim=True) / (~holes).sum(dim=(2, 3), keepdim=True)
    cross = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]).expand(3, 1, 3, 3) / 4
    x = torch.where(holes, mean, images)
    for _ in range(rounds):
        x = torch.where(holes, F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), cross, groups=3), images)
    return x


def linear(images: Tensor, holes: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """mean[h] + C[h, v] C[v, v]⁻¹ (x[v] - mean[v]) for the hidden pixels h and the visible ones v of each picture."""
    out = images.flatten(1).clone()  # (B, C·H·W)
    for x, h in zip(out, holes.flatten(1), strict=True):
        factor = torch.linalg.cholesky(covariance[~h][:, ~h])
        x[h] = mean[h] + (covariance[h][:, ~h] @ torch.cholesky_solve((x[~h] - mean[~h])[:, None], factor))[:, 0]
    return out.view_as(images).clamp(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    torch.set_num_threads(1)
    known = read(parser.parse_args().data)["train_images"][:LEARN_FROM].flatten(1).float() / 255  # (n, C·H·W)
    mean = known.mean(dim=0)
    covariance = (known - mean).T @ (known - mean) / len(known) + 1e-4 * torch.eye(len(mean))
    images, labels = vt.data.cifar10_pictures().batch()
    painter, (judge, _, prepare) = selfsup.painter(), vt.load("cifar10")
    CSV.unlink(missing_ok=True)
    for share in SHARES:
        torch.manual_seed(0)
        hidden = selfsup.choose(len(images), 64, share)  # (B, N)
        holes = vt.unpatchify(hidden[..., None].expand(-1, -1, 3 * P * P), P, (32, 32))  # (B, C, H, W)
        fillings = {
            "painter": selfsup.reconstruct(painter, images, hidden),
            "linear": linear(images, holes, mean, covariance),
            "smooth": smooth(images, holes, 300),
            "mean colour": smooth(images, holes, 0),
        }
        found: dict[str, dict[str, Tensor]] = {"squared error": {}, "recognised (%)": {}}  # {measure: {filling: (B,)}}
        for name, filled in fillings.items():
            error = ((filled - images).square() * holes).sum(dim=(1, 2, 3)) / holes.sum(dim=(1, 2, 3))
            with torch.inference_mode():
                right = judge.eval()(prepare(filled)).argmax(dim=1) == labels
            found["squared error"][name], found["recognised (%)"][name] = error, 100.0 * right
        for measure, by in found.items():
            for name, values in by.items():
                less = by["painter"] - values
                numbers = (values.mean(), less.mean(), sheet.half(less.tolist()))
                sheet.add(CSV, COLUMNS, [measure, share, name, *(f"{number:.5g}" for number in numbers)])


if __name__ == "__main__":
    main()
