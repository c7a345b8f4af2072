"""Checks of lesson 05: layer norm, stochastic depth, the encoder block, and a stack of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.engine.dropout import layer_with_dropout
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation, Submission, Value
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.layers import build_layer, layer, random_weights, share_no_parameter, variant
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.encoder import DropPath, EncoderBlock

_EQUATIONS = "Two equations, two lines"
_PENCIL = "Layer norm with a pencil"
_RESIDUAL = "The residual stream"
_DEPTH = "Stochastic depth"
_LAST_NORM = "one more norm at the end"
_TWELVE = "Twelve times the same block."

# ---- With a pencil -----------------------------------------------------------------------------------------------

_BY_VARIANCE = Slip("a division by the variance", "The standard deviation is its square root.")
_BY_D_MINUS_1 = Slip(
    "a variance divided by D − 1", "Layer norm's variance is the mean of the squared distances: their sum divided by D."
)

BLOCK_NUMBERS = pencil(
    "block_numbers",
    lesson="05",
    points=3,
    tolerance=0.006,
    questions={
        "normed": Question(
            [-1, -1, 1, 1],
            "Subtract the mean of the four numbers, and divide by the root of the mean of the squared distances.",
            _PENCIL,
            {(-0.5, -0.5, 0.5, 0.5): _BY_VARIANCE, (-0.866, -0.866, 0.866, 0.866): _BY_D_MINUS_1},
        ),
        "again": Question(
            [-1, -1, 1, 1],
            "Normalise [14, 14, 22, 22] in the same way: what are its mean and its standard deviation?",
        ),
        "block": Question([3, 3, 7, 9], "z plus what attention returns; then that sum plus what the MLP returns."),
        "kept": Question(5, "Divide what is kept by the probability of keeping it, 1 − p."),
        "parameters": Question(
            172, "Two norms of 2 · D, four matrices D × D with a bias each, and the two layers of the MLP."
        ),
    },
)


# ---- Layer norm --------------------------------------------------------------------------------------------------


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _norm_cases() -> list[Case]:
    inputs = [
        ("x (1, 3, 4), eps=1e-06", normal(1, 3, 4, seed=1), 1e-6),
        ("x (4, 4, 4), eps=1e-06", normal(4, 4, 4, seed=1), 1e-6),
        ("x (7,), eps=1e-06", normal(7, seed=1), 1e-6),
        ("x (2, 4, 5), eps=0.001, numbers about 0.05", 0.05 * normal(2, 4, 5, seed=1), 1e-3),
        ("x (2, 3, 5), eps=1e-09, numbers about 0.0001", 1e-4 * normal(2, 3, 5, seed=1), 1e-9),
        # The mean of the squares minus the square of the mean loses its digits here.
        ("x (2, 5, 8), eps=1e-06, numbers about 100", normal(2, 5, 8, seed=1) + 100, 1e-6),
    ]
    return [Case(label, (x, normal(x.shape[-1], seed=2), normal(x.shape[-1], seed=3), eps)) for label, x, eps in inputs]


def _divided_by_variance(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / (variance + eps) * weight + bias


def _norm_with(axis: int = -1, unbiased: bool = False, eps_inside: bool = True) -> Callable[..., Tensor]:
    """Layer norm over another axis, with another variance, or with eps added to the root."""

    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean, variance = x.mean(axis, keepdim=True), x.var(axis, keepdim=True, unbiased=unbiased)
        divisor = torch.sqrt(variance + eps) if eps_inside else torch.sqrt(variance) + eps
        return (x - mean) / divisor * weight + bias

    return norm


LAYER_NORM = Exercise(
    name="layer_norm",
    lesson="05",
    points=3,
    right=_layer_norm,
    cases=_norm_cases,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            name="a norm over the tokens",
            says="You take mean and variance down the tokens (dim=-2), so that they depend on each other. Each token "
            "is normalised by its own D numbers: dim=-1.",
            reread="The wrong axis.",
            wrong=_norm_with(axis=-2),
        ),
        Mistake(
            name="a variance divided by D − 1",
            says="torch's var and std divide by D - 1 unless you pass unbiased=False (or correction=0). Layer norm "
            "divides by D.",
            reread=_PENCIL,
            wrong=_norm_with(unbiased=True),
        ),
        Mistake(
            name="a division by the variance",
            says="Divide by the standard deviation, the root of the variance: sqrt(variance + eps).",
            reread=_PENCIL,
            wrong=_divided_by_variance,
        ),
        Mistake(
            name="eps outside the root",
            says="Eps is added to the variance, inside the root: sqrt(variance + eps).",
            reread=_PENCIL,
            wrong=_norm_with(eps_inside=False),
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------


def _drop_cases() -> list[Case]:
    equal = normal(1, 2, 3).expand(400, 2, 3)
    return [
        Case("x (3, 2, 4), p=0.0", (normal(3, 2, 4),), (0.0,)),
        Case("400 equal images, p=0.2", (equal,), (0.2,)),
        Case("400 equal images, p=0.75", (equal,), (0.75,)),
    ]


def _observe_drop_path(submission: Submission, case: Case) -> Observation:
    (p,) = case.build
    return layer_with_dropout(submission, case, p) if p else layer(submission, case)


def _dropping(axes: int = 1, divided: bool = True, always: bool = False) -> type[nn.Module]:
    """Drop path with zeros drawn along the first ``axes``; ``always`` is in eval mode, too."""

    class Drop(nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.p = p

        def forward(self, x: Tensor) -> Tensor:
            if not self.training and not always:
                return x
            keep = torch.rand(*x.shape[:axes], *[1] * (x.ndim - axes)) >= self.p
            return x * keep / (1 - self.p if divided else 1)

    return Drop


DROP_PATH = Exercise(
    name="drop_path",
    lesson="05",
    points=3,
    right=DropPath,
    cases=_drop_cases,
    observe=_observe_drop_path,
    mistakes=(
        Mistake(
            name="a draw for each token",
            says="Draw once for each image: all its tokens stay, or all go.",
            reread=_DEPTH,
            wrong=_dropping(axes=2),
        ),
        Mistake(
            name="one draw for the whole batch",
            says="Draw separately for each image: a mask of (B, 1, 1).",
            reread=_DEPTH,
            wrong=_dropping(axes=0),
        ),
        Mistake(
            name="kept images that are not divided by 1 − p",
            says="Divide them, so that the mean stays the same.",
            reread=_DEPTH,
            wrong=_dropping(divided=False),
        ),
        Mistake(
            name="drop path in eval mode",
            says="Drop only in training: check self.training.",
            reread=_DEPTH,
            wrong=_dropping(always=True),
        ),
    ),
)


# ---- The block ---------------------------------------------------------------------------------------------------


def _silenced(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name: x * 0 if name.startswith(part) else x for name, x in weights.items()}


def _block_cases() -> list[Case]:
    plain, small = random_weights(EncoderBlock(4, 2, 6)), random_weights(EncoderBlock(8, 4, 6))
    equal = normal(1, 2, 4).expand(300, 2, 4)
    silent_mlp, silent_attention = _silenced(plain, "mlp.fc2"), _silenced(plain, "attention.proj")
    return [
        Case("z (1, 3, 8), num_heads=4, mlp_dim=6", (5 * normal(1, 3, 8),), (8, 4, 6, 0.0, 0.0), small),
        Case("z (3, 2, 4), num_heads=2, mlp_dim=6", (5 * normal(3, 2, 4),), (4, 2, 6, 0.0, 0.0), plain),
        # Nearly constant tokens show a norm's eps.
        Case("z nearly constant", (normal(2, 3, 8) / 1000,), (8, 4, 6, 0.0, 0.0), small),
        Case("300 equal images, dropout=0.5, attention alone speaks", (equal,), (4, 2, 6, 0.5, 0.0), silent_mlp),
        Case("300 equal images, dropout=0.5, MLP alone speaks", (equal,), (4, 2, 6, 0.5, 0.0), silent_attention),
        Case("300 equal images, drop_path=0.3", (equal,), (4, 2, 6, 0.0, 0.3), plain),
    ]


def _observe_block(submission: Submission, case: Case) -> Observation:
    return layer_with_dropout(submission, case) if any(case.build[3:]) else layer(submission, case)


class _Block(EncoderBlock):
    """The right block, for variants with another step."""

    eps = 1e-6

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__(dim, num_heads, mlp_dim, dropout=dropout, drop_path=drop_path, norm_eps=self.eps)


def _post_norm(self: EncoderBlock, z: Tensor) -> Tensor:
    z = self.norm1(z + self.drop_path(self.attention(z)))
    return self.norm2(z + self.drop_path(self.mlp(z)))


def _add_to_the_normed(self: EncoderBlock, z: Tensor) -> Tensor:
    z = self.norm1(z)
    z = self.norm2(z + self.drop_path(self.attention(z)))
    return z + self.drop_path(self.mlp(z))


def _drop_the_sum(self: EncoderBlock, z: Tensor) -> Tensor:
    z = self.drop_path(z + self.attention(self.norm1(z)))
    return self.drop_path(z + self.mlp(self.norm2(z)))


ENCODER_BLOCK = Exercise(
    name="encoder_block",
    lesson="05",
    points=4,
    right=_Block,
    cases=_block_cases,
    forbidden=(EncoderBlock,),
    observe=_observe_block,
    mistakes=(
        Mistake(
            name="post-norm in place of pre-norm",
            says="You normalise after the addition, as the original Transformer does. In a ViT the norm is inside "
            "the branch, before attention and before the MLP: z + attention(norm1(z)).",
            reread=_EQUATIONS,
            wrong=variant(_Block, forward=_post_norm),
        ),
        Mistake(
            name="a norm with another eps",
            says="It is 1e-6 here; nn.LayerNorm's default is 1e-5.",
            reread=_EQUATIONS,
            wrong=variant(_Block, eps=1e-5),
        ),
        Mistake(
            name="a residual from the normalised input",
            says="You add to the normalised tokens, so that the path from the first block to the last is cut. Add to "
            "z, and give the normalised tokens to the branch alone.",
            reread=_RESIDUAL,
            wrong=variant(_Block, forward=_add_to_the_normed),
        ),
        Mistake(
            name="drop path on the sum",
            says="You drop z together with the branch, so that whole images vanish. Drop the branch alone, before it "
            "is added.",
            reread=_DEPTH,
            wrong=variant(_Block, forward=_drop_the_sum),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Encoder(nn.Module):
    """The right stack."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__()
        rates = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
        self.blocks = nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = block(z)
        return self.norm(z)


def _norm_each(self: _Encoder, z: Tensor) -> Tensor:
    for block in self.blocks:
        z = self.norm(block(z))
    return z


class _Repeated(_Encoder):
    def __init__(self, *build: Any) -> None:
        super().__init__(*build)
        self.blocks = nn.ModuleList([self.blocks[0]] * len(self.blocks))


class _Copies(_Encoder):
    def __init__(self, *build: Any) -> None:
        super().__init__(*build)
        for block in self.blocks:
            block.load_state_dict(self.blocks[0].state_dict())


def _encoder_cases() -> list[Case]:
    cases = []
    for shape, heads, M, depth, p in [((2, 3, 4), 2, 6, 4, 0.2), ((1, 4, 6), 3, 5, 2, 0.1), ((3, 2, 4), 1, 8, 1, 0.0)]:
        build = (shape[-1], heads, M, depth, p)
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}, depth={depth}, drop_path={p}"
        cases.append(Case(label, (normal(*shape),), build, random_weights(_Encoder(*build))))
    # Without what the blocks add, the last norm reads nearly constant tokens: there its eps shows.
    label = "as the first, nearly constant, silent blocks"
    silent = _silenced(cases[0].weights, "blocks")
    return [*cases, Case(label, (normal(2, 3, 4) / 1000,), (*cases[0].build[:4], 0.0), silent)]


def _observe_encoder(submission: Submission, case: Case) -> Observation:
    module = build_layer(submission, case)
    first = [p.flatten().tolist() for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    values: dict[str, Value] = {
        "the number of mlp.fc1.weight that torch sees (one in each block)": len(first),
        "the number of these that start with different numbers": len(set(map(tuple, first))),
    }
    if set(values.values()) != {case.build[3]}:
        return Observation(values)
    drops = [part for part in module.modules() if type(part).__name__ == "DropPath"]  # the package's or the student's
    values["drop path"] = rates = [round(float(getattr(drop, "p", 0.0)), 4) for drop in drops]
    share_no_parameter(module, submission(*case.build))
    observed = layer(lambda *_: module, case, chance=any(rates))
    observed.values = values | observed.values
    return observed


ENCODER = Exercise(
    name="encoder",
    lesson="05",
    points=2,
    right=_Encoder,
    cases=_encoder_cases,
    observe=_observe_encoder,
    mistakes=(
        Mistake(
            name="the same block again and again",
            says="[block] * depth is one block in many places, with one set of weights. Build a new one for each "
            "place.",
            reread=_TWELVE,
            wrong=_Repeated,
        ),
        Mistake(
            name="blocks that are copies of one another",
            says="deepcopy, or a seed set before each, makes blocks that start with equal weights. Build them one by "
            "one.",
            reread=_TWELVE,
            wrong=_Copies,
        ),
        Mistake(
            name="a norm after every block",
            says="The last norm comes once, after all blocks; in the loop it cuts the path from the first to the last.",
            reread=_LAST_NORM,
            wrong=variant(_Encoder, forward=_norm_each),
        ),
        Mistake(
            name="no norm at the end",
            says="After the last block comes self.norm, once.",
            reread=_LAST_NORM,
            wrong=variant(_Encoder, forward=lambda self, z: nn.Sequential(*self.blocks)(z)),
        ),
    ),
)
