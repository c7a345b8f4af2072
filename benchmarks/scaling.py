"""How a ViT scales, at the size of a laptop: the paper's figure 8 and a power law, on photographs of 32 x 32 pixels.

    python benchmarks/scaling.py shapes --data cifar10-jpeg     depth, width, MLP, heads, patches, pixels, one at a time
    python benchmarks/scaling.py together --data cifar10-jpeg   all in proportion, five sizes
    python benchmarks/scaling.py predict --data cifar10-jpeg    what the next size will reach, before it runs
    python benchmarks/scaling.py next --data cifar10-jpeg       that size
    python benchmarks/scaling.py report --data cifar10-jpeg     the tables, and scaling.png

Every run sees the same images in the same order, two epochs, one recipe; the loss is that of the training images held
out, without label smoothing. The test split is looked at once a run; nothing is chosen by it. A row a run goes to
benchmarks/scaling.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy import optimize

import vit_tutorial as vt
from vit_tutorial import train

HERE = Path(__file__).parent
CSV, FORETOLD = HERE / "scaling.csv", HERE / "scaling.json"
COLUMNS = [
    "data", "part", "value", "seed", "parameters", "macs", "images_per_second", "held_out_loss", "held_out", "test",
    "cpu_seconds",
]  # fmt: skip
EPOCHS = 2
BASE = vt.ViTConfig(image_size=32, patch_size=4, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128)
# One at a time, from the base: MACs go from a quarter to some four times, where the part allows it.
SHAPES: dict[str, tuple[Any, ...]] = {
    "depth": (1, 2, 8),
    "dim": (32, 128),
    "mlp_dim": (32, 64, 256, 512),
    "num_heads": (1, 2, 8),
    "patch_size": (2, 8, 16),
    "image_size": (16, 24, 48),
}
# In proportion: depth, dim, MLP; the width of a head is 16 throughout.
TOGETHER = {0.5: (2, 32), 0.75: (3, 48), 1.0: (4, 64), 1.5: (6, 96), 2.0: (8, 128)}
NEXT = {2.5: (10, 160)}


def config_of(part: str, value: Any) -> vt.ViTConfig:
    if part == "together":
        depth, dim = (TOGETHER | NEXT)[value]
        return replace(BASE, depth=depth, dim=dim, num_heads=dim // 16, mlp_dim=2 * dim)
    return replace(BASE, **{part: value})


def resized(data: vt.data.Data, size: int) -> vt.data.Data:
    """The same photographs with more pixels, or fewer."""
    if data.image_size == (size, size):
        return data

    def part(images: vt.data.Images) -> vt.data.Images:
        small = torch.nn.functional.interpolate(images.images.float(), size=size, mode="bilinear", antialias=True)
        return vt.data.Images(small.round().to(images.images.dtype), images.labels)

    return replace(data, image_size=(size, size), train=part(data.train), test=part(data.test))


def speed(model: vt.ViT, size: int) -> float:
    """Images a second, forward, in batches of 64: the median of five."""
    images, times = torch.rand(64, 3, size, size), []
    with torch.inference_mode():
        for _ in range(6):
            begin = time.perf_counter()
            model(images)
            times.append(time.perf_counter() - begin)
    return 64 / statistics.median(times[1:])


def rows() -> list[dict[str, str]]:
    if not CSV.exists():
        return []
    with CSV.open(newline="") as file:
        return list(csv.DictReader(file))


def one(name: str, data: vt.data.Data, part: str, value: Any, seed: int) -> None:
    """One row, unless it is there."""
    known = [name, part, str(value), str(seed)]
    if any([row[column] for column in COLUMNS[:4]] == known for row in rows()):
        return
    config, begin = config_of(part, value), time.process_time()
    pictures = resized(data, int(str(config.image_size)))
    held = vt.data.hold_out(pictures, 0.1)
    torch.manual_seed(seed)
    model = vt.ViT(config)
    recipe = train.Recipe(
        epochs=EPOCHS, batch_size=128, learning_rate=2e-3, augment="crop+flip", seed=seed, precision="bf16"
    )
    history = train.fit(model, held, recipe, progress=False)
    test, quick = train.evaluate(model, pictures)["test_accuracy"], speed(model.eval(), int(str(config.image_size)))
    numbers = [vt.count_parameters(config), vt.count_macs(config), f"{quick:.0f}"]
    found = [f"{history[-1]['test_loss']:.4f}", f"{history[-1]['test_accuracy']:.4f}", f"{test:.4f}"]
    row = [*known, *numbers, *found, f"{time.process_time() - begin:.0f}"]
    if not CSV.exists():
        CSV.write_text(",".join(COLUMNS) + "\n")
    with CSV.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row)
    print(*row, flush=True)


# ------------------------------------------------------------------------------------------------------ the power law


def law(macs: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    """Log L, where L = a (MACs / 1e6) ** -b + c: what can't be learned stays."""
    return np.log(np.exp(a) * (macs / 1e6) ** -b + np.exp(c))


def fitted(macs: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """a, b and c by least squares of log L."""
    found, _ = optimize.curve_fit(law, macs, np.log(losses), p0=(0.0, 0.3, -1.0), maxfev=20_000)
    return np.asarray(found)


def measured(name: str) -> tuple[np.ndarray, np.ndarray]:
    """MACs and losses of the sizes that the law is fitted to: one number a run."""
    chosen = [row for row in rows() if row["data"] == name and row["part"] == "together"]
    chosen = [row for row in chosen if float(row["value"]) in TOGETHER]
    return np.array([float(row["macs"]) for row in chosen]), np.array([float(row["held_out_loss"]) for row in chosen])


def predict(name: str) -> None:
    """Fit the law, draw the runs again a thousand times for intervals, and write down what the next size will reach."""
    macs, losses = measured(name)
    (value,) = NEXT
    ahead = np.array([vt.count_macs(config_of("together", value))])
    random, drawn, exponents = np.random.default_rng(0), [], []
    best = fitted(macs, losses)
    for _ in range(1000):
        again = random.integers(0, len(macs), len(macs))
        try:
            found = fitted(macs[again], losses[again])
        except RuntimeError:  # no law goes through these
            continue
        drawn.append(float(np.exp(law(ahead, *found))[0]))
        exponents.append(float(found[1]))
    foretold = {
        "data": name,
        "size": value,
        "macs": int(ahead[0]),
        "runs": len(macs),
        "loss": float(np.exp(law(ahead, *best))[0]),
        "loss_interval": np.percentile(drawn, [2.5, 97.5]).round(4).tolist(),
        "exponent": float(best[1]),
        "exponent_interval": np.percentile(exponents, [2.5, 97.5]).round(3).tolist(),
    }
    FORETOLD.write_text(json.dumps(foretold, indent=1) + "\n")
    print(json.dumps(foretold, indent=1))


def report(name: str) -> None:
    found = [row for row in rows() if row["data"] == name]
    print("| part | value | parameters | MACs | images/s | loss held out | held out | test |")
    print("|---|---|---|---|---|---|---|---|")
    keys = list(dict.fromkeys((row["part"], row["value"]) for row in found))
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    ax = figure.add_subplot(xlabel="multiply-accumulates an image", ylabel="loss on the images held out", xscale="log")
    for part in dict.fromkeys(part for part, _ in keys):
        points = []
        for value in [value for p, value in keys if p == part]:
            several = [row for row in found if (row["part"], row["value"]) == (part, value)]
            mean = {c: statistics.mean(float(row[c]) for row in several) for c in COLUMNS[4:]}
            points.append((mean["macs"], mean["held_out_loss"]))
            size = f"{mean['parameters']:,.0f} | {mean['macs'] / 1e6:.1f} M | {mean['images_per_second']:.0f}"
            reached = f"{mean['held_out_loss']:.3f} | {mean['held_out']:.1%} | {mean['test']:.1%}"
            print(f"| {part} | {value} | {size} | {reached} |")
        ax.plot(*zip(*sorted(points), strict=True), "o-", label=part)
    ax.legend(frameon=False)
    figure.savefig(HERE / "scaling.png", dpi=150)
    if FORETOLD.exists():
        print(FORETOLD.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shapes", "together", "predict", "next", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report(args.data)
    if args.what == "predict":
        return predict(args.data)
    data = vt.data.load(args.data, image_size=32)
    if args.what == "next" and not FORETOLD.exists():
        raise SystemExit("run `predict` first: what is foretold must stand in benchmarks/scaling.json beforehand")
    for seed in range(args.seeds):
        if args.what == "shapes":
            for part, values in SHAPES.items():
                for value in values:
                    one(args.data, data, part, value, seed)
        else:
            for value in TOGETHER if args.what == "together" else NEXT:
                one(args.data, data, "together", value, seed)


if __name__ == "__main__":
    main()
