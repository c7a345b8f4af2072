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
    Hashed,
    Result,
    Words,
    call,
    changed,
    check,
    copied,
    normal,
    section,
)
from vit_tutorial.checks.pencil import Question, pencil
from vit_tutorial.weights.names import TIMM, TORCHVISION, TRANSFORMERS_4
from vit_tutorial.weights.sources import IMAGENET

_ONE_KEY = "3 · One key by hand"
_TURNED = "4 · A kernel that has to be transposed"
_LIBRARIES = "5 · The proof: equal logits in modules that we didn't write"
_PIXELS = "6 · What the file doesn't say"

# ---- With a pencil -----------------------------------------------------------------------------------------------

CHECKPOINT_NUMBERS = pencil(
    "checkpoint_numbers",
    lesson="09",
    points=4,
    tolerance=0.002,  # -1.203 is not -1.2, but a division by 256
    questions={
        "entries": Question(
            Hashed("da61f127f1"),
            "Two norms, qkv, projection and two layers of the MLP, each with weight and bias: one block. Then what "
            "stands before the blocks, and behind them.",
            "Check yourself",
            {
                60: "the blocks alone. 5 · 12 = 60 are the blocks. Class token, positions, patch embedding, last "
                "norm and head are in the file, too, the last three with weight and bias.",
            },
        ),
        "left as they began": Question(
            Hashed("cd285d99bd"),
            "All entries but those of the blocks.",
            "strict=False.",
            {
                0: "an error that never comes. strict=False means that no name has to fit: a tensor whose name isn't "
                "found keeps the numbers it began with, and nothing tells you unless you read what load_state_dict "
                "returns.",
            },
        ),
        "row 3 of q": Question(
            Hashed("9713aec933 a2cbf48524 06f4d94ffa dbbdda18dc 662847b87d a16707d4fd", "list"),
            "Row 3 is output 3: which head, and which number within it? Its six numbers belong to the inputs 0 to 5.",
            _TURNED,
            {
                (3, 13, 103, 113, 203, 213): "a kernel that isn't turned. You took row 3 of the kernel laid flat: "
                "what input 3 gives to every output. A row of torch's weight belongs to one output, and holds one "
                "number for each input.",
                (10, 11, 12, 13, 14, 15): "numbers before heads. Heads lie together: rows 0 and 1 are head 0, rows 2 "
                "and 3 head 1. You went through the heads first.",
            },
        ),
        "axes": Question(
            Hashed("d26fd4112e d717cb32ff 91627fa46b 8422724cf8", "tuple"),
            "torch's kernel is (D, C, height, width). For each of these four say which axis of (P, P, C, D) it is.",
            _TURNED,
            {
                (2, 3, 0, 1): "inputs before outputs. torch keeps (out, in, height, width): the output's axis D, "
                "which is Flax's last, comes first.",
            },
        ),
        "pixel": Question(
            Hashed("632c3be079@0.004+0.002"),
            "51 of 255 first becomes a number from 0 to 1. Then less the mean, divided by the standard deviation.",
            _PIXELS,
            {
                (51 - 0.5) / 0.25: "a pixel between 0 and 255. The mean and standard deviation are of pixels between "
                "0 and 1: divide by 255 before you subtract the mean.",
            },
        ),
        "factor": Question(
            Hashed("8dbc16b55a@0.004+0.0026"),
            "What the right norm divides by is √(v + 10⁻⁶), what the wrong one divides by is √(v + 10⁻⁵).",
        ),
    },
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
    layer = {
        "layer{i}.fc.*": "blocks.{i}.mlp.fc1.*",
        "layers.{i}.scale": "blocks.{i}.scale",
        "tower2.layer{i}.out.*": "blocks.{i}.mlp.fc2.*",
        "head.*": "head.*",
    }
    names = {
        "torchvision's rules": (vision, _TORCHVISION_NAMES),
        "Hugging Face's rules": (
            faces,
            ("vit.encoder.layer.2.attention.output.dense.weight", "encoder.layer.2.attention.output.dense.weight"),
        ),
        "timm's rules": (
            timm,
            ("head.fc.weight", "student.head.weight", "head.weight.old", "blocks.7.attn.qkv.weight"),
        ),
        "rules of one layer": (
            layer,
            (
                "layer3xfc.bias",
                "Head.weight",
                "head.weight",
                "layer7.fc.weight",
                "layers.4.scale",
                "tower2.layer5.out.bias",
            ),
        ),
        "another rule": ({"head.*": "Probe.*"}, ("head.weight", "layer3.fc.bias")),
        "no rule at all": ({}, ("head.weight",)),
        "a rule for what another one makes": ({"head.*": "probe.*", "probe.*": "spare.*"}, ("head.weight",)),
    }
    return [
        *(Case(f"{name}, {whose}", (name, rules)) for whose, (rules, some) in names.items() for name in some),
        Case(f"{len(_NEARLY)} names that no rule of one layer fits", (_NEARLY, layer)),
        Case(f"{len(_NEARLY_THEIRS)} names that none of torchvision's rules fits", (_NEARLY_THEIRS, vision)),
    ]


_TORCHVISION_NAMES = (
    "encoder.layers.encoder_layer_0.ln_1.weight", "encoder.layers.encoder_layer_1.self_attention.in_proj_bias",
    "encoder.layers.encoder_layer_11.mlp.3.bias", "encoder.layers.encoder_layer_12.mlp.0.bias",
    "encoder.layers.encoder_layer_20.ln_2.weight", "class_token", "encoder.layers.encoder_layer_99.ln_1.bias",
    "encoder.layers.encoder_layer_3.mlp.3.weight", "heads.head.bias",
)  # fmt: skip


# Each is a name that a rule nearly fits: with something before it, behind it, or in place of {i} or of *; or the rule.
_NEARLY = (
    " head.weight", "\thead.weight", "head.weight\n", "head.weight ", "head.*", "layers.{i}.scale", "layer{i}.fc.*",
    "layerx.fc.weight", "head.weights", "head.weight_g", "head.", "head.scale", "head.gain", "module.head.weight",
    "subhead.weight", "heads.weight", "model.head.weight", "backbone.head.weight", "head.preweight",
    "head.biases", "head.gamma", "head.kernel", "head.running_mean", "3.fc.bias", "layer3.1.fc.bias", "layer3a.fc.bias",
    "layera.fc.bias", "layer3.fc", "layers.4.scale.weight", "layers.4", "", "head.Weight", "head.BIAS", "head.bias.",
    ".head.bias", "head..bias", "head_bias", "layer 3.fc.bias", "layer+3.fc.bias", "layer1_0.fc.bias", "layer3_fc.bias",
    "layer.3.fc.bias", "layers.4.scale.", "layers.x.scale", "head.weightbias", "head.weight.bias", "head.w", "head.b",
)  # fmt: skip
_NEARLY_THEIRS = (
    "embed.cls_token", "blocks.0.norm1.weight", "head.weight", "encoder.layers.encoder_layer_1b.ln_1.weight",
    "encoder.layers.encoder_layer_.mlp.3.bias", "encoder.layers.encoder_layer_-1.ln_1.bias", "class_token.weight",
    "class.token", "class_weight", "heads.head.*", "class_token\n", "encoder.layers.3.ln_1.weight",
    "layers.encoder_layer_3.ln_1.weight", "encoder.ln.gamma",
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
        return f"No rule fits {let_in[0]!r} from its first character to its last: raise a ValueError."
    for _, wanted, yours in rows:
        if not isinstance(yours, str) or REFUSED in (wanted, yours):
            continue
        parts, right = yours.split("."), wanted.split(".")
        apart = [(a, b) for a, b in zip(parts, right, strict=False) if a != b]
        if apart and len(parts) == len(right):
            return f"A part of the name comes out as {apart[0][0]!r}, and should be {apart[0][1]!r}."
        return f"The name comes out as {yours!r}, and should be {wanted!r}."
    return "" if not let_in else f"No rule fits {let_in[0]!r}: raise a ValueError."


def _wrong_names(case: Case, right: Result, theirs: Result) -> list[tuple[str, Any, Any]]:
    """Names whose result is another one: (name, the right result, the student's)."""
    names = [case.args[0]] if isinstance(case.args[0], str) else case.args[0]
    keys = [key for key in right if key != _RULES]
    return [(name, right[key], theirs[key]) for name, key in zip(names, keys, strict=True) if theirs[key] != right[key]]


def _finder(
    escape: Callable[[str], str] = re.escape,
) -> Callable[[str, Rules], str]:
    """Rules as regular expressions; with another idea of a dot."""

    def our_name(name: str, rules: Rules) -> str:
        for their, our in rules.items():
            pattern = escape(their).replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\*", "(?P<leaf>weight|bias)")
            if found := re.fullmatch(pattern, name):
                parts = found.groupdict()
                return our.replace("{i}", parts.get("i") or "").replace("*", parts.get("leaf") or "")
        raise ValueError(name)

    return our_name


def _chain(name: str, rules: Rules) -> str:
    """Every rule in pieces, replace after replace."""
    for their, our in rules.items():
        for old, new in zip(re.split(r"\{i\}|\*", their), re.split(r"\{i\}|\*", our), strict=True):
            name = name.replace(old, new) if old else name
    return name


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
        *section(
            _ONE_KEY,
            (
                "a chain of replacements",
                "Each rule is applied to what the one before has made, and to any part of a name, so '.output.dense' "
                "is also found inside '.attention.output.dense'. Find the one rule that fits the whole name, then "
                "write the new name from it.",
                _chain,
            ),
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


def _flax(
    turn: Callable[[Tensor], Tensor] = lambda kernel: kernel.flatten(1).T,
    out: Callable[[Tensor], Tensor] = lambda out: out.flatten(0, 1).T,
) -> Callable[..., Weights]:
    """The conversion with another way to turn a kernel (D, h, d), or the projection."""

    def convert(
        query: Tensor, key: Tensor, value: Tensor,
        query_bias: Tensor, key_bias: Tensor, value_bias: Tensor, out_kernel: Tensor,
    ) -> Weights:  # fmt: skip
        weight = torch.cat([turn(kernel) for kernel in (query, key, value)])
        return weight, torch.cat([bias.flatten() for bias in (query_bias, key_bias, value_bias)]), out(out_kernel)

    return convert


ATTENTION_FROM_FLAX = Exercise(
    name="attention_from_flax",
    lesson="09",
    points=4,
    right=_flax(),
    cases=_flax_cases,
    forbidden=("vit_tutorial.*",),
    observe=call,
    mistakes=(
        *section(
            _TURNED,
            (
                "a kernel that isn't turned",
                "Laid flat, a kernel is (in, out), and torch keeps (out, in). Both are D × D, so no shape tells you: "
                "transpose after flattening the heads.",
                _flax(turn=lambda t: t.flatten(1)),
            ),
            (
                "inputs that got between heads and numbers",
                "Moving the heads to the front leaves (h, D, d), and flattening that mixes inputs with outputs. The "
                "inputs must end up last: (h, d, D).",
                _flax(turn=lambda t: t.transpose(0, 1).reshape(t.shape[0], -1)),
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
    mistakes=section(
        _LIBRARIES,
        (
            "the student's weights",
            "Both fit, and both give answers. The teacher is the student's moving average, and the one that DINO "
            "evaluates and publishes.",
            _extract(who="student"),
        ),
    ),
)


def check_teacher(fn: Callable[..., State]) -> bool:
    """Check ``fn(checkpoint)``: DINO's whole training checkpoint -> the teacher's backbone, under timm's names."""
    return check(TEACHER, fn)


# ---- Pixels ------------------------------------------------------------------------------------------------------


def _pixels(H: int, W: int) -> Tensor:
    generator = torch.Generator().manual_seed(H * W)
    most = 250 if H * W > 2 else 2  # the smallest image is nearly black: whoever guesses the range from it is wrong
    return torch.randint(0, most, (H, W, 3), generator=generator, dtype=torch.uint8)


def _prepare_cases() -> list[Case]:
    imagenet, uneven = IMAGENET, ((0.5, 0.4, 0.3), (0.25, 0.2, 0.02))
    asked = [(4, 6, uneven), (2, 1, imagenet), (5, 3, imagenet), (8, 2, uneven)]
    made = [Case(f"{H} × {W} pixels, mean={mean}", (_pixels(H, W), mean, std)) for H, W, (mean, std) in asked]
    every = torch.arange(256 * 3, dtype=torch.int64).mul(7).remainder(256).to(torch.uint8).view(16, 16, 3)
    narrow = (0.5, 0.4, 0.6), (0.25, 1e-4, 0.2)  # what is added to the standard deviation is seen
    return [
        *made,
        Case("16 × 16 pixels, all bytes from 0 to 255", (every, *imagenet)),
        Case("1 × 7 pixels, a standard deviation of 0.0001", (_pixels(1, 7), *narrow)),
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


PREPARE = Exercise(
    name="prepare",
    lesson="09",
    points=2,
    right=_prepare(),
    cases=_prepare_cases,
    forbidden=("vit_tutorial.*",),
    observe=call,
    mistakes=(
        *section(
            _PIXELS,
            (
                "a multiplication by the standard deviation",
                "The mean is subtracted, as it should be. Divide by the standard deviation then.",
                _prepare(finish=lambda x, mean, std: (x - mean) * std),
            ),
        ),
        *section(
            "6 · What the file doesn't say",
            (
                "a reshape in place of a permute",
                "reshape reads the numbers as they lie, red, green, blue of one pixel after the other, so your "
                "colours are mixed. permute(2, 0, 1) brings the channels to the front.",
                _prepare(turn=lambda x: x.reshape(x.shape[2], *x.shape[:2])),
            ),
            (
                "means that run along the width",
                "A tensor of three numbers is lined up with the last axis, the width; on an image three pixels wide "
                "nothing complains. Give mean and standard deviation the shape (C, 1, 1).",
                _prepare(shape=torch.tensor),
            ),
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
        for K, D in [(3, 5), (5, 3), (7, 6), (6, 6), (1, 3)]  # no 2 or 4: a half would look like 1 / 2 or 1 / √4
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
        *section(
            _ONE_KEY,
            (
                "a mean of the two matrices",
                "(W + W') / 2 is (K, D), one head for one token. The heads read different tokens, so each keeps its "
                "own columns: (K, 2D).",
                _joined(weights=lambda a, b: (a + b) / 2),
            ),
        ),
    ),
)


def check_joined_heads(fn: Callable[..., tuple[Tensor, Tensor]]) -> bool:
    """Check ``fn(weight, bias, dist_weight, dist_bias)``: (K, D), (K,), twice -> (K, 2D) and (K,)."""
    return check(JOINED_HEADS, fn)
