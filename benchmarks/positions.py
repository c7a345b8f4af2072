"""Lesson 11's table: five ways to give a ViT positions, at one rate for all, and at rates of their own.

    python benchmarks/positions.py digits                          some 110 runs of 3 CPU seconds
    python benchmarks/positions.py photographs --folder cifar10    train/ and test/, a folder for each class
    python benchmarks/positions.py report                          the tables in Markdown

AdamW moves a number by about its rate in each step, and a table of positions starts near zero. So the table may need
another rate than the matrices beside it. For each way the rate of the whole model is chosen first, then a factor: of
the table's rate on it, or, for sines and cosines, which don't learn, of their size. Both are chosen on images held out
from the training split, with seeds that aren't used afterwards. A grid grows until its best value is not at its edge.
Then each way is trained with new seeds, at the rate that all share and at its own, and tested once. A row a run goes to
benchmarks/positions.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sheet
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.data.augment import Affine, Crop, Flip
from vit_tutorial.train import schedule
from vit_tutorial.variants.positions import Kind, Place, PositionViT

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["data", "kind", "place", "rate", "factor", "seed", "split", "parameters", "accuracy", "cpu_seconds"]
WAYS: list[tuple[Kind, Place]] = [
    ("none", "once"),
    ("1d", "once"),
    ("2d", "once"),
    ("sincos", "once"),
    ("relative", "every layer"),
]
RATES = [2e-3, 4e-3, 8e-3]  # of the whole model; the grid is doubled or halved at its edges
FACTORS = [1.0, 4.0, 16.0, 64.0]  # of the table's rate on it, or of the sines' size; the grid goes on by fours
COMMON = (4e-3, 1.0)
BATCH = 64


@dataclass(frozen=True)
class Task:
    """The images of one data set, uint8, and how a model is trained on them."""

    name: str
    images: dict[str, Tensor]  # train, validation, test: (N, C, H, W)
    labels: dict[str, Tensor]
    patch_size: int
    epochs: int
    augment: Callable[[Tensor], Tensor]
    precision: torch.dtype
    search_seeds: int
    seeds: int
    kinds: tuple[Kind, ...] = ("none", "1d", "2d", "sincos", "relative")


def digits() -> Task:
    """The digits: 8 x 8 pixels, a grid of 4 x 4 patches; every fifth training image is held out."""
    data = vt.data.digits()
    held = torch.arange(len(data.train)) % 5 == 0
    images = {"train": data.train.images[~held], "validation": data.train.images[held], "test": data.test.images}
    labels = {"train": data.train.labels[~held], "validation": data.train.labels[held], "test": data.test.labels}
    images = {split: (found * 255.0 / 16).round().to(torch.uint8) for split, found in images.items()}
    return Task("digits", images, labels, 2, 15, Affine(), torch.float32, 2, 5)


def photographs(folder: str) -> Task:
    """Photographs of 32 x 32 pixels, a grid of 4 x 4 patches.

    5,000 training images, 2,000 held out, and the test images of a folder.
    """
    data = vt.data.load(folder, image_size=32)
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    parts = {"train": (data.train, order[:5_000]), "validation": (data.train, order[5_000:7_000])}
    parts["test"] = (data.test, torch.arange(len(data.test)))
    batches = {split: images.batch(rows) for split, (images, rows) in parts.items()}
    images = {split: (255 * found).round().to(torch.uint8) for split, (found, _) in batches.items()}
    labels = {split: found for split, (_, found) in batches.items()}

    def crop_and_flip(batch: Tensor) -> Tensor:
        return Flip()(Crop((4, 4))(batch))

    return Task("photographs", images, labels, 8, 4, crop_and_flip, torch.float32, 1, 5, ("none", "1d", "relative"))


def run(task: Task, kind: Kind, place: Place, rate: float, factor: float, seed: int, split: str) -> list[object]:
    """One row: train with the images that aren't ``split``, and measure on it."""
    begin = time.process_time()
    x, y = task.images["train"], task.labels["train"]
    if split == "test" and task.name == "digits":  # few images: those held out for the choice are trained on, too
        x, y = torch.cat([x, task.images["validation"]]), torch.cat([y, task.labels["validation"]])
    mean, std = x.float().div(255).mean((0, 2, 3)), x.float().div(255).std((0, 2, 3))

    def normalised(batch: Tensor) -> Tensor:
        return (batch - mean[:, None, None]) / std[:, None, None]

    torch.manual_seed(seed)
    model = PositionViT(config_of(task), kind, place)
    if kind == "sincos":
        model.get_submodule("positions.0").get_buffer("fixed").mul_(factor)
    tables = [*model.positions.parameters()]  # by the module: biases are named after the attention that holds them
    others = [p for p in model.parameters() if all(p is not table for table in tables)]
    groups = [{"params": others, "factor": 1.0}, {"params": tables, "factor": factor, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], weight_decay=0.05, fused=True)
    per_epoch = len(x) // BATCH
    steps = task.epochs * per_epoch
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(x))
        rows = order[step % per_epoch * BATCH :][:BATCH]
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"] * schedule(step, steps=steps, warmup=steps // 6)
        images = normalised(task.augment(x[rows].float() / 255))
        with torch.autocast("cpu", task.precision, enabled=task.precision != torch.float32):
            logits = model(images)
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), y[rows], label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(others, 1.0)
        optimizer.step()
    right = measure(model.eval(), normalised, task.images[split], task.labels[split])
    parameters = sum(p.numel() for p in model.parameters())
    spent = time.process_time() - begin
    return [task.name, kind, place, rate, factor, seed, split, parameters, f"{right:.4f}", f"{spent:.1f}"]


def config_of(task: Task) -> vt.ViTConfig:
    _, channels, *size = task.images["train"].shape
    return vt.ViTConfig(
        image_size=(size[0], size[1]),
        patch_size=task.patch_size,
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
    key = (data, kind, place, split)
    return {
        int(row["seed"]): 100 * float(row["accuracy"])
        for row in sheet.read(CSV)
        if (row["data"], row["kind"], row["place"], row["split"]) == key
        and (float(row["rate"]), float(row["factor"])) == (rate, factor)
    }


def needed(task: Task, kind: Kind, place: Place, rate: float, factor: float, split: str) -> float:
    """Run what is missing of these seeds; the mean accuracy in percent."""
    seeds = range(100, 100 + task.search_seeds) if split == "validation" else range(task.seeds)
    for seed in seeds:
        if seed not in accuracies(task.name, kind, place, rate, factor, split):
            sheet.add(CSV, COLUMNS, run(task, kind, place, rate, factor, seed, split))
    return statistics.mean(accuracies(task.name, kind, place, rate, factor, split).values())


def search(values: list[float], by: float, score: Callable[[float], float]) -> float:
    """The value with the highest score; the grid grows while the best is at its edge."""
    scores = {value: score(value) for value in values}
    while (best := max(scores, key=lambda value: scores[value])) in (min(scores), max(scores)):
        beyond = best / by if best == min(scores) else best * by
        scores[beyond] = score(beyond)
    return best


def own_rates(task: Task, kind: Kind, place: Place) -> tuple[float, float]:
    """The rate and the table's factor that are best on the images held out."""
    rate = search(RATES, 2, lambda value: needed(task, kind, place, value, 1.0, "validation"))
    if kind == "none":
        return rate, 1.0
    return rate, search(FACTORS, 4, lambda value: needed(task, kind, place, rate, value, "validation"))


def chosen(data: str) -> dict[tuple[str, str], tuple[float, float]]:
    """{(kind, place): (rate, factor)} of the test runs that aren't at the common rate, or are if that was chosen."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for row in sheet.read(CSV):
        if (row["data"], row["split"]) == (data, "test"):
            rates = (float(row["rate"]), float(row["factor"]))
            way = (row["kind"], row["place"])
            found[way] = rates if rates != COMMON else found.get(way, COMMON)
    return found


def table(data: str) -> str:
    """The accuracies of one data set, and what each way is ahead of none, paired by seed."""
    lines = ["| | one rate for all | rate of its own | factor | at its own | ahead of none |", "|---" * 6 + "|"]
    lines[0] = lines[0].replace("| |", f"| {data} |", 1)
    own = chosen(data)
    base = accuracies(data, "none", "once", *own["none", "once"], "test")
    for (kind, place), rates in own.items():
        common = [*accuracies(data, kind, place, *COMMON, "test").values()]
        at_own = accuracies(data, kind, place, *rates, "test")
        ahead = [at_own[seed] - base[seed] for seed in at_own]
        more = "–" if kind == "none" else f"{statistics.mean(ahead):+.1f} ± {sheet.half(ahead):.1f}"
        cells = [sheet.interval(found) for found in (common, [*at_own.values()])]
        lines.append(f"| {kind}, {place} | {cells[0]} | {rates[0]:g} | {rates[1]:g} | {cells[1]} | {more} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "photographs", "report"))
    parser.add_argument("--folder", help="photographs: with train/ and test/")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        print("\n\n".join(table(data) for data in dict.fromkeys(row["data"] for row in sheet.read(CSV))))
        return
    task = digits() if args.what == "digits" else photographs(args.folder)
    for kind, place in WAYS:
        if kind not in task.kinds:
            continue
        rates = own_rates(task, kind, place)
        for rate, factor in dict.fromkeys((COMMON, rates)):
            needed(task, kind, place, rate, factor, "test")
    print(table(task.name))


if __name__ == "__main__":
    main()
