"""Lesson 07: what a trained model gets wrong: a confusion matrix as a table and a picture, and a page of mistakes."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vit_tutorial.data import Data
from vit_tutorial.data.files import write
from vit_tutorial.data.text import brief, counted
from vit_tutorial.train.evaluation import predict

WORST = 10  # mistakes on the page
MAX_DRAWN = 30  # classes in the picture of the matrix: with more, nobody could read it
MAX_LINES = 20  # classes in the text
PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The worst mistakes on {name}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
ol {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: 1.5rem; padding: 0; }}
li {{ list-style: none; overflow-wrap: anywhere; }}
img {{ width: 100%; image-rendering: pixelated; border-radius: 4px; }}
</style>
<h1>The worst mistakes on {name}</h1>
<p>{summary}</p>
<ol>
{mistakes}
</ol>
</html>
"""


class Report(NamedTuple):
    """How a model did on the test split."""

    counts: Tensor  # (K, K), int64: row the true class, column the model's answer
    mistakes: list[tuple[int, int, float]]  # (place in the split, answer, its probability), the surest first


def measure(model: nn.Module, data: Data, batch_size: int = 256) -> Report:
    """What ``model`` answers for the test split of ``data``."""
    logits, labels = predict(model, data, batch_size=batch_size)  # (N, K), (N,)
    K = len(data.classes)
    sure, answers = logits.float().softmax(dim=1).max(dim=1)  # (N,), (N,)
    counts = torch.bincount(K * labels + answers, minlength=K * K).view(K, K)
    wrong = (answers != labels).nonzero().flatten()
    order = wrong[sure[wrong].argsort(descending=True, stable=True)][:WORST]
    return Report(counts, [(int(i), int(answers[i]), float(sure[i])) for i in order])


def accuracy(report: Report) -> str:
    """The accuracy and its 95 % interval: where the accuracy on many more such images may lie."""
    right, images = int(report.counts.diagonal().sum()), int(report.counts.sum())
    low, high = interval(right, images)
    return f"{right / images:.2%} ({right} of {counted(images, 'image')}, 95 % interval {low:.1%} to {high:.1%})"


def interval(right: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an accuracy (1927), which holds for few images, and near 0 and 1, too."""
    rate, z = right / images, 1.96
    middle = rate + z**2 / (2 * images)
    half = z * math.sqrt(rate * (1 - rate) / images + z**2 / (4 * images**2))
    low, high = ((middle + end) / (1 + z**2 / images) for end in (-half, half))
    return max(low, 0.0), min(high, 1.0)


def lines(report: Report, classes: Sequence[str]) -> str:
    """A line per class that has images: how many of them are right; of more than 20 classes, the worst."""
    total, right = report.counts.sum(dim=1), report.counts.diagonal()  # (K,), (K,)
    accuracies = right / total.clamp(min=1)
    places = total.nonzero().flatten().tolist()
    head = "right, by class:"
    if len(places) > MAX_LINES:
        head = f"right, by class, the {MAX_LINES} worst of {len(places)}:"
        places = sorted(places, key=lambda place: float(accuracies[place]))[:MAX_LINES]
    names = [brief(name) for name in classes]
    width = max(len(names[k]) for k in places)
    rows = [f"  {names[k]:{width}}  {accuracies[k]:6.1%}  {right[k]} of {total[k]}" for k in places]
    return "\n".join([head, *rows])


def save(folder: str | Path, report: Report, data: Data) -> list[str]:
    """Write confusion.csv, confusion.png (of up to 30 classes) and mistakes.html; the names of the files.

    Where the font lacks a letter of a class's name, the figure shows its number; confusion.csv has both.
    """
    from vit_tutorial import plots
    from vit_tutorial.plots.style import writable

    out, table, names = Path(folder), io.StringIO(), ["confusion.csv", "mistakes.html"]
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["number", "true class", *data.classes, "right"])
    for k, name in enumerate(data.classes):
        total = int(report.counts[k].sum())
        rows.writerow([k + 1, name, *report.counts[k].tolist(), f"{int(report.counts[k, k]) / max(total, 1):.4f}"])
    write(out / "confusion.csv", table.getvalue().encode())
    write(out / "mistakes.html", page(report, data).encode())
    if len(data.classes) <= MAX_DRAWN:
        picture, height = io.BytesIO(), max(4.6, 0.45 * len(data.classes))
        plots.confusion(report.counts, writable(data.classes), height=height).savefig(picture)
        write(out / "confusion.png", picture.getvalue())
        names.append("confusion.png")
    return names


def page(report: Report, data: Data) -> str:
    """The surest mistakes as a page that needs no other file: each picture as the model got it, and both names."""
    from vit_tutorial.plots.showing import uri

    wrong = int(report.counts.sum() - report.counts.diagonal().sum())
    summary = f"{counted(wrong, 'mistake')} in {counted(len(data.test), 'test image')}."
    if wrong > WORST:
        summary += f" These are the {WORST} the model was most sure of."
    items = []
    for place, answer, sure in report.mistakes:
        image, label = data.test[place]  # (C, H, W)
        file = data.test_files[place] if data.test_files else f"test image {place}"
        file, right, said = (html.escape(text) for text in (file, data.classes[label], data.classes[answer]))
        source = uri(image.permute(1, 2, 0).expand(-1, -1, 3).numpy())
        picture = f'<img src="{source}" alt="{right}, taken for {said}">'
        items.append(f"<li>{picture}<br>{file}<br>is <b>{right}</b>, the model says <b>{said}</b> ({sure:.1%})</li>")
    return PAGE.format(name=html.escape(data.name), summary=summary, mistakes="\n".join(items))
