"""Lesson 09: the proof: the same random images through a library's model and ours, compared block by block.

Float32 rounds a little differently where the same sum is taken in another order, so "equal" is: nowhere further apart
than 1e-4 of the standard deviation of the library's own numbers. A head too many, an epsilon or another GELU is more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.weights.adapters import Twin

ALLOWED = 1e-4  # of the standard deviation of the library's numbers
Trace = list[Tensor]  # the tokens before the first block, then after each (B, T, D); what the head reads; the answer


def prove(model: Any, twin: Twin, inputs: Tensor | None = None) -> None:
    """Raise a ValueError, which names the first place, unless our model computes what the library's does.

    Args:
        model: ours, a ViT or a text tower.
        twin: the library's.
        inputs: what both get; by default random images.
    """
    inputs = random_images(model, twin) if inputs is None else inputs
    kind = type(twin.model).__name__
    with torch.inference_mode():
        try:
            theirs = trace(twin.answer, twin.blocks, twin.heads, inputs)
        except Exception as error:  # whatever a library raises for images that aren't for it
            raise ValueError(
                f"{kind} doesn't take {tuple(inputs.shape)}: {' '.join(str(error).split())[:300]}"
            ) from error
        ours = trace(model, list(model.blocks), [model.head], cut(inputs, twin))
    depth = len(twin.blocks)
    places = ["before block 0", *(f"after block {i}" for i in range(depth)), "in what the head reads", "in the answer"]
    ours[-2] = ours[-2][:, : theirs[-2].shape[1]]  # of DeiT's two tokens one may be read alone
    for place, expected, found in zip(places, theirs, ours, strict=True):
        difference = apart(found, expected)
        if difference > ALLOWED:
            raise ValueError(
                f"our model isn't equal to {kind}: the first difference is {place}, {difference:.2g} of the standard "
                f"deviation, where {ALLOWED:g} is allowed: a part that ModernConfig can't express"
            )


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, in standard deviations of what is expected; infinite for another shape or no number."""
    if found.shape != expected.shape or not bool(expected.isfinite().all() & found.isfinite().all()):
        return float("inf")
    largest, spread = (found - expected).abs().max().item(), expected.std().item()
    return largest / spread if spread else float(largest and "inf")


def random_images(model: Any, twin: Twin) -> Tensor:
    """Two images (2, C, H, W): noise, and faint noise, in which epsilon counts more."""
    (H, W), (rows, columns) = model.config.image_size, twin.left_over
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, model.config.in_channels, H + rows, W + columns, generator=generator)
    images *= torch.tensor([1.0, 1e-2])[:, None, None, None]
    return images.to(next(model.parameters()).dtype)


def cut(inputs: Tensor, twin: Twin) -> Tensor:
    """The inputs without the rows and columns that the library's patches leave out."""
    rows, columns = twin.left_over
    return inputs[..., : inputs.shape[-2] - rows, : inputs.shape[-1] - columns] if rows or columns else inputs


def trace(answer: Callable[[Tensor], Tensor], blocks: list[nn.Module], heads: list[nn.Module], inputs: Tensor) -> Trace:
    """What goes through the model: see :data:`Trace`."""
    found: dict[int, Tensor] = {}
    read: list[Tensor] = []

    def keep(place: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if place == 0:
                found[0] = args[0]
            found[place + 1] = output[0] if isinstance(output, tuple) else output

        return hook

    hooks = [block.register_forward_hook(keep(place)) for place, block in enumerate(blocks)]
    hooks += [head.register_forward_hook(lambda module, args, output: read.append(args[0])) for head in heads]
    try:
        final = answer(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    features = torch.cat(read, dim=1) if read else final
    return [*(found[place] for place in sorted(found)), features, final]
