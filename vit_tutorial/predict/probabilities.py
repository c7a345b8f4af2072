"""A model's predictions: the most likely classes of each image, with their probabilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from vit_tutorial.weights import LoadedModel

Classifier: TypeAlias = Callable[[Tensor], Tensor]  # images (B, C, H, W) -> probabilities (B, K)
Row = TypeVar("Row")
Ranked: TypeAlias = list[tuple[str, float]]  # (class, probability), the most likely first


class PhotoPrediction(NamedTuple):
    """What the model predicts for one photograph."""

    file: str
    image: Tensor  # (1, C, H, W), normalised: the model's input
    ranked: Ranked


def best_device() -> torch.device:
    """CUDA's or Apple's GPU, if torch finds one, else the CPU; of several processes, each has a GPU of its own."""
    if torch.cuda.is_available():
        local = os.environ.get("LOCAL_RANK")
        return torch.device("cuda") if local is None else torch.device("cuda", int(local) % torch.cuda.device_count())
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def predictions(
    images: Iterable[tuple[str, Tensor | ValueError]],
    trained: LoadedModel,
    *,
    top: int,
    batch_size: int,
    classify: Classifier | None = None,
) -> Iterator[PhotoPrediction | ValueError]:
    """The model's prediction for each of the images, or what was wrong with it, in their order.

    Args:
        images: files, each with its image (1, C, H, W), normalised, as :func:`read` gives them.
        trained: the model, on the device that it is to run on, and the names of its classes.
        top: how many classes; all of them if there are fewer.
        batch_size: how many images the model gets at a time.
        classify: how an image gets its probabilities; None: by the model's head and a softmax.
    """
    for result in map_batches(images, batch_size, lambda batch: rank(trained, batch, top, classify)):
        yield result if isinstance(result, ValueError) else PhotoPrediction(*result)


def map_batches(
    images: Iterable[tuple[str, Tensor | ValueError]], batch_size: int, function: Callable[[Tensor], Iterable[Row]]
) -> Iterator[tuple[str, Tensor, Row] | ValueError]:
    """Each file with its image and its row of ``function``, which gets a batch of images, or what was wrong with it."""
    images = iter(images)
    while chunk := list(islice(images, batch_size)):
        good = [image for _, image in chunk if isinstance(image, Tensor)]
        rows = iter(function(torch.cat(good)) if good else ())
        for file, image in chunk:
            yield (file, image, next(rows)) if isinstance(image, Tensor) else image


@torch.inference_mode()
def rank(trained: LoadedModel, images: Tensor, top: int, classify: Classifier | None = None) -> list[Ranked]:
    """The ``top`` most likely classes of each of the images, (B, C, H, W) normalised; among equal ones the first."""
    images = images.to(next(trained.model.parameters()))  # to its device, and half precision for such a model
    probabilities = trained.model(images).softmax(dim=-1) if classify is None else classify(images)  # (B, K)
    ordered = probabilities.cpu().sort(descending=True, stable=True)  # (B, K); topk promises no order of equal ones
    best, order = ordered.values[:, :top].tolist(), ordered.indices[:, :top].tolist()
    return [
        [(trained.classes[index], value) for index, value in zip(indices, values, strict=True)]
        for indices, values in zip(order, best, strict=True)
    ]
