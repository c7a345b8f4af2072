"""vit_tutorial.analysis.dense: patch tokens as maps, heads, the score, principal maps."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import jaccard_score
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.analysis import dense
from vit_tutorial.variants.modern import ModernConfig, ModernViT

SIZES = {"image_size": (8, 12), "patch_size": 4, "num_classes": 3, "dim": 8, "depth": 2, "num_heads": 2, "mlp_dim": 16}


def models():
    torch.manual_seed(0)
    return [
        vt.ViT(vt.ViTConfig(**SIZES)).eval(),
        vt.ViT(vt.ViTConfig(**SIZES, pool="mean")).eval(),
        ModernViT(ModernConfig(**SIZES, registers=3)).eval(),
    ]


@pytest.mark.parametrize("model", models(), ids=["class token", "mean", "registers"])
def test_tokens_are_the_models_own_and_only_patches_are_laid_out(model):
    images = torch.rand(2, 3, 8, 12)
    tokens = dense.layer_tokens(model, images)
    assert len(tokens) == 4
    assert not any(z.requires_grad for z in tokens)
    assert torch.allclose(tokens[-1], model.features(images), atol=1e-6)
    prefix = model.config.prefix_tokens
    grid = dense.token_grid(tokens[1], (2, 3), prefix_tokens=prefix)
    assert grid.shape == (2, 8, 2, 3)
    assert torch.equal(grid[1, :, 1, 2], tokens[1][1, prefix + 5])  # the last patch: row 1, column 2


def test_tokens_that_do_not_fit_say_what_would():
    with pytest.raises(ValueError, match=r"\(2, 3\) with prefix_tokens=0 needs tokens \(B, 6, D\), got \(2, 7, 5\)"):
        dense.token_grid(torch.zeros(2, 7, 5), (2, 3), prefix_tokens=0)


def test_fractions_of_the_classes_in_each_patch():
    targets = torch.zeros(2, 4, 6, dtype=torch.long)
    targets[0, :2, :2] = 2
    targets[1, 3, 5] = 1
    fractions = dense.class_fractions(targets, 3, (2, 3))
    assert fractions.shape == (2, 3, 2, 3)
    assert torch.allclose(fractions.sum(dim=1), torch.ones(2, 2, 3))
    assert fractions[0, 2, 0, 0] == 1
    assert fractions[1, 1, 1, 2] == 0.25
    with pytest.raises(ValueError, match=r"multiple of the grid \(3, 3\), got \(2, 4, 6\)"):
        dense.class_fractions(targets, 3, (3, 3))


def test_head_learns_where_a_linear_head_can():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 3, (20, 2, 3), generator=generator)
    features = 5 + 3 * F.one_hot(targets, 3).movedim(-1, 1) + 0.1 * torch.randn(20, 3, 2, 3, generator=generator)
    pixels = targets.repeat_interleave(2, 1).repeat_interleave(2, 2)  # (20, 4, 6)
    head = dense.fit_head(features, pixels, 3, steps=100)
    assert torch.equal(head(features).argmax(dim=1), targets)
    again = dense.fit_head(features, pixels, 3, steps=100)
    assert torch.equal(head.linear.weight, again.linear.weight)
    assert dense.fit_head(features.to("meta"), pixels.to("meta"), 3, steps=1).linear.weight.is_meta  # features' device


def test_a_hidden_layer_learns_what_no_line_separates():
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (40, 2, 2, 3), generator=generator)
    targets = signs[:, 0] ^ signs[:, 1]  # different signs
    features = (2 * signs - 1).float() + 0.1 * torch.randn(40, 2, 2, 3, generator=generator)
    pixels = targets.repeat_interleave(2, 1).repeat_interleave(2, 2)  # (40, 4, 6)
    rights = {}
    for hidden in (0, 16):
        head = dense.fit_head(features, pixels, 2, hidden=hidden, background_weight=1.0, steps=200, rate=0.02)
        rights[hidden] = (head(features).argmax(dim=1) == targets).float().mean().item()
    assert rights[16] == 1 > 0.8 > rights[0]


def test_iou_agrees_with_sklearn():
    generator = torch.Generator().manual_seed(0)
    targets, predicted = torch.randint(0, 4, (2, 3, 8, 12), generator=generator)
    counts = dense.confusion(predicted, targets, 4)
    expected = jaccard_score(targets.flatten(), predicted.flatten(), average=None)
    assert np.allclose(dense.iou(counts), expected)
    assert dense.mean_iou(counts) == pytest.approx(expected.mean())
    where = jaccard_score((targets > 0).flatten(), (predicted > 0).flatten())
    assert dense.foreground_iou(counts) == pytest.approx(where)


def test_iou_by_hand_and_classes_that_are_not_there():
    targets = torch.tensor([[[0, 0, 1, 1]]])
    predicted = torch.tensor([[[0, 1, 1, 1]]])
    counts = dense.confusion(predicted, targets, 3)
    assert counts.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert dense.iou(counts)[:2].tolist() == pytest.approx([1 / 2, 2 / 3])
    assert dense.iou(counts)[2].isnan()
    assert dense.mean_iou(counts) == pytest.approx(7 / 12)
    with pytest.raises(ValueError, match="upsample the logits"):
        dense.confusion(predicted[:, :, ::2], targets, 3)


@pytest.mark.parametrize("other", [2, 255, -1])
def test_a_class_that_the_head_does_not_have(other):
    mask, known = torch.tensor([[[0, other]]]), torch.tensor([[[0, 1]]])
    for predicted, targets, name in [(mask, known, "predicted"), (known, mask, "targets")]:
        with pytest.raises(ValueError, match=rf"{name} hold \[{other}\], outside the classes 0 to 1"):
            dense.confusion(predicted, targets, 2)


def test_principal_maps_agree_with_sklearn():
    features = torch.randn(3, 6, 4, 5, generator=torch.Generator().manual_seed(0))
    patches = features.movedim(1, -1).flatten(0, 2)
    pca = PCA(3, whiten=True).fit(patches)
    expected = torch.from_numpy(pca.transform(patches)).mul(2).view(3, 4, 5, 3)
    middle = expected[:, 1:3, 1:4]  # columns 1 to 3 of 0 to 4
    expected = (expected * middle.mean(dim=(0, 1, 2)).sign()).sigmoid().flatten(0, 2)
    maps = dense.principal_maps(features)
    assert maps.shape == (3, 3, 4, 5)
    assert torch.allclose(maps.movedim(1, -1).flatten(0, 2), expected.float(), atol=1e-4)
