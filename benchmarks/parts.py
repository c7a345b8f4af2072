"""Lesson 15: norms of queries and keys on digits, at four learning rates: what are they worth, and where?

    python benchmarks/parts.py            70 runs of some 5 CPU seconds
    python benchmarks/parts.py table      the tables of benchmarks/README.md

A small ModernViT (width 32, four blocks) learns 1,200 of scikit-learn's digits in 300 steps: as in 2020, with the
norms, or as in 2020 with clipped gradients, the control. A row a run goes to benchmarks/parts.csv as soon as it is
done; rows that are there are not run again. The best rate is that with the best mean on 237 validation images; the
test images are counted at the same moment, and nothing is chosen by them. One thread.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import sheet
import torch
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants.modern import ModernConfig, ModernViT

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["part", "rate", "seed", "validation", "test", "largest_score", "cpu_seconds"]
SIZES: dict[str, Any] = {"image_size": 8, "patch_size": 2, "in_channels": 1, "num_classes": 10}
SIZES |= {"dim": 32, "depth": 4, "num_heads": 2, "mlp_dim": 96}
PARTS: dict[str, dict[str, Any]] = {
    "2020": {},
    "q and k normed": {"qk_norm": True},
    "gradients clipped": {},  # no part, but what many would try first
    "layer scale": {"layer_scale": 0.1},
    "RMS norm": {"norm": "rms"},
}
RATES = (3e-3, 1e-2, 3e-2, 1e-1)
FAILING = 3e-2  # the only rate of the last two parts
SEEDS = 5
STEPS, WARMUP, BATCH = 300, 20, 64


def trained(images: Tensor, labels: Tensor, part: str, rate: float, seed: int) -> ModernViT:
    """A model with one part changed, after 300 steps of AdamW with warm-up and a cosine."""
    torch.manual_seed(seed)
    model = ModernViT(ModernConfig(**SIZES | PARTS[part]))
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    for step in range(STEPS):
        now = rate * min(1.0, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / STEPS)) / 2
        optimiser.param_groups[0]["lr"] = now
        rows = torch.randint(len(images), (BATCH,))
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        if part == "gradients clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model.eval()


@torch.inference_mode()
def largest_score(model: ModernViT, images: Tensor) -> float:
    """The largest attention score |q k| / sqrt(d) of all blocks, heads and images (B, C, H, W)."""
    z, largest, place = model.embed(images), 0.0, model.place(images)
    for block in model.blocks:
        q, k, _ = block.attention.split_heads(block.norm1(z), place)  # (B, h, T, d) each
        largest = max(largest, (q @ k.mT / q.shape[-1] ** 0.5).abs().max().item())
        z = block(z, place)
    return largest


def run(part: str, rate: float, seed: int) -> list[object]:
    """One row."""
    torch.set_num_threads(1)
    data = vt.data.digits()
    pixels, labels = data.train.batch()
    images = 2 * pixels - 1  # in [-1, 1]
    begin = time.process_time()
    model = trained(images[:1200], labels[:1200], part, rate, seed)
    seconds = time.process_time() - begin
    test_pixels, test_labels = data.test.batch()
    with torch.inference_mode():
        validation = (model(images[1200:]).argmax(dim=1) == labels[1200:]).double().mean().item()
        test = (model(2 * test_pixels - 1).argmax(dim=1) == test_labels).double().mean().item()
    score = largest_score(model, images[1200:])
    return [part, rate, seed, f"{validation:.4f}", f"{test:.4f}", f"{score:.3g}", f"{seconds:.1f}"]


def column(part: str, rate: float, name: str) -> list[float]:
    """A column of all seeds' rows, in the order of the seeds."""
    rows = [row for row in sheet.read(CSV) if row["part"] == part and float(row["rate"]) == rate]
    return [float(row[name]) for row in sorted(rows, key=lambda row: int(row["seed"]))]


def tables() -> str:
    """Test accuracy by part and rate, and each part at its best rate against the model of 2020 at its own."""
    lines = [f"| part | {' | '.join(f'{rate:g}' for rate in RATES)} |", "|---" * (len(RATES) + 1) + "|"]
    best = {}
    for part in list(PARTS)[:3]:
        means = {rate: statistics.mean(column(part, rate, "validation")) for rate in RATES}
        best[part] = max(means, key=means.__getitem__)
        cells = [sheet.interval([100 * value for value in column(part, rate, "test")]) for rate in RATES]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    lines += ["", "| part | its best rate | test accuracy | minus 2020's, paired |", "|---|---|---|---|"]
    plain = column("2020", best["2020"], "test")
    for part, rate in best.items():
        own = column(part, rate, "test")
        paired = [100 * (a - b) for a, b in zip(own, plain, strict=True)]
        lines.append(f"| {part} | {rate:g} | {sheet.interval([100 * x for x in own])} | {sheet.interval(paired)} |")
    plain = column("2020", FAILING, "test")
    for part in list(PARTS)[3:]:
        gap = [100 * (a - b) for a, b in zip(column(part, FAILING, "test"), plain, strict=True)]
        scores = statistics.median(column(part, FAILING, "largest_score"))
        lines.append(f"\n{part} at {FAILING:g}, minus 2020: {sheet.interval(gap)}; largest score {scores:.0f}")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["table"]:
        print(tables())
        return
    done = {(row["part"], float(row["rate"]), int(row["seed"])) for row in sheet.read(CSV)}
    for seed, part, rate in itertools.product(range(SEEDS), PARTS, RATES):
        if (part, rate, seed) not in done and (rate == FAILING or part not in ("layer scale", "RMS norm")):
            sheet.add(CSV, COLUMNS, run(part, rate, seed))


if __name__ == "__main__":
    main()
