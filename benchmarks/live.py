"""The live page in Chromium: its size, how long a forward pass takes, and how smooth drawing is.

    python benchmarks/live.py

A forward pass is the whole model with every number on the way kept. While a line is drawn across the pad, one move of
the pen a frame, the time from each frame to the next is measured, at every station, with the model as it was trained
("frame") and with an MLP switched off ("changed"); 17 ms is the pace of the screen. "answer" is the time from the pen's
lifting to the answer to what was drawn. Chromium is the system's (``apt-get install chromium``), driven by playwright.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from vit_tutorial import live

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
ROUNDS = 20  # forward passes of each model
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
  const lifted = performance.now();
  do {
    const now = await frame();
    times.push(now - last);
    last = now;
  } while (root.querySelector('.answer[aria-busy="true"]'));
  return [times, performance.now() - lifted];
}"""
SWITCH = """async () => {
  const root = document.querySelector("[data-ready]").shadowRoot;
  root.querySelector('[data-part="blocks.0.mlp"]').click();
  while (root.querySelector('.answer[aria-busy="true"]')) await new Promise(requestAnimationFrame);
}"""
STATIONS = ("patches", "embedding", "positions", "attention", "mlp", "head", "layers", "what-if")


def draw(tab: Page) -> tuple[list[float], list[float]]:
    """Milliseconds of each frame while a line is drawn, at every station, and from the pen's lifting to the answer."""
    drawn = [tab.evaluate(FRAMES, station) for station in STATIONS]
    return [time for frames, _ in drawn for time in frames], [answer for _, answer in drawn]


def both(times: list[float]) -> str:
    """Median and longest."""
    return f"{statistics.median(times):11.1f}{max(times):9.1f}"


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    columns = ("forward pass, ms", "frame, ms", "answer, ms", "changed: frame, ms", "changed: answer, ms")
    print(f"{'':10}{'page':>6}{''.join(f'{column:>20}' for column in columns)}")
    print(f"{'':10}{'MB':>6}{len(columns) * '     median  longest'}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in ("digits", "shapes", "photographs"):
            live.shipped(name).save(page := Path(folder) / "live.html")
            tab = browser.new_page(viewport={"width": 1200, "height": 900})
            tab.goto(page.as_uri())
            tab.wait_for_selector("[data-ready]")
            passes = tab.evaluate(FORWARD, ROUNDS)
            as_trained = draw(tab)
            tab.evaluate(SWITCH)
            times = (passes, *as_trained, *draw(tab))
            tab.close()
            print(f"{name:10}{page.stat().st_size / 1e6:6.2f}{''.join(map(both, times))}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
