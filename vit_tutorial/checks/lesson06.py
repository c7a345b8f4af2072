"""Checks of lesson 06: numbers with a pencil, the whole model, its stochastic depth, what it costs, its attention."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation
from vit_tutorial.checks.engine.functions import entries, normal
from vit_tutorial.checks.engine.layers import build_layer, layer, random_weights, share_no_parameter, variant
from vit_tutorial.checks.engine.models import call_with_model
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import ViT, ViTConfig, count_macs, count_parameters

_EQUATIONS = "The whole model on one page"

# ---- With a pencil -----------------------------------------------------------------------------------------------

_NO_CLASS_TOKEN = Slip(
    "a class token forgotten",
    "24 patches make T = 25 tokens. The class token has D numbers, and a position like all others.",
)

VIT_NUMBERS = pencil(
    "vit_numbers",
    lesson="06",
    points=3,
    tolerance=0.002,
    questions={
        "tokens": Question(
            25,
            "Count the rows of patches and the patches in a row; then add one token.",
            _EQUATIONS,
            {24: _NO_CLASS_TOKEN},
        ),
        "E": Question(3088, "E maps the numbers of one patch, in all channels, to D numbers, and has a bias."),
        "the rest of Eq. 1": Question(
            416,
            "The class token is one vector, and each token (it is one, too) has a position.",
            _EQUATIONS,
            {
                384: _NO_CLASS_TOKEN,
                400: Slip("one row too few", "Positions are T × D numbers, the class token is D more."),
            },
        ),
        "attention": Question(
            1088, "Four matrices from D to D, each with a bias; the number of heads changes nothing."
        ),
        "products": Question(
            20000,
            "Each of T queries meets each of T keys, over D numbers in all heads together; then the same again "
            "with the values.",
            _EQUATIONS,
            {18432: _NO_CLASS_TOKEN},
        ),
        "first loss": Question(
            2.303,
            "All K classes have the same probability: minus its natural logarithm.",
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


class _OneHead(_Model):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments[:6], 1, *arguments[7:])


class _Turned(_Model):
    def __init__(self, image_size: tuple[int, int], *others: Any) -> None:
        super().__init__(image_size[::-1], *others)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.mT)


def _observe_model(submission: Any, case: Case) -> Observation:
    """As :func:`layer`; and in a case of its own how a new model starts."""
    if case.label != NEW:
        return layer(submission, case, differentiable=False)
    module = build_layer(submission, case)
    share_no_parameter(module, submission(*case.build))
    first = [p for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    observed = {
        "a new model's answer": module.eval()(*case.args),
        "how a new model's blocks start": "alike in two of them" if alike else "different",
    }
    return Observation(observed)


@functools.cache
def _weights(build: tuple[Any, ...], size: float) -> dict[str, Tensor]:
    """Random weights; with a small ``size`` the tokens are so small that a norm's eps counts."""
    small = ("embed.", "attention.proj", "mlp.fc2")
    weights = random_weights(_Model(*build))
    return {name: value * size if any(part in name for part in small) else value for name, value in weights.items()}


def _model_case(label: str, B: int, *build: Any, size: float = 1.0) -> Case:
    return Case(label, (normal(B, build[2], *build[0]),), build, _weights(build, size))


def _model_cases() -> list[Case]:
    first = _model_case("two images, pool='cls'", 2, (4, 6), 2, 3, 5, 8, 3, 2, 12, "cls")
    return [
        first,
        # T = 4 tokens of width 10: no mean over another axis fits.
        _model_case("three images, pool='mean'", 3, (2, 8), (1, 4), 2, 7, 10, 3, 5, 6, "mean"),
        _model_case("tokens so small that a norm's eps counts", 1, (2, 4), 2, 2, 4, 6, 2, 2, 10, "cls", size=1e-3),
        Case(NEW, first.args, first.build),
    ]


VIT = Exercise(
    name="vit",
    lesson="06",
    points=5,
    right=_Model,
    cases=_model_cases,
    observe=_observe_model,
    forbidden=(ViT,),
    mistakes=(
        Mistake(
            name="the last norm forgotten",
            says="Pre-norm blocks leave the tokens at any scale, so Eq. 4 normalises them once more: head(norm(z)).",
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
            says="It is 1e-6, as in the blocks; nn.LayerNorm's default is 1e-5.",
            reread="What goes wrong",
            wrong=variant(
                _Model, normed=lambda self, z: F.layer_norm(z, z.shape[-1:], self.norm.weight, self.norm.bias)
            ),
        ),
        Mistake(
            name="one head in place of num_heads",
            says="Pass num_heads to each block.",
            reread="What goes wrong",
            wrong=_OneHead,
        ),
        Mistake(
            name="height and width exchanged",
            says="Sizes are (height, width), and images (B, C, H, W): pass both on unchanged.",
            reread="What goes wrong",
            wrong=_Turned,
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------


DROP_PATH_RATES = Exercise(
    name="drop_path_rates",
    lesson="06",
    points=2,
    right=lambda depth, last: [last * layer / max(depth - 1, 1) for layer in range(depth)],
    cases=lambda: [
        Case(f"depth={depth}, last={last}", (depth, last)) for depth, last in [(4, 0.3), (18, 0.1), (2, 0.7), (1, 0.2)]
    ],
    tolerance=3e-7,
    mistakes=(
        Mistake(
            name="rates that don't reach `last`",
            says="The last of `depth` blocks has the rate `last`: divide by depth - 1.",
            reread="Stochastic depth",
            wrong=lambda depth, last: [last * i / depth for i in range(depth)],
            lesson="05",
        ),
    ),
)


# ---- What it costs -----------------------------------------------------------------------------------------------

Counts = dict[str, int]


def _parameters(
    image_size: tuple[int, int], P: int, C: int, K: int, D: int, L: int, h: int, M: int, before: int = 1
) -> Counts:
    """The parameters of a ViT with so many tokens ``before`` the patches: the class token, or none."""
    T = image_size[0] // P * (image_size[1] // P) + before
    return {
        "embeddings": (C * P**2 + 1) * D + before * D + T * D,
        "attention": L * 4 * D * (D + 1),
        "mlp": L * (M * (D + 1) + D * (M + 1)),
        "norms": L * 4 * D + 2 * D,
        "head": K * (D + 1),
    }


def _macs(
    image_size: tuple[int, int], P: int, C: int, K: int, D: int, L: int, h: int, M: int, before: int = 1
) -> Counts:
    """The multiply-accumulates for one image."""
    N = image_size[0] // P * (image_size[1] // P)
    T = N + before
    return {
        "patches": N * C * P**2 * D,
        "projections": L * T * 4 * D**2,
        "products": L * 2 * T**2 * D,
        "mlp": L * T * 2 * D * M,
        "head": D * K,
    }


def _of_other_sizes(count: Callable[..., Counts]) -> tuple[Mistake, ...]:
    return (
        Mistake(
            name="an image taken for a square",
            says="You count patches from one side alone. image_size is (H, W): H / P rows of W / P patches.",
            reread="Any size, counted",
            wrong=lambda image_size, *others: count((image_size[0], image_size[0]), *others),
        ),
        Mistake(
            name="the class token forgotten",
            says="N patches make T = N + 1 tokens.",
            reread="Any size, counted",
            wrong=functools.partial(count, before=0),
        ),
    )


def _counted(*keys: str) -> Callable[[Any, Case], Observation]:
    return lambda submission, case: Observation(entries(submission(*case.args), keys))


def _count_cases() -> list[Case]:
    return [
        Case("B/16", ((224, 224), 16, 3, 1000, 768, 12, 12, 3072)),
        Case("small, on 32 x 48 pixels", ((32, 48), 8, 1, 10, 24, 5, 3, 60)),
    ]


COUNT_PARAMETERS = Exercise(
    name="count_parameters",
    lesson="06",
    points=3,
    right=_parameters,
    cases=_count_cases,
    observe=_counted("embeddings", "attention", "mlp", "norms", "head"),
    tolerance=0.0,
    forbidden=(count_parameters,),
    mistakes=_of_other_sizes(_parameters),
)


COUNT_MACS = Exercise(
    name="count_macs",
    lesson="06",
    points=2,
    right=_macs,
    cases=_count_cases,
    observe=_counted("patches", "projections", "products", "mlp", "head"),
    tolerance=0.0,
    forbidden=(count_macs,),
    mistakes=_of_other_sizes(_macs),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _maps(model: _Model, images: Tensor, *, normed: bool = True, head_scale: bool = True) -> list[Tensor]:
    """The attention weights of each block, (B, h, T, T); of z as it is, or with the scores divided by √D for √d."""
    z, maps = model.embed(images), []
    for block in _blocks(model):
        maps.append(_block_weights(block, block.norm1(z) if normed else z, head_scale))
        z = block(z)
    return maps


def _block_weights(block: EncoderBlock, z: Tensor, head_scale: bool = True) -> Tensor:
    q, k, _ = block.attention.qkv(z).unflatten(-1, (3, block.attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    width = q.shape[-1] if head_scale else z.shape[-1]
    return (q @ k.mT / math.sqrt(width)).softmax(dim=-1)


def _maps_of_embeddings(model: _Model, images: Tensor) -> list[Tensor]:
    z = model.embed(images)
    return [_block_weights(block, block.norm1(z)) for block in _blocks(model)]


def _blocks(model: _Model) -> Iterable[EncoderBlock]:
    return cast(Iterable[EncoderBlock], model.blocks)


def _map_cases() -> list[Case]:
    cases = []
    for B, size, D, L, h, mode in [(3, (4, 6), 8, 3, 2, "evaluation"), (1, (6, 4), 6, 4, 3, "training")]:
        model = _Model(size, 2, 1, 3, D, L, h, 2 * D, "cls").train(mode == "training")
        model.load_state_dict(random_weights(model))
        label = f"images {(B, 1, *size)}, {L} layers, {h} heads, a model in {mode} mode"
        cases.append(Case(label, (model, normal(B, 1, *size))))
    return cases


def _observe_maps(submission: Any, case: Case) -> Observation:
    """The maps; a tensor that holds all layers, or a dictionary of them in order, will do, too."""
    observed, model = call_with_model(submission, case), case.args[0]
    if isinstance(observed.result, Mapping):
        observed.values["result"] = list(observed.result.values())
    observed.values["the model's mode afterwards"] = "training" if model.training else "evaluation"
    return observed


ATTENTION_MAPS = Exercise(
    name="attention_maps",
    lesson="06",
    points=2,
    right=_maps,
    cases=_map_cases,
    observe=_observe_maps,
    forbidden=(ViT, ViT.attention_maps),
    mistakes=(
        Mistake(
            name="a block's norm forgotten",
            says="A block's attention never sees z itself: the queries and keys are made from norm1(z).",
            reread="Where the class token looks",
            wrong=functools.partial(_maps, normed=False),
            lesson="08",
        ),
        Mistake(
            name="tokens that stay in front of the first block",
            says="Every layer gets the embeddings. What enters layer l is what layer l - 1 returned: z = block(z).",
            reread="Where the class token looks",
            wrong=_maps_of_embeddings,
            lesson="08",
        ),
        Mistake(
            name="scores divided by √D",
            says="Divide them by √d: a head has d = D / h numbers.",
            reread="Where the class token looks",
            wrong=functools.partial(_maps, head_scale=False),
            lesson="08",
        ),
    ),
)
