"""Lesson 07: what a model predicts for a split, and how well: the loss and the accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.data import Data, Split, normalise
from vit_tutorial.train.batches import Batch, loader


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, every part is in evaluation mode; afterwards, in the mode that it had."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@torch.inference_mode()
def predict(
    model: nn.Module,
    data: Data,
    *,
    split: Split = "test",
    part: slice = slice(None),
    batch_size: int = 256,
) -> Batch:
    """The logits (n, K) and labels (n,) of a split, or of ``part`` of it, in its order, without augmentation.

    ``model`` stays on its device, where the images go, and each of its parts in its mode.
    """
    images = getattr(data, split)
    rows = torch.arange(len(images))[part]
    if not len(rows):  # of more processes than images, some have none
        return torch.empty(0, len(data.classes)), torch.empty(0, dtype=torch.int64)
    keys = [(0, rows[start : start + batch_size].tolist()) for start in range(0, len(rows), batch_size)]
    weight = next(model.parameters())
    batches = ((normalise(x.to(weight.device), data).to(weight.dtype), y) for x, y in loader(images, keys))
    with evaluation_mode(model):
        logits, labels = zip(*((model(x), y) for x, y in batches), strict=True)
    return torch.cat(logits).cpu(), torch.cat(labels)


def check_test_images(data: Data) -> None:
    """Raise a ValueError if there is no image to test on."""
    if not len(data.test):
        raise ValueError(f"{data.name} has no {data.test_split} images: there is nothing to measure")


def evaluate(model: nn.Module, data: Data, *, accelerator: Accelerator | None = None) -> dict[str, float]:
    """test_loss (in nats, no smoothing) and test_accuracy (0 to 1); with an accelerator, each process takes a part.

    Raises:
        ValueError: no image to test on.
    """
    check_test_images(data)
    rank, processes = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    logits, labels = predict(model, data, part=slice(rank, None, processes))
    totals = Totals(accelerator)
    totals.add(F.cross_entropy(logits.float(), labels, reduction="sum"), logits, labels)
    return {f"test_{name}": value for name, value in totals.means().items()}


class Totals:
    """Losses, correct predictions and images so far."""

    def __init__(self, accelerator: Accelerator | None = None) -> None:
        self.accelerator = accelerator
        self.sums = torch.zeros(3, device=accelerator.device if accelerator else "cpu")

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: the sum of its losses, its logits (B, K), its labels (B,) or, mixed, (B, K)."""
        classes = labels.argmax(dim=1) if labels.ndim == 2 else labels  # the larger part counts
        correct = (logits.argmax(dim=1) == classes).sum()
        self.sums += torch.stack([loss, correct, correct.new_tensor(len(labels))]).to(self.sums.device)

    def means(self) -> dict[str, float]:
        """The mean loss and the accuracy, over all processes."""
        sums = self.accelerator.reduce(self.sums, "sum") if self.accelerator else self.sums
        loss, correct, count = sums.tolist()
        return {"loss": loss / count, "accuracy": correct / count}
