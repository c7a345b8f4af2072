"""Lesson 09: models of timm, torchvision and transformers, read off the live module: equal to ours, or refused."""

import pytest
import timm
import torch
import torchvision
import transformers
from peers import randomise

from vit_tutorial import vit
from vit_tutorial.weights import convert, proof, timm_models, torchvision_models, transformers_models

SMALL = {"embed_dim": 64, "depth": 2, "num_heads": 2, "num_classes": 5}
TIMM = {  # the architecture: what makes it small
    "vit_tiny_patch16_224": {"img_size": 48},
    "vit_tiny_patch16_224 without a head": {"img_size": (32, 64), "num_classes": 0},
    "deit_tiny_distilled_patch16_224": {"img_size": 48},
    "deit3_small_patch16_224": {"img_size": 48},
    "vit_small_patch14_dinov2": {"img_size": 56},
    "vit_small_patch14_reg4_dinov2": {"img_size": 56},
    "vit_giant_patch14_dinov2": {"img_size": 56, "mlp_ratio": 4},
    "vit_base_patch32_clip_224": {"img_size": 64},
    "vit_base_patch32_clip_quickgelu_224": {"img_size": 64},
    "vit_base_patch16_siglip_224": {"img_size": 48},
    "vit_base_patch16_siglip_gap_224": {"img_size": 48},
    "vit_so400m_patch14_siglip_384": {"img_size": 60},  # 4 pixels left over
    "vit_so150m_patch16_reg4_map_256": {"img_size": 48},
    "vit_medium_patch16_gap_240": {"img_size": 48},
    "vit_medium_patch16_rope_reg1_gap_256": {"img_size": 48},
    "vit_small_patch16_rope_224": {"img_size": 48},
    "vit_small_patch16_rope_ape_224": {"img_size": 48},
    "vit_small_patch16_dinov3": {"img_size": 48},
    "vit_huge_plus_patch16_dinov3": {"img_size": 48},
    "vit_pe_core_tiny_patch16_384": {"img_size": 48},
    "vit_pe_spatial_tiny_patch16_512": {"img_size": 48, "global_pool": "avg"},
    "eva_large_patch14_196": {"img_size": 42},
    "eva_giant_patch14_224": {"img_size": 42},
    "eva02_tiny_patch14_224": {"img_size": 42},
    "eva02_base_patch14_224": {"img_size": 42},
    "eva02_base_patch16_clip_224": {"img_size": 48},
    "beit_base_patch16_224": {"img_size": (32, 64)},
    "beitv2_base_patch16_224": {"img_size": 48},
    "beit3_base_patch16_224": {"img_size": 48},
    "flexivit_small": {"img_size": 48},
    "test_vit4": {},
}
TIMM_REFUSED = {  # the architecture: what the message names
    "vit_small_patch16_rope_mixed_224": "positions of another kind",
    "vit_relpos_small_patch16_224": "after block 0",
    "vit_srelpos_small_patch16_224": "after block 0",
    "vit_base_patch16_rpn_224": "after block 0",  # a norm after each branch
    "vit_small_patch16_18x2_224": "nothing that our tables know",
    "vit_small_resnet26d_224": "",
    "samvit_base_patch16": "embed.position",
    "naflexvit_base_patch16_gap": "isn't a Vision Transformer",
    "cait_xxs24_224": "before block 0",
    "swin_tiny_patch4_window7_224": "nothing that our tables know",
    "resnet18": "isn't a Vision Transformer",
}
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
DINO = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
TEXT = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 99,
    "max_position_embeddings": 16,
}  # fmt: skip
PAIR = {"vision_config": SIZES, "text_config": TEXT}
BEIT = SIZES | {"use_relative_position_bias": True}
TRANSFORMERS = {
    "ViTModel": ("ViTConfig", SIZES),
    "ViTForImageClassification": ("ViTConfig", SIZES | {"hidden_act": "gelu_pytorch_tanh", "qkv_bias": False}),
    "ViTForMaskedImageModeling": ("ViTConfig", SIZES),
    "ViTMSNForImageClassification": ("ViTMSNConfig", SIZES),
    "IJepaModel": ("IJepaConfig", SIZES),
    "IJepaForImageClassification": ("IJepaConfig", SIZES),
    "DeiTModel": ("DeiTConfig", SIZES),
    "DeiTForImageClassification": ("DeiTConfig", SIZES),
    "DeiTForImageClassificationWithTeacher": ("DeiTConfig", SIZES),
    "BeitModel": ("BeitConfig", BEIT | {"use_mean_pooling": False}),
    "BeitForImageClassification": ("BeitConfig", BEIT),
    "Dinov2Model": ("Dinov2Config", DINO),
    "Dinov2ForImageClassification": ("Dinov2Config", DINO | {"use_swiglu_ffn": True}),
    "Dinov2WithRegistersModel": ("Dinov2WithRegistersConfig", DINO),
    "Dinov2WithRegistersForImageClassification": ("Dinov2WithRegistersConfig", DINO),
    "DINOv3ViTModel": (
        "DINOv3ViTConfig",
        SIZES | {"num_register_tokens": 4, "use_gated_mlp": True, "hidden_act": "silu"},
    ),
    "CLIPModel": ("CLIPConfig", PAIR | {"projection_dim": 16}),
    "CLIPVisionModel": ("CLIPVisionConfig", SIZES),
    "CLIPVisionModelWithProjection": ("CLIPVisionConfig", SIZES),
    "CLIPForImageClassification": ("CLIPConfig", PAIR),
    "MetaClip2Model": ("MetaClip2Config", PAIR | {"projection_dim": 16}),
    "SiglipModel": ("SiglipConfig", PAIR),
    "SiglipVisionModel": ("SiglipVisionConfig", SIZES | {"patch_size": 7}),
    "SiglipForImageClassification": ("SiglipConfig", PAIR),
}
TRANSFORMERS_REFUSED = {
    "DINOv3ViTModel": ("DINOv3ViTConfig", SIZES | {"use_gated_mlp": True}, "after block 0"),  # gated by GELU
    "ViTMAEModel": ("ViTMAEConfig", SIZES, "before block 0"),  # it hides three quarters of the patches
    "BlipModel": ("BlipConfig", PAIR, "attention.qkv"),  # one tensor of q, k and v, and a norm twice
    "MLCDVisionModel": ("MLCDVisionConfig", SIZES, "after block 0"),  # rotary positions of its own
    "Siglip2Model": ("Siglip2Config", PAIR, "one convolution"),
    "SwinModel": ("SwinConfig", {}, "nothing that our tables know"),
}


def check(theirs, read):
    """Our model of theirs, proven, and compared once more, on other images and in double precision."""
    published = read(randomise(theirs).eval())
    ours = convert.model_of(published)
    proof.prove(ours, published)
    theirs.double()
    images = torch.rand_like(proof.random_images(ours, published), dtype=torch.float64)
    with torch.inference_mode():
        expected = published.forward(images)
        H, W = ours.config.image_size
        found = ours.double()(images[..., :H, :W])
    assert expected.std() > 1e-3
    single = getattr(ours.config, "rotary", None) or getattr(ours.config, "registers", 0)  # angles and sums in float32
    assert (found - expected).abs().max() < (1e-6 if single else 1e-8) * expected.std()
    return ours


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    theirs = timm.create_model(name.partition(" ")[0], **SMALL | TIMM[name])
    check(theirs, timm_models.describe)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name):
    config, sizes = TRANSFORMERS[name]
    check(getattr(transformers, name)(getattr(transformers, config)(**sizes)), transformers_models.describe)


@pytest.mark.parametrize("classes", [5, 1])
def test_torchvision(classes):
    theirs = torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 48, num_classes=classes)
    assert type(check(theirs, torchvision_models.describe)) is vit.ViT


@pytest.mark.parametrize("name", TIMM_REFUSED)
def test_timm_refused(name, refuses):
    with refuses(ValueError, TIMM_REFUSED[name]):
        check(timm.create_model(name), timm_models.describe)


@pytest.mark.parametrize("name", TRANSFORMERS_REFUSED)
def test_transformers_refused(name, refuses):
    config, sizes, words = TRANSFORMERS_REFUSED[name]
    with refuses(ValueError, words):
        check(getattr(transformers, name)(getattr(transformers, config)(**sizes)), transformers_models.describe)


def test_tensors_are_shared():
    theirs = timm.create_model("vit_tiny_patch16_224", **SMALL, img_size=48)
    ours = convert.model_of(timm_models.describe(theirs))
    mine, others = (
        {p.untyped_storage().data_ptr() for p in model.parameters()} for model in (ours, theirs)
    )  # fmt: skip
    assert mine == others
