"""The live page in Chromium: its size, how long a forward pass takes, and how smooth drawing is.

    python benchmarks/live.py               the three models that come with the package
    python benchmarks/live.py --rounds 50   more forward passes

A forward pass is the whole model with every number on the way kept. While a line is drawn across the pad, one move of
the pen a frame, the time from each frame to the next is measured, at every station, with the model as it was trained
("frame") and with an MLP switched off ("changed"); 17 ms is the pace of the screen. Chromium is the system's
(``apt-get install chromium``), driven by playwright.
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
FRAMES = """async (station) => {
  const root = document.querySelector("[data-ready]").shadowRoot, canvas = root.querySelector(".pad > canvas");
  root.querySelector(`[data-to="${station}"]`).click();
  const frame = () => new Promise(requestAnimationFrame), box = canvas.getBoundingClientRect(), times = [];
  const send = (kind, part) => canvas.dispatchEvent(new PointerEvent(kind, {
    clientX: box.left + part * box.width, clientY: box.top + (0.3 + 0.4 * part) * box.height, pointerId: 1 }));
  canvas.setPointerCapture = () => {};
  canvas.hasPointerCapture = () => true;
  send("pointerdown", 0);
  let last = await frame();
  for (let i = 1; i <= 20; i++) {
    send("pointermove", i / 20);
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  send("pointerup", 1);
  times.push(await frame() - last);
  return times;
}"""
SWITCH = (
    """() => document.querySelector("[data-ready]").shadowRoot.querySelector('[data-part="blocks.0.mlp"]').click()"""
)
STATIONS = ("patches", "embedding", "positions", "attention", "mlp", "head", "layers", "what-if")


def measure(tab: Page, page: Path, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of each forward pass, and of each frame while drawing: as trained, and with an MLP switched off."""
    tab.goto(page.as_uri())
    tab.wait_for_selector("[data-ready]")
    passes = tab.evaluate(FORWARD, rounds)
    frames = [time for station in STATIONS for time in tab.evaluate(FRAMES, station)]
    tab.evaluate(SWITCH)
    return passes, frames, [time for station in STATIONS for time in tab.evaluate(FRAMES, station)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="forward passes of each model (default: 20)")
    rounds = parser.parse_args().rounds
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print(f"{'':10}{'page':>9}  {'forward pass, ms':>28}  {'frame, ms':>18}  {'changed, ms':>18}")
    both = f"{'median':>11}{'longest':>9}"
    print(f"{'':10}{'MB':>9}  {'first':>10}{'median':>9}{'longest':>9}{both}{both}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in ("digits", "shapes", "cifar10"):
            live.shipped(name).save(page := Path(folder) / "live.html")
            tab = browser.new_page(viewport={"width": 1200, "height": 900})
            passes, frames, changed = measure(tab, page, rounds)
            tab.close()
            print(
                f"{name:10}{page.stat().st_size / 1e6:9.2f}  {passes[0]:10.1f}{statistics.median(passes):9.1f}"
                f"{max(passes):9.1f}{statistics.median(frames):11.1f}{max(frames):9.1f}"
                f"{statistics.median(changed):11.1f}{max(changed):9.1f}",
                flush=True,
            )
        browser.close()


if __name__ == "__main__":
    main()
