"""What a sandbox tells the grader: values as plain JSON. Nothing is unpickled, so no code comes out of a sandbox."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping, ValuesView
from typing import Any

import numpy as np
import torch

from vit_tutorial.checks.declare import Words

MOST_BYTES, MOST_TEXT = 16_000_000, 20_000
PLAIN = (bool, int, float, str, type(None))
REAL = ["float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64"]
ARRAYS = {*REAL, "complex64", "complex128"}
DTYPES = {name: getattr(torch, name) for name in [*ARRAYS, "bfloat16"]}


# Terminal escapes first, then what is left of control characters, marks that turn the direction of a line, surrogates.
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(\x07|\x1b\\)?|[@-Z\\^_])")
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def clean(text: Any, most: int = 1_000_000) -> str:
    """A student's text as something that every file, terminal and page can show."""
    return UNSEEN.sub("\ufffd", ESCAPES.sub("", str(text)[:most].replace("\r\n", "\n").replace("\r", "\n")))


def encode(value: Any, own: Mapping[int, Any] | None = None) -> Any:
    """A value as what ``json.dumps`` takes; what has no form of its own becomes its type's name and its text.

    ``own`` are names, by id, of tensors that are told by their names alone; with them, a generator or a ParameterList
    is a list.
    """
    if own is not None and isinstance(value, (Iterator, ValuesView, torch.nn.ParameterList)):
        value = list(value)
    if own and id(value) in own:
        return {"own": own[id(value)]}
    if type(value) in PLAIN:
        return value[:MOST_TEXT] if isinstance(value, str) else value
    if type(value) is Words:
        return {"words": str.__str__(value)[:MOST_TEXT]}
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in ARRAYS and value.nbytes <= MOST_BYTES:
        return {"array": value.dtype.name, "shape": list(value.shape), "bytes": _text(value.tobytes())}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(part, own) for part in value]}
    if isinstance(value, Mapping):
        return {"dict": [[encode(key), encode(part, own)] for key, part in value.items()]}
    return {"other": type(value).__name__, "text": repr(value)[:200]}


def _tensor(value: torch.Tensor) -> Any:
    name = str(value.dtype).removeprefix("torch.")
    if name not in DTYPES or value.layout != torch.strided or value.numel() * value.element_size() > MOST_BYTES:
        return {"other": "Tensor", "text": f"a tensor of shape {tuple(value.shape)}, {value.dtype}"}
    flat = value.detach().cpu().contiguous().reshape(-1)
    return {"tensor": name, "shape": list(value.shape), "bytes": _text(flat.view(torch.uint8).numpy().tobytes())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def decode(value: Any, own: Mapping[tuple[Any, ...], Any] | None = None) -> Any:
    """The value that :func:`encode` was given; of one without a form of its own, a stand-in of the same type's name.

    ``own`` are the tensors that encode told by name.

    Raises:
        ValueError: anything that ``encode`` doesn't write.
    """
    if type(value) in PLAIN:
        return value
    if not isinstance(value, dict) or not value:
        raise ValueError("neither a plain value nor one of encode's")
    kind = next(iter(value))
    if kind in ("list", "tuple", "set", "frozenset"):
        made = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return made(decode(part, own) for part in value[kind])
    if kind == "dict":
        return {decode(key): decode(part, own) for key, part in value[kind]}
    if kind == "words" and isinstance(value[kind], str):
        return Words(value[kind])
    if kind == "other":
        return _stand_in(value["other"], value["text"])
    if kind == "own":
        if own is None or tuple(value[kind]) not in own:
            raise ValueError("no such tensor")
        return own[tuple(value[kind])]
    if {"bytes", "shape"} - value.keys():
        raise ValueError(f"no such kind of value: {str(kind)[:40]}")
    data, shape = base64.b64decode(value["bytes"], validate=True), [int(size) for size in value["shape"]]
    if kind == "tensor" and value["tensor"] in DTYPES:
        dtype = DTYPES[value["tensor"]]
        _check_size(data, shape, dtype.itemsize)
        return (
            torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        )
    if kind == "array" and value["array"] in ARRAYS:
        _check_size(data, shape, np.dtype(value["array"]).itemsize)
        return np.frombuffer(data, value["array"]).reshape(shape)[()]
    raise ValueError(f"no such kind of value: {str(kind)[:40]}")


def _check_size(data: bytes, shape: list[int], item: int) -> None:
    if min(shape, default=0) < 0 or math.prod(shape) * item != len(data):
        raise ValueError("the numbers don't fill the shape")


def _stand_in(name: Any, text: Any) -> Any:
    known = name if isinstance(name, str) and name.isidentifier() else "object"
    return type(known, (), {"__repr__": lambda self: clean(text, 200)})()
