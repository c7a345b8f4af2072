"""Lesson 15: the model of today against timm's and transformers' own, and the plain ViT as its special case."""

import dataclasses
import math
import random
from functools import partial

import pytest
import torch
from peers import randomise, twin
from timm.layers.pos_embed_sincos import build_rotary_pos_embed
from torch.testing import assert_close
from transformers.models.dinov3_vit import modeling_dinov3_vit

import vit_tutorial as vt
from vit_tutorial.variants import modern
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, ModernViT, Rotary
from vit_tutorial.weights.adapters import from_transformers

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


def test_registers_are_counted(refuses):
    with refuses(TypeError, "registers must be an int", "1.5"):
        tiny(registers=1.5)


@pytest.mark.parametrize("name", ["qkv_bias", "class_token", "gated"])
def test_a_switch_is_true_or_false(name, refuses):
    with refuses(TypeError, f"{name} must be True or False", "'no'"):
        tiny(**{name: "no"})


def test_a_config_is_hashable_and_survives_json():
    import json

    config = tiny(image_size=[32, 16], rotary=Rotary("index", 100.0, (4, 4)))
    back = ModernConfig(**json.loads(json.dumps(dataclasses.asdict(config))))
    assert back == config
    assert hash(back) == hash(config)


# ------------------------------------------------------------------------------------------ the same model in a library


def with_exact_angles(theirs, model):
    """Timm's model with rotary angles in float64, which it computes in float32 however exact the rest is."""
    rotary, rope = model.config.rotary, getattr(theirs, "rope", None)
    if rope is None:
        return theirs
    k = torch.arange(model.config.head_dim // 4, dtype=torch.float64)
    frequencies = rotary.temperature ** (-4 * k / model.config.head_dim)
    if rotary.coordinates == "centred":
        rope.periods = 1 / frequencies
        rope.pos_embed_cached = rope._create_embed(rope.feat_shape, no_aug=True)
    else:
        where = {"grid_offset": rope.grid_offset, "grid_indexing": rope.grid_indexing, "in_pixels": False}
        both = build_rotary_pos_embed(
            list(model.config.grid), bands=frequencies, ref_feat_shape=rope.ref_feat_shape, dtype=torch.float64, **where
        )
        rope.get_embed = lambda *args, **kwargs: torch.cat(both, dim=-1)
    return theirs


NOT_TIMMS = ("both", "attention pooling", "gated, normed", "position bias")  # with these parts alone
TIMM = [part for part in PARTS if part not in NOT_TIMMS]


@pytest.mark.parametrize("part", TIMM)
def test_timm_s_model_of_the_same_parts_gives_the_same_numbers(part):
    model = model_of(**PARTS[part])
    theirs = with_exact_angles(twin("timm", model), model)
    x = images()
    with torch.no_grad():
        same(model(x), theirs(x))


TRANSFORMERS = {
    "DINOv2": {"layer_scale": 0.5, "mlp_dim": 64, "pool": "cls+mean"},
    "DINOv2, gated": {"layer_scale": 0.5, "mlp_dim": 48, "gated": True, "num_classes": 0},
    "DINOv2 with registers": {"layer_scale": 0.5, "mlp_dim": 64, "registers": 3, "num_classes": 0},
    "DINOv3": ARCHITECTURES["dinov3"] | {"num_classes": 0},
    "DINOv3 plus": ARCHITECTURES["dinov3"] | {"num_classes": 0, "gated": True},
    "CLIP": ARCHITECTURES["clip"] | {"num_classes": 0},
    "SigLIP": ARCHITECTURES["siglip"] | {"num_classes": 0},
    "BEiT": ARCHITECTURES["beit"],
}


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_transformers_model_of_the_same_parts_gives_the_same_numbers(case, monkeypatch):
    coordinates = modeling_dinov3_vit.get_patches_center_coordinates  # in float32, however exact the rest is
    exact = lambda rows, columns, dtype, device: coordinates(rows, columns, torch.float64, device)  # noqa: E731
    monkeypatch.setattr(modeling_dinov3_vit, "get_patches_center_coordinates", exact)
    model = model_of(dtype=torch.float32, **TRANSFORMERS[case])
    theirs = twin("transformers", model).double()
    if (rope := getattr(theirs, "rope_embeddings", None)) is not None:
        rope.inv_freq = 100.0 ** (-torch.arange(2, dtype=torch.float64) / 2)
    x = images()
    with torch.no_grad():
        same(model.double()(x), from_transformers(theirs).answer(x))


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
            theirs = vt.weights.timm_model(model)
        except ValueError:
            continue
        with torch.no_grad():
            assert_close(theirs(x), model(x), rtol=1e-4, atol=1e-4, msg=str(model.config))
        equal += 1
    assert equal > 10


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_random_models_go_to_transformers_or_are_refused(seed):
    equal = 0
    for model, x in random_models(20, seed, most=2):
        try:
            theirs = vt.weights.huggingface_model(model)
        except ValueError:
            continue
        with torch.no_grad():
            assert_close(model(x), from_transformers(theirs).answer(x), rtol=1e-4, atol=1e-4, msg=str(model.config))
        equal += 1
    assert equal
