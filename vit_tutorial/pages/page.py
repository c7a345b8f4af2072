"""A page as one piece of HTML: pictures, data, markup, style and script, with nothing to load."""

from __future__ import annotations

import base64
import io
import json
import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit_tutorial.data.files import check_writable, write
from vit_tutorial.plots import PALETTE

# A page may load nothing: everything is in it.
POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
IMPORT = re.compile(r'^import \{[^}]*\} from "(.+?)";\n', re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """HTML that a notebook shows as it is, and that :meth:`save` makes a page of its own."""

    title: ClassVar[str]
    html: str = field(repr=False)  # to be put into any page, several on one as well

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page of its own, to open in a browser.

        Raises:
            ValueError: a name that a browser wouldn't open as a page.
            OSError: the file can't be written; it names the folder.
        """
        check_page(path)
        page = (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{self.title}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            "<style>\n:root { color-scheme: light dark; }\nbody { margin: min(16px, 2vw); }\n"
            # The title is on the page already; a screen reader and an outline want a heading of the first level.
            "h1 { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }\n</style>\n"
            f"</head>\n<body>\n<main data-own-page>\n<h1>{self.title}</h1>\n{self.html}\n</main>\n</body>\n</html>\n"
        )
        write(Path(path), page.encode())


def check_page(path: str | os.PathLike[str]) -> None:
    """Raise what :meth:`Page.save` would raise, before there is a page."""
    if not os.fspath(path).lower().endswith((".html", ".htm")):
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


def script(name: str) -> str:
    """A JavaScript module of the package and those that it imports, as one script: each after what it imports.

    All of them share one scope then, so no two may declare the same name.

    Args:
        name: its path in the package, "live/live.js".
    """
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        text = files("vit_tutorial").joinpath(name).read_text("utf-8")
        for target in IMPORT.findall(text):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if imported not in modules:
                add(imported)
        modules[name] = re.sub("^export ", "", IMPORT.sub("", text), flags=re.MULTILINE).lstrip()

    add(name)
    return "\n".join(modules.values())


def assemble(title: str, data: dict[str, Any], figures: Sequence[str], markup: str, style: str, code: str) -> str:
    """The HTML of a page: what is shown without its script, the data, and its markup, style and script.

    Args:
        title: the first words of what is shown without the script.
        data: what the script reads, as JSON.
        figures: what :func:`figure` returns, to be shown without the script.
        markup: what fills a shadow root of each ``data-vit-live``.
        style: CSS, after that of every page.
        code: what :func:`script` returns; it ends with ``begin(start)``.
    """
    shared = files("vit_tutorial.pages").joinpath("page.css").read_text("utf-8")
    colours = "".join(f"--{role}: {colour}; " for role, colour in PALETTE.items())
    return (
        f'<div data-vit-live="1" data-lm-suppress-shortcuts="true">\n'
        f"<p>{title}. It needs its script, which runs once you trust this notebook, and in an exported page. "
        "Without it, here is what the model was shown:</p>\n"
        + "\n".join(figures)
        # Within a script nothing but "<" can end it.
        + f'\n<script type="application/json">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>\n'
        f'<script type="text/template"><style>:host {{ {colours}}}\n{shared}{style}</style>\n{markup}</script>\n'
        f'</div>\n<script>\n(() => {{\n"use strict";\n\n{code}}})();\n</script>'
    )
