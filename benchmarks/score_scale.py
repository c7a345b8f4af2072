"""Attention with and without its division by √d, trained: lesson 03's reader, at every rate of a grid.

One head of width d reads eight digits and must say them in reverse; it trains for 60 steps. Five seeds at every rate
choose ("choose"); five other seeds at the best rate give the score ("report"): the share of right answers on 1,000 new
rows. "start": without the division, but W_q begins √d times as small, so that the first scores are the same. "longer":
ten times the steps, three seeds, at a small rate. A row a run goes to benchmarks/score_scale.csv as soon as it is
done; rows that are there are not run again.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from pathlib import Path

import sheet
import together
import torch
from torch import Tensor, nn

from vit_tutorial.attention import dot_product_attention

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["purpose", "width", "scale", "rate", "seed", "accuracy", "cpu_seconds"]
WIDTHS, STEPS, MORE_STEPS = (32, 128), 60, 600
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SEEDS = {"choose": (1, 2, 3, 4, 5), "report": (6, 7, 8, 9, 10), "longer": (1, 2, 3)}
Case = tuple[int, str]  # d, "yes" or "no" or "start"
CASES: tuple[Case, ...] = tuple(itertools.product(WIDTHS, ("yes", "no", "start")))


class Reader(nn.Module):
    """The reader of lesson 03 with one head: digits (B, 8) in, logits (8 B, 10) out."""

    def __init__(self, width: int, scale: str) -> None:
        super().__init__()
        self.factor = 1.0 if scale == "yes" else math.sqrt(width)  # dot_product_attention divides by it
        self.digit, self.place = nn.Embedding(10, width), nn.Parameter(0.1 * torch.randn(8, width))
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.proj, self.head = nn.Linear(width, width), nn.Linear(width, 10)
        if scale == "start":
            with torch.no_grad():
                self.query.weight /= math.sqrt(width)
                self.query.bias /= math.sqrt(width)

    def forward(self, read: Tensor) -> Tensor:
        x = self.digit(read) + self.place  # (B, T, D)
        z, _ = dot_product_attention(self.factor * self.query(x), self.key(x), self.value(x))  # (B, T, D)
        return self.head(self.proj(z)).flatten(0, 1)  # (B T, 10)


def batch(generator: torch.Generator, rows: int = 64) -> tuple[Tensor, Tensor]:
    """Rows of digits (rows, 8), and the same in reverse (8 rows,)."""
    read = torch.randint(10, (rows, 8), generator=generator)
    return read, read.flip(1).flatten()


def complete(purpose: str, case: Case, rate: float) -> None:
    """Run the seeds that have no row yet."""
    done = accuracies(purpose, case, rate)
    seeds = [seed for seed in SEEDS[purpose] if seed not in done]
    if not seeds:
        return
    (width, scale), models, begin = case, [], time.process_time()
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(Reader(width, scale))
    answer, _ = together.fit(models, seeds, batch, rate, steps=MORE_STEPS if purpose == "longer" else STEPS)
    read, answers = batch(torch.Generator().manual_seed(0), 1000)
    right = (answer(read).argmax(dim=-1) == answers).double().mean(dim=1)  # (seeds,)
    seconds = (time.process_time() - begin) / len(seeds)
    for seed, share in zip(seeds, right.tolist(), strict=True):
        sheet.add(CSV, COLUMNS, [purpose, *case, rate, seed, f"{share:.4f}", f"{seconds:.1f}"])


def accuracies(purpose: str, case: Case, rate: float) -> dict[int, float]:
    """By seed."""
    rows = sheet.read(CSV, purpose=purpose, width=case[0], scale=case[1], rate=rate)
    return {int(row["seed"]): float(row["accuracy"]) for row in rows}


def best_rate(case: Case) -> float:
    """The rate with the best mean over the seeds that choose."""
    return max(RATES, key=lambda rate: statistics.mean(accuracies("choose", case, rate).values() or [0.0]))


def main() -> None:
    torch.set_num_threads(1)
    for case, rate in itertools.product(CASES, RATES):
        complete("choose", case, rate)
    for case in CASES:
        complete("report", case, best_rate(case))
    complete("longer", (128, "no"), 3e-4)
    complete("longer", (128, "yes"), 3e-4)


if __name__ == "__main__":
    main()
