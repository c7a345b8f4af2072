"""Lesson 12's small models: what are neighbours worth to a ResNet and to a ViT, in short runs and in long ones?

    python benchmarks/shuffled_pixels.py --data cifar10-jpeg --seeds 3   rates first, then the table; resumable

Photographs are CIFAR-10's, halved to 16 x 16 pixels so that a run takes seconds; digits are scikit-learn's, 8 x 8. The
models have as many parameters. The MLP gets the pixels as a list, and is trained like the others. Each model has a rate
of its own for each number of steps, chosen on pictures held out. The test split is looked at once per row; a seed also
draws the pictures. A row per run goes to shuffled_pixels.csv as soon as it is done. One thread.

"pixels shuffled" puts all pixels into another order, by one permutation per seed, the same for all its pictures. To the
MLP no order means anything, so it has one row for both.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import torch
from cifar10 import few_of_each_class, read_cifar10
from result_table import ResultTable
from seeds import best_of_growing_grid, mean_with_interval
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.variants.resnet import ResNet

COLUMNS = ["data", "part", "model", "pictures", "steps", "rate", "seed", "held_out", "test", "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
MODELS = ("ResNet", "ViT", "MLP")
BATCH = 32
RATES = {"digits": (4e-3, 8e-3, 1.6e-2), "photographs": (1e-3, 2e-3, 4e-3)}  # to begin with
RATES_SEED = 100
SIZES = {  # pictures, steps: a short run, and one ten times as long
    "digits": ((1250, 240), (1250, 2400)),
    "photographs": ((20_000, 120), (20_000, 1200)),
}
# Every second or third of the photographs: the test split is sorted by class.
EACH = {"train": 2, "validation": 2, "test": 3}
SHUFFLED = ", pixels shuffled"  # what is added to the data's name
Split = tuple[Tensor, Tensor]  # normalised images, labels


def plain(data: str) -> str:
    """The name without what was shuffled."""
    return data.partition(",")[0]


def shuffled(images: Tensor, data: str, seed: int) -> Tensor:
    """(N, C, H, W) in another order of pixels, drawn by the seed; as they are unless the data's name says so."""
    if not data.endswith(SHUFFLED):
        return images
    order = torch.randperm(images[0, 0].numel(), generator=torch.Generator().manual_seed(seed))
    return images.flatten(2)[:, :, order].view_as(images)


def digits_splits() -> dict[str, Split]:
    data = vt.data.digits()
    held = vt.data.hold_out(data, 0.1)
    parts = {"train": held.train, "validation": held.test, "test": data.test}
    return {name: (vt.data.normalise(part.batch()[0], data), part.batch()[1]) for name, part in parts.items()}


def photograph_splits(folder: str) -> dict[str, Split]:
    data = read_cifar10(folder)
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)

    def halved(images: Tensor) -> Tensor:
        return torch.cat([(F.avg_pool2d(part.float() / 255, 2) - mean) / std for part in images.split(5000)])

    return {
        name: (halved(data[f"{name}_images"][::each]), data[f"{name}_labels"][::each]) for name, each in EACH.items()
    }


def model_of(data: str, name: str, seed: int = 0) -> nn.Module:
    """The ViT has 16 tokens and a class token in either data set: patches of 2 and of 4 pixels."""
    torch.manual_seed(seed)
    data = plain(data)
    small = data == "digits"
    shape: dict[str, Any] = {"num_classes": 10, "in_channels": 1 if small else 3}
    shape |= {"image_size": 8, "patch_size": 2} if small else {"image_size": 16, "patch_size": 4}
    shape |= {"dim": 32, "num_heads": 4, "mlp_dim": 64} if small else {"dim": 64, "num_heads": 4, "mlp_dim": 128}
    if name == "MLP":
        sizes = (64, 128, 72) if small else (768, 120, 64)
        layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], 10))
    if name == "ResNet" and small:
        return ResNet(((18, 1), (28, 2)), 10, in_channels=1)
    if name == "ResNet":
        return ResNet(((16, 1), (32, 2), (32, 1), (64, 2)), 10)
    return vt.ViT(vt.ViTConfig(**shape, depth=2 if small else 3))


def fit(model: nn.Module, split: Split, steps: int, rate: float, seed: int) -> None:
    """AdamW, a warm-up, a cosine; batches of 32 drawn at random."""
    images, labels = split
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=generator)
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 10))
        loss = F.cross_entropy(model(images[rows]), labels[rows], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@torch.inference_mode()
def accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    right = [(model(x).argmax(1) == y).sum() for x, y in zip(split[0].split(500), split[1].split(500), strict=True)]
    return float(sum(right)) / len(split[1])


def one(data: str, part: str, name: str, size: tuple[int, int], rate: float, seed: int, splits: Any) -> None:
    """One row, unless it is there."""
    pictures, steps = size
    known = [data, part, name, pictures, steps, rate, seed]
    if RESULTS.rows(**dict(zip(COLUMNS, known, strict=False))):
        return
    begin, model = time.process_time(), model_of(data, name, seed)
    splits = {key: (shuffled(images, data, seed), labels) for key, (images, labels) in splits.items()}
    images, labels = splits["train"]
    places = few_of_each_class(labels, pictures // 10, seed)
    fit(model, (images[places], labels[places]), steps, rate, seed)
    held = f"{accuracy(model, splits['validation']):.4f}"
    test = "" if part == "rates" else f"{accuracy(model, splits['test']):.4f}"
    RESULTS.add([*known, held, test, f"{time.process_time() - begin:.1f}"])


def held_out(data: str, name: str, size: tuple[int, int]) -> dict[float, float]:
    """Accuracy on what was held out, in percent, by rate."""
    rows = RESULTS.rows(data=data, part="rates", model=name, pictures=size[0], steps=size[1])
    return dict(sorted((float(row["rate"]), 100 * float(row["held_out"])) for row in rows))


def best_rate(data: str, name: str, size: tuple[int, int]) -> float:
    """The rate that did best on what was held out."""
    found = held_out(data, name, size)
    return max(found, key=lambda rate: found[rate])


def tune(data: str, name: str, size: tuple[int, int], splits: Any) -> None:
    """Try rates, and further ones as long as the best lies at the edge of the grid."""

    def score(rate: float) -> float:
        one(data, "rates", name, size, rate, RATES_SEED, splits)
        return held_out(data, name, size)[rate]

    best_of_growing_grid(RATES[plain(data)], score, lambda best, side: best * 2.0**side)


def run(folder: str, only: str, seeds: int) -> None:
    splits = digits_splits() if only == "digits" else photograph_splits(folder)
    wanted = [(size, only, name) for size in SIZES[only] for name in MODELS]
    wanted += [(size, only + SHUFFLED, name) for size in SIZES[only] for name in MODELS[:2]]
    for size, data, name in wanted:
        tune(data, name, size, splits)
    for seed, (size, data, name) in itertools.product(range(seeds), wanted):
        one(data, "table", name, size, best_rate(data, name, size), seed, splits)


def tested(data: str, name: str, pictures: int, steps: int) -> dict[str, float]:
    """By seed: test accuracy in percent."""
    rows = RESULTS.rows(data=data, part="table", model=name, pictures=pictures, steps=steps)
    return {row["seed"]: 100 * float(row["test"]) for row in rows}


def table() -> str:
    """The accuracies, and what the ResNet is ahead of the others, paired by seed."""
    lines = ["| pixels | " + " | ".join([*MODELS, *(f"ResNet − {name}" for name in MODELS[1:])]) + " |"]
    lines.append("|---" * 2 * len(MODELS) + "|")
    for data, how in itertools.product(SIZES, ("", SHUFFLED)):
        for size in SIZES[data]:
            by = {name: tested(data + how * (name != "MLP"), name, *size) for name in MODELS}
            ahead = [[one - by[name][seed] for seed, one in by["ResNet"].items()] for name in MODELS[1:]]
            cells = [mean_with_interval(values) for values in [list(found.values()) for found in by.values()] + ahead]
            lines.append(f"| {data}{how}, {size[0]:,} in {size[1]:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--only", choices=list(SIZES), nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    for only in args.only:
        run(args.data, only, args.seeds)
    print(table())


if __name__ == "__main__":
    main()
