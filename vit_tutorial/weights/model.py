"""Lesson 09: names, shapes and what is given become a config and a model's tensors; another head, another image size.

>>> import vit_tutorial as vt
>>> model, _, pixels = vt.load("digits")
>>> given = {"num_heads": 4, "image_size": 8, "gelu": "exact", "norm_eps": 1e-6, "preprocess": pixels, "plain": True}
>>> config, state_dict, preprocess = vt.weights.convert(vt.weights.to_timm(model), **given)
>>> config.image_size, config.dim, config.depth
((8, 8), 64, 4)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import ModernConfig, build, position_bias_index
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import messages, names, sources
from vit_tutorial.weights.fields import Given, Json, single
from vit_tutorial.weights.messages import some
from vit_tutorial.weights.names import FEATURES, State
from vit_tutorial.weights.reading import COUNTER, check_numbers
from vit_tutorial.weights.sources import ANCHORS, EVA_ROTARY, SOURCES, Source, check_preprocess, preprocessing
from vit_tutorial.weights.unwrap import AVERAGE, HEAD, unwrap


class Unpacked:
    """Of a dataclass: ``a, b, c = found`` gives its first three fields."""

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, f.name) for f in fields(self)[:3])  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]


@dataclass(frozen=True)
class Converted(Unpacked):
    """What :func:`convert` returns; it unpacks as ``config, state_dict, preprocess``.

    ``build(config).load_state_dict(state_dict)`` is the model. ``assumed`` maps what the tensors didn't tell
    ("num_heads", "gelu", "norm_eps", "image_size", "preprocess", "plain", and of a modern model "pool",
    "rotary" and "norm") to what was taken; "weights" is in it if there was a choice, and "left_out" if there were parts
    that a ViT doesn't have.
    """

    config: ViTConfig
    state_dict: State  # under our names
    preprocess: Preprocessing
    assumed: dict[str, Any] = field(default_factory=dict)
    projection: bool = False  # whether the head leads into a space of images and text, and names no classes
    recipe: ResizeRecipe = "timm"  # how its library resizes positions
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained(Unpacked):
    """What :func:`vit_tutorial.load` returns; it unpacks as ``model, classes, preprocess``.

    ``assumed`` maps what the file didn't tell to what was taken, as :class:`Converted` has it.
    """

    model: ViT  # in evaluation mode, on the CPU
    classes: tuple[str, ...]
    preprocess: Preprocessing  # pictures -> what the model takes
    assumed: dict[str, Any] = field(default_factory=dict)


def convert(
    state_dict: Mapping[str, Any],
    source: str = "auto",
    *,
    num_heads: int | None = None,
    image_size: Size | None = None,
    gelu: Gelu | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    parts: Mapping[str, Any] | None = None,
    plain: bool | None = None,
    part: str | None = None,
) -> Converted:
    """A published checkpoint as a config, tensors under our names, and the preprocessing of its evaluation.

    Sizes are read off the shapes. Tensors keep their dtype and, where nothing had to be joined or turned, their memory.
    What a file of tensors can't tell is taken from its source's published models, and a UserWarning says so in a
    sentence. Wrappers of training are taken off, and of raw and averaged weights the average is taken, as
    :mod:`.unwrap` says. A head behind ``pre_logits`` (a layer with tanh) is left out with it.

    Args:
        state_dict: names and tensors, as :func:`read` has them.
        source: "auto", by the names, or whose file it is: "torchvision", "timm", "deit", "dino", "huggingface",
            "google", "big_vision" or "vit_tutorial". timm, DeiT and DINO share names and differ in preprocessing.
        num_heads: h. The shapes don't show it (Google's do): by default that of the published sizes, or D / 64.
        image_size: H = W or (H, W) the positions were learned on; needed for a rectangle, or if there are none.
        gelu: "exact" or "tanh", or of OpenAI's CLIP "quick"; by default, as all that follows, the source's own.
        norm_eps: epsilon of the norms.
        preprocess: how pictures become what the model takes.
        parts: fields of :class:`ModernConfig` that no tensor shows, as in ``{"pool": "mean", "rotary":
            modern.Rotary()}``, and how the file orders the rotary pairs: "neighbours" and "columns_first".
        plain: True if you know that the architecture is the paper's: norms first, the class token or the mean read out.
        part: which model, of several in one file, as in ``"student"`` or ``"ema/state_dict"``: the keys that lead to
            it, or what its names begin with. What lies beside it is left out.

    Raises:
        ValueError: names that are missing or too many, wrong shapes, numbers that aren't finite; parts that the configs
            can't express; an unknown source; a value out of its range.
        TypeError: no mapping of names to tensors, or a value of another type.
    """
    given = Given(num_heads, image_size, gelu, norm_eps, preprocess, parts, plain, part)
    with messages.refusing():
        converted = convert_given(state_dict, source, given)
    messages.warn("this state dict", converted.assumed)
    return converted


def convert_given(state_dict: Mapping[str, Any], source: str, given: Given) -> Converted:
    """As :func:`convert`, without its warning."""
    if given.plain not in (None, True):
        raise ValueError(f"plain is True for the paper's model: another is beyond ViTConfig, got {given.plain!r}")
    state, origin, assumed = unwrap(state_dict, ANCHORS, given.part)
    about = library_of(state, source)
    state, head = sources.own_head(state, about.head)
    state, left_out, parts, unsure = about.prepare(state)
    if unsure and not given.classifies and (given.parts or {}).get("pool") != parts.get("pool", "cls"):
        raise ValueError(unsure)
    read = names.read(about.tables, state)
    dropped = {name for family in about.kin.values() for name in family.dropped(read.left)}
    computed = {name: state[name] for name in read.left if name.rpartition(".")[2] in COMPUTED}
    read = read._replace(left=[name for name in read.left if name not in dropped | computed.keys()])
    if head and "head.weight" in read.ours:
        assumed["head"] = head
        read.theirs.update({f"head.{leaf}": f"{head}.{leaf}" for leaf in ("weight", "bias")})
    ours = complete(read, about)
    check_numbers({read.theirs.get(our, our): tensor for our, tensor in ours.items()})
    wanted = dict(given.parts or {}) | dict(parts)
    taken: dict[str, Any] = {}
    shown = fields_of(ours, read, about)
    if about.library == "openai" and "norm.weight" not in ours and "rotary" not in wanted:
        raise ValueError("no ln_post: not CLIP's, but the Perception Encoder's; timm has it, as vit_pe_spatial_…")
    if "norm.weight" not in ours:
        shown["final_norm"] = shown["final_norm"] and wanted.get("final_norm", True)
    check_names(shown, ours, read)
    if any(our.startswith(FEATURES) for our in ours):
        raise ValueError("a convolutional stem in front of the tokens, which ViTConfig and ModernConfig can't express")
    scaled_by = read.theirs.get("blocks.0.scale1.gamma", "").rpartition(".")[2]
    signs = {"masked": "mask_token" in dropped, "scaled_by": scaled_by}
    name = source_of(about, shown | signs, origin, source)
    own = SOURCES[name].dropped(sorted(dropped))
    refuse_names([], sorted(dropped - own.keys()), shown["depth"])
    if said := dict.fromkeys([*left_out, *filter(None, own.values())]):
        assumed["left_out"] = ", ".join(said)
    order = wanted.pop("neighbours", SOURCES[name].neighbours), wanted.pop("columns_first", False)
    config = config_of(name, ours, shown, given, wanted, taken, heads_of(ours, read, state, given.num_heads))
    ours = with_positions(ours, config)
    if isinstance(config, ModernConfig) and config.rotary is not None:
        ours = reorder_pairs(ours, config.num_heads, *order)
    expected = {read.called(our): shape for our, shape in shapes_of(config).items()}
    found = {read.called(our): tuple(tensor.shape) for our, tensor in ours.items()}
    compare(expected, found, ": another architecture, or tensors laid out in another way")
    check_computed(config, computed, *order)
    preprocess = given.preprocess
    if preprocess is None:
        preprocess = taken["preprocess"] = preprocessing(name, config)
    check_preprocess(preprocess, config)
    contiguous = {our: tensor.contiguous() for our, tensor in ours.items()}
    projection = read.theirs.get("head.weight") in about.projections
    return Converted(config, contiguous, preprocess, taken | assumed, projection, SOURCES[name].recipe)


def library_of(state: State, source: str) -> Source:
    """The library of whose names most are found."""
    if source not in ("auto", *SOURCES):
        raise ValueError(f"unknown source {source!r}: use auto, {', '.join(sources.NAMED)}")
    libraries = {id(about.tables): about for name, about in SOURCES.items() if source in ("auto", name, about.library)}
    present = [name.replace("/encoderblock/", "/encoderblock_0/") for name in state]  # of big_vision's scan
    unknown = {key: len(names.matches(about.tables, present, "theirs")[2]) for key, about in libraries.items()}
    best = min(unknown, key=unknown.__getitem__)
    if len(present) - unknown[best] > 3:
        return libraries[best]
    sources.refuse_parts(list(state))
    whose = "a known library" if source == "auto" else source
    raise ValueError(f"this is no Vision Transformer of {whose}: it has none of their names, but {some(list(state))}")


def source_of(about: Source, shown: Mapping[str, Any], origin: str, source: str) -> str:
    """The family whose names and parts these are."""
    kin = about.kin
    by_origin = {"teacher": "dino", "student": "dino", "model": "deit"}
    if not is_modern(shown):
        if source in kin:
            return source
        if about.library == "timm" and origin in by_origin and shown["class_tokens"] < 2:
            return by_origin[origin]
    return next(name for name, other in kin.items() if other.shown_by(shown))


def complete(read: names.Read, about: Source) -> State:
    """Our tensors with what some files leave unsaid: a projection's bias, the position bias that all blocks share."""
    ours = {our: tensor for our, tensor in read.ours.items() if not our.endswith(COUNTER)}
    if read.theirs.get("head.weight") in about.projections and "head.bias" not in ours:
        ours["head.bias"] = ours["head.weight"].new_zeros(ours["head.weight"].shape[:1])
    patches = ours.get("embed.patches.proj.weight")
    if about.library == "openai" and "embed.norm.weight" not in ours and patches is not None:  # open_clip's no_ln_pre
        ours["embed.patches.proj.bias"] = patches.new_zeros(patches.shape[:1])
    shared = ours.pop("shared.position_bias", None)
    if shared is not None:
        for norm in [our for our in ours if our.endswith("norm1.weight")]:
            own = norm.replace("norm1.weight", "attention.position_bias")
            ours[own] = ours[own] + shared if own in ours else shared.clone()
    return ours


def heads_of(ours: State, read: names.Read, state: State, given: int | None) -> int | None:
    """h, where the tensors show it: in Flax's files, by a bias for each head, by norms of queries."""
    query = read.theirs.get("blocks.0.attention.qkv.weight", "").split(", ")[0]
    if "/" in query:
        if state[query].ndim != 3:
            raise ValueError(f"{query} {tuple(state[query].shape)} must be (D, h, d)")
        return state[query].shape[1]
    bias, norm = ours.get("blocks.0.attention.position_bias"), ours.get("blocks.0.attention.q_norm.weight")
    if bias is not None and bias.ndim == 2:
        return bias.shape[1]
    if norm is None or not norm.numel():
        return None
    D = len(ours["blocks.0.norm1.weight"])
    if len(norm) == D and given != 1:  # InternViT's
        raise ValueError(f"a norm of queries over all D = {D}: ModernConfig can't express it, but for num_heads=1")
    return D // len(norm)


RANKS = {"embed.patches.proj.weight": 4, "blocks.0.mlp.fc1.weight": 2, "blocks.0.mlp.fc2.weight": 2}
OPTIONAL_RANKS = {"embed.position": 3, "embed.cls_token": 3, "embed.registers": 3, "head.weight": 2}
LARGEST_GRID = 65_536  # patches, 256 x 256
POOL_OF: dict[int, Any] = {0: "mean", 1: "cls", 2: "distilled"}  # by the number of class tokens
PLAIN_FIELDS = {f.name for f in fields(ViTConfig)}
MODERN_DEFAULTS = {f.name: f.default for f in fields(ModernConfig) if f.name not in PLAIN_FIELDS}


def fields_of(ours: State, read: names.Read, about: Source) -> dict[str, Any]:
    """The fields of a config that tensors show, and the number of class tokens."""
    depth = len({our.split(".")[1] for our in ours if our.startswith("blocks.")})
    if not depth:
        sources.refuse_parts(read.left)
        found = some([*(read.theirs.get(our, our) for our in ours), *read.left])
        raise ValueError(f"there is no block that this package knows among these names: {found}")
    if absent := [our for our in (*RANKS, "blocks.0.norm1.weight") if our not in ours]:
        refuse_names([read.called(our) for our in absent] + read.missing, read.left, depth)
    for our, rank in (RANKS | OPTIONAL_RANKS).items():
        if our in ours and ours[our].ndim != rank:
            why = ": a map of positions (SAM's), which ModernConfig can't express" if our == "embed.position" else ""
            raise ValueError(f"{read.called(our)} {tuple(ours[our].shape)} must have {rank} axes{why}")
    _, C, P, Q = ours["embed.patches.proj.weight"].shape
    D = ours["blocks.0.norm1.weight"].numel()
    if Q <= 4 < P == C:  # a patch of 16 x 3 pixels in 16 channels is hardly meant
        name = read.called("embed.patches.proj.weight")
        raise ValueError(f"{name} {(D, C, P, Q)} has channels last, as MLX keeps them: .permute(0, 3, 1, 2) turns it")
    for our, axis in {"embed.patches.proj.weight": 0, "embed.position": 2, "embed.cls_token": 2}.items():
        if our in ours and ours[our].shape[axis] != D:
            shape, norm = "(1, T, D)" if axis else "(D, C, P, P)", read.called("blocks.0.norm1.weight")
            raise ValueError(f"{read.called(our)} {tuple(ours[our].shape)} must be {shape}, and by {norm} D is {D}")
    head, hidden = ours.get("head.weight"), ours["blocks.0.mlp.fc2.weight"].shape[-1]
    fields: dict[str, Any] = {
        "patch_size": single((P, Q)),
        "in_channels": C,
        "num_classes": 0 if head is None else len(head),
        "dim": D,
        "depth": depth,
        "mlp_dim": hidden,
        "qkv_bias": "blocks.0.attention.bias" in ours or "blocks.0.attention.qkv.bias" in ours,
        "k_bias": "blocks.0.attention.bias" not in ours,
        "position": "learned" if "embed.position" in ours else about.position,
        "class_tokens": ours["embed.cls_token"].shape[1] if "embed.cls_token" in ours else 0,
        "class_token": "embed.cls_token" in ours,
        "registers": ours["embed.registers"].shape[1] if "embed.registers" in ours else 0,
        "pre_norm": "embed.norm.weight" in ours,
        "norm": "layer" if "blocks.0.norm1.bias" in ours else "rms",
        "qk_norm": "blocks.0.attention.q_norm.weight" in ours,
        "attention_norm": "blocks.0.attention.norm.weight" in ours,
        "layer_scale": 1e-5 if "blocks.0.scale1.gamma" in ours else None,
        "gated": len(ours["blocks.0.mlp.fc1.weight"]) == 2 * hidden,
        "mlp_norm": "blocks.0.mlp.norm.weight" in ours,
        "position_bias": "blocks.0.attention.position_bias" in ours,
        "pool_norm": "pool_norm.weight" in ours,
    }
    if fields["class_tokens"] not in POOL_OF:
        raise ValueError(f"{fields['class_tokens']} class tokens stand first: ViTConfig has none, one, or DeiT's two")
    if "pool.mlp.fc1.weight" in ours:
        fields |= {"pool": "attention", "pool_mlp_dim": len(ours["pool.mlp.fc1.weight"])}
    elif fields["class_tokens"] == 2:
        fields["pool"] = "distilled"
    elif head is not None and head.shape[-1] == 2 * D and is_modern(fields):  # DINOv2's
        fields["pool"] = "cls+mean"
    fields["final_norm"] = "norm.weight" in ours or not is_modern(fields)  # a plain one has it, or the file isn't whole
    return fields


def is_modern(fields: Mapping[str, Any]) -> bool:
    """Whether a model has parts of after 2020, so that ViTConfig can't express it."""
    pool, class_token = fields.get("pool"), fields.get("class_token", True)
    mean_without = not class_token and pool in (None, "mean")
    if pool in ("attention", "cls+mean") or (pool == "mean" and class_token) or fields.get("gelu") == "quick":
        return True
    others = {name: default for name, default in MODERN_DEFAULTS.items() if name != "class_token" or not mean_without}
    return any(fields.get(name, default) != default for name, default in others.items())


def config_of(
    name: str, ours: State, shown: Json, given: Given, wanted: Json, taken: Json, heads: int | None
) -> ViTConfig:
    """All that defines the model, by what its tensors show and what is wanted; ``taken`` gets what was assumed."""
    about, fields = SOURCES[name], dict(shown)
    for part, value in wanted.items():
        two_read_as_one = (part, value, fields.get(part)) == ("pool", "cls", "distilled")
        if part != "gelu" and not two_read_as_one and fields.setdefault(part, value) != value:
            raise ValueError(f"it should have {part}={value!r}, and its tensors are of a model with {fields[part]!r}")
    gelu = given.gelu or wanted.get("gelu")
    modern = is_modern(fields | {"gelu": gelu or about.gelu})
    if modern and "pool" not in fields:
        reads_token = fields["class_token"] and fields["final_norm"] and not fields["pool_norm"]
        fields["pool"] = about.pool if reads_token else "mean"
        if not given.told:
            taken["pool"] = fields["pool"]
    if modern and "rotary" not in fields and not given.told:
        without = fields["position"] == "none" and not fields["position_bias"]
        fields["rotary"] = taken["rotary"] = about.rotary or (EVA_ROTARY if without else None)
    if modern and not given.told:
        others = {"pool_prefix": False, "pool_heads": None} if fields["pool"] == "attention" else {"pool_prefix": False}
        taken |= {part: value for part, value in others.items() if part not in wanted and fields["pool"] != "cls"}
    if fields["norm"] == "rms" and "norm" not in wanted:
        taken["norm"] = "rms"
    fields.setdefault("pool", POOL_OF[fields["class_tokens"]])
    if heads is not None and given.num_heads not in (None, heads):
        raise ValueError(f"its tensors have {heads} heads (num_heads={heads}), got num_heads={given.num_heads!r}")
    fields["num_heads"] = heads if given.num_heads is None else given.num_heads
    if given.num_heads is None and heads is None:
        if (D := fields["dim"]) % 64:
            raise ValueError(f"no shape tells the number of heads, and dim {D} is no multiple of 64: give num_heads")
        # 64 numbers a head in the published models, but for So400m, H, g and G, with 72 to 104.
        fields["num_heads"] = taken["num_heads"] = 16 if D in (1152, 1280, 1408, 1664) else D // 64
    fields["gelu"], fields["norm_eps"] = gelu, given.norm_eps
    if gelu is None:
        fields["gelu"] = about.gelu if not fields["gated"] else "exact"
        taken |= {} if fields["gated"] else {"gelu": about.gelu}  # a gated MLP has SiLU
    if given.norm_eps is None:
        fields["norm_eps"] = taken["norm_eps"] = about.norm_eps
    for what, kinds in (("num_heads", int), ("norm_eps", (int, float))):
        if isinstance(fields[what], bool) or not isinstance(fields[what], kinds):
            raise TypeError(f"{what} must be a number, got {fields[what]!r}")
    fields["image_size"], sure = image_size_of(name, ours, fields, given)
    if not sure:
        taken["image_size"] = fields["image_size"]
    class_tokens = fields.pop("class_tokens")
    if given.plain is None and not given.told:
        reads = {"mean": "the mean of all tokens", "distilled": "both tokens before the patches"}
        if fields["pool"] == "distilled" and "head.weight" in ours:  # of the second token nothing, if the rest is 0
            second = ours["head.weight"].tensor_split(2, dim=1)[1]  # (K, D)
            reads["distilled"] = "the mean of both heads" if second.any() else "the class token"
        read = f" and {reads.get(fields['pool'], 'the class token')} read out"
        places = " and no positions" if fields["position"] == "none" else ""
        taken["plain"] = "norms first in each block" + ("" if modern else read + places)
    if modern:
        if class_tokens == 2:
            raise ValueError("two class tokens beside parts of after 2020, which ModernConfig can't express")
        return ModernConfig(**fields)
    if class_tokens == 2:
        return ModernConfig(**{field: value for field, value in fields.items() if field in PLAIN_FIELDS})
    return ViTConfig(**{field: value for field, value in fields.items() if field in PLAIN_FIELDS})


def image_size_of(name: str, ours: State, fields: Mapping[str, Any], given: Given) -> tuple[Size, bool]:
    """The size that the positions are for, and whether that is sure.

    T positions fill many rectangles; published files are squares. There may be one for the class token too, or none
    (big_vision, flexivit), and some for the registers: 225 are 15 x 15, or 14 x 16 and the class token's.
    """
    P, Q = as_pair(fields["patch_size"], "patch_size")
    for size in (given.image_size, given.wanted_size):
        if size is not None:
            check_size(size, fields["patch_size"])
    if given.image_size is not None:
        return single(as_pair(given.image_size, "image_size")), True
    wanted = None if given.wanted_size is None else as_pair(given.wanted_size, "image_size")
    position, bias = ours.get("embed.position"), ours.get("blocks.0.attention.position_bias")
    counts, T = list[int](), -1  # how many patches they may be for, the likeliest first
    if position is not None:
        T, cls = position.shape[1], fields["class_tokens"]
        counts = list(dict.fromkeys([T - cls - fields["registers"], T - cls, T]))
    elif bias is not None:
        side = (math.isqrt(max(len(bias) - 3, 0)) + 1) // 2
        counts = [side**2 if (2 * side - 1) ** 2 == len(bias) - 3 else T]
    if not counts and wanted is None and fields.get("rotary") is None:
        raise ValueError(f"this {name} checkpoint has no positions, which would tell its image size: give image_size")
    if not counts:
        usual = 256 if name.endswith("DINOv3") else 224
        return single(wanted or (usual // P * P, usual // Q * Q)), wanted is not None
    squares = [N for N in counts if N > 0 and math.isqrt(N) ** 2 == N]
    asked = 0 if wanted is None else (wanted[0] // P) * (wanted[1] // Q)
    if wanted is not None and asked in counts and counts.index(asked) < min(map(counts.index, squares), default=9):
        return single(wanted), not squares  # rather than a square without the class token's position
    if squares:
        side = math.isqrt(squares[0])
        return single((side * P, side * Q)), wanted == (side * P, side * Q)
    raise ValueError(f"positions for {T} tokens, {T - counts[0]} in front, fill no square: give image_size, (H, W)")


def check_size(image_size: Size, patch_size: Size) -> None:
    """Raise a ValueError for more patches than attention could ever hold."""
    (H, W), (P, Q) = as_pair(image_size, "image_size"), as_pair(patch_size, "patch_size")
    if (N := H // P * (W // Q)) > LARGEST_GRID:
        raise ValueError(f"image_size {image_size} has {N:,} patches of {patch_size}: at most {LARGEST_GRID:,}")


def with_positions(ours: State, config: ViTConfig) -> State:
    """Positions for class tokens and patches: where the former have none, zeros; registers take theirs in.

    Sine and cosine are computed, where they aren't stored.
    """
    if config.position == "none":
        return ours
    registers = config.registers if isinstance(config, ModernConfig) else 0
    cls, (rows, columns) = config.prefix_tokens - registers, config.grid
    N, position = rows * columns, ours.get("embed.position")
    if position is None:
        position = sincos_position_embedding(config.grid, config.dim).to(ours["embed.patches.proj.weight"].dtype)
    if registers and position.shape[1] == cls + registers + N:
        ours = ours | {"embed.registers": ours["embed.registers"] + position[:, cls : cls + registers]}
        position = torch.cat([position[:, :cls], position[:, cls + registers :]], dim=1)
    if position.shape[1] not in (N, cls + N):
        patches = f"image_size {config.image_size} has {rows} x {columns} = {N} patches"
        there = f"{position.shape[1]} tokens, {cls} of them in front"
        raise ValueError(f"{patches}, and the positions are for {there}: give the image_size that they were learned on")
    if cls and position.shape[1] == N:  # positions were added before the class token
        position = torch.cat([position.new_zeros(1, cls, position.shape[2]), position], dim=1)
    return ours | {"embed.position": position}


def reorder_pairs(ours: State, num_heads: int, neighbours: bool, columns_first: bool, back: bool = False) -> State:
    """Rotary pairs (2 i, 2 i + 1), or those of the columns first, moved to where ours are: (i, i + d / 2), rows first.

    Queries and keys move alike, so no score changes. ``back`` undoes it.
    """
    if not neighbours and not columns_first:
        return ours
    d = len(ours["blocks.0.norm1.weight"]) // num_heads
    order = torch.arange(d)
    order = order.view(d // 2, 2).mT if neighbours else order.view(2, d // 2)  # ours from theirs
    if columns_first:
        order = order.roll(-(d // 4), dims=1)
    within = order.flatten().argsort() if back else order.flatten()
    rows = torch.cat([within + head * d for head in range(num_heads)])  # (D,)
    moved = dict(ours)
    for name, tensor in ours.items():
        if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
            q, k, v = tensor.chunk(3)
            moved[name] = torch.cat([q[rows], k[rows], v])
        elif name.endswith("attention.bias"):  # of q and v
            moved[name] = torch.stack([tensor[0][rows], *tensor[1:]])
        elif re.search(r"attention\.[qk]_norm\.(weight|bias)$", name):
            moved[name] = tensor[within]
    return moved


COMPUTED = ("periods", "inv_freq", "freqs_cos", "freqs_sin", "relative_position_index", "position_ids")


def check_computed(config: ViTConfig, tensors: State, neighbours: bool, columns_first: bool) -> None:
    """Raise a ValueError if what a file stores, and the model computes, isn't the same: places, angles, indices.

    Rotary angles are stored as periods or frequencies (d / 4,), or as cosines and sines (N, d).
    """
    modern = config if isinstance(config, ModernConfig) else ModernConfig()
    for name, found in tensors.items():
        last, expected, d = name.rpartition(".")[2], None, modern.head_dim
        if last == "position_ids" and found.numel() <= LARGEST_GRID:
            expected = torch.arange(found.numel()).view(found.shape)
        elif last == "relative_position_index" and modern.position_bias:
            expected = position_bias_index(config.grid)
        elif modern.rotary is not None and last in ("periods", "inv_freq"):
            periods = modern.rotary.temperature ** (4 * torch.arange(d // 4) / d)
            expected = periods if last == "periods" else 1 / periods
        elif modern.rotary is not None and last in ("freqs_cos", "freqs_sin"):
            angles = modern.rotary.angles(config.grid, d, torch.zeros(()))  # (N, d / 2)
            angles = angles.roll(d // 4, dims=1) if columns_first else angles
            angles = angles.repeat_interleave(2, dim=1) if neighbours else torch.cat([angles, angles], dim=1)  # (N, d)
            expected = angles.cos() if last == "freqs_cos" else angles.sin()
        alike = expected is not None and expected.shape == found.shape
        if expected is None or not alike or not torch.allclose(expected.float(), found.float(), rtol=0.01, atol=0.02):
            found_there = f"{name} {tuple(found.shape)} isn't what this model computes in its place"
            raise ValueError(f"{found_there}: positions of another kind, which ModernConfig can't express")


def shapes_of(config: Any, make: Callable[[Any], nn.Module] = build) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that a model of this config has."""
    with torch.device("meta"):  # one block tells the shapes of all
        model = make(replace(config, depth=1)).state_dict()
    shapes = {our: tuple(tensor.shape) for our, tensor in model.items() if not our.endswith(COUNTER)}
    block = {our.removeprefix("blocks.0."): shape for our, shape in shapes.items() if our.startswith("blocks.0.")}
    return {our: shape for our, shape in shapes.items() if not our.startswith("blocks.0.")} | {
        f"blocks.{i}.{inner}": shape for i in range(config.depth) for inner, shape in block.items()
    }


def check_names(shown: Mapping[str, Any], ours: State, read: names.Read) -> None:
    """Raise a ValueError that lists the names that are missing or too many, and what they are a sign of."""
    skeleton = {name: value for name, value in shown.items() if name != "class_tokens"}
    skeleton |= {"image_size": shown["patch_size"], "num_heads": 1}
    skeleton["position"] = "learned" if "embed.position" in ours else "none"
    if shown.get("pool") in (None, "distilled"):
        skeleton["pool"] = "cls" if shown["class_token"] else "mean"
    expected = shapes_of(ModernConfig(**skeleton))
    missing = [read.called(our) for our in expected if our not in ours] + read.missing
    beyond = [our for our in ours if our not in expected and not our.startswith(FEATURES)]
    refuse_names(missing, read.left + [read.called(our) for our in beyond], shown["depth"])


def refuse_names(missing: list[str], unexpected: list[str], depth: int) -> None:
    """A ValueError for any such name, and what it is a sign of."""
    if not missing and not unexpected:
        return
    sources.refuse_parts(unexpected)
    why = "another architecture, or a file that isn't whole"
    if not unexpected and len(missing) >= depth and all(re.search(r"bias\b", name) for name in missing):
        why = "layers without a bias, or norms (RMSNorm), which ModernConfig can't express"
    elif not unexpected and all("scale2.gamma" in name for name in missing):  # sapiens 2
        why = "layer scale behind the attention alone, which ModernConfig can't express"
    elif not unexpected and all(re.search(r"^norm\.|our norm\.", name) for name in missing):
        why = "no norm after the last block, which ViTConfig can't express"
    elif not missing and all(HEAD.search(name) for name in unexpected):
        why = "a head of another kind than one linear layer with a bias: without its names, the features are read"
    elif unexpected and all(AVERAGE.search(name) for name in unexpected):
        why = "an average of the weights by names of its own: pass the tensors of one of the two"
    elif not missing:
        why = "parts which ModernConfig can't express, or of training: if they change no answer, leave them out"
    raise ValueError(f"{_counted({'missing': missing, 'unexpected': unexpected})}: {why}")


def _counted(lists: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{len(names)} {what}: {some(names)}" for what, names in lists.items() if names)


def compare(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], why: str = "") -> None:
    """Raise a ValueError that lists what of ``found`` is missing, too many or of another shape."""
    wrong = [
        f"{name} {found[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in found and shape != found[name]
    ]
    lists = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
        "of another shape": wrong,
    }
    if any(lists.values()):
        raise ValueError(_counted(lists) + why)


def check_state(config: Any, state: Mapping[str, Tensor], make: Callable[[Any], nn.Module] = build) -> None:
    """Raise a ValueError that lists the tensors that are missing, too many, or of other shapes than the config's."""
    blocks = {name.split(".")[1] for name in state if name.startswith("blocks.")}
    if len(blocks) != config.depth:  # before a damaged depth of a billion is built
        raise ValueError(f"the weights have {len(blocks)} blocks, the config says depth={config.depth}")
    compare(shapes_of(config, make), {name: tuple(tensor.shape) for name, tensor in state.items()})


def assemble(config: ViTConfig, state_dict: Mapping[str, Tensor], *, checked: bool = False) -> ViT:
    """The model with these tensors as its parameters, float32, in evaluation mode; nothing is copied or initialised.

    Args:
        config: what the model is.
        state_dict: its tensors, under our names.
        checked: True if :func:`check_state` and :func:`check_numbers` have seen them, which take as long as the rest.

    Raises:
        ValueError: names that are missing or too many, other shapes, numbers that aren't finite (in float32): which.
    """
    state = {name: tensor.detach() for name, tensor in state_dict.items() if not name.endswith(COUNTER)}
    if not checked:
        check_state(config, state)
        check_numbers(state)
    floats = {name: tensor.float() for name, tensor in state.items()}
    check_numbers({name: tensor for name, tensor in floats.items() if state[name].dtype == torch.float64})
    with torch.device("meta"):
        model = build(config)
    counters = {name: torch.tensor(0) for name in model.state_dict() if name.endswith(COUNTER)}
    model.load_state_dict(floats | counters, assign=True)
    return model.eval()


def head_width(config: ViTConfig) -> int:
    """How many numbers the head of a model reads."""
    return config.head_width if isinstance(config, ModernConfig) else config.dim


def with_head(config: ViTConfig, state: Mapping[str, Tensor], num_classes: int) -> tuple[ViTConfig, State]:
    """The config and tensors with a new head of zeros for so many classes; 0: with none."""
    config = replace(config, num_classes=num_classes)
    state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    if num_classes:
        state["head.weight"] = torch.zeros(num_classes, head_width(config))
        state["head.bias"] = torch.zeros(num_classes)
    return config, state


def with_size(
    config: ViTConfig, state: Mapping[str, Tensor], image_size: Size, recipe: ResizeRecipe = "timm"
) -> tuple[ViTConfig, State]:
    """The config and tensors for pictures of another size.

    Learned positions are resized, as :func:`resize_position_embedding` does it; sines are computed anew. Position
    biases (BEiT's) are for one size: a ValueError.
    """
    check_size(image_size, config.patch_size)
    old, config = config, replace(config, image_size=image_size)
    state = dict(state)
    if config.grid == old.grid:
        return config, state
    prefix = config.prefix_tokens - (config.registers if isinstance(config, ModernConfig) else 0)
    if config.position == "learned":
        state["embed.position"] = resize_position_embedding(
            state["embed.position"], old.grid, config.grid, prefix_tokens=prefix, recipe=recipe
        )
    elif config.position == "sincos":
        grid = sincos_position_embedding(config.grid, config.dim)  # (1, N, D)
        state["embed.position"] = torch.cat([torch.zeros(1, prefix, config.dim), grid], dim=1)
    if isinstance(config, ModernConfig) and config.position_bias:
        raise ValueError(f"position biases of {old.grid} patches aren't resized here: give image_size={old.image_size}")
    return config, state
