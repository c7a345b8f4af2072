"""The live page in Chromium: its size, how long a forward pass takes, and how smooth drawing is.

    python benchmarks/live.py               the three models that come with the package
    python benchmarks/live.py --rounds 50   more forward passes

A forward pass is the whole model with every number on the way kept. While a line is drawn across the pad, one move of
the pen a frame, the time from each frame to the next is measured, with the station "attention" open; 17 ms is the pace
of the screen. Chromium is the system's (``apt-get install chromium``), driven by playwright.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from vit_tutorial import live

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FORWARD = """(rounds) => {
  const { run, samples } = document.querySelector("[data-ready]").live, times = [];
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    run(samples[i % samples.length]);
    times.push(performance.now() - start);
  }
  return times;
}"""
FRAMES = """async () => {
  const root = document.querySelector("[data-ready]").shadowRoot, canvas = root.querySelector(".pad > canvas");
  root.querySelector('[data-to="attention"]').click();
  const frame = () => new Promise(requestAnimationFrame), box = canvas.getBoundingClientRect(), times = [];
  const send = (kind, part) => canvas.dispatchEvent(new PointerEvent(kind, {
    clientX: box.left + part * box.width, clientY: box.top + (0.3 + 0.4 * part) * box.height, pointerId: 1 }));
  canvas.setPointerCapture = () => {};
  canvas.hasPointerCapture = () => true;
  send("pointerdown", 0);
  let last = await frame();
  for (let i = 1; i <= 60; i++) {
    send("pointermove", i / 60);
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  send("pointerup", 1);
  return times;
}"""


def measure(tab: Page, page: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each forward pass, and of each frame while drawing."""
    tab.goto(page.as_uri())
    tab.wait_for_selector("[data-ready]")
    return tab.evaluate(FORWARD, rounds), tab.evaluate(FRAMES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="forward passes of each model (default: 20)")
    rounds = parser.parse_args().rounds
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print(f"{'':10}{'page':>9}  {'forward pass, ms':>28}  {'frame while drawing, ms':>26}")
    print(f"{'':10}{'MB':>9}  {'first':>10}{'median':>9}{'longest':>9}  {'median':>16}{'longest':>10}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in ("digits", "shapes", "cifar10"):
            live.shipped(name).save(page := Path(folder) / "live.html")
            tab = browser.new_page(viewport={"width": 1200, "height": 900})
            passes, frames = measure(tab, page, rounds)
            tab.close()
            print(
                f"{name:10}{page.stat().st_size / 1e6:9.2f}  {passes[0]:10.1f}{statistics.median(passes):9.1f}"
                f"{max(passes):9.1f}  {statistics.median(frames):16.1f}{max(frames):10.1f}"
            )
        browser.close()


if __name__ == "__main__":
    main()
