"""The same Vision Transformer in timm, torchvision and transformers, with our weights under their names."""

from functools import partial
from typing import TypeVar

import pytest
import timm.models.deit
import torch
import transformers
from torch import Tensor, nn
from torchvision.models import VisionTransformer

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import ModernConfig, QuickGELU
from vit_tutorial.weights.names import TIMM, TORCHVISION, TRANSFORMERS_4, TRANSFORMERS_5, rename

Module = TypeVar("Module", bound=nn.Module)
since_5 = pytest.mark.skipif(
    transformers.__version__.startswith("4."), reason="compares with transformers 5, which needs a later torch"
)


def timm_vit(c: ViTConfig) -> nn.Module:
    kind = timm.models.deit.VisionTransformerDistilled if c.prefix_tokens == 2 else timm.models.VisionTransformer
    return kind(
        img_size=c.image_size, patch_size=c.patch_size, in_chans=c.in_channels, num_classes=c.num_classes,
        embed_dim=c.dim, depth=c.depth, num_heads=c.num_heads, mlp_ratio=c.mlp_dim / c.dim, qkv_bias=c.qkv_bias,
        class_token=c.pool != "mean", global_pool="avg" if c.pool == "mean" else "token",
        fc_norm=False,  # timm's mean pooling would norm after the pool
        pos_embed="none" if c.position == "none" else "learn", norm_layer=partial(nn.LayerNorm, eps=c.norm_eps),
        act_layer=partial(nn.GELU, approximate={"exact": "none", "tanh": "tanh"}[c.gelu]),
    )  # fmt: skip


def torchvision_vit(c: ViTConfig) -> nn.Module:
    return VisionTransformer(
        c.image_size[0], c.patch_size[0], c.depth, c.num_heads, c.dim, c.mlp_dim, num_classes=c.num_classes,
        norm_layer=partial(nn.LayerNorm, eps=c.norm_eps),
    )  # fmt: skip


def transformers_vit(c: ViTConfig, attention: str = "sdpa") -> nn.Module:
    theirs = transformers.ViTConfig(
        image_size=as_pair(c.image_size, "image_size"), patch_size=as_pair(c.patch_size, "patch_size"),
        num_channels=c.in_channels, num_labels=c.num_classes, hidden_size=c.dim, num_hidden_layers=c.depth,
        num_attention_heads=c.num_heads, intermediate_size=c.mlp_dim, qkv_bias=c.qkv_bias, layer_norm_eps=c.norm_eps,
        hidden_act={"exact": "gelu", "tanh": "gelu_pytorch_tanh"}[c.gelu],
    )  # fmt: skip
    return transformers.AutoModelForImageClassification.from_config(theirs, attn_implementation=attention)


def timm_twin(c: ModernConfig) -> nn.Module:
    """The class of timm's that has the config's parts, built as ``to_timm`` says; what it can't have is an error."""
    from timm.layers import RmsNorm, SwiGLUPacked
    from timm.models import Beit, Eva, VisionTransformer

    norm = partial(RmsNorm if c.norm == "rms" else nn.LayerNorm, eps=c.norm_eps)
    shared = dict(
        img_size=c.image_size, patch_size=c.patch_size, in_chans=c.in_channels, num_classes=c.num_classes,
        embed_dim=c.dim, depth=c.depth, num_heads=c.num_heads, qkv_bias=c.qkv_bias, norm_layer=norm,
        init_values=c.layer_scale, global_pool={"cls": "token", "mean": "avg", "attention": "map"}[c.pool],
    )  # fmt: skip
    ratio = c.mlp_dim / c.dim
    centred = c.rotary is not None and c.rotary.coordinates == "centred"
    if c.position_bias:
        kind = Beit(
            **shared | {"global_pool": "token" if c.pool == "cls" else "avg"}, mlp_ratio=ratio, swiglu_mlp=c.gated,
            scale_mlp=c.mlp_norm, use_abs_pos_emb=c.position != "none", use_rel_pos_bias=True, use_fc_norm=c.pool_norm,
        )  # fmt: skip
    elif c.rotary is not None or (c.qkv_bias and not c.k_bias) or (c.gated and c.mlp_norm):
        rotary = c.rotary
        rope = {}
        if rotary is not None:
            eva = rotary.reference == (16, 16) and not rotary.offset and rotary.temperature == 10_000.0
            rope = dict(
                use_rot_pos_emb=True, rope_type="dinov3" if centred else "cat", rope_temperature=rotary.temperature,
                rope_grid_offset=rotary.offset, rope_grid_indexing="ij" if centred or eva else "xy",
                ref_feat_shape=rotary.reference, rope_rotate_half=centred,
            )  # fmt: skip
        pool_ratio = (c.pool_mlp_dim or c.mlp_dim) / c.dim
        kind = Eva(
            **shared, mlp_ratio=ratio, qk_norm=c.qk_norm, swiglu_mlp=c.gated, scale_mlp=c.mlp_norm,
            scale_attn_inner=c.attention_norm, class_token=c.class_token, num_reg_tokens=c.registers,
            qkv_fused=not (c.gated and c.mlp_norm), no_embed_class=bool(c.registers),
            use_abs_pos_emb=c.position != "none", use_pre_transformer_norm=c.pre_norm,
            use_post_transformer_norm=c.final_norm, use_fc_norm=c.pool_norm, attn_pool_num_heads=c.pool_heads,
            attn_pool_mlp_ratio=pool_ratio,
            swiglu_align_to=int(centred), attn_type="rope" if c.k_bias or not c.qkv_bias else "eva", **rope,
        )  # fmt: skip
    else:
        act = {"exact": nn.GELU, "tanh": partial(nn.GELU, approximate="tanh"), "quick": QuickGELU}[c.gelu]
        mlp = {"mlp_layer": SwiGLUPacked} if c.gated else {}
        kind = VisionTransformer(
            **shared, mlp_ratio=ratio * (2 if c.gated else 1), qk_norm=c.qk_norm, scale_attn_norm=c.attention_norm,
            scale_mlp_norm=c.mlp_norm, class_token=c.class_token, reg_tokens=c.registers,
            pos_embed="none" if c.position == "none" else "learn", no_embed_class=bool(c.registers),
            pre_norm=c.pre_norm, final_norm=c.final_norm or c.pool_norm,  # with fc_norm it is the one after pooling
            fc_norm=c.pool_norm, pool_include_prefix=c.pool_prefix,
            act_layer=nn.SiLU if c.gated else act, **mlp,
        )  # fmt: skip
    return kind.eval()


def transformers_twin(c: ModernConfig, state: dict[str, Tensor]) -> nn.Module:
    """The one of transformers' models whose parts a modern model has, with its tensors from ``to_huggingface``."""
    act = {"exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu"}[c.gelu]
    sizes = dict(
        hidden_size=c.dim, num_hidden_layers=c.depth, num_attention_heads=c.num_heads, image_size=c.image_size[0],
        patch_size=c.patch_size[0], num_channels=c.in_channels, layer_norm_eps=c.norm_eps, hidden_act=act,
        intermediate_size=c.mlp_dim, num_labels=c.num_classes,
    )  # fmt: skip
    bias = dict(qkv_bias=c.qkv_bias)
    if c.rotary is not None:
        kind, more = "DINOv3ViTModel", dict(
            rope_theta=c.rotary.temperature, num_register_tokens=c.registers, use_gated_mlp=c.gated,
            key_bias=c.k_bias and c.qkv_bias, query_bias=c.qkv_bias, value_bias=c.qkv_bias,
        )  # fmt: skip
        more |= {"hidden_act": "silu"} if c.gated else {}
    elif c.position_bias or c.pool == "mean":
        kind = "BeitForImageClassification" if c.num_classes else "BeitModel"
        more = dict(use_relative_position_bias=c.position_bias, use_absolute_position_embeddings=c.position != "none",
                    layer_scale_init_value=c.layer_scale or 0.0, use_mean_pooling=True)  # fmt: skip
    elif c.layer_scale is not None:
        kind = ("Dinov2WithRegisters" if c.registers else "Dinov2") + (
            "ForImageClassification" if c.num_classes else "Model"
        )
        more = bias | dict(num_register_tokens=c.registers, use_swiglu_ffn=c.gated)
        more |= {
            "mlp_ratio": next(
                r for r in range(1, 17) if c.mlp_dim in ((c.dim * r * 2 // 3 + 7) // 8 * 8 if c.gated else c.dim * r,)
            )
        }
    elif c.pre_norm:
        kind = "CLIPVisionModelWithProjection" if c.num_classes else "CLIPVisionModel"
        more = dict(projection_dim=c.num_classes)
    else:
        kind, more = "SiglipVisionModel", {}
    kind = getattr(transformers, kind)
    config = kind.config_class(**sizes | more)
    theirs, told = kind.from_pretrained(None, config=config, state_dict=state, output_loading_info=True)
    left = [name for name in told["missing_keys"] if "mask_token" not in name and "rope" not in name]
    assert [left, *(list(told[kind]) for kind in ("unexpected_keys", "mismatched_keys"))] == [[], [], []]
    return theirs.eval()


def what_it_answers(theirs: nn.Module, images: Tensor) -> Tensor:
    """Its logits, its projection, or what a head would read."""
    answer = theirs(images)
    for name in ("logits", "image_embeds", "pooler_output"):
        if getattr(answer, name, None) is not None:
            return getattr(answer, name)
    return answer.last_hidden_state[:, 0]


BUILDERS = {"timm": timm_vit, "torchvision": torchvision_vit, "transformers": transformers_vit}


def table_of(peer: str, theirs: nn.Module) -> dict[str, str]:
    """The table for a built peer; transformers renamed its modules in version 5."""
    hugging_face = TRANSFORMERS_5 if "vit.layers.0.mlp.fc1.weight" in theirs.state_dict() else TRANSFORMERS_4
    return {"timm": TIMM, "torchvision": TORCHVISION, "transformers": hugging_face}[peer]


@torch.no_grad()
def randomise(module: Module, seed: int = 0) -> Module:
    """Add noise to every parameter: a zero head, zero biases and norms of one would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        spread = parameter[0].numel() ** -0.5 if parameter.ndim in (2, 4) else 0.2
        parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * spread)
    return module


def twin(peer: str, ours: ViT, **options: str) -> nn.Module:
    """The same model from a peer, in ours's dtype and mode, its weights in memory of their own."""
    with torch.device("meta"):  # their initialisation takes seconds, and is thrown away
        theirs = BUILDERS[peer](ours.config, **options)
    state = rename(ours.state_dict(), table_of(peer, theirs))
    theirs.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)  # strict: no key left
    return theirs.train(ours.training)


def pair(
    peer: str, config: ViTConfig, dtype: torch.dtype = torch.float32, seed: int = 0, **options: str
) -> tuple[ViT, nn.Module]:
    """(ours, theirs) in eval mode, with equal random weights."""
    ours = randomise(ViT(config), seed).to(dtype).eval()
    return ours, twin(peer, ours, **options)


def logits(model: nn.Module, images: Tensor) -> Tensor:
    """What the model answers, also where the answer is an object around it (transformers)."""
    answer = model(images)
    return getattr(answer, "logits", answer)


def under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, their names behind a prefix."""
    return {prefix + name: tensor for name, tensor in state.items()}
