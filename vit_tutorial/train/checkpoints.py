"""Lesson 07: the state of a run on disk, written after every epoch, from which it resumes to the same weights."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from filelock import FileLock, Timeout
from torch import Tensor, nn

from vit_tutorial.data import Data
from vit_tutorial.data.augment import Augmentation
from vit_tutorial.data.files import check_writable, write
from vit_tutorial.data.images import content_of
from vit_tutorial.options.recipe import Recipe

Row = dict[str, float]  # what one epoch gave
History = list[Row]
Saved = dict[str, Any]  # what the file holds: numbers, texts, tensors, and lists and mappings of them
VERSION = 3  # of what a run draws and in which order: another version ends with other weights


def settings(recipe: Recipe, augmentation: Augmentation, data: Data, model: nn.Module) -> Saved:
    """All that decides a run's weights, as plain values: two runs with the same settings are the same run."""
    return {
        **asdict(recipe),
        "augment": augmentation.name,
        "data": data.name,
        "classes": list(data.classes),
        "files": data.digest,
        "train_images": content_of(data.train),
        "test_images": content_of(data.test),
        "model": repr(getattr(model, "config", model)),
        "version": VERSION,
    }


def check_free(folder: str | os.PathLike[str], resume: bool) -> None:
    """Raise an OSError, before any work, for a folder that can't be written, has a run, not to be resumed, or a model.

    The model of a finished run has the run's state beside it; another one would be replaced.
    """
    path = Path(folder) / "state.pt"
    if path.exists() and not resume:
        raise FileExistsError(f"{path.parent} already has a run: resume it, or choose another folder")
    if not path.exists() and (path.parent / "model.safetensors").exists():
        raise FileExistsError(f"{path.parent} already has a model, and no run to resume: choose another folder")
    check_writable(path)


class BestWeights:
    """The weights of the best epoch so far, as a part of a run's state; none at first."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Tensor]:
        """The weights by their names."""
        return self.tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the weights of another state_dict."""
        self.tensors = {name: tensor.clone() for name, tensor in tensors.items()}


class Checkpoint:
    """The state of a run in the folder ``out``, None for none: read once, written whole after every epoch.

    Args:
        out: the folder.
        accelerator: says which process writes.
    """

    def __init__(self, out: str | os.PathLike[str] | None, accelerator: Accelerator) -> None:
        self.path = Path(out) / "state.pt" if out is not None else None
        self.accelerator = accelerator

    def read(self, resume: bool) -> Saved | None:
        """The state in the folder; None without one.

        Raises:
            ValueError: no folder to resume from, a damaged state, or machines that see different ones.
            OSError: see :func:`check_free`.
        """
        if resume and self.path is None:
            raise ValueError("resume needs out=, the folder of the run")
        state = None
        if self.path:
            check_free(self.path.parent, resume)
            state = _read_state(self.path) if self.path.exists() else None
        epochs = torch.tensor([len(state["history"]) if state else -1], device=self.accelerator.device)
        if len(set(self.accelerator.gather(epochs).tolist())) > 1:
            raise ValueError(f"the machines see different states in {self.path}: the folder must be one they share")
        return state

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Inside, no other run reads or writes the state.

        Raises:
            OSError: another one does, or the folder can't be written.
        """
        if self.path is None or not self.accelerator.is_main_process:
            yield
            return
        check_writable(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_name(".lock"))  # the system frees it, however the process ends
        try:
            with suppress(NotImplementedError):  # a file system without locks
                lock.acquire(blocking=False)
        except Timeout:
            raise OSError(f"another run writes to {self.path.parent}: wait for it, or choose another folder") from None
        try:
            for left in self.path.parent.glob(f"{self.path.name}.*.partial"):  # by a run that was killed
                left.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def restore(self, state: Saved | None, settings: Saved, parts: Mapping[str, Any]) -> History:
        """Load ``parts`` from the state, and return the rows of the epochs that are done.

        Without a state a first one is written, which shows at once that the folder is writable.

        Raises:
            ValueError: a state of other settings: which.
            OSError: the folder can't be written.
        """
        if state is None:
            self.save(settings, parts, [])
            return []
        self._check(state["settings"], settings)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        return list(state["history"])

    def save(self, settings: Saved, parts: Mapping[str, Any], history: History) -> None:
        """Write the state of ``parts``, anything with a ``state_dict``. Raises OSError that names the folder."""
        if self.path and self.accelerator.is_main_process:
            state = {name: part.state_dict() for name, part in parts.items()}
            buffer = io.BytesIO()
            torch.save(state | {"settings": settings, "history": history}, buffer)
            write(self.path, buffer.getbuffer())

    def _check(self, before: Saved, settings: Saved) -> None:
        folder = self.path and self.path.parent
        for name, value in settings.items():
            if (known := before.get(name)) != value:
                raise ValueError(
                    f"the run in {folder} has {name}={known}, not {value}: "
                    "resume with the same settings and data, or choose another folder"
                )


def _read_state(path: Path) -> Saved:
    try:
        state: Saved = torch.load(path, map_location="cpu", weights_only=True)
        if not (isinstance(state["settings"], dict) and isinstance(state["history"], list)):
            raise TypeError("no settings, or no history")
    except Exception as error:
        raise ValueError(f"{path} is not the state of a run, or is damaged: move it away to start again") from error
    return state
