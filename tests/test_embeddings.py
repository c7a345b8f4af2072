"""Lesson 02: Eq. 1, the sine-cosine grid against vit-pytorch, and each resizing recipe against its own library."""

from functools import partial

import pytest
import scipy.ndimage
import torch
import transformers
from peers import randomise
from timm.layers import resample_abs_pos_embed
from torch.nn import functional as F
from torch.testing import assert_close
from torchvision.models.vision_transformer import interpolate_embeddings
from vit_pytorch.simple_vit import posemb_sincos_2d

from vit_tutorial import Embeddings, resize_position_embedding, sincos_position_embedding

same = partial(assert_close, rtol=0, atol=1e-12)
close = partial(assert_close, rtol=0, atol=1e-6)
RECIPES = ("timm", "torchvision", "huggingface", "google", "dino")

# ------------------------------------------------------------------------------------------------- sine and cosine


@pytest.mark.parametrize(("grid", "dim"), [((14, 14), 192), ((3, 5), 8), ((5, 3), 12), ((1, 7), 16), ((7, 1), 16)])
def test_sincos_equals_vit_pytorch(grid, dim):
    ours = sincos_position_embedding(grid, dim)
    assert ours.shape == (1, grid[0] * grid[1], dim)
    assert ours.dtype == torch.float32
    assert_close(ours[0], posemb_sincos_2d(*grid, dim), rtol=0, atol=1e-5)  # angles up to 13 in float32


@pytest.mark.parametrize("dim", [0, 4, 6, 10, 767])
def test_sincos_refuses(refuses, dim):
    with refuses(ValueError, "sincos", "multiple of 4", "at least 8", f"got {dim}"):
        sincos_position_embedding((2, 2), dim)


# -------------------------------------------------------------------------------------------------------- resizing


def positions(grid, prefix=1, dim=6, dtype=torch.float32):
    return torch.randn(1, prefix + grid[0] * grid[1], dim).to(dtype)


def as_maps(position, grid, prefix):
    return position[:, prefix:].mT.reshape(1, -1, *grid)  # (1, D, rows, columns)


def as_tokens(maps):
    return maps.flatten(2).mT


TO_AND_FRO = [
    ((14, 14), (24, 24)), ((14, 14), (7, 7)), ((14, 14), (10, 20)), ((6, 4), (4, 6)), ((5, 9), (12, 3)),
    ((2, 7), (5, 5)), ((8, 3), (16, 6)),
]  # fmt: skip
FROM_SQUARES = [((14, 14), (24, 24)), ((7, 7), (3, 3)), ((7, 7), (5, 9)), ((4, 4), (9, 2)), ((3, 3), (4, 5))]


@pytest.mark.parametrize(("old", "new"), TO_AND_FRO)
def test_timm_recipe(old, new):
    prefix = 2
    position = positions(old, prefix)
    ours = resize_position_embedding(position, old, new, prefix_tokens=prefix)  # the default recipe
    close(ours, resample_abs_pos_embed(position, list(new), list(old), num_prefix_tokens=prefix))
    assert torch.equal(ours, resize_position_embedding(position, old, new, prefix_tokens=prefix, recipe="timm"))


@pytest.mark.parametrize(("old", "new"), [(14, 24), (14, 7), (7, 12), (3, 8), (5, 4), (24, 32)])  # squares alone
def test_torchvision_recipe(old, new):
    position = positions((old, old))
    theirs = interpolate_embeddings(new * 16, 16, {"encoder.pos_embedding": position})["encoder.pos_embedding"]
    close(resize_position_embedding(position, (old, old), (new, new), recipe="torchvision"), theirs)


@pytest.mark.parametrize(("old", "new"), FROM_SQUARES)
def test_huggingface_recipe(old, new):
    config = transformers.ViTConfig(image_size=old[0] * 4, patch_size=4, hidden_size=8, num_attention_heads=2)
    theirs = transformers.models.vit.modeling_vit.ViTEmbeddings(config)
    position = torch.nn.init.normal_(theirs.position_embeddings)
    tokens = torch.zeros(1, 1 + new[0] * new[1], 8)
    expected = theirs.interpolate_pos_encoding(tokens, new[0] * 4, new[1] * 4)
    close(resize_position_embedding(position, old, new, recipe="huggingface"), expected)


@pytest.mark.parametrize(("old", "new"), TO_AND_FRO)
def test_google_recipe(old, new):
    prefix = 1
    position = positions(old, prefix, dtype=torch.float64)  # as scipy computes
    grid = position[0, prefix:].reshape(*old, -1).numpy()  # (rows, columns, D)
    zoomed = scipy.ndimage.zoom(grid, (new[0] / old[0], new[1] / old[1], 1), order=1)
    expected = torch.cat([position[:, :prefix], torch.from_numpy(zoomed).flatten(0, 1)[None]], dim=1)
    close(resize_position_embedding(position, old, new, prefix_tokens=prefix, recipe="google"), expected)


@pytest.mark.parametrize(("old", "new"), TO_AND_FRO)
def test_dino_recipe(old, new):
    prefix = 0
    position = positions(old, prefix)
    # DINO: "we add a small number to avoid floating point error in the interpolation"
    scale = ((new[0] + 0.1) / old[0], (new[1] + 0.1) / old[1])
    grid = F.interpolate(as_maps(position, old, prefix), scale_factor=scale, mode="bicubic")
    ours = resize_position_embedding(position, old, new, prefix_tokens=prefix, recipe="dino")
    close(ours, torch.cat([position[:, :prefix], as_tokens(grid)], dim=1))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_same_grid_changes_nothing(recipe):
    position = positions((3, 5))
    close(resize_position_embedding(position, (3, 5), [3, 5], recipe=recipe), position)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_resizing_keeps_the_dtype_and_computes_in_float32_at_least(recipe, dtype):
    position = positions((4, 6), dtype=dtype)
    ours = resize_position_embedding(position, (4, 6), (7, 5), recipe=recipe)
    assert ours.dtype == dtype
    wide = torch.promote_types(dtype, torch.float32)
    expected = resize_position_embedding(position.to(wide), (4, 6), (7, 5), recipe=recipe)
    assert torch.equal(ours, expected.to(dtype))  # one rounding, at the end


def test_unknown_recipe(refuses):
    with refuses(ValueError, "recipe", "'openai'", *RECIPES):
        resize_position_embedding(positions((2, 2)), (2, 2), (3, 3), recipe="openai")


@pytest.mark.parametrize(
    ("shape", "prefix", "tokens"), [((1, 12, 4), 1, 13), ((1, 13, 4), 0, 12), ((2, 13, 4), 1, 13), ((13, 4), 1, 13)]
)
def test_a_grid_that_does_not_match(refuses, shape, prefix, tokens):
    words = (f"prefix_tokens={prefix}", "(3, 4)", f"(1, {tokens}, D)", f"got {shape}", "check old_grid and prefix")
    with refuses(ValueError, *words):
        resize_position_embedding(torch.zeros(shape), (3, 4), (6, 8), prefix_tokens=prefix)


@pytest.mark.parametrize(
    ("grid", "error", "words"),
    [
        ((0, 3), ValueError, ["rows", "at least 1, got 0"]),
        ((3, 2.5), TypeError, ["columns", "an int, got 2.5"]),
        (4, TypeError, ["(rows, columns), got 4"]),
        ((4, 4, 1), TypeError, ["(rows, columns), got (4, 4, 1)"]),
    ],
)
def test_a_grid_is_two_whole_numbers_of_patches(refuses, grid, error, words):
    position = positions((2, 2))
    with refuses(error, "new_grid", *words):
        resize_position_embedding(position, (2, 2), grid)
    with refuses(error, "old_grid", *words):
        resize_position_embedding(position, grid, (2, 2))
    with refuses(error, "grid", *words):
        sincos_position_embedding(grid, 8)


# ------------------------------------------------------------------------------------------------------ Embeddings


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("position", ["learned", "sincos", "none"])
def test_equation_1(position, class_token):
    embed = randomise(Embeddings((8, 12), 4, 3, 16, position=position, class_token=class_token)).double()
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    for b, z in enumerate(embed(images)):  # each image by itself
        tokens = embed.patches(images)[b]
        expected = torch.cat([embed.cls_token[0], tokens]) if class_token else tokens  # the class token comes first
        if position != "none":
            expected = expected + embed.position[0]
        same(z, expected)


@pytest.mark.parametrize("class_token", [True, False])
def test_kinds_of_position(class_token):
    learned, sincos, none = (
        Embeddings((8, 12), 4, 3, 16, position=kind, class_token=class_token)
        for kind in ("learned", "sincos", "none")
    )  # fmt: skip
    assert isinstance(learned.position, torch.nn.Parameter)
    assert learned.position.shape == (1, 6 + class_token, 16)

    grid = sincos_position_embedding((2, 3), 16)
    expected = torch.cat([torch.zeros(1, 1, 16), grid], dim=1) if class_token else grid
    assert torch.equal(sincos.position, expected)
    assert "position" in sincos.state_dict()
    assert "position" not in dict(sincos.named_parameters())  # fixed, not learned

    assert none.position is None
    assert "position" not in none.state_dict()
    assert (learned.cls_token is not None) == class_token
    assert ("cls_token" in learned.state_dict()) == class_token


def test_dropout_comes_after_the_positions():
    embed = randomise(Embeddings(8, 4, 3, 16, dropout=0.3))
    images = torch.randn(2, 3, 8, 8)
    whole = embed.eval()(images)
    assert torch.equal(whole, embed(images))  # evaluation is deterministic
    torch.manual_seed(1)
    dropped = embed.train()(images)
    torch.manual_seed(1)
    assert torch.equal(dropped, F.dropout(whole, 0.3))
    assert (dropped == 0).any()


def test_initialisation():
    embed = Embeddings(224, 16, 3, 768)
    assert embed.position.std().item() == pytest.approx(0.02, rel=0.01)  # 150,000 numbers
    assert embed.position.mean().item() == pytest.approx(0.0, abs=2e-4)
    assert embed.position.abs().max() > 0.06  # not cut off
    assert not embed.cls_token.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"position": "rotary"}, ["position", "'rotary'", "learned, sincos, none"]),
        ({"dim": 18, "position": "sincos"}, ["sincos", "multiple of 4", "18"]),
        ({"image_size": 30}, ["30x30", "4x4", "resize to 28x28"]),
    ],
)
def test_refuses(refuses, options, words):
    with refuses(ValueError, *words):
        Embeddings(**({"image_size": 8, "patch_size": 4, "in_channels": 3, "dim": 16} | options))
