"""What each part of the recipe of photographs adds: lessons 13 and 15.

The recipe whole; from random weights; on the labels alone; with AdamW for all weights. Each for 7 epochs with three
seeds, and all but the third for 28 with one. (The model that ships had 33.) The runs that aren't from random weights
begin with the encoder of the painter that ships.

``python benchmarks/photographs_parts.py whole --epochs 7 --seed 0 --data cifar10-jpeg --out runs/parts`` adds a row to
the table. A run that was stopped goes on after its last epoch. ``report`` prints the table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from cifar10 import read_cifar10
from photographs import Recipe, accuracy, attend_step_by_step, teach, train_vit
from result_table import ResultTable
from seeds import mean_with_interval

import vit_tutorial.attention
from vit_tutorial.variants.selfsup import painter

COLUMNS = ["run", "epochs", "seed", "matrix_rate", "held_out", "test", "cpu_seconds"]
TABLE = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
RECIPES = {
    "whole": Recipe(),
    "from random weights": Recipe(),
    "labels alone": Recipe(taught=False),
    "AdamW": Recipe(muon=False, matrix_rate=1.5e-3),
}
HALF_AND_WHOLE_EPOCHS = {7: (6, 1), 28: (24, 4)}


def run(name: str, epochs: int, seed: int, rate: float | None, data_folder: str, out: Path) -> None:
    """Train one model, and note its accuracy on the images held out and on the test images."""
    half, whole = HALF_AND_WHOLE_EPOCHS[epochs]
    recipe = replace(RECIPES[name], seed=seed, half_epochs=half, whole_epochs=whole)
    if rate is not None:
        recipe = replace(recipe, matrix_rate=rate)
    data = read_cifar10(data_folder)
    out.mkdir(parents=True, exist_ok=True)
    if recipe.taught and not (out / "answers.pt").exists():
        teach(data, out)
    encoder = None if name == "from random weights" else painter().encoder.state_dict()
    file_name = f"{name} {epochs} {seed} {recipe.matrix_rate}".replace(" ", "-")
    model = train_vit(data, out, file_name, recipe, encoder)
    held_out = accuracy(model, data["validation_images"], data["validation_labels"], data)
    test = accuracy(model, data["test_images"], data["test_labels"], data)
    seconds = sum(float(row["cpu_seconds"]) for row in ResultTable(out / f"{file_name}.csv", []).rows())
    TABLE.add([name, epochs, seed, recipe.matrix_rate, f"{held_out:.4f}", f"{test:.4f}", f"{seconds:.0f}"])


def report() -> None:
    """Mean test accuracy in percent, with Student's 95 % interval where there are several seeds."""
    for epochs in HALF_AND_WHOLE_EPOCHS:
        for name, recipe in RECIPES.items():
            rows = TABLE.rows(run=name, epochs=epochs, matrix_rate=recipe.matrix_rate)
            if rows:
                print(epochs, "epochs,", name, mean_with_interval([100 * float(row["test"]) for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=["report", *RECIPES])
    parser.add_argument("--epochs", type=int, choices=HALF_AND_WHOLE_EPOCHS, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, help="of the blocks' matrices, in place of the recipe's")
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/parts"))
    args = parser.parse_args()
    if args.run == "report":
        report()
        return
    torch.set_num_threads(1)
    vit_tutorial.attention.scaled_dot_product_attention = attend_step_by_step  # type: ignore[assignment]
    run(args.run, args.epochs, args.seed, args.rate, args.data, args.out)


if __name__ == "__main__":
    main()
