"""Drawings: every number on them is the config's."""

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import vit_tutorial as vt
from vit_tutorial import plots
from vit_tutorial.plots import drawings
from vit_tutorial.variants import modern

BASE = vt.ViTConfig()
ODD = vt.ViTConfig(
    image_size=(12, 20), patch_size=(3, 5), in_channels=2, num_classes=7, dim=24, depth=5, num_heads=3, mlp_dim=50
)


def words_on(figure: Figure) -> str:
    return "\n".join(text.get_text() for ax in figure.axes for text in ax.texts)


def numbers_on(figure: Figure) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", words_on(figure))}


@pytest.mark.parametrize("config", [BASE, ODD])
def test_the_block_has_the_sizes_of_the_config(config: vt.ViTConfig) -> None:
    T, D, h, M = config.num_tokens, config.dim, config.num_heads, config.mlp_dim
    words = words_on(plots.encoder_block(config))
    assert words.count(f"(B, {T}, {D})") == 8  # in, out and after each branch, twice
    assert words.count(f"{h} heads of {D // h}") == 2
    assert words.count(f"{D} → {M} → {D}") == 2


def test_the_map_follows_the_tensors_of_a_real_model() -> None:
    shapes = re.findall(r"\(B, [\d, ]+\)", words_on(plots.tensor_map(ODD)))
    assert shapes == ["(B, 2, 12, 20)", "(B, 16, 30)", "(B, 16, 24)", "(B, 17, 24)", "(B, 17, 24)", "(B, 24)", "(B, 7)"]


@pytest.mark.parametrize(
    ("changes", "words", "missing"),
    [
        ({"pool": "mean"}, "the mean of all", "class token"),
        ({"num_classes": 0}, "(B, 24)", "logits"),
    ],
)
def test_the_map_knows_the_kinds_of_pooling(changes: dict[str, str | int], words: str, missing: str) -> None:
    figure = plots.tensor_map(vt.ViTConfig(**{**vars(ODD), **changes}))
    assert words in words_on(figure)
    assert missing not in words_on(figure)


def test_nothing_is_written_over_anything_else() -> None:
    for draw in (plots.encoder_block, plots.attention_flow, plots.tensor_map):
        figure = draw(BASE)
        figure.canvas.draw()
        boxes = [text.get_window_extent() for ax in figure.axes for text in ax.texts if text.get_text()]
        pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
        assert not [pair for pair in pairs if pair[0].overlaps(pair[1])], draw.__name__
        assert numbers_on(figure) <= {2, 3, 4, 6, 7, 12, 16, 64, 196, 197, 224, 768, 1000, 3072, 2017, 0, 1}


def parts_on(figure: Figure) -> list[list[tuple[str, bool]]]:
    """Of each block, from the bottom up: what stands in its boxes, and whether it is framed as new."""
    (ax,) = figure.axes
    frames = {
        (round(box.get_x() + box.get_width() / 2, 3), round(box.get_y() + box.get_height() / 2, 3)): box
        for box in ax.patches
        if isinstance(box, FancyBboxPatch)
    }
    columns: dict[float, list[tuple[float, str, bool]]] = {}
    for text in ax.texts:
        x, y = (round(place, 3) for place in text.get_position())
        if box := frames.get((x, y)):
            new = to_hex(box.get_edgecolor()) == drawings.NEW.lower()
            columns.setdefault(x, []).append((y, text.get_text(), new))
    return [[(words, new) for _, words, new in sorted(column)] for _, column in sorted(columns.items())]


def test_blocks_of_today_have_the_parts_of_their_configs_and_frame_what_is_new() -> None:
    every = {"qk_norm": True, "position_bias": True, "attention_norm": True, "layer_scale": 0.1, "norm": "rms"}
    every |= {"gated": True, "mlp_norm": True, "k_bias": False, "rotary": modern.Rotary()}
    sizes = {"dim": 24, "num_heads": 3, "mlp_dim": 50}
    configs = {
        "2020": modern.ModernConfig(**sizes),
        "CLIP": modern.ModernConfig(**sizes, gelu="quick"),
        "all": modern.ModernConfig(**sizes, **every),
    }
    figure = plots.modern_blocks(configs)
    plain, clip, whole = parts_on(figure)
    assert [words for words, _ in plain] == [
        "layer norm", "q, k, v", "attention, 3 heads", "projection 24", "layer norm", "24 → 50", "GELU", "50 → 24",
    ]  # fmt: skip
    assert not any(new for _, new in plain)
    assert [words for words, new in clip if new] == ["QuickGELU"]
    assert [words for words, new in whole if new] == [
        "RMS norm", "q, k, v: no bias of k", "q and k normed", "q and k rotated", "attention + bias, 3 heads", "norm",
        "times γ", "RMS norm", "24 → 2 · 50", "silu(gate) · value", "norm", "times γ",
    ]  # fmt: skip
    assert [words for words, new in whole if not new] == ["projection 24", "50 → 24"]
    assert words_on(figure).count("(B, 197, 24)") == 3
