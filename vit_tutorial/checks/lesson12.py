"""Checks of lesson 12: a convolution as a matrix, what one place sees, a fair choice of rates, nine heads."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Forbidden,
    Mistake,
    Result,
    Slip,
    answers,
    call,
    check,
    normal,
)

__all__ = [
    "check_bias_numbers",
    "check_conv_matrix",
    "check_fair_comparison",
    "check_nine_heads",
    "check_receptive_field",
]

_KNOWS = "1 · What a convolution knows"
_HEADS = "2 · Nine heads can be a convolution"
_MODELS = "3 · Three models"
_SEES = "4 · What one place sees"
_RATE = "5 · Which rate?"
_ONE_RATE = "One rate for all."
_ONE_RUN = "Counting one run as a result."

Size = tuple[int, int]
Layer = tuple[int, int]  # kernel size, stride
Run = dict[str, Any]

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "convolution": 648,
    "patches": 4608,
    "convolution's work": 663_552,
    "patches' work": 294_912,
    "matrix": 100,
    "different": 9,
    "field": 11,
    "heads": 25,
}

BIAS_NUMBERS = Exercise(
    name="bias_numbers",
    lesson="12",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    secret=True,
    advice={
        "convolution": "A kernel of 3 × 3 for each pair of an input and an output channel.",
        "patches": "E takes all the numbers of a patch, and makes D of them.",
        "convolution's work": "Each of its numbers is used once at each place of the map that comes out.",
        "patches' work": "Each number of E is used once for each patch.",
        "matrix": "A row has nine numbers, fewer for a place at the edge. Or: along one axis 3 · 4 - 2 pairs are "
        "neighbours.",
        "different": "All places use the same kernel.",
        "field": "Begin with 1. Each layer adds its kernel less one, times all strides before it.",
        "heads": "One head for each place of the kernel.",
    },
    mistakes=(
        Mistake(
            "one kernel for all input channels",
            "Each output channel has a kernel of its own for each of the 3 input channels.",
            _MODELS,
            {"convolution": 216},
        ),
        Mistake(
            "kernels of one output channel",
            "That is what one output channel needs. There are 24 of them.",
            _MODELS,
            {"convolution": 27},
        ),
        Mistake(
            "a bias of the convolution that isn't there",
            "You count one number more for each output. Both layers are without bias here.",
            _MODELS,
            {"convolution": 672},
        ),
        Mistake(
            "a bias of E that isn't there",
            "You count one number more for each number of the token. Both layers are without bias here.",
            _MODELS,
            {"patches": 4704},
        ),
        Mistake(
            "kernels of one number",
            "You count the kernels, 3 · 24 of them. Each has 3 · 3 numbers.",
            _MODELS,
            {"convolution": 72},
        ),
        Mistake(
            "the numbers of one patch",
            "That is what E takes. It makes D = 96 numbers of them, and needs a weight for each pair.",
            _MODELS,
            {"patches": 48},
        ),
        Mistake(
            "a patch of one channel", "A patch has 4 · 4 pixels of 3 channels: 48 numbers.", _MODELS, {"patches": 1536}
        ),
        Mistake(
            "E once for each patch",
            "All patches share one E. Its numbers are counted once, and used 64 times.",
            _KNOWS,
            {"patches": 294_912},
        ),
        Mistake(
            "the work of one channel",
            "You count the nine numbers of one kernel at 1,024 places. There are 3 · 24 kernels.",
            _MODELS,
            {"convolution's work": 9216},
        ),
        Mistake(
            "work at the inner places alone",
            "With a padding of one the map that comes out has 32 · 32 places, too.",
            _MODELS,
            {"convolution's work": 583_200},
        ),
        Mistake(
            "parameters in place of work",
            "That is how many numbers there are. Each is used at every place: multiply.",
            _MODELS,
            {"convolution's work": 648},
        ),
        Mistake(
            "E's parameters in place of its work",
            "That is how many numbers E has. Each is used once for each of the 64 patches.",
            _MODELS,
            {"patches' work": 4608},
        ),
        Mistake(
            "the work for one output channel",
            "That is what one of the 24 channels takes that come out.",
            _MODELS,
            {"convolution's work": 27_648},
        ),
        Mistake(
            "the work on one input channel",
            "The kernels look at each of the 3 channels that go in.",
            _MODELS,
            {"convolution's work": 221_184},
        ),
        Mistake(
            "E's work on one channel",
            "A patch has 4 · 4 pixels of 3 channels: 48 numbers, not 16.",
            _MODELS,
            {"patches' work": 98_304},
        ),
        Mistake(
            "work at each pixel",
            "E isn't applied at each pixel, but once for each patch: 8 · 8 of them.",
            _MODELS,
            {"patches' work": 4_718_592},
        ),
        Mistake(
            "nine numbers in each row",
            "At the edge part of the kernel lies outside, on the padding, and has no column.",
            _KNOWS,
            {"matrix": 144},
        ),
        Mistake("all entries", "That is how many entries the matrix has. Most are zero.", _KNOWS, {"matrix": 256}),
        Mistake(
            "the inner places alone",
            "Four places have the whole kernel. The others have a part of it, and count as well.",
            _KNOWS,
            {"matrix": 36},
        ),
        Mistake(
            "each entry as a number of its own",
            "The entries repeat: every row has the same nine numbers, at other columns.",
            _KNOWS,
            {"different": 100},
        ),
        Mistake(
            "zero counted with the kernel",
            "The nine of the kernel; the question leaves out zero.",
            _KNOWS,
            {"different": 10},
        ),
        Mistake(
            "kernels that are added without strides",
            "Behind a stride of 2, one place of the map counts as two pixels of the picture.",
            _SEES,
            {"field": 7},
        ),
        Mistake(
            "a layer's own stride counted",
            "A stride acts on what comes after: its own layer's kernel still lies on the map before it.",
            _SEES,
            {"field": 17},
        ),
        Mistake(
            "the last stride alone",
            "Strides multiply: before the third layer there are 2 · 1.",
            _SEES,
            {"field": 9},
        ),
        Mistake("a head for each direction of the 3 × 3 kernel", "The kernel is 5 × 5 here.", _HEADS, {"heads": 9}),
        Mistake(
            "heads for the neighbours alone",
            "The place itself is one of the kernel's, too, and needs its head.",
            _HEADS,
            {"heads": 24},
        ),
        Mistake(
            "one head for each row",
            "A head looks at one place: one head for each entry of the kernel.",
            _HEADS,
            {"heads": 5},
        ),
    ),
)


def check_bias_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(BIAS_NUMBERS, fn)


# ---- A convolution as a matrix -----------------------------------------------------------------------------------


def _matrix(
    kernel: Tensor,
    size: Size,
    place: Callable[[int, int, Size], int | None],
    start: int | None = None,
) -> Tensor:
    """(N, N): entry [i, j] of the kernel lies at (y + i - start, x + j - start); ``place`` numbers it, or leaves it."""
    (H, W), k = size, kernel.shape[0]
    before = k // 2 if start is None else start
    matrix = torch.zeros(H * W, H * W, dtype=kernel.dtype)
    for y in range(H):
        for x in range(W):
            row = place(y, x, size)
            for i in range(k):
                for j in range(k):
                    column = place(y + i - before, x + j - before, size)
                    if row is not None and column is not None:
                        matrix[row, column] += kernel[i, j]
    return matrix


def _by_rows(y: int, x: int, size: Size) -> int | None:
    return y * size[1] + x if 0 <= y < size[0] and 0 <= x < size[1] else None


def _by_columns(y: int, x: int, size: Size) -> int | None:
    return x * size[0] + y if 0 <= y < size[0] and 0 <= x < size[1] else None


def _along_the_list(y: int, x: int, size: Size) -> int | None:
    number = y * size[1] + x
    return number if 0 <= number < size[0] * size[1] else None


def _round_the_picture(y: int, x: int, size: Size) -> int | None:
    return (y % size[0]) * size[1] + x % size[1]


def _at_the_edge(y: int, x: int, size: Size) -> int | None:
    return min(max(y, 0), size[0] - 1) * size[1] + min(max(x, 0), size[1] - 1)


def _round_in_rows(y: int, x: int, size: Size) -> int | None:
    return y * size[1] + x % size[1] if 0 <= y < size[0] else None


def _round_in_columns(y: int, x: int, size: Size) -> int | None:
    return (y % size[0]) * size[1] + x if 0 <= x < size[1] else None


def _mirrored_at_the_edge(y: int, x: int, size: Size) -> int | None:
    inside = [abs(n) if n < length else 2 * (length - 1) - n for n, length in zip((y, x), size, strict=True)]
    return _by_rows(inside[0], inside[1], size)


def _cross(kernel: Tensor) -> Tensor:
    middle = len(kernel) // 2
    kept = torch.zeros_like(kernel)
    kept[middle], kept[:, middle] = kernel[middle], kernel[:, middle]
    return kept


def _middle(kernel: Tensor) -> Tensor:
    kept = torch.zeros_like(kernel)
    kept[len(kernel) // 2, len(kernel) // 2] = kernel[len(kernel) // 2, len(kernel) // 2]
    return kept


def _neighbours_alone(kernel: Tensor) -> Tensor:
    return kernel - _middle(kernel)


def _size_turned(kernel: Tensor, size: Size) -> Tensor:
    return _matrix(kernel, (size[1], size[0]), _by_rows)


def _one_band(kernel: Tensor, size: Size) -> Tensor:
    N, before = math.prod(size), kernel.numel() // 2
    return torch.stack([F.pad(kernel.flatten(), (n, N - n))[before : before + N] for n in range(N)])


def _from_the_first_column(kernel: Tensor, size: Size) -> Tensor:
    N = math.prod(size)
    return F.pad(kernel.flatten(), (0, N))[:N].expand(N, N).clone()


def _with_the_padding(kernel: Tensor, size: Size) -> Tensor:
    e = len(kernel) // 2
    whole = torch.zeros(*size, size[0] + 2 * e, size[1] + 2 * e)
    for y in range(size[0]):
        for x in range(size[1]):
            whole[y, x, y : y + len(kernel), x : x + len(kernel)] = kernel
    return whole.flatten(2).flatten(0, 1)


def _without_the_ends(kernel: Tensor, size: Size) -> Tensor:
    """The last row and the last column of places forgotten, as by a range that ends too early."""
    whole = _matrix(kernel, size, _by_rows).unflatten(0, size)
    kept = torch.zeros_like(whole)
    kept[:-1, :-1] = whole[:-1, :-1]
    return kept.flatten(0, 1)


def _conv_matrix(
    turn: Callable[[Tensor], Tensor] = lambda kernel: kernel,
    place: Callable[[int, int, Size], int | None] = _by_rows,
    start: int | None = None,
) -> Callable[[Tensor, Size], Tensor]:
    def conv_matrix(kernel: Tensor, size: Size) -> Tensor:
        return _matrix(turn(kernel), size, place, start)

    return conv_matrix


def _inner_rows(kernel: Tensor, size: Size) -> Tensor:
    (H, W), edge = size, kernel.shape[0] // 2
    whole: Tensor = _matrix(kernel, size, _by_rows).unflatten(0, size)
    return whole[edge : H - edge, edge : W - edge].flatten(0, 1)


def _zero_edge(kernel: Tensor, size: Size) -> Tensor:
    (H, W), edge = size, kernel.shape[0] // 2
    whole = _matrix(kernel, size, _by_rows).unflatten(0, size)
    inner = torch.zeros_like(whole)
    inner[edge : H - edge, edge : W - edge] = whole[edge : H - edge, edge : W - edge]
    return inner.flatten(0, 1)


def _four_axes(kernel: Tensor, size: Size) -> Tensor:
    return _matrix(kernel, size, _by_rows).view(*size, *size)


CONV_MATRIX = Exercise(
    name="conv_matrix",
    lesson="12",
    points=4,
    right=_conv_matrix(),
    cases=lambda: (
        [
            Case(f"a kernel of {k} × {k}, a picture of {H} × {W}", (normal(k, k, seed=k), (H, W)))
            for k, H, W in (
                (3, 3, 4),
                (3, 5, 3),
                (1, 2, 3),
                (5, 5, 6),
                (3, 1, 4),
                (5, 3, 2),
                (3, 1, 1),
                (3, 3, 3),
                (7, 2, 9),
                (9, 2, 3),
                (3, 2, 13),
            )
        ]
        + [Case("a kernel with large numbers", (1000 * normal(3, 3, seed=4), (2, 4)))]
    ),
    observe=call,
    tolerance=1e-6,  # the kernel's numbers are put into their places, as they are
    mistakes=(
        Mistake(
            "a kernel that is turned by 180 degrees",
            "Row n is what place n takes: entry [0, 0] of the kernel belongs to the pixel up and to the left of it. "
            "You have the matrix's transpose, or the flipped kernel of mathematics; torch doesn't flip.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: kernel.flip(0, 1)),
        ),
        Mistake(
            "neighbours along the list",
            "You go left and right by one in the list of pixels, so the end of a row and the beginning of the next are "
            "neighbours. Look at row and column apart: what lies beside the picture is padding.",
            _KNOWS,
            Slip(_conv_matrix, place=_along_the_list),
        ),
        Mistake(
            "a picture that goes on at the other side",
            "What leaves on one side comes in on the other in your matrix. Outside lies padding, zero. (A negative "
            "index counts from the end, too.)",
            _KNOWS,
            Slip(_conv_matrix, place=_round_the_picture),
        ),
        Mistake(
            "an edge that is repeated",
            "You take the nearest pixel of the picture for what lies outside. The padding is zero: leave it out.",
            _KNOWS,
            Slip(_conv_matrix, place=_at_the_edge),
        ),
        Mistake(
            "a kernel that isn't centred",
            "Its first entry lies on the place itself. Move it up and to the left by k // 2.",
            _KNOWS,
            Slip(_conv_matrix, start=0),
        ),
        Mistake(
            "a kernel that is centred for 3 × 3 alone",
            "You move it by 1 whatever its size. Its middle is at k // 2.",
            _KNOWS,
            Slip(_conv_matrix, start=1),
        ),
        Mistake(
            "rows and columns of the kernel exchanged",
            "kernel[i, j] lies i rows down and j columns to the right.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: kernel.T),
        ),
        Mistake(
            "pixels numbered column by column",
            "Pixels are numbered row by row: pixel (y, x) is number y · W + x.",
            _KNOWS,
            Slip(_conv_matrix, place=_by_columns),
        ),
        Mistake(
            "places at the edge left out",
            "With padding there is a row for every place of the picture, N of them.",
            _KNOWS,
            _inner_rows,
        ),
        Mistake(
            "rows of zeros for places at the edge",
            "A place at the edge has the part of the kernel that lies inside the picture.",
            _KNOWS,
            _zero_edge,
        ),
        Mistake(
            "a matrix that isn't flattened",
            "The numbers are right, with an axis each for y and x. Pixels are a list here: (N, N).",
            _KNOWS,
            _four_axes,
        ),
        Mistake(
            "a kernel that stands on its head",
            "Rows are exchanged: entry [0, 0] of the kernel belongs to the pixel above. torch doesn't flip.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: kernel.flip(0)),
        ),
        Mistake(
            "a kernel that is mirrored",
            "Left and right are exchanged: entry [0, 0] of the kernel belongs to the left. torch doesn't flip.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: kernel.flip(1)),
        ),
        Mistake(
            "rows of the picture that go on at the other side",
            "What leaves to the right comes in on the left. Look at the column, too: outside lies padding.",
            _KNOWS,
            Slip(_conv_matrix, place=_round_in_rows),
        ),
        Mistake(
            "columns of the picture that go on at the other side",
            "What leaves below comes in above in your matrix. Look at the row, too: outside lies padding.",
            _KNOWS,
            Slip(_conv_matrix, place=_round_in_columns),
        ),
        Mistake(
            "an edge that mirrors",
            "You take the pixel as far inside for one outside. The padding is zero: leave it out.",
            _KNOWS,
            Slip(_conv_matrix, place=_mirrored_at_the_edge),
        ),
        Mistake(
            "a cross in place of the whole kernel",
            "The corners of the kernel count as well: (k, k) numbers.",
            _KNOWS,
            Slip(_conv_matrix, turn=_cross),
        ),
        Mistake(
            "the middle of the kernel alone",
            "Each place only sees itself. The rest of the kernel brings its neighbours.",
            _KNOWS,
            Slip(_conv_matrix, turn=_middle),
        ),
        Mistake(
            "a kernel without its middle",
            "The place itself counts as well: entry [k // 2, k // 2].",
            _KNOWS,
            Slip(_conv_matrix, turn=_neighbours_alone),
        ),
        Mistake(
            "a kernel that ends on the place",
            "Its last entry lies on the place itself. Move it by k // 2 alone.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: F.pad(kernel, (0, len(kernel) - 1, 0, len(kernel) - 1))),
        ),
        Mistake(
            "ones in place of the kernel's numbers",
            "Your matrix says who is a neighbour. Put the kernel's numbers there.",
            _KNOWS,
            Slip(_conv_matrix, turn=torch.ones_like),
        ),
        Mistake(
            "a kernel whose sum is made 1",
            "The kernel is used as it is.",
            _KNOWS,
            Slip(_conv_matrix, turn=lambda kernel: kernel / kernel.sum()),
        ),
        Mistake(
            "height and width exchanged",
            "size is (H, W), height first.",
            _KNOWS,
            _size_turned,
        ),
        Mistake(
            "one band of the flattened kernel",
            "Your rows hold the kernel's numbers side by side. From one row of the kernel to the next it is W columns.",
            _KNOWS,
            _one_band,
        ),
        Mistake(
            "the same row for every place",
            "Each place has the kernel around itself, so each row has it at other columns.",
            _KNOWS,
            _from_the_first_column,
        ),
        Mistake(
            "columns for the padding",
            "Padding is zero, and has no column: N × N, as many columns as pixels.",
            _KNOWS,
            _with_the_padding,
        ),
        Mistake(
            "no row for the last places",
            "The last row and the last column of the picture have their places, too: does a range end too early?",
            _KNOWS,
            _without_the_ends,
        ),
    ),
)


def check_conv_matrix(fn: Callable[[Tensor, Size], Tensor]) -> bool:
    """Check ``fn(kernel, size)``: (k, k), (H, W) -> (N, N), the convolution with padding as a matrix."""
    return check(CONV_MATRIX, fn)


# ---- What one place sees -----------------------------------------------------------------------------------------


def _receptive_field(
    grow: Callable[[int, int], int] = lambda r, step: r + step,
    step: Callable[[int, int, int], int] = lambda k, s, jump: (k - 1) * jump,
    jump: Callable[[int, int], int] = lambda jump, s: jump * s,
    begin: int = 1,
) -> Callable[[Sequence[Layer]], int]:
    def receptive_field(layers: Sequence[Layer]) -> int:
        r, pixels = begin, 1
        for k, s in layers:
            r = grow(r, step(k, s, pixels))
            pixels = jump(pixels, s)
        return r

    return receptive_field


def _one_side(layers: Sequence[Layer]) -> int:
    return _receptive_field()(layers) // 2


def _area(layers: Sequence[Layer]) -> int:
    return int(_receptive_field()(layers) ** 2)


def _sum_of_kernels(layers: Sequence[Layer]) -> int:
    return sum(k for k, _ in layers)


def _product_of_strides(layers: Sequence[Layer]) -> int:
    return math.prod(s for _, s in layers)


def _all_strides(layers: Sequence[Layer]) -> int:
    return 1 + sum(k - 1 for k, _ in layers) * _product_of_strides(layers)


def _first_stride_left_out(layers: Sequence[Layer]) -> int:
    return _receptive_field()([(k, s if i else 1) for i, (k, s) in enumerate(layers)])


def _exchanged(layers: Sequence[Layer]) -> int:
    return _receptive_field()([(s, k) for k, s in layers])


def _without(some: slice) -> Callable[[Sequence[Layer]], int]:
    return lambda layers: _receptive_field()(layers[some])


def _sum_of_strides(layers: Sequence[Layer]) -> int:
    return 1 + sum((k - 1) * max(1, sum(s for _, s in layers[:i])) for i, (k, _) in enumerate(layers))


def _largest_kernel(layers: Sequence[Layer]) -> int:
    return max((k for k, _ in layers), default=1)


def _terms(wrong: list[tuple[Case, Result, Result]]) -> str:
    """The sum of the first wrong input, term by term."""
    layers, right = wrong[0][0].args[0], wrong[0][1]["result"]
    float(wrong[0][2]["result"])  # what is no number hears that it should be one
    before = [math.prod(s for _, s in layers[:i]) for i in range(len(layers))]
    terms = [f"{k - 1} · {pixels}" for (k, _), pixels in zip(layers, before, strict=True)]
    return f"For {layers} the sum is {' + '.join(['1', *terms])} = {right}." if len(terms) > 1 else ""


def _from_the_front(layers: Sequence[Layer]) -> int:
    """The recursion that belongs to the last layer first, run from the first."""
    r = 1
    for k, s in layers:
        r = r * s + k - s
    return r


RECEPTIVE_FIELD = Exercise(
    name="receptive_field",
    lesson="12",
    points=3,
    right=_receptive_field(),
    cases=lambda: (
        [
            Case("(kernel, stride): " + ", ".join(map(str, layers)) if layers else "no layer", (layers,))
            for layers in (
                [(3, 1), (3, 2), (3, 2)],
                [(3, 2), (5, 1), (3, 3), (2, 2), (3, 1)],
                [(4, 4)],
                [(7, 2), (3, 2), (1, 1), (3, 1)],
                [],
                [(2, 3)],
                [(5, 1), (3, 3), (4, 2)],
                [(3, 2), (1, 2), (3, 1)],
                [(7, 2), (3, 2), *[(3, 1)] * 9, (3, 2), (3, 1), (5, 2), (3, 1), (2, 2), (3, 1)],
                [(3, 2), (3, 3), (3, 1)],  # the kernels of the first, other strides
                [(2, 1), (5, 2), (3, 2)],  # its strides, other kernels
                [(16, 16), (31, 7), (2, 1)],
            )
        ]
        + [Case("16 layers of (3, 2)", ([(3, 2)] * 16,))]
    ),
    observe=call,
    tolerance=1e-9,  # pixels are counted
    explain=_terms,
    mistakes=(
        Mistake(
            "a layer's own stride counted",
            "A stride acts on the layers after it. Add first, then multiply by the stride.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: (k - 1) * jump * s),
        ),
        Mistake(
            "strides left out",
            "Behind a stride of 2, neighbours on the map are two pixels apart: multiply by all strides before.",
            _SEES,
            Slip(_receptive_field, jump=lambda jump, s: 1),
        ),
        Mistake(
            "only the stride of the layer before",
            "Strides multiply, from the first layer on.",
            _SEES,
            Slip(_receptive_field, jump=lambda jump, s: s),
        ),
        Mistake(
            "strides that are added",
            "Behind two strides of 2, neighbours are 2 · 2 pixels apart: multiply them.",
            _SEES,
            Slip(_receptive_field, jump=lambda jump, s: jump + s - 1),
        ),
        Mistake(
            "whole kernels added",
            "A kernel of k reaches k - 1 places further, as one of its places was seen before.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: k * jump),
        ),
        Mistake(
            "half the kernel",
            "You add what a kernel reaches on one side. It reaches as far on the other: k - 1 in all.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: (k // 2) * jump),
        ),
        Mistake(
            "a start at zero",
            "Without any layer a place sees one pixel, itself.",
            _SEES,
            Slip(_receptive_field, begin=0),
        ),
        Mistake(
            "kernels that are multiplied",
            "Each layer adds (k - 1) times the strides before it. It doesn't multiply what is seen.",
            _SEES,
            Slip(_receptive_field, grow=lambda r, step: r * (step + 1), jump=lambda jump, s: 1),
        ),
        Mistake(
            "a sum of kernels",
            "Take one off each kernel, and multiply by the strides before it.",
            _SEES,
            _sum_of_kernels,
        ),
        Mistake(
            "a product of strides",
            "That is how many pixels two neighbours of the last map lie apart. What one of them sees is the sum.",
            _SEES,
            _product_of_strides,
        ),
        Mistake(
            "all strides for every layer",
            "Each kernel is multiplied by the strides of the layers before it alone.",
            _SEES,
            _all_strides,
        ),
        Mistake(
            "a layer's own stride in place of those before it",
            "A layer's own stride acts on what comes after. Multiply by all strides before.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: (k - 1) * s, jump=lambda jump, s: 1),
        ),
        Mistake(
            "the first layer's stride left out",
            "The second layer already lies on a map whose neighbours are the first stride apart.",
            _SEES,
            _first_stride_left_out,
        ),
        Mistake(
            "even kernels taken for odd",
            "k // 2 on both sides is k - 1 for an odd kernel alone. A kernel of 4 sees 4 pixels.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: 2 * (k // 2) * jump),
        ),
        Mistake(
            "kernel and stride exchanged",
            "A layer is (kernel size, stride), in this order.",
            _SEES,
            _exchanged,
        ),
        Mistake(
            "one taken off behind the product",
            "Take one off the kernel first, then multiply: (k - 1) · strides.",
            _SEES,
            Slip(_receptive_field, step=lambda k, s, jump: k * jump - 1),
        ),
        Mistake(
            "one side alone",
            "You count the pixels on one side of the middle. Count both, and the middle.",
            _SEES,
            _one_side,
        ),
        Mistake(
            "an area",
            "You count all pixels that are seen. The question is how many in each direction: the root of yours.",
            _SEES,
            _area,
        ),
        Mistake(
            "layers in the wrong order",
            "That is what the layers see in the reverse order: each kernel counts with the strides behind it, not with "
            "those before it. (r · stride + kernel - stride goes from the last layer to the first.)",
            _SEES,
            _from_the_front,
        ),
        Mistake(
            "the last layer left out",
            "The last layer's kernel widens the view, too: does a range end too early?",
            _SEES,
            _without(slice(-1)),
        ),
        Mistake(
            "the first layer left out",
            "The first layer's kernel widens the view, too: does a range begin too late?",
            _SEES,
            _without(slice(1, None)),
        ),
        Mistake(
            "a sum of the strides before",
            "Behind strides of 2 and 3, neighbours are 2 · 3 pixels apart: multiply them.",
            _SEES,
            _sum_of_strides,
        ),
        Mistake(
            "the largest kernel alone",
            "Each layer looks at what the layer before has seen, so what they see adds up.",
            _SEES,
            _largest_kernel,
        ),
        Mistake(
            "one step too many",
            "Your start is 2. Without any layer a place sees one pixel, itself.",
            _SEES,
            Slip(_receptive_field, begin=2),
        ),
        Mistake(
            "powers of the last stride",
            "Each stride multiplies once what came before: keep the product as you go.",
            _SEES,
            Slip(_receptive_field, jump=lambda jump, s: jump * s * s),
        ),
    ),
)


def check_receptive_field(fn: Callable[[Sequence[Layer]], int]) -> bool:
    """Check ``fn(layers)``: (kernel size, stride) of each, the first one first -> pixels in each direction."""
    return check(RECEPTIVE_FIELD, fn)


# ---- A fair comparison -------------------------------------------------------------------------------------------


def _runs(seed: int, models: Sequence[str], rates: Sequence[float], seeds: int) -> list[Run]:
    """Runs in mixed order: what is best by one run, by the test images, or for all models, isn't what is best."""
    held = normal(len(models), len(rates), seeds, seed=seed)
    test = 0.5 * held + 0.8 * normal(len(models), len(rates), seeds, seed=seed + 100)
    percent = [(60 + 8 * numbers).round(decimals=2).tolist() for numbers in (held, test)]
    runs = [
        {"model": name, "rate": rate, "seed": s, "held_out": percent[0][m][r][s], "test": percent[1][m][r][s]}
        for m, name in enumerate(models)
        for r, rate in enumerate(rates)
        for s in range(seeds)
    ]
    order = torch.randperm(len(runs), generator=torch.Generator().manual_seed(seed)).tolist()
    return [runs[i] for i in order]


def _some_broken_off(runs: list[Run]) -> list[Run]:
    """Without a run of the worst rate and two of the best: sums, or a division by all seeds, choose another."""
    kept = []
    for name in dict.fromkeys(run["model"] for run in runs):
        own = [run for run in runs if run["model"] == name]
        rates = sorted({run["rate"] for run in own}, key=lambda rate: _mean_at(own, rate))
        lost = {rates[-1]: (1, 2), rates[0]: (0,)}
        kept += [run for run in own if run["seed"] not in lost.get(run["rate"], ())]
    return [run for run in runs if run in kept]


def _odd_runs() -> list[Run]:
    """Rates close to zero and to one another, two seeds with the same results, a model without any right answer."""
    first, second = ((60, 50), (60, 50), (66, 58)), ((64, 61), (58, 61), (70, 40))
    numbers = {1e-5: first, 1.2e-5: second, 1e-4: ((61, 70), (61, 70))}
    runs = [
        {"model": "vit", "rate": rate, "seed": seed, "held_out": float(held), "test": float(test)}
        for rate, results in numbers.items()
        for seed, (held, test) in zip((0, 42, 7), results, strict=False)
    ]
    lost = [{"model": "lost", "rate": 3e-5, "seed": seed, "held_out": 0.0, "test": 0.0} for seed in (0, 42)]
    return [*runs[3:], *lost, *runs[:3]]


def _few_runs() -> list[Run]:
    """Rates with 1 to 5 runs, and means that are close: which runs count, and how exactly, decides.

    Of "a" the best rate has one run. A sum takes 0.003; of rates with all runs 0.001 is best, of those with two runs
    or more 0.1, of those with three 0.03, and by seed 0 alone 0.001. Of "b" equal results, squares or rounded means
    choose another.
    """
    held = {
        ("a", 0.001): (76, 38, 48, 40, 48),
        ("a", 0.003): (66, 66, 65, 67),
        ("a", 0.01): (75,),
        ("a", 0.03): (68, 67, 69),
        ("a", 0.1): (70, 71),
        ("b", 0.0003): (63.999, 63.999),
        ("b", 0.001): (66, 66, 60),
        ("b", 0.01): (64, 63),
        ("b", 0.1): (40, 86),
        ("c", 0.01): (55, 57),
        ("c", 0.02): (58, 59),  # a rate that no other model was tried at
    }
    return [
        {"model": model, "rate": rate, "seed": seed, "held_out": float(number), "test": 30 + 5.0 * place + 2 * seed**2}
        for place, ((model, rate), numbers) in enumerate(held.items())
        for seed, number in enumerate(numbers)
    ]


def _mean_at(runs: list[Run], rate: float) -> float:
    return _mean([run for run in runs if run["rate"] == rate], "held_out")


def _mean(runs: Iterable[Run], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)


def _best(runs: list[Run]) -> float:
    return _by_rate(runs, lambda of_rate: _mean(of_rate, "held_out"))


def _by_rate(runs: list[Run], score: Callable[[list[Run]], float]) -> float:
    rates: list[float] = sorted({run["rate"] for run in runs})
    return max(rates, key=lambda rate: score([run for run in runs if run["rate"] == rate]))


def _fair(
    choose: Callable[[list[Run], list[Run]], float] = lambda own, runs: _best(own),
    tell: Callable[[list[Run], list[Run]], float] = lambda at_rate, own: _mean(at_rate, "test"),
) -> Callable[[list[Run]], dict[str, tuple[float, float]]]:
    def fair_comparison(runs: list[Run]) -> dict[str, tuple[float, float]]:
        found = {}
        for name in sorted({run["model"] for run in runs}):
            own = [run for run in runs if run["model"] == name]
            rate = choose(own, runs)
            found[name] = (rate, tell([run for run in own if run["rate"] == rate], own))
        return found

    return fair_comparison


def _of_each_model(work: Any, case: Case) -> Result:
    """The rate and the accuracy that ``work`` gives for each model."""
    result = call(work, case)
    given, names = result["result"], sorted({run["model"] for run in case.args[0]})
    if not isinstance(given, dict):
        raise Fault(f"returned {type(given).__name__}, expected a dictionary, {{model: (rate, test accuracy)}}")
    if missing := [name for name in names if name not in given]:
        raise Fault(f"there is no answer for the model {missing[0]!r}: the models are {', '.join(names)}")
    if more := [name for name in given if name not in names]:
        raise Fault(f"the dictionary has {more[0]!r}, which is no model: the models are {', '.join(names)}")
    found: Result = {}
    for name in names:
        pair = given[name].tolist() if hasattr(given[name], "tolist") else given[name]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise Fault(f"{name!r} has {pair!r}, expected a pair: the rate, and the test accuracy")
        found |= {f"the rate of {name!r}": pair[0], f"the test accuracy of {name!r}": pair[1]}
    return found | {"changed": result["changed"]}


def _what_is_chosen(wrong: list[tuple[Case, Result, Result]]) -> str:
    """The first rate that isn't the one to choose, with the means to choose by; or that the rates are right."""
    for case, right, given in wrong:
        for key, rate in right.items():
            if not key.startswith("the rate of") or math.isclose(given[key], rate, rel_tol=1e-5):
                continue
            name = key.removeprefix("the rate of ").strip("'")
            own = [run for run in case.args[0] if run["model"] == name]
            means = {r: _mean_at(own, r) for r in {run["rate"] for run in own}}
            if not any(math.isclose(given[key], r, rel_tol=1e-5) for r in means):
                return f"{given[key]:g} is no rate that {name!r} was tried at (with {case.label})."
            listed = ", ".join(f"{r:g}: {mean:.6g}" for r, mean in sorted(means.items()))
            chosen = f"You chose the rate {given[key]:g}."
            return f"The means of held_out of {name!r} are {listed} (with {case.label}). {chosen}"
    told = [abs(given[key] - number) for _, right, given in wrong for key, number in right.items() if "test" in key[:9]]
    if any(distance > 1e-3 for distance in told):
        return "The rates are right, the accuracies aren't. Tell the mean of test over all seeds at the chosen rate."
    return ""


FAIR_COMPARISON = Exercise(
    name="fair_comparison",
    lesson="12",
    points=4,
    right=_fair(),
    cases=lambda: (
        [
            Case(f"{len(models)} models, {len(rates)} rates, {seeds} seeds", (_runs(seed, models, rates, seeds),))
            for seed, models, rates, seeds in (
                (1, ("resnet", "vit"), (0.001, 0.01, 0.1), 3),
                (2, ("hybrid vit", "vit", "vit-s"), (0.0003, 0.003, 0.03, 0.3), 2),
                (3, ("vit",), (0.1, 0.01, 0.001, 0.0001), 4),
                (4, ("a", "A", "b1", "b2"), (0.01, 0.02), 5),
            )
        ]
        + [
            Case(
                "2 models, 3 rates, 2 to 4 seeds",
                (_some_broken_off(_runs(5, ("resnet", "vit"), (0.001, 0.01, 0.1), 4)),),
            ),
            Case("2 models, 4 and 5 rates, 1 to 5 seeds", (_few_runs(),)),
            Case("rates from 0.00001 on, seeds with equal results, a model that is never right", (_odd_runs(),)),
        ]
    ),
    observe=_of_each_model,
    tolerance=1e-6,
    explain=_what_is_chosen,
    mistakes=(
        Mistake(
            "a rate that is chosen by the test images",
            "What is chosen on the test images looks better on them than it is. Choose by held_out, and look at test "
            "afterwards.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: _by_rate(own, lambda group: _mean(group, "test"))),
        ),
        Mistake(
            "one rate for all models",
            "You take the rate that is best on the average of all models. Each model gets its own.",
            _ONE_RATE,
            Slip(_fair, choose=lambda own, runs: _best(runs)),
        ),
        Mistake(
            "a rate that is chosen by a sum in place of a mean",
            "Not every rate has as many seeds, so a sum prefers the rate that has more of them (and so does a division "
            "by the number of all seeds). Divide by the number of its own.",
            _ONE_RUN,
            Slip(
                _fair,
                choose=lambda own, runs: _by_rate(own, lambda group: math.fsum(run["held_out"] for run in group)),
            ),
        ),
        Mistake(
            "a rate that is chosen by its best run",
            "One lucky seed decides. Take the mean over a rate's seeds first, then the best mean.",
            _ONE_RUN,
            Slip(_fair, choose=lambda own, runs: max(own, key=lambda run: run["held_out"])["rate"]),
        ),
        Mistake(
            "a rate that is chosen by its best test run",
            "The test images may not choose, and least of all by one lucky run. Choose by the mean of held_out.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: max(own, key=lambda run: run["test"])["rate"]),
        ),
        Mistake(
            "the images held out in place of the test images",
            "The rate is right, and you tell its accuracy on the images that it was chosen by. That is flattered: tell "
            "test.",
            _RATE,
            Slip(_fair, tell=lambda at_rate, own: _mean(at_rate, "held_out")),
        ),
        Mistake(
            "the best seed's accuracy",
            "You tell the best of the runs at this rate. Tell their mean.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: max(run["test"] for run in at_rate)),
        ),
        Mistake(
            "the accuracy of the run that was best on the images held out",
            "You tell one run's test accuracy. Tell the mean over all seeds at this rate.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: max(at_rate, key=lambda run: run["held_out"])["test"]),
        ),
        Mistake(
            "the mean over all rates",
            "The accuracy is that of the chosen rate's runs alone.",
            _ONE_RATE,
            Slip(_fair, tell=lambda at_rate, own: _mean(own, "test")),
        ),
        Mistake(
            "the first seed alone",
            "You choose by seed 0. Take the mean over all seeds of a rate.",
            _ONE_RUN,
            Slip(_fair, choose=lambda own, runs: _best([run for run in own if run["seed"] == 0])),
        ),
        Mistake(
            "the accuracy of the first seed",
            "You tell the test accuracy of seed 0. Tell the mean over the seeds.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: next(run["test"] for run in at_rate if run["seed"] == 0)),
        ),
        Mistake(
            "the worst rate",
            "Accuracies are better when they are larger: take the largest mean.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: _by_rate(own, lambda group: -_mean(group, "held_out"))),
        ),
        Mistake(
            "the sum over the seeds",
            "The test accuracy is a mean: divide by the number of seeds.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: math.fsum(run["test"] for run in at_rate)),
        ),
        Mistake(
            "a rate that is chosen by a median",
            "The text asks for the mean over the seeds, here and at the end.",
            _ONE_RUN,
            Slip(
                _fair, choose=lambda own, runs: _by_rate(own, lambda g: statistics.median(run["held_out"] for run in g))
            ),
        ),
        Mistake(
            "a rate that is chosen by its worst run",
            "One unlucky seed decides. Take the mean over a rate's seeds first, then the best mean.",
            _ONE_RUN,
            Slip(_fair, choose=lambda own, runs: _by_rate(own, lambda g: min(run["held_out"] for run in g))),
        ),
        Mistake(
            "a rate that is chosen by held_out and test together",
            "The test images may not choose. Choose by held_out alone.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: _by_rate(own, lambda g: _mean(g, "held_out") + _mean(g, "test"))),
        ),
        Mistake(
            "a rate that is chosen by its spread",
            "You take the rate whose seeds agree best. Take the one with the largest mean.",
            _RATE,
            Slip(
                _fair,
                choose=lambda own, runs: _by_rate(own, lambda g: -statistics.pvariance(run["held_out"] for run in g)),
            ),
        ),
        Mistake(
            "the largest rate",
            "You take the largest of the rates. Take the one whose mean of held_out is largest.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: max(run["rate"] for run in own)),
        ),
        Mistake(
            "the smallest rate",
            "You take the smallest of the rates. Take the one whose mean of held_out is largest.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: min(run["rate"] for run in own)),
        ),
        Mistake(
            "the first rate of the list",
            "The runs come in any order. Take the rate whose mean of held_out is largest.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: own[0]["rate"]),
        ),
        Mistake(
            "the last rate of the list",
            "The runs come in any order. Take the rate whose mean of held_out is largest.",
            _RATE,
            Slip(_fair, choose=lambda own, runs: own[-1]["rate"]),
        ),
        Mistake(
            "the median of the seeds",
            "You tell the median of test at this rate. Tell the mean.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: statistics.median(run["test"] for run in at_rate)),
        ),
        Mistake(
            "the worst seed's accuracy",
            "You tell the worst of the runs at this rate. Tell their mean.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: min(run["test"] for run in at_rate)),
        ),
        Mistake(
            "the accuracy of the rate's first run",
            "You tell the first run of the list. Tell the mean over the seeds.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: at_rate[0]["test"]),
        ),
        Mistake(
            "the accuracy of the rate's last run",
            "You tell the last run of the list (a dictionary keeps the last). Tell the mean over the seeds.",
            _ONE_RUN,
            Slip(_fair, tell=lambda at_rate, own: at_rate[-1]["test"]),
        ),
        Mistake(
            "the best accuracy at any rate",
            "You tell the model's best run on the test images, at whatever rate. Tell the mean at the chosen one.",
            _RATE,
            Slip(_fair, tell=lambda at_rate, own: max(run["test"] for run in own)),
        ),
        Mistake(
            "a mean of held_out and test",
            "You tell a mean of both. Tell test alone: on held_out the rate was chosen.",
            _RATE,
            Slip(_fair, tell=lambda at_rate, own: (_mean(at_rate, "test") + _mean(at_rate, "held_out")) / 2),
        ),
        Mistake(
            "a share in place of percent",
            "The records are in percent, and so is the answer: don't divide by 100.",
            _RATE,
            Slip(_fair, tell=lambda at_rate, own: _mean(at_rate, "test") / 100),
        ),
        Mistake(
            "an error in place of an accuracy",
            "You tell how many percent are wrong. Tell how many are right.",
            _RATE,
            Slip(_fair, tell=lambda at_rate, own: 100 - _mean(at_rate, "test")),
        ),
    ),
)


def check_fair_comparison(fn: Callable[[list[Run]], Mapping[str, tuple[float, float]]]) -> bool:
    """Check ``fn(runs)``: a list of runs -> {model: (the rate chosen by held_out, mean test accuracy at it)}."""
    return check(FAIR_COMPARISON, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _one_step(grid: Size, down: int, right: int, place: Callable[[int, int, Size], int | None] = _by_rows) -> Tensor:
    """(N, N): each patch looks one step in one direction; who has nobody there looks at nothing."""
    whole = torch.zeros(grid[0] * grid[1], grid[0] * grid[1])
    for y in range(grid[0]):
        for x in range(grid[1]):
            row, column = place(y, x, grid), place(y + down, x + right, grid)
            if row is not None and column is not None:
                whole[row, column] = 1
    return whole


def _nine(
    turn: Callable[[Tensor], Tensor] = lambda weight: weight,
    place: Callable[[int, int, Size], int | None] = _by_rows,
    lost: Callable[[Tensor], Tensor] = lambda heads: heads,
    joined: Callable[[Tensor], Tensor] = lambda parts: parts.sum(dim=0),
) -> Callable[[Tensor, Tensor, Size], Tensor]:
    def nine_heads(x: Tensor, weight: Tensor, grid: Size) -> Tensor:
        kernels = turn(weight)  # (F, C, 3, 3)
        parts = []
        for i in range(3):
            for j in range(3):
                heads = lost(_one_step(grid, i - 1, j - 1, place)).to(x.dtype)  # (N, N)
                parts.append(heads @ x @ kernels[:, :, i, j].T)  # (B, N, F)
        return joined(torch.stack(parts))

    return nine_heads


def _mean_of_all(heads: Tensor) -> Tensor:
    """What a softmax over equal scores gives to who finds nobody."""
    alone = heads.sum(dim=1, keepdim=True) == 0
    return torch.where(alone, torch.full_like(heads, 1 / len(heads)), heads)


def _itself(heads: Tensor) -> Tensor:
    alone = heads.sum(dim=1) == 0
    return heads + torch.diag(alone.to(heads.dtype))


def _some_heads(keep: Callable[[int, int], bool]) -> Callable[[Tensor], Tensor]:
    """The kernel with zeros in place of the heads that are left out."""
    kept = torch.tensor([[float(keep(i, j)) for j in range(3)] for i in range(3)])
    return lambda weight: weight * kept.to(weight.dtype)


def _over_those_found(x: Tensor, weight: Tensor, grid: Size) -> Tensor:
    whole = [_one_step(grid, i, j).to(x.dtype) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    found = torch.stack(whole).sum(dim=(0, 2))  # (N,)
    return _nine()(x, weight, grid) / found[:, None]


def _softmax_of_the_heads(heads: Tensor) -> Tensor:
    return heads.softmax(dim=1)


def _grid_turned(x: Tensor, weight: Tensor, grid: Size) -> Tensor:
    return _nine()(x, weight, (grid[1], grid[0]))


def _first_image(x: Tensor, weight: Tensor, grid: Size) -> Tensor:
    return _nine()(x[:1], weight, grid).expand(len(x), -1, -1)


def _middle_alone(x: Tensor, weight: Tensor, grid: Size) -> Tensor:
    return x @ weight[:, :, 1, 1].T


_BY_HAND = "this exercise asks you to do without torch's convolutions and unfold"
_CONVOLUTIONS = (
    *(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3)),
    *(f"{whose}convolution" for whose in ("", "_", "mkldnn_", "_nnpack_spatial_")),
    *("conv_tbc", "thnn_conv2d", "slow_conv_dilated2d", "slow_conv_transpose2d", "slow_conv3d", "slow_conv_dilated3d"),
    *("unfold", "unfold_copy", "im2col"),
)


def _is_a_convolution(given: Mapping[str, Any]) -> bool:
    """Whether one of torch's operators is one of them, called by its full name, such as aten.convolution.default."""
    return any(part in str(given["self"]) for part in ("conv", "unfold", "im2col"))


NINE_HEADS = Exercise(
    name="nine_heads",
    lesson="12",
    points=2,
    right=_nine(),
    cases=lambda: (
        [
            Case(
                f"x ({B}, {R * C}, {channels}), weight ({F}, {channels}, 3, 3), {R} rows, {C} columns",
                (normal(B, R * C, channels, seed=R), normal(F, channels, 3, 3, seed=C), (R, C)),
            )
            for B, R, C, channels, F in (
                (1, 3, 4, 2, 3),
                (2, 4, 3, 3, 2),
                (1, 1, 5, 2, 2),
                (2, 5, 5, 1, 4),
                (3, 2, 1, 4, 1),
                (6, 2, 3, 6, 6),
                (1, 1, 1, 2, 3),
                (1, 5, 9, 13, 2),
            )
        ]
        + [Case("large numbers", (1000 * normal(8, 6, 2, seed=6), 100 * normal(3, 2, 3, 3, seed=7), (2, 3)))]
    ),
    observe=functools.partial(call, differentiable=True),
    forbidden=(
        *(Forbidden(name, _BY_HAND) for name in _CONVOLUTIONS),
        Forbidden(torch._ops.OpOverload.__call__, _BY_HAND, when=_is_a_convolution),
        Forbidden(F.unfold, _BY_HAND),  # a Python function, which nn.Unfold calls, too
    ),
    mistakes=(
        Mistake(
            "heads that look the other way",
            "kernel[0, 0] belongs to the patch up and to the left of the one that looks. Yours takes the one down "
            "and to the right: rows of a head are the patches that look.",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight.flip(2, 3)),
        ),
        Mistake(
            "the mean of all patches where there is no neighbour",
            "That is what a softmax over equal scores gives. Zero padding means: who has no neighbour there gets zero.",
            _HEADS,
            Slip(_nine, lost=_mean_of_all),
        ),
        Mistake(
            "the patch itself where there is no neighbour",
            "Zero padding means: who has no neighbour there gets zero, not its own value.",
            _HEADS,
            Slip(_nine, lost=_itself),
        ),
        Mistake(
            "neighbours along the list",
            "The end of a row and the beginning of the next are no neighbours: look at row and column apart.",
            _KNOWS,
            Slip(_nine, place=_along_the_list),
        ),
        Mistake(
            "a grid that goes on at the other side",
            "torch.roll brings back on one side what leaves on the other. There is nobody outside the picture.",
            _KNOWS,
            Slip(_nine, place=_round_the_picture),
        ),
        Mistake(
            "an edge that is repeated",
            "Outside the picture there is nobody; the nearest patch doesn't stand in.",
            _KNOWS,
            Slip(_nine, place=_at_the_edge),
        ),
        Mistake(
            "rows and columns of the kernel exchanged",
            "weight[:, :, i, j] lies i rows down and j columns to the right.",
            _KNOWS,
            Slip(_nine, turn=lambda weight: weight.transpose(2, 3)),
        ),
        Mistake(
            "a mean over the nine heads",
            "The heads' contributions are added, as the output projection of attention adds them.",
            _HEADS,
            Slip(_nine, joined=lambda parts: parts.mean(dim=0)),
        ),
        Mistake(
            "nine heads that are not joined",
            "You return each head's part. Add the nine.",
            _HEADS,
            Slip(_nine, joined=lambda parts: parts),
        ),
        Mistake(
            "the middle head alone",
            "Each patch only sees itself in your result. The other eight heads bring the neighbours.",
            _HEADS,
            _middle_alone,
        ),
        Mistake(
            "heads that look up for down",
            "weight[:, :, 0] belongs to the row above the patch that looks.",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight.flip(2)),
        ),
        Mistake(
            "heads that look left for right",
            "weight[:, :, :, 0] belongs to the column to the left of the patch that looks.",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight.flip(3)),
        ),
        Mistake(
            "the corners left out",
            "A 3 × 3 kernel has nine places, the four corners among them.",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: i == 1 or j == 1)),
        ),
        Mistake(
            "the four sides left out",
            "A 3 × 3 kernel has nine places: the corners, the middle, and the four sides.",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: (i + j) % 2 == 0)),
        ),
        Mistake(
            "eight heads, without the middle",
            "The patch itself is one of the kernel's places, and has its head (1, 1).",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: (i, j) != (1, 1))),
        ),
        Mistake(
            "the heads of one row alone",
            "You look to the left and to the right. Three rows of heads look up and down, too.",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: i == 1)),
        ),
        Mistake(
            "the heads of one column alone",
            "You look up and down. Three columns of heads look to the left and to the right, too.",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: j == 1)),
        ),
        Mistake(
            "four heads of nine",
            "i and j go from 0 to 2: does a range end too early?",
            _HEADS,
            Slip(_nine, turn=_some_heads(lambda i, j: i < 2 and j < 2)),
        ),
        Mistake(
            "one matrix for all heads",
            "Each head has its own matrix, weight[:, :, i, j].",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight[:, :, 1:2, 1:2].expand(-1, -1, 3, 3)),
        ),
        Mistake(
            "a mean matrix for all heads",
            "Each head has its own matrix, weight[:, :, i, j].",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight.mean(dim=(2, 3), keepdim=True).expand(-1, -1, 3, 3)),
        ),
        Mistake(
            "patches numbered column by column",
            "The tokens come row by row: patch (y, x) is number y · columns + x.",
            _KNOWS,
            Slip(_nine, place=_by_columns),
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            "grid is (rows, columns), rows first.",
            _KNOWS,
            _grid_turned,
        ),
        Mistake(
            "a mean over the neighbours that are found",
            "The heads' contributions are added, and nothing is divided by their number.",
            _HEADS,
            _over_those_found,
        ),
        Mistake(
            "a softmax over the ones and zeros",
            "The heads' matrices are the weights themselves. Behind a softmax each patch would look at all.",
            _HEADS,
            Slip(_nine, lost=_softmax_of_the_heads),
        ),
        Mistake(
            "the largest of the nine",
            "The nine contributions are added, not compared.",
            _HEADS,
            Slip(_nine, joined=lambda parts: parts.amax(dim=0)),
        ),
        Mistake(
            "nine heads side by side",
            "You join the heads' parts along the last axis. Here they are added: (B, N, F).",
            _HEADS,
            Slip(_nine, joined=lambda parts: parts.movedim(0, 2).flatten(2)),
        ),
        Mistake(
            "channels before the patches",
            "The numbers are right, but tokens come first: (B, N, F).",
            _HEADS,
            Slip(_nine, joined=lambda parts: parts.sum(dim=0).transpose(1, 2)),
        ),
        Mistake(
            "a weight that doesn't learn",
            "The values are right, but the weight gets no gradient: use it as it is, without detach or numbers.",
            _HEADS,
            Slip(_nine, turn=lambda weight: weight.detach()),
        ),
        Mistake(
            "the first image for all",
            "Each image of the batch has its own tokens.",
            _HEADS,
            _first_image,
        ),
    ),
)


def check_nine_heads(fn: Callable[[Tensor, Tensor, Size], Tensor]) -> bool:
    """Check ``fn(x, weight, grid)``: (B, N, C), (F, C, 3, 3), (rows, columns) -> (B, N, F)."""
    return check(NINE_HEADS, fn)
