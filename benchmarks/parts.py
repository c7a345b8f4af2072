"""Lesson 15: newer parts on digits, at four learning rates: what is each worth, and where?

    python benchmarks/parts.py            200 runs of some 5 CPU seconds
    python benchmarks/parts.py table      the tables of benchmarks/README.md

A small ModernViT (width 32, four blocks) learns 1,200 of scikit-learn's digits in 300 steps: as in 2020, with one part
changed, or with something simpler that would do the same, a control. A row a run goes to benchmarks/parts.csv as soon
as it is done; rows that are there are not run again. Three seeds choose each contender's rate, that with the best mean
on 237 validation images; five give its score at that rate, on 360 test images: as they are, enlarged from 8 to 12
pixels, and in the middle of a frame of 12. Nothing is chosen by the test images. One thread.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sheet
import torch
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants.modern import ModernConfig, ModernViT, Rotary

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["part", "rate", "seed", "validation", "test", "enlarged", "framed", "largest_score", "cpu_seconds"]
SIZES: dict[str, Any] = {"image_size": 8, "patch_size": 2, "in_channels": 1, "num_classes": 10}
SIZES |= {"dim": 32, "depth": 4, "num_heads": 2, "mlp_dim": 96}
PARTS: dict[str, dict[str, Any]] = {
    "2020": {},
    "q and k normed": {"qk_norm": True},
    "gradients clipped": {},  # two controls for the norms: what many would try first,
    "attention slower": {},  # and a tenth of the rate for the layers that make queries, keys and values
    "layer scale": {"layer_scale": 0.1},
    "registers": {"registers": 4},
    "gated MLP": {"gated": True, "mlp_dim": 64},  # two thirds, so that the parameters are equal
    "rotary": {"position": "none", "rotary": Rotary()},
    "no positions": {"position": "none"},  # a control for rotary
    "RMS norm": {"norm": "rms"},
    "attention pooling": {"class_token": False, "pool": "attention"},
    "mean pooling": {"class_token": False, "pool": "mean"},  # its control
    "norm before": {"pre_norm": True},
}
SIZED = ("2020", "rotary", "no positions")  # of these the lesson asks how they read larger images
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # the outer ones only where the best would be at an edge
FAILING = 3e-2
SEEDS, CHOOSE = range(5), range(3)  # the first of them choose the rate
STEPS, WARMUP, BATCH = 300, 20, 64


def trained(images: Tensor, labels: Tensor, part: str, rate: float, seed: int) -> ModernViT:
    """A model with one part changed, after 300 steps of AdamW with warm-up and a cosine."""
    torch.manual_seed(seed)
    model = ModernViT(ModernConfig(**SIZES | PARTS[part]))
    slow = [weight for name, weight in model.named_parameters() if part == "attention slower" and ".qkv." in name]
    groups = [{"params": slow, "share": 0.1}] if slow else []
    rest = [weight for weight in model.parameters() if all(weight is not other for other in slow)]
    groups.append({"params": rest, "share": 1.0})
    optimiser = torch.optim.AdamW(groups, lr=rate, fused=True)
    for step in range(STEPS):
        now = rate * min(1.0, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / STEPS)) / 2
        for group in optimiser.param_groups:
            group["lr"] = now * group["share"]
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


@torch.inference_mode()
def accuracy(model: ModernViT, images: Tensor, labels: Tensor) -> float:
    """On images (B, 1, H, H) of any size: a table of positions is resized."""
    state, side = model.state_dict(), images.shape[-1]
    if "embed.position" in state:
        grids, prefix = ((4, 4), (side // 2, side // 2)), int(model.config.class_token)
        state["embed.position"] = vt.resize_position_embedding(state["embed.position"], *grids, prefix_tokens=prefix)
    resized = ModernViT(replace(model.config, image_size=side)).eval()
    resized.load_state_dict(state)
    return (resized(images).argmax(dim=1) == labels).double().mean().item()


def run(part: str, rate: float, seed: int) -> list[object]:
    """One row."""
    torch.set_num_threads(1)
    data = vt.data.digits()
    pixels, labels = data.train.batch()
    images = 2 * pixels - 1  # in [-1, 1]
    begin = time.process_time()
    model = trained(images[:1200], labels[:1200], part, rate, seed)
    seconds = time.process_time() - begin
    pixels, truth = data.test.batch()
    test = 2 * pixels - 1
    tests = test, F.interpolate(test, size=12, mode="bilinear"), F.pad(test, [2] * 4, value=-1.0)
    shares = [accuracy(model, images[1200:], labels[1200:]), *(accuracy(model, test, truth) for test in tests)]
    score = largest_score(model, images[1200:])
    return [part, rate, seed, *(f"{share:.4f}" for share in shares), f"{score:.3g}", f"{seconds:.1f}"]


def column(part: str, rate: float, name: str, seeds: range = SEEDS) -> list[float]:
    """A column of these seeds' rows, in their order."""
    rows = [row for row in sheet.read(CSV) if row["part"] == part and float(row["rate"]) == rate]
    return [float(row[name]) for row in sorted(rows, key=lambda row: int(row["seed"])) if int(row["seed"]) in seeds]


def best_rate(part: str) -> float:
    """The rate with the best mean on the validation images."""
    means = {rate: statistics.mean(column(part, rate, "validation", CHOOSE) or [0.0]) for rate in RATES}
    return max(means, key=means.__getitem__)


def percent(values: list[float]) -> str:
    return sheet.interval([100 * value for value in values])


def gaps(part: str, rate: float, other: str, at: float, name: str = "test", seeds: range = SEEDS) -> str:
    """One contender minus another, seed by seed, in points."""
    pairs = zip(column(part, rate, name, seeds), column(other, at, name, seeds), strict=True)
    return percent([one - two for one, two in pairs])


def there(part: str, *rates: float, seeds: range) -> bool:
    """Whether these runs are done."""
    return all(len(column(part, rate, "test", seeds)) == len(seeds) for rate in rates)


def tables() -> str:
    """By rate; each contender at its own rate, and minus 2020's; at a rate that is too large; at another image size."""
    rates = RATES[1:]
    lines = [f"| test accuracy, % | {' | '.join(f'{rate:g}' for rate in rates)} |", "|---" * (len(rates) + 1) + "|"]
    for part in PARTS:
        if there(part, *rates, seeds=SEEDS):
            lines.append(f"| {part} | {' | '.join(percent(column(part, rate, 'test')) for rate in rates)} |")
    lines += ["", "| | rate | test accuracy | minus 2020 |", "|---" * 4 + "|"]
    for part in PARTS:
        if there(part, *RATES[1:-1], seeds=CHOOSE) and there(part, rate := best_rate(part), seeds=SEEDS):
            gap = gaps(part, rate, "2020", best_rate("2020"))
            lines.append(f"| {part} | {rate:g} | {percent(column(part, rate, 'test'))} | {gap} |")
    lines += ["", f"| at {FAILING:g} | minus 2020 | largest score |", "|---" * 3 + "|"]
    for part in PARTS:
        seeds = SEEDS if there(part, FAILING, seeds=SEEDS) else CHOOSE
        if there(part, FAILING, seeds=seeds):
            score = statistics.median(column(part, FAILING, "largest_score", seeds))
            lines.append(f"| {part} | {gaps(part, FAILING, '2020', FAILING, 'test', seeds)} | {score:.0f} |")
    sizes = ("test", "enlarged", "framed")
    lines += ["", f"| at {best_rate('2020'):g} | {' | '.join(sizes)} |", "|---" * 4 + "|"]
    for part in SIZED:
        if there(part, rate := best_rate("2020"), seeds=SEEDS):
            lines.append(f"| {part} | {' | '.join(percent(column(part, rate, size)) for size in sizes)} |")
    return "\n".join(lines)


def make(part: str, rate: float, seed: int) -> None:
    """One more row, unless it is there."""
    if not there(part, rate, seeds=range(seed, seed + 1)):
        sheet.add(CSV, COLUMNS, run(part, rate, seed))


def main() -> None:
    if sys.argv[1:] == ["table"]:
        print(tables())
        return
    for seed, part, rate in itertools.product(CHOOSE, PARTS, RATES[1:-1]):
        make(part, rate, seed)
    for part in PARTS:
        beyond = {RATES[1]: RATES[0], RATES[-2]: RATES[-1]}.get(best_rate(part))
        if beyond:
            for seed in CHOOSE:
                make(part, beyond, seed)
    for seed, part in itertools.product(SEEDS, PARTS):
        make(part, best_rate(part), seed)
    for seed, part, rate in itertools.product(SEEDS, list(PARTS)[:4], RATES[1:]):
        make(part, rate, seed)
    for seed, part in itertools.product(SEEDS, SIZED):
        make(part, best_rate("2020"), seed)


if __name__ == "__main__":
    main()
