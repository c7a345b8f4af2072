"""Lesson 13's control: what a masked autoencoder's encoder is worth when scratch gets the same compute.

    python benchmarks/selfsup_compute.py run --data cifar10-jpeg --out runs/selfsup    all of it, resumable
    python benchmarks/selfsup_compute.py report                                        the table

A small ViT (patches of 8 on photographs of 32 pixels, width 64, two layers) gets 10, 50, 250 or all labels per class:

- "pretrained": it starts with the encoder of an autoencoder that saw the training photographs without labels;
- "scratch, same steps": random weights, as many steps on the labels;
- "scratch, same compute": random weights, and all the multiply-accumulates of the pretraining as further steps.

Each way has a rate of its own for each number of labels, chosen with seed 0 on photographs held out; the test split is
looked at once per row. A row per run goes to selfsup_compute.csv as soon as it is done. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import sheet
import torch
from photographs import accuracy, read
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data.augment import Crop, Flip
from vit_tutorial.variants.selfsup import MaskedAutoencoder, normalised_patches

CSV = Path(__file__).parent / "selfsup_compute.csv"
COLUMNS = ["part", "way", "labels", "seed", "rate", "steps", "gmacs", "held_out", "test", "cpu_seconds"]
CONFIG = vt.ViTConfig(
    image_size=32, patch_size=8, num_classes=10, dim=64, depth=2, num_heads=4, mlp_dim=128, pool="mean",
    position="sincos",
)  # fmt: skip
EPOCHS, PRETRAINING_RATE, PRETRAINING_BATCH = 4, 2e-3, 128
STEPS = {10: 100, 50: 200, 250: 400, 4500: 800}  # on the labels, by their number per class; 64 photographs each
RATES = (7e-4, 2e-3, 6e-3)  # to begin with
WAYS = ("pretrained", "scratch, same steps", "scratch, same compute")
LOOKED_AT = 4000  # photographs held out, and of the test split
Data = dict[str, Tensor]


def autoencoder(data: Data, share: float = 0.75) -> MaskedAutoencoder:
    mean, std = tuple(data["mean"].tolist()), tuple(data["std"].tolist())
    return MaskedAutoencoder(CONFIG, share=share, decoder_dim=32, mean=mean, std=std)


def painting_loss(model: MaskedAutoencoder, images: Tensor) -> Tensor:
    """The autoencoder's own; if it hides nothing, the same error of all patches."""
    if model.share:
        return model(images)
    target = normalised_patches(vt.patchify(images, 8))  # (B, N, C*P*P)
    hidden = torch.zeros(target.shape[:2], dtype=torch.bool)  # (B, N)
    return F.mse_loss(model.predict_patches(images, hidden), target)


def macs_of_pretraining(data: Data) -> float:
    """Of all forward passes, by torch's own count."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        autoencoder(data)(torch.rand(1, 3, 32, 32))
    return counter.get_total_flops() / 2 * EPOCHS * len(data["train_images"])


def batches(images: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    """The places of each batch, in a new order per epoch, without an end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(images), generator=generator)
        yield from order[: max(size, len(order) // size * size)].split(size)


def descend(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def pretrain(
    data: Data, seed: int, file: Path, share: float = 0.75, rate: float = PRETRAINING_RATE
) -> dict[str, Tensor]:
    """The encoder's tensors, made once; ``share`` of the patches is hidden. With none, a step costs twice as much."""
    if file.exists():
        return torch.load(file, weights_only=True)  # type: ignore[no-any-return]
    torch.manual_seed(seed)
    model, images, flip, begin = autoencoder(data, share), data["train_images"], Flip(), time.process_time()
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), betas=(0.9, 0.95), fused=True)
    epochs = EPOCHS if share else EPOCHS // 2
    steps = epochs * (len(images) // PRETRAINING_BATCH)
    for step, rows in zip(range(steps), batches(images, PRETRAINING_BATCH, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 20))
        loss = painting_loss(model, flip(images[rows].float() / 255))
        descend(model, loss, optimizer)
        if (step + 1) % (steps // epochs) == 0:
            spent = time.process_time() - begin
            print(
                f"pretraining, seed {seed}, step {step + 1} of {steps}: {loss.item():.3f}, {spent:.0f} CPU s",
                flush=True,
            )
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.encoder.state_dict(), file)
    return model.encoder.state_dict()


def few(labels: Tensor, each: int, seed: int) -> Tensor:
    """The places of so many photographs of each class, drawn by the seed."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[labels[order] == label][:each] for label in range(10)])


def one(part: str, way: str, each: int, seed: int, rate: float, data: Data, out: Path) -> None:
    """One row, unless it is there."""
    known = [part, way, each, seed, rate]
    if sheet.read(CSV, part=part, way=way, labels=each, seed=seed, rate=rate):
        return
    start = pretrain(data, seed, out / f"compute-{seed}.pt") if way == "pretrained" else {}
    steps, begin = STEPS[each], time.process_time()
    before = macs_of_pretraining(data)
    if way == "scratch, same compute":
        steps += round(before / vt.count_macs(CONFIG) / 64)
    torch.manual_seed(seed)
    model = vt.ViT(CONFIG)
    model.load_state_dict(start, strict=False)
    places = few(data["train_labels"], each, seed)
    images, labels = data["train_images"][places], data["train_labels"][places]
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    flip, crop = Flip(), Crop((4, 4))
    model.train()
    for step, rows in zip(range(steps), batches(images, 64, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 10))
        pixels = flip(crop(images[rows].float() / 255))
        descend(model, F.cross_entropy(model((pixels - mean) / std), labels[rows]), optimizer)
    held = accuracy(model, data["validation_images"][:LOOKED_AT], data["validation_labels"][:LOOKED_AT], data)
    test = accuracy(model, data["test_images"][::3], data["test_labels"][::3], data)
    macs = steps * 64 * vt.count_macs(CONFIG) + (before if way == "pretrained" else 0)
    spent = time.process_time() - begin
    sheet.add(
        CSV,
        COLUMNS,
        [*known, steps, f"{macs / 1e9:.0f}", f"{held:.4f}", "" if part == "rates" else f"{test:.4f}", f"{spent:.0f}"],
    )


def held_out(way: str, each: int) -> dict[float, float]:
    """Accuracy on what was held out, in percent, by rate."""
    rows = sheet.read(CSV, part="rates", way=way, labels=each)
    return dict(sorted((float(row["rate"]), 100 * float(row["held_out"])) for row in rows))


def best_rate(way: str, each: int) -> float:
    """The rate that did best on what was held out."""
    found = held_out(way, each)
    return max(found, key=lambda rate: found[rate])


def tune(way: str, each: int, data: Data, out: Path) -> None:
    """Try rates, and further ones as long as the best lies at the edge of the grid."""

    def score(rate: float) -> float:
        one("rates", way, each, 0, rate, data, out)
        return held_out(way, each)[rate]

    sheet.search(RATES, score, lambda best, side: float(f"{best * 3.0**side:.1g}"))


def run(folder: str, out: Path, seeds: int, counts: list[int]) -> None:
    data = read(folder)
    for each, way in itertools.product(counts, WAYS):
        tune(way, each, data, out)
    for seed, each, way in itertools.product(range(seeds), counts, WAYS):
        one("labels", way, each, seed, best_rate(way, each), data, out)


# ------------------------------------------------------------------------------------------------------- the report


def report() -> None:
    """Test accuracies, and the gain over scratch with the same compute, paired by seed."""
    found: dict[str, dict[int, dict[int, float]]] = {way: {} for way in WAYS}
    for row in sheet.read(CSV, part="labels"):
        found[row["way"]].setdefault(int(row["labels"]), {})[int(row["seed"])] = 100 * float(row["test"])
    counts = sorted({each for by in found.values() for each in by})
    print("| test accuracy (%), labels per class | " + " | ".join(f"{n:,}" for n in counts) + " |")
    print("|---" * (len(counts) + 1) + "|")
    for way, by in found.items():
        print(f"| {way} | " + " | ".join(sheet.interval(list(by.get(n, {}).values())) for n in counts) + " |")
    for rival in WAYS[1:]:
        pairs = [[found[WAYS[0]][n][seed] - value for seed, value in found[rival].get(n, {}).items()] for n in counts]
        print(f"| pretrained less {rival} | " + " | ".join(map(sheet.interval, pairs)) + " |")
    rates = sorted({float(row["rate"]) for row in sheet.read(CSV, part="rates")})
    print("\n| held out (%), labels per class, rate | " + " | ".join(f"{rate:g}" for rate in rates) + " |")
    print("|---" * (len(rates) + 1) + "|")
    for way, each in itertools.product(WAYS, counts):
        held = held_out(way, each)
        print(f"| {way}, {each:,} | " + " | ".join(f"{held[r]:.1f}" if r in held else "–" for r in rates) + " |")
    rows = sheet.read(CSV)
    print(f"\n{len(rows)} runs, {sum(float(row['cpu_seconds']) for row in rows) / 60:.1f} CPU minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/selfsup"), help="where the encoders are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, nargs="+", default=list(STEPS), help="per class")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report()
    run(args.data, args.out, args.seeds, args.labels)


if __name__ == "__main__":
    main()
