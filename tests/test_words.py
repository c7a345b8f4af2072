"""The words: a vocabulary, the captions' tower, both losses as in transformers and open_clip, and the floor."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import words

CAPTIONS = ["a white ring", "a ring in blue", "the star is white"]


def make(dim=8):
    torch.manual_seed(0)
    vocabulary = words.Vocabulary(CAPTIONS)
    captions = words.CaptionTower(len(vocabulary), vocabulary.length, dim=12, num_heads=3, mlp_dim=20)
    config = vt.ViTConfig(image_size=8, patch_size=4, num_classes=0, dim=16, depth=1, num_heads=2, mlp_dim=16)
    return words.TwoTowers(vt.ViT(config), captions, image_dim=16, caption_dim=12, dim=dim), vocabulary


def test_words_are_numbered_from_1_and_short_captions_filled_up():
    vocabulary = words.Vocabulary(CAPTIONS)
    assert vocabulary.words == ["a", "blue", "in", "is", "ring", "star", "the", "white"]
    assert (len(vocabulary), vocabulary.length) == (9, 4)
    assert vocabulary(CAPTIONS[:2]).tolist() == [[1, 8, 5, 0], [1, 5, 3, 2]]
    assert vocabulary(["ring"]).dtype == torch.int64


def test_a_vocabulary_refuses_what_it_does_not_know(refuses):
    vocabulary = words.Vocabulary(CAPTIONS)
    with refuses(ValueError, "'red'", "white"):
        vocabulary(["a red ring"])
    with refuses(ValueError, "5 words", "has 4"):
        vocabulary(["a ring is a ring"])
    with refuses(TypeError, "a list of texts", "'abc'"):
        words.Vocabulary("abc")
    with refuses(TypeError, "a list of texts", "'ring'"):
        vocabulary("ring")
    with refuses(ValueError, "at least one word"):
        words.Vocabulary(["", " "])


def test_the_tower_of_the_captions_is_a_vit_with_words_for_patches():
    model, vocabulary = make()
    tower, numbers = model.captions, vocabulary(CAPTIONS)
    by_hand = []
    for row in numbers:
        tokens = torch.cat([tower.cls_token[0], tower.words.weight[row]]) + tower.position[0]  # (1 + W, D)
        by_hand.append(tower.norm(tower.block(tokens[None]))[0, 0])
    assert torch.allclose(tower(numbers), torch.stack(by_hand), atol=1e-6)
    assert tower(numbers).shape == (3, 12)


def test_unit_vectors_and_every_picture_against_every_caption():
    model, vocabulary = make()
    images = torch.randn(5, 3, 8, 8)
    pictures, captions = model.embed_images(images), model.embed_captions(vocabulary(CAPTIONS))
    for vectors, shape in ((pictures, (5, 8)), (captions, (3, 8))):
        assert vectors.shape == shape
        assert torch.allclose(vectors.norm(dim=1), torch.ones(len(vectors)))
    logits = model(images, vocabulary(CAPTIONS))
    assert torch.allclose(logits, pictures @ captions.T / 0.07, atol=1e-4)


def test_the_scale_starts_at_1_in_0_07_and_ends_at_100():
    model, _ = make()
    assert model.scale().item() == pytest.approx(1 / 0.07)
    nn.init.constant_(model.log_scale, 9.0)
    assert model.scale().item() == 100.0


TOKENS = torch.tensor([[18, 3, 19, 0, 0], [18, 4, 5, 19, 0], [18, 7, 7, 7, 19]])
SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = {**SMALL, "vocab_size": 20, "max_position_embeddings": 5}
VISION = {**SMALL, "image_size": 8, "patch_size": 4}


def answers_of(model):
    torch.manual_seed(0)
    with torch.no_grad():
        images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
        return model.double().eval()(input_ids=TOKENS, pixel_values=images, return_loss=True)


def cosines_of(theirs):
    return F.normalize(theirs.image_embeds, dim=-1) @ F.normalize(theirs.text_embeds, dim=-1).T  # (B, B)


def test_the_loss_is_that_of_transformers_clip():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    text = {**TEXT, "eos_token_id": 19, "bos_token_id": 18, "pad_token_id": 0}
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=6))
    theirs = answers_of(model)
    ours = words.contrastive_loss(model.logit_scale.exp() * cosines_of(theirs))
    assert ours.item() == pytest.approx(theirs.loss.item(), abs=1e-12)


def test_the_sigmoid_loss_is_that_of_transformers_siglip():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=TEXT, vision_config=VISION))
    nn.init.constant_(model.logit_bias, -1.3)
    theirs = answers_of(model)
    ours = words.sigmoid_loss(model.logit_scale.exp() * cosines_of(theirs), model.logit_bias)
    assert ours.item() == pytest.approx(theirs.loss.item(), abs=1e-12)


@pytest.mark.parametrize("loss", [words.contrastive_loss, lambda logits: words.sigmoid_loss(logits, torch.zeros(()))])
def test_a_loss_needs_as_many_pictures_as_captions(refuses, loss):
    with refuses(ValueError, "(B, B)", "(2, 3)"):
        loss(torch.zeros(2, 3))


def test_the_floor_of_equal_captions_is_reached_and_not_passed():
    meanings = torch.tensor([3, 1, 3, 3, 1, 2])
    floor = words.loss_floor(meanings)
    assert floor == pytest.approx((3 * math.log(3) + 2 * math.log(2)) / 6)
    same = (meanings[:, None] == meanings).double()
    assert words.contrastive_loss(40 * same).item() == pytest.approx(floor, abs=1e-9)
    # Captions that mean the same have one vector: however the pictures differ, it doesn't get lower.
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        columns = 5 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
        assert words.contrastive_loss(columns[:, meanings]).item() >= floor
    assert words.loss_floor(torch.arange(5)) == 0


def test_prompts_are_averaged_as_unit_vectors():
    vectors = F.normalize(torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    found = words.average_prompts(vectors)
    assert found.shape == (5, 8)
    assert torch.allclose(found, F.normalize(vectors.sum(dim=0), dim=-1))
    assert torch.allclose(found.norm(dim=1), torch.ones(5))
