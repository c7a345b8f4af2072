"""What a model answers, and how two models' answers to the same images differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Answer = Callable[[Tensor], Tensor]  # images (B, C, H, W) -> logits (B, K)


@torch.inference_mode()
def logits_of(answer: Answer, images: Tensor, batch: int = 250) -> Tensor:
    """The logits of all images, batch by batch: (N, K)."""
    return torch.cat([answer(some) for some in images.split(batch)])


def pair_counts(before: Tensor, after: Tensor, labels: Tensor) -> list[int]:
    """Images, how many are right afterwards, how many were so only before, and how many are so only afterwards.

    Args:
        before: logits (N, K) of the model that another one is compared with.
        after: logits (N, K) of that other one.
        labels: (N,).
    """
    was, now = before.argmax(dim=1) == labels, after.argmax(dim=1) == labels
    return [len(labels), int(now.sum()), int((was & ~now).sum()), int((now & ~was).sum())]


def interval(plus: int, minus: int, n: int) -> tuple[float, float]:
    """Mean and half of the 95 % interval of a paired difference, in points, from the pairs that differ."""
    mean = (plus - minus) / n
    return 100 * mean, 196 * math.sqrt(((plus + minus) / n - mean**2) / n)
