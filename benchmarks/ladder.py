"""What each part of lesson 07's recipe adds on digits: held-out images, a rate of its own for each, five seeds.

``python benchmarks/ladder.py`` appends a row a run to benchmarks/ladder.csv (rows that are there are not run again) and
prints the table. Each seed holds out other training images, 287 of them; the test split is never looked at.
"""

from __future__ import annotations

import argparse
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
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
# Each adds to the one above it.
BARE: dict[str, Any] = {"clip": math.inf, "label_smoothing": 0.0, "augment": None}
RECIPES: dict[str, dict[str, Any] | None] = {
    "the loop": None,
    "+ warm-up, cosine": BARE,
    "+ clipping, smoothing": {"augment": None},
    "+ augmentation": {"augment": "affine"},
}
T_95 = {3: 4.303, 4: 3.182, 5: 2.776}  # Student's t for a 95 % interval, by number of seeds


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
    data = vt.data.hold_out(vt.data.digits(), 0.2, seed)
    start, changes = time.process_time(), dict(RECIPES[recipe] or {})
    torch.manual_seed(seed)
    model = vt.ViT(vt.data.DATASETS["digits"].model)
    if RECIPES[recipe] is None:
        loop(model, data, rate)
    else:
        fit(model, data, epochs=EPOCHS, learning_rate=rate, warmup_epochs=2, seed=seed, progress=False, **changes)
    logits, labels = predict(model, data)
    mistakes = int((logits.argmax(dim=1) != labels).sum())
    sheet.add(CSV, COLUMNS, [recipe, rate, seed, len(labels), mistakes, f"{time.process_time() - start:.1f}"])


def table() -> str:
    """Mistakes in percent at each rate, the mean over the seeds; and the paired gain over the row above."""
    rows = sheet.read(CSV)
    share = {
        (row["recipe"], float(row["rate"]), int(row["seed"])): 100 * int(row["mistakes"]) / int(row["images"])
        for row in rows
    }
    seeds = sorted({seed for _, _, seed in share})
    lines = [f"| {len(seeds)} seeds, mistakes (%) | {' | '.join(f'{rate:g}' for rate in RATES)} | fewer than above |"]
    lines.append("|---" * (len(RATES) + 2) + "|")
    above: list[float] = []
    for recipe in RECIPES:
        means = {rate: statistics.mean(share[recipe, rate, seed] for seed in seeds) for rate in RATES}
        best = min(means, key=lambda rate: means[rate])
        own = [share[recipe, best, seed] for seed in seeds]
        gains = [a - b for a, b in zip(above, own, strict=True)] if above else []
        half = T_95[len(seeds)] * statistics.stdev(gains) / math.sqrt(len(seeds)) if gains else 0.0
        gain = f"{statistics.mean(gains):.1f} ± {half:.1f}" if gains else ""
        cells = [f"**{mean:.1f}**" if rate == best else f"{mean:.1f}" for rate, mean in means.items()]
        lines.append(f"| {recipe} | {' | '.join(cells)} | {gain} |")
        above = own
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = {(row["recipe"], float(row["rate"]), int(row["seed"])) for row in sheet.read(CSV)}
    for seed in range(args.seeds):
        for recipe in RECIPES:
            for rate in RATES:
                if (recipe, rate, seed) not in done:
                    run(recipe, rate, seed)
    print(table())


if __name__ == "__main__":
    main()
