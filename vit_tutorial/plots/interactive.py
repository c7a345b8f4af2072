"""Photographs to touch in a notebook: no kernel is needed, and a still stays where scripts are stripped."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from vit_tutorial.plots.arrays import as_array, as_picture
from vit_tutorial.plots.showing import READY, display, scripted, uri
from vit_tutorial.plots.style import PALETTE

Floats = NDArray[np.float32]
PIXELS = 333  # of a photograph's side, at most
STILL = 180  # of each picture's side in the still
DIMENSIONS = 48  # that are kept of features, so that a notebook stays light
DARK = 0.85  # how much is taken from a patch without heat


def show_attention(
    image: Any,
    heads: Mapping[str, tuple[Any, Any]],
    alt: str,
    caption: str = "",
    *,
    start: int = 0,
    compare_pixels: bool = False,
) -> None:
    """Display a picture in which the patch under the pointer is the query: what it attends to is lit.

    Args:
        image: (C, H, W), in [0, 1], square.
        heads: {name: its queries and keys, (T, d) each, the class token first}.
        alt: what it shows.
        caption: a line below, in Markdown.
        start: the patch that is the query at first.
        compare_pixels: for one head: a second picture, whose patches are lit by the likeness of their pixels.
    """
    views: dict[str, dict[str, object]] = {}
    for name, (queries, keys) in heads.items():
        q, k = as_array(queries)[1:], as_array(keys)
        scale = np.abs(q).max() * np.abs(k).max() / 127**2 / q.shape[1] ** 0.5
        views[name] = {"queries": _coded([q]), "keys": _coded([k]), "scale": float(scale), "softmax": True}
    queries, keys = (as_array(part) for part in next(iter(heads.values())))
    powers = np.exp(keys @ queries[1 + start] / queries.shape[1] ** 0.5)[1:]  # (N,)
    heats = [np.sqrt(powers / powers.max())]
    if compare_pixels:
        (units,) = _unit_vectors([_pixels(image, round(len(powers) ** 0.5))])
        views["likeness of the pixels"] = {
            "keys": _coded([units]),
            "scale": float(np.abs(units).max() ** 2 / 127**2),
            "softmax": False,
        }
        heats.append((units @ units[start]).clip(0, 1) ** 2)
    images = [image] * len(heats)
    _show(_spotlight(images, views, heats, alt, (0, start), one_view_each=compare_pixels), alt, caption)


def show_matches(
    images: Sequence[Any], features: Sequence[Any], alt: str, caption: str = "", *, start: tuple[int, int] = (0, 0)
) -> None:
    """Display pictures in which the patches that are like the one under the pointer are lit: by their cosine.

    Args:
        images: each (C, H, W), in [0, 1], square.
        features: of each image, (N, D), the patches row by row.
        alt: what it shows.
        caption: a line below, in Markdown.
        start: the picture and its patch that are compared at first.
    """
    _show(matches_html(images, features, alt, start=start), alt, caption)


def matches_html(images: Sequence[Any], features: Sequence[Any], alt: str, *, start: tuple[int, int] = (0, 0)) -> str:
    """The HTML of :func:`show_matches`, to be put into a page."""
    units = _unit_vectors(features)
    scale = max(np.abs(unit).max() for unit in units) ** 2 / 127**2
    coded = _coded(units)
    view = {"keys": coded, "scale": float(scale), "softmax": False}  # they are the queries as well
    heats = [(unit @ units[start[0]][start[1]]).clip(0, 1) ** 2 for unit in units]  # (N,) each
    return _spotlight(images, {"cosine": view}, heats, alt, start)


def show_clicks(
    images: Sequence[Any],
    features: Sequence[Any],
    masks: Sequence[Any],
    clicks: Sequence[tuple[int, int, bool]],
    alt: str,
    caption: str = "",
) -> None:
    """Display pictures to click: each patch gets the label of the click that it is most like, object or background.

    Args:
        images: each (C, H, W), in [0, 1], square.
        features: of each image, (N, D).
        masks: of each image, (rows, columns) bool: the object, to score what the clicks give.
        clicks: (picture, patch, whether it is the object), those that are there at first.
        alt: what it shows.
        caption: a line below, in Markdown.
    """
    units = _unit_vectors(features)
    marked = np.stack([units[picture][patch] for picture, patch, _ in clicks])  # (clicks, D)
    labels = np.array([label for _, _, label in clicks])
    objects = [labels[(unit @ marked.T).argmax(axis=1)].astype(np.float32) for unit in units]  # (N,) each
    data = {
        "pictures": [_photograph(image) for image in images],
        "side": as_array(masks[0]).shape[0],
        "features": _coded(units),
        "masks": ["".join("1" if inside else "0" for inside in as_array(mask).flatten()) for mask in masks],
        "clicks": [{"picture": picture, "patch": patch, "object": bool(label)} for picture, patch, label in clicks],
    }
    dots = [(picture, patch, PALETTE["position" if label else "query"]) for picture, patch, label in clicks]
    _show(_html("data-vit-clicks", "clicks.js", _still(images, objects, dots=dots), alt, data), alt, caption)


def _spotlight(
    images: Sequence[Any],
    views: Mapping[str, Mapping[str, object]],
    heats: Sequence[Floats],
    alt: str,
    start: tuple[int, int],
    *,
    one_view_each: bool = False,
) -> str:
    data = {
        "oneViewEach": one_view_each,  # a view for each picture, in place of a choice
        "pictures": [_photograph(image) for image in images],
        "side": round(len(heats[0]) ** 0.5),
        "views": views,
        "start": {"picture": start[0], "patch": start[1]},
    }
    return _html("data-vit-spotlight", "spotlight.js", _still(images, heats, framed=[start]), alt, data)


def _html(kind: str, script: str, still: Floats, alt: str, data: Mapping[str, object]) -> str:
    return scripted(f"{READY} {kind}", script, uri(still, colours=128), still.shape[1], alt, data)


def _show(html: str, alt: str, caption: str) -> None:
    display({"text/html": html, "text/plain": alt}, {}, caption)


def _unit_vectors(features: Sequence[Any]) -> list[Floats]:
    """Rows of length 1, turned so that their first numbers hold nearly all of their cosines: (N, DIMENSIONS) each."""
    rows = [as_array(part) for part in features]
    rows = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in rows]
    if rows[0].shape[1] <= DIMENSIONS:
        return rows
    _, directions = np.linalg.eigh(sum(part.T @ part for part in rows))  # of rising size
    reduced = [part @ directions[:, -DIMENSIONS:] for part in rows]
    return [part / np.linalg.norm(part, axis=1, keepdims=True) for part in reduced]


def _pixels(image: Any, side: int) -> Floats:
    """The pixels of each patch less those of the mean patch: (N, numbers)."""
    picture = as_picture(image)  # (H, W, C)
    patch = picture.shape[0] // side
    cut = picture.reshape(side, patch, side, patch, -1).swapaxes(1, 2).reshape(side**2, -1)
    return np.asarray(cut - cut.mean(axis=0), np.float32)


def _coded(parts: Sequence[Floats]) -> list[str]:
    """Numbers as whole ones from -127 to 127, one scale for all parts, in base64."""
    largest = max(np.abs(part).max() for part in parts)
    return [base64.b64encode((127 * part / largest).round().astype(np.int8).tobytes()).decode() for part in parts]


def _photograph(image: Any) -> str:
    """The address of a JPEG of at most PIXELS a side; of a small picture, its PNG."""
    picture = Image.fromarray((255 * as_picture(image)).round().astype(np.uint8))
    if picture.width <= PIXELS // 2:
        return uri(as_picture(image))
    picture.thumbnail((PIXELS, PIXELS), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _still(
    images: Sequence[Any],
    heats: Sequence[Floats],
    *,
    framed: Sequence[tuple[int, int]] = (),
    dots: Sequence[tuple[int, int, str]] = (),
) -> Floats:
    """The pictures in a row, dark where there is no heat, with a frame or a dot on some patches: (H, W, 3).

    Args:
        images: each (C, H, W), in [0, 1].
        heats: of each image, (N,), in [0, 1].
        framed: picture and patch.
        dots: picture, patch and colour.
    """
    side = round(len(heats[0]) ** 0.5)
    patch = STILL / side
    pictures = []
    for image, heat in zip(images, heats, strict=True):
        picture = Image.fromarray((255 * as_picture(image)).round().astype(np.uint8)).resize((STILL, STILL))
        lit = Image.fromarray((255 * heat).astype(np.uint8).reshape(side, side))
        light = np.asarray(lit.resize((STILL, STILL), Image.Resampling.NEAREST), np.float32)[..., None] / 255
        shaded = np.asarray(picture, np.float32) * (1 - DARK * (1 - light))
        pictures.append(Image.fromarray(shaded.round().astype(np.uint8)))
    for index, number in framed:
        row, column = divmod(number, side)
        left, top, right, bottom = column * patch, row * patch, (column + 1) * patch, (row + 1) * patch
        draw = ImageDraw.Draw(pictures[index])
        draw.rectangle((left - 2, top - 2, right + 2, bottom + 2), outline="white", width=2)
        draw.rectangle((left, top, right, bottom), outline=PALETTE["query"], width=2)
    for index, number, colour in dots:
        row, column = divmod(number, side)
        x, y = (column + 0.5) * patch, (row + 0.5) * patch
        ImageDraw.Draw(pictures[index]).ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour, outline="white")
    edge = ((0, 0), (2, 2), (0, 0))
    return np.hstack([np.pad(np.asarray(p, np.float32) / 255, edge, constant_values=1) for p in pictures])
