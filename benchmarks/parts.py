"""Lesson 15: newer parts on digits, at three learning rates or more: what is each worth, and where?

    python benchmarks/parts.py                        some 260 runs of 5 CPU seconds; those of 24 blocks take 25
    python benchmarks/parts.py photographs cifar10    some contenders again, on 22,500 photographs
    python benchmarks/parts.py longer                 bounded scores, and seven times the steps: 75 runs, 30 CPU minutes
    python benchmarks/parts.py table                  prints the tables

A small ModernViT (width 32, four blocks) learns 1,200 of scikit-learn's digits in 300 steps: as in 2020, with one part
changed, or with something simpler that would do the same, a control. A row a run goes to benchmarks/parts.csv as soon
as it is done; rows that are there are not run again. Three seeds choose each contender's rate, that with the best mean
on 237 validation images; five give its score at that rate, on 360 test images: as they are, enlarged from 8 to 12
pixels, and in the middle of a frame of 12. Of the framed ones two causes are told apart: "moved" has the frame's
positions without its patches, "frame" its patches and the positions of training. Nothing is chosen by the test images.
One thread.
"""

from __future__ import annotations

import functools
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
from vit_tutorial.variants.modern import ModernAttention, ModernConfig, ModernViT, Rotary

CSV = Path(__file__).with_suffix(".csv")
SHARES = ["validation", "test", "enlarged", "framed", "moved", "frame"]  # the last four for SIZED alone
COLUMNS = ["data", "part", "rate", "seed", *SHARES, "largest_score", "cpu_seconds"]
WIDTHS: dict[str, Any] = {"dim": 32, "depth": 4, "num_heads": 2, "mlp_dim": 96, "num_classes": 10}
SIZES: dict[str, dict[str, Any]] = {  # 16 patches each
    "digits": {"image_size": 8, "patch_size": 2, "in_channels": 1} | WIDTHS,
    "photographs": {"image_size": 32, "patch_size": 8, "in_channels": 3} | WIDTHS,
}
PARTS: dict[str, dict[str, Any]] = {
    "2020": {},
    "q and k normed": {"qk_norm": True},
    "gradients clipped": {},  # controls for the norms: what many would try first,
    "attention slower": {},  # a tenth of the rate for the layers that make queries, keys and values,
    "scores capped at 20": {},  # and nothing but smaller scores
    "scores capped at 5": {},
    "scores held below 20": {},  # the same bound, by shorter queries and keys: their gradient stays alive
    "scores held below 5": {},
    "2020, 2,100 steps": {},  # seven times as long
    "q and k normed, 2,100 steps": {"qk_norm": True},
    "scores held below 5, 2,100 steps": {},
    "layer scale": {"layer_scale": 0.1},
    "24 blocks": {"depth": 24},
    "24 blocks, layer scale": {"depth": 24, "layer_scale": 1e-5},  # as small as CaiT's for 24 blocks
    "layer scale from 1e-5": {"layer_scale": 1e-5},  # controls: the same start at either depth,
    "24 blocks, layer scale from 0.1": {"depth": 24, "layer_scale": 0.1},
    "24 blocks from zero": {"depth": 24},  # and each branch's last matrix from zero
    "gated MLP": {"gated": True, "mlp_dim": 64},  # two thirds, so that the parameters are equal
    "rotary": {"position": "none", "rotary": Rotary()},
    "rotary, counted": {"position": "none", "rotary": Rotary("index")},
    "no positions": {"position": "none"},  # a control for rotary
    "RMS norm": {"norm": "rms"},
    "attention pooling": {"class_token": False, "pool": "attention"},
    "mean pooling": {"class_token": False, "pool": "mean"},  # its control
    "norm before": {"pre_norm": True},
}
SIZED = ("2020", "rotary", "rotary, counted", "no positions")  # how do these read larger images?
AGAIN = ("2020", "q and k normed")  # on photographs
CAPS = {"scores capped at 20": 20.0, "scores capped at 5": 5.0}
BOUNDS = {"scores held below 20": 20.0, "scores held below 5": 5.0, "scores held below 5, 2,100 steps": 5.0}
LONG = ("2020, 2,100 steps", "q and k normed, 2,100 steps", "scores held below 5, 2,100 steps")
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
FIRST, DEEPER = RATES[2:5], RATES[1:4]  # of all, of "24 blocks"; one more where the best would be at an edge
SEEDS, CHOOSE = range(5), range(3)  # the first of them choose the rate
STEPS, WARMUP, BATCH = 300, 20, 64


class Capped(ModernAttention):
    """Attention whose scores s are cap tanh(s / cap): everything else may grow as it does without."""

    cap: float

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # (B, h, T, d) each
        scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, h, T, T)
        weights = (self.cap * torch.tanh(scores / self.cap)).softmax(dim=-1)  # (B, h, T, T)
        return self.proj(self.merge_heads(weights @ v))  # (B, T, D)


class Bounded(ModernAttention):
    """Attention whose queries and keys are shortened only where a score could exceed the bound."""

    bound: float

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # (B, h, T, d) each
        longest = (self.bound * q.shape[-1] ** 0.5) ** 0.5  # |q| |k| / sqrt(d) stays below the bound
        q, k = (part * (longest / part.norm(dim=-1, keepdim=True)).clamp(max=1.0) for part in (q, k))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)  # (B, h, T, T)
        return self.proj(self.merge_heads(weights @ v))  # (B, T, D)


def untrained(sizes: dict[str, Any], part: str) -> ModernViT:
    model = ModernViT(ModernConfig(**sizes | PARTS[part]))
    if part in CAPS:
        for block in model.blocks:
            block.attention.__class__ = Capped  # the same weights
            block.attention.cap = CAPS[part]
    if part in BOUNDS:
        for block in model.blocks:
            block.attention.__class__ = Bounded
            block.attention.bound = BOUNDS[part]
    if part == "24 blocks from zero":
        for block in model.blocks:
            torch.nn.init.zeros_(block.attention.proj.weight)
            torch.nn.init.zeros_(block.mlp.fc2.weight)
    return model


def trained(images: Tensor, labels: Tensor, data: str, part: str, rate: float, seed: int) -> ModernViT:
    """A model with one part changed, after 300 steps of AdamW with warm-up and a cosine."""
    torch.manual_seed(seed)
    model = untrained(SIZES[data], part)
    slow = [weight for name, weight in model.named_parameters() if part == "attention slower" and ".qkv." in name]
    groups = [{"params": slow, "share": 0.1}] if slow else []
    rest = [weight for weight in model.parameters() if all(weight is not other for other in slow)]
    groups.append({"params": rest, "share": 1.0})
    optimiser = torch.optim.AdamW(groups, lr=rate, fused=True)
    steps = 7 * STEPS if part in LONG else STEPS
    for step in range(steps):
        now = rate * min(1.0, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / steps)) / 2
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
    z, largest = model.embed(images), 0.0
    for block in model.blocks:
        q, k, _ = block.attention.split_heads(block.norm1(z))  # (B, h, T, d) each
        largest = max(largest, (q @ k.mT / q.shape[-1] ** 0.5).abs().max().item())
        z = block(z)
    return largest


def resized(model: ModernViT, side: int) -> ModernViT:
    """The model for images of another size: a table of positions is resized, rotary angles follow from the size."""
    state = model.state_dict()
    if "embed.position" in state:
        grids, prefix = ((4, 4), (side // 2, side // 2)), int(model.config.class_token)
        state["embed.position"] = vt.resize_position_embedding(state["embed.position"], *grids, prefix_tokens=prefix)
    larger = ModernViT(replace(model.config, image_size=side)).eval()
    larger.load_state_dict(state)
    return larger


def beyond(places: Tensor, steady: bool) -> Tensor:
    """Positions or angles of 4 x 4 patches (16, F) and of a frame around them, (36, F): a step on, or the nearest's."""
    grid = places.unflatten(0, (4, 4))
    for axis in (0, 1):
        first, second, last = (grid.narrow(axis, i, 1) for i in (0, 1, 3))
        step = (second - first) * steady
        grid = torch.cat([first - step, grid, last + step], dim=axis)
    return grid.flatten(0, 1)


@torch.inference_mode()
def in_frame(model: ModernViT, images: Tensor, *, moved: bool, frame: bool) -> Tensor:
    """Logits of framed images (B, 1, 12, 12), with the frame's patches or without them.

    The digit's 16 patches have the places of the larger grid, if moved, or else those of training.
    """
    larger, small = resized(model, 12), images[..., 2:-2, 2:-2]
    if not moved and model.config.position != "none":
        table = model.embed.position[0]  # (17, D)
        larger.embed.position.data = torch.cat([table[:1], beyond(table[1:], steady=False)])[None]
    z, tokens = larger.embed(images), torch.arange(37)  # (B, 37, D)
    if not frame:
        tokens = torch.cat([tokens[:1], tokens[1:].unflatten(0, (6, 6))[1:-1, 1:-1].flatten()])  # (17,)
    if rotary := model.config.rotary:
        angles = rotary.angles((6, 6), model.config.head_dim, images)  # (36, d / 2)
        if not moved:
            angles = beyond(rotary.angles((4, 4), model.config.head_dim, images), steady=True)
        angles = F.pad(angles, (0, 0, 1, 0))[tokens]
        for block in larger.blocks:
            block.attention.cos, block.attention.sin = angles.cos(), angles.sin()
    z = z[:, tokens]
    for block in larger.blocks:
        z = block(z)
    logits = larger.head(larger.norm(z)[:, 0])  # (B, K)
    if not moved and not frame:
        assert torch.allclose(logits, model(small), atol=1e-4)
    return logits


def share(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(dim=1) == labels).double().mean().item()


@functools.cache
def pictures(data: str, source: str) -> list[tuple[Tensor, Tensor]]:
    """To train, to choose and to test: images (B, C, H, W) and labels (B,)."""
    if data == "digits":
        whole = vt.data.digits()
        (pixels, labels), (test, truth) = whole.train.batch(), whole.test.batch()
        parts = [(pixels[:1200], labels[:1200]), (pixels[1200:], labels[1200:]), (test, truth)]
    else:
        whole = vt.data.load(source, image_size=None if source in vt.data.DATASETS else 32)
        held = vt.data.hold_out(whole, 0.1)
        parts = [held.train.batch(slice(None, None, 2)), held.test.batch(), whole.test.batch()]  # half: 22,500
    return [(2 * pixels - 1, labels) for pixels, labels in parts]  # in [-1, 1]


@torch.inference_mode()
def run(data: str, part: str, rate: float, seed: int, source: str) -> list[object]:
    """One row."""
    (images, labels), (chosen, answers), (test, truth) = pictures(data, source)
    begin = time.process_time()
    with torch.inference_mode(False):
        model = trained(images, labels, data, part, rate, seed)
    seconds = time.process_time() - begin
    shares: list[float] = [share(model(chosen), answers), share(model(test), truth)]
    if data == "digits" and part in SIZED:
        enlarged, framed = F.interpolate(test, size=12, mode="bilinear"), F.pad(test, [2] * 4, value=-1.0)
        shares.append(share(resized(model, 12)(enlarged), truth))
        for moved, frame in ((True, True), (True, False), (False, True), (False, False)):
            shares.append(share(in_frame(model, framed, moved=moved, frame=frame), truth))
        assert shares.pop() == shares[1]  # neither moved nor framed
    score = largest_score(model, chosen[:500])
    found = [f"{value:.4f}" for value in shares] + [""] * (len(SHARES) - len(shares))
    return [data, part, rate, seed, *found, f"{score:.3g}", f"{seconds:.1f}"]


def column(part: str, rate: float, name: str, seeds: range = SEEDS, data: str = "digits") -> list[float]:
    """A column of these seeds' rows, in their order, where it is measured."""
    rows = [row for row in sheet.read(CSV, data=data, part=part, rate=rate) if row[name]]
    return [float(row[name]) for row in sorted(rows, key=lambda row: int(row["seed"])) if int(row["seed"]) in seeds]


def first_rates(part: str) -> tuple[float, ...]:
    return DEEPER if part == "24 blocks" else FIRST


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
    """By rate; each contender at its own rate, and minus 2020's; at another image size; on photographs."""
    rates = RATES[2:]
    lines = [f"| test accuracy, % | {' | '.join(f'{rate:g}' for rate in rates)} |", "|---" * (len(rates) + 1) + "|"]
    for part in PARTS:
        if there(part, *rates, seeds=SEEDS):
            lines.append(f"| {part} | {' | '.join(percent(column(part, rate, 'test')) for rate in rates)} |")
    lines += ["", "| | rate | test accuracy | minus 2020 |", "|---" * 4 + "|"]
    for part in PARTS:
        if there(part, *first_rates(part), seeds=CHOOSE) and there(part, rate := best_rate(part), seeds=SEEDS):
            gap = gaps(part, rate, "2020", best_rate("2020"))
            lines.append(f"| {part} | {rate:g} | {percent(column(part, rate, 'test'))} | {gap} |")
    lines += ["", f"| at its own rate | {' | '.join(SHARES[1:])} |", "|---" * len(SHARES) + "|"]
    for part in SIZED:
        rows = [column(part, best_rate(part), size) for size in SHARES[1:]]
        lines.append(f"| {part} | {' | '.join(percent(row) if row else '–' for row in rows)} |")
    lines += ["", f"| photographs | {' | '.join(f'{rate:g}' for rate in RATES[1:5])} |", "|---" * 5 + "|"]
    for part in AGAIN:
        cells = (percent(column(part, rate, "test", data="photographs")) for rate in RATES[1:5])
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def make(part: str, rate: float, seed: int, data: str = "digits", source: str = "") -> None:
    """One more row, unless it is there."""
    if not column(part, rate, "test", range(seed, seed + 1), data):
        sheet.add(CSV, COLUMNS, run(data, part, rate, seed, source))


def main() -> None:
    if sys.argv[1:] == ["table"]:
        print(tables())
        return
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["photographs"]:
        for seed, part, rate in itertools.product(SEEDS, AGAIN, RATES[1:5]):
            make(part, rate, seed, "photographs", sys.argv[2])
        return
    if sys.argv[1:] == ["longer"]:
        for seed, part, rate in itertools.product(SEEDS, [*BOUNDS, *LONG[:2]], RATES[2:5]):
            make(part, rate, seed)
        return
    contenders = [part for part in PARTS if part not in CAPS | BOUNDS and part not in LONG]
    for seed, part in itertools.product(CHOOSE, contenders):
        for rate in first_rates(part):
            make(part, rate, seed)
    for part in contenders:
        first, *_, last = map(RATES.index, first_rates(part))
        while (best := RATES.index(best_rate(part))) in (first, last):
            first, last = first - (best == first), last + (best == last)
            for seed, rate in itertools.product(CHOOSE, RATES[first : last + 1]):
                make(part, rate, seed)
    for seed, part in itertools.product(SEEDS, contenders):
        make(part, best_rate(part), seed)
    for seed, part, rate in itertools.product(SEEDS, list(PARTS)[:6], RATES[2:]):  # section 1's
        if part not in CAPS or rate > FIRST[0]:
            make(part, rate, seed)


if __name__ == "__main__":
    main()
