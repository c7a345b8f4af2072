"""Figures in a notebook: alternative text, captions, and a slider that needs no kernel."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import Tabs, browser_only
from matplotlib.figure import Figure
from PIL import Image

from vit_tutorial import plots


@pytest.fixture
def photo() -> torch.Tensor:
    return torch.rand(3, 8, 12, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr("IPython.display.display", lambda what, **options: calls.append((what, options)))
    return calls


def test_show_gives_the_alternative_text_to_the_output(shown: list[Any], photo: torch.Tensor) -> None:
    plots.show(plots.pictures([photo]), alt="A photograph.", caption="**Figure 1.** It.")
    (bundle, options), (caption, _) = shown
    assert bundle["text/plain"] == "A photograph."
    assert options["metadata"]["image/png"]["alt"] == "A photograph."
    assert options["metadata"]["image/png"]["width"] > 50
    assert options["raw"]
    assert caption.data == "**Figure 1.** It."


def test_show_refuses_a_picture_without_words(shown: list[Any], photo: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="alt is empty"):
        plots.show(plots.pictures([photo]), alt=" ")
    assert not shown


def test_a_figure_of_few_colours_has_a_palette_and_a_photograph_of_many_keeps_its_own(shown: list[Any]) -> None:
    lines = Figure(figsize=(4, 3))
    lines.subplots().plot([0, 1, 0.5])
    plots.show(lines, alt="A line.")
    plots.show(plots.pictures([torch.rand(3, 64, 64)]), alt="Noise in all colours.")
    modes = [Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).mode for (bundle, _) in shown]
    assert modes == ["P", "RGBA"]


def numbered(n: int) -> dict[str, Figure]:
    return {f"size {i}": plots.pictures([torch.full((3, 4, 4), i / n)]) for i in range(n)}


def test_a_slider_s_first_picture_stands_in_its_markup(shown: list[Any]) -> None:
    plots.show_slider(numbered(3), alt="A square, lighter & lighter.", caption="It.", label="size <b>")
    (bundle, _), (caption, _) = shown
    assert bundle["text/plain"] == "A square, lighter & lighter."
    assert bundle["text/html"].count("<img src=") == 1
    assert "lighter &amp; lighter" in bundle["text/html"]
    assert "size &lt;b&gt;" in bundle["text/html"]
    assert caption.data == "It."


def test_a_slider_of_one_picture_is_refused(shown: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"at least two figures, got 1: show\(\)"):
        plots.show_slider(numbered(1), alt="A square.", label="size")
    assert not shown


@browser_only
def test_a_slider_shows_each_picture_by_mouse_and_by_keys(shown: list[Any], tabs: Tabs, tmp_path: Path) -> None:
    for label in ("size", "again"):  # two in one notebook
        plots.show_slider(numbered(3), alt="A square.", label=label)
    html = "".join(bundle["text/html"] for bundle, _ in shown)
    tab = tabs.show(f"<!doctype html><title>Sliders</title>{html}", tmp_path, ready=2)
    first, second = tab.locator("[data-vit-slider]").all()
    sources = [first.locator("img").get_attribute("src")]
    slider = first.get_by_label("size")
    slider.focus()
    for place in ("size 1", "size 2", "size 2"):  # the last key has nowhere to go
        tab.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext") == first.locator("output").text_content() == place
        sources.append(first.locator("img").get_attribute("src"))
    assert len(set(sources)) == 3
    assert second.locator("output").text_content() == "size 0"
    assert tabs.heard == []
