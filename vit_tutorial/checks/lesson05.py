"""Checks of lesson 05: layer norm, stochastic depth, the encoder block, and a stack of blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Mistake,
    Observation,
    Question,
    Value,
    build_layer,
    call,
    changed_argument,
    copy_weights,
    distinct_numbers,
    is_improbable,
    layer,
    normal,
    pencil,
    random_weights,
    same_shape,
    share_no_parameter,
    staleness,
    variant,
    with_defaults,
)
from vit_tutorial.encoder import DropPath, EncoderBlock
from vit_tutorial.mlp import MLP

_NORM = "2 · Layer norm with a pencil"
_RESIDUAL = "3 · The residual stream"
_EQUATIONS = "1 · Two equations, two lines"
_HAND = "4 · The block by hand"
_DEPTH = "6 · Stochastic depth"

# ---- With a pencil -----------------------------------------------------------------------------------------------


BLOCK_NUMBERS = pencil(
    "block_numbers",
    lesson="05",
    points=3,
    tolerance=0.006,
    questions={
        "normed": Question(
            [-1, -1, 1, 1],
            "Subtract the mean of the four numbers, and divide by the root of the mean of the squared distances.",
            _NORM,
            {
                (-0.5, -0.5, 0.5, 0.5): "a division by the variance. The standard deviation is its square root.",
                (
                    -0.866,
                    -0.866,
                    0.866,
                    0.866,
                ): "a variance divided by D − 1. Layer norm's variance is the mean of the squared distances: their "
                "sum divided by D.",
            },
        ),
        "again": Question(
            [-1, -1, 1, 1],
            "Norm [14, 14, 22, 22] in the same way: what are its mean and its standard deviation?",
            _NORM,
            {
                (-0.25, -0.25, 0.25, 0.25): "a division by the variance. The standard deviation is its square root.",
                (
                    -0.866,
                    -0.866,
                    0.866,
                    0.866,
                ): "a variance divided by D − 1. Layer norm's variance is the mean of the squared distances: their "
                "sum divided by D.",
            },
        ),
        "block": Question([3, 3, 7, 9], "z plus what attention returns; then this plus what the MLP returns."),
        "kept": Question(5, "What is kept is divided by the probability to be kept, 1 − p."),
        "parameters": Question(
            172, "Two norms of 2 · D, four matrices D × D with a bias each, and the two layers of the MLP."
        ),
    },
)


# ---- Layer norm --------------------------------------------------------------------------------------------------


def _right_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _norm_cases() -> list[Case]:
    made: list[Case] = []
    sizes = [((1, 3, 4), 1e-6, 1.0), ((2, 3, 6), 1e-6, 0.001), ((2, 4, 5), 1e-3, 0.05), ((2, 5, 3, 8), 1e-5, 3.0),
             ((7,), 1e-6, 1.0), ((4, 4, 4), 1e-6, 1.0), ((2, 3, 5), 1e-9, 1e-4), ((2, 3, 4), 0.25, 1.0)]  # fmt: skip
    for shape, eps, size in sizes:
        x = size * normal(*shape, seed=1) + size
        if x.ndim > 2 and made:
            x[-1, -1] = x[-1, -1].mean()  # a constant token, and in one case a constant image
        label = f"x {shape}, eps={eps:g}{f', numbers about {size:g}' if size != 1 else ''}"
        made.append(Case(label, (x, normal(shape[-1], seed=2), normal(shape[-1], seed=3), eps)))
    # The mean of the squares minus the square of the mean loses its digits here.
    far_from_0 = normal(2, 3, 8, seed=1) + 100
    made.append(
        Case("x (2, 3, 8), eps=1e-06, numbers about 100", (far_from_0, normal(8, seed=2), normal(8, seed=3), 1e-6))
    )
    return made


def _normed_over(*axes: int) -> Callable[..., Tensor]:
    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        over = [axis for axis in axes if axis >= -x.ndim]
        mean, variance = x.mean(over, keepdim=True), x.var(over, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + eps) * weight + bias

    return norm


def _scaled(divisor: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """Layer norm with another divisor, made of the token and eps."""

    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / divisor(x, eps) * weight + bias

    return norm


def _variance(x: Tensor, unbiased: bool = False) -> Tensor:
    return x.var(-1, keepdim=True, unbiased=unbiased)


def _without_keepdim(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) * weight + bias


LAYER_NORM = Exercise(
    name="layer_norm",
    lesson="05",
    points=3,
    takes="fn(x, weight, bias, eps): each token of (..., D) normed by its own numbers, then weight and bias",
    right=_right_norm,
    cases=_norm_cases,
    observe=call,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            name="a norm over the tokens",
            says="You take mean and variance down the tokens (dim=-2), so that they depend on each other. Each token "
            "is normed by its own D numbers: dim=-1.",
            reread="The wrong axis.",
            wrong=_normed_over(-2),
        ),
        Mistake(
            name="a mean without keepdim",
            says="The mean loses its last axis, so that torch subtracts the means of other tokens, or can't broadcast: "
            "mean(dim=-1, keepdim=True), and the same for the variance.",
            reread="The wrong axis.",
            wrong=_without_keepdim,
        ),
        Mistake(
            name="a variance divided by D − 1",
            says="torch's var and std divide by D - 1 unless you say unbiased=False (or correction=0). Layer norm "
            "divides by D.",
            reread=_NORM,
            wrong=_scaled(lambda x, eps: torch.sqrt(_variance(x, unbiased=True) + eps)),
        ),
        Mistake(
            name="eps outside the root",
            says="Eps is added to the variance, inside the root: sqrt(variance + eps).",
            reread=_NORM,
            wrong=_scaled(lambda x, eps: torch.sqrt(_variance(x)) + eps),
        ),
        Mistake(
            name="no eps",
            says="Of a constant token the variance is 0: add eps to it before you take the root.",
            reread=_NORM,
            wrong=_scaled(lambda x, eps: torch.sqrt(_variance(x))),
        ),
        Mistake(
            name="a mean that is not subtracted",
            says="Subtract each token's mean first. Without it, it is another norm (RMS norm).",
            reread=_NORM,
            wrong=lambda x, weight, bias, eps: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight + bias,
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------

_CALLS = 100


def _drop_cases() -> list[Case]:
    shapes = [((64, 2, 3), 0.2, True), ((64, 4, 2), 0.35, True), ((1, 2, 3), 0.4, True), ((64, 2, 3), 0.2, False),
              ((3, 2, 4), 0.0, True), ((64, 3, 2), 0.75, True)]  # fmt: skip
    modes = ("eval mode", "training")
    return [
        Case(f"x {shape}, p={p}, in {modes[training]}", (normal(*shape), training), (p,))
        for shape, p, training in shapes
    ]


def _what_is_dropped(zero: Tensor) -> str:
    """What is zero together, in (calls, B, T, D)."""
    if not zero.any():
        return "nothing"
    for words, axis in (("whole batches", 1), ("whole images", 2), ("single tokens", 3))[zero.shape[1] == 1 :]:
        together = zero.flatten(axis)
        if torch.equal(together.all(-1), together.any(-1)):
            return words
    return "parts of images"


def _how_often(zero: Tensor, p: float) -> str:
    """Which share of whole images is dropped, in (calls, B): p, or what is odd about it."""
    calls, B = zero.shape
    if is_improbable(int(zero.sum()), calls * B, p) or any(is_improbable(int(many), calls, p) for many in zero.sum(0)):
        return f"{zero.double().mean().item():.2g}"
    return f"{p:g}"


def _observe_drop_path(work: Any, case: Case) -> Observation:
    module, (x, training), (p,) = build_layer(work, case), case.args, case.build
    module.train(not training)(x.clone())  # nothing of the other mode may stay
    module.train(training)
    given = x.clone().requires_grad_()
    outputs = [module(given.clone()) for _ in range(_CALLS if p else 3)]
    same_shape(outputs[0], x)
    factor = torch.stack([output.detach() for output in outputs]) / x  # (calls, B, T, D)
    zero = factor.abs() < 1e-6
    dropped = _what_is_dropped(zero)
    found: dict[str, Value] = {"what comes out as 0": dropped}
    if training and p and dropped != "nothing" and len(x) > 1:
        # Of 64 images, two draws are the same less than once in 10 ** 10.
        found["each draw"] = staleness(lambda: module(x.clone())) or "fresh"
    if dropped in ("nothing", "whole images"):
        found["result / x"] = distinct_numbers(factor, 4)
        share = _how_often(zero[:, :, 0, 0], p) if dropped != "nothing" else "none"
        found["the share of images that come out as 0"] = share
    some = [output for output, fallen in zip(outputs, zero, strict=True) if not fallen.all()]
    found["the path of the gradient"] = "whole" if all(output.requires_grad for output in some) else "cut"
    now = x.clone()
    module(now)
    return Observation(found, changed_argument=changed_argument([x], [now]))


class _Drop(nn.Module):
    """The right drop path, in steps that a variant replaces by wrong ones."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x, 1) / (1 - self.p) if self.training else x

    def drop(self, x: Tensor, axes: int) -> Tensor:
        """Zeros drawn along the first axes."""
        keep = torch.rand(x.shape[:axes]) >= self.p
        return x * keep.reshape(*keep.shape, *[1] * (x.ndim - axes))


def _drop_by(drop: Callable[[Any, Tensor], Tensor]) -> type[nn.Module]:
    return variant(_Drop, forward=lambda self, x: drop(self, x) if self.training else x)


DROP_PATH = Exercise(
    name="drop_path",
    lesson="05",
    points=3,
    takes="cls(p): (B, ...) -> (B, ...), in training with whole images dropped, in eval mode unchanged",
    right=DropPath,
    cases=_drop_cases,
    observe=_observe_drop_path,
    mistakes=(
        Mistake(
            name="dropout of single numbers",
            says="Stochastic depth drops a whole image's branch: one draw for each image of the batch.",
            reread=_DEPTH,
            wrong=_drop_by(lambda self, x: self.drop(x, x.ndim) / (1 - self.p)),
        ),
        Mistake(
            name="a draw for each token",
            says="One draw for each image: all its tokens stay, or all go.",
            reread=_DEPTH,
            wrong=_drop_by(lambda self, x: self.drop(x, 2) / (1 - self.p)),
        ),
        Mistake(
            name="one draw for the whole batch",
            says="Each image draws by itself: a mask of (B, 1, 1).",
            reread=_DEPTH,
            wrong=_drop_by(lambda self, x: self.drop(x, 0) / (1 - self.p)),
        ),
        Mistake(
            name="kept images that are not divided by 1 − p",
            says="Divide them, so that the mean stays what it was.",
            reread=_DEPTH,
            wrong=_drop_by(lambda self, x: self.drop(x, 1)),
        ),
        Mistake(
            name="drop path in eval mode",
            says="Only in training something is dropped: ask self.training.",
            reread=_DEPTH,
            wrong=variant(_Drop, forward=lambda self, x: self.drop(x, 1) / (1 - self.p)),
        ),
    ),
)


# ---- The block ---------------------------------------------------------------------------------------------------

# Other names for the same numbers: torch's own layers have them.
ALIASES = {
    f"{theirs}{kind}": f"{ours}{kind}"
    for kind in ("weight", "bias")
    for theirs, ours in {
        "attention.in_proj_": "attention.qkv.",
        "attention.out_proj.": "attention.proj.",
        "self_attn.in_proj_": "attention.qkv.",
        "self_attn.out_proj.": "attention.proj.",
        "linear1.": "mlp.fc1.",
        "norm.": "norm1.",  # one norm alone: a mistake that has a name
        "linear2.": "mlp.fc2.",
    }.items()
}


@functools.cache
def _weights(cls: type[nn.Module], *build: Any) -> dict[str, Tensor]:
    """Made once: building a layer takes longer than calling it."""
    return random_weights(cls(*build))


def _block_cases() -> list[Case]:
    made = []
    sizes = [((1, 3, 6), 3, 8, 5.0), ((2, 4, 8), 2, 5, 5.0), ((3, 2, 4), 1, 12, 9.0), ((3, 1, 6), 2, 7, 5.0),
             ((2, 3, 8), 4, 6, 0.001)]  # fmt: skip
    for shape, heads, M, size in sizes:
        build = (shape[-1], heads, M)  # both rates are 0 unless something else is said
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}{', nearly constant' if size < 0.1 else ''}"
        weights = _weights(EncoderBlock, shape[-1], heads, M)
        made.append(Case(label, (size * normal(*shape),), build, weights))
    # Where attention says nothing, the second norm reads nearly constant tokens, too: there its eps shows.
    quiet = {name: x * 0 if name.startswith("attention.proj") else x for name, x in made[-1].weights.items()}
    made.append(Case("the same, nearly constant, attention silent", made[-1].args, made[-1].build, quiet))
    z = normal(1, 2, 4).expand(300, 2, 4)
    for dropout, drop_path in ((0.5, 0.0), (0.0, 0.3), (0.0, 0.6)):
        label = f"300 equal images, {'dropout' if dropout else 'drop_path'}={max(dropout, drop_path)}"
        made.append(Case(label, (z,), (4, 2, 6, dropout, drop_path), _weights(EncoderBlock, 4, 2, 6)))
    for branch, silent in (("attention", "mlp.fc2"), ("MLP", "attention.proj")):
        weights = _weights(EncoderBlock, 4, 2, 6)
        quiet = {name: x * 0 if name.startswith(silent) else x for name, x in weights.items()}
        made.append(Case(f"300 equal images, dropout=0.5, {branch} alone speaks", (z,), (4, 2, 6, 0.5, 0.0), quiet))
    return made


def _observe_block(work: Any, case: Case) -> Observation:
    dropout, drop_path = (*case.build, 0.0, 0.0)[3:5]
    if not dropout and not drop_path:
        return layer(work, with_defaults(work, case, 0.0, 0.0), ALIASES)
    module, (z,) = build_layer(work, case), case.args
    copy_weights(module, case.weights, ALIASES)
    in_eval, output = (module.train(mode)(z) for mode in (False, True))
    same_shape(output, z)
    ways = len({tuple(row) for row in (output.flatten(1) * 100).round().int().tolist()})
    found: dict[str, Value] = {
        "equal images, in eval mode,": "equal" if "," not in distinct_numbers(in_eval[:, 0, 0], 2) else "not"
    }
    if dropout:
        return Observation(found | {"equal images, in training,": "different" if ways > 4 else "hardly different"})
    found |= {
        "how many different results equal images have, in training,": ways,
        "what equal images become, in training,": distinct_numbers(output[:, 0, 0], 2),
        "how many images are what they were, in training,": _unchanged(output, z, drop_path),
    }
    return Observation(found)


def _unchanged(output: Tensor, z: Tensor, p: float) -> str:
    """How many images come out as they came in, as if they had lost both branches."""
    both = int(((output - z).abs().amax((1, 2)) < 1e-5).sum())
    return f"about {both / len(z) if is_improbable(both, len(z), p**2) else p**2:.2f} of them"


class _Block(nn.Module):
    """The right block, in steps that a variant replaces by wrong ones."""

    eps = 1e-6

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=self.eps), nn.LayerNorm(dim, eps=self.eps)
        self.attention = MultiHeadSelfAttention(dim, num_heads, dropout=dropout)
        self.mlp = MLP(dim, mlp_dim, dropout=dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.attend(self.norm1(z))
        return z + self.mix(self.norm2(z))

    def attend(self, z: Tensor) -> Tensor:
        return self.drop_path(self.attention(z))

    def mix(self, z: Tensor) -> Tensor:
        return self.drop_path(self.mlp(z))


def _block(forward: Callable[[Any, Tensor], Tensor], **methods: Any) -> type[nn.Module]:
    return variant(_Block, forward=forward, **methods)


ENCODER_BLOCK = Exercise(
    name="encoder_block",
    lesson="05",
    points=4,
    takes="cls(dim, num_heads, mlp_dim, dropout, drop_path): (B, T, D) -> (B, T, D)",
    right=_Block,
    cases=_block_cases,
    forbidden=(EncoderBlock,),
    observe=_observe_block,
    mistakes=(
        Mistake(
            name="post-norm in place of pre-norm",
            says="You norm after the addition, as the original Transformer does. In a ViT the norm is inside the "
            "branch, before attention and before the MLP: z + attention(norm1(z)).",
            reread=_EQUATIONS,
            wrong=_block(lambda self, z: self.norm2((z := self.norm1(z + self.attend(z))) + self.mix(z))),
        ),
        Mistake(
            name="branches that are not normed",
            says="Each branch reads normed tokens: attention(norm1(z)).",
            reread=_EQUATIONS,
            wrong=_block(lambda self, z: (z := z + self.attend(z)) + self.mix(z)),
        ),
        Mistake(
            name="both branches reading the block's input",
            says="The MLP reads what attention has made of z: two lines, one after the other.",
            reread=_EQUATIONS,
            wrong=_block(lambda self, z: z + self.attend(self.norm1(z)) + self.mix(self.norm2(z))),
        ),
        Mistake(
            name="a norm with another eps",
            says="It is 1e-6 here; nn.LayerNorm's own is 1e-5.",
            reread=_EQUATIONS,
            wrong=variant(_Block, eps=1e-5),
        ),
        Mistake(
            name="no residuals",
            says="You chain the branches. Each of them is added to what came in: z + ….",
            reread=_RESIDUAL,
            wrong=_block(lambda self, z: self.mix(self.norm2(self.attend(self.norm1(z))))),
        ),
        Mistake(
            name="a residual from the normed input",
            says="You add to the normed tokens, so that the path from the first block to the last is cut. Add to z, "
            "and give only the branch the normed tokens.",
            reread=_RESIDUAL,
            wrong=_block(lambda self, z: (z := self.norm2((z := self.norm1(z)) + self.attend(z))) + self.mix(z)),
        ),
        Mistake(
            name="a residual from the normed input, in the first branch",
            says="z = norm1(z) overwrites z: attention's result is added to the normed tokens. Add it to z.",
            reread=_RESIDUAL,
            wrong=_block(lambda self, z: (z := (n := self.norm1(z)) + self.attend(n)) + self.mix(self.norm2(z))),
        ),
        Mistake(
            name="drop path on the sum",
            says="You drop z together with the branch, so that whole images vanish. Drop the branch alone, before it "
            "is added.",
            reread=_DEPTH,
            wrong=_block(
                lambda self, z: self.drop_path(
                    (z := self.drop_path(z + self.attention(self.norm1(z)))) + self.mlp(self.norm2(z))
                )
            ),
        ),
        Mistake(
            name="no drop path",
            says="Each branch goes through DropPath(drop_path) before it is added.",
            reread=_DEPTH,
            wrong=variant(_Block, attend=lambda self, z: self.attention(z), mix=lambda self, z: self.mlp(z)),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Encoder(nn.Module):
    """The right stack, in steps that a variant replaces by wrong ones."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__()
        rates = [self.rate(drop_path, i, depth) for i in range(depth)]
        self.blocks = nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def rate(self, drop_path: float, i: int, depth: int) -> float:
        return drop_path * i / max(depth - 1, 1)

    def forward(self, z: Tensor) -> Tensor:
        return self.norm(self.through(z))

    def through(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = block(z)
        return z


class _Copies(_Encoder):
    def __init__(self, *build: Any) -> None:
        super().__init__(*build)
        for block in self.blocks:
            block.load_state_dict(self.blocks[0].state_dict())


def _through(step: Callable[[Any, nn.Module, Tensor], Tensor], order: int = 1) -> type[nn.Module]:
    """The stack with another step at each block, or another order."""
    blocks = lambda self: list(self.blocks)[::order]  # noqa: E731
    return variant(
        _Encoder, through=lambda self, z: functools.reduce(lambda z, block: step(self, block, z), blocks(self), z)
    )


def _encoder_cases() -> list[Case]:
    made = []
    sizes = [
        ((2, 3, 4), 2, 6, 4, 0.2),
        ((1, 4, 6), 3, 5, 2, 0.1),
        ((3, 2, 4), 1, 8, 1, 0.3),
        ((2, 2, 4), 2, 5, 3, 0.0),
        ((1, 2, 4), 2, 3, 13, 0.6),
    ]
    for shape, heads, M, depth, p in sizes:
        build = (shape[-1], heads, M, depth, p)
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}, depth={depth}, drop_path={p}"
        made.append(Case(label, (normal(*shape),), build, _weights(_Encoder, *build)))
    # Without what the blocks add, the last norm reads nearly constant tokens: there its eps shows.
    quiet = {name: x * 0 if name.startswith("blocks") else x for name, x in made[0].weights.items()}
    return [
        *made,
        Case(
            "as the first, nearly constant, silent blocks, no drop_path given",
            (normal(2, 3, 4) / 1000,),
            made[0].build[:4],
            quiet,
        ),
    ]


def _observe_encoder(work: Any, case: Case) -> Observation:
    case = with_defaults(work, case, 0.0)
    module = build_layer(work, case)
    first = [p.detach() for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    found: dict[str, Value] = {"the number of mlp.fc1.weight that torch sees, one in each block,": len(first)}
    if len(first) != case.build[3]:
        return Observation(found)
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    # A rate may be a number, an array or a tensor; a block of a student's own may call its part as it likes.
    inside = [part for part in module.modules() if part is not module]
    parts = [part for part in inside if "droppath" in type(part).__name__.lower().replace("_", "")]
    rates = [round(float(getattr(part, "p", getattr(part, "drop_prob", 0.0))), 4) for part in parts]
    found |= {"how blocks start": "alike in two of them" if alike else "different", "drop path": rates}
    share_no_parameter(module, work(*case.build))
    observed = layer(lambda *_: module, case, chance=any(rates))
    observed.values = found | observed.values
    return observed


ENCODER = Exercise(
    name="encoder",
    lesson="05",
    points=2,
    takes="cls(dim, num_heads, mlp_dim, depth, drop_path) with blocks and norm: (B, T, D) -> (B, T, D)",
    right=_Encoder,
    cases=_encoder_cases,
    observe=_observe_encoder,
    mistakes=(
        Mistake(
            name="blocks in backward order",
            says="Block 0 comes first.",
            reread=_HAND,
            wrong=_through(lambda _, block, z: block(z), order=-1),
        ),
        Mistake(
            name="a norm after every block",
            says="The last norm comes once, after all blocks; in the loop it cuts the path from the first to the last.",
            reread="one more norm at the end",
            wrong=variant(
                _through(lambda self, block, z: self.norm(block(z))), forward=lambda self, z: self.through(z)
            ),
        ),
        Mistake(
            name="no norm at the end",
            says="After the last block comes self.norm, once.",
            reread="one more norm at the end",
            wrong=variant(_Encoder, forward=lambda self, z: self.through(z)),
        ),
        Mistake(
            name="a second residual around each block",
            says="A block returns its input plus what its branches add: z = block(z), not z + block(z).",
            reread=_RESIDUAL,
            wrong=_through(lambda _, block, z: z + block(z)),
        ),
        Mistake(
            name="blocks that are copies of one another",
            says="deepcopy, or a seed set before each, makes blocks that start with equal weights. Build them one by "
            "one.",
            reread="Twelve times the same block.",
            wrong=_Copies,
        ),
        Mistake(
            name="one rate for all blocks",
            says="The rate grows from 0 in equal steps, up to drop_path in the last block.",
            reread=_DEPTH,
            wrong=variant(_Encoder, rate=lambda self, p, i, depth: p),
        ),
    ),
)
