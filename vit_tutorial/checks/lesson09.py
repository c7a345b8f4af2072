"""Checks of lesson 09: a checkpoint by hand: its names, Flax's kernels, the teacher in it, the pixels, DeiT's heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.compare import kind
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    Words,
    answers,
    call,
    changed,
    check,
    copied,
    normal,
)
from vit_tutorial.weights.names import TIMM, TORCHVISION, TRANSFORMERS_4
from vit_tutorial.weights.sources import IMAGENET

__all__ = [
    "check_attention_from_flax",
    "check_checkpoint_numbers",
    "check_joined_heads",
    "check_our_name",
    "check_prepare",
    "check_teacher",
]

_ONE_KEY = "3 · One key by hand"
_TURNED = "4 · A key that has to be turned"
_TABLE = "5 · The table"
_LIBRARIES = "6 · The proof, by modules that we didn't write"
_PIXELS = "The pixels"
_WAYS = "Turned the wrong way"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# Five blocks of twelve tensors, and eight more; (51 / 255 - 0.5) / 0.25; √(8e-6 + 1e-6) / √(8e-6 + 1e-5).
NUMBERS = {
    "entries": 68,
    "left as they began": 8,
    "row 3 of q": [110, 111, 112, 113, 114, 115],
    "axes": (3, 2, 0, 1),
    "pixel": -1.2,
    "factor": 0.7086,  # between √(1 / 2) = 0.7071 and what it is to two decimals
}

CHECKPOINT_NUMBERS = Exercise(
    name="checkpoint_numbers",
    lesson="09",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.002,  # -1.203 is no -1.2, but a division by 256
    secret=True,
    advice={
        "entries": "Two norms, qkv, projection and two layers of the MLP, each with weight and bias: one block. "
        "Then what stands before the blocks, and behind them.",
        "left as they began": "All entries but those of the blocks.",
        "row 3 of q": "Row 3 is output 3: which head, and which number within it? Its six numbers belong to the inputs "
        "0 to 5.",
        "axes": "torch's kernel is (D, C, height, width). For each of these four say which axis of (P, P, C, D) it is.",
        "pixel": "51 of 255 first becomes a number from 0 to 1. Then less the mean, divided by the deviation.",
        "factor": "What the right norm divides by is √(v + 10⁻⁶), what the wrong one divides by is √(v + 10⁻⁵).",
    },
    mistakes=(
        Mistake(
            "the blocks alone",
            "5 · 12 = 60 are the blocks. Class token, positions, patch embedding, last norm and head are in the file, "
            "too, the last three with weight and bias.",
            "Check yourself",
            {"entries": 60},
        ),
        Mistake(
            "the biases forgotten",
            "Each norm and each linear layer has two entries, a weight and a bias.",
            _ONE_KEY,
            {"entries": 35},
        ),
        Mistake(
            "an error that never comes",
            "strict=False means that no name has to fit: a tensor whose name isn't found keeps the numbers it began "
            "with, and nobody tells you unless you read what load_state_dict returns.",
            "strict=False",
            {"left as they began": 0},
        ),
        Mistake(
            "the tensors that were filled",
            "The 60 of the blocks have found their numbers. Count those that have not.",
            "strict=False",
            {"left as they began": 60},
        ),
        Mistake(
            "a kernel that isn't turned",
            "You took row 3 of the kernel laid flat: what input 3 gives to every output. A row of torch's weight "
            "belongs to one output, and holds one number for each input.",
            _TURNED,
            {"row 3 of q": [3, 13, 103, 113, 203, 213]},
        ),
        Mistake(
            "numbers before heads",
            "Heads lie together: rows 0 and 1 are head 0, rows 2 and 3 head 1. You went through the heads first.",
            _TURNED,
            {"row 3 of q": [10, 11, 12, 13, 14, 15]},
        ),
        Mistake(
            "all axes in the reverse order",
            "(3, 2, 1, 0) also turns each patch on its side: height and width of the kernel must keep their order.",
            _TURNED,
            {"axes": (3, 2, 1, 0)},
        ),
        Mistake(
            "inputs before outputs",
            "torch keeps (out, in, height, width): the output's axis D, which is Flax's last, comes first.",
            _TURNED,
            {"axes": (2, 3, 0, 1)},
        ),
        Mistake(
            "channels last",
            "(3, 0, 1, 2) gives (D, P, P, C). In torch the channels stand before height and width.",
            _TURNED,
            {"axes": (3, 0, 1, 2)},
        ),
        Mistake(
            "a pixel between 0 and 255",
            "Mean and deviation are of pixels between 0 and 1: divide by 255 before you subtract the mean.",
            _PIXELS,
            {"pixel": (51 - 0.5) / 0.25},
        ),
        Mistake(
            "mean and deviation exchanged",
            "The mean is subtracted, then the deviation divides.",
            "The pixels",
            {"pixel": (0.2 - 0.25) / 0.5},
        ),
        Mistake(
            "a division by 256",
            "A byte goes from 0 to 255: divide by 255, so that white is 1.",
            _PIXELS,
            {"pixel": (51 / 256 - 0.5) / 0.25},
        ),
        Mistake(
            "a factor upside down",
            "The larger epsilon makes the result smaller: it is √(v + ε) / √(v + ε'), ε' being the wrong one.",
            "Heads, epsilon, GELU",
            {"factor": 1.412},  # √2 = 1.4142, or 1.41
        ),
        Mistake(
            "a missing square root",
            "A norm divides by the square root of variance plus epsilon.",
            "Heads, epsilon, GELU",
            {"factor": 0.5},
        ),
        Mistake(
            "the variance forgotten",
            "You compared the epsilons alone. Each is added to the variance v first.",
            "Heads, epsilon, GELU",
            {"factor": 0.318},  # √0.1 = 0.3162, or 0.32
        ),
    ),
)


def check_checkpoint_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(CHECKPOINT_NUMBERS, fn)


# ---- One name ----------------------------------------------------------------------------------------------------

REFUSED = Words("a ValueError")
Rules = Mapping[str, str]  # theirs -> ours


def _rules(table: dict[str, str]) -> dict[str, str]:
    """A table of the package the other way round, last rule first; without the rules that join three tensors."""
    return {their: our for our, their in reversed(table.items()) if "(" not in their}


def _name_cases() -> list[Case]:
    vision, timm, faces = (_rules(table) for table in (TORCHVISION, TIMM, TRANSFORMERS_4))
    dots = {
        "layer{i}.fc.*": "blocks.{i}.mlp.fc1.*",
        "layers.{i}.scale": "blocks.{i}.scale",
        "head.*": "head.*",
    }
    asked = [
        ("encoder.layers.encoder_layer_0.ln_1.weight", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_1.self_attention.in_proj_bias", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_11.mlp.3.bias", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_12.mlp.0.bias", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_47.ln_2.weight", vision, "torchvision's rules"),
        ("class_token", vision, "torchvision's rules"),
        ("vit.encoder.layer.2.attention.output.dense.weight", faces, "Hugging Face's rules"),
        ("head.fc.weight", timm, "timm's rules"),
        ("student.head.weight", timm, "timm's rules"),
        ("head.weight.old", timm, "timm's rules"),
        ("head.gain", timm, "timm's rules"),
        ("class_weight", vision, "torchvision's rules"),
        ("layer3xfc.bias", dots, "rules of one layer"),
        ("layerx.fc.weight", dots, "rules of one layer"),
        ("Head.weight", dots, "rules of one layer"),
        ("encoder.layers.encoder_layer_.mlp.3.bias", vision, "torchvision's rules"),
        ("head.weight ", dots, "rules of one layer"),
        ("encoder.layers.encoder_layer_20.ln_1.weight", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_99.ln_1.bias", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_-1.ln_1.bias", vision, "torchvision's rules"),
        ("heads.head.bias", vision, "torchvision's rules"),
        ("class_token.weight", vision, "torchvision's rules"),
        ("class.token", vision, "torchvision's rules"),
        ("head.weights", dots, "rules of one layer"),
        ("head.weight_g", dots, "rules of one layer"),
        ("head.", dots, "rules of one layer"),
        ("head.scale", dots, "rules of one layer"),
        ("module.head.weight", dots, "rules of one layer"),
        ("head.weight", dots, "rules of one layer"),
        ("head.weight", {"head.*": "Probe.*"}, "another rule"),
        ("layer3.fc.bias", {"head.*": "Probe.*"}, "another rule"),
        ("blocks.7.attn.qkv.weight", timm, "timm's rules"),
        ("layers.4.scale", dots, "rules of one layer"),
        ("layer7.fc.weight", dots, "rules of one layer"),
        ("encoder.layers.encoder_layer_3.mlp.3.weight", vision, "torchvision's rules"),
        ("encoder.layers.encoder_layer_1.ln_1.bias", vision, "torchvision's rules"),
        ("head.weight", {}, "no rule at all"),
        ("head.weight", {"head.*": "probe.*", "probe.*": "spare.*"}, "a rule for what another one makes"),
        ("encoder.layer.2.attention.output.dense.weight", faces, "Hugging Face's rules"),
    ]
    return [
        *(Case(f"{name}, {whose}", (name, rules)) for name, rules, whose in asked),
        Case(f"{len(_NEARLY)} names that no rule of one layer fits", (_NEARLY, dots)),
        Case(f"{len(_NEARLY_THEIRS)} names that none of torchvision's rules fits", (_NEARLY_THEIRS, vision)),
    ]


# Each is a name that a rule nearly fits: with something before it, behind it, or in place of {i} or of *.
_NEARLY = (
    " head.weight", "\thead.weight", "head.weight\n",
    "subhead.weight", "heads.weight", "model.head.weight", "backbone.head.weight", "head.preweight",
    "head.biases", "head.gamma", "head.kernel", "head.running_mean", "3.fc.bias", "layer3.1.fc.bias", "layer3a.fc.bias",
    "layera.fc.bias", "layer3.fc", "layers.4.scale.weight", "layers.4", "", "head.Weight", "head.BIAS", "head.bias.",
    ".head.bias", "head..bias", "head_bias", "layer 3.fc.bias", "layer+3.fc.bias", "layer1_0.fc.bias", "layer3_fc.bias",
    "layer.3.fc.bias", "layers.4.scale.", "layers.x.scale", "head.weightbias", "head.weight.bias", "head.w", "head.b",
)  # fmt: skip
_NEARLY_THEIRS = (
    "embed.cls_token", "blocks.0.norm1.weight", "head.weight", "encoder.layers.encoder_layer_1b.ln_1.weight",
    "class_token\n", "encoder.layers.3.ln_1.weight", "layers.encoder_layer_3.ln_1.weight", "encoder.ln.gamma",
)  # fmt: skip


def _naming(work: Any, case: Case) -> Result:
    names, rules = case.args
    given = dict(rules)
    if isinstance(names, str):
        found = {"result": _named(work, names, given)}
    else:
        found = {f"the result for {name!r}": _named(work, name, given) for name in names}
    return found | {_RULES: Words("as they were" if list(given.items()) == list(rules.items()) else "changed")}


_RULES = "the rules afterwards"


def _named(work: Any, name: str, rules: dict[str, str]) -> Any:
    try:
        found = work(name, rules)
    except ValueError:
        return REFUSED
    if isinstance(found, BaseException):
        raise Fault(f"returned a {type(found).__name__}: raise it (raise ValueError(…))")
    return str(found) if isinstance(found, str) else found


def _about_names(compared: list[tuple[Case, Result, Result]]) -> str:
    """Which kind of name comes out wrong."""
    if any(right[_RULES] != theirs[_RULES] for _, right, theirs in compared):
        return ""
    rows = [row for one in compared for row in _wrong_names(*one)]
    refused = [name for name, _, yours in rows if yours == REFUSED]
    let_in = [name for name, wanted, _ in rows if wanted == REFUSED]
    if len(refused) == len(rows) or len(refused) > len(let_in):
        return f"You raise a ValueError for {refused[0]}, and a rule fits it."
    if len(let_in) == len(rows):
        return f"No rule fits {let_in[0]!r}, from its first sign to its last: a ValueError is asked for."
    for _, wanted, yours in rows:
        if not isinstance(yours, str) or REFUSED in (wanted, yours):
            continue
        parts, right = yours.split("."), wanted.split(".")
        apart = [(a, b) for a, b in zip(parts, right, strict=False) if a != b]
        if apart and len(parts) == len(right):
            return f"A part of the name comes out as {apart[0][0]!r}, and should be {apart[0][1]!r}."
        return f"The name comes out as {yours!r}, and should be {wanted!r}."
    return "" if not let_in else f"No rule fits {let_in[0]!r}: a ValueError is asked for."


def _wrong_names(case: Case, right: Result, theirs: Result) -> list[tuple[str, Any, Any]]:
    """Names whose result is another one: (name, the right result, the student's)."""
    names = [case.args[0]] if isinstance(case.args[0], str) else case.args[0]
    keys = [key for key in right if key != _RULES]
    return [(name, right[key], theirs[key]) for name, key in zip(names, keys, strict=True) if theirs[key] != right[key]]


def _finder(
    number: str = r"\d+",
    leaf: str = "weight|bias",
    find: Callable[..., Any] = re.fullmatch,
    stranger: str = "",
    escape: Callable[[str], str] = re.escape,
    fill: Callable[[str, str, str], str] = lambda our, i, leaf: our.replace("{i}", i).replace("*", leaf),
) -> Callable[[str, Rules], str]:
    """Rules as regular expressions; with another idea of {i}, of *, of how to search, of strangers, of filling in."""

    def our_name(name: str, rules: Rules) -> str:
        for their, our in rules.items():
            pattern = escape(their).replace(r"\{i\}", f"(?P<i>{number})").replace(r"\*", f"(?P<leaf>{leaf})")
            if found := find(pattern, name):
                parts = found.groupdict()
                return fill(our, parts.get("i") or "", parts.get("leaf") or "")
        if stranger:
            return name
        raise ValueError(name)

    return our_name


def _first_digit_counts(name: str, rules: Rules) -> str:
    """layer_1 is found in layer_11, whose second digit is lost."""
    return _finder()(re.sub(r"(\d)\d+", r"\1", name), rules)


def _chain(name: str, rules: Rules) -> str:
    """Every rule in pieces, replace after replace."""
    for their, our in rules.items():
        for old, new in zip(re.split(r"\{i\}|\*", their), re.split(r"\{i\}|\*", our), strict=True):
            name = name.replace(old, new) if old else name
    return name


def _rule_returned(name: str, rules: Rules) -> str:
    for their, our in rules.items():
        if re.fullmatch(re.escape(their).replace(r"\{i\}", r"\d+").replace(r"\*", "(weight|bias)"), name):
            return our
    raise ValueError(name)


OUR_NAME = Exercise(
    name="our_name",
    lesson="09",
    points=3,
    right=_finder(),
    cases=_name_cases,
    observe=_naming,
    forbidden=("vit_tutorial.*",),
    explain=_about_names,
    mistakes=(
        Mistake(
            "block 1 found in block 11",
            "You compare the number as text, and 'layer_1' is in 'layer_11'. Compare the whole name, or read all the "
            "digits and make an int of them.",
            _ONE_KEY,
            _first_digit_counts,
        ),
        Mistake(
            "a number of one digit",
            "You look for one digit, or for blocks 0 to 9. B/16 has blocks 0 to 11: allow as many digits as there are.",
            _ONE_KEY,
            _finder(number=r"\d"),
        ),
        Mistake(
            "a chain of replacements",
            "Each rule is applied to what the one before has made, and to any part of a name, so '.output.dense' is "
            "also found inside '.attention.output.dense'. Find the one rule that fits the whole name, then write the "
            "new name from it.",
            _ONE_KEY,
            _chain,
        ),
        Mistake(
            "a block number that takes more than digits",
            "Your {i} also takes '2.attention', so another layer's rule fits. Between the part before {i} and the part "
            "behind it only digits may stand.",
            _TABLE,
            _finder(number=r".+"),
        ),
        Mistake(
            "a star that takes anything",
            "* is weight or bias, nothing else. With yours, head.fc.weight passes for a head, and another architecture "
            "for a ViT.",
            _ONE_KEY,
            _finder(leaf=r".+"),
        ),
        Mistake(
            "a rule found in the middle of a name",
            "student.head.weight is not head.weight. A rule must fit the whole name, from its first sign to its last.",
            _TABLE,
            _finder(find=re.search),
        ),
        Mistake(
            "a stranger that is let through",
            "You return a name that no rule fits. Then a part that the model doesn't have goes unnoticed: raise a "
            "ValueError that names it.",
            "strict=False",
            _finder(stranger="kept"),
        ),
        Mistake(
            "the rule in place of the name",
            "You found the right rule, and returned it as it stands: put the block's number for {i}, and weight or "
            "bias for the star.",
            _ONE_KEY,
            _rule_returned,
        ),
        Mistake(
            "the beginning of a name that is enough",
            "re.match compares from the front, and doesn't mind what follows. re.fullmatch compares the whole name.",
            _TABLE,
            _finder(find=re.match),
        ),
        Mistake(
            "the end of a name that is enough",
            "A rule must fit the whole name, from its first sign to its last: re.fullmatch.",
            _TABLE,
            _finder(find=lambda pattern, name: re.search(pattern + "$", name)),
        ),
        Mistake(
            "a dot that takes any sign",
            "In a pattern a dot fits anything: re.escape(rule) first.",
            _ONE_KEY,
            _finder(escape=lambda rule: rule.replace("*", r"\*").replace("{i}", r"\{i\}")),
        ),
        Mistake(
            "a block number that takes letters, too",
            "Between the part before {i} and the part behind it only digits may stand: \\d+.",
            _TABLE,
            _finder(number=r"\w+"),
        ),
        Mistake(
            "a star that takes any word",
            "* is weight or bias, nothing else.",
            _ONE_KEY,
            _finder(leaf=r"\w+"),
        ),
        Mistake(
            "weights alone",
            "* is weight or bias.",
            _ONE_KEY,
            _finder(leaf="weight"),
        ),
        Mistake(
            "biases alone",
            "* is weight or bias.",
            _ONE_KEY,
            _finder(leaf="bias"),
        ),
        Mistake(
            "blocks 0 to 11 alone",
            "{i} has one digit or more: allow as many as there are.",
            _ONE_KEY,
            _finder(number=r"0|1|2|3|4|5|6|7|8|9|10|11"),
        ),
        Mistake(
            "a block's number that isn't filled in",
            "Put the number that you found for {i}.",
            _ONE_KEY,
            _finder(fill=lambda our, i, leaf: our.replace("*", leaf)),
        ),
        Mistake(
            "a star that isn't filled in",
            "Put weight or bias for the star, as it stands in the name.",
            _ONE_KEY,
            _finder(fill=lambda our, i, leaf: our.replace("{i}", i)),
        ),
        Mistake(
            "a weight in place of every star",
            "Put what stands in the name, weight or bias.",
            _ONE_KEY,
            _finder(fill=lambda our, i, leaf: our.replace("{i}", i).replace("*", "weight")),
        ),
        Mistake(
            "a bias in place of every star",
            "Put what stands in the name, weight or bias.",
            _ONE_KEY,
            _finder(fill=lambda our, i, leaf: our.replace("{i}", i).replace("*", "bias")),
        ),
        Mistake(
            "block 0, whatever the number",
            "Put the number that you found for {i}.",
            _ONE_KEY,
            _finder(fill=lambda our, i, leaf: our.replace("{i}", "0").replace("*", leaf)),
        ),
    ),
)


def check_our_name(fn: Callable[..., str]) -> bool:
    """Check ``fn(name, rules)``: one of their names, and {theirs: ours} -> our name, or a ValueError."""
    return check(OUR_NAME, fn)


# ---- Flax's attention --------------------------------------------------------------------------------------------

Weights = tuple[Tensor, Tensor, Tensor]  # of qkv, (3D, D); its bias, (3D,); of the projection, (D, D)


def _flax_cases() -> list[Case]:
    made = []
    for D, h in [(6, 2), (10, 5), (12, 3), (5, 1), (3, 3), (16, 8)]:
        d = D // h
        shapes = [(D, h, d)] * 3 + [(h, d)] * 3 + [(h, d, D)]
        made.append(Case(f"D={D}, h={h}, d={d}", tuple(normal(*s, seed=seed) for seed, s in enumerate(shapes))))
    return made


def _turn(kernel: Tensor) -> Tensor:
    return kernel.flatten(1).T  # (D, h, d) -> (D, D)


def _turn_back(out: Tensor) -> Tensor:
    return out.flatten(0, 1).T  # (h, d, D) -> (D, D)


def _flax(
    turn: Callable[[Tensor], Tensor] = _turn,
    flatten: Callable[[Tensor], Tensor] = torch.flatten,
    out: Callable[[Tensor], Tensor] = _turn_back,
    order: tuple[int, int, int] = (0, 1, 2),
) -> Callable[..., Weights]:
    """The conversion with another way to turn a kernel, to flatten a bias, to turn the projection, or to stack."""

    def convert(
        query: Tensor, key: Tensor, value: Tensor,
        query_bias: Tensor, key_bias: Tensor, value_bias: Tensor, out_kernel: Tensor,
    ) -> Weights:  # fmt: skip
        kernels, biases = (
            [turn(t) for t in (query, key, value)],
            [flatten(t) for t in (query_bias, key_bias, value_bias)],
        )
        return torch.cat([kernels[i] for i in order]), torch.cat([biases[i] for i in order]), out(out_kernel)

    return convert


def _head_by_head(*given: Tensor) -> Weights:
    """Rows (h, 3, d): q, k, v of head 0, then of head 1."""
    weight, bias, out = _flax()(*given)
    h = given[0].shape[1]
    mixed = [t.unflatten(0, (3, h, -1)).transpose(0, 1).flatten(0, 2) for t in (weight, bias)]
    return mixed[0], mixed[1], out


def _side_by_side(*given: Tensor) -> Weights:
    weight, bias, out = _flax()(*given)
    return weight.unflatten(0, (3, -1)).transpose(0, 1).flatten(1), bias, out  # (D, 3D)


ATTENTION_FROM_FLAX = Exercise(
    name="attention_from_flax",
    lesson="09",
    points=4,
    right=_flax(),
    cases=_flax_cases,
    forbidden=("vit_tutorial.*",),
    observe=call,
    mistakes=(
        Mistake(
            "a kernel that isn't turned",
            "Laid flat, a kernel is (in, out), and torch keeps (out, in). Both are D × D, so no shape tells you: "
            "transpose after flattening the heads.",
            _TURNED,
            _flax(turn=lambda t: t.flatten(1)),
        ),
        Mistake(
            "nothing turned at all",
            "You flattened all the kernels, and transposed none, the projection's neither. Flax computes x @ kernel, "
            "torch x @ weight.T.",
            _TURNED,
            _flax(turn=lambda t: t.flatten(1), out=lambda t: t.flatten(0, 1)),
        ),
        Mistake(
            "a projection that isn't turned",
            "Queries, keys and values are right. The projection, too, is (in, out) in Flax: transpose it.",
            _WAYS,
            _flax(out=lambda t: t.flatten(0, 1)),
        ),
        Mistake(
            "numbers before heads",
            "Row r of q must be number r % d of head r // d: heads lie together. Yours are interleaved, which "
            "is what reversing all three axes does. Flatten (h, d) in this order, then transpose.",
            _WAYS,
            _flax(turn=lambda t: t.permute(2, 1, 0).flatten(0, 1), flatten=lambda t: t.T.flatten()),
        ),
        Mistake(
            "numbers before heads in the weights alone",
            "Your biases are right, your rows of weights are not: row r of q must be number r % d of head r // d. "
            "Flatten (h, d) in this order, then transpose.",
            _WAYS,
            _flax(turn=lambda t: t.permute(2, 1, 0).flatten(0, 1)),
        ),
        Mistake(
            "heads mixed in the biases",
            "A bias (h, d) is flattened as it is, head after head. You transposed it first.",
            _TURNED,
            _flax(flatten=lambda t: t.T.flatten()),
        ),
        Mistake(
            "numbers before heads in the projection",
            "Columns of the projection take the heads' outputs as they are merged, head after head: flatten (h, d) of "
            "(h, d, D) in this order, then transpose.",
            "Check yourself",
            _flax(out=lambda t: t.permute(2, 1, 0).flatten(1)),
        ),
        Mistake(
            "inputs that got between heads and numbers",
            "Moving the heads to the front leaves (h, D, d), and flattening that mixes inputs with outputs. The inputs "
            "must end up last: (h, d, D).",
            _TURNED,
            _flax(turn=lambda t: t.transpose(0, 1).reshape(t.shape[0], -1)),
        ),
        Mistake(
            "the order k, q, v",
            "Our rows are q, then k, then v. You stacked the keys first.",
            _WAYS,
            _flax(order=(1, 0, 2)),
        ),
        Mistake(
            "the order q, v, k",
            "Our rows are q, then k, then v. You stacked the values before the keys.",
            _ONE_KEY,
            _flax(order=(0, 2, 1)),
        ),
        Mistake(
            "the order v, k, q",
            "Our rows are q, then k, then v. You stacked them the other way round.",
            _WAYS,
            _flax(order=(2, 1, 0)),
        ),
        Mistake(
            "q, k and v stacked for each head",
            "You stacked q, k, v of head 0, then of head 1. Ours are (3, h, d): all queries, all keys, all values.",
            _ONE_KEY,
            _head_by_head,
        ),
        Mistake(
            "q, k and v side by side",
            "You have (D, 3D). Outputs are rows, so the three stand one below the other: concatenate along axis 0.",
            _ONE_KEY,
            _side_by_side,
        ),
        Mistake(
            "the order k, v, q",
            "Our rows are q, then k, then v.",
            _WAYS,
            _flax(order=(1, 2, 0)),
        ),
        Mistake(
            "the order v, q, k",
            "Our rows are q, then k, then v.",
            _WAYS,
            _flax(order=(2, 0, 1)),
        ),
        Mistake(
            "the queries three times",
            "q, k and v have a kernel each.",
            _ONE_KEY,
            _flax(order=(0, 0, 0)),
        ),
        Mistake(
            "inputs and heads in the wrong order",
            "Flatten the heads of (D, h, d), so that inputs stay in front, and transpose then. Moving the heads "
            "to the front first mixes both.",
            _TURNED,
            _flax(turn=lambda t: t.transpose(0, 1).reshape(t.shape[0], -1).T),
        ),
        Mistake(
            "outputs that got between heads and numbers",
            "(h, d, D) is flattened to (h · d, D), and transposed. You moved the outputs in between.",
            _TURNED,
            _flax(out=lambda t: t.transpose(1, 2).reshape(t.shape[2], -1)),
        ),
        Mistake(
            "numbers before heads everywhere",
            "Row r of q must be number r % d of head r // d, and the projection's columns alike: heads lie "
            "together. Reversing all three axes interleaves them.",
            _WAYS,
            _flax(
                turn=lambda t: t.permute(2, 1, 0).flatten(0, 1),
                flatten=lambda t: t.T.flatten(),
                out=lambda t: t.permute(2, 1, 0).flatten(1),
            ),
        ),
    ),
)


def check_attention_from_flax(fn: Callable[..., Weights]) -> bool:
    """Check ``fn(query, key, value, query_bias, key_bias, value_bias, out)``.

    Kernels (D, h, d) and biases (h, d), three times each, and (h, d, D) -> (3D, D), (3D,) and (D, D).
    """
    return check(ATTENTION_FROM_FLAX, fn)


# ---- The teacher -------------------------------------------------------------------------------------------------

State = dict[str, Tensor]


def _dino(prefix: str, student: str, first: int = 0, turned: bool = False) -> dict[str, Any]:
    """A small checkpoint as DINO's training writes it; or all of it in another order, the head before the backbone."""
    body = (
        "cls_token",
        "patch_embed.backbone.conv.weight",
        "blocks.0.norm1.weight",
        "norm.weight",
        "norm.bias",
        "blocks.0.head_norm.weight",
        "blocks.0.head.module.weight",
        "backbone.proj.weight",
        "module.scale",
        "heads.scale",
        "head.bias",  # of the backbone, for it comes behind its prefix
        *(() if prefix else ("pos_embed",)),  # nothing of the first file belongs to the second
    )
    heads = ("head.mlp.0.weight", "head.last_layer.weight", "head.backbone.weight", "backbones.weight", "loss.center",
             "module_backbone.scale", "model.backbone.scale")  # fmt: skip

    def network(before: str, seed: int) -> State:
        sizes = {"norm": (3,), "cls_": (1, 1, 3), "modu": ()}
        rows = {
            f"{before}backbone.{name}": normal(*sizes.get(name[:4], (2, 3)), seed=seed + i)
            for i, name in enumerate(body)
        }
        others = {f"{before}{name}": normal(4, seed=seed + i) for i, name in enumerate(heads)}
        return others | rows if turned else rows | others

    masked = {f"{student}backbone.mask_token": normal(1, 3, seed=first + 99)}  # the student alone has one
    whole = {"student": network(student, first) | masked, "teacher": network(prefix, first + 100), "epoch": 300}
    return {key: whole[key] for key in ("teacher", "epoch", "student")} if turned else whole


def _teacher_cases() -> list[Case]:
    return [
        Case("teacher's names begin with 'backbone.'", (_dino("", "module."),)),
        Case("teacher's names begin with 'module.backbone.'", (_dino("module.", "module.", 200),)),
        Case("the same in another order, the student's with 'backbone.'", (_dino("module.", "", 400, turned=True),)),
    ]


def _contents(work: Any, case: Case) -> Result:
    checkpoint = copied(case.args)[0]
    parts = {key: dict(part) if isinstance(part, dict) else part for key, part in checkpoint.items()}
    found = work(checkpoint)
    if found is None:
        raise Fault("the result is None: is the return missing?")
    if not isinstance(found, Mapping):
        raise Fault(f"returned {kind(found)}, expected a dictionary of names and tensors")
    kept = {str(name): value for name, value in found.items()}
    said = "changed" if not _same_parts(checkpoint, parts) else "as it was"
    if said == "as it was" and changed([checkpoint], case.args):
        said = "with other numbers in its tensors"
    return {
        "names": sorted(kept),
        "tensors": [kept[name] for name in sorted(kept)],
        "the given dictionary afterwards": Words(said),
    }


def _same_parts(now: Any, before: Any) -> bool:
    """Whether a file's dictionaries hold the very things that they held."""
    if not isinstance(before, dict):
        return now is before
    return list(now) == list(before) and all(_same_parts(now[key], before[key]) for key in before)


def _about_a_state(compared: list[tuple[Case, Result, Result]]) -> str:
    """Which names are missing, and which are too many."""
    for _, right, theirs in compared:
        lost = [name for name in right["names"] if name not in theirs["names"]]
        more = [name for name in theirs["names"] if name not in right["names"]]
        said = [f"There is no {lost[0]} (missing: {len(lost)} of {len(right['names'])})."] if lost else []
        said += [f"{more[0]} shouldn't be there (too many: {len(more)})."] if more else []
        if said:
            return " ".join(said)
    return ""


def _bare(name: str) -> str:
    return name.removeprefix("module.").removeprefix("backbone.")


def _extract(
    who: str = "teacher",
    keep: Callable[[str], bool] = lambda name: name.removeprefix("module.").startswith("backbone."),
    cut: Callable[[str], str] = _bare,
) -> Callable[[Mapping[str, Any]], State]:
    return lambda checkpoint: {cut(name): t for name, t in checkpoint[who].items() if keep(name)}


TEACHER = Exercise(
    name="teacher",
    lesson="09",
    points=2,
    right=_extract(),
    cases=_teacher_cases,
    observe=_contents,
    forbidden=("vit_tutorial.*",),
    explain=_about_a_state,
    mistakes=(
        Mistake(
            "the student's weights",
            "Both fit, and both give answers. The teacher is the student's moving average, and the one that DINO "
            "evaluates and publishes.",
            _LIBRARIES,
            _extract(who="student"),
        ),
        Mistake(
            "a prefix cut out everywhere",
            "replace() also cuts inside a name: patch_embed.backbone.conv.weight has lost its middle. Cut at the "
            "front only: removeprefix.",
            _LIBRARIES,
            _extract(cut=lambda name: name.replace("module.", "").replace("backbone.", "")),
        ),
        Mistake(
            "lstrip in place of removeprefix",
            "lstrip('backbone.') takes away letters, as long as they are among b, a, c, k, o, n, e and the dot: "
            "'norm' becomes 'rm'. removeprefix cuts the word.",
            _LIBRARIES,
            _extract(cut=lambda name: name.removeprefix("module.").lstrip("backbone.")),  # noqa: B005
        ),
        Mistake(
            "a head that came along",
            "DINO's head is for its training: a few layers that our model doesn't have. Only names of the backbone go "
            "into the dictionary.",
            _LIBRARIES,
            _extract(keep=lambda name: True),
        ),
        Mistake(
            "a prefix that was left",
            "Some files have 'module.' before 'backbone.', from training on several machines. Yours still have it.",
            _LIBRARIES,
            _extract(cut=lambda name: name.removeprefix("backbone.")),
        ),
        Mistake(
            "names with the prefix left out",
            "You kept only names that begin with 'backbone.'. With 'module.' before it nothing is left, and nothing "
            "complained.",
            _LIBRARIES,
            _extract(keep=lambda name: name.startswith("backbone.")),
        ),
        Mistake(
            "names as they were",
            "You return the backbone's tensors under the long names. Cut 'module.' and 'backbone.' off their front.",
            _LIBRARIES,
            _extract(cut=lambda name: name),
        ),
        Mistake(
            "a mean of teacher and student",
            "The teacher is an average over time already. Take its weights as they are.",
            _LIBRARIES,
            lambda checkpoint: {
                name: (t + _extract(who="student")(checkpoint)[name]) / 2 for name, t in _extract()(checkpoint).items()
            },
        ),
        Mistake(
            "the teacher as it is",
            "You return all of the teacher, its head and the prefixes included. Only the backbone is wanted, "
            "without prefix.",
            _LIBRARIES,
            lambda checkpoint: checkpoint["teacher"],
        ),
        Mistake(
            "the backbone's name cut at its last place",
            "Cut at the front only, once: removeprefix. A name may hold the word a second time.",
            _LIBRARIES,
            _extract(cut=lambda name: name.rpartition("backbone.")[2]),
        ),
        Mistake(
            "'module.' cut off, and 'backbone.' left",
            "Cut both off the front, first 'module.', then 'backbone.'.",
            _LIBRARIES,
            _extract(cut=lambda name: name.removeprefix("module.")),
        ),
    ),
)


def check_teacher(fn: Callable[..., State]) -> bool:
    """Check ``fn(checkpoint)``: DINO's whole training checkpoint -> the teacher's backbone, under timm's names."""
    return check(TEACHER, fn)


# ---- Pixels ------------------------------------------------------------------------------------------------------


def _pixels(H: int, W: int) -> Tensor:
    generator = torch.Generator().manual_seed(H * W)
    most = 250 if H * W > 2 else 2  # the smallest picture is nearly black: whoever guesses the range from it is wrong
    return torch.randint(0, most, (H, W, 3), generator=generator, dtype=torch.uint8)


def _prepare_cases() -> list[Case]:
    imagenet, uneven = IMAGENET, ((0.5, 0.4, 0.3), (0.25, 0.2, 0.02))
    asked = [(2, 1, imagenet), (4, 6, uneven), (5, 3, imagenet), (8, 2, uneven)]
    made = [Case(f"{H} × {W} pixels, mean={mean}", (_pixels(H, W), mean, std)) for H, W, (mean, std) in asked]
    every = torch.arange(256 * 3, dtype=torch.int64).mul(7).remainder(256).to(torch.uint8).view(16, 16, 3)
    narrow = (0.5, 0.4, 0.6), (0.25, 1e-4, 0.2)  # what is added to the deviation is seen
    return [
        *made,
        Case("16 × 16 pixels, all bytes from 0 to 255", (every, *imagenet)),
        Case("1 × 7 pixels, a deviation of 0.0001", (_pixels(1, 7), *narrow)),
    ]


def _column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)[:, None, None]  # (C, 1, 1)


def _prepare(
    turn: Callable[[Tensor], Tensor] = lambda x: x.permute(2, 0, 1),
    scale: Callable[[Tensor], Tensor] = lambda x: x / 255,
    finish: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, mean, std: (x - mean) / std,
    shape: Callable[[tuple[float, ...]], Tensor] = _column,
) -> Callable[..., Tensor]:
    def prepare(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
        return finish(scale(turn(pixels).float()), shape(mean), shape(std))[None]

    return prepare


def _own_statistics(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    x = pixels.permute(2, 0, 1) / 255  # (C, H, W)
    return ((x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True))[None]


PREPARE = Exercise(
    name="prepare",
    lesson="09",
    points=2,
    right=_prepare(),
    cases=_prepare_cases,
    forbidden=("vit_tutorial.*",),
    observe=call,
    mistakes=(
        Mistake(
            "pixels between 0 and 255",
            "Mean and deviation are of pixels between 0 and 1. Divide by 255 first; without it the numbers are some "
            "hundred times too large, and the answers a guess.",
            _PIXELS,
            _prepare(scale=lambda x: x),
        ),
        Mistake(
            "a normalisation before the scaling",
            "You subtract the mean from pixels between 0 and 255, and divide by 255 afterwards: the mean hardly counts "
            "then. Divide by 255 first.",
            _PIXELS,
            _prepare(scale=lambda x: x, finish=lambda x, mean, std: (x - mean) / std / 255),
        ),
        Mistake(
            "a reshape in place of a permute",
            "reshape reads the numbers as they lie, red, green, blue of one pixel after the other, so your colours are "
            "mixed. permute(2, 0, 1) brings the channels to the front.",
            "The pixels",
            _prepare(turn=lambda x: x.reshape(x.shape[2], *x.shape[:2])),
        ),
        Mistake(
            "height and width exchanged",
            "permute(2, 1, 0) gives (C, W, H): the picture lies on its side. It is permute(2, 0, 1).",
            _PIXELS,
            _prepare(turn=lambda x: x.permute(2, 1, 0)),
        ),
        Mistake(
            "blue first",
            "You reversed the channels. The pixels are red, green, blue already, as the weights want them (cv2.imread "
            "would give blue first).",
            _PIXELS,
            _prepare(turn=lambda x: x.permute(2, 0, 1).flip(0)),
        ),
        Mistake(
            "mean and deviation exchanged",
            "Subtract the mean, then divide by the deviation. You did it with the two exchanged.",
            _PIXELS,
            _prepare(finish=lambda x, mean, std: (x - std) / mean),
        ),
        Mistake(
            "a multiplication by the deviation",
            "Divide by the deviation, so that the numbers spread by about 1. Multiplying is the way back to a picture.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: (x - mean) * std),
        ),
        Mistake(
            "a mean that is subtracted last",
            "You divide first and subtract the mean then. It is (x - mean) / std: mind the brackets.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: x / std - mean),
        ),
        Mistake(
            "no normalisation",
            "Pixels between 0 and 1 are not what the model was trained on: subtract the mean, divide by the deviation.",
            _PIXELS,
            _prepare(finish=lambda x, mean, std: x),
        ),
        Mistake(
            "the picture's own mean and deviation",
            "You normalise each picture by itself, so a dark one becomes as bright as any. The weights come with fixed "
            "numbers: take those.",
            "The pixels",
            _own_statistics,
        ),
        Mistake(
            "means that run along the width",
            "A tensor of three numbers is lined up with the last axis, the width; on a picture three pixels wide "
            "nothing complains. Give mean and deviation the shape (C, 1, 1).",
            "The pixels",
            _prepare(shape=torch.tensor),
        ),
        Mistake(
            "a division by 256",
            "A byte goes from 0 to 255: divide by 255, so that white is 1.",
            _PIXELS,
            _prepare(scale=lambda x: x / 256),
        ),
        Mistake(
            "a division by the picture's largest number",
            "White is 255, whether the picture has white in it or not.",
            _PIXELS,
            _prepare(scale=lambda x: x / x.max()),
        ),
        Mistake(
            "pixels from -1 to 1 before the normalisation",
            "Mean and deviation are of pixels from 0 to 1: divide by 255, and nothing else.",
            _PIXELS,
            _prepare(scale=lambda x: x / 127.5 - 1),
        ),
        Mistake(
            "a division by 255, twice",
            "Divide once.",
            _PIXELS,
            _prepare(scale=lambda x: x / 255 / 255),
        ),
        Mistake(
            "a mean added in place of subtracted",
            "(x - mean) / std.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: (x + mean) / std),
        ),
        Mistake(
            "the way back",
            "x * std + mean makes a picture of normalised numbers. Here you go the other way: (x - mean) / std.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: x * std + mean),
        ),
        Mistake(
            "a missing bracket",
            "x - mean / std divides the mean alone: (x - mean) / std.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: x - mean / std),
        ),
        Mistake(
            "a missing mean",
            "Subtract the mean first.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: x / std),
        ),
        Mistake(
            "a missing deviation",
            "Divide by the deviation.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: x - mean),
        ),
        Mistake(
            "the wrong sign",
            "(x - mean) / std, not (mean - x) / std.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: (mean - x) / std),
        ),
        Mistake(
            "a division by the variance",
            "The deviation itself divides, not its square.",
            "The pixels",
            _prepare(finish=lambda x, mean, std: (x - mean) / std**2),
        ),
        Mistake(
            "one mean for all channels",
            "Each channel has its own mean and its own deviation.",
            "The pixels",
            _prepare(shape=lambda values: torch.tensor(values).mean()),
        ),
        Mistake(
            "the first channel's numbers for all",
            "Each channel has its own mean and its own deviation.",
            "The pixels",
            _prepare(shape=lambda values: torch.tensor(values)[0]),
        ),
        Mistake(
            "means in the reverse order",
            "The channels are red, green, blue, and so are the numbers.",
            "The pixels",
            _prepare(shape=lambda values: torch.tensor(values).flip(0)[:, None, None]),
        ),
        Mistake(
            "ImageNet's numbers, whatever comes",
            "Use the arguments mean and std: other weights have others.",
            "The pixels",
            lambda pixels, mean, std: _prepare()(pixels, *IMAGENET),
        ),
        Mistake(
            "a whole division",
            "// cuts off what is behind the point, so that nearly all pixels become 0: divide by /.",
            _PIXELS,
            _prepare(scale=lambda x: x // 255),
        ),
        Mistake(
            "a picture without colours",
            "You average the channels. The weights want three.",
            "The pixels",
            _prepare(turn=lambda x: x.permute(2, 0, 1).float().mean(dim=0, keepdim=True).expand(3, -1, -1)),
        ),
        Mistake(
            "a mirrored picture",
            "Left stays left.",
            "The pixels",
            _prepare(turn=lambda x: x.permute(2, 0, 1).flip(2)),
        ),
        Mistake(
            "a picture that stands on its head",
            "Row 0 is the top.",
            "The pixels",
            _prepare(turn=lambda x: x.permute(2, 0, 1).flip(1)),
        ),
    ),
)


def check_prepare(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(pixels, mean, std)``: uint8 (H, W, C), and C numbers twice -> (1, C, H, W), normalised."""
    return check(PREPARE, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _head_cases() -> list[Case]:
    return [
        Case(
            f"K={K}, D={D}",
            (normal(K, D, seed=1), normal(K, seed=2), normal(K, D, seed=3), normal(K, seed=4)),
        )
        for K, D in [
            (3, 5),
            (5, 3),
            (7, 6),
            (6, 6),
            (1, 3),
        ]  # no length of 2 or 4: a half would look like 1 / 2 or 1 / √4
    ]


def _joined(
    weights: Callable[[Tensor, Tensor], Tensor] = lambda a, b: torch.cat([a, b], dim=1) / 2,
    biases: Callable[[Tensor, Tensor], Tensor] = lambda a, b: (a + b) / 2,
) -> Callable[..., tuple[Tensor, Tensor]]:
    def joined_heads(weight: Tensor, bias: Tensor, dist_weight: Tensor, dist_bias: Tensor) -> tuple[Tensor, Tensor]:
        return weights(weight, dist_weight), biases(bias, dist_bias)

    return joined_heads


JOINED_HEADS = Exercise(
    name="joined_heads",
    lesson="09",
    points=2,
    right=_joined(),
    cases=_head_cases,
    forbidden=("vit_tutorial.*",),
    observe=call,
    mistakes=(
        Mistake(
            "two heads summed",
            "A linear layer on both tokens side by side adds the two logits up. DeiT takes their mean: halve all. The "
            "top class would be the same, the confidence would not.",
            _LIBRARIES,
            _joined(lambda a, b: torch.cat([a, b], dim=1), lambda a, b: a + b),
        ),
        Mistake(
            "biases summed",
            "You halved the weights, and added the biases. They are logits, too: take their mean.",
            _LIBRARIES,
            _joined(biases=lambda a, b: a + b),
        ),
        Mistake(
            "weights that are not halved",
            "Your bias is the mean, your weights still sum the two logits: halve them as well.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([a, b], dim=1)),
        ),
        Mistake(
            "a mean of the two matrices",
            "(W + W') / 2 is (K, D), one head for one token. The heads read different tokens, so each keeps its own "
            "columns: (K, 2D).",
            _ONE_KEY,
            _joined(weights=lambda a, b: (a + b) / 2),
        ),
        Mistake(
            "heads one below the other",
            "2K rows are 2K classes. The inputs are what is joined, and inputs are columns: concatenate along axis 1.",
            _TURNED,
            _joined(weights=lambda a, b: torch.cat([a, b]) / 2),
        ),
        Mistake(
            "the distillation token first",
            "The class token comes first, its columns as well.",
            _TURNED,
            _joined(weights=lambda a, b: torch.cat([b, a], dim=1) / 2),
        ),
        Mistake(
            "columns of the two heads in turn",
            "The input is [class token; distillation token], one after the other, so the columns are, too.",
            _TURNED,
            _joined(weights=lambda a, b: torch.stack([a, b], dim=2).flatten(1) / 2),
        ),
        Mistake(
            "one head twice",
            "Both halves of your weights are the class token's. The second half belongs to the distillation head.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([a, a], dim=1) / 2),
        ),
        Mistake(
            "the first head's half alone halved",
            "Both heads count one half.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([a / 2, b], dim=1)),
        ),
        Mistake(
            "the second head's half alone halved",
            "Both heads count one half.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([a, b / 2], dim=1)),
        ),
        Mistake(
            "quarters",
            "The mean of two is their sum, divided by 2.",
            _LIBRARIES,
            _joined(lambda a, b: torch.cat([a, b], dim=1) / 4, lambda a, b: (a + b) / 4),
        ),
        Mistake(
            "a sum of the two matrices",
            "(W + W') is (K, D), one head for one token. Each keeps its own columns: (K, 2D).",
            _ONE_KEY,
            _joined(weights=lambda a, b: a + b),
        ),
        Mistake(
            "a mean of the two matrices, twice",
            "The heads read different tokens, so each keeps its own columns.",
            _ONE_KEY,
            _joined(weights=lambda a, b: ((a + b) / 2).repeat(1, 2)),
        ),
        Mistake(
            "rows of the two heads in turn",
            "Concatenate along axis 1: each class has one row, with the columns of both heads.",
            _TURNED,
            _joined(weights=lambda a, b: torch.cat([a, b]).reshape(a.shape[0], -1) / 2),
        ),
        Mistake(
            "the distillation head twice",
            "Both halves of your weights are the distillation head's. The first half belongs to the class token's.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([b, b], dim=1) / 2),
        ),
        Mistake(
            "a distillation head of zeros",
            "Its weights belong into the second half.",
            _LIBRARIES,
            _joined(weights=lambda a, b: torch.cat([a, 0 * b], dim=1) / 2),
        ),
        Mistake(
            "the class token's bias alone",
            "Both biases count one half.",
            _LIBRARIES,
            _joined(biases=lambda a, b: a),
        ),
        Mistake(
            "half of the class token's bias alone",
            "Both biases count one half: (b + b') / 2.",
            _LIBRARIES,
            _joined(biases=lambda a, b: a / 2),
        ),
        Mistake(
            "the distillation head's bias alone",
            "Both biases count one half: (b + b') / 2.",
            _LIBRARIES,
            _joined(biases=lambda a, b: b),
        ),
        Mistake(
            "half of the distillation head's bias alone",
            "Both biases count one half: (b + b') / 2.",
            _LIBRARIES,
            _joined(biases=lambda a, b: b / 2),
        ),
        Mistake(
            "no bias",
            "For t = t' = 0 the layer gives (b + b') / 2.",
            _LIBRARIES,
            _joined(biases=lambda a, b: torch.zeros_like(a)),
        ),
        Mistake(
            "a missing bracket in the bias",
            "b + b' / 2 halves the second one alone: (b + b') / 2.",
            _LIBRARIES,
            _joined(biases=lambda a, b: a + b / 2),
        ),
        Mistake(
            "a difference of the two heads",
            "The answer is the mean of the two results: add.",
            _LIBRARIES,
            _joined(lambda a, b: torch.cat([a, -b], dim=1) / 2, lambda a, b: (a - b) / 2),
        ),
        Mistake(
            "biases side by side",
            "There are K logits, so there are K biases: their mean.",
            _TURNED,
            _joined(biases=lambda a, b: torch.cat([a, b]) / 2),
        ),
    ),
)


def check_joined_heads(fn: Callable[..., tuple[Tensor, Tensor]]) -> bool:
    """Check ``fn(weight, bias, dist_weight, dist_bias)``: (K, D), (K,), twice -> (K, 2D) and (K,)."""
    return check(JOINED_HEADS, fn)
