"""Lesson 01: patchify against three other ways to cut an image, the embedding against patchify + a matrix product."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional as F
from torch.testing import assert_close

from vit_tutorial import PatchEmbedding, patchify, unpatchify
from vit_tutorial.patches import as_pair, grid_shape

same = partial(assert_close, rtol=0, atol=1e-12)
few = st.integers(1, 4)
images_and_patch = st.builds(
    lambda B, C, rows, columns, P, Q: (torch.randn(B, C, rows * P, columns * Q), (P, Q)), few, few, few, few, few, few
)


@given(images_and_patch)
def test_round_trip(case):
    images, patch = case
    patches = patchify(images, patch)
    assert torch.equal(unpatchify(patches, patch, images.shape[2:]), images)


@given(images_and_patch)
def test_patchify_equals_unfold(case):
    images, patch = case
    assert torch.equal(patchify(images, patch), F.unfold(images, patch, stride=patch).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float16, torch.float64])
def test_patchify_keeps_any_dtype(dtype):
    images = torch.randint(0, 2, (2, 3, 4, 6)).to(dtype)
    assert patchify(images, 2).dtype == dtype
    assert torch.equal(unpatchify(patchify(images, 2), 2, (4, 6)), images)


@pytest.mark.parametrize(("image", "patch", "grid"), [(224, 16, (14, 14)), ((224, 160), (32, 16), (7, 10))])
def test_grid_shape(image, patch, grid):
    assert grid_shape(image, patch) == grid


@pytest.mark.parametrize(("image", "patch"), [(12, 4), ((12, 20), 4), ((12, 20), (3, 5)), (20, (4, 5))])
def test_embedding_equals_patchify_and_a_matrix_product(image, patch):
    embed = PatchEmbedding(image, patch, in_channels=2, dim=7).double()
    torch.nn.init.normal_(embed.proj.bias)
    H, W = as_pair(image, "image_size")
    images = torch.randn(3, 2, H, W, dtype=torch.float64, requires_grad=True)
    kernel, bias = embed.proj.weight, embed.proj.bias

    tokens = embed(images)
    by_hand = patchify(images, patch) @ kernel.flatten(1).T + bias
    assert embed.grid == grid_shape(image, patch)
    assert tokens.shape == (3, embed.grid[0] * embed.grid[1], 7)
    same(tokens, by_hand)
    same(tokens, F.linear(F.unfold(images, kernel.shape[2:], stride=kernel.shape[2:]).mT, kernel.flatten(1), bias))
    out = torch.randn_like(tokens)  # the same gradients too, for the pixels and for the weights
    for one, other in zip(
        torch.autograd.grad(tokens, (images, kernel, bias), out),
        torch.autograd.grad(by_hand, (images, kernel, bias), out),
        strict=True,
    ):
        same(one, other)


def test_initialisation():
    embed = PatchEmbedding()
    assert embed.proj.weight.shape == (768, 3, 16, 16)
    weight, lecun = embed.proj.weight, (3 * 16 * 16) ** -0.5
    assert weight.std().item() == pytest.approx(lecun, rel=0.01)  # 590,000 numbers: one standard error is 0.1 %
    assert weight.mean().item() == pytest.approx(0.0, abs=lecun / 100)
    cut = 2 * lecun / 0.87962566
    assert 0.99 * cut < weight.abs().max().item() <= cut
    assert not embed.proj.bias.any()


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("shape", "patch", "words"),
    [
        ((3, 32, 32), 8, ["(B, C, H, W)", "[3, 32, 32]", "batch axis", "unsqueeze(0)"]),
        ((32, 32), 8, ["(B, C, H, W)", "[32, 32]"]),
        ((1, 1, 3, 32, 32), 8, ["(B, C, H, W)", "[1, 1, 3, 32, 32]"]),
        ((1, 3, 30, 32), 8, ["30x32", "not divisible", "8x8", "resize to 24x32", "another patch size"]),
        ((1, 3, 32, 30), 8, ["32x30", "not divisible", "8x8", "resize to 32x24"]),
        ((1, 3, 4, 32), (8, 16), ["4x32", "8x16", "resize to 8x32"]),
        ((1, 3, 32, 32), 0, ["patch_size", "at least 1", "0"]),
        ((1, 3, 32, 32), (8, -8), ["patch_size", "at least 1", "(8, -8)"]),
    ],
)
def test_patchify_refuses(refuses, shape, patch, words):
    with refuses(ValueError, *words):
        patchify(torch.zeros(shape), patch)


@pytest.mark.parametrize("images", [np.zeros((1, 3, 8, 8)), [torch.zeros(3, 8, 8)], Image.new("RGB", (8, 8))])
def test_images_are_a_tensor(refuses, images):
    for use in (lambda x: patchify(x, 4), PatchEmbedding(8, 4, 3, 12)):
        with refuses(TypeError, "images must be a tensor", type(images).__name__, "from_numpy", "preprocess"):
            use(images)


@pytest.mark.parametrize("patch", [8.0, "8", (8,), (8, 8, 8), (8, 8.0), None, True])
def test_a_size_is_an_int_or_a_pair(refuses, patch):
    with refuses(TypeError, "patch_size", "an int or a pair of ints (height, width)", repr(patch)):
        patchify(torch.zeros(1, 3, 32, 32), patch)


@pytest.mark.parametrize(
    "shape",
    [(1, 16, 191), (1, 17, 192), (192, 16), (1, 16, 64, 3)],  # a broken last axis, a class token, other ranks
)
def test_unpatchify_refuses(refuses, shape):
    with refuses(ValueError, "8x8", "32x32", "(B, 16, C*64)", str(shape), "class token", "tokens[:, 1:]", "sizes"):
        unpatchify(torch.zeros(shape), 8, 32)


@pytest.mark.parametrize(
    ("images", "error", "words"),
    [
        (torch.zeros(3, 32, 48), ValueError, ["batch axis", "unsqueeze(0)", "[3, 32, 48]"]),
        (torch.zeros(1, 3, 32, 48, dtype=torch.uint8), TypeError, ["floating point", "uint8", "images.float() / 255"]),
        (torch.zeros(1, 3, 32, 48, dtype=torch.int64), TypeError, ["floating point", "int64"]),
        (torch.zeros(1, 4, 32, 48), ValueError, ["(B, 3, H, W)", "(1, 4, 32, 48)", "in_channels=4"]),
        (torch.zeros(1, 32, 48, 3), ValueError, ["(B, 3, H, W)", "(1, 32, 48, 3)", "images.permute(0, 3, 1, 2)"]),
        (torch.zeros(1, 3, 48, 32), ValueError, ["(32, 48)", "(height, width)", "(48, 32)", "image_size=(48, 32)"]),
        (torch.zeros(1, 3, 64, 48), ValueError, ["(64, 48)", "resize the images", "vt.load"]),
    ],
)
def test_embedding_refuses(refuses, images, error, words):
    with refuses(error, *words):
        PatchEmbedding((32, 48), 8, 3, 16)(images)


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ((30, 8), ValueError, ["30x30", "8x8", "resize to 24x24"]),
        ((0, 8), ValueError, ["image_size", "at least 1", "0"]),
        ((32.0, 8), TypeError, ["image_size", "32.0"]),
        ((32, "8"), TypeError, ["patch_size", "'8'"]),
        ((32, 8, 0), ValueError, ["in_channels must be at least 1", "got 0"]),
        ((32, 8, 3, 0), ValueError, ["dim must be at least 1", "got 0"]),
        ((32, 8, 3, 4.0), TypeError, ["dim must be an int", "4.0"]),
    ],
)
def test_embedding_refuses_to_be_built(refuses, sizes, error, words):
    with refuses(error, *words):
        PatchEmbedding(*sizes)
