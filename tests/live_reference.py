"""What the live page must show: every number of a pass in PyTorch, with the page's changes made by hooks."""

import base64
import copy
import functools
import json
import re
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from browser import wait

import vit_tutorial as vt
from vit_tutorial import live
from vit_tutorial.data import normalise
from vit_tutorial.live.command import samples_of, tried_on

SMALL = {"image_size": 16, "patch_size": 4, "dim": 24, "depth": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 3}


CONFIGS = {
    "plain": {},
    "rectangle": {"image_size": (12, 20), "patch_size": (3, 4), "in_channels": 1},
    "mean": {"pool": "mean", "position": "sincos"},
    "bare": {"position": "none", "gelu": "tanh", "qkv_bias": False, "norm_eps": 0.1, "in_channels": 2},
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


STATIONS = ("patches", "embedding", "positions", "attention", "mlp", "head", "layers", "what-if")


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
    seen["probabilities"] = seen["logits"].softmax(dim=0)
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
    """A model's page, the model in float64, its preprocessing, and the pictures that the page begins with."""
    model, classes, preprocess = vt.load(name)
    samples, titles, tried = samples_of(name), classes, tried_on(name)
    page = live.page(model, samples, classes, preprocess, titles=titles, tried=tried)
    return page, copy.deepcopy(model).double(), preprocess, samples


def together(pages):
    """Several pages on one."""
    return f"<!doctype html><body>{''.join(page.html for page in pages)}"


# Whether a page computes nothing: what it shows is of the newest picture and changes.
SETTLED = """[...document.querySelectorAll("[data-ready]")].every((host) =>
  !host.shadowRoot.querySelector('.answer[aria-busy="true"]'))"""


def text(page, selector):
    wait(page, SETTLED)
    return page.locator(selector).first.text_content().replace("\u00a0", " ")


# All of every page, as for those who know.
EVERYTHING = """document.querySelectorAll("[data-ready]").forEach((host) =>
  host.shadowRoot.querySelector("[data-do=whole]").click())"""


@pytest.fixture(name="show")
def show_everything(show):
    """A page with everything shown; unless ``whole`` is False, as it begins."""

    def shown(content, *, whole=True, **how):
        page = show(content, **how)
        if whole:
            page.evaluate(EVERYTHING)
        return page

    return shown


@pytest.fixture(scope="module", name="digits")
def page_of_digits():
    return shipped("digits-patch2")


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
    chance = f"{100 * shares.max():.1f} %"
    return "nothing" if shares.max() - shares.min() < 1e-3 else f"{shares.argmax()}, {chance}"


def draw(page, points):
    box = page.locator(".pad > canvas").bounding_box()
    (x, y), *rest = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(x, y)
    page.mouse.down()
    for x, y in rest:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


SEVEN = [(0.25, 0.12), (0.75, 0.12), (0.45, 0.9)]


def number_in(reading):
    number = float(reading.removesuffix(" %").rpartition(" ")[2].replace("−", "-"))
    return number / 100 if reading.endswith(" %") else number
