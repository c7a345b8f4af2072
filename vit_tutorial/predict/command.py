"""Lesson 09's command line: what is in photographs, and where the model looked.

``python -m vit_tutorial.predict PHOTO... --weights torchvision/vit_b_16 --attention looked.png``

Photographs are read by several threads, a few ahead of the model, which takes them in batches: so the memory that it
needs doesn't grow with their number.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from vit_tutorial.data.extras import counted, first_of, print_anything, progress, told
from vit_tutorial.predict.output import FORMATS, attention_png, titles_of, writer
from vit_tutorial.predict.photos import find, read
from vit_tutorial.predict.ranking import Judge, Prediction, best_device, predictions
from vit_tutorial.predict.sharing import Journals, place
from vit_tutorial.weights import load, load_pair
from vit_tutorial.weights.keeping import check_writable, shipped, write
from vit_tutorial.weights.messages import SEVERAL_LABELS, brief
from vit_tutorial.weights.model import Trained

PROG = "python -m vit_tutorial.predict"
CLIP = "openai/clip-vit-base-patch32"  # for --labels without --weights
MOST_DRAWN = 100  # photographs in the figure of --attention: with more, each would be too small to see


def parser(*, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's options."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Name what photographs show: the most likely classes, with their probabilities. A model of several "
        "labels at once judges each class alone, so its probabilities needn't add up to 1. The model runs on a GPU if "
        "torch finds one.",
        epilog="The figure of --attention shows the class token's attention, averaged over all layers and heads, the "
        "map that points best in lesson 08. A photograph that can't be read is named and skipped. Exit status: 0 if "
        "every photograph was read, 1 if one was skipped or after an error. Several processes share the photographs "
        "and write one table: accelerate launch -m vit_tutorial.predict ... --out answers.csv.",
    )
    p.add_argument(
        "photos",
        nargs="+",
        metavar="PHOTO",
        help='image files; folders, for all images in them and below; patterns such as "photos/*.jpg"',
    )
    p.add_argument(
        "--weights",
        metavar="NAME",
        help=f"{', '.join(shipped())}, which come with the package; a folder that training wrote; a file "
        "(.safetensors, .pth, .npz); or to download: torchvision/vit_b_16, timm/..., hf/..., google/....npz. With "
        f"--labels: {CLIP}, if none are named",
    )
    p.add_argument(
        "--labels",
        nargs="+",
        metavar="TEXT",
        help='of a model with a text tower (CLIP, SigLIP): texts to choose from, as typed: "a cat" "a dog". CLIP\'s '
        "probabilities sum to 1; SigLIP judges each text alone",
    )
    p.add_argument("--top", type=int, default=5, metavar="N", help="how many classes to name (default: 5)")
    p.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write a table instead, answers.csv or answers.jsonl: file, class, probability, rank",
    )
    p.add_argument(
        "--resume",
        action="store_true",
        help="with --out: go on where a run that was stopped left off, or begin; several processes always do",
    )
    p.add_argument(
        "--batch-size",
        type=int,
        default=16,
        metavar="N",
        help="photographs per step of the model; fewer need less memory (default: 16)",
    )
    p.add_argument(
        "--attention",
        type=Path,
        metavar="OUT.png",
        help=f"draw where the model looked, for up to {MOST_DRAWN} photographs",
    )
    return p


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Print a line per photograph and one per class below it, or write a table; draw the attention, if asked to."""
    options = parser(prog=prog)
    args = options.parse_args(arguments)
    if args.weights is None:
        if not args.labels:
            options.error("the following arguments are required: --weights")
        args.weights = CLIP
    print_anything()
    with told():
        try:
            skipped = run(args)
        except BrokenPipeError:  # whoever reads our lines has enough of them, as "head" has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
    if skipped:
        raise SystemExit(f"error: {len(skipped):,} skipped, the others were read: {first_of(skipped)}")


def run(args: argparse.Namespace) -> list[str]:
    """Do what the options ask for; returns a line for each photograph or name that was skipped.

    Raises:
        ValueError: options out of range, weights that can't be used, or not one readable photograph: nothing is
            written then.
        OSError: weights that can't be fetched, an output that can't be written.
    """
    _check(args)
    for path in (args.out, args.attention):
        if path:
            check_writable(path)
    files, skipped = find(args.photos)
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if args.attention and len(files) > MOST_DRAWN:
        raise ValueError(f"--attention draws at most {MOST_DRAWN} photographs, got {len(files):,}: choose some")
    if args.attention and args.attention.resolve() in [Path(file).resolve() for file in files]:
        raise ValueError(f"--attention {args.attention} is one of the photographs: name another file")
    if not files:
        raise ValueError(f"no photograph can be read: {first_of(skipped)}")
    args.batch_size = min(args.batch_size, len(files))
    if args.resume or place().processes > 1:
        return _shared(args, files, skipped)
    trained, judge = _trained(args)
    answered, seen = 0, []
    with (
        closing(read(files, trained.preprocess, ahead=2 * args.batch_size)) as images,
        writer(args.out) as show,
        _bar(len(files)) as bar,
    ):
        for prediction in predictions(images, trained, top=args.top, batch_size=args.batch_size, judge=judge):
            bar.update()
            if isinstance(prediction, ValueError):
                progress().write(f"skipped: {prediction}", file=sys.stderr)
                skipped.append(str(prediction))
                continue
            show(prediction.file, prediction.ranked)
            answered += 1
            if args.attention:
                seen.append(prediction)
        if not answered:
            raise ValueError(f"no photograph can be read: {first_of(skipped)}")
    if args.out:
        print(f"{counted(answered, 'photograph')}: {args.out}")
    if args.attention:
        write(args.attention, attention_png(trained, seen))
        numbered = [f", {title} is {brief(name)}" for name, title in titles_of(trained, seen).items() if title != name]
        print(f"where it looked: {args.attention}{''.join(numbered)}")
    return skipped


def _shared(args: argparse.Namespace, files: list[str], skipped: list[str]) -> list[str]:
    """Do the share of this process; the table, if this process is the last."""
    if args.out is None or args.attention:
        raise ValueError("several processes, and --resume, write one table: give --out FILE, and leave --attention out")
    options = {"weights": args.weights, "top": args.top} | ({"labels": args.labels} if args.labels else {})
    journals = Journals(args.out, files, options, place())
    if journals.complete():
        print(f"note: {args.out} is complete already: remove it to start again", file=sys.stderr)
        return skipped
    left = journals.left()
    if left:
        journals.begin()
        trained, judge = _trained(args)
        mine = [files[number] for number in left]
        with closing(read(mine, trained.preprocess, ahead=2 * args.batch_size)) as images, _bar(len(left)) as bar:
            found = predictions(images, trained, top=args.top, batch_size=args.batch_size, judge=judge)
            for number, prediction in zip(left, found, strict=True):
                bar.update()
                journals.add(number, prediction.ranked if isinstance(prediction, Prediction) else prediction)
                if isinstance(prediction, ValueError):
                    progress().write(f"skipped: {prediction}", file=sys.stderr)
    wrong = journals.merge()
    if wrong is not None:
        print(f"{counted(len(files) - len(wrong), 'photograph')}: {args.out}")
    return skipped + (wrong or [])


def _trained(args: argparse.Namespace) -> tuple[Trained, Judge | None]:
    """The model, and how it judges the texts of --labels."""
    judge: Judge | None = None
    if args.labels:
        pair = load_pair(args.weights)
        judge = partial(pair.probabilities, texts=pair.embed(args.labels))
        trained = Trained(pair.image, tuple(args.labels), pair.preprocess)
    else:
        trained = load(args.weights)
        if (answers := trained.assumed.get("answers", SEVERAL_LABELS)) != SEVERAL_LABELS:
            raise ValueError(f"{args.weights} can't name classes: its answers are {answers}")
    if not trained.classes:
        raise ValueError(
            f"{args.weights} has no head, so it can't name classes: use weights that were fine-tuned, or, if it has a "
            "text tower, give --labels to choose from"
        )
    trained.model.to(best_device())
    return trained, judge


def _bar(photographs: int) -> Any:
    return progress()(total=photographs, unit=" photographs", mininterval=0.1 if sys.stderr.isatty() else 30)


def _check(args: argparse.Namespace) -> None:
    """Raise a ValueError for options out of range, before anything is read."""
    for option, value in (("--top", args.top), ("--batch-size", args.batch_size)):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if args.out and args.out.suffix not in FORMATS:
        raise ValueError(f"--out writes {' or '.join(FORMATS)} files, got {args.out}")
    if args.attention and args.attention.suffix.lower() != ".png":
        raise ValueError(f"--attention writes a .png file, got {args.attention}")
    if args.attention:
        from vit_tutorial import plots  # noqa: F401  if Matplotlib is missing, that is said now
