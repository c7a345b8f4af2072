"""Takes README's picture of the live page: a drawn seven at the tour's seventh stop.

    python tools/live_picture.py            writes assets/live.png

Chromium is the system's (``apt-get install chromium``), driven by playwright.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from vit_tutorial import live

OUT = Path(__file__).resolve().parent.parent / "assets" / "live.png"
SEVEN = ([(0.24, 0.1), (0.76, 0.1), (0.45, 0.93)], [(0.37, 0.5), (0.72, 0.5)])  # two lines, in parts of the pad


def draw(page: Page) -> None:
    """The lines of SEVEN, with the mouse."""
    box = page.locator(".pad > canvas").bounding_box()
    assert box is not None
    for line in SEVEN:
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in line]
        page.mouse.move(*places[0])
        page.mouse.down()
        for x, y in places[1:]:
            page.mouse.move(x, y, steps=8)
        page.mouse.up()


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        live.shipped("digits").save(path := Path(folder) / "live.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1240, "height": 1100}, color_scheme="light", reduced_motion="reduce")
        page.goto(path.as_uri())
        page.wait_for_selector("[data-ready]")
        page.get_by_text("Clear", exact=True).click()
        draw(page)
        for _ in range(6):
            page.get_by_text("Next", exact=True).click()
        page.get_by_role("button", name="class token").click()
        page.locator('.layers input[value="3"]').check(force=True)
        page.locator('.heads input[value="1"]').check(force=True)
        page.locator('.answer[aria-busy="false"]').wait_for()
        page.mouse.move(0, 0)
        page.locator(".live").screenshot(path=OUT)
        browser.close()
    with Image.open(OUT) as picture:
        picture.convert("RGB").quantize(256).save(OUT, optimize=True)  # a third of its size


if __name__ == "__main__":
    main()
