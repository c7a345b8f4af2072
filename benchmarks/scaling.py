"""How a ViT scales, at the size of a laptop: the paper's figure 8, on photographs of 32 x 32 pixels.

    python benchmarks/scaling.py shapes --data cifar10-jpeg     depth, width, MLP, heads, patches, pixels, one at a time
    python benchmarks/scaling.py together --data cifar10-jpeg   all in proportion, six sizes
    python benchmarks/scaling.py speed                          images a second, on an otherwise idle machine
    python benchmarks/scaling.py report --data cifar10-jpeg     the table

Every run sees the same images in the same order, two epochs, one recipe; the loss is that of the training images held
out, without label smoothing. The test split is looked at once a run; nothing is chosen by it. A row a run goes to
benchmarks/scaling.csv as soon as it is done; rows that are there are not run again. One thread. The column
images_per_second is of that moment, with whatever else the machine did; `speed` measures it again, all models in turns,
into benchmarks/scaling_speed.csv, which the tables use.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sheet
import torch

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.analysis import scaling
from vit_tutorial.patches import as_pair

HERE = Path(__file__).parent
CSV, SPEED = HERE / "scaling.csv", HERE / "scaling_speed.csv"
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
# In proportion, by scaling.scale_config: depth, heads (16 wide throughout), dim, MLP.
TOGETHER = (0.5, 0.75, 1.0, 1.5, 2.0, 2.5)


def config_of(part: str, value: Any) -> vt.ViTConfig:
    return scaling.scale_config(BASE, value) if part == "together" else replace(BASE, **{part: value})


def resized(data: vt.data.Data, size: int) -> vt.data.Data:
    """The same photographs with more pixels, or fewer."""
    if data.image_size == (size, size):
        return data

    def part(images: vt.data.Images) -> vt.data.Images:
        small = torch.nn.functional.interpolate(images.images.float(), size=size, mode="bilinear", antialias=True)
        return vt.data.Images(small.round().to(images.images.dtype), images.labels)

    return replace(data, image_size=(size, size), train=part(data.train), test=part(data.test))


def one(name: str, data: vt.data.Data, part: str, value: Any, seed: int) -> None:
    """One row, unless it is there."""
    known = [name, part, value, seed]
    if sheet.read(CSV, data=name, part=part, value=value, seed=seed):
        return
    config, begin = config_of(part, value), time.process_time()
    pictures = resized(data, as_pair(config.image_size, "image_size")[0])
    held = vt.data.hold_out(pictures, 0.1)
    torch.manual_seed(seed)
    model = vt.ViT(config)
    recipe = train.Recipe(
        epochs=EPOCHS, batch_size=128, learning_rate=2e-3, augment="crop+flip", seed=seed, precision="bf16"
    )
    history = train.fit(model, held, recipe, progress=False)
    test = train.evaluate(model, pictures)["test_accuracy"]
    quick = scaling.images_per_second(model.eval(), torch.rand(64, 3, *as_pair(config.image_size, "image_size")))
    numbers = [vt.count_parameters(config), vt.count_macs(config), f"{quick:.0f}"]
    found = [f"{history[-1]['test_loss']:.4f}", f"{history[-1]['test_accuracy']:.4f}", f"{test:.4f}"]
    row = [*known, *numbers, *found, f"{time.process_time() - begin:.0f}"]
    sheet.add(CSV, COLUMNS, row)


# ------------------------------------------------------------------------------------------------------- real speed


def speeds(rounds: int = 5) -> None:
    """Images a second of every model, forward, float32, one thread; the best of two batch sizes, and of all rounds.

    All models take turns: what else the machine does slows none of them alone. The clock is that of the thread, which
    stands still while others have the processor.
    """
    parts = [(part, value) for part, values in {"together": TOGETHER, **SHAPES}.items() for value in values]
    configs = {(part, value): config_of(part, value) for part, value in parts}
    models = {key: vt.ViT(config).eval() for key, config in configs.items()}
    best: dict[Any, tuple[float, int]] = dict.fromkeys(configs, (0.0, 0))
    for _ in range(rounds):
        for key, model in models.items():
            for batch in (8, 64):
                images = torch.rand(batch, 3, *as_pair(configs[key].image_size, "image_size"))
                quick = scaling.images_per_second(model, images, rounds=1, clock=time.thread_time)
                best[key] = max(best[key], (quick, batch))
    with SPEED.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["part", "value", "parameters", "macs", "batch_size", "images_per_second"])
        for (part, value), config in configs.items():
            quick, batch = best[part, value]
            table.writerow([part, value, vt.count_parameters(config), vt.count_macs(config), batch, f"{quick:.0f}"])
    print(SPEED.read_text("utf-8"))


def report(name: str) -> None:
    """The table, a row a model, with the means over its seeds."""
    found = sheet.read(CSV, data=name)
    quick = {(row["part"], row["value"]): float(row["images_per_second"]) for row in sheet.read(SPEED)}
    print("| part | value | parameters | MACs | images/s | runs | loss held out | held out | test | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for part, value in dict.fromkeys((row["part"], row["value"]) for row in found):
        several = [row for row in found if (row["part"], row["value"]) == (part, value)]
        mean = {c: statistics.mean(float(row[c]) for row in several) for c in COLUMNS[4:]}
        size = f"{mean['parameters']:,.0f} | {mean['macs'] / 1e6:.1f} M | {quick[part, value]:,.0f}"
        reached = f"{mean['held_out_loss']:.3f} | {mean['held_out']:.1%} | {mean['test']:.1%}"
        print(f"| {part} | {value} | {size} | {len(several)} | {reached} | {mean['cpu_seconds']:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shapes", "together", "speed", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report(args.data)
    if args.what == "speed":
        return speeds()
    data = vt.data.load(args.data, image_size=32)
    parts = SHAPES if args.what == "shapes" else {"together": TOGETHER}
    for seed in range(args.seeds):
        for part, values in parts.items():
            for value in values:
                one(args.data, data, part, value, seed)


if __name__ == "__main__":
    main()
