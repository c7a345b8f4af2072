"""Lesson 13's module: what is hidden, what is asked for, and that the encoder learns and is a plain ViT."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import vit_tutorial as vt
from vit_tutorial.patches import patchify
from vit_tutorial.variants import selfsup
from vit_tutorial.variants.modern import ModernConfig, ModernViT

CONFIG = vt.ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=2, mlp_dim=48)
ROOT = Path(__file__).parents[1]


# ---- What is predicted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("colour", "number"), [((0.0, 0.0, 0.0), 0), ((1.0, 1.0, 1.0), 511), ((0.0, 0.0, 0.13), 1), ((0.99, 0.0, 0.0), 448)]
)
def test_a_colour_s_class_is_three_bits_a_channel(colour, number):
    assert selfsup.colour_classes(torch.tensor(colour)) == number


def test_the_mean_colours_are_those_of_the_patches():
    images = torch.rand(2, 3, 8, 12)
    expected = patchify(images, 4).unflatten(2, (3, 16)).mean(dim=3)
    torch.testing.assert_close(selfsup.mean_colours(images, 4), expected)


# ---- What is hidden ------------------------------------------------------------------------------------------------


@given(st.integers(2, 40), st.floats(0.05, 0.95))
def test_the_mask_has_as_many_patches_in_each_image(N, ratio):
    count = round(ratio * N)
    if 0 < count < N:
        assert (selfsup.random_mask(3, N, ratio).sum(dim=1) == count).all()


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.99, 1.0, -0.5])
def test_a_ratio_that_masks_none_or_all_is_refused(ratio, refuses):
    with refuses(ValueError, str(ratio)):
        selfsup.random_mask(2, 16, ratio)


def test_a_mask_that_hides_another_number_in_each_image_is_refused(refuses):
    tokens = torch.arange(8.0).view(2, 4, 1)
    hidden = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    for wrong in (hidden.bool(), hidden, hidden[:, :3].bool()):
        with refuses(ValueError, "(2, 4), bool", "as many True in each row", "random_mask"):
            selfsup.take_visible(tokens, wrong)


def test_of_the_chosen_eighty_percent_are_masked_ten_swapped_and_ten_kept():
    B, N, D = 400, 50, 4
    tokens, mask = torch.rand(B, N, D), torch.full((D,), -1.0)
    chosen = selfsup.random_mask(B, N, 0.5)
    corrupted = selfsup.corrupt(tokens, chosen, mask)
    assert torch.equal(corrupted[~chosen], tokens[~chosen])
    same = (corrupted == tokens).all(dim=2)[chosen].double().mean()
    masked = (corrupted == mask).all(dim=2)[chosen].double().mean()
    assert abs(masked - 0.8) < 0.02
    assert abs(same - 0.1) < 0.02
    swapped = chosen & (corrupted != tokens).any(dim=2) & (corrupted != mask).any(dim=2)
    for b, n in swapped.nonzero()[:50].tolist():
        assert (tokens[b] == corrupted[b, n]).all(dim=1).any()  # another patch of the same image


def test_what_is_kept_is_restore_where_it_was():
    tokens, hidden = torch.rand(3, 16, 5), selfsup.random_mask(3, 16, 0.75)
    visible = selfsup.take_visible(tokens, hidden)
    assert visible.shape == (3, 4, 5)
    back = selfsup.restore(visible, hidden, torch.full((5,), -1.0))
    assert torch.equal(back[~hidden], tokens[~hidden])
    assert (back[hidden] == -1).all()


# ---- The models ----------------------------------------------------------------------------------------------------


def test_with_nothing_corrupted_the_tokens_are_the_plain_model_s():
    model = selfsup.MaskedViT(CONFIG).eval()
    nn.init.normal_(model.encoder.embed.cls_token)
    images = torch.rand(2, 3, 16, 16)
    none = torch.zeros(2, 16, dtype=torch.bool)
    features = model.encoder.features((images - 0.5) / 0.5)[:, 1:]
    torch.testing.assert_close(model.predict_patches(images, none), model.predict(features))


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("position", ["learned", "sincos", "none"])
def test_the_pieces_of_eq_1_are_those_of_embeddings(pool, position):
    embed = vt.ViT(
        vt.ViTConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=1, pool=pool, position=position)
    ).embed
    images = torch.rand(2, 3, 8, 8)
    pieces = selfsup.add_positions(embed, embed.patches(images))
    assert torch.equal(torch.cat(pieces, dim=1), embed(images))


def test_the_pieces_have_the_dropout_of_embeddings():
    embed = vt.ViT(vt.ViTConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=1, dropout=0.5)).embed
    front, patches = selfsup.add_positions(embed, torch.ones(50, 4, 8))
    assert 0.4 < (patches == 0).float().mean() < 0.6
    assert 0.4 < (front == 0).float().mean() < 0.6


def test_the_pieces_are_those_of_plain_embeddings(refuses):
    embed = ModernViT(ModernConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=1, registers=2)).embed
    with refuses(TypeError, "plain Embeddings", "ModernEmbeddings"):
        selfsup.add_positions(embed, torch.zeros(1, 4, 8))


def test_the_autoencoder_s_encoder_sees_nothing_of_what_is_hidden():
    model = selfsup.MaskedAutoencoder(CONFIG, decoder_dim=32).eval()
    images, hidden = torch.rand(2, 3, 16, 16), selfsup.random_mask(2, 16, 0.75)
    patches = patchify(images, 4)
    other = torch.where(hidden[..., None], torch.rand_like(patches), patches)
    others = vt.unpatchify(other, 4, (16, 16))
    assert not torch.equal(images, others)
    assert torch.equal(model.predict_patches(images, hidden), model.predict_patches(others, hidden))
    with torch.no_grad():
        other[~hidden] += 0.1
    assert not torch.equal(
        model.predict_patches(images, hidden), model.predict_patches(vt.unpatchify(other, 4, (16, 16)), hidden)
    )


def test_normalised_patches_have_mean_0_and_standard_deviation_1():
    patches = selfsup.normalised_patches(3 + 5 * torch.rand(2, 4, 48))
    torch.testing.assert_close(patches.mean(dim=2), torch.zeros(2, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(patches.std(dim=2), torch.ones(2, 4), atol=1e-4, rtol=0)


def test_only_the_chosen_patches_count_in_the_loss():
    model, images = selfsup.MaskedViT(CONFIG).eval(), torch.rand(3, 3, 16, 16)
    torch.manual_seed(1)
    loss = model(images)
    torch.manual_seed(1)
    chosen = selfsup.random_mask(3, 16, 0.5)
    logits = model.predict_patches(images, chosen)
    classes = selfsup.colour_classes(selfsup.mean_colours(images, 4))
    losses = [-logits[b, n].log_softmax(dim=-1)[classes[b, n]] for b, n in chosen.nonzero().tolist()]
    torch.testing.assert_close(loss, torch.stack(losses).mean())


@pytest.mark.parametrize("normalise", [True, False])
def test_only_the_hidden_patches_count_in_the_autoencoder_s_loss(normalise):
    model = selfsup.MaskedAutoencoder(CONFIG, decoder_dim=32, normalise_patches=normalise).eval()
    images = torch.rand(3, 3, 16, 16)
    torch.manual_seed(1)
    loss = model(images)
    torch.manual_seed(1)
    hidden = selfsup.random_mask(3, 16, 0.75)
    predicted, wanted = model.predict_patches(images, hidden), patchify(images, 4)
    if normalise:
        wanted = torch.nn.functional.layer_norm(wanted, (48,)) * (47 / 48) ** 0.5  # n - 1 in the variance
    errors = [((predicted[b, n] - wanted[b, n]) ** 2).mean() for b, n in hidden.nonzero().tolist()]
    assert len(errors) == 3 * 12
    torch.testing.assert_close(loss, torch.stack(errors).mean(), rtol=1e-3, atol=1e-5)


MODELS = [
    pytest.param(lambda: selfsup.MaskedViT(CONFIG), id="masked ViT"),
    pytest.param(lambda: selfsup.MaskedAutoencoder(CONFIG, decoder_dim=32), id="mae"),
    pytest.param(lambda: selfsup.MaskedAutoencoder(CONFIG, decoder_dim=32, normalise_patches=False), id="mae, plain"),
]


@pytest.mark.parametrize("build", MODELS)
def test_it_learns_and_every_parameter_that_matters_gets_a_gradient(build):
    model, images = build(), torch.rand(8, 3, 1, 1).expand(8, 3, 16, 16).contiguous()  # one colour an image
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = model(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not getattr(model, "normalise_patches", False):  # a patch of one colour has nothing left to be asked for
        assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == set()


@pytest.mark.parametrize("build", MODELS[1:])
def test_what_was_not_hidden_stays_as_it_is(build):
    model, images = build().eval(), torch.rand(2, 3, 16, 16)
    hidden = selfsup.random_mask(2, 16, 0.5)
    shown = selfsup.reconstruct(model, images, hidden)
    assert shown.shape == images.shape
    assert shown.min() >= 0
    assert shown.max() <= 1
    assert torch.equal(patchify(shown, 4)[~hidden], patchify(images, 4)[~hidden])
    assert not torch.equal(patchify(shown, 4)[hidden], patchify(images, 4)[hidden])


def test_the_encoder_is_a_plain_model_that_can_be_fine_tuned():
    for model in (selfsup.MaskedViT(CONFIG), selfsup.MaskedAutoencoder(CONFIG, decoder_dim=32)):
        fresh = vt.ViT(CONFIG)
        missing, unexpected = fresh.load_state_dict(model.encoder.state_dict(), strict=False)
        assert missing == ["head.weight", "head.bias"]
        assert not unexpected


def test_the_painter_paints_photographs_that_it_was_not_trained_on():
    photographs = vt.data.cifar10_pictures().batch()[0][::10]  # (20, 3, 32, 32)
    painter = selfsup.painter()
    torch.manual_seed(0)
    with torch.no_grad():
        error = painter(photographs).item()
    assert not painter.training
    assert error < 0.025  # the mean colour has some 0.047, smooth inpainting some 0.023


@pytest.mark.parametrize("method", [selfsup.MaskedViT, selfsup.MaskedAutoencoder])
def test_images_may_have_one_channel(method):
    model = method(vt.ViTConfig(image_size=16, patch_size=4, in_channels=1, dim=32, depth=1, num_heads=2, mlp_dim=48))
    assert model(torch.rand(2, 1, 16, 16)).isfinite()
