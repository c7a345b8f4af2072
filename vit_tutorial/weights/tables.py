"""Lesson 09: the language of the tables of names, which are read in both directions.

Each library's module has its tables: our name on the left, theirs on the right. ``*`` stands for weight and for bias,
``{i}`` for the number of the block::

    "norm.*": "encoder.ln.*"
    "blocks.{i}.attention.proj.*": "blocks.{i}.attn.proj.*"

    three of their tensors are joined into one of ours, by rows, or as one of JOINS says:
    "blocks.{i}.attention.qkv.*": "layers.{i}.attention.(q_proj|k_proj|v_proj).*"
    "embed.cls_token": "(cls_token|dist_token) : tokens"

    alternatives: the first one whose tensors are all there counts:
    "blocks.{i}.scale1.gamma": ("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1")

Rows without tensors belong to parts that a model doesn't have. Tensors without a row are ignored: whether the model
needs them, :func:`.proof.prove` finds out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

State = dict[str, Tensor]
Table = Mapping[str, str | tuple[str, ...]]
Join = Callable[[list[Tensor]], Tensor]
Split = Callable[[Tensor, int], Sequence[Tensor]]
JOINS: dict[str, tuple[Join, Split]] = {  # several of their tensors as one of ours, and the way back
    "rows": (torch.cat, lambda tensor, n: tensor.chunk(n)),  # such as those of q, k and v: (3 D, D)
    "tokens": (lambda parts: torch.cat(parts, dim=1), lambda tensor, n: tensor.chunk(n, dim=1)),  # (1, 2, D)
    "stack": (torch.stack, lambda tensor, n: tensor.unbind()),  # the biases of q and v: (2, D)
    # Two heads, whose mean is the answer, are one that reads both class tokens.
    "columns": (lambda parts: torch.cat(parts, dim=1) / len(parts), lambda tensor, n: (tensor * n).chunk(n, dim=1)),
    "mean": (lambda parts: torch.stack(parts).mean(dim=0), lambda tensor, n: [tensor] * n),
}


class Row(NamedTuple):
    """A row of a table for one block, and for weight or bias: a tensor of ours, and where theirs are."""

    our: str
    theirs: list[str]  # one name, or those of the tensors that are joined
    join: str  # a key of JOINS


def to_ours(table: Table, state: Mapping[str, Tensor]) -> State:
    """Tensors under our names; those that needn't be joined share their memory with theirs."""
    ours = {}
    for our, names, how in rows_of(table, state):
        join, _ = JOINS[how]
        ours[our] = state[names[0]] if len(names) == 1 else join([state[name] for name in names])
    return ours


def to_theirs(table: Table, ours: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Write our tensors into theirs, in place.

    Raises:
        ValueError: tensors of ours that have no place there, or another shape: which.
    """
    rest = dict(ours)
    for our, names, how in rows_of(table, state):
        if our not in rest:
            continue
        tensor = rest.pop(our)
        _, split = JOINS[how]
        parts = [tensor] if len(names) == 1 else split(tensor, len(names))
        for name, part in zip(names, parts, strict=True):
            if state[name].shape != part.shape:
                raise ValueError(f"{our} has the shape {tuple(part.shape)}, {name} {tuple(state[name].shape)}")
            state[name].copy_(part)
    if rest:
        raise ValueError(f"these tensors have no place there: {', '.join(rest)}")


def rows_of(table: Table, state: Mapping[str, Tensor]) -> list[Row]:
    """The rows whose tensors are all in ``state``; no tensor belongs to two rows, and the first one has it."""
    rows: dict[str, Row] = {}
    used: set[str] = set()
    for row in _possible_rows(table, state):
        whole = all(name in state for name in row.theirs)
        if whole and row.our not in rows and used.isdisjoint(row.theirs):
            rows[row.our] = row
            used.update(row.theirs)
    return list(rows.values())


def _possible_rows(table: Table, state: Mapping[str, Tensor]) -> Iterator[Row]:
    """The table's rows for each block, for weight and bias; alternatives come one after the other."""
    # There may be fewer blocks than the largest number in a name says: then the rows of the others have no tensors.
    blocks = 1 + max((int(number) for name in state for number in re.findall(r"\d+", name)), default=0)
    for our, alternatives in table.items():
        for template in (alternatives,) if isinstance(alternatives, str) else alternatives:
            for i in range(blocks) if "{i}" in our else (0,):
                for leaf in ("weight", "bias") if our.endswith("*") else ("",):
                    yield _row(our, template, i, leaf)


def _row(our: str, template: str, i: int, leaf: str) -> Row:
    """``x.{i}.*`` and ``a.{i}.(b|c).* : stack`` -> ``x.0.weight``, ``[a.0.b.weight, a.0.c.weight]``, ``stack``."""
    our, template = (text.replace("{i}", str(i)).replace("*", leaf) for text in (our, template))
    name, _, join = template.partition(" : ")
    before, _, rest = name.partition("(")
    choices, _, after = rest.partition(")")
    return Row(our, [f"{before}{choice}{after}" for choice in choices.split("|")], join or "rows")
