"""What every figure of the series shares: its colours, its type, its width."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.font_manager import FontProperties, findfont, get_font

# Okabe-Ito, readable with every common colour blindness; each role keeps its colour through the whole series.
PALETTE = {
    "query": "#0072B2",
    "key": "#D55E00",
    "value": "#009E73",
    "class": "#CC79A7",
    "patch": "#56B4E9",
    "position": "#E69F00",
    "ink": "#222222",
    "muted": "#8A8A8A",
    "paper": "#FFFFFF",
}
CYCLE = [PALETTE[role] for role in ("query", "key", "value", "class", "position", "patch", "ink")]
STYLE: Any = {
    "figure.facecolor": PALETTE["paper"],
    "font.size": 11.0,
    "axes.titlesize": 11.0,
    "axes.labelsize": 11.0,
    "axes.edgecolor": PALETTE["muted"],
    "axes.labelcolor": PALETTE["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "text.color": PALETTE["ink"],
    "xtick.color": PALETTE["ink"],
    "ytick.color": PALETTE["ink"],
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}
styled = matplotlib.rc_context(STYLE)  # before a function that draws
LONGEST = 40  # letters of a name
WIDTH = 10.0  # inches: as wide as a notebook's column


def decimal(value: float, digits: int) -> str:
    """A number as figures write it: with so many decimals, and a minus sign in place of the hyphen."""
    return f"{value:.{digits}f}".replace("-", "−")


def writable(names: Sequence[str]) -> list[str]:
    """The names as a figure can write them: "class 2" for the second, if it has a letter that the font lacks or that
    is written from right to left, which Matplotlib doesn't do; of a long one the first letters.
    """
    known = get_font(findfont(FontProperties())).get_charmap()

    def can_be_written(char: str) -> bool:
        return char.isprintable() and ord(char) in known and unicodedata.bidirectional(char) not in ("R", "AL", "AN")

    numbered = (name if all(map(can_be_written, name)) else f"class {k}" for k, name in enumerate(names, start=1))
    return [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in numbered]
