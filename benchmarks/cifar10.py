"""Photographs on a laptop: a ViT with a convolutional stem, the plain ViT and a small ResNet, on CIFAR-10.

``python benchmarks/cifar10.py hybrid|vit|resnet --data FOLDER --out runs/cifar10/hybrid``, one at a time. All three
have as many parameters, within 10 %, the same recipe, and as many epochs as the same CPU time holds: CPU time, because
a busy machine changes it least. A state is kept after every epoch, and --resume goes on from it. ``--data`` takes
CIFAR-10's own files ("cifar10") or the pictures in folders. Of the training images, a tenth is held out: every choice
looks at those. The test split is looked at once, when a run is done.

``python benchmarks/cifar10.py report --out runs/cifar10`` makes benchmarks/cifar10.json and the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.train import runs
from vit_tutorial.variants import hybrid
from vit_tutorial.variants.resnet import ResNet

HERE = Path(__file__).parent
STEM = hybrid.ConvStem(((32, 3, 1), (64, 3, 2), (128, 3, 2), (128, 3, 1)))
SHAPE = {"image_size": 32, "patch_size": 4, "num_classes": 10, "dim": 128, "num_heads": 2, "mlp_dim": 256}
BLOCKS = ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1))  # of the ResNet: channels, stride
EPOCHS = {"hybrid": 20, "vit": 16, "resnet": 13}  # as many as the hybrid's CPU time holds
VALIDATION = 0.1  # of the training images


def model_of(name: str) -> nn.Module:
    """The model, its first weights the same each time."""
    torch.manual_seed(0)
    if name == "hybrid":
        return vt.ViT(vt.ViTConfig(**SHAPE, depth=3, stem=STEM))
    if name == "vit":
        return vt.ViT(vt.ViTConfig(**SHAPE, depth=5))
    return ResNet(BLOCKS, 10)


def recipe_of(epochs: int) -> Recipe:
    """The same for all three."""
    return Recipe(
        epochs=epochs, batch_size=128, learning_rate=2e-3, warmup_epochs=2, augment="crop+flip", precision="bf16"
    )


class Clock:
    """CPU seconds of each epoch, a line each in cpu.csv, the sittings of a run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.path, self.last = folder / "cpu.csv", time.process_time()
        save = runs.Store.save

        def save_and_note(store: runs.Store, settings: runs.State, parts: object, history: list[object]) -> None:
            save(store, settings, parts, history)  # type: ignore[arg-type]
            now = time.process_time()
            if history:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(f"{len(history)},{now - self.last:.2f}\n")
            self.last = now

        runs.Store.save = save_and_note  # type: ignore[assignment, method-assign]


def train_one(name: str, data: vt.data.Data, out: Path, epochs: int, resume: bool) -> None:
    """Train, test once, and write result.json."""
    out.mkdir(parents=True, exist_ok=True)
    model = model_of(name)
    Clock(out)
    history = train.fit(model, vt.data.hold_out(data, VALIDATION), recipe_of(epochs), out=out, resume=resume)
    test = train.evaluate(model, data)
    count = sum(p.numel() for p in model.parameters())
    result = {"run": name, "parameters": count, **test, "history": history}
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{name}: {test['test_accuracy']:.2%} of the test images, {count:,} parameters")


# ------------------------------------------------------------------------------------------------------- the report


def macs_of(model: nn.Module) -> int:
    """Multiply-accumulates of one image's forward pass. (torch's counter leaves fused attention out, on a CPU.)"""
    if isinstance(model, vt.ViT):
        return vt.count_macs(model.config)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model.eval()(torch.zeros(1, 3, 32, 32))
    return int(counter.get_total_flops()) // 2


def interval(share: float, images: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy."""
    middle, spread = share + z**2 / (2 * images), z * (share * (1 - share) / images + (z / (2 * images)) ** 2) ** 0.5
    return (middle - spread) / (1 + z**2 / images), (middle + spread) / (1 + z**2 / images)


def read(folder: Path) -> dict[str, Any]:
    """A run's result, with the CPU minutes that were spent after each epoch."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    spent = [float(line.split(",")[1]) / 60 for line in (folder / "cpu.csv").read_text("utf-8").split()]
    result["cpu_minutes"] = [round(minutes, 2) for minutes in itertools.accumulate(spent)]
    return result


def until(result: dict[str, Any], accuracy: float) -> str:
    """Epochs and CPU minutes until the validation images were answered so well; a dash for never."""
    for row, minutes in zip(result["history"], result["cpu_minutes"], strict=True):
        if row["test_accuracy"] >= accuracy:  # of the images held out: the run saw no other
            return f"{row['epoch']}, {minutes:.0f} min"
    return "–"


def report(out: Path) -> None:
    """The table, and cifar10.json, of the runs that are done."""
    results = [read(out / name) for name in EPOCHS if (out / name / "result.json").exists()]
    print("| model | parameters | MACs | epochs | CPU minutes | to 80 % | to 85 % | validation | test, 95 % interval |")
    print("|---|---|---|---|---|---|---|---|---|")
    for result in results:
        low, high = interval(result["test_accuracy"], 10_000)
        spent = f"{len(result['history'])} | {result['cpu_minutes'][-1]:.1f}"
        print(
            f"| {result['run']} | {result['parameters']:,} | {macs_of(model_of(result['run'])) / 1e6:.1f} M | "
            f"{spent} | {until(result, 0.8)} | {until(result, 0.85)} | "
            f"{result['history'][-1]['test_accuracy']:.1%} | {result['test_accuracy']:.2%} [{low:.1%}, {high:.1%}] |"
        )
    (HERE / "cifar10.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=[*EPOCHS, "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", required=True, type=Path, help="of the run; for the report, the folder that has them")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.run == "report":
        report(args.out)
    else:
        data = vt.data.load(args.data, image_size=32)
        train_one(args.run, data, args.out, args.epochs or EPOCHS[args.run], args.resume)


if __name__ == "__main__":
    main()
