"""Trained models on disk: written whole or not at all, read without running code; two come with the package.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("digits")
>>> model(preprocess(vt.data.digits().test.batch()[0])).shape
torch.Size([360, 10])
"""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import safetensors.torch

from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.vit import ViT, ViTConfig

History = list[dict[str, float]]  # a row an epoch
SHIPPED = Path(__file__).parent / "checkpoints"


class Trained(NamedTuple):
    """What :func:`load` returns."""

    model: ViT  # in evaluation mode, on the CPU
    classes: tuple[str, ...]
    preprocess: Preprocessing  # pictures -> what the model takes


def load(name: str | os.PathLike[str]) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    Args:
        name: of a model that comes with the package, "digits" or "shapes"; or a folder that
            ``python -m vit_tutorial.train`` wrote ("./digits" for a folder with such a name).

    Raises:
        ValueError: neither a model nor a folder, or files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    names = sorted(folder.name for folder in SHIPPED.iterdir())
    path = SHIPPED / name if name in names else Path(name)
    if not path.is_dir():
        raise ValueError(
            f"{os.fspath(name)!r} is neither a model of the package ({', '.join(names)}) nor a folder: write one with "
            "python -m vit_tutorial.train --out FOLDER"
        )
    weights, config = (path / "model.safetensors").read_bytes(), (path / "config.json").read_text("utf-8")
    try:
        settings = json.loads(config)
        model = ViT(ViTConfig(**settings["model"]))
        model.load_state_dict(safetensors.torch.load(weights))
        height, width = settings["image_size"]
        preprocess = Preprocessing((height, width), tuple(settings["mean"]), tuple(settings["std"]))
        return Trained(model.eval(), tuple(settings["classes"]), preprocess)
    except (KeyError, TypeError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"config.json and model.safetensors in {path} are damaged or don't belong together: {error}"
        ) from error


def save(folder: str | os.PathLike[str], model: ViT, data: Data, history: History, *, command: str = "") -> None:
    """Write model.safetensors, config.json (all that is needed to use them), history.csv and curves.png."""
    from vit_tutorial import plots

    out, table, picture = Path(folder), io.StringIO(), io.BytesIO()
    config = {
        "model": asdict(model.config), "classes": list(data.classes), "image_size": list(data.image_size),
        "mean": list(data.mean), "std": list(data.std), "data": data.name,
        "test_accuracy": history[-1]["test_accuracy"], "command": command,
    }  # fmt: skip
    rows = csv.DictWriter(table, list(history[0]), lineterminator="\n")
    rows.writeheader()
    rows.writerows(history)
    columns = {name: [row[name] for row in history] for name in ("loss", "test_loss", "accuracy", "test_accuracy")}
    labels = ("training loss", "test loss", "training accuracy", "test accuracy")
    lines = dict(zip(labels, columns.values(), strict=True))
    epochs = [row["epoch"] for row in history]
    plots.curves(epochs, lines, xlabel="epoch", ylabel="loss (nats), accuracy (0 to 1)").savefig(picture)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write(out / "model.safetensors", safetensors.torch.save(weights))
    write(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write(out / "history.csv", table.getvalue().encode())
    write(out / "curves.png", picture.getvalue())


def write(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` in place of the file in one move: killed at any moment, the old file or the new one is there.

    Raises:
        OSError: that names the folder, for a full disk or one without the right to write; the old file stays.
    """
    partial_file = path.with_name(f"{path.name}.partial")  # one name: what a kill leaves is overwritten
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name and no content
        partial_file.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial_file.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"can't write {path.name} to the folder {path.parent} ({error.strerror}): what was saved there before is "
            "untouched; make room, or get the right to write, and resume",
        ) from error
