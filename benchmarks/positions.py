"""The paper's table 8 at the size of a laptop: five ways to tell a ViT where its patches lie, in three places.

    python benchmarks/positions.py --data digits                                    60 runs of half a minute
    python benchmarks/positions.py --data digits --epochs 12                        what lesson 11 shows: 8 minutes
    python benchmarks/positions.py --data cifar10 --epochs 2 --seeds 3              photographs: an hour
    python benchmarks/positions.py --data path/of/folders --image-size 32           your own

Each is trained with the same recipe and several seeds, and tested at the end, once. A row a run goes to
benchmarks/positions.csv as soon as it is done; rows that are there are not run again, so it goes on where it was
stopped. Nothing is chosen by these numbers. One thread a run; photographs in bf16.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import sheet
import torch
from scipy import stats

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.variants.positions import Kind, Place, PositionViT

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["data", "kind", "place", "epochs", "seed", "parameters", "test_accuracy", "cpu_seconds"]
EVERY: tuple[Place, ...] = ("once", "every layer", "every layer, shared")
WAYS: list[tuple[Kind, Place]] = [
    ("none", "once"),
    *itertools.product(("1d", "2d", "sincos"), EVERY),
    *itertools.product(("relative",), EVERY[1:]),
]
SIZES: dict[str, Any] = {"dim": 64, "depth": 4, "num_heads": 4, "mlp_dim": 128}


@functools.cache  # a process has many runs
def loaded(data: str, image_size: int | None) -> vt.data.Data:
    return vt.data.load(data, image_size=image_size) if image_size else vt.data.load(data)


def run(data: str, image_size: int | None, kind: Kind, place: Place, epochs: int, seed: int) -> list[object]:
    """One row."""
    torch.set_num_threads(1)
    pictures = loaded(data, image_size)
    patch = pictures.image_size[0] // (4 if data == "digits" else 8)  # a grid of 4 x 4, of photographs 8 x 8
    config = vt.ViTConfig(
        image_size=pictures.image_size,
        patch_size=patch,
        in_channels=pictures.in_channels,
        num_classes=len(pictures.classes),
        **SIZES,
    )
    torch.manual_seed(seed)
    model = PositionViT(config, kind, place)
    begin = time.process_time()
    recipe = train.Recipe(
        epochs=epochs,
        learning_rate=2e-3,
        warmup_epochs=epochs / 6,
        augment="affine" if data == "digits" else "crop+flip",
        seed=seed,
        precision="fp32" if data == "digits" else "bf16",
    )
    train.fit(model, pictures, recipe, progress=False)
    logits, labels = train.predict(model, pictures)
    accuracy = (logits.argmax(dim=1) == labels).double().mean().item()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return [data, kind, place, epochs, seed, parameters, f"{accuracy:.4f}", f"{time.process_time() - begin:.1f}"]


def interval(values: list[float]) -> str:
    """The mean, and Student's 95 % interval of it, in percent."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{100 * mean:.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{100 * mean:.1f} ± {100 * half:.1f}"


def table(data: str, epochs: int) -> str:
    lines = [f"| {data}, {epochs} epochs | {' | '.join(EVERY)} |", "|---" * (len(EVERY) + 1) + "|"]
    for kind in dict.fromkeys(kind for kind, _ in WAYS):
        cells = []
        for place in EVERY:
            found = [
                float(row["test_accuracy"])
                for row in sheet.read(CSV)
                if (row["data"], row["kind"], row["place"], int(row["epochs"])) == (data, kind, place, epochs)
            ]
            cells.append(interval(found) if found else "–")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--image-size", type=int, help="of a folder's pictures")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    args = parser.parse_args()
    done = {(row["data"], row["kind"], row["place"], int(row["epochs"]), int(row["seed"])) for row in sheet.read(CSV)}
    wanted = [
        (kind, place, seed)
        for seed in range(args.seeds)
        for kind, place in WAYS
        if (args.data, kind, place, args.epochs, seed) not in done
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
        runs = [pool.submit(run, args.data, args.image_size, k, p, args.epochs, seed) for k, p, seed in wanted]
        for future in as_completed(runs):
            sheet.add(CSV, COLUMNS, future.result())
    print(table(args.data, args.epochs))


if __name__ == "__main__":
    main()
