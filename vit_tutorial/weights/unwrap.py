"""Lesson 09: the tensors inside a training checkpoint, without what training wrapped around them.

A checkpoint is a tree of dictionaries. One that holds a patch embedding, by its name in a library, is a model. Of raw
and averaged weights (EMA, DINO's teacher) the average is taken, as timm does, and that is said; of two others neither
is guessed. What lies beside the model is left out, which is said too, but for what training alone needs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from vit_tutorial.weights.messages import some
from vit_tutorial.weights.names import State
from vit_tutorial.weights.reading import NAMES, from_numpy

DEPTH = 10  # dictionaries within dictionaries; no library nests four
# Keys of dictionaries, and first parts of names, that stand for averaged weights.
AVERAGE = re.compile(
    r"(?i)(?:^|[._/-]|model|net|state|params|weights)"
    r"(?:ema|swa|(?<!exp_)avg|averaged?|shadow|polyak|teacher|momentum_?(?:encoder|model|net|backbone|branch)"
    r"|target_?(?:encoder|model|net))\d*"
    r"(?:$|[._/-]|model|net|state|params|weights|dict)"
)
TEACHER = re.compile(r"(?i)teacher|target")  # it may be another model, whose answers the student learns
TRAINING = re.compile(  # keys of what training needs, and an answer doesn't
    r"(?i)optim|^opt(_|$)|_opt$|sched|scaler|(^|_)amp(_|$)|loss|criterion|callback|^loops$|rng|random|hyper|^args?$|"
    r"config|cfg|^meta|metric|epoch|step|iter|^lr|version|^ds_|_size$|param_shapes|buffer_names|^grads?(_|$)|history|"
    r"^best_(acc|score)|^date|^time$|^arch$"
)
HEAD = re.compile(r"(?i)head|classif|(^|[._])fc\d*([._]|$)|linear|probe|logit|output")
INSIDE = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")  # torch's own, anywhere in a name
WRAPPING = re.compile(
    r"^((module|model|net|encoder|backbone|student|teacher|timm_model|vit|deit|ijepa|dpt)\.|opt/target/|params/(img/)?)+"
)


class Unwrapped(NamedTuple):
    """What :func:`unwrap` returns."""

    state: State
    origin: str  # the key of the dictionary that the tensors were in; "" for the outermost
    assumed: dict[str, Any]  # "weights" if there was a choice, "left_out" if something lay beside


class Node(NamedTuple):
    """A dictionary or a list somewhere in a checkpoint that holds tensors itself."""

    path: tuple[str, ...]
    content: Mapping[Any, Any] | Sequence[Any]

    @property
    def key(self) -> str:
        return "/".join(self.path)

    @property
    def averaged(self) -> bool:
        return any(AVERAGE.search(part) for part in self.path)

    @property
    def of_training(self) -> bool:
        return any(TRAINING.search(part) for part in self.path)


def unwrap(checkpoint: Mapping[str, Any], anchors: tuple[str, ...]) -> Unwrapped:
    """The tensors of the one model in a checkpoint, and what was chosen.

    Args:
        checkpoint: names and tensors, or dictionaries that hold them.
        anchors: the name of the patch embedding in each library.

    Raises:
        ValueError: no model, or several; a head in a dictionary of its own; entries that are no tensors.
        TypeError: no mapping.
    """
    if not isinstance(checkpoint, Mapping):
        way_out = ": pass its state_dict()" if hasattr(checkpoint, "state_dict") else ""
        raise TypeError(f"names and tensors are needed, a mapping, got {type(checkpoint).__name__}{way_out}")
    nodes = _nodes(checkpoint)
    models = [
        node
        for node in nodes
        if isinstance(node.content, Mapping)
        and _prefixes(map(str, node.content), anchors)
        and (node.averaged or not node.of_training)
    ]
    assumed: dict[str, Any] = {}
    if models:
        chosen = _choose(models, anchors, assumed)
        _refuse_average_without_names(checkpoint, nodes, chosen)
        _leave_out(nodes, models, chosen, assumed)
    else:
        chosen = _largest(checkpoint, nodes)
    state = _tensors(chosen, nodes, anchors, assumed)
    return Unwrapped(state, chosen.path[-1] if chosen.path else "", assumed)


def _nodes(checkpoint: Mapping[str, Any]) -> list[Node]:
    """Every dictionary and list within that holds tensors itself, each once, the outermost first."""
    found, seen = [], set()
    todo: deque[Node] = deque([Node((), checkpoint)])
    while todo:
        node = todo.popleft()
        if id(node.content) in seen or len(node.path) > DEPTH:
            continue
        seen.add(id(node.content))
        if any(isinstance(value, (Tensor, np.ndarray)) for _, value in _items(node)):
            found.append(node)
        todo += [
            Node((*node.path, key), value) for key, value in _items(node) if isinstance(value, (Mapping, list, tuple))
        ]
    return found


def _items(node: Node) -> Iterable[tuple[str, Any]]:
    items: Any = node.content.items() if isinstance(node.content, Mapping) else enumerate(node.content)
    return ((str(key), value) for key, value in items)


def _prefixes(names: Iterable[str], anchors: tuple[str, ...]) -> dict[str, str]:
    """What stands before an anchor: {prefix: the whole name}."""
    found = {}
    for name in names:
        plain = INSIDE.sub("", name)
        if plain.endswith(anchors):
            for anchor in anchors:
                before = plain.removesuffix(anchor)
                if before != plain and (not before or before[-1] in "./"):
                    found[before] = name
    return found


def _choose(models: list[Node], anchors: tuple[str, ...], assumed: dict[str, Any]) -> Node:
    """The only model, or the only average of several."""
    averages = [node for node in models if node.averaged]
    if len(models) == 1:
        return models[0]
    alike = {_shape_of_anchor(node, anchors) for node in models}
    if len(averages) != 1 or len(alike) != 1:
        raise ValueError(
            f"{len(models)} models are in this checkpoint, under {some([repr(node.key) for node in models])}: "
            "pass the names and tensors of one of them"
        )
    assumed["weights"] = f"{averages[0].key} of {some([node.key or 'the rest' for node in models])}, the average"
    return averages[0]


def _shape_of_anchor(node: Node, anchors: tuple[str, ...]) -> tuple[int, ...]:
    content: Any = node.content
    tensor = next(content[name] for name in content if _prefixes([str(name)], anchors))
    return tuple(getattr(tensor, "shape", ()))


def _refuse_average_without_names(checkpoint: Mapping[str, Any], nodes: list[Node], chosen: Node) -> None:
    """An average that is a list, a module, or has names of its own can't be taken, and the raw weights aren't it."""
    if chosen.averaged:
        return
    keys = [node.key for node in nodes if node is not chosen and _is_average(node.path) and _has_arrays(node)]
    keys += [str(key) for key, value in checkpoint.items() if _is_average((str(key),)) and hasattr(value, "state_dict")]
    if keys:
        raise ValueError(
            f"{some(keys)} holds an average of the weights without their names: pass a state dict, the average's "
            "or the other's"
        )


def _is_average(path: tuple[str, ...]) -> bool:
    return any(AVERAGE.search(part) and not TEACHER.search(part) for part in path)


def _has_arrays(node: Node) -> bool:
    """Whether there is more than single numbers, such as how many steps were averaged."""
    values = node.content.values() if isinstance(node.content, Mapping) else node.content
    return any(isinstance(value, (Tensor, np.ndarray)) and value.ndim for value in values)


def _leave_out(nodes: list[Node], models: list[Node], chosen: Node, assumed: dict[str, Any]) -> None:
    """Say what else there is beside the model; a head is never dropped."""
    others, taken = {node.path[:1] for node in models} - {chosen.path[:1]}, {id(node.content) for node in models}
    beside = [
        node
        for node in nodes
        if id(node.content) not in taken and not node.of_training and node.path[:1] not in others and _names_of(node)
    ]
    own = chosen.content if isinstance(chosen.content, Mapping) else {}
    has_head = any(re.search(r"(^|\.)(head|heads|classifier)[./]", str(name)) for name in own)
    heads = [name for node in beside for name in _names_of(node) if HEAD.search(name)]
    if heads and not has_head:
        raise ValueError(
            f"{some(heads)}: a head in a dictionary of its own. Put its tensors beside the model's, by the names "
            "that the library has for them, or pass the model's alone for the features"
        )
    if beside:
        assumed["left_out"] = some(list(dict.fromkeys(name for node in beside for name in _names_of(node))))


def _names_of(node: Node) -> list[str]:
    """A node's key; of the outermost, which has none, the names of its tensors. None, if they are single numbers."""
    if node.path or not isinstance(node.content, Mapping):
        return [node.key] if _has_arrays(node) else []
    arrays = [
        str(name) for name, value in node.content.items() if isinstance(value, (Tensor, np.ndarray)) and value.ndim
    ]
    return [name for name in arrays if not TRAINING.search(name)]


def _largest(checkpoint: Mapping[str, Any], nodes: list[Node]) -> Node:
    """The dictionary with the most tensors, if none holds a known model: what is wrong with it will be said."""
    mappings = [node for node in nodes if isinstance(node.content, Mapping) and not node.of_training]
    return max(mappings, key=lambda node: len(node.content), default=Node((), checkpoint))


def _tensors(chosen: Node, nodes: list[Node], anchors: tuple[str, ...], assumed: dict[str, Any]) -> State:
    """The chosen dictionary's tensors, by names without prefixes."""
    content: Any = chosen.content
    depth = len(chosen.path)
    within = {node.path[depth] for node in nodes if len(node.path) > depth and node.path[:depth] == chosen.path}
    names, others = [], []
    for key, value in content.items():
        if isinstance(value, (Tensor, np.ndarray)):
            names.append(key)
        elif not (TRAINING.search(str(key)) or str(key) in within):
            others.append(str(key))
    if others or (content and not names):
        raise ValueError(
            f"{len(others or content)} entries are no tensors: {some(others or list(map(str, content)))}: pass "
            "the state dict within"
        )
    if len(names) > NAMES:
        raise ValueError(f"{len(names):,} tensors are more than any model has: the first are {some(names)}")
    if long := [name for name in map(str, names) if len(name) > 2000]:
        raise ValueError(f"a name has {len(long[0]):,} characters: {some(long)}. No tensor of a model is called so")
    names = [name for name in names if name != "n_averaged"]  # torch's AveragedModel counts
    shapes = [tuple(content[name].shape) for name in names]
    tensors: State = {}
    for name, new in zip(names, _without_prefix([str(name) for name in names], shapes, anchors, assumed), strict=True):
        if new is not None and new in tensors:
            raise ValueError(f"{len(names)} names, of which two differ in what wraps them alone: {some([new])}")
        if new is not None:
            value = content[name]
            tensors[new] = value.detach() if isinstance(value, Tensor) else from_numpy(value, new)
    if not tensors:
        raise ValueError(f"a state dict with names and tensors is needed, got {len(names)} names")
    return tensors


def _without_prefix(
    names: list[str], shapes: list[tuple[int, ...]], anchors: tuple[str, ...], assumed: dict[str, Any]
) -> list[str | None]:
    """The names without what training wrapped around them; None: of a second model in the same dictionary.

    What stands before a source's anchor is the wrapper. Names that share its first part lose that: of
    ``model.vit.embeddings`` and ``model.classifier``, ``model.vit.`` and ``model.``.
    """
    found, shape_of = _prefixes(names, anchors), dict(zip(names, shapes, strict=True))
    names = [INSIDE.sub("", name) for name in names]
    if not found:
        return [WRAPPING.sub("", name) for name in names]
    prefix, others = next(iter(found)), []
    if len(found) > 1:
        averages = [prefix for prefix in found if AVERAGE.search(prefix)]
        if len(averages) != 1 or len({shape_of[name] for name in found.values()}) != 1:
            raise ValueError(
                f"{len(found)} models are in this state dict, under {some([repr(p) for p in found])}: pass the "
                "names and tensors of one of them"
            )
        prefix = averages[0]
        others = [other for other in found if other != prefix]
        assumed["weights"] = f"those under {prefix!r} of {some([repr(p) for p in found])}, the average"
    parts = re.findall(r"[^./]+[./]", prefix)
    plain: list[str | None] = []
    for name in names:
        of_another = not name.startswith(prefix) and name.startswith(tuple(others))
        plain.append(None if of_another else _strip(name, parts))
    return plain


def _strip(name: str, parts: list[str]) -> str:
    for part in parts:
        if not name.startswith(part):
            break
        name = name[len(part) :]
    return name
