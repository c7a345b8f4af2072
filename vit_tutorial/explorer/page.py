"""The explorer's HTML: a model's attention in 8 bits, the pictures it saw, and the page that shows both."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor

from vit_tutorial.analysis import explain
from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.pages import Page, as_seen, assemble, base64_of, colour_map, figure, special_tokens
from vit_tutorial.patches import grid_shape
from vit_tutorial.vit import ViT

TOP = 5  # answers shown


@dataclass(frozen=True)
class Explorer(Page):
    """What :func:`explore` returns: shown by a notebook as it is, and by ``save`` as a page."""

    title: ClassVar[str] = "Attention explorer"
    pictures: int
    layers: int
    heads: int
    tokens: int


def explore(
    model: ViT,
    images: Tensor,
    classes: Sequence[str] | None = None,
    *,
    preprocess: Preprocessing | Data | None = None,
    titles: Sequence[str] = (),
) -> Explorer:
    """An interactive picture of the attention of every token, in every layer and head, and of its rollout.

    Point at a patch, or the class token, and see where it looks. Each row of weights is kept in 8 bits, and off by at
    most 1/255 of its largest weight; a mean over heads by at most the mean of that over the heads. The weights are
    computed in float64, on the CPU, by a copy of the model in evaluation mode, so the HTML is the same on every
    machine. It takes L h T² 4/3 bytes per image.

    Args:
        model: it isn't changed.
        images: (B, C, H, W), as the model takes them: normalised, if it was trained so.
        classes: the names of the K classes; None: "class 0", "class 1", ...
        preprocess: what ``images`` were normalised with (``vt.load`` returns it, and a data set will do), so that
            they are shown as they were. None: as :func:`vit_tutorial.pages.as_seen` shows them.
        titles: a name for each image; empty: they are numbered.

    Raises:
        ValueError: there are no images, they don't fit the model or aren't finite; the numbers of classes and names,
            or of images and titles, differ.
        TypeError: the model is not a :class:`ViT`, or the images are not a tensor of floating-point numbers.
    """
    _check(model, images, classes, preprocess, titles)
    c = model.config
    names = [f"class {k}" for k in range(c.num_classes)] if classes is None else classes
    twin = copy.deepcopy(model).to("cpu", torch.float64).eval()
    images = images.detach().to("cpu", torch.float64)
    pictures, figures = [], []
    for i, (image, picture) in enumerate(zip(images[:, None], as_seen(images, preprocess), strict=True)):
        title, top = titles[i] if titles else "", _answers(twin, image, names)
        pictures.append({"title": title, "top": top} | _weights(twin, image))
        figures.append(
            figure(picture, title or f"image {i}", *(f"{name} {100 * share:.1f} %" for name, share in top[:1]))
        )
    grid = grid_shape((images.shape[-2], images.shape[-1]), c.patch_size)  # some models take every size
    data = {
        "grid": grid,
        "special": special_tokens(c),
        "layers": c.depth,
        "heads": c.num_heads,
        "heat": colour_map("magma"),
        "pictures": pictures,
    }
    html = assemble("explorer", Explorer.title, data, figures)
    return Explorer(html, len(images), c.depth, c.num_heads, c.prefix_tokens + grid[0] * grid[1])


def quantise(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights in 8 bits: ``q / 255 * most`` gives them back, off by at most 1/255 of their row's largest.

    Args:
        weights: (..., T), not negative.

    Returns:
        q, uint8 (..., T), and most, float32 (...), the largest of each row.
    """
    most = weights.amax(dim=-1).float()  # (...)
    share = weights / most[..., None].to(weights.dtype).clamp(min=torch.finfo(torch.float32).tiny)  # (..., T)
    return (255 * share).round().clamp(max=255).to(torch.uint8), most


def _check(
    model: ViT,
    images: Tensor,
    classes: Sequence[str] | None,
    preprocess: Preprocessing | Data | None,
    titles: Sequence[str],
) -> None:
    if not isinstance(model, ViT):
        raise TypeError(f"explore needs a ViT, got {type(model).__name__}: unwrap a compiled or distributed model")
    if not isinstance(images, Tensor) or not images.is_floating_point():
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images must be a floating-point tensor (B, C, H, W), got {kind}: preprocess(picture)")
    if images.ndim != 4 or not len(images) or not images.isfinite().all():
        raise ValueError(f"images must be (B, C, H, W), at least one, and finite, got {tuple(images.shape)}")
    if classes is not None and len(classes) != model.config.num_classes:
        raise ValueError(f"the model has {model.config.num_classes} classes, got {len(classes)} names for them")
    if preprocess is not None and len(preprocess.mean) != images.shape[1]:
        raise ValueError(
            f"preprocess has {len(preprocess.mean)} channels, images {images.shape[1]}: take the model's own"
        )
    if titles and len(titles) != len(images):
        raise ValueError(f"{len(images)} images need as many titles, or none, got {len(titles)}")


@torch.inference_mode()
def _weights(model: ViT, image: Tensor) -> dict[str, Any]:
    """Of one image (1, C, H, W): each layer's weights (h, T, T), and the rollout's (1, T, T), to be decoded alone."""
    maps = list(model.attention_maps(image).values())  # L times (1, h, T, T)
    if not maps[-1].isfinite().all():
        raise ValueError("the model's attention isn't finite: some of its weights are NaN or far too large")
    return {"layers": [_encode(w[0]) for w in maps], "rollout": _encode(explain.rollout(torch.stack(maps)))}


def _encode(weights: Tensor) -> dict[str, str]:
    values, most = quantise(weights)
    return {"values": base64_of(values.numpy()), "most": base64_of(most.numpy())}


@torch.inference_mode()
def _answers(model: ViT, image: Tensor, names: Sequence[str]) -> list[tuple[str, float]]:
    """The likeliest classes of one image (1, C, H, W), with their probabilities; empty if the model has no head."""
    shares, order = model(image)[0].softmax(dim=0).sort(descending=True, stable=True)  # (K,), (K,)
    likeliest = zip(order.tolist(), shares.tolist(), strict=True)
    return [(str(names[k]), round(share, 3)) for k, share in islice(likeliest, min(TOP, len(names)))]
