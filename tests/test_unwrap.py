"""Lesson 09: of a checkpoint one model, the average if there is one; the rest is left out aloud, or refused."""

import argparse
import collections
from functools import partial

import numpy as np
import pytest
import torch
from peers import timm_vit, torchvision_vit, transformers_vit, under

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.weights.sources import ANCHORS
from vit_tutorial.weights.unwrap import Unwrapped, unwrap

TINY = ViTConfig(image_size=16, patch_size=8, num_classes=5, dim=16, depth=2, num_heads=4, mlp_dim=40)


@pytest.fixture(scope="module")
def state():
    return timm_vit(TINY).state_dict()


def opened(checkpoint):
    return unwrap(checkpoint, ANCHORS)


def same(found: Unwrapped, state) -> bool:
    tensors = {name: torch.as_tensor(value) for name, value in state.items()}
    return found.state.keys() == state.keys() and all(torch.equal(found.state[name], tensors[name]) for name in state)


def renamed(old, new):
    return lambda state: {name.replace(old, new): tensor for name, tensor in state.items()}


def raw(state):
    return {name: tensor + 1 for name, tensor in state.items()}


def body(state):
    return {name: tensor for name, tensor in state.items() if not name.startswith("head.")}


# ------------------------------------------------------------------------------------------------------------ wrappers

LIGHTNING = {
    "epoch": 3, "pytorch-lightning_version": "2", "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}}],
    "lr_schedulers": [{"last_epoch": 3}], "loops": {"fit_loop": {}}, "hyper_parameters": {"lr": 0.1},
    "callbacks": {"ModelCheckpoint": {"best_model_score": torch.ones(2)}},
}  # fmt: skip
WRAPPED = {
    **{prefix: partial(under, prefix) for prefix in (
        "module.", "model.", "net.", "encoder.", "student.", "teacher.", "timm_model.", "backbone.", "_orig_mod.",
        "module.model.", "model._orig_mod.", "model.net.backbone.", "trunk.", "my_own.vit.", "0.model.", "ema_model.",
        "model.module._orig_mod.", "_fsdp_wrapped_module.",
    )},
    **{key: lambda state, key=key: {key: state} for key in (
        "state_dict", "model", "module", "student", "teacher", "ema", "network", "weights", "params", "my_model",
    )},
    "inside": renamed("blocks.", "blocks._orig_mod."),
    "at the last": renamed("qkv.", "qkv._orig_mod."),
    "in the patches": renamed("patch_embed.", "patch_embed._orig_mod."),
    "each block": renamed("attn.", "_orig_mod._fsdp_wrapped_module.attn._checkpoint_wrapped_module."),
    "a head beside": lambda state: under("backbone.", body(state)) | {n: state[n] for n in state if n[:4] == "head"},
    "a head beside, both wrapped": lambda state: under("model.", under("backbone.", body(state))) | {
        f"model.{name}": state[name] for name in state if name.startswith("head.")},
    "Lightning": lambda state: LIGHTNING | {"state_dict": under("model.", state)},
    "DeepSpeed": lambda state: {"module": state, "ds_config": {"a": [1]}, "dp_world_size": 1, "buffer_names": []},
    "timm's training": lambda state: {"epoch": 3, "arch": "vit", "state_dict": state, "optimizer": {
        "state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"params": [0]}]}, "args": argparse.Namespace()},
    "with a state of chance": lambda state: {"model": state, "rng_state": torch.ones(9), "step": torch.tensor(3)},
    "seven deep": lambda state: {"a": {"model": {"b": {"state_dict": {"c": {"net": {"d": state}}}}}}},
    "averaged": lambda state: {"n_averaged": torch.tensor(7)} | under("module.", state),
    "a step beside the tensors": lambda state: state | {"epoch": 3},
    "an optimizer beside the tensors": lambda state: state | {"optimizer": {"momentum": raw(state)}},
    "an optimizer that knows names": lambda state: {"model": state, "opt": {"exp_avg": raw(state), "mu": raw(state)}},
    "no average yet": lambda state: {"model": state, "model_ema": None, "ema": {}, "swa": 0.9, "ema_n": torch.ones(())},
    "an average's counter": lambda state: {"model": state, "ema": {"decay": 0.9, "updates": torch.tensor(7)}},
    "the same dictionary twice": lambda state: {"model": state, "net": state},
    "other kinds of mapping": lambda state: collections.UserDict({"model": collections.OrderedDict(state)}),
    "arrays": lambda state: {name: tensor.numpy() for name, tensor in state.items()},
}  # fmt: skip


@pytest.mark.parametrize("case", WRAPPED)
def test_wrappers_come_off_without_a_word(case, state):
    found = opened(WRAPPED[case](state))
    assert same(found, state)
    unread = {"Lightning": "hyper_parameters", "timm's training": "arch"}
    assert found.assumed == ({"unread": unread[case]} if case in unread else {})


@pytest.mark.parametrize("prefix", ["model.", "encoder.", "module.net."])
@pytest.mark.parametrize("build", [torchvision_vit, transformers_vit, ViT])
def test_wrappers_of_other_libraries(prefix, build):
    state = build(TINY).state_dict()
    kept = {name.removeprefix("vit."): tensor for name, tensor in state.items()}
    assert same(opened(under(prefix, state)), kept)


def test_what_may_tell_more_of_the_model_is_named(state):
    facts = {"classes": ["cat", "dog"], "temperature": 1.7, "config": {"global_pool": "avg"}, "epochs": None}
    found = opened({"a": {"model": state, "mean": [0.1], "epoch": 3}, "optimizer": {"lr": 1}, **facts})
    assert same(found, state)
    assert found.assumed == {"unread": "classes, temperature, config, mean"}


def test_what_a_profiler_counted_is_no_part_of_a_model(state):
    counted = {
        f"{layer}.total_{what}": torch.zeros(1) for layer in ("norm", "blocks.0.attn") for what in ("ops", "params")
    }
    assert same(opened(state | counted), state)


def test_the_last_key_is_the_origin(state):
    assert opened({"a": {"teacher": state}}).origin == "teacher"
    assert opened(state).origin == opened(under("model.", state)).origin == ""


# ------------------------------------------------------------------------------------------------------------ averages

AVERAGES = (
    "state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema", "shadow", "averaged_model", "teacher", "EMA",
    "ema_weights", "model_ema_state_dict", "swa_state_dict", "swa_model", "avg_model", "params_ema", "net_ema",
    "modelEMA", "target_encoder", "momentum_encoder", "teacher_model", "model_averaged", "polyak", "mean_teacher",
    "ema_0.9999",
)  # fmt: skip
AVERAGED = {
    **{key: lambda state, key=key: {"model": raw(state), key: state} for key in AVERAGES},
    **{f"{key}.": lambda state, key=key: under("model.", raw(state)) | under(f"{key}.", state) for key in AVERAGES},
    "within": lambda state: {"model": raw(state), "ema": {"module": under("module.", state), "decay": 0.9}},
    "before": lambda state: {"model_ema": state, "model": raw(state), "optimizer": {"state": {}}},
    "prefixes": lambda state: under("student.", raw(state)) | under("teacher.", state),
    "prefixes in a dictionary": lambda state: {"state_dict": under("model.", raw(state)) | under("ema_model.", state)},
    "one prefix in the other": lambda state: under("model.", raw(state)) | under("model.ema.", state),
    "beside": lambda state: raw(state) | under("ema.", state),
    "a dictionary beside": lambda state: raw(state) | {"ema": state},
    "Lightning's callback": lambda state: LIGHTNING | {
        "state_dict": under("model.", raw(state)), "callbacks": {"EMA": {"ema_state_dict": under("model.", state)}}},
    "two raw ones": lambda state: {"model": raw(state), "last": raw(state), "ema": state},
}  # fmt: skip


@pytest.mark.parametrize("case", AVERAGED)
def test_the_average_of_the_weights_is_taken_and_said(case, state):
    found = opened(AVERAGED[case](state))
    assert same(found, state)
    assert found.assumed.keys() - {"unread"} == {"weights"}
    assert found.assumed["weights"].endswith(", the average")


NAMELESS = {
    "a list": lambda state: {"model": raw(state), "ema": list(state.values())},
    "torch_ema's": lambda state: {"model": raw(state), "ema": {"decay": 0.9, "shadow_params": list(state.values())}},
    "an optimizer's": lambda state: {"model": raw(state), "optimizer_states": [{"ema": tuple(state.values())}]},
    "a module": lambda state: {"model": raw(state), "model_ema": torch.nn.Linear(2, 2)},
    "names without dots": lambda state: {"model": raw(state), "ema": {n.replace(".", ""): t for n, t in state.items()}},
}  # fmt: skip


@pytest.mark.parametrize("case", NAMELESS)
def test_an_average_without_names_is_no_reason_to_take_the_raw_weights(case, state, refuses):
    with refuses(ValueError, "ema", "without their names"):
        opened(NAMELESS[case](state))


SEVERAL = {
    "two dictionaries": (lambda state: {"model": state, "net": raw(state)}, ["2 models", "'model'", "'net'"]),
    "the last and the best": (lambda state: {"state_dict": state, "best_state_dict": raw(state)}, ["2 models"]),
    "two prefixes": (lambda state: under("a.", state) | under("b.", raw(state)), ["2 models", "'a.'", "'b.'"]),
    "two averages": (
        lambda state: {"model": state, "ema": {"0.99": raw(state), "0.999": raw(state)}}, ["3 models", "'ema/0.99'"]),
    "two averages by prefix": (
        lambda state: under("a.", state) | under("ema1.", raw(state)) | under("ema2.", raw(state)), ["3 models"]),
    "a wider teacher": (
        lambda state: {"student": state, "teacher": {n: torch.cat([t, t]) for n, t in state.items()}}, ["2 models"]),
    "a wider teacher by prefix": (
        lambda state: under("student.", state) | {f"teacher.{n}": torch.cat([t, t]) for n, t in state.items()},
        ["2 models"]),
    "two libraries": (lambda state: state | transformers_vit(TINY).state_dict(), ["2 models", "'vit.'"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SEVERAL)
def test_of_several_models_none_is_guessed(case, state, refuses):
    change, words = SEVERAL[case]
    with refuses(ValueError, "say which by part=", *words):
        opened(change(state))


# ------------------------------------------------------------------------------------------------ what lies beside it

HEAD = {"weight": torch.ones(5, 16), "bias": torch.ones(5)}
HEADS = {
    **{key: lambda state, key=key: {"backbone": body(state), key: HEAD} for key in (
        "head", "classifier", "linear_probe", "fc", "cls_head", "logits")},
    "tensors": lambda state: {"model": body(state)} | under("head.", HEAD),
    "beside the average": lambda state: {"model": raw(body(state)), "model_ema": body(state), "head": HEAD},
    "a list": lambda state: {"model": body(state), "head": list(HEAD.values())},
}  # fmt: skip


@pytest.mark.parametrize("case", HEADS)
def test_a_head_in_a_dictionary_of_its_own_is_never_dropped(case, state, refuses):
    with refuses(ValueError, "a head in a dictionary of its own", "beside the model's"):
        opened(HEADS[case](state))


def test_what_pretraining_alone_has_is_named(state):
    found = opened({"encoder": raw(state), "target_encoder": state, "predictor": {"a": torch.ones(3)}})
    assert same(found, state)
    assert found.assumed["left_out"].startswith("the predictor")


BESIDE = {
    "LoRA": lambda state: {"model": state, "lora": {"a": torch.ones(2, 2)}},
    "a tensor": lambda state: {"model": state, "x": torch.ones(2)},
    "another kind of teacher": lambda state: {"student": state, "teacher": {"conv.weight": torch.ones(2)}},
    "a second head": lambda state: {"model": state, "metric_fc": HEAD},
    **{key: lambda state, key=key: {"model": body(state), key: HEAD} for key in (
        "metric_fc", "meta_head", "lr_head", "config_head", "projection", "adapter", "my_optimizer_head")},
    "in a dictionary within": lambda state: {"model": {"net": state, "peft": {"lora_A": torch.ones(2, 2)}}},
    "a list": lambda state: {"model": state, "prompts": [torch.ones(2, 2)]},
}  # fmt: skip


@pytest.mark.parametrize("case", BESIDE)
def test_tensors_beside_the_model_stop_the_reading(case, state, refuses):
    checkpoint = BESIDE[case](state)
    with refuses(ValueError, "part='"):
        opened(checkpoint)
    key = "model/net" if "within" in case else next(iter(checkpoint))
    chosen = checkpoint["model"]["net"] if "within" in case else checkpoint[key]
    assert same(unwrap(checkpoint, ANCHORS, key), chosen)


def test_the_part_asked_for_is_taken(state, refuses):
    two = under("student.", raw(state)) | under("teacher.", state)
    assert same(unwrap(two, ANCHORS, "student."), raw(state))
    assert same(unwrap(two | {"prompts": torch.ones(2, 2)}, ANCHORS, "student."), raw(state))  # that of neither
    assert same(unwrap({"state_dict": two}, ANCHORS, "state_dict/student"), raw(state))
    beside = raw(state) | under("ema.", state)
    assert same(unwrap(beside, ANCHORS, ""), raw(state))
    with refuses(ValueError, "part='studnt' names 0 of the 2 models", "'student'", "'teacher'"):
        unwrap(two, ANCHORS, "studnt")


def test_an_average_without_some_of_the_tensors_is_no_average(state, refuses):
    with refuses(ValueError, "2 models", "part="):
        opened({"model": raw(state), "ema": body(state)})
    masked = raw(state) | {"mask_token": torch.ones(1, 1, 16)}  # which pretraining alone reads
    assert same(opened({"student": masked, "teacher": state}), state)


def test_two_dictionaries_without_a_patch_embedding_are_not_guessed(refuses):
    tower = {"conv1.weight": torch.ones(2, 3, 4, 4)}
    with refuses(ValueError, "no known model", "lora"):
        opened({"model": tower, "lora": {"a": torch.ones(2)}})


def test_dino_s_loss_is_of_training(state):
    whole = {"student": raw(state), "teacher": state, "dino_loss": {"center": torch.ones(1, 9)}, "fp16_scaler": None}
    assert list(opened(whole).assumed) == ["weights"]


# ------------------------------------------------------------------------------------------------------------- nothing

NOTHING = {
    "nothing": ({}, ["0 names"]),
    "nothing inside": ({"state_dict": {}}, ["1 entries are no tensors", "state_dict"]),
    "a name": ({"state_dict": "x.pth"}, ["no tensors"]),
    "a module": ({"model": torch.nn.Linear(2, 2)}, ["no tensors", "model"]),
    "lists": ({"norm.bias": [1.0, 2.0]}, ["no tensors", "norm.bias"]),
    "eleven deep": ({"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"x": torch.ones(1)}}}}}}}}}}}},
                    ["no tensors"]),
    "weights in an optimizer alone": ({"optimizer": {"patch_embed.proj.weight": torch.ones(1)}}, ["no tensors"]),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING)
def test_no_model(case, refuses):
    checkpoint, words = NOTHING[case]
    with refuses(ValueError, *words):
        opened(checkpoint)


def test_more_names_than_any_model_has(refuses):
    one = torch.ones(1)
    with refuses(ValueError, "50,001 tensors are more than any model has", "norm0"):
        opened({f"norm{i}": one for i in range(50_001)})


def test_a_name_longer_than_any(state, refuses):
    with refuses(ValueError, "2,001 characters", "xxx…xxx"):
        opened(state | {"x" * 2001: torch.ones(1)})


def test_text_among_the_tensors(state, refuses):
    with refuses(ValueError, "1 entries are no tensors: norm.bias", "pass the state dict within"):
        opened(state | {"norm.bias": "text"})


@pytest.mark.parametrize("thing", [[1], (1, 2), None, 3, "x", np.ones(3)], ids=str)
def test_no_mapping(thing, refuses):
    with refuses(TypeError, "a mapping", type(thing).__name__):
        opened(thing)


def test_a_dictionary_that_holds_itself_a_thousandfold_is_searched_once():
    class Counting(dict):
        looks = 0

        def items(self):
            Counting.looks += 1
            return super().items()

    inner = Counting(x=torch.ones(1))
    for _ in range(9):  # two to the ninth ways lead to the innermost
        inner = Counting(a=inner, b=inner)
    inner["itself"] = inner
    assert opened(inner).state.keys() == {"x"}
    assert Counting.looks < 50


def test_an_array_of_one_number_stays_one(state):
    found = opened(state | {"norm.bias": np.array(3.0, ">f4")})
    assert found.state["norm.bias"].shape == ()
