"""Lesson 09's command line: what is in photographs, and where the model looked.

``python -m vit_tutorial.predict PHOTO... --weights torchvision/vit_b_16 --attention looked.png``

Photographs are read by several threads, a few ahead of the model, which takes them in batches: so the memory that it
needs doesn't grow with their number.
"""

from __future__ import annotations

import argparse
import csv
import glob
import io
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.analysis import explain
from vit_tutorial.data import Preprocessing, denormalise
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.weights import load
from vit_tutorial.weights.keeping import replacing, write
from vit_tutorial.weights.model import Trained

PROG = "python -m vit_tutorial.predict"
# What a folder is searched for; a file that is named itself may have any name.
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".ppm", ".pgm")
THREADS = min(os.cpu_count() or 1, 8)  # that read photographs; each may hold a whole one, 36 MB for 12 megapixels
MOST_DRAWN = 100  # photographs in the picture of --attention: beyond, nobody sees anything on it

Ranked: TypeAlias = list[tuple[str, float]]  # (class, probability), the likeliest first


class Answer(NamedTuple):
    """What the model says to one photograph."""

    file: str
    picture: Tensor  # (1, C, H, W), as the model gets it
    ranked: Ranked


def parser(*, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line: photographs, weights, how many classes, where the answers go, a picture of the attention."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Name what photographs show: the most likely classes, with their probabilities. The model runs on "
        "a GPU if torch finds one.",
        epilog="The pictures of --attention show the class token's attention, averaged over all layers and heads: of "
        "the maps that lesson 08 scores, the one that points best. A photograph that can't be read is named and "
        "skipped. Exit status: 0 if every photograph was read, 1 if one was skipped or after an error.",
    )
    p.add_argument(
        "photos",
        nargs="+",
        metavar="PHOTO",
        help='picture files; folders, with all pictures in them and below; patterns such as "photos/*.jpg"',
    )
    p.add_argument(
        "--weights",
        required=True,
        metavar="NAME",
        help="digits or shapes, which come with the package; a folder that training wrote; a file (.safetensors, .pth, "
        ".npz); or to download: torchvision/vit_b_16, timm/..., hf/..., google/....npz",
    )
    p.add_argument("--top", type=int, default=5, metavar="N", help="how many classes to name (default: 5)")
    p.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the answers to answers.csv or answers.jsonl instead: file, class, probability, rank",
    )
    p.add_argument(
        "--batch-size",
        type=int,
        default=16,
        metavar="N",
        help="photographs that the model gets at a time; fewer need less memory (default: 16)",
    )
    p.add_argument(
        "--attention", type=Path, metavar="OUT.png", help=f"a picture of where the model looked, in up to {MOST_DRAWN}"
    )
    return p


# ------------------------------------------------------------------------------------------------- finding, reading


def find(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The picture files that files, folders and patterns stand for.

    Args:
        names: files, taken as they are; folders, for the files in them and below whose names end like a picture's
            (hidden ones are passed over); patterns as ``glob`` knows them, for shells that leave them as they are.

    Returns:
        The files, in the order of the names, those of a folder or a pattern sorted; and a line for each name that
        stands for no file.
    """
    files: list[str] = []
    wrong: list[str] = []
    for name in names:
        # The same of pathlib take no absolute pattern, but hidden files, and raise for a name that is too long.
        found = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))  # noqa: PTH110, PTH207
        if not found:
            wrong.append(f"{name} isn't there")
        for match in found:
            inside = _pictures_in(Path(match)) if Path(match).is_dir() else [match]
            files += inside
            if not inside:
                wrong.append(f"{match} holds no picture (no file that ends in {', '.join(SUFFIXES)})")
    return files, wrong


def _pictures_in(folder: Path) -> list[str]:
    visible = (path for path in folder.rglob("*") if not any(p.startswith(".") for p in path.relative_to(folder).parts))
    pictures = (path for path in visible if path.suffix.lower() in SUFFIXES)
    return sorted(str(path) for path in pictures if path.is_file() or path.is_symlink())  # a link to nowhere is named


def open_photo(path: str) -> Image.Image:
    """The picture, turned upright as EXIF says. Raises ValueError that names a file which is none."""
    try:
        with Image.open(path) as opened:
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            return opened
    except FileNotFoundError:
        raise ValueError(f"{path} isn't there") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        raise ValueError(f"{path} is no picture, or damaged ({' '.join(str(error).split())})") from error


def read(
    files: Iterable[str], preprocess: Preprocessing, ahead: int
) -> Generator[tuple[str, Tensor | ValueError], None, None]:
    """Each file with its picture, (1, C, H, W) normalised, or with what is wrong with it, in the order of ``files``.

    Several threads read; at most ``ahead`` pictures wait for the one who asks for them.
    """

    def one(path: str) -> Tensor | ValueError:
        try:
            return preprocess(open_photo(path))
        except Exception as error:  # whatever it is, it is this picture's; the others can be answered
            text = " ".join(str(error).split()) or type(error).__name__
            return ValueError(text if path in text else f"{path} can't be used ({text})")

    rest = iter(files)
    waiting: deque[tuple[str, Future[Tensor | ValueError]]] = deque()
    # Else each of them would start threads of torch's own, which take the cores from the model's.
    pool = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for path in islice(rest, ahead):
            waiting.append((path, pool.submit(one, path)))
        while waiting:
            path, future = waiting.popleft()
            yield path, future.result()
            for following in islice(rest, 1):
                waiting.append((following, pool.submit(one, following)))
    finally:
        pool.shutdown(cancel_futures=True)


# ------------------------------------------------------------------------------------------------ answering, writing


def best_device() -> torch.device:
    """CUDA's or Apple's GPU, if torch finds one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def answers(
    pictures: Iterable[tuple[str, Tensor | ValueError]], trained: Trained, *, top: int, batch_size: int
) -> Iterator[Answer | ValueError]:
    """The model's answer for each of the pictures, or what was wrong with it, in their order.

    Args:
        pictures: files, each with its picture (1, C, H, W), normalised, as :func:`read` gives them.
        trained: the model, on the device that it shall run on, and the names of its classes.
        top: how many classes; all of them if there are fewer.
        batch_size: how many pictures the model gets at a time.
    """
    pictures = iter(pictures)
    while chunk := list(islice(pictures, batch_size)):
        good = [picture for _, picture in chunk if isinstance(picture, Tensor)]
        ranked = iter(rank(trained, torch.cat(good), top) if good else ())
        for file, picture in chunk:
            yield Answer(file, picture, next(ranked)) if isinstance(picture, Tensor) else picture


@torch.inference_mode()
def rank(trained: Trained, images: Tensor, top: int) -> list[Ranked]:
    """The ``top`` likeliest classes of each of the images, (B, C, H, W) normalised; of equal ones the first."""
    device = next(trained.model.parameters()).device
    probabilities = trained.model(images.to(device)).softmax(dim=-1).cpu()  # (B, K)
    best, order = (x[:, :top].tolist() for x in probabilities.sort(descending=True, stable=True))  # (B, N)
    return [
        [(trained.classes[index], value) for index, value in zip(indices, values, strict=True)]
        for indices, values in zip(order, best, strict=True)
    ]


def as_text(file: str, ranked: Ranked) -> str:
    """A line for the photograph and one a class below it."""
    return f"{file}\n" + "".join(f"  {probability:6.1%}  {name}\n" for name, probability in ranked)


def as_csv(file: str, ranked: Ranked) -> str:
    """A line a class: file, class, probability (six digits), rank (from 1)."""
    lines = io.StringIO()
    rows = ((file, name, f"{p:.6g}", place) for place, (name, p) in enumerate(ranked, start=1))
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()


def as_jsonl(file: str, ranked: Ranked) -> str:
    """A line a class, each an object with the columns of :func:`as_csv` as its keys."""
    rows = (
        {"file": file, "class": name, "probability": float(f"{p:.6g}"), "rank": place}
        for place, (name, p) in enumerate(ranked, start=1)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMATS: dict[str, tuple[str, Callable[[str, Ranked], str]]] = {  # suffix of --out: (first line, of one photograph)
    ".csv": ("file,class,probability,rank\n", as_csv),
    ".jsonl": ("", as_jsonl),
}


@contextmanager
def answers_to(out: Path | None) -> Iterator[Callable[[str, Ranked], None]]:
    """What shows one photograph's answer: prints it, or writes it to a file that is there when all are."""

    def print_it(file: str, ranked: Ranked) -> None:
        tqdm.write(_printable(as_text(file, ranked)), end="")
        sys.stdout.flush()

    if out is None:
        yield print_it
        return
    first, form = FORMATS[out.suffix]
    with replacing(out) as lines:
        lines.write(first.encode())

        def write_it(file: str, ranked: Ranked) -> None:
            lines.write(form(file, ranked).encode(errors="backslashreplace"))  # a name may hold bytes that are no text

        yield write_it


def _printable(text: str) -> str:
    """With escapes for what the terminal has no letters for, and for bytes in a file's name that are no text."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@torch.inference_mode()
def where_it_looked(trained: Trained, seen: Sequence[Answer]) -> bytes:
    """A PNG: the photographs as the model gets them, titled with its first answers, and below them its attention."""
    from vit_tutorial import plots  # matplotlib takes half a second to load

    model, _, preprocess = trained
    device, heat = next(model.parameters()).device, []
    for answer in seen:  # one by one: the maps of all layers and heads are many times as large as the picture
        maps = model.attention_maps(answer.picture.to(device))  # {layer: (1, h, T, T)}
        prefix = model.config.prefix_tokens
        if isinstance(model.config, ModernConfig) and not model.config.class_token:  # registers stand for nothing
            maps, prefix = {layer: weights[..., prefix:, prefix:] for layer, weights in maps.items()}, 0
        pictures = explain.class_attention(maps, model.config.grid, prefix_tokens=prefix)
        heat.append(pictures.mean(dim=(0, 1, 2)).cpu())  # (rows, columns)
    images = denormalise(torch.cat([answer.picture for answer in seen]), preprocess)  # (B, C, H, W)
    titles = [answer.ranked[0][0] for answer in seen]
    figure = plots.overlays(list(images), {"attention": heat}, titles, height=2.4)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


# ----------------------------------------------------------------------------------------------------- command line


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Print a line a photograph and one a class below it, or write them; draw the picture, if asked for."""
    args = parser(prog=prog).parse_args(arguments)
    try:
        skipped = run(args)
    except BrokenPipeError:  # who reads our lines has enough of them, as "head" has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
    if skipped:
        raise SystemExit(f"error: {len(skipped):,} skipped, all others are answered: {_first(skipped)}")


def run(args: argparse.Namespace) -> list[str]:
    """Do what the options ask for; returns a line for each photograph, or name of some, that was skipped.

    Raises:
        ValueError: options that nothing can be made of, weights that can't be used, or not one photograph to answer
            for: nothing was written then.
        OSError: weights that can't be got, an output that can't be written.
    """
    _check(args)
    files, skipped = find(args.photos)
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if args.attention and len(files) > MOST_DRAWN:
        raise ValueError(f"--attention draws at most {MOST_DRAWN} photographs, got {len(files):,}: choose some")
    if not files:
        raise ValueError(f"there is no photograph to answer for: {_first(skipped)}")
    trained = load(args.weights)
    if not trained.classes:
        raise ValueError(f"{args.weights} has no head, so it names no classes: use weights that were fine-tuned")
    trained.model.to(best_device())
    answered, seen = 0, []
    with (
        closing(read(files, trained.preprocess, ahead=2 * args.batch_size)) as pictures,
        answers_to(args.out) as show,
        tqdm(total=len(files), unit=" photographs", mininterval=0.1 if sys.stderr.isatty() else 30) as bar,
    ):
        for answer in answers(pictures, trained, top=args.top, batch_size=args.batch_size):
            bar.update()
            if isinstance(answer, ValueError):
                tqdm.write(f"skipped: {answer}", file=sys.stderr)
                skipped.append(str(answer))
                continue
            show(answer.file, answer.ranked)
            answered += 1
            if args.attention:
                seen.append(answer)
        if not answered:
            raise ValueError(f"there is no photograph to answer for: {_first(skipped)}")
    if args.out:
        print(f"{answered:,} photographs: {args.out}")
    if args.attention:
        write(args.attention, where_it_looked(trained, seen))
        print(f"where it looked: {args.attention}")
    return skipped


def _first(lines: Sequence[str], limit: int = 5) -> str:
    return "; ".join(lines[:limit]) + (f"; and {len(lines) - limit:,} more" if len(lines) > limit else "")


def _check(args: argparse.Namespace) -> None:
    """Raise a ValueError for options that nothing can be made of, before anything is read."""
    for option, value in (("--top", args.top), ("--batch-size", args.batch_size)):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if args.out and args.out.suffix not in FORMATS:
        raise ValueError(f"--out writes {' or '.join(FORMATS)}, by the end of the file's name, got {args.out}")
