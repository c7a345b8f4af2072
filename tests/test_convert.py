"""Lesson 09: a fault planted in a table, in a fact or in a tensor is refused, and the message says where it shows."""

import dataclasses

import pytest
import timm
import torch
from peers import randomise
from torch.testing import assert_close

from vit_tutorial.data import Preprocessing
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.weights import convert, proof, tables, timm_models


def published_of(name, **sizes):
    theirs = timm.create_model(name, **{"embed_dim": 64, "depth": 2, "num_heads": 2, "num_classes": 5} | sizes)
    return timm_models.describe(randomise(theirs).eval())


def swapped(table, one, other):
    """The table with two names exchanged."""
    return {**table, one: table[other], other: table[one]}


def without(table, *names):
    return {our: their for our, their in table.items() if our not in names}


def with_table(change):
    return lambda published: dataclasses.replace(published, table=change(published.table))


def with_fact(**facts):
    return lambda published: dataclasses.replace(published, facts={**published.facts, **facts})


def with_tensor(name, change):
    return lambda published: dataclasses.replace(
        published, tensors={**published.tensors, name: change(published.tensors[name])}
    )


def grid_turned(position):
    """The positions of the patches, column by column."""
    return torch.cat([position[:, :1], position[:, 1:].unflatten(1, (3, 3)).transpose(1, 2).flatten(1, 2)], dim=1)


def heads_turned(weight):
    """The rows of q, k and v, numbers before heads."""
    return weight.unflatten(0, (3, 2, -1)).transpose(1, 2).flatten(0, 2)


PLAIN, DINO = ("vit_tiny_patch16_224", {"img_size": 48}), ("vit_small_patch14_reg4_dinov2", {"img_size": 56})
EVA, BEIT = ("eva02_tiny_patch14_224", {"img_size": 56}), ("beit_base_patch16_224", {"img_size": (32, 64)})
NORMS = ("blocks.{i}.norm1.*", "blocks.{i}.norm2.*")
SCALES = ("blocks.{i}.scale1.gamma", "blocks.{i}.scale2.gamma")
READ, ANSWER = "what the head reads", "in the answer"
FAULTS = {  # the model, the fault, where it is first seen
    "two norms exchanged": (PLAIN, with_table(lambda t: swapped(t, *NORMS)), "after block 0"),
    "two layer scales exchanged": (DINO, with_table(lambda t: swapped(t, *SCALES)), "after block 0"),
    "no layer scale": (DINO, with_table(lambda t: without(t, *SCALES)), "after block 0"),
    "no registers": (DINO, with_table(lambda t: without(t, "embed.registers")), "before block 0"),
    "no positions": (PLAIN, with_table(lambda t: without(t, "embed.position")), "before block 0"),
    "no last norm": (PLAIN, with_table(lambda t: without(t, "norm.*")), READ),
    "no head": (PLAIN, with_table(lambda t: without(t, "head.weight", "head.bias")), ANSWER),
    "a projection turned": (PLAIN, with_tensor("blocks.1.attn.proj.weight", lambda w: w.T), "after block 1"),
    "numbers before heads": (PLAIN, with_tensor("blocks.1.attn.qkv.weight", heads_turned), "after block 1"),
    "k before q": (EVA, with_tensor("blocks.0.attn.qkv.weight", lambda w: w.roll(64, dims=0)), "after block 0"),
    "positions turned": (PLAIN, with_tensor("pos_embed", grid_turned), "before block 0"),
    "a tensor twice": (PLAIN, with_tensor("head.bias", lambda b: 2 * b), ANSWER),
    "epsilon 1e-5": (PLAIN, with_fact(norm_eps=1e-5), "after block 0"),
    "epsilon 1e-4": (DINO, with_fact(norm_eps=1e-4), "after block 0"),
    "another GELU": (PLAIN, with_fact(gelu="tanh"), "after block 0"),
    "OpenAI's GELU": (PLAIN, with_fact(gelu="quick"), "after block 0"),
    "one head": (PLAIN, with_fact(num_heads=1), "after block 0"),
    "four heads": (BEIT, with_fact(num_heads=4), "position_bias"),
    "the mean": (DINO, with_fact(pool="mean"), READ),
    "centred coordinates": (EVA, with_fact(rotary=Rotary("centred", 10_000.0)), "after block 0"),
    "a reference forgotten": (EVA, with_fact(rotary=Rotary("index", 10_000.0)), "after block 0"),
    "pairs of halves": (EVA, lambda published: dataclasses.replace(published, interleaved_rope=False), "after block 0"),
    "columns first": (EVA, lambda published: dataclasses.replace(published, rope_columns_first=True), "after block 0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refused(fault, refuses):
    (name, sizes), plant, place = FAULTS[fault]
    published = published_of(name, **sizes)
    proof.prove(convert.model_of(published), published)  # it is the fault that is refused
    with refuses(ValueError, place):
        proof.prove(convert.model_of(plant(published)), published)


def test_a_number_that_is_not_finite_is_refused(refuses):
    published = published_of(*PLAIN[:1], **PLAIN[1])
    published.tensors["blocks.1.norm2.bias"][3] = torch.nan
    with refuses(ValueError, "blocks.1.norm2.bias", "aren't finite"):
        convert.model_of(published)


def test_a_library_s_own_error_becomes_a_refusal(refuses):
    published = published_of(*PLAIN[:1], **PLAIN[1])
    with refuses(ValueError, "VisionTransformer doesn't take (1, 3, 5, 5)"):
        proof.prove(convert.model_of(published), published, torch.zeros(1, 3, 5, 5))


@pytest.mark.parametrize(("scale", "wrong"), [(5e-5, False), (2e-4, True)])
def test_what_is_allowed_is_a_ten_thousandth_of_the_standard_deviation(scale, wrong):
    expected = torch.randn(1000)
    found = expected.clone()
    found[7] += scale * expected.std()
    assert (proof.relative_difference(found, expected) > proof.ALLOWED) is wrong
    assert proof.relative_difference(torch.zeros(3), torch.zeros(3)) == 0
    assert proof.relative_difference(torch.ones(3), torch.zeros(3)) == float("inf")
    assert proof.relative_difference(torch.ones(3), torch.ones(4)) == float("inf")


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,)])
def test_one_number_has_no_deviation_and_is_compared_by_its_size(shape):
    expected = torch.full(shape, 2.0)
    assert proof.relative_difference(expected, expected) == 0
    assert proof.relative_difference(expected + 1e-5, expected) == pytest.approx(5e-6, rel=0.1)
    assert proof.relative_difference(expected + 1, expected) == 0.5
    assert proof.relative_difference(expected, 0 * expected) == float("inf")


def test_hooks_are_gone_afterwards():
    published = published_of(*PLAIN[:1], **PLAIN[1])
    ours = convert.model_of(published)
    proof.prove(ours, published)
    assert not any(part._forward_hooks for model in (ours, published.original) for part in model.modules())


RIGHT = Preprocessing((48, 48), (0.5, 0.4, 0.3), (0.2, 0.25, 0.5), crop=0.875)
PIXEL_FAULTS = {
    "another mean": {"mean": (0.5, 0.41, 0.3)},
    "another standard deviation": {"std": (0.2, 0.25, 0.49)},
    "blue first": {"mean": (0.3, 0.4, 0.5)},
    "another crop": {"crop": 0.9},
    "all of it": {"crop": "none"},
    "squashed": {"squash": True},
    "another filter": {"interpolation": "bilinear"},
    "another size": {"image_size": (32, 32)},
}


@pytest.mark.parametrize("fault", PIXEL_FAULTS)
@pytest.mark.parametrize("allowed", [proof.EXACT, proof.ROUNDED])
def test_another_preprocessing_is_refused(fault, allowed, refuses):
    proof.prove_preprocessing(RIGHT, RIGHT, allowed)
    with refuses(ValueError, "preprocessing"):
        proof.prove_preprocessing(dataclasses.replace(RIGHT, **PIXEL_FAULTS[fault]), RIGHT, allowed)


def test_both_directions_of_a_table():
    published = published_of(*DINO[:1], **DINO[1])
    ours = tables.to_ours(published.table, published.tensors)
    empty = {name: torch.zeros_like(tensor) for name, tensor in published.tensors.items()}
    tables.to_theirs(published.table, ours, empty)
    for name, tensor in published.tensors.items():
        assert_close(empty[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("ours", "words"), [({"norm.weight": torch.zeros(3)}, "(3,)"), ({"norm.other": torch.zeros(64)}, "no place")]
)
def test_what_has_no_place_is_named(ours, words, refuses):
    published = published_of(*PLAIN[:1], **PLAIN[1])
    with refuses(ValueError, *ours, words):
        tables.to_theirs(published.table, ours, published.tensors)
