"""Learning without labels at the size of a laptop: what pretraining is worth, by the number of labels that follow.

    python benchmarks/selfsup.py pretrain --data cifar10-jpeg --out runs/selfsup     four ways, an encoder each
    python benchmarks/selfsup.py transfer --data cifar10-jpeg --out runs/selfsup     10 labels a class to all of them
    python benchmarks/selfsup.py report                                              the table, and selfsup.png

The encoder is the same in every arm, and so is its training afterwards: as many steps, the rate chosen among the same
two on a tenth of the training images that is held out; the test split is looked at once a run, with the chosen rate.
"probe" is a logistic regression on the mean of the tokens, its penalty chosen on the images held out. A row a run goes
to benchmarks/selfsup.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from torch import Tensor

import vit_tutorial as vt
from vit_tutorial import runs, selfsup, train

HERE = Path(__file__).parent
CSV = HERE / "selfsup.csv"
COLUMNS = ["data", "way", "how", "labels", "seed", "rate", "held_out", "test_accuracy", "cpu_seconds"]
WAYS = ("mean colour", "small patch", "pixels", "mae")
LABELS = (10, 50, 250, 0)  # a class; 0: all that aren't held out
RATES = (5e-4, 2e-3)
STEPS = 1500  # of fine-tuning, 64 images each
SHAPE: dict[str, Any] = {"dim": 128, "depth": 4, "num_heads": 4, "mlp_dim": 256, "pool": "mean"}


def config_of(data: vt.data.Data) -> vt.ViTConfig:
    size, classes = data.image_size, len(data.classes)
    return vt.ViTConfig(image_size=size, patch_size=4, in_channels=data.in_channels, num_classes=classes, **SHAPE)


def model_of(way: str, data: vt.data.Data) -> selfsup.MaskedViT | selfsup.MaskedAutoencoder:
    if way == "mae":
        return selfsup.MaskedAutoencoder(config_of(data), mean=data.mean, std=data.std)
    target: selfsup.Target = way  # type: ignore[assignment]
    return selfsup.MaskedViT(config_of(data), target, mean=data.mean, std=data.std)


def batches(images: vt.data.Images, augmentation: str, data: vt.data.Data, seed: int, epoch: int) -> Iterator[Tensor]:
    """Images (B, C, H, W) in [0, 1], cropped and mirrored anew in each epoch."""
    order = runs.Order(len(images), 128, seed)
    order.epoch = epoch
    changes = vt.data.augmentation(augmentation, data)
    return (images for images, _ in runs.loader(images, order, changes, seed=seed))


def pretrain(way: str, data: vt.data.Data, epochs: int, seed: int, out: Path) -> None:
    """Train without labels, and keep the encoder."""
    torch.manual_seed(seed)
    model, begin = model_of(way, data), time.process_time()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05, betas=(0.9, 0.95))
    steps, step, losses = epochs * (len(data.train) // 128), 0, []
    for epoch in range(epochs):
        for images in batches(data.train, "crop+flip", data, seed, epoch):
            train.set_rate(optimizer, 1e-3 * train.schedule(step, steps=steps, warmup=steps // 20))
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(images)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
        last = losses[-(steps // epochs) :]
        spent = time.process_time() - begin
        print(f"{way}, seed {seed}, epoch {epoch + 1}: loss {statistics.mean(last):.4f}, {spent:.0f} CPU s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    about = {"cpu_seconds": f"{time.process_time() - begin:.0f}", "epochs": str(epochs), "loss": f"{losses[-1]:.4f}"}
    safetensors.torch.save_file(model.encoder.state_dict(), out / f"{way}-{seed}.safetensors", about)


def with_labels(data: vt.data.Data, labels: int, seed: int) -> vt.data.Data:
    """Data whose test split is held out of the training images, and which has so many labelled images a class."""
    held = vt.data.hold_out(data, 0.1)
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


def tuned(way: str, labels: int, data: vt.data.Data, seed: int, out: Path) -> tuple[float, float, float]:
    """The rate, its accuracy on what was held out, and the test accuracy."""
    few, best = with_labels(data, labels, seed), (0.0, -1.0, vt.ViT(config_of(data)))
    batch = min(64, len(few.train))
    for rate in RATES:
        model = encoder_of(way, data, seed, out)
        epochs = max(1, math.ceil(STEPS / (len(few.train) // batch)))
        recipe = train.Recipe(
            epochs=epochs, batch_size=batch, learning_rate=rate, warmup_epochs=epochs / 10, augment="crop+flip",
            seed=seed, precision="bf16",
        )  # fmt: skip
        quiet = replace(few, test=few.test.part(torch.arange(len(few.test)) < 1))  # an epoch may be a single step
        train.fit(model, quiet, recipe, progress=False)
        held_out = train.evaluate(model, few)["test_accuracy"]
        if held_out > best[1]:
            best = (rate, held_out, model)
    return best[0], best[1], train.evaluate(best[2], data)["test_accuracy"]


def probed(way: str, labels: int, data: vt.data.Data, seed: int, out: Path) -> tuple[float, float, float]:
    """The same of a logistic regression on frozen features; in place of the rate, the inverse penalty."""
    few, model = with_labels(data, labels, seed), encoder_of(way, data, seed, out)
    model.head = torch.nn.Identity()
    with torch.inference_mode():
        (x, y), (x_held, y_held) = (train.predict(model, few, split=split) for split in ("train", "test"))
        x_test, y_test = train.predict(model, data)
    mean, std = x.mean(dim=0), x.std(dim=0) + 1e-6
    best = (0.0, -1.0, 0.0)
    for C in (0.003, 0.03, 0.3):
        head = LogisticRegression(C=C, max_iter=300).fit(((x - mean) / std).numpy(), y.numpy())
        held_out = head.score(((x_held - mean) / std).numpy(), y_held.numpy())
        if held_out > best[1]:
            best = (C, held_out, head.score(((x_test - mean) / std).numpy(), y_test.numpy()))
    return best


# ------------------------------------------------------------------------------------------------------- the report


def rows() -> list[dict[str, str]]:
    if not CSV.exists():
        return []
    with CSV.open(newline="") as file:
        return list(csv.DictReader(file))


def transfer(name: str, data: vt.data.Data, seeds: int, out: Path) -> None:
    done = {(row["data"], row["way"], row["how"], int(row["labels"]), int(row["seed"])) for row in rows()}
    if not CSV.exists():
        CSV.write_text(",".join(COLUMNS) + "\n")
    for seed in range(seeds):
        for labels in LABELS:
            for way in ("scratch", *WAYS):
                for how, run in (("probe", probed), ("tuned", tuned)):
                    known = (name, way, how, labels, seed) in done
                    if known or (way != "scratch" and not (out / f"{way}-{seed}.safetensors").exists()):
                        continue
                    begin = time.process_time()
                    rate, held_out, accuracy = run(way, labels, data, seed, out)
                    spent = f"{time.process_time() - begin:.0f}"
                    row = [name, way, how, labels, seed, rate, f"{held_out:.4f}", f"{accuracy:.4f}", spent]
                    with CSV.open("a", newline="") as file:
                        csv.writer(file, lineterminator="\n").writerow(row)
                    print(row, flush=True)


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
                    for row in rows()
                    if (row["data"], row["way"], row["how"], row["labels"]) == wanted
                ]
                points.append(found)
            cells = [f"{statistics.mean(p):.1f} ({min(p):.1f} to {max(p):.1f})" if p else "–" for p in points]
            print(f"| {way}, {how} | {' | '.join(cells)} |")
            drawn = [(n or 4500, statistics.mean(p)) for n, p in zip(LABELS, points, strict=True) if p]
            ax.plot(*zip(*drawn, strict=True), "o-", label=way) if drawn else None
        ax.legend(frameon=False)
    figure.savefig(HERE / "selfsup.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pretrain", "transfer", "report"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/selfsup"), help="where the encoders are kept")
    parser.add_argument("--epochs", type=int, default=20, help="of pretraining")
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
