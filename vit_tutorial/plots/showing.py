"""Figures in a notebook: with alternative text and a caption, and several behind a slider."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from vit_tutorial.plots.javascript import joined
from vit_tutorial.plots.style import PALETTE

# Slides and the book know it as a slider; it is ready, so that the slider's script leaves it alone.
READY = "data-vit-slider data-ready"
DPI = 144  # two dots a pixel
UNSEEN = 2.0  # of 255 levels: a mean difference that nobody sees


def show(figure: Figure, alt: str, caption: str = "") -> None:
    """Display a figure in a notebook, with alternative text for those who can't see it.

    The alternative text is the output's plain text, too, so a test that compares text compares it.

    Args:
        figure: what one of the functions of ``plots`` returned.
        alt: what the picture shows, in a sentence or two; it goes into the output's metadata.
        caption: a line below the figure, in Markdown.

    Raises:
        ValueError: an empty ``alt``.
    """
    png, width, height = png_of(figure, alt)
    metadata = {"image/png": {"alt": alt, "width": width, "height": height}}
    display({"image/png": png, "text/plain": alt}, metadata, caption)


def show_slider(figures: Mapping[str, Figure], alt: str, caption: str = "", *, label: str) -> None:
    """Display figures of one size behind a slider: dragged, or moved by the arrow keys.

    It needs no kernel: JupyterLab and the book run its script; where scripts are stripped, the first figure stays.

    Args:
        figures: {what the slider says there: the figure}, in their order.
        alt: what the pictures show, and what changes along the slider.
        caption: a line below, in Markdown.
        label: of the slider, as in "patch size".

    Raises:
        ValueError: an empty ``alt``, or fewer than two figures.
    """
    if len(figures) < 2:
        raise ValueError(f"a slider needs at least two figures, got {len(figures)}: show() displays one")
    pictures = {name: png_of(figure, alt) for name, figure in figures.items()}
    frames = [{"name": name, "src": f"data:image/png;base64,{png}"} for name, (png, _, _) in pictures.items()]
    first = frames[0].pop("src")
    width = max(width for _, width, _ in pictures.values())
    html = scripted(f'data-vit-slider data-label="{escape(label)}"', "slider.js", first, width, alt, frames)
    display({"text/html": html, "text/plain": alt}, {}, caption)


def scripted(attributes: str, script: str, still: str, width: int, alt: str, data: object) -> str:
    """A picture, what its script reads, and the script; the picture is in the markup, so it is seen without the script.

    Its data end no script: no name in them has a "<".
    """
    json_text = json.dumps(data).replace("<", "\\u003c")
    code = joined("vit_tutorial.plots", script)
    return (
        f'<div {attributes}>\n<img src="{still}" alt="{escape(alt)}" width="{width}" '
        'style="max-width: 100%; height: auto">\n<script type="application/json">'
        f"{json_text}</script>\n<script>\n{{\n{code}}}\n</script>\n</div>"
    )


def uri(picture: Any, colours: int = 0) -> str:
    """(H, W, 3), in [0, 1], as the address of a PNG; of so many ``colours``, or of all with 0."""
    image = Image.fromarray((255 * picture).round().astype(np.uint8))
    if colours:
        image = image.quantize(colours, dither=Image.Dither.NONE)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=bool(colours))
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def png_of(figure: Figure, alt: str) -> tuple[str, int, int]:
    """A figure as PNG, in base64, with its width and height in pixels of the page."""
    if not alt.strip():
        raise ValueError("alt is empty: say in a sentence what the picture shows")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, facecolor=PALETTE["paper"], bbox_inches="tight", pad_inches=0.08)
    png = _lighter(out.getvalue())
    width, height = (int.from_bytes(png[start : start + 4], "big") // 2 for start in (16, 20))  # as the file says
    return base64.b64encode(png).decode(), width, height


def _lighter(png: bytes) -> bytes:
    """The same picture in 256 colours, which takes a third of the bytes, where that shows no difference."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    palette = picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    difference = np.asarray(picture, np.float32) - np.asarray(palette.convert("RGB"), np.float32)  # (H, W, 3)
    if np.abs(difference).mean() > UNSEEN:
        return png
    out = io.BytesIO()
    palette.save(out, format="png")
    return min(png, out.getvalue(), key=len)


def display(bundle: dict[str, str], metadata: dict[str, dict[str, object]], caption: str) -> None:
    """Show an output in the notebook, and its caption below it."""
    from IPython import display as shown

    shown.display(bundle, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
    if caption:
        shown.display(shown.Markdown(caption))  # type: ignore[no-untyped-call]
