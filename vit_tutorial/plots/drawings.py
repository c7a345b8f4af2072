"""The series' own drawings: blocks, attention from x to its output, and the whole ViT, with every tensor's shape.

They read nothing but the fields of a config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from vit_tutorial.plots.arrays import canvas
from vit_tutorial.plots.style import PALETTE, WIDTH, styled

Point = tuple[float, float]
Config = Any  # a ViTConfig, or a ModernConfig: this room imports neither, and only reads their fields
SOFT = {  # the palette's roles, pale enough to write on
    "query": "#CFE3F1",
    "key": "#F7DECB",
    "value": "#CCECE1",
    "class": "#F4E1EC",
    "patch": "#DFF1FB",
    "norm": "#E8E3F2",
    "plain": "#EFEFEF",
}
LINE, EDGE = "#555555", "#9A9A9A"  # of arrows, of boxes
NEW = "#C1272D"  # the frame of what came after 2020
PLUS = 0.17  # radius of the + where a branch comes back
BEFORE_BRANCH = 0.2  # between the stream's last sign and a box
Part = tuple[str, str, bool]  # what stands in the box, a colour of SOFT, whether it came after 2020


@styled
def encoder_block(config: Config) -> Figure:
    """Two blocks side by side, before the norm's move and after: post-norm (2017) and pre-norm, as a ViT has it.

    Read from the bottom up. Every arrow along the stream carries (B, T, D); the branches leave it and come back at a +.
    """
    D, h = config.dim, config.num_heads
    norm = ("layer norm", "norm", False)
    attention = (f"attention\n{h} heads of {D // h}", "query", False)
    mlp = (f"MLP\n{D} → {config.mlp_dim} → {D}", "value", False)
    stream = f"(B, {config.num_tokens}, {D})"
    blocks = {
        "pre-norm: a ViT's block": ([norm, attention], [norm, mlp], []),
        "post-norm: the Transformer of 2017": ([attention], [mlp], [norm]),
    }
    figure, ax = canvas(WIDTH, 5.6, (0, 12), (0, 6.7))
    for x, (title, (first, second, after_sum)) in zip((3.1, 9.3), blocks.items(), strict=True):
        ax.text(x, 6.5, title, ha="center", va="center", weight="bold")
        ax.text(x, 0.1, f"z  {stream}", ha="center", va="center")
        y = 0.3
        for branch, equation in ((first, "Eq. 2"), (second, "Eq. 3")):
            if not after_sum:
                ax.text(x + 1.5, y + 1.0, equation, ha="left", va="center", color=PALETTE["muted"])
            y = _draw_branch(ax, x, y, branch, fontsize=11, carries=stream)
            y = _stack(ax, x, y, after_sum, fontsize=11)
            ax.plot([x, x], [y, y + 0.2], color=LINE, linewidth=1.3)
            y += 0.2
        arrow(ax, (x, y), (x, y + 0.35))
        ax.text(x, y + 0.53, f"out  {stream}", ha="center", va="center")
    return figure


def _draw_branch(ax: Axes, x: float, y: float, parts: Sequence[Part], fontsize: int, carries: str = "") -> float:
    """A branch that leaves the stream at y, and comes back to it at a +; the height above the +.

    Args:
        ax: to draw on.
        x: of the stream.
        y: where the stream comes from below.
        parts: the branch's boxes, the lowest first.
        fontsize: in the boxes.
        carries: the shape of what reaches the +.
    """
    top = _stack(ax, x, y, parts, fontsize)
    plus = top + (0.6 if carries else 0.35)
    arrow(ax, (x, top), (x, plus - PLUS), carries)
    _draw_plus(ax, (x, plus))
    _draw_shortcut(ax, (x, y + BEFORE_BRANCH / 2), (x, plus), x - 1.4)
    return plus + PLUS


def _stack(ax: Axes, x: float, y: float, parts: Sequence[Part], fontsize: int) -> float:
    """Boxes one above the other from y on, an arrow into each; the height of the last one's top."""
    for text, face, new in parts:
        height = 0.42 * (1 + text.count("\n") * 0.7)
        arrow(ax, (x, y), (x, y + BEFORE_BRANCH))
        centre = (x, y + BEFORE_BRANCH + height / 2)
        box(ax, centre, (2.4, height), text, SOFT[face], NEW if new else EDGE, fontsize)
        y += BEFORE_BRANCH + height
    return y


@styled
def attention_flow(config: Config) -> Figure:
    """Multi-head self-attention from x to its output, the shape of every tensor on its arrow."""
    T, D, h = config.num_tokens, config.dim, config.num_heads
    d = D // h
    tokens, of_heads, table = f"(B, {T}, {D})", f"(B, {h}, {T}, {d})", f"(B, {h}, {T}, {T})"
    figure, ax = canvas(WIDTH, 4.7, (0.3, 18.0), (0.2, 7.1))
    x, qkv = (1.1, 3.6), (3.4, 3.6)
    q, k, v = (6.2, 6.0), (6.2, 3.6), (6.2, 1.2)
    scores, softmax, mixed = (9.1, 4.8), (12.9, 4.8), (12.9, 2.4)
    joined, output = (16.9, 2.4), (16.9, 4.8)

    box(ax, x, (1.3, 0.9), "x", SOFT["plain"])
    _note(ax, _offset(x, up=-0.7), tokens)
    arrow(ax, _offset(x, 0.65), _offset(qkv, -1.0))
    box(ax, qkv, (2.0, 1.2), f"linear\n{D} → 3 · {D}", SOFT["plain"])
    _note(ax, _offset(qkv, 0.6, 1.9), f"split into\n{h} heads of {d}")
    for name, place, role in (("q", q, "query"), ("k", k, "key"), ("v", v, "value")):
        arrow(ax, _offset(qkv, 1.0), _offset(place, -0.6))
        box(ax, place, (1.2, 0.9), name, SOFT[role], PALETTE[role])
        _note(ax, _offset(place, up=-0.68), of_heads)

    arrow(ax, _offset(q, 0.6), _offset(scores, -0.9, 0.2))
    arrow(ax, _offset(k, 0.6), _offset(scores, -0.9, -0.2))
    box(ax, scores, (1.8, 0.9), "q kᵀ / √d", SOFT["plain"])
    _note(ax, _offset(scores, up=0.82), "Eq. 6: every query\nwith every key")
    arrow(ax, _offset(scores, 0.9), _offset(softmax, -0.8), table, "above")
    box(ax, softmax, (1.6, 0.9), "softmax", SOFT["plain"])
    _note(ax, _offset(softmax, up=0.82), "each row\nsums to 1")
    arrow(ax, _offset(softmax, up=-0.45), _offset(mixed, up=0.45), table)
    arrow(ax, _offset(v, 0.6), _offset(mixed, -0.9, -0.1))
    box(ax, mixed, (1.8, 0.9), "weights · v", SOFT["plain"])
    _note(ax, _offset(mixed, up=-0.78), "Eq. 7: the values,\nmixed")

    arrow(ax, _offset(mixed, 0.9), _offset(joined, -0.9), of_heads, "above")
    box(ax, joined, (1.8, 1.5), f"join heads,\nlinear\n{D} → {D}", SOFT["plain"])
    arrow(ax, _offset(joined, up=0.75), _offset(output, up=-0.45))
    box(ax, output, (1.8, 0.9), "output", SOFT["plain"])
    _note(ax, _offset(output, up=0.7), tokens)
    return figure


def _offset(place: Point, right: float = 0.0, up: float = 0.0) -> Point:
    return place[0] + right, place[1] + up


def _note(ax: Axes, place: Point, text: str) -> None:
    """A small text, centred."""
    ax.text(*place, text, ha="center", va="center", fontsize=9)


@styled
def modern_blocks(configs: Mapping[str, Config]) -> Figure:
    """Blocks side by side, one a config, read from the bottom up; what a ViT of 2020 has not is framed in red."""
    figure, ax = canvas(WIDTH, 7.4, (0, 3.1 * len(configs)), (-0.2, 9.0))
    for index, (name, config) in enumerate(configs.items()):
        x, y = 3.1 * index + 1.7, 0.2
        ax.text(x, 8.8, name, ha="center", va="center", weight="bold")
        _note(ax, (x, 0), f"(B, {config.num_tokens}, {config.dim})")
        for branch in (_attention_branch(config), _mlp_branch(config)):
            y = _draw_branch(ax, x, y, branch, fontsize=9)
            ax.plot([x, x], [y, y + BEFORE_BRANCH / 2], color=LINE, linewidth=1.3)
    return figure


def _attention_branch(config: Config) -> list[Part]:
    parts = [_norm(config), ("q, k, v" if config.k_bias else "q, k, v: no bias of k", "query", not config.k_bias)]
    if config.qk_norm:
        parts.append(("q and k normed", "norm", True))
    if config.rotary is not None:
        parts.append(("q and k rotated", "key", True))
    bias = " + bias" if config.position_bias else ""
    parts.append((f"attention{bias}, {config.num_heads} heads", "query", config.position_bias))
    if config.attention_norm:
        parts.append(("norm", "norm", True))
    parts.append((f"projection {config.dim}", "plain", False))
    return parts + _scale(config)


def _mlp_branch(config: Config) -> list[Part]:
    D, M = config.dim, config.mlp_dim
    activation = {"exact": "GELU", "tanh": "GELU, by tanh", "quick": "QuickGELU"}[config.gelu]
    if config.gated:
        parts = [_norm(config), (f"{D} → 2 · {M}", "value", True), ("silu(gate) · value", "value", True)]
    else:
        parts = [_norm(config), (f"{D} → {M}", "value", False), (activation, "value", config.gelu == "quick")]
    if config.mlp_norm:
        parts.append(("norm", "norm", True))
    parts.append((f"{M} → {D}", "value", False))
    return parts + _scale(config)


def _norm(config: Config) -> Part:
    return f"{config.norm} norm".replace("rms", "RMS"), "norm", config.norm != "layer"


def _scale(config: Config) -> list[Part]:
    return [] if config.layer_scale is None else [("times γ", "class", True)]


@styled
def tensor_map(config: Config) -> Figure:
    """The whole ViT as one map: every tensor from image to logits, its shape, and what turns it into the next."""
    (H, W), (P, Q) = _pair(config.image_size), _pair(config.patch_size)
    N, T, D, K = config.grid[0] * config.grid[1], config.num_tokens, config.dim, config.num_classes
    added = "class token in front, positions added" if T > N else "positions added"
    first = "the class token" if T > N else "the mean of all"
    rows: list[tuple[str, str, str, str]] = [
        ("image", f"(B, {config.in_channels}, {H}, {W})", "cut and flatten", "plain"),
        ("patches", f"(B, {N}, {config.in_channels * P * Q})", f"times E: {config.in_channels * P * Q} → {D}", "patch"),
        ("patch tokens", f"(B, {N}, {D})", added, "patch"),
        ("z0", f"(B, {T}, {D})", f"{config.depth} encoder blocks", "norm"),
        ("zL", f"(B, {T}, {D})", f"last norm, then {first}", "norm"),
        ("y", f"(B, {D})", f"head: {D} → {K}", "class"),
        ("logits", f"(B, {K})", "", "plain"),
    ]
    if not K:
        rows = [*rows[:-2], ("y", f"(B, {D})", "", "class")]
    equations = ["", "", "Eq. 1", "Eq. 2 and 3", "Eq. 4", "", ""]
    figure, ax = canvas(WIDTH, 0.72 * len(rows) + 0.2, (0, 12), (-len(rows) + 0.45, 0.55))
    for row, (name, shape, turns, colour) in enumerate(rows):
        box(ax, (2.1, -row), (2.6, 0.52), name, SOFT[colour])
        ax.text(3.6, -row, shape, va="center", family="monospace")
        if turns:
            arrow(ax, (2.1, -row - 0.26), (2.1, -row - 0.74))
            ax.text(6.3, -row - 0.5, turns, va="center", color=LINE)
            ax.plot([2.3, 6.15], [-row - 0.5, -row - 0.5], color="#D8D8D8", linewidth=1)
            ax.text(11.9, -row - 0.5, equations[row], va="center", ha="right", color=LINE)
    return figure


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def box(ax: Axes, centre: Point, size: Point, text: str, face: str, edge: str = EDGE, fontsize: int = 11) -> None:
    """A rounded box with a text in it."""
    (x, y), (width, height) = centre, size
    style = "round,pad=0,rounding_size=0.08"
    corner = (x - width / 2, y - height / 2)
    ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=1.2))
    ax.text(x, y, text, ha="center", va="center", linespacing=1.2, fontsize=fontsize)


def arrow(ax: Axes, start: Point, end: Point, shape: str = "", place: Literal["right", "above"] = "right") -> None:
    """An arrow, and the shape of the tensor that it carries beside it."""
    line = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0)
    line.set(color=LINE, linewidth=1.3)
    ax.add_patch(line)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if place == "right":
        ax.text(x + 0.12, y, shape, ha="left", va="center", fontsize=9)
    else:
        ax.text(x, y + 0.14, shape, ha="center", va="bottom", fontsize=9)


def _draw_shortcut(ax: Axes, start: Point, end: Point, x: float) -> None:
    """The residual: out of the stream, up beside the branch, and back into the +."""
    ax.plot([start[0], x, x], [start[1], start[1], end[1]], color=LINE, linewidth=1.3, solid_capstyle="butt")
    arrow(ax, (x, end[1]), (end[0] - PLUS, end[1]))


def _draw_plus(ax: Axes, centre: Point) -> None:
    ax.add_patch(Circle(centre, PLUS, facecolor="white", edgecolor=LINE, linewidth=1.3))
    ax.text(*centre, "+", ha="center", va="center", fontsize=13)
