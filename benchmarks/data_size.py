"""CNN or Transformer? A small ResNet, a plain ViT and a ViT on convolutions, by the number of training images.

    python benchmarks/data_size.py sizes --data cifar10-jpeg        five sizes
    python benchmarks/data_size.py controls --data cifar10-jpeg     an MLP, and models without neighbours
    python benchmarks/data_size.py rates --data cifar10-jpeg        which rates work
    python benchmarks/data_size.py report --data cifar10-jpeg       the tables

All have 0.22 to 0.24 M parameters and take the same number of steps at a size: more of them for more images, from
32 epochs of 500 images to 2 epochs of 45,000. Each rate of the other parts was chosen by "rates", on 5,000 images with
crops and mirroring and a tenth of the training images that is held out; the test split is looked at once a run. A row
a run goes to benchmarks/data_size.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sheet
import torch
from steps_pictures import macs_of
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.train.batches import Order, loader
from vit_tutorial.variants import hybrid
from vit_tutorial.variants.resnet import ResNet

HERE = Path(__file__).parent
CSV = HERE / "data_size.csv"
COLUMNS = ["data", "part", "model", "images", "augment", "rate", "seed", "held_out", "test", "cpu_seconds"]
MODELS = ("resnet", "vit", "hybrid")
SHUFFLED = ", shuffled"  # after a model's name: it gets all pixels in another order
CONTROLS = {  # training images, and rates
    "mlp": ((500, 1500, 5000, 15_000, 45_000), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    "resnet, shuffled": ((1500, 5000), (3e-4, 1e-3, 3e-3, 1e-2)),
    "vit, shuffled": ((1500, 5000), (1e-4, 3e-4, 1e-3, 3e-3)),
}
BATCH = 64
# Training images, as many of each class -> steps.
SIZES = {500: 250, 1500: 400, 5000: 600, 15_000: 900, 45_000: 1400}
RATES_IMAGES, RATES_STEPS = 5000, 300
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SHAPE: dict[str, Any] = {"image_size": 32, "patch_size": 4, "dim": 96, "num_heads": 3, "mlp_dim": 192}
BLOCKS = ((24, 1), (48, 2), (48, 1), (96, 2))  # of the ResNet: channels, stride
STEM = hybrid.ConvStem(((24, 3, 1), (48, 3, 2), (96, 3, 2)))


class Shuffle(nn.Module):
    """All pixels of an image in another order, drawn by the seed, the same for every image: (B, C, H, W) as before."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.order = torch.randperm(32 * 32, generator=torch.Generator().manual_seed(seed))

    def forward(self, images: Tensor) -> Tensor:
        moved = images.flatten(2)[:, :, self.order].view(images.shape)  # (B, C, H, W)
        return moved.contiguous(memory_format=torch.channels_last)


def model_of(name: str, num_classes: int, seed: int) -> nn.Module:
    if name.endswith(SHUFFLED):
        return nn.Sequential(Shuffle(seed), model_of(name.removesuffix(SHUFFLED), num_classes, seed))
    torch.manual_seed(seed)
    if name == "mlp":
        layers = (nn.Linear(3072, 68), nn.ReLU(), nn.Linear(68, 128), nn.ReLU(), nn.Linear(128, num_classes))
        return nn.Sequential(nn.Flatten(), *layers)
    if name == "resnet":
        return ResNet(BLOCKS, num_classes)
    if name == "vit":
        return vt.ViT(vt.ViTConfig(**SHAPE, num_classes=num_classes, depth=3))
    return hybrid.HybridViT(hybrid.HybridConfig(**SHAPE, num_classes=num_classes, depth=2, stem=STEM))


def fit(model: nn.Module, data: vt.data.Data, augment: str, rate: float, seed: int, steps: int) -> None:
    """So many steps whatever the number of images: a warm-up, then a cosine."""
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05))
    order, step = Order(len(data.train), min(BATCH, len(data.train)), seed), 0
    model.train().to(memory_format=torch.channels_last)
    while step < steps:
        for images, labels in loader(data.train, order, vt.data.augmentation(augment, data), seed=seed):
            train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 10))
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(vt.data.normalise(images, data))  # (B, K)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step == steps:
                break
        order.epoch += 1


def few(data: vt.data.Data, images: int, seed: int) -> vt.data.Data:
    """So many training images, as many of each class, drawn by the seed."""
    generator, chosen = torch.Generator().manual_seed(seed), torch.zeros(len(data.train), dtype=torch.bool)
    for label in data.train.labels.unique():
        places = (data.train.labels == label).nonzero().flatten()
        drawn = torch.randperm(len(places), generator=generator)[: images // len(data.classes)]
        chosen[places[drawn]] = True
    return replace(data, train=data.train.part(chosen))


def best_rate(name: str, model: str) -> float:
    """The rate that did best on what was held out."""
    found = sheet.read(CSV, data=name, part="rates", model=model)
    tried = sorted((float(row["rate"]), float(row["held_out"])) for row in found)
    best = max(tried, key=lambda pair: pair[1], default=(0.0, 0.0))
    if best in (*tried[:1], *tried[-1:], (0.0, 0.0)):
        raise SystemExit(f"{model}: run `rates` first, over a grid that the best rate doesn't lie at the edge of")
    return best[0]


def accuracy(model: nn.Module, data: vt.data.Data) -> float:
    with torch.autocast("cpu", torch.bfloat16):
        return train.evaluate(model, data)["test_accuracy"]


def one(
    part: str, name: str, model_name: str, data: vt.data.Data, images: int, steps: int, rate: float, seed: int
) -> None:
    """One row, unless it is there."""
    augment = "crop+flip" if part == "rates" else "none"
    known = (name, part, model_name, images, augment, rate, seed)
    if sheet.read(CSV, **dict(zip(COLUMNS, known, strict=False))):
        return
    begin, model = time.process_time(), model_of(model_name, len(data.classes), seed)
    held = vt.data.hold_out(data, 0.1)
    fit(model, few(held, images, seed), augment, rate, seed, steps)
    # What is chosen needs the images held out alone; what is told, the test split alone.
    held_out = f"{accuracy(model, held):.4f}" if part == "rates" else ""
    test = "" if part == "rates" else f"{accuracy(model, data):.4f}"
    sheet.add(CSV, COLUMNS, [*known, held_out, test, f"{time.process_time() - begin:.0f}"])


def rates(name: str, data: vt.data.Data) -> None:
    for rate, model in itertools.product(RATES, MODELS):
        one("rates", name, model, data, RATES_IMAGES, RATES_STEPS, rate, 0)


def sizes(name: str, data: vt.data.Data, seeds: int) -> None:
    for seed, (images, steps), model in itertools.product(range(seeds), SIZES.items(), MODELS):
        one("sizes", name, model, data, images, steps, best_rate(name, model), seed)


def controls(name: str, data: vt.data.Data, seeds: int) -> None:
    """An MLP, which knows nothing of neighbours, and a ResNet and a ViT whose neighbours are taken away."""
    for model, (several, tried) in CONTROLS.items():
        for rate in tried:
            one("rates", name, model, data, RATES_IMAGES, RATES_STEPS, rate, 0)
        for images, seed in itertools.product(several, range(seeds)):
            one("sizes", name, model, data, images, SIZES[images], best_rate(name, model), seed)


# ------------------------------------------------------------------------------------------------------- the report


def series(name: str, model: str) -> dict[int, list[float]]:
    """Test accuracies in percent by the number of training images."""
    found: dict[int, list[float]] = {}
    for row in sheet.read(CSV, data=name, part="sizes", model=model):
        found.setdefault(int(row["images"]), []).append(100 * float(row["test"]))
    return dict(sorted(found.items()))


def cell(values: list[float]) -> str:
    """Their mean, from three on with half of Student's 95 % interval; how many, if there are fewer."""
    if not values:
        return "–"
    if len(values) < 3:
        return f"{statistics.mean(values):.1f} ({len(values)})"
    return sheet.interval(values)


def report(name: str) -> None:
    """Tables in Markdown."""
    print("| model | parameters | multiply-accumulates |\n|---|---|---|")
    every = (*MODELS, *CONTROLS)
    for model in (*MODELS, "mlp"):
        made = model_of(model, 10, 0)
        parameters, macs = sum(p.numel() for p in made.parameters()), macs_of(made, torch.zeros(1, 3, 32, 32))
        print(f"| {model} | {parameters:,} | {macs / 1e6:.1f} M |")
    found = {model: points for model in every if (points := series(name, model))}
    several = sorted({n for points in found.values() for n in points})
    print("\n| test | " + " | ".join(f"{n:,}" for n in several) + " |\n|---|" + "---|" * len(several))
    for model, points in found.items():
        print(f"| {model} | " + " | ".join(cell(points.get(n, [])) for n in several) + " |")
    print("\n| held out | " + " | ".join(f"{rate:g}" for rate in RATES) + " |\n|---|" + "---|" * len(RATES))
    for model in every:
        tried = sheet.read(CSV, data=name, part="rates", model=model)
        held_out = {float(row["rate"]): f"{100 * float(row['held_out']):.1f}" for row in tried}
        print(f"| {model} | " + " | ".join(held_out.get(rate, "–") for rate in RATES) + " |")
    rows = sheet.read(CSV, data=name)
    print(f"\n{len(rows)} runs, {sum(float(row['cpu_seconds']) for row in rows) / 60:.0f} CPU minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["rates", "sizes", "controls", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "report":
        return report(args.data)
    data = vt.data.load(args.data, image_size=32)
    if args.part == "rates":
        return rates(args.data, data)
    return {"sizes": sizes, "controls": controls}[args.part](args.data, data, args.seeds)


if __name__ == "__main__":
    main()
