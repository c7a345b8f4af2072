"""Lesson 13: what frozen features are worth when labels are few: the painter's, and rivals that need no network.

    python benchmarks/selfsup_features.py run --data cifar10-jpeg    resumable; some ten CPU minutes
    python benchmarks/selfsup_features.py report                     the tables

A logistic regression reads 10, 50 or 250 labelled photographs per class of CIFAR-10 by

- "pixels": the photograph as it is;
- "patch dictionary": how close each 6 x 6 patch lies to 400 typical ones, which k-means found in the 45,000 photographs
  that the painter learned from, averaged over each quarter of the photograph (Coates, Ng & Lee, AISTATS 2011);
- "random patches": the same with 400 of the patches, drawn at random, as words;
- "random ViT": the painter's encoder with random weights, other ones per seed;
- "painter": the painter's encoder.

The ViTs' block and pooling are chosen with 50 labels per class of a draw apart, the penalty for each row; both on 2,000
photographs held out. The seed draws the labelled photographs. The test split (every third) is looked at once per row.
One thread.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from cifar10 import few_of_each_class, read_cifar10
from result_table import ResultTable
from seeds import mean_with_interval
from sklearn.cluster import MiniBatchKMeans  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import selfsup

COLUMNS = ["part", "way", "reading", "labels", "seed", "penalty", "held_out", "test"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
LABELS, MOST = (10, 50, 250), 250  # per class
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # of features about 1 long
SIDE, WORDS = 6, 400  # of a patch, in the dictionary
READINGS = {
    "pixels": ("all",),
    "patch dictionary": ("quarters",),
    "random patches": ("quarters",),
    "random ViT": tuple(f"block {block}, {pool}" for block in (2, 4, 6) for pool in ("mean", "quarters")),
    "painter": tuple(f"block {block}, {pool}" for block in (2, 4, 6) for pool in ("mean", "quarters")),
}
Data = dict[str, Tensor]  # images and labels of each split
Features = dict[str, Tensor]  # {reading: (n, D)}


def quarters(maps: Tensor, side: int = 2) -> Tensor:
    """The mean of each quarter of (B, D, rows, columns): (B, 4 D); of the whole with side 1."""
    return F.adaptive_avg_pool2d(maps, side).flatten(1)


def patches(images: Tensor) -> Tensor:
    """Every patch of (B, 3, 32, 32) bytes, without its brightness and contrast: (B, 729, 108)."""
    x = F.unfold(images.float(), SIDE).transpose(1, 2)
    return (x - x.mean(dim=2, keepdim=True)) / (x.var(dim=2, keepdim=True) + 10).sqrt()


def dictionary(data: Data) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Of whitened patches, two of each photograph: their mean, what whitens them, {name: words (WORDS, 108)}."""
    torch.manual_seed(0)
    some = torch.cat([
        patches(part)[torch.arange(len(part))[:, None], torch.randint(729, (len(part), 2))].flatten(0, 1)
        for part in data["train_images"].split(1000)
    ])  # fmt: skip
    mean = some.mean(dim=0)
    values, vectors = torch.linalg.eigh((some - mean).T @ (some - mean) / len(some))
    white = vectors / (values + 0.1).sqrt() @ vectors.T  # (108, 108)
    some = (some - mean) @ white
    means = MiniBatchKMeans(WORDS, batch_size=4096, n_init=1, max_iter=30, random_state=0).fit(some)
    words = torch.from_numpy(means.cluster_centers_).float()
    return mean, white, {"patch dictionary": words, "random patches": some[torch.randperm(len(some))[:WORDS]]}


@torch.inference_mode()
def by_words(images: Tensor, mean: Tensor, white: Tensor, words: Tensor) -> Tensor:
    """max(0, mean distance less distance) of each patch to each word, by quarters: (B, 4 WORDS)."""
    maps = []
    for part in images.split(50):
        distance = torch.cdist((patches(part) - mean) @ white, words)  # (B, 729, WORDS)
        near = (distance.mean(dim=2, keepdim=True) - distance).clamp(min=0)
        maps.append(quarters(near.transpose(1, 2).unflatten(2, (27, 27))))
    return torch.cat(maps)


@torch.inference_mode()
def by_blocks(encoder: vt.ViT, images: Tensor, data: Data) -> Features:
    """The patches' tokens after three of the blocks, pooled in two ways."""
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    features: dict[str, list[Tensor]] = {reading: [] for reading in READINGS["painter"]}
    for part in images.split(250):
        with torch.autocast("cpu", torch.bfloat16):
            z = encoder.embed((part.float() / 255 - mean) / std)  # (B, 65, D)
            for number, block in enumerate(encoder.eval().blocks, 1):
                z = block(z)
                if number in (2, 4, 6):
                    maps = encoder.norm(z)[:, 1:].float().transpose(1, 2).unflatten(2, (8, 8))  # (B, D, 8, 8)
                    features[f"block {number}, mean"].append(quarters(maps, 1))
                    features[f"block {number}, quarters"].append(quarters(maps))
    return {reading: torch.cat(parts) for reading, parts in features.items()}


class Extractors:
    """Each contender's features of the photographs, those of no seed kept."""

    def __init__(self, data: Data) -> None:
        self.data, self.kept = data, {"validation": data["validation_images"][:2000], "test": data["test_images"][::3]}
        self.encoder, self.cache = selfsup.painter().encoder, dict[tuple[str, str], Features]()

    @cached_property
    def dictionary(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        return dictionary(self.data)

    def of(self, name: str, split: str, images: Tensor, seed: int) -> Features:
        if split in self.kept and name != "random ViT":
            if (name, split) not in self.cache:
                self.cache[name, split] = self.compute(name, images, seed)
            return self.cache[name, split]
        return self.compute(name, images, seed)

    def compute(self, name: str, images: Tensor, seed: int) -> Features:
        if name == "pixels":
            return {"all": images.flatten(1).float() / 255}
        if name in ("patch dictionary", "random patches"):
            mean, white, words = self.dictionary
            return {"quarters": by_words(images, mean, white, words[name])}
        if name == "painter":
            return by_blocks(self.encoder, images, self.data)
        torch.manual_seed(seed)
        return by_blocks(vt.ViT(self.encoder.config), images, self.data)

    def draw(self, name: str, seed: int) -> dict[str, Features]:
        """Of a seed's labelled photographs, of those held out, and of the test split."""
        known = self.data["train_images"][few_of_each_class(self.data["train_labels"], MOST, seed)]
        return {split: self.of(name, split, images, seed) for split, images in ({"train": known} | self.kept).items()}


def probe(X: dict[str, Tensor], each: int, seed: int, data: Data) -> Iterator[tuple[float, float, float]]:
    """(accuracy on those held out, penalty, test accuracy) by penalty, up to where it falls by a point.

    Features are standardised by all photographs of the draw, labelled or not, and scaled to a length of about 1.
    """
    mean, std = X["train"].mean(dim=0), X["train"].std(dim=0) + 1e-6
    x = {split: ((values - mean) / std / values.shape[1] ** 0.5).numpy() for split, values in X.items()}
    rows = torch.arange(10 * MOST).reshape(10, MOST)[:, :each].flatten()
    labels = data["train_labels"][few_of_each_class(data["train_labels"], MOST, seed)][rows]
    best = 0.0
    for penalty in PENALTIES:
        reader = LogisticRegression(C=penalty, max_iter=300, tol=1e-3).fit(x["train"][rows], labels)
        held = reader.score(x["validation"], data["validation_labels"][:2000])
        yield held, penalty, reader.score(x["test"], data["test_labels"][::3])
        best = max(best, held)
        if held < best - 0.01:
            return


def reading_of(name: str) -> str:
    """The block and the pooling that were best on the photographs held out."""
    if len(READINGS[name]) == 1:
        return READINGS[name][0]
    return max(RESULTS.rows(part="reading", way=name), key=lambda row: float(row["held_out"]))["reading"]


def run(folder: str, seeds: int, names: list[str]) -> None:
    data = read_cifar10(folder)
    extractors = Extractors(data)
    for name, seed in itertools.product(names, (100, *range(seeds))):
        if seed == 100 and len(READINGS[name]) == 1:
            continue
        part, counts = ("reading", (50,)) if seed == 100 else ("probe", LABELS)
        done = {tuple(row[column] for column in COLUMNS[:5]) for row in RESULTS.rows()}
        readings = READINGS[name] if seed == 100 else (reading_of(name),)
        keys = [(part, name, reading, str(each), str(seed)) for reading in readings for each in counts]
        if not set(keys) - done:
            continue
        X = extractors.draw(name, seed)
        for key in keys:
            if key not in done:
                one = {split: features[key[2]] for split, features in X.items()}
                held, penalty, test = max(probe(one, int(key[3]), seed, data), key=lambda triple: triple[0])
                RESULTS.add([*key, penalty, f"{held:.4f}", "" if seed == 100 else f"{test:.4f}"])


def report() -> None:
    """Test accuracies, and the painter's lead, paired by seed."""
    scores: dict[str, dict[int, dict[str, float]]] = {name: {each: {} for each in LABELS} for name in READINGS}
    for row in RESULTS.rows(part="probe"):
        scores[row["way"]][int(row["labels"])][row["seed"]] = 100 * float(row["test"])
    print("| test accuracy of a probe (%), labels per class | " + " | ".join(map(str, LABELS)) + " |")
    print("|---" * (len(LABELS) + 1) + "|")
    for name, by in scores.items():
        cells = (mean_with_interval(list(by[each].values())) for each in LABELS)
        print(f"| {name}: {reading_of(name)} | " + " | ".join(cells) + " |")
    for name, by in scores.items():
        if name != "painter":
            pairs = ([right - by[each][seed] for seed, right in scores["painter"][each].items()] for each in LABELS)
            print(f"| painter − {name} | " + " | ".join(map(mean_with_interval, pairs)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", nargs="+", default=list(READINGS), choices=list(READINGS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report()
    run(args.data, args.seeds, args.features)


if __name__ == "__main__":
    main()
