"""Trained models with fewer tokens (lesson 19): accuracy by which tokens go and how, and seconds.

    python benchmarks/fewer.py accuracy --data cifar10-jpeg   fewer.csv: merged or dropped; which tokens
    python benchmarks/fewer.py speed                          fewer_speed.csv: milliseconds, ratios
    python benchmarks/fewer.py table                          the tables, from the files

Rows that are there aren't measured again. Each way takes the same number of tokens away after each block's attention,
from the shipped models, which weren't trained for it. Photographs are 2,000 of CIFAR-10's test images, which neither
model was trained on; scenes are drawn. What is random is drawn five times. Seconds are measured as in ship.py.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path

import sheet
import ship
import torch
from torch import Tensor

import vit_tutorial as vt
from vit_tutorial.variants import tokens
from vit_tutorial.variants.tokens import FewerTokens

HERE = Path(__file__).parent
ACCURACY, SPEED = HERE / "fewer.csv", HERE / "fewer_speed.csv"
DRAWS = 5
FEWER = {"shapes": (4, 8, 12, 16, 24), "cifar10": (4, 8, 16, 32), "digits-patch2": (1, 2, 3, 4, 8),
         "photographs": (8, 16)}  # fmt: skip
COLUMNS = [
    "model",
    "way",
    "r",
    "draw",
    "images",
    "right",
    "only_whole",
    "only_this",
    "only_merged",
    "only_this_of_both",
]
# Widths and heads of Table 1's Ti and S, with random weights: seconds don't depend on them.
SIZED = {"Ti/16 at 224": ("Ti/16", 224, 13), "S/16 at 224": ("S/16", 224, 13), "S/16 at 448": ("S/16", 448, 52)}
SHIPPED = {"shapes": 8, "photographs": 8}


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


WAYS = {  # which tokens go, whether log(size) is added, how often it is drawn
    "merge similar": (tokens.merge_similar, True, 1),
    "merge similar, not proportional": (tokens.merge_similar, False, 1),
    "drop similar": (drop_similar, True, 1),
    "drop least attended": (tokens.drop_least_attended, True, 1),
    "merge random": (merge_random, True, DRAWS),
    "drop random": (drop_random, True, DRAWS),
}


# ---- Accuracy ----------------------------------------------------------------------------------------------------


def held_out(name: str, folder: str | None) -> tuple[Tensor, Tensor]:
    if name == "digits-patch2":
        return vt.data.digits().test.batch()
    images, labels = ship.held_out(name, folder)
    return (images, labels) if name == "shapes" else (images[::5], labels[::5])


def accuracy(folder: str | None, names: list[str]) -> None:
    for name in names:
        done = {(r["way"], int(r["r"]), int(r["draw"])) for r in sheet.read(ACCURACY) if r["model"] == name}
        model, _, prepare = vt.load(name)
        images, labels = held_out(name, folder)
        embedded = ship.logits_of(model.embed, prepare(images))  # once: the same for all ways
        model.embed = torch.nn.Identity()
        whole = ship.logits_of(model, embedded)
        if ("whole", 0, 0) not in done:
            right = int((whole.argmax(1) == labels).sum())
            sheet.add(ACCURACY, COLUMNS, [name, "whole", 0, 0, len(labels), right, 0, 0, 0, 0])
        for r in FEWER[name]:
            merged = ship.logits_of(FewerTokens(model, r), embedded)
            for way, (choose, proportional, draws) in WAYS.items():
                for draw in range(draws):
                    if (way, r, draw) not in done:
                        torch.manual_seed(draw)
                        found = ship.logits_of(FewerTokens(model, r, choose, proportional=proportional), embedded)
                        n, right, *against = ship.counted(whole, found, labels)
                        row = [name, way, r, draw, n, right, *against, *ship.counted(merged, found, labels)[2:]]
                        sheet.add(ACCURACY, COLUMNS, row)


# ---- Speed -------------------------------------------------------------------------------------------------------


def speed() -> None:
    columns = ["model", "tokens", "batch", "form", "r", "counted", "milliseconds", "ratio", "low", "high", "rounds"]
    done = {row["model"] for row in sheet.read(SPEED)}
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
        sides = config.image_size if isinstance(config.image_size, tuple) else (config.image_size,) * 2
        images = torch.randn(batch, config.in_channels, *sides, generator=torch.Generator().manual_seed(1))
        ways = {"merged": tokens.merge_similar, "dropped": tokens.drop_least_attended}
        forms = {"whole": model} | {form: FewerTokens(model, r, choose) for form, choose in ways.items()}
        with torch.inference_mode():
            seconds = ship.in_turns({form: partial(answer, images) for form, answer in forms.items()})
        for form, times in seconds.items():
            ratios = [a / b for a, b in zip(times, seconds["whole"], strict=True)]
            low, high = ship.bootstrap(ratios)
            taken = 0 if form == "whole" else r
            counted = tokens.count_macs(config, taken) / tokens.count_macs(config, 0)
            middle = f"{statistics.median(ratios):.3f}", f"{low:.3f}", f"{high:.3f}"
            row = [name, config.num_tokens, batch, form, taken, f"{counted:.3f}"]
            sheet.add(SPEED, columns, [*row, f"{1000 * statistics.median(times):.4g}", *middle, ship.ROUNDS])


# ---- Tables ------------------------------------------------------------------------------------------------------


def cell(rows: list[dict[str, str]], way: str) -> str:
    """Accuracy, and the difference from merging similar tokens: paired, of the first draw."""
    drawn = [row for row in rows if row["way"] == way]
    n = int(drawn[0]["images"])
    share = f"{statistics.mean(100 * int(row['right']) / n for row in drawn):.1f}"
    if way == "merge similar":
        return share
    mean, half = ship.paired_interval(int(drawn[0]["only_merged"]), int(drawn[0]["only_this_of_both"]), n)
    return f"{share}, {mean:+.1f} ± {half:.1f}"


def table() -> None:
    print(f"| model | r | {' | '.join(WAYS)} |\n|" + "---|" * (2 + len(WAYS)))
    rows = [row for row in sheet.read(ACCURACY) if row["way"] != "whole"]
    for name, r in dict.fromkeys((row["model"], row["r"]) for row in rows):
        some = [row for row in rows if (row["model"], row["r"]) == (name, r)]
        print(f"| {name} | {r} | {' | '.join(cell(some, way) for way in WAYS)} |")
    print("\n| model | tokens | batch | form | r | counted | ms | measured |\n|" + "---|" * 8)
    for row in sheet.read(SPEED):
        measured = f"{row['ratio']} [{row['low']}, {row['high']}]"
        told = [row[column] for column in ("model", "tokens", "batch", "form", "r", "counted", "milliseconds")]
        print(f"| {' | '.join(told)} | {measured} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "speed", "table"))
    parser.add_argument("--data", help="photographs in folders: CIFAR-10's test images under test/")
    parser.add_argument("--model", choices=FEWER, action="append", help="for accuracy: this one alone; may be repeated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "accuracy":
        accuracy(args.data, args.model or list(FEWER))
    else:
        {"speed": speed, "table": table}[args.part]()


if __name__ == "__main__":
    main()
