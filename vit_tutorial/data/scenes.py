"""Lessons 07 and 17: the scenes of ``data.shapes``: one target among distractors on a textured ground.

Every figure is a copy of a stamp: 13 figures in 6 sizes and 36 angles, at whole pixels, sixteen samples per pixel. So
20,000 scenes take seconds, and they are the same on every machine, because nothing depends on rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Draw = Callable[..., np.ndarray]  # (from, to but not with, shape): whole numbers

TARGETS = ("disc", "ring", "crescent", "triangle", "square", "cross", "star", "heart")
DISTRACTORS = ("bar", "dots", "arc", "grid", "zigzag")
# Okabe and Ito's colours, and white.
PAINTS = np.array(
    [
        *[(230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66)],
        *[(0, 114, 178), (213, 94, 0), (204, 121, 167), (240, 240, 240)],
    ]
)
# Names of those paints that are light enough for every ground, and their places in PAINTS.
COLOURS = {"orange": 0, "blue": 1, "yellow": 3, "pink": 6, "white": 7}
LUMA = np.array([299, 587, 114])  # thousandths: how bright red, green and blue look (ITU-R BT.601)
CLOUDS = {16: 12, 4: 10}  # pixels from knot to knot: how far a knot's brightness may be from the tint
TOGETHER = 250  # scenes painted at a time: few enough for the processor's cache
STAMP = 27  # pixels along a side
RADII = range(8, 14)  # of figures, in pixels
TURNS = 36  # of 10 degrees each
FINE = 4  # samples along a pixel


class _Scenes(NamedTuple):
    """What ``n`` scenes are made of; each has five items, the target first."""

    tint: np.ndarray  # (n, 3), the ground's colour
    coarse: np.ndarray  # (n, 5, 5), the ground's brightness at knots 16 pixels apart
    fine: np.ndarray  # (n, 17, 17), at knots 4 pixels apart
    kind: np.ndarray  # (n, 5), of figure
    radius: np.ndarray  # (n, 5), in pixels
    turn: np.ndarray  # (n, 5), in steps of 10 degrees
    paint: np.ndarray  # (n, 5, 3)
    corner: np.ndarray  # (n, 5, 2), row and column
    placed: np.ndarray  # (n, 5), False where no room was left
    grain: np.ndarray  # (n, 3, 64, 64)


def draw(seed: tuple[int, int], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``n`` scenes, the classes equally frequent and shuffled.

    Args:
        seed: two whole numbers from 0: the seed of the scenes, and the split.
        n: number of scenes.

    Returns:
        images (n, 3, 64, 64) uint8; labels (n,) int64, indices into :data:`TARGETS`; masks (n, 64, 64) bool, True on
        the pixels that the target covers by half or more.
    """
    # NumPy guarantees that RandomState's numbers never change (NEP 19); those of default_rng may.
    random = np.random.RandomState(seed)
    labels = random.permutation(n).astype(np.int64) % len(TARGETS)
    rng = _drawn_by(random)

    tint, coarse, fine = _ground(rng, n)
    kind = np.concatenate([labels[:, None], len(TARGETS) + rng(0, len(DISTRACTORS), (n, 4))], axis=1)  # (n, 5)
    # Targets lean by up to 30 degrees, distractors turn freely.
    turn = np.concatenate([rng(-3, 4, (n, 1)), rng(0, TURNS, (n, 4))], axis=1)
    paint = _paint(rng, tint @ LUMA // 1000)
    radius, corner, placed = _places(rng, n)
    grain = random.randint(-4, 5, (n, 3, 64, 64), dtype=np.int8)

    images, masks = _paint_scenes(_Scenes(tint, coarse, fine, kind, radius, turn, paint, corner, placed, grain))
    return images, labels, masks


def coloured(seed: tuple[int, int], n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of ``n`` scenes of :func:`draw` whose target has one of :data:`COLOURS`: nine of ten.

    Returns:
        images (m, 3, 64, 64) uint8; figures (m,) int64, indices into :data:`TARGETS`; colours (m,) int64, indices into
        :data:`COLOURS`.
    """
    images, figures, masks = draw(seed, n)
    middle = np.stack([np.median(image[:, mask], axis=1) for image, mask in zip(images, masks, strict=True)])  # (n, 3)
    # Paints vary by up to 15 of 255 levels, and differ by more than twice that.
    paint = abs(middle[:, None] - PAINTS).max(axis=2).argmin(axis=1)  # (n,)
    kept = np.isin(paint, list(COLOURS.values()))
    return images[kept], figures[kept], np.searchsorted(list(COLOURS.values()), paint[kept])


def _drawn_by(random: np.random.RandomState) -> Draw:
    return lambda low, high, shape: np.asarray(random.randint(low, high, shape, np.int64))  # int64 on every system


def _paint_scenes(scenes: _Scenes) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 64, 64) uint8, and the masks (n, 64, 64) of their targets."""
    n = len(scenes.tint)
    images, masks = np.empty((n, 3, 64, 64), np.uint8), np.zeros((n, 64, 64), bool)
    for start in range(0, n, TOGETHER):
        few = slice(start, start + TOGETHER)
        images[few], masks[few] = _paint_few(_Scenes(*(part[few] for part in scenes)))
    return images, masks


def _paint_few(scenes: _Scenes) -> tuple[np.ndarray, np.ndarray]:
    """The ground, the stamps of each scene's items, and the grain; with the masks of the targets."""
    images = _clouds(scenes.tint, [scenes.coarse, scenes.fine])  # (F, 3, 64, 64)
    stamps = _stamps()[scenes.kind, scenes.radius - RADII[0], scenes.turn]  # (F, 5, 27, 27)
    cover = stamps * scenes.placed[:, :, None, None]
    scene, item, row, column = cover.nonzero()  # one entry per pixel to paint, (M,); no pixel twice
    share = cover[scene, item, row, column].astype(np.int16)  # in sixteenths
    row += scenes.corner[scene, item, 0]
    column += scenes.corner[scene, item, 1]
    under = images[scene, :, row, column]  # (M, 3)
    images[scene, :, row, column] = under + (scenes.paint[scene, item] - under) * share[:, None] // FINE**2
    masks = np.zeros((len(images), 64, 64), bool)
    solid = (item == 0) & (2 * share >= FINE**2)
    masks[scene[solid], row[solid], column[solid]] = True
    return images + scenes.grain, masks


def _figures(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Which points lie inside each target, then each distractor; all fit the unit circle; y points up.

    Only sums, products and comparisons, which IEEE 754 defines to the last bit: every machine draws the same.
    """
    ax, ay, d2 = abs(x), abs(y), x * x + y * y
    big, small = np.maximum(ax, ay), np.minimum(ax, ay)
    points = [(0.0, 1.0), (0.951, 0.309), (0.588, -0.809), (-0.588, -0.809), (-0.951, 0.309)]  # five round a circle

    def round_(a: float, b: float, square: float) -> np.ndarray:
        return (x - a) * (x - a) + (y - b) * (y - b) <= square

    within = sum((a * x + b * y <= 0.309).astype(int) for a, b in points)  # how many of a star's five long edges
    inside = {
        "disc": round_(0, 0, 0.72),
        "ring": round_(0, 0, 0.9) & (d2 >= 0.27),
        "crescent": round_(0, 0, 0.95) & ~round_(0.5, 0, 0.5),
        "triangle": (y >= -0.5) & (1.732 * ax + y <= 1),
        "square": big <= 0.69,
        "cross": (small <= 0.29) & (big <= 0.95),
        "star": within >= 4,
        "heart": (abs(x) + abs(y + 0.141) <= 0.707) | round_(-0.354, 0.212, 0.25) | round_(0.354, 0.212, 0.25),
        "bar": (ax <= 0.97) & (ay <= 0.2),
        "dots": round_(0, 0.62, 0.1) | round_(0.36, -0.5, 0.1) | round_(-0.59, -0.19, 0.1),
        "arc": round_(0, 0, 0.95) & (d2 >= 0.5) & (y >= 0.1),
        "grid": ((abs(ax - 0.36) <= 0.13) | (abs(ay - 0.36) <= 0.13)) & (big <= 0.75),
        "zigzag": (abs(y - 1.5 * abs(ax - 0.45) + 0.33) <= 0.25) & (ax <= 0.82),
    }
    return [inside[name] for name in (*TARGETS, *DISTRACTORS)]


@functools.cache
def _stamps() -> np.ndarray:
    """How much of each pixel each figure covers, in sixteenths: (13 figures, 6 radii, 36 turns, 27, 27) uint8."""
    # Cosines rounded to thousandths, so that no library's last digit matters.
    # Of a quarter of the turns: the others are these, turned by right angles.
    angles = [2 * math.pi * turn / TURNS for turn in range(TURNS // 4)]
    cos, sin = (np.array([round(1000 * f(a)) / 1000 for a in angles])[:, None, None] for f in (math.cos, math.sin))
    fine = (np.arange(STAMP * FINE) * 2 + 1 - STAMP * FINE) / (2 * FINE)  # in pixels from the middle, exact in binary
    row, column = -fine[:, None], fine[None, :]  # rows count downwards, y upwards
    radius = np.array(RADII)[:, None, None, None]
    x, y = (cos * column + sin * row) / radius, (cos * row - sin * column) / radius  # (6, 9, 108, 108)
    cover = [f.reshape(*f.shape[:2], STAMP, FINE, STAMP, FINE).sum((3, 5), dtype=np.uint8) for f in _figures(x, y)]
    return np.concatenate([np.rot90(np.stack(cover), quarter, axes=(-2, -1)) for quarter in range(4)], axis=2)


def _ground(rng: Draw, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ground's tint (n, 3) int16, and the heights of its coarse and fine clouds at their knots."""
    tint = (rng(40, 81, n)[:, None] + rng(-14, 15, (n, 3))).astype(np.int16)  # (n, 3)
    many = [64 // step + 1 for step in CLOUDS]
    heights = [rng(-height, height + 1, (n, k, k)) for k, height in zip(many, CLOUDS.values(), strict=True)]
    coarse, fine = (height.astype(np.float32) for height in heights)
    return tint, coarse, fine


def _clouds(tint: np.ndarray, knots: list[np.ndarray]) -> np.ndarray:
    """The ground, dark and tinted, with coarse and fine clouds: (F, 3, 64, 64) int16."""
    clouds = np.zeros((len(tint), 64, 64), np.int16)
    for step, heights in zip(CLOUDS, knots, strict=True):
        at = 2 * step * np.arange(heights.shape[1])  # in half pixels, as is a pixel's middle
        near = np.maximum(2 * step - abs(2 * np.arange(64)[:, None] + 1 - at), 0).astype(np.float32)  # (64, knots)
        # Whole numbers below 2^24: exact, in any order of addition.
        clouds += np.floor(near @ heights @ near.T / (2 * step) ** 2).astype(np.int16)
    return clouds[:, None] + tint[:, :, None, None]


def _paint(rng: Draw, luma: np.ndarray) -> np.ndarray:
    """A colour for each of five items, at least 64 of 255 levels lighter than the ground: (n, 5, 3) int16."""
    paint = np.zeros((len(luma), 5, 3), np.int16)
    dull = np.ones(paint.shape[:2], bool)
    while dull.any():
        fresh = PAINTS[rng(0, len(PAINTS), dull.sum())] + rng(-15, 16, (dull.sum(), 3))
        paint[dull] = fresh.clip(4, 251)  # room for the grain
        dull = paint @ LUMA // 1000 - luma[:, None] < 64
    return paint


def _places(rng: Draw, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Radius (n, 5), the stamp's top left corner (n, 5, 2), and which items found room (n, 5): targets always do."""
    radius, middle, placed = np.full((n, 5), RADII[0]), np.zeros((n, 5, 2), np.int64), np.zeros((n, 5), bool)
    for item in range(5):
        for _ in range(1 if item == 0 else 40):
            r = rng(10, 14, n) if item == 0 else rng(8, 12, n)
            at = r[:, None] + rng(0, 64 - 2 * r[:, None], (n, 2))
            clear = ((at[:, None] - middle) ** 2).sum(2) >= (r[:, None] + radius + 2) ** 2  # (n, 5)
            here = (clear | ~placed).all(1) & ~placed[:, item]
            radius[here, item], middle[here, item], placed[here, item] = r[here], at[here], True
    return radius, middle - STAMP // 2, placed
