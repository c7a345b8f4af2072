"""Photographs to touch: what their scripts compute, and the still that stays without them."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import Tabs, browser_only
from PIL import Image

from vit_tutorial import plots
from vit_tutorial.attention import dot_product_attention

WHITE = [torch.ones(3, 64, 64), torch.ones(3, 64, 64)]
CORNERS = torch.eye(4)  # of 2 x 2 patches, each like itself alone
BRIGHTNESS = """(canvas, [x, y]) => canvas.getContext("2d").getImageData(x * 370, y * 370, 1, 1).data[0]"""
PLACES = ([0.35, 0.35], [0.85, 0.35], [0.35, 0.85], [0.85, 0.85])  # in each of four patches, away from its frame


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr("IPython.display.display", lambda what, **options: calls.append((what, options)))
    return calls


def opened(tabs: Tabs, folder: Path, shown: list[Any]) -> Any:
    tab = tabs.show(f"<!doctype html><title>Photographs</title>{shown[0][0]['text/html']}", folder)
    tab.wait_for_function("[...document.querySelectorAll('canvas')].every(c => c.getContext('2d')"
                          ".getImageData(5, 5, 1, 1).data[3] > 0)")  # fmt: skip
    return tab


def lit(canvas: Any) -> list[int]:
    """The patches that are lit fully."""
    return [n for n, place in enumerate(PLACES) if canvas.evaluate(BRIGHTNESS, place) > 250]


def test_the_still_is_dark_where_nothing_matches(shown: list[Any]) -> None:
    plots.show_matches(WHITE, [CORNERS, CORNERS.roll(1, 0)], "Two squares.", "It.", start=(0, 1))
    html = shown[0][0]["text/html"]
    assert html.count("<img src=") == 1
    still = Image.open(io.BytesIO(base64.b64decode(html.split("base64,")[1].split('"')[0]))).convert("RGB")
    width, height = still.size
    lights = [still.getpixel((width * x // 8, height * y // 4))[0] > 200 for y in (1, 3) for x in (1, 3, 5, 7)]
    assert lights == [False, True, False, False, False, False, True, False]
    assert still.getpixel((width * 3 // 8, 1)) == (0, 114, 178), "a frame in the query's colour"
    assert shown[1][0].data == "It."


@browser_only
def test_the_patch_under_the_pointer_lights_its_matches(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    plots.show_matches(WHITE, [CORNERS, CORNERS.roll(1, 0)], "Two squares.")
    first, other = opened(tabs, tmp_path, shown).locator("canvas").all()
    assert (lit(first), lit(other)) == ([0], [1])
    box = first.bounding_box()
    first.hover(position={"x": 0.2 * box["width"], "y": 0.7 * box["height"]})
    assert (lit(first), lit(other)) == ([2], [3])
    first.press("ArrowRight")
    assert (lit(first), lit(other)) == ([3], [0])


@browser_only
def test_attention_is_that_of_the_queries_and_keys(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    q, k = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))  # the class token, and 2 x 2 patches
    plots.show_attention(WHITE[0], {"a head": (q, k), "exchanged": (k, q)}, "A square.", start=2)
    tab = opened(tabs, tmp_path, shown)
    for (queries, keys), name in (((q, k), "a head"), ((k, q), "exchanged")):
        tab.locator("select").select_option(name)
        weights = 5 * dot_product_attention(queries, keys, keys)[1][3, 1:]  # of patch 2, as multiples of uniform
        said = float(tab.locator("output").text_content().split(":")[1].split("×")[0])
        assert said == pytest.approx(weights.max().item(), abs=0.1)
        assert lit(tab.locator("canvas")) == [int(weights.argmax())]


@browser_only
def test_a_click_gives_its_label_to_the_patches_like_it(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    features = torch.tensor([[1.0, 0.2], [0.9, 0.1], [0.1, 1.0], [0.6, 0.5]])
    mask = torch.tensor([[True, True], [False, True]])
    plots.show_clicks(WHITE[:1], [features], [mask], [(0, 0, True), (0, 2, False)], "A square.")
    still = Image.open(io.BytesIO(base64.b64decode(shown[0][0]["text/html"].split("base64,")[1].split('"')[0])))
    colours = [still.convert("RGB").getpixel((47, y)) for y in (45, 135)]
    assert colours == [(230, 159, 0), (0, 114, 178)], "a dot for each click"
    tab = opened(tabs, tmp_path, shown)
    canvas = tab.locator("canvas")
    assert lit(canvas) == [0, 1, 3]
    assert "2 clicks" in tab.locator("output").text_content()
    assert "100 %" in tab.locator("output").text_content()
    tab.locator("select").select_option("background")
    box = canvas.bounding_box()
    canvas.click(position={"x": 0.7 * box["width"], "y": 0.7 * box["height"]})
    assert lit(canvas) == [0, 1]
    assert "67 %" in tab.locator("output").text_content()
    tab.get_by_text("undo").click()
    assert lit(canvas) == [0, 1, 3]
    canvas.press("ArrowUp")  # from the patch that was clicked
    canvas.press("Enter")
    assert lit(canvas) == [0, 3]
    assert "3 clicks" in tab.locator("output").text_content()


@browser_only
def test_attention_and_the_likeness_of_the_pixels(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    image = torch.zeros(3, 64, 64)
    image[0] = image[1, :32, 32:] = image[2, 32:, :32] = 1  # red and yellow, magenta and red
    keys = torch.cat([torch.zeros(1, 4), torch.eye(4)])
    plots.show_attention(image, {"a head": (9 * keys, 9 * keys)}, "A square.", compare_pixels=True)
    tab = opened(tabs, tmp_path, shown)
    head, pixels = tab.locator("canvas").all()
    assert (lit(head), lit(pixels)) == ([0], [0, 3])
    assert tab.locator("figcaption").all_text_contents() == ["a head", "likeness of the pixels"]
    pixels.press("ArrowRight")
    assert (lit(head), lit(pixels)) == ([1], [1])


@browser_only
def test_the_weighted_mean_follows_the_query(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    tokens = {"A": (2.0, 0.0), "B": (0.0, 2.0), "C": (-2.0, -1.0)}
    plots.show_weighing(tokens, (1.0, 0.0), "A triangle.")
    tab = tabs.show(f"<!doctype html><title>Weighing</title>{shown[0][0]['text/html']}", tmp_path)

    def weights() -> list[float]:
        return [float(text) for text in tab.locator("tr td:nth-child(4)").all_text_contents()]

    places = torch.tensor(list(tokens.values()))
    plane = tab.locator("canvas")
    for query in ([1.0, 0.0], [0.9, 0.1]):
        assert weights() == pytest.approx((places @ torch.tensor(query)).softmax(dim=0).tolist(), abs=6e-4)
        plane.press("ArrowLeft")
        plane.press("ArrowUp")
    box = plane.bounding_box()
    plane.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    assert weights() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert "weighted mean (0.0" in tab.locator("output").text_content()
