"""Trained models with fewer tokens (lesson 19): accuracy by which tokens go, and after more training.

    python benchmarks/fewer_tokens.py accuracy --data cifar10-jpeg
        tokens merged or dropped, and which, into fewer_tokens.csv; "keep evenly" has an even grid from the start
    python benchmarks/fewer_tokens.py tune
        models trained further with fewer tokens or blocks, into fewer_tokens_tuned.csv

Rows that are there aren't measured again. Photographs are 2,000 of CIFAR-10's test images, which the model wasn't
trained on; scenes are drawn. What is random is drawn five times. "tune" trains ``shapes`` further on its 20,000 scenes;
"shifted" are the same 2,000 new scenes, moved by three patches.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import fewer_bits
import torch
from answers import logits_of, pair_counts
from result_table import ResultTable
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import tokens
from vit_tutorial.variants.tokens import FewerTokens, Reduction

HERE = Path(__file__).parent
PAIRED = ["images", "right", "only_whole", "only_this"]
ACCURACY = ResultTable(HERE / "fewer_tokens.csv", ["model", "way", "r", "draw", *PAIRED])
TUNED = ResultTable(HERE / "fewer_tokens_tuned.csv", ["form", "steps", "seed", *PAIRED, "right_shifted"])
# The best of 3e-4, 1e-3 and 3e-3 (two blocks: up to 1e-2). With 3e-4 ToMe had 0.3 points more after 100 steps, and 0.7
# fewer after 700.
RATES = {"merge similar": 1e-3, "drop outermost": 1e-3, "two blocks": 3e-3}
BATCH, SHIFT = 64, 24  # SHIFT in pixels, three patches


# ---- Which tokens go ---------------------------------------------------------------------------------------------


def drop_random(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    return tokens.drop_lowest(torch.rand_like(k[:, 0, :, 0]), r, protected)


def spread(side: int) -> Tensor:
    """An order of side x side places, side a power of 2: the first n lie evenly, for each n (Bayer's matrix)."""
    order = torch.zeros(1, 1)
    while len(order) < side:
        above, below = torch.cat([4 * order, 4 * order + 2], 1), torch.cat([4 * order + 3, 4 * order + 1], 1)
        order = torch.cat([above, below])
    return order.flatten()  # (side * side,)


def fixed(order: Tensor) -> Reduction:
    """Drop the same places in all images, the last ones of an order (N,) first."""

    def choose(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
        ranks = order[order < k.shape[2] - protected]  # (T - protected,), in the order of the places
        return tokens.drop_lowest(-torch.cat([torch.zeros(protected), ranks]).expand(len(k), -1), r, protected)

    return choose


AWAY = ((torch.arange(8) - 3.5) ** 2)[:, None] + (torch.arange(8) - 3.5) ** 2  # from the centre, squared
WAYS: dict[str, tuple[Reduction, int]] = {  # which tokens go, and how often it is drawn
    "merge similar": (tokens.merge_similar, 1),
    "drop least attended": (tokens.drop_least_attended, 1),
    "drop evenly": (fixed(spread(8)), 1),
    "drop outermost": (fixed(AWAY.flatten().argsort(stable=True).argsort().float()), 1),
    "drop random": (drop_random, 5),
}


def kept_evenly(model: vt.ViT, r: int) -> fewer_bits.Answer:
    """The model on an even grid of patches from the start: as many as cost what r tokens fewer per block cost."""
    config = model.config
    saved = tokens.count_macs(config, 0) - tokens.count_macs(config, r)

    def blocks_macs(T: int) -> int:
        return config.depth * T * (4 * config.dim**2 + 2 * config.dim * config.mlp_dim + 2 * T * config.dim)

    most = blocks_macs(config.num_tokens) - saved
    T = max(T for T in range(1, config.num_tokens) if blocks_macs(T) <= most)
    kept = 1 + (spread(8) < T - 1).nonzero()[:, 0]  # (T - 1,), behind the class token

    def answer(images: Tensor) -> Tensor:
        z = model.embed(images)  # (B, 65, D)
        z = torch.cat([z[:, :1], z[:, kept]], dim=1)  # (B, T, D)
        for block in model.blocks:
            z = block(z)
        logits: Tensor = model.head(model.norm(z)[:, 0])  # (B, K)
        return logits

    return answer


# ---- Accuracy ----------------------------------------------------------------------------------------------------


def accuracy(folder: str | None) -> None:
    """Rows of fewer_tokens.csv: on how many images the whole model and this way are right, and only one of them."""
    for name in ("shapes", "photographs"):
        model, _, prepare = vt.load(name)
        images, labels = fewer_bits.held_out(name, folder)
        if name == "photographs":
            images, labels = images[::5], labels[::5]  # a folder is class by class
        images = prepare(images)
        whole = logits_of(model, images)
        for r, (way, (choose, draws)) in itertools.product((8, 16), WAYS.items()):
            for draw in range(draws):
                if ACCURACY.rows(model=name, way=way, r=r, draw=draw):
                    continue
                torch.manual_seed(draw)
                counts = pair_counts(whole, logits_of(FewerTokens(model, r, choose), images), labels)
                ACCURACY.add([name, way, r, draw, *counts])
        for r in (8, 16):
            if not ACCURACY.rows(model=name, way="keep evenly", r=r):
                logits = fewer_bits.logits_of(kept_evenly(model, r), images)
                ACCURACY.add([name, "keep evenly", r, 0, *fewer_bits.pair_counts(whole, logits, labels)])


# ---- Trained for it ----------------------------------------------------------------------------------------------


def first_two_blocks(model: vt.ViT) -> vt.ViT:
    """A smaller model that begins as the first blocks of a trained one, with its last norm and its head."""
    small = vt.ViT(replace(model.config, depth=2, dropout=0.0, drop_path=0.0))
    small.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name in small.state_dict()})
    return small


def tune() -> None:
    """Rows of fewer_tokens_tuned.csv: ``shapes`` in forms of half the cost, trained further; also on moved scenes."""
    images, labels = vt.data.shapes(seed=0, train=20_000, test=1).train.batch()  # what the model was trained on
    scenes, truth = vt.data.shapes(seed=28, train=1, test=2000).test.batch()
    whole, _, prepare = vt.load("shapes")
    test = prepare(scenes)
    expected = logits_of(whole, test)
    for (steps, seed), form in itertools.product(((0, 0), (100, 0), (100, 1), (700, 0), (700, 1), (700, 2)), RATES):
        if TUNED.rows(form=form, steps=steps, seed=seed):
            continue
        model = vt.load("shapes").model
        vit = first_two_blocks(model) if form == "two blocks" else FewerTokens(model, 16, WAYS[form][0])
        optimizer = torch.optim.AdamW(vit.train().parameters(), lr=RATES[form])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
        torch.manual_seed(seed)
        for _ in range(steps):
            some = torch.randint(len(images), (BATCH,))
            loss = F.cross_entropy(vit(prepare(images[some])), labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        counts = pair_counts(expected, logits_of(vit.eval(), test), truth)
        moved = int((logits_of(vit, test.roll(SHIFT, dims=3)).argmax(1) == truth).sum())
        TUNED.add([form, steps, seed, *counts, moved])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "tune"))
    parser.add_argument("--data", help="photographs in folders: CIFAR-10's test images under test/")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "accuracy":
        accuracy(args.data)
    else:
        tune()


if __name__ == "__main__":
    main()
