"""Learning without labels at the size of a laptop: what pretraining is worth, by the number of labels that follow.

    python benchmarks/selfsup.py run --data cifar10-jpeg --out runs/selfsup --seeds 1     all of it, resumable
    python benchmarks/selfsup.py report --data cifar10-jpeg                               the table, and selfsup.png

Each way pretrains an encoder on all training images without their labels, for about the same CPU time: so the epochs
differ (:data:`EPOCHS`). Then it gets 10 labels a class, 50, 250, or all. "tuned" trains all weights, for as many steps
and with as many images in every way; the rate is that of two which is better with 50 labels a class, on a twentieth of
the training images that is held out. "probe" is a logistic regression on the mean of the tokens, its penalty chosen on
the images held out. "scratch" is the same encoder with random weights; "scratch longer" gets the time of a pretraining
as well, with all labels. The test split is looked at once a row. A row a run goes to benchmarks/selfsup.csv as soon as
it is done; rows that are there are not run again. One thread.
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
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.plots.hybrid import runs_by_number
from vit_tutorial.train import runs
from vit_tutorial.variants import selfsup

HERE = Path(__file__).parent
CSV = HERE / "selfsup.csv"
COLUMNS = ["data", "way", "how", "labels", "seed", "pretrain_epochs", "pretrain_cpu_seconds"]
COLUMNS += ["steps", "rate", "held_out", "test_accuracy", "cpu_seconds"]
EPOCHS = {"mean colour": 7, "mae": 12, "pixels": 7, "small patch": 3}  # of pretraining: some 10 CPU minutes each
LABELS = (10, 50, 250, 0)  # a class; 0: all that aren't held out
WAYS = ("scratch", "mean colour", "mae", "pixels", "scratch longer", "small patch")
STEPS = {10: 150, 50: 300, 250: 600, 0: 2000}  # of fine-tuning, by the labels; 64 images each
LONGER = 7500  # steps of "scratch longer": as much CPU time as pretraining by mean colours and 2,000 steps
RATES, RATE_CHOSEN_AT = (5e-4, 2e-3), 50  # labels a class
SHAPE: dict[str, Any] = {"dim": 96, "depth": 4, "num_heads": 3, "mlp_dim": 192, "pool": "mean", "position": "sincos"}


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


def pretrain(way: str, data: vt.data.Data, seed: int, file: Path) -> None:
    """Train without labels, and keep the encoder."""
    torch.manual_seed(seed)
    model, begin, losses = model_of(way, data), time.process_time(), []
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), betas=(0.9, 0.95), fused=True)
    each = len(data.train) // 64
    steps = EPOCHS[way] * each
    for step, (images, _) in zip(range(steps), batches(data.train, 64, data, seed), strict=False):
        train.set_rate(optimizer, 1.5e-3 * train.schedule(step, steps=steps, warmup=steps // 20))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(images)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % each == 0:
            mean, spent = statistics.mean(losses[-each:]), time.process_time() - begin
            print(f"{way}, seed {seed}, epoch {(step + 1) // each}: {mean:.4f}, {spent:.0f} CPU s", flush=True)
    about = {"epochs": str(EPOCHS[way]), "cpu_seconds": f"{time.process_time() - begin:.0f}"}
    file.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(model.encoder.state_dict(), file, about)


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


def encoder_of(data: vt.data.Data, seed: int, file: Path | None) -> vt.ViT:
    """The encoder with a new head: pretrained, or without a file from scratch."""
    torch.manual_seed(seed)
    model = vt.ViT(config_of(data))
    if file:
        model.load_state_dict(safetensors.torch.load_file(file), strict=False)
    return model


def tune(model: vt.ViT, images: vt.data.Images, steps: int, rate: float, data: vt.data.Data, seed: int) -> None:
    """Train all weights on labelled images, cropped and mirrored anew each time."""
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    model.train()
    for step, (x, labels) in zip(range(steps), batches(images, 64, data, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 10))
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


@functools.lru_cache(maxsize=4)  # the runs that chose the rate are also the rows of so many labels
def tuned_at(
    rate: float, labels: int, steps: int, data: vt.data.Data, seed: int, file: Path | None
) -> tuple[float, vt.ViT]:
    """The accuracy on what was held out, and the model."""
    few, model = with_labels(data, labels, seed), encoder_of(data, seed, file)
    tune(model, few.train, steps, rate, data, seed)
    return accuracy(model, few), model


def tuned(labels: int, steps: int, data: vt.data.Data, seed: int, file: Path | None) -> tuple[float, float, float]:
    """The rate, its accuracy on what was held out, and the test accuracy."""
    at = RATE_CHOSEN_AT
    rate = max(RATES, key=lambda rate: tuned_at(rate, at, STEPS[at], data, seed, file)[0])
    held_out, model = tuned_at(rate, labels, steps, data, seed, file)
    return rate, held_out, accuracy(model, data)


@functools.lru_cache(maxsize=1)  # the label counts of one encoder come one after the other
def features_of(data: vt.data.Data, seed: int, file: Path | None) -> vt.data.Data:
    """The data with the mean token of each image in the image's place."""
    model = encoder_of(data, seed, file)
    model.head = torch.nn.Identity()
    with torch.autocast("cpu", torch.bfloat16):
        train_split, test_split = (train.predict(model, data, split=split) for split in ("train", "test"))
    return replace(data, train=vt.data.Images(*train_split, white=1), test=vt.data.Images(*test_split, white=1))


def probed(labels: int, data: vt.data.Data, seed: int, file: Path | None) -> tuple[float, float, float]:
    """The same of a logistic regression on frozen features; in place of the rate, the inverse penalty."""
    features, tries = features_of(data, seed, file), []
    few = with_labels(features, labels, seed)
    mean, std = few.train.images.mean(dim=0), few.train.images.std(dim=0) + 1e-6  # (D,) each
    (x, y), (x_held, y_held), (x_test, y_test) = (
        (((split.images - mean) / std).numpy(), split.labels.numpy()) for split in (few.train, few.test, features.test)
    )
    for C in (0.003, 0.03, 0.3):
        head = LogisticRegression(C=C, max_iter=1000).fit(x, y)
        tries.append((head.score(x_held, y_held), C, head))
    held_out, C, head = max(tries, key=lambda each: each[0])
    return C, held_out, head.score(x_test, y_test)


def run(name: str, data: vt.data.Data, seeds: int, out: Path) -> None:
    """Whatever isn't in the CSV yet: way by way, so that each is whole before the next begins."""
    done = {(row["data"], row["way"], row["how"], int(row["labels"]), int(row["seed"])) for row in sheet.read(CSV)}
    for seed, way in itertools.product(range(seeds), WAYS):
        file = out / f"{way}-{seed}.safetensors" if way in EPOCHS else None
        wanted = [("probe", labels, 0) for labels in LABELS] + [("tuned", labels, STEPS[labels]) for labels in LABELS]
        if way == "scratch longer":
            wanted = [("tuned", 0, LONGER)]
        missing = [each for each in wanted if (name, way, *each[:2], seed) not in done]
        if missing and file and not file.exists():
            pretrain(way, data, seed, file)
        for how, labels, steps in missing:
            begin = time.process_time()
            if how == "tuned":
                rate, held_out, test = tuned(labels, steps, data, seed, file)
            else:
                rate, held_out, test = probed(labels, data, seed, file)
            spent = time.process_time() - begin
            row = [name, way, how, labels, seed, *pretraining(file), steps, rate]
            sheet.add(CSV, COLUMNS, [*row, f"{held_out:.4f}", f"{test:.4f}", f"{spent:.0f}"])


def pretraining(file: Path | None) -> tuple[str, str]:
    """How many epochs, and how many CPU seconds."""
    if file is None:
        return "0", "0"
    with safetensors.safe_open(file, "pt") as opened:
        about = opened.metadata()
    return about["epochs"], about["cpu_seconds"]


# ------------------------------------------------------------------------------------------------------- the report


def cell(values: list[float]) -> str:
    """The mean of the seeds, and how far they lie apart if there are several."""
    apart = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{apart}" if values else "–"


def report(name: str) -> None:
    """Test accuracy by the number of labels."""
    panels: dict[str, dict[str, dict[float, list[float]]]] = {"probe": {}, "tuned": {}}
    for row in sheet.read(CSV):
        if row["data"] == name:
            of_way = panels[row["how"]].setdefault(row["way"], {})
            of_way.setdefault(int(row["labels"]), []).append(100 * float(row["test_accuracy"]))
    print(f"| {name} | " + " | ".join(f"{n} a class" if n else "all" for n in LABELS) + " |")
    print("|---" * (len(LABELS) + 1) + "|")
    for how, ways in panels.items():
        for way, found in ways.items():
            print(f"| {way}, {how} | {' | '.join(cell(found.get(n, [])) for n in LABELS)} |")
            found[4750] = found.pop(0, [])  # all that aren't held out: where the picture has them
    figure = runs_by_number(panels, xlabel="labels a class", ylabel="test accuracy (%)")
    figure.savefig(HERE / "selfsup.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/selfsup"), help="where the encoders are kept")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report(args.data)
    run(args.data, vt.data.load(args.data, image_size=32), args.seeds, args.out)


if __name__ == "__main__":
    main()
