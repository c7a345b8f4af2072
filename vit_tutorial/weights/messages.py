"""What is said to the user: a refusal in one line, a warning in one sentence, long lists cut short."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vit_tutorial.data.extras import printable

SEVERAL_LABELS = "of several labels at once (problem_type): each has its own sigmoid, and no softmax"


@contextmanager
def refusing(about: str = "") -> Iterator[None]:
    """Whatever goes wrong inside becomes one short ValueError that begins with ``about``, what a file is called.

    An OSError and an ImportError stay as they are; so does a TypeError, if it isn't about a file. What isn't foreseen
    in a stranger's file (a config nested a thousandfold, torch's own errors) is named by its kind.
    """
    start = f"{about}: " if about else ""
    try:
        yield
    except OSError as error:
        if error.filename is None or brief(str(error)) == str(error):
            raise
        raise type(error)(error.errno, error.strerror, brief(str(error.filename), 1000)) from None
    except ImportError:  # a package is missing: what to type, it says itself
        raise
    except Exception as error:
        kind, said = TypeError if isinstance(error, TypeError) and not about else ValueError, str(error)
        if isinstance(error, KeyError):
            said = f"{said} is missing"
        elif not isinstance(error, (ValueError, TypeError)):
            said = f"{type(error).__name__}: {' '.join(said.split())[:300]}"
        raise kind(brief(start + said)) from error


def brief(text: str, limit: int = 1500) -> str:
    """The text on one line, cut in its middle where it is longer; what can't be printed is written as its code."""
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 300]} … {text[-290:]}"


ASSUMED = {  # what a file doesn't tell, by its key in ``assumed``
    "num_heads": "{} heads (num_heads=)",
    "gelu": "the {} GELU (gelu=)",
    "norm_eps": "epsilon {} (norm_eps=)",
    "image_size": "pictures of {} pixels (image_size=)",
    "preprocess": (
        "pixels of mean {0.mean}, standard deviation {0.std}, crop {0.crop}, {0.interpolation} (preprocess=)"
    ),
    "rotary": "rotary positions {} (parts=)",
    "pool": "pooling by {} (parts=)",
    "mlp": "a gated MLP, {} (parts=)",
    "norm": "{} norms (parts=)",
    "plain": "the paper's architecture, {} (plain=)",
    "pool_prefix": "class token and registers pooled: {} (parts=)",
    "pool_heads": "heads of the pooling: {} (parts=)",
}
SAID = {  # what else is to be known
    "weights": "the weights are {}",
    "head": "the classifier is {}, taken for one linear layer on the features, with nothing but dropout before it",
    "left_out": "left out, a ViT having none: {}",
    "unread": "beside the weights, and not read: {}",
    "answers": "its answers are {}",
    "names": "of its names of classes, {}",
    "rounded": "resized pixels are rounded to 256 levels, and {}",
}


def warn(about: str, assumed: Mapping[str, Any]) -> None:
    """One UserWarning, in a sentence, that says what was assumed; none, if that is nothing."""
    parts = ", ".join(way.format(assumed[key]) for key, way in ASSUMED.items() if key in assumed)
    said = [way.format(assumed[key]) for key, way in SAID.items() if key in assumed]
    if parts:
        said.insert(0, f"{about} doesn't tell all, so this was assumed: {parts}; give what you know better")
    elif said:
        said[0] = f"{about}: {said[0]}"
    if said:
        warnings.warn(brief(". ".join(said) + "."), UserWarning, stacklevel=3)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def short(value: Any) -> str:
    """The value as Python writes it, cut where it is long."""
    return _SHORT.repr(value)[:200]


def some(names: Sequence[str], limit: int = 10) -> str:
    """At most ``limit`` names, each cut short, then how many more there are."""
    short = [name if len(name) <= 100 else f"{name[:60]}…{name[-30:]}" for name in names[:limit]]
    return ", ".join(short) + (f" and {len(names) - limit} more" if len(names) > limit else "")
