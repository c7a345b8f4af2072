"""The explorer's HTML: a model's attention in 8 bits, the pictures it saw, and the page that shows both."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit_tutorial.analysis import explain
from vit_tutorial.data import Data, Preprocessing, denormalise
from vit_tutorial.patches import grid_shape
from vit_tutorial.plots import PALETTE
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViT
from vit_tutorial.weights.keeping import write

SPECIAL = ("class token", "distillation token")  # the tokens before the patches
TOP = 5  # answers shown
# The page may load nothing: everything is in it.
POLICY = "default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Page:
    """HTML that a notebook shows as it is, and that :meth:`save` makes a page of its own."""

    title: ClassVar[str]
    html: str = field(repr=False)  # to be put into any page, several on one as well

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page of its own, to open in a browser. Raises OSError that names the folder."""
        page = (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{self.title}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            "<style>:root { color-scheme: light dark; } body { margin: 16px; }</style>\n"
            f"</head>\n<body>\n<main>\n{self.html}\n</main>\n</body>\n</html>\n"
        )
        write(Path(path), page.encode())


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
    most 1/255 of its largest weight (by half of that, but for float32's own rounding); a mean over heads by at most
    the mean of that over the heads. The weights are computed in float64, on the CPU, by a copy of the model in
    evaluation mode: so the same code gives the same HTML on another machine. It has L h T² 4/3 bytes an image.

    Args:
        model: as it is; nothing of it changes.
        images: (B, C, H, W), what the model takes: normalised, if it was trained so.
        classes: the names of the K classes; None: "class 0", "class 1", ...
        preprocess: whose mean and std were taken off ``images`` (what ``vt.load`` returns, or a data set), to show
            them as they were. None: shown as they are, if they lie in [0, 1], else each from its least to its largest.
        titles: a name for each image; none: they are counted.

    Raises:
        ValueError: images that don't fit, aren't finite or are none; names or titles that are too many or too few.
        TypeError: not a :class:`ViT`, or images that aren't a tensor of floating-point numbers.
    """
    _check(model, images, classes, preprocess, titles)
    c, B = model.config, len(images)
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
    heat = matplotlib.colormaps["magma"](np.arange(256), bytes=True)[:, :3].tobytes().hex()
    special = SPECIAL[: c.prefix_tokens]
    if isinstance(c, ModernConfig):
        special = (*SPECIAL[: int(c.class_token)], *(f"register {i + 1}" for i in range(c.registers)))
    grid = grid_shape((images.shape[-2], images.shape[-1]), c.patch_size)  # some models take every size
    data = {"grid": grid, "special": special, "layers": c.depth, "heads": c.num_heads, "heat": heat}
    return Explorer(
        _fill(data | {"pictures": pictures}, figures), B, c.depth, c.num_heads, c.prefix_tokens + grid[0] * grid[1]
    )


def quantise(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of weights (..., T), not negative, as uint8 (..., T), and each row's largest (...), float32.

    ``q / 255 * most`` gives them back, off by at most 1/255 of the row's largest.
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
    arrays = zip(("values", "most"), quantise(weights), strict=True)
    return {name: base64.b64encode(array.numpy().tobytes()).decode() for name, array in arrays}


@torch.inference_mode()
def _answers(model: ViT, image: Tensor, names: Sequence[str]) -> list[tuple[str, float]]:
    """The likeliest classes of one image (1, C, H, W), and their shares; none without a head."""
    shares, order = model(image)[0].softmax(dim=0).sort(descending=True, stable=True)  # (K,), (K,)
    likeliest = zip(order.tolist(), shares.tolist(), strict=True)
    return [(str(names[k]), round(share, 3)) for k, share in islice(likeliest, min(TOP, len(names)))]


def as_seen(images: Tensor, preprocess: Preprocessing | Data | None) -> np.ndarray:
    """Images (B, C, H, W) as one sees them: (B, H, W, 3), uint8."""
    if preprocess is not None:
        images = denormalise(images, preprocess)  # (B, C, H, W)
    elif images.min() < 0 or images.max() > 1:
        low, high = images.amin(dim=(1, 2, 3), keepdim=True), images.amax(dim=(1, 2, 3), keepdim=True)
        images = (images - low) / (high - low).clamp(min=1e-12)
    images = images if images.shape[1] == 3 else images.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    return (255 * images).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()


def figure(picture: np.ndarray, title: str, *answer: str, width: int = 0) -> str:
    """A picture (H, W, 3) with its caption; as BMP, whose bytes are the same on every machine.

    ``width``, in pixels, enlarges it, and lets several stand side by side; 0: as large as it is, on a line of its own.
    """
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format="BMP")
    source = f"data:image/bmp;base64,{base64.b64encode(out.getvalue()).decode()}"
    caption = escape(": ".join([title, *answer]))
    beside = ' style="display: inline-block; margin: 4px 12px 4px 0"' if width else ""
    larger = f' width="{width}" style="image-rendering: pixelated"' if width else ""
    return (
        f'<figure{beside}><img src="{source}" alt="{escape(title)}"{larger}><figcaption>{caption}</figcaption></figure>'
    )


def _fill(data: dict[str, Any], figures: Sequence[str]) -> str:
    """The three files beside this one, with the data in them."""
    folder = files("vit_tutorial.explorer")
    markup, style, script = (folder.joinpath(f"explorer.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    return assemble("explorer", "Attention explorer", data, figures, markup, style, script)


def assemble(
    kind: str, title: str, data: dict[str, Any], figures: Sequence[str], markup: str, style: str, script: str
) -> str:
    """The HTML of a page: what is shown without its script, the data, and the markup, style and script.

    The script ends with ``begin(KIND, start)`` of page.js, which stands before it: that makes a shadow root of
    ``data-vit-KIND``, for ``start`` to put the markup into.
    """
    colours = "".join(f"--{role}: {colour}; " for role, colour in PALETTE.items())
    shared = files("vit_tutorial.explorer").joinpath("page.js").read_text("utf-8")
    return (
        f'<div data-vit-{kind}="1" data-lm-suppress-shortcuts="true">\n'
        f"<p>{title}. It needs its script, which runs once you trust this notebook, and in an exported page. "
        "Without it, here is what the model was shown:</p>\n"
        + "\n".join(figures)
        # Within a script nothing but "<" can end it.
        + f'\n<script type="application/json">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>\n'
        f'<script type="text/template"><style>:host {{ {colours}}}\n{style}</style>\n{markup}</script>\n'
        f'</div>\n<script>\n(() => {{\n  "use strict";\n\n{shared}{script}}})();\n</script>'
    )
