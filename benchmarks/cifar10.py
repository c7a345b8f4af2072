"""Photographs on a laptop: a ViT with a convolutional stem, the plain ViT and a small ResNet, on CIFAR-10.

``python benchmarks/cifar10.py hybrid|vit|resnet --data FOLDER --out runs/hybrid``, one at a time or one a core. All
three have as many parameters, within 10 %, the same recipe, and as many epochs as the same CPU time holds: CPU time,
because a busy machine doesn't change what it counts. A state is kept after every epoch, and --resume goes on from it.
``--data`` takes CIFAR-10's own files ("cifar10") or the pictures in folders. Of the training images, a tenth is held
out: every choice looks at those. The test split is looked at once, by ``test``, when a run is done.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import hybrid, runs, train
from vit_tutorial.recipe import Recipe

STEM = hybrid.ConvStem(((32, 3, 1), (64, 3, 2), (128, 3, 2), (128, 3, 1)))
SHAPE = {"image_size": 32, "patch_size": 4, "num_classes": 10, "dim": 128, "num_heads": 2, "mlp_dim": 256}
EPOCHS = {"hybrid": 20, "vit": 16, "resnet": 13}  # as many as the hybrid's CPU time holds
VALIDATION = 0.1  # of the training images


class Residual(nn.Module):
    """Two 3 x 3 convolutions around a shortcut (arXiv 1512.03385): (B, C, H, W) -> (B, F, H / stride, W / stride)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            conv = nn.Conv2d(in_channels, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.norm2(self.conv2(y)))


class ResNet(nn.Module):
    """Thirteen 3 x 3 convolutions: images (B, 3, 32, 32) -> logits (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.blocks = nn.Sequential(
            Residual(32, 32, 1), Residual(32, 32, 1),
            Residual(32, 64, 2), Residual(64, 64, 1),
            Residual(64, 128, 2), Residual(128, 128, 1),
        )  # fmt: skip
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.first(images))  # (B, 128, 8, 8)
        return self.head(x.mean(dim=(2, 3)))  # (B, 10)


def model_of(name: str) -> nn.Module:
    """The model, its first weights the same each time."""
    torch.manual_seed(0)
    if name == "hybrid":
        return vt.ViT(vt.ViTConfig(**SHAPE, depth=3, stem=STEM))
    if name == "vit":
        return vt.ViT(vt.ViTConfig(**SHAPE, depth=5))
    return ResNet()


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
                with self.path.open("a") as file:
                    file.write(f"{len(history)},{now - self.last:.2f}\n")
            self.last = now

        runs.Store.save = save_and_note  # type: ignore[assignment, method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=list(EPOCHS))
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = vt.data.load(args.data, image_size=32)
    held = vt.data.hold_out(data, VALIDATION)
    model = model_of(args.run)
    Clock(args.out)
    recipe = recipe_of(args.epochs or EPOCHS[args.run])
    history = train.fit(model, held, recipe, out=args.out, resume=args.resume)
    test = train.evaluate(model, data)
    count = sum(p.numel() for p in model.parameters())
    result = {"run": args.run, "parameters": count, **test, "history": history}
    (args.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{args.run}: {test['test_accuracy']:.2%} of the test images, {count:,} parameters")


if __name__ == "__main__":
    main()
