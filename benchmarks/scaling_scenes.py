"""Lesson 14's series: five sizes of a plain ViT, each trained at several budgets, on generated scenes.

    python benchmarks/scaling_scenes.py rates      each size's learning rate, by scenes held out
    python benchmarks/scaling_scenes.py before     every size at every small budget, two seeds
    python benchmarks/scaling_scenes.py predict    what the largest budget will reach, before it runs
    python benchmarks/scaling_scenes.py largest    the largest budget, five seeds

An image is a window of 32 pixels around the target of one of lesson 08's scenes; the answer is its figure.
A budget is what all forward passes of a run cost together, in billions of multiply-accumulates, so a size of twice
the cost sees half as many images. There are 90,000 scenes; once a run is through them they come again, mirrored, then
shifted. At the largest budget 8 x 1 sees each at least five times, 16 x 1 at least twice, the others at most once.
Of 4,000 scenes of another seed the first 2,000 give "loss" and "accuracy", by which rates were chosen and the largest
budget was predicted; the other 2,000 give "unseen_loss" and "unseen_accuracy", and chose nothing. The rows "before" are
those that the prediction in scaling_scenes.json rested on; the largest budget's are called "curves".
A row per run goes to scaling_scenes.csv as soon as it is done; rows that are there are not run again. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from result_table import ResultTable
from seeds import best_of_growing_grid
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.analysis import scaling
from vit_tutorial.data import scenes

PREDICTION = Path(__file__).with_suffix(".json")
MEASURED = ["loss", "accuracy", "unseen_loss", "unseen_accuracy"]
COLUMNS = ["part", "size", "budget", "rate", "seed", "parameters", "macs", "images", *MEASURED, "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
# width x depth
SIZES = {"8 x 1": (8, 1), "16 x 1": (16, 1), "24 x 2": (24, 2), "40 x 2": (40, 2), "64 x 3": (64, 3)}
BUDGETS = (0.7, 2.0, 6.0)  # billions of multiply-accumulates
LARGEST = 18.0
RATES = (8e-3, 1.6e-2, 3.2e-2)  # to begin with
RATES_SEED = 100
RATES_AT = {"16 x 1": 6.0}  # its best at 2 G, 0.128, is too large for longer runs
RATES_ELSE = 2.0
BATCH = 64
WINDOW, POOL, HELD, CHOOSE = 32, 90_000, 4_000, 2_000  # pixels; scenes to train on; held out, the first to choose by


def config_of(size: str) -> vt.ViTConfig:
    dim, depth = SIZES[size]
    return vt.ViTConfig(
        image_size=WINDOW, patch_size=8, num_classes=8, dim=dim, depth=depth, num_heads=max(1, dim // 8),
        mlp_dim=2 * dim, pool="mean", position="sincos",
    )  # fmt: skip


def windows(seed: tuple[int, int], n: int) -> tuple[Tensor, Tensor]:
    """A window around each scene's target, off its centre by up to 4 pixels: (n, 3, 32, 32) uint8, and labels (n,)."""
    images, labels, masks = scenes.draw(seed, n)
    off = np.random.RandomState(seed).randint(-4, 5, (n, 2))
    cut = np.empty((n, 3, WINDOW, WINDOW), np.uint8)
    for i in range(n):
        rows, columns = masks[i].nonzero()
        middle = np.array([rows.mean(), columns.mean()]).round().astype(int) + off[i]
        top, left = (middle - WINDOW // 2).clip(0, 64 - WINDOW)
        cut[i] = images[i, :, top : top + WINDOW, left : left + WINDOW]
    return torch.from_numpy(cut), torch.from_numpy(labels)


def pool(kept: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The scenes to train on and those held out, made once."""
    if not kept.exists():
        parts = [windows((100, chunk), 5000) for chunk in range(POOL // 5000)]
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save([torch.cat(part) for part in zip(*parts, strict=True)] + list(windows((101, 0), HELD)), kept)
    images, labels, held, truth = torch.load(kept, weights_only=True)
    return images, labels, held, truth


def normalised(images: Tensor) -> Tensor:
    """Bytes to about [-2, 2]: most of a scene is dark."""
    return (images.float() / 255 - 0.3) / 0.2


def again(pixels: Tensor, times: int) -> Tensor:
    """Images (B, 3, 32, 32) as they are, the second time mirrored, then shifted by so many pixels, and so on."""
    shift = times // 2
    pixels = F.pad(pixels.float(), (0, shift, 0, shift), mode="replicate")[..., shift:, shift:]
    return pixels.flip(-1) if times % 2 else pixels


def one(part: str, size: str, budget: float, rate: float, seed: int, data: tuple[Tensor, ...]) -> None:
    """One row, unless it is there: so many steps as the budget pays for, a warm-up, a cosine."""
    known = [part, size, budget, rate, seed]
    if RESULTS.rows(part=part, size=size, budget=budget, rate=rate, seed=seed):
        return
    config, begin = config_of(size), time.process_time()
    macs = vt.count_macs(config)
    steps = round(budget * 1e9 / macs / BATCH)
    images, labels, held, truth = data
    start = 30_011 * seed % len(images)  # another seed begins elsewhere in the pool
    places = torch.arange(start, start + steps * BATCH)
    torch.manual_seed(seed)
    model = vt.ViT(config)
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    model.train()
    for step, rows in enumerate(places.split(BATCH)):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=max(1, steps // 10)))
        rows = rows % len(images)
        pixels = again(images[rows], ((step + 1) * BATCH - 1) // len(images))
        loss = F.cross_entropy(model(normalised(pixels)), labels[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(normalised(batch)) for batch in held.split(500)])
    measured = []
    for some in (slice(CHOOSE), slice(CHOOSE, None)):
        lost, right = F.cross_entropy(logits[some], truth[some]), (logits[some].argmax(1) == truth[some]).float().mean()
        measured += [f"{lost:.4f}", f"{right:.4f}"]
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    numbers = [parameters, macs, steps * BATCH, *measured, f"{time.process_time() - begin:.1f}"]
    RESULTS.add([*known, *numbers])


def tried_rates(size: str) -> dict[float, float]:
    """The loss of each rate that was tried."""
    rows = RESULTS.rows(part="rates", size=size, budget=RATES_AT.get(size, RATES_ELSE))
    return {float(row["rate"]): float(row["loss"]) for row in rows}


def tune(size: str, data: tuple[Tensor, ...]) -> None:
    """Try rates, and further ones as long as the best lies at the edge of the grid."""

    def score(rate: float) -> float:
        one("rates", size, RATES_AT.get(size, RATES_ELSE), rate, RATES_SEED, data)
        return -tried_rates(size)[rate]

    best_of_growing_grid(RATES, score, lambda best, side: best * 2.0**side)


def best_rate(size: str) -> float:
    """The rate with the smallest loss at the budget where rates were tried."""
    found = tried_rates(size)
    if not found:
        raise SystemExit("run `rates` first")
    return min(found, key=lambda rate: found[rate])


def predict() -> None:
    """Fit the law to the best size of each small budget, and write down what the largest budget will reach."""
    if PREDICTION.exists():
        raise SystemExit(f"{PREDICTION.name} is written: a prediction isn't changed afterwards")
    losses: dict[float, dict[str, list[float]]] = {}
    for row in RESULTS.rows(part="before"):
        losses.setdefault(float(row["budget"]), {}).setdefault(row["size"], []).append(float(row["loss"]))
    best = {budget: min(by, key=lambda size: statistics.mean(by[size])) for budget, by in losses.items()}
    pairs = [(budget, loss) for budget, size in best.items() for loss in losses[budget][size]]
    found = scaling.predict([budget for budget, _ in pairs], [loss for _, loss in pairs], LARGEST)
    # If the best size grows with the budget, a straight line through the logarithms says which one comes next.
    macs = [vt.count_macs(config_of(size)) for size in best.values()]
    slope, intercept = np.polyfit(np.log(list(best)), np.log(macs), 1)
    wanted = float(np.exp(intercept + slope * np.log(LARGEST)))
    size = min(SIZES, key=lambda size: abs(np.log(vt.count_macs(config_of(size)) / wanted)))
    predicted = {
        "budget": LARGEST,
        "size": size,
        "best": {str(budget): name for budget, name in best.items()},
        "runs": len(pairs),
        "law": {name: round(value, 4) for name, value in vars(found.law).items()},
        "loss": round(found.loss, 4),
        "run_interval": [round(value, 4) for value in found.run],
        "exponent_interval": [round(value, 2) for value in found.exponent],
        "floor_interval": [round(value, 3) for value in found.floor],
    }
    PREDICTION.write_text(json.dumps(predicted, indent=1) + "\n")
    print(PREDICTION.read_text("utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rates", "before", "predict", "largest"])
    parser.add_argument("--pool", type=Path, default=Path("runs/scenes.pt"), help="where the scenes are kept")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "predict":
        return predict()
    if args.what == "largest" and not PREDICTION.exists():
        raise SystemExit("run `predict` first: what is predicted must stand in scaling_scenes.json beforehand")
    data = pool(args.pool)
    if args.what == "rates":
        for size in SIZES:
            tune(size, data)
    elif args.what == "before":
        for seed, budget, size in itertools.product(range(2), BUDGETS, SIZES):
            one("before", size, budget, best_rate(size), seed, data)
    else:
        for seed, size in itertools.product(range(5), SIZES):
            one("curves", size, LARGEST, best_rate(size), seed, data)


if __name__ == "__main__":
    main()
