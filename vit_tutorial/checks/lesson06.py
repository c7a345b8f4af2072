"""Checks of lesson 06: numbers with a pencil, the whole model, its stochastic depth, what it costs, its attention."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vit_tutorial.checks.chance import spread
from vit_tutorial.checks.compare import as_number, differs, kind, off
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Mistake,
    Result,
    Words,
    answers,
    as_left,
    built,
    copied,
    layer,
    normal,
    of_its_own,
    random_weights,
    section,
)
from vit_tutorial.checks.snapshot import ModelSnapshot
from vit_tutorial.embeddings import Embeddings
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import ViT, ViTConfig, count_macs, count_parameters

_TERMS = "Parameters, term by term"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "tokens": Hashed("80b781906b"),
    "E": Hashed("4377d2f6bf"),
    "the rest of Eq. 1": Hashed("766266c804"),
    "attention": Hashed("fb3e785379"),
    "products": Hashed("cf6674189d"),
    "first loss": Hashed("9e48445baa@0.01+0.00758509"),
}

VIT_NUMBERS = Exercise(
    name="vit_numbers",
    lesson="06",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.002,  # 2.31 is not log 10 rounded
    secret=True,
    advice={
        "tokens": "Count the rows of patches and the patches in a row; one token comes on top.",
        "E": "E takes the numbers of one patch, of all channels, to D numbers, and has a bias.",
        "the rest of Eq. 1": "The class token is one vector, and each token (it is one, too) has a position.",
        "attention": "Four matrices from D to D, each with a bias; the number of heads changes nothing.",
        "products": "Each of T queries meets each of T keys, over D numbers in all heads together; then the same again "
        "with the values.",
        "first loss": "All K classes have the same probability: minus its natural logarithm.",
    },
    mistakes=(
        *section(
            "1 · Four equations, four lines",
            (
                "a class token forgotten",
                "24 patches make T = 25 tokens. The class token has D numbers, and a position like all others.",
                {"tokens": 24, "the rest of Eq. 1": 24 * 16, "products": 2 * 24 * 24 * 16},
            ),
        ),
        *section(
            _TERMS,
            (
                "one row too few",
                "Positions are T × D numbers, the class token is D more.",
                {"the rest of Eq. 1": 25 * 16},
            ),
        ),
        *section(
            "The first loss is log K",
            ("a first loss of 0", "A loss of 0 would mean sure and right.", {"first loss": 0}),
        ),
    ),
)


# ---- The model ---------------------------------------------------------------------------------------------------

NEW = "a new model"
FIELDS = ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim", "pool")


class _Model(ViT):
    """The package's model, built from nine arguments."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(ViTConfig(**dict(zip(FIELDS, arguments, strict=True))))


class _NoNorm(_Model):
    def forward(self, images: Tensor) -> Tensor:
        z: Tensor = self.blocks(self.embed(images))
        return self.head(z.mean(dim=1) if self.config.pool == "mean" else z[:, 0])


def _observe_model(work: Any, case: Case) -> Result:
    """As :func:`layer`; whether blocks hide in a list, and in cases of their own how it starts and how it trains."""
    module = built(work, case)
    if hidden := _hidden(module):
        return {"where its modules are": Words(hidden)}
    if any(name.endswith("cls_token") for name, _ in module.named_parameters()) and case.build[-1] == "mean":
        return {"where its modules are": _SEEN, "a class token with pool='mean'": Words("there")}
    sound: Result = {"where its modules are": _SEEN, "a class token with pool='mean'": Words("not there")}
    if case.label.startswith(NEW):
        torch.default_generator.manual_seed(271)
        another = work(*case.build)
        of_its_own(module, another)
        return sound | _start(module, another, case) | {"torch's seed": _seed(271)}
    if case.label == TRAINING:
        layer(lambda *_: module, case, _others(case.weights), differentiable=False)
        answers = [module.train()(*case.args) for _ in range(2)]
        trains = module.training
        steady, fixed = torch.equal(*answers), torch.equal(answers[0], module.eval()(*case.args))
        kept = trains and not module.training
        return sound | {
            "its answer in training mode": Words(
                "another one in each call" if not steady else "as in evaluation mode" if fixed else "another one"
            ),
            "its mode after a call": Words(
                "as before" if kept else "another one: is there train() or eval() in forward?"
            ),
        }
    return sound | layer(lambda *_: module, case, _others(case.weights), differentiable=False)


def _seed(before: int) -> Words:
    kept = torch.initial_seed() == before
    return Words("as it was" if kept else "set by your code, for everyone")


_SEEN = Words("where torch sees them")


def _hidden(module: nn.Module) -> str:
    """Where modules are kept that torch doesn't see, or ""."""
    known = {id(part) for part in module.modules()}
    for part in module.modules():
        for name, value in vars(part).items():
            inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
            if name != "_modules" and any(isinstance(x, nn.Module) and id(x) not in known for x in inside):
                return f"in part a plain Python {type(value).__name__}"
    return ""


def _others(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """What a student's own parts from lessons 01 to 05 may call their parameters: as {theirs: agreed}."""
    theirs = {"qkv.weight": "in_proj_weight", "qkv.bias": "in_proj_bias"}
    theirs |= {"proj.weight": "out_proj.weight", "proj.bias": "out_proj.bias"}
    found = {"embed.proj.weight": "embed.patches.proj.weight", "embed.proj.bias": "embed.patches.proj.bias"}
    for name in weights:
        before, attention, leaf = name.partition("attention.")
        if leaf in theirs:
            found[before + attention + theirs[leaf]] = name
    return found


def _start(module: nn.Module, another: nn.Module, case: Case) -> Result:
    logits, shape = module.eval()(*case.args), (len(case.args[0]), case.build[3])
    if not isinstance(logits, Tensor) or logits.shape != shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise Fault(f"the logits must be (B, K) = {shape}, got {got}")
    parameters = [p for name, p in module.named_parameters() if name.split(".")[0] in ("embed", "blocks")]
    rest = any(p.ndim > 1 and p.any() for p in parameters)
    found: Result = {
        "a new model's answer": Words("not all zeros" if logits.any() else "all zeros"),
        "what is zero beside the head": Words("nothing else has to be" if rest else "all matrices of embed and blocks"),
    }
    return found | {"the start of embed and blocks": Words(_kept_start(module, another, case))} if rest else found


@functools.cache
def _usual_start(build: tuple[Any, ...]) -> dict[str, float]:
    """The standard deviation of each matrix of new parts: where grading runs, there is no ViT of the package's."""
    image_size, patch_size, channels, _, dim, depth, heads, mlp_dim, pool = build
    embed = Embeddings(image_size, patch_size, channels, dim, class_token=pool == "cls")
    blocks = nn.Sequential(*[EncoderBlock(dim, heads, mlp_dim) for _ in range(depth)])
    parts = nn.ModuleDict({"embed": embed, "blocks": blocks})
    return {name: p.detach().std().item() for name, p in parts.named_parameters() if p.ndim > 1}


def _kept_start(module: nn.Module, another: nn.Module, case: Case) -> str:
    """Whether embed and blocks start as their parts do, each block by its own draw, and another model by others."""
    usual = _usual_start(case.build)
    found = {name: p.detach() for name, p in module.named_parameters()}
    for name, p in found.items():
        if name.endswith("cls_token") and p.any():
            return f"not that of its parts: {name} is zero everywhere in theirs, and not in yours"
        if p.ndim == 1 and "norm" in name and name.endswith("weight") and (p != 1).any():
            return f"not that of its parts: {name} is one everywhere in theirs, and not in yours"
        if p.ndim == 1 and name.endswith("bias") and (p.abs() > 0.75).any():
            return f"not that of its parts: {name} has numbers as large as {p.abs().max().item():.2g}"
        if p.ndim > 1 and p.numel() >= 30 and usual.get(name):
            ratio = p.std().item() / usual[name]
            if not 0.35 < ratio < 2:  # the paper's start and torch's own are 0.52 apart in the second matrix of an MLP
                return f"not that of its parts: the standard deviation of {name} is {ratio:.2g} times theirs"
    matrices = [p for name, p in found.items() if p.ndim > 1 and ("mlp" in name or "attention" in name) and p.any()]
    if matrices and spread(torch.cat([(p / p.std()).flatten() for p in matrices]))[2] > 2.4:
        return "not that of its parts: the numbers of the blocks' matrices are not evenly spread, as theirs are"
    first = [p for name, p in found.items() if name.endswith("mlp.fc1.weight")]
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    if alike:
        return "the same numbers in two blocks (is a seed set, or a block copied?)"
    others = [p for name, p in another.named_parameters() if name.endswith("mlp.fc1.weight")]
    seeded = bool(first) and all(map(torch.equal, first, others))
    return "the same in two models (is a seed set?)" if seeded else "as its parts have it"


@functools.cache
def _weights(build: tuple[Any, ...], size: float = 1.0) -> dict[str, Tensor]:
    """Random weights; with a small ``size`` the tokens are so small that a norm's eps counts."""
    weights = random_weights(_Model(*build))
    small = ("embed.", "attention.proj", "mlp.fc2")
    return {name: value * size if any(part in name for part in small) else value for name, value in weights.items()}


FAINT = "tokens so small that a norm's eps counts"
TRAINING = "in training mode"
DEEP = "depth 11"


def _model_cases() -> list[Case]:
    builds: list[tuple[Any, ...]] = [
        ((4, 6), 2, 3, 5, 8, 3, 2, 12, "cls"),
        ((6, 4), (3, 2), 1, 3, 6, 2, 3, 10, "cls"),
        ((2, 8), (1, 4), 2, 7, 10, 3, 5, 6, "mean"),  # T = 4 tokens of width 10: no mean over another axis fits
    ]
    made = []
    for B, build in zip((2, 1, 3), builds, strict=True):
        images = normal(B, build[2], *build[0])
        label = f"images {tuple(images.shape)}, depth {build[5]}, pool={build[8]!r}"
        made.append(Case(label, (images,), build, _weights(build)))
    faint = ((2, 4), 2, 2, 4, 6, 2, 2, 10, "cls")
    faint_mean = (*faint[:-1], "mean")
    single = ((2, 2), 1, 1, 3, 6, 1, 2, 4, "cls")
    deep = ((1, 2), 1, 1, 2, 4, 11, 2, 3, "cls")
    return [
        *made,
        Case("depth 1", (normal(2, 1, 2, 2),), single, _weights(single)),
        Case(DEEP, (normal(1, 1, 1, 2),), deep, _weights(deep)),
        Case(FAINT, (normal(3, 2, 2, 4, seed=5),), faint, _weights(faint, 1e-3)),
        Case(f"{FAINT}, pool='mean'", (normal(3, 2, 2, 4, seed=5),), faint_mean, _weights(faint_mean, 1e-3)),
        Case(TRAINING, made[1].args, builds[1], made[1].weights),
        Case(NEW, made[1].args, builds[1]),
        Case(f"{NEW}, pool='mean'", made[2].args, builds[2]),
    ]


def _about_the_model(compared: list[tuple[Case, Result, Result]]) -> str:
    if all(case.label == DEEP for case, _, _ in compared):
        return (
            "It goes wrong with 11 blocks. Are some left out, or visited in another order? (Sorted as text, 10 comes "
            "before 2.)"
        )
    if all(case.label.startswith(FAINT) for case, _, _ in compared):
        return (
            f"It goes wrong with {compared[0][0].label}. Is eps=1e-6 in the last norm, and in those of the blocks "
            "(vt.EncoderBlock has it)?"
        )
    return ""


def _where_models_go_wrong(compared: list[tuple[Case, Result, Result]]) -> str:
    """What all models that go wrong have in common: their pooling, or more than one block."""
    if not off([row for row in compared if "result" in row[1]], VIT):
        return ""  # it is how a model starts, or trains
    wrong = [case.build for case, a, b in compared if differs(a, b, VIT)]
    if all(build[-1] == "mean" for build in wrong):
        return "All numbers tried with pool='cls' are right. For 'mean' the head reads the mean of all patches."
    if all(build[-1] == "cls" for build in wrong):
        return "All numbers tried with pool='mean' are right. For 'cls' the head reads the class token, row 0."
    if all(build[5] > 1 for build in wrong):
        return "All numbers tried with one block are right: look at the others, their order, and what is between them."
    return ""


VIT = Exercise(
    name="vit",
    lesson="06",
    points=5,
    takes="cls(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool). Its "
    "parts are embed, blocks, norm and head: images (B, C, H, W) -> logits (B, K)",
    right=_Model,
    cases=_model_cases,
    observe=_observe_model,
    forbidden=(ViT,),
    explain=_about_the_model,
    locate=_where_models_go_wrong,
    mistakes=section(
        "What goes wrong",
        (
            "the last norm forgotten",
            "Pre-norm blocks leave the tokens at any size, so Eq. 4 norms them once more before the head: norm(z).",
            _NoNorm,
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------


def _rates(depth: int, last: float) -> list[float]:
    return [last * layer / max(depth - 1, 1) for layer in range(depth)]


def _observe_rates(work: Any, case: Case) -> Result:
    """The rates as a tensor, however they are kept: a list, a tuple, a tensor, an array."""
    given = work(*case.args)
    if isinstance(given, (Tensor, np.ndarray)) or given is None:
        return {"rates": given}
    if isinstance(given, Iterator):
        raise Fault(f"the result is {kind(given)}: make a list of it")
    if isinstance(given, (Mapping, set, frozenset)):
        raise Fault(f"returned {kind(given)}, expected the rates in the blocks' order: a list")
    if not isinstance(given, Iterable):
        raise Fault(f"returned {kind(given)}, expected a list with a rate for each block")
    numbers = [as_number(rate) for rate in given]
    if None in numbers:
        raise Fault(f"rate {numbers.index(None)} is not a number: return a list of numbers")
    return {"rates": torch.tensor(numbers, dtype=torch.float64)}


DROP_PATH_RATES = Exercise(
    name="drop_path_rates",
    lesson="06",
    points=2,
    takes="fn(depth, last): a list of depth rates, from 0 in the first block to last in the last one",
    right=_rates,
    cases=lambda: [
        Case(f"depth={depth}, last={last}", (depth, last))
        for depth, last in [(4, 0.3), (18, 0.1), (2, 0.7), (1, 0.2), (3, 0.0), (18, 0.95)]
    ],
    observe=_observe_rates,
    tolerance=3e-7,
)


# ---- What it costs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """What the two counting functions are called with, in this order."""

    image_size: tuple[int, int]
    P: int
    C: int
    K: int
    D: int
    L: int
    h: int
    M: int

    @property
    def N(self) -> int:
        return self.image_size[0] // self.P * (self.image_size[1] // self.P)

    @property
    def T(self) -> int:
        return self.N + 1


Terms = Mapping[str, Callable[[_Sizes], int]]
_PARAMETERS: Terms = {
    "embeddings": lambda s: (s.C * s.P**2 + 1) * s.D + s.D + s.T * s.D,
    "attention": lambda s: s.L * 4 * s.D * (s.D + 1),
    "mlp": lambda s: s.L * (s.M * (s.D + 1) + s.D * (s.M + 1)),
    "norms": lambda s: s.L * 4 * s.D + 2 * s.D,
    "head": lambda s: s.K * (s.D + 1),
}
_MACS: Terms = {
    "patches": lambda s: s.N * s.C * s.P**2 * s.D,
    "projections": lambda s: s.L * s.T * 4 * s.D**2,
    "products": lambda s: s.L * 2 * s.T**2 * s.D,
    "mlp": lambda s: s.L * s.T * 2 * s.D * s.M,
    "head": lambda s: s.D * s.K,
}


def _count(terms: Terms) -> Callable[..., dict[str, int]]:
    def count(*sizes: Any) -> dict[str, int]:
        return {name: term(_Sizes(*sizes)) for name, term in terms.items()}

    return count


def _terms(terms: Terms) -> Callable[[Any, Case], Result]:
    """The terms of the dictionary that the work returns."""

    def observe(work: Any, case: Case) -> Result:
        given = work(*case.args)
        if given is None:
            raise Fault("the result is None: is the return missing?")
        if not isinstance(given, Mapping):
            raise Fault(f"returned {kind(given)}, expected a dictionary with the keys {', '.join(terms)}")
        if lost := [term for term in terms if term not in given]:
            raise Fault(f"there is no {lost[0]!r} in the dictionary: it has {', '.join(map(repr, given)) or 'nothing'}")
        return {term: given[term] for term in terms}

    return observe


def _count_cases() -> list[Case]:
    return [
        Case("B/16", ((224, 224), 16, 3, 1000, 768, 12, 12, 3072)),
        Case("small, on 32 x 48 pixels", ((32, 48), 8, 1, 10, 24, 5, 3, 60)),
        Case("smaller, on 20 x 10 pixels", ((20, 10), 5, 2, 7, 18, 4, 2, 50)),
        Case("another small one, on 40 x 24 pixels", ((40, 24), 8, 3, 6, 24, 5, 4, 70)),
        Case("odd sizes, on 225 x 165 pixels", ((225, 165), 15, 3, 1001, 777, 13, 3, 3077)),
    ]


# What a count may be off by: in words, and as a number. The likelier one first, where two are equal.
_TIMES: Mapping[str, Callable[[_Sizes], int]] = {
    "": lambda s: 1,
    "L": lambda s: s.L,
    "h": lambda s: s.h,
    "L · h": lambda s: s.L * s.h,
    "T": lambda s: s.T,
    "N": lambda s: s.N,
    "L · T": lambda s: s.L * s.T,
    "L · N": lambda s: s.L * s.N,
    "2": lambda s: 2,
    "3": lambda s: 3,
    "4": lambda s: 4,
}


def _off_by(compared: list[tuple[Case, Result, Result]]) -> str:
    """Each wrong term, and by what it is off."""
    said = []
    for term, right in compared[0][1].items() if compared else ():
        numbers = [(_Sizes(*case.args), a[term], as_number(b[term])) for case, a, b in compared]
        if not isinstance(right, int) or any(b is None for _, _, b in numbers) or all(a == b for _, a, b in numbers):
            continue
        said.append(f"{term!r} {_difference(numbers)}")
    return " ".join(["Where it goes wrong:", *said]) if said else ""


def _difference(numbers: list[tuple[_Sizes, int, Any]]) -> str:
    right, yours = [a for _, a, _ in numbers], [b for _, _, b in numbers]
    if not any(yours):
        return "is 0."
    for words, times in _TIMES.items():
        factors = [times(s) for s, _, _ in numbers]
        if yours == [a * n for a, n in zip(right, factors, strict=True)]:
            return f"is {words} times too large."
        if right == [b * n for b, n in zip(yours, factors, strict=True)]:
            return f"is {words} times too small."
    off = next(filter(None, (b - a for _, a, b in numbers)))
    return f"is {abs(off)} too {'large' if off > 0 else 'small'} for the first model where it is wrong."


def _taken_for_another(terms: Terms) -> tuple[Mistake, ...]:
    """The mistakes of who counts for a model of other sizes."""

    def count(change: Callable[[_Sizes], _Sizes]) -> Callable[..., dict[str, int]]:
        return lambda *sizes: {name: term(change(_Sizes(*sizes))) for name, term in terms.items()}

    return (
        Mistake(
            "an image taken for a square",
            "You count patches from one side alone. image_size is (H, W): H / P rows of W / P patches.",
            "2 · Any size, counted",
            count(lambda s: dataclasses.replace(s, image_size=(s.image_size[0],) * 2)),
        ),
        Mistake(
            "an MLP of four times the width",
            "You put 4 D for M. In B/16 that is so; here M is an argument of its own, mlp_dim.",
            "2 · Any size, counted",
            count(lambda s: dataclasses.replace(s, M=4 * s.D)),
        ),
    )


COUNT_PARAMETERS = Exercise(
    name="count_parameters",
    lesson="06",
    points=3,
    takes="fn(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim). It returns a "
    'dictionary of counts: "embeddings", "attention", "mlp", "norms", "head"',
    right=_count(_PARAMETERS),
    cases=_count_cases,
    observe=_terms(_PARAMETERS),
    tolerance=0.0,
    forbidden=(count_parameters,),
    explain=_off_by,
    mistakes=_taken_for_another(_PARAMETERS),
)


COUNT_MACS = Exercise(
    name="count_macs",
    lesson="06",
    points=2,
    takes="fn(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim). It returns a "
    'dictionary of multiply-accumulates: "patches", "projections", "products", "mlp", "head"',
    right=_count(_MACS),
    cases=_count_cases,
    observe=_terms(_MACS),
    tolerance=0.0,
    forbidden=(count_macs,),
    explain=_off_by,
    mistakes=_taken_for_another(_MACS),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Parts(nn.Module):
    """A ViT without its method of the same name: ``embed``, ``blocks``, ``norm`` and ``head``."""

    def __init__(self, image_size: tuple[int, int], patch_size: int, dim: int, depth: int, num_heads: int) -> None:
        super().__init__()
        self.embed = Embeddings(image_size, patch_size, 1, dim)
        self.blocks = nn.Sequential(*[EncoderBlock(dim, num_heads, 2 * dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, 3)
        for name, value in random_weights(self).items():
            self.get_parameter(name).data = value

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(images)))[:, 0])


def _maps(
    enter: Callable[[_Parts, EncoderBlock, Tensor], Tensor] = lambda model, block, z: block.norm1(z),
    on: Callable[[EncoderBlock, Tensor], Tensor] = lambda block, z: block(z),
    late: bool = False,
) -> Callable[[_Parts, Tensor], list[Tensor]]:
    """Attention maps with another input of the queries, another way on, or a block late."""

    def attention_maps(model: _Parts, images: Tensor) -> list[Tensor]:
        z, maps = model.embed(images), []
        for block in cast(Iterable[EncoderBlock], model.blocks):
            z = block(z) if late else z
            attention = block.attention
            qkv = attention.qkv(enter(model, block, z)).unflatten(-1, (3, attention.num_heads, -1))
            q, k, _ = qkv.permute(2, 0, 3, 1, 4)  # (B, h, T, d) each
            maps.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1))
            z = z if late else on(block, z)
        return maps

    return attention_maps


LOUD = 6  # then the largest score is above 88, where e to its power is more than float32 holds, and below 128


def _map_cases() -> list[Case]:
    made = []
    sizes = [(3, (4, 6), 8, 3, 2), (1, (6, 4), 6, 4, 3), (2, (2, 8), 12, 3, 4), (3, (2, 4), 10, 2, 1)]
    for B, (H, W), dim, depth, heads in sizes:
        label = f"images {(B, 1, H, W)}, {depth} layers, {heads} heads"
        made.append(Case(label, (_Parts((H, W), 2, dim, depth, heads).eval(), normal(B, 1, H, W))))
    training = (_Parts((4, 2), 2, 6, 2, 2).train(), normal(2, 1, 4, 2))
    deep = (_Parts((2, 4), 2, 4, 11, 2).eval(), normal(1, 1, 2, 4))
    loud = _Parts((2, 4), 2, 8, 2, 2).eval()
    for parameter in cast(EncoderBlock, loud.blocks[-1]).attention.qkv.parameters():
        parameter.data *= LOUD  # the last block's alone: what is rounded there goes nowhere
    return [
        *made,
        Case("images (2, 1, 4, 2), 2 layers, 2 heads, a model in training mode", training),
        Case("images (1, 1, 2, 4), 11 layers, 2 heads", deep),
        Case("images (2, 1, 2, 4), 2 layers, 2 heads, scores above 88", (loud, normal(2, 1, 2, 4))),
    ]


def _observe_maps(work: Any, case: Case) -> Result:
    """The maps; a tensor that holds all layers, or a dictionary of them in order, will do, too."""
    model, images = case.args
    lent = ModelSnapshot(model)
    given = copied([images])
    maps = _listed(work(model, *given))
    modes = "training" if any(part.training for part in model.modules()) else "evaluation"
    left = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    model.eval().zero_grad(set_to_none=True)
    again = _listed(work(model, images.flip(-1)))
    return {
        "maps": maps,
        "the maps of a second call, for other images,": again,
        "the model afterwards": lent.afterwards(),
        "the model's mode afterwards": Words(modes),
        "the model's gradients afterwards": Words(
            f"there, of {left[0]}: don't call backward() here" if left else "none"
        ),
        "arguments": as_left(given, first=2),
    }


def _listed(maps: Any) -> Any:
    """The maps of a dictionary in order; anything else as it is."""
    if not isinstance(maps, Mapping):
        return list(maps) if isinstance(maps, list) else maps  # which a later call may make longer
    return [maps[layer] for layer in sorted(maps)] if _in_order(maps) else list(maps.values())


def _in_order(maps: Mapping[Any, Any]) -> bool:
    return all(isinstance(layer, int) for layer in maps)


_LOOKS = "1 · Where the class token looks"

ATTENTION_MAPS = Exercise(
    name="attention_maps",
    lesson="06",
    points=2,
    takes="fn(model, images): a list of every layer's attention weights (B, h, T, T), the first layer first",
    right=_maps(),
    cases=_map_cases,
    observe=_observe_maps,
    forbidden=(ViT,),
    mistakes=section(
        _LOOKS,
        (
            "a block's norm forgotten",
            "A block's attention never sees z itself: the queries and keys are made from norm1(z).",
            _maps(enter=lambda model, block, z: z),
        ),
        (
            "weights from tokens that have passed the block already",
            "You send z through the block first, and then ask for its weights. They belong to what enters the block.",
            _maps(late=True),
        ),
        (
            "tokens that stay in front of the first block",
            "Every layer gets the embeddings from you. What enters layer l is what layer l - 1 returned: z = block(z).",
            _maps(on=lambda block, z: z),
        ),
        lesson="08",
    ),
)
