"""Lesson 09: what each library calls its tensors: tables of names, in one language that is read in both directions.

>>> import vit_tutorial as vt
>>> from vit_tutorial.weights import names
>>> theirs = names.rename(vt.load("digits").model.state_dict(), names.TORCHVISION)
>>> sorted(theirs)[:2]
['class_token', 'conv_proj.bias']
>>> names.read([names.TORCHVISION], theirs).ours["embed.cls_token"].shape
torch.Size([1, 1, 64])

Our name is on the left, theirs on the right:

- ``{i}`` is the block; ``{j}``, ``{k}`` and ``{c}`` are other numbers, ``{j+1}`` is one that they count from 1;
- ``*`` stands for weight or bias (in Flax's files, where names have slashes, for kernel or scale, and bias), and ``**``
  for whatever follows;
- ``(a|b|c)`` on the right are tensors that are joined to one of ours, on the left parts of one of theirs;
- ``: bare`` has no axes of one in front, ``: turned`` is multiplied from the other side.

A row that joins the biases of q, k and v stands for q's and v's alone, too: our ``attention.bias``.

Rows that a file has no tensors for are rows of parts that its model doesn't have. What no row has is left over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from vit_tutorial.weights.messages import some

State = dict[str, Tensor]
Table = Mapping[str, str]

# ------------------------------------------------------------------------------------------------------ the tables

TIMM = {
    "embed.cls_token": "cls_token",
    "embed.position": "pos_embed",
    "embed.patches.proj.*": "patch_embed.proj.*",
    "blocks.{i}.norm1.*": "blocks.{i}.norm1.*",
    "blocks.{i}.attention.qkv.*": "blocks.{i}.attn.qkv.*",
    "blocks.{i}.attention.proj.*": "blocks.{i}.attn.proj.*",
    "blocks.{i}.norm2.*": "blocks.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "blocks.{i}.mlp.fc2.*",
    "norm.*": "norm.*",
    "head.*": "head.*",
}
TIMM_NOW = TIMM | {  # what came after 2020
    "embed.registers": "reg_token",
    "embed.norm.*": "norm_pre.*",
    "blocks.{i}.attention.q_norm.*": "blocks.{i}.attn.q_norm.*",
    "blocks.{i}.attention.k_norm.*": "blocks.{i}.attn.k_norm.*",
    "blocks.{i}.attention.norm.*": "blocks.{i}.attn.norm.*",
    "blocks.{i}.scale1.gamma": "blocks.{i}.ls1.gamma",
    "blocks.{i}.scale2.gamma": "blocks.{i}.ls2.gamma",
    "blocks.{i}.mlp.norm.*": "blocks.{i}.mlp.norm.*",
    "pool_norm.*": "fc_norm.*",
    "pool.probe": "attn_pool.latent",
    "pool.**": "attn_pool.**",
    "embed.patches.features.stem.**": "patch_embed.backbone.stem.**",
    "embed.patches.features.stages.**": "patch_embed.backbone.stages.**",
}
TIMM_DISTILLED = TIMM_NOW | {"embed.cls_token": "(cls_token|dist_token)", "head.*": "(head|head_dist).*"}
TIMM_EVA = TIMM_NOW | {  # its classes Eva and Beit
    "blocks.{i}.attention.position_bias": "blocks.{i}.attn.relative_position_bias_table",
    "blocks.{i}.scale1.gamma": "blocks.{i}.gamma_1",
    "blocks.{i}.scale2.gamma": "blocks.{i}.gamma_2",
    "shared.position_bias": "rel_pos_bias.relative_position_bias_table",
}
TIMM_BIASES = TIMM_EVA | {"blocks.{i}.attention.qkv.bias": "blocks.{i}.attn.(q_bias|k_bias|v_bias)"}
TIMM_GATED = TIMM_EVA | {"blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.(fc1_g|fc1_x).*"}
TIMM_APART = TIMM_GATED | {"blocks.{i}.attention.qkv.*": "blocks.{i}.attn.(q_proj|k_proj|v_proj).*"}
TIMM_ROOT = TIMM_NOW | {  # a ResNet's first layers alone
    "embed.patches.features.stem.conv.*": "patch_embed.backbone.conv.*",
    "embed.patches.features.stem.norm.*": "patch_embed.backbone.norm.*",
}
META = TIMM_NOW | {  # DINOv2 and DINOv3 by their authors
    "embed.registers": "register_tokens",
    "blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.w12.*",
    "blocks.{i}.mlp.fc2.*": "blocks.{i}.mlp.w3.*",
}
META_2025 = META | {"embed.registers": "storage_tokens", "blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.(w1|w2).*"}
META_LINEAR = META | {"head.*": "linear_head.*"}  # its backbone and a head for ImageNet
META_CHUNKS, META_CHUNKS_GATED = (  # {i} counts through all chunks
    {our: their.replace("blocks.{i}.", "blocks.{c}.{i}.") for our, their in t.items()}
    for t in (TIMM_NOW | {"embed.registers": "register_tokens"}, META)
)
# What open_clip puts behind one of timm's models.
OPEN_CLIP_TRUNK = {"head.weight": "head.proj.weight", "head.bias": "head.proj.bias"}
BAAI = TIMM_BIASES | {  # EVA-02 by its authors
    "blocks.{i}.attention.qkv.weight": "blocks.{i}.attn.(q_proj|k_proj|v_proj).weight",
    "blocks.{i}.attention.norm.*": "blocks.{i}.attn.inner_attn_ln.*",
    "blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.(w1|w2).*",
    "blocks.{i}.mlp.norm.*": "blocks.{i}.mlp.ffn_ln.*",
    "blocks.{i}.mlp.fc2.*": "blocks.{i}.mlp.w3.*",
}
OPENAI = {  # CLIP's image tower
    "embed.cls_token": "visual.class_embedding : bare",
    "embed.position": "visual.positional_embedding : bare",
    "embed.patches.proj.weight": "visual.conv1.weight",
    "embed.norm.*": "visual.ln_pre.*",
    "blocks.{i}.norm1.*": "visual.transformer.resblocks.{i}.ln_1.*",
    "blocks.{i}.attention.qkv.*": "visual.transformer.resblocks.{i}.attn.in_proj_*",
    "blocks.{i}.attention.proj.*": "visual.transformer.resblocks.{i}.attn.out_proj.*",
    "blocks.{i}.scale1.gamma": "visual.transformer.resblocks.{i}.ls_1.gamma",
    "blocks.{i}.norm2.*": "visual.transformer.resblocks.{i}.ln_2.*",
    "blocks.{i}.scale2.gamma": "visual.transformer.resblocks.{i}.ls_2.gamma",
    "blocks.{i}.mlp.fc1.*": "visual.transformer.resblocks.{i}.mlp.c_fc.*",
    "blocks.{i}.mlp.fc2.*": "visual.transformer.resblocks.{i}.mlp.c_proj.*",
    "norm.*": "visual.ln_post.*",
    "head.weight": "visual.proj : turned",
}
OPENAI_TEXT = {  # CLIP's text tower
    our: their.removeprefix("visual.") for our, their in OPENAI.items() if our.startswith("blocks.")
} | {
    "tokens.weight": "token_embedding.weight",
    "position": "positional_embedding : bare",
    "norm.*": "ln_final.*",
    "head.weight": "text_projection : turned",
}
OPEN_CLIP_TEXT = {our: f"text.{their}" for our, their in OPENAI_TEXT.items()}
OPEN_CLIP_SIGLIP_TEXT = OPEN_CLIP_TEXT | {"head.*": "text.text_projection.*"}
TORCHVISION = {
    "embed.cls_token": "class_token",
    "embed.position": "encoder.pos_embedding",
    "embed.patches.proj.*": "conv_proj.*",
    "blocks.{i}.norm1.*": "encoder.layers.encoder_layer_{i}.ln_1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layers.encoder_layer_{i}.self_attention.in_proj_*",
    "blocks.{i}.attention.proj.*": "encoder.layers.encoder_layer_{i}.self_attention.out_proj.*",
    "blocks.{i}.norm2.*": "encoder.layers.encoder_layer_{i}.ln_2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layers.encoder_layer_{i}.mlp.0.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.encoder_layer_{i}.mlp.3.*",
    "norm.*": "encoder.ln.*",
    "head.*": "heads.head.*",
}
TORCHVISION_0_12 = TORCHVISION | {  # and earlier
    "blocks.{i}.mlp.fc1.*": "encoder.layers.encoder_layer_{i}.mlp.linear_1.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.encoder_layer_{i}.mlp.linear_2.*",
}
TRANSFORMERS_4 = {  # and the files on the hub, whatever the version
    "embed.cls_token": "vit.embeddings.cls_token",
    "embed.position": "vit.embeddings.position_embeddings",
    "embed.patches.proj.*": "vit.embeddings.patch_embeddings.projection.*",
    "blocks.{i}.norm1.*": "vit.encoder.layer.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "vit.encoder.layer.{i}.attention.attention.(query|key|value).*",
    "blocks.{i}.attention.proj.*": "vit.encoder.layer.{i}.attention.output.dense.*",
    "blocks.{i}.norm2.*": "vit.encoder.layer.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "vit.encoder.layer.{i}.intermediate.dense.*",
    "blocks.{i}.mlp.fc2.*": "vit.encoder.layer.{i}.output.dense.*",
    "norm.*": "vit.layernorm.*",
    "head.*": "classifier.*",
}
TRANSFORMERS_5 = TRANSFORMERS_4 | {
    "blocks.{i}.norm1.*": "vit.layers.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "vit.layers.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "vit.layers.{i}.attention.o_proj.*",
    "blocks.{i}.norm2.*": "vit.layers.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "vit.layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "vit.layers.{i}.mlp.fc2.*",
}
# The rest of transformers' models, without the prefix that each has: "vit.", "beit.", ...
HF_4, HF_5 = ({our: their.removeprefix("vit.") for our, their in t.items()} for t in (TRANSFORMERS_4, TRANSFORMERS_5))
HF_DEIT = {"embed.cls_token": "embeddings.(cls_token|distillation_token)"}
HF_DEIT_TEACHER = HF_DEIT | {"head.*": "(cls_classifier|distillation_classifier).*"}
HF_BEIT = HF_4 | {
    "blocks.{i}.attention.position_bias": (
        "encoder.layer.{i}.attention.attention.relative_position_bias.relative_position_bias_table"
    ),
    "blocks.{i}.scale1.gamma": "encoder.layer.{i}.lambda_1",
    "blocks.{i}.scale2.gamma": "encoder.layer.{i}.lambda_2",
    "pool_norm.*": "pooler.layernorm.*",
    "shared.position_bias": "encoder.relative_position_bias.relative_position_bias_table",
}
HF_BEIT_5 = HF_5 | {
    "blocks.{i}.attention.position_bias": "layers.{i}.relative_position_bias.relative_position_bias_table",
    "blocks.{i}.scale1.gamma": "layers.{i}.lambda_1",
    "blocks.{i}.scale2.gamma": "layers.{i}.lambda_2",
    "shared.position_bias": "shared_position_bias.relative_position_bias_table",
}
HF_DINOV2 = HF_4 | {
    "embed.registers": "embeddings.register_tokens",
    "blocks.{i}.norm1.*": "encoder.layer.{i}.norm1.*",
    "blocks.{i}.scale1.gamma": "encoder.layer.{i}.layer_scale1.lambda1",
    "blocks.{i}.norm2.*": "encoder.layer.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layer.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layer.{i}.mlp.fc2.*",
    "blocks.{i}.scale2.gamma": "encoder.layer.{i}.layer_scale2.lambda1",
}
HF_DINOV2_GATED = HF_DINOV2 | {
    "blocks.{i}.mlp.fc1.*": "encoder.layer.{i}.mlp.weights_in.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layer.{i}.mlp.weights_out.*",
}
HF_DINOV2_5 = HF_DINOV2 | {
    "blocks.{i}.attention.qkv.*": "encoder.layer.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "encoder.layer.{i}.attention.o_proj.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layer.{i}.mlp.(gate_proj|up_proj).*",
    "blocks.{i}.mlp.fc2.*": "encoder.layer.{i}.mlp.down_proj.*",
}
HF_DINOV3 = {our: their.replace("encoder.layer", "layer") for our, their in HF_DINOV2_5.items()} | {
    "embed.patches.proj.*": "embeddings.patch_embeddings.*",
    "blocks.{i}.mlp.fc1.*": "layer.{i}.mlp.up_proj.*",
    "norm.*": "norm.*",
}
HF_DINOV3_GATED = HF_DINOV3 | {"blocks.{i}.mlp.fc1.*": "layer.{i}.mlp.(gate_proj|up_proj).*"}
HF_DINOV3_5, HF_DINOV3_GATED_5 = (
    {our: their.replace("layer.{i}", "model.layer.{i}") for our, their in t.items()}
    for t in (HF_DINOV3, HF_DINOV3_GATED)
)
HF_CLIP = {  # and SigLIP
    "embed.cls_token": "embeddings.class_embedding : bare",
    "embed.position": "embeddings.position_embedding.weight : bare",
    "embed.patches.proj.*": "embeddings.patch_embedding.*",
    "embed.norm.*": "pre_layrnorm.*",
    "blocks.{i}.norm1.*": "encoder.layers.{i}.layer_norm1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layers.{i}.self_attn.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "encoder.layers.{i}.self_attn.out_proj.*",
    "blocks.{i}.norm2.*": "encoder.layers.{i}.layer_norm2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.{i}.mlp.fc2.*",
    "norm.*": "post_layernorm.*",
    "pool.probe": "head.probe",
    "pool.(q|kv).*": "head.attention.in_proj_*",
    "pool.proj.*": "head.attention.out_proj.*",
    "pool.norm.*": "head.layernorm.*",
    "pool.mlp.**": "head.mlp.**",
    "head.weight": "visual_projection.weight",
}
HF_CLIP_TEXT = {our: f"text_model.{their}" for our, their in HF_CLIP.items() if our.startswith("blocks.")} | {
    "tokens.weight": "text_model.embeddings.token_embedding.weight",
    "position": "text_model.embeddings.position_embedding.weight : bare",
    "norm.*": "text_model.final_layer_norm.*",
    "head.weight": "text_projection.weight",
}
HF_SIGLIP_TEXT = HF_CLIP_TEXT | {"head.*": "text_model.head.*"}
HF_OWL = HF_CLIP | {"embed.norm.*": "pre_layernorm.*"}
HF_ALT = {our: their.replace("encoder.layers", "encoder.layer") for our, their in HF_CLIP.items()}  # AltCLIP's, of 5
HF_BLIP = {our: their for our, their in HF_CLIP.items() if not our.startswith(("pool", "head"))} | {
    "embed.position": "embeddings.position_embedding",
    "blocks.{i}.attention.qkv.*": "encoder.layers.{i}.self_attn.qkv.*",
    "blocks.{i}.attention.proj.*": "encoder.layers.{i}.self_attn.projection.*",
}
GOOGLE = {  # google-research/vision_transformer
    "embed.cls_token": "cls",
    "embed.position": "Transformer/posembed_input/pos_embedding",
    "embed.patches.proj.*": "embedding/*",
    "blocks.{i}.norm1.*": "Transformer/encoderblock_{i}/LayerNorm_0/*",
    "blocks.{i}.attention.qkv.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_1/(query|key|value)/*",
    "blocks.{i}.attention.proj.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_1/out/*",
    "blocks.{i}.norm2.*": "Transformer/encoderblock_{i}/LayerNorm_2/*",
    "blocks.{i}.mlp.fc1.*": "Transformer/encoderblock_{i}/MlpBlock_3/Dense_0/*",
    "blocks.{i}.mlp.fc2.*": "Transformer/encoderblock_{i}/MlpBlock_3/Dense_1/*",
    "norm.*": "Transformer/encoder_norm/*",
    "head.*": "head/*",
}
GOOGLE_HYBRID = GOOGLE | {
    "embed.patches.features.stem.conv.weight": "conv_root/kernel",
    "embed.patches.features.stem.norm.*": "gn_root/*",
    **{
        f"embed.patches.features.stages.{{j}}.blocks.{{k}}.{our}": f"block{{j+1}}/unit{{k+1}}/{their}"
        for our, their in {
            **{f"conv{n}.weight": f"conv{n}/kernel" for n in (1, 2, 3)},
            **{f"norm{n}.*": f"gn{n}/*" for n in (1, 2, 3)},
            "downsample.conv.weight": "conv_proj/kernel",
            "downsample.norm.*": "gn_proj/*",
        }.items()
    },
}
BIG_VISION = {
    our: their.replace("Attention_1", "Attention_0").replace("Norm_2", "Norm_1").replace("Block_3", "Block_0")
    for our, their in GOOGLE.items()
} | {"embed.position": "pos_embedding"}
# SigLIP's image tower in big_vision's files; MAPHead_0 is its attention pooling.
SIGLIP = BIG_VISION | {
    "pool.probe": "MAPHead_0/probe",
    "pool.q.*": "MAPHead_0/MultiHeadDotProductAttention_0/query/*",
    "pool.kv.*": "MAPHead_0/MultiHeadDotProductAttention_0/(key|value)/*",
    "pool.proj.*": "MAPHead_0/MultiHeadDotProductAttention_0/out/*",
    "pool.norm.*": "MAPHead_0/LayerNorm_0/*",
    "pool.mlp.fc1.*": "MAPHead_0/MlpBlock_0/Dense_0/*",
    "pool.mlp.fc2.*": "MAPHead_0/MlpBlock_0/Dense_1/*",
}
OURS = {name: name for name in TIMM_NOW if "features" not in name} | {
    "blocks.{i}.attention.bias": "blocks.{i}.attention.bias",
    "blocks.{i}.attention.position_bias": "blocks.{i}.attention.position_bias",
    "embed.patches.features.**": "embed.patches.features.**",
}


# ------------------------------------------------------------------------------------------------------ the language

FEATURES = "embed.patches.features."  # our names of a stem's tensors begin so
PLACE = re.compile(r"\{(\w)(\+1)?\}|\*\*")
NUMBER = re.compile(r"\d+")
SLOT = re.compile(r"\{\w(?:\+1)?\}|\d+")
Places = tuple[tuple[str, str], ...]  # what stands for {i}, {j}, ..., and as "rest" for **


class Rule(NamedTuple):
    """A row with its ``*`` and its choices filled in: several of theirs are one of ours, or the other way round."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    layout: str  # "", "bare", "turned", "stacked" or "flax"


class Match(NamedTuple):
    """A rule with its numbers filled in, and those of its names that are there."""

    rule: Rule
    ours: list[str]
    theirs: list[str]
    found: dict[int, str]  # which of the names on the side that was looked at


class Read(NamedTuple):
    """What :func:`read` returns."""

    ours: State
    theirs: dict[str, str]  # our name -> theirs, to speak of
    left: list[str]  # names that no row has
    missing: list[str]  # names without which others are useless
    tables: tuple[Table, ...]

    def called(self, our: str) -> str:
        """Their name for one of ours, and ours where it is another."""
        their = self.theirs.get(our)
        if not their:
            rows = (match for table in self.tables for found in matches([table], [our], "ours")[:2] for match in found)
            their = next((match.theirs[0] for match in rows), our)
        return our if their == our else f"{their} (our {our})"


def rules_of(tables: Iterable[Table]) -> list[Rule]:
    """All rows of the tables, filled in, those with ``**`` last. Within a table a later row replaces an earlier one."""
    rules = dict[Rule, None]()
    for table in tables:
        filled = [rule for row in table.items() for rule in _rules_of_row(*row)]
        rules |= dict.fromkeys({rule.ours: rule for rule in filled}.values())
    return sorted(rules, key=lambda rule: "**" in rule.ours[0])


def _rules_of_row(our: str, their: str) -> list[Rule]:
    their, _, layout = their.partition(" : ")
    leaves = [("", "")]
    if "*" in our and "**" not in our:
        leaves = [("weight", "weight"), ("bias", "bias")]
        if "/" in their:  # Flax calls a weight a kernel, and a norm's a scale
            leaves[0] = ("weight", "scale" if "norm" in our else "kernel")
    layout = layout or ("flax" if "/" in their else "")
    rules = [
        Rule(tuple(_choices(our, leaf)), tuple(_choices(their, their_leaf)), layout) for leaf, their_leaf in leaves
    ]
    for rule in rules:
        if rule.ours[0].endswith("attention.qkv.bias") and len(rule.theirs) == 3:  # the softmax cancels a bias of k
            q, _, v = rule.theirs
            return [*rules, Rule((rule.ours[0].replace("qkv.bias", "bias"),), (q, v), "stacked")]
    return rules


def _choices(template: str, leaf: str) -> list[str]:
    """``a.(b|c).*`` -> ``a.b.weight`` and ``a.c.weight``."""
    if leaf:
        template = template.replace("*", leaf)
    if "(" not in template:
        return [template]
    before, choices, after = re.split(r"[()]", template, maxsplit=2)
    return [name for choice in choices.split("|") for name in _choices(before + choice + after, "")]


def fill(template: str, places: Iterable[tuple[str, str]]) -> str:
    """The template with its numbers."""
    known = dict(places)
    return PLACE.sub(lambda m: str(int(known[m[1]]) + 1) if m[2] else known.get(m[1] or "rest", "0"), template)


Index = tuple[list[Rule], dict[str, list[tuple[int, int, list[str]]]], list[tuple[int, int, str]]]


@cache  # reading tables takes time
def _index(tables: Iterable[Iterable[tuple[str, str]]], side: str) -> Index:
    """Rules, their templates on one side by outline (with 0 for each number), and what stands before each ``**``."""
    rules = rules_of([dict(rows) for rows in tables])
    by_outline: dict[str, list[tuple[int, int, list[str]]]] = {}
    starts = []
    for number, rule in enumerate(rules):
        for member, template in enumerate(getattr(rule, side)):
            if template.endswith("**"):
                starts.append((number, member, template.removesuffix("**")))
            else:
                outline, slots = NUMBER.sub("0", PLACE.sub("0", template)), SLOT.findall(template)
                by_outline.setdefault(outline, []).append((number, member, slots))
    return rules, by_outline, starts


def _places(slots: list[str], numbers: list[str]) -> Places | None:
    """What stands for ``{i}``, ``{j}``, ...; None, if a number isn't the template's."""
    places = []
    for slot, number in zip(slots, numbers, strict=True):
        if slot[0] == "{" and len(number) <= 6 and not ("+" in slot and number[0] == "0"):
            places.append((slot[1], str(int(number) - 1) if "+" in slot else number))
        elif slot != number:
            return None
    return tuple(places)


def matches(tables: Iterable[Table], names: Iterable[str], side: str) -> tuple[list[Match], list[Match], list[str]]:
    """The rows that the names fill: those that are whole, those that aren't, and the names that no row has.

    Where a name is in several rows, the row of most names that are all there has it.
    """
    rules, by_outline, starts = _index(tuple(tuple(table.items()) for table in tables), side)
    groups: dict[tuple[int, Places], dict[int, str]] = {}
    for name in (names := list(names)):
        for number, member, slots in by_outline.get(NUMBER.sub("0", name), []):
            if (places := _places(slots, NUMBER.findall(name))) is not None:
                groups.setdefault((number, places), {})[member] = name
        for number, member, start in starts:
            if name.startswith(start) and name != start:
                groups.setdefault((number, (("rest", name.removeprefix(start)),)), {})[member] = name
    sizes = [len(getattr(rule, side)) for rule in rules]
    order = sorted((len(found) < sizes[key[0]], -len(found), key) for key, found in groups.items())
    whole, parts, taken = list[Match](), list[Match](), set[str]()
    for lacking, _, key in order:
        found = groups[key]
        if not taken & set(found.values()):
            taken |= set(found.values())
            rule, places = rules[key[0]], key[1]
            ours, theirs = ([fill(template, places) for template in row] for row in (rule.ours, rule.theirs))
            (parts if lacking else whole).append(Match(rule, ours, theirs, found))
    return whole, parts, [name for name in names if name not in taken]


def just(*templates: str) -> Table:
    """A table of names that stay as they are: to find them."""
    return {template: template for template in templates}


def read(tables: Iterable[Table], state: Mapping[str, Tensor]) -> Read:
    """Tensors under our names, by the rows of any of the tables.

    Raises:
        ValueError: two tensors for one of ours, or shapes that don't go together.
    """
    tables = tuple(tables)
    whole, parts, left = matches(tables, state, "theirs")
    ours: State = {}
    theirs: dict[str, str] = {}
    for match in sorted(whole, key=lambda match: match.rule.ours):
        names = [match.found[member] for member in sorted(match.found)]
        try:
            if len(match.ours) > 1:  # queries, and keys and values, in one
                tensors = list(state[names[0]].tensor_split([len(state[names[0]]) // 3]))
            else:
                tensors = [joined(match.ours[0], [state[name] for name in names], match.rule.layout)]
        except (RuntimeError, IndexError, ValueError) as error:
            shapes = ", ".join(f"{name} {tuple(state[name].shape)}" for name in names)
            raise ValueError(f"wrong shapes for {some(match.ours)}: {shapes}, which don't go together") from error
        for our, tensor in zip(match.ours, tensors, strict=True):
            if our in ours:
                raise ValueError(f"{some(names, 3)}: a second tensor for {our}, after {theirs[our]}")
            ours[our], theirs[our] = tensor, some(names, 3)
    absent = (name for match in parts for member, name in enumerate(match.theirs) if member not in match.found)
    return Read(ours, theirs, left, list(absent), tables)


def rename(state_dict: Mapping[str, Tensor], table: Table) -> State:
    """Our state dict (or gradients by name) under a table's names; of Flax's, under their names in our shapes.

    Raises:
        ValueError: a name that isn't ours, or that the table has no row for.
    """
    whole, parts, left = matches([table], state_dict, "ours")
    left += [name for match in parts for name in match.found.values()]
    if left:
        raise ValueError(f"not names of a ViT of this package: {some(left)}")
    renamed: State = {}
    for match in whole:
        tensors = [state_dict[match.found[member]] for member in sorted(match.found)]
        if len(tensors) > 1:
            renamed[match.theirs[0]] = torch.cat(tensors)
        else:
            parts_of_it = split(match.ours[0], tensors[0], len(match.theirs), match.rule.layout)
            renamed |= zip(match.theirs, parts_of_it, strict=True)
    return renamed


def joined(our: str, tensors: list[Tensor], layout: str = "") -> Tensor:
    """Several of their tensors as one of ours."""
    if layout == "flax":
        tensors = [from_flax(our, tensor) for tensor in tensors]
    if layout == "stacked":
        return torch.stack(tensors)
    if layout == "turned":
        return tensors[0].mT if tensors[0].ndim > 1 else tensors[0]  # which is refused for its shape
    if layout == "bare":
        return tensors[0][(None,) * (3 - tensors[0].ndim)]
    if len(tensors) == 1:
        return tensors[0]
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise ValueError("their shapes differ")
    if our == "head.bias":  # of two heads, whose mean is the answer
        return torch.stack(tensors).mean(dim=0)
    whole = torch.cat(tensors, dim=1 if our in ("embed.cls_token", "head.weight") else 0)
    return whole / len(tensors) if our == "head.weight" else whole


def split(our: str, tensor: Tensor, count: int, layout: str = "") -> list[Tensor]:
    """One of our tensors as so many of theirs: :func:`joined` undone, but for Flax's shapes."""
    if layout == "stacked":
        return list(tensor.unbind())
    if layout == "turned":
        return [tensor.mT]
    if layout == "bare":
        return [tensor.flatten(0, 1) if our.endswith("position") else tensor.flatten()]
    if count == 1:
        return [tensor]
    if our == "head.bias":
        return [tensor] * count
    if our == "head.weight":
        return list((tensor * count).chunk(count, dim=1))
    return list(tensor.chunk(count, dim=1 if our == "embed.cls_token" else 0))


def from_flax(our: str, tensor: Tensor) -> Tensor:
    """One of Flax's tensors as torch keeps it, by our name for it.

    Flax multiplies from the other side, so its layers keep (in, out) where torch keeps (out, in); and it gives the
    heads an axis of their own. Norms, tokens and the other biases are the same in both.
    """
    if our.endswith("patches.proj.weight"):
        return tensor.permute(3, 2, 0, 1)  # (P, P, C, D) -> (D, C, P, P)
    if our.endswith(("attention.qkv.weight", "pool.q.weight", "pool.kv.weight")):
        return tensor.flatten(1).mT  # (D, h, d) -> (D, D)
    if our.endswith(("attention.qkv.bias", "pool.q.bias", "pool.kv.bias")):
        return tensor.flatten()  # (h, d) -> (D,)
    if our.endswith(("attention.proj.weight", "pool.proj.weight")):
        return tensor.flatten(0, 1).mT  # (h, d, D) -> (D, D)
    if our.endswith(("fc1.weight", "fc2.weight", "head.weight")):
        return tensor.mT  # (in, out) -> (out, in)
    if our.startswith(FEATURES):  # a ResNet's
        return tensor.permute(3, 2, 0, 1) if "conv" in our else tensor.flatten()  # (K, K, C, F); (1, 1, 1, F)
    return tensor
