"""Lesson 18: numbers of few bits by hand: codes, scale and zero, a layer in whole numbers, a model that is rounded so.

It needs torch alone, so that it can be copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Codes(NamedTuple):
    """A tensor in few bits: x is about ``scale * (values - zero)``.

    ``scale`` and ``zero`` are tensors: one number for all, or one per row, (..., 1). ``zero`` is the code of 0.
    """

    values: Tensor  # whole numbers, int32; so many bits are used of each
    scale: Tensor
    zero: Tensor


def quantise(x: Tensor, bits: int = 8, *, per_row: bool = False, zero_point: bool = False) -> Codes:
    """The nearest of the numbers that ``bits`` can hold.

    Symmetric codes go from -(2^(bits-1) - 1) to 2^(bits-1) - 1; the largest absolute value gets
    the last one. With a zero point they go from 0 to 2^bits - 1, and their range from the smallest value
    to the largest, 0 included, so that 0 stays exact.

    Args:
        x: (..., n), floating point.
        bits: from 2 to 16.
        per_row: a scale for each row of the last axis: for a weight (out, in) each output, for
            activations (B, T, D) each token. Otherwise one for the whole tensor.
        zero_point: codes from 0 upwards, for numbers that aren't spread evenly around 0.

    Raises:
        ValueError: other numbers of bits, or values that aren't finite.
    """
    if not 2 <= bits <= 16:
        raise ValueError(f"bits={bits}: codes have 2 to 16 bits")
    if not torch.isfinite(x).all():
        raise ValueError("values that aren't finite have no scale: look for the layer that makes them")
    dims = -1 if per_row else tuple(range(x.ndim))
    if zero_point:
        low = x.amin(dims, keepdim=per_row).clamp(max=0)  # () or (..., 1)
        high = x.amax(dims, keepdim=per_row).clamp(min=0)
        least, most = 0, 2**bits - 1
        scale = _positive((high - low) / most)
        zero = (-low / scale).round()
    else:
        most = 2 ** (bits - 1) - 1
        least = -most
        scale = _positive(x.abs().amax(dims, keepdim=per_row) / most)
        zero = torch.zeros_like(scale)
    values = ((x / scale).round() + zero).clamp(least, most)
    return Codes(values.int(), scale, zero.int())


def _positive(scale: Tensor) -> Tensor:
    """Zeros alone have no scale: any does."""
    return torch.where(scale > 0, scale, 1.0)


def dequantise(codes: Codes) -> Tensor:
    """Codes as floating-point numbers again."""
    return codes.scale * (codes.values - codes.zero)


def rounded(x: Tensor, bits: int = 8, *, per_row: bool = False, zero_point: bool = False) -> Tensor:
    """A tensor as its codes give it back (fake quantisation): floating point, but few different numbers."""
    return dequantise(quantise(x, bits, per_row=per_row, zero_point=zero_point))


def integer_linear(x: Codes, weight: Codes, bias: Tensor) -> Tensor:
    """``dequantise(x) @ dequantise(weight).T + bias``, where whole numbers are multiplied and summed.

    The scales are applied to the sums. So neither may change along the axis that is summed over: a scale
    per token and one per output can be taken out of the sum, one per input can't.

    Args:
        x: of activations (..., in), one scale or one per token.
        weight: of (out, in), symmetric, one scale or one per output.
        bias: (out,).
    """
    sums = x.values @ weight.values.T  # (..., out), whole numbers
    sums = sums - x.zero * weight.values.sum(dim=1)  # what the zero point has added
    return sums * x.scale * weight.scale.flatten() + bias


def round_linear(
    model: nn.Module,
    *,
    weights: Callable[[Tensor], Tensor] | None = None,
    activations: Callable[[Tensor], Tensor] | None = None,
) -> nn.Module:
    """A copy of a model whose linear layers compute with rounded weights, rounded inputs, or both.

    Biases, norms, the products of attention and a convolution of patches stay as they are.

    Args:
        model: it isn't changed.
        weights: from (out, in) to the rounded weight, such as ``partial(rounded, bits=4, per_row=True)``.
        activations: from a layer's inputs (..., in) to the rounded ones.
    """
    other = copy.deepcopy(model)
    for layer in other.modules():
        if isinstance(layer, nn.Linear):
            if weights is not None:
                layer.weight.data = weights(layer.weight.data)
            if activations is not None:
                layer.register_forward_pre_hook(lambda _, inputs: (activations(inputs[0]),))
    return other
