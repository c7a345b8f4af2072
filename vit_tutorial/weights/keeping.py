"""Models of this package on disk: written whole or not at all, and those that come with it."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
from torch import Tensor

from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.variants.hybrid import HybridConfig
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights.messages import short
from vit_tutorial.weights.reading import COUNTER, check_numbers, read_json, read_safetensors

History = list[dict[str, float]]  # one row per epoch
SHIPPED = Path(__file__).parent / "checkpoints"


def stored(path: Path) -> tuple[ViTConfig, dict[str, Tensor], tuple[str, ...], Preprocessing, str]:
    """What a folder holds that :func:`save` wrote: config, tensors, classes, preprocessing, and what its answers are.

    Raises:
        ValueError: files that are damaged or don't belong together.
        OSError: a file of the folder can't be read.
    """
    state = read_safetensors(path / "model.safetensors")
    check_numbers(state)
    settings = read_json(path / "config.json")
    if "model" not in settings:
        raise ValueError("config.json has no 'model', so it isn't this package's; the tensors alone: name their file")
    fields = settings["model"]
    kinds = {"vit": ViTConfig, "hybrid": HybridConfig, "modern": ModernConfig}
    if settings.get("kind") not in kinds:
        raise ValueError(f"config.json has the kind {settings.get('kind')!r}: one of {', '.join(kinds)} is needed")
    config = kinds[settings["kind"]](**fields)
    if config.num_classes and len(settings["classes"]) not in (0, config.num_classes):
        raise ValueError(f"{len(settings['classes'])} names for {config.num_classes} classes")
    height, width = settings["image_size"]
    how = {field: settings[field] for field in ("crop", "interpolation", "squash", "corner") if field in settings}
    over = tuple(settings.get("left_over", (0, 0)))
    preprocess = Preprocessing((height, width), tuple(settings["mean"]), tuple(settings["std"]), left_over=over, **how)
    answers = settings.get("answers", "")
    if not isinstance(answers, str):
        raise TypeError(f"answers must be text that says what they are, got {short(answers)}")
    return config, state, tuple(settings["classes"]), preprocess, answers


def shipped() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in SHIPPED.iterdir())


def save(
    folder: str | os.PathLike[str], model: ViT, data: Data, history: History, *, command: str = "",
    preprocess: Preprocessing | None = None, recipe: Mapping[str, Any] | None = None,
    test: Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Write model.safetensors, config.json (all that is needed to use them), history.csv and curves.png.

    ``preprocess`` says how pictures become what the model takes; None: as ``data`` has them. ``recipe``, plain values,
    says how it was trained. ``test``, loss and accuracy on the test split, if the history is that of images held out.
    """
    from vit_tutorial import plots

    out, table, picture = Path(folder), io.StringIO(), io.BytesIO()
    split, accuracies = "test", {"test_accuracy": history[-1]["test_accuracy"]}
    if test is not None:
        split = "validation"
        accuracies = {"test_accuracy": test["test_accuracy"], "validation_accuracy": history[-1]["test_accuracy"]}
        history = [{name.replace("test_", "validation_"): value for name, value in row.items()} for row in history]
    about = {
        "data": data.name, **accuracies, "command": command,
        "recipe": dict(recipe or {}), "test_files": list(data.test_files),
    }  # fmt: skip
    rows = csv.DictWriter(table, list(history[0]), lineterminator="\n")
    rows.writeheader()
    rows.writerows(history)
    names = ("loss", f"{split}_loss", "accuracy", f"{split}_accuracy")
    columns = {name: [row[name] for row in history] for name in names}
    labels = ("training loss", f"{split} loss", "training accuracy", f"{split} accuracy")
    lines = dict(zip(labels, columns.values(), strict=True))
    epochs = [row["epoch"] for row in history]
    figure = plots.curves(epochs, lines, xlabel="epoch", ylabel="loss (nats), accuracy (0 to 1)")
    figure.axes[0].locator_params("x", integer=True)
    figure.savefig(picture)
    write_model(out, model, data.classes, preprocess or Preprocessing(data.image_size, data.mean, data.std), about)
    write(out / "history.csv", table.getvalue().encode())
    write(out / "curves.png", picture.getvalue())


def write_model(
    folder: Path, model: ViT, classes: Sequence[str], preprocess: Preprocessing, about: Mapping[str, Any]
) -> None:
    """Write model.safetensors and config.json, all that is needed to use them; ``about`` is for people."""
    kinds = {ViTConfig: "vit", HybridConfig: "hybrid", ModernConfig: "modern"}
    if type(model.config) not in kinds:
        raise TypeError(f"a {type(model).__name__} can't be saved: a ViT, HybridViT or ModernViT can")
    config = {
        "kind": kinds[type(model.config)],
        "model": asdict(model.config),
        "classes": list(classes),
        **asdict(preprocess),
        **about,
    }
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write(folder / "model.safetensors", safetensors.torch.save(weights))
    write(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())


def write(path: Path, content: bytes | memoryview) -> None:
    """Put ``content`` in place of the file, as :func:`replacing` does."""
    with replacing(path) as file:
        file.write(content)


def check_writable(path: Path) -> None:
    """Raise now, before the work, the OSError that :func:`replacing` would raise after it; nothing is made."""
    _check_place(path)
    try:
        there = next(folder for folder in path.parents if folder.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` in one move when the block ends well.

    Killed at any moment, the old file or the new one is there; after an error the old one.

    Raises:
        OSError: that names the folder, for a full disk or one without the right to write; a folder where a file is to
            be, or a file where a folder is.
    """
    _check_place(path)
    partial_file = path.with_name(f"{path.name}.partial")  # one name: what a kill leaves is overwritten
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name and no content
        partial_file.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            partial_file.unlink(missing_ok=True)


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, and a file is to be written: give it another name")
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(f"{path.parent} is a file, and {path.name} is to be written into it: name a folder")


def _unwritable(path: Path, error: OSError) -> OSError:
    return OSError(
        error.errno,
        f"can't write {path.name} to the folder {path.parent} ({error.strerror}): what was saved there before is "
        "untouched; make room, get the right to write, or close what has it open; then try again, or resume",
    )
