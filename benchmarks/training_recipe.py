"""What each part of lesson 07's recipe adds on digits, on held-out images.

``python benchmarks/training_recipe.py`` appends a row a run to training_recipe.csv; rows that are there are not run
again. "the loop" is plain AdamW at a constant rate with torch's default decay, 0.01; "+ warm-up, cosine" also has the
package's decay, 0.05 on matrices alone. Three seeds choose a rate for each recipe; twenty others compare them. Each
seed holds out other training images, 287 of them. Only then the whole recipe is trained on all training images, with
five seeds, and tested on the test split; and on ten other splits of all 1,797 images, beside a support vector machine
and the nearest neighbour.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from result_table import ResultTable
from sklearn.model_selection import GridSearchCV  # type: ignore[import-untyped]
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from sklearn.svm import SVC  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.train import fit, predict

COLUMNS = ["recipe", "rate", "seed", "images", "mistakes", "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
EPOCHS = 20
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEARCH, COMPARE, FINAL, SPLITS = range(3), range(3, 23), range(5), range(10)  # seeds
# Each adds to the one above it.
BARE: dict[str, Any] = {"clip": math.inf, "label_smoothing": 0.0, "augment": "none"}
RECIPES: dict[str, dict[str, Any]] = {
    "the loop": {},
    "+ warm-up, cosine": BARE,
    "+ clipping, smoothing": {"augment": "none"},
    "+ augmentation": {"augment": "affine"},
}
WHOLE = "+ augmentation"
LAST, FRESH = "all of it, test split", "all of it, another split"
MACHINE, NEIGHBOUR = "SVM, another split", "nearest neighbour, another split"


def loop(model: vt.ViT, data: vt.data.Data, rate: float) -> None:
    """Plain AdamW at one constant rate, with torch's default decay; shuffled batches of 64."""
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


def another_split(seed: int) -> vt.data.Data:
    """All 1,797 images, 360 of them to test, drawn by the seed."""
    data = vt.data.digits()
    images, labels = (
        torch.cat([getattr(part, each) for part in (data.train, data.test)]) for each in ("images", "labels")
    )
    return vt.data.hold_out(replace(data, train=vt.data.Images(images, labels, white=16)), 360 / 1797, seed)


def machine(data: vt.data.Data) -> tuple[Tensor, Tensor]:
    """What a support vector machine answers on the test images, its C chosen on folds of the training images."""
    (X, y), (x, labels) = data.train.batch(), data.test.batch()
    svm = GridSearchCV(SVC(), {"C": [1, 3, 10, 30]}, cv=5).fit(X.flatten(1).double().numpy(), y.numpy())
    return torch.from_numpy(svm.predict(x.flatten(1).double().numpy())), labels


def neighbour(data: vt.data.Data) -> tuple[Tensor, Tensor]:
    """The label of the training image whose pixels are nearest, for each test image."""
    (X, y), (x, labels) = data.train.batch(), data.test.batch()
    nearest = KNeighborsClassifier(1).fit(X.flatten(1).numpy(), y.numpy())
    return torch.from_numpy(nearest.predict(x.flatten(1).numpy())), labels


def run(recipe: str, rate: float, seed: int, **changes: Any) -> None:
    """A row, unless it is there. ``changes`` are the recipe's."""
    if (recipe, rate, seed) in shares():
        return
    if recipe.endswith("another split"):
        data = another_split(seed)
    else:
        data = vt.data.digits() if recipe.endswith("test split") else vt.data.hold_out(vt.data.digits(), 0.2, seed)
    start = time.process_time()
    torch.manual_seed(seed)
    model = vt.ViT(vt.data.DATASETS["digits"].model)
    if recipe == MACHINE:
        answers, labels = machine(data)
    elif recipe == NEIGHBOUR:
        answers, labels = neighbour(data)
    else:
        if recipe == "the loop":
            loop(model, data, rate)
        else:
            fit(model, data, epochs=EPOCHS, learning_rate=rate, warmup_epochs=2, seed=seed, progress=False, **changes)
        logits, labels = predict(model, data)
        answers = logits.argmax(dim=1)
    mistakes = int((answers != labels).sum())
    RESULTS.add([recipe, rate, seed, len(labels), mistakes, f"{time.process_time() - start:.1f}"])


def shares() -> dict[tuple[str, float, int], float]:
    """Mistakes in percent, by recipe, rate and seed."""
    return {
        (row["recipe"], float(row["rate"]), int(row["seed"])): 100 * int(row["mistakes"]) / int(row["images"])
        for row in RESULTS.rows()
    }


def best(recipe: str) -> float:
    """The rate with the fewest mistakes over the seeds that choose."""
    found = shares()
    rates = {rate for name, rate, _ in found if name == recipe}
    return min(rates, key=lambda rate: statistics.mean(found[recipe, rate, seed] for seed in SEARCH))


def main() -> None:
    torch.set_num_threads(1)
    for seed in SEARCH:
        for recipe in RECIPES:
            for rate in RATES:
                run(recipe, rate, seed, **RECIPES[recipe])
    for seed in COMPARE:
        for recipe in RECIPES:
            run(recipe, best(recipe), seed, **RECIPES[recipe])
    for seed in FINAL:
        run(LAST, best(WHOLE), seed, **RECIPES[WHOLE])
    for seed in SPLITS:
        run(FRESH, best(WHOLE), seed, **RECIPES[WHOLE])
        run(MACHINE, 0.0, seed)
        run(NEIGHBOUR, 0.0, seed)


if __name__ == "__main__":
    main()
