"""Lesson 09: the proof that our model and our preprocessing are a library's: equal, or refused.

The same random images go through both models, and are compared block by block; the same photograph goes through both
ways to prepare pictures. So nothing that :mod:`.convert` has found out needs to be believed.

Float32 rounds a little differently where the same sum is taken in another order, so "equal" is: nowhere further apart
than 1e-4 of the standard deviation of the library's own numbers. A head too many, an epsilon or another GELU is more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
from PIL import Image
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing, photograph_file
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.text import TextTower
from vit_tutorial.vit import ViT
from vit_tutorial.weights.convert import PublishedModel

ALLOWED = 1e-4  # of the standard deviation of the library's numbers
LEVEL = 1 / 255  # the step between two of the 256 levels of a picture's colours
ROUNDED = 1.01  # levels: torchvision resizes tensors a little differently than Pillow resizes pictures
EXACT = 0.03


def prove(model: ViT | TextTower, published: PublishedModel, inputs: Tensor | None = None) -> None:
    """Raise a ValueError, which names the first place, unless our model computes what the library's does.

    Args:
        model: ours.
        published: what is known of the library's model.
        inputs: what the library's model gets, by default random images; ours gets it without the edge that is cropped.
    """
    if inputs is None:
        inputs = random_images(cast(ViT, model), published)
    kind = type(published.original).__name__
    if len(published.blocks) != len(model.blocks):
        raise ValueError(f"{kind} has {len(published.blocks)} blocks, and our model has {len(model.blocks)}")
    with torch.inference_mode():
        try:
            expected = trace(published.forward, published.blocks, published.heads, inputs)
        except Exception as error:  # whatever a library raises for images that aren't for it
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{kind} doesn't take {tuple(inputs.shape)}: {reason}") from error
        actual = trace(model, list(model.blocks), [model.head], without_edge(inputs, published.cropped_edge))
    for place, expected_tensor, actual_tensor in places(expected, actual):
        difference = relative_difference(actual_tensor, expected_tensor)
        if difference > ALLOWED:
            raise ValueError(
                f"our model isn't equal to {kind}: the first difference is {place}, {difference:.2g} of the standard "
                f"deviation, where {ALLOWED:g} is allowed: a part that ModernConfig can't express"
            )


def random_images(model: ViT, published: PublishedModel) -> Tensor:
    """Two images (2, C, H, W) for the library's model: noise, and faint noise, in which epsilon counts more."""
    (H, W), (rows, columns) = as_pair(model.config.image_size, "image_size"), published.cropped_edge
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, model.config.in_channels, H + rows, W + columns, generator=generator)
    images *= torch.tensor([1.0, 1e-2])[:, None, None, None]
    return images.to(next(model.parameters()).dtype)


def without_edge(inputs: Tensor, edge: tuple[int, int]) -> Tensor:
    """Without the last rows and columns."""
    H, W = inputs.shape[-2:]
    return inputs[..., : H - edge[0], : W - edge[1]]


class Trace(NamedTuple):
    """The intermediate tensors of a forward pass."""

    tokens: list[Tensor]  # before the first block, then after each (B, T, D)
    features: Tensor  # what the heads read (B, D) or (B, 2 D)
    output: Tensor  # (B, K)


def trace(
    forward: Callable[[Tensor], Tensor], blocks: Sequence[nn.Module], heads: Sequence[nn.Module], inputs: Tensor
) -> Trace:
    """A forward pass, with what goes into its blocks and heads."""
    tokens: list[Tensor] = []
    read: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        if not tokens:
            tokens.append(args[0])
        tokens.append(output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(keep) for block in blocks]
    hooks += [head.register_forward_hook(lambda module, args, output: read.append(args[0])) for head in heads]
    try:
        output = forward(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return Trace(tokens, torch.cat(read, dim=1) if read else output, output)


def places(expected: Trace, actual: Trace) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Where the two are compared, in the order of the forward pass: the place, the library's tensor, ours."""
    for i, tokens in enumerate(zip(expected.tokens, actual.tokens, strict=True)):
        yield f"after block {i - 1}" if i else "before block 0", *tokens
    width = expected.features.shape[1]  # of DeiT's two class tokens the library's model may read the first alone
    yield "in what the head reads", expected.features, actual.features[:, :width]
    yield "in the answer", expected.output, actual.output


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, in standard deviations of what is expected; infinite for another shape or no number.

    A single number, or equal ones, have no deviation: there the difference is divided by their size.
    """
    if actual.shape != expected.shape or not bool(expected.isfinite().all() & actual.isfinite().all()):
        return math.inf
    largest = (actual - expected).abs().max().item()
    scale = expected.std(correction=0).item() or expected.abs().max().item()
    if largest == 0.0:
        return 0.0
    return largest / scale if scale else math.inf


def prove_preprocessing(ours: Preprocessing, original: Callable[[Image.Image], Tensor], allowed: float = EXACT) -> None:
    """Raise a ValueError unless a photograph becomes the same numbers as by the library's own preprocessing.

    Args:
        ours: what the library's settings say.
        original: the library's own, a picture -> (C, H, W) or (1, C, H, W).
        allowed: the largest difference, in levels of 256 of a colour.
    """
    with Image.open(photograph_file("cat")) as file:
        picture = file.convert("RGB")
    actual, expected = ours(picture)[0], original(picture).squeeze(0)  # (C, H, W) each
    if actual.shape != expected.shape:
        raise ValueError(
            f"preprocessing isn't equal: {tuple(expected.shape)} by the library, {tuple(actual.shape)} by us"
        )
    std = actual.new_tensor(ours.std)[:, None, None]  # (C, 1, 1)
    levels = ((actual - expected) * std).abs().max().item() / LEVEL
    if not levels <= allowed:
        raise ValueError(
            f"its preprocessing isn't one that Preprocessing can express: on a photograph it differs from {ours} by "
            f"{levels:.3g} of 256 levels"
        )
