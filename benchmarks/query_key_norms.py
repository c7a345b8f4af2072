"""Lesson 15: norms of queries and keys, and what could do the same, at four learning rates and two lengths of training.

    python benchmarks/query_key_norms.py    some 160 runs: of 300 steps 5 CPU seconds each, of 2,100 steps 30

A small ModernViT (width 32, four blocks) learns 1,200 of scikit-learn's digits: as in 2020, with queries and keys
normed, with something simpler, or with another newer part. A row a run goes to query_key_norms.csv as soon as it is
done; rows that are there are not run again. "validation" is the accuracy on 237 images held out, "test" that on 360
images. Nothing is chosen. One thread.
"""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import torch
from result_table import ResultTable
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants.modern import ModernAttention, ModernConfig, ModernViT

COLUMNS = ["part", "steps", "rate", "seed", "validation", "test", "largest_score", "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
SIZES = {"image_size": 8, "patch_size": 2, "in_channels": 1, "num_classes": 10}
SIZES |= {"dim": 32, "depth": 4, "num_heads": 2, "mlp_dim": 96}
NORMED, SLOWER = "q and k normed", "a tenth of the rate"  # for the layers that make queries, keys and values
SHORTENED, CAPPED = "scores held below 5", "scores capped at 5"
PARTS = ("2020", NORMED, SLOWER, SHORTENED)
RATES = (3e-3, 1e-2, 3e-2, 1e-1)
SEEDS = range(5)
OTHERS = {"RMS norm": {"norm": "rms"}, "layer scale": {"layer_scale": 0.1}, "gated MLP": {"gated": True, "mlp_dim": 64}}
WARMUP, BATCH, BOUND = 20, 64, 5.0


class Capped(ModernAttention):
    """Attention whose scores s are BOUND tanh(s / BOUND): large scores get no gradient, either."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # (B, h, T, d) each
        scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, h, T, T)
        weights = (BOUND * torch.tanh(scores / BOUND)).softmax(dim=-1)  # (B, h, T, T)
        return self.proj(self.merge_heads(weights @ v))  # (B, T, D)


class Shortened(ModernAttention):
    """Attention whose queries and keys are shortened only where a score could exceed BOUND."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # (B, h, T, d) each
        longest = (BOUND * q.shape[-1] ** 0.5) ** 0.5  # |q| |k| / sqrt(d) stays below the bound
        q, k = (part * (longest / part.norm(dim=-1, keepdim=True)).clamp(max=1.0) for part in (q, k))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)  # (B, h, T, T)
        return self.proj(self.merge_heads(weights @ v))  # (B, T, D)


def untrained(part: str) -> ModernViT:
    model = ModernViT(ModernConfig(**SIZES | OTHERS.get(part, {}), qk_norm=part == NORMED))
    changed = {CAPPED: Capped, SHORTENED: Shortened}
    if part in changed:
        for block in model.blocks:
            block.attention.__class__ = changed[part]  # the same weights
    return model


def trained(images: Tensor, labels: Tensor, part: str, steps: int, rate: float, seed: int) -> ModernViT:
    """A model with one part changed, after AdamW with warm-up and a cosine."""
    torch.manual_seed(seed)
    model = untrained(part)
    slow = [weight for name, weight in model.named_parameters() if part == SLOWER and ".qkv." in name]
    groups = [{"params": slow, "share": 0.1}] if slow else []
    rest = [weight for weight in model.parameters() if all(weight is not other for other in slow)]
    groups.append({"params": rest, "share": 1.0})
    optimiser = torch.optim.AdamW(groups, lr=rate, fused=True)
    for step in range(steps):
        now = rate * min(1.0, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimiser.param_groups:
            group["lr"] = now * group["share"]
        rows = torch.randint(len(images), (BATCH,))
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


@torch.inference_mode()
def largest_score(model: ModernViT, images: Tensor) -> float:
    """The largest attention score |q k| / sqrt(d) of all blocks, heads and images, before a bound: (B, C, H, W)."""
    z, largest = model.embed(images), 0.0
    for block in model.blocks:
        q, k, _ = block.attention.split_heads(block.norm1(z))  # (B, h, T, d) each
        largest = max(largest, (q @ k.mT / q.shape[-1] ** 0.5).abs().max().item())
        z = block(z)
    return largest


@torch.inference_mode()
def share(model: ModernViT, images: Tensor, labels: Tensor) -> float:
    return (model(images).argmax(dim=1) == labels).double().mean().item()


def make(part: str, steps: int, rate: float, seed: int) -> None:
    """One more row, unless it is there."""
    if RESULTS.rows(part=part, steps=steps, rate=rate, seed=seed):
        return
    whole = vt.data.digits()
    (images, labels), (test, truth) = whole.train.batch(), whole.test.batch()
    images, test = 2 * images - 1, 2 * test - 1  # in [-1, 1]
    begin = time.process_time()
    model = trained(images[:1200], labels[:1200], part, steps, rate, seed)
    seconds = time.process_time() - begin
    shares = (share(model, images[1200:], labels[1200:]), share(model, test, truth))
    score = largest_score(model, images[1200:])
    found = [*(f"{value:.4f}" for value in shares), f"{score:.3g}", f"{seconds:.1f}"]
    RESULTS.add([part, steps, rate, seed, *found])


def main() -> None:
    torch.set_num_threads(1)
    for steps, seed, part, rate in itertools.product((300, 2_100), SEEDS, PARTS, RATES):
        make(part, steps, rate, seed)
    for seed, part in itertools.product(SEEDS, (CAPPED, *OTHERS)):
        make(part, 300, 3e-2, seed)
    for seed, rate in itertools.product(range(3), (0.3, 1.0)):
        make(NORMED, 300, rate, seed)


if __name__ == "__main__":
    main()
