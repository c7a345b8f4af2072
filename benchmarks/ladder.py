"""What each part of lesson 07's recipe adds on digits, on held-out images.

``python benchmarks/ladder.py`` appends a row a run to benchmarks/ladder.csv (rows that are there are not run again) and
prints the table. Three seeds choose a rate for each recipe; five others compare them. Each seed holds out other
training images, 287 of them. Last, lesson 07's final model is trained on all training images, with five seeds, and
tested on the test split.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Any

import sheet
import torch
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.train import fit, predict

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["recipe", "rate", "seed", "images", "mistakes", "cpu_seconds"]
EPOCHS = 20
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEARCH, COMPARE, FINAL = range(3), range(3, 8), range(5)  # seeds
# Each adds to the one above it.
BARE: dict[str, Any] = {"clip": math.inf, "label_smoothing": 0.0, "augment": None}
RECIPES: dict[str, dict[str, Any] | None] = {
    "the loop": None,
    "+ warm-up, cosine": BARE,
    "+ clipping, smoothing": {"augment": None},
    "+ augmentation": {"augment": "affine"},
}
LAST = "all of it, test split"


def loop(model: vt.ViT, data: vt.data.Data, rate: float) -> None:
    """The lesson's loop: AdamW at one rate, shuffled batches of 64."""
    X, y = data.train.batch()
    X = vt.data.normalise(X, data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(X)).split(64):
            loss = F.cross_entropy(model(X[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def run(recipe: str, rate: float, seed: int) -> None:
    data = vt.data.digits() if recipe == LAST else vt.data.hold_out(vt.data.digits(), 0.2, seed)
    start, changes = time.process_time(), dict(RECIPES.get(recipe) or {})
    torch.manual_seed(seed)
    model = vt.ViT(vt.data.DATASETS["digits"].model)
    if recipe == LAST:
        fit(model, data, epochs=30, learning_rate=rate, warmup_epochs=3, seed=seed, progress=False, augment="affine")
    elif RECIPES[recipe] is None:
        loop(model, data, rate)
    else:
        fit(model, data, epochs=EPOCHS, learning_rate=rate, warmup_epochs=2, seed=seed, progress=False, **changes)
    logits, labels = predict(model, data)
    mistakes = int((logits.argmax(dim=1) != labels).sum())
    sheet.add(CSV, COLUMNS, [recipe, rate, seed, len(labels), mistakes, f"{time.process_time() - start:.1f}"])


def shares() -> dict[tuple[str, float, int], float]:
    """Mistakes in percent, by recipe, rate and seed."""
    return {
        (row["recipe"], float(row["rate"]), int(row["seed"])): 100 * int(row["mistakes"]) / int(row["images"])
        for row in sheet.read(CSV)
    }


def means(recipe: str) -> dict[float, float]:
    """The mean of the mistakes in percent over the seeds that choose, by rate."""
    found = shares()
    return {rate: statistics.mean(found[recipe, rate, seed] for seed in SEARCH) for rate in RATES}


def best(recipe: str) -> float:
    return min(RATES, key=means(recipe).__getitem__)


def gain(before: list[float], after: list[float]) -> str:
    """The mean of the paired differences, and half of its 95 % interval."""
    return sheet.interval([a - b for a, b in zip(before, after, strict=True)])


def table() -> str:
    """Mistakes in percent at each rate; at the best one, over five seeds, and how many fewer than above and in all."""
    lines = [
        f"| mistakes (%) at a rate of | {' | '.join(f'{rate:g}' for rate in RATES)} | five seeds | fewer than above "
        "| fewer than the loop |",
        "|---" * (len(RATES) + 4) + "|",
    ]
    found, own = shares(), list[list[float]]()
    for recipe in RECIPES:
        rate = best(recipe)
        own.append([found[recipe, rate, seed] for seed in COMPARE])
        cells = [f"**{mean:.1f}**" if r == rate else f"{mean:.1f}" for r, mean in means(recipe).items()]
        gains = [gain(before, own[-1]) for before in (own[-2], own[0])] if len(own) > 1 else ["", ""]
        lines.append(f"| {recipe} | {' | '.join([*cells, f'{statistics.mean(own[-1]):.1f}', *gains])} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    wanted = [(recipe, rate, seed) for seed in SEARCH for recipe in RECIPES for rate in RATES]
    for recipe, rate, seed in wanted:
        if (recipe, rate, seed) not in shares():
            run(recipe, rate, seed)
    for recipe, seed in [(recipe, seed) for seed in COMPARE for recipe in RECIPES]:
        if (recipe, best(recipe), seed) not in shares():
            run(recipe, best(recipe), seed)
    for seed in FINAL:
        if (LAST, best("+ augmentation"), seed) not in shares():
            run(LAST, best("+ augmentation"), seed)
    print(table())


if __name__ == "__main__":
    main()
