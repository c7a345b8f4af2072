"""The explorer's command line: photographs and weights in, a page out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from vit_tutorial.explorer.page import explore
from vit_tutorial.predict import opened
from vit_tutorial.weights import load
from vit_tutorial.weights.keeping import shipped

PROG = "python -m vit_tutorial.explorer"


def parser(*, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line: photographs, weights, where to write."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Write an interactive page of where a model looks in photographs: every patch, layer and head.",
    )
    p.add_argument("photos", nargs="+", metavar="PHOTO", help="picture files, folders of them, or patterns")
    p.add_argument(
        "--weights",
        required=True,
        metavar="NAME",
        help=f"{', '.join(shipped())}, a folder that "
        "training wrote, a file, or a published model, as for python -m vit_tutorial.predict",
    )
    p.add_argument("--out", type=Path, default=Path("explorer.html"), help="the page (default: explorer.html)")
    return p


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Write the page, and say where."""
    args = parser(prog=prog).parse_args(arguments)
    try:
        files, photos, skipped = opened(args.photos)
        model, classes, preprocess = load(args.weights)
        images = torch.cat([preprocess(photo) for photo in photos])  # (B, C, H, W)
        # A file name need not be valid Unicode, and a page must be.
        titles = [Path(path).name.encode(errors="replace").decode() for path in files]
        explore(model, images, classes or None, preprocess=preprocess, titles=titles).save(args.out)
        print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, open it in a browser")
        if skipped:
            raise ValueError(f"{len(skipped):,} skipped, the others are in the page: {skipped[0]}")
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
