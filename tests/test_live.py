"""The live page: its numbers against PyTorch's, and what Chromium makes of it (skipped where there is none)."""

import base64
import copy
import dataclasses
import functools
import io
import json
import re
from contextlib import ExitStack
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from browser import browser_only, wait
from PIL import Image, ImageDraw

import vit_tutorial as vt
from vit_tutorial import live
from vit_tutorial.data import normalise
from vit_tutorial.live.command import samples_of, tried_on
from vit_tutorial.live.meaning import strongest
from vit_tutorial.live.page import Likeness
from vit_tutorial.variants import hybrid, modern

ROOT = Path(__file__).parent.parent
HOSTILE = ["</script><script>window.pwned = 1</script>", '"><img src=x onerror="window.pwned = 1">', "<!-- 'a' & b"]
SMALL = {"image_size": 16, "patch_size": 4, "dim": 24, "depth": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 3}
CONFIGS = {
    "plain": {},
    "rectangle": {"image_size": (12, 20), "patch_size": (3, 4), "in_channels": 1},
    "mean": {"pool": "mean", "position": "sincos"},
    "distilled": {"pool": "distilled", "gelu": "tanh"},
    "bare": {"position": "none", "qkv_bias": False, "norm_eps": 0.1, "in_channels": 2},
}
# What can be changed: {name: changes as the page has them}.
CHANGES = {
    "as trained": {},
    "a head off": {"off": ["blocks.0.attention.heads.1"]},
    "a block off": {"off": ["blocks.1"]},
    "an attention off": {"off": ["blocks.1.attention"]},
    "an MLP off": {"off": ["blocks.0.mlp"]},
    "the shortcut beside attention off": {"off": ["blocks.1.attention.residual"]},
    "the shortcut beside an MLP off": {"off": ["blocks.0.mlp.residual"]},
    "attention and its shortcut off": {"off": ["blocks.0.attention", "blocks.0.attention.residual"]},
    "no scale": {"scale": False},
    "warm attention": {"temperature": 2.5},
    "no positions": {"position": "none"},
    "reversed positions": {"position": "reversed"},
    "a warm answer": {"answer": 3},
    "hidden patches": {"hidden": [2, 3]},
    "moved patches": {"order": "reversed"},
    "repeated patches": {"order": "repeated", "hidden": [0]},
    "the extremes": {"scale": False, "temperature": 0.1},
    "many at once": {"off": ["blocks.0.attention.heads.0", "blocks.1.mlp"], "scale": False, "temperature": 0.5},
}


def model_of(**changes):
    """A small random model none of whose numbers is zero."""
    torch.manual_seed(0)
    model = vt.ViT(vt.ViTConfig(**(SMALL | changes)))
    for tensor in model.parameters():
        if tensor.abs().max() <= 1:
            torch.nn.init.normal_(tensor, std=0.4)
    for name, tensor in model.state_dict().items():
        if "norm" in name.split(".")[-2] and name.endswith("weight"):
            tensor.abs_().add_(0.5)
    return model.eval()


def pictures_of(model, count):
    c = model.config
    height, width = (c.image_size, c.image_size) if isinstance(c.image_size, int) else c.image_size
    return torch.randint(0, 256, (count, c.in_channels, height, width)) / 255


STATIONS = ("patches", "embedding", "positions", "attention", "mlp", "head", "layers", "looks", "what-if")


# -------------------------------------------------------------------------------------------- the same in PyTorch


def hooked(model, changes, seen):
    """The model with forward hooks that note every number in ``seen`` and make the changes; close it to undo them."""
    stack, off = ExitStack(), set(changes.get("off", []))
    c = model.config

    def after(module, hook):
        stack.callback(module.register_forward_hook(lambda m, inputs, output: hook(inputs[0], output)).remove)

    def note(name):
        return lambda x, y: seen.update({name: y[0]})

    def embedded(images, z):
        position = model.embed.position
        content = z if position is None else z - position
        if changes.get("position") == "none":
            z = content
        if changes.get("position") == "reversed" and position is not None:
            p = c.prefix_tokens
            z = content + torch.cat([position[:, :p], position[:, p:].flip(1)], dim=1)
        seen.update({"embed.content": content[0], "embed.position": (z - content)[0], "embed.tokens": z[0]})
        return z

    def divide(x, qkv):  # the kernel divides by √d alone, so the rest goes into q
        q, k, v = qkv.chunk(3, dim=-1)
        factor = (1 if changes.get("scale", True) else (c.dim // c.num_heads) ** 0.5) / changes.get("temperature", 1)
        return torch.cat([q * factor, k, v], dim=-1)

    after(model.embed.patches, note("embed.projected"))
    after(model.embed, embedded)
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}"
        after(block.norm1, lambda x, y, at=at: seen.update({f"{at}.input": x[0], f"{at}.norm1": y[0]}))
        after(block.attention.qkv, note(f"{at}.qkv"))
        after(block.attention.qkv, divide)

        def mute(module, inputs, at=at):
            joined = inputs[0].clone()
            for head in range(c.num_heads):
                d = c.dim // c.num_heads
                seen[f"{at}.attention.heads.{head}.sums"] = joined[0, :, head * d : (head + 1) * d].clone()
                if f"{at}.attention.heads.{head}" in off:
                    joined[..., head * d : (head + 1) * d] = 0
            seen[f"{at}.attention.joined"] = joined[0]
            return (joined,)

        stack.callback(block.attention.proj.register_forward_pre_hook(mute).remove)
        after(block.attention.proj, note(f"{at}.attention.out"))
        after(block.norm2, lambda x, y, at=at: seen.update({f"{at}.middle": x[0], f"{at}.norm2": y[0]}))
        after(block.mlp.fc1, note(f"{at}.mlp.before"))
        after(block.mlp.gelu, note(f"{at}.mlp.hidden"))
        after(block.mlp.fc2, note(f"{at}.mlp.out"))

        def branch(name, shortcut, at=at):
            def change(x, y):
                y = y * 0 if f"{at}.{name}" in off else y
                return y - seen[f"{at}.{shortcut}"][None] if f"{at}.{name}.residual" in off else y  # + z follows

            return change

        after(block.attention, branch("attention", "input"))
        after(block.mlp, branch("mlp", "middle"))
        after(block, lambda x, y, at=at: x if at in off else y)
        after(block, note(f"{at}.out"))
    after(model.norm, note("norm"))
    after(model.head, lambda x, y: seen.update(pooled=x[0], logits=y[0]))
    return stack


@torch.no_grad()
def stations(model, picture, preprocess, changes):
    """{name: array}: every number that the page shows, from the model, with the same changes by hooks."""
    c, seen = model.config, {}
    image = rearranged(c, picture[None].double(), preprocess, changes)
    image = image.to(next(model.parameters()).dtype)
    image = image if preprocess is None else normalise(image, preprocess)
    with hooked(model, changes, seen):
        model(image)
    seen["image"], seen["embed.patches"] = image[0], vt.patchify(image, c.patch_size)[0]
    seen["probabilities"] = (seen["logits"] / changes.get("answer", 1)).softmax(dim=0)
    d = c.dim // c.num_heads
    divisor = (d**0.5 if changes.get("scale", True) else 1) * changes.get("temperature", 1)
    for layer in range(c.depth):
        qkv = seen.pop(f"blocks.{layer}.qkv").unflatten(-1, (3, c.num_heads, d))  # (T, 3, h, d)
        for head in range(c.num_heads):
            q, k, v = qkv[:, :, head].unbind(1)  # (T, d)
            one = {"q": q, "k": k, "v": v, "scores": q @ k.T, "scaled": q @ k.T / divisor}
            one["weights"] = one["scaled"].softmax(dim=-1)
            seen.update({f"blocks.{layer}.attention.heads.{head}.{name}": array for name, array in one.items()})
    return {name: array.numpy().ravel() for name, array in seen.items()}


def rearranged(config, images, preprocess, changes):
    patches = vt.patchify(images, config.patch_size).clone()
    if changes.get("order"):
        patches = patches[:, changes["order"]]
    mean = torch.tensor(preprocess.mean if preprocess else [0.0] * config.in_channels).double()
    patches[:, changes.get("hidden", [])] = mean.repeat_interleave(patches.shape[2] // config.in_channels)
    return vt.unpatchify(patches, config.patch_size, images.shape[-2:])


def data_of(html):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])


def spelt(changes, config):
    """The changes with the orders of this model's patches in them."""
    N = config.grid[0] * config.grid[1]
    orders = {"reversed": [*range(N)][::-1], "repeated": [1] * N}
    return changes | ({"order": orders[changes["order"]]} if isinstance(changes.get("order"), str) else {})


# ------------------------------------------------------------------------------------------------------ in a browser


@pytest.fixture
def show(show):
    """Without motion, unless a test is about it: a click waits until what scrolls stands still."""
    return lambda content, **how: show(content, **({"reduced_motion": "reduce"} | how))


MESSAGE = "document.querySelector('[data-vit-live]').shadowRoot.querySelector('.message').textContent"


# Numbers go there and back as base64 of float32: Playwright looks at each number of a list, there and here.
NUMBERS = "const numbers = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);"

# A run's arrays by name.
RUN = """([values, changes, lens, host]) => {
  NUMBERS
  const { live } = document.querySelectorAll("[data-vit-live]")[host], found = {};
  const text = (array) => {
    let out = "";
    const b = new Uint8Array(new Float32Array(array).buffer);
    for (let i = 0; i < b.length; i += 32768) out += String.fromCharCode(...b.subarray(i, i + 32768));
    return btoa(out);
  };
  const walk = (thing, name) => {
    if (ArrayBuffer.isView(thing)) found[name] = text(thing);
    else if (thing && typeof thing === "object") {
      for (const key in thing) walk(thing[key], name ? `${name}.${key}` : key);
    }
  };
  const result = live.run(numbers(values), changes);
  walk(lens ? live.lens(result) : result, "");
  return found;
}""".replace("NUMBERS", NUMBERS)


def sent(pictures):
    return base64.b64encode(pictures.numpy().astype("<f4").tobytes()).decode()


def run_in(page, picture, changes, *, lens=False, host=0):
    found = page.evaluate(RUN, [sent(picture), changes, lens, host])
    return {name: np.frombuffer(base64.b64decode(text), "<f4") for name, text in found.items()}


def compare(found, right, tolerance=1e-6):
    assert set(right) == set(found)
    for name, array in right.items():
        assert found[name].shape == array.shape, name
        assert np.abs(found[name] - array).max() <= tolerance * max(np.abs(array).max(), 1e-6), name


@functools.cache
def shipped(name):
    model, classes, preprocess = vt.load(name)
    samples, titles, tried = samples_of(name), classes, tried_on(name)
    return model, preprocess, samples, live.page(model, samples, classes, preprocess, titles=titles, tried=tried)


def together(pages):
    """Several pages on one."""
    return f"<!doctype html><body>{''.join(page.html for page in pages)}"


@pytest.fixture(scope="module")
def small():
    """A small model, four random pictures, and their page."""
    model, pictures = model_of(), pictures_of(model_of(), 4)
    return model, pictures, live.page(model, pictures, ["one", "two", "three"])


# The first token at every station, and a patch: which of the headings was seen.
WALK = """(host) => {
  const root = document.querySelectorAll("[data-vit-live]")[host].shadowRoot;
  const canvas = root.querySelector(".picker canvas");
  return STATIONS.map((station, number) => {
    root.querySelector(`[data-to="${station}"]`).click();
    for (const key of [...Array(number ? 0 : 3).fill("ArrowUp"), "ArrowDown", "ArrowUp"]) {
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }
    return root.querySelector(`[data-station="${station}"] h3`).checkVisibility() && station;
  });
}""".replace("STATIONS", str(list(STATIONS)))


@browser_only
def test_every_number_of_every_kind_of_model_is_pytorch_s(show):
    models = [model_of(**changes) for changes in CONFIGS.values()]
    pictures = [pictures_of(model, 1) for model in models]
    page = show(together(map(live.page, models, pictures)), ready=len(CONFIGS))
    for host, (model, (picture,)) in enumerate(zip(models, pictures, strict=True)):
        compare(run_in(page, picture, {}, host=host), stations(copy.deepcopy(model).double(), picture, None, {}))
        assert tuple(page.evaluate(WALK, host)) == STATIONS


# The parts that came after 2020, all of them, in models of well-known kinds, but for deit3 and dinov2, whose
# parts the last one has.
MODERN = {name: parts for name, parts in modern.ARCHITECTURES.items() if name not in ("deit3", "dinov2")} | {
    "rms norm, norms of q and k": {"norm": "rms", "qk_norm": True, "pool": "cls+mean", "registers": 2},
    "registers without a class token": {"class_token": False, "registers": 3, "pool": "mean", "pool_prefix": True},
    "attention's norm": {"attention_norm": True, "mlp_norm": True, "pool": "attention", "pool_heads": 2},
    "no classes": modern.ARCHITECTURES["dinov2"] | {"num_classes": 0},
}


def modern_model(parts):
    torch.manual_seed(0)
    model = modern.build(modern.ModernConfig(**(SMALL | {"num_heads": 2} | parts)))
    for name, tensor in model.named_parameters():
        torch.nn.init.normal_(tensor, mean=float("norm" in name and name.endswith("weight")), std=0.4)
    return model.eval()


@torch.no_grad()
def modern_numbers(model, picture):
    """What the page must show of a later model: tokens, attention maps, and what the head reads and says."""
    images = picture[None].double()
    z = model.embed(images)
    seen = {"embed.tokens": z[0]}
    for layer, block in enumerate(model.blocks_for(images)):
        maps = block.attention_weights(z)[0]
        seen |= {f"blocks.{layer}.attention.heads.{head}.weights": one for head, one in enumerate(maps)}
        seen |= {f"blocks.{layer}.input": z[0], f"blocks.{layer}.middle": block.attend(z)[0]}
        z = block(z)
        seen[f"blocks.{layer}.out"] = z[0]
    return seen | {"norm": model.norm(z)[0], "logits": model(images)[0]}


@browser_only
def test_the_numbers_of_later_models_are_pytorch_s(show):
    models = [modern_model(parts) for parts in MODERN.values()]
    pictures = [pictures_of(model, 3) for model in models]
    page = show(together(map(live.page, models, pictures)), ready=len(MODERN))
    for host, model in enumerate(models):
        double = copy.deepcopy(model).double()
        if not model.config.num_classes:  # a head of cosines with the three pictures
            read = torch.nn.functional.normalize(double(pictures[host].double()), dim=-1)
            double.head = Likeness(*reversed(read.shape), bias=False).double()
            double.head.weight = torch.nn.Parameter(read)
        for off in ([], ["blocks.0.attention", "blocks.1.mlp"]):
            found = run_in(page, pictures[host][0], {"off": off}, host=host)
            parts = [double.get_submodule(part) for part in off]
            hooks = [part.register_forward_hook(lambda module, inputs, output: 0 * output) for part in parts]
            right = modern_numbers(double, pictures[host][0])
            for hook in hooks:
                hook.remove()
            for name, array in right.items():
                if "heads" in name and off:
                    continue  # what a part that is off would have done
                expected = array.numpy().ravel()
                assert np.abs(found[name] - expected).max() <= 2e-6 * np.abs(expected).max(), (host, off, name)
        plain, warm = (run_in(page, pictures[host][0], {"temperature": t}, host=host) for t in (1, 2))
        assert np.allclose(plain["blocks.0.attention.heads.1.scaled"] / 2, warm["blocks.0.attention.heads.1.scaled"])
        assert tuple(page.evaluate(WALK, host)) == STATIONS
        c = model.config
        said = {
            name: page.locator(f'[data-text="{name}"]').nth(host).text_content() for name in ("pooling", "classToken")
        }
        reads_all = c.pool != "cls" and c.pool_prefix
        assert ("all tokens" in said["pooling"], "all patches" in said["pooling"]) == (
            reads_all,
            c.pool != "cls" and not reads_all,
        )
        assert ("will collect the answer" in said["classToken"]) is (c.class_token and c.pool in ("cls", "cls+mean"))
        assert (f"{c.registers} register" in said["classToken"]) is (c.registers > 1)
        made = page.locator('[data-text="classifier"]').nth(host).text_content()
        assert made.startswith("It is one more learned table" if c.num_classes else "It compares that with")
        first = page.locator('[data-station="patches"] [data-text="special"]').nth(host).text_content()
        assert first == (next(iter(vt.pages.special_tokens(c)), first))


@browser_only
def test_both_tours_go_through_later_models(show):
    for parts, tour in ((MODERN["no classes"], "The story"), (modern.ARCHITECTURES["siglip"], "Follow one token")):
        model = modern_model(parts)
        page = show(live.page(model, pictures_of(model, 2), tried=pictures_of(model, 6)))
        if tour != "The story":  # with which it begins
            page.get_by_text(tour, exact=True).click()
        while text(page, "[data-do=next]") == "Next":
            page.get_by_text("Next", exact=True).click()
            assert page.locator(".spot").is_visible()


@browser_only
def test_every_number_after_each_change_is_pytorch_s(show):
    models = [model_of(**CONFIGS[kind]) for kind in ("plain", "mean", "distilled")]
    pictures = [pictures_of(model, 1) for model in models]
    preprocess = vt.data.Preprocessing((16, 16), (0.2, 0.4, 0.7), (1.0, 0.8, 0.9))
    made = [live.page(model, picture, None, preprocess) for model, picture in zip(models, pictures, strict=True)]
    page = show(together(made), ready=3)
    for host, (model, (picture,)) in enumerate(zip(models, pictures, strict=True)):
        double = copy.deepcopy(model).double()
        plain = stations(double, picture, preprocess, {})
        for name, change in CHANGES.items():
            changes = spelt(change, model.config)
            right = stations(double, picture, preprocess, changes)
            compare(run_in(page, picture, changes, host=host), right)
            if name != "as trained":
                assert np.abs(right["probabilities"] - plain["probabilities"]).max() > 1e-4, name


@browser_only
@pytest.mark.parametrize(("name", "change"), [("digits-patch2", "moved patches"), ("photographs", "as trained")])
def test_every_number_of_the_shipped_models_is_pytorch_s(show, name, change):
    model, preprocess, samples, live_page = shipped(name)
    changes, double = spelt(CHANGES[change], model.config), copy.deepcopy(model).double()
    compare(run_in(show(live_page), samples[1], changes), stations(double, samples[1], preprocess, changes))


@browser_only
@torch.inference_mode()
def test_the_logit_lens_is_the_head_after_each_layer(show):
    models = [
        *(model_of(pool=kind) for kind in ("cls", "mean", "distilled")),
        modern_model(modern.ARCHITECTURES["beit"]),
    ]
    pictures = [pictures_of(model, 1) for model in models]
    page = show(together(map(live.page, models, pictures)), ready=4)
    for host, (model, picture) in enumerate(zip(models, pictures, strict=True)):
        found, kind = run_in(page, picture, {}, lens=True, host=host), model.config.pool
        z = model.embed(picture)
        steps = [z, *(z := block(z) for block in model.blocks_for(picture))]
        patches, pool_norm = slice(model.config.prefix_tokens, None), getattr(model, "pool_norm", torch.nn.Identity())
        for step, z in enumerate(map(model.norm, steps)):
            pooled = {"cls": z[:, 0], "mean": z[:, patches].mean(dim=1), "distilled": z[:, :2].flatten(1)}[kind]
            right = model.head(pool_norm(pooled)).softmax(dim=-1)[0].numpy()
            assert np.allclose(found[f"{step}.answer"], right, atol=1e-5)
            if kind != "distilled":  # its head reads two tokens at once
                right = model.head(pool_norm(z)).softmax(dim=-1)[0].numpy().ravel()
                assert np.allclose(found[f"{step}.tokens"], right, atol=1e-5)
        assert len(steps) == model.config.depth + 1 == sum(name.endswith("answer") for name in found)


@browser_only
def test_a_photograph_is_cropped_and_resized_as_the_package_does(show):
    random, cases, pages = np.random.RandomState(0), [], []
    for (height, width), crop, size, channels, how in [
        ((40, 70), "center", (16, 16), 3, {}),
        ((90, 50), 0.875, (16, 16), 3, {"interpolation": "bilinear"}),
        ((51, 40), 0.8, (12, 20), 3, {"interpolation": "lanczos"}),
        ((40, 50), 0.9, (12, 20), 3, {"squash": True}),
        ((33, 47), "none", (12, 20), 1, {}),
        ((7, 9), "center", (12, 20), 1, {"interpolation": "nearest"}),
    ]:
        pixels = random.randint(0, 256, (height, width, 3)).astype(np.uint8)
        preprocess = vt.data.Preprocessing(size, (0.0,) * channels, (1.0,) * channels, crop, **how)
        model = model_of(image_size=size, patch_size=4, in_channels=channels)
        pages.append(live.page(model, pictures_of(model, 1), None, preprocess))
        cases.append((pixels, preprocess))
    page = show(together(pages), ready=len(pages))
    for host, (pixels, preprocess) in enumerate(cases):
        rgba = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
        found = page.evaluate(
            "([host, rgba, size]) => [...document.querySelectorAll('[data-vit-live]')[host].live.fitPhoto(rgba, size)]",
            [host, rgba.ravel().tolist(), pixels.shape[:2]],
        )
        right = preprocess(Image.fromarray(pixels)).numpy().ravel()
        assert np.abs(np.array(found) - right).max() <= 2.01 / 255, preprocess


# -------------------------------------------------------------------------------------------------- what it shows


@pytest.fixture(scope="module")
def digits():
    """The digits model with 4 x 4 patches, its page, and the model in float64 with its preprocessing."""
    model, preprocess, samples, page = shipped("digits-patch2")
    return page, copy.deepcopy(model).double(), preprocess, samples


# Whether a page computes nothing: what it shows is of the newest picture and changes.
SETTLED = """[...document.querySelectorAll("[data-ready]")].every((host) =>
  !host.shadowRoot.querySelector('.answer[aria-busy="true"]'))"""


def text(page, selector):
    wait(page, SETTLED)
    return page.locator(selector).first.text_content()


# Opens a station, at the chosen block.
GO = """(station) => {
  const { live, shadowRoot } = document.querySelector("[data-vit-live]");
  shadowRoot.querySelector('[name="cutting"][value="open"]').click();
  const part = `[data-part="blocks.${live.state.layer}.${station}"]`;
  (shadowRoot.querySelector(part) ?? shadowRoot.querySelector(`[data-to="${station}"]`)).click();
}"""


def go(page, station):
    page.evaluate(GO, station)
    wait(page, SETTLED)


def picture_in(page, model):
    values = page.evaluate("[...document.querySelector('[data-vit-live]').live.state.picture]")
    c = model.config
    return torch.tensor(values).reshape(c.in_channels, *vt.patches.as_pair(c.image_size, "image_size"))


def answer_of(model, picture, preprocess, changes=None):
    shares = stations(model, picture, preprocess, changes or {})["probabilities"]
    return f"{shares.argmax()}, {100 * shares.max():.1f} %"


def draw(page, points):
    box = page.locator(".pad > canvas").bounding_box()
    (x, y), *rest = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(x, y)
    page.mouse.down()
    for x, y in rest:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


SEVEN = [(0.25, 0.12), (0.75, 0.12), (0.45, 0.9)]


@browser_only
def test_the_answer_follows_the_pen(show, digits):
    page, (live_page, model, preprocess, samples) = None, digits
    page = show(live_page)
    assert text(page, ".said") == answer_of(model, samples[0], preprocess)
    page.get_by_text("Clear", exact=True).click()
    assert float(picture_in(page, model).sum()) == 0
    draw(page, SEVEN)
    picture = picture_in(page, model)
    assert 4 < float(picture.sum()) < 30
    assert ((16 * picture) % 1 == 0).all()  # in the steps of the pictures that it learned from
    assert text(page, ".said") == answer_of(model, picture, preprocess)
    assert text(page, ".said").startswith("7, ")
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
    assert text(page, ".said") == answer_of(model, picture[None], preprocess)
    assert text(page, ".said").startswith("7, ")
    assert re.fullmatch(r"The model sees it 1\.[5-9] times as large and in the middle, .*", text(page, ".message"))
    page.keyboard.press("Tab")
    page.locator(".pad > canvas").press("Delete")
    assert float(picture_in(page, model).sum()) == 0
    page.get_by_text("Undo", exact=True).click()  # Delete can be undone, too
    assert torch.equal(picture_in(page, model)[0], picture)
    page.get_by_text("Clear", exact=True).click()
    draw(page, [(0.5, 0.5), (0.5, 0.52)])  # a dot stays one
    assert picture_in(page, model)[0].sum() < 16


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
          shown.push([".said", ".list", ".difference"].map((name) => root.querySelector(name).textContent));
        }}
      }}
      return shown;
    }}""")
    without = {"off": ["blocks.0.mlp"]}
    right = {(answer_of(model, picture, preprocess), "") for picture in samples[:7]}
    right |= {(answer_of(model, picture, preprocess, without), "MLP of block 0 off.") for picture in samples[:7]}
    assert {(said, changes) for said, changes, _ in shown} <= right  # never a mixture of two
    assert answer_of(model, samples[1], preprocess) not in {said for said, *_ in shown}  # given up on the way
    assert shown[31][0] == answer_of(model, samples[2], preprocess)
    assert shown[-1][:2] == [answer_of(model, samples[6], preprocess, without), "MLP of block 0 off."]
    was = answer_of(model, samples[6], preprocess).replace(",", " was")
    assert shown[-1][2].startswith(f"{was} and is ")
    go(page, "head")
    page.locator('[data-show="logits"] canvas:not(.under)').press("Home")
    logits = stations(model, samples[6], preprocess, without)["logits"]
    assert number_in(text(page, '[data-show="logits"] .reading')) == pytest.approx(logits[0], rel=1e-3)


@browser_only
def test_the_answer_follows_a_pen_that_never_rests(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.evaluate(SLOW_CLOCK)
    pictures, shown = page.evaluate(f"""async () => {{
      {FRAME}
      const host = document.querySelector("[data-ready]"), root = host.shadowRoot, pictures = [];
      const canvas = root.querySelector(".pad > canvas");
      const {{ left, top, width, height }} = canvas.getBoundingClientRect();
      canvas.setPointerCapture = () => {{}};
      canvas.hasPointerCapture = () => true;
      const send = (kind, part) => {{
        const [x, y] = [0.5 + 0.4 * Math.cos(6 * part), 0.5 + 0.4 * Math.sin(7 * part)];
        const place = {{ clientX: left + x * width, clientY: top + y * height, pointerId: 1 }};
        canvas.dispatchEvent(new PointerEvent(kind, place));
      }};
      send("pointerdown", 0);
      for (let i = 1; i <= 60; i++) {{
        send("pointermove", i / 60);
        pictures.push([...host.live.state.picture]);
        await frame();
        shown.push(root.querySelector(".said").textContent);
      }}
      send("pointerup", 1);
      return [pictures, shown];
    }}""")
    c = model.config
    drawn = [torch.tensor(values).reshape(1, *c.image_size) for values in pictures]
    right = [answer_of(model, picture, preprocess) for picture in (samples[0], *drawn)]
    assert set(shown) <= set(right)
    assert len(set(shown)) >= 3
    assert text(page, ".said") == answer_of(model, picture_in(page, model), preprocess) == right[-1]


@browser_only
def test_draws_with_the_keyboard_alone(show, digits):
    live_page, model, preprocess, _ = digits
    page = show(live_page)
    for _ in range(3):  # Follow one token, and the tour’s next stop
        page.keyboard.press("Tab")
    for key in ["Delete", *["ArrowUp"] * 7, " ", *["ArrowDown"] * 14, " "]:
        page.keyboard.press(key)
    picture = picture_in(page, model)
    assert picture[0, :, 3:5].sum() > 0.8 * picture.sum() > 3
    assert text(page, ".said") == answer_of(model, picture, preprocess)
    assert text(page, ".live-region").startswith(("It says 1", "Pen up"))


# What three keys read of the cells of a place, and what is said aloud: its first number, the second, and the last.
READ = """(place, number) => {
  const canvas = place.querySelectorAll("canvas:not(.under)")[number];
  const reading = place.querySelectorAll(".reading")[number];
  return ["Home", "ArrowRight", "End"].map((key) => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
    return [reading.textContent, place.getRootNode().querySelector(".live-region").textContent];
  });
}"""


def number_in(reading):
    number = float(reading.removesuffix(" %").rpartition(" ")[2].replace("−", "-"))
    return number / 100 if reading.endswith(" %") else number


@browser_only
def test_every_station_shows_the_numbers_of_the_chosen_token(show, digits):
    live_page, model, preprocess, samples = digits
    page, c = show(live_page), model.config
    T, D, d = c.num_tokens, c.dim, c.dim // c.num_heads
    page.locator(".samples button").nth(3).click()
    page.locator(".picker canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    token = 1 + 3 * 4 + 3
    assert (text(page, ".picker .name"), text(page, ".picker .place")) == ("patch 15", "row 3, column 3")
    right = stations(model, samples[3], preprocess, {})
    block, head = "blocks.1", "blocks.1.attention.heads.2"
    projection, tokens = model.embed.patches.proj.weight, right["embed.projected"].reshape(-1, D)
    shown = {
        "patches": {"x": right["embed.patches"].reshape(16, -1)[token - 1]},
        "embedding": {"E": projection[0], "projected": tokens[token - 1]},
        "positions": {"content": "embed.content", "position": "embed.position", "z0": "embed.tokens"},
        "attention": {
            **{"z": f"{block}.input", "norm1": f"{block}.norm1", "joined": f"{block}.attention.joined"},
            **{"attended": f"{block}.attention.out", "middle": f"{block}.middle"},
            **{name: f"{head}.{name}" for name in ("q", "k", "v", "sums")},
        },
        "mlp": {
            **{"middle": f"{block}.middle", "norm2": f"{block}.norm2", "before": f"{block}.mlp.before"},
            **{"hidden": f"{block}.mlp.hidden", "mlp": f"{block}.mlp.out", "out": f"{block}.out"},
        },
        "head": {
            **{"last": "blocks.3.out", "norm": "norm"},
            **{name: right[name] for name in ("pooled", "logits", "probabilities")},
        },
    }
    maps = {"scores": f"{head}.scores", "scaled": f"{head}.scaled", "weights": f"{head}.weights"}

    def row(array):
        if isinstance(array, str):
            return right[array].reshape(T, -1)[token]
        return array.detach().numpy().ravel() if isinstance(array, torch.Tensor) else array

    def check(place, values, number=0):
        assert place.is_visible()
        said = place.evaluate(READ, number)
        for (shown, spoken), value in zip(said, (values[0], values[min(1, len(values) - 1)], values[-1]), strict=True):
            least = 6e-5 if shown.endswith(" %") else 1e-4 * np.abs(values).max()
            assert number_in(shown) == pytest.approx(float(value), rel=1e-3, abs=least), shown
            assert spoken == shown

    for station, names in shown.items():
        go(page, station)
        if station == "embedding":
            page.get_by_role("button", name="Show the mathematics").click()
        if station == "attention":
            page.locator('.layers input[value="1"]').check(force=True)
            page.locator('.heads input[value="2"]').check(force=True)
            for name, array in maps.items():
                place = page.locator(f'[data-map="{name}"]')
                values = row(array)
                check(place, values[1:], number=1)
                said, _, rest = place.locator(".reading").first.text_content().partition("; ")
                assert said.endswith(", most of all") is (bool(rest) and bool(values[0] > 0.5))
                assert number_in(said.split(",")[0]) == pytest.approx(float(values[0]), rel=1e-3, abs=1e-4)
                assert not rest or number_in(rest) == pytest.approx(float(values[1:].sum()), rel=1e-3)
        for name, array in names.items():
            check(page.locator(f'[data-station="{station}"] [data-show="{name}"]'), row(array))
    go(page, "mlp")
    norms = page.locator('[data-show="lengths"] canvas:not(.under)')
    norms.press("End")
    assert f"{np.linalg.norm(row('blocks.3.out')):.3g}"[:4] in text(page, '[data-show="lengths"] .reading')
    assert d * c.num_heads == D


@browser_only
def test_a_tap_reads_a_number_and_a_finger_draws(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page, has_touch=True, size=(390, 844))
    patches = stations(model, samples[0], preprocess, {})["embed.patches"].reshape(16, 4)
    cells = page.locator('[data-station="patches"] [data-show="x"] canvas:not(.under)')
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
    assert text(page, ".said") == answer_of(model, picture_in(page, model), preprocess)


@browser_only
def test_each_switch_changes_the_model_as_hooks_do(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    go(page, "what-if")
    done = {}

    def now(**changes):
        done.update(changes)
        assert text(page, ".said") == answer_of(model, samples[0], preprocess, spelt(done, model.config)), changes
        assert page.locator(".changed").is_visible()

    page.get_by_label("block 1, head 2", exact=True).click()
    now(off=["blocks.1.attention.heads.2"])
    assert text(page, ".list") == "head 2 of block 1 off."
    page.get_by_label("block 3, shortcut beside the MLP", exact=True).click()
    now(off=["blocks.1.attention.heads.2", "blocks.3.mlp.residual"])
    page.get_by_label("block 3, shortcut beside the MLP", exact=True).click()
    now(off=["blocks.1.attention.heads.2"])
    page.locator('[name="scale"]').uncheck()
    now(scale=False)
    page.locator('[name="temperature"]').press("ArrowRight")
    now(temperature=1.3)
    page.locator('[name="answer"]').press("ArrowLeft")
    now(answer=0.79)
    page.locator(".modes").get_by_text("reversed").click()
    now(position="reversed")
    page.get_by_text("Hide the chosen patch").click()
    now(hidden=[10])
    page.get_by_text("Shuffle all").click()
    order = page.evaluate("document.querySelector('[data-vit-live]').live.state.changes.order")
    assert sorted(order) == [*range(16)]
    assert order != [*range(16)]
    now(order=order)
    page.get_by_text("Undo", exact=True).click()
    now(order=None)
    page.get_by_text("Repeat it everywhere").click()
    order = page.evaluate("document.querySelector('[data-vit-live]').live.state.changes.order")
    assert len(set(order)) == 1
    now(order=order)
    page.get_by_text("Put all patches back").click()
    now(order=None, hidden=[])
    page.locator(".modes").get_by_text("taken away").click()
    now(position="none")
    assert "can’t tell" not in text(page, ".difference")
    page.get_by_text("Shuffle all").click()
    now(order=page.evaluate("document.querySelector('[data-vit-live]').live.state.changes.order"))
    assert "without positions it can’t tell" in text(page, ".difference")
    page.get_by_text("Reset", exact=True).click()
    assert text(page, ".said") == answer_of(model, samples[0], preprocess)
    assert not page.locator(".changed").is_visible()
    page.get_by_text("Undo", exact=True).click()
    now()


@browser_only
def test_a_part_that_is_off_says_so_and_shows_no_work(show, digits):
    live_page, model, preprocess, samples = digits
    page, station = show(live_page), '[data-station="attention"]'

    def switch(name):
        go(page, "what-if")
        page.get_by_label(name, exact=True).click()

    switch("block 0, attention")
    go(page, "attention")
    assert text(page, '[data-text="attentionOff"]') == (
        "The attention of block 0 is switched off, so it adds nothing: z′ = z."
    )
    assert page.locator(f"{station} .work").is_hidden()
    switch("block 0, shortcut beside attention")
    go(page, "attention")
    assert "z′ is all zeros" in text(page, '[data-text="attentionOff"]')
    switch("block 0, attention")  # on again, without the shortcut
    go(page, "attention")
    assert page.locator(f"{station} .work").is_visible()
    assert page.locator(f'{station} [data-text="attentionOff"]').is_hidden()
    assert "the shortcut is off" in text(page, '[data-text="attentionSum"]')
    changes = {"off": ["blocks.0.attention.residual"]}
    middle = stations(model, samples[0], preprocess, changes)["blocks.0.middle"].reshape(17, -1)[11]
    page.locator('[data-show="middle"] canvas:not(.under)').first.press("End")
    assert number_in(text(page, '[data-station="attention"] [data-show="middle"] .reading')) == pytest.approx(
        middle[-1], rel=1e-3
    )
    page.get_by_text("Reset", exact=True).click()
    switch("block 0, head 0")
    go(page, "attention")
    assert text(page, '[data-text="headOff"]').startswith("Head 0 of block 0 is switched off")
    assert page.locator(f"{station} .of-head").evaluate_all("all => all.every((e) => !e.checkVisibility())")
    ink = "all => all.map((e) => e.getContext('2d').getImageData(0, 0, 4, 4).data.some((v) => v))"
    assert page.locator(".heads canvas").evaluate_all(ink) == [False, True, True, True]
    page.locator('.heads input[value="1"]').check(force=True)
    assert page.locator('[data-map="weights"]').is_visible()
    switch("block 0, MLP")
    go(page, "mlp")
    assert text(page, '[data-text="mlpOff"]') == "The MLP of block 0 is switched off, so it adds nothing: z = z′."
    assert page.locator('[data-station="mlp"] .work').is_hidden()
    switch("block 1")
    for name in ("attention", "mlp"):
        go(page, name)
        page.locator('.layers input[value="1"]').check(force=True)
        assert text(page, f'[data-text="{name}Off"]') == (
            "Block 1 is switched off: every token leaves it as it came in."
        )
        assert page.locator(f'[data-station="{name}"] .work').is_hidden()
    go(page, "layers")
    assert "after block 1 (off)" in page.locator(".lens .when").all_text_contents()


@browser_only
def test_sentences_follow_the_changes_that_they_are_about(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    position = stations(model, samples[0], preprocess, {})["embed.position"].reshape(17, -1)[1:]
    unit = position / np.linalg.norm(position, axis=1, keepdims=True)
    go(page, "positions")
    page.locator('[data-map="likeness"] canvas:not(.under)').last.press("End")
    said = page.locator('[data-map="likeness"] .reading').last.text_content()
    assert number_in(said) == pytest.approx(unit[10] @ unit[15], rel=1e-3)
    go(page, "what-if")
    page.locator(".modes").get_by_text("taken away").click()
    go(page, "positions")
    assert "You took the positions away" in text(page, '[data-text="positionLead"]')
    assert page.locator(".of-position").evaluate_all("all => all.every((e) => !e.checkVisibility())")
    go(page, "what-if")
    page.locator(".modes").get_by_text("reversed").click()
    page.locator('[name="scale"]').uncheck()
    page.locator('[name="answer"]').press("ArrowRight")
    page.get_by_label("block 0, head 2", exact=True).click()
    go(page, "positions")
    assert "you reversed them" in text(page, '[data-text="positionLead"]')
    assert page.locator('[data-show="position"]').is_visible()
    go(page, "attention")
    assert "You don’t divide by √d" in text(page, '[data-text="divided"]')
    assert "(zeros for head 2, which is off)" in text(page, '[data-text="joinedName"]')
    go(page, "head")
    assert text(page, '[data-text="softmaxName"]') == "÷ 1.3, then softmax: percentages"
    go(page, "layers")  # its last row is the answer, temperature and all
    name, share = text(page, ".said").split(", ")
    assert page.locator(".lens-row").last.locator(".chip").first.text_content() == f"{name} {share}"


@browser_only
def test_no_part_is_said_to_matter_more_than_its_equals(show):
    model = model_of(num_heads=2)
    for block in model.blocks:  # no head does anything
        torch.nn.init.zeros_(block.attention.proj.weight)
    page = show(live.page(model, pictures_of(model, 1), ["a", "b", "c"]))
    go(page, "what-if")
    page.get_by_text("Try each head").click()
    wait(page, f"{TRIED}.includes('The change without each')")
    assert "Without any single head it has no less." in page.evaluate(TRIED)


@browser_only
def test_the_map_is_drawn_from_the_config(show):
    models = [model_of(**CONFIGS[kind]) for kind in ("plain", "mean")]
    models.append(model_of(depth=11, num_heads=6))
    page = show(together(live.page(model, pictures_of(model, 1)) for model in models), ready=3, size=(1200, 900))
    for host, model in enumerate(models):
        c, box = model.config, page.locator(".map").nth(host)
        parts = box.locator("[data-part]").evaluate_all("all => all.map((e) => e.dataset.part)")
        inner = ["", ".attention", ".attention.residual", ".mlp", ".mlp.residual"]
        inner += [f".attention.heads.{head}" for head in range(c.num_heads)]
        assert sorted(parts) == sorted(f"blocks.{layer}{part}" for layer in range(c.depth) for part in inner)
        assert box.locator("[data-lens]").count() == c.depth + 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    box.get_by_label("block 1", exact=True).press("x")
    wait(page, SETTLED)
    cut = box.locator(".part.cut").evaluate_all("all => all.map((e) => e.dataset.part.split('.')[1])")
    assert set(cut) == {"1"}


@browser_only
def test_the_map_opens_stations_and_cuts_parts(show, digits):
    live_page, model, preprocess, samples = digits
    page, state = show(live_page), "document.querySelector('[data-vit-live]').live.state"
    page.get_by_label("block 2, head 3", exact=True).click()
    assert page.locator('[data-station="attention"]').is_visible()
    assert page.evaluate(f"[{state}.layer, {state}.head, {state}.changes.off.length]") == [2, 3, 0]
    assert page.locator('.layers input[value="2"]').is_checked()
    assert page.locator(".map [aria-current]").evaluate_all("all => all.map((e) => e.dataset.part)") == [
        "blocks.2.attention",
        "blocks.2.attention.heads.3",
    ]
    page.get_by_text("Cut parts", exact=True).click()
    page.get_by_label("block 2, attention", exact=True).click()
    assert text(page, ".said") == answer_of(model, samples[0], preprocess, {"off": ["blocks.2.attention"]})
    assert page.get_by_label("block 2, attention", exact=True).get_attribute("aria-pressed") == "false"
    cut = set(page.locator(".part.cut").evaluate_all("all => all.map((e) => e.dataset.part)"))
    assert cut == {"blocks.2.attention", *(f"blocks.2.attention.heads.{head}" for head in range(4))}
    assert page.locator("path.cut").count() == 8  # into each head, and out of it
    assert page.locator(".heads label.cut").count() == 4
    assert "switched off" in text(page, '[data-text="attentionOff"]')
    page.get_by_label("block 1", exact=True).click()
    assert page.locator("rect.cut").count() == 1
    assert page.locator('.part.cut[data-part^="blocks.1"]').count() == 7  # not its shortcuts: the tokens pass
    page.get_by_label("the picture, in patches").click()  # there is nothing to cut
    assert page.locator('[data-station="attention"]').is_visible()
    assert text(page, ".key") == text(page, ".live-region") == "This can’t be cut: choose Open parts to open it."
    page.get_by_label("block 1", exact=True).click()
    assert "The thicker and bluer a line" in text(page, ".key")
    page.get_by_text("Open parts", exact=True).click()
    page.get_by_label("block 0, MLP", exact=True).focus()
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Delete")
    off = ["blocks.2.attention", "blocks.0.mlp", "blocks.0.mlp.residual"]
    assert text(page, ".said") == answer_of(model, samples[0], preprocess, {"off": off})
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.locator(".part:focus").get_attribute("data-to") == "patches"
    for station, isCutting in (("what-if", True), ("looks", False)):
        page.locator(f'.also [data-to="{station}"]').click()
        assert page.evaluate(f"{state}.isCutting") is isCutting


@browser_only
def test_the_map_s_lines_and_answers_are_numbers_of_the_pass(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.get_by_role("button", name="class token").click()
    c, d = model.config, model.config.dim // model.config.num_heads
    for changes in ({}, {"off": ["blocks.1.mlp"]}):
        if changes:
            page.get_by_text("Cut parts", exact=True).click()
            page.get_by_label("block 1, MLP", exact=True).click()
        right, lengths = stations(model, samples[0], preprocess, changes), {}
        for layer, block in enumerate(model.blocks):
            for name, array in {"input": "input", "middle": "middle", "mlp": "mlp.out", "out": "out"}.items():
                lengths[f"{layer}.{name}"] = np.linalg.norm(right[f"blocks.{layer}.{array}"][: c.dim])
            for head in range(c.num_heads):
                sums = right[f"blocks.{layer}.attention.heads.{head}.sums"][:d]
                proj = block.attention.proj.weight.detach().numpy()[:, head * d : (head + 1) * d]
                lengths[f"{layer}.head {head}"] = np.linalg.norm(proj @ sums)
        text(page, ".said")
        widths = "all => all.map((e) => [e.dataset.of, parseFloat(e.style.strokeWidth)])"
        shown = dict(page.locator(".map path").evaluate_all(widths))
        longest = max(lengths.values())
        for name, length in lengths.items():
            assert shown[name] == pytest.approx(max(1.2, 9 * (length / longest) ** 0.5), abs=0.01), name
        z = [right["embed.tokens"], *(right[f"blocks.{layer}.out"] for layer in range(c.depth))]
        with torch.inference_mode():
            tokens = torch.tensor(np.stack(z)).reshape(len(z), -1, c.dim)
            best = model.head(model.norm(tokens)[:, 0]).argmax(1)
        assert page.locator("[data-lens]").all_text_contents() == [str(int(k)) for k in best]
    page.locator(".picker canvas").press("ArrowDown")  # a patch, which the classifier doesn't read
    assert dict(page.locator(".map path").evaluate_all(widths))["read"] == 1.2


@browser_only
def test_on_a_phone_the_map_stands_upright(show, digits):
    page = show(digits[0], size=(390, 844))
    names = ["the picture, in patches", "block 0", "block 3", "the classifier"]
    boxes = [page.get_by_label(name, exact=True).bounding_box() for name in names]
    assert [box["y"] for box in boxes] == sorted(box["y"] for box in boxes)
    parts = page.locator(".map [data-part]").evaluate_all("all => all.map((e) => e.getBoundingClientRect().toJSON())")
    assert all(0 <= part["left"] and part["right"] <= 390 for part in parts)
    assert min(min(part["width"], part["height"]) for part in parts) >= 18
    page.get_by_label("block 2, MLP", exact=True).press("x")
    page.locator(".strip .mlp").nth(2).click()
    assert "MLP of block 2 is switched off" in text(page, '[data-text="mlpOff"]')
    assert page.locator(".strip .here.cut").count() == 1
    heading, tour = (page.locator(part).bounding_box() for part in ('[data-station="mlp"] h3', ".tour"))
    assert 0 <= tour["y"] < tour["y"] + tour["height"] <= heading["y"] < 844
    page.set_viewport_size({"width": 660, "height": 900})
    wait(page, "document.querySelector('[data-vit-live]').shadowRoot.querySelector('.map .upright') === null")
    boxes = [page.get_by_label(name, exact=True).bounding_box() for name in names]
    assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)


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
    page.locator('[name="answer"]').evaluate(drag)
    page.get_by_text("Undo", exact=True).click()
    assert text(page, ".list") == "attention’s temperature 3.2."
    page.get_by_text("Undo", exact=True).click()
    assert text(page, ".list") == ""
    assert page.get_by_text("Undo", exact=True).is_disabled()


@browser_only
def test_what_was_tried_goes_with_the_model_that_it_was_about(show, digits):
    page = show(digits[0])
    go(page, "what-if")
    for act in (
        lambda: page.get_by_label("block 1, MLP", exact=True).click(),
        lambda: page.locator(".drop").first.click(),
        lambda: page.get_by_text("Undo", exact=True).click(),
        lambda: page.locator(".samples button").nth(4).click(),
    ):
        page.get_by_text("Try each head").click()
        wait(page, f"{TRIED}.includes('The change without each')")
        act()
        assert page.evaluate(TRIED) == ""
        assert page.locator(".drop").count() == 0


TRIED = """document.querySelector("[data-vit-live]").shadowRoot.querySelector('[data-text="tried"]').textContent"""


# A change is the difference of the two numbers that stand beside it.
def assert_agrees(page, largest=None):
    was, left, change = re.search(r"had (.*?) %.*: to (.*?) %, a change of −(.*?)\. ", page.evaluate(TRIED)).groups()
    assert float(change) == pytest.approx(float(was) - float(left), abs=1e-6)
    assert largest is None or largest == float(change)


@browser_only
def test_which_head_matters(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    go(page, "what-if")
    page.get_by_label("block 1, MLP", exact=True).press("x")
    plain = stations(model, samples[0], preprocess, {"off": ["blocks.1.mlp"]})["probabilities"]
    for button, parts in {
        "Try each head": [f"blocks.{i}.attention.heads.{j}" for i in range(4) for j in range(4)],
        "Try each attention and MLP": [f"blocks.{i}.{part}" for i in range(4) for part in ("attention", "mlp")],
    }.items():
        page.get_by_text(button).click()
        wait(page, f"{TRIED}.includes('The change without each')")
        found = [float(b.replace("−", "-")) for b in page.locator(".tried > :first-child .drop b").all_text_contents()]
        offs = [{"off": ["blocks.1.mlp", part]} for part in parts]
        without = np.stack([stations(model, samples[0], preprocess, off)["probabilities"] for off in offs])
        right = 100 * (without - plain)[:, plain.argmax()]
        assert np.allclose(found, right, atol=0.11)  # a difference of rounded numbers
        assert_agrees(page, -min(found))
        page.evaluate(f"{TRIED.removesuffix('.textContent')}.textContent = ''")
    page.get_by_text("Hide each patch").click()
    wait(page, f"{TRIED}.includes('The change without each')")
    assert_agrees(page)
    canvas = page.locator(".tried canvas:not(.under)")
    for key, patch in (("Home", 0), ("End", 15)):
        canvas.press(key)
        hidden = stations(model, samples[0], preprocess, {"off": ["blocks.1.mlp"], "hidden": [patch]})["probabilities"]
        found = number_in(text(page, ".tried .reading"))
        assert found == pytest.approx(100 * (hidden - plain)[plain.argmax()], abs=0.11)
    assert page.locator(".tried > *").count() == 3  # what was tried before stays
    assert page.locator(".tried .under").is_hidden()


@browser_only
def test_a_link_brings_the_same_state_back(show, digits, small):
    live_page, model, *_ = digits
    page = show(live_page)
    page.get_by_text("Clear", exact=True).click()
    draw(page, SEVEN)
    go(page, "what-if")
    page.get_by_label("block 2", exact=True).click()
    page.locator(".modes").get_by_text("taken away").click()
    page.get_by_role("button", name="class token").click()
    go(page, "attention")
    page.locator('.layers input[value="0"]').check(force=True)
    page.get_by_text("Copy link").click()
    wait(page, "location.hash.length > 100")
    fragment, said, picture = page.evaluate("location.hash"), text(page, ".said"), picture_in(page, model)
    again = show(live_page, fragment=fragment)
    assert (text(again, ".said"), text(again, ".list")) == (said, "block 2 off; no positions.")
    assert torch.equal(picture_in(again, model), picture)
    assert (text(again, ".picker .name"), again.locator('.layers input[value="0"]').is_checked()) == (
        "class token",
        True,
    )
    assert again.locator('[data-station="attention"]').is_visible()
    again.get_by_text("Copy link").click()
    assert text(again, ".copied")
    assert again.evaluate("location.hash") == fragment
    assert not show(small[2], fragment=fragment).locator(".changed").is_visible()  # another model's


DAMAGED_CHANGES = (
    {"off": [5]},
    {"off": "blocks.0"},
    {"off": ["blocks.9"]},
    {"scale": 1},
    {"temperature": 0},
    {"temperature": "2"},
    {"answer": -1},
    {"position": "sideways"},
    {"order": [1, 2]},
    {"order": [16] * 16},
    {"hidden": [16]},
    {"hidden": [1, 1]},
    {"off": ["blocks.0", "blocks.0"]},
    {"hidden": None},
)


# Whether the state of a link is taken, with each damage done to it.
UNPACK = """([source, whole, config, samples, damages]) => {
  const { idOf, unpackLink } = new Function(`${source}; return { idOf, unpackLink }`)();
  const data = { weights: { values: "A".repeat(4000) } }, pad = { ink: () => atob(whole.ink) };
  const sizes = { T: config.tokens, L: config.depth, h: config.num_heads - 1 };
  const page = { data, config, pad, sizes, samples, white: 16 };
  return damages.map((damage) => {
    try {
      unpackLink(page, btoa(JSON.stringify({ ...whole, id: idOf(page), ...damage })));
      return true;
    } catch {
      return false;
    }
  });
}"""


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
    assert text(page, ".said") == answer_of(model, samples[0], preprocess)
    assert "damaged" in text(page, ".message")
    assert page.locator(".changed").is_hidden()
    assert page.locator('[data-station="patches"]').is_visible()
    page = show(live_page, fragment=link_of(whole | {"layer": 3}))
    assert float(picture_in(page, model).sum()) == 0
    assert text(page, ".message") == ""

    good = [{}, {"sample": 9}, *({"changes": whole["changes"] | spelt(c, model.config)} for c in CHANGES.values())]
    damages = [
        {"id": "another"},
        {"layer": 1.5},
        {"head": 3},
        {"token": "3"},
        {"station": "toString"},
        {"method": "toString"},
        {"sample": 10},
        {"sample": None},
        {"picture": base64.b64encode(bytes([17] * 64)).decode()},
        {"picture": base64.b64encode(bytes(63)).decode()},
        {"ink": base64.b64encode(bytes(100)).decode()},
        {"changes": None},
        *({"changes": whole["changes"] | change} for change in DAMAGED_CHANGES),
    ]
    about = [vt.pages.script("live/link.js"), whole, data_of(live_page.html)["config"], samples.flatten(1).tolist()]
    page = show("<!doctype html><body>", ready=0)
    assert page.evaluate(UNPACK, [*about, good]) == [True] * len(good)
    assert page.evaluate(UNPACK, [*about, damages]) == [False] * len(damages)


@browser_only
def test_the_guided_tour_goes_through_all_stations_and_back(show, digits):
    page, seen, sentences, followed = show(digits[0], size=(1280, 800)), [], set(), []
    for number in range(1, 14):
        assert text(page, ".count") == f"{number} of 13"
        sentences.add(text(page, ".sentence"))
        assert page.locator(".spot").count() == 1
        assert page.locator(".spot").is_visible()
        seen.append(page.evaluate("document.querySelector('[data-vit-live]').live.state.station"))
        followed.append(text(page, ".picker .name"))
        assert page.locator(".strip .here").count() == 1
        if number == 8:
            model, choose = (page.locator(part).bounding_box() for part in (".model", ".choose"))
            assert model["y"] + model["height"] <= choose["y"]  # no part of it lies under the diagram
        if number in (2, 7):
            page.locator(".picker canvas").click(position={"x": 5, "y": 5})
        assert max(len(one.split()) for one in re.split(r"[.?!]", text(page, ".sentence"))) <= 15
        if number < 13:
            page.get_by_text("Next", exact=True).click()
    assert len(sentences) == 13
    assert set(seen) == {"patches", "embedding", "positions", "attention", "mlp", "layers", "head", "what-if"}
    assert followed == [*["patch 10"] * 2, *["patch 0"] * 3, *["class token"] * 8]
    assert text(page, ".sentence").startswith("Patches become tokens.")
    page.get_by_text("Back", exact=True).click()
    assert text(page, ".count") == "12 of 13"
    page.get_by_label("block 2, MLP", exact=True).click()
    page.get_by_text("Next", exact=True).click()
    assert text(page, ".list") == "MLP of block 2 off."  # what the reader cut stays
    page.get_by_label("block 1, head 2", exact=True).press("x")
    page.get_by_text("Open parts", exact=True).click()
    page.get_by_label("the classifier", exact=True).click()
    assert text(page, ".sentence").startswith("You walk on your own. Return leads to the stop")
    page.get_by_text("Return", exact=True).click()  # to the stop that was left
    assert text(page, ".count") == "13 of 13"
    page.get_by_text("Start again", exact=True).click()
    assert text(page, ".count") == "1 of 13"
    assert text(page, ".sentence").startswith("All that you changed is reset.")
    go(page, "patches")
    assert page.locator(".spot").count() == 0
    assert page.get_by_text("Another picture", exact=True).is_hidden()


@browser_only
def test_a_way_says_what_is_off_and_the_story_resets_it_and_takes_other_pictures(show, digits):
    page, others = show(digits[0]), []
    go(page, "what-if")
    page.get_by_label("block 0, attention", exact=True).click()
    page.get_by_text("Follow one token", exact=True).click()
    assert text(page, ".sentence") == "You made changes. Reset brings all back."
    for number in range(1, 9):
        assert page.locator(".spot").is_visible()
        assert text(page, ".sentence").startswith("This part is off") is (number in (5, 6, 7, 8))
        page.get_by_text("Next", exact=True).click()
    page.get_by_text("The story", exact=True).click()
    for number in range(1, 14):
        assert text(page, ".sentence").startswith("All that you changed is reset.") is (number == 1)
        assert text(page, ".list") == ""
        if page.get_by_text("Another picture", exact=True).is_visible():
            others.append(number)
            page.get_by_text("Another picture", exact=True).click()
            assert text(page, ".pad .hint") == f"· right answer: {len(others)}"
        page.locator("[data-do=next]").click()
    assert others == [6, 10, 11]


FLYING = "document.querySelector('[data-vit-live]').shadowRoot.querySelectorAll('.flying').length"


@browser_only
def test_one_token_is_followed_through_every_block(show, digits):
    page, seen = show(digits[0]), []
    page.get_by_text("Follow one token", exact=True).click()
    for number in range(1, 19):
        assert text(page, ".count") == f"{number} of 18"
        assert page.locator(".spot").is_visible()
        state = page.evaluate("document.querySelector('[data-vit-live]').live.state")
        seen.append((state["station"], state["layer"], state["token"]))
        assert max(len(one.split()) for one in re.split(r"[.?!]", text(page, ".sentence"))) <= 15
        if number < 18:
            page.get_by_text("Next", exact=True).evaluate("(button) => button.click()")
    page.emulate_media(reduced_motion="no-preference")
    page.get_by_text("Back", exact=True).evaluate("(button) => button.click()")
    assert page.evaluate(FLYING) > 0
    wait(page, f"{FLYING} === 0")
    assert [station for station, _, _ in seen[:4]] == ["patches", "patches", "embedding", "positions"]
    assert [(station, layer) for station, layer, _ in seen[10:16]] == [
        (station, layer) for layer in (1, 2, 3) for station in ("attention", "mlp")
    ]
    assert {token for _, _, token in seen} == {11}
    page.get_by_text("The story", exact=True).click()
    assert text(page, ".count") == "1 of 13"
    page.emulate_media(reduced_motion="reduce")
    page.get_by_text("Follow one token", exact=True).click()
    page.get_by_text("Next", exact=True).click()
    assert page.evaluate(FLYING) == 0


# How far the flying numbers are from their place when they have arrived, in pixels.
MISSED = """() => {
  const root = document.querySelector("[data-vit-live]").shadowRoot;
  const copy = root.querySelector(".flying");
  const [flight] = copy.getAnimations();
  flight.pause();
  flight.currentTime = 800;
  const places = root.querySelectorAll(".spot [data-show] canvas[tabindex], .spot[data-spot] canvas[tabindex]");
  const [at, ...there] = [copy, ...places].map((element) => element.getBoundingClientRect());
  flight.finish();
  return Math.min(...there.map(({ x, y }) => Math.hypot(x - at.x, y - at.y)));
}"""


@browser_only
def test_numbers_that_fly_land_on_their_place_while_the_page_scrolls(show, digits):
    page = show(digits[0], size=(1280, 800), reduced_motion="no-preference")
    page.get_by_text("Follow one token", exact=True).click()
    for _ in range(7):
        page.get_by_text("Next", exact=True).click()
        page.wait_for_timeout(600)  # it has scrolled, and they still fly
        assert page.evaluate(MISSED) < 2


@browser_only
def test_lines_lead_from_the_token_to_where_it_looks(show, digits):
    page, seen = show(digits[0]), []
    for act in (
        lambda: go(page, "patches"),
        lambda: go(page, "attention"),
        lambda: page.locator('.heads input[value="1"]').check(force=True),
        lambda: go(page, "embedding"),
    ):
        act()
        seen.append(page.locator(".picker canvas").evaluate("(canvas) => canvas.toDataURL()"))
    assert seen[3] == seen[0]
    assert len(set(seen)) == 3


# What a map says of every token: of those before the patches in their cell, of the patches one after the other.
LOOKS = """() => {
  const place = document.querySelector("[data-vit-live]").shadowRoot.querySelector('[data-map="looks"]');
  return [...place.querySelectorAll("canvas[tabindex]")].flatMap((canvas, i) => {
    const reading = place.querySelectorAll(".reading")[i];
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
    const found = [];
    while (found.at(-1) !== reading.textContent) {
      found.push(reading.textContent);
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
    }
    return found;
  });
}"""


@browser_only
@torch.inference_mode()
def test_where_it_looks_is_the_model_s_attention_and_its_rollout(show):
    model, preprocess, samples, live_page = shipped("shapes")
    page, maps = show(live_page), copy.deepcopy(model).double().attention_maps(preprocess(samples[:1]).double())
    go(page, "looks")
    page.locator(".special button").click()
    page.locator('[name="layer"][value="3"]').check(force=True)
    page.locator('[name="head"][value="1"]').check(force=True)

    def shows(method, right):
        page.get_by_text(method, exact=True).click()
        numbers = [number_in(reading) for reading in page.evaluate(LOOKS)]
        assert np.allclose(numbers, right.numpy(), rtol=1e-3, atol=6e-5), method  # hundredths of a percent

    shows("One head", maps[3][0, 1, 0])
    shows("Mean of heads", maps[3][0].mean(dim=0)[0])
    shows("Rollout", vt.explain.rollout(maps)[0, 0])
    page.get_by_label("block 0, head 3", exact=True).click()
    assert text(page, '[data-text="looksName"]') == "Head 3 of block 0"
    shows("One head", maps[0][0, 3, 0])
    page.locator(".picker canvas").click(position={"x": 5, "y": 5})
    shows("One head", maps[0][0, 3, 1])
    page.evaluate("document.querySelector('[data-vit-live]').live.state.layer = 3")
    for part in ("blocks.3.attention.heads.0", "blocks.1.attention"):
        page.evaluate(f"""() => {{ const root = document.querySelector("[data-vit-live]").shadowRoot;
            root.querySelector('[name="cutting"][value="cut"]').click();
            root.querySelector('[data-part="{part}"]').click(); }}""")
        wait(page, SETTLED)
    with hooked(model.double(), {"off": ["blocks.3.attention.heads.0", "blocks.1.attention"]}, {}):
        maps = {}
        z = model.embed(preprocess(samples[:1]).double())
        for layer, block in enumerate(model.blocks):
            maps[layer], z = block.attention_weights(z), block(z)
    model.float()
    maps = {0: maps[0], 1: torch.eye(65).double().expand(1, 4, 65, 65), 2: maps[2], 3: maps[3][:, 1:]}
    shows("Mean of heads", maps[3][0].mean(dim=0)[1])
    shows("Rollout", vt.explain.rollout({n: w.mean(dim=1, keepdim=True) for n, w in maps.items()})[0, 1])


# What each of the given cells of the open station says of its second number, and what lights up then.
SOURCES = """(station, names) => names.map((name) => {
  const place = station.querySelector(`[data-show="${name}"], [data-map="${name}"]`);
  const canvas = [...place.querySelectorAll("canvas[tabindex]")].at(-1);
  ["Home", "ArrowRight"].forEach((key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key })));
  const isLit = (mark) => mark.style.display !== "none";
  const nameOf = ({ dataset }) => dataset.show ?? dataset.map;
  const marks = [...station.querySelectorAll(".source")];
  const lit = marks.filter(isLit).map((mark) => nameOf(mark.closest("[data-show], [data-map]")));
  const said = [...place.querySelectorAll(".reading")].at(-1).textContent;
  canvas.dispatchEvent(new FocusEvent("blur"));
  return [said, lit, marks.some(isLit)];
})"""
# {station: {cells: the cells that light up}}, of a patch in block 0.
ORIGINS = {
    "patches": {"x": ["pixels"]},
    "embedding": {"projected": ["E"]},
    "positions": {"z0": ["content", "position"]},
    "attention": {
        **{"norm1": ["z"], "q": ["norm1"], "k": ["norm1"], "v": ["norm1"], "scores": ["q"], "scaled": ["scores"]},
        **{"weights": ["scaled"], "sums": ["weights"], "joined": ["sums"], "attended": ["joined"]},
        **{"middle": ["z", "attended"]},
    },
    "mlp": {
        "norm2": ["middle"],
        "before": ["norm2"],
        "hidden": ["before"],
        "mlp": ["hidden"],
        "out": ["middle", "mlp"],
    },
    "head": {"norm": ["last"], "logits": ["pooled"], "probabilities": ["logits"]},
}


def terms_of(digits):
    """{cells: the first product that number 1 is written with, and the number that is added last, if there is one}."""
    _, model, preprocess, samples = digits
    seen, block = stations(model, samples[0], preprocess, {}), model.blocks[0]
    of, one = (lambda name: seen[name].reshape(17, -1)[11]), "blocks.0.attention.heads.0"
    D, weights, v = model.config.dim, of(f"{one}.weights"), seen[f"{one}.v"].reshape(17, -1)
    layers = {name: (of("blocks.0.norm1"), block.attention.qkv, part * D) for part, name in enumerate("qkv")}
    layers |= {
        "projected": (seen["embed.patches"].reshape(16, -1)[10], model.embed.patches.proj, 0),
        "attended": (of("blocks.0.attention.joined"), block.attention.proj, 0),
        "before": (of("blocks.0.norm2"), block.mlp.fc1, 0),
        "mlp": (of("blocks.0.mlp.hidden"), block.mlp.fc2, 0),
        "logits": (seen["pooled"], model.head, 0),
    }
    found = {"scores": (max(of(f"{one}.q") * seen[f"{one}.k"].reshape(17, -1)[2], key=abs), None)}
    found["sums"] = (weights.max() * v[weights.argmax(), 1], None)
    for name, (x, layer, first) in layers.items():
        row = layer.weight.detach().flatten(1)[first + 1].numpy()
        found[name] = (max(x * row, key=abs), layer.bias[first + 1].item())
    return found


@browser_only
def test_a_number_s_sources_light_up_and_give_it(show, digits):
    page, terms_right = show(digits[0]), terms_of(digits)
    for station, origins in ORIGINS.items():
        go(page, station)
        if station == "attention":
            ((plain, *_),) = page.locator('[data-station="attention"]').evaluate(SOURCES, ["weights"])
            assert "e^" not in plain  # until every step is shown
            page.get_by_text("Show the mathematics", exact=True).locator("visible=true").click()
        for name, (said, lit, remains) in zip(
            origins, page.locator(f'[data-station="{station}"]').evaluate(SOURCES, [*origins]), strict=True
        ):
            assert (name, lit, remains) == (name, origins[name], False)
            sum_, equals, value = said.rpartition(": ")[2].replace("−", "-").rpartition(" = ")
            if name in ("z0", "middle", "out"):  # named terms in brackets, or bare
                terms = [float(term) for term in re.findall(r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?(?![\w.])", sum_)]
                assert sum(terms) == pytest.approx(float(value), abs=2e-3), said
            if name == "norm1":
                words = sum_.replace("÷", "/").replace("·", "*")
                assert set(words) <= set("0123456789.e-+*/() "), said
                assert eval(words) == pytest.approx(float(value), abs=5e-3), said
            numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", sum_)]
            if name in terms_right:
                product, last = terms_right[name]
                assert numbers[0] * numbers[1] == pytest.approx(product, rel=3e-3), said
                assert last is None or numbers[-1] == pytest.approx(last, rel=1e-3), said
            if name in ("weights", "probabilities"):
                assert np.exp(numbers[0]) / numbers[1] == pytest.approx(number_in(value), rel=5e-3, abs=6e-5), said
            assert bool(equals) is (name != "joined")


@browser_only
def test_the_tour_plays_by_itself_until_somebody_walks(show, digits):
    page = show(digits[0])
    page.evaluate("() => { const wait = setInterval; window.setInterval = (act, time) => wait(act, time / 8); }")
    assert page.get_by_text("Play", exact=True).is_hidden()  # the story has things to do
    page.get_by_text("Follow one token", exact=True).click()
    page.get_by_text("Play", exact=True).click()
    assert text(page, ".count") == "2 of 18"
    count = "document.querySelector('[data-vit-live]').shadowRoot.querySelector('.count').textContent"
    page.get_by_text("1×", exact=True).click()
    assert text(page, "[data-do=speed]") == "2×"
    wait(page, f"parseInt({count}) >= 4")  # a slow machine may see it further on
    page.get_by_text("Pause", exact=True).click()
    assert page.locator("[data-do=speed]").is_hidden()
    page.get_by_text("Play", exact=True).click()
    go(page, "attention")
    assert text(page, "[data-do=play]") == "Play"


MIDDLE = "(e) => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }"


@browser_only
def test_the_dot_stands_on_the_part_whose_station_is_open(show, digits):
    page = show(digits[0])
    parts = {"embedding": ".part.patches", "mlp": '.part[data-part="blocks.0.mlp"]', "head": '.part[data-to="head"]'}
    go(page, "head")
    assert page.locator(".token-dot").is_hidden()  # the classifier doesn't read a patch
    page.get_by_role("button", name="class token").click()
    for station, part in parts.items():
        go(page, station)
        box, (across, down) = page.locator(part).first.bounding_box(), page.locator(".token-dot").evaluate(MIDDLE)
        assert across == pytest.approx(box["x"] + box["width"] * (0.17 if station == "embedding" else 0.5), abs=1)
        assert down == pytest.approx(box["y"] + (box["height"] - 4 if station == "embedding" else 0), abs=1)


@browser_only
def test_what_a_part_answers_to_follows_what_is_pointed_at(show, digits, small):
    assert "What each hidden unit answers to isn’t shown" in text(show(small[2]), '[data-meaning="unit"]')
    page = show(digits[0])
    go(page, "mlp")
    assert re.fullmatch(r"Unit \d+ of block 0 is excited most by these patches", text(page, '[data-meaning="unit"] h4'))
    page.locator('[data-show="hidden"] canvas[tabindex]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert text(page, '[data-meaning="unit"] h4') == "Unit 1 of block 0 is excited most by these patches"
    page.get_by_text("Next unit", exact=True).click()
    assert text(page, '[data-meaning="unit"] h4') == "Unit 2 of block 0 is excited most by these patches"
    mark = page.locator('[data-show="hidden"] .mark:not(.source)')  # which stays
    assert mark.evaluate("(e) => e.style.left") == f"{100 * 2 / 96:.5f}%"
    assert page.locator('[data-meaning="unit"] canvas').count() == 6
    assert text(page, '[data-meaning="unit"] .note').endswith(
        "The model as trained was tried on 200 pictures: the patch in the frame, with the picture around it."
    )
    go(page, "attention")
    page.locator('.heads input[value="1"]').check(force=True)
    assert text(page, '[data-meaning="head"] h4').startswith(
        "Head 1 of block 0 lets the class token (not your patch) look"
    )


@browser_only
def test_the_class_token_has_no_pixels(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    page.get_by_role("button", name="class token").click()
    for station in ("patches", "embedding"):
        assert "belongs to no patch" in page.locator(f'[data-station="{station}"] .of-class').inner_text()
        assert page.locator(f'[data-station="{station}"] .of-patch').is_hidden()
        go(page, "embedding")
    page.locator('.of-class [data-show="content"] canvas:not(.under)').press("End")
    learned = stations(model, samples[0], preprocess, {})["embed.content"][model.config.dim - 1]
    assert number_in(text(page, '.of-class [data-show="content"] .reading')) == pytest.approx(learned, rel=1e-3)
    page.locator(".picker canvas").press("ArrowDown")
    assert page.locator('[data-station="embedding"] .of-patch').is_visible()
    assert page.locator('[data-station="embedding"] .of-class').is_hidden()


# What is drawn on the pad.
INK = """() => document.querySelector("[data-ready]").shadowRoot.querySelector(".pad > canvas").toDataURL()"""


@browser_only
def test_the_pad_shows_the_patches_as_the_model_gets_them_until_somebody_draws(show, digits):
    page = show(digits[0])
    plain = page.evaluate(INK)
    go(page, "what-if")
    ways = {"Hide the chosen patch": "Show the chosen patch", "Repeat it everywhere": "Put all patches back"}
    for name, back in ways.items():
        page.get_by_text(name, exact=True).click()
        assert page.evaluate(INK) != plain
        assert text(page, ".pad .hint") == "· as the model gets it"
        page.get_by_text(back, exact=True).click()
        assert page.evaluate(INK) == plain
    page.get_by_text("Repeat it everywhere", exact=True).click()
    assert text(page, ".list") == "patches repeated."
    arranged, (x, y) = page.evaluate(INK), page.locator(".pad > canvas").evaluate(MIDDLE)
    page.mouse.move(x, y)
    page.mouse.down()
    assert page.evaluate(INK) != arranged  # the ink as it is, to draw on
    page.mouse.up()


@browser_only
def test_another_picture_shows_itself_and_the_drawing_can_be_had_back(show, digits):
    page = show(digits[0])
    mine = page.locator("[data-do=mine]")
    page.get_by_text("Clear", exact=True).click()
    draw(page, SEVEN)
    drawn = page.evaluate(INK)
    for _ in range(5):
        assert mine.is_hidden()
        page.locator("[data-do=next]").click()
    for sample in (0, 1):
        promised = page.locator("[data-do=another] canvas").evaluate("(canvas) => canvas.toDataURL()")
        page.get_by_text("Another picture", exact=True).click()
        assert text(page, ".pad .hint") == f"· right answer: {sample}"
        shown = page.locator(".part.picture canvas").evaluate("(canvas) => canvas.toDataURL()")
        assert shown == promised
    assert mine.is_visible()
    page.locator("[data-do=next]").click()
    assert mine.is_visible()  # wherever the drawing was replaced
    page.locator("[data-do=back]").click()
    for lost in ("Another picture", "Clear"):
        page.get_by_text(lost, exact=True).first.click()
        mine.click()
        assert mine.is_hidden()
        assert page.evaluate(INK) == drawn


@browser_only
def test_a_painting_can_be_had_back_and_another_picture_s_button_stays_where_it_is(show):
    page = show(shipped("photographs")[3], size=(1280, 800))
    draw(page, SEVEN)
    drawn, mine = page.evaluate(INK), page.locator("[data-do=mine]")
    while page.locator("[data-do=another]").is_hidden():
        page.locator("[data-do=next]").click()
    another = page.locator("[data-do=another]")
    was = another.bounding_box()
    another.click()
    assert another.bounding_box() == was
    mine.click()
    page.get_by_text("Clear", exact=True).click()
    assert "The pad is empty." in text(page, ".message")
    another.click()
    mine.click()
    assert page.evaluate(INK) == drawn  # not the empty pad


@browser_only
def test_two_tokens_are_compared(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    numbers = stations(model, samples[0], preprocess, {})
    for station, cells, name in (("embedding", "projected", "embed.projected"), ("positions", "z0", "embed.tokens")):
        go(page, station)
        tokens = numbers[name].reshape(-1, 48)[-16:]
        for patch, other in ((0, None), (4, 0), (8, 4), (15, 8)):
            box = page.locator(".picker canvas").bounding_box()
            at = {"x": (patch % 4 + 0.5) * box["width"] / 4, "y": (patch // 4 + 0.5) * box["height"] / 4}
            page.locator(".picker canvas").click(position=at)
            differ = 0 if other is None else (tokens[patch] != tokens[other]).sum()
            said = text(page, f'[data-show="{cells}"] .reading')
            if other is not None:
                assert said.endswith(
                    f"; {differ} differ from patch {other}’s" if differ else f": the same as patch {other}’s"
                )


# The pixels of the picture in patches.
PATCHES = """() => document.querySelector("[data-ready]").shadowRoot.querySelector(".picker canvas").toDataURL()"""


@browser_only
def test_a_pixel_that_is_pointed_at_lights_up_in_the_picture(show, digits):
    page, seen = show(digits[0]), set()
    plain = page.evaluate(PATCHES)
    for cells in ("pixels", "x"):
        canvas = page.locator(f'[data-station="patches"] [data-show="{cells}"] canvas[tabindex]')
        for key in ("Home", "ArrowRight"):
            canvas.press(key)
            seen.add(page.evaluate(PATCHES))
        canvas.blur()
        assert page.evaluate(PATCHES) == plain
    assert len(seen - {plain}) == 2  # the same two pixels


@browser_only
def test_a_finger_finds_the_map_uncovered_and_where_it_was(show, digits):
    page = show(digits[0], size=(820, 1180), has_touch=True)
    lowest = max(
        box["y"] + box["height"] for box in (button.bounding_box() for button in page.locator(".also button").all())
    )
    assert all(caption.bounding_box()["y"] >= lowest for caption in page.locator(".map .caption").all())
    page.get_by_text("Cut parts", exact=True).click()
    part = page.get_by_label("block 1, MLP", exact=True)
    part.scroll_into_view_if_needed()
    was = part.bounding_box()
    part.click()
    assert text(page, ".list") == "MLP of block 1 off."
    assert part.bounding_box()["y"] == pytest.approx(was["y"], abs=1)


@browser_only
def test_the_lines_of_the_picture_are_no_light_cells_of_a_map(show, digits):
    page = show(digits[0])
    go(page, "attention")
    opacity = page.locator('[data-map="weights"] .under + canvas').last.evaluate("(c) => getComputedStyle(c).opacity")
    assert 1 - float(opacity) < 0.15  # of white, which shines through


@browser_only
def test_undo_and_a_link_bring_the_drawing_back_as_it_was_drawn(show, digits):
    page = show(digits[0])
    page.get_by_text("Clear", exact=True).click()
    assert "must name something" in text(page, ".message")
    draw(page, [(0.3 + 0.4 * x, 0.3 + 0.4 * y) for x, y in SEVEN])
    drawn, said = page.evaluate(INK), text(page, ".message")
    page.locator(".samples button").nth(4).click()
    assert text(page, ".pad .hint") == "· right answer: 4"
    assert page.evaluate(INK) != drawn
    assert text(page, ".message") == ""
    page.get_by_text("Undo", exact=True).click()
    assert page.evaluate(INK) == drawn
    assert text(page, ".message") == said != ""  # of the drawing, and so it is back, too
    page.get_by_text("Copy link").click()
    wait(page, "location.hash.length > 100")
    again = show(digits[0], fragment=page.evaluate("location.hash"))
    assert again.evaluate(INK) == drawn
    again.locator(".samples button").nth(4).click()
    draw(again, SEVEN)
    assert "Clear gives you an empty pad" in text(again, ".message")


def drop(page, name, kind, content):
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": kind, "buffer": content})


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG")
    return out.getvalue()


@browser_only
def test_a_photograph_is_taken_and_what_is_none_gets_a_sentence(show):
    model, preprocess, _, live_page = shipped("shapes")
    page, double = show(live_page), copy.deepcopy(model).double()
    page.get_by_text("Clear", exact=True).click()
    assert (picture_in(page, model) == np.float32(128 / 255)).all()  # a painting is cleared, too
    page.evaluate("""() => {
      const place = document.querySelector("[data-vit-live]").shadowRoot.querySelector(".message");
      window.heard = [];
      new MutationObserver(() => window.heard.push(place.textContent)).observe(place, { childList: true });
    }""")
    drop(page, "square.png", "image/png", png(np.full((80, 80, 3), 90, np.uint8)))
    wait(page, f"{MESSAGE}.startsWith('square.png, made 64 × 64 pixels')")
    pixels = np.random.RandomState(0).randint(0, 256, (80, 100, 3)).astype(np.uint8)
    drop(page, "noise.png", "image/png", png(pixels))
    wait(page, f"{MESSAGE}.startsWith('noise.png')")
    assert "(80 % of it)" in text(page, ".message")
    assert sum("a large one takes some seconds" in line for line in page.evaluate("window.heard")) == 2
    right = vt.data.denormalise(preprocess(Image.fromarray(pixels)), preprocess)[0]
    assert (picture_in(page, double) - right).abs().max() < 2.01 / 255
    before = picture_in(page, double)
    for name, kind, content, words in [
        ("notes.txt", "text/plain", b"hello", ("notes.txt is not a picture", "JPEG")),
        ("half.png", "image/png", png(pixels)[:300], ("half.png is damaged",)),
        ("large.png", "image/png", png(np.zeros((5000, 10000), np.uint8)), ("50 megapixels", "at most 40")),
    ]:
        drop(page, name, kind, content)
        wait(page, f"{MESSAGE}.startsWith('{name}')")
        assert all(word in text(page, ".message") for word in words), text(page, ".message")
        assert torch.equal(picture_in(page, double), before)


def photograph_of_a_seven(ink, paper, margin, thickness, *, light="even", turn=0, desk=None):
    """(300, 400): a seven on paper that is turned by degrees on a desk, if there is one, in a light or shadow; dust."""
    picture = Image.new("L", (400, 300), paper)
    height = 300 - 2 * margin
    places = [(200 + (x - 0.5) * height * 0.9, margin + y * height) for x, y in [(0.2, 0.1), (0.8, 0.1), (0.45, 0.9)]]
    ImageDraw.Draw(picture).line(places, fill=ink, width=thickness, joint="curve")
    ImageDraw.Draw(picture).rectangle([80, 220, 82, 222], fill=ink)
    picture = picture.rotate(turn, fillcolor=paper if desk is None else desk)
    if desk is not None:
        ImageDraw.Draw(picture).rectangle([0, 0, 30, 300], fill=desk)
    y, x = np.mgrid[:300, :400]
    away = np.hypot(x - 150, y - 200) - 110  # from a hand's shadow
    spot = np.hypot(x - 160, y - 190) - 62  # a small one, with an edge
    lit = {"even": 1, "lamp": 1 - x / 1000, "edge": 1 - 0.4 * (x + y > 330), "hand": 1 - 0.45 / (1 + np.exp(away / 12))}
    lit["spot"] = 1 - 0.5 / (1 + np.exp(spot / 5))
    return np.repeat((np.asarray(picture) * lit[light]).astype(np.uint8)[:, :, None], 3, axis=2)


@browser_only
def test_a_photographed_digit_is_cut_out_and_read(show, digits):
    page, model, doubted = show(digits[0]), digits[1], []
    for number, (turned, photograph) in enumerate(
        {
            "thick, black on white, with a margin": (True, photograph_of_a_seven(0, 255, 50, 34)),
            "a ball pen, a lamp on the left": (True, photograph_of_a_seven(60, 235, 90, 6, light="lamp")),
            "the shadow of an edge": (True, photograph_of_a_seven(60, 235, 90, 9, light="edge", turn=5)),
            "a hand's shadow, on a desk": (
                True,
                photograph_of_a_seven(60, 235, 70, 10, light="hand", turn=-4, desk=90),
            ),
            "a small shadow": (True, photograph_of_a_seven(40, 235, 90, 6, light="spot", turn=-8, desk=45)),
            "small": (True, photograph_of_a_seven(20, 230, 110, 12)),
            "chalk": (False, photograph_of_a_seven(230, 30, 60, 20)),
        }.values()
    ):
        drop(page, f"seven{number}.png", "image/png", png(photograph))
        wait(page, f"{MESSAGE}.startsWith('seven{number}.png:')")
        assert text(page, ".said").startswith("7, "), number
        assert ("turned from dark on light" in text(page, ".message")) is turned
        assert "moved to the middle, and made 8 × 8 pixels" in text(page, ".message")
        rows = picture_in(page, model)[0].sum(1)
        assert rows[0] > 0.5 and rows[-1] > 0.2  # noqa: PT018
        assert "more than lines" not in text(page, ".message")
        share = float(text(page, ".said").split()[1])
        doubted.append("isn’t sure" in text(page, ".message"))
        assert doubted[-1] is (share < 70), number
    assert set(doubted) == {True, False}
    disc = np.hypot(*(np.mgrid[:300, :400] - np.array([150, 200])[:, None, None])) > 70
    drop(page, "disc.png", "image/png", png(np.repeat(255 * disc.astype(np.uint8)[:, :, None], 3, axis=2)))
    wait(page, f"{MESSAGE}.startsWith('disc.png:')")
    assert "There is more than lines, perhaps a shadow" in text(page, ".message")
    before = picture_in(page, model)
    for level in (255, 0):
        drop(page, f"empty{level}.png", "image/png", png(np.full((50, 60, 3), level, np.uint8)))
        wait(page, f"{MESSAGE}.includes('empty{level}.png shows nothing')")
    assert torch.equal(picture_in(page, model), before)


def test_the_command_line_reads_the_same_seven(tmp_path, capsys):
    Image.fromarray(photograph_of_a_seven(0, 255, 50, 34)).save(file := tmp_path / "seven.png")
    vt.predict.main([str(file), "--weights", "digits-patch2", "--top", "1"])
    assert capsys.readouterr().out.split()[-1] == "7"


@browser_only
def test_dropped_and_pasted(show, small):
    page = show(small[2])
    give = """([type, name, bytes]) => {
      const data = new DataTransfer(), { shadowRoot } = document.querySelector("[data-vit-live]");
      const section = shadowRoot.querySelector(".live");
      if (bytes) data.items.add(new File([Uint8Array.from(bytes)], name, { type: "image/png" }));
      section.dispatchEvent(type === "drop" ? new DragEvent("drop", { dataTransfer: data, cancelable: true })
        : new ClipboardEvent("paste", { clipboardData: data }));
    }"""
    for kind, empty in (("drop", "not a file"), ("paste", "not a picture")):
        page.evaluate(give, [kind, "", None])
        assert empty in page.evaluate(MESSAGE)
        page.evaluate(give, [kind, f"{kind}.png", list(png(np.full((20, 20, 3), 51, np.uint8)))])
        wait(page, f"{MESSAGE}.includes('{kind}.png')")
        wait(
            page, "document.querySelector('[data-vit-live]').live.state.picture.every((v) => Math.abs(v - 0.2) < 1e-6)"
        )


@browser_only
def test_several_on_a_page_are_independent_and_leave_no_global(show, small, digits):
    page = show(f"<!doctype html><body>{small[2].html}{digits[0].html}{small[2].html}", ready=3)
    page.locator('[data-to="what-if"]').nth(1).click()
    page.locator('[data-part="blocks.0"]').nth(1).click()
    assert [page.locator(".changed").nth(i).is_visible() for i in range(3)] == [False, True, False]
    mine = page.evaluate("Object.keys(window)")
    assert set(mine) == set(show("<!doctype html><body>", ready=0).evaluate("Object.keys(window)"))


@browser_only
def test_in_an_exported_notebook(show, small):
    from nbconvert import HTMLExporter

    output = nbformat.v4.new_output("display_data", {"text/html": small[2].html, "text/plain": repr(small[2])})
    cell = nbformat.v4.new_code_cell("live.page(model, pictures)", outputs=[output], execution_count=1)
    html, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    page = show(html, strict=False)  # the export itself asks a network for its formulas
    go(page, "head")
    assert page.locator('[data-show="logits"]').is_visible()


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
        small[2].html,
    )
    page.wait_for_selector("[data-ready]")
    assert page.locator("[data-theme]").get_attribute("data-theme") == "dark"
    go(page, "mlp")
    assert page.locator('[data-show="hidden"]').is_visible()


@browser_only
def test_labels_are_shown_as_text(show):
    model = model_of()
    page = show(live.page(model, pictures_of(model, 2), HOSTILE, titles=HOSTILE[:2]))
    assert page.locator(".bars li span").all_text_contents() == HOSTILE
    go(page, "layers")
    go(page, "what-if")
    page.get_by_text("Try each head").click()
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
      e.checkVisibility() && !e.closest(".spoken, input")).map((e) => e.outerHTML.slice(0, 80));
    if (document.documentElement.scrollWidth > innerWidth) out.push("the page");
    const { bottom } = section.querySelector(".also button:last-child").getBoundingClientRect();
    const picture = section.querySelector(".map .caption").getBoundingClientRect();
    if (picture.top < bottom && picture.left < section.querySelector(".also").getBoundingClientRect().right) {
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
def test_fits_its_column(show, digits):
    page = show(digits[0])
    for width in (390, 600, 825, 1200):
        assert_fits(page, width)


@browser_only
def test_an_equation_leaves_the_text_its_room_when_zoomed(show, digits):
    page = show(digits[0], size=(720, 450))  # 1,440 pixels at 200 %
    for station in ("positions", "attention", "mlp", "head"):
        go(page, station)
        if station == "positions":
            page.get_by_role("button", name="Show the mathematics").click()
        lead = page.locator(f'[data-station="{station}"] .lead').bounding_box()
        equation = page.locator(f'[data-station="{station}"] .eq').bounding_box()
        assert equation["y"] + equation["height"] <= lead["y"], station


@browser_only
def test_long_names_fit_their_column(show):
    model = model_of()
    names = [letter * 300 for letter in "abc"]
    page = show(live.page(model, pictures_of(model, 3), names, titles=names))
    go(page, "what-if")
    page.get_by_label("block 1, MLP", exact=True).click()
    page.get_by_text("Try each head").click()
    wait(page, f"{TRIED}.includes('The change without each')")
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
            page.get_by_text("Try each head").click()
            page.get_by_label("block 1, MLP", exact=True).click()
        # What stands beside the panel is the same at each station, so twice is enough for it.
        where = "document" if station in ("attention", "what-if") else "{fromShadowDom: ['[data-vit-live]', '.panel']}"
        rules = "runOnly: ['color-contrast'], " * (scheme == "dark")  # what else there is doesn't depend on colours
        found = page.evaluate(f"axe.run({where}, {{ {rules}resultTypes: ['violations'] }})")
        assert len(found["passes"]) > (0 if rules else 5)
        bad |= {f"{v['id']}: {n['html'][:200]}" for v in found["violations"] for n in v["nodes"][:3]
                if v["impact"] in ("serious", "critical")}  # fmt: skip
    assert bad == set()


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
    page = show(small[2])
    for wish, moves in (("reduce", False), ("no-preference", True)):
        page.emulate_media(reduced_motion=wish)
        assert (set(page.locator(".live").evaluate(durations)) != {"0s"}) is moves


# ---------------------------------------------------------------------------------------------------- what it holds


def test_the_digits_model_is_what_it_claims():
    model, classes, preprocess = vt.load("digits-patch2")
    folder = ROOT / "vit_tutorial" / "weights" / "checkpoints" / "digits-patch2"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    images, labels = vt.data.digits().test.batch()
    with torch.inference_mode():
        right = int((model(preprocess(images)).argmax(1) == labels).sum())
    assert abs(right - round(360 * config["test_accuracy"])) <= 1
    assert right >= 0.985 * 360
    assert model.config.grid == (4, 4)
    assert len(classes) == 10
    assert config["command"].startswith("python -m vit_tutorial.train --data digits --validation ")
    assert (folder / "model.safetensors").stat().st_size < 500_000


@pytest.mark.parametrize("kind", ["plain", "mean", "dinov3", "siglip", "registers without a class token"])
def test_the_strongest_patches_of_every_part_are_those_that_hooks_find(kind):
    model = model_of(**CONFIGS[kind]) if kind in CONFIGS else modern_model(MODERN[kind])
    pictures, c, seen = pictures_of(model, 9), model.config, {}
    for layer, block in enumerate(model.blocks):
        block.mlp.fc1.register_forward_hook(lambda m, i, y, layer=layer: seen.update({layer: y}))
    model.embed.patches.register_forward_hook(lambda m, i, y: seen.update(E=y))
    with torch.no_grad():
        model(pictures)
        maps = model.attention_maps(pictures)
    values = [seen["E"]]  # (n, N, parts) each
    for layer in range(c.depth):
        looks = maps[layer][:, :, 0] if getattr(c, "class_token", c.prefix_tokens) else maps[layer].mean(2)
        values += [seen[layer][:, c.prefix_tokens :, : c.mlp_dim], looks[:, :, c.prefix_tokens :].transpose(1, 2)]
    best = torch.cat(values, dim=2).amax(1).topk(6, dim=0).values.T  # (parts, 6)
    places = strongest(model, pictures, None)
    every = torch.cat(values, dim=2).permute(2, 0, 1)  # (parts, n, N)
    found = torch.stack([every[part, places[part, :, 0], places[part, :, 1]] for part in range(len(every))])
    torch.testing.assert_close(found, best)


def test_too_few_tried_pictures_are_refused(refuses):
    model = model_of()
    with refuses(ValueError, "tried", "at least 6", "(5, 3, 16, 16)"):
        live.page(model, pictures_of(model, 1), tried=pictures_of(model, 5))


def test_weights_that_float16_holds_take_half_of_the_bytes():
    model = model_of()
    whole = data_of(live.page(model, pictures_of(model, 1)).html)["weights"]
    model.load_state_dict({name: tensor.half().float() for name, tensor in model.state_dict().items()})
    half = data_of(live.page(model, pictures_of(model, 1)).html)["weights"]
    assert (whole["half"], half["half"]) == (False, True)
    assert len(whole["values"]) == pytest.approx(2 * len(half["values"]), abs=4)
    values = np.frombuffer(base64.b64decode(half["values"]), "<f2").astype(np.float32)
    assert np.array_equal(values, np.concatenate([t.flatten().numpy() for t in model.state_dict().values()]))


def test_pages_are_small(digits):
    assert len(digits[0].html) <= 1_500_000
    for name, most in (("shapes", 2_000_000), ("photographs", 5_000_000)):
        assert len(shipped(name)[3].html) <= most


def test_holds_the_weights_and_the_pictures_as_they_are(digits):
    live_page, model, _, samples = digits
    data, state = data_of(live_page.html), model.state_dict()
    values = np.frombuffer(base64.b64decode(data["weights"]["values"]), "<f4")
    assert [name for name, _ in data["weights"]["names"]] == list(state)
    assert np.array_equal(values, np.concatenate([tensor.numpy().ravel() for tensor in state.values()]))
    pixels = np.frombuffer(base64.b64decode(data["samples"]["values"]), np.uint8) / data["samples"]["white"]
    assert np.array_equal(pixels, samples.double().numpy().ravel())
    assert repr(live_page) == "Live(parameters=77530, patches=(4, 4), layers=4, heads=4)"


def test_leaves_the_model_as_it_is_and_is_the_same_each_time():
    model = model_of(dropout=0.5, attention_dropout=0.5).train()
    before, pictures = copy.deepcopy(model.state_dict()), pictures_of(model, 2)
    page = live.page(model, pictures)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert page == live.page(model.eval(), pictures)  # no dropout


def test_labels_stay_text():
    model = model_of()
    html = live.page(model, pictures_of(model, 1), HOSTILE, titles=[HOSTILE[0]]).html
    assert html.count("</script>") == 3  # the data's, the template's, the code's
    assert html.count("<img") == 1
    assert "<!--" not in html.partition("text/template")[0]
    assert data_of(html)["classes"] == HOSTILE


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda m, x: (torch.nn.Identity(), x), TypeError, ("Identity", "unwrap")),
        (lambda m, x: (m, [x]), TypeError, ("list", "(B, C, H, W)")),
        (lambda m, x: (m, x.to(torch.uint8)), TypeError, ("torch.uint8",)),
        (lambda m, x: (m, x[0]), ValueError, ("(3, 16, 16)", "(B, 3, 16, 16)")),
        (lambda m, x: (m, x[:0]), ValueError, ("at least 1", "(0, 3, 16, 16)")),
        (lambda m, x: (m, x - 1), ValueError, ("[0, 1]", "before preprocess")),
        (lambda m, x: (m, x * float("nan")), ValueError, ("[0, 1]", "nan")),
        (lambda m, x: (m, x, ["a", "b"]), ValueError, ("3 classes", "2 names")),
        (lambda m, x: (m, x, None, vt.data.Preprocessing((16, 16), (0.5,), (0.5,))), ValueError, ("1 channels",)),
        (lambda m, x: (model_of(num_classes=0), x[:1]), ValueError, ("no classes", "two or more", "num_classes")),
        (lambda m, x: (model_of(image_size=16, stem=hybrid.ResNetStem((), 32)), x), ValueError, ("stem", "itself")),
        (lambda m, x: (model_of(dim=1200, mlp_dim=6000), x), ValueError, ("40,", "108 MB", "S/16")),
    ],
)  # fmt: skip
def test_refuses(refuses, change, error, words):
    model = model_of()
    with refuses(error, *words):
        live.page(*change(model, pictures_of(model, 2)))
    if error is TypeError:
        torch.nn.init.constant_(model.head.weight, float("nan"))
        with refuses(ValueError, "head.weight isn't finite"):
            live.page(model, pictures_of(model, 2))
        with refuses(ValueError, "2 samples", "got 1"):
            live.page(model, pictures_of(model, 2), titles=["one"])


def test_command_line(tmp_path, capsys, refuses):
    live.main(["--out", str(out := tmp_path / "new" / "page.html")])
    assert capsys.readouterr().out.startswith(f"{out}: digits-patch2, 0.7 MB")
    assert out.read_text("utf-8").startswith("<!doctype html>")
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(photo := tmp_path / "a 'photo' & more.png")
    live.main([str(photo), "--weights", "shapes", "--out", str(out)])
    assert data_of(out.read_text("utf-8"))["titles"] == ["a 'photo' & more.png"]
    live.main([*20 * [str(photo)], "--weights", "shapes", "--out", str(out)])
    assert data_of(out.read_text("utf-8"))["meaning"]["count"] == 20
    with refuses(SystemExit, "name some, python -m vit_tutorial.live PHOTO ... --weights runs/pets"):
        live.main(["--weights", "runs/pets", "--out", str(out)])
    (tmp_path / "config.json").write_text('{"data": "digits"}', "utf-8")
    with refuses(SystemExit, f"error: the folder {tmp_path} has no model.safetensors"):
        live.main(["--weights", str(tmp_path), "--out", str(out)])
    with refuses(SystemExit, "--image-size is of the photographs"):
        live.main(["--weights", "shapes", "--image-size", "7", "--out", str(out)])
    for words in (["nowhere.png"], ["--weights", "cats"], ["--weights", "torchvision/vit_b_99"]):
        with refuses(SystemExit, "error: ", words[-1]):
            live.main([*words, "--out", str(out)])
    with refuses(SystemExit, "error: ", "no 'vit_b_99'"):
        live.main([str(photo), "--weights", "torchvision/vit_b_99", "--out", str(out)])
    assert live.shipped("shapes").patches == (8, 8)


def test_one_photograph_is_enough_for_a_model_without_classes(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 42, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(tmp_path)
    how = {"size": {"shortest_edge": 42}, "crop_size": {"height": 42, "width": 42}, "resample": 3}
    transformers.BitImageProcessor(**how).save_pretrained(tmp_path)
    photo = vt.data.photograph_file("gravel")
    live.main([str(photo), "--weights", str(tmp_path), "--out", str(out := tmp_path / "page.html")])
    data = data_of(out.read_text("utf-8"))
    assert data["classes"] == ["gravel.jpg", "cat.jpg", "grass.jpg", "brick.jpg"] == data["titles"]
    assert data["config"]["likeness"]
    assert data["config"]["parameters"] == sum(p.numel() for p in vt.load(tmp_path).model.parameters())


def run_of(folder, data):
    """A folder as a training run leaves it, of a small model for digits that was trained on ``data``."""
    model = model_of(image_size=8, patch_size=2, in_channels=1, num_classes=10)
    digits = vt.data.digits()
    history = [{"epoch": 1, "loss": 1.0, "test_loss": 1.0, "accuracy": 0.5, "test_accuracy": 0.5}]
    vt.weights.save(folder, model, dataclasses.replace(digits, name=data), history)


def test_the_page_of_a_run_begins_with_the_pictures_it_was_trained_for(tmp_path, capsys, refuses):
    run_of(tmp_path / "run", "digits")
    live.main(["--weights", str(tmp_path / "run"), "--out", str(out := tmp_path / "page.html")])
    assert data_of(out.read_text("utf-8"))["titles"] == [str(k) for k in range(10)]
    assert data_of(out.read_text("utf-8"))["meaning"]["count"] == 200
    run_of(tmp_path / "pets", "pets")
    with refuses(SystemExit, f"name some, python -m vit_tutorial.live PHOTO ... --weights {tmp_path / 'pets'}"):
        live.main(["--weights", str(tmp_path / "pets"), "--out", str(out)])


# What each stop of the story asks for; the answer and another picture have more than one place.
ASKED = {
    1: [".pad > canvas", "[data-do=clear]", ".said, .mini"],
    2: [".picker canvas", "[data-spot=pixels] .cells"],
    3: [".picker canvas", "[data-spot=token] .cells"],
    4: ["[data-spot=token] .cells", "[data-meaning=row] .seen"],
    5: [".picker canvas", "[data-spot=position] .cells", "[data-spot=z0] .cells"],
    6: ["[data-do=another]", ".picker canvas", "[data-spot=z0] .cells"],
    7: [".picker canvas", "[data-spot=weights] .token-map"],
    8: [".heads", "[data-meaning=head] .seen"],
    9: ["[data-spot=hidden] .cells", "[data-meaning=unit] .seen"],
    10: ["[data-do=another]", ".lens"],
    11: ["[data-do=another]", "[data-spot=probabilities] .cells"],
    12: [".offers button:first-child", ".offers button:last-child", ".map [data-part$=mlp]", ".said, .mini"],
    13: [".map [data-part$=mlp]"],
}
# Those of some selectors none of whose elements is in sight: whole, on the screen, with nothing of the page over it.
HIDDEN = """async (asked) => {
  for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
  const root = document.querySelector("[data-vit-live]").shadowRoot;
  const isSeen = (element) => {
    const { left, top, right, bottom } = element.getBoundingClientRect();
    if (!element.checkVisibility() || left < 0 || right > innerWidth || top < 0 || bottom > innerHeight) return false;
    return [top + 2, bottom - 2].every((y) => {
      const over = root.elementFromPoint((left + right) / 2, y);
      return over && ["tour", "model"].every((name) => !over.closest(`.${name}`) || element.closest(`.${name}`));
    });
  };
  return asked.filter((one) => ![...root.querySelectorAll(one)].some(isSeen));
}"""


# Quick are a phone, a tablet and a low laptop: the rules of live.css that hold for them hold for the others, too.
@browser_only
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(((375, 700), (768, 1024), (1366, 650)), id="quick"),
        pytest.param(((320, 640), (1920, 1080)), id="others", marks=pytest.mark.slow),
    ],
)
def test_what_a_stop_asks_for_is_in_sight_beside_its_sentence(show, digits, sizes):
    page = show(digits[0], has_touch=True)  # buttons for fingers take more room
    for size in sizes:
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.evaluate("window.scrollTo(0, 0)")
        for number, asked in ASKED.items():
            assert text(page, ".count") == f"{number} of 13"
            assert page.evaluate(HIDDEN, [".sentence", *asked]) == [], (size, number)
            if size[0] == 375:  # what is left of a phone's screen
                assert page.locator(".tour").evaluate("(tour) => tour.offsetHeight") <= 135
            page.locator("[data-do=next]").evaluate("(button) => button.click()")


@browser_only
def test_a_part_of_the_map_that_is_pointed_at_shows_what_it_is(show, digits):
    page = show(digits[0])
    lit = "all => all.map((e) => e.dataset.of ?? 'frame')"
    for name, parts in {
        "block 1, shortcut beside attention": ["1.input"],
        "block 1, shortcut beside the MLP": ["1.middle"],
        "block 1": ["frame", *["1.each", "1.head 0", "1.each", "1.head 1", "1.each", "1.head 2", "1.each", "1.head 3"],
                    *["1.each", "1.mlp"]],
    }.items():  # fmt: skip
        page.get_by_label(name, exact=True).hover()
        assert page.locator(".map .pointed").evaluate_all(lit) == parts
    page.locator("header").hover()
    assert page.locator(".map .pointed").count() == 0


@browser_only
def test_a_patch_alone_can_t_be_moved(show):
    model = model_of(image_size=4)
    page = show(live.page(model, pictures_of(model, 1)))
    go(page, "what-if")
    page.get_by_text("Shuffle all").click()
    assert text(page, ".list") == ""
