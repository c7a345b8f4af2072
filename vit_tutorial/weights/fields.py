"""Lesson 09: what is known of a model beside its tensors, and the mechanism by which a stranger's config is read.

A config's fields are taken one by one, by rules; some are dropped, by a named reason why they can't change an answer.
What nobody took stops the reading, by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from vit_tutorial.data import Preprocessing
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViTConfig
from vit_tutorial.weights.messages import short, some

Json = dict[str, Any]
Reasons = Mapping[str, Iterable[str]]  # why keys are dropped: the keys
BEYOND = "which is beyond ViTConfig and ModernConfig"
PIXELS = "which Preprocessing can't express: give preprocess="
LARGEST_SIDE = 8192  # pixels; models of today take a few hundred
LARGEST_TEXT = {"vocab_size": 2_000_000, "context": 4096}  # tokens; MetaCLIP 2 knows 900,000, and texts have 77


@dataclass(frozen=True)
class Given:
    """What is known beside the tensors; None: nothing. As :func:`.convert`'s arguments."""

    num_heads: int | None = None
    image_size: Size | None = None
    gelu: str | None = None
    norm_eps: float | None = None
    preprocess: Preprocessing | None = None
    parts: Mapping[str, Any] | None = None  # fields of ModernConfig that no tensor shows
    plain: bool | None = None
    part: str | None = None  # which model of several in the file
    revision: str | None = None  # of a repository on the hub
    token: str | bool | None = None  # for one that isn't public
    wanted_size: Size | None = None  # if the file's own isn't known: what the model shall take
    told: bool | None = None  # whether a config says all that no tensor shows
    classifies: bool | None = None  # whether a config says that the classifier is transformers' own


@dataclass(frozen=True)
class Known:
    """What a library's files say of a model."""

    source: str  # as convert has it
    given: Given
    fields: dict[str, Any] = field(default_factory=dict)  # of the config, that the tensors must agree with
    labels: Mapping[int, str] = field(default_factory=dict)  # class names by their number
    pixels: Preprocessing | None = None  # None: nothing is said of them
    resized: bool = False  # whether the library itself resizes positions to these pixels
    assumed: Mapping[str, Any] = field(default_factory=dict)  # what even the config leaves open
    published: bool = False  # whether the library's code, which this is read from, tells all that the tensors don't

    def check(self, config: ViTConfig) -> Json:
        """What is assumed though the config was read; a ValueError, if the tensors are another model's."""
        default = {f.name: f.default for f in fields(ModernConfig)} | {"class_token": config.pool != "mean"}
        sizes = {name: single(as_pair(getattr(config, name), name)) for name in ("image_size", "patch_size")}
        found = default | vars(config) | sizes
        assumed = dict(self.assumed)
        if self.given.classifies and not config.num_classes:
            raise ValueError("its architectures name a classifier, and there is none: take them out for features")
        for name, said in self.fields.items():
            halves = name == "mlp_dim" and found["gated"] and said == 2 * config.mlp_dim  # counted together
            if said is None or halves or said == found[name]:
                continue
            if name == "gated" and self.source == "timm" and not said:  # which timm's config can't say (Virchow's)
                assumed["mlp"] = "the gate first, with SiLU"
                continue
            raise ValueError(f"its config says {name}={said!r}, its tensors {found[name]!r}: two different models")
        if "pool" in assumed and config.num_classes:
            raise ValueError(f"its config has global_pool='': a head that reads every token, {BEYOND}")
        return assumed

    def classes(self, num_classes: int) -> tuple[str, ...]:
        """The names in the order of the head's rows; "class k" where there is none."""
        if beyond := [k for k in self.labels if not 0 <= k < num_classes]:
            raise ValueError(f"there is a name for class {beyond[0]}, and the head has {num_classes} classes, from 0")
        return tuple(self.labels.get(k, f"class {k}") for k in range(num_classes))


class Fields:
    """The fields of a config or a processor, taken one by one.

    Args:
        content: a mapping, as JSON has it.
        where: what an error calls it.
        beyond: what an error says of a value that can't be honoured.

    Raises:
        ValueError: no mapping.
    """

    def __init__(self, content: Any, where: str, beyond: str = BEYOND) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{where} must be a mapping, got {short(content)}")
        self.where, self.beyond = where, beyond
        self.left: Json = dict(content)

    def take(self, key: str, default: Any = None) -> Any:
        """The value, which counts as read; the default, if the key isn't there."""
        return self.left.pop(key, default)

    def stated(self, key: str, default: Any = None) -> Any:
        """As :meth:`take`; null says nothing, like a key that isn't there."""
        value = self.take(key)
        return default if value is None else value

    def must_be(self, key: str, *good: Any) -> None:
        """Raise a ValueError for another value than these, the first of which the library takes by default."""
        value = self.take(key, good[0])
        if not any(type(value) is type(one) and value == one for one in good):
            raise ValueError(f"{self.where} has {key}={short(value)}, {self.beyond}")

    def must_lack(self, reasons: Reasons) -> None:
        """Raise a ValueError if one of the keys has a value: it would change the answer."""
        for reason, keys in reasons.items():
            for key in keys:
                if self.take(key):
                    raise ValueError(f"{self.where} has {key}: {reason}, {self.beyond}")

    def close(self, *dropped: Reasons) -> None:
        """Raise a ValueError that names what no rule took, but for keys that change no answer, by a reason each."""
        known = {key for reasons in dropped for keys in reasons.values() for key in keys}
        if left := sorted(f"{key}={short(value)}" for key, value in self.left.items() if key not in known):
            way_out = "if it changes no answer, take it out"
            raise ValueError(f"{self.where} has {some(left)}, which this package doesn't know: {way_out}")

    def numbers(self, keys: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        """Whole numbers by our names, of keys with the library's defaults: ``{ours: (theirs, default)}``."""
        return {
            our: whole(self.stated(key, default), key, 1, LARGEST_TEXT.get(our, 1_000_000))
            for our, (key, default) in keys.items()
        }


def number(value: Any, name: str, least: float = -math.inf) -> float:
    """The value, if it is a finite number, ``least`` or more; else a ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least:
        return float(value)
    least_said = "" if least == -math.inf else f" from {least:g}"
    raise ValueError(f"{name} must be a number{least_said}, got {short(value)}")


def whole(value: Any, name: str, least: int = 1, most: int = 1_000_000) -> int:
    """The value, if it is an int from ``least`` to ``most``; else a ValueError."""
    if number(value, name, least) > most:
        raise ValueError(f"{name} must be at most {most:,}, got {short(value)}")
    if not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, got {short(value)}")
    return value


def size(value: Any, name: str) -> Size:
    """A size in pixels, one number for a square."""
    pair = as_pair(tuple(value) if isinstance(value, list) else value, name)
    for one in pair:
        whole(one, name, 1, LARGEST_SIDE)
    return single(pair)


def single(size: tuple[int, int]) -> Size:
    """One number for a square."""
    return size[0] if size[0] == size[1] else size


def divided(size: Size, patch_size: Size) -> Size:
    """The part of the size that whole patches fill; 0 is for the config to refuse."""
    (H, W), (P, Q) = as_pair(size, "image_size"), as_pair(patch_size, "patch_size")
    return single((H // P * P or H, W // Q * Q or W))


def whole_patches(pixels: Preprocessing, patch_size: Size) -> Preprocessing:
    """Without what the patches leave over: the libraries' convolutions drop it, at the right and below."""
    (H, W), (height, width) = pixels.image_size, as_pair(divided(pixels.image_size, patch_size), "image_size")
    return replace(pixels, image_size=(height, width), left_over=(H - height, W - width))


def flag(value: Any, name: str) -> bool:
    """The value, if it is true or false; else a ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {short(value)}")
    return value


def choice(value: Any, choices: Mapping[str, str], where: str, key: str) -> str | None:
    """What a value means with us; None: nothing is said."""
    if value in (None, ""):
        return None
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{where} has {key}={short(value)}, {BEYOND}: {', '.join(choices)}")
    return choices[value]


def statistics(values: Any, channels: int, name: str) -> tuple[float, ...]:
    """One number a channel; one alone is for all."""
    numbers = values if isinstance(values, (list, tuple)) else [values]
    numbers = [number(value, name) for value in numbers]
    if len(numbers) not in (1, channels):
        raise ValueError(f"{name} has {len(numbers)} numbers for {channels} channels (num_channels, in_chans)")
    return tuple(numbers) if len(numbers) == channels else tuple(numbers) * channels


def labels(names: Any, where: str) -> dict[int, str]:
    """Class names by number: of a list, or of a mapping whose keys are numbers."""
    if not names:
        return {}
    pairs = enumerate(names) if isinstance(names, list) else names.items() if isinstance(names, dict) else None
    if pairs is None:
        raise ValueError(f"{where} must be a list or a mapping of names, got {type(names).__name__}")
    found = {}
    for key, name in pairs:
        if not re.fullmatch(r"\d{1,9}", str(key)) or not isinstance(name, str):
            raise ValueError(f"{where} must map numbers to names, got {short(key)}: {short(name)}")
        found[int(key)] = name
    return found
