"""Lesson 13: what the painter paints, beside fillings that learn nothing or little, with three quarters hidden.

    python benchmarks/fillings.py --data cifar10-jpeg    fillings.csv, fillings.png; one CPU minute

"linear" is the best linear prediction of the hidden pixels from the visible ones: mean and covariance of the pixels of
the painter's 45,000 training photographs give it in closed form (the conditional mean of a normal distribution).
"recognised" is the share of 1,000 photographs (every tenth of the test split) that ``vt.load("cifar10")`` names
right; "nothing hidden" is the photograph itself. fillings.png has the lesson's four, filled by "linear".
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from cifar10 import read_cifar10
from PIL import Image
from result_table import ResultTable
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import selfsup

PNG = Path(__file__).with_suffix(".png")
COLUMNS = ["measure", "filling", "value"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
P, SHOWN = 4, [30, 68, 105, 161]  # of the package's 200 photographs


def hide(images: Tensor) -> tuple[Tensor, Tensor]:
    """What is hidden of each, the same every time: of the patches (B, N), and of the pixels (B, C, H, W)."""
    torch.manual_seed(0)
    hidden = selfsup.random_mask(len(images), 64, 0.75)  # (B, N)
    return hidden, vt.unpatchify(hidden[..., None].expand(-1, -1, 3 * P * P), P, (32, 32))


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
    x, visible = images.flatten(1) - mean, ~holes.flatten(1)  # (B, C·H·W)
    weights = torch.zeros_like(x)  # C[v, v]⁻¹ (x[v] - mean[v]) in the places of v
    for weight, each, v in zip(weights, x, visible, strict=True):
        factor = torch.linalg.cholesky(covariance[v][:, v])
        weight[v] = torch.cholesky_solve(each[v][:, None], factor)[:, 0]
    return torch.where(holes, (mean + weights @ covariance).view_as(images).clamp(0, 1), images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    torch.set_num_threads(1)
    data = read_cifar10(parser.parse_args().data)
    known = data["train_images"].flatten(1).float() / 255  # (n, C·H·W), those of the painter
    mean = known.mean(dim=0)
    covariance = (known - mean).T @ (known - mean) / len(known) + 1e-4 * torch.eye(len(mean))

    four, holes = (every[SHOWN] for every in (vt.data.cifar10_pictures().batch()[0], hide(torch.empty(200, 0))[1]))
    row = torch.cat(list(linear(four, holes, mean, covariance)), dim=2)  # (C, H, 4 W)
    Image.fromarray((255 * row).round().byte().permute(1, 2, 0).numpy()).save(PNG)

    images, labels = data["test_images"][::10].float() / 255, data["test_labels"][::10]
    painter, (judge, _, prepare) = selfsup.painter(), vt.load("cifar10")
    hidden, holes = hide(images)
    parts = list(zip(images.split(250), hidden.split(250), strict=True))
    fillings = {
        "painter": torch.cat([selfsup.reconstruct(painter, *part) for part in parts]),
        "linear": linear(images, holes, mean, covariance),
        "smooth": smooth(images, holes, 300),
        "mean colour": smooth(images, holes, 0),
        "nothing hidden": images,
    }
    RESULTS.path.unlink(missing_ok=True)
    for name, pictures in fillings.items():
        error = (pictures - images)[holes].square().mean()  # as many pixels of each are hidden
        with torch.inference_mode():
            answers = torch.cat([judge.eval()(prepare(part)).argmax(dim=1) for part in pictures.split(250)])
        RESULTS.add(["squared error", name, f"{error:.5g}"])
        RESULTS.add(["recognised (%)", name, f"{100 * (answers == labels).float().mean():.5g}"])


if __name__ == "__main__":
    main()
