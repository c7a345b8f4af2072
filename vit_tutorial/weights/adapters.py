"""Lesson 09: a LoRA adapter beside the weights or among them: merged into them, as peft merges it, or refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vit_tutorial.weights import names
from vit_tutorial.weights.fields import Fields, Json, Reasons, whole
from vit_tutorial.weights.messages import some
from vit_tutorial.weights.sources import HUGGING_FACE

DROPPED: Reasons = {
    "where it is from": {
        "base_model_name_or_path", "revision", "auto_mapping", "task_type", "peft_version", "inference_mode",
        "runtime_config",
    },
    "training": {"lora_dropout", "loftq_config", "eva_config", "corda_config", "lora_ga_config"},
    "the tensors show it": {
        "bias", "target_modules", "exclude_modules", "layers_pattern", "qalora_group_size",
    },
    "models of text": {"megatron_config", "megatron_core", "ensure_weight_tying"},
}  # fmt: skip
LORA = re.compile(r"\.lora_([AB])(\.default)?\.weight$")


def has_adapter(state: Mapping[str, Any]) -> bool:
    """Whether peft's tensors are among these."""
    return any(isinstance(name, str) and ".lora_" in name for name in state)


def merge(base: Mapping[str, Any], adapter: Mapping[str, Any], config: Json) -> dict[str, Any]:
    """The base's tensors with the adapter's added, W + alpha / r B A (arXiv 2106.09685), or put in their place.

    Args:
        base: names and tensors; empty, if the adapter's file has them, too.
        adapter: those of adapter_model.safetensors, or of a model that peft has wrapped.
        config: adapter_config.json.

    Raises:
        ValueError: another kind of adapter, or tensors that don't belong to the base.
    """
    scale = _scale_of(config, adapter)
    merged, pairs = dict(base), dict[str, dict[str, Tensor]]()
    for name, tensor in adapter.items():
        plain = name.removeprefix("base_model.model.")
        if found := LORA.search(plain):
            pairs.setdefault(plain[: found.start()], {})[found[1]] = tensor
        elif ".lora_" in plain or not isinstance(tensor, Tensor):
            raise ValueError(f"the adapter has {some([name])}, which isn't LoRA's A or B: merge it first")
        elif ".original_module." not in plain:  # modules_to_save stand in its place
            plain = plain.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")
            merged[_name_in(merged, plain) or plain] = tensor
    for module, pair in pairs.items():
        weight = _name_in(merged, f"{module}.weight")
        if weight is None or pair.keys() != {"A", "B"}:
            raise ValueError(f"the adapter has a part for {some([module])}, which the base lacks, or half of one")
        A, B, W = pair["A"].float(), pair["B"].float(), merged[weight]
        if B.shape[0] != W.shape[0] or B.shape[1] != A.shape[0] or A[0].numel() != W[0].numel():
            raise ValueError(f"wrong shapes for {some([module])}: {tuple(W.shape)} + {tuple(B.shape)} {tuple(A.shape)}")
        update = scale(A.shape[0]) * (B.flatten(1) @ A.flatten(1)).view(W.shape)
        merged[weight] = (W.float() + update).to(W.dtype)
    return merged


def _name_in(state: Mapping[str, Any], name: str) -> str | None:
    """The name, or without the prefix that a model around the base gives it, or as another version has it."""
    parts = name.split(".")
    for start in range(len(parts)):
        if ".".join(parts[start:]) in state:
            return ".".join(parts[start:])
    places = names.places_of(HUGGING_FACE.tables, name)  # transformers 4 and 5 call modules by other names
    found = [other for other in state if places & names.places_of(HUGGING_FACE.tables, other)]
    return found[0] if len(found) == 1 else None


def _scale_of(config: Json, adapter: Mapping[str, Any]) -> Any:
    """Alpha / r as a function of r, by the adapter's config, of which nothing is left; the names agree with it."""
    said = Fields(config, "its adapter_config")
    ranks = {said.stated("r", 8), *said.stated("rank_pattern", {}).values()}
    layers, saved = said.stated("layers_to_transform"), said.stated("modules_to_save", [])
    halves = [name for name in adapter if LORA.search(name)]
    found = [int(layer[1]) for name in halves if (layer := re.search(r"\.(\d+)\.", name))]
    if odd := {len(adapter[name]) for name in halves if ".lora_A." in name} - ranks:
        raise ValueError(f"its adapter_config has r={config.get('r', 8)}, and its tensors are of rank {min(odd)}")
    if layers is not None and (beyond := set(found) - set(layers if isinstance(layers, list) else [layers])):
        raise ValueError(f"its adapter_config has layers_to_transform={layers}, and its tensors layer {min(beyond)}")
    if absent := [name for name in saved if name != "score" and not any(f".{name}." in other for other in adapter)]:
        raise ValueError(f"its adapter_config has modules_to_save={saved}, and its tensors no {absent[0]}")
    said.must_be("peft_type", "LORA")
    alpha, root = whole(said.take("lora_alpha", 8), "lora_alpha"), said.take("use_rslora", False)
    for key in ("use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora"):
        said.must_be(key, False, None)
    for key in ("alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices", "arrow_config",
                "alora_invocation_tokens", "velora_config", "monteclora_config", "kasa_config"):  # fmt: skip
        said.must_be(key, None, {}, [])
    said.must_be("init_lora_weights", True, False, None, "gaussian")
    said.close(DROPPED)
    return lambda r: alpha / (math.sqrt(r) if root else r)
