"""Checks of lesson 06: numbers with a pencil, the whole model, its stochastic depth, what it costs, its attention."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Fault,
    Mistake,
    ModelSnapshot,
    Observation,
    Question,
    as_number,
    build_layer,
    changed_argument,
    layer,
    normal,
    pencil,
    random_weights,
    share_no_parameter,
    variant,
)
from vit_tutorial.embeddings import Embeddings
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import ViT, ViTConfig, count_macs, count_parameters

# ---- With a pencil -----------------------------------------------------------------------------------------------


VIT_NUMBERS = pencil(
    "vit_numbers",
    lesson="06",
    points=3,
    tolerance=0.002,
    questions={
        "tokens": Question(
            25,
            "Count the rows of patches and the patches in a row; one token comes on top.",
            "1 · Four equations, four lines",
            {
                24: "a class token forgotten. 24 patches make T = 25 tokens. The class token has D numbers, and a "
                "position like all others."
            },
        ),
        "E": Question(3088, "E takes the numbers of one patch, of all channels, to D numbers, and has a bias."),
        "the rest of Eq. 1": Question(
            416,
            "The class token is one vector, and each token (it is one, too) has a position.",
            "1 · Four equations, four lines",
            {
                384: "a class token forgotten. 24 patches make T = 25 tokens. The class token has D numbers, and a "
                "position like all others.",
                400: "one row too few. Positions are T × D numbers, the class token is D more.",
            },
        ),
        "attention": Question(
            1088, "Four matrices from D to D, each with a bias; the number of heads changes nothing."
        ),
        "products": Question(
            20000,
            "Each of T queries meets each of T keys, over D numbers in all heads together; then the same again "
            "with the values.",
            "1 · Four equations, four lines",
            {
                18432: "a class token forgotten. 24 patches make T = 25 tokens. The class token has D numbers, and a "
                "position like all others."
            },
        ),
        "first loss": Question(
            2.303,
            "All K classes have the same probability: minus its natural logarithm.",
            "The first loss is log K",
            {0: "a first loss of 0. A loss of 0 would mean sure and right."},
        ),
    },
)


# ---- The model ---------------------------------------------------------------------------------------------------

NEW = "a new model"
FIELDS = ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim", "pool")


class _Model(ViT):
    """The package's model, built from nine arguments, in steps that a variant replaces by wrong ones."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(ViTConfig(**dict(zip(FIELDS, arguments, strict=True))))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pooled(self.normed(self.blocks(self.embed(images)))))

    def normed(self, z: Tensor) -> Tensor:
        return self.norm(z)

    def pooled(self, z: Tensor) -> Tensor:
        return z.mean(dim=1) if self.config.pool == "mean" else z[:, 0]


def _observe_model(work: Any, case: Case) -> Observation:
    """As :func:`layer`; and in a case of its own how a new model starts."""
    if not case.label.startswith(NEW):
        return layer(work, case, _others(case.weights), differentiable=False)
    module = build_layer(work, case)
    share_no_parameter(module, work(*case.build))
    answer = module.eval()(*case.args)
    first = [p for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    return Observation(
        {
            "the shape of a new model's answer": tuple(answer.shape),
            "a new model's answer": "not all zeros" if answer.any() else "all zeros",
            "how a new model's blocks start": "alike in two of them" if alike else "different",
        }
    )


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


@functools.cache
def _weights(build: tuple[Any, ...], size: float = 1.0) -> dict[str, Tensor]:
    """Random weights; with a small ``size`` the tokens are so small that a norm's eps counts."""
    weights = random_weights(_Model(*build))
    small = ("embed.", "attention.proj", "mlp.fc2")
    return {name: value * size if any(part in name for part in small) else value for name, value in weights.items()}


FAINT = "tokens so small that a norm's eps counts"


def _model_cases() -> list[Case]:
    builds: list[tuple[Any, ...]] = [
        ((4, 6), 2, 3, 5, 8, 3, 2, 12, "cls"),
        ((6, 4), (3, 2), 1, 3, 6, 2, 3, 10, "cls"),
        ((2, 8), (1, 4), 2, 7, 10, 3, 5, 6, "mean"),  # T = 4 tokens of width 10: no mean over another axis fits
        ((1, 2), 1, 1, 2, 4, 11, 2, 3, "cls"),
    ]
    made = []
    for B, build in zip((2, 1, 3, 1), builds, strict=True):
        images = normal(B, build[2], *build[0])
        label = f"images {tuple(images.shape)}, depth {build[5]}, pool={build[8]!r}"
        made.append(Case(label, (images,), build, _weights(build)))
    faint: tuple[Any, ...] = ((2, 4), 2, 2, 4, 6, 2, 2, 10, "cls")
    faint_mean = (*faint[:-1], "mean")
    return [
        *made,
        Case(FAINT, (normal(3, 2, 2, 4, seed=5),), faint, _weights(faint, 1e-3)),
        Case(f"{FAINT}, pool='mean'", (normal(3, 2, 2, 4, seed=5),), faint_mean, _weights(faint_mean, 1e-3)),
        Case(NEW, made[1].args, builds[1]),
        Case(f"{NEW}, pool='mean'", made[2].args, builds[2]),
    ]


class _AnotherEps(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.norm = nn.LayerNorm(self.config.dim)


class _OneHead(ViT):
    def __init__(self, *arguments: Any) -> None:
        config = ViTConfig(**dict(zip(FIELDS, arguments, strict=True)))
        super().__init__(dataclasses.replace(config, num_heads=1))


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
    mistakes=(
        Mistake(
            name="the last norm forgotten",
            says="Pre-norm blocks leave the tokens at any size, so Eq. 4 norms them once more before the head: "
            "norm(z).",
            reread="What goes wrong",
            wrong=variant(_Model, normed=lambda self, z: z),
        ),
        Mistake(
            name="the mean of the tokens with pool='cls'",
            says="With a class token the head reads token 0 alone.",
            reread="What goes wrong",
            wrong=variant(_Model, pooled=lambda self, z: z.mean(dim=1)),
        ),
        Mistake(
            name="a last norm with another eps",
            says="It is 1e-6, as in the blocks; nn.LayerNorm's own is 1e-5.",
            reread="What goes wrong",
            wrong=_AnotherEps,
        ),
        Mistake(
            name="one head in place of num_heads",
            says="Hand num_heads on to each block.",
            reread="What goes wrong",
            wrong=_OneHead,
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------


def _rates(depth: int, last: float) -> list[float]:
    return [last * layer / max(depth - 1, 1) for layer in range(depth)]


def _as_tensor(work: Any, case: Case) -> Observation:
    """The rates as a tensor, however they are kept: a list, a tuple, a tensor, an array."""
    rates = work(*case.args)
    numbers = [as_number(rate) for rate in rates] if isinstance(rates, (list, tuple)) else [None]
    return Observation({"rates": rates if None in numbers else torch.tensor(numbers, dtype=torch.float64)})


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
    observe=_as_tensor,
    tolerance=3e-7,
    mistakes=(
        Mistake(
            name="one rate for all blocks",
            says="The rate grows from 0 in equal steps, up to `last` in the last block.",
            reread="6 · Stochastic depth",
            wrong=lambda depth, last: [last] * depth,
            lesson="05",
        ),
        Mistake(
            name="rates that don't reach `last`",
            says="The last of `depth` blocks has the rate `last`: divide by depth - 1.",
            reread="6 · Stochastic depth",
            wrong=lambda depth, last: [last * i / depth for i in range(depth)],
            lesson="05",
        ),
        Mistake(
            name="rates that don't start at 0",
            says="The first block's rate is 0: i / (depth - 1).",
            reread="6 · Stochastic depth",
            wrong=lambda depth, last: [last * (i + 1) / depth for i in range(depth)],
            lesson="05",
        ),
    ),
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
    class_tokens: int = 1

    @property
    def N(self) -> int:
        return self.image_size[0] // self.P * (self.image_size[1] // self.P)

    @property
    def T(self) -> int:
        return self.N + self.class_tokens


Terms = Mapping[str, Callable[[_Sizes], int]]
_PARAMETERS: Terms = {
    "embeddings": lambda s: (s.C * s.P**2 + 1) * s.D + s.class_tokens * s.D + s.T * s.D,
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


def _count(terms: Terms, change: Callable[[_Sizes], _Sizes] = lambda sizes: sizes) -> Callable[..., dict[str, int]]:
    """The right count, or that of a model of other sizes."""
    return lambda *sizes: {name: term(change(_Sizes(*sizes))) for name, term in terms.items()}


def _of_other_sizes(terms: Terms) -> tuple[Mistake, ...]:
    return (
        Mistake(
            name="an image taken for a square",
            says="You count patches from one side alone. image_size is (H, W): H / P rows of W / P patches.",
            reread="2 · Any size, counted",
            wrong=_count(terms, lambda s: dataclasses.replace(s, image_size=(s.image_size[0],) * 2)),
        ),
        Mistake(
            name="an MLP of four times the width",
            says="You put 4 D for M. In B/16 that is so; here M is an argument of its own, mlp_dim.",
            reread="2 · Any size, counted",
            wrong=_count(terms, lambda s: dataclasses.replace(s, M=4 * s.D)),
        ),
        Mistake(
            name="the class token forgotten",
            says="N patches make T = N + 1 tokens.",
            reread="2 · Any size, counted",
            wrong=_count(terms, lambda s: dataclasses.replace(s, class_tokens=0)),
        ),
    )


def _terms(terms: Terms) -> Callable[[Any, Case], Observation]:
    """The terms of the dictionary that the work returns."""

    def observe(work: Any, case: Case) -> Observation:
        given = work(*case.args)
        if given is None:
            raise Fault("the result is None: is the return missing?")
        if not isinstance(given, Mapping):
            raise Fault(f"returned {type(given).__name__}, expected a dictionary with the keys {', '.join(terms)}")
        if lost := [term for term in terms if term not in given]:
            raise Fault(f"there is no {lost[0]!r} in the dictionary: it has {', '.join(map(repr, given)) or 'nothing'}")
        return Observation({term: given[term] for term in terms})

    return observe


def _count_cases() -> list[Case]:
    return [
        Case("B/16", ((224, 224), 16, 3, 1000, 768, 12, 12, 3072)),
        Case("small, on 32 x 48 pixels", ((32, 48), 8, 1, 10, 24, 5, 3, 60)),
        Case("smaller, on 20 x 10 pixels", ((20, 10), 5, 2, 7, 18, 4, 2, 50)),
        Case("another small one, on 40 x 24 pixels", ((40, 24), 8, 3, 6, 24, 5, 4, 70)),
        Case("odd sizes, on 225 x 165 pixels", ((225, 165), 15, 3, 1001, 777, 13, 3, 3077)),
    ]


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
    mistakes=_of_other_sizes(_PARAMETERS),
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
    mistakes=_of_other_sizes(_MACS),
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
    scale: Callable[[Tensor], float] = lambda q: math.sqrt(q.shape[-1]),
) -> Callable[[_Parts, Tensor], list[Tensor]]:
    """Attention maps with another input of the queries, another way on, or a block late."""

    def attention_maps(model: _Parts, images: Tensor) -> list[Tensor]:
        z, maps = model.embed(images), []
        for block in cast(Iterable[EncoderBlock], model.blocks):
            z = block(z) if late else z
            attention = block.attention
            qkv = attention.qkv(enter(model, block, z)).unflatten(-1, (3, attention.num_heads, -1))
            q, k, _ = qkv.permute(2, 0, 3, 1, 4)  # (B, h, T, d) each
            maps.append((q @ k.mT / scale(q)).softmax(dim=-1))
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


def _observe_maps(work: Any, case: Case) -> Observation:
    """The maps; a tensor that holds all layers, or a dictionary of them in order, will do, too."""
    model, images = case.args
    lent = ModelSnapshot(model)
    given = images.clone()
    maps = work(model, given)
    training = any(part.training for part in model.modules())
    observed = {
        "maps": list(maps.values()) if isinstance(maps, Mapping) else maps,
        "the model afterwards": lent.afterwards(),
        "the model's mode afterwards": "training" if training else "evaluation",
    }
    return Observation(observed, changed_argument=changed_argument([images], [given], first=2))


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
    mistakes=(
        Mistake(
            name="a block's norm forgotten",
            says="A block's attention never sees z itself: the queries and keys are made from norm1(z).",
            reread=_LOOKS,
            wrong=_maps(enter=lambda model, block, z: z),
            lesson="08",
        ),
        Mistake(
            name="weights from tokens that have passed the block already",
            says="You send z through the block first, and then ask for its weights. They belong to what enters the "
            "block.",
            reread=_LOOKS,
            wrong=_maps(late=True),
            lesson="08",
        ),
        Mistake(
            name="tokens that stay in front of the first block",
            says="Every layer gets the embeddings from you. What enters layer l is what layer l - 1 returned: z = "
            "block(z).",
            reread=_LOOKS,
            wrong=_maps(on=lambda block, z: z),
            lesson="08",
        ),
        Mistake(
            name="scores that are not divided by √d",
            says="Divide them by √d, d = D / h.",
            reread=_LOOKS,
            wrong=_maps(scale=lambda q: 1.0),
            lesson="08",
        ),
    ),
)
