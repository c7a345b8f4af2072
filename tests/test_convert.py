"""Lesson 09: a state dict tells what its names and shapes tell; the rest is said, given, or refused."""

import dataclasses
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import timm
import torch
import transformers
from peers import logits, randomise, timm_vit, torchvision_vit, transformers_vit, under
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import ViT, ViTConfig
from vit_tutorial.data import Preprocessing
from vit_tutorial.variants.modern import ModernConfig, Rotary
from vit_tutorial.weights import Converted, names
from vit_tutorial.weights.sources import SOURCES

TINY = ViTConfig(image_size=16, patch_size=8, num_classes=5, dim=16, depth=2, num_heads=4, mlp_dim=40)
tiny = partial(dataclasses.replace, TINY)
PIXELS = Preprocessing((16, 16), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
ALL = {"num_heads": 4, "image_size": 16, "gelu": "exact", "norm_eps": 1e-6, "preprocess": PIXELS, "plain": True}
ASSUMED = "ignore:.*doesn't tell all:UserWarning"


def read(state, **told):
    """Convert with everything told: it must have nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vt.weights.convert(state, **(ALL | told))


def answer(converted, images):
    model = ViT(converted.config).to(images.dtype).eval()
    model.load_state_dict({name: tensor.to(images.dtype) for name, tensor in converted.state_dict.items()})
    with torch.inference_mode():
        return model(images)


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16, dtype=torch.float64)


@pytest.fixture
def theirs():
    return randomise(timm_vit(TINY)).double().eval()


# --------------------------------------------------------------------------------------------------------- what is said


def test_a_bare_state_dict_says_what_was_assumed_in_one_warning():
    config = tiny(dim=64, num_heads=1)
    with pytest.warns(UserWarning, match="this state dict doesn't tell all") as said:
        found = vt.weights.convert(vt.weights.to_timm(ViT(config)))
    assert len(said) == 1
    assert said[0].filename == __file__
    text = str(said[0].message)
    assert "\n" not in text
    for words in ("1 heads (num_heads=)", "the exact GELU", "epsilon 1e-06", "pictures of 16 pixels", "preprocess=)",
                  "norms first", "plain=)"):  # fmt: skip
        assert words in text
    assert found.assumed == {
        "num_heads": 1, "gelu": "exact", "norm_eps": 1e-6, "image_size": 16, "preprocess": found.preprocess,
        "plain": "norms first in each block and the class token read out",
    }  # fmt: skip
    assert (found.config, found.preprocess) == found[::2]


@pytest.mark.parametrize("key", ALL)
def test_what_is_told_is_taken_and_not_assumed(key):
    state = vt.weights.to_timm(ViT(tiny(dim=64, num_heads=1)))
    other = ALL | {"num_heads": 2, "gelu": "tanh", "norm_eps": 0.01}
    with pytest.warns(UserWarning, match="tell all") as said:
        config, _, preprocess = found = vt.weights.convert(state, **{key: other[key]})
    assert f"({key}=)" not in str(said[0].message)
    assert set(found.assumed) == set(ALL) - {key}
    if key != "plain":
        assert (preprocess if key == "preprocess" else getattr(config, key)) == other[key]


def test_all_told_says_nothing(theirs, images):
    found = read(theirs.state_dict())
    assert found.assumed == {}
    assert found.preprocess is PIXELS
    assert_close(answer(found, images), theirs(images), rtol=0, atol=1e-10)


ALIKE = {  # timm's, with the names and shapes of the plain one, and other numbers
    "norms behind": {"block_fn": timm.models.vision_transformer.ResPostBlock},
    "mean beside a class token": {"global_pool": "avg", "fc_norm": False},
    "largest": {"global_pool": "max", "fc_norm": False},
    "mean and largest, no class token": {"global_pool": "avgmax", "class_token": False, "fc_norm": False},
    "mean with prefix": {"global_pool": "avg", "fc_norm": False, "pool_include_prefix": True},
}


@pytest.mark.parametrize("case", ALIKE)
def test_what_no_tensor_shows_is_said_though_all_else_is_told(case, images):
    theirs = randomise(timm.models.VisionTransformer(
        img_size=16, patch_size=8, num_classes=5, embed_dim=16, depth=2, num_heads=4, mlp_ratio=2.5, **ALIKE[case]
    )).double().eval()  # fmt: skip
    assert theirs.state_dict().keys() | {"cls_token"} == timm_vit(TINY).state_dict().keys()
    told = {key: value for key, value in ALL.items() if key != "plain"}
    with pytest.warns(UserWarning, match=r"the paper's architecture, norms first .* read out \(plain=\)") as said:
        found = vt.weights.convert(theirs.state_dict(), **told)
    assert len(said) == 1
    assert list(found.assumed) == ["plain"]
    with torch.inference_mode():
        assert (answer(found, images) - theirs(images)).abs().max() > 0.1


@pytest.mark.parametrize("build", [torchvision_vit, transformers_vit])
def test_of_other_names_too_what_is_read_out_is_assumed_aloud(build):
    told = {key: value for key, value in ALL.items() if key != "plain"}
    with pytest.warns(UserWarning, match="the class token read out"):  # somebody's classifier may read the mean
        assert list(vt.weights.convert(build(TINY).state_dict(), **told).assumed) == ["plain"]
    assert read(build(TINY).state_dict()).assumed == {}


def test_google_s_heads_are_in_the_file_and_no_others_are_taken(refuses):
    from test_weights import flax_file

    with pytest.warns(UserWarning, match="tell all") as said:
        found = vt.weights.convert(flax_file())
    assert "num_heads" not in found.assumed
    assert "heads" not in str(said[0].message)
    with refuses(ValueError, "4 heads", "num_heads=8"):
        vt.weights.convert(flax_file(), num_heads=8)


def test_three_values_and_what_goes_with_them():
    found = read(timm_vit(TINY).state_dict())
    config, state_dict, preprocess = found
    assert (config, state_dict, preprocess) == (found.config, found.state_dict, found.preprocess) == tuple(found)
    found = Converted(config, {}, preprocess, {"gelu": "exact"})
    changed = dataclasses.replace(found, config=tiny(gelu="tanh"))
    assert (changed.config.gelu, changed.assumed) == ("tanh", {"gelu": "exact"})
    assert pickle.loads(pickle.dumps(found)).assumed == {"gelu": "exact"}
    assert Converted(config, {}, preprocess).assumed == {}


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        ({"num_heads": 0}, ValueError, ["num_heads", "at least 1"]),
        ({"num_heads": 3}, ValueError, ["num_heads 3", "dim 16"]),
        ({"num_heads": "4"}, TypeError, ["num_heads", "'4'"]),
        ({"num_heads": True}, TypeError, ["num_heads", "True"]),
        ({"norm_eps": 0}, ValueError, ["norm_eps"]),
        ({"norm_eps": float("inf")}, ValueError, ["norm_eps", "inf"]),
        ({"norm_eps": float("nan")}, ValueError, ["norm_eps", "nan"]),
        ({"norm_eps": "1e-6"}, TypeError, ["norm_eps"]),
        ({"gelu": "relu"}, ValueError, ["gelu", "'relu'", "exact, tanh"]),
        ({"image_size": 24}, ValueError, ["image_size 24", "9 patches", "5 tokens", "give the image_size"]),
        ({"image_size": (8, 16)}, ValueError, ["2 patches", "5 tokens"]),
        ({"preprocess": dataclasses.replace(PIXELS, image_size=(8, 8))}, ValueError, ["(8, 8)", "takes 16"]),
        ({"preprocess": dataclasses.replace(PIXELS, mean=(0.5,))}, ValueError, ["mean", "3 channels"]),
        ({"preprocess": dataclasses.replace(PIXELS, mean=(0.5, float("nan"), 0))}, ValueError, ["mean", "finite"]),
        ({"preprocess": dataclasses.replace(PIXELS, std=(0.5, 0.0, 1.0))}, ValueError, ["std", "above 0"]),
        ({"preprocess": dataclasses.replace(PIXELS, std=(0.5, 1.0, float("inf")))}, ValueError, ["std", "finite"]),
        ({"preprocess": 3}, TypeError, ["preprocess", "int"]),
        ({"source": "jax"}, ValueError, ["'jax'", "torchvision, timm"]),
        ({"plain": False}, ValueError, ["plain is True", "beyond ViTConfig", "False"]),
        ({"plain": "yes"}, ValueError, ["plain is True", "'yes'"]),
    ],
)
def test_values_out_of_their_range(told, error, words, refuses):
    with refuses(error, *words):
        vt.weights.convert(timm_vit(TINY).state_dict(), **(ALL | told))


@pytest.mark.parametrize(
    ("thing", "words"),
    [([1, 2], ["list", "mapping"]), (None, ["NoneType"]), (ViT(TINY), ["ViT", "state_dict()"]), ("x.pth", ["str"])],
)
def test_no_mapping(thing, words, refuses):
    with refuses(TypeError, *words):
        vt.weights.convert(thing)
    for there in (vt.weights.to_timm, vt.weights.to_torchvision, vt.weights.to_huggingface):
        if not isinstance(thing, ViT):
            with refuses(TypeError, type(thing).__name__):
                there(thing)


# ---------------------------------------------------------------------------------------------------------------- heads

OTHER_HEADS = {
    "two layers": {"head.0.weight": torch.ones(5, 16), "head.2.weight": torch.ones(5, 5)},
    "fc": {"head.fc.weight": torch.ones(5, 16), "head.fc.bias": torch.ones(5)},
    "heads": {"heads.0.weight": torch.ones(5, 16)},
    "a probe's batch norm": {"head.0.running_mean": torch.ones(16), "head.1.weight": torch.ones(5, 16)},
    "reparametrised": {"head.parametrizations.weight.original0": torch.ones(5, 1)},
    "a bias alone": {"head.bias": torch.ones(5)},
    "an MLP by DINO's name": {"head.mlp.0.weight": torch.ones(5, 16), "head.mlp.2.weight": torch.ones(5, 5)},
    "timm's MLP": {"head.mlp.fc1.weight": torch.ones(5, 16), "head.mlp.fc2.weight": torch.ones(5, 5)},
    "DINO's last layer alone": {"head.last_layer.weight": torch.ones(5, 16)},
    "an auxiliary one": {"aux_head.weight": torch.ones(5, 16)},
    "a second one": {"head_dist.weight": torch.ones(5, 16), "head_dist.bias": torch.ones(5)},
    "for pictures and text": {"head.mlp.weight": torch.ones(5, 16), "logit_scale": torch.ones(1)},
    "two linear layers": {"fc.weight": torch.ones(5, 16), "fc.bias": torch.ones(5), "linear.weight": torch.ones(5, 5)},
    "another width": {"fc.weight": torch.ones(5, 32), "fc.bias": torch.ones(5)},
}


@pytest.mark.parametrize("head", OTHER_HEADS)
def test_a_head_of_another_kind_is_never_dropped(head, refuses):
    state = timm_vit(tiny(num_classes=0)).state_dict() | OTHER_HEADS[head]
    with refuses(ValueError, "fc.weight" if "fc.weight" in OTHER_HEADS[head] else "head"):
        vt.weights.convert({"model": state}, **ALL)


HEADS = {  # where a hand-written model has its classifier, and whose the names of the rest are
    "head.1": timm_vit, "classifier.1": timm_vit, "1": timm_vit, "fc": timm_vit, "heads": torchvision_vit,
    "heads.head.1": torchvision_vit, "classifier.0": transformers_vit,
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_a_linear_head_by_another_name_is_read_aloud(name, images):
    theirs = randomise(HEADS[name](TINY)).double().eval()
    own = {timm_vit: "head", torchvision_vit: "heads.head", transformers_vit: "classifier"}[HEADS[name]]
    state = theirs.state_dict()
    state |= {f"{name}.{leaf}": state.pop(f"{own}.{leaf}") for leaf in ("weight", "bias")}
    with pytest.warns(UserWarning, match=f"the classifier is {name}, taken for one linear layer .* dropout"):
        found = vt.weights.convert(state, **ALL)
    assert found.assumed == {"head": name}
    with torch.inference_mode():
        assert_close(answer(found, images), logits(theirs, images), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("error")
def test_a_classifier_that_is_left_out_is_not_said_to_be_read(theirs):
    state = {name.replace("head.", "fc."): tensor for name, tensor in theirs.state_dict().items()}
    with pytest.warns(UserWarning, match="left out, a ViT having none: pre_logits"):
        found = vt.weights.convert(state | {"pre_logits.fc.weight": torch.ones(16, 16)}, **ALL)
    assert found.config.num_classes == 0
    assert "head" not in found.assumed


@pytest.mark.parametrize("make", [timm_vit, torchvision_vit, transformers_vit, ViT])
def test_the_weights_of_a_loss_are_no_part_of_the_model(make, images):
    theirs = randomise(make(TINY)).double().eval()
    state = theirs.state_dict() | {"criterion.weight": torch.ones(5)}
    with torch.inference_mode():
        assert_close(answer(read(state), images), logits(theirs, images), rtol=0, atol=1e-10)


def test_two_tokens_and_one_head(refuses):
    state = timm_vit(TINY).state_dict() | {"dist_token": torch.ones(1, 1, 16), "pos_embed": torch.ones(1, 6, 16)}
    with refuses(ValueError, "dist_token", "head_dist", "ViTConfig can't express"):
        vt.weights.convert(state, **ALL)


def test_dino_s_own_head_is_left_out_aloud(theirs, images):
    state = {name: t for name, t in theirs.state_dict().items() if not name.startswith("head.")}
    for last in ("weight", "weight_g", "weight_v", "parametrizations.weight.original0"):
        dino = state | {"head.mlp.0.weight": torch.ones(3, 16), f"head.last_layer.{last}": torch.ones(3, 1)}
        with pytest.warns(UserWarning, match="left out, a ViT having none: the projectors of its losses"):
            found = vt.weights.convert(dino, **ALL)
        assert found.config.num_classes == 0
        assert found.assumed["left_out"] == "the projectors of its losses"


def test_the_teacher_of_dinov2_s_training_gives_features(theirs, images):
    body = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("head.")}
    heads = {"dino_head.mlp.0.weight": 3, "dino_head.last_layer.weight_g": 1, "ibot_head.mlp.2.bias": 3}
    heads = {name: torch.ones(width) for name, width in heads.items()}
    file = {"teacher": under("backbone.", body) | heads, "iteration": 9, "optimizer": {"state": {0: torch.ones(3)}}}
    with pytest.warns(UserWarning, match="the projectors of its losses"):
        found = vt.weights.convert(file, **ALL)
    assert found.config.num_classes == 0
    with torch.inference_mode():
        assert_close(answer(found, images), theirs.forward_head(theirs.forward_features(images), pre_logits=True))
    with pytest.raises(ValueError, match=r"dino_head\.adapter"):
        vt.weights.convert({"teacher": file["teacher"] | {"dino_head.adapter.weight": torch.ones(2, 2)}}, **ALL)


def test_the_image_tower_of_open_clip_s_timm_models(theirs, images):
    body = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("head.")}
    text = {"text.transformer.resblocks.0.ln_1.weight": 4, "text.token_embedding.weight": 4, "logit_scale": 1}
    file = under("visual.trunk.", body) | {name: torch.ones(width) for name, width in text.items()}
    with pytest.warns(UserWarning, match="the text tower"):
        found = vt.weights.convert(file, **ALL)
    with torch.inference_mode():
        assert_close(answer(found, images), theirs.forward_head(theirs.forward_features(images), pre_logits=True))
    for name in ("text.lora_A.weight", "visual.head.proj.weight", "fusion.weight"):
        with pytest.raises(ValueError, match=r"lora_A|head\.proj|fusion"):
            vt.weights.convert(file | {name: torch.ones(2, 2)}, **ALL)


OTHERS = {  # a model, and what another family's file may hold beside it
    "a text tower in a ViT of transformers": ("ViTModel", "text_model.final_layer_norm.weight"),
    "a text tower in DINOv2": ("Dinov2Model", "text_projection.weight"),
    "a projector of DINO's in DeiT": ("timm", "dino_head.mlp.0.weight"),
    "a decoder in DINOv2": ("Dinov2Model", "decoder.layers.0.weight"),
    "an adapter in a text tower": ("CLIPModel", "text_model.adapter.weight"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_another_family_may_hold_is_refused(case, refuses):
    kind, name = OTHERS[case]
    if kind == "timm":
        state = randomise(timm_vit(ModernConfig(**vars(TINY) | {"pool": "distilled"}))).state_dict()
    else:
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"image_size": 16, "patch_size": 8}
        model = getattr(transformers, kind)
        clip = {"vision_config": sizes, "text_config": sizes | {"vocab_size": 9}, "projection_dim": 8}
        state = model(model.config_class(**(clip if kind == "CLIPModel" else sizes))).state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vt.weights.convert(state, num_heads=4, image_size=16)
    with refuses(ValueError, name):
        vt.weights.convert(state | {name: torch.ones(16)}, num_heads=4, image_size=16)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_no_rule_drops_a_name_that_a_row_reads(source):
    """Rules drop what the rows leave: of a name with both, only the row would count."""
    places = [("rest", "x"), ("j", "0"), ("k", "0")]
    known = [names.fill(theirs, places) for rule in names.rules_of(source.tables) for theirs in rule.theirs]
    for family in source.kin.values():
        assert family.dropped(known) == {}


CAUSES = {  # names of architectures that aren't ours, and the cause of the refusal
    "blocks.0.attns.0.norm.weight": "blocks in parallel",
    "blocks.0.lambda_q1": "differential attention",
    "encoder.layers.0.blocks.0.attention.q_proj.weight": "stages of several resolutions",
    "encoder.stages.0.layers.0.layernorm_before.weight": "stages of several resolutions",
}


@pytest.mark.parametrize("name", CAUSES)
def test_without_a_block_the_cause_is_said(name, refuses):
    start = ("patch_embed.proj.weight", "patch_embed.proj.bias", "pos_embed", "norm.weight", "norm.bias")
    with refuses(ValueError, name, CAUSES[name]):
        vt.weights.convert({key: torch.ones(2, 3, 4, 4) for key in (*start, name)})


def test_positions_as_a_map_are_sam_s(theirs, refuses):
    with refuses(ValueError, "pos_embed", "(1, 2, 2, 16)", "SAM's"):
        vt.weights.convert(theirs.state_dict() | {"pos_embed": torch.ones(1, 2, 2, 16)}, **ALL)


@pytest.mark.parametrize("name", ["pre_logits.fc.weight", "heads.pre_logits.weight"])
def test_a_head_behind_pre_logits_is_left_out_aloud(name):
    state = timm_vit(TINY).state_dict() if name.startswith("pre") else torchvision_vit(TINY).state_dict()
    with pytest.warns(UserWarning, match="pre_logits and the head"):
        found = vt.weights.convert(state | {name: torch.ones(16, 16)}, **ALL)
    assert found.config.num_classes == 0
    assert found.assumed == {"left_out": "pre_logits and the head behind it"}


# --------------------------------------------------------------------------------------- rectangles, and what they hide


def rectangle(size, **options):
    return randomise(timm.models.VisionTransformer(
        img_size=size, patch_size=16, num_classes=5, embed_dim=16, depth=1, num_heads=4, mlp_ratio=2, **options
    )).double().eval()  # fmt: skip


@pytest.mark.parametrize("size", [(224, 256), (32, 96), (16, 48)])
def test_a_rectangle_that_is_told(size):
    theirs = rectangle(size)
    images = torch.randn(1, 3, *size, dtype=torch.float64)
    found = vt.weights.convert(theirs.state_dict(), num_heads=4, image_size=size)
    assert found.config.image_size == size
    assert_close(answer(found, images), theirs(images), rtol=0, atol=1e-10)


@pytest.mark.filterwarnings(ASSUMED)
def test_a_rectangle_that_looks_like_a_square_is_assumed_aloud(refuses):
    # 14 x 16 patches and the class token are 225 positions, as many as 15 x 15 patches without one.
    found = vt.weights.convert(rectangle((224, 256)).state_dict(), num_heads=4)
    assert found.assumed["image_size"] == found.config.image_size == 240
    with refuses(ValueError, "7 tokens", "no square", "give image_size"):
        vt.weights.convert(rectangle((32, 48)).state_dict(), num_heads=4)


# -------------------------------------------------------------------------------------------------- transformers' kin


def small(kind, **options):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = kind.config_class(image_size=16, patch_size=8, num_labels=5, **(sizes | options))
    return randomise(kind(config)).double().eval()


def test_deit_with_one_classifier_and_with_two(images):
    for kind in (transformers.DeiTForImageClassification, transformers.DeiTForImageClassificationWithTeacher):
        theirs = small(kind)
        found = read(theirs.state_dict(), norm_eps=1e-12)
        assert found.config.pool == "distilled"
        with torch.inference_mode():
            assert_close(answer(found, images), theirs(images).logits, rtol=0, atol=1e-10)
        with pytest.warns(UserWarning, match="doesn't tell all"):
            said = vt.weights.convert(theirs.state_dict(), num_heads=4).assumed["plain"]
        both = kind is transformers.DeiTForImageClassificationWithTeacher
        assert ("the mean of both heads" if both else "the class token") in said
    headless = {name: tensor for name, tensor in theirs.state_dict().items() if "classifier" not in name}
    with pytest.warns(UserWarning, match="both tokens before the patches read out"):
        assert answer(vt.weights.convert(headless, num_heads=4), images).shape == (2, 32)


@pytest.mark.parametrize("classifier", ["classifier", "fc"])
@pytest.mark.parametrize(
    ("kind", "what", "pool"),
    [
        ("ViTModel", "pooler", "cls"),
        ("DeiTModel", "pooler", "cls"),
        ("CLIPVisionModel", "last norm", "mean"),
        ("SiglipVisionModel", "attention pooling", "mean"),
    ],
)
def test_a_classifier_that_may_read_a_pooler_is_refused(kind, what, pool, classifier, refuses, tmp_path):
    theirs = small(getattr(transformers, kind))
    state = under("vit.", theirs.state_dict()) | {
        f"{classifier}.weight": torch.randn(5, 16),
        f"{classifier}.bias": torch.ones(5),
    }
    theirs.save_pretrained(tmp_path)  # whose config names a model without a classifier
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    for read_it in (lambda: vt.weights.convert(state, num_heads=4), lambda: vt.load(tmp_path)):
        with refuses(ValueError, f"a classifier and the {what}", "parts=", "features"):
            read_it()
    with pytest.warns(UserWarning, match="left out"):
        found = vt.weights.convert(state, num_heads=4, parts={"pool": pool})
    assert found.config.num_classes == 5


@pytest.mark.filterwarnings(ASSUMED)
def test_dinov3_without_registers_isn_t_taken_for_another_family():
    theirs = small(transformers.DINOv3ViTModel, num_register_tokens=0)
    found = vt.weights.convert(theirs.state_dict(), num_heads=4)
    assert (found.config.rotary, found.config.norm_eps) == (Rotary(), 1e-5)
    assert found.preprocess.mean == (0.485, 0.456, 0.406)


def test_mae_s_decoder_and_a_pooler_are_left_out_aloud(images):
    decoder = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
    for kind, options, what in (
        (transformers.ViTMAEForPreTraining, decoder | {"mask_ratio": 0.0}, "the decoder"),
        (transformers.ViTModel, {}, "the pooler"),
    ):
        theirs = small(kind, **options)
        with pytest.warns(UserWarning, match=what):
            found = vt.weights.convert(theirs.state_dict(), **(ALL | {"norm_eps": 1e-12}))
        assert found.assumed == {"left_out": what}
        model = ViT(found.config).double().eval()
        model.load_state_dict(found.state_dict)
        with torch.inference_mode():
            rising = torch.linspace(0, 1, 4)[None].expand(2, -1)  # MAE shuffles patches by a noise
            inner = theirs.vit(images, noise=rising) if "decoder" in what else theirs(images)
            assert_close(model.features(images), inner.last_hidden_state, rtol=0, atol=1e-10)


def test_the_decoder_of_mae_s_own_checkpoint_is_left_out_aloud(theirs, images):
    names = ("decoder_embed.weight", "decoder_pos_embed", "decoder_blocks.0.norm1.weight", "decoder_pred.weight")
    decoder = dict.fromkeys((*names, "mask_token"), torch.ones(8))
    with pytest.warns(UserWarning, match="the decoder"):
        found = vt.weights.convert({"model": theirs.state_dict() | decoder}, **ALL)
    assert found.assumed == {"left_out": "the decoder"}
    assert_close(answer(found, images), theirs(images), rtol=0, atol=1e-10)


def test_blocks_in_chunks_as_dinov2_trains_them(theirs, images):
    found = read({name.replace("blocks.", "blocks.0."): tensor for name, tensor in theirs.state_dict().items()})
    assert_close(answer(found, images), theirs(images), rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------------------ refused, saying why


def renamed(old, new):
    return lambda state: {name.replace(old, new): tensor for name, tensor in state.items()}


def also(**shapes):
    return lambda state: state | {name.replace("__", "."): torch.ones(shape) for name, shape in shapes.items()}


WHY = {
    "LoRA": (also(blocks__0__attn__qkv__lora_a__weight=(2, 16)), ["an adapter", "merge it"]),
    "PEFT": (renamed("attn.qkv.", "attn.qkv.base_layer."), ["base_layer", "an adapter", "merge it"]),
    "prompts": (also(prompt_embeddings=(1, 5, 16)), ["prompt tokens"]),
    "quantised": (also(blocks__0__attn__qkv__SCB=(48,)), ["quantised weights"]),
    "pruned": (renamed("head.weight", "head.weight_orig"), ["reparametrised", "prune.remove"]),
    "FSDP's pieces": (lambda state: {"_fsdp_wrapped_module._flat_param": torch.ones(9)}, ["FSDP"]),
    "queries apart": (renamed("attn.qkv", "attn.q"), ["queries, keys and values apart"]),
    "OpenMMLab": (renamed("mlp.fc1", "ffn.layers.0.0"), ["OpenMMLab", "timm may have a converter"]),
    "vit-pytorch": (
        lambda state: {f"{name}.weight": torch.ones(16) for name in ("to_patch_embedding.1", "transformer.norm")},
        ["vit-pytorch's ViT, whose patches have norms, which"],
    ),
    "quantised by torch": (
        lambda state: state | {"head._packed_params._packed_params": (torch.ones(5, 16), None)},
        ["head._packed_params", "torch quantised"],
    ),
    "sparse queries": (
        lambda state: {
            name: tensor.to_sparse() if name.endswith(("q_proj.weight", "query.weight")) else tensor
            for name, tensor in transformers_vit(TINY).state_dict().items()
        },
        [".weight is torch.sparse_coo", "to_dense"],
    ),
    "CLIP's image tower alone": (
        lambda state: {
            name: torch.ones(2, 2)
            for name in ("conv1.weight", "class_embedding", "ln_pre.weight", "transformer.resblocks.0.ln_1.weight")
        },
        ["a tower of CLIP alone", "put 'visual.'"],
    ),
    "no biases": (
        lambda state: {name: t for name, t in state.items() if not name.endswith("fc1.bias")},
        ["2 missing", "without a bias"],
    ),
    "half a layer scale": (
        also(blocks__0__ls1__gamma=(16,), blocks__1__ls1__gamma=(16,)),
        ["layer scale behind the attention alone"],
    ),
    "an average's names": (
        also(model_ema__blocks0norm1weight=(16,)),
        ["an average of the weights by names of its own"],
    ),
    "of training": (also(metric__weight=(5,)), ["1 unexpected: metric.weight", "or of training"]),
    "others": (renamed("attn.qkv", "attn.to_qkv"), ["2 missing", "4 unexpected", "another architecture"]),
    "turned": (
        lambda state: {name: t.mT if "mlp" in name and t.ndim == 2 else t for name, t in state.items()},
        ["(16, 40)", "laid out in another way"],
    ),
    "JAX's patches": (
        lambda state: state | {"patch_embed.proj.weight": torch.ones(8, 8, 3, 16)},
        ["(8, 8, 3, 16)", "(D, C, P, P)", "D is 16"],
    ),
    "a wide class token": (lambda state: state | {"cls_token": torch.ones(1, 1, 8)}, ["(1, 1, 8)", "D is 16"]),
    "a control code": (lambda state: state | {"a\nb\x1b[31m": torch.ones(1)}, ["a\\nb\\x1b[31m"]),
}


@pytest.mark.parametrize("case", WHY)
def test_a_refusal_says_why(case, refuses):
    change, words = WHY[case]
    with refuses(ValueError, *words):
        vt.weights.convert(change(timm_vit(TINY).state_dict()), **ALL)


ARRAYS = {
    "of another byte order": lambda a: a.astype(">f8"),
    "backwards in memory": lambda a: np.flip(np.flip(a).copy()),
    "not to be written to": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_torch_does_not_take(case, theirs, images):
    state = {name: ARRAYS[case](tensor.numpy()) for name, tensor in theirs.state_dict().items()}
    assert_close(answer(read(state), images), theirs(images), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.to(torch.int8), lambda t: t > 0, lambda t: t.to(torch.complex64), lambda t: t.to("meta"),
        lambda t: t.to(torch.float8_e4m3fn), lambda t: t.to_sparse(), lambda t: torch.full_like(t, torch.nan),
        lambda t: torch.full_like(t, -torch.inf),
        lambda t: t.numpy().astype(object), lambda t: t.numpy().astype(np.longdouble), lambda t: t.numpy().astype("S8"),
    ],
    ids=["int8", "bool", "complex", "meta", "float8", "sparse", "nan", "infinity", "objects", "long", "bytes"],
)  # fmt: skip
def test_numbers_that_no_model_has(change, refuses):
    state = timm_vit(TINY).state_dict()
    with refuses(ValueError, "norm.bias"):
        vt.weights.convert(state | {"norm.bias": change(state["norm.bias"])}, **ALL)


# ------------------------------------------------------------------------------------------- hostile, long, and strange


@pytest.mark.parametrize(
    "state",
    [
        {f"{'x' * 5000}{i}": torch.ones(1) for i in range(20)},
        timm_vit(TINY).state_dict() | {f"{'x' * 5000}{i}": torch.ones(1) for i in range(20)},
        timm_vit(TINY).state_dict() | {"norm.bias": "y" * 9000},
        timm_vit(TINY).state_dict() | {"norm.bias": torch.nested.nested_tensor([torch.ones(3), torch.ones(2)] * 500)},
        under("z" * 4000 + ".", timm_vit(TINY).state_dict()) | under("y" * 4000 + ".", timm_vit(TINY).state_dict()),
        timm_vit(TINY).state_dict() | {"norm.bias": np.array(["a" * 5000])},
        timm_vit(TINY).state_dict() | {("a", "tuple"): torch.ones(1)},
        timm_vit(TINY).state_dict() | {"pos_embed": torch.ones(1, 5, 16).to_sparse()},
        timm_vit(TINY).state_dict() | {"patch_embed.proj.weight": torch.ones(16, 3, 0, 0)},
        {"model": {"model": {"model": {"model": {"model": {"model": {"model": {}}}}}}}},
    ],
    ids=range(10),
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_strange_state_dicts_get_a_short_answer(state):
    with pytest.raises(ValueError, match=r".") as caught:
        vt.weights.convert(state, **ALL)
    assert len(str(caught.value)) < 2000


# -------------------------------------------------------------------------------------------------------- the way back


@pytest.mark.parametrize(
    ("config", "there", "words"),
    [
        (tiny(pool="mean"), vt.weights.to_torchvision, ["torchvision", "embed.cls_token", "to_timm"]),
        (tiny(position="none"), vt.weights.to_huggingface, ["transformers", "embed.position"]),
        (tiny(qkv_bias=False), vt.weights.to_torchvision, ["torchvision", "blocks.0.attention.qkv.bias"]),
        (tiny(gelu="tanh"), vt.weights.to_torchvision, ["torchvision", "tanh"]),
        (TINY, partial(vt.weights.to_huggingface, version=3), ["4 or 5", "got 3"]),
        (tiny(image_size=(16, 32)), vt.weights.to_torchvision, ["squares"]),
        (tiny(image_size=(8, 32)), vt.weights.to_torchvision, ["squares"]),  # 4 patches, in a row
        (tiny(patch_size=(8, 4)), vt.weights.to_torchvision, ["square patches"]),
        (tiny(in_channels=1), vt.weights.to_torchvision, ["three channels"]),
    ],
)
def test_what_a_library_would_reject_is_refused(config, there, words, refuses):
    with refuses(ValueError, *words):
        there(ViT(config))
