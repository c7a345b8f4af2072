"""Lesson 07: what a run leaves in its folder: the model, how it was trained, its history as a table and as curves."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.data.files import write
from vit_tutorial.options.recipe import Keep
from vit_tutorial.train.checkpoints import History, Row
from vit_tutorial.vit import ViT
from vit_tutorial.weights import save


def final_row(history: History, keep: Keep) -> Row:
    """The row of the epoch whose weights a run ends with: the last, or the best, the first among equals."""
    return max(history, key=lambda row: row["test_accuracy"]) if keep == "best" else history[-1]


def named_by_split(row: Row, data: Data) -> Row:
    """A row whose names say what is tested on after every epoch: test or validation images."""
    return {name.replace("test_", f"{data.test_split}_"): value for name, value in row.items()}


def save_run(
    folder: str | os.PathLike[str], model: nn.Module, data: Data, history: History, settings: Mapping[str, Any]
) -> None:
    """Write the model as ``vt.save`` does, run.json (its settings), history.csv and curves.png."""
    assert isinstance(model, ViT)  # as check_savable says
    out, split = Path(folder), data.test_split
    preprocess = data.preprocess or Preprocessing(data.image_size, data.mean, data.std)
    rows = [named_by_split(row, data) for row in history]
    final = final_row(history, settings["keep"])
    about = f"Trained on {data.name}; {split} accuracy {final['test_accuracy']:.2%} after epoch {final['epoch']:.0f}."
    save(model, out, classes=data.classes, preprocess=preprocess, about=about)
    run = {name: "inf" if value == math.inf else value for name, value in settings.items()}  # JSON has no infinity
    run |= {f"{split}_accuracy": final["test_accuracy"], "kept_epoch": final["epoch"]}
    run |= {"test_files": list(data.random_test_files)}
    write(out / "run.json", (json.dumps(run, indent=2) + "\n").encode())
    write(out / "history.csv", _table(rows))
    write(out / "curves.png", _curves(rows, split))


def _table(history: History) -> bytes:
    table = io.StringIO()
    rows = csv.DictWriter(table, list(history[0]), lineterminator="\n")
    rows.writeheader()
    rows.writerows(history)
    return table.getvalue().encode()


def _curves(history: History, split: str) -> bytes:
    from vit_tutorial import plots

    titles = {"loss": "training loss", f"{split}_loss": f"{split} loss"}
    titles |= {"accuracy": "training accuracy", f"{split}_accuracy": f"{split} accuracy"}
    lines = {title: [row[name] for row in history] for name, title in titles.items()}
    epochs, picture = [row["epoch"] for row in history], io.BytesIO()
    figure = plots.curves(epochs, lines, xlabel="epoch", ylabel="loss (nats), accuracy (0 to 1)")
    figure.axes[0].locator_params("x", integer=True)
    figure.savefig(picture)
    return picture.getvalue()
