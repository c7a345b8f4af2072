"""The attention explorer in Chromium: how large its page is, and how soon it answers.

    python benchmarks/explorer.py               the shapes model with four scenes, B/16 with a photograph
    python benchmarks/explorer.py --rounds 20   more page loads

A time runs from the event to the frame that shows its effect, so up to 17 ms of it are waiting for the screen. "First"
is the first event on a page that was just opened, while its layers are still being decoded; each round opens it anew.
Chromium is the system's (``apt-get install chromium``), driven by playwright.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

import vit_tutorial as vt
from vit_tutorial.explorer import Explorer, explore

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
MEASURE = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  while (!document.querySelector("[data-ready]")) await frame();
  const open = performance.now(), root = document.querySelector("[data-ready]").shadowRoot;
  const canvas = root.querySelector(".from > canvas"), box = canvas.getBoundingClientRect();
  const slider = root.querySelector("[name=layer]");
  const shown = async (act) => { // until the task after the next frame
    const start = performance.now(), { port1, port2 } = new MessageChannel();
    act();
    await frame();
    await new Promise((done) => { port1.onmessage = done; port2.postMessage(0); });
    return performance.now() - start;
  };
  const point = (part) => shown(() => {
    const where = { clientX: box.left + part * box.width, clientY: box.top + part * box.height };
    canvas.dispatchEvent(new PointerEvent("pointermove", where));
  });
  const slide = (value) => shown(() => { slider.value = value; slider.dispatchEvent(new Event("input")); });
  const choose = (mode) => shown(() => root.querySelector(`[value=${mode}]`).click());
  const times = { open, "first patch": await point(0.1), "first layer": await slide(0) };
  times["first rollout"] = await choose("rollout");
  times["first mean"] = await choose("mean");
  await new Promise((done) => setTimeout(done, 1500));
  const later = [];
  for (let i = 0; i < 20; i++) later.push(await point(i / 20));
  return { ...times, "a patch, all decoded": Math.max(...later) };
}"""


def explorers() -> dict[str, Explorer]:
    torch.manual_seed(0)
    model, classes, preprocess = vt.load("shapes")
    scenes = preprocess(vt.data.shapes(train=1, test=8).test.batch()[0][:4])
    large = vt.ViT(vt.ViTConfig.preset("B/16")).eval()
    return {
        "shapes, 4 images": explore(model, scenes, classes, preprocess=preprocess),
        "B/16, 1 image": explore(large, vt.data.photograph(224)[None]),
    }


def measure(browser: Browser, page: Path, rounds: int) -> dict[str, list[float]]:
    """{what: milliseconds, one a round}; of the last kind the longest of 20 in each round."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        tab = browser.new_page(viewport={"width": 1100, "height": 900})
        tab.goto(page.as_uri(), wait_until="commit")
        for what, milliseconds in tab.evaluate(MEASURE).items():
            times.setdefault(what, []).append(milliseconds)
        tab.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, explorer in explorers().items():
            explorer.save(page := Path(folder) / "explorer.html")
            print(f"{name}: {page.stat().st_size / 1e6:.2f} MB; milliseconds, median and longest of {rounds}")
            for what, times in measure(browser, page, rounds).items():
                print(f"  {what:24}{statistics.median(times):7.0f}{max(times):7.0f}")
        browser.close()


if __name__ == "__main__":
    main()
