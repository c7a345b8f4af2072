"""Lesson 09: the tensors inside a training checkpoint, without what training wrapped around them.

A checkpoint is a tree of dictionaries. One that holds a patch embedding, by its name in a library, is a model. Of raw
and averaged weights (EMA, DINO's teacher) with the same names the average is taken, as timm does, and that is said; of
two others neither is guessed. Tensors beside the model are training's own, by their whole name, or stop the reading.
"""

from __future__ import annotations

import argparse
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.weights.messages import some
from vit_tutorial.weights.names import State
from vit_tutorial.weights.reading import NAMES, from_numpy

SEVERAL = 100  # models in one dictionary; more aren't counted
DEPTH = 10  # dictionaries within dictionaries; no library nests four
# Keys of dictionaries, and first parts of names, that stand for averaged weights.
AVERAGE = re.compile(
    r"(?i)(?:^|[._/-]|model|net|state|params|weights)"
    r"(?:ema|swa|(?<!exp_)avg|averaged?|shadow|polyak|teacher|momentum_?(?:encoder|model|net|backbone|branch)"
    r"|target_?(?:encoder|model|net))\d*"
    r"(?:$|[._/-]|model|net|state|params|weights|dict)"
)
TEACHER = re.compile(r"(?i)teacher|target")  # it may be another model, whose answers the student learns
TRAINING = re.compile(  # whole keys of what training goes on from: no answer depends on it
    r"optim(izer)?s?(_states?|_state_dicts?)?\d*|opt(_states?)?|momentum_buffers?|grads?|gradients"
    r"|(lr_)?schedulers?(_states?|_state_dicts?)?|lr_sched(uler)?s?"
    r"|(amp|grad|amp_grad|fp16|loss)_?scalers?(_state_dict)?|scaler(_state_dict)?|amp"
    r"|callbacks|loops|(cuda_|torch_|numpy_|python_)?rng_states?|random_states?"
    r"|(dino|ibot|ibot_patch|koleo|train|val)_loss(es)?|loss|losses|criterion|metrics|history|param_shapes|buffer_names"
    r"|epoch|global_step|step|steps|iteration|iter|args|config|cfg|hyper_parameters|hparams|meta|version"
    r"|pytorch-lightning_version|arch|best_acc(uracy|1)?|best_score|ds_config|ds_version|((dp|mp|tp|pp)_)?world_size"
)
FACTS = re.compile(r"args|config|cfg|hyper_parameters|hparams|meta|arch")  # of these, what may tell of the model
COUNTS = ("n_averaged", "total_ops", "total_params")  # torch's AveragedModel counts, and thop, in every layer
BESIDE = {"predictor": "the predictor (I-JEPA's, of its loss)"}  # what pretraining alone has, by its whole key
HEAD = re.compile(r"(?i)head|classif|(^|[._])fc\d*([._]|$)|linear|probe|logit|output")  # only to say what it is
UNTRAINED = ("mask_token", "masked_embed")  # the raw weights may have one, and their average none
INSIDE = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")  # torch's own, anywhere in a name


class Unwrapped(NamedTuple):
    """What :func:`unwrap` returns."""

    state: State
    origin: str  # the key of the dictionary that the tensors were in; "" for the outermost
    assumed: dict[str, Any]  # "weights" if there was a choice, "left_out" if something lay beside


class Part(NamedTuple):
    """A dictionary or a list somewhere in a checkpoint that holds tensors itself, and the model among them."""

    path: tuple[str, ...]  # the keys that lead to it
    content: Mapping[Any, Any] | Sequence[Any]
    scope: str = ""  # what the model's names begin with, where there are several in one dictionary
    names: Mapping[str, str] = {}  # the model's, and what each is called without wrappers
    outside: Mapping[str, str] = {}  # names in the dictionary that begin as none of several models does

    @property
    def key(self) -> str:
        """The path as ``part=`` takes it, such as ``state/ema``."""
        return "/".join(filter(None, (*self.path, self.scope)))

    @property
    def averaged(self) -> bool:
        """Whether a name on the path says that these are averages over steps."""
        return any(AVERAGE.search(part) for part in (*self.path, self.scope))

    @property
    def of_training(self) -> bool:
        """Whether a name on the path says that only training needs this, such as an optimizer's state."""
        return any(TRAINING.fullmatch(part.lower()) for part in self.path)

    def items(self) -> Iterable[tuple[str, Any]]:
        """What it holds, by key; a list's keys are its indices."""
        content: Any = self.content.items() if isinstance(self.content, Mapping) else enumerate(self.content)
        return ((str(key), value) for key, value in content)

    def arrays(self) -> dict[str, Any]:
        """What may be weights: more than single numbers, such as how many steps were averaged."""
        return {key: value for key, value in self.items() if isinstance(value, (Tensor, np.ndarray)) and value.ndim}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the model's tensors, by their names without wrappers."""
        named = ((self.names.get(name, UNTRAINED[0]), array) for name, array in self.arrays().items())
        return {plain: tuple(array.shape) for plain, array in named if not plain.endswith(UNTRAINED)}


def unwrap(checkpoint: Mapping[str, Any], anchors: tuple[str, ...], part: str | None = None) -> Unwrapped:
    """The tensors of the one model in a checkpoint, and what was chosen.

    Args:
        checkpoint: names and tensors, or dictionaries that hold them.
        anchors: the name of the patch embedding in each library.
        part: which model, where there are several: the keys that lead to it ("teacher", "ema/state_dict"), and what its
            names begin with ("ema."). The others, and what lies beside them, are left out.

    Raises:
        ValueError: no model, or several; tensors beside it that aren't training's; entries that are no tensors.
        TypeError: no mapping.
    """
    if not isinstance(checkpoint, Mapping):
        way_out = ": pass its state_dict()" if hasattr(checkpoint, "state_dict") else ""
        raise TypeError(f"names and tensors are needed, a mapping, got {type(checkpoint).__name__}{way_out}")
    nodes = _nodes(checkpoint)
    models = [model for node in nodes for model in _models(node, anchors)]
    assumed: dict[str, Any] = {}
    if part is None:
        models = [model for model in models if model.averaged or not model.of_training]
    chosen = _only(checkpoint, nodes) if part is None and not models else _chosen(models, part, assumed)
    if part is None and models:
        _refuse_beside(checkpoint, nodes, models, chosen, assumed)
    state = _tensors(chosen, nodes)
    if unread := _unread(checkpoint, nodes, chosen):
        assumed["unread"] = some(unread)
    return Unwrapped(state, chosen.path[-1] if chosen.path else "", assumed)


def _nodes(checkpoint: Mapping[str, Any]) -> list[Part]:
    """Every dictionary and list within that holds tensors itself, each once, the outermost first."""
    found, seen = [], set()
    todo: deque[Part] = deque([Part((), checkpoint)])
    while todo:
        node = todo.popleft()
        if id(node.content) in seen or len(node.path) > DEPTH:
            continue
        seen.add(id(node.content))
        if any(isinstance(value, (Tensor, np.ndarray)) for _, value in node.items()):
            found.append(node)
        todo += [
            Part((*node.path, key), value) for key, value in node.items() if isinstance(value, (Mapping, list, tuple))
        ]
    return found


def _models(node: Part, anchors: tuple[str, ...]) -> list[Part]:
    """The models in a dictionary: what stands before a source's anchor is a wrapper, and several are several models.

    Each has the names that begin as its anchor does, up to where the anchors differ.
    """
    if not isinstance(node.content, Mapping):
        return []
    names = [name for name, value in node.items() if isinstance(value, (Tensor, np.ndarray))]
    plain = {name: INSIDE.sub("", name) for name in names}
    before = (name.removesuffix(anchor) for name in plain.values() for anchor in anchors if name.endswith(anchor))
    found = list(dict.fromkeys(prefix for prefix in before if not prefix or prefix[-1] in "./"))
    prefixes = [re.findall(r"[^./]+[./]", prefix) for prefix in found[:SEVERAL]]
    if not prefixes:
        return []
    common = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*prefixes, strict=False)))
    scopes = ["".join(parts[: common + 1]) if len(prefixes) > 1 else "" for parts in prefixes]
    owner = {name: max((s for s in scopes if plain[name].startswith(s)), key=len, default=None) for name in names}
    models = []
    for scope, parts in zip(scopes, prefixes, strict=True):
        starts = ["".join(parts[:n]) for n in range(len(parts), -1, -1)]  # model.vit., of which a head lacks the second
        bare = {name: next(plain[name][len(s) :] for s in starts if plain[name].startswith(s)) for name in names}
        stripped = {name: bare[name] for name in names if owner[name] in (scope, None)}
        outside = {name: new for name, new in stripped.items() if owner[name] is None}
        own = {name: new for name, new in stripped.items() if owner[name] is not None}
        models.append(node._replace(scope=scope, names=own, outside=outside))
    return models


def _chosen(models: list[Part], part: str | None, assumed: dict[str, Any]) -> Part:
    """The model that was asked for; else the only one, or the only average of several that have the same tensors."""
    if part is not None:
        wanted = part.strip("./")
        found = [model for model in models if model.key.strip("./") == wanted]
        found = found or [model for model in models if model.scope.strip("./") == wanted]
        if len(found) != 1:
            there = some([repr(model.key.strip("./")) for model in models])
            raise ValueError(f"part={part!r:.100} names {len(found)} of the {len(models)} models in this file: {there}")
        return found[0]._replace(outside={})
    if len(models) == 1:
        return models[0]
    averages = [model for model in models if model.averaged]
    if len(averages) != 1 or any(model.shapes() != averages[0].shapes() for model in models):
        raise ValueError(f"{len(models)} models, {some([repr(model.key) for model in models])}: say which by part=")
    said = some([model.key or "the rest" for model in models])
    assumed["weights"] = f"{averages[0].key} of {said}, the average"
    return averages[0]


def _refuse_beside(
    checkpoint: Mapping[str, Any], nodes: list[Part], models: list[Part], chosen: Part, assumed: dict[str, Any]
) -> None:
    """Tensors beside the model may be part of the answer; what pretraining alone has is said.

    An average that is a list, a module, or has names of its own can't be taken, and the raw weights aren't it.
    """

    def averages(*path: str) -> bool:
        return any(AVERAGE.search(part) and not TEACHER.search(part) for part in path)

    others = [node for node in nodes if node.content is not chosen.content]
    keys = [node.key for node in others if averages(*node.path) and node.arrays()]
    keys += [str(key) for key, value in checkpoint.items() if averages(str(key)) and hasattr(value, "state_dict")]
    if keys and not chosen.averaged:
        raise ValueError(f"{some(keys)}: averages without their names: pass their state dict, or say the other's part=")
    taken = {id(model.content) for model in models}
    beside = [node for node in nodes if id(node.content) not in taken and not node.of_training and node.arrays()]
    if left_out := [BESIDE[node.key] for node in beside if node.key in BESIDE]:
        assumed["left_out"] = some(left_out)
    keys = [node.key for node in beside if node.path and node.key not in BESIDE]
    keys += [key for node in beside if not node.path for key in node.arrays() if not TRAINING.fullmatch(key.lower())]
    where = "/".join(chosen.path)
    if packed := [key for key in keys if "_packed_params" in key]:
        raise ValueError(f"{some(packed, 3)}: weights that torch quantised, which aren't read: save those from before")
    if any(HEAD.search(key) for key in keys):
        way_out = f"put its tensors beside the model's, or say part={where!r} for the features"
        raise ValueError(f"{some(keys)}: a head in a dictionary of its own: {way_out}")
    if keys:
        raise ValueError(f"{some(keys)}: beside the model, and may change the answer. If not, say part={where!r}")


def _unread(checkpoint: Mapping[str, Any], nodes: list[Part], chosen: Part) -> list[str]:
    """What lies beside the tensors, on the way to them, and may say more of the model than training needs."""
    holders = {id(node.content) for node in nodes}
    level, found = Part((), checkpoint), []
    for depth, key in enumerate(chosen.path):
        deeper = {node.path[depth] for node in nodes if len(node.path) > depth and node.path[:depth] == level.path}
        for other, value in level.items():
            silent = TRAINING.fullmatch(other.lower()) and not FACTS.fullmatch(other.lower())
            average = any(AVERAGE.search(part) for part in (*level.path, other))
            tensors = isinstance(value, (Tensor, np.ndarray)) or other in deeper or id(value) in holders
            if not silent and not average and not tensors and value not in (None, "", {}, [], argparse.Namespace()):
                found.append(other)
        level = Part((*level.path, key), dict(level.items())[key])
    return found


def _only(checkpoint: Mapping[str, Any], nodes: list[Part]) -> Part:
    """The only dictionary of tensors, if none holds a model by its patch embedding: what it is will be seen or said."""
    found = [node for node in nodes if isinstance(node.content, Mapping) and not node.of_training and node.arrays()]
    node = max(found, key=lambda node: len(node.content), default=Part((), checkpoint))
    if others := [other.key or "the outermost" for other in nodes if other is not node and not other.of_training]:
        first = some([name for name, _ in node.items()])
        raise ValueError(f"no patch embedding is among {first}: no known model, and beside it is {some(others)}")
    return node._replace(names={name: INSIDE.sub("", name) for name, _ in node.items()})


def _tensors(chosen: Part, nodes: list[Part]) -> State:
    """The chosen dictionary's tensors, by names without prefixes."""
    depth = len(chosen.path)
    within = {other.path[depth] for other in nodes if len(other.path) > depth and other.path[:depth] == chosen.path}
    content = dict(chosen.items())
    is_tensor = {key: isinstance(value, (Tensor, np.ndarray)) for key, value in content.items()}
    unknown = [key for key in content if not is_tensor[key] and key not in within]
    others = [key for key in unknown if not TRAINING.fullmatch(key.lower())]
    if others or (content and not any(is_tensor.values())):
        found = others or list(content)
        raise ValueError(f"{len(found)} entries are no tensors: {some(found)}: pass the state dict within")
    plain = {**chosen.names, **chosen.outside}
    names = [name for name in plain if is_tensor[name] and name.rpartition(".")[2] not in COUNTS]
    if len(names) > NAMES:
        raise ValueError(f"{len(names):,} tensors are more than any model has: the first are {some(names)}")
    if long := [name for name in names if len(name) > 2000]:
        raise ValueError(f"a name has {len(long[0]):,} characters: {some(long)}. No tensor of a model is called so")
    tensors: State = {}
    for name in names:
        new, value = plain[name], content[name]
        if new in tensors:
            other = next(one for one in names if plain[one] == new)
            raise ValueError(f"{some([other, name])}: two layers of one name: pass the inner model's tensors alone")
        if isinstance(value, Tensor) and value.layout != torch.strided:
            raise ValueError(f"{some([name])} is {value.layout}: plain numbers are needed, as to_dense() makes them")
        tensors[new] = value.detach() if isinstance(value, Tensor) else from_numpy(value, new)
    if not tensors:
        raise ValueError(f"a state dict with names and tensors is needed, got {len(names)} names")
    return tensors
