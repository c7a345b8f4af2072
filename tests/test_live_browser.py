"""The live page in Chromium: what it shows, says and does (skipped where there is none)."""

import base64
import copy
import io
import itertools
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import browser_only, wait
from live_reference import (
    SETTLED,
    SEVEN,
    STATIONS,
    answer_of,
    draw,
    go,
    model_of,
    number_in,
    picture_in,
    pictures_of,
    shipped,
    stations,
    text,
)
from live_reference import page_of_digits as page_of_digits  # a fixture
from live_reference import show_everything as show_everything  # a fixture
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import live
from vit_tutorial.live.command import states_of

ROOT = Path(__file__).parent.parent
HOSTILE = ["</script><script>window.pwned = 1</script>", '"><img src=x onerror="window.pwned = 1">', "<!-- 'a' & b"]
STATE = "document.querySelector('[data-vit-live]').live.state"
PIXELS = "(canvas) => canvas.toDataURL()"
TIME = """Number(document.querySelector("[data-vit-live]").shadowRoot.querySelector("[name=time]").value)"""
MESSAGE = "document.querySelector('[data-vit-live]').shadowRoot.querySelector('.message').textContent"


@pytest.fixture(scope="module")
def small():
    """The page of a small model, with four random pictures."""
    return live.page(model_of(), pictures_of(model_of(), 4), ["one", "two", "three"])


# ------------------------------------------------------------------------------------------------------ the picture


@browser_only
def test_the_answer_follows_the_pen(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess)
    page.get_by_text("Clear", exact=True).click()
    assert float(picture_in(page, model).sum()) == 0
    draw(page, SEVEN)
    picture = picture_in(page, model)
    assert 4 < float(picture.sum()) < 30
    assert ((16 * picture) % 1 == 0).all()  # in the steps of the pictures that it learned from
    assert text(page, ".prediction") == answer_of(model, picture, preprocess)
    assert text(page, ".prediction").startswith("7, ")
    page.get_by_text("Erase", exact=True).click()
    draw(page, [(0.1, 0.12), (0.5, 0.12)])
    assert float(picture_in(page, model).sum()) < float(picture.sum()) - 1
    for _ in range(2):
        page.get_by_text("Undo", exact=True).click()
    assert float(picture_in(page, model).sum()) == 0
    page.get_by_text("Undo", exact=True).click()
    assert torch.allclose(picture_in(page, model), samples[0])


@browser_only
def test_a_small_drawing_is_seen_as_large_as_the_digits_that_were_learned(show, digits):
    live_page, model, preprocess, _ = digits
    page = show(live_page)
    page.get_by_text("Clear", exact=True).click()
    draw(page, [(0.1 + 0.55 * x, 0.1 + 0.55 * y) for x, y in SEVEN])  # small, and in a corner
    picture = picture_in(page, model)[0]
    assert picture[0].sum() > 0.5
    assert picture[-1].sum() > 0.2
    assert text(page, ".prediction") == answer_of(model, picture[None], preprocess)
    assert text(page, ".prediction").startswith("7, ")
    assert text(page, ".message").startswith("Enlarged and centred for the model")
    page.get_by_text("Clear", exact=True).click()
    draw(page, [(0.5, 0.5), (0.5, 0.52)])  # a dot stays one
    assert picture_in(page, model)[0].sum() < 16


@browser_only
def test_a_long_message_leaves_the_answer_its_room(show, digits):
    page = show(digits[0], whole=False, size=(720, 450))
    width = "(bars) => bars.clientWidth"
    before = page.locator(".bars").evaluate(width)
    page.get_by_text("Clear", exact=True).click()
    draw(page, [(0.1 + 0.55 * x, 0.1 + 0.55 * y) for x, y in SEVEN])
    assert text(page, ".message").startswith("Enlarged")
    assert page.locator(".bars").evaluate(width) == before > 200


@browser_only
def test_a_number_that_was_touched_is_forgotten_once_another_token_is_followed(show, digits):
    page = show(digits[0], has_touch=True)
    go(page, "embedding")
    touched = {"pointerType": "touch", "clientX": 0, "clientY": 0}  # by a finger that scrolls: it gets no focus
    page.locator('[data-show="projected"] canvas').dispatch_event("pointerdown", touched)
    reading = '[data-show="projected"] .reading'
    assert text(page, reading).startswith("number 0: ")
    page.locator(".picker canvas").tap(position={"x": 5, "y": 5})
    assert re.match(r"48 numbers; (all|\d+) differ from those of patch 10$", text(page, reading))


@browser_only
def test_the_numbers_that_make_the_touched_one_are_framed(show, digits):
    page = show(digits[0], whole=False, fragment="#stop=11", has_touch=True, size=(390, 844))
    frames = page.locator("[data-tour=old] .source, [data-tour=added] .source")
    for strip in ("joined", "middle"):  # the second tap leaves the first strip
        page.locator(f"[data-tour={strip}] canvas").tap()
    assert frames.evaluate_all("all => all.map((e) => e.checkVisibility())") == [True, True]


# A clock by which each step of a pass takes longer than its slice, so that a pass takes many frames on any machine.
SLOW_CLOCK = """() => {
  let time = 0;
  performance.now = () => { time += 50; return time; };
}"""


FRAME = "const frame = () => new Promise(requestAnimationFrame), shown = [];"


@browser_only
def test_the_newest_picture_and_changes_win(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.evaluate(SLOW_CLOCK)
    shown = page.evaluate(f"""async () => {{
      {FRAME}
      const root = document.querySelector("[data-ready]").shadowRoot;
      const click = (number) => root.querySelectorAll(".samples button")[number].click();
      const part = root.querySelector('[data-part="blocks.0.mlp"]');
      root.querySelector('[name="cutting"][value="cut"]').click();
      for (const [act, frames] of [[() => click(1), 2], [() => click(2), 30], [() => part.click(), 3],
        [() => click(3), 1], [() => {{ click(4); click(5); part.click(); }}, 2], [() => click(6), 30],
        [() => part.click(), 60]]) {{
        act();
        for (let i = 0; i < frames; i++) {{
          await frame();
          shown.push([".prediction", ".list", ".difference"].map((name) =>
            root.querySelector(name).textContent.replaceAll("\\u00a0", " ")));
        }}
      }}
      return shown;
    }}""")
    without = {"off": ["blocks.0.mlp"]}
    right = {(answer_of(model, picture, preprocess), "") for picture in samples[:7]}
    right |= {(answer_of(model, picture, preprocess, without), "MLP of block 1 off.") for picture in samples[:7]}
    assert {(said, changes) for said, changes, _ in shown} <= right  # never a mixture of two
    assert answer_of(model, samples[1], preprocess) not in {said for said, *_ in shown}  # given up on the way
    assert shown[31][0] == answer_of(model, samples[2], preprocess)
    assert shown[-1][:2] == [answer_of(model, samples[6], preprocess, without), "MLP of block 1 off."]
    assert shown[-1][2] == f"Before, it said {answer_of(model, samples[6], preprocess)}."
    go(page, "head")
    page.locator('[data-show="logits"] canvas').press("Home")
    logits = stations(model, samples[6], preprocess, without)["logits"]
    assert number_in(text(page, '[data-show="logits"] .reading')) == pytest.approx(logits[0], rel=1e-3)


@browser_only
def test_draws_with_the_keyboard_alone(show, digits):
    live_page, model, preprocess, _ = digits
    page = show(live_page)
    page.keyboard.press("Tab")  # from the tour’s next stop to what leads to the pad
    assert page.locator("[data-do=task]:focus").count() == 1
    page.keyboard.press("Enter")
    for key in ["Delete", *["ArrowUp"] * 7, " ", *["ArrowDown"] * 14, " "]:
        page.keyboard.press(key)
    picture = picture_in(page, model)
    assert picture[0, :, 3:5].sum() > 0.8 * picture.sum() > 3
    assert text(page, ".prediction") == answer_of(model, picture, preprocess)
    assert text(page, ".live-region").startswith(("It says 1", "Pen up"))
    page.keyboard.press("Delete")
    assert float(picture_in(page, model).sum()) == 0
    page.get_by_text("Undo", exact=True).click()
    assert torch.equal(picture_in(page, model), picture)


@browser_only
def test_a_tap_reads_a_number_and_a_finger_draws(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page, has_touch=True, size=(390, 844))
    patches = stations(model, samples[0], preprocess, {})["embed.patches"].reshape(16, 4)
    cells = page.locator('[data-station="patches"] [data-show="x"] canvas')
    cells.tap(position={"x": 0.6 * cells.bounding_box()["width"], "y": 5})
    reading = text(page, '[data-show="x"] .reading')
    assert reading.startswith("number 2 (")
    assert number_in(reading) == pytest.approx(patches[10, 2], rel=1e-3)
    page.get_by_text("Clear", exact=True).tap()
    box = page.locator(".pad > canvas").bounding_box()
    finger = page.context.new_cdp_session(page)
    for kind, (x, y) in zip(("touchStart", "touchMove", "touchMove"), SEVEN, strict=True):
        point = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert float(picture_in(page, model).sum()) > 4
    assert text(page, ".prediction") == answer_of(model, picture_in(page, model), preprocess)


def drop(page, name, kind, content):
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": kind, "buffer": content})


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG")
    return out.getvalue()


@browser_only
def test_a_photograph_is_taken_and_what_is_none_gets_a_sentence(show):
    live_page, double, preprocess, _ = shipped("shapes")
    page = show(live_page)
    page.get_by_text("Clear", exact=True).click()
    assert (picture_in(page, double) == np.float32(128 / 255)).all()  # a painting is cleared, too
    y, x = np.mgrid[:80, :100]
    pixels = np.stack([2 * x, 3 * y, 100 + x - y], axis=2).astype(np.uint8)
    drop(page, "slope.png", "image/png", png(pixels))
    wait(page, f"{MESSAGE}.startsWith('slope.png, cut to its middle (80 % of it)')")
    right = vt.data.denormalise(preprocess(Image.fromarray(pixels)), preprocess)[0]
    assert (picture_in(page, double) - right).abs().max() < 0.02  # the browser's resizing is a little other
    before = picture_in(page, double)
    for name, kind, content, words in [
        ("notes.txt", "text/plain", b"hello", ("notes.txt is not a picture", "JPEG")),
        ("half.png", "image/png", png(pixels)[:100], ("half.png is damaged",)),
        ("large.png", "image/png", png(np.zeros((5000, 10000), np.uint8)), ("50 megapixels", "at most 40")),
    ]:
        drop(page, name, kind, content)
        wait(page, f"{MESSAGE}.startsWith('{name}')")
        assert all(word in text(page, ".message") for word in words), text(page, ".message")
        assert torch.equal(picture_in(page, double), before)


@browser_only
@pytest.mark.parametrize("resizing", [{"crop": "none"}, {"crop": 0.8}, {"crop": 0.8, "squash": True}])
def test_a_photograph_is_cropped_and_resized_as_in_python(show, resizing):
    preprocess = replace(shipped("shapes")[2], **resizing)
    model = shipped("shapes")[1]
    page = show(live.page(model, pictures_of(model, 1), preprocess=preprocess))
    y, x = np.mgrid[:80, :160]
    pixels = np.stack([x, 3 * y, 100 + x // 2 - y], axis=2).astype(np.uint8)
    drop(page, "wide.png", "image/png", png(pixels))
    wait(page, f"{MESSAGE}.startsWith('wide.png')")
    right = vt.data.denormalise(preprocess(Image.fromarray(pixels)), preprocess)[0]
    assert (picture_in(page, model.double()) - right).abs().max() < 0.02


@browser_only
def test_a_model_that_reads_digits_takes_drawings_only(show, digits):
    page, model = show(digits[0]), digits[1]
    before = picture_in(page, model)
    assert page.locator("[data-do=open]").is_hidden()
    drop(page, "slope.png", "image/png", png(np.full((20, 20, 3), 51, np.uint8)))
    wait(page, f"{MESSAGE}.includes('draw one')")
    assert torch.equal(picture_in(page, model), before)
    model = model_of(in_channels=1)
    page = show(live.page(model, pictures_of(model, 1)))
    drop(page, "red.png", "image/png", png(np.full((20, 20, 3), (255, 0, 0), np.uint8)))  # as grey as red looks
    wait(page, f"{MESSAGE}.startsWith('red.png')")
    assert (picture_in(page, model) - 0.299).abs().max() < 0.01


@browser_only
def test_a_picture_is_dropped(show, small):
    page = show(small)
    give = """([name, bytes]) => {
      const data = new DataTransfer(), { shadowRoot } = document.querySelector("[data-vit-live]");
      if (bytes) data.items.add(new File([Uint8Array.from(bytes)], name, { type: "image/png" }));
      shadowRoot.querySelector(".live").dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    }"""
    page.evaluate(give, ["", None])
    assert "not a file" in page.evaluate(MESSAGE)
    page.evaluate(give, ["grey.png", list(png(np.full((20, 20, 3), 51, np.uint8)))])
    wait(page, f"{MESSAGE}.includes('grey.png')")
    wait(page, "document.querySelector('[data-vit-live]').live.state.picture.every((v) => Math.abs(v - 0.2) < 1e-6)")


# ------------------------------------------------------------------------------------------------------ the model


@browser_only
def test_a_part_that_is_off_says_so_and_shows_no_work(show, digits):
    page = show(digits[0])
    for names, station, sentence in (
        (["block 1, attention"], "attention", "The attention of block 1 is switched off, so it adds nothing: z′ = z."),
        (["block 1, attention", "block 1, shortcut beside attention"], "attention", "z′ is all zeros"),
        (["block 1, MLP"], "mlp", "The MLP of block 1 is switched off, so it adds nothing: z = z′."),
        (["block 1"], "mlp", "All of block 1 is switched off: every token leaves it as it came in."),
    ):
        go(page, "what-if")
        for name in names:
            page.get_by_label(name, exact=True).click()
        go(page, station)
        assert sentence in text(page, f'[data-text="{station}Off"]')
        assert page.locator(f'[data-station="{station}"] .computation').is_hidden()
        page.get_by_text("Reset", exact=True).click()
        wait(page, SETTLED)
    go(page, "what-if")
    page.get_by_label("block 1, head 1", exact=True).click()
    go(page, "attention")
    assert text(page, '[data-text="headOff"]').startswith("In block 1, head 1 is switched off")
    ink = "all => all.map((e) => e.getContext('2d').getImageData(0, 0, 4, 4).data.some((v) => v))"
    assert page.locator(".heads canvas").evaluate_all(ink) == [False, True, True, True]
    assert page.locator(".panel .head-vectors").evaluate_all("all => all.every((e) => !e.checkVisibility())")
    assert text(page, ".watch .caption") == "This head is cut: nothing of it goes on."


@browser_only
def test_the_map_opens_stations_and_cuts_parts(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.get_by_label("block 3, head 4", exact=True).click()
    assert page.locator('[data-station="attention"]').is_visible()
    assert page.evaluate(f"[{STATE}.layer, {STATE}.head, {STATE}.changes.off.length]") == [2, 3, 0]
    assert page.locator('.layers input[value="2"]').is_checked()
    assert page.locator(".map [aria-current]").evaluate_all("all => all.map((e) => e.dataset.part)") == [
        "blocks.2.attention",
        "blocks.2.attention.heads.3",
    ]
    page.get_by_text("Cut parts", exact=True).click()
    page.get_by_label("block 3, attention", exact=True).click()
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess, {"off": ["blocks.2.attention"]})
    assert page.get_by_label("block 3, attention", exact=True).get_attribute("aria-pressed") == "false"
    cut = set(page.locator(".part.cut").evaluate_all("all => all.map((e) => e.dataset.part)"))
    assert cut == {"blocks.2.attention", *(f"blocks.2.attention.heads.{head}" for head in range(4))}
    assert page.locator("path.cut").count() == 8  # into each head, and out of it
    assert page.locator(".heads label.cut").count() == 4
    assert "switched off" in text(page, '[data-text="attentionOff"]')
    page.get_by_label("block 2", exact=True).click()
    assert page.locator("rect.cut").count() == 1
    assert page.locator('.part.cut[data-part^="blocks.1"]').count() == 7  # not its shortcuts: the tokens pass
    page.get_by_label("block 2", exact=True).click()
    assert "Small squares" in text(page, ".map-legend")
    page.get_by_text("Open parts", exact=True).click()
    page.get_by_label("block 1, MLP", exact=True).focus()
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Delete")
    off = ["blocks.2.attention", "blocks.0.mlp", "blocks.0.mlp.residual"]
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess, {"off": off})
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.locator(".part:focus").get_attribute("data-to") == "patches"
    for station, isCutting in (("what-if", True), ("layers", False)):
        page.locator(f'.map-toolbar [data-to="{station}"]').click()
        assert page.evaluate(f"{STATE}.isCutting") is isCutting
    page.locator('.map-toolbar [data-to="what-if"]').click()
    page.get_by_label("the classifier", exact=True).click(force=True)  # which can’t be cut
    assert page.evaluate(f"[{STATE}.station, {STATE}.isCutting]") == ["what-if", True]


@browser_only
def test_on_a_phone_the_map_is_scrolled_and_large_enough_for_a_finger(show, digits):
    page = show(digits[0], size=(390, 844))
    names = ["the picture, in patches", "block 1", "block 4", "the classifier"]
    boxes = [page.get_by_label(name, exact=True).bounding_box() for name in names]
    assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)
    parts = page.locator(".map [data-part]").evaluate_all("all => all.map((e) => e.getBoundingClientRect().toJSON())")
    assert min(min(part["width"], part["height"]) for part in parts) >= 20
    page.evaluate("location.hash = '#stop=16'")  # whose tasks are done on the map
    wait(page, f"{STATE}.stop === 15")
    assert page.evaluate(HIDDEN, ASKED[16]) == []
    page.get_by_label("the answer", exact=True).focus()  # as the arrow keys do
    box = page.get_by_label("the answer", exact=True).bounding_box()
    assert 0 < box["x"] < box["x"] + box["width"] < 390


@browser_only
def test_one_drag_is_one_change_to_undo(show, digits):
    page = show(digits[0])
    go(page, "what-if")
    drag = """(slider) => {
      for (const value of [1, 2, 3, 4, 5]) {
        slider.value = value;
        slider.dispatchEvent(new Event("input"));
      }
      slider.dispatchEvent(new Event("change"));
    }"""
    page.locator('[name="temperature"]').evaluate(drag)
    assert text(page, ".list") == "attention’s temperature 3.2."
    page.locator('[name="temperature"]').evaluate(drag.replace("5]", "10]"))
    page.get_by_text("Undo", exact=True).click()
    assert text(page, ".list") == "attention’s temperature 3.2."
    page.get_by_text("Undo", exact=True).click()
    assert text(page, ".list") == ""
    assert page.get_by_text("Undo", exact=True).is_disabled()


@browser_only
def test_what_a_part_answers_to_follows_what_is_pointed_at(show, digits, small):
    assert show(small).locator("[data-meaning]").count() == 0  # too few pictures to try the model on
    page = show(digits[0])
    go(page, "mlp")
    assert re.fullmatch(r"Unit \d+ of block 1 is excited most by these patches", text(page, '[data-meaning="unit"] h4'))
    page.locator('[data-show="hidden"] canvas[tabindex]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert text(page, '[data-meaning="unit"] h4') == "Unit 1 of block 1 is excited most by these patches"
    mark = page.locator('[data-show="hidden"] .mark:not(.source)')  # which stays
    assert mark.evaluate("(e) => e.style.left") == f"{100 * 1 / 96:.5f}%"
    assert page.locator('[data-meaning="unit"] canvas').count() == 6
    assert text(page, '[data-meaning="unit"] .note').startswith("Found in 200 pictures by the model as it was trained.")
    go(page, "attention")
    page.locator('.heads input[value="1"]').check(force=True)
    assert text(page, '[data-meaning="head"] h4') == (
        "In head 2 of block 1, the class token (not your patch) looks most at these patches"
    )


# ---------------------------------------------------------------------------------------------- links and the tour


@browser_only
def test_a_link_brings_the_same_state_back(show, digits, small):
    live_page, model, *_ = digits
    page = show(live_page)
    page.get_by_text("Clear", exact=True).click()
    draw(page, SEVEN)
    go(page, "what-if")
    page.get_by_label("block 3", exact=True).click()
    page.locator(".modes").get_by_text("taken away").click()
    page.get_by_role("button", name="class token").click()
    go(page, "attention")
    page.locator('.layers input[value="0"]').check(force=True)
    page.get_by_text("Copy link").click()
    wait(page, "location.hash.length > 100")
    fragment, said, picture = page.evaluate("location.hash"), text(page, ".prediction"), picture_in(page, model)
    again = show(live_page, fragment=fragment)
    assert (text(again, ".prediction"), text(again, ".list")) == (said, "block 3 off; no positions.")
    assert torch.equal(picture_in(again, model), picture)
    assert (text(again, ".picker .name"), again.locator('.layers input[value="0"]').is_checked()) == (
        "class token",
        True,
    )
    assert again.locator('[data-station="attention"]').is_visible()
    assert text(again, ".sentence") == text(page, ".sentence")
    assert text(again, "[data-do=next]") == "Return"  # to the first stop, which was left
    again.get_by_text("Copy link").click()
    again.locator(".link-status", has_text=re.compile(r"\S")).wait_for()  # the clipboard may take a moment
    assert again.evaluate("location.hash") == fragment
    assert not show(small, fragment=fragment).locator(".changes").is_visible()  # another model's


@browser_only
def test_a_link_that_is_pasted_into_an_open_page_is_obeyed(show, digits):
    page = show(digits[0], whole=False, fragment="#stop=10")
    page.get_by_label("block 1, head 2", exact=True).press("x")
    page.get_by_text("Copy link").click()
    wait(page, "location.hash.length > 100")
    fragment, said, sentence = page.evaluate("location.hash"), text(page, ".prediction"), text(page, ".sentence")
    page = show(digits[0])
    page.locator(".samples button").nth(4).click()
    page.evaluate("(hash) => { location.hash = hash; }", fragment)
    wait(page, f"{STATE}.stop === 9")
    assert (text(page, ".prediction"), text(page, ".list")) == (said, "head 2 of block 1 off.")
    assert (text(page, ".sentence"), text(page, ".count")) == (sentence, "10 of 16")
    assert text(page, "[data-do=next]") == "Next"
    page.get_by_text("Undo", exact=True).click()
    assert text(page, ".pad .hint") == "· right answer: 4"


@browser_only
def test_the_browser_s_back_steps_back(show, digits):
    page = show(digits[0])
    for _ in range(2):
        page.locator("[data-do=next]").click()
    page.go_back()
    wait(page, f"{STATE}.stop === 1")
    page.go_back()
    wait(page, f"{STATE}.stop === 0")
    page.go_forward()
    wait(page, f"{STATE}.stop === 1")
    assert text(page, ".count") == "2 of 16"
    assert show(digits[0], fragment="#stop=7").locator(".count").text_content() == "7 of 16"
    alone = show(digits[0].html)  # within somebody else's page, whose address isn't ours
    alone.locator("[data-do=next]").click()
    assert alone.evaluate("location.hash") == ""


@browser_only
def test_the_teacher_s_links_lead_to_the_stops_that_they_quote(show):
    rows = re.findall(
        r'^\| `live\.html#stop=(\d+)` \| "(.+?)" \|', (ROOT / "TEACHING.md").read_text("utf-8"), re.MULTILINE
    )
    page = show(live.shipped("digits", states=True), fragment="#stop=2", has_touch=True, size=(375, 700))
    assert [int(number) for number, _ in rows] == [*range(1, 1 + int(text(page, ".count").split()[-1]))]
    for number, words in rows:
        page.evaluate("(hash) => { location.hash = hash; }", f"#stop={number}")
        wait(page, f"{STATE}.stop === {int(number) - 1}")
        assert text(page, ".sentence").startswith(words)
        assert page.locator(".tour").evaluate("(tour) => tour.offsetHeight") <= 135  # of a phone's screen


# The words of all buttons, labels and parts.
CONTROLS = """[...document.querySelector("[data-vit-live]").shadowRoot.querySelectorAll("button, label")].flatMap(
  (one) => [...one.childNodes, ...one.querySelectorAll("span")].map((node) => node.textContent.trim()))"""


@browser_only
def test_exercises_and_teachers_pages_name_what_is_on_the_page(show):
    """In italics; and blocks and heads are counted from 1, as on the page."""
    notebooks = [json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "notebooks/solutions").glob("*.ipynb"))]
    cells = ["".join(cell["source"]) for notebook in notebooks for cell in notebook["cells"]]
    asked = [cell for cell in cells if "or make it with `vit-tutorial live`" in cell]
    lesson = (ROOT / "TEACHING.md").read_text("utf-8").split("## A first class with the live page")[1].split("\n## ")[0]
    controls = show(live.shipped("digits", states=True)).evaluate(CONTROLS)
    for words in (*asked, lesson):
        names = re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", re.sub(r"^\*Difficulty.*$", "", words, flags=re.MULTILINE))
        assert names, words
        assert set(names) <= set(controls)
    keys = [path.read_text("utf-8") for path in sorted((ROOT / "teaching").glob("*.md"))]
    assert not re.search(r"(block|head)s? 0", "".join([*asked, *keys]))


@browser_only
def test_a_click_on_the_map_leaves_the_task(show, digits):
    page = show(digits[0])
    page.locator("[data-do=next]").click()
    task = text(page, ".sentence")
    page.get_by_label("block 3, MLP", exact=True).click()
    assert page.locator('[data-station="mlp"]').is_visible()
    assert (text(page, ".sentence"), text(page, ".count")) == (task, "2 of 16")
    page.get_by_text("Return", exact=True).click()
    assert page.locator('[data-station="patches"]').is_visible()
    assert text(page, "[data-do=next]") == "Next"


def link_of(whole):
    return "#live=" + base64.urlsafe_b64encode(json.dumps(whole).encode()).decode().rstrip("=")


@browser_only
def test_a_damaged_link_starts_from_scratch(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.get_by_text("Clear", exact=True).click()
    page.get_by_text("Copy link").click()
    wait(page, "location.hash.length > 100")
    letters = page.evaluate("location.hash").removeprefix("#live=")
    whole = json.loads(base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4)))
    page = show(live_page, fragment=link_of(whole | {"layer": -1}))
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess)
    assert "damaged" in text(page, ".message")
    assert page.locator(".changes").is_hidden()
    assert page.locator('[data-station="patches"]').is_visible()
    page = show(live_page, fragment=link_of(whole | {"layer": 3}))
    assert float(picture_in(page, model).sum()) == 0
    assert text(page, ".message") == ""

    for damage in (
        {"id": "another"},
        {"layer": 99},
        {"station": "nowhere"},
        {"sample": 10},
        {"picture": base64.b64encode(bytes(63)).decode()},
        {"ink": base64.b64encode(bytes(100)).decode()},
        {"changes": {"off": [5]}},
        {"changes": None},
    ):
        page = show(live_page, fragment=link_of(whole | damage))
        wait(page, f"{MESSAGE}.includes('damaged')")
        assert text(page, ".prediction") == answer_of(model, samples[0], preprocess), damage
        assert page.locator('[data-station="patches"]').is_visible()
    assert "damaged" in text(show(live_page, fragment=f"#live={letters[:300]}"), ".message")


# How many things can be pressed, and which parts of the diagram are seen.
PRESSED = """() => [...document.querySelector("[data-vit-live]").shadowRoot.querySelectorAll("button, input, select")]
  .filter((e) => (e.closest("label") ?? e).checkVisibility()).length"""
PARTS = "all => all.filter((e) => e.checkVisibility()).map((e) => e.ariaLabel.replace(/block 1, |the /, ''))"


@browser_only
def test_the_first_screen_is_one_thing_and_the_diagram_grows_with_the_story(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800))
    assert page.evaluate(PRESSED) <= 12
    assert page.locator(".model-column").is_hidden()
    assert page.evaluate("document.documentElement.scrollHeight") <= 800
    assert text(page, "[data-do=next]") == "Start"
    sizes = []
    for _ in range(15):
        page.locator("[data-do=next]").click()
        sizes.append(page.locator(".map .part").evaluate_all(PARTS))
    assert sizes[0] == ["picture, in patches"]
    assert "head 4" in sizes[6]
    assert "MLP" not in sizes[9]
    assert "MLP" in sizes[10]
    assert all(set(before) <= set(after) for before, after in itertools.pairwise(sizes))
    assert len(sizes[-1]) == page.locator(".map .part").count()
    page = show(digits[0], whole=False)
    page.get_by_text("Show everything", exact=True).click()
    assert page.locator("[data-do=next]:focus").count() == 1
    assert page.locator(".map .part").evaluate_all(PARTS) == sizes[-1]
    assert page.locator(".map-toolbar").is_visible()


@browser_only
def test_the_tour_goes_through_all_stations_and_back(show, digits):
    page, seen, sentences, followed, others = show(digits[0], size=(1280, 800), whole=False), [], set(), [], []
    for number in range(1, 17):
        assert text(page, ".count") == f"{number} of 16"
        sentences.add(text(page, ".sentence"))
        assert page.locator(".tour-highlight").count() == 1
        assert page.locator(".tour-highlight").is_visible()
        seen.append(page.evaluate(f"{STATE}.station"))
        followed.append(text(page, ".picker .name"))
        if number == 2:
            page.locator(".picker canvas").click(position={"x": 5, "y": 5})
        if page.get_by_text("Another picture", exact=True).is_visible():
            others.append(number)
            page.get_by_text("Another picture", exact=True).click()
            assert text(page, ".pad .hint") == f"· right answer: {len(others)}"
        assert max(len(one.split()) for one in re.split(r"[.?!]", text(page, ".sentence"))) <= 15
        if number < 16:
            page.locator("[data-do=next]").click()
    assert len(sentences) == 16
    assert set(seen) == {"patches", "embedding", "positions", "attention", "mlp", "layers", "head", "what-if"}
    assert followed == [
        *["patch 10"] * 2,
        *["patch 0"] * 3,
        *["class token"] * 11,
    ]
    assert others == [3, 6, 13, 14, 15, 16]
    page.get_by_text("Back", exact=True).click()
    assert text(page, ".count") == "15 of 16"
    page.get_by_label("block 3, MLP", exact=True).click()
    go(page, "mlp")
    page.get_by_text("Return", exact=True).click()
    assert text(page, ".list") == "MLP of block 3 off."  # what the reader cut stays
    page.get_by_text("Next", exact=True).click()
    assert text(page, ".list") == ""
    assert text(page, ".sentence").startswith("All that you changed is reset. You have met every part.")
    page.get_by_text("Start again", exact=True).click()
    assert text(page, ".count") == "1 of 16"
    assert page.evaluate(f"[{STATE}.layer, {STATE}.head, {STATE}.token]") == [0, 0, 11]
    go(page, "patches")
    assert page.locator(".tour-highlight").count() == 0


@browser_only
def test_a_model_that_wasn_t_tried_on_pictures_and_has_no_class_token_has_its_story(show):
    model = model_of(pool="mean")
    page = show(live.page(model, pictures_of(model, 2)), whole=False)
    sentences = [text(page, ".sentence")]
    for _ in range(int(text(page, ".count").split()[-1]) - 1):
        page.locator("[data-do=next]").click()
        sentences.append(text(page, ".sentence"))
        assert page.locator(".tour-highlight").is_visible()
    assert any("fits the q of your patch best" in one for one in sentences)
    assert any("is it on, above 0?" in one for one in sentences)
    assert not any("class token" in one for one in sentences)


@browser_only
def test_a_shuffle_changes_the_answer(show, digits):
    page = show(digits[0])
    before = text(page, ".prediction")[0]
    go(page, "what-if")
    for _ in range(4):
        page.get_by_text("Shuffle all", exact=True).click()
        wait(page, f"{STATE}.changes.order !== null")
        assert text(page, ".prediction")[0] != before
        page.get_by_text("Reset", exact=True).click()
        assert text(page, ".prediction")[0] == before


@browser_only
def test_the_mathematics_of_a_stop_leaves_its_token_in_sight(show, digits):
    page = show(digits[0], whole=False, size=(1440, 900), fragment="#stop=4")
    page.locator('[data-station="embedding"] [data-do="fine"]').click()
    assert page.locator(".picker canvas").bounding_box()["width"] < 200
    assert page.evaluate(HIDDEN, ["[data-tour=token] .cells", "[data-show=E] .cells"]) == []


@browser_only
def test_whether_the_class_token_changes_with_the_picture_is_not_said_beforehand(show, digits):
    page = show(digits[0], whole=False, fragment="#stop=6")
    assert "same" not in page.locator('[data-station="positions"]').inner_text()
    numbers = page.locator("[data-tour=z0] .cells canvas")
    before = numbers.evaluate(PIXELS)
    page.locator("[data-do=another]").click()
    assert numbers.evaluate(PIXELS) == before
    assert "the same numbers" in text(page, ".sentence")


# The outputs of a notebook: a panel that is scrolled, and in it a box that could be.
NOTEBOOK = '<!doctype html><body><div style="height: 800px; overflow: auto"><div style="overflow: auto">{}</div></div>'


@browser_only
@pytest.mark.parametrize("around", ["{}", NOTEBOOK], ids=["alone", "notebook"])
def test_what_is_said_of_a_change_pushes_nothing_from_under_the_finger(show, digits, around):
    page = show(around.format(digits[0].html), whole=False, size=(390, 844))
    for _ in range(8):
        page.locator("[data-do=next]").click()
    page.locator(".guesses button").first.click()
    slider = page.locator('[name="temperature"]')
    slider.focus()
    before = slider.bounding_box()
    for key in ("ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
        wait(page, SETTLED)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert slider.bounding_box() == pytest.approx(before, abs=1)
    assert page.locator(".changes").is_hidden()
    page.locator('[name="temperature"]').press("ArrowLeft")
    reset = page.locator(".answer [data-do=reset]")
    reset.scroll_into_view_if_needed()
    before = reset.bounding_box()
    reset.click()
    assert text(page, ".list") == ""
    assert reset.bounding_box() == pytest.approx(before, abs=1)


@browser_only
def test_a_full_pad_is_said_to_be_full(show, digits):
    page = show(digits[0])
    draw(page, [(x, y / 20) for y in range(21) for x in ((0.01, 0.99) if y % 2 else (0.99, 0.01))])
    assert text(page, ".message").startswith("The pad is full.")


# Numbers of the first sample in head 1 of block 1, by name.
ATTENTION = """(name) => {
  const { run, samples } = document.querySelector("[data-vit-live]").live;
  return [...run(samples[0]).blocks[0].attention.heads[0][name]];
}"""
# The patches that may be guessed.
CHOICES = """() => [...document.querySelector("[data-vit-live]").shadowRoot.querySelectorAll(".guesses button")].map(
  (button) => Number(button.textContent.replace("patch ", "")))"""


def guess_each(page):
    """What is said of each choice at a stop that guesses."""
    for choice in range(3):
        page.locator(".guesses button").nth(choice).click()
        assert page.locator('[name="temperature"]').is_visible()
        assert page.locator("[data-do=play]:focus").count() == 1
        yield text(page, ".watch .caption")
        page.locator("[data-do=back]").click()
        page.locator("[data-do=next]").click()


@browser_only
def test_a_key_is_guessed_among_three_before_scores_are_shown(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=7")
    assert page.locator(".map [data-part*=heads]").first.is_hidden()
    assert page.locator(".heads").is_hidden()
    assert page.locator('[name="time"]').is_hidden()
    patches, scores = page.evaluate(CHOICES), page.evaluate(ATTENTION, "scaled")[1:17]
    assert patches == sorted(patches)
    assert {int(np.argmax(scores)), int(np.argmin(scores))} < set(patches)
    for patch, said in zip(patches, guess_each(page), strict=True):
        assert said.startswith(f"Patch {np.argmax(scores)} (row")
        assert said.endswith(": as you guessed." if patch == np.argmax(scores) else f"You guessed: patch {patch}.")
    page.locator(".guesses button").first.click()
    assert text(page, ".live-region") == text(page, ".watch .caption")
    page.locator(".stage").press("ArrowDown")  # now another token asks
    assert page.evaluate(f"{STATE}.token") == 1
    assert "guessed" not in text(page, ".watch .caption")


# How bright the tiles of the class token and the patches are, near a corner of each.
TILES = """(stage) => {
  const ratio = stage.width / stage.clientWidth, tile = Math.min(0.105 * stage.clientWidth, 0.084 * innerHeight, 64);
  const copy = new OffscreenCanvas(stage.width, stage.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(stage, 0, 0);
  return Array.from({ length: 17 }, (_, token) => {
    const [x, y] = token ? [((token - 1) % 4) * tile, tile + 8 + Math.floor((token - 1) / 4) * tile] : [0, 0];
    const [r, g, b] = copy.getImageData((x + 12) * ratio, (y + 12) * ratio, 1, 1).data;
    return r + g + b;
  });
}"""


@browser_only
def test_all_tiles_share_one_scale(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=8")
    weights = np.array(page.evaluate(ATTENTION, "weights")).reshape(17, 17)
    token = next(t for t in range(1, 17) if weights[t].argmax() == 0)  # that looks at the class token most
    page.locator(".guesses button").first.click()
    page.evaluate(f"{STATE}.token = {token}")
    page.locator('[name="time"]').fill("18")
    page.locator(".stage").press("ArrowDown" if token < 13 else "ArrowUp")
    page.locator(".stage").press("ArrowUp" if token < 13 else "ArrowDown")
    assert page.evaluate(f"{STATE}.token") == token
    bright = np.array(page.locator(".stage").evaluate(TILES))
    clear = weights[token] > 0.02
    assert (bright[clear].argsort() == weights[token][clear].argsort()).all()


# The colours of the 12 cells of three strips to the right of the tokens: red, green, blue and how opaque.
STRIPS = """(stage) => {
  const ratio = stage.width / stage.clientWidth, width = stage.clientWidth;
  const left = 4 * Math.min(0.105 * width, 0.084 * innerHeight, 64) + 0.16 * width;
  const label = 1.3 * parseFloat(getComputedStyle(stage).fontSize);
  const copy = new OffscreenCanvas(stage.width, stage.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(stage, 0, 0);
  return [1, 2, 3].map((place) => Array.from({ length: 12 }, (_, i) => {
    const [x, y] = [left + ((i + 0.5) * (width - left)) / 12, place * (label + 28) + label + 11];
    return [...copy.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data];
  }));
}"""


@browser_only
def test_before_the_guess_three_keys_lie_below_the_query(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=7")
    keys = np.array(page.evaluate(ATTENTION, "k")).reshape(17, 12)[1:][page.evaluate(CHOICES)]
    colours = np.array(page.locator(".stage").evaluate(STRIPS))
    assert (colours[..., 3] == 255).all()
    assert ((keys > 0) == (colours[..., 0] > colours[..., 2]))[np.abs(keys) > 0.2].all()


@browser_only
def test_the_largest_share_is_guessed_before_shares_are_shown(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=8")
    right = sum(max(page.evaluate(ATTENTION, "weights")[:17]) > np.array([0.2, 0.5]))
    assert [said.endswith(": as you guessed.") for said in guess_each(page)] == [choice == right for choice in range(3)]


# The level of grey four pixels within the corner of patch 1's tile; the tiles of patches lie below the class token's.
CORNER = """(stage) => {
  const tile = (0.42 * innerHeight) / 5;
  const { data } = stage.getContext("2d").getImageData(tile + 4, tile + 8 + 4, 1, 1);
  return [...data.subarray(0, 3)];
}"""


@browser_only
def test_the_patch_of_a_tile_is_seen_around_its_share_on_a_phone(show, digits):
    page = show(digits[0], whole=False, size=(844, 390), fragment="#stop=9")
    pixel = round(255 * float(digits[3][0][0, 0, 2]))  # at the corner of patch 1
    assert page.locator(".stage").evaluate(CORNER) == pytest.approx([pixel] * 3, abs=1)


@browser_only
def test_what_a_temperature_does_is_guessed_before_it_is_moved(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=9")
    scores = np.array(page.evaluate(ATTENTION, "scaled")[:17])
    now, halved = (f"{100 * np.exp(n * scores).max() / np.exp(n * scores).sum():.1f}" for n in (1, 2))
    said = list(guess_each(page))
    assert [one.endswith(": as you guessed.") for one in said] == [True, False, False]
    assert all(f"The largest share is {now} %, at half the temperature {halved} %" in one for one in said)
    page.locator(".guesses button").first.click()
    page.locator('[name="temperature"]').evaluate("(slider) => { slider.value = -3; slider.oninput(); }")
    wait(page, SETTLED)
    assert f"The largest share is {halved} %" in text(page, ".watch .caption")
    assert "guessed" not in text(page, ".watch .caption")  # the shares are others now


@browser_only
def test_attention_plays_pauses_and_steps(show, digits):
    page = show(digits[0], size=(1280, 800), reduced_motion="no-preference")
    slider = page.locator('[name="time"]')
    go(page, "attention")
    assert text(page, ".watch .caption").startswith("All that flowed in")  # whoever comes by themselves sees all of it
    pictures = {page.locator(".stage").evaluate(PIXELS)}
    page.get_by_text("Play", exact=True).click()
    wait(page, f"{TIME} > 2")
    page.get_by_text("Pause", exact=True).click()
    slider.fill("3")
    assert text(page, ".watch .caption").startswith("Patch 1 answers")
    pictures.add(page.locator(".stage").evaluate(PIXELS))
    page.get_by_text("Step", exact=True).click()
    assert text(page, ".watch .caption").startswith("Patch 2 answers")
    pictures.add(page.locator(".stage").evaluate(PIXELS))
    slider.press("ArrowRight")
    assert text(page, ".watch .caption").startswith("Patch 3 answers")
    slider.fill("18")
    assert text(page, ".watch .caption").startswith("Softmax squeezes")
    pictures.add(page.locator(".stage").evaluate(PIXELS))
    assert len(pictures) == 4
    page.emulate_media(reduced_motion="reduce")
    page.get_by_text("Play", exact=True).click()
    assert text(page, "[data-do=play]") == "Play"  # nothing moves: it is at the end
    assert text(page, ".watch .caption").startswith("All that flowed in")


# Whether a part of the stage to the right of the tokens and below q and k is drawn on.
IS_TAKING = """(stage) => {
  const [width, height] = [stage.width / 2, stage.height / 2];
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(stage, -width, -height);
  return copy.getImageData(0, 0, width, height).data.some((value) => value);
}"""


@browser_only
def test_nothing_is_taken_before_values_flow(show, digits):
    page = show(digits[0], size=(1280, 800))
    go(page, "attention")
    for time, isTaking in ((17, False), (18, False), (19, True), (35, True)):
        page.locator('[name="time"]').fill(str(time))
        assert page.locator(".stage").evaluate(IS_TAKING) is isTaking, time


# The times between frames, in milliseconds, while attention plays.
FRAMES = """async (count) => {
  const frame = () => new Promise(requestAnimationFrame), times = [];
  document.querySelector("[data-vit-live]").shadowRoot.querySelector("[data-do=play]").click();
  let last = await frame();
  for (let i = 0; i < count; i++) {
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  return times;
}"""


@browser_only
def test_attention_plays_within_the_time_that_a_frame_has(show, digits):
    """By the processor's time, as a busy machine shows frames late; pytest -s prints the clock's times, too."""
    page = show(digits[0], size=(1280, 800), reduced_motion="no-preference")
    go(page, "attention")
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy():
        metrics = client.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}["TaskDuration"]

    before = busy()
    times = page.evaluate(FRAMES, 200)
    cost = 1000 * (busy() - before) / len(times)
    median, late = np.percentile(times, [50, 95])
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"frames: {median:.1f} ms in the median, {late:.1f} ms at 95 %; {cost:.1f} ms of work each; load {load:.1f}")
    assert page.evaluate(TIME) > 2
    assert cost < 1000 / 60


@browser_only
def test_the_model_is_seen_to_learn(show):
    _, model, preprocess, samples = shipped("digits-patch2")
    page = show(live.shipped("digits", states=True))
    states = states_of("digits-patch2")
    untrained = copy.deepcopy(model)
    for place, (name, state) in enumerate(states.items()):
        page.locator('[name="learned"]').evaluate(f"(slider) => {{ slider.value = {place}; slider.oninput(); }}")
        wait(page, SETTLED)
        untrained.load_state_dict(state)
        assert text(page, ".prediction") == answer_of(untrained, samples[0], preprocess)
        assert text(page, ".list") == f"as it was after {name}."
    page.locator('[name="learned"]').press("End")
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess)
    assert page.locator(".changes").is_hidden()


@browser_only
def test_what_was_changed_is_said_beside_the_samples_which_stay_in_sight(show, digits):
    page = show(digits[0], size=(1440, 900), fragment="#stop=15")
    before = page.locator(".samples").bounding_box()
    page.get_by_label("block 1, shortcut beside attention", exact=True).click()
    assert text(page, ".list") == "the shortcut beside the attention of block 1 off."
    assert page.locator(".samples").bounding_box() == before
    assert page.evaluate(HIDDEN, [".samples button:last-child", ".changes"]) == []


@browser_only
def test_the_slider_stays_under_the_finger_that_moves_it(show):
    page = show(live.shipped("digits", states=True), whole=False, size=(844, 390), has_touch=True, fragment="#stop=15")
    slider = page.locator('[name="learned"]')
    before = slider.bounding_box()
    x, y = before["x"] + before["width"] - 8, before["y"] + before["height"] / 2
    finger = page.context.new_cdp_session(page)
    for kind, at in (("touchStart", x), ("touchMove", x - 20), ("touchMove", x - 80)):
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": at, "y": y}]})
        page.wait_for_timeout(100)
        wait(page, SETTLED)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert "as it was after" in text(page, ".list")
    assert slider.bounding_box() == pytest.approx(before, abs=1)


BLOCKS = range(4)
# What does each task, in their order; the last leaves the answer of this picture as it is, too.
CUTS = [
    ["blocks.0.attention"],
    ["blocks.2"],
    ["blocks.0.mlp.residual"],
    [f"blocks.{block}.mlp" for block in BLOCKS],
    [f"blocks.{block}.attention.heads.{head}" for block in BLOCKS for head in (1, 2)],
]


@browser_only
def test_tasks_are_done_by_cutting_parts_one_after_the_other(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=16")
    page.locator(".samples button").nth(6).click()
    for number, parts in enumerate(CUTS, 1):
        assert f"Task {number}: with " in text(page, ".sentence")
        for part in parts:
            assert f"Task {number}: with " in text(page, ".sentence")  # a part of it isn't enough
            page.locator(f'.map [data-part="{part}"]').click()
            wait(page, SETTLED)
        assert re.match(r"✓ 6, 9[\d.]+\s% → \d, ", text(page, ".sentence"))
        page.get_by_text("Reset", exact=True).first.click()
        assert text(page, ".sentence").startswith("Task " if number < len(CUTS) else "All tasks are done: go on")
    page.get_by_text("Another task", exact=True).click()
    assert text(page, ".sentence").startswith("Task 1: ")


@browser_only
def test_heads_are_cut_with_their_attention_too(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=16")
    for _ in range(4):
        page.get_by_text("Another task", exact=True).click()
    for block, starts in ((3, "Task 5: with half of all heads cut"), (4, "✓ ")):
        page.get_by_label(f"block {block}, attention", exact=True).click()
        assert text(page, ".sentence").startswith(starts)


@browser_only
def test_reset_at_the_end_of_the_page_leaves_the_reader_there(show, digits):
    page = show(digits[0], whole=False, size=(720, 450), fragment="#stop=16")
    page.get_by_label("block 3, attention", exact=True).click()
    page.locator(".next-pages").scroll_into_view_if_needed()
    before = page.locator(".next-pages").bounding_box()
    page.locator(".tour").get_by_text("Reset", exact=True).click()
    assert text(page, ".list") == ""
    assert page.locator(".next-pages").bounding_box() == pytest.approx(before, abs=1)


@browser_only
def test_a_task_is_not_done_by_anything_else(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=16")
    before = text(page, ".prediction")
    page.get_by_text("taken away", exact=True).click()
    page.get_by_label("block 1, attention", exact=True).click()
    wait(page, SETTLED)
    assert text(page, ".sentence").endswith(" Not yet: it asks for another change.")  # positions are away, too
    page.get_by_text("Reset", exact=True).first.click()
    page.get_by_label("block 3, attention", exact=True).click()
    wait(page, SETTLED)
    assert text(page, ".sentence").endswith(": not yet.")  # the answer is the same
    assert text(page, ".tour-prediction") == " → ".join([before, text(page, ".prediction")])
    for number in (2, 3, 4, 5, 1):
        page.get_by_text("Another task", exact=True).click()
        assert text(page, ".sentence").startswith(f"Press Reset. Task {number}: ")
    page.locator("[data-do=back]").click()
    page.locator("[data-do=next]").click()
    assert "Task 1: " in text(page, ".sentence")


# What each stop of the story asks for; the answer and another picture have more than one place.
ASKED = {
    1: [".pad > canvas", "[data-do=clear]", ".prediction, .tour-prediction"],
    2: [".picker canvas", "[data-tour=pixels] .cells"],
    3: [".picker canvas", "[data-tour=x] .cells", "[data-tour=token] .cells"],
    4: ["[data-tour=token] .cells", "[data-meaning=row] .example-patches"],
    5: [".picker canvas", "[data-tour=content] .cells", "[data-tour=position] .cells", "[data-tour=z0] .cells"],
    6: ["[data-do=another]", ".picker canvas", "[data-tour=z0] .cells"],
    7: [".stage", ".watch .caption"],
    8: [".stage", ".watch .caption", ".guesses button:last-child"],
    9: [".stage", ".watch .caption", ".guesses button:last-child"],
    10: [".heads", "[data-meaning=head] .example-patches"],
    11: [
        f"[data-tour={part}] .{what}" for part in ("joined", "old", "added", "middle") for what in ("cells", "reading")
    ],
    12: [
        "[data-tour=hidden] .cells",
        "[data-tour=list] .cells",
        "[data-meaning=unit] .example-patches",
        "[data-tour=mlp-adds] .cells",
        "[data-tour=mlp-sum] .cells",
    ],
    13: ["[data-do=another]", ".lens"],
    14: [
        "[data-do=another]",
        "[data-tour=pooled] .cells",
        "[data-tour=logits] .labels",
        "[data-tour=probabilities] .reading",
    ],
    15: [
        "[data-do=another]",
        ".tour-buttons button:first-child",
        ".tour-buttons button:last-child",
        '[data-part="blocks.0.attention.residual"]',
        '[data-part="blocks.3.mlp"]',
        ".prediction, .tour-prediction",
    ],
    16: [
        "[data-do=another]",
        "[data-do=next-task]",
        ".map-toolbar .modes",
        '[data-part="blocks.0.attention"]',
        '[data-part="blocks.3.mlp.residual"]',
        ".prediction, .tour-prediction",
    ],
}


# Those of some selectors none of whose elements is in sight: whole, on the screen, with nothing of the page over it.
HIDDEN = """async (asked) => {
  for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
  const root = document.querySelector("[data-vit-live]").shadowRoot;
  const isSeen = (element) => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    if (!element.checkVisibility() || left < 0 || right > innerWidth || top < 0 || bottom > innerHeight) return false;
    return element.closest(".tour") || top >= root.querySelector(".tour").getBoundingClientRect().bottom;
  };
  return asked.filter((one) => ![...root.querySelectorAll(one)].some(isSeen));
}"""


# Pixels between the frame of what a stop is about and what the tour covers.
BELOW_TOUR = """(tour) => {
  const covered = tour.getBoundingClientRect().bottom + parseFloat(getComputedStyle(tour).boxShadow.split(" ").at(-1));
  return tour.getRootNode().querySelector(".tour-highlight").getBoundingClientRect().top - 6 - covered;
}"""


# The words of buttons that are wider than their button.
SPILLED = "all => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"


@browser_only
@pytest.mark.parametrize("size", [(375, 700), (844, 390), (720, 450), (768, 1024), (1366, 650), (1920, 1080)])
def test_what_a_stop_asks_for_is_in_sight_beside_its_sentence(show, digits, size):
    page = show(digits[0], has_touch=True, size=size, whole=False)  # buttons for fingers take more room
    for number, asked in ASKED.items():
        assert text(page, ".count") == f"{number} of 16"
        assert page.evaluate(HIDDEN, [".sentence", ".pad > canvas, .tour-picture", *asked]) == [], number
        assert page.locator("button:not(.part, .skip)").evaluate_all(SPILLED) == [], number
        assert page.locator(".tour").evaluate(BELOW_TOUR) > -0.6, number  # heights are rounded
        page.locator("[data-do=next]").evaluate("(button) => button.click()")


@browser_only
def test_on_a_low_screen_the_diagram_is_never_seen_in_part(show, digits):
    page = show(digits[0], size=(720, 450), whole=False)
    below = """() => {
      const { shadowRoot } = document.querySelector("[data-vit-live]");
      const bottom = (part) => shadowRoot.querySelector(part).getBoundingClientRect().bottom;
      return bottom(".map-legend") - bottom(".tour");
    }"""
    for number in (10, 13):
        page.evaluate("(hash) => { location.hash = hash; }", f"#stop={number}")
        wait(page, f"{STATE}.stop === {number - 1}")
        assert page.evaluate(below) < 9, number  # as wide is the tour's white edge


@browser_only
def test_what_is_said_of_two_tokens_leaves_their_frame_in_sight(show, digits):
    page = show(digits[0], size=(720, 450), whole=False, fragment="#stop=5")
    page.locator(".picker canvas").click(position={"x": 5, "y": 5})
    assert "differ from those of" in text(page, "[data-tour=z0] .reading")
    box = page.locator("[data-tour=z0]").bounding_box()
    assert box["y"] + box["height"] + 6 <= 450  # the frame is as wide


# ----------------------------------------------------------------------------------------------- where it is shown


@browser_only
def test_several_on_a_page_are_independent_and_leave_no_global(show, small, digits):
    page = show(f"<!doctype html><body>{small.html}{digits[0].html}{small.html}", ready=3)
    page.locator('[data-to="what-if"]').nth(1).click()
    page.locator('[data-part="blocks.0"]').nth(1).click()
    assert [page.locator(".changes").nth(i).is_visible() for i in range(3)] == [False, True, False]
    mine = page.evaluate("Object.keys(window)")
    assert set(mine) == set(show("<!doctype html><body>", ready=0).evaluate("Object.keys(window)"))


# How JupyterLab and VS Code run the scripts of an output that they put into their page.
PUT = {"JupyterLab": "script.replaceWith(copy)", "VS Code": "place.append(copy); copy.remove()"}


@browser_only
@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_put_into_a_page_by_a_notebook(show, small, put):
    page = show("<!doctype html><body class='vscode-dark'><div></div>", ready=0)
    page.evaluate(
        "html => { const place = document.querySelector('div'); place.innerHTML = html;"
        "for (const script of [...place.querySelectorAll('script')]) {"
        "const copy = document.createElement('script'); copy.type = script.type; copy.text = script.text; "
        + put
        + " } }",
        small.html,
    )
    page.wait_for_selector("[data-ready]")
    assert page.locator("[data-theme]").get_attribute("data-theme") == "dark"
    go(page, "mlp")
    assert page.locator('[data-show="hidden"]').is_visible()


@browser_only
def test_the_page_of_real_photographs_lights_a_patch_s_kin(show):
    page = show(live.matches_page(), whole=False)
    assert page.locator("canvas").count() == 4
    page.locator("canvas").nth(2).hover(position={"x": 100, "y": 120})
    lit = page.locator("canvas").first.evaluate(PIXELS)
    page.locator("canvas").nth(2).hover(position={"x": 20, "y": 20})
    assert page.locator("canvas").first.evaluate(PIXELS) != lit
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@browser_only
def test_labels_are_shown_as_text(show):
    model = model_of()
    page = show(live.page(model, pictures_of(model, 2), HOSTILE, titles=HOSTILE[:2]))
    assert page.locator(".bars li span").all_text_contents() == HOSTILE
    go(page, "layers")
    go(page, "what-if")
    assert [image.get_attribute("alt") for image in page.locator(".samples img").all()] == HOSTILE[:2]
    assert page.evaluate("window.pwned") is None


@browser_only
def test_without_its_script_the_pictures_and_answers_remain(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page.html, ready=0, java_script_enabled=False)
    assert page.locator("img").count() == 10
    said = answer_of(model, samples[7], preprocess)
    assert page.locator("figcaption").nth(7).inner_text() == "7: " + said.replace(",", "")
    body = page.locator("body").inner_text()
    assert body.startswith("Watch a Vision Transformer think")
    assert len(body) < 500  # no data, no code


# What is wider than the window, or stands out to the right, at each station.
WIDE = """() => {
  const section = document.querySelector("[data-vit-live]").shadowRoot.querySelector(".live");
  return STATIONS.flatMap((station) => {
    section.querySelector(`[data-to="${station}"]`).click();
    const { right } = section.getBoundingClientRect();
    const out = [...section.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > right + 1 &&
      e.checkVisibility() && !e.closest(".spoken, input, .map")).map((e) => e.outerHTML.slice(0, 80));
    if (document.documentElement.scrollWidth > innerWidth) out.push("the page");
    const { bottom } = section.querySelector(".map-toolbar button:last-child").getBoundingClientRect();
    const picture = section.querySelector(".map .caption").getBoundingClientRect();
    if (picture.top < bottom && picture.left < section.querySelector(".map-toolbar").getBoundingClientRect().right) {
      out.push("a switch over the map");
    }
    return out.map((what) => `${station}: ${what}`);
  });
}""".replace("STATIONS", str(list(STATIONS)))


def assert_fits(page, width):
    """At a width, once the page has had two frames to follow it."""
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate(WIDE) == [], width


@browser_only
def test_fits_its_column_whatever_the_names(show, digits):
    page = show(digits[0])
    for width in (390, 600, 825, 1200):
        assert_fits(page, width)
    names = [letter * 300 for letter in "abc"]
    page = show(live.page(model_of(), pictures_of(model_of(), 3), names, titles=names))
    for width in (390, 1200):
        assert_fits(page, width)


@browser_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(show, digits, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    page = show(digits[0], color_scheme=scheme, bypass_csp=True)
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text("utf-8"))
    bad = set()
    for station in STATIONS if scheme == "light" else ("patches", "mlp", "layers", "what-if"):
        go(page, station)
        if station == "mlp":  # from here on, with all steps
            page.get_by_role("button", name="Show the mathematics").click()
        if station == "what-if":
            page.get_by_label("block 2, MLP", exact=True).click()
        # What stands beside the panel is the same at each station, so twice is enough for it.
        where = "document" if station in ("attention", "what-if") else "{fromShadowDom: ['[data-vit-live]', '.panel']}"
        rules = "runOnly: ['color-contrast'], " * (scheme == "dark")  # what else there is doesn't depend on colours
        found = page.evaluate(f"axe.run({where}, {{ {rules}resultTypes: ['violations'] }})")
        assert len(found["passes"]) > (0 if rules else 5)
        bad |= {f"{v['id']}: {n['html'][:200]}" for v in found["violations"] for n in v["nodes"][:3]
                if v["impact"] in ("serious", "critical")}  # fmt: skip
    assert bad == set()


# The visible text that is smaller than 14 pixels; but for what is raised or lowered.
SMALL_TEXT = """() => {
  const { shadowRoot } = document.querySelector("[data-vit-live]");
  const walker = document.createTreeWalker(shadowRoot, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const { parentElement: element, textContent } = walker.currentNode;
    const isRaised = element?.closest("sub, sup, style, .spoken");
    if (!element || !textContent.trim() || isRaised || !element.checkVisibility()) continue;
    if (parseFloat(getComputedStyle(element).fontSize) < 14) found.push(textContent.trim());
  }
  return found;
}"""


@browser_only
@pytest.mark.parametrize("size", [(1200, 900), (390, 844)])
def test_no_text_is_smaller_than_fourteen_pixels(show, digits, size):
    page = show(digits[0], size=size)
    for station in STATIONS:
        go(page, station)
        if station == "mlp":
            page.get_by_role("button", name="Show the mathematics").click()
        assert page.evaluate(SMALL_TEXT) == [], station


@browser_only
def test_forced_colours_keep_bars_frames_and_choices(show, digits):
    page = show(digits[0])
    page.emulate_media(forced_colors="active")
    style = "([e, name]) => getComputedStyle(e)[name]"

    def of(selector, name):
        element = page.locator(selector).first.element_handle()
        return page.evaluate(style, [element, name])

    assert "gradient" in of(".bars .top i", "backgroundImage")
    assert of(".tour-highlight", "outlineStyle") == "solid"
    assert of(".colours :checked + span", "outlineStyle") == "solid"
    assert of(".colours input:not(:checked) + span", "outlineStyle") == "none"
    page.emulate_media(forced_colors="none")


@browser_only
def test_follows_the_theme_of_the_page_else_the_system_s(show, digits):
    page = show(digits[0].html, color_scheme="dark")

    def becomes(theme, change):
        page.evaluate(change)
        wait(page, f"document.querySelector('[data-vit-live]').dataset.theme === '{theme}'")

    becomes("dark", "0")
    becomes("light", "document.body.dataset.jpThemeLight = 'true'")
    becomes("dark", "document.body.dataset.jpThemeLight = 'false'")
    page.emulate_media(color_scheme="light")
    becomes("light", "delete document.body.dataset.jpThemeLight")
    for kind, theme in (("vscode-dark", "dark"), ("vscode-light", "light"), ("vscode-high-contrast", "dark")):
        becomes(theme, f"document.body.className = '{kind}'")
    becomes("light", "document.body.className = 'vscode-high-contrast vscode-high-contrast-light'")
    becomes("dark", "document.body.className = ''; document.documentElement.dataset.theme = 'dark'")


@browser_only
def test_moves_nothing_where_the_reader_asked_for_none(show, small):
    durations = "e => [...e.getRootNode().querySelectorAll('*')].map(x => getComputedStyle(x).transitionDuration)"
    page = show(small)
    for wish, moves in (("reduce", False), ("no-preference", True)):
        page.emulate_media(reduced_motion=wish)
        assert (set(page.locator(".live").evaluate(durations)) != {"0s"}) is moves


@browser_only
def test_printed_it_is_a_worksheet_with_blanks(show, digits):
    page = show(digits[0], whole=False, fragment="#stop=8")
    page.locator(".guesses button").first.click()
    page.emulate_media(media="print")
    assert page.locator("button:not(.part), .page-notes, .bars").evaluate_all(
        "all => all.every((e) => !e.checkVisibility())"
    )
    assert page.locator(".stage").is_visible()
    assert page.locator(".sentence").is_visible()
    blank = "all => all.every((e) => getComputedStyle(e).color === 'rgba(0, 0, 0, 0)')"
    assert page.locator(".prediction, .part.answer").evaluate_all(blank)
    frames = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frames)  # in which the stage is drawn for paper
    printed = page.locator(".stage").evaluate(PIXELS)
    page.emulate_media(media="screen")
    page.evaluate(frames)
    assert page.locator(".stage").evaluate(PIXELS) != printed  # on paper there are no shares on it


@browser_only
def test_a_key_makes_it_large_for_a_class(show, digits):
    page = show(digits[0], whole=False, size=(1280, 800), fragment="#stop=4")
    size = "(e) => parseFloat(getComputedStyle(e).fontSize)"
    assert page.locator(".sentence").evaluate(size) < 17
    page.keyboard.press("p")
    assert page.locator(".sentence").evaluate(size) >= 24
    assert page.locator('[data-tour="token"] h4').evaluate(size) >= 20
    assert page.locator(".samples").is_hidden()
    assert page.locator('[data-station="embedding"] .lead').is_hidden()
    assert page.evaluate(HIDDEN, [".sentence", "[data-tour=token] .cells"]) == []
    page.keyboard.press("p")
    assert page.locator(".sentence").evaluate(size) < 17


@browser_only
def test_links_lead_on(show, small):
    model = model_of()
    page = show(live.page(model, pictures_of(model, 1), next_pages={"Lesson 01": "notebooks/01_patches.html"}))
    go(page, "what-if")
    assert page.locator(".next-pages a").get_attribute("href") == "notebooks/01_patches.html"
    with page.expect_file_chooser():
        page.get_by_text("A picture of your own").click()
    page = show(small)
    go(page, "what-if")
    assert page.locator(".next-pages a").count() == 0
    assert "--weights photographs" in text(page, ".next-pages")


WORDS = json.loads((ROOT / "vit_tutorial" / "live" / "words.json").read_text("utf-8"))
# What the words that are seen say.
SAID = "all => all.filter((e) => e.checkVisibility()).map((e) => e.getAttribute('aria-description'))"


def explained(page):
    """The words in sight that can be asked what they mean."""
    said = page.locator("dfn").evaluate_all(SAID)
    assert len(said) == len(set(said))  # each in one place
    return {word for word, meaning in WORDS.items() if meaning in said}


@browser_only
@pytest.mark.parametrize("size", [(1280, 800), (720, 450), (390, 844)])
def test_a_word_is_explained_where_it_is_first_seen(show, digits, size):
    page, met = show(digits[0], whole=False, size=size), set()
    for _ in range(16):
        words, sentence = explained(page), text(page, ".sentence")
        for word in WORDS:
            found = re.search(rf"\b{word}(s|es)?\b", sentence, re.IGNORECASE)
            assert not found or word in words, f"{word}: {sentence}"
            sentence = sentence[: found.start()] + sentence[found.end() :] if found else sentence
        met |= words
        page.locator("[data-do=next]").click()
    assert met > {"patch", "token", "bias", "softmax", "temperature", "head", "residual connection", "logits"}


@browser_only
@pytest.mark.parametrize("size", [(1280, 800), (720, 450), (390, 844)])
def test_every_word_of_the_list_is_explained(show, digits, size):
    page, met = show(digits[0], size=size), set()
    go(page, "mlp")
    page.get_by_role("button", name="Show the mathematics").click()
    for station in STATIONS:
        go(page, station)
        met |= explained(page)
    assert met == set(WORDS)


@browser_only
def test_an_explanation_opens_by_hover_and_by_focus_and_escape_closes_it(show, digits):
    page = show(digits[0], whole=False, fragment="#stop=8")
    word = page.locator(".sentence dfn", has_text="Softmax")
    shown = "(e) => getComputedStyle(e, '::after').content"
    for opens in (word.hover, word.focus):  # by Tab, or by a finger
        assert word.evaluate(shown) == "none"
        opens()
        assert word.evaluate(shown) == f'"{WORDS["softmax"]}"'
        assert word.evaluate("(e) => parseFloat(getComputedStyle(e, '::after').top) > e.offsetParent.clientHeight - 1")
        assert word.evaluate("(e) => parseFloat(getComputedStyle(e, '::after').fontSize)") >= 14
        page.keyboard.press("Escape")
    assert word.evaluate(shown) == "none"
    word.hover()
    page.mouse.move(0, 0)
    assert word.evaluate(shown) == "none"
