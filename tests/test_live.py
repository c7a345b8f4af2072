"""The live page: its numbers against PyTorch's, and what Chromium makes of it (skipped where there is none)."""

import base64
import copy
import importlib.util
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

import vit_tutorial as vt
from vit_tutorial import hybrid, live
from vit_tutorial.data import normalise
from vit_tutorial.live.command import samples_of

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY = "needs playwright" if importlib.util.find_spec("playwright") is None else "" if CHROMIUM else "needs chromium"
browser_only = pytest.mark.skipif(bool(WHY), reason=f"{WHY}: apt-get install chromium, pip install playwright")
# No traffic of the browser's own, and it runs in a container.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
HOSTILE = ["</script><script>window.pwned = 1</script>", '"><img src=x onerror="window.pwned = 1">', "<!-- 'a' & b"]
SMALL = {"image_size": 16, "patch_size": 4, "dim": 24, "depth": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 3}
CONFIGS = {
    "plain": {},
    "rectangle": {"image_size": (12, 20), "patch_size": (3, 5), "in_channels": 1},
    "mean": {"pool": "mean", "position": "sincos"},
    "distilled": {"pool": "distilled", "gelu": "tanh"},
    "bare": {"position": "none", "qkv_bias": False, "norm_eps": 0.1, "in_channels": 2},
    "stem": {"stem": hybrid.ConvStem(((6, 3, 2), (5, 2, 2), (7, 5, 1)))},
    "stem, larger patches": {"patch_size": 8, "stem": hybrid.ConvStem(((6, 3, 2),))},
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
    "many at once": {"off": ["blocks.0.attention.heads.0", "blocks.1.mlp"], "scale": False, "temperature": 0.5},
}


def model_of(**changes):
    """A small random model none of whose numbers is zero."""
    torch.manual_seed(0)
    model = vt.ViT(vt.ViTConfig(**(SMALL | changes)))
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point() and tensor.abs().max() <= 1:
            torch.nn.init.normal_(tensor, std=0.4)
    for name, tensor in model.state_dict().items():
        if "running_var" in name or ("norm" in name.split(".")[-2] and name.endswith("weight")):
            tensor.abs_().add_(0.5)
    if model.config.position == "sincos":  # a buffer: back to what it is
        model.embed.position.copy_(vt.ViT(model.config).embed.position)
    return model.eval()


def pictures_of(model, count):
    c = model.config
    height, width = (c.image_size, c.image_size) if isinstance(c.image_size, int) else c.image_size
    return torch.randint(0, 256, (count, c.in_channels, height, width)) / 255


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
    """{name: array}: every number that the page shows, from the model in float64 with the same changes by hooks."""
    c, seen = model.config, {}
    image = rearranged(c, picture[None].double(), preprocess, changes)
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


def spelt(changes, config):
    """The changes with the orders of this model's patches in them."""
    N = config.grid[0] * config.grid[1]
    orders = {"reversed": [*range(N)][::-1], "repeated": [1] * N}
    return changes | ({"order": orders[changes["order"]]} if "order" in changes else {})


# ------------------------------------------------------------------------------------------------------ in a browser


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium, tmp_path):
    """Opens HTML or a live page; at the end, nothing was asked of a network and nothing was complained of."""
    contexts, heard = [], []

    def open_page(content, *, ready=1, strict=True, fragment="", **context):
        context = chromium.new_context(**({"viewport": {"width": 1200, "height": 900}} | context))
        page = context.new_page()
        contexts.append(context)
        page.on("pageerror", lambda error: heard.append(str(error)))
        if strict:
            page.on("console", lambda message: heard.append(message.text))
            page.on("request", lambda request: heard.append(request.url) if "://" in request.url[5:] else None)
        page.route("http*://**", lambda route: route.abort())
        path = tmp_path / f"page {len(contexts)}.html"
        if isinstance(content, str):
            path.write_text(content, "utf-8")
        else:
            content.save(path)
        page.goto(path.as_uri() + fragment)
        if ready:
            page.wait_for_function(f"document.querySelectorAll('[data-ready]').length === {ready}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


# A run's arrays by name, each as base64 of float32.
RUN = """([values, changes, lens]) => {
  const live = document.querySelector("[data-vit-live]").live, found = {};
  const text = (array) => {
    let out = "";
    const b = new Uint8Array(Float32Array.from(array).buffer);
    for (let i = 0; i < b.length; i += 32768) out += String.fromCharCode(...b.subarray(i, i + 32768));
    return btoa(out);
  };
  const walk = (thing, name) => {
    if (ArrayBuffer.isView(thing)) found[name] = text(thing);
    else if (thing && typeof thing === "object") {
      for (const key in thing) walk(thing[key], name ? `${name}.${key}` : key);
    }
  };
  const result = live.run(Float32Array.from(values), changes);
  walk(lens ? live.lens(result) : result, "");
  return found;
}"""


def run_in(page, picture, changes, *, lens=False):
    found = page.evaluate(RUN, [picture.flatten().tolist(), changes, lens])
    return {name: np.frombuffer(base64.b64decode(text), "<f4") for name, text in found.items()}


def compare(found, right, tolerance=1e-4):
    assert set(right) <= set(found), set(right) - set(found)
    extra = {name for name in set(found) - set(right) if not re.match(r"embed\.(maps|cut)", name)}
    assert not extra
    for name, array in right.items():
        assert found[name].shape == array.shape, name
        assert np.abs(found[name] - array).max() <= tolerance * max(np.abs(array).max(), 1e-6), name


def shipped(name):
    model, classes, preprocess = vt.load(name)
    samples, titles = samples_of(name)
    return model, classes, preprocess, samples, titles


@pytest.fixture(scope="module")
def small():
    """A small model, four random pictures, and their page."""
    model, pictures = model_of(), pictures_of(model_of(), 4)
    return model, pictures, live.page(model, pictures, ["one", "two", "three"])


@browser_only
@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_every_number_of_every_kind_of_model_is_pytorch_s(show, changes):
    model = model_of(**changes)
    pictures = pictures_of(model, 2)
    page, double = show(live.page(model, pictures)), copy.deepcopy(model).double()
    for picture in pictures:
        compare(run_in(page, picture, {}), stations(double, picture, None, {}))


@browser_only
@pytest.mark.parametrize("kind", ["plain", "mean", "stem"])
def test_every_number_after_each_change_is_pytorch_s(show, kind):
    model = model_of(**CONFIGS[kind])
    pictures = pictures_of(model, 1)
    page, double = show(live.page(model, pictures)), copy.deepcopy(model).double()
    plain = stations(double, pictures[0], None, {})
    for name, change in CHANGES.items():
        changes = spelt(change, model.config)
        right = stations(double, pictures[0], None, changes)
        compare(run_in(page, pictures[0], changes), right)
        if name != "as trained":
            assert np.abs(right["probabilities"] - plain["probabilities"]).max() > 1e-4, name


@browser_only
@pytest.mark.parametrize("name", ["digits", "shapes", "cifar10"])
def test_every_number_of_the_shipped_models_is_pytorch_s(show, name):
    model, classes, preprocess, samples, titles = shipped(name)
    page = show(live.page(model, samples, classes, preprocess, titles=titles))
    double = copy.deepcopy(model).double()
    for picture, changes in zip(samples[:3], list(CHANGES.values())[::6], strict=True):
        changes = spelt(changes, model.config)
        compare(run_in(page, picture, changes), stations(double, picture, preprocess, changes))
