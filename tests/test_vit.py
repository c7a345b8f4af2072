"""Lesson 06: the whole model, against timm, torchvision and transformers, and against the published numbers."""

import dataclasses
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from peers import logits, pair, randomise, under_our_names
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.feature_extraction import create_feature_extractor

from vit_tutorial import Embeddings, EncoderBlock, MultiHeadSelfAttention, ViT, ViTConfig, count_macs, count_parameters
from vit_tutorial.variants.modern import ModernConfig, ModernViT
from vit_tutorial.variants.positions import PositionConfig

same = partial(assert_close, rtol=0, atol=1e-12)
TINY = ViTConfig(image_size=16, patch_size=8, num_classes=5, dim=16, depth=3, num_heads=4, mlp_dim=40)
tiny = partial(dataclasses.replace, TINY)
WIDE = tiny(image_size=(16, 40), patch_size=(8, 10), in_channels=2)  # 2 rows, 4 columns


def images_for(config: ViTConfig, batch: int = 2, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(batch, config.in_channels, *config.image_size, dtype=dtype)


# ---------------------------------------------------------------------------------------------- parity with peers

TWINS = {  # what else than the tiny square model each peer can build
    "timm square": TINY,
    "timm wide": WIDE,
    "timm tall": tiny(image_size=(48, 16)),
    "timm mean": tiny(pool="mean"),
    "timm no qkv bias": tiny(qkv_bias=False),
    "timm tanh": tiny(gelu="tanh"),
    "timm sincos": tiny(position="sincos"),
    "timm no positions": tiny(position="none"),
    "timm eps": tiny(norm_eps=0.1),
    "timm all": dataclasses.replace(WIDE, pool="mean", qkv_bias=False, gelu="tanh", depth=1, num_heads=1),
    "torchvision square": TINY,
    "torchvision eps": tiny(norm_eps=0.1, image_size=24, depth=1),
    "transformers square": tiny(norm_eps=1e-12),
    "transformers wide": dataclasses.replace(WIDE, norm_eps=1e-12),
    "transformers no qkv bias": tiny(norm_eps=1e-12, qkv_bias=False),
    "transformers tanh": tiny(norm_eps=1e-12, gelu="tanh"),
}


@pytest.mark.parametrize("case", TWINS)
def test_logits_equal_the_peers(case):
    ours, theirs = pair(case.split()[0], TWINS[case], torch.float64)
    images = images_for(TWINS[case], dtype=torch.float64)
    y = ours(images)
    assert y.shape == (2, 5)
    assert y.std() > 0.1  # not hidden by zeros
    same(y, logits(theirs, images), atol=1e-10)


@pytest.mark.parametrize("case", ["timm wide", "timm mean", "torchvision square", "transformers square"])
def test_gradients_equal_the_peers(case):
    ours, theirs = pair(case.split()[0], TWINS[case], torch.float64)
    images = images_for(TWINS[case], dtype=torch.float64)
    for model in (ours, theirs):
        torch.nn.functional.cross_entropy(logits(model, images), torch.tensor([1, 3])).backward()
    expected = under_our_names(case.split()[0], theirs, {name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        same(parameter.grad, expected.pop(name), atol=1e-10)
    assert not expected


def test_without_classes_the_model_returns_the_features():
    config = tiny(num_classes=0)
    model, images = randomise(ViT(config)), images_for(config)
    assert torch.equal(model(images), model.features(images)[:, 0])
    assert not [name for name in model.state_dict() if name.startswith("head")]
    assert sum(p.numel() for p in model.parameters()) == count_parameters(config)


# ---------------------------------------------------------------------------------------------------- the numbers

PARAMETERS = {
    ("Ti/16",): 5_717_416,
    ("S/16",): 22_050_664,
    ("S/32",): 22_878_952,
    ("B/8",): 86_576_872,
    ("B/16",): 86_567_656,
    ("B/32",): 88_224_232,
    ("L/16",): 304_326_632,
    ("L/32",): 306_535_400,
    ("H/14",): 632_045_800,
    ("B/16", ("pool", "mean")): 86_566_120,
    ("S/16", ("pool", "mean")): 22_049_896,
    ("B/16", ("image_size", 384)): 86_859_496,
    ("L/16", ("image_size", 512)): 305_174_504,
    ("H/14", ("image_size", 518)): 633_470_440,
}


def test_published_parameters():
    found = {preset: count_parameters(ViTConfig.preset(preset[0], **dict(preset[1:]))) for preset in PARAMETERS}
    assert found == PARAMETERS


MACS = {"B/16": 17.564, "B/32": 4.409, "L/16": 61.555, "L/32": 15.378, "H/14": 167.295, "B/16@384": 55.484}


def test_published_macs():
    for name, giga in MACS.items():
        preset, _, size = name.partition("@")
        assert round(count_macs(ViTConfig.preset(preset, image_size=int(size or 224))) / 1e9, 3) == giga, name


VARIANTS = [
    TINY,
    WIDE,
    tiny(pool="mean"),
    tiny(qkv_bias=False),
    tiny(position="sincos"),
    tiny(position="none"),
    tiny(num_classes=0),
    dataclasses.replace(WIDE, pool="mean", position="none", qkv_bias=False, depth=1),
]


@pytest.mark.parametrize("config", VARIANTS)
def test_the_formulas_equal_counting(config):
    model, images = ViT(config).eval(), images_for(config, batch=3)
    assert sum(p.numel() for p in model.parameters()) == count_parameters(config)
    # The counter knows matrix products, but not the CPU's fused attention: let torch take the plain one.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(images)
    assert counter.get_total_flops() == 3 * 2 * count_macs(config)  # three images, two operations a multiply-add


# ------------------------------------------------------------------------------------------------------ the config


def test_the_defaults_are_b16():
    assert ViTConfig() == ViTConfig.preset("B/16")
    assert ViTConfig() == ViTConfig(
        image_size=224, patch_size=16, in_channels=3, num_classes=1000, dim=768, depth=12, num_heads=12, mlp_dim=3072,
        qkv_bias=True, dropout=0.0, attention_dropout=0.0, drop_path=0.0, norm_eps=1e-6, gelu="exact",
        position="learned", pool="cls",
    )  # fmt: skip


def test_presets():
    for name, row in {
        "Ti/16": (192, 12, 3, 768, 16),
        "S/8": (384, 12, 6, 1536, 8),
        "B/32": (768, 12, 12, 3072, 32),
        "L/7": (1024, 24, 16, 4096, 7),
        "H/14": (1280, 32, 16, 5120, 14),
    }.items():
        c = ViTConfig.preset(name)
        assert (c.dim, c.depth, c.num_heads, c.mlp_dim, c.patch_size[0]) == row


def test_unknown_presets(refuses):
    for name in ("XL/16", "B16", "B/", "/16", "B/x", "B/-16", "", "B/16/16", 16):
        with refuses(ValueError, "preset", repr(name), "Ti, S, B, L, H", "'B/16'"):
            ViTConfig.preset(name)


def test_sizes_are_pairs_whatever_they_were_given_as():
    square = ViTConfig(image_size=224, patch_size=16)
    assert (square.image_size, square.patch_size) == ((224, 224), (16, 16))
    config = ViTConfig(image_size=[224, 160], patch_size=[16, 8])  # as JSON has it
    assert (config.image_size, config.patch_size) == ((224, 160), (16, 8))
    assert config == ViTConfig(image_size=(224, 160), patch_size=(16, 8))
    assert len({config, ViTConfig(image_size=(224, 160), patch_size=(16, 8))}) == 1


def test_numpy_s_numbers_become_python_s():
    sizes = {"image_size": 16, "patch_size": 8, "dim": 16, "depth": 3, "num_heads": 2}
    config = ViTConfig(**{name: np.int64(value) for name, value in sizes.items()}, dropout=np.float32(0.5))
    assert config == ViTConfig(**sizes, dropout=0.5)
    assert type(config.image_size[0]) is type(config.dim) is int
    assert type(config.dropout) is float


def test_frozen_hashable_replaceable_and_picklable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.dim = 32
    assert {TINY: 1, tiny(): 2} == {TINY: 2}
    assert tiny(depth=4) != TINY
    assert (tiny(depth=4).depth, TINY.depth) == (4, 3)
    assert pickle.loads(pickle.dumps(TINY)) == TINY
    with pytest.raises(ValueError, match="num_heads"):
        tiny(num_heads=5)  # a copy is checked as well


PROBABILITIES = [
    ({name: p}, ValueError, [f"{name} is a probability in [0, 1)", f"got {p}", "0.0 switches it off"])
    for name in ("dropout", "attention_dropout", "drop_path")
    for p in (1.0, 1.5, -0.1, math.nan)
]
COUNTS = [
    ({name: value}, ValueError, [f"{name} must be at least {least}", f"got {value}"])
    for name, least in {"in_channels": 1, "num_classes": 0, "dim": 1, "depth": 1, "num_heads": 1, "mlp_dim": 1}.items()
    for value in (least - 1, -7)
]
TYPES = [
    ({name: value}, TypeError, [name, "int", f"got {value!r}"])
    for name in ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim")
    for value in (16.0, "16", None, True)
] + [
    ({name: value}, TypeError, [name, "number", f"got {value!r}"])
    for name in ("dropout", "attention_dropout", "drop_path", "norm_eps")
    for value in ("0.1", None, False)
]
CONFIGS = [
    *PROBABILITIES,
    *COUNTS,
    *TYPES,
    ({"image_size": 30}, ValueError, ["30x30", "not divisible", "8x8", "resize to 24x24", "another patch size"]),
    ({"image_size": (16, 30)}, ValueError, ["16x30", "8x8", "resize to 16x24"]),
    ({"patch_size": (8, 5)}, ValueError, ["16x16", "8x5", "resize to 16x15"]),
    ({"patch_size": 32}, ValueError, ["16x16", "32x32", "resize to 32x32"]),
    ({"patch_size": 0}, ValueError, ["patch_size", "at least 1", "got 0"]),
    ({"image_size": (16, 16, 16)}, TypeError, ["image_size", "pair", "(16, 16, 16)"]),
    ({"num_heads": 5}, ValueError, ["dim 16", "not divisible", "num_heads 5", "change one of them"]),
    ({"dim": 18, "num_heads": 2, "position": "sincos"}, ValueError, ["sincos", "multiple of 4", "at least 8", "18"]),
    ({"dim": 4, "position": "sincos"}, ValueError, ["sincos", "multiple of 4", "at least 8", "got 4"]),
    ({"norm_eps": 0.0}, ValueError, ["norm_eps must be positive", "got 0.0", "1e-6"]),
    ({"norm_eps": math.inf}, ValueError, ["norm_eps must be positive and finite", "got inf"]),
    ({"norm_eps": math.nan}, ValueError, ["norm_eps must be positive", "got nan"]),
    ({"qkv_bias": "False"}, TypeError, ["qkv_bias must be True or False", "'False'"]),
    ({"qkv_bias": 0}, TypeError, ["qkv_bias must be True or False", "got 0"]),
    ({"gelu": "quick"}, ValueError, ["unknown gelu", "'quick'", "exact, tanh"]),
    ({"position": "rotary"}, ValueError, ["unknown position", "'rotary'", "learned, sincos, none"]),
    ({"pool": "max"}, ValueError, ["unknown pool", "'max'", "cls, mean"]),
]


def test_the_config_refuses(refuses):
    for changes, error, words in CONFIGS:
        with refuses(error, *words):
            tiny(**changes)


# ----------------------------------------------------------------------------------- names, initialisation, dropout

BLOCK = ("norm1", "attention.qkv", "attention.proj", "norm2", "mlp.fc1", "mlp.fc2")


def test_names_in_the_state_dict():
    layers = ["embed.patches.proj", *(f"blocks.{i}.{part}" for i in range(3) for part in BLOCK), "norm", "head"]
    names = {"embed.cls_token", "embed.position"} | {
        f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")
    }
    assert set(ViT(TINY).state_dict()) == names
    assert set(ViT(tiny(pool="mean")).state_dict()) == names - {"embed.cls_token"}
    assert set(ViT(tiny(position="none")).state_dict()) == names - {"embed.position"}
    assert set(ViT(tiny(position="sincos")).state_dict()) == names
    biases = {f"blocks.{i}.attention.qkv.bias" for i in range(3)}
    assert set(ViT(tiny(qkv_bias=False)).state_dict()) == names - biases


def test_initialisation():
    model = ViT(TINY)
    assert not model(images_for(TINY)).any()  # the head is zero: every class is equally likely
    assert not model.head.weight.any()
    assert not model.head.bias.any()
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)):
        assert (norm.weight == 1).all()
        assert not norm.bias.any()
    first, *others = (block.attention.qkv.weight for block in model.blocks)
    assert not any(torch.equal(first, other) for other in others)  # each block has random numbers of its own


def test_the_options_reach_every_block():
    config = tiny(dropout=0.1, attention_dropout=0.2, drop_path=0.4, norm_eps=1e-3, gelu="tanh", qkv_bias=False)
    model = ViT(config)
    assert model.embed.dropout.p == 0.1
    assert model.norm.eps == 1e-3
    for block in model.blocks:
        assert (block.attention.dropout.p, block.mlp.dropout.p, block.attention.attention_dropout) == (0.1, 0.1, 0.2)
        assert (block.norm1.eps, block.norm2.eps) == (1e-3, 1e-3)
        assert block.mlp.gelu.approximate == "tanh"
        assert block.attention.qkv.bias is None


@pytest.mark.parametrize(("depth", "rates"), [(1, [0.0]), (2, [0.0, 0.3]), (4, [0.0, 0.1, 0.2, 0.3])])
def test_stochastic_depth_grows_linearly(depth, rates):
    model = ViT(tiny(depth=depth, drop_path=0.3))
    assert [block.drop_path.p for block in model.blocks] == pytest.approx(rates)


# -------------------------------------------------------------------------------------------------- attention maps


@pytest.mark.parametrize(
    ("layers", "indices", "blocks_run"),
    [(None, [0, 1, 2], 2), ([], [], 0), ([0], [0], 0), ([1], [1], 1), ([-1], [2], 2), ([2, 0], [2, 0], 2),
     ([-3, 1], [0, 1], 1), ([1, -2, 1], [1, 1], 1), (range(2), [0, 1], 1), (iter([2]), [2], 2)],
)  # fmt: skip
def test_only_the_layers_asked_for_are_computed(monkeypatch, layers, indices, blocks_run):
    model, images = randomise(ViT(TINY)), images_for(TINY)
    every, computed, run = model.attention_maps(images), [], []
    plain = MultiHeadSelfAttention.attention_weights
    monkeypatch.setattr(MultiHeadSelfAttention, "attention_weights", lambda m, x: computed.append(m) or plain(m, x))
    for block in model.blocks:
        block.register_forward_hook(lambda *_: run.append(1))
    asked = list(layers) if isinstance(layers, (list, range)) else None
    maps = model.attention_maps(images, layers)

    assert len(computed) == len(set(indices))  # a layer asked for twice is computed once
    assert len(run) == blocks_run  # and no block runs after the last one asked for
    if asked is not None:
        assert list(maps) == list(dict.fromkeys(asked))  # by the names, and in the order, that they were asked by
    for weights, index in zip(maps.values(), indices, strict=True):
        assert torch.equal(weights, every[index])


@pytest.mark.parametrize(("layers", "bad"), [([3], 3), ([-4], -4), ([0, 7], 7), ([99, 1], 99), ([1, 1.0], 1.0)])
def test_a_layer_that_is_not_there(refuses, layers, bad):
    with refuses(ValueError, f"no layer {bad!r}:", "layers 0 to 2"):
        ViT(TINY).attention_maps(images_for(TINY), layers)
    with refuses(TypeError, "layers must be a list, got 2: [2]"):
        ViT(TINY).attention_maps(images_for(TINY), 2)


def test_gradients_flow_through_the_maps():
    model, images = randomise(ViT(TINY)), images_for(TINY).requires_grad_()
    model.attention_maps(images, [1])[1][:, :, 0].square().sum().backward()
    assert images.grad.abs().sum() > 0
    assert model.blocks[1].attention.qkv.weight.grad.abs().sum() > 0
    assert model.blocks[1].mlp.fc1.weight.grad is None
    with torch.inference_mode():
        assert not model.attention_maps(images)[2].requires_grad


# ------------------------------------------------------------------------------------------ torch's other machinery


def test_compiles_into_one_graph():
    model, images = randomise(ViT(tiny(depth=1))), images_for(TINY)  # the blocks are alike
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_close(compiled(images), model(images))
    target = one_hot(torch.tensor([1, 3]), 5)
    names = dict(model.named_parameters())
    gradients = [torch.autograd.grad((m(images) * target).sum(), list(names.values())) for m in (compiled, model)]
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


@pytest.mark.slow
def test_compiles_in_training_with_everything_random():
    model = ViT(tiny(dropout=0.1, attention_dropout=0.1, drop_path=0.5))
    compiled = torch.compile(model.train(), fullgraph=True, backend="aot_eager")
    assert compiled(images_for(TINY)).shape == (2, 5)


def test_every_intermediate_is_a_loop_away():
    model, images = randomise(ViT(TINY)).double(), images_for(TINY, dtype=torch.float64)
    z = model.embed(images)
    for block in model.blocks:
        after_attention = z + block.attention(block.norm1(z))  # Eq. 2
        same(block.attend(z), after_attention)
        z = block(z)
        same(z, after_attention + block.mlp(block.norm2(after_attention)))  # Eq. 3
    same(model.norm(z), model.features(images))


def test_other_embeddings_and_blocks_take_the_place_of_its_own():
    embed, blocks = Embeddings(16, 8, 3, 16, class_token=False), [EncoderBlock(16, 2, 24), torch.nn.Identity()]
    model, images = randomise(ViT(tiny(pool="mean"), embed=embed, blocks=iter(blocks))), images_for(TINY)
    assert model.embed is embed
    assert list(model.blocks) == blocks
    assert_close(model(images), model.head(model.norm(blocks[0](embed(images))).mean(dim=1)))


@pytest.mark.parametrize("count", [count_parameters, count_macs])
def test_the_formulas_refuse_another_config(refuses, count):
    with refuses(TypeError, "plain ViTConfig", "PositionConfig"):
        count(PositionConfig(**vars(TINY), kind="2d"))
    with refuses(TypeError, "got a ViT", "give model.config"):
        count(ViT(TINY))


def test_torch_fx_traces_the_model():
    model, images = randomise(ViT(TINY)).eval(), images_for(TINY)
    traced = torch.fx.symbolic_trace(model)
    assert torch.equal(traced(images), model(images))
    with pytest.raises(ValueError, match="built for images"):
        traced(torch.zeros(1, 3, 24, 24))
    extractor = create_feature_extractor(model, {"blocks.1": "tokens"})
    assert_close(extractor(images)["tokens"], model.blocks[1](model.blocks[0](model.embed(images))))


def test_bfloat16_autocast():
    model, images = randomise(ViT(TINY)).eval(), images_for(TINY)
    expected = model(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(images)
        maps = model.attention_maps(images)
    assert y.dtype == torch.bfloat16
    assert_close(y.float(), expected, rtol=0, atol=0.1)
    assert all(weights.isfinite().all() for weights in maps.values())


def test_built_on_the_meta_device():
    config = tiny(position="sincos")
    model, images = randomise(ViT(config)), images_for(config)
    with torch.device("meta"):
        assigned, copied = ViT(config), ViT(config)
    assert all(tensor.is_meta for tensor in assigned.state_dict().values())
    assigned.load_state_dict(model.state_dict(), assign=True)
    copied.to_empty(device="cpu").load_state_dict(model.state_dict())
    assert torch.equal(assigned(images), model(images))
    assert torch.equal(copied(images), model(images))


@pytest.mark.parametrize("position", ["learned", "sincos"])
def test_init_weights_after_meta_is_the_constructor(position):
    config = tiny(position=position, qkv_bias=False)
    torch.manual_seed(1)
    built = ViT(config)
    with torch.device("meta"):
        model = ViT(config)
    model.to_empty(device="cpu")
    for tensor in model.state_dict().values():
        tensor.fill_(torch.nan)
    torch.manual_seed(1)
    model.init_weights()
    for name, tensor in built.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("register", [torch.nn.Module.register_parameter, torch.nn.Module.register_buffer])
def test_init_weights_refuses_what_it_can_t_initialise(register, refuses):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            register(self, "table", torch.nn.Parameter(torch.zeros(3)))

    with refuses(TypeError, "Own has table, and no reset_parameters"):
        ViT(tiny(), embed=Own()).init_weights()
    config = ModernConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=2, mlp_dim=8)
    with refuses(TypeError, "init_weights is for a plain ViT, got a ModernViT: build it without the meta device"):
        ModernViT(config).init_weights()


def test_a_variant_s_config_alone_isn_t_built():
    config = ModernConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=2, mlp_dim=8, registers=2)
    with pytest.raises(TypeError, match="plain ViTConfig, got a ModernConfig"):
        ViT(config)
    with pytest.raises(TypeError, match=r"plain ViTConfig, got a dict: vt.ViTConfig\(\*\*fields\)"):
        ViT(vars(TINY))
