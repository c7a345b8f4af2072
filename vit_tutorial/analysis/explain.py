"""Lesson 08: what a trained model looks at (Figures 6 and 7 of arXiv 2010.11929), and how well that points.

Pure functions on tensors; only :func:`relevance` runs a model. L layers, B images, h heads, T = prefix + N tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vit_tutorial.attention import MultiHeadSelfAttention, dot_product_attention
from vit_tutorial.embeddings import Grid
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViT

Maps = Mapping[int, Tensor] | Tensor  # what model.attention_maps returns, or its values stacked: (L, B, h, T, T)
FUSIONS: dict[str, Callable[..., Tensor]] = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}

# ------------------------------------------------------------------------------------------- where attention goes


def class_attention(maps: Maps, grid: Grid, *, prefix_tokens: int = 1) -> Tensor:
    """How much the class token attends to each patch, as pictures: (L, B, h, T, T) -> (L, B, h, rows, columns).

    Args:
        maps: from ``model.attention_maps`` (layers in its order), or any (..., T, T), such as a :func:`rollout`.
        grid: (rows, columns) of patches, ``model.config.grid``.
        prefix_tokens: tokens before the patches, the class token first. 0, for a mean-pooled model: the mean row.

    Returns:
        (..., rows, columns), not renormalised: a picture sums to 1 less what goes to the prefix.

    Raises:
        ValueError: layers of different shapes, weights that are not square or don't hold the grid.
        TypeError: ``maps`` is neither a mapping nor a tensor.
    """
    weights = _on_grid(maps, grid, prefix_tokens)  # (..., T, T)
    row = weights[..., 0, :] if prefix_tokens else weights.mean(dim=-2)  # (..., T)
    return row[..., prefix_tokens:].reshape(*row.shape[:-1], *grid)  # (..., rows, columns)


def rollout(maps: Maps, *, head_fusion: str | None = "mean") -> Tensor:
    """Attention followed through all layers: A = 0.5 W + 0.5 I in each, then A_L ... A_2 A_1 (arXiv 2005.00928).

    Args:
        maps: every layer's weights, ``{0: (B, h, T, T), 1: ...}`` or (L, B, h, T, T).
        head_fusion: "mean" (the paper's), "max" or "min" over the heads; None follows each head by itself.

    Returns:
        (B, T, T), or (B, h, T, T) without fusion: row i says where output token i comes from, and sums to 1.
        :func:`class_attention` makes pictures of it.

    Raises:
        ValueError: a layer is missing, shapes differ, unknown ``head_fusion``.
        TypeError: ``maps`` is neither a mapping nor a tensor.
    """
    if head_fusion is not None and head_fusion not in FUSIONS:
        raise ValueError(f"unknown head_fusion {head_fusion!r}: choose one of {', '.join(FUSIONS)}, or None")
    if isinstance(maps, Mapping) and set(maps) != set(range(len(maps))):
        raise ValueError(f"rollout needs every layer from 0 on, got {list(maps)}: model.attention_maps(images)")
    layers = [maps[layer] for layer in range(len(maps))] if isinstance(maps, Mapping) else list(_stack(maps))
    result = eye = torch.eye(_tokens(layers), dtype=layers[0].dtype, device=layers[0].device)
    for w in layers:
        w = FUSIONS[head_fusion](w, dim=1) if head_fusion else w  # (B, T, T), or (B, h, T, T)
        result = _rows_to_one(0.5 * w + 0.5 * eye) @ result  # later layers on the left
    return result


def attention_distance(maps: Maps, grid: Grid, patch_size: Size, *, prefix_tokens: int = 1) -> Tensor:
    """How far attention reaches, in pixels (Figure 7, right): (L, B, h, T, T) -> (L, B, h).

    The distance between two patches' centres, weighted by the attention among patches (rows renormalised), averaged
    over the queries. ``.mean(dim=1)`` over many images (the paper: 128) gives the figure's dots, (L, h).

    Args:
        maps: as for :func:`class_attention`.
        grid: (rows, columns) of patches.
        patch_size: P, or (height, width), in pixels.
        prefix_tokens: tokens before the patches; they have no place in the image and are left out.

    Raises:
        ValueError, TypeError: as :func:`class_attention`, or a patch size that isn't one.
    """
    weights = _on_grid(maps, grid, prefix_tokens)[..., prefix_tokens:, prefix_tokens:]  # (..., N, N)
    (rows, columns), (P, Q) = grid, as_pair(patch_size, "patch_size")
    # In half precision, places beyond a few hundred pixels would be rounded.
    dtype, n = torch.promote_types(weights.dtype, torch.float32), torch.arange(rows * columns, device=weights.device)
    place = torch.stack([n // columns * P, n % columns * Q], dim=1).to(dtype)  # (N, 2), in pixels
    distance = torch.linalg.vector_norm(place[:, None] - place, dim=-1).to(weights.dtype)  # (N, N)
    return (_rows_to_one(weights) * distance).sum(dim=-1).mean(dim=-1)  # (...)


# ---------------------------------------------------------------------------------- what mattered for a decision


def relevance(model: ViT, images: Tensor, classes: int | Sequence[int] | Tensor | None = None) -> Tensor:
    """Which patches spoke for a class (arXiv 2103.15679): images (B, C, H, W) -> (B, rows, columns), all >= 0.

    The class token's row of :func:`relevance_matrix`, also where other tokens are read as well; for a model pooled by
    mean or attention the mean over the patches' rows, less the identity that the matrix starts from.

    Args:
        model: in evaluation mode, with a head. Nothing of it changes, ``.grad`` included.
        images: what the model takes.
        classes: one for all images, or one for each; None: the class that the model finds most likely.

    Raises:
        ValueError: the model is in training mode or has no head; a class that it doesn't have.
        TypeError: not a :class:`ViT`.
    """
    if not isinstance(model, ViT):
        raise TypeError(f"relevance needs a ViT, got {type(model).__name__}: unwrap a compiled or distributed model")
    if model.training or not model.config.num_classes:
        wrong = "training mode: call model.eval()" if model.training else "no head: build it with num_classes > 0"
        raise ValueError(f"relevance explains a logit as the model gives it, and this one has {wrong}")
    with torch.inference_mode(False), torch.enable_grad(), _recorded_weights(model) as weights:
        # A tensor made in inference mode can take part in a backward pass only as a copy.
        y = model(images.clone() if isinstance(images, Tensor) and images.is_inference() else images)  # (B, K)
        indices = y.argmax(dim=1) if classes is None else torch.as_tensor(classes, device=y.device).clone()
        B, K = y.shape
        if indices.is_floating_point() or indices.shape not in ((), (B,)) or not ((indices >= 0) & (indices < K)).all():
            raise ValueError(f"classes must be ints from 0 to {K - 1}, one for all or {B} of them, got {classes}")
        # No image sees another, so the gradient of the sum holds each image's own.
        score = y.gather(1, indices.long().expand(B)[:, None]).sum()
        gradients = torch.autograd.grad(score, weights)
    R = relevance_matrix([w.detach() for w in weights], gradients)  # (B, T, T)
    R = R - torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)
    grid = model.config.grid
    prefix_tokens = model.config.prefix_tokens
    if model.config.pool in ("mean", "attention"):  # no class token is read: the patches' rows
        R, prefix_tokens = R[:, prefix_tokens:, prefix_tokens:], 0
    return class_attention(R, grid, prefix_tokens=prefix_tokens)


def relevance_matrix(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """R = I; layer by layer R <- R + mean over heads of (gradient * weights)+ times R (2103.15679, 3.1).

    Args:
        weights: each layer's attention weights, (B, h, T, T), the first layer first.
        gradients: of the class's logit with respect to them, in the same order.

    Returns:
        (B, T, T): row i holds the relevance of every input token for output token i.

    Raises:
        ValueError: no layers, or the two differ in number or in shapes.
    """
    if len(weights) != len(gradients):
        raise ValueError(f"weights of {len(weights)} layers need as many gradients, got {len(gradients)}")
    R = torch.eye(_tokens([*weights, *gradients]), dtype=weights[0].dtype, device=weights[0].device)
    for w, gradient in zip(weights, gradients, strict=True):
        R = R + (gradient * w).clamp(min=0).mean(dim=1) @ R  # (B, T, T)
    return R


@contextmanager
def _recorded_weights(model: ViT) -> Iterator[list[Tensor]]:
    """Inside, each layer's attention runs step by step, and the list receives its weights (B, h, T, T)."""
    recorded: list[Tensor] = []

    def step_by_step(module: MultiHeadSelfAttention, inputs: tuple[Tensor], _: Tensor) -> Tensor:
        (x,) = inputs
        # With every parameter frozen nothing needs a gradient: the first layer's input then starts the graph.
        x = x if x.requires_grad else x.detach().requires_grad_()
        q, k, v = module.split_heads(x)  # each (B, h, T, d)
        z, weights = dot_product_attention(q, k, v, module.score_bias(q))  # (B, h, T, d), (B, h, T, T)
        recorded.append(weights)
        return module.proj(module.merge_heads(z))  # (B, T, D), in place of the fused kernel's

    with ExitStack() as hooks:  # closes whatever happens
        for block in model.blocks:
            hooks.enter_context(cast(EncoderBlock, block).attention.register_forward_hook(step_by_step))
        yield recorded


# ------------------------------------------------------------------------------------------ what the weights hold


def position_similarity(position: Tensor, *, prefix_tokens: int = 1) -> Tensor:
    """Cosine similarity of every patch's position to every other's (Figure 7, centre): (1, T, D) -> (N, N).

    The first ``prefix_tokens`` have no place in the image and are left out. Raises ValueError for another shape.
    """
    if position.ndim != 3 or len(position) != 1 or position.shape[1] <= prefix_tokens:
        shape = tuple(position.shape)
        raise ValueError(f"position must be (1, {prefix_tokens} + N, D), as a model's embed.position is, got {shape}")
    x = normalize(position[0, prefix_tokens:], dim=-1)  # (N, D)
    return x @ x.T


# ------------------------------------------------------------------------------------ does a map find the target?


def mask_fraction(masks: Tensor, grid: Grid) -> Tensor:
    """The fraction of each patch's pixels that lie in the mask: (B, H, W) bool -> (B, rows, columns), float32.

    As a map it scores the best that a grid can: ``peak_inside(mask_fraction(masks, grid), masks)`` is a ceiling.
    Raises TypeError for masks that aren't bool, ValueError for another rank, or a grid that doesn't divide H and W.
    """
    if masks.dtype != torch.bool:
        raise TypeError(f"masks must be bool, got {masks.dtype}: masks > 0")
    rows, columns = grid
    if masks.ndim != 3 or masks.shape[1] % rows or masks.shape[2] % columns:
        raise ValueError(f"masks must be (B, H, W), a multiple of the grid {(rows, columns)}, got {tuple(masks.shape)}")
    B, H, W = masks.shape
    return masks.float().reshape(B, rows, H // rows, columns, W // columns).mean(dim=(2, 4))


def peak_inside(maps: Tensor, masks: Tensor) -> Tensor:
    """Whether each map's peak lies in its mask, (B,): the pointing game (arXiv 1608.00507). ``.mean()``: how often.

    A patch lies in the mask if at least half of its pixels do. Patches that tie for the peak each count their part, as
    if one of them were drawn: so a flat map scores chance.

    Args:
        maps: (B, rows, columns), floating point.
        masks: (B, H, W), bool; H and W multiples of rows and columns; none empty.

    Raises:
        ValueError, TypeError: maps or masks that are not like that.
    """
    inside = _fraction_for(maps, masks) >= 0.5
    peak = maps == maps.amax(dim=(1, 2), keepdim=True)  # (B, rows, columns)
    return ((peak & inside).sum(dim=(1, 2)) / peak.sum(dim=(1, 2))).to(maps.dtype)


def random_map(count: int, grid: Grid, *, seed: int = 0) -> Tensor:
    """A baseline: every patch uniform in [0, 1), (count, rows, columns), the same for a seed."""
    return torch.rand(count, *grid, generator=torch.Generator().manual_seed(seed))


def centre_map(count: int, grid: Grid) -> Tensor:
    """A baseline: always the centre. A Gaussian whose sigma is a quarter of each side, (count, rows, columns)."""
    y, x = ((2 * torch.arange(n) + 1 - n) / n for n in grid)  # the patches' centres, in an image from -1 to 1
    return torch.exp(-2 * (y[:, None] ** 2 + x**2)).repeat(count, 1, 1)


# --------------------------------------------------------------------------------------------------------- shared


def _rows_to_one(x: Tensor) -> Tensor:
    return x / x.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _stack(maps: Maps) -> Tensor:
    if isinstance(maps, Tensor):
        return maps
    if not isinstance(maps, Mapping):
        raise TypeError(f"maps must be what model.attention_maps returns, or a tensor, got {type(maps).__name__}")
    if len(shapes := {tuple(w.shape) for w in maps.values()}) != 1:
        raise ValueError(f"maps must hold layers of one shape (B, h, T, T), got {sorted(shapes)}")
    return torch.stack(list(maps.values()))


def _tokens(layers: Sequence[Tensor]) -> int:
    """T of weights that must all have one shape, (B, h, T, T)."""
    shapes = {tuple(w.shape) for w in layers}
    shape = next(iter(shapes), ())
    if len(shapes) != 1 or len(shape) != 4 or shape[-1] != shape[-2]:
        raise ValueError(f"every layer must have the same shape (B, h, T, T), got {sorted(shapes)}")
    return shape[-1]


def _on_grid(maps: Maps, grid: Grid, prefix_tokens: int) -> Tensor:
    """The maps as one tensor (..., T, T), once T is seen to hold the grid and the prefix."""
    weights, T = _stack(maps), prefix_tokens + grid[0] * grid[1]
    if weights.ndim < 2 or weights.shape[-2:] != (T, T):
        raise ValueError(
            f"a grid of {tuple(grid)} with prefix_tokens={prefix_tokens} needs weights (..., {T}, {T}), got "
            f"{tuple(weights.shape)}: grid is model.config.grid, prefix_tokens is 0 for a mean-pooled model"
        )
    return weights


def _fraction_for(maps: Tensor, masks: Tensor) -> Tensor:
    """:func:`mask_fraction` on the maps' grid, in their dtype, once both are seen to be fit for a score."""
    if not maps.is_floating_point():
        raise TypeError(f"maps must be floating point, got {maps.dtype}: maps.float()")
    if maps.ndim != 3 or len(maps) != len(masks):
        got = f"{tuple(maps.shape)} and {tuple(masks.shape)}"
        raise ValueError(f"maps (B, rows, columns) and masks (B, H, W) must agree in B, got {got}")
    fraction = mask_fraction(masks, (maps.shape[1], maps.shape[2]))  # (B, rows, columns)
    empty = ~masks.flatten(1).any(dim=1)  # (B,)
    if empty.any():
        raise ValueError(f"masks {empty.nonzero().flatten().tolist()} are empty: score only images with a target")
    return fraction.to(maps.dtype)
