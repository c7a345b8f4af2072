"""The live page's HTML: a model's weights, pictures to begin with, and the scripts that run it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor

from vit_tutorial.data import Data, Preprocessing, normalise
from vit_tutorial.data.files import write
from vit_tutorial.live.html import assemble, base64_of, check_page, colour_map, figure, own_page
from vit_tutorial.live.meaning import SHOWN, meaning
from vit_tutorial.live.states import State, differences
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.hybrid import HybridViT
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights.checkpoint import check_savable

MOST = 12_000_000  # parameters of a model that a page may hold: 64 MB of text


class PageData(TypedDict):
    """What the page's script reads (facts.js), as JSON; arrays are base64."""

    config: dict[str, Any]
    classes: list[str]
    mean: list[float]  # of each channel, as std
    std: list[float]
    crop: float  # the central fraction of a photograph that the model gets
    squash: bool  # the input's shape is forced on it
    samples: dict[str, Any]
    titles: list[str]
    weights: dict[str, Any]
    states: list[dict[str, Any]]
    nextPages: dict[str, str]  # addresses by name
    words: dict[str, str]  # meanings by word
    meaning: dict[str, Any] | None
    heat: str  # a colour map, as signed
    signed: str


@dataclass(frozen=True)
class Live:
    """What :func:`page` returns: HTML that a notebook shows as it is, and that :meth:`save` makes a page of its own."""

    title: ClassVar[str] = "Watch a Vision Transformer think"
    html: str = field(repr=False)  # to be put into any page, several on one as well
    parameters: int
    patches: tuple[int, int]
    layers: int
    heads: int

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page of its own, to open in a browser.

        Raises:
            ValueError: a name that a browser wouldn't open as a page.
            OSError: the file can't be written; it names the folder.
        """
        check_page(path)
        write(Path(path), own_page(self.title, self.html).encode())


def page(
    model: ViT,
    samples: Tensor,
    classes: Sequence[str] | None = None,
    preprocess: Preprocessing | Data | None = None,
    *,
    titles: Sequence[str] = (),
    tried: Tensor | None = None,
    states: Mapping[str, State] | None = None,
    next_pages: Mapping[str, str] | None = None,
) -> Live:
    """A page that runs the model on what you draw or choose, shows every number on the way, and lets you change it.

    The page holds the weights in float32, or in float16 where that is exact, and computes in JavaScript; its numbers
    differ from PyTorch's by less than 1e-4 of the largest. Without its script, in a notebook that isn't trusted, the
    samples and their answers are shown.

    Args:
        model: a plain :class:`ViT` with a head; it isn't changed.
        samples: (B, C, H, W) in [0, 1], pictures to begin with, **not** normalised: the page does that.
        classes: the names of the K classes; None: "class 0", "class 1", ...
        preprocess: what ``vt.load`` returns, or a data set: how a picture is normalised and a photograph cropped.
            None: pixels go in as they are.
        titles: a name for each sample; empty: they are numbered.
        tried: (n, C, H, W) in [0, 1], six or more: the page shows which of their patches each row of E, hidden unit
            and head answers to most. None: it says that it doesn't.
        states: what the weights were at some moments of the training, by name, the first first: a slider goes through
            them. The page holds how each differs from the one before, in 8 bits a number.
        next_pages: where a reader goes on in the end: addresses by name. None: it says how to make other pages.

    Raises:
        ValueError: there are no samples; fewer than six pictures are tried; they don't fit the model or aren't in
            [0, 1]; the numbers of classes and names, or of samples and titles, differ; a state is of another model;
            the model has no head, weights that aren't finite, or more than 12 million of them.
        TypeError: the model is not a plain :class:`ViT` (a subclass, a part of another kind), or the samples are not
            a tensor of floating-point numbers.
    """
    _check(model, samples, classes, preprocess, titles)
    if tried is not None:
        _check_pictures(model, tried, "tried", SHOWN)
    c = model.config
    names = [f"class {k}" for k in range(c.num_classes)] if classes is None else [str(name) for name in classes]
    on_cpu = copy.deepcopy(model).to("cpu", torch.float32).eval()
    samples = samples.detach().to("cpu", torch.float64)
    crop, squash = _resizing(preprocess)
    data: PageData = {
        "config": _config(c) | {"parameters": _count(model)},
        "classes": names,
        "mean": list(preprocess.mean) if preprocess is not None else [0.0] * c.in_channels,
        "std": list(preprocess.std) if preprocess is not None else [1.0] * c.in_channels,
        "crop": crop,
        "squash": squash,
        "samples": _pixels(samples),
        "titles": [str(title) for title in titles],
        "weights": _packed(on_cpu.state_dict()),
        "states": _states(on_cpu, states or {}),
        "nextPages": dict(next_pages or {}),
        "words": json.loads(files("vit_tutorial.live").joinpath("words.json").read_text("utf-8")),
        "meaning": None if tried is None else meaning(model, tried.detach().float().cpu(), preprocess),
        "heat": colour_map("magma"),
        "signed": colour_map("RdBu_r"),
    }
    captions = data["titles"] or [f"sample {i}" for i in range(len(samples))]
    answers = _answers(model, samples, names, preprocess)
    html = assemble(Live.title, data, list(map(figure, samples, captions, answers)))
    return Live(html, _count(model), c.grid, c.depth, c.num_heads)


def _count(model: ViT) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _resizing(preprocess: Preprocessing | Data | None) -> tuple[float, bool]:
    """The central fraction of a picture that the model gets, and whether the input's shape is forced on it."""
    if not isinstance(preprocess, Preprocessing):
        return 1.0, False
    fraction = preprocess.crop if isinstance(preprocess.crop, float) else 1.0
    return fraction, preprocess.squash or preprocess.crop == "none"


def _check(
    model: ViT,
    samples: Tensor,
    classes: Sequence[str] | None,
    preprocess: Preprocessing | Data | None,
    titles: Sequence[str],
) -> None:
    _check_plain(model)
    c = model.config
    if not c.num_classes:
        raise ValueError("the model has no classes to answer with: load it with a head, vt.load(..., num_classes=K)")
    if (count := _count(model)) > MOST:
        raise ValueError(
            f"the model has {count:,} parameters, which would make a page of {count * 16 / 3 / 1e6:,.0f} MB: at most "
            f"{MOST:,} (Ti/16 has 6 million)"
        )
    _check_pictures(model, samples, "samples", 1)
    if classes is not None and len(classes) != c.num_classes:
        raise ValueError(f"the model has {c.num_classes} classes, got {len(classes)} names for them")
    if preprocess is not None and len(preprocess.mean) != c.in_channels:
        raise ValueError(
            f"preprocess has {len(preprocess.mean)} channels, the model {c.in_channels}: take the model's own"
        )
    if titles and len(titles) != len(samples):
        raise ValueError(f"{len(samples)} samples need as many titles, or none, got {len(titles)}")
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{bad[0]} isn't finite: some of its weights are NaN or infinite")


def _check_plain(model: ViT) -> None:
    """The page's script knows a plain ViT's parts alone, and computes with the settings of the config."""
    kind = type(model).__name__
    if not isinstance(model, ViT):
        raise TypeError(
            f"the page runs a plain ViT, got a {kind}: give it the ViT inside, without compile, DDP or PEFT"
        )
    if type(model) is not ViT:
        other = "takes its tokens from convolutions" if isinstance(model, HybridViT) else "has other parts"
        raise TypeError(
            f"the page runs a plain ViT, and this model, a {kind}, {other}: fine-tune a plain one, as photographs "
            "is, or look at this one with vt.explain"
        )
    check_savable(model)


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
    """Names and values, in half of the bytes where every weight is a number of float16."""
    values = torch.cat([tensor.flatten() for tensor in state.values()])
    is_half = bool((values.half().float() == values).all())
    return {
        "names": [[name, tensor.numel()] for name, tensor in state.items()],
        "half": is_half,
        "values": base64_of((values.half() if is_half else values).numpy()),
    }


def _states(model: ViT, states: Mapping[str, State]) -> list[dict[str, Any]]:
    """The states' names, and what each changes in the one before, in the order of the model's own weights."""
    own = model.state_dict()
    for state in states.values():
        if unknown := state.keys() ^ own.keys():
            raise ValueError(f"a state of another model: {', '.join(sorted(unknown)[:3])}")
    packed = zip(states, differences(states.values()), strict=True)
    return [
        {
            "name": name,
            "scales": [float(scales[part]) for part in own],
            "values": base64_of(torch.cat([steps[part].flatten() for part in own]).numpy()),
        }
        for name, (steps, scales) in packed
    ]


def _config(c: ViTConfig) -> dict[str, Any]:
    """The config's fields that the forward pass reads, with what follows from them."""
    fields = ("dim", "depth", "num_heads", "mlp_dim", "num_classes", "norm_eps", "gelu", "position", "pool")
    return {name: getattr(c, name) for name in fields} | {
        "shape": [c.in_channels, *as_pair(c.image_size, "image_size")],
        "patch_size": as_pair(c.patch_size, "patch_size"),
        "grid": c.grid,
        "patches": c.grid[0] * c.grid[1],
        "prefix": c.prefix_tokens,
        "tokens": c.num_tokens,
    }


def _pixels(samples: Tensor) -> dict[str, Any]:
    """Samples (B, C, H, W) in [0, 1] as whole numbers up to ``white``: 16 if that is exact, as for digits, else 255."""
    white = 16 if (16 * samples).frac().eq(0).all() else 255
    levels = (white * samples).round().to(torch.uint8)  # (B, C, H, W)
    return {"white": white, "values": base64_of(levels.numpy()), "count": len(samples)}


@torch.inference_mode()
def _answers(model: ViT, samples: Tensor, names: Sequence[str], preprocess: Preprocessing | Data | None) -> list[str]:
    """Each sample's likeliest class and its probability, in float64: the same on every machine."""
    in_double = copy.deepcopy(model).to("cpu", torch.float64).eval()
    images = samples if preprocess is None else normalise(samples, preprocess)
    probabilities, order = in_double(images).softmax(dim=-1).max(dim=-1)  # (B,), (B,)
    return [
        f"{names[k]} {100 * probability:.1f} %"
        for k, probability in zip(order.tolist(), probabilities.tolist(), strict=True)
    ]
