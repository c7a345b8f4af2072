"""The page as one piece of HTML: pictures, data, markup, style and script, with nothing to load."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit_tutorial.data.files import check_writable
from vit_tutorial.options.live import PAGES
from vit_tutorial.plots import PALETTE
from vit_tutorial.plots.javascript import joined

# A page may load nothing: everything is in it.
POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
STYLES = ("base", "layout", "diagram", "stations", "screens")  # one cascade layer; a later one wins
OUTSIDE_LAYERS = "last"  # wins over all of them


def own_page(title: str, html: str) -> str:
    """The HTML of :func:`assemble` as a page of its own, to open in a browser."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        "<style>\n:root { color-scheme: light dark; }\nbody { margin: min(16px, 2vw); }\n"
        # The title is on the page already; a screen reader and an outline want a heading of the first level.
        "h1 { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }\n</style>\n"
        f"</head>\n<body>\n<main data-own-page>\n<h1>{title}</h1>\n{html}\n</main>\n</body>\n</html>\n"
    )


def check_page(path: str | os.PathLike[str]) -> None:
    """Raise what ``save`` would raise, before there is a page."""
    if not os.fspath(path).lower().endswith(PAGES):
        raise ValueError(f"a page's name ends in .html, got {os.fspath(path)}")
    check_writable(Path(path))


def figure(image: Tensor, title: str, answer: str) -> str:
    """A picture (C, H, W) in [0, 1] with its caption, enlarged, as HTML; a BMP has the same bytes on every machine.

    Args:
        image: of one channel or three; of another number, their mean is shown.
        title: its alternative text, and the beginning of its caption.
        answer: what else the caption says.
    """
    image = image if len(image) == 3 else image.mean(dim=0, keepdim=True).expand(3, -1, -1)
    out = io.BytesIO()
    Image.fromarray((255 * image).round().to(torch.uint8).permute(1, 2, 0).numpy()).save(out, format="BMP")
    source = f"data:image/bmp;base64,{base64.b64encode(out.getvalue()).decode()}"
    image_tag = f'<img src="{source}" alt="{escape(title)}" width="72" style="image-rendering: pixelated">'
    caption = f"<figcaption>{escape(f'{title}: {answer}')}</figcaption>"
    return f'<figure style="display: inline-block; margin: 4px 12px 4px 0">{image_tag}{caption}</figure>'


def colour_map(name: str) -> str:
    """One of matplotlib's colour maps as 256 colours of six hexadecimal digits."""
    return matplotlib.colormaps[name](np.arange(256), bytes=True)[:, :3].tobytes().hex()


def base64_of(array: np.ndarray) -> str:
    """An array's bytes, little-endian, as text."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def assemble(title: str, data: Mapping[str, Any], figures: Sequence[str]) -> str:
    """The HTML that a notebook shows: what is seen without its script, the data, and its markup, style and script.

    Args:
        title: the first words of what is shown without the script.
        data: what the script reads, as JSON.
        figures: what :func:`figure` returns, to be shown without the script.
    """
    folder = files("vit_tutorial.live")
    markup = folder.joinpath("live.html").read_text("utf-8")
    layered = "\n".join(folder.joinpath(f"{name}.css").read_text("utf-8") for name in STYLES)
    style = f"@layer page {{\n{layered}}}\n{folder.joinpath(f'{OUTSIDE_LAYERS}.css').read_text('utf-8')}"
    colours = "".join(f"--{role}: {colour}; " for role, colour in PALETTE.items())
    return (
        f'<div data-vit-live="1" data-lm-suppress-shortcuts="true">\n'
        f"<p>{title}. It needs its script, which runs once you trust this notebook, and in an exported page. "
        "Without it, here is what the model was shown:</p>\n"
        + "\n".join(figures)
        # Within a script nothing but "<" can end it.
        + f'\n<script type="application/json">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>\n'
        f'<script type="text/template"><style>:host {{ {colours}}}\n{style}</style>\n{markup}</script>\n'
        f'</div>\n<script>\n(() => {{\n"use strict";\n\n{joined("vit_tutorial.live", "live.js")}}})();\n</script>'
    )
