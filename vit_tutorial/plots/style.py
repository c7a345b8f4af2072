"""What every figure of the series shares: its colours, its type, its width."""

from typing import Any

from cycler import cycler

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
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}
WIDTH = 10.0  # inches: as wide as a notebook's column
