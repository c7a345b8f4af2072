"""Pre-norm and post-norm, trained: 12 blocks on the digits, Adam, each order at every rate of a grid.

    python benchmarks/norm_order.py            all runs, five seeds: some five minutes on one thread
    python benchmarks/norm_order.py --table    what lesson 05 shows, from the rows that are there

A row a run goes to benchmarks/norm_order.csv as soon as it is done; rows that are there are not run again, so it goes
on where it was stopped. A fifth of the training images is held out to compare on; the test split isn't touched.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import sheet
import together
import torch
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.encoder import EncoderBlock

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["order", "warmup", "rate", "seed", "training_loss", "accuracy", "cpu_seconds"]
DEPTH, STEPS, BATCH = 12, 200, 32
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
ORDERS = (("pre", 0), ("post", 0), ("post", 100))  # the second number: steps in which the rate grows from 0


class PostNormBlock(EncoderBlock):
    """The same layers in the order of the Transformer of 2017: each norm after its addition."""

    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z + self.attention(z))  # (B, T, D)
        return self.norm2(z + self.mlp(z))  # (B, T, D)


def model_of(order: str, seed: int) -> vt.ViT:
    """A narrow ViT of 12 blocks. The last block of a post-norm model ends in a norm, so it needs no other."""
    torch.manual_seed(seed)
    model = vt.ViT(
        vt.ViTConfig(
            image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=32, depth=DEPTH, num_heads=4, mlp_dim=64
        )
    )
    if order == "post":
        model.norm = nn.Identity()
        for block in model.blocks:
            block.__class__ = PostNormBlock
    return model


def digits() -> tuple[Tensor, Tensor, Tensor]:
    """The training images, normalised, their labels, and which of them are held out."""
    data = vt.data.load("digits")
    images, labels = data.train.batch()
    torch.manual_seed(0)
    held_out = torch.rand(len(labels)) < 0.2
    return (images - data.mean[0]) / data.std[0], labels, held_out


def run(order: str, warmup: int, rate: float, seeds: list[int]) -> list[list[object]]:
    """A row for each seed."""
    images, labels, held_out = digits()
    mine, answers = images[~held_out], labels[~held_out]
    models = [model_of(order, seed) for seed in seeds]

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(answers), (BATCH,), generator=generator)
        return mine[chosen], answers[chosen]

    begin = time.process_time()
    answer, losses = together.fit(models, seeds, batch, rate, steps=STEPS, warmup=warmup)
    said = answer(images[held_out]).argmax(dim=-1)  # (seeds, held out)
    accuracy = (said == labels[held_out]).double().mean(dim=1)
    last = losses[-20:].mean(dim=0)
    seconds = (time.process_time() - begin) / len(seeds)
    return [
        [order, warmup, rate, seed, f"{last[i]:.4f}", f"{accuracy[i]:.4f}", f"{seconds:.1f}"]
        for i, seed in enumerate(seeds)
    ]


def table() -> str:
    names = [f"{order}-norm" + (f", warm-up of {warmup} steps" if warmup else "") for order, warmup in ORDERS]
    lines = [f"| rate | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for rate in RATES:
        cells = []
        for order, warmup in ORDERS:
            found = [
                float(row["accuracy"])
                for row in sheet.read(CSV)
                if (row["order"], int(row["warmup"]), float(row["rate"])) == (order, warmup, rate)
            ]
            cells.append(f"{together.interval(found)} ({len(found)})" if found else "–")
        lines.append(f"| {rate:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = {(row["order"], int(row["warmup"]), float(row["rate"]), int(row["seed"])) for row in sheet.read(CSV)}
    wanted = [] if args.table else itertools.product(RATES, ORDERS)
    for rate, (order, warmup) in wanted:
        seeds = [seed for seed in range(1, args.seeds + 1) if (order, warmup, rate, seed) not in done]
        for row in run(order, warmup, rate, seeds) if seeds else []:
            sheet.add(CSV, COLUMNS, row)
    print(table())


if __name__ == "__main__":
    main()
