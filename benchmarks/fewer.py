"""Trained models with fewer tokens (lesson 19): accuracy by which tokens go, how and when, and seconds.

    python benchmarks/fewer.py accuracy --data cifar10-jpeg   fewer.csv: merged or dropped; which tokens
    python benchmarks/fewer.py rivals --data cifar10-jpeg     fewer.csv: fewer pixels, or a smaller model
    python benchmarks/fewer.py tune --seed 0 --steps 100      fewer_tuned.csv: trained on, with fewer tokens or blocks
    python benchmarks/fewer.py speed --process 0              fewer_speed.csv: milliseconds, ratios, and their parts
    python benchmarks/fewer.py table                          times and their range over the processes

Rows that are there aren't measured again. The models weren't trained for fewer tokens. Photographs are 2,000 of
CIFAR-10's test images, which neither model was trained on; scenes are drawn. What is random is drawn five times.
Seconds are measured as in ship.py; a ratio is that of one process, so repeat "speed" with other numbers. "tune" trains
``shapes`` further on its 20,000 scenes, all forms at one rate. Models of ``shapes`` that don't ship were trained first:

    python -m vit_tutorial.train --data shapes --epochs 5 --seed 1 --precision bf16 --out runs/shapes-again
    ... --depth 2 --out runs/shapes-two           with two blocks in place of four
    ... --patch-size 16 --out runs/shapes-16      with 16 patches in place of 64
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import sheet
import ship
import torch
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import tokens
from vit_tutorial.variants.tokens import Choose, FewerTokens
from vit_tutorial.weights import LoadedModel

Call = Callable[[], object]

HERE = Path(__file__).parent
ACCURACY, TUNED, SPEED = (HERE / f"fewer{part}.csv" for part in ("", "_tuned", "_speed"))
FEWER = {"shapes": (4, 8, 12, 16, 24), "shapes again": (16,), "cifar10": (4, 8, 16, 32), "photographs": (8, 16)}
RUNS: dict[str, tuple[str, dict[str, int]]] = {  # trained for this script: the folder, and what differs from shapes
    "shapes again": ("shapes-again", {}),
    "two blocks": ("shapes-two", {"depth": 2}),
    "patches of 16": ("shapes-16", {"patch_size": 16}),
}
RIVALS = {  # of a model with r tokens fewer per block
    "24 x 24 pixels": ("photographs", 10),
    "two blocks": ("shapes again", 16),
    "patches of 16": ("shapes again", 24),
}
PAIRED = ["images", "right", "only_whole", "only_this"]
COLUMNS = ["model", "way", "r", "draw", *PAIRED, "only_merged", "only_this_of_both"]
# Widths and heads of Table 1's S, with random weights: seconds don't depend on them.
TUNED_FORMS = ("merge similar", "drop least attended", "drop outermost", "two blocks")
SIZED = {"S/16 at 224": ("S/16", 224, 13), "S/16 at 448": ("S/16", 448, 52)}
SHIPPED = {"shapes": 8, "photographs": 8}


# ---- Which tokens go ---------------------------------------------------------------------------------------------


def drop_similar(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    """ToMe's choice, but the token that would be merged into its partner is dropped."""
    to = tokens.merge_similar(q, k, r, protected)  # (B, T)
    gone = (to[:, ::2, None] == to[:, None, 1::2]).any(dim=-1)  # (B, even)
    to[:, ::2][gone] = -1
    return to


def merge_random(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    """The same matching, of random keys."""
    return tokens.bipartite_matching(torch.randn_like(k[:, 0]), r, protected)


def drop_random(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    return tokens.drop_lowest(torch.rand_like(k[:, 0, :, 0]), r, protected)


def spread(side: int) -> Tensor:
    """An order of side x side places, side a power of 2: the first n lie evenly, for each n (Bayer's matrix)."""
    order = torch.zeros(1, 1)
    while len(order) < side:
        above, below = torch.cat([4 * order, 4 * order + 2], 1), torch.cat([4 * order + 3, 4 * order + 1], 1)
        order = torch.cat([above, below])
    return order.flatten()  # (side * side,)


def fixed(order: Tensor) -> Choose:
    """Drop the same places in all images, the last ones of an order (N,) first."""

    def choose(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
        ranks = order[order < k.shape[2] - protected]  # (T - protected,), in the order of the places
        return tokens.drop_lowest(-torch.cat([torch.zeros(protected), ranks]).expand(len(k), -1), r, protected)

    return choose


AWAY = ((torch.arange(8) - 3.5) ** 2)[:, None] + (torch.arange(8) - 3.5) ** 2  # from the centre, squared
WAYS: dict[str, tuple[Choose, int]] = {  # which tokens go, and how often it is drawn
    "merge similar": (tokens.merge_similar, 1),
    "drop similar": (drop_similar, 1),
    "drop least attended": (tokens.drop_least_attended, 1),
    "drop evenly": (fixed(spread(8)), 1),
    "drop outermost": (fixed(AWAY.flatten().argsort(stable=True).argsort().float()), 1),
    "merge random": (merge_random, 5),
    "drop random": (drop_random, 5),
}


# ---- Accuracy ----------------------------------------------------------------------------------------------------


def held_out(name: str, folder: str | None) -> tuple[Tensor, Tensor]:
    images, labels = ship.held_out(name.removesuffix(" again"), folder)
    return (images, labels) if name.startswith("shapes") else (images[::5], labels[::5])


def loaded(name: str) -> LoadedModel:
    return vt.load(f"runs/{RUNS[name][0]}" if name in RUNS else name)


def embedded(model: vt.ViT, images: Tensor) -> Tensor:
    """The tokens (B, T, D), once for all ways; the model takes them in place of images from now on."""
    z = ship.logits_of(model.embed, images)
    model.embed = torch.nn.Identity()  # type: ignore[assignment]
    return z


def accuracy(folder: str | None) -> None:
    for name, numbers in FEWER.items():
        done = {(r["way"], int(r["r"]), int(r["draw"])) for r in sheet.read(ACCURACY, model=name)}
        pairs = [(way, draw) for way, (_, draws) in WAYS.items() for draw in range(draws)]
        todo = [(way, r, draw) for r in numbers for way, draw in pairs if (way, r, draw) not in done]
        if todo:
            model, _, prepare = loaded(name)
            images, labels = held_out(name, folder)
            compared(name, model, prepare(images), labels, todo)


def compared(name: str, model: vt.ViT, images: Tensor, labels: Tensor, todo: list[tuple[str, int, int]]) -> None:
    """Rows of fewer.csv: ways, each with a number of tokens fewer per block and a draw."""
    z, merged = embedded(model, images), {}
    whole = ship.logits_of(model, z)
    if not sheet.read(ACCURACY, model=name, way="whole"):
        sheet.add(ACCURACY, COLUMNS, [name, "whole", 0, 0, *ship.pair_counts(whole, whole, labels), 0, 0])
    for way, r, draw in todo:
        if r not in merged:
            merged[r] = ship.logits_of(FewerTokens(model, r), z)
        torch.manual_seed(draw)
        logits = ship.logits_of(FewerTokens(model, r, WAYS[way][0]), z)
        against = ship.pair_counts(merged[r], logits, labels)[2:]
        sheet.add(ACCURACY, COLUMNS, [name, way, r, draw, *ship.pair_counts(whole, logits, labels), *against])


class Shrunk(torch.nn.Module):
    """A model for 24 x 24 pixels, positions resized; it takes images of 32 x 32."""

    def __init__(self, model: vt.ViT) -> None:
        super().__init__()
        state = model.state_dict()
        state["embed.position"] = vt.resize_position_embedding(state["embed.position"], (8, 8), (6, 6))
        self.small = vt.ViT(replace(model.config, image_size=24)).eval()
        self.small.load_state_dict(state)

    def forward(self, images: Tensor) -> Tensor:
        pixels = F.interpolate(images, size=(24, 24), mode="bicubic", antialias=True)
        return cast(Tensor, self.small(pixels))


def rivals(folder: str | None) -> None:
    """Rows of fewer.csv: something simpler, with about as many operations as r tokens fewer, on the same images."""
    for rival, (name, r) in RIVALS.items():
        done = {row["way"] for row in sheet.read(ACCURACY, model=name, r=r)}
        todo = [way for way in ("merge similar", "drop least attended", rival) if way not in done]
        if not todo:
            continue
        model, _, prepare = loaded(name)
        images, labels = held_out(name, folder)
        images = prepare(images)
        whole, merged = (ship.logits_of(form, images) for form in (model, FewerTokens(model, r)))
        for way in todo:
            if way == rival:
                logits = ship.logits_of(loaded(rival).model if rival in RUNS else Shrunk(model), images)
            else:
                logits = ship.logits_of(FewerTokens(model, r, WAYS[way][0]), images)
            against = ship.pair_counts(merged, logits, labels)[2:]
            sheet.add(ACCURACY, COLUMNS, [name, way, r, 0, *ship.pair_counts(whole, logits, labels), *against])


# ---- Trained for it ----------------------------------------------------------------------------------------------


def first_blocks(model: vt.ViT, count: int) -> vt.ViT:
    """A smaller model that begins as the first blocks of a trained one, with its last norm and its head."""
    small = vt.ViT(replace(model.config, depth=count, dropout=0.0, drop_path=0.0))
    state = {name: tensor for name, tensor in model.state_dict().items() if name in small.state_dict()}
    small.load_state_dict(state)
    return small


def tuned_form(name: str) -> torch.nn.Module:
    model = vt.load("shapes").model
    return first_blocks(model, 2) if name == "two blocks" else FewerTokens(model, 16, WAYS[name][0])


def tune(forms: list[str], rate: float, seed: int, steps: int) -> None:
    """Rows of fewer_tuned.csv: forms of ``shapes`` that cost about half, after so many further steps."""
    columns = ["form", "rate", "seed", "steps", *PAIRED]
    images, labels = vt.data.shapes(seed=0, train=20_000, test=1).train.batch()  # what the model was trained on
    test = vt.data.shapes(seed=28, train=1, test=2000).test.batch()
    for name in forms:
        if not sheet.read(TUNED, form=name, rate=rate, seed=seed, steps=steps):
            counts = tuned(name, rate, seed, steps, images, labels, test)
            sheet.add(TUNED, columns, [name, rate, seed, steps, *counts])


def tuned(
    name: str, rate: float, seed: int, steps: int, images: Tensor, labels: Tensor, scored_on: tuple[Tensor, Tensor]
) -> list[int]:
    """What is right after so many steps; the rate falls to 0 by a cosine."""
    whole, _, prepare = vt.load("shapes")
    form = tuned_form(name).train()
    optimizer = torch.optim.AdamW(form.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    torch.manual_seed(seed)
    for _ in range(steps):
        some = torch.randint(len(images), (64,))
        loss = F.cross_entropy(form(prepare(images[some])), labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    test = prepare(scored_on[0])
    return ship.pair_counts(ship.logits_of(whole, test), ship.logits_of(form.eval(), test), scored_on[1])


# ---- Speed -------------------------------------------------------------------------------------------------------


def parts_of(model: vt.ViT, r: int, choose: Choose, images: Tensor) -> tuple[list[Call], list[Call]]:
    """The calls that choose and those that move, with the arguments of each block."""
    choosing: list[Call] = []
    moving: list[Call] = []

    def choose_and_note(*args: Any) -> Tensor:
        choosing.append(partial(choose, *args))
        return choose(*args)

    def merge_and_note(*args: Any, move: Callable[..., tuple[Tensor, Tensor]] = tokens.merge) -> tuple[Tensor, Tensor]:
        moving.append(partial(move, *args))
        return move(*args)

    with patch.object(tokens, "merge", merge_and_note):
        FewerTokens(model, r, choose_and_note)(images)
    return choosing, moving


def all_of(calls: list[Call]) -> None:
    for call in calls:
        call()


def macs_shares(config: vt.ViTConfig, r: int) -> dict[str, float]:
    """Multiplications of each form and part, as shares of the whole model's."""
    D, d, whole = config.dim, config.dim // config.num_heads, tokens.count_macs(config, 0)
    before = tokens.tokens_left(config.num_tokens, r, config.depth)[:-1]  # tokens that each block chooses from
    matching = sum((T + 1) // 2 * (T // 2) * d for T in before)
    row = moving = sum(T * D for T in before)  # the class token's scores; each token times its size
    rest = tokens.count_macs(config, r) - matching
    return {
        "whole": 1.0,
        "merged": (rest + matching + moving) / whole,
        "merged: choose": matching / whole,
        "merged: move": moving / whole,
        "dropped": (rest + row + moving) / whole,
        "dropped: choose": row / whole,
        "dropped: move": moving / whole,
    }


def rivals_of(name: str, model: vt.ViT, images: Tensor) -> dict[str, tuple[Call, float]]:
    """The rivals of RIVALS for a model, and merging the same r: what to call, and its share of the operations.

    Weights are random: seconds don't depend on them.
    """
    calls: dict[str, tuple[Call, float]] = {}
    for rival, (of, r) in RIVALS.items():
        if of.removesuffix(" again") == name:
            other = vt.ViT(replace(model.config, **RUNS[rival][1])).eval() if rival in RUNS else Shrunk(model)
            macs = vt.count_macs(other.small.config if isinstance(other, Shrunk) else other.config)
            calls[rival] = partial(other, images), macs / vt.count_macs(model.config)
            merged = tokens.count_macs(model.config, r) / vt.count_macs(model.config)
            calls[f"merge similar, r = {r}"] = partial(FewerTokens(model, r), images), merged
    return calls


def speed(process: int) -> None:
    columns = ["model", "tokens", "batch", "form", "r", "counted", "milliseconds", "ratio", "rounds", "process"]
    done = {row["model"] for row in sheet.read(SPEED, process=process)}
    for name in [*SHIPPED, *SIZED]:
        if name in done:
            continue
        if name in SHIPPED:
            model, batch, r = vt.load(name).model, 64, SHIPPED[name]
        else:
            preset, size, r = SIZED[name]
            torch.manual_seed(0)
            model, batch = vt.ViT(vt.ViTConfig.preset(preset, image_size=size)).eval(), 1
        config = model.config
        sides = config.image_size
        images = torch.randn(batch, config.in_channels, *sides, generator=torch.Generator().manual_seed(1))
        calls: dict[str, Call] = {"whole": partial(model, images)}
        shares = macs_shares(config, r)
        with torch.inference_mode():
            for form, choose in {"merged": tokens.merge_similar, "dropped": tokens.drop_least_attended}.items():
                calls[form] = partial(FewerTokens(model, r, choose), images)
                choosing, moving = parts_of(model, r, choose, images)
                calls |= {f"{form}: choose": partial(all_of, choosing), f"{form}: move": partial(all_of, moving)}
            for form, (call, share) in rivals_of(name, model, images).items():
                calls[form], shares[form] = call, share
            seconds = ship.in_turns(calls)
        for form, times in seconds.items():
            ratio = statistics.median(a / b for a, b in zip(times, seconds["whole"], strict=True))
            row = [name, config.num_tokens, batch, form, 0 if form == "whole" else r, f"{shares[form]:.5f}"]
            times_and_rounds = f"{1000 * statistics.median(times):.4g}", f"{ratio:.4f}", ship.ROUNDS, process
            sheet.add(SPEED, columns, [*row, *times_and_rounds])


# ---- Table -------------------------------------------------------------------------------------------------------


def table() -> None:
    print("| model | tokens | batch | form | counted | measured, median | lowest | highest |\n|" + "---|" * 8)
    forms: dict[tuple[str, ...], list[float]] = {}
    for row in sheet.read(SPEED):
        form = tuple(row[column] for column in ("model", "tokens", "batch", "form", "counted"))
        forms.setdefault(form, []).append(float(row["ratio"]))
    for form, ratios in forms.items():
        print(f"| {' | '.join(form)} | {statistics.median(ratios):.4f} | {min(ratios):.4f} | {max(ratios):.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "rivals", "tune", "speed", "table"))
    parser.add_argument("--data", help="photographs in folders: CIFAR-10's test images under test/")
    parser.add_argument("--process", type=int, default=0, help="speed: the number of this process")
    parser.add_argument("--seed", type=int, default=0, help="tune: of the batches")
    parser.add_argument("--rate", type=float, default=3e-4, help="tune: the first learning rate")
    parser.add_argument("--steps", type=int, default=100, help="tune: how many; 0, 100 and 700 are in the table")
    parser.add_argument("--forms", nargs="+", default=TUNED_FORMS, choices=TUNED_FORMS, help="tune: which")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "speed":
        speed(args.process)
    elif args.part == "tune":
        tune(args.forms, args.rate, args.seed, args.steps)
    elif args.part == "table":
        table()
    else:
        {"accuracy": accuracy, "rivals": rivals}[args.part](args.data)


if __name__ == "__main__":
    main()
