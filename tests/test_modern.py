"""Lesson 15: the model of today against timm's and transformers' own, and the plain ViT as its special case."""

import dataclasses
import math
import random
import re
import warnings
from functools import partial

import pytest
import timm
import torch
import transformers
from peers import randomise, since_5, timm_twin, transformers_twin, what_it_answers
from safetensors.torch import save_file
from timm.layers.pos_embed_sincos import build_rotary_pos_embed
from timm.models import save_for_hf
from torch.testing import assert_close
from transformers.models.dinov3_vit import modeling_dinov3_vit

import vit_tutorial as vt
from vit_tutorial.variants import modern
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, ModernViT, Rotary
from vit_tutorial.weights import configs
from vit_tutorial.weights.reading import read_json

pytestmark = pytest.mark.filterwarnings("ignore:.*doesn't tell all", "ignore:.*left out")
same = partial(assert_close, rtol=0, atol=1e-8)
TINY = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "num_heads": 4, "mlp_dim": 48}
PARTS = {  # one at a time, and together
    "layer scale": {"layer_scale": 0.5},
    "registers": {"registers": 3},
    "norm before the blocks": {"pre_norm": True},
    "quick gelu": {"gelu": "quick"},
    "gated": {"gated": True},
    "gated, normed": {"gated": True, "mlp_norm": True},
    "rms": {"norm": "rms", "qk_norm": True},
    "attention norm": {"attention_norm": True},
    "mean and its norm": {"pool": "mean", "pool_norm": True, "final_norm": False},
    "attention pooling": {"pool": "attention", "class_token": False, "pool_heads": 2, "pool_mlp_dim": 20},
    "both": {"pool": "cls+mean"},
    "DeiT's second token": {"pool": "distilled"},
    "rotary": {"position": "none", "rotary": Rotary()},
    "rotary by index": {"rotary": Rotary("index", 10_000.0, (2, 3), 1.0), "registers": 1},
    "position bias": {"position": "none", "position_bias": True},
    "biases of q and v": {"k_bias": False},
    "none": {"qkv_bias": False},
    **ARCHITECTURES,
}


def tiny(**changes):
    return ModernConfig(**TINY | changes)


def model_of(*, dtype=torch.float64, seed=0, **changes):
    return randomise(ModernViT(tiny(**changes)), seed).to(dtype).eval()


def images(size=(32, 32), dtype=torch.float64, batch=2):
    return torch.randn(batch, 3, *size, dtype=dtype)


# ---------------------------------------------------------------------------------------------------- the special case


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": False, "gelu": "tanh"},
        {"position": "sincos", "image_size": (16, 40)},
        {"position": "none"},
    ],
)
def test_with_every_option_left_alone_it_is_the_plain_vit(changes):
    plain = randomise(vt.ViT(vt.ViTConfig(**TINY | changes))).double().eval()
    ours = ModernViT(tiny(**changes)).double().eval()
    ours.load_state_dict(plain.state_dict())  # the same names
    size = vt.patches.as_pair(plain.config.image_size, "image_size")
    x = images(size)
    assert_close(ours(x), plain(x), rtol=0, atol=0)
    assert_close(ours.features(x), plain.features(x), rtol=0, atol=0)
    assert_close(ours.attention_maps(x, [-1, 0]), plain.attention_maps(x, [-1, 0]), rtol=0, atol=0)
    assert modern.count_parameters(ours.config) == vt.count_parameters(plain.config)
    assert modern.count_macs(ours.config) == vt.count_macs(plain.config)
    assert ours.config.num_tokens == plain.config.num_tokens


def test_it_starts_as_the_plain_one():
    torch.manual_seed(1)
    plain = vt.ViT(vt.ViTConfig(**TINY)).state_dict()
    torch.manual_seed(1)
    assert_close(ModernViT(tiny()).state_dict(), plain, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------------ the parts


@pytest.mark.parametrize("part", PARTS)
def test_the_fused_pass_the_steps_and_the_maps_agree(part):
    model = model_of(**PARTS[part])
    x = images()
    maps = model.attention_maps(x)
    z = model.embed(x)
    T = model.config.num_tokens
    for layer, block in enumerate(model.blocks):
        attention = block.attention
        q, k, v = attention.split_heads(block.norm1(z))
        z_heads, weights = vt.dot_product_attention(q, k, v, attention.score_bias(q))
        same(attention.proj(attention.merge_heads(z_heads)), attention(block.norm1(z)))
        assert maps[layer].shape == (2, 4, T, T)
        same(weights, maps[layer])
        same(weights.sum(-1), torch.ones(2, 4, T, dtype=torch.float64))
        same(block.attend(z), z + block.scale1(attention(block.norm1(z))))
        z = block(z)
    same(model.norm(z), model.features(x))
    assert model(x).shape == (2, 5)
    with pytest.raises(ValueError, match="no layer 2"):
        model.attention_maps(x, [2])


@pytest.mark.parametrize("part", PARTS)
def test_every_tensor_matters_and_every_count_is_right(part):
    model = model_of(**PARTS[part])
    assert modern.count_parameters(model.config) == sum(p.numel() for p in model.parameters())
    loss = model(images()).square().sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        q_of_the_probe = name in ("pool.probe", "pool.q.weight", "pool.q.bias")
        if (
            "kv.bias" not in name
            and "qkv.bias" not in name
            and not q_of_the_probe
            and name != "blocks.0.attention.bias"
        ):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_rotary_angles_by_hand():
    centred = Rotary().angles((2, 4), 8, torch.zeros(1, dtype=torch.float64))  # (8, 4): row, row, column, column
    slow = 100.0**-0.5
    same(centred[0], math.pi * torch.tensor([-1, -slow, -1.5, -1.5 * slow], dtype=torch.float64))
    same(centred[-1], -centred[0])
    index = Rotary("index", 100.0, (4, 4), 1.0).angles((2, 4), 8, torch.zeros(1, dtype=torch.float64))
    same(index[5], torch.tensor([4, 4 * slow, 2, 2 * slow], dtype=torch.float64))


@pytest.mark.parametrize("part", ["rotary", "position bias"])
def test_places_follow_the_precision_and_are_filled_after_meta(part):
    model = model_of(**PARTS[part])
    x = images()
    with torch.device("meta"):
        empty = ModernViT(model.config)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    same(empty.double().eval()(x), model(x))
    there_and_back = ModernViT(model.config).half().double().eval()  # half precision would have rounded the angles
    there_and_back.load_state_dict(model.state_dict())
    same(there_and_back(x), model(x))


# ------------------------------------------------------------------------------------------------ compiled, exported, …

WHOLE = {
    **ARCHITECTURES["dinov3"],
    **{"gated": True, "mlp_norm": True, "qk_norm": True, "pool": "attention", "attention_norm": True},
}


@pytest.mark.parametrize(
    "changes",
    [pytest.param(WHOLE, id="rotary"), pytest.param(ARCHITECTURES["beit"], id="bias")],
)
@pytest.mark.skipif(torch.__version__ < "2.14", reason="2.9's compiler can't follow it")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["compiled", "exported"])
def test_compiles_and_exports_as_one_graph(how, changes):
    model = model_of(dtype=torch.float32, depth=1, **changes)
    x = images(dtype=torch.float32)
    if how == "compiled":
        graph = torch.compile(model, fullgraph=True, backend="aot_eager")
    else:
        graph = torch.export.export(model, (x,)).module()
    assert_close(graph(x), model(x))


@pytest.mark.parametrize("part", ["dinov3", "eva02", "beit", "siglip"])
def test_bfloat16_stays_close(part):
    model = model_of(dtype=torch.float32, **PARTS[part])
    x = images(dtype=torch.float32)
    wanted = model(x)
    got = model.bfloat16()(x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert (got.float() - wanted).abs().max() < 0.1 * wanted.abs().max()
    maps = model.attention_maps(x.bfloat16(), [0])[0]
    assert_close(maps.float().sum(-1), torch.ones(maps.shape[:-1]), rtol=0, atol=0.05)


def test_meta_builds_without_memory_and_a_state_dict_fills_it():
    full = model_of(dtype=torch.float32, **WHOLE)
    with torch.device("meta"):
        empty = ModernViT(full.config)
    empty.load_state_dict(full.state_dict(), assign=True)  # no buffer is left behind
    x = images(dtype=torch.float32)
    assert_close(empty.eval()(x), full(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gelu": "relu"}, ["gelu", "relu", "quick"]),
        ({"pool": "max"}, ["pool", "max", "attention"]),
        ({"norm": "batch"}, ["norm", "batch"]),
        ({"registers": -1}, ["registers", "-1"]),
        ({"registers": 1.5}, ["registers", "1.5"]),
        ({"class_token": False}, ["pool='cls'", "class_token=True"]),
        ({"class_token": False, "pool": "cls+mean"}, ["pool='cls+mean'"]),
        ({"rotary": Rotary(), "dim": 24}, ["divisible by 4", "24 / 4"]),
        ({"position_bias": True, "registers": 1}, ["position_bias"]),
        ({"position_bias": True, "class_token": False, "pool": "mean"}, ["position_bias"]),
        ({"pool": "attention", "pool_heads": 5}, ["pool_heads 5"]),
        ({"dim": 30}, ["dim 30", "num_heads 4"]),
        ({"image_size": 30}, ["30x30"]),
    ],
)
def test_fields_that_do_not_go_together(changes, words, refuses):
    with refuses(ValueError, *words):
        tiny(**changes)


def test_rotary_fields(refuses):
    with refuses(ValueError, "coordinates", "polar"):
        Rotary("polar")
    with refuses(ValueError, "temperature", "1.0"):
        Rotary(temperature=1.0)


def test_a_config_is_hashable_and_survives_json():
    import json

    config = tiny(image_size=[32, 16], rotary=Rotary("index", 100.0, (4, 4)))
    back = ModernConfig(**json.loads(json.dumps(dataclasses.asdict(config))))
    assert back == config
    assert hash(back) == hash(config)


# ---------------------------------------------------------------------------------------------- weights: the libraries'

V = {"embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5, "mlp_ratio": 1.5}
TIMM = {  # name: (architecture, sizes): parts as timm's own functions build them, small
    "DINOv2": ("vit_small_patch14_dinov2", {"img_size": 56}),
    "DINOv2, wide": ("vit_small_patch14_dinov2", {"img_size": (28, 56)}),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {"img_size": (28, 56)}),
    "DINOv2 giant": ("vit_giant_patch14_dinov2", {"img_size": 56, "mlp_ratio": 3}),
    "DINOv3": ("vit_small_patch16_dinov3", {}),
    "DINOv3 with biases": ("vit_small_patch16_dinov3_qkvb", {}),
    "DINOv3 plus": ("vit_small_plus_patch16_dinov3", {"swiglu_align_to": 8}),
    "CLIP": ("vit_base_patch16_clip_224", {"img_size": 64}),
    "OpenAI's CLIP": ("vit_base_patch16_clip_quickgelu_224", {"img_size": (32, 64)}),
    "SigLIP": ("vit_base_patch16_siglip_224", {"img_size": 64}),
    "SigLIP 2": ("vit_so400m_patch16_siglip_256", {"img_size": (64, 32)}),
    "EVA-02 small": ("eva02_small_patch14_224", {"img_size": (56, 28)}),
    "EVA-02, q and k normed": ("eva02_small_patch14_224", {"img_size": (56, 28), "qk_norm": True}),
    "EVA-02 base": ("eva02_base_patch14_224", {"img_size": (56, 28)}),
    "EVA-02 CLIP": ("eva02_base_patch16_clip_224", {"img_size": (64, 32)}),
    "EVA": ("eva_giant_patch14_224", {"img_size": 56}),
    "BEiT": ("beit_base_patch16_224", {"img_size": 64}),
    "BEiT v2, wide": ("beitv2_base_patch16_224", {"img_size": (32, 64)}),
    "DeiT-3": ("deit3_small_patch16_224", {"img_size": (64, 32)}),
    "MAE, fine-tuned": ("vit_base_patch16_224", {"img_size": 64, "global_pool": "avg"}),
    "registers, mean": ("vit_medium_patch16_reg4_gap_256", {"img_size": 64}),
    "positions of registers": ("vit_so150m_patch16_reg4_map_256", {"img_size": 64}),
    "RMS": ("test_vit4", {"img_size": 64}),
    "rotary, columns first": ("vit_small_patch16_rope_224", {}),
    "Perception Encoder": ("vit_pe_core_tiny_patch16_384", {"img_size": (64, 32)}),
}


def timm_peer(case, dtype=torch.float64):
    """Timm's own model, every tensor random; and the size of its pictures. Frequencies get all of float64's digits."""
    name, changes = TIMM[case]
    any_size = {} if "img_size" in changes else {"dynamic_img_size": True}
    theirs = randomise(timm.create_model(name, **V | any_size | changes)).to(dtype).eval()
    P = theirs.patch_embed.patch_size[0]
    size = changes.get("img_size", (4 * P, 2 * P))
    rope = getattr(theirs, "rope", None)
    if rope is not None and dtype == torch.float64:
        k = torch.arange(2, dtype=dtype)  # d / 4 frequencies
        if hasattr(rope, "periods"):
            rope.periods = float(rope.temperature) ** (k / 2)
        else:
            bands = float(rope.temperature) ** (-k / 2)
            where = {"grid_offset": rope.grid_offset, "grid_indexing": rope.grid_indexing, "in_pixels": False}
            reference = rope.ref_feat_shape
            both = build_rotary_pos_embed([4, 2], bands=bands, ref_feat_shape=reference, dtype=dtype, **where)
            table = torch.cat(both, dim=-1)
            rope.get_embed = lambda *args, **kwargs: table
    return theirs, (size, size) if isinstance(size, int) else size


def parts_of(name):
    return configs.timm({"architecture": name}).given


def converted(state, told, size):
    found = vt.weights.convert(
        state, num_heads=4, image_size=size, norm_eps=told.norm_eps, parts=dict(told.parts), gelu=told.gelu
    )
    ours = modern.build(found.config).to(next(iter(found.state_dict.values())).dtype).eval()
    ours.load_state_dict(found.state_dict)
    return found, ours


HF = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8, "num_labels": 5, "layer_norm_eps": 1e-3, "projection_dim": 7, "mlp_ratio": 2,
}  # fmt: skip
TRANSFORMERS = {
    "DINOv2": ("Dinov2Model", {}),
    "DINOv2, classifier": ("Dinov2ForImageClassification", {}),
    "DINOv2, gated": ("Dinov2ForImageClassification", {"use_swiglu_ffn": True}),
    "DINOv2 with registers": ("Dinov2WithRegistersForImageClassification", {"num_register_tokens": 3}),
    "DINOv3": ("DINOv3ViTModel", {"num_register_tokens": 3}),
    "DINOv3 plus": ("DINOv3ViTModel", {"use_gated_mlp": True, "hidden_act": "silu", "num_register_tokens": 4}),
    "CLIP": ("CLIPVisionModel", {}),
    "CLIP with its projection": ("CLIPVisionModelWithProjection", {}),
    "CLIP, classifier": ("CLIPForImageClassification", {}),
    "SigLIP": ("SiglipVisionModel", {}),
    "SigLIP, classifier": ("SiglipForImageClassification", {}),
    "BEiT": ("BeitForImageClassification", {"use_relative_position_bias": True}),
    "BEiT, shared": (
        "BeitForImageClassification",
        {"use_shared_relative_position_bias": True, "use_relative_position_bias": True},
    ),
    "BEiT, absolute": ("BeitModel", {"use_absolute_position_embeddings": True, "use_mean_pooling": False}),
}


def transformers_peer(case):
    name, changes = TRANSFORMERS[case]
    kind = getattr(transformers, name)
    wanted = HF | changes
    if "vision_config" in getattr(kind.config_class, "sub_configs", {}):
        tower = {
            key: value for key, value in wanted.items() if key not in ("num_labels", "mlp_ratio", "projection_dim")
        }
        config = kind.config_class(vision_config=tower, num_labels=5)
    else:
        config = kind.config_class(**{k: v for k, v in wanted.items() if hasattr(kind.config_class(), k)})
    theirs = randomise(kind(config)).double().eval()
    if (rope := getattr(theirs, "rope_embeddings", None)) is not None:
        rope.inv_freq = 100.0 ** (-torch.arange(2, dtype=torch.float64) / 2)
    return theirs


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_a_folder_of_transformers_gives_the_same_numbers_and_takes_ours(case, tmp_path, monkeypatch, refuses):
    coordinates = modeling_dinov3_vit.get_patches_center_coordinates  # in float32, however exact the rest is
    exact = lambda rows, columns, dtype, device: coordinates(rows, columns, torch.float64, device)  # noqa: E731
    monkeypatch.setattr(modeling_dinov3_vit, "get_patches_center_coordinates", exact)
    theirs = transformers_peer(case)
    theirs.save_pretrained(tmp_path)
    found = vt.load(tmp_path)
    ours, x = found.model.double(), images()
    with torch.no_grad():
        same(ours(x), what_it_answers(theirs, x))
        if case in ("DINOv3", "DINOv3 plus"):
            x, there = images((64, 16)), vt.load(tmp_path, image_size=(64, 16)).model.double()
            same(there.features(x), theirs(x).last_hidden_state)
        if case.startswith("DINOv2"):  # of the one with registers the positions are resized in another way
            x, there = images((24, 16)), vt.load(tmp_path, image_size=(24, 16)).model.double()
            assert_close(there(x), what_it_answers(theirs, x), rtol=1e-4, atol=1e-4)
    state = theirs.state_dict()  # the live names
    told = configs.read(read_json(tmp_path / "config.json"), None).given
    _, again = converted(state, told, 32)
    assert again.config == dataclasses.replace(ours.config, image_size=again.config.image_size)
    assert_close(again.state_dict(), ours.state_dict(), rtol=0, atol=1e-6)
    if case == "BEiT, absolute":
        with refuses(ValueError, "none of transformers' models"):
            vt.weights.to_huggingface(ours)
    elif "shared" not in case and ("classifier" not in case or "DINOv2" in case):  # they aren't written
        save_file(vt.weights.to_huggingface(ours.float()), tmp_path / "model.safetensors", metadata={"format": "pt"})
        back, told = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
        assert not [name for name in told["missing_keys"] if "mask_token" not in name and "rope" not in name]
        assert not told["unexpected_keys"]
        with torch.no_grad():
            x = images(dtype=torch.float32)
            assert_close(what_it_answers(back.float().eval(), x), ours(x), rtol=1e-4, atol=1e-5)


def test_a_folder_of_timm_gives_the_same_numbers(tmp_path):
    for case in ("DINOv2 with registers", "DINOv3", "EVA-02 base", "BEiT v2, wide"):
        theirs, size = timm_peer(case, torch.float32)
        folder = tmp_path / TIMM[case][0]
        save_for_hf(theirs, folder, safe_serialization=True)
        found = vt.load(folder, num_heads=4, image_size=size)
        x = images(size, torch.float32)
        with torch.no_grad():
            assert_close(found.model(x), theirs(x), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------- weights: the authors' own


def test_the_authors_names_give_the_same_numbers():
    """Timm's names turned into those of the authors' files, as timm's own filters read them."""
    x = images((32, 32))
    gated = {"gated": True, "mlp_norm": True, "k_bias": False}
    cases = {
        "DINOv2": (
            {"registers": 2, "layer_scale": 1.0, "gated": True},
            {"reg_token": "register_tokens", "fc1": "w12", "fc2": "w3"},
        ),
        "DINOv3": (ARCHITECTURES["dinov3"], {"reg_token": "storage_tokens", "gamma_": "ls"}),
        "EVA-02": (
            gated,
            {"mlp.norm": "mlp.ffn_ln", "fc2": "w3", "fc1_g": "w1", "fc1_x": "w2"}
            | {f"{letter}_proj.bias": f"{letter}_bias" for letter in "qv"},
        ),
        "DeiT-3": ({"layer_scale": 1.0}, {"ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"}),
    }
    for name, (changes, names) in cases.items():
        model = model_of(**changes)
        with torch.no_grad():
            if model.config.position == "learned":
                model.embed.position[:, :1] = 0
        state = vt.weights.to_timm(model)
        for timms, theirs in names.items():
            state = {key.replace(timms, theirs): tensor for key, tensor in state.items()}
        if name == "DINOv3":
            state = {key + ".gamma" if key.rpartition(".")[2] in ("ls1", "ls2") else key: t for key, t in state.items()}
            for i in range(2):
                q, v = state.pop(f"blocks.{i}.attn.q_bias"), state.pop(f"blocks.{i}.attn.v_bias")
                state[f"blocks.{i}.attn.qkv.bias"] = torch.cat([q, torch.full_like(q, 9.0), v])
                state[f"blocks.{i}.attn.qkv.bias_mask"] = torch.ones(96)
            state |= {"rope_embed.periods": torch.tensor([1.0, 10.0]), "mask_token": torch.ones(1, 32)}
        parts = {"pool": "cls", "rotary": model.config.rotary, "neighbours": False}
        found = vt.weights.convert(state, num_heads=4, image_size=32, norm_eps=model.config.norm_eps, parts=parts)
        ours = ModernViT(found.config).double().eval()
        ours.load_state_dict(found.state_dict)
        same(ours(x), model(x))


def test_places_that_a_file_stores_are_compared(refuses):
    model = model_of(rotary=Rotary("index", 10_000.0, (16, 16)), position="none")
    state, angles = vt.weights.to_timm(model), model.config.rotary.angles((4, 4), 8, torch.zeros(()))
    stored = angles.repeat_interleave(2, dim=1)  # (N, d), neighbours
    parts = {"pool": "cls", "rotary": model.config.rotary}
    read = lambda **more: vt.weights.convert(  # noqa: E731
        state | {f"blocks.0.attn.rope.{name}": tensor for name, tensor in more.items()},
        num_heads=4, image_size=32, parts=parts | {"neighbours": True},
    )  # fmt: skip
    assert read(freqs_cos=stored.cos(), freqs_sin=stored.sin()).config.rotary == model.config.rotary
    for wrong in (stored.cos() + 0.1, stored.sin(), torch.ones(4, 4)):
        with refuses(ValueError, "blocks.0.attn.rope.freqs_cos", "isn't what this model computes"):
            read(freqs_cos=wrong)
    theirs = vt.weights.to_timm(model_of(rotary=Rotary(), position="none", registers=2, layer_scale=1.0))
    with refuses(ValueError, "rope_embed.periods"):  # of another temperature
        vt.weights.convert(theirs | {"rope_embed.periods": torch.tensor([1.0, 100.0])}, num_heads=4, image_size=32)
    beit = state_of("BEiT")
    index = modern.position_bias_index((4, 4))
    name = "blocks.0.attn.relative_position_index"
    assert vt.weights.convert(beit | {name: index}).config.position_bias
    with refuses(ValueError, name):
        vt.weights.convert(beit | {name: index.flip(1)})


def test_norms_of_queries_over_all_heads_are_refused(refuses):
    state = vt.weights.to_timm(model_of(qk_norm=True))
    state |= {name: torch.ones(32) for name in state if re.search(r"[qk]_norm", name)}
    with refuses(ValueError, "over all D = 32"):
        vt.weights.convert(state, num_heads=4, image_size=32)


@pytest.mark.parametrize(
    "parts", [{}, {"pool": "cls"}, {"pool": "cls", "rotary": None}], ids=["none", "the pool", "pool and rotary"]
)
def test_what_no_tensor_shows_is_said_though_some_parts_are_given(parts):
    state = vt.weights.to_timm(model_of(registers=2))
    pixels = vt.data.Preprocessing((32, 32), (0.5,) * 3, (0.5,) * 3)
    told = {"num_heads": 4, "image_size": 32, "gelu": "exact", "norm_eps": 1e-6, "preprocess": pixels}
    with pytest.warns(UserWarning, match="norms first"):  # timm's ResPostBlock has the same names
        found = vt.weights.convert(state, **told, parts=parts)
    assert set(found.assumed) == {"plain", "pool", "rotary"} - set(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every = {"pool": "cls", "rotary": None}
        assert not vt.weights.convert(state, **told, parts=every, plain=True).assumed


def test_our_own_tensors_without_a_config_may_be_a_rotary_model_s():
    state = model_of(rotary=Rotary()).state_dict()  # with learned positions as well: the plain model's names
    with pytest.warns(UserWarning, match=r"plain="):
        assert "plain" in vt.weights.convert(state, num_heads=4).assumed


# ----------------------------------------------------------------------------------------------- weights: what is said


def state_of(case="DINOv2"):
    return timm_peer(case, torch.float32)[0].state_dict()


def test_what_a_bare_state_dict_does_not_tell_is_said():
    with pytest.warns(UserWarning, match="GELU.*epsilon.*rotary positions.*pooling by"):
        found = vt.weights.convert(state_of(), num_heads=4)
    assert set(found.assumed) == {"gelu", "norm_eps", "rotary", "pool", "image_size", "preprocess", "plain"}
    assert found.assumed["rotary"] is None
    assert found.config.image_size == (56, 56)
    dinov3 = vt.weights.convert(state_of("DINOv3"), num_heads=4)
    assert dinov3.config.rotary == dinov3.assumed["rotary"] == Rotary()
    assert dinov3.config.norm_eps == 1e-5
    eva = vt.weights.convert(state_of("EVA-02 base"), num_heads=4, image_size=(56, 28))
    assert eva.config.rotary == Rotary("index", 10_000.0, (16, 16))
    beit = vt.weights.convert(state_of("BEiT"))
    assert beit.config.num_heads == 4  # its tables show it
    assert "num_heads" not in beit.assumed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s | {"rope.freqs": torch.ones(2)}, ["rope.freqs", "ModernConfig can't express"]),
        (lambda s: {n: t for n, t in s.items() if n != "blocks.1.ls2.gamma"}, ["missing", "blocks.1.scale2.gamma"]),
        (lambda s: s | {"blocks.1.ls1.gamma": torch.ones(3)}, ["blocks.1.ls1.gamma", "(3,) instead of (32,)"]),
        (lambda s: {n: t for n, t in s.items() if "patch_embed" not in n}, ["embed.patches.proj.weight"]),
        (lambda s: s | {"patch_embed.proj.weight": torch.ones(32, 9)}, ["must have 4 axes"]),
    ],
)
def test_state_dicts_that_are_refused(change, words, refuses):
    with refuses(ValueError, *words):
        vt.weights.convert(change(state_of()), num_heads=4)


def test_parts_that_do_not_go_with_the_tensors_are_refused(refuses):
    with refuses(ValueError, "gated=True", "False"):
        vt.weights.convert(state_of(), num_heads=4, parts={"gated": True})
    with refuses(ValueError, "num_heads=4", "2"):
        vt.weights.convert(state_of("BEiT"), num_heads=2)
    with refuses(ValueError, "8 x 4 = 32 patches", "17 tokens"):
        vt.weights.convert(state_of(), num_heads=4, image_size=(112, 56))
    with refuses(ValueError, "dim 32 is no multiple of 64", "give num_heads"):
        vt.weights.convert(state_of())


def test_configs_that_are_refused(tmp_path, refuses):
    told = {"architecture": "vit_small_patch14_dinov2"}
    for args, word in (
        ({"proj_bias": False}, "proj_bias"),
        ({"norm_layer": "groupnorm"}, "groupnorm"),
    ):
        with refuses(ValueError, word):
            configs.read(told | {"model_args": args}, None)
    with refuses(ValueError, "vision_config must be a mapping"):
        configs.read({"model_type": "clip", "vision_config": 3}, None)
    with refuses(ValueError, "gelu", "gated", "silu"):
        configs.read({"model_type": "dinov3_vit", "use_gated_mlp": True, "hidden_act": "gelu"}, None)
    for key in ("mlp_bias", "query_bias"):
        with refuses(ValueError, key):
            configs.read({"model_type": "dinov3_vit", key: False}, None)


def timm_names():
    listed = (
        name for module in ("vision_transformer", "deit", "beit", "eva") for name in timm.list_models(module=module)
    )
    return [name for name in listed if any(re.fullmatch(pattern, name) for pattern in configs.TIMM)]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_the_table_of_names_is_timms(step):
    """Heads, epsilon, GELU, pooling and rotary positions, as timm builds each name."""
    assert len(timm_names()) > 150
    for name in timm_names()[::step]:
        with torch.device("meta"):
            theirs = timm.create_model(name, depth=1)
        block, told = theirs.blocks[0], configs.timm({"architecture": name}).given
        assert told.num_heads == block.attn.num_heads, name
        assert type(block).__name__ in ("Block", "EvaBlock"), name
        assert told.norm_eps == block.norm1.eps, name
        act = type(block.mlp.act).__name__ + str(getattr(block.mlp.act, "approximate", ""))
        assert act in {"exact": ("GELUnone", "SiLU"), "tanh": ("GELUTanh", "GELUtanh"), "quick": ("QuickGELU",)}[
            told.gelu
        ] or (act == "GELUTanhtanh" and told.gelu == "tanh"), (name, act)
        assert {"token": "cls", "avg": "mean", "map": "attention"}[theirs.global_pool] == told.parts["pool"], name
        rope, ours = getattr(theirs, "rope", None), told.parts.get("rotary")
        assert (rope is None) == (ours is None), name
        if ours is not None:
            assert (ours.temperature, ours.offset) == (rope.temperature, rope.grid_offset), name
            assert (ours.coordinates == "centred") == hasattr(rope, "periods"), name
            assert ours.reference == (tuple(rope.ref_feat_shape) if getattr(rope, "ref_feat_shape", None) else None), (
                name
            )
            assert told.parts.get("columns_first", False) == (rope.grid_indexing == "xy"), name
            assert told.parts.get("neighbours", False) == (not rope.rotate_half), name


@since_5
def test_pixels_of_transformers_clip_are_its_own(tmp_path):
    import numpy as np
    from PIL import Image

    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (41, 60, 3), np.uint8))
    for processor in (
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        transformers.BitImageProcessorPil(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}),
    ):
        theirs = transformers_peer("CLIP").float()
        theirs.save_pretrained(tmp_path)
        processor.save_pretrained(tmp_path)
        ours = vt.load(tmp_path).preprocess
        for width in (60, 61, 62, 63):  # half a pixel is floored
            wanted = processor(picture.resize((width, 41)), return_tensors="np")["pixel_values"]
            assert_close(ours(picture.resize((width, 41))), torch.as_tensor(np.array(wanted)), rtol=0, atol=1e-5)


# -------------------------------------------------------------------------------------------------------- another size


def test_positions_are_resized_as_the_library_does(tmp_path):
    theirs = transformers_peer("DINOv2").float()
    theirs.save_pretrained(tmp_path)
    found = vt.load(tmp_path, image_size=(48, 64))
    x = images((48, 64), torch.float32)
    with torch.no_grad():
        assert_close(found.model(x), what_it_answers(theirs, x), rtol=1e-4, atol=1e-4)
    timms, _ = timm_peer("DINOv2 with registers", torch.float32)
    found = vt.weights.convert(timms.state_dict(), num_heads=4, image_size=(28, 56), parts={"pool": "cls"})
    config, state = vt.weights.with_size(found.config, found.state_dict, (56, 56))
    timms.set_input_size((56, 56))
    ours, x = vt.weights.assemble(config, state), images((56, 56), torch.float32)
    with torch.no_grad():
        assert_close(ours(x), timms(x), rtol=1e-4, atol=1e-4)


def test_position_biases_are_for_one_size(refuses):
    model = model_of(position_bias=True, position="none")
    with refuses(ValueError, "aren't resized here", "image_size=(32, 32)"):
        vt.weights.with_size(model.config, model.state_dict(), 64)


# -------------------------------------------------------------------------------------------------------- the way back


# timm has several names for some models (q, k and v apart), and positions with or without those of other tokens.
BACK = {
    "DeiT-3": {"no_embed_class": False},
    "RMS": {"no_embed_class": True},
    "positions of registers": {"no_embed_class": True},
}


@pytest.mark.parametrize("case", TIMM)
def test_timm_gives_the_same_numbers_and_takes_ours(case):
    theirs, size = timm_peer(case)
    told = parts_of(TIMM[case][0])
    if case == "MAE, fine-tuned":
        told = dataclasses.replace(told, parts={"pool": "mean"})
    found, ours = converted(theirs.state_dict(), told, size)
    assert found.config.image_size in (size, size[0])
    x = images(size)
    with torch.no_grad():
        wanted = theirs(x)
        same(ours(x), wanted)
        same(ours.features(x), theirs.forward_features(x))
        if case in BACK:
            name, changes = TIMM[case]
            theirs = timm.create_model(name, **V | changes | BACK[case]).double().eval()
        theirs.load_state_dict(vt.weights.to_timm(ours))  # strict
        same(theirs(x), wanted)


def test_a_class_token_s_position_goes_into_the_token_beside_registers():
    ours = model_of(registers=4, layer_scale=0.5)  # its class token has a position, timm's has none
    theirs = timm.create_model(
        "vit_small_patch14_reg4_dinov2", **V | {"img_size": 32, "patch_size": 8, "mlp_ratio": 1.5}
    )
    theirs = theirs.double().eval()
    theirs.load_state_dict(vt.weights.to_timm(ours))
    x = images()
    with torch.no_grad():
        same(theirs(x), ours(x))


def test_what_cannot_go_back_is_refused(refuses):
    with refuses(ValueError, "VisionTransformer", "pooling with 2 heads"):
        vt.weights.to_timm(model_of(pool="attention", pool_heads=2))
    with refuses(ValueError, "Eva", "a bias of k"):
        vt.weights.to_timm(model_of(gated=True, mlp_norm=True))
    with refuses(ValueError, "ModernViT", "to_timm"):
        vt.weights.to_torchvision(model_of(layer_scale=1.0))
    with refuses(ValueError, "both"):
        vt.weights.to_timm(model_of(pool="cls+mean"))
    with refuses(ValueError, "Beit", "norms of q and k"):
        vt.weights.to_timm(model_of(position_bias=True, qk_norm=True))
    with refuses(ValueError, "none of transformers' models", "gated"):
        vt.weights.to_huggingface(model_of(gated=True))
    with refuses(ValueError, "version=4"):
        vt.weights.to_huggingface(model_of(layer_scale=1.0, num_classes=0), version=5)


def test_one_bias_less_than_in_the_other_blocks_is_missing(refuses):
    state = vt.weights.to_huggingface(model_of(dtype=torch.float32, layer_scale=0.5, mlp_dim=64, num_classes=0))
    del state["encoder.layer.0.attention.attention.query.bias"]
    with refuses(ValueError, "1 missing", "layer.0.attention.attention.query.bias"):
        vt.weights.convert(state, num_heads=4)


CHOICES = {
    "class_token": [True, False], "registers": [0, 2], "pre_norm": [False, True], "norm": ["layer", "rms"],
    "qkv_bias": [True, False], "k_bias": [True, False], "qk_norm": [False, True], "attention_norm": [False, True],
    "layer_scale": [None, 0.5], "gated": [False, True], "mlp_norm": [False, True], "mlp_dim": [48, 64],
    "rotary": [None, Rotary(), Rotary("index", 10_000.0, (16, 16)), Rotary("index", 100.0), Rotary("centred", 50.0),
               Rotary("index", 10_000.0, (4, 4), 1.0)],
    "position": ["learned", "none", "sincos"], "position_bias": [False, True], "final_norm": [True, False],
    "pool": ["cls", "mean", "attention", "cls+mean"], "pool_prefix": [False, True], "pool_norm": [False, True],
    "pool_heads": [None, 2], "pool_mlp_dim": [None, 20], "gelu": ["exact", "tanh", "quick"], "norm_eps": [1e-6, 1e-3],
    "image_size": [32, (32, 16)], "num_classes": [0, 5],
}  # fmt: skip


def random_models(count, seed, most):
    """So many models of well-known parts and of parts taken at random, which differ from the former in a few."""
    rng = random.Random(seed)
    while count:
        base = rng.choice([{}, *ARCHITECTURES.values()])
        changes = {name: rng.choice(CHOICES[name]) for name in rng.sample(list(CHOICES), rng.randint(0, most))}
        try:
            config = tiny(**base | changes)
        except ValueError:
            continue
        count -= 1
        model = randomise(ModernViT(config)).eval()
        if config.pre_norm and config.num_classes:
            torch.nn.init.zeros_(model.head.bias)  # CLIP's projection has none
        yield model, images(vt.patches.as_pair(config.image_size, "image_size"), torch.float32)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_random_models_go_to_timm_or_are_refused(seed):
    equal = 0
    for model, x in random_models(40, seed, most=6):
        try:
            state = vt.weights.to_timm(model)
        except ValueError:
            continue
        theirs = timm_twin(model.config)
        theirs.load_state_dict(state)  # strict
        with torch.no_grad():
            assert_close(theirs(x), model(x), rtol=1e-4, atol=1e-4, msg=str(model.config))
        equal += 1
    assert equal > 10


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_random_models_go_to_transformers_or_are_refused(seed):
    equal = 0
    for model, x in random_models(20, seed, most=2):
        config = model.config
        try:
            state = vt.weights.to_huggingface(model)
        except ValueError:
            continue
        theirs = transformers_twin(config, state)
        with torch.no_grad():
            wanted = what_it_answers(theirs, x)
            if config.pool == "cls+mean" and not config.num_classes:
                tokens = theirs(x).last_hidden_state
                wanted = torch.cat([tokens[:, 0], tokens[:, config.prefix_tokens :].mean(dim=1)], dim=1)
            assert_close(model(x), wanted, rtol=1e-4, atol=1e-4, msg=str(config))
        equal += 1
    assert equal


# ---------------------------------------------------------------------------------------------- the rest of the package


def test_a_saved_model_comes_back(tmp_path):
    data = vt.data.digits()
    changes = {"image_size": 8, "patch_size": 4, "in_channels": 1, "num_classes": 10}
    model = model_of(dtype=torch.float32, **changes, **ARCHITECTURES["dinov3"])
    row = {"epoch": 1, "loss": 1.0, "test_loss": 1.0, "accuracy": 0.5, "test_accuracy": 0.5}
    vt.weights.save(tmp_path, model, data, [row])
    found = vt.load(tmp_path)
    assert found.model.config == model.config
    x = torch.rand(4, 1, 8, 8)
    assert_close(found.model(x), model(x), rtol=0, atol=0)
    ours = vt.weights.convert(model.state_dict(), num_heads=4, image_size=8, parts={"rotary": Rotary(), "pool": "cls"})
    assert_close(ours.state_dict, dict(model.state_dict()), rtol=0, atol=0)


def test_the_command_line_trains_them(capsys):
    from vit_tutorial.train import command as train_command

    for arch, kind in {"vit": vt.ViT, "dinov3": ModernViT, "beit": ModernViT}.items():
        args = train_command.parser([]).parse_args(["--data", "digits", "--out", "x", "--arch", arch])
        model = train_command._from_scratch(args, vt.data.digits())
        assert type(model) is kind
        assert model.config.dim == 64
    assert model.config.position_bias
    with pytest.raises(SystemExit):
        train_command.parser([]).parse_args(["--out", "x", "--arch", "resnet"])
    assert "dinov3" in capsys.readouterr().err


@pytest.mark.parametrize("count", [vt.count_parameters, vt.count_macs])
def test_the_plain_model_s_formulas_refuse_to_count_another(count, refuses):
    with refuses(TypeError, "ModernConfig", "plain ViTConfig"):
        count(modern.ModernConfig.preset("Ti/16", **modern.ARCHITECTURES["dinov2"]))
