"""A query to drag: its scores with a few tokens, their softmax, and the weighted mean, in one picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from vit_tutorial.plots.showing import READY, display, png_of, scripted
from vit_tutorial.plots.style import PALETTE, decimal, styled

REACH = 3.0  # the plane goes from -REACH to REACH
Point = tuple[float, float]


def show_weighing(tokens: Mapping[str, Point], query: Point, alt: str, caption: str = "") -> None:
    """Display tokens in a plane and a query to drag; their weighted mean follows it, with all numbers beside it.

    Each token is its own key and its own value. The scores are dot products, not divided by √d.

    Args:
        tokens: {name: (x, y)}, at least three.
        query: where the query is at first.
        alt: what it shows.
        caption: a line below, in Markdown.
    """
    png, width, _ = png_of(_still(tokens, query), alt)
    data = {
        "tokens": [{"name": name, "place": list(place)} for name, place in tokens.items()],
        "query": list(query),
        "reach": REACH,
        "colours": {"token": PALETTE["key"], "query": PALETTE["query"], "mean": PALETTE["value"]},
    }
    html = scripted(f"{READY} data-vit-weighing", "weighing.js", f"data:image/png;base64,{png}", width, alt, data)
    display({"text/html": html, "text/plain": alt}, {}, caption)


@styled
def _still(tokens: Mapping[str, Point], query: Point) -> Figure:
    """What is seen where scripts are stripped: the plane at the start, and the numbers as text."""
    places = np.array(list(tokens.values()))  # (T, 2)
    scores = places @ np.array(query)
    weights = np.exp(scores) / np.exp(scores).sum()
    mean = weights @ places
    figure = Figure(figsize=(6.0, 3.0))
    plane, numbers = figure.subplots(1, 2)
    plane.fill(*places.T, facecolor="none", edgecolor=PALETTE["key"])
    plane.plot([0, query[0]], [0, query[1]], color=PALETTE["query"])
    for name, place, role in (
        *((name, place, "key") for name, place in tokens.items()),
        ("query", query, "query"),
        ("mean", mean, "value"),
    ):
        plane.plot(*place, "o", color=PALETTE[role])
        offset = (4, -13) if name == "query" else (4, 5)  # below, since the mean is often near it
        plane.annotate(name, place, offset, textcoords="offset points", color=PALETTE[role])
    plane.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal")
    lines = [
        f"{name}: score {decimal(score, 2)}, weight {weight:.3f}"
        for name, score, weight in zip(tokens, scores, weights, strict=True)
    ]
    lines.append(f"mean ({decimal(mean[0], 2)}, {decimal(mean[1], 2)})")
    numbers.text(0, 0.5, "\n".join(lines), va="center")
    numbers.axis("off")
    return figure
