"""Lesson 18: numbers of few bits by hand: codes, scale and zero, a layer and a model in whole numbers.

It needs torch alone, so that it can be copied.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Model = TypeVar("Model", bound=nn.Module)
INT16 = torch.iinfo(torch.int16)


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


def fake_quantise(x: Tensor, bits: int = 8, *, per_row: bool = False, zero_point: bool = False) -> Tensor:
    """A tensor as its codes give it back: floating point, but few different numbers."""
    return dequantise(quantise(x, bits, per_row=per_row, zero_point=zero_point))


def integer_linear(x: Codes, weight: Codes, bias: Tensor | None, *, saturate: bool = False) -> Tensor:
    """``dequantise(x) @ dequantise(weight).T + bias``, where whole numbers are multiplied and summed.

    The scales are applied to the sums. So neither may change along the axis that is summed over: a scale
    per token and one per output can be taken out of the sum, one per input can't.

    Args:
        x: of activations (..., in), one scale or one per token.
        weight: of (out, in), symmetric, one scale or one per output.
        bias: (out,), or None.
        saturate: sum as :func:`saturating_sums` does; ``x`` has unsigned codes of 8 bits then (a zero point).
    """
    sums = saturating_sums(x.values, weight.values) if saturate else whole_sums(x.values, weight.values)
    sums = sums - x.zero * weight.values.sum(dim=1)  # (..., out): what the zero point has added
    y = sums * x.scale * weight.scale.flatten()
    return y if bias is None else y + bias


def whole_sums(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` of whole numbers (..., in) and (out, in), exactly."""
    return (x.double() @ weight.double().T).long()  # float64 holds them, and has a fast product


def saturating_sums(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` as x86 processors without VNNI compute it: neighbouring products are added in 16 bits.

    Their instruction VPMADDUBSW multiplies unsigned bytes by signed ones and adds pairs of products. A sum that doesn't
    fit becomes the nearest number that does, -32,768 or 32,767.

    Args:
        x: (..., in), from 0 to 255.
        weight: (out, in), from -128 to 127.
    """
    pairs = F.pad(weight, (0, weight.shape[1] % 2)).view(len(weight), -1, 2)  # (out, in / 2, 2)
    largest, smallest = (255 * pairs.clamp(min=0)).sum(2), (255 * pairs.clamp(max=0)).sum(2)
    # Most pairs of neighbouring weights are so small that no inputs make their sum leave 16 bits; the others are risky.
    risky = (largest > INT16.max) | (smallest < INT16.min)  # (out, in / 2)
    sums = whole_sums(x, weight)
    x = F.pad(x, (0, x.shape[-1] % 2))
    for k in risky.any(dim=0).nonzero().flatten().tolist():
        outputs = risky[:, k]
        pair = whole_sums(x[..., 2 * k : 2 * k + 2], pairs[outputs, k])  # (..., of those outputs)
        sums[..., outputs] += pair.clamp(INT16.min, INT16.max) - pair
    return sums


def integer_layers(
    model: Model,
    *,
    bits: int = 8,
    per_row: bool = False,
    saturate: bool = False,
    kinds: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d),
) -> Model:
    """A copy of a model whose linear layers and convolutions compute in whole numbers.

    Inputs get unsigned codes of 8 bits, with one scale and zero point for all of them; weights symmetric ones.

    Args:
        model: it isn't changed.
        bits: of the weights.
        per_row: a scale for each output of a weight.
        saturate: sum as processors without VNNI do, see :func:`saturating_sums`.
        kinds: of layers; the others stay as they are.
    """
    other = copy.deepcopy(model)
    for layer in other.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and isinstance(layer, kinds):
            if isinstance(layer, nn.Conv2d) and layer.groups != 1:
                raise ValueError(
                    f"a convolution of {layer.groups} groups isn't one matrix: leave nn.Conv2d out of kinds"
                )
            layer.forward = partial(_integer_forward, layer, bits, per_row, saturate)  # type: ignore[method-assign]
    return other


def _integer_forward(layer: nn.Linear | nn.Conv2d, bits: int, per_row: bool, saturate: bool, x: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        weight = quantise(layer.weight, bits, per_row=per_row)
        return integer_linear(quantise(x, zero_point=True), weight, layer.bias, saturate=saturate)
    # A convolution is a linear layer on patches.
    padding = cast(tuple[int, int], layer.padding)
    patches = F.unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride)  # (B, C * K * K, N)
    # In memory, the channels of a pixel are neighbours: so they come last, in the patches and in the weight.
    patches = patches.view(*x.shape[:2], math.prod(layer.kernel_size), -1)  # (B, C, K * K, N)
    patches = patches.permute(0, 3, 2, 1).flatten(2)  # (B, N, K * K * C)
    weight = quantise(layer.weight.permute(0, 2, 3, 1).flatten(1), bits, per_row=per_row)  # (out, K * K * C)
    y = integer_linear(quantise(patches, zero_point=True), weight, layer.bias, saturate=saturate)  # (B, N, out)
    reach = layer.dilation[0] * (layer.kernel_size[0] - 1) + 1  # rows of the image below one kernel
    rows = (x.shape[2] + 2 * padding[0] - reach) // layer.stride[0] + 1
    return y.mT.reshape(len(x), len(layer.weight), rows, -1)  # (B, out, h, w)
