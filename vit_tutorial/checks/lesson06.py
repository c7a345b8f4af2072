"""Checks of lesson 06: numbers with a pencil, the whole model, its stochastic depth, what it costs, its attention."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    answers,
    call,
    check,
    layer,
    normal,
    random_weights,
)
from vit_tutorial.embeddings import Embeddings
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import ViT, ViTConfig

__all__ = [
    "check_attention_maps",
    "check_count_macs",
    "check_count_parameters",
    "check_drop_path_rates",
    "check_vit",
    "check_vit_numbers",
]

# ---- With a pencil -----------------------------------------------------------------------------------------------

# 32 high, 48 wide, C = 3, P = 8, D = 16, h = 4, M = 64, L = 2, K = 10: N = 4 * 6.
NUMBERS = {
    "tokens": 25,
    "E": (3 * 64 + 1) * 16,
    "the rest of Eq. 1": 16 + 25 * 16,
    "attention": 4 * 16 * 17,
    "products": 2 * 25 * 25 * 16,
    "first loss": math.log(10),
}

VIT_NUMBERS = Exercise(
    name="vit_numbers",
    lesson="06",
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.004,
    secret=True,
    mistakes=(
        Mistake(
            "a class token forgotten",
            "24 patches make T = 25 tokens: the class token comes in front. It has D numbers of its own, a position "
            "like all others, and it takes part in attention.",
            "1 · Four equations, four lines",
            {"tokens": 24, "the rest of Eq. 1": 24 * 16, "products": 2 * 24 * 24 * 16},
        ),
        Mistake(
            "a count of tokens that takes the picture for a square",
            "The picture is 32 high and 48 wide, so it has 4 rows of 6 patches.",
            "9 · Other image sizes",
            {"tokens": 17, "the rest of Eq. 1": 16 + 17 * 16, "products": 2 * 17 * 17 * 16},
        ),
        Mistake(
            "matrices without their biases",
            "Each of these matrices has a bias, D numbers more: D × (D + 1) for a matrix of D × D.",
            "Parameters, term by term",
            {"E": 3 * 64 * 16, "attention": 4 * 16 * 16},
        ),
        Mistake(
            "the channels forgotten",
            "A patch of 8 × 8 pixels has three numbers at each: E has 192 rows, and its bias.",
            "Parameters, term by term",
            {"E": 65 * 16},
        ),
        Mistake(
            "the class token counted without the positions",
            "Besides E there is a position for each of the T tokens, D numbers each, and the class token itself.",
            "Parameters, term by term",
            {"the rest of Eq. 1": 16},
        ),
        Mistake(
            "the positions counted without the class token",
            "The positions are T × D numbers, the class token's among them; the class token is D numbers more.",
            "Parameters, term by term",
            {"the rest of Eq. 1": 25 * 16},
        ),
        Mistake(
            "q, k and v counted as one matrix",
            "q, k and v have a matrix each, and the projection is the fourth.",
            "Parameters, term by term",
            {"attention": 2 * 16 * 17},
        ),
        Mistake(
            "the output projection forgotten",
            "After q, k and v comes a fourth matrix, which mixes the heads' outputs.",
            "Parameters, term by term",
            {"attention": 3 * 16 * 17},
        ),
        Mistake(
            "the heads counted as matrices of their own",
            "The h heads share the D columns of q, k and v, d = D / h each. More heads are not more parameters.",
            "Parameters, term by term",
            {"attention": 4 * 3 * 16 * 17 + 16 * 17},
        ),
        Mistake(
            "one of the two products",
            "q kᵀ takes T · T · D multiply-accumulates, and weights · v as many again.",
            "4 · Multiplications",
            {"products": 25 * 25 * 16},
        ),
        Mistake(
            "a product for each head at the full width",
            "A head's vectors are d = D / h wide, so all h heads together take T · T · D, not h times as much.",
            "4 · Multiplications",
            {"products": 4 * 2 * 25 * 25 * 16},
        ),
        Mistake(
            "a logarithm to the base 10",
            "The loss is a natural logarithm (ln on a calculator).",
            "It starts with no opinion",
            {"first loss": 1.0},
        ),
        Mistake(
            "a probability in place of its loss",
            "1 / K is what each class gets. The loss is minus its logarithm, so log K.",
            "It starts with no opinion",
            {"first loss": 0.1},
        ),
        Mistake(
            "a first loss of nothing",
            "A head of zeros gives every class the same probability. That is no loss of 0: 0 means sure and right.",
            "It starts with no opinion",
            {"first loss": 0},
        ),
    ),
)


def check_vit_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(VIT_NUMBERS, fn)


# ---- The model ---------------------------------------------------------------------------------------------------

NEW = "a new model"
FIELDS = ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim", "pool")


class _Model(ViT):
    """The package's model, built from nine arguments; a subclass replaces a step by a wrong one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(ViTConfig(**dict(zip(FIELDS, arguments, strict=True))))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pooled(self.normed(self.blocks(self.embed(images)))))

    def normed(self, z: Tensor) -> Tensor:
        return self.norm(z)

    def pooled(self, z: Tensor) -> Tensor:
        return z.mean(dim=1) if self.config.pool == "mean" else self.row(z)

    def row(self, z: Tensor) -> Tensor:
        return z[:, 0]


class _MeanOfAll(_Model):
    def row(self, z: Tensor) -> Tensor:
        return z.mean(dim=1)


class _MeanOfPatches(_Model):
    def row(self, z: Tensor) -> Tensor:
        return z[:, 1:].mean(dim=1)


class _LastToken(_Model):
    def row(self, z: Tensor) -> Tensor:
        return z[:, -1]


class _FirstPatch(_Model):
    def row(self, z: Tensor) -> Tensor:
        return z[:, 1]


class _FirstForMean(_Model):
    def pooled(self, z: Tensor) -> Tensor:
        return z[:, 0]


class _MeanWithoutFirst(_Model):
    def pooled(self, z: Tensor) -> Tensor:
        return z[:, 1:].mean(dim=1) if self.config.pool == "mean" else z[:, 0]


class _Swapped(_Model):
    def pooled(self, z: Tensor) -> Tensor:
        return z[:, 0] if self.config.pool == "mean" else z.mean(dim=1)


class _NoNorm(_Model):
    def normed(self, z: Tensor) -> Tensor:
        return z


class _NormAfterPooling(_NoNorm):
    def pooled(self, z: Tensor) -> Tensor:
        return self.norm(super().pooled(z))


class _NormBeforeBlocks(_Model):
    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pooled(self.blocks(self.norm(self.embed(images)))))


class _OneInstance(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.blocks = nn.Sequential(*[self.blocks[0]] * self.config.depth)


class _OneBlock(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.blocks = self.blocks[:1]


class _PlainList(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layers = list(self.blocks)
        self.blocks = nn.Sequential()


class _TokenForMean(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        c = self.config
        self.embed = Embeddings(c.image_size, c.patch_size, c.in_channels, c.dim)


class _Softmax(_Model):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).softmax(dim=-1)


class _RandomHead(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        cast(nn.Linear, self.head).reset_parameters()


def _observe_model(work: Any, case: Case) -> Result:
    """As :func:`layer`; whether blocks hide in a list, and, in a case of its own, whether the head starts as zeros."""
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        return layer(work, case)  # which says so
    kept = [part for part in vars(module).values() if isinstance(part, (list, tuple))]
    if any(isinstance(part, nn.Module) for parts in kept for part in parts):
        return {"the construction": "blocks in a plain Python list"}
    if case.label == NEW:
        return {"the construction": "sound", "a new model's answer": _first_answer(module, case)}
    names = [name for name, _ in module.named_parameters()]
    if case.build[-1] == "mean" and any(name.endswith("cls_token") for name in names):
        return {"the construction": "a class token with pool='mean'"}
    try:
        observed = layer(lambda *_: module, case)
    except Fault as fault:  # without the list of all parameters
        raise Fault(f"{str(fault).split('; agreed are')[0]}; the parts are embed, blocks, norm and head") from None
    observed["missing"] = []
    return {"the construction": "sound"} | observed


def _first_answer(module: nn.Module, case: Case) -> str:
    logits, shape = module.eval()(*case.args), (len(case.args[0]), case.build[3])
    if not isinstance(logits, Tensor) or logits.shape != shape:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise Fault(f"the logits must be (B, K) = {shape}, got {got}")
    return "not all zeros" if logits.any() else "all zeros"


@functools.cache
def _weights(build: tuple[Any, ...]) -> dict[str, Tensor]:
    return random_weights(_Model(*build))


def _model_cases() -> list[Case]:
    builds: list[tuple[Any, ...]] = [
        ((4, 6), 2, 3, 5, 8, 2, 2, 12, "cls"),
        ((6, 4), (3, 2), 1, 3, 6, 3, 3, 10, "cls"),
        ((2, 8), (1, 4), 2, 7, 4, 2, 1, 6, "mean"),
    ]
    made = []
    for B, build in zip((2, 1, 3), builds, strict=True):
        images = normal(B, build[2], *build[0])
        label = f"images {tuple(images.shape)}, depth {build[5]}, pool={build[8]!r}"
        made.append(Case(label, (images,), build, _weights(build)))
    return [*made, Case(NEW, made[0].args, builds[0])]


VIT = Exercise(
    name="vit",
    lesson="06",
    right=_Model,
    cases=_model_cases,
    observe=_observe_model,
    tolerance=1e-4,  # so that the norm's eps may be torch's 1e-5, too
    mistakes=(
        Mistake(
            "the head on the mean where it should read the class token",
            "With pool='cls' the head reads row 0 of the normed tokens alone, z[:, 0]. The mean is for pool='mean'.",
            "What goes wrong",
            _MeanOfAll,
        ),
        Mistake(
            "the head on the mean of the patches where it should read the class token",
            "With pool='cls' the head reads the class token, z[:, 0]; you average the others.",
            "Without a head, without a class token",
            _MeanOfPatches,
        ),
        Mistake(
            "the head on the class token where it should read the mean",
            "With pool='mean' there is no class token: row 0 is the first patch. Average all tokens.",
            "Without a head, without a class token",
            _FirstForMean,
        ),
        Mistake(
            "a class token that is averaged with the patches",
            "With pool='mean' there is no class token: class_token=False.",
            "Without a head, without a class token",
            _TokenForMean,
        ),
        Mistake(
            "the two poolings exchanged",
            "pool='cls' reads row 0, pool='mean' averages; yours are the other way round.",
            "Without a head, without a class token",
            _Swapped,
        ),
        Mistake(
            "the head on the last token",
            "z[:, -1] is the last patch. The class token was put in front: z[:, 0].",
            "1 · Four equations, four lines",
            _LastToken,
        ),
        Mistake(
            "the head on the first patch",
            "Rows count from 0, so z[:, 1] is the first patch. The class token is z[:, 0].",
            "1 · Four equations, four lines",
            _FirstPatch,
        ),
        Mistake(
            "the first patch left out of the mean",
            "With pool='mean' there is no class token to be left out: all N tokens are patches.",
            "Without a head, without a class token",
            _MeanWithoutFirst,
        ),
        Mistake(
            "the last norm forgotten",
            "Pre-norm blocks leave the tokens at any size, so Eq. 4 norms them once more before the head: norm(z).",
            "What goes wrong",
            _NoNorm,
        ),
        Mistake(
            "a norm after the mean",
            "For the class token the order does not matter; for the mean it does. Here every token is normed first, "
            "and then comes the mean.",
            "Without a head, without a class token",
            _NormAfterPooling,
        ),
        Mistake(
            "the last norm before the blocks",
            "The norm of Eq. 4 stands behind the last block; each block has its own norms inside.",
            "1 · Four equations, four lines",
            _NormBeforeBlocks,
        ),
        Mistake(
            "one block used again and again",
            "[block] * depth is one block, so all layers share its weights. Build one for each layer, in a loop.",
            "Blocks that torch doesn't see",
            _OneInstance,
        ),
        Mistake(
            "a single block",
            "The images pass through one block. There must be `depth` of them, one after the other.",
            "1 · Four equations, four lines",
            _OneBlock,
        ),
        Mistake(
            "blocks in a plain Python list",
            "torch doesn't see modules in a list: they are not counted, trained, saved or moved. Put them into an "
            "nn.Sequential or nn.ModuleList.",
            "Blocks that torch doesn't see",
            _PlainList,
        ),
        Mistake(
            "a softmax in the model",
            "The model returns logits. The loss takes their softmax itself, and twice is once too often.",
            "1 · Four equations, four lines",
            _Softmax,
        ),
        Mistake(
            "a head that starts at random",
            "All else is right. The head's weight and bias start as zeros, so that every class is equally likely at "
            "first: nn.init.zeros_.",
            "It starts with no opinion",
            _RandomHead,
        ),
    ),
)


def check_vit(cls: type[nn.Module]) -> bool:
    """Check the class ``cls(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool)``.

    Its parts are ``embed``, ``blocks``, ``norm`` and ``head``: images (B, C, H, W) -> logits (B, K).
    """
    return check(VIT, cls)


# ---- Stochastic depth --------------------------------------------------------------------------------------------


def _rates(depth: int, last: float) -> list[float]:
    return [last * layer / max(depth - 1, 1) for layer in range(depth)]


DROP_PATH_RATES = Exercise(
    name="drop_path_rates",
    lesson="06",
    right=_rates,
    cases=lambda: [
        Case(f"depth={depth}, last={last}", (depth, last)) for depth, last in [(4, 0.3), (12, 0.1), (2, 0.5), (1, 0.2)]
    ],
    observe=call,
    mistakes=(
        Mistake(
            "the same rate in every block",
            "The rate grows with depth: 0 in the first block, `last` in the last one.",
            "2 · The configuration",
            lambda depth, last: [last] * depth,
        ),
        Mistake(
            "a last block that stays below its rate",
            "You divide by depth. From block 0 to block depth - 1 there are depth - 1 steps.",
            "2 · The configuration",
            lambda depth, last: [last * layer / depth for layer in range(depth)],
        ),
        Mistake(
            "a first block that is dropped, too",
            "You count layers from 1. The first block's rate is 0: all that follow depend on it.",
            "2 · The configuration",
            lambda depth, last: [last * (layer + 1) / depth for layer in range(depth)],
        ),
        Mistake(
            "rates that fall",
            "The first blocks are kept and the last ones dropped most; yours go the other way.",
            "2 · The configuration",
            lambda depth, last: _rates(depth, last)[::-1],
        ),
        Mistake(
            "the share that is kept",
            "You return 1 - rate, the probability to keep a branch. Wanted is the probability to drop it.",
            "2 · The configuration",
            lambda depth, last: [1 - rate for rate in _rates(depth, last)],
        ),
    ),
)


def check_drop_path_rates(fn: Callable[..., list[float]]) -> bool:
    """Check ``fn(depth, last)``: a list of ``depth`` rates, from 0 in the first block to ``last`` in the last one."""
    return check(DROP_PATH_RATES, fn)


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

    @property
    def square(self) -> _Sizes:
        return dataclasses.replace(self, image_size=(self.image_size[0],) * 2)


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


def _count(terms: Terms, **wrong: Callable[[_Sizes], int]) -> Callable[..., dict[str, int]]:
    def count(*sizes: Any) -> dict[str, int]:
        return {name: term(_Sizes(*sizes)) for name, term in {**terms, **wrong}.items()}

    return count


def _terms(work: Any, case: Case) -> Result:
    """One term, named by the last argument, of the dictionary that the work returns."""
    *sizes, term = case.args
    given = work(*sizes)
    if not isinstance(given, dict):
        raise Fault(f"returned {type(given).__name__}, expected a dictionary")
    if term not in given:
        raise Fault(f"there is no {term!r} in the dictionary: it has {', '.join(map(repr, given)) or 'nothing'}")
    return {term: given[term]}


def _count_cases(terms: Terms) -> Callable[[], list[Case]]:
    models: list[tuple[str, tuple[Any, ...]]] = [
        ("B/16", ((224, 224), 16, 3, 1000, 768, 12, 12, 3072)),
        ("small, on 32 x 48 pixels", ((32, 48), 8, 1, 10, 24, 5, 3, 60)),
    ]
    return lambda: [Case(f"{model}: {term}", (*sizes, term)) for model, sizes in models for term in terms]


_TERMS = "Parameters, term by term"

COUNT_PARAMETERS = Exercise(
    name="count_parameters",
    lesson="06",
    right=_count(_PARAMETERS),
    cases=_count_cases(_PARAMETERS),
    observe=_terms,
    tolerance=0.0,
    mistakes=(
        Mistake(
            "matrices without their biases",
            "Every matrix has a bias, one number for each of its outputs.",
            _TERMS,
            _count(
                _PARAMETERS,
                embeddings=lambda s: s.C * s.P**2 * s.D + s.D + s.T * s.D,
                attention=lambda s: s.L * 4 * s.D**2,
                mlp=lambda s: s.L * 2 * s.D * s.M,
                head=lambda s: s.K * s.D,
            ),
        ),
        Mistake(
            "the positions forgotten",
            "Each of the T tokens has a learned position, D numbers: T × D more in the embeddings.",
            _TERMS,
            _count(_PARAMETERS, embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.D),
        ),
        Mistake(
            "one row too few in the embeddings",
            "D numbers are missing. Besides the matrix E there are its bias (D), the class token (D), and a position "
            "for each of T = N + 1 tokens: one of these is not counted, or the class token has no position.",
            _TERMS,
            _count(_PARAMETERS, embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.T * s.D),
        ),
        Mistake(
            "the class token forgotten",
            "Two rows of D numbers are missing: the class token itself, and its position.",
            _TERMS,
            _count(_PARAMETERS, embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.N * s.D),
        ),
        Mistake(
            "the channels forgotten",
            "A patch has P · P numbers in each of the C channels, so E has C · P · P rows.",
            _TERMS,
            _count(_PARAMETERS, embeddings=lambda s: (s.P**2 + 1) * s.D + s.D + s.T * s.D),
        ),
        Mistake(
            "a picture taken for a square",
            "You count patches from one side alone. image_size is (H, W): H / P rows of W / P patches.",
            "9 · Other image sizes",
            _count(_PARAMETERS, embeddings=lambda s: _PARAMETERS["embeddings"](s.square)),
        ),
        Mistake(
            "q, k and v counted as one matrix",
            "q, k and v have a matrix of D × D each, and the projection is the fourth.",
            _TERMS,
            _count(_PARAMETERS, attention=lambda s: s.L * 2 * s.D * (s.D + 1)),
        ),
        Mistake(
            "the output projection forgotten",
            "After q, k and v comes a fourth matrix of D × D, which mixes the heads' outputs.",
            _TERMS,
            _count(_PARAMETERS, attention=lambda s: s.L * 3 * s.D * (s.D + 1)),
        ),
        Mistake(
            "matrices for every head",
            "The heads share the D columns of q, k and v, D / h each. Their number changes nothing here.",
            _TERMS,
            _count(_PARAMETERS, attention=lambda s: s.L * (3 * s.h + 1) * s.D * (s.D + 1)),
        ),
        Mistake(
            "half an MLP",
            "An MLP has two matrices: D to M with a bias of M, and M back to D with a bias of D.",
            _TERMS,
            _count(_PARAMETERS, mlp=lambda s: s.L * s.M * (s.D + 1)),
        ),
        Mistake(
            "the last norm forgotten",
            "Besides two norms in each block there is one behind the last block, 2 D numbers.",
            _TERMS,
            _count(_PARAMETERS, norms=lambda s: s.L * 4 * s.D),
        ),
        Mistake(
            "one norm in a block",
            "Each block has two norms, one before attention and one before the MLP.",
            _TERMS,
            _count(_PARAMETERS, norms=lambda s: s.L * 2 * s.D + 2 * s.D),
        ),
        Mistake(
            "norms with a scale alone",
            "A layer norm has a scale and a shift: 2 D numbers.",
            _TERMS,
            _count(_PARAMETERS, norms=lambda s: s.L * 2 * s.D + s.D),
        ),
        Mistake(
            "one block for all",
            "You count a single block. There are L of them, each with weights of its own.",
            "Blocks that torch doesn't see",
            _count(
                _PARAMETERS,
                attention=lambda s: 4 * s.D * (s.D + 1),
                mlp=lambda s: s.M * (s.D + 1) + s.D * (s.M + 1),
                norms=lambda s: 4 * s.D + 2 * s.D,
            ),
        ),
    ),
)


def check_count_parameters(fn: Callable[..., dict[str, int]]) -> bool:
    """Check ``fn(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim)``.

    It returns a dictionary of counts: "embeddings", "attention", "mlp", "norms", "head".
    """
    return check(COUNT_PARAMETERS, fn)


_MULTIPLICATIONS = "4 · Multiplications"

COUNT_MACS = Exercise(
    name="count_macs",
    lesson="06",
    right=_count(_MACS),
    cases=_count_cases(_MACS),
    observe=_terms,
    tolerance=0.0,
    mistakes=(
        Mistake(
            "parameters counted in place of work",
            "You count each matrix once. Every token goes through it, so it works T times (and E once for each patch).",
            "5 · B/16 on the photograph",
            _count(
                _MACS,
                patches=lambda s: s.C * s.P**2 * s.D,
                projections=lambda s: s.L * 4 * s.D**2,
                mlp=lambda s: s.L * 2 * s.D * s.M,
            ),
        ),
        Mistake(
            "N tokens for T",
            "The class token goes through the blocks, too: T = N + 1 in every term but the patches.",
            _MULTIPLICATIONS,
            _count(
                _MACS,
                projections=lambda s: s.L * s.N * 4 * s.D**2,
                products=lambda s: s.L * 2 * s.N**2 * s.D,
                mlp=lambda s: s.L * s.N * 2 * s.D * s.M,
            ),
        ),
        Mistake(
            "a class token cut out of the image",
            "E works on the N patches. The class token is a parameter and doesn't pass through it.",
            _MULTIPLICATIONS,
            _count(_MACS, patches=lambda s: s.T * s.C * s.P**2 * s.D),
        ),
        Mistake(
            "the products of tokens with tokens forgotten",
            "q kᵀ and weights · v have no parameters, but they cost T · T · D each, in every block.",
            _MULTIPLICATIONS,
            _count(_MACS, products=lambda s: 0),
        ),
        Mistake(
            "one of the two products",
            "q kᵀ takes T · T · D, and weights · v as many again.",
            _MULTIPLICATIONS,
            _count(_MACS, products=lambda s: s.L * s.T**2 * s.D),
        ),
        Mistake(
            "products linear in the tokens",
            "Each of T queries meets each of T keys, so it is T · T · D.",
            _MULTIPLICATIONS,
            _count(_MACS, products=lambda s: s.L * 2 * s.T * s.D),
        ),
        Mistake(
            "products at the full width in every head",
            "A head is D / h wide, so all h heads together take T · T · D, not h times as much.",
            _MULTIPLICATIONS,
            _count(_MACS, products=lambda s: s.L * s.h * 2 * s.T**2 * s.D),
        ),
        Mistake(
            "the output projection forgotten",
            "Four matrices of D × D: q, k, v and the projection.",
            _MULTIPLICATIONS,
            _count(_MACS, projections=lambda s: s.L * s.T * 3 * s.D**2),
        ),
        Mistake(
            "half an MLP",
            "Each token goes through both matrices, D × M and M × D.",
            _MULTIPLICATIONS,
            _count(_MACS, mlp=lambda s: s.L * s.T * s.D * s.M),
        ),
        Mistake(
            "a head that reads every token",
            "Only one vector of width D reaches the head, the class token.",
            _MULTIPLICATIONS,
            _count(_MACS, head=lambda s: s.T * s.D * s.K),
        ),
        Mistake(
            "FLOPs in place of MACs",
            "Your numbers are twice too large in every term. A multiplication with its addition is one MAC.",
            "2 FLOPs = 1 MAC",
            lambda *sizes: {name: 2 * value for name, value in _count(_MACS)(*sizes).items()},
        ),
        Mistake(
            "one block for all",
            "You count a single block. There are L of them.",
            _MULTIPLICATIONS,
            _count(
                _MACS,
                projections=lambda s: s.T * 4 * s.D**2,
                products=lambda s: 2 * s.T**2 * s.D,
                mlp=lambda s: s.T * 2 * s.D * s.M,
            ),
        ),
    ),
)


def check_count_macs(fn: Callable[..., dict[str, int]]) -> bool:
    """Check ``fn(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim)``.

    It returns a dictionary of multiply-accumulates: "patches", "projections", "products", "mlp", "head".
    """
    return check(COUNT_MACS, fn)


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


def _maps(
    enter: Callable[[_Parts, EncoderBlock, Tensor], Tensor] = lambda model, block, z: block.norm1(z),
    weigh: Callable[[Tensor, Tensor], Tensor] = lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1),
    late: bool = False,
    still: bool = False,
) -> Callable[[_Parts, Tensor], list[Tensor]]:
    """Attention maps: with another input of the queries, other weights, a layer too late, or without going on."""

    def attention_maps(model: _Parts, images: Tensor) -> list[Tensor]:
        z, maps = model.embed(images), []
        for block in cast(Iterable[EncoderBlock], model.blocks):
            z = block(z) if late else z
            q, k, _ = block.attention.split_heads(enter(model, block, z))
            maps.append(weigh(q, k))
            z = z if late or still else block(z)
        return maps

    return attention_maps


def _map_cases() -> list[Case]:
    made = []
    for B, (H, W), dim, depth, heads in [(2, (4, 6), 8, 2, 2), (1, (6, 4), 6, 3, 3), (3, (2, 4), 12, 2, 1)]:
        label = f"images {(B, 1, H, W)}, {depth} layers, {heads} heads"
        made.append(Case(label, (_Parts((H, W), 2, dim, depth, heads).eval(), normal(B, 1, H, W))))
    return made


_KERNEL = "6 · Attention maps without giving up the fast kernel"

ATTENTION_MAPS = Exercise(
    name="attention_maps",
    lesson="06",
    right=_maps(),
    cases=_map_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a block's norm forgotten",
            "A block's attention never sees z itself: the queries and keys are made from norm1(z).",
            _KERNEL,
            _maps(enter=lambda model, block, z: z),
        ),
        Mistake(
            "weights from tokens that have passed the block already",
            "You send z through the block first, and then ask for its weights. They belong to what enters the block.",
            _KERNEL,
            _maps(late=True),
        ),
        Mistake(
            "tokens that stay in front of the first block",
            "Every layer gets the embeddings from you. What enters layer l is what layer l - 1 returned: z = block(z).",
            _KERNEL,
            _maps(still=True),
        ),
        Mistake(
            "the block's second norm",
            "norm2 belongs to the MLP. The queries and keys are made from norm1(z).",
            "1 · Four equations, four lines",
            _maps(enter=lambda model, block, z: block.norm2(z)),
        ),
        Mistake(
            "the model's last norm in place of the block's",
            "model.norm stands behind the last block. The queries and keys of a block are made from its norm1(z).",
            _KERNEL,
            _maps(enter=lambda model, block, z: model.norm(z)),
        ),
        Mistake(
            "scores in place of weights",
            "The rows of a map sum to 1: take the softmax of the scaled scores.",
            _KERNEL,
            _maps(weigh=lambda q, k: q @ k.mT / math.sqrt(q.shape[-1])),
        ),
        Mistake(
            "no scale",
            "The scores are divided by √d before the softmax, d = D / h.",
            _KERNEL,
            _maps(weigh=lambda q, k: (q @ k.mT).softmax(dim=-1)),
        ),
        Mistake(
            "a softmax over the queries",
            "The weights of one query sum to 1 over the keys, the last axis.",
            _KERNEL,
            _maps(weigh=lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-2)),
        ),
        Mistake(
            "a mean over the heads",
            "Each head has a map of its own, so a layer's maps are (B, h, T, T).",
            _KERNEL,
            _maps(weigh=lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1).mean(dim=1)),
        ),
    ),
)


def check_attention_maps(fn: Callable[..., list[Tensor]]) -> bool:
    """Check ``fn(model, images)``: a list of every layer's attention weights (B, h, T, T), the first layer first."""
    return check(ATTENTION_MAPS, fn)


EXERCISES = (VIT_NUMBERS, VIT, DROP_PATH_RATES, COUNT_PARAMETERS, COUNT_MACS, ATTENTION_MAPS)
