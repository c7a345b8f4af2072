"""Fine-tuning: which parts change and how fast, pixels that must be the checkpoint's, and what a run leaves."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch

import vit_tutorial as vt
from vit_tutorial import data, train
from vit_tutorial.data import Images, Recipe
from vit_tutorial.train import layers


@pytest.fixture(scope="module")
def digits():
    whole = data.digits()
    return dataclasses.replace(whole, train=part(whole.train, 64), test=part(whole.test, 32))


def part(images, n):
    return Images(images.images[:n], images.labels[:n], white=images.white)


def small(**changes):
    torch.manual_seed(0)
    config = vt.ViTConfig(8, 4, 1, 10, dim=16, depth=3, num_heads=2, mlp_dim=16, **changes)
    model = vt.ViT(config)
    torch.nn.init.normal_(model.head.weight)
    return model


class Flat(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def changed(model, digits, **how):
    """The first words of the names of the parameters that a run changed."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train.fit(model, digits, batch_size=16, warmup_epochs=0, progress=False, **how)
    return {name.split(".")[0] for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}


def test_freeze_changes_the_head_alone(digits):
    model = small()
    assert changed(model, digits, epochs=2, freeze=True) == {"head"}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert changed(model, digits, epochs=1) == {"embed", "blocks", "norm", "head"}


def test_head_first(digits):
    seen = []

    def watch(optimizer, rates, epoch):
        original(optimizer, rates, epoch)
        seen.append([group["factor"] for group in optimizer.param_groups[-2:]])  # a norm's, and the head's

    original = layers.set_layer_factors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.loop, "set_layer_factors", watch)
        assert changed(small(), digits, epochs=3, head_first=2) == {"embed", "blocks", "norm", "head"}
    assert seen == [[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]


def test_the_rate_of_each_layer():
    model = small()
    recipe = Recipe(epochs=1, layer_decay=0.5)
    groups, rates = layers.layer_groups(model, train.parameter_groups(model, 0.1), recipe)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(groups)
    layers.set_layer_factors(optimizer, rates, epoch=0)
    found = {names[id(parameter)]: group for group in optimizer.param_groups for parameter in group["params"]}
    assert found.keys() == {name for name, _ in model.named_parameters()}
    wanted = {"embed": 1 / 16, "blocks.0": 1 / 8, "blocks.1": 1 / 4, "blocks.2": 1 / 2, "norm": 1, "head": 1}
    for name, group in found.items():
        (start,) = [key for key in wanted if name.startswith(f"{key}.")]
        assert group["factor"] == wanted[start], name
        assert group["weight_decay"] == (0.1 if found[name]["params"][0].ndim > 1 and name.endswith("weight") else 0)
    train.set_rate(optimizer, 0.2)
    assert {group["lr"] for group in optimizer.param_groups} == {0.2 * share for share in wanted.values()}


def test_a_run_that_was_stopped_resumes_to_the_same_weights(digits, tmp_path):
    how = {"epochs": 3, "batch_size": 16, "progress": False, "layer_decay": 0.7, "head_first": 1}
    whole, stopped, again = small(), small(), small()
    train.fit(whole, digits, **how)

    def stop(optimizer, rates, epoch):
        if epoch == 2:
            raise KeyboardInterrupt
        layers.set_layer_factors(optimizer, rates, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.loop, "set_layer_factors", stop)
        with pytest.raises(KeyboardInterrupt):
            train.fit(stopped, digits, out=tmp_path, **how)
    train.fit(again, digits, out=tmp_path, resume=True, **how)
    for name, tensor in whole.state_dict().items():
        assert tensor.equal(again.state_dict()[name]), name


def gradients(model, digits, context):
    """Of one batch, dropout and drop path included, and how often each block ran."""
    images, labels = digits.train.batch()
    calls = []
    for block in model.blocks:
        block.norm2.register_forward_hook(lambda *_: calls.append(1))
    torch.manual_seed(0)
    with context:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
    return [parameter.grad for parameter in model.parameters()], len(calls) / len(model.blocks)


def test_recomputed_blocks_have_the_same_gradients(digits):
    kept, once = gradients(small(dropout=0.1, drop_path=0.2), digits, nullcontext())
    model = small(dropout=0.1, drop_path=0.2)
    again, twice = gradients(model, digits, layers.activation_checkpointing(model))
    assert (once, twice) == (1, 2)
    assert all(one.equal(other) for one, other in zip(kept, again, strict=True))


def test_a_run_that_recomputes_ends_with_the_same_weights(digits, refuses):
    how = {"epochs": 1, "batch_size": 16, "progress": False}
    kept, again = small(dropout=0.1), small(dropout=0.1)
    train.fit(kept, digits, **how)
    train.fit(again, digits, **how, recompute=True)
    assert all(one.equal(other) for one, other in zip(kept.parameters(), again.parameters(), strict=True))
    assert not any("forward" in vars(block) for block in again.blocks)  # and the blocks are what they were
    with refuses(ValueError, "recompute needs a model with blocks, got Flat"):
        train.fit(Flat(), digits, **how, recompute=True)


def test_recomputing_puts_a_block_s_own_forward_back():
    model = small()
    model.blocks[1].forward = mine = lambda z: 2 * z
    with layers.activation_checkpointing(model):
        assert model.blocks[1].forward(torch.ones(1)) == 2
    assert [vars(block).get("forward") for block in model.blocks][:2] == [None, mine]


def test_a_compiled_model_is_asked_for_itself(digits, refuses):
    for wrapper, place in (
        (torch.compile(small()), "model._orig_mod"),
        (torch.nn.DataParallel(small()), "model.module"),
    ):
        with refuses(ValueError, "the model itself", place, "compile=True"):
            train.fit(wrapper, digits, epochs=1, batch_size=16, progress=False, freeze=True)


@pytest.mark.parametrize("how", [{"freeze": True}, {"head_first": 1}, {"layer_decay": 0.5}])
def test_a_model_without_a_head_is_refused(digits, refuses, how):
    with refuses(ValueError, "need a model with a head", "num_classes=K"):
        train.fit(Flat(), digits, epochs=2, batch_size=16, progress=False, **how)


def test_other_pixels_than_the_checkpoint_s_are_an_error(digits, refuses):
    model = vt.load("digits").model
    brighter = dataclasses.replace(digits, mean=(0.5,))
    with refuses(ValueError, "pixels of digits", "0.5", "0.305", "preprocess=", "model.preprocess = None"):
        train.fit(model, brighter, epochs=1, batch_size=16, progress=False)
    cropped = dataclasses.replace(digits, preprocess=dataclasses.replace(model.preprocess, crop=0.9))
    with refuses(ValueError, "cropped in another way"):
        train.fit(model, cropped, epochs=1, batch_size=16, progress=False)
    train.fit(model, digits, epochs=1, batch_size=16, progress=False)
    model.preprocess = None
    train.fit(model, brighter, epochs=1, batch_size=16, warmup_epochs=0, progress=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, d: ((vt.load("digits"), d, Recipe(1)), {}), ("fit takes a model and its data", "LoadedModel")),
        (lambda m, d: ((m, "digits", Recipe(1)), {}), ("fit takes a model and its data", "str")),
        (lambda m, d: ((m, d, {"epochs": 1}), {}), ("fit needs a Recipe", "{'epochs': 1}")),
        (lambda m, d: ((m, d), {"seed": 1}), ("fit needs a Recipe", "epochs=")),
        (lambda m, d: ((m, d), {"epochs": 1, "workers": 1.5}), ("workers must be a whole number", "0 to 256, got 1.5")),
        (lambda m, d: ((m, d), {"epochs": 1, "workers": 10**6}), ("0 to 256, got 1000000",)),
    ],
)
def test_fit_says_what_it_takes(digits, refuses, change, words):
    arguments, options = change(small(), digits)
    with refuses(Exception, *words):
        train.fit(*arguments, **options)


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED"])
def test_a_model_in_pieces_is_refused_on_the_cpu_too(digits, refuses, monkeypatch, kind):
    """Accelerate sets this for each process; on the CPU it goes on without FSDP, and says nothing."""
    monkeypatch.setenv(f"ACCELERATE_USE_{kind}", "true")
    with refuses(ValueError, f"which {kind} doesn't", "A model over several GPUs"):
        train.fit(small(), digits, epochs=1, batch_size=16)
