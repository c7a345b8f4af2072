"""Lesson 11's runs: ways to give a ViT positions, trained for a short and a longer time; then pictures are moved.

    python benchmarks/positions.py digits    three ways, at one rate for all and at rates of their own
    python benchmarks/positions.py longer    the same for seven times the epochs
    python benchmarks/positions.py framed    digits in a frame, moved and shuffled: models of 8 and of 56 epochs

AdamW moves a number by about its rate in each step, and a table of positions starts near zero. So the table may need
another rate than the matrices beside it, or more steps. For each way the rate of the whole model is chosen first, then
a factor of the table's rate on it. Both are chosen on images held out from the training split, in short runs with
seeds that aren't used afterwards. A grid grows until its best value is not at its edge. Then each way is trained with
new seeds and tested once. A row a run goes to benchmarks/positions.csv as soon as it is done; rows that are there are
not run again. ``framed`` writes benchmarks/positions_framed.csv. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from result_table import ResultTable
from seeds import best_of_growing_grid
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.data.augment import Affine
from vit_tutorial.train import schedule
from vit_tutorial.variants.positions import Kind, Place, PositionConfig, PositionViT

COLUMNS = ["data", "kind", "place", "rate", "factor", "seed", "split", "parameters", "accuracy", "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
FRAMED = ResultTable(
    Path(__file__).with_name("positions_framed.csv"), ["model", "epochs", "seed", "change", "accuracy"]
)
CNN = Literal["CNN"]
WAYS: list[tuple[Kind | CNN, Place]] = [
    ("none", "once"),
    ("1d", "once"),
    ("relative", "every layer"),
    ("CNN", "once"),
]
RATES = [2e-3, 4e-3, 8e-3]  # of the whole model; the grid is doubled or halved at its edges
FACTORS = [1.0, 4.0, 16.0, 64.0]  # of the table's rate on it; the grid goes on by fours
COMMON = (4e-3, 1.0)
BATCH, SEEDS, LONG_SEEDS = 64, 5, 3
MOVED = "1d, moved in training"


@dataclass(frozen=True)
class Task:
    """The images of one data set, uint8, and how a model is trained on them."""

    name: str
    images: dict[str, Tensor]  # train, validation, test: (N, C, H, W)
    labels: dict[str, Tensor]
    epochs: int
    augment: Callable[[Tensor], Tensor]
    frame: int = 0  # black pixels on each side, added after normalising


def digits() -> Task:
    """The digits: 8 x 8 pixels, a grid of 4 x 4 patches; every fifth training image is held out."""
    data = vt.data.digits()
    held = torch.arange(len(data.train)) % 5 == 0
    images = {"train": data.train.images[~held], "validation": data.train.images[held], "test": data.test.images}
    labels = {"train": data.train.labels[~held], "validation": data.train.labels[held], "test": data.test.labels}
    images = {split: (found * 255.0 / 16).round().to(torch.uint8) for split, found in images.items()}
    return Task("digits", images, labels, 15, Affine())


def longer() -> None:
    """At the rate that all share, and with the relative table's rate at its own factor: three seeds."""
    task = replace(digits(), name="digits, 105 epochs", epochs=105)
    ways: list[tuple[Kind, Place, float]] = [
        ("none", "once", 1.0),
        ("1d", "once", 1.0),
        ("relative", "every layer", 1.0),
        ("relative", "every layer", 256.0),
    ]
    for seed, (kind, place, factor) in itertools.product(range(LONG_SEEDS), ways):
        if seed not in accuracies(task.name, kind, place, COMMON[0], factor, "test"):
            RESULTS.add(run(task, kind, place, COMMON[0], factor, seed, "test"))


def untrained(task: Task, kind: Kind | CNN, place: Place) -> nn.Module:
    if kind == "CNN":
        return cnn()
    return PositionViT(PositionConfig(**vars(config_of(task)), kind=kind, place=place))


def run(task: Task, kind: Kind | CNN, place: Place, rate: float, factor: float, seed: int, split: str) -> list[object]:
    """One row: train with the images that aren't ``split``, and measure on it."""
    begin = time.process_time()
    x, y = task.images["train"], task.labels["train"]
    if split == "test" and task.name.startswith("digits"):  # few: those held out for the choice are trained on, too
        x, y = torch.cat([x, task.images["validation"]]), torch.cat([y, task.labels["validation"]])
    mean, std = x.float().div(255).mean((0, 2, 3)), x.float().div(255).std((0, 2, 3))

    def normalised(batch: Tensor) -> Tensor:
        black = -(mean[0] / std[0]).item()
        return F.pad((batch - mean[:, None, None]) / std[:, None, None], [task.frame] * 4, value=black)

    torch.manual_seed(seed)
    model = untrained(task, kind, place)
    train(model, lambda rows: normalised(task.augment(x[rows].float() / 255)), y, rate, factor, task.epochs)
    right = measure(model.eval(), normalised, task.images[split], task.labels[split])
    parameters = sum(p.numel() for p in model.parameters())
    spent = time.process_time() - begin
    return [task.name, kind, place, rate, factor, seed, split, parameters, f"{right:.4f}", f"{spent:.1f}"]


def train(
    model: nn.Module, batch: Callable[[Tensor], Tensor], y: Tensor, rate: float, factor: float, epochs: int
) -> nn.Module:
    """AdamW on ``batch(rows)``; the positions learn at ``factor`` times the rate."""
    tables = [*model.positions.parameters()] if isinstance(model, PositionViT) else []
    others = [p for p in model.parameters() if all(p is not table for table in tables)]
    groups = [{"params": others, "factor": 1.0}, {"params": tables, "factor": factor, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], weight_decay=0.05, fused=True)
    per_epoch = len(y) // BATCH
    steps = epochs * per_epoch
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(y))
        rows = order[step % per_epoch * BATCH :][:BATCH]
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"] * schedule(step, steps=steps, warmup=steps // 6)
        optimizer.zero_grad()
        F.cross_entropy(model(batch(rows)), y[rows], label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(others, 1.0)
        optimizer.step()
    return model.eval()


def config_of(task: Task) -> vt.ViTConfig:
    _, channels, *size = task.images["train"].shape
    return vt.ViTConfig(
        image_size=(size[0] + 2 * task.frame, size[1] + 2 * task.frame),
        patch_size=2,
        in_channels=channels,
        num_classes=10,
        dim=32,
        depth=2,
        num_heads=2,
        mlp_dim=64,
    )


@torch.inference_mode()
def measure(model: nn.Module, normalised: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    """The accuracy, in float32."""
    answers = torch.cat([model(normalised(part.float() / 255)).argmax(dim=1) for part in images.split(250)])
    return (answers == labels).double().mean().item()


def accuracies(data: str, kind: str, place: str, rate: float, factor: float, split: str) -> dict[int, float]:
    """{seed: accuracy in percent} of the runs that are done."""
    rows = RESULTS.rows(data=data, kind=kind, place=place, rate=rate, factor=factor, split=split)
    return {int(row["seed"]): 100 * float(row["accuracy"]) for row in rows}


def needed(task: Task, kind: Kind | CNN, place: Place, rate: float, factor: float, split: str) -> float:
    """Run what is missing of these seeds; the mean accuracy in percent."""
    search_seeds = SEEDS if kind == "CNN" else 2  # at high rates some CNNs learn nothing
    seeds = range(100, 100 + search_seeds) if split == "validation" else range(SEEDS)
    for seed in seeds:
        if seed not in accuracies(task.name, kind, place, rate, factor, split):
            RESULTS.add(run(task, kind, place, rate, factor, seed, split))
    return statistics.mean(accuracies(task.name, kind, place, rate, factor, split).values())


def own_rates(task: Task, kind: Kind | CNN, place: Place) -> tuple[float, float]:
    """The rate and the table's factor that are best on the images held out."""

    def by_rate(rate: float) -> float:
        return needed(task, kind, place, rate, 1.0, "validation")

    def by_factor(factor: float) -> float:
        return needed(task, kind, place, rate, factor, "validation")

    rate = best_of_growing_grid(RATES, by_rate, lambda best, side: best * 2.0**side)
    if kind not in ("1d", "relative"):
        return rate, 1.0
    return rate, best_of_growing_grid(FACTORS, by_factor, lambda best, side: best * 4.0**side)


def framed(epochs: int, seeds: int) -> None:
    """Models trained on digits in the middle of a black frame, one of them on moved digits; then test digits change."""
    task = replace(digits(), name="framed", epochs=8, augment=lambda batch: batch, frame=4)
    data, (side, last) = vt.data.digits(), (8, 4)  # a grid of 8 x 8 patches; moved by 0 to 4 pixels
    pairs = [split.batch() for split in (data.train, data.test)]
    black = (0 - data.mean[0]) / data.std[0]
    x, test = (F.pad(vt.data.normalise(images, data), (4, 4, 4, 4), value=black) for images, _ in pairs)
    y, truth = (labels for _, labels in pairs)
    grid = torch.arange(side**2).view(side, side)
    shuffles = [torch.randperm(side**2, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]

    def in_order(order: Tensor) -> Tensor:
        return vt.unpatchify(vt.patchify(test, 2)[:, order], 2, (2 * side, 2 * side))

    def moved(rows: Tensor) -> Tensor:
        """Of a batch, every four images by a shift of their own, drawn anew each time."""
        fours = x[rows].split(4)
        return torch.cat([four.roll(torch.randint(-last, last + 1, (2,)).tolist(), dims=(2, 3)) for four in fours])

    changes = {
        f"moved by {s}": [test.roll((s * d, s * r), (2, 3)) for r, d in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        for s in range(last + 1)
    }
    changes |= {"columns reversed": [in_order(grid.flip(1).flatten())], "shuffled": [in_order(o) for o in shuffles]}
    models: list[tuple[str, Kind | CNN, Place, Callable[[Tensor], Tensor]]] = [
        ("none", "none", "once", x.__getitem__),
        ("1d", "1d", "once", x.__getitem__),
        (MOVED, "1d", "once", moved),
        ("relative", "relative", "every layer", x.__getitem__),
        ("CNN", "CNN", "once", x.__getitem__),
    ]
    for seed, (name, kind, place, batch) in itertools.product(range(seeds), models):
        if FRAMED.rows(model=name, epochs=epochs, seed=seed):
            continue
        torch.manual_seed(seed)
        model = untrained(task, kind, place)
        torch.manual_seed(seed)
        rates = (4e-3, 16.0) if name == MOVED else own_rates(task, kind, place)  # at 0.008 · 64 it learned nothing
        train(model, batch, y, *rates, epochs)
        for change, images in changes.items():
            with torch.inference_mode():
                right = [(model(part).argmax(dim=1) == truth).double().mean().item() for part in images]
            row = [name, epochs, seed, change, f"{statistics.mean(right):.4f}"]
            FRAMED.add(row)


def cnn() -> nn.Module:
    """Three convolutions with pooling, then the mean over all places."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "longer", "framed"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "digits":
        task = digits()
        for kind, place in WAYS:
            if kind == "CNN":
                continue
            for rate, factor in dict.fromkeys((COMMON, own_rates(task, kind, place))):
                needed(task, kind, place, rate, factor, "test")
    elif args.what == "longer":
        longer()
    else:
        framed(56, SEEDS)
        framed(8, SEEDS)


if __name__ == "__main__":
    main()
