"""Takes README's moving picture of the live page: a seven is strokes, named, and followed through the model.

    python tools/live_picture.py            writes assets/live.gif

Chromium is the system's (``apt-get install chromium``), driven by playwright.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from vit_tutorial import live

OUT = Path(__file__).resolve().parent.parent / "assets" / "live.gif"
SEVEN = ([(0.24, 0.1), (0.76, 0.1), (0.45, 0.93)], [(0.37, 0.5), (0.72, 0.5)])  # two lines, in parts of the pad
STOPS = 8  # of the tour
TIMES = {"look": (2, 5, 9, 13, 17, 18), "take": (19, 20, 22, 25, 30, 35)}  # of attention, as two of the stops play it
WIDTH, COLOURS = 800, 128  # of the picture


def frame(page: Page) -> Image.Image:
    """The page as it is now."""
    page.locator('.answer[aria-busy="false"]').wait_for()
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return shot.resize((WIDTH, round(shot.height * WIDTH / shot.width)), Image.Resampling.LANCZOS)


def draw(page: Page) -> list[Image.Image]:
    """The lines of SEVEN, with the mouse, and what is seen after each of their parts."""
    box = page.locator(".pad > canvas").bounding_box()
    assert box is not None
    shots = []
    for line in SEVEN:
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in line]
        page.mouse.move(*places[0])
        page.mouse.down()
        for x, y in places[1:]:
            page.mouse.move(x, y, steps=8)
            shots.append(frame(page))
        page.mouse.up()
    return shots


def watch(page: Page, times: tuple[int, ...]) -> list[Image.Image]:
    """Attention as it happens, at some times, once something was guessed."""
    page.locator(".guesses button").nth(1).click()
    shots = []
    for time in times:
        page.locator('[name="time"]').evaluate(f"(slider) => {{ slider.value = {time}; slider.oninput(); }}")
        shots.append(frame(page))
    return shots


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        live.shipped("digits", states=True).save(path := Path(folder) / "live.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1240, "height": 880}, color_scheme="light", reduced_motion="reduce")
        page.set_default_timeout(120_000)
        page.goto(path.as_uri())
        page.wait_for_selector("[data-ready]")
        page.get_by_text("Clear", exact=True).click()
        strokes = [frame(page), *draw(page)]
        frames, times = [strokes[-1]], [1500]
        for stop in range(1, STOPS + 1):
            page.locator("[data-do=next]").click()
            page.mouse.move(0, 0)
            moments = {STOPS - 1: TIMES["look"], STOPS: TIMES["take"]}.get(stop, ())
            shots = watch(page, moments) if moments else [frame(page)]
            frames += shots
            times += [400] * (len(shots) - 1) + [1800]
        browser.close()
    frames += strokes[:-1]  # last, so that a still of the picture shows a seven that is named
    times += [500] * (len(strokes) - 1)
    sheet = Image.new("RGB", (WIDTH, sum(shot.height for shot in frames)))  # one palette for all frames
    for number, shot in enumerate(frames):
        sheet.paste(shot, (0, number * shot.height))
    palette = sheet.quantize(COLOURS)
    first, *rest = [shot.quantize(palette=palette, dither=Image.Dither.NONE) for shot in frames]
    first.save(OUT, save_all=True, append_images=rest, duration=times, loop=0, optimize=False)
    print(f"{OUT.name}: {len(frames)} frames, {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
