"""Pre-norm and post-norm, trained: 12 blocks on the digits, Adam, each order at every rate of a grid.

    python benchmarks/norm_order.py            all runs, ten seeds: some five minutes on one thread

A row a run goes to benchmarks/norm_order.csv as soon as it is done; rows that are there are not run again, so it goes
on where it was stopped. Five seeds at every rate are scored on a fifth of the training images, which was held out
("choose"). Then five other seeds of each order, at the rate that was best for it, are scored on the test split
("report"), and the first five are trained three times as long at that rate, scored on what was held out ("longer").
Half as long, with the same seeds: a chain, without additions, of 12 blocks and of 2, blocks with one addition of two,
and pre-norm.
"""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path

import sheet
import together
import torch
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.encoder import EncoderBlock

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["purpose", "order", "warmup", "rate", "seed", "training_loss", "accuracy", "cpu_seconds"]
DEPTH, STEPS, BATCH = 12, 200, 32
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
ORDERS = (("pre", 0), ("post", 0), ("post", 100))  # the second number: steps in which the rate grows from 0
SEEDS = {"report": (6, 7, 8, 9, 10)}  # else 1 to 5
CHAINS = (
    *(("12 blocks", "chain", rate) for rate in (1e-4, 3e-4, 1e-3, 3e-3)),
    ("12 blocks", "pre", 1e-3),
    *(("2 blocks", order, 1e-3) for order in ("chain", "pre")),
    *(("12 blocks", order, rate) for order in ("attention added", "MLP added") for rate in (1e-4, 3e-4, 1e-3)),
)


class PostNormBlock(EncoderBlock):
    """The same layers in the order of the Transformer of 2017: each norm after its addition."""

    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z + self.attention(z))  # (B, T, D)
        return self.norm2(z + self.mlp(z))  # (B, T, D)


class Chain(EncoderBlock):
    """The same layers without additions."""

    def forward(self, z: Tensor) -> Tensor:
        return self.mlp(self.norm2(self.attention(self.norm1(z))))  # (B, T, D)


class AttentionAdded(EncoderBlock):
    """Attention is added to the tokens; the MLP replaces them."""

    def forward(self, z: Tensor) -> Tensor:
        return self.mlp(self.norm2(z + self.attention(self.norm1(z))))  # (B, T, D)


class MlpAdded(EncoderBlock):
    """Attention replaces the tokens; the MLP is added to them."""

    def forward(self, z: Tensor) -> Tensor:
        z = self.attention(self.norm1(z))  # (B, T, D)
        return z + self.mlp(self.norm2(z))  # (B, T, D)


BLOCKS = {
    "pre": EncoderBlock,
    "post": PostNormBlock,
    "chain": Chain,
    "attention added": AttentionAdded,
    "MLP added": MlpAdded,
}


def model_of(order: str, seed: int, depth: int) -> vt.ViT:
    """A narrow ViT. The last block of a post-norm model ends in a norm, so it needs no other."""
    torch.manual_seed(seed)
    model = vt.ViT(
        vt.ViTConfig(
            image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=32, depth=depth, num_heads=4, mlp_dim=64
        )
    )
    if order == "post":
        model.norm = nn.Identity()
    for block in model.blocks:
        block.__class__ = BLOCKS[order]
    return model


def digits(purpose: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, images and labels to score on."""
    data = vt.data.load("digits")
    (images, labels), (test, test_labels) = data.train.batch(), data.test.batch()
    images, test = ((pixels - data.mean[0]) / data.std[0] for pixels in (images, test))
    torch.manual_seed(0)
    held_out = torch.rand(len(labels)) < 0.2
    questions, right = (test, test_labels) if purpose == "report" else (images[held_out], labels[held_out])
    return images[~held_out], labels[~held_out], questions, right


def run(purpose: str, order: str, warmup: int, rate: float, seeds: list[int]) -> list[list[object]]:
    """A row for each seed."""
    mine, answers, questions, right = digits(purpose)
    models = [model_of(order, seed, 2 if purpose == "2 blocks" else DEPTH) for seed in seeds]

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(answers), (BATCH,), generator=generator)
        return mine[rows], answers[rows]

    steps = STEPS // 2 if "blocks" in purpose else STEPS * (3 if purpose == "longer" else 1)
    begin = time.process_time()
    answer, losses = together.fit(models, seeds, batch, rate, steps=steps, warmup=warmup)
    accuracy = (answer(questions).argmax(dim=-1) == right).double().mean(dim=1)  # (seeds,)
    last = losses[-20:].mean(dim=0)
    seconds = (time.process_time() - begin) / len(seeds)
    return [
        [purpose, order, warmup, rate, seed, f"{last[i]:.4f}", f"{accuracy[i]:.4f}", f"{seconds:.1f}"]
        for i, seed in enumerate(seeds)
    ]


def accuracies(purpose: str, order: str, warmup: int, rate: float) -> list[float]:
    rows = sheet.read(CSV, purpose=purpose, order=order, warmup=warmup, rate=rate)
    return [float(row["accuracy"]) for row in rows]


def best_rate(order: str, warmup: int) -> float:
    """The rate with the best mean over the seeds that choose."""
    return max(RATES, key=lambda rate: statistics.mean(accuracies("choose", order, warmup, rate) or [0.0]))


def complete(purpose: str, order: str, warmup: int, rate: float) -> None:
    """Run the seeds that have no row yet."""
    done = {int(row["seed"]) for row in sheet.read(CSV, purpose=purpose, order=order, warmup=warmup, rate=rate)}
    seeds = [seed for seed in SEEDS.get(purpose, (1, 2, 3, 4, 5)) if seed not in done]
    for row in run(purpose, order, warmup, rate, seeds) if seeds else []:
        sheet.add(CSV, COLUMNS, row)


def main() -> None:
    torch.set_num_threads(1)
    for rate, (order, warmup) in itertools.product(RATES, ORDERS):
        complete("choose", order, warmup, rate)
    for order, warmup in ORDERS:
        complete("report", order, warmup, best_rate(order, warmup))
        complete("longer", order, warmup, best_rate(order, warmup))
    for depth, order, rate in CHAINS:
        complete(depth, order, 0, rate)


if __name__ == "__main__":
    main()
