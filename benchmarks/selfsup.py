"""Learning without labels at the size of a laptop: what pretraining is worth, by the number of labels that follow.

    python benchmarks/selfsup.py pretrain --data cifar10-jpeg --out runs/selfsup     three ways, an encoder each
    python benchmarks/selfsup.py transfer --data cifar10-jpeg --out runs/selfsup     10 labels a class to all of them
    python benchmarks/selfsup.py report                                              the table, and selfsup.png

The encoder is the same in every arm, and so is its training afterwards: as many steps, the rate chosen among the same
two on a twentieth of the training images that is held out; the test split is looked at once, with the chosen rate.
"probe" is a logistic regression on the mean of the tokens, its penalty chosen on the images held out. A row a run goes
to benchmarks/selfsup.csv as soon as it is done; rows that are there are not run again. One thread. The paper's small
patch is left out: with 16 times 512 outputs a patch its last layer costs more than all the rest of this encoder.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import sheet
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import runs, selfsup, train

HERE = Path(__file__).parent
CSV = HERE / "selfsup.csv"
COLUMNS = ["data", "way", "how", "labels", "seed", "rate", "held_out", "test_accuracy", "cpu_seconds"]
WAYS = ("mean colour", "pixels", "mae")
LABELS = (10, 50, 250, 0)  # a class; 0: all that aren't held out
RATES = (5e-4, 2e-3)
STEPS = 250  # of fine-tuning, 64 images each
SHAPE: dict[str, Any] = {"dim": 128, "depth": 4, "num_heads": 4, "mlp_dim": 256, "pool": "mean"}


def config_of(data: vt.data.Data) -> vt.ViTConfig:
    size, classes = data.image_size, len(data.classes)
    return vt.ViTConfig(image_size=size, patch_size=4, in_channels=data.in_channels, num_classes=classes, **SHAPE)


def model_of(way: str, data: vt.data.Data) -> selfsup.MaskedViT | selfsup.MaskedAutoencoder:
    if way == "mae":
        return selfsup.MaskedAutoencoder(config_of(data), mean=data.mean, std=data.std)
    target: selfsup.Target = way  # type: ignore[assignment]
    return selfsup.MaskedViT(config_of(data), target, mean=data.mean, std=data.std)


def batches(images: vt.data.Images, size: int, data: vt.data.Data, seed: int) -> Iterator[runs.Batch]:
    """Images (B, C, H, W) in [0, 1], cropped and mirrored anew in each epoch, and labels; without an end."""
    order, changes = runs.Order(len(images), size, seed), vt.data.augmentation("crop+flip", data)
    for epoch in itertools.count():
        order.epoch = epoch
        yield from runs.loader(images, order, changes, seed=seed)


def pretrain(way: str, data: vt.data.Data, epochs: int, seed: int, out: Path) -> None:
    """Train without labels, and keep the encoder."""
    torch.manual_seed(seed)
    model, begin, losses = model_of(way, data), time.process_time(), []
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), betas=(0.9, 0.95), fused=True)
    each = len(data.train) // 64
    steps = epochs * each
    for step, (images, _) in zip(range(steps), batches(data.train, 64, data, seed), strict=False):
        train.set_rate(optimizer, 1e-3 * train.schedule(step, steps=steps, warmup=steps // 20))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % each == 0:
            mean, spent = statistics.mean(losses[-each:]), time.process_time() - begin
            print(f"{way}, seed {seed}, epoch {(step + 1) // each}: {mean:.4f}, {spent:.0f} CPU s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "cpu_seconds": f"{time.process_time() - begin:.0f}",
        "epochs": str(epochs),
        "loss": f"{statistics.mean(losses[-each:]):.4f}",
    }
    safetensors.torch.save_file(model.encoder.state_dict(), out / f"{way}-{seed}.safetensors", about)


def with_labels(data: vt.data.Data, labels: int, seed: int) -> vt.data.Data:
    """Data whose test split is held out of the training images, and which has so many labelled images a class."""
    held = vt.data.hold_out(data, 0.05)
    if not labels:
        return held
    generator, chosen = torch.Generator().manual_seed(seed), torch.zeros(len(held.train), dtype=torch.bool)
    for label in range(len(data.classes)):
        places = (held.train.labels == label).nonzero().flatten()
        chosen[places[torch.randperm(len(places), generator=generator)[:labels]]] = True
    return replace(held, train=held.train.part(chosen))


def encoder_of(way: str, data: vt.data.Data, seed: int, out: Path) -> vt.ViT:
    """The encoder with a new head, pretrained in a way, or from scratch."""
    torch.manual_seed(seed)
    model = vt.ViT(config_of(data))
    if way != "scratch":
        model.load_state_dict(safetensors.torch.load_file(out / f"{way}-{seed}.safetensors"), strict=False)
    return model


def tune(model: vt.ViT, images: vt.data.Images, rate: float, data: vt.data.Data, seed: int) -> None:
    """STEPS steps on a few labelled images, cropped and mirrored anew each time."""
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    model.train()
    for step, (x, labels) in zip(range(STEPS), batches(images, 64, data, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=STEPS, warmup=STEPS // 10))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(train.normalise(x, data))
        loss = F.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def accuracy(model: vt.ViT, data: vt.data.Data) -> float:
    with torch.autocast("cpu", torch.bfloat16):
        return train.evaluate(model, data)["test_accuracy"]


def tuned(way: str, labels: int, data: vt.data.Data, seed: int, out: Path) -> tuple[float, float, float]:
    """The rate, its accuracy on what was held out, and the test accuracy."""
    few, tries = with_labels(data, labels, seed), []
    for rate in RATES:
        model = encoder_of(way, data, seed, out)
        tune(model, few.train, rate, data, seed)
        tries.append((accuracy(model, few), rate, model))
    held_out, rate, model = max(tries, key=lambda each: each[0])
    return rate, held_out, accuracy(model, data)


@functools.lru_cache(maxsize=1)  # the label counts of one encoder come one after the other
def features_of(way: str, data: vt.data.Data, seed: int, out: Path) -> vt.data.Data:
    """The data with the mean token of each image in the image's place."""
    model = encoder_of(way, data, seed, out)
    model.head = torch.nn.Identity()
    with torch.autocast("cpu", torch.bfloat16):
        train_split, test_split = (train.predict(model, data, split=split) for split in ("train", "test"))
    return replace(data, train=vt.data.Images(*train_split, white=1), test=vt.data.Images(*test_split, white=1))


def probed(way: str, labels: int, data: vt.data.Data, seed: int, out: Path) -> tuple[float, float, float]:
    """The same of a logistic regression on frozen features; in place of the rate, the inverse penalty."""
    features, tries = features_of(way, data, seed, out), []
    few = with_labels(features, labels, seed)
    mean, std = few.train.images.mean(dim=0), few.train.images.std(dim=0) + 1e-6  # (D,) each
    (x, y), (x_held, y_held), (x_test, y_test) = (
        (((split.images - mean) / std).numpy(), split.labels.numpy()) for split in (few.train, few.test, features.test)
    )
    for C in (0.003, 0.03, 0.3):
        head = LogisticRegression(C=C, max_iter=200).fit(x, y)
        tries.append((head.score(x_held, y_held), C, head))
    held_out, C, head = max(tries, key=lambda each: each[0])
    return C, held_out, head.score(x_test, y_test)


# ------------------------------------------------------------------------------------------------------- the report


def transfer(name: str, data: vt.data.Data, seeds: int, out: Path) -> None:
    done = {(row["data"], row["way"], row["how"], int(row["labels"]), int(row["seed"])) for row in sheet.read(CSV)}
    for seed in range(seeds):
        for way in ("scratch", *WAYS):
            for labels in LABELS:
                for how, run in (("probe", probed), ("tuned", tuned)):
                    known = (name, way, how, labels, seed) in done
                    if known or (way != "scratch" and not (out / f"{way}-{seed}.safetensors").exists()):
                        continue
                    begin = time.process_time()
                    rate, held_out, accuracy = run(way, labels, data, seed, out)
                    spent = f"{time.process_time() - begin:.0f}"
                    row = [name, way, how, labels, seed, rate, f"{held_out:.4f}", f"{accuracy:.4f}", spent]
                    sheet.add(CSV, COLUMNS, row)


def report(name: str) -> None:
    """Test accuracy by the number of labels: the mean of the seeds, and how far they lie apart."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    print(f"| {name} | " + " | ".join(f"{n} a class" if n else "all" for n in LABELS) + " |")
    print("|---" * (len(LABELS) + 1) + "|")
    for ax, how in zip(figure.subplots(1, 2, sharey=True), ("probe", "tuned"), strict=True):
        ax.set(title=how, xlabel="labels a class", ylabel="test accuracy (%)", xscale="log")
        for way in ("scratch", *WAYS):
            points = []
            for labels in LABELS:
                wanted = (name, way, how, str(labels))
                found = [
                    100 * float(row["test_accuracy"])
                    for row in sheet.read(CSV)
                    if (row["data"], row["way"], row["how"], row["labels"]) == wanted
                ]
                points.append(found)
            cells = [f"{statistics.mean(p):.1f} ({min(p):.1f} to {max(p):.1f})" if p else "–" for p in points]
            print(f"| {way}, {how} | {' | '.join(cells)} |")
            drawn = [(n or 4750, statistics.mean(p)) for n, p in zip(LABELS, points, strict=True) if p]
            if drawn:
                ax.plot(*zip(*drawn, strict=True), "o-", label=way)
        ax.legend(frameon=False)
    figure.savefig(HERE / "selfsup.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pretrain", "transfer", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/selfsup"), help="where the encoders are kept")
    parser.add_argument("--epochs", type=int, default=3, help="of pretraining")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report(args.data)
    data = vt.data.load(args.data, image_size=32)
    if args.what == "transfer":
        return transfer(args.data, data, args.seeds, args.out)
    for seed in range(args.seeds):
        for way in WAYS:
            if not (args.out / f"{way}-{seed}.safetensors").exists():
                pretrain(way, data, args.epochs, seed, args.out)


if __name__ == "__main__":
    main()
