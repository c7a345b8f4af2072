"""Lesson 09's command line: what is in photographs, and where the model looked.

``vit-tutorial predict PHOTO... --weights torchvision/vit_b_16 --attention looked.png``

Photographs are read by several threads, a few ahead of the model, which takes them in batches: so the memory that it
needs doesn't grow with their number. Several processes each answer a part of the photographs into a table of their own;
the first one joins the tables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.data.files import atomic_file, check_writable, write
from vit_tutorial.data.text import brief, counted, first_of
from vit_tutorial.options.predict import PredictOptions
from vit_tutorial.options.processes import processes
from vit_tutorial.predict.features import write_features
from vit_tutorial.predict.output import attention_png, first_line, titles_of, writer
from vit_tutorial.predict.photos import find, read
from vit_tutorial.predict.probabilities import Classifier, PhotoPrediction, best_device, predictions
from vit_tutorial.weights import LoadedModel, load, load_pair

MAX_DRAWN = 100  # photographs in the figure of --attention: with more, each would be too small to see


def run(options: PredictOptions) -> None:
    """Print a line per photograph and one per class below it, or write a table; draw the attention, if asked to.

    Raises:
        ValueError: weights that can't be used, or not one readable photograph: nothing is written then.
        OSError: weights that can't be fetched, an output that can't be written.
    """
    files, skipped = find(options.photos)
    _check(options, files, skipped)
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    try:
        if options.features:
            write_features(options.features, load(options.model, num_classes=0), files, options.batch_size)
        elif processes().number > 1:
            _predict_in_several_processes(options, files, *processes())
        else:
            _predict_in_one_process(options, files, skipped)
    except BrokenPipeError:  # the reader closed the pipe, as "| head" does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check(options: PredictOptions, files: Sequence[str], skipped: Sequence[str]) -> None:
    """Raise now, before any work, what would be raised after it."""
    for path in (options.out, options.features, options.attention):
        if path:
            check_writable(path)
    if not files:
        raise ValueError(f"no photograph can be read: {first_of(skipped)}")
    if not options.attention:
        return
    if len(files) > MAX_DRAWN:
        raise ValueError(f"--attention draws at most {MAX_DRAWN} photographs, got {len(files):,}: choose some")
    if options.attention.resolve() in [Path(file).resolve() for file in files]:
        raise ValueError(f"--attention {options.attention} is one of the photographs: name another file")
    from vit_tutorial import plots  # noqa: F401  if Matplotlib is missing, that is said now


@dataclass
class Summary:
    """What became of the photographs."""

    number: int = 0  # that were answered
    drawn: list[PhotoPrediction] = field(default_factory=list)  # with --attention
    skipped: list[str] = field(default_factory=list)  # a line for each that can't be read


def _predict_in_one_process(options: PredictOptions, files: Sequence[str], missing: Sequence[str]) -> None:
    """Answer all photographs; ``missing`` are the names that stand for no file."""
    trained, classify = _load_model(options)
    summary = _predict(options, files, trained, classify, options.out)
    if options.out:
        print(f"{counted(summary.number, 'photograph')}: {options.out}")
    if options.attention:
        write(options.attention, attention_png(trained, summary.drawn))
        titles = titles_of(trained, summary.drawn).items()
        numbered = [f", {title} is {brief(name)}" for name, title in titles if title != name]
        print(f"where it looked: {options.attention}{''.join(numbered)}")
    if skipped := [*missing, *summary.skipped]:
        print(f"note: {len(skipped):,} skipped, the others were read: {first_of(skipped)}", file=sys.stderr)


def _predict_in_several_processes(options: PredictOptions, files: Sequence[str], rank: int, number: int) -> None:
    """Answer this process's part of the photographs; the first process joins the tables of all."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    if options.out is None or options.attention:
        raise ValueError("several processes write one table: give --out FILE, and leave --attention out")
    out, accelerator = options.out, Accelerator()
    tables = [out.with_name(f"{out.stem}.part-{process}{out.suffix}") for process in range(number)]
    part = files[rank * len(files) // number : (rank + 1) * len(files) // number]
    trained, classify = _load_model(options)
    _predict(options, part, trained, classify, tables[rank], may_be_empty=True)
    accelerator.wait_for_everyone()
    if rank == 0:
        _join(tables, out)
        print(f"{counted(len(files), 'photograph')}, but for those skipped: {out}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


def _join(tables: Sequence[Path], out: Path) -> None:
    """Write the tables one after another into ``out``, and remove them."""
    columns = first_line(out)
    with atomic_file(out) as joined:
        joined.write(columns)
        for table in tables:
            joined.write(table.read_bytes()[len(columns) :])
    for table in tables:
        table.unlink()


def _predict(
    options: PredictOptions,
    files: Sequence[str],
    trained: LoadedModel,
    classify: Classifier | None,
    out: Path | None,
    *,
    may_be_empty: bool = False,
) -> Summary:
    """Print the model's answers, or write them into the table ``out``, which appears when it is whole.

    Raises:
        ValueError: no photograph can be read, unless ``may_be_empty``.
    """
    summary = Summary()
    batch_size = max(min(options.batch_size, len(files)), 1)
    with (
        closing(read(files, trained.preprocess, ahead=2 * batch_size)) as images,
        writer(out) as show,
        tqdm(total=len(files), unit=" photographs", mininterval=0.1 if sys.stderr.isatty() else 30) as bar,
    ):
        for prediction in predictions(images, trained, top=options.top, batch_size=batch_size, classify=classify):
            bar.update()
            if isinstance(prediction, ValueError):
                tqdm.write(f"skipped: {prediction}", file=sys.stderr)
                summary.skipped.append(str(prediction))
                continue
            show(prediction.file, prediction.ranked)
            summary.number += 1
            if options.attention:
                summary.drawn.append(prediction)
        if not summary.number and not may_be_empty:
            raise ValueError(f"no photograph can be read: {first_of(summary.skipped)}")
    return summary


def _load_model(options: PredictOptions) -> tuple[LoadedModel, Classifier | None]:
    """The model, and how it judges the texts of --labels."""
    classify: Classifier | None = None
    if options.labels:
        pair = load_pair(options.model)
        classify = partial(pair.probabilities, texts=pair.embed(list(options.labels)))
        trained = LoadedModel(pair.image, tuple(options.labels), pair.preprocess)
    else:
        trained = load(options.model)
    if not trained.classes:
        raise ValueError(
            f"{options.model} has no head with named classes: use weights that were fine-tuned, or, if it has a text "
            "tower, give --labels to choose from"
        )
    if not options.labels and len(trained.classes) == 1:
        raise ValueError(f"{options.model} has one answer, a number, and no classes to choose from")
    trained.model.to(best_device())
    return trained, classify
