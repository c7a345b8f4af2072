"""The live page in the system's Firefox (skipped where there is none), driven by WebDriver BiDi."""

import copy
import json
import re
import shutil
import subprocess
import time

import pytest
import torch
from test_live import SEVEN, STATIONS, compare, shipped, stations

websocket = pytest.importorskip("websocket")
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
needs_firefox = pytest.mark.skipif(not FIREFOX, reason="needs firefox: apt-get install firefox-esr")
pytestmark = [pytest.mark.slow, needs_firefox]
# Within each function that runs in the page.
KNOWN = """
  const { live, shadowRoot: root } = document.querySelector("[data-vit-live]"), $ = (name) => root.querySelector(name);
  const settled = async () => {
    do await new Promise((done) => setTimeout(done, 50)); while ($('.answer[aria-busy="true"]'));
  };
"""


class Firefox:
    """One window. ``heard``: what it complained of, and what it asked of a network."""

    def __init__(self, profile):
        options = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
        self.process = subprocess.Popen(
            [FIREFOX, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        address = next(m[1] for line in self.process.stderr if (m := re.search(r"listening on (ws://\S+)", line)))
        self.socket = websocket.create_connection(f"{address}/session", timeout=60, suppress_origin=True)
        self.asked, self.heard = 0, []
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method, **params):
        self.asked += 1
        self.socket.send(json.dumps({"id": self.asked, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.asked:
            event = answer["params"]
            url = event.get("request", {}).get("url", "data:")
            self.heard += [event["text"]] if "text" in event else [] if url.startswith(("data:", "file:")) else [url]
        assert answer["type"] == "success", answer
        return answer["result"]

    def open(self, url):
        self.ask("browsingContext.navigate", context=self.context, url=url, wait="complete")
        while not self.run("document.querySelector('[data-ready]') !== null", known=""):
            time.sleep(0.1)

    def run(self, expression, *args, known=KNOWN):
        """A JSON value: an expression, or a function's body that returns one, with ``args`` as ``args``."""
        body = expression if "return" in expression else f"return {expression}"
        function = f"async (text) => {{ const args = JSON.parse(text); {known} {{ {body} }} }}"
        answer = self.ask(
            "script.callFunction",
            functionDeclaration=f"async (text) => JSON.stringify(await ({function})(text))",
            arguments=[{"type": "string", "value": json.dumps(args)}],
            target={"context": self.context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def draw(self, points):
        x, y, w, h = self.run(
            "const b = $('.pad > canvas').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
        )
        moves = [
            {"type": "pointerMove", "x": round(x + w * a), "y": round(y + h * b), "duration": 60} for a, b in points
        ]
        actions = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
        pen = {"type": "pointer", "id": "pen", "actions": actions}
        self.ask("input.performActions", context=self.context, actions=[pen])

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def firefox(tmp_path):
    (tmp_path / "profile").mkdir()
    browser = Firefox(str(tmp_path / "profile"))
    yield browser
    browser.close()


DROP = """
  const paper = new OffscreenCanvas(120, 120), pen = paper.getContext("2d"), data = new DataTransfer();
  pen.fillStyle = "#eeeeee";
  pen.fillRect(0, 0, 120, 120);
  pen.lineWidth = 9;
  pen.beginPath();
  [[35, 25], [85, 25], [55, 100]].forEach((at) => pen.lineTo(...at));
  pen.stroke();
  data.items.add(new File([await paper.convertToBlob()], "seven.png", { type: "image/png" }));
  $(".live").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  do await settled(); while (/^Reading/.test($(".message").textContent));
  return [$(".message").textContent, $(".said").textContent];
"""


def test_firefox_computes_draws_reads_and_opens_all_that_chromium_does(firefox, tmp_path):
    model, preprocess, samples, page = shipped("digits-patch2")
    for name in ("page.html", "again.html"):
        page.save(tmp_path / name)
    firefox.open((tmp_path / "page.html").as_uri())
    changes = {"off": ["blocks.1.attention.heads.2"], "position": "reversed", "temperature": 2}
    right = stations(copy.deepcopy(model).double(), samples[3], preprocess, changes)
    found = firefox.run(
        "const { logits, norm } = live.run(live.samples[3], args[0]); return [[...logits], [...norm]]", changes
    )
    compare(
        dict(zip(("logits", "norm"), (torch.tensor(values).double().numpy() for values in found), strict=True)),
        {name: right[name] for name in ("logits", "norm")},
    )
    opened = """
      $(`[data-part="blocks.0.${args[0]}"], [data-to="${args[0]}"]:not([data-part])`).click();
      return $(`[data-station="${args[0]}"] h3`).checkVisibility();
    """
    assert all(firefox.run(opened, station) for station in STATIONS)
    firefox.run("$('[data-do=clear]').click(); window.scrollTo(0, 0); return 0")
    firefox.draw(SEVEN)
    drawn = firefox.run("await settled(); return $('.said').textContent")
    assert drawn.startswith("7, ")
    steps = "let n = 1; for (; $('[data-do=next]').textContent === 'Next'; n++) $('[data-do=next]').click(); return n"
    assert firefox.run(f"$('[data-do=token]').click(); {steps}") == 18
    url = firefox.run("$('[data-do=link]').click(); await settled(); return location.href")
    firefox.open(url.replace("page.html", "again.html"))
    assert firefox.run("$('.said').textContent") == drawn
    message, said = firefox.run(DROP)
    assert message.startswith("seven.png: turned from dark on light")
    assert said.startswith("7, ")
    assert firefox.heard == []
