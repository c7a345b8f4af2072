"""The live page's HTML: a model's weights, pictures to begin with, and the scripts that run it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vit_tutorial.data import Data, Preprocessing, normalise
from vit_tutorial.live.meaning import SHOWN, meaning
from vit_tutorial.pages import Page, assemble, base64_of, colour_map, figure, script, special_tokens
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import ModernConfig, ModernViT
from vit_tutorial.vit import ViT

MOST = 35_000_000  # parameters of a model that a page may hold: 93 MB of text
MOST_EXACT = 12_000_000  # with more, they are rounded to float16, which halves the page
LIKENESS = 15.0  # times a cosine, for a model without classes: a temperature of 1 / 15, near DINO's teacher's 0.07


@dataclass(frozen=True)
class Live(Page):
    """What :func:`page` returns: shown by a notebook as it is, and by ``save`` as a page."""

    title: ClassVar[str] = "Watch a Vision Transformer think"
    parameters: int
    patches: tuple[int, int]
    layers: int
    heads: int


def page(
    model: ViT,
    samples: Tensor,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | Data | None = None,
    *,
    titles: Sequence[str] = (),
    tried: Tensor | None = None,
) -> Live:
    """A page that runs the model on what you draw or choose, shows every number on the way, and lets you change it.

    The page holds the weights in float32, or in float16 where that is exact, and computes in JavaScript; its numbers
    differ from PyTorch's by less than 1e-4 of the largest. Of a model with more than 12 million weights these are
    rounded to float16. Without its script, in a notebook that isn't trusted, the samples and their answers are shown.

    Args:
        model: it isn't changed. Any :class:`ViT` or :class:`ModernViT` without a stem.
            One without a head is asked which of the samples it finds most alike: its classes are their titles.
        samples: (B, C, H, W) in [0, 1], pictures to begin with, **not** normalised: the page does that.
        classes: the names of the K classes; None: "class 0", "class 1", ...
        preprocess: what ``vt.load`` returns, or a data set: how a picture is normalised and a photograph cropped.
            None: pixels go in as they are.
        titles: a name for each sample; empty: they are numbered.
        tried: (n, C, H, W) in [0, 1], six or more: the page shows which of their patches each row of E, hidden unit
            and head answers to most. None: it says that it doesn't.

    Raises:
        ValueError: there are no samples, or one alone for a model without a head; fewer than six pictures are tried;
            they don't fit the model or aren't in [0, 1]; the numbers of classes and names,
            or of samples and titles, differ; the model has a stem before its tokens, weights that aren't finite, or
            more than 35 million of them.
        TypeError: the model is not a :class:`ViT`, or the samples are not a tensor of floating-point numbers.
    """
    _check(model, samples, classes, preprocess, titles)
    if tried is not None:
        _check_pictures(model, tried, "tried", SHOWN)
    c = model.config
    samples = samples.detach().to("cpu", torch.float64)
    twin = copy.deepcopy(model).to("cpu", torch.float32).eval()
    count = sum(parameter.numel() for parameter in model.parameters())  # a head of cosines isn't learned
    shown_titles = [str(title) for title in titles] or [f"sample {i}" for i in range(len(samples))]
    if not c.num_classes:
        names = shown_titles
        twin.head = _likeness(twin, samples, preprocess)
    else:
        names = [str(name) for name in classes] if classes is not None else [f"class {k}" for k in range(c.num_classes)]
    data = {
        "config": _config(twin) | {"parameters": count},
        "special": special_tokens(c),
        "classes": names,
        "mean": list(preprocess.mean) if preprocess is not None else [0.0] * c.in_channels,
        "std": list(preprocess.std) if preprocess is not None else [1.0] * c.in_channels,
        "crop": getattr(preprocess, "crop", "center"),
        "interpolation": getattr(preprocess, "interpolation", "bicubic"),
        "squash": getattr(preprocess, "squash", False),
        "samples": _pixels(samples),
        "titles": [str(title) for title in titles],
        "weights": _packed(state_of(twin)),
        "meaning": None if tried is None else meaning(model, tried.detach().float().cpu(), preprocess),
        "heat": colour_map("magma"),
        "signed": colour_map("RdBu_r"),
    }
    figures = [
        figure(sample, title, answer)
        for sample, title, answer in zip(samples, shown_titles, _answers(twin, samples, names, preprocess), strict=True)
    ]
    markup, style = (files("vit_tutorial.live").joinpath(f"live.{kind}").read_text("utf-8") for kind in ("html", "css"))
    html = assemble(Live.title, data, figures, markup, style, script("live/live.js"))
    return Live(html, count, c.grid, c.depth, c.num_heads)


def _check(
    model: ViT,
    samples: Tensor,
    classes: Sequence[str] | None,
    preprocess: Preprocessing | Data | None,
    titles: Sequence[str],
) -> None:
    if not isinstance(model, ViT):
        raise TypeError(f"page needs a ViT, got {type(model).__name__}: unwrap a compiled or distributed model")
    c = model.config
    if c.stem is not None:
        raise ValueError(f"the page runs models that cut the picture itself into patches, got the stem {c.stem}")
    if (count := sum(parameter.numel() for parameter in model.parameters())) > MOST:
        raise ValueError(
            f"the model has {count:,} parameters, which would make a page of {count * 8 / 3 / 1e6:,.0f} MB: at most "
            f"{MOST:,} (S/16 has 22 million)"
        )
    _check_pictures(model, samples, "samples", 1)
    if not c.num_classes and len(samples) < 2:
        raise ValueError(
            "the model has no classes, so the page asks it which of its samples is most alike: give it two or more, or "
            "take a model with a head, vt.load(..., num_classes=K)"
        )
    if c.num_classes and classes is not None and len(classes) != c.num_classes:
        raise ValueError(f"the model has {c.num_classes} classes, got {len(classes)} names for them")
    if preprocess is not None and len(preprocess.mean) != c.in_channels:
        raise ValueError(
            f"preprocess has {len(preprocess.mean)} channels, the model {c.in_channels}: take the model's own"
        )
    if titles and len(titles) != len(samples):
        raise ValueError(f"{len(samples)} samples need as many titles, or none, got {len(titles)}")
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{bad[0]} isn't finite: some of its weights are NaN or infinite")


def _check_pictures(model: ViT, pictures: Tensor, name: str, least: int) -> None:
    if not isinstance(pictures, Tensor) or not pictures.is_floating_point():
        kind = pictures.dtype if isinstance(pictures, Tensor) else type(pictures).__name__
        raise TypeError(f"{name} must be a floating-point tensor (B, C, H, W) in [0, 1], got {kind}")
    shape = (model.config.in_channels, *as_pair(model.config.image_size, "image_size"))
    if pictures.ndim != 4 or len(pictures) < least or pictures.shape[1:] != shape:
        raise ValueError(
            f"{name} must be (B, {', '.join(map(str, shape))}), at least {least}, got {tuple(pictures.shape)}"
        )
    low, high = pictures.aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"{name} must lie in [0, 1], got values from {low:.3g} to {high:.3g}: give them before preprocess does"
        )


def _packed(state: dict[str, Tensor]) -> dict[str, Any]:
    """Names and values, in half of the bytes where every weight is a number of float16, or there are very many."""
    values = torch.cat([tensor.flatten() for tensor in state.values()])
    is_half = len(values) > MOST_EXACT or bool((values.half().float() == values).all())
    return {
        "names": [[name, tensor.numel()] for name, tensor in state.items()],
        "half": is_half,
        "values": base64_of((values.half() if is_half else values).numpy()),
    }


class Likeness(nn.Linear):
    """The cosine of what a head would read, (B, D), with each of K pictures', times a factor: (B, K)."""

    def forward(self, y: Tensor) -> Tensor:
        return super().forward(LIKENESS * normalize(y, dim=-1))


@torch.inference_mode()
def _likeness(model: ViT, samples: Tensor, preprocess: Preprocessing | Data | None) -> Likeness:
    """A head for a model that has none: one row for each sample."""
    images = samples.float() if preprocess is None else normalise(samples.float(), preprocess)
    read = normalize(model(images), dim=-1)  # (K, D)
    head = Likeness(read.shape[1], len(read), bias=False)
    head.weight.copy_(read)
    return head


def state_of(model: ViT) -> dict[str, Tensor]:
    """The state dict as the page's forward pass reads it; of a :class:`ModernViT` with less in it.

    Registers are joined to the class token, and have positions of zeros; a layer scale is multiplied into the matrix
    before it; attention's biases of q and v stand in one of q, k and v.
    """
    state = {name: tensor.detach() for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    if not isinstance(model.config, ModernConfig):
        return state
    if (registers := state.pop("embed.registers", None)) is not None:
        own = state.get("embed.cls_token")
        count = 0 if own is None else own.shape[1]
        state["embed.cls_token"] = registers if own is None else torch.cat([own, registers], dim=1)
        if (position := state.get("embed.position")) is not None:
            parts = [position[:, :count], torch.zeros_like(registers), position[:, count:]]
            state["embed.position"] = torch.cat(parts, dim=1)  # (1, T, D)
    for layer in range(model.config.depth):
        at = f"blocks.{layer}"
        if (bias := state.pop(f"{at}.attention.bias", None)) is not None:
            state[f"{at}.attention.qkv.bias"] = torch.cat([bias[0], torch.zeros_like(bias[0]), bias[1]])
        for scale, last in (("scale1", "attention.proj"), ("scale2", "mlp.fc2")):
            if (gamma := state.pop(f"{at}.{scale}.gamma", None)) is not None:
                state[f"{at}.{last}.weight"] = gamma[:, None] * state[f"{at}.{last}.weight"]
                state[f"{at}.{last}.bias"] = gamma * state[f"{at}.{last}.bias"]
    return state


def _places(model: ViT) -> dict[str, Any]:
    """How attention knows where tokens are: the angles of rotary positions, the rows of a position bias, or neither."""
    place = None
    if isinstance(model, ModernViT):
        c = model.config
        place = model.place(torch.empty(1, c.in_channels, *as_pair(c.image_size, "image_size")))
    angles = None if place is None else place.angles
    offsets = None if place is None else place.offsets
    return {
        "angles": angles
        and {name: base64_of(part.numpy()) for name, part in zip(("cos", "sin"), angles, strict=True)},  # (T, d / 2)
        "offsets": None if offsets is None else base64_of(offsets.numpy().astype(np.uint16)),  # (T, T)
    }


def _config(model: ViT) -> dict[str, Any]:
    """The config's fields that the forward pass reads, with what follows from them."""
    c = model.config
    fields = ("dim", "depth", "num_heads", "mlp_dim", "num_classes", "norm_eps", "gelu", "position", "pool")
    modern = {"norm": "layer", "gated": False, "pool_prefix": False, "pool_heads": None, "qk_norm": False}
    modern |= {"attention_norm": False, "mlp_norm": False, "registers": 0, "class_token": c.prefix_tokens > 0}
    modern = {name: getattr(c, name, usual) for name, usual in modern.items()}
    return (
        {name: getattr(c, name) for name in fields}
        | modern
        | _places(model)
        | {
            "pool_heads": modern["pool_heads"] or c.num_heads,
            "likeness": LIKENESS if isinstance(model.head, Likeness) else None,
            "shape": [c.in_channels, *as_pair(c.image_size, "image_size")],
            "patch_size": as_pair(c.patch_size, "patch_size"),
            "grid": c.grid,
            "patches": c.grid[0] * c.grid[1],
            "prefix": c.prefix_tokens,
            "tokens": c.num_tokens,
        }
    )


def _pixels(samples: Tensor) -> dict[str, Any]:
    """Samples (B, C, H, W) in [0, 1] as whole numbers up to ``white``: 16 if that is exact, as for digits, else 255."""
    white = 16 if (16 * samples).frac().eq(0).all() else 255
    levels = (white * samples).round().to(torch.uint8)  # (B, C, H, W)
    return {"white": white, "values": base64_of(levels.numpy()), "count": len(samples)}


@torch.inference_mode()
def _answers(model: ViT, samples: Tensor, names: Sequence[str], preprocess: Preprocessing | Data | None) -> list[str]:
    """Each sample's likeliest class and its probability, in float64: the same on every machine."""
    twin = copy.deepcopy(model).to("cpu", torch.float64).eval()
    images = samples if preprocess is None else normalise(samples, preprocess)
    shares, order = twin(images).softmax(dim=-1).max(dim=-1)  # (B,), (B,)
    return [f"{names[k]} {100 * share:.1f} %" for k, share in zip(order.tolist(), shares.tolist(), strict=True)]
