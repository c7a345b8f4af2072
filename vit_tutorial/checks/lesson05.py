"""Checks of lesson 05: layer norm, stochastic depth, the encoder block, and a stack of blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.checks.chance import far, staleness, values
from vit_tutorial.checks.compare import as_tensor, equal, off
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Result,
    Words,
    adopt,
    answers,
    as_left,
    built,
    call,
    filled,
    layer,
    normal,
    of_its_own,
    random_weights,
    same_shape,
    section,
)
from vit_tutorial.checks.symptoms import EXACT, symptom
from vit_tutorial.encoder import DropPath, EncoderBlock
from vit_tutorial.mlp import MLP

_NORM = "2 · Layer norm with a pencil"
_RESIDUAL = "3 · The residual stream"
_EQUATIONS = "1 · Two equations, two lines"
_HAND = "4 · The block by hand"
_DEPTH = "6 · Stochastic depth"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "normed": Hashed("aa3903fffe 0560e249f0 70e4ad196a 727dc4f819", "list"),
    "again": Hashed("7846838153 39de2d97a6 fc72a1b0c1 5a4c9fafa2", "list"),
    "block": Hashed("1ba03659eb 407528d3ff 0607aa7474 f35cc157bb", "list"),
    "kept": Hashed("59fd6fa1d6"),
    "parameters": Hashed("0f4933dc98"),
}

BLOCK_NUMBERS = Exercise(
    name="block_numbers",
    lesson="05",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "normed": "Subtract the mean of the four numbers, and divide by the root of the mean of the squared distances.",
        "again": "Norm [14, 14, 22, 22] in the same way: what are its mean and its standard deviation?",
        "block": "z plus what attention returns; then this plus what the MLP returns.",
        "kept": "What is kept is divided by the probability to be kept, 1 − p.",
        "parameters": "Two norms of 2 · D, four matrices D × D with a bias each, and the two layers of the MLP.",
    },
    mistakes=section(
        _NORM,
        (
            "a division by the variance",
            "The standard deviation is its square root.",
            {"normed": [-0.5, -0.5, 0.5, 0.5], "again": [-0.25, -0.25, 0.25, 0.25]},
        ),
        (
            "a variance divided by D − 1",
            "Layer norm's variance is the mean of the squared distances: their sum divided by D.",
            {"normed": [-0.866, -0.866, 0.866, 0.866], "again": [-0.866, -0.866, 0.866, 0.866]},
        ),
    ),
)


# ---- Layer norm --------------------------------------------------------------------------------------------------


def _right_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _norm_cases() -> list[Case]:
    made: list[Case] = []
    sizes = [((1, 3, 4), 1e-6, 1.0), ((2, 3, 6), 1e-6, 0.001), ((2, 4, 5), 1e-3, 0.05), ((2, 5, 3, 8), 1e-5, 3.0)]
    sizes += [((7,), 1e-6, 1.0), ((4, 4, 4), 1e-6, 1.0), ((2, 90), 1e-6, 1.0)]
    sizes += [((2, 3, 5), 1e-9, 0.0001), ((2, 1, 3, 2, 4), 0.25, 1.0)]
    for shape, eps, size in sizes:
        D = shape[-1]
        x = size * normal(*shape, seed=1) + size
        if x.ndim > 2 and made:
            x[-1, -1] = x[-1, -1].mean()  # a constant token, and in one case a constant image
        if D > 50:
            x[0, 5] = 60.0  # nine standard deviations: a clamp shows
        made.append(
            Case(
                f"x {shape}, eps={eps:g}{f', numbers about {size:g}' if size != 1 else ''}",
                (x, normal(D, seed=2), normal(D, seed=3), eps),
            )
        )
    # Numbers that float32 holds without rounding, so that all right ways give nearly the same.
    places = torch.tensor([[512.0, -512.0, 2048.0], [-2048.0, 512.0, 0.0]])[..., None]
    far_off = places + torch.randint(-16, 17, (2, 3, 8), generator=torch.Generator().manual_seed(4)) / 8
    return [
        *made,
        Case(
            "x (2, 3, 8), eps=1e-06, near 512, -512, 2048, …",
            (far_off, normal(8), normal(8, seed=5), 1e-6),
        ),
    ]


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


def _mean_and_spread(rows: list[tuple[Case, Result, Result]]) -> str:
    """What the tokens are before they are multiplied by weight, and bias is added."""
    for case, right, theirs in rows:
        (_, weight, bias, _), result = case.args, as_tensor(theirs["result"])
        if result is None or result.shape != right["result"].shape or equal(right["result"], result, LAYER_NORM):
            continue
        mine, yours = (((x - bias) / weight).reshape(-1, len(bias))[0] for x in (right["result"], result))
        (mean, std), (wanted, one) = ((x.mean().item(), x.std(correction=0).item()) for x in (yours, mine))
        if max(abs(mean - wanted), abs(std - one)) < 1e-3:
            continue
        mean, wanted = (round(number, 6) + 0.0 for number in (mean, wanted))
        return (
            f"If weight and bias are applied as agreed, before them your first token has the mean {mean:.3g} and the "
            f"standard deviation {std:.4g}; it should be {wanted:.3g} and {one:.4g} (with {case.label})."
        )
    return ""


LAYER_NORM = Exercise(
    name="layer_norm",
    lesson="05",
    points=3,
    takes="fn(x, weight, bias, eps): each token of (..., D) normed by its own numbers, then weight and bias",
    right=_right_norm,
    cases=_norm_cases,
    observe=call,
    locate=_mean_and_spread,
    tolerance=1e-4,
    mistakes=(
        *section(
            "The wrong axis.",
            (
                "a norm over the tokens",
                "You take mean and variance down the tokens (dim=-2), so that they depend on each other. Each token"
                " is normed by its own D numbers: dim=-1.",
                _normed_over(-2),
            ),
            (
                "a mean without keepdim",
                "The mean loses its last axis, so that torch subtracts the means of other tokens, or can't "
                "broadcast: mean(dim=-1, keepdim=True), and the same for the variance.",
                _without_keepdim,
            ),
        ),
        *section(
            _NORM,
            (
                "a variance divided by D − 1",
                "torch's var and std divide by D - 1 unless you say unbiased=False (or correction=0). Layer norm "
                "divides by D.",
                _scaled(lambda x, eps: torch.sqrt(_variance(x, unbiased=True) + eps)),
            ),
        ),
    ),
)


# ---- Stochastic depth --------------------------------------------------------------------------------------------

_CALLS = 100


def _drop_cases() -> list[Case]:
    shapes = [((64, 2, 3), 0.2, True), ((64, 4, 2), 0.35, True), ((1, 2, 3), 0.4, True), ((64, 2, 3), 0.2, False),
              ((3, 2, 4), 0.0, True), ((6, 6, 6), 0.4, True), ((64, 3, 2), 0.75, True)]  # fmt: skip
    modes = ("eval mode", "training")
    made = [
        Case(f"x {shape}, p={p}, in {modes[training]}", (normal(*shape), training, False), (p,))
        for shape, p, training in shapes
    ]
    for training in (True, False):
        label = f"x (64, 3, 2), p=0.3, in {modes[training]}, after a call in {modes[not training]}"
        made.append(Case(label, (normal(64, 3, 2), training, True), (0.3,)))
    return made


def _what_is_dropped(zero: Tensor) -> str:
    """What is zero together, in (calls, B, T, D)."""
    if not zero.any():
        return "nothing"
    for words, axis in (("whole batches", 1), ("whole images", 2), ("single tokens", 3))[zero.shape[1] == 1 :]:
        together = zero.flatten(axis)
        if torch.equal(together.all(-1), together.any(-1)):
            return words
    channels = zero.movedim(2, -1)
    return "single channels" if torch.equal(channels.all(-1), channels.any(-1)) else "parts of images"


def _how_often(zero: Tensor, p: float) -> str:
    """Which share of whole images is dropped, in (calls, B): p, or what is odd about it."""
    calls, B = zero.shape
    share = zero.double().mean().item()
    if far(int(zero.sum()), calls * B, p):
        return f"{share:.2g}"
    if any(far(int(many), calls, p) for many in zero.sum(0)):
        return "another one for some images than for others"
    if B > 1 and zero.sum(1).unique().numel() == 1:
        return "the same in each call: images don't draw by themselves"
    if len({tuple(row) for row in zero.T.tolist()}) < B:
        return "one in which some images are always dropped together"
    return f"{p:g}"


def _come_again(zero: Tensor, dropped: str) -> str:
    """Whether among many calls, (calls, B), the same images are dropped twice."""
    again = dropped == "whole images" and len({tuple(call) for call in zero.tolist()}) < len(zero)
    return f"among {len(zero)}, sometimes one that came before" if again else ""


def _observe_drop_path(work: Any, case: Case) -> Result:
    module, (x, training, turned), (p,) = built(work, case), case.args, case.build
    if turned:
        module.train(not training)(x.clone())  # nothing of the other mode may stay
    module.train(training)
    given = x.clone().requires_grad_()
    inputs = [given.clone() for _ in range(_CALLS if p else 3)]
    outputs = [module(one) for one in inputs]
    same_shape(outputs[0], x)
    factor = torch.stack([output.detach() for output in outputs]) / x  # (calls, B, T, D)
    zero = factor.abs() < 1e-6
    dropped = _what_is_dropped(zero)
    found: Result = {"what comes out as 0": dropped}
    if training and p and dropped != "nothing" and len(x) > 30:
        # Of 64 images, two draws are the same less than once in 10 ** 10.
        again = _come_again(zero[:, :, 0, 0], dropped)
        found["each draw"] = staleness(lambda: module(x.clone())) or again or "fresh"
        anew = staleness(lambda: work(*case.build).train()(x.clone()), 2)
        found["the first draw of each new layer"] = anew or "fresh"
    if dropped in ("nothing", "whole images"):
        found["result / x"] = values(factor, 4)
        if len(x) == 1 or len(x) > 30:  # of a few, the draws can't be told from one another
            found["the share of images that come out as 0"] = (
                _how_often(zero[:, :, 0, 0], p) if dropped != "nothing" else "none"
            )
    some = [output for output, fallen in zip(outputs, zero, strict=True) if not fallen.all()]
    found["the path of the gradient"] = "whole" if all(output.requires_grad for output in some) else "cut"
    changed = [one for one in inputs if not torch.equal(one.detach(), x)]
    if zero[0].all() and not outputs[0].requires_grad:
        found["the gradient of what is dropped"] = Words("zero")
    elif outputs[0].requires_grad:
        # Where x was changed in place, the gradient in what it became tells nothing.
        (gradient,) = torch.autograd.grad(outputs[0].sum(), given if changed else inputs[0])
        found["the gradient of what is dropped"] = Words("not zero" if gradient[zero[0]].any() else "zero")
    found["arguments"] = as_left([*changed, x][:1])
    return found


DROP_PATH = Exercise(
    name="drop_path",
    lesson="05",
    points=3,
    takes="cls(p): (B, ...) -> (B, ...), in training with whole images dropped, in eval mode unchanged",
    right=DropPath,
    cases=_drop_cases,
    observe=_observe_drop_path,
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
        small = ", nearly constant" if size < 0.1 else ""
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}{small}"
        weights = _weights(EncoderBlock, shape[-1], heads, M)
        made.append(Case(label, (size * normal(*shape),), build, weights))
    # Where attention says nothing, the second norm reads nearly constant tokens, too: there its eps shows.
    quiet = {name: x * 0 if name.startswith("attention.proj") else x for name, x in made[-1].weights.items()}
    made.append(Case("the same, nearly constant, attention silent", made[-1].args, made[-1].build, quiet))
    # One branch silent: what the other one adds can be told.
    for branch, silent in (("attention", "mlp.fc2"), ("MLP", "attention.proj")):
        quiet = {name: x * 0 if name.startswith(silent) else x for name, x in made[1].weights.items()}
        made.append(Case(f"as the second, {branch} alone speaks", made[1].args, made[1].build, quiet))
    z = normal(1, 2, 4).expand(300, 2, 4)
    for name, dropout, drop_path in (("dropout", 0.5, 0.0), ("drop_path", 0.0, 0.3), ("drop_path", 0.0, 0.6)):
        label = f"300 equal images, {name}={max(dropout, drop_path)}"
        made.append(Case(label, (z,), (4, 2, 6, dropout, drop_path), _weights(EncoderBlock, 4, 2, 6)))
    label = "300 equal images, dropout=0.1, drop_path=0.5"
    made.append(Case(label, (z,), (4, 2, 6, 0.1, 0.5), _weights(EncoderBlock, 4, 2, 6)))
    # One branch silent: its last layer holds zeros, so that what varies comes from the other.
    for branch, silent in (("attention", "mlp.fc2"), ("MLP", "attention.proj")):
        weights = _weights(EncoderBlock, 4, 2, 6)
        weights = weights | {name: torch.zeros_like(x) for name, x in weights.items() if name.startswith(silent)}
        # One hidden unit alone is heard, so that there are three ways in which a number and that unit fall.
        weights["mlp.fc2.weight"] = weights["mlp.fc2.weight"] * (torch.arange(6) == 2)
        for p in (0.5, 0.2):
            label = f"300 equal images, dropout={p}, {branch} alone speaks"
            made.append(Case(label, (z,), (4, 2, 6, p, 0.0), weights))
    return made


_SEED = 271  # one that no student sets


def _observe_block(work: Any, case: Case) -> Result:
    dropout, drop_path = (*case.build, 0.0, 0.0)[3:5]
    if not dropout and not drop_path:
        case = filled(work, case, 0.0, 0.0)
        return layer(work, case, ALIASES) | {"the start of two blocks": _starts(work(*case.build), work(*case.build))}
    torch.default_generator.manual_seed(_SEED)
    module, (z,) = built(work, case), case.args
    if torch.initial_seed() != _SEED:
        raise Fault("your code sets a seed, for everybody (torch.manual_seed): leave it out")
    adopt(module, case.weights, ALIASES)
    outputs = [module.train(mode)(z) for mode in (False, True)]
    for output in outputs:
        same_shape(output, z)
    in_eval, in_training = (values(output[:, 0, 0], 2) for output in outputs)
    if dropout and drop_path:
        more = "more than" if _ways(outputs[1]) > 4 else "at most"
        said = f"{more} 4 different results; {_unchanged(outputs[1], z, drop_path)} are what they were"
        return {"what equal images become, in training,": Words(said)}
    if drop_path:
        ways = _ways(outputs[1][:, :1])
        return {
            "what equal images become, in eval mode,": in_eval,
            "how many different results equal images have, in training,": Words(f"{ways}{_DROPPED * (ways == 4)}"),
            "what equal images become, in training,": in_training,
            "how many images are what they were, in training,": Words(_unchanged(outputs[1], z, drop_path)),
            "each draw": staleness(lambda: module.train()(z.clone()), 4) or "fresh",
        }
    words = ["different numbers" if "," in values else "equal numbers" for values in (in_eval, in_training)]
    found: Result = {
        "what equal images become, in eval mode,": words[0],
        "what equal images become, in training,": words[1],
    }
    if "alone" in case.label:
        # What dropout of the branch's own output adds is 0 for a part of the numbers, whatever happens inside.
        silent = (outputs[1] - z).abs() < 1e-6
        share = silent.double().mean().item()
        right = not far(int(silent.sum()), silent.numel(), dropout)
        found["the share of numbers that are what they were, in training,"] = f"about {dropout if right else share:.1g}"
        if "MLP" in case.label:  # torch's own attention drops weights, too, and so has no values that can be told
            bias = case.weights["mlp.fc2.bias"][0]
            made = _by_dropout(outputs[1][:, 0, 0], z[0, 0, 0], outputs[0][0, 0, 0] - z[0, 0, 0], bias, dropout)
            told = f"what dropout={dropout} makes of it" if made else in_training
            found["what a number of equal images becomes, in training,"] = Words(told)
    return found


def _starts(first: Any, second: Any) -> Words:
    """Whether two layers start with the same random numbers."""
    pairs = [(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True) if a.ndim > 1 and a.std() > 0]
    seeded = bool(pairs) and all(torch.equal(a, b) for a, b in pairs)
    return Words("the same numbers (is a seed set?)" if seeded else "each by its own draw")


_DROPPED = ", as each of the two branches is there or isn't"


def _ways(output: Tensor) -> int:
    """In how many ways equal images come out."""
    return len({tuple(row) for row in (output.flatten(1) * 100).round().int().tolist()})


def _unchanged(output: Tensor, z: Tensor, p: float) -> str:
    """How many images come out as they came in, as if they had lost both branches."""
    both = int(((output - z).abs().amax((1, 2)) < 1e-5).sum())
    return f"about {both / len(z) if far(both, len(z), p**2) else p**2:.2f} of them"


def _by_dropout(found: Tensor, z: Tensor, added: Tensor, bias: Tensor, p: float) -> bool:
    """Whether numbers z, to which an MLP adds ``added`` in eval mode, became in training what dropout makes of them.

    It falls on what the MLP returns, and mostly on its one hidden unit, too; ``bias`` is its second layer's.
    """
    once = torch.stack([z, z + added / (1 - p)])
    twice = torch.stack([z, z + bias / (1 - p), z + (bias + (added - bias) / (1 - p)) / (1 - p)])
    near = [(found[:, None] - way).abs() < 1e-4 for way in (once, twice)]
    return any(bool(one.any(0).all() and one.any(1).all()) for one in near)


class _Block(nn.Module):
    """The right block, written out in steps that a subclass replaces by a wrong one."""

    eps = 1e-6

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.p = dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=self.eps), nn.LayerNorm(dim, eps=self.eps)
        self.attention = MultiHeadSelfAttention(dim, num_heads, dropout=dropout)
        self.mlp = MLP(dim, mlp_dim, dropout=dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.branch1(z)
        return z + self.branch2(z)

    def branch1(self, z: Tensor) -> Tensor:
        return self.drop_path(self.attention(self.norm1(z)))

    def branch2(self, z: Tensor) -> Tensor:
        return self.drop_path(self.mlp(self.norm2(z)))


class _PostNorm(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z + self.drop_path(self.attention(z)))
        return self.norm2(z + self.drop_path(self.mlp(z)))


class _FromNormed(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z)
        z = z + self.drop_path(self.attention(z))
        z = self.norm2(z)
        return z + self.drop_path(self.mlp(z))


class _NoResidual(_Block):
    def forward(self, z: Tensor) -> Tensor:
        return self.branch2(self.branch1(z))


class _DropsTheSum(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.drop_path(z + self.attention(self.norm1(z)))
        return self.drop_path(z + self.mlp(self.norm2(z)))


def _where_the_block_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """What is wrong where one branch is silent, and whether it is only the norms' eps."""
    results = [row for row in rows if "result" in row[1]]
    wrong = [case for case, *_ in off(results, ENCODER_BLOCK)]
    if wrong and len(results) > 2 * len(wrong) and all("constant" in case.label for case in wrong):
        return f"It goes wrong with {wrong[0].label}: there the norms' eps counts, which is 1e-6 here."
    found, good = [], []
    for case, right, theirs in rows:
        branch = case.label.removeprefix("as the second, ").removesuffix(" alone speaks")
        if branch not in ("attention", "MLP"):
            continue
        if case.label not in [one.label for one in wrong]:
            good.append(branch)
            continue
        (z,), pair = case.args, [one["result"].detach() for one in (right, theirs)]
        added = [result - z for result in pair]
        if seen := symptom([(*pair, {"z": z}, case.label)], ENCODER_BLOCK.tolerance, EXACT):
            found.append(f"Where {branch} alone speaks: {seen}")
        elif seen := symptom([(*added, {}, case.label)], ENCODER_BLOCK.tolerance, EXACT):
            found.append(f"Of your result less z, where {branch} alone speaks: {seen}")
        else:
            found.append(
                f"Where {branch} alone speaks, your result is wrong: what does it read, and what is it added to?"
            )
    if found:
        return " ".join(
            [*found, *(f"Where {branch} alone speaks, your result has the right numbers." for branch in good)]
        )
    if not wrong or len(good) < 2:
        return ""  # it is what happens in training, or how the block starts
    return "Where one branch alone speaks, your result has the right numbers. Is it what the second one reads?"


ENCODER_BLOCK = Exercise(
    name="encoder_block",
    lesson="05",
    points=4,
    takes="cls(dim, num_heads, mlp_dim, dropout, drop_path): (B, T, D) -> (B, T, D)",
    right=_Block,
    cases=_block_cases,
    forbidden=(EncoderBlock,),
    observe=_observe_block,
    locate=_where_the_block_goes_wrong,
    mistakes=(
        *section(
            _EQUATIONS,
            (
                "post-norm in place of pre-norm",
                "You norm after the addition, as the original Transformer does. In a ViT the norm is inside the "
                "branch, before attention and before the MLP: z + attention(norm1(z)).",
                _PostNorm,
            ),
        ),
        *section(
            _RESIDUAL,
            ("no residuals", "You chain the branches. Each of them is added to what came in: z + ….", _NoResidual),
            (
                "a residual from the normed input",
                "You add to the normed tokens, so that the path from the first block to the last is cut. Add to z, and "
                "give only the branch the normed tokens.",
                _FromNormed,
            ),
        ),
        *section(
            _DEPTH,
            (
                "drop path on the sum",
                "You drop z together with the branch, so that whole images vanish. Drop the branch alone, before it"
                " is added.",
                _DropsTheSum,
            ),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Encoder(nn.Module):
    """The right stack, written out in steps that a subclass replaces by a wrong one."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__()
        rates = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
        self.blocks = nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = block(z)
        return self.norm(z)


class _NormInTheLoop(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = self.norm(block(z))
        return z


class _AroundEachBlock(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = z + block(z)
        return self.norm(z)


class _Backwards(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in reversed(self.blocks):
            z = block(z)
        return self.norm(z)


def _encoder_cases() -> list[Case]:
    made = []
    sizes = [
        ((2, 3, 4), 2, 6, 4, 0.2),
        ((1, 4, 6), 3, 5, 2, 0.1),
        ((3, 2, 4), 1, 8, 1, 0.3),
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


def _observe_encoder(work: Any, case: Case) -> Result:
    case = filled(work, case, 0.0)
    seed = _SEED + torch.initial_seed()
    torch.default_generator.manual_seed(seed)
    module = built(work, case)
    first = [p.detach() for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    found: Result = {"the number of mlp.fc1.weight that torch sees, one in each block,": len(first)}
    if len(first) != case.build[3]:
        return found
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    # A rate may be a number, an array or a tensor; a block of a student's own may call its part as it likes.
    inside = [part for part in module.modules() if part is not module]  # the encoder may be called NoDropPath
    parts = [part for part in inside if "droppath" in type(part).__name__.lower().replace("_", "")]
    rates = [round(float(getattr(part, "p", getattr(part, "drop_prob", 0.0))), 4) for part in parts]
    module.eval()
    found["blocks after eval()"] = Words("in training" if any(part.training for part in parts) else "in eval mode")
    another = work(*case.build)
    of_its_own(module, another)
    theirs = [p.detach() for name, p in another.named_parameters() if name.endswith("mlp.fc1.weight")]
    seeded = len(theirs) == len(first) and all(map(torch.equal, first, theirs))
    found["the start of another encoder"] = Words("the same (is a seed set?)" if seeded else "a draw of its own")
    ours = [part for part in parts if isinstance(part, DropPath)]
    for part in ours:
        part.p = 0.0  # nothing else may be left to chance in training mode
    run = layer(lambda *_: module, case, chance=any(rates) and len(ours) < len(parts))
    kept = torch.initial_seed() == seed
    found["torch's seed"] = Words("as it was" if kept else "set by your code, for everybody")
    return found | {"how blocks start": "alike in two of them" if alike else "different", "drop path": rates} | run


def _where_the_encoder_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """Whether it is the rates, the norm, or the way through the blocks."""
    for case, right, theirs in rows:
        if right["drop path"] != theirs.get("drop path"):
            rates = ", ".join(f"{rate:g}" for rate in theirs["drop path"])
            if len(case.build) < 5:
                return f"Where no drop_path is given, your rates are {rates}: all should be 0."
            return (
                f"Your rates are {rates} (with {case.label}). The right ones grow from 0 in equal steps, up to "
                "drop_path in the last of several blocks."
            )
    if not (wrong := off(rows, ENCODER)):
        return ""  # it is the gradients
    case, right, theirs = rows[-1]  # where the blocks add nothing
    if equal(theirs["result"], right["result"], ENCODER):
        said = "right: look at the way of the tokens through the blocks"
    elif len(wrong) == 1:
        said = "wrong, and right with all others: there the last norm's eps counts, 1e-6 here"
    else:
        said = "wrong: look at the last norm, at what it reads, and at what you add to what a block returns"
    return f"With {case.label}, your numbers are {said}."


ENCODER = Exercise(
    name="encoder",
    lesson="05",
    points=2,
    takes="cls(dim, num_heads, mlp_dim, depth, drop_path) with blocks and norm: (B, T, D) -> (B, T, D)",
    right=_Encoder,
    cases=_encoder_cases,
    observe=_observe_encoder,
    locate=_where_the_encoder_goes_wrong,
    mistakes=(
        *section(
            _HAND,
            ("blocks in backward order", "Block 0 comes first.", _Backwards),
        ),
        *section(
            "one more norm at the end",
            (
                "a norm after every block",
                "The last norm comes once, after all blocks; in the loop it cuts the path from the first to the last.",
                _NormInTheLoop,
            ),
        ),
        *section(
            _RESIDUAL,
            (
                "a second residual around each block",
                "A block returns its input plus what its branches add: z = block(z), not z + block(z).",
                _AroundEachBlock,
            ),
        ),
    ),
)
