"""Lesson 13: what an encoder learns from two questions without labels, at the same compute, read by a probe.

    python benchmarks/selfsup_tasks.py run --data cifar10-jpeg --out runs/selfsup    all of it, resumable
    python benchmarks/selfsup_tasks.py report                                        the table

The small ViT of selfsup_compute.py is pretrained on CIFAR-10's training photographs without labels: "masked pixels" is
MAE, "contrastive" SimCLR's question (arXiv 2002.05709): two views of each photograph, cropped, mirrored and with
changed colours, must find each other among all views of the batch. Both spend the same multiply-accumulates (torch's
count of the forward passes), so they see different numbers of photographs. "random" is the encoder untrained. Then the
encoder is frozen, and a logistic regression reads the mean of its patches' tokens; for "pixels" it reads the
photograph itself. Rates were searched for the ViT
paper's task, too ("masked colours"); its best are the lowest ones, and it wasn't taken further.

Each task has a pretraining rate of its own, chosen at a quarter of the compute by the probe with 250 labels per class
on photographs held out; so is the probe's penalty, each time. The test split is looked at once per row. A row per run
goes to selfsup_tasks.csv as soon as it is done. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import sheet
import torch
from photographs import read
from selfsup_compute import CONFIG, Data, autoencoder, batches, descend, few
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data.augment import Flip
from vit_tutorial.variants.selfsup import MaskedAutoencoder, MaskedViT

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["part", "way", "labels", "seed", "rate", "photographs", "gmacs", "held_out", "test", "cpu_seconds"]
TASKS = ("masked colours", "masked pixels", "contrastive")
WAYS = ("pixels", "random", "masked pixels", "contrastive")  # which are probed
EPOCHS, BATCH = 1, 256  # of "contrastive"; the others see as many photographs as the same compute pays for
RATES = (1e-3, 2e-3, 4e-3)  # to begin with
PENALTIES, PENALTIES_OF_PIXELS = (0.001, 0.01, 0.1), (1e-5, 1e-4, 1e-3, 1e-2)
LABELS = (10, 250)  # per class


def view(images: Tensor) -> Tensor:
    """A random view of each photograph (B, 3, H, W) in [0, 1]: a crop of 30 to 100 %, mirrored, in changed colours."""
    B = len(images)
    side = torch.empty(B).uniform_(0.3, 1.0).sqrt()
    theta = torch.zeros(B, 2, 3)
    theta[:, 0, 0] = side * (torch.randint(2, (B,)) * 2 - 1)
    theta[:, 1, 1] = side
    theta[:, :, 2] = torch.empty(B, 2).uniform_(-1, 1) * (1 - side)[:, None]
    x = F.grid_sample(images, F.affine_grid(theta, list(images.shape), align_corners=False), align_corners=False)
    bright, contrast, colour = torch.empty(3, B, 1, 1, 1).uniform_(0.6, 1.4)
    colour = torch.where(torch.rand(B, 1, 1, 1) < 0.2, 0.0, colour)  # a fifth becomes grey
    grey = x.mean(dim=1, keepdim=True)  # (B, 1, H, W)
    x = grey + (x - grey) * colour
    middle = x.mean(dim=(1, 2, 3), keepdim=True)
    return ((middle + (x - middle) * contrast) * bright).clamp(0, 1)


def contrastive_loss(first: Tensor, second: Tensor, temperature: float = 0.2) -> Tensor:
    """SimCLR's: each of 2B vectors (B, D), (B, D) must find its partner among the 2B - 1 others."""
    z = F.normalize(torch.cat([first, second]), dim=1)  # (2B, D)
    scores = (z @ z.T / temperature).fill_diagonal_(-torch.inf)  # (2B, 2B)
    partner = torch.arange(len(z)).roll(len(first))  # (2B,)
    return F.cross_entropy(scores, partner)


class Contrastive(nn.Module):
    """The encoder with a small head for the loss, which is thrown away afterwards: photographs in [0, 1] -> a loss."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        self.encoder = vt.ViT(CONFIG)
        self.project = nn.Sequential(nn.Linear(CONFIG.dim, 128), nn.ReLU(), nn.Linear(128, 64))
        self.mean, self.std = (data[name].reshape(-1, 1, 1) for name in ("mean", "std"))

    def forward(self, images: Tensor) -> Tensor:
        views = (torch.cat([view(images), view(images)]) - self.mean) / self.std  # (2B, C, H, W)
        z = self.project(self.encoder.features(views).mean(dim=1))  # (2B, 64)
        return contrastive_loss(*z.chunk(2))


def model_of(way: str, data: Data) -> Contrastive | MaskedAutoencoder | MaskedViT:
    if way == "contrastive":
        return Contrastive(data)
    if way == "masked pixels":
        return autoencoder(data)
    return MaskedViT(CONFIG, "mean colour", mean=tuple(data["mean"].tolist()), std=tuple(data["std"].tolist()))


def macs(way: str, data: Data) -> float:
    """Of one photograph's forward pass."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model_of(way, data)(torch.rand(64, 3, 32, 32))
    return counter.get_total_flops() / 2 / 64


def pretrained(
    way: str, share: float, rate: float, data: Data, seed: int, file: Path
) -> tuple[vt.ViT | None, int, float]:
    """The encoder, made once, with the number of photographs that it saw and their multiply-accumulates."""
    torch.manual_seed(seed)
    if way == "pixels":
        return None, 0, 0.0
    if way == "random":
        return vt.ViT(CONFIG), 0, 0.0
    model, flip, images = model_of(way, data), Flip(), data["train_images"]
    steps = round(macs("contrastive", data) * EPOCHS * len(images) * share / macs(way, data) / BATCH)
    spent = steps * BATCH * macs(way, data)
    if file.exists():
        model.encoder.load_state_dict(torch.load(file, weights_only=True))
        return model.encoder, steps * BATCH, spent
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), betas=(0.9, 0.95), fused=True)
    model.train()
    for step, rows in zip(range(steps), batches(images, BATCH, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 20))
        loss = model(flip(images[rows].float() / 255))
        descend(model, loss, optimizer)
        if (step + 1) % 200 == 0:
            print(f"{way}, rate {rate}, seed {seed}, step {step + 1} of {steps}: {loss.item():.3f}", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.encoder.state_dict(), file)
    return model.encoder, steps * BATCH, spent


@torch.inference_mode()
def tokens(encoder: vt.ViT | None, images: Tensor, data: Data) -> Tensor:
    """The mean of each photograph's patches, (B, D); without an encoder its pixels, (B, C·H·W)."""
    if encoder is None:
        return images.flatten(1).float() / 255
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    encoder.eval()
    return torch.cat([encoder.features((part.float() / 255 - mean) / std).mean(dim=1) for part in images.split(1000)])


def probe(X: dict[str, Tensor], data: Data, rows: Tensor, penalties: tuple[float, ...]) -> tuple[float, float]:
    """Accuracy on the photographs held out, by the best penalty, and on the test split."""
    tries = []
    for penalty in penalties:
        reader = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=500))
        reader.fit(X["train"], data["train_labels"][rows])
        tries.append((reader.score(X["validation"], data["validation_labels"]), penalty, reader))
    held, _, reader = max(tries, key=lambda each: each[:2])
    return held, reader.score(X["test"], data["test_labels"][::3])


def one(part: str, way: str, labels: tuple[int, ...], seed: int, rate: float, data: Data, out: Path) -> None:
    """A row per number of labels, unless they are there."""
    known = {tuple(row[column] for column in COLUMNS[:5]) for row in sheet.read(CSV)}
    missing = [each for each in labels if (part, way, str(each), str(seed), str(rate)) not in known]
    if not missing:
        return
    begin, share = time.process_time(), 0.25 if part == "rates" else 1.0
    encoder, seen, spent = pretrained(way, share, rate, data, seed, out / f"{way}-{share}-{rate}-{seed}.pt")
    pretraining = time.process_time() - begin
    held_out, tested = (
        tokens(encoder, images, data) for images in (data["validation_images"], data["test_images"][::3])
    )
    for each in missing:
        rows = few(data["train_labels"], each, seed)
        X = {"train": tokens(encoder, data["train_images"][rows], data), "validation": held_out, "test": tested}
        held, test = probe(X, data, rows, PENALTIES_OF_PIXELS if way == "pixels" else PENALTIES)
        numbers = [seen, f"{spent / 1e9:.0f}", f"{held:.4f}", "" if part == "rates" else f"{test:.4f}"]
        sheet.add(CSV, COLUMNS, [part, way, each, seed, rate, *numbers, f"{pretraining:.0f}"])


def held_out(way: str) -> dict[float, float]:
    """By rate: accuracy in percent on what was held out."""
    rows = [row for row in sheet.read(CSV) if (row["part"], row["way"]) == ("rates", way)]
    return dict(sorted((float(row["rate"]), 100 * float(row["held_out"])) for row in rows))


def best_rate(way: str) -> float:
    found = held_out(way)
    return max(found, key=lambda rate: found[rate]) if found else 0.0


def run(folder: str, out: Path, seeds: int) -> None:
    data = read(folder)
    for way in TASKS:
        tried = list(RATES)
        while True:  # further rates as long as the best lies at the edge of the grid
            for rate in tried:
                one("rates", way, (250,), 100, rate, data, out)
            best = best_rate(way)
            if min(tried) < best < max(tried):
                break
            tried.append(2 * best if best >= max(tried) else best / 2)
    for seed, way in itertools.product(range(seeds), WAYS):
        one("probe", way, LABELS, seed, best_rate(way), data, out)


def report() -> None:
    """Test accuracies of the probes, and the paired differences."""
    found: dict[str, dict[int, dict[str, float]]] = {way: {each: {} for each in LABELS} for way in WAYS}
    rows = sheet.read(CSV)
    for row in rows:
        if row["part"] == "probe":
            found[row["way"]][int(row["labels"])][row["seed"]] = 100 * float(row["test"])
    print("| test accuracy of a probe (%), labels per class | " + " | ".join(map(str, LABELS)) + " |")
    print("|---" * (len(LABELS) + 1) + "|")
    for way, by in found.items():
        print(f"| {way} | " + " | ".join(sheet.interval(list(by[each].values())) for each in LABELS) + " |")
    for way, rival in itertools.combinations(WAYS[::-1], 2):
        ours, theirs = found[way], found[rival]
        pairs = [[right - theirs[each][seed] for seed, right in ours[each].items()] for each in LABELS]
        print(f"| {way} less {rival} | " + " | ".join(map(sheet.interval, pairs)) + " |")
    for way in TASKS:
        print(f"\n{way}, rate: held out (%):", "  ".join(f"{r:g}: {held:.1f}" for r, held in held_out(way).items()))
    spent = sum(float(row["cpu_seconds"]) for row in rows if row["labels"] == "250") / 60
    print(f"\n{len(rows)} rows, {spent:.1f} CPU minutes of pretraining")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--out", type=Path, default=Path("runs/selfsup"), help="where the encoders are kept")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report()
    run(args.data, args.out, args.seeds)


if __name__ == "__main__":
    main()
