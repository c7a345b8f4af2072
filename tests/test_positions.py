"""Lesson 11: five ways to say where patches lie."""

import pytest
import torch
from timm.layers.pos_embed_rel import RelPosBias, gen_relative_position_index

import vit_tutorial as vt
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.variants import positions
from vit_tutorial.variants.positions import (
    GridPosition,
    PositionConfig,
    PositionViT,
    RelativeBias,
    relative_position_index,
)

CONFIG = vt.ViTConfig(
    image_size=(8, 12), patch_size=4, in_channels=1, num_classes=3, dim=16, depth=3, num_heads=2, mlp_dim=24
)
WAYS = [
    ("none", "once"),
    *[(kind, place) for kind in ("1d", "2d", "sincos") for place in ("once", "every layer", "every layer, shared")],
    ("relative", "every layer"),
    ("relative", "every layer, shared"),
]


def model_of(config, kind, place="once"):
    return PositionViT(PositionConfig(**vars(config), kind=kind, place=place))


def filled(model):
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def plain_of(block):
    """An encoder block with the same weights that adds nothing."""
    plain = EncoderBlock(16, 2, 24).double().eval()
    plain.load_state_dict({name: tensor for name, tensor in block.state_dict().items() if "grid_position" not in name})
    return plain


def test_once_in_one_dimension_is_the_plain_model():
    ours, plain = filled(model_of(CONFIG, "1d")), vt.ViT(CONFIG).double().eval()
    state = ours.state_dict()
    place = torch.cat([state.pop("embed.grid_position.prefix"), state.pop("embed.grid_position.place")], dim=1)
    plain.load_state_dict(state | {"embed.position": place})
    images = torch.randn(2, 1, 8, 12, dtype=torch.float64)
    assert torch.allclose(ours(images), plain(images), rtol=0, atol=1e-12)
    assert torch.allclose(ours.attention_maps(images)[2], plain.attention_maps(images)[2], rtol=0, atol=1e-12)


def test_sines_added_once_are_the_plain_model_s():
    ours = filled(model_of(CONFIG, "sincos"))
    plain = vt.ViT(vt.ViTConfig(**{**vars(CONFIG), "position": "sincos"})).double().eval()
    state = {name: tensor for name, tensor in ours.state_dict().items() if not name.startswith("embed.grid_position.")}
    told = plain.load_state_dict(state, strict=False)
    assert set(told.missing_keys) <= {"embed.position"}
    assert not told.unexpected_keys
    images = torch.randn(2, 1, 8, 12, dtype=torch.float64)
    assert torch.allclose(ours(images), plain(images), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["1d", "2d", "sincos"])
def test_added_in_every_layer_is_added_in_front_of_each_block(kind):
    model = filled(model_of(CONFIG, kind, "every layer"))
    images = torch.randn(2, 1, 8, 12, dtype=torch.float64)
    z = model.embed(images)
    for block in model.blocks:
        z = plain_of(block)(z + block.grid_position())
    assert torch.allclose(model.features(images), model.norm(z), rtol=0, atol=1e-12)
    shared = model_of(CONFIG, kind, "every layer, shared")
    assert len({id(block.grid_position) for block in shared.blocks}) == 1
    assert len({id(block.grid_position) for block in model.blocks}) == 3


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_settings_of_the_config_reach_every_layer(kind, place):
    settings = {"qkv_bias": False, "dropout": 0.1, "attention_dropout": 0.2, "pool": "mean"}
    model = model_of(vt.ViTConfig(**{**vars(CONFIG), **settings}), kind, place)
    for block in model.blocks:
        attention = block.attention
        assert attention.qkv.bias is None
        assert (attention.attention_dropout, attention.dropout.p) == (0.2, 0.1)
    assert model(torch.zeros(2, 1, 8, 12)).shape == (2, 3)


def test_a_relative_bias_sees_offsets_alone_and_begins_at_zero():
    bias = RelativeBias((3, 3), 2)
    assert bias().shape == (2, 10, 10)
    assert not bias().any()
    torch.nn.init.normal_(bias.table)
    b = bias()
    assert torch.equal(b[:, 1, 2], b[:, 5, 6]), "one to the right"
    assert not torch.equal(b[:, 1, 2], b[:, 2, 1])
    assert torch.equal(b[:, 0, 1:], b[:, 0, 1:2].expand(-1, 9))
    assert bias.maps().shape == (2, 5, 5)
    assert torch.equal(bias.maps()[:, 2, 3], b[:, 1, 2])


@pytest.mark.parametrize("grid", [(2, 3), (3, 2), (4, 4)])
def test_the_relative_bias_is_beits(grid):
    """It counts the way from the other end in timm, and keeps the class token's three numbers in the same order."""
    assert torch.equal(relative_position_index(grid), gen_relative_position_index(grid).T)
    theirs, ours = RelPosBias(grid, num_heads=2, prefix_tokens=1), RelativeBias(grid, 2)
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    table = theirs.relative_position_bias_table.detach().T  # (h, ways + 3)
    with torch.no_grad():
        ours.table.copy_(torch.cat([table[:, :-3].flip(1), table[:, -3:]], dim=1))
    assert torch.equal(ours(), theirs.get_bias()[0])


@pytest.mark.parametrize(("kind", "numbers"), [("1d", 7 * 16), ("2d", 16 + (2 + 3) * 8), ("sincos", 0)])
def test_so_many_numbers_are_learned(kind, numbers):
    position = GridPosition((2, 3), 16, kind)
    assert sum(parameter.numel() for parameter in position.parameters()) == numbers
    assert position().shape == (1, 7, 16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("3d", "once"), ("'3d'", "choose one of none, 1d, 2d, sincos, relative")),
        (("1d", "twice"), ("'twice'", "every layer")),
        (("none", "every layer"), ("'none'", "'once'")),
        (("relative", "once"), ("relative", "every layer")),
    ],
)
def test_what_makes_no_sense_is_refused(refuses, arguments, words):
    with refuses(ValueError, *words):
        model_of(CONFIG, *arguments)


def test_other_refusals(refuses):
    with refuses(ValueError, "15", "even"):
        GridPosition((2, 2), 15, "2d")
    with refuses(ValueError, "'relative'", "sincos"):
        GridPosition((2, 2), 16, "relative")
    model = model_of(CONFIG, "relative", "every layer")
    with refuses(ValueError, "layer 7", "0 to 2"):
        model.attention_maps(torch.zeros(1, 1, 8, 12), layers=[7])


@pytest.mark.parametrize("place", ["every layer", "every layer, shared"])
def test_each_layer_learns_its_own_or_all_learn_one(place):
    model = model_of(CONFIG, "relative", place)
    torch.nn.init.normal_(model.head.weight)
    model(torch.randn(2, 1, 8, 12)).square().sum().backward()
    tables = [p for name, p in model.named_parameters() if name.endswith("table")]
    assert len(tables) == (3 if place == "every layer" else 1)
    assert all(table.grad is not None and table.grad.any() for table in tables)
    assert positions.BiasedAttention is type(model.blocks[0].attention)
