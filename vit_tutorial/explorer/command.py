"""The explorer's command line: photographs and weights in, a page out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from vit_tutorial.explorer.page import explore
from vit_tutorial.predict import find, open_photo
from vit_tutorial.weights import load

PROG = "python -m vit_tutorial.explorer"


def parser(*, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line: photographs, weights, where to write."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Write an interactive page of where a model looks in photographs: every patch, layer and head.",
    )
    p.add_argument("photos", nargs="+", metavar="PHOTO", help="picture files, folders of them, or patterns")
    p.add_argument("--weights", required=True, metavar="NAME", help="as for python -m vit_tutorial.predict")
    p.add_argument("--out", type=Path, default=Path("explorer.html"), help="the page (default: explorer.html)")
    return p


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Write the page, and say where."""
    args = parser(prog=prog).parse_args(arguments)
    try:
        files, wrong = find(args.photos)
        if wrong:
            raise ValueError("; ".join(wrong))
        photos = [open_photo(path) for path in files]
        model, classes, preprocess = load(args.weights)
        images = torch.cat([preprocess(photo) for photo in photos])  # (B, C, H, W)
        # A file name need not be valid Unicode, and a page must be.
        titles = [Path(path).name.encode(errors="replace").decode() for path in files]
        explore(model, images, classes or None, preprocess=preprocess, titles=titles).save(args.out)
        print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, open it in a browser")
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
