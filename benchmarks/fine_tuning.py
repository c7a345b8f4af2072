"""Lesson 10's tables: a trained model on a new task, each way of training it at a rate of its own.

    python benchmarks/fine_tuning.py digits                         mirrored digits: some 140 runs of half a CPU second
    python benchmarks/fine_tuning.py photographs --folder cifar10   four folders of photographs: some 100 runs of 4
    python benchmarks/fine_tuning.py scenes                         figures in drawn scenes: some 30 runs of 11
    python benchmarks/fine_tuning.py report                         the tables in Markdown

A draw says which images are labelled, for training and for validation; the test images are the same for all. The rate
of each way is the one with the best mean accuracy over all draws' validation images, from a grid that grows until its
best value is not at its edge. A row a run goes to benchmarks/fine_tuning.csv as soon as it is done; rows that are there
are not run again. After a run on mirrored digits the old head is put back and reads ordinary ones (old_task); after
those with a zero head a probe is fitted to the changed features, too (old_task_new_head). One thread.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sheet
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.data import scenes
from vit_tutorial.train import schedule
from vit_tutorial.train.layers import layer_of

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["task", "way", "rate", "draw", "validation", "test", "old_task", "old_task_new_head", "cpu_seconds"]
DRAWS = 5
LADDER = [float(f"{digit}e{power}") for power in range(-7, 1) for digit in (1, 3)]  # rates that are tried
FOLDERS = {"air": (0, 2), "road": (1, 9), "water": (8,), "legs": (3, 4, 5, 6, 7)}  # of CIFAR-10's classes
HEADS = {"zero head": 0.0, "head of std 0.02": 0.02, "torch's default head": None, "head of std 1": 1.0}
Split = tuple[Tensor, Tensor]  # normalised images (N, C, H, W), labels (N,)


@dataclass(frozen=True)
class Task:
    """A new task for a shipped model."""

    name: str
    model: str  # what vt.load reads
    classes: int
    draw: Callable[[int], tuple[Split, Split]]  # -> training and validation images
    test: Split
    old: tuple[Split, Split] | None  # the task that the model was trained for: images for a new head, test images
    steps: int
    batch: int
    ways: dict[str, tuple[float, ...]]  # the rates that are tried first
    precision: torch.dtype


def digits() -> Task:
    """Digits read from the other side of a glass door: ten labelled ones of each class, ten to validate."""
    data = vt.data.digits()

    def split(images: vt.data.Images, rows: Tensor, mirrored: bool = True) -> Split:
        pixels, labels = images.batch(rows)
        return vt.data.normalise(pixels.flip(3) if mirrored else pixels, data), labels

    def draw(number: int) -> tuple[Split, Split]:
        chosen = few(data.train.labels, 20, number)  # (10, 20)
        return split(data.train, chosen[:, :10].flatten()), split(data.train, chosen[:, 10:].flatten())

    test = split(data.test, torch.arange(len(data.test)))
    third, every = torch.arange(0, len(data.train), 3), torch.arange(len(data.test))
    old = split(data.train, third, mirrored=False), split(data.test, every, mirrored=False)
    ways = dict.fromkeys(("from scratch", *HEADS), (1e-3, 3e-3, 1e-2))
    return Task("digits", "digits", 10, draw, test, old, 80, 32, ways, torch.float32)


def photographs(folder: str) -> Task:
    """Photographs sorted into four folders: ten labelled ones of each, ten to validate, 240 to test.

    They are of CIFAR-10's test split, which the model was never trained on.
    """
    data = vt.data.load(folder, image_size=32).test
    folder_of = torch.empty(10, dtype=torch.int64)
    for number, classes in enumerate(FOLDERS.values()):
        folder_of[list(classes)] = number
    labels = folder_of[torch.as_tensor(data.labels)]
    order = few(labels, 500, 0)  # (4, 500)
    preprocess = vt.load("photographs").preprocess

    def split(rows: Tensor) -> Split:
        return preprocess(data.batch(rows)[0]), labels[rows]

    def draw(number: int) -> tuple[Split, Split]:
        chosen = order[:, 60 + 20 * number :][:, :20]  # (4, 20)
        return split(chosen[:, :10].flatten()), split(chosen[:, 10:].flatten())

    ways = dict.fromkeys(("from scratch", "LoRA"), (3e-4, 1e-3, 3e-3))
    ways |= dict.fromkeys(("all at one rate", "head first, then all", "layer-wise rates"), (3e-5, 1e-4, 3e-4))
    test = split(order[:, :60].flatten())
    return Task("photographs", "photographs", 4, draw, test, None, 32, 10, ways, torch.bfloat16)


def drawn_scenes() -> Task:
    """Which of eight figures a drawn scene holds, at 32 x 32 pixels: far from photographs. 40 labelled ones of each."""
    preprocess = vt.load("photographs").preprocess

    def split(seed: tuple[int, int], n: int) -> Split:
        images, labels, _ = scenes.draw(seed, n)
        return preprocess(F.avg_pool2d(torch.from_numpy(images).float() / 255, 2)), torch.from_numpy(labels)

    def draw(number: int) -> tuple[Split, Split]:
        return split((number, 0), 320), split((number, 1), 320)

    ways = dict.fromkeys(("all at one rate", "from scratch"), (3e-4, 1e-3, 3e-3))
    return Task("scenes", "photographs", 8, draw, split((DRAWS, 1), 600), None, 60, 32, ways, torch.bfloat16)


def few(labels: Tensor, n: int, seed: int) -> Tensor:
    """The rows of n images of each class, drawn at random: (K, n)."""
    random = torch.Generator().manual_seed(seed)
    rows = [(labels == k).nonzero().flatten() for k in range(int(labels.max()) + 1)]
    return torch.stack([found[torch.randperm(len(found), generator=random)[:n]] for found in rows])


# ---- The ways --------------------------------------------------------------------------------------------------------


class LoRA(nn.Module):
    """A linear layer that stays as it is, plus a product of two thin matrices that learns (arXiv 2106.09685)."""

    def __init__(self, linear: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.in_features = linear.in_features  # attention asks for it
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x) + self.up(self.down(x))
        return out


def start(task: Task, way: str, train: Split) -> vt.ViT:
    """The model as it is before training."""
    if way == "from scratch":
        return vt.ViT(replace(vt.load(task.model).model.config, num_classes=task.classes))
    model = vt.load(task.model, num_classes=task.classes).model
    nn.init.zeros_(model.head.weight), nn.init.zeros_(model.head.bias)
    if way == "torch's default head":
        model.head.reset_parameters()
    elif way in HEADS:
        nn.init.normal_(model.head.weight, std=HEADS[way] or 0.0)
    if way == "head first, then all":
        headless = vt.load(task.model, num_classes=0).model
        found = LogisticRegression(max_iter=3000).fit(features(headless, train[0]), train[1])
        with torch.no_grad():
            model.head.weight.copy_(torch.from_numpy(found.coef_))
            model.head.bias.copy_(torch.from_numpy(found.intercept_))
    if way == "LoRA":
        model.requires_grad_(False)
        model.head.requires_grad_(True)
        for block in model.blocks:
            block.attention.qkv, block.attention.proj = LoRA(block.attention.qkv), LoRA(block.attention.proj)
    return model


def groups(model: vt.ViT, way: str) -> list[dict[str, object]]:
    """The optimiser's groups, each with its share of the rate: with layer-wise rates 0.65 from block to block."""
    depth, decay = len(model.blocks), 0.65 if way == "layer-wise rates" else 1.0
    return [
        {"params": [p], "share": decay ** max(depth + 1 - layer_of(name, depth), 0)}
        for name, p in model.named_parameters()
        if p.requires_grad
    ]


def run(task: Task, way: str, rate: float, draw: int) -> list[object]:
    """One row."""
    begin = time.process_time()
    train, validation = task.draw(draw)
    torch.manual_seed(draw)
    model = start(task, way, train).train()
    head = vt.load(task.model).model.head
    optimizer = torch.optim.AdamW(groups(model, way), lr=rate, weight_decay=0.0, fused=True)
    passes = math.ceil(task.steps * task.batch / len(train[0]))
    order = torch.cat([torch.randperm(len(train[0])) for _ in range(passes)])[: task.steps * task.batch]
    for step, rows in enumerate(order.view(task.steps, task.batch)):
        for group in optimizer.param_groups:
            group["lr"] = rate * group["share"] * schedule(step, steps=task.steps, warmup=task.steps // 8)
        with torch.autocast("cpu", task.precision, enabled=task.precision != torch.float32):
            logits = model(train[0][rows])
        optimizer.zero_grad()
        F.cross_entropy(logits.float(), train[1][rows]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    found = [accuracy(task, model.eval(), split) for split in (validation, task.test)]
    old = ["-", "-"]
    if task.old:
        (known, answers), test = task.old
        model.head = head
        old[0] = f"{accuracy(task, model, test):.4f}"
        if way == "zero head":
            model.head = nn.Identity()
            probe = LogisticRegression(max_iter=3000).fit(features(model, known), answers)
            old[1] = f"{probe.score(features(model, test[0]), test[1]):.4f}"
    spent = time.process_time() - begin
    return [task.name, way, rate, draw, *(f"{value:.4f}" for value in found), *old, f"{spent:.1f}"]


@torch.inference_mode()
def accuracy(task: Task, model: nn.Module, split: Split) -> float:
    with torch.autocast("cpu", task.precision, enabled=task.precision != torch.float32):
        answers = torch.cat([model(part).argmax(dim=1) for part in split[0].split(100)])
    return (answers == split[1]).double().mean().item()


@torch.inference_mode()
def features(model: nn.Module, images: Tensor) -> np.ndarray:
    """(N, D): what a model without a head gives, the class token after the last norm."""
    return torch.cat([model(part) for part in images.split(100)]).numpy()


def without_training(task: Task, draw: int) -> list[list[object]]:
    """Probes and nearest neighbours, with C or k chosen on each draw's validation images; and the old model."""
    train, validation = task.draw(draw)
    splits = (train, validation, task.test)
    trained = vt.load(task.model, num_classes=0).model
    torch.manual_seed(1)
    encoders = {
        "trained features": trained,
        "untrained features": vt.ViT(trained.config).eval(),
        "pixels": nn.Flatten(),
    }
    tables = {name: [features(encoder, images) for images, _ in splits] for name, encoder in encoders.items()}
    rows: list[list[object]] = []
    for name, (X, V, Z) in tables.items():
        probes = [LogisticRegression(C=C, max_iter=3000) for C in (0.001, 0.01, 0.1, 1.0)]
        near = [KNeighborsClassifier(k, metric="cosine") for k in (1, 3, 5, 9)]
        for kind, models in (("probe", probes), ("k-NN", near)):
            best = max((m.fit(X, train[1]) for m in models), key=lambda m: m.score(V, validation[1]))
            scores = [f"{best.score(part, split[1]):.4f}" for part, split in ((V, validation), (Z, task.test))]
            rows.append([task.name, f"{kind}, {name}", "-", draw, *scores, "-", "-", "-"])
    return rows


# ---- The tables ------------------------------------------------------------------------------------------------------


def found(task: str, way: str, rate: float | str, column: str) -> dict[int, float]:
    """{draw: percent} of the runs that are done."""
    return {int(row["draw"]): 100 * float(row[column]) for row in sheet.read(CSV, task=task, way=way, rate=rate)}


def score(task: Task, way: str, rate: float) -> float:
    for draw in range(DRAWS):
        if draw not in found(task.name, way, rate, "validation"):
            sheet.add(CSV, COLUMNS, run(task, way, rate, draw))
    return statistics.mean(found(task.name, way, rate, "validation").values())


def search(task: Task, way: str) -> None:
    """Runs until the best rate is not at the grid's edge."""
    sheet.search(
        task.ways[way], lambda rate: score(task, way, rate), lambda best, side: LADDER[LADDER.index(best) + side]
    )


def best_rate(task: str, way: str) -> str:
    """The rate with the best mean over the validation images."""
    rates = {row["rate"] for row in sheet.read(CSV, task=task, way=way)}
    return max(sorted(rates), key=lambda rate: statistics.mean(found(task, way, rate, "validation").values()))


def table(task: str) -> str:
    lines = [f"| {task} | rate | validation | test |", "|---|---|---|---|"]
    for way in dict.fromkeys(row["way"] for row in sheet.read(CSV, task=task)):
        rate = best_rate(task, way)
        cells = [sheet.interval([*found(task, way, rate, column).values()]) for column in ("validation", "test")]
        lines.append(f"| {way} | {rate} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "photographs", "scenes", "report"))
    parser.add_argument("--folder", help="photographs: with train/ and test/, a folder for each of CIFAR-10's classes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    if args.what == "report":
        print("\n\n".join(table(task) for task in dict.fromkeys(row["task"] for row in sheet.read(CSV))))
        return
    task = {"digits": digits, "photographs": lambda: photographs(args.folder), "scenes": drawn_scenes}[args.what]()
    for draw in range(DRAWS):
        if draw not in found(task.name, "probe, pixels", "-", "test"):
            for row in without_training(task, draw):
                sheet.add(CSV, COLUMNS, row)
    for way in task.ways:
        search(task, way)
    if args.what == "digits":  # the whole curve, for the figure
        for rate in (1e-5, 1e-4, 3e-4, 3e-2, 1e-1):
            score(task, "zero head", rate)
    print(table(task.name))


if __name__ == "__main__":
    main()
