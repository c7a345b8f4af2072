"""Lesson 08: every explanation in closed form, against a loop from its paper, and the faults of well-known code."""

import math
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import get_args

import pytest
import torch
from peers import randomise
from torch.testing import assert_close

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.analysis import explain
from vit_tutorial.variants.hybrid import ConvStem, HybridConfig, HybridViT
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, ModernViT, Rotary
from vit_tutorial.variants.positions import Kind, Place, PositionConfig, PositionViT

same = partial(assert_close, rtol=0, atol=1e-12)
double = partial(torch.randn, dtype=torch.float64)
GRID = (2, 3)
N, T = 6, 7
eye, ones = torch.eye(T, dtype=torch.float64), torch.ones(T, T, dtype=torch.float64)


def some_maps(L=3, B=2, h=2, tokens=T):
    return double(L, B, h, tokens, tokens).mul(2).softmax(dim=-1)


# ------------------------------------------------------------------------------------------------- class attention


@pytest.mark.parametrize("prefix", [1, 2])
def test_class_attention_is_the_first_row_without_the_prefix(prefix):
    maps = some_maps(tokens=N + prefix)
    ours = explain.class_attention(maps, GRID, prefix_tokens=prefix)
    assert ours.shape == (3, 2, 2, *GRID)
    for row, column in product(range(2), range(3)):
        assert torch.equal(ours[..., row, column], maps[..., 0, prefix + 3 * row + column])


def test_without_a_class_token_it_is_the_mean_row():
    picture = torch.zeros(N, N, dtype=torch.float64)
    picture[:, 4] = 1  # every patch looks at the fifth
    assert explain.class_attention(picture, GRID, prefix_tokens=0).tolist() == [[0, 0, 0], [0, 1, 0]]
    same(explain.class_attention(torch.eye(N), GRID, prefix_tokens=0), torch.full(GRID, 1 / N))


# --------------------------------------------------------------------------------------------------------- rollout


def rollout_of_one(layers):
    """Section 3 of the paper for a single image: lists of T x T numbers, no tensor that could broadcast."""
    result = None
    for w in layers:
        a = [[0.5 * value + 0.5 * (i == j) for j, value in enumerate(row)] for i, row in enumerate(w)]
        a = [[value / sum(row) for value in row] for row in a]
        size = range(len(a))
        result = a if result is None else [[sum(a[i][k] * result[k][j] for k in size) for j in size] for i in size]
    return torch.tensor(result, dtype=torch.float64)


FUSE = {"mean": lambda w: w.mean(0), "max": lambda w: w.max(0).values, "min": lambda w: w.min(0).values}


def rollout_by_the_paper(maps, head_fusion="mean"):
    images = []
    for b in range(maps.shape[1]):
        if head_fusion is None:
            one = [rollout_of_one(maps[:, b, head].tolist()) for head in range(maps.shape[2])]
            images.append(torch.stack(one))
        else:
            images.append(rollout_of_one([FUSE[head_fusion](w[b]).tolist() for w in maps]))
    return torch.stack(images)


@pytest.mark.parametrize("head_fusion", ["mean", "max", "min", None])
def test_rollout_equals_the_paper_s_loop_for_every_item(head_fusion):
    maps = some_maps(B=3)
    ours = explain.rollout(maps, head_fusion=head_fusion)
    same(ours, rollout_by_the_paper(maps, head_fusion))
    same(ours.sum(dim=-1), torch.ones(ours.shape[:-1], dtype=torch.float64))


# -------------------------------------------------------------------------------------------------------- distance


def test_distance_of_identity_and_of_a_shift():
    (rows, columns), patch = grid, _ = (5, 6), (4, 10)
    assert (explain.attention_distance(torch.eye(31), grid, patch) == 0).all()
    weights, inside, (dy, dx) = torch.zeros(30, 30).double(), 0, (1, -2)
    for row, column in product(range(rows), range(columns)):
        fits = 0 <= row + dy < rows and 0 <= column + dx < columns  # at the border a patch attends to itself
        inside += fits
        weights[row * columns + column, (row + dy * fits) * columns + column + dx * fits] = 1
    ours = explain.attention_distance(weights, grid, patch, prefix_tokens=0)
    assert inside == 16
    assert ours.item() == pytest.approx(inside / 30 * math.hypot(4, 20))


def test_distance_leaves_the_class_token_out():
    maps = some_maps()
    more = maps.clone()
    more[..., 0, :] = double(T).softmax(0)  # what the class token attends to
    more[..., 1:, 1:] *= 1e-9  # how little of the patches' attention it leaves
    same(explain.attention_distance(more, GRID, 8), explain.attention_distance(maps, GRID, 8))
    alone = maps[..., 1:, 1:] / maps[..., 1:, 1:].sum(-1, keepdim=True)
    expected = explain.attention_distance(alone, GRID, 8, prefix_tokens=0)
    same(explain.attention_distance(maps, GRID, 8), expected)
    assert expected.unique().numel() == 3 * 2 * 2  # one for each layer, image and head


# ------------------------------------------------------------------------------------------------------- relevance


def relevance_by_the_paper(weights, gradients):
    """Eq. 5 and 6, image by image and head by head."""
    images = []
    for b in range(len(weights[0])):
        R = torch.eye(weights[0].shape[-1], dtype=torch.float64)
        for w, g in zip(weights, gradients, strict=True):
            heads = [torch.where(a * d > 0, a * d, 0.0) for a, d in zip(w[b], g[b], strict=True)]
            R = R + sum(heads) / len(heads) @ R
        images.append(R)
    return torch.stack(images)


SHAPE = {
    **{"image_size": (8, 12), "patch_size": 4, "in_channels": 2, "num_classes": 5},  # 2 rows, 3 columns
    **{"dim": 12, "depth": 3, "num_heads": 3, "mlp_dim": 16},
}
TINY = ViTConfig(**SHAPE)


def tiny(**changes):
    return randomise(ViT(ViTConfig(**(vars(TINY) | changes)))).double().eval()


def images_for(model, B=3):
    return double(B, model.config.in_channels, 8, 12)


VARIANTS = {
    "plain": ViT(TINY),
    "mean": ViT(replace(TINY, pool="mean")),
    "hybrid": HybridViT(HybridConfig(**vars(TINY), stem=ConvStem(((6, 3, 2), (8, 3, 2))))),
    **{
        f"positions: {kind}, {place}": PositionViT(PositionConfig(**vars(TINY), kind=kind, place=place))
        for kind, place in product(get_args(Kind), get_args(Place))
        if (kind, place) != ("relative", "once") and (kind != "none" or place == "once")
    },
    "relative, mean": PositionViT(
        PositionConfig(**vars(replace(TINY, pool="mean")), kind="relative", place="every layer")
    ),
    **{
        f"modern: {name}": ModernViT(ModernConfig(**SHAPE | parts))
        for name, parts in {
            "nothing new": {},
            "distilled": {"class_tokens": 2},
            "rotary": {"rotary": Rotary(), "position": "none"},
            "rotary by index, registers": {"rotary": Rotary("index", 10_000.0, (3, 4), 1.0), "registers": 2},
            "position bias": {"position": "none", "position_bias": True},
            "rotary and position bias": {"position": "none", "position_bias": True, "rotary": Rotary()},
            "norms of q and k": {"qk_norm": True},
            "norm before the projection": {"attention_norm": True, "norm": "rms"},
            "registers": {"registers": 3, "pool": "cls+mean"},
            "gated": {"gated": True, "mlp_norm": True, "k_bias": False},
            "attention pooling": {"pool": "attention", "class_tokens": 0, "pool_heads": 2},
            "attention pooling of all": {"pool": "attention", "pool_prefix": True, "registers": 1},
            **ARCHITECTURES,
        }.items()
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_s_maps_and_relevance_equal_autograd_on_attention_written_out(monkeypatch, variant):
    """What takes the kernel's place sees what the forward pass gives it: q and k as they are, and the bias."""
    model = randomise(VARIANTS[variant]).double().eval()
    images, classes = images_for(model), torch.tensor([4, 0, 2])
    maps, ours = model.attention_maps(images), explain.relevance(model, images, classes)
    y, weights = model(images), []

    def written_out(q, k, v, attn_mask=None, dropout_p=0.0):
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[-1])
        weights.append((scores if attn_mask is None else scores + attn_mask).softmax(dim=-1))
        return torch.einsum("bhts,bhsd->bhtd", weights[-1], v)

    monkeypatch.setattr(import_module("vit_tutorial.attention"), "scaled_dot_product_attention", written_out)
    by_steps = model(images)
    same(by_steps, y)
    gradients = torch.autograd.grad(by_steps.gather(1, classes[:, None]).sum(), weights)
    same(torch.stack(list(maps.values())), torch.stack(weights))

    R = relevance_by_the_paper([w.detach() for w in weights], gradients)
    prefix = model.config.prefix_tokens
    if model.config.pool in ("mean", "attention"):
        expected = (R - torch.eye(R.shape[-1]))[:, prefix:, prefix:].mean(dim=1)
    else:
        expected = R[:, 0, prefix:]
    same(ours, expected.reshape(3, *GRID))
    assert ours.max() > 1e-3


def test_the_model_stays_as_it_was():
    model = tiny()
    before = {name: (p.clone(), p.requires_grad) for name, p in model.named_parameters()}
    explain.relevance(model, images_for(model))
    with pytest.raises(ValueError, match="built for images"):  # from within the model
        explain.relevance(model, double(1, 2, 8, 8))
    with pytest.raises(ZeroDivisionError), explain._recorded_weights(model):
        _ = 1 / 0
    assert not any(module._forward_hooks or "forward" in vars(module) for module in model.modules())
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name][0])
        assert p.requires_grad is before[name][1]
        assert p.grad is None


def test_classes_by_default_are_the_model_s_own():
    model = tiny()
    images = images_for(model)
    model.head.bias.data -= model(images).mean(dim=0)  # so that no class is the most likely for every image
    found = model(images).argmax(dim=1)
    assert found.unique().numel() > 1
    ours = explain.relevance(model, images)
    assert torch.equal(ours, explain.relevance(model, images, found))
    assert torch.equal(ours, explain.relevance(model, images, found.tolist()))
    assert not torch.equal(ours, explain.relevance(model, images, (found + 1) % 5))
    assert torch.equal(explain.relevance(model, images, 3), explain.relevance(model, images, [3, 3, 3]))


def test_relevance_refuses(refuses):
    model = tiny()
    images = images_for(model)
    with refuses(TypeError, "ViT", "Linear", "unwrap"):
        explain.relevance(torch.nn.Linear(2, 2), images)
    with refuses(ValueError, "training mode", "model.eval()"):
        explain.relevance(tiny().train(), images)
    with refuses(ValueError, "no head", "num_classes"):
        explain.relevance(tiny(num_classes=0), images)
    for classes in (5, -1, [0, 1], [0, 1, 5], [0.0, 1.0, 2.0], [[0, 1, 2]]):
        with refuses(ValueError, "0 to 4", "3 of them", str(classes)):
            explain.relevance(model, images, classes)
    w = [double(1, 2, 3, 3)]
    with refuses(ValueError, "1 layers", "got 2"):
        explain.relevance_matrix(w, w * 2)
    for bad in (double(1, 2, 3, 4), double(2, 3, 3), double(1, 1, 3, 3)):
        with refuses(ValueError, "same shape (B, h, T, T)", str(tuple(bad.shape))):
            explain.relevance_matrix(w, [bad])


# ---------------------------------------------------------------------------------------------- what weights hold


def test_similarity_of_known_positions():
    position = torch.tensor([[[9.0, 9.0], [2.0, 0.0], [-3.0, 0.0], [0.0, 0.5], [1.0, math.sqrt(3)]]]).double()
    half, root = 0.5, math.sqrt(3) / 2  # 60 degrees from the first, 30 from the third
    expected = [[1, -1, 0, half], [-1, 1, 0, -half], [0, 0, 1, root], [half, -half, root, 1]]
    assert_close(explain.position_similarity(position), torch.tensor(expected).double(), rtol=0, atol=1e-7)
    assert explain.position_similarity(position, prefix_tokens=0).shape == (5, 5)


# ---------------------------------------------------------------------------------------------------------- scores


def masks_of(*pictures):
    return torch.tensor([[[mark == "#" for mark in line] for line in picture.split()] for picture in pictures])


MASKS = masks_of("..##.. .###.. ...... #.....", "...... ...... .....# ....##")  # (2, 4, 6): patches of 2 x 2 on GRID


def test_fraction_of_each_patch_by_hand():
    expected = [[[0.25, 1, 0], [0.25, 0, 0]], [[0, 0, 0], [0, 0, 0.75]]]
    assert explain.mask_fraction(MASKS, GRID).tolist() == expected
    assert torch.equal(explain.mask_fraction(MASKS, (4, 6)), MASKS.float())
    assert_close(explain.mask_fraction(MASKS, (1, 2)), torch.tensor([[[4 / 12, 2 / 12]], [[0, 3 / 12]]]))


def test_a_peak_is_inside_if_half_of_its_patch_is():
    masks = masks_of("##.. ....", "#... ....", "##.. #...", "#... .#..")
    maps = torch.tensor([[[0.9, 0.1]]]).expand(4, 1, 2)
    assert explain.peak_inside(maps, masks).tolist() == [1, 0, 1, 1]
    assert explain.peak_inside(maps.flip(2), masks).tolist() == [0, 0, 0, 0]


def test_a_tie_scores_as_if_one_were_drawn():
    maps = torch.tensor([[[0.0, 2, 1], [2, 2, 2]], [[0, 0, 0], [0, 0, 0]]])
    assert explain.peak_inside(maps, MASKS).tolist() == [0.25, pytest.approx(1 / 6)]  # the flat map: chance


def test_the_random_baseline_scores_chance():
    masks = masks_of("..##.. ..##.. ...... ......").expand(3000, 4, 6)
    maps = explain.random_map(3000, GRID)
    assert maps.shape == (3000, *GRID)
    assert explain.peak_inside(maps, masks).mean().item() == pytest.approx(1 / 6, abs=0.02)
    assert torch.equal(maps, explain.random_map(3000, GRID, seed=0))
    assert not torch.equal(maps, explain.random_map(3000, GRID, seed=1))


def test_the_centre_baseline_is_a_gaussian_at_the_centre():
    odd, even = explain.centre_map(2, (3, 5)), explain.centre_map(1, (2, 4))
    assert odd.shape == (2, 3, 5)
    for row, column in product(range(3), range(5)):
        y, x = (row - 1) / 3, (column - 2) / 5  # from the centre, in sides of the image; sigma is a quarter of one
        assert odd[1, row, column].item() == pytest.approx(math.exp(-(y**2 + x**2) / (2 * 0.25**2)))
    assert (even == even.max()).tolist() == [[[False, True, True, False]] * 2]
    assert explain.peak_inside(even, masks_of(".#.. ....")).tolist() == [0.25]
    odd[0] = 0  # images own their memory
    assert odd[1].max() == 1


def test_scores_refuse(refuses):
    maps = torch.rand(2, *GRID)
    with refuses(TypeError, "maps", "int64", "maps.float()"):
        explain.peak_inside(maps.long(), MASKS)
    with refuses(TypeError, "masks", "float32", "masks > 0"):
        explain.peak_inside(maps, MASKS.float())
    with refuses(ValueError, "agree in B", "(2, 2, 3)", "(1, 4, 6)"):
        explain.peak_inside(maps, MASKS[:1])
    with refuses(ValueError, "(B, rows, columns)", "(2, 6)"):
        explain.peak_inside(maps.flatten(1), MASKS)
    with refuses(ValueError, "multiple of the grid (2, 3)", "(2, 4, 4)"):
        explain.peak_inside(maps, MASKS[:, :, :4])
    with refuses(ValueError, "multiple of the grid (2, 3)", "(2, 3, 6)"):
        explain.peak_inside(maps, MASKS[:, :3])
    with refuses(ValueError, "(B, H, W)", "(2, 1, 4, 6)"):
        explain.peak_inside(maps, MASKS[:, None])
    with refuses(ValueError, "[1]", "empty"):
        explain.peak_inside(maps, masks_of("###### ######", "...... ......"))


# ---------------------------------------------------------------------------------------------------------- shared

ON_MAPS = {
    "class_attention": partial(explain.class_attention, grid=GRID),
    "rollout": explain.rollout,
    "rollout without fusion": partial(explain.rollout, head_fusion=None),
    "attention_distance": partial(explain.attention_distance, grid=GRID, patch_size=4),
    "relevance_matrix": lambda maps: explain.relevance_matrix(list(maps), list(maps)),
    "position_similarity": lambda maps: explain.position_similarity(maps[:1, 0, 0]),
}


@pytest.mark.parametrize("name", ON_MAPS)
def test_gradients_flow(name):
    maps = some_maps().requires_grad_()
    assert torch.autograd.gradcheck(ON_MAPS[name], (maps,), fast_mode=True)


@pytest.mark.parametrize("name", ["class_attention", "rollout", "attention_distance"])
def test_a_mapping_does_what_its_stack_does_and_both_are_looked_at(refuses, name):
    function, maps = ON_MAPS[name], some_maps()
    as_mapping = dict(enumerate(maps))
    assert torch.equal(function(as_mapping), function(maps))
    with refuses(TypeError, "model.attention_maps", "list"):
        function(list(maps))
    for bad in ({}, as_mapping | {1: maps[1, :, :, 1:, 1:]}):
        with refuses(ValueError, "shape", "(B, h, T, T)"):
            function(bad)
    for bad, shape in ((maps[..., 1:], "2, 2, 7, 6)"), (maps[..., 1:, :], "2, 2, 6, 7)")):
        with refuses(ValueError, shape):
            function(bad)


def test_maps_that_don_t_fit(refuses):
    maps = some_maps()
    for function in (ON_MAPS["class_attention"], ON_MAPS["attention_distance"]):
        with refuses(ValueError, "(3, 3)", "prefix_tokens=1", "(..., 10, 10)", "(3, 2, 2, 7, 7)", "config.grid"):
            function(maps, grid=(3, 3))
        with refuses(ValueError, "prefix_tokens=0", "(..., 6, 6)", "mean-pooled"):
            function(maps, prefix_tokens=0)
        with refuses(ValueError, "(7,)"):
            function(maps[0, 0, 0, 0])
    with refuses(ValueError, "patch_size", "0"):
        explain.attention_distance(maps, GRID, 0)
    for keys in ((1, 2), (0, 2), (-1, 0)):
        with refuses(ValueError, "every layer", str(list(keys)), "model.attention_maps"):
            explain.rollout(dict.fromkeys(keys, maps[0]))
    with refuses(ValueError, "same shape (B, h, T, T)", "(2, 7, 7)"):
        explain.rollout(maps[0])
    with refuses(ValueError, "'median'", "mean, max, min", "None"):
        explain.rollout(maps, head_fusion="median")
