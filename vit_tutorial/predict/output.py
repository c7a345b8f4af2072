"""Where predictions go: lines on the screen, a table, a figure of where the model looked."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.analysis import explain
from vit_tutorial.data import denormalise
from vit_tutorial.data.files import atomic_file
from vit_tutorial.data.text import brief
from vit_tutorial.predict.probabilities import PhotoPrediction, Ranked
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.weights import LoadedModel


def as_text(file: str, ranked: Ranked) -> str:
    """A line for the photograph and one per class below it."""
    rows = [f"  {probability:6.1%}  {brief(name)}" for name, probability in ranked]
    return "\n".join([brief(file), *rows, ""])


def as_csv(file: str, ranked: Ranked) -> str:
    """A line per class: file, class, probability (six digits), rank (from 1)."""
    lines = io.StringIO()
    rows = ((file, name, f"{p:.6g}", place) for place, (name, p) in enumerate(ranked, start=1))
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()


def as_jsonl(file: str, ranked: Ranked) -> str:
    """A line per class, each an object with the columns of :func:`as_csv` as its keys."""
    rows = (
        {"file": file, "class": name, "probability": float(f"{p:.6g}"), "rank": place}
        for place, (name, p) in enumerate(ranked, start=1)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def first_line(table: Path) -> bytes:
    """What a table begins with: the names of the columns, or in .jsonl nothing."""
    return b"file,class,probability,rank\n" if table.suffix == ".csv" else b""


@contextmanager
def writer(out: Path | None) -> Iterator[Callable[[str, Ranked], None]]:
    """A function that prints a photograph's classes, or writes them to ``out``, which appears when it is whole."""

    def print_row(file: str, ranked: Ranked) -> None:
        tqdm.write(as_text(file, ranked), end="")
        sys.stdout.flush()

    if out is None:
        yield print_row
        return
    as_lines = as_csv if out.suffix == ".csv" else as_jsonl
    with atomic_file(out) as lines:
        lines.write(first_line(out))

        def write_row(file: str, ranked: Ranked) -> None:
            lines.write(as_lines(file, ranked).encode(errors="backslashreplace"))  # a file's name may hold any bytes

        yield write_row


def titles_of(trained: LoadedModel, seen: Sequence[PhotoPrediction]) -> dict[str, str]:
    """What the figure calls the most likely classes: by name, or by number where it can't write the name."""
    from vit_tutorial.plots.style import writable

    names = dict(zip(trained.classes, writable(trained.classes), strict=True))
    return {prediction.ranked[0][0]: names[prediction.ranked[0][0]] for prediction in seen}


@torch.inference_mode()
def attention_png(trained: LoadedModel, seen: Sequence[PhotoPrediction]) -> bytes:
    """A PNG: the photographs as the model gets them, titled with their most likely classes, above its attention."""
    from vit_tutorial import plots  # matplotlib takes half a second to load

    model, _, preprocess = trained
    device, heat = next(model.parameters()).device, []
    for prediction in seen:  # one by one: the maps of all layers and heads are many times as large as the image
        maps = model.attention_maps(prediction.image.to(device))  # {layer: (1, h, T, T)}
        prefix = model.config.prefix_tokens
        if isinstance(model.config, ModernConfig) and not model.config.class_tokens:  # registers lie nowhere
            maps, prefix = {layer: weights[..., prefix:, prefix:] for layer, weights in maps.items()}, 0
        by_head = explain.class_attention(maps, model.config.grid, prefix_tokens=prefix)
        heat.append(by_head.mean(dim=(0, 1, 2)).cpu())  # (rows, columns)
    images = denormalise(torch.cat([prediction.image for prediction in seen]), preprocess)  # (B, C, H, W)
    by_label = titles_of(trained, seen)
    titles = [by_label[prediction.ranked[0][0]] for prediction in seen]
    figure = plots.light_maps(list(images), {"attention": heat}, titles, height=2.4)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
