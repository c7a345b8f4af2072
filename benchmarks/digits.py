"""What each choice of the recipe is worth on digits: ours, ours with one thing changed, Adam alone, k-NN, SVM.

``python benchmarks/digits.py [--seeds 5] [--jobs 2]`` trains each 5 times, appends a row a run to benchmarks/digits.csv
(it goes on where it was stopped: rows that are there are not run again) and prints the table. One thread a run.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest import mock

import sheet
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["recipe", "seed", "errors", "accuracy", "cpu_seconds"]
DIGITS = vt.data.DATASETS["digits"]


def warmup_only(step: int, *, steps: int, warmup: int) -> float:
    """The schedule without its cosine: constant after the warm-up."""
    return min(1.0, (step + 1) / max(1, warmup))


def decay_all(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """One group: biases, norms, class token and positions decay too."""
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


# What fit is called with in place of the recipe's own, and what stands for the two functions that have no argument.
CHANGES: dict[str, dict[str, Any]] = {
    "ours": {},
    "no warm-up": {"warmup_epochs": 0},
    "no cosine": {"schedule": warmup_only},
    "no clipping": {"clip": math.inf},
    "no label smoothing": {"label_smoothing": 0.0},
    "decay on all": {"parameter_groups": decay_all},
    "no augmentation": {"augment": None},
    "averaged weights, 0.99": {"ema": 0.99},
}
# What is taught instead. The first is what an article says of ViT's training: "torch.optim.Adam() and
# torch.nn.CrossEntropyLoss()". The second is the code that it links to (learnpytorch.io, chapter 08, section 9): the
# paper's rate and decay (table 3) given to Adam, where weight_decay is an L2 penalty. The third is the second with
# AdamW, whose decay is decoupled, as that of the paper's code is.
TABLE_3: dict[str, Any] = {"lr": 3e-3, "betas": (0.9, 0.999), "weight_decay": 0.3}
ADAM: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam(), nothing else": torch.optim.Adam,
    "Adam(lr=3e-3, weight_decay=0.3)": functools.partial(torch.optim.Adam, **TABLE_3),
    "AdamW(lr=3e-3, weight_decay=0.3)": functools.partial(torch.optim.AdamW, **TABLE_3),
}
CLASSIC = ("k-NN, k=1", "k-NN, k=3", "RBF SVM, defaults", "RBF SVM, tuned")


def model(seed: int) -> vt.ViT:
    """The model of ``python -m vit_tutorial.train --data digits --seed SEED``."""
    torch.manual_seed(seed)
    return vt.ViT(DIGITS.model)


def fit(vit: vt.ViT, data: vt.data.Data, change: dict[str, Any], seed: int) -> None:
    patched = {name: change.get(name, getattr(train, name)) for name in ("schedule", "parameter_groups")}
    changed = {name: value for name, value in change.items() if name not in patched}
    with mock.patch.multiple(train, **patched):
        train.fit(vit, data, DIGITS.recipe, seed=seed, progress=False, **changed)


def plain(vit: vt.ViT, data: vt.data.Data, make: Callable[..., torch.optim.Optimizer]) -> None:
    """The loop of a first tutorial: no schedule, clipping, smoothing, augmentation; as many epochs, the same batch."""
    optimizer = make(vit.parameters())
    vit.train()
    for _ in range(DIGITS.recipe.epochs):
        for rows in torch.randperm(len(data.train)).split(DIGITS.recipe.batch_size):
            images, labels = data.train.batch(rows)
            loss = F.cross_entropy(vit(vt.data.normalise(images, data)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def classic(recipe: str, data: vt.data.Data) -> int:
    """Errors of scikit-learn's own, on the pixels; what is tuned is tuned by five folds of the training split."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    x, x_test = (split.batch()[0].flatten(1).numpy() for split in (data.train, data.test))
    y, y_test = (split.labels.numpy() for split in (data.train, data.test))
    grid = {"C": [1, 3, 10, 30, 100], "gamma": [0.01, 0.02, 0.03, 0.05, 0.1, 0.2]}
    methods: dict[str, Callable[[], Any]] = {
        "k-NN, k=1": lambda: KNeighborsClassifier(1),
        "k-NN, k=3": lambda: KNeighborsClassifier(3),
        "RBF SVM, defaults": SVC,
        "RBF SVM, tuned": lambda: GridSearchCV(SVC(), grid, cv=5),
    }
    return int((methods[recipe]().fit(x, y).predict(x_test) != y_test).sum())


def run(recipe: str, seed: int) -> dict[str, Any]:
    """One row."""
    torch.set_num_threads(1)
    data = vt.data.digits()
    begin = time.process_time()
    if recipe in CLASSIC:
        errors = classic(recipe, data)
    else:
        vit = model(seed)
        fit(vit, data, CHANGES[recipe], seed) if recipe in CHANGES else plain(vit, data, ADAM[recipe])
        logits, labels = train.predict(vit, data)
        errors = int((logits.argmax(dim=1) != labels).sum())
    seconds = time.process_time() - begin
    accuracy = 1 - errors / len(data.test)
    return dict(zip(COLUMNS, (recipe, seed, errors, f"{accuracy:.4f}", f"{seconds:.1f}"), strict=True))


def by_chance(ours: list[int], others: list[int]) -> float:
    """The share of all ways to split both into two such groups that put the means as far apart: a permutation test."""
    both, n = ours + others, len(ours)

    def apart(dealt: tuple[int, ...]) -> float:
        return abs(sum(dealt) / n - (sum(both) - sum(dealt)) / len(others))

    deals = [apart(dealt) for dealt in itertools.combinations(both, n)]
    return sum(deal > apart(tuple(ours)) - 1e-9 for deal in deals) / len(deals)


def interval(errors: float, images: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy."""
    share, spread = 1 - errors / images, z * z / images
    middle, half = share + spread / 2, z * math.sqrt(share * (1 - share) / images + spread / images / 4)
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def table() -> str:
    errors: dict[str, list[int]] = {recipe: [] for recipe in (*CHANGES, *ADAM, *CLASSIC)}
    images = 360
    for row in sorted(sheet.read(CSV), key=lambda row: int(row["seed"])):
        errors[row["recipe"]].append(int(row["errors"]))
    lines = ["| recipe | errors of 360, by seed | median accuracy | mean accuracy | as far from ours by chance |",
             "|---|---|---|---|---|"]  # fmt: skip
    for recipe, counts in errors.items():
        if counts:
            median, mean = statistics.median(counts), statistics.mean(counts)
            chance = f"{by_chance(errors['ours'], counts):.3f}" if len(counts) > 1 and recipe != "ours" else ""
            counted = ", ".join(map(str, counts))
            shares = (f"{100 * (1 - wrong / images):.2f} %" for wrong in (median, mean))
            lines.append(f"| {recipe} | {counted} | {' | '.join(shares)} | {chance} |")
    if errors["ours"]:
        median = statistics.median(errors["ours"])
        low, high = interval(median, images)
        lines.append(
            f"\nOne error is {100 / images:.2f} %. {median:g} of {images} errors leave a 95 % interval (Wilson's) of "
            f"{100 * low:.1f} to {100 * high:.2f} % for the accuracy on digits by the same writers."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    args = parser.parse_args()
    done = {(row["recipe"], int(row["seed"])) for row in sheet.read(CSV)}
    wanted = [(recipe, 0) for recipe in CLASSIC]
    wanted += [(recipe, seed) for recipe in (*CHANGES, *ADAM) for seed in range(args.seeds)]  # row by row
    if not CSV.exists():
        CSV.write_text(",".join(f'"{c}"' if "," in c else c for c in COLUMNS) + "\n")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context) as pool, CSV.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        for future in as_completed([pool.submit(run, *one) for one in wanted if one not in done]):
            writer.writerow(future.result())
            file.flush()
            print(future.result(), flush=True)
    print(table())


if __name__ == "__main__":
    main()
