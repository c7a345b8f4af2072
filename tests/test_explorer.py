"""The attention explorer: what its HTML holds, and what Chromium makes of it (skipped where there is none)."""

import base64
import copy
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from browser import browser_only, wait
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import vit_tutorial as vt
from vit_tutorial.analysis import explain
from vit_tutorial.explorer import explore, main, quantise
from vit_tutorial.variants.modern import ModernConfig, ModernViT

ROOT = Path(__file__).parent.parent
HOSTILE = ["</script><script>window.pwned = 1</script>", '"><img src=x onerror="window.pwned = 1">', "<!-- 'a' & b"]
SMALL = {"dim": 24, "depth": 3, "num_heads": 2, "mlp_dim": 24, "patch_size": 8, "num_classes": 3}
CONFIGS = {
    "square": {"image_size": 32},
    "rectangle": {"image_size": (24, 40), "patch_size": (4, 8)},
    "mean": {"image_size": (32, 16), "pool": "mean"},
    "distilled": {"image_size": 16, "pool": "distilled", "in_channels": 1},
    "no head": {"image_size": 16, "num_classes": 0},
    "one of each": {"image_size": 16, "depth": 1, "num_heads": 1},
}


def model_of(**changes):
    """A model whose attention has peaks: as initialised, it would look at everything alike."""
    torch.manual_seed(0)
    model = vt.ViT(vt.ViTConfig(**(SMALL | changes))).eval()
    for name, parameter in model.named_parameters():
        if "qkv.weight" in name or "position" in name or "head" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def images_of(model, count=2):
    c = model.config
    height, width = (c.image_size, c.image_size) if isinstance(c.image_size, int) else c.image_size
    return torch.rand(count, c.in_channels, height, width)


@torch.inference_mode()
def expected(model, images):
    """{"head": (L, B, h, T, T), "mean": (L, B, T, T), "rollout": (B, T, T)}, in the model's own precision."""
    maps = torch.stack(list(model.attention_maps(images).values()))
    return {"head": maps, "mean": maps.mean(dim=2), "rollout": explain.rollout(maps)}


def data_of(html):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])


def unpack(chunk, heads, tokens):
    values = np.frombuffer(base64.b64decode(chunk["values"]), np.uint8).reshape(heads, tokens, tokens)
    most = np.frombuffer(base64.b64decode(chunk["most"]), "<f4").reshape(heads, tokens, 1)
    return torch.from_numpy(values / 255 * most)


# ---------------------------------------------------------------------------------------------------- what it holds


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(0, 1)))
def test_eight_bits_are_off_by_at_most_a_255th_of_the_row_s_largest(rows):
    weights = torch.from_numpy(rows)
    q, most = quantise(weights)
    assert (q.dtype, most.dtype) == (torch.uint8, torch.float32)
    back = q.double() / 255 * most[:, None].double()
    assert ((back - weights).abs() <= weights.amax(dim=1, keepdim=True) / 255 + 1e-37).all()


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_holds_the_weights_of_the_model(changes):
    model = model_of(**changes)
    images = images_of(model)
    page = explore(model, images)
    data, right, c = data_of(page.html), expected(model, images), model.config
    assert data["grid"] == list(c.grid)
    assert len(data["special"]) == c.num_tokens - c.grid[0] * c.grid[1]
    assert repr(page) == f"Explorer(pictures=2, layers={c.depth}, heads={c.num_heads}, tokens={c.num_tokens})"
    for number, picture in enumerate(data["pictures"]):
        for layer, chunk in enumerate(picture["layers"]):
            w = right["head"][layer, number]  # (h, T, T)
            error = (unpack(chunk, c.num_heads, c.num_tokens) - w).abs()
            assert (error <= w.amax(dim=-1, keepdim=True) / 255).all()
        w = right["rollout"][number]
        error = (unpack(picture["rollout"], 1, c.num_tokens)[0] - w).abs()
        assert (error <= w.amax(dim=-1, keepdim=True) / 255).all()


def test_names_the_likeliest_classes():
    model, classes, preprocess = vt.load("shapes")
    scenes = vt.data.shapes(train=1, test=8).test
    images = preprocess(scenes.batch()[0])
    with torch.inference_mode():
        shares = model(images).softmax(dim=1)
    for number, picture in enumerate(data_of(explore(model, images, classes).html)["pictures"]):
        assert len(picture["top"]) == 5
        assert picture["top"][0][0] == classes[scenes.labels[number]]
        found = torch.tensor([share for _, share in picture["top"]])
        assert torch.allclose(found, shares[number].sort(descending=True)[0][:5], atol=6e-4)
    unnamed = data_of(explore(model, images[:1]).html)["pictures"][0]["top"]
    assert unnamed[0][0] == f"class {int(shares[0].argmax())}"
    assert (
        data_of(explore(model_of(num_classes=0, image_size=16), torch.rand(1, 3, 16, 16)).html)["pictures"][0]["top"]
        == []
    )


def pixels_of(html, number=0):
    source = re.findall(r'<img src="data:image/bmp;base64,([^"]*)"', html)[number]
    return np.array(Image.open(io.BytesIO(base64.b64decode(source))))


def test_shows_the_pictures_as_they_were():
    model, _, preprocess = vt.load("shapes")
    scenes = vt.data.shapes(train=1, test=2).test
    right = scenes.images.permute(0, 2, 3, 1).numpy()
    images = scenes.batch()[0]
    for page in (explore(model, preprocess(images), preprocess=preprocess), explore(model, images)):
        assert all((pixels_of(page.html, i) == right[i]).all() for i in range(2))
    stretched = pixels_of(explore(model, preprocess(images)).html)
    assert (stretched.min(), stretched.max()) == (0, 255)
    grey = pixels_of(explore(model_of(**CONFIGS["distilled"]), torch.full((1, 1, 16, 16), 0.2)).html)
    assert grey.shape == (16, 16, 3)
    assert (grey == 51).all()


def test_is_small():
    model, classes, preprocess = vt.load("shapes")
    images = preprocess(vt.data.shapes(train=1, test=8).test.batch()[0])
    assert len(explore(model, images[:4], classes, preprocess=preprocess).html) <= 1_500_000
    # As many tokens, layers and heads as B/16; the width doesn't count.
    narrow = vt.ViT(vt.ViTConfig(dim=24, depth=12, num_heads=12, mlp_dim=24)).eval()
    assert 7_000_000 < len(explore(narrow, torch.rand(1, 3, 224, 224)).html) <= 8_000_000


@pytest.mark.slow
def test_is_the_same_on_another_processor():
    # Without vector instructions the last bits of float32 differ; nbval compares the lessons' HTML as it is.
    code = (
        "import hashlib, torch, vit_tutorial as vt; from vit_tutorial.explorer import explore\n"
        "model, classes, preprocess = vt.load('shapes'); images = vt.data.shapes(train=1, test=8).test.batch()[0]\n"
        "html = explore(model, preprocess(images), classes, preprocess=preprocess).html\n"
        "print(hashlib.sha256(html.encode()).hexdigest())"
    )
    env = os.environ | {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True, cwd=ROOT)
    model, classes, preprocess = vt.load("shapes")
    html = explore(
        model, preprocess(vt.data.shapes(train=1, test=8).test.batch()[0]), classes, preprocess=preprocess
    ).html
    assert done.stdout.strip() == hashlib.sha256(html.encode()).hexdigest()


def test_leaves_the_model_as_it_is():
    model = model_of(image_size=16, dropout=0.5, attention_dropout=0.5).train()
    before, images = copy.deepcopy(model.state_dict()), torch.rand(1, 3, 16, 16)
    page = explore(model, images)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert page == explore(model.eval(), images)  # no dropout
    with torch.inference_mode():
        assert page == explore(model, images)
    model(images).sum().backward()  # its parameters still learn


def test_labels_stay_text():
    model = model_of(image_size=16)
    html = explore(model, torch.rand(1, 3, 16, 16), HOSTILE, titles=[HOSTILE[0]]).html
    assert html.count("</script>") == 3  # the data's, the template's, the code's
    assert html.count("<img") == 1
    assert "<!--" not in html
    assert sorted(label for label, _ in data_of(html)["pictures"][0]["top"]) == sorted(HOSTILE)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda m, x: (torch.nn.Identity(), x), TypeError, ("Identity", "unwrap")),
        (lambda m, x: (m, [x]), TypeError, ("list", "(B, C, H, W)")),
        (lambda m, x: (m, x.to(torch.uint8)), TypeError, ("torch.uint8",)),
        (lambda m, x: (m, x[0]), ValueError, ("(3, 16, 16)", "(B, C, H, W)")),
        (lambda m, x: (m, x[:0]), ValueError, ("at least one", "(0, 3, 16, 16)")),
        (lambda m, x: (m, x / 0), ValueError, ("finite",)),
        (lambda m, x: (m, x[..., :8]), ValueError, ("8",)),
        (lambda m, x: (m, x, ["a", "b"]), ValueError, ("3 classes", "2 names")),
    ],
)
def test_refuses(refuses, change, error, words):
    model = model_of(image_size=16)
    with refuses(error, *words):
        explore(*change(model, torch.rand(2, 3, 16, 16)))


def test_refuses_what_does_not_go_together(refuses):
    model, images = model_of(image_size=16), torch.rand(2, 3, 16, 16)
    with refuses(ValueError, "2 images", "got 1"):
        explore(model, images, titles=["one"])
    with refuses(ValueError, "1 channels", "3"):
        explore(model, images, preprocess=vt.load("digits").preprocess)
    torch.nn.init.constant_(model.blocks[0].attention.qkv.weight, float("nan"))
    with refuses(ValueError, "isn't finite", "NaN"):
        explore(model, images)


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(path := tmp_path / "a 'photo' & more.png")
    return str(path)


def test_command_line(photo, tmp_path, capsys, refuses):
    main([photo, photo, "--weights", "shapes", "--out", str(out := tmp_path / "new" / "page.html")])
    assert capsys.readouterr().out.startswith(f"{out}: 0.")
    page = out.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert [picture["title"] for picture in data_of(page)["pictures"]] == ["a 'photo' & more.png"] * 2
    assert (pixels_of(page) == 90).all()  # as it was, not normalised
    for words in (["nowhere.png", "--weights", "shapes"], [photo, "--weights", "cats"]):
        with refuses(SystemExit, "error: ", words[0] if words[0] != photo else "cats"):
            main([*words, "--out", str(out)])
    with refuses(SystemExit, "error: ", "can't write"):
        main([photo, "--weights", "shapes", "--out", f"{photo}/page.html"])


def test_command_line_takes_folders_and_names_what_it_skips(photo, tmp_path, refuses, capsys):
    main([str(tmp_path), "--weights", "shapes", "--out", str(out := tmp_path / "page.html")])
    assert [picture["title"] for picture in data_of(out.read_text("utf-8"))["pictures"]] == ["a 'photo' & more.png"]
    out.unlink()
    (tmp_path / "bad.jpg").write_bytes(b"not an image")
    with refuses(SystemExit, "error: 2 skipped", "nowhere.png was not found"):
        main([str(tmp_path), "nowhere.png", "--weights", "shapes", "--out", str(out)])
    assert [picture["title"] for picture in data_of(out.read_text("utf-8"))["pictures"]] == ["a 'photo' & more.png"]
    assert "bad.jpg is not an image" in capsys.readouterr().err
    with refuses(SystemExit, "error: no photograph can be read: nowhere.png was not found"):
        main(["nowhere.png", "--weights", "shapes", "--out", str(tmp_path / "other.html")])
    assert not (tmp_path / "other.html").exists()


# ------------------------------------------------------------------------------------------------------ in a browser


def point(page, panel, patch, grid, act="hover"):
    row, column = divmod(patch, grid[1])
    canvas = page.locator(f".{panel} > canvas")
    box = canvas.bounding_box()
    where = {"x": (column + 0.5) * box["width"] / grid[1], "y": (row + 0.5) * box["height"] / grid[0]}
    getattr(canvas, act)(position=where)


def text(page, selector):
    return page.locator(selector).text_content()


def share(page, selector=".value"):
    return float(re.search(r"([\d.]+) %", text(page, selector))[1]) / 100


@pytest.fixture(scope="module")
def shapes():
    """The shipped model, four scenes as it takes them, its explorer, and its weights."""
    model, classes, preprocess = vt.load("shapes")
    images = preprocess(vt.data.shapes(train=1, test=8).test.batch()[0][:4])
    return explore(model, images, classes, preprocess=preprocess), expected(model, images)


def close(found, weights, key, printed=1e-3):
    """Within the stated error: 1/255 of the largest, and the digits printed."""
    return abs(found - float(weights[key])) <= float(weights.max()) / 255 + printed / 2


@browser_only
def test_registers_are_not_called_distillation_tokens(show):
    torch.manual_seed(0)
    model = ModernViT(ModernConfig(**SMALL | {"image_size": 16}, registers=2)).eval()
    page = show(explore(model, torch.rand(1, 3, 16, 16)))
    for panel in ("from", "to"):
        assert page.locator(f".{panel} .special i").all_text_contents() == ["CLS", "R1", "R2"]
        names = page.locator(f".{panel} .special span").all_text_contents()
        assert all(map(str.startswith, names, ("class token", "register 1", "register 2")))


@browser_only
@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_the_value_under_the_cursor_is_the_model_s(show, changes):
    model = model_of(**changes)
    images = images_of(model, 1)
    page, right, c = show(explore(model, images)), expected(model, images), model.config
    grid, N, prefix = c.grid, c.grid[0] * c.grid[1], c.num_tokens - c.grid[0] * c.grid[1]
    rng = np.random.default_rng(0)
    for mode in ("head", "mean", "rollout"):
        page.locator(f"[value={mode}] + span").click()
        for patch, key in rng.integers(N, size=(3, 2)):
            point(page, "from", patch, grid, "click")
            point(page, "to", key, grid)
            row = {"head": right["head"][-1, 0, 0], "mean": right["mean"][-1, 0], "rollout": right["rollout"][0]}[mode]
            row = row[prefix + patch]  # (T,)
            bound = right["head"][-1, 0, :, prefix + patch].amax(dim=-1).mean() if mode == "mean" else row.max()
            assert text(page, ".to .name") == f"patch {key}"
            assert text(page, ".to .place") == f"row {key // grid[1]}, column {key % grid[1]}"
            assert abs(share(page) - float(row[prefix + key])) <= float(bound) / 255 + 0.0005
            for token in range(prefix):
                label = page.locator(".to .special button").nth(token).text_content()
                assert abs(float(label.split()[-2]) / 100 - float(row[token])) <= float(bound) / 255 + 0.0005


@browser_only
def test_pointing_previews_and_a_click_keeps(show, shapes):
    explorer, right = shapes
    page, w = show(explorer), right["head"][3, 0, 0]  # (T, T)
    assert text(page, ".from .name") == "class token"
    assert close(share(page), w[0], w[0].argmax())  # without a key, the one looked at most
    point(page, "from", 20, (8, 8))
    assert text(page, ".from .name") == "patch 20"
    assert close(share(page), w[21], w[21].argmax())
    page.mouse.move(5, 5)
    assert text(page, ".from .name") == "class token"
    point(page, "from", 9, (8, 8), "click")
    page.mouse.move(5, 5)
    assert text(page, ".from .name") == "patch 9"
    point(page, "to", 30, (8, 8), "click")
    page.mouse.move(5, 5)
    assert text(page, ".to .name") == "patch 30"
    assert close(share(page), w[10], 31)
    point(page, "to", 30, (8, 8), "click")  # lets it go
    page.mouse.move(5, 5)
    assert close(share(page), w[10], w[10].argmax())
    page.locator(".to .special button").hover()
    assert text(page, ".to .name") == "class token"
    assert close(share(page), w[10], 0)
    page.locator(".from .special button").click()
    assert page.locator(".from .special button").get_attribute("aria-pressed") == "true"
    page.mouse.move(5, 5)
    assert text(page, ".from .name") == "class token"


@browser_only
def test_sliders_modes_and_small_maps(show, shapes):
    explorer, right = shapes
    page = show(explorer, reduced_motion="reduce")
    layer, head = (page.get_by_role("slider", name=name) for name in ("Layer", "Head"))
    layer.press("ArrowLeft")
    head.press("ArrowRight")
    head.press("ArrowRight")
    w = right["head"][2, 0, 2, 0]
    assert (layer.input_value(), head.input_value()) == ("2", "2")
    assert close(share(page), w, w.argmax())
    page.locator(".map canvas").click(position={"x": 170, "y": 3})
    assert (layer.input_value(), head.input_value()) == ("0", "3")
    w = right["head"][0, 0, 3, 0]
    assert close(share(page), w, w.argmax())
    page.get_by_text("Mean of heads").click()
    assert head.is_disabled()
    assert not layer.is_disabled()
    w = right["mean"][0, 0, 0]
    assert close(share(page), w, w.argmax(), printed=2e-3)
    page.get_by_text("Rollout", exact=True).click()
    assert layer.is_disabled()
    w = right["rollout"][0, 0]
    assert close(share(page), w, w.argmax())
    assert page.locator(".mark").bounding_box()["height"] > 150


@browser_only
def test_with_the_keyboard_alone(show, shapes):
    explorer, right = shapes
    page = show(explorer)
    described = "c => c.getRootNode().getElementById(c.getAttribute('aria-describedby')).textContent"
    assert "with Shift" in page.locator(".from > canvas").evaluate(described)
    for _ in range(3):  # the thumbnails, the class token, the picture
        page.keyboard.press("Tab")
    keys = ("Down", "Right", "Down", "Up", "Up", "Down", "Right", "Down")  # the class token is above the patches
    found = []
    for key in keys:
        page.keyboard.press(f"Arrow{key}")
        found.append(text(page, ".from .name"))
    assert found == [f"patch {n}" for n in (0, 1, 9, 1)] + ["class token"] + [f"patch {n}" for n in (0, 1, 9)]
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowRight")
    w = right["head"][2, 0, 1, 10]
    best = int(w.argmax())
    spoken = text(page, "[aria-live]")
    assert spoken.startswith("layer 2, head 1: patch 9 row 1, column 1 looks at ")
    assert (f"patch {best - 1} row" if best else "class token") in spoken.split(";")[0]
    assert close(share(page, "[aria-live]"), w, best)
    page.keyboard.press("End")
    assert text(page, ".from .name") == "patch 63"
    page.keyboard.press("ArrowRight")
    assert text(page, ".from .name") == "patch 63"
    page.keyboard.press("Home")
    assert text(page, ".from .name") == "class token"
    point(page, "from", 20, (8, 8))
    page.keyboard.press("Home")  # a pointer at rest gives way
    assert text(page, ".from .name") == "class token"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # the tokens
    page.keyboard.press("End")
    w = right["head"][2, 0, 1, 0]
    assert text(page, ".to .name") == "patch 63"
    assert close(share(page, "[aria-live]"), w, 64)
    page.keyboard.press("Escape")
    assert close(share(page), w, w.argmax())


@browser_only
def test_thumbnails_change_the_picture(show, shapes):
    explorer, right = shapes
    page, pictures = show(explorer), data_of(explorer.html)["pictures"]
    for number in (2, 0):
        page.locator(".thumbs img").nth(number).click()
        rows = page.locator(".answers li").all()
        found = [[span.text_content() for span in row.locator("span").all()] for row in rows]
        assert found == [[label, f"{100 * part:.1f} %"] for label, part in pictures[number]["top"]]
        w = right["head"][3, number, 0, 0]
        assert close(share(page), w, w.argmax())


def pixel(page, panel, patch, grid=(8, 8)):
    """The colour in the middle of a patch's cell."""
    row, column = divmod(patch, grid[1])
    return page.locator(f".{panel} > canvas").evaluate(
        "(canvas, [x, y]) => { const copy = new OffscreenCanvas(1, 1).getContext('2d');"
        "copy.drawImage(canvas, -Math.floor(x * canvas.width), -Math.floor(y * canvas.height));"
        "return [...copy.getImageData(0, 0, 1, 1).data]; }",
        [(column + 0.5) / grid[1], (row + 0.5) / grid[0]],
    )[:3]


@browser_only
def test_the_overlay_goes_from_the_picture_to_the_heat(show):
    import matplotlib

    model = model_of(image_size=16)
    images = torch.zeros(1, 3, 16, 16)
    images[:, 0], images[:, 1, :8] = 0.8, 0.4
    page = show(explore(model, images))
    slider = page.get_by_role("slider", name="Overlay")
    slider.press("Home")
    assert pixel(page, "to", 0, (2, 2)) == [102] * 3  # grey: the mean of 204, 102 and 0
    assert pixel(page, "from", 0, (2, 2)) == [204, 102, 0]
    slider.press("End")
    with torch.inference_mode():
        row = model.attention_maps(images)[2][0, 0, 0, 1:]
    for patch in range(4):
        right = matplotlib.colormaps["magma"](float(row[patch] / row.max()), bytes=True)[:3]
        assert np.abs(np.subtract(pixel(page, "to", patch, (2, 2)), right)).max() <= 6  # a step or two of 256


@browser_only
def test_several_on_a_page_are_independent_and_leave_no_global(show, shapes):
    other = model_of(**CONFIGS["rectangle"])
    page = show(
        f"<!doctype html><body>{shapes[0].html}{explore(other, images_of(other)).html}{shapes[0].html}", ready=3
    )
    names = page.locator(".from .name")
    page.locator(".from > canvas").nth(2).press("End")
    page.locator(".from > canvas").nth(1).press("ArrowDown")
    assert [names.nth(i).text_content() for i in range(3)] == ["class token", "patch 0", "patch 63"]
    page.get_by_text("Rollout", exact=True).nth(1).click()
    assert [page.locator("[value=rollout]").nth(i).is_checked() for i in range(3)] == [False, True, False]
    mine = page.evaluate("Object.keys(window)")
    assert set(mine) == set(show("<!doctype html><body>", ready=0).evaluate("Object.keys(window)"))


@browser_only
def test_in_an_exported_notebook(show, shapes):
    from nbconvert import HTMLExporter

    output = nbformat.v4.new_output("display_data", {"text/html": shapes[0].html, "text/plain": repr(shapes[0])})
    cell = nbformat.v4.new_code_cell("explore(model, images)", outputs=[output], execution_count=1)
    html, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    page = show(html, strict=False)  # the export itself asks a network for its formulas
    point(page, "from", 20, (8, 8))
    assert text(page, ".from .name") == "patch 20"
    w = shapes[1]["head"][3, 0, 0, 21]
    assert close(share(page), w, w.argmax())


# How JupyterLab and VS Code run the scripts of an output that they put into their page.
PUT = {
    "JupyterLab": "script.replaceWith(copy)",
    "VS Code": "place.append(copy); copy.remove()",
}


@browser_only
@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_put_into_a_page_by_a_notebook(show, shapes, put):
    page = show("<!doctype html><body class='vscode-dark'><div></div>", ready=0)
    page.evaluate(
        "html => { const place = document.querySelector('div'); place.innerHTML = html;"
        "for (const script of [...place.querySelectorAll('script')]) {"
        "const copy = document.createElement('script'); copy.type = script.type; copy.text = script.text; "
        + put
        + " } }",
        shapes[0].html,
    )
    page.wait_for_selector("[data-ready]")
    point(page, "from", 20, (8, 8))
    assert text(page, ".from .name") == "patch 20"
    assert page.locator("[data-theme]").get_attribute("data-theme") == "dark"


@browser_only
def test_labels_are_shown_as_text(show):
    page = show(explore(model_of(image_size=16), torch.rand(2, 3, 16, 16), HOSTILE, titles=HOSTILE[:2]))
    shown = page.locator(".answers li span:first-child").all_text_contents()
    assert sorted(shown) == sorted(HOSTILE)
    assert [image.get_attribute("alt") for image in page.locator(".thumbs img").all()] == HOSTILE[:2]
    assert text(page, ".title") == HOSTILE[0]
    assert page.evaluate("window.pwned") is None


@browser_only
def test_without_its_script_the_pictures_and_answers_remain(show, shapes):
    page = show(shapes[0].html, ready=0, java_script_enabled=False)
    assert page.locator("img").count() == 4
    label, part = data_of(shapes[0].html)["pictures"][1]["top"][0]
    assert page.locator("figcaption").nth(1).inner_text() == f"image 1: {label} {100 * part:.1f} %"
    assert page.locator("body").inner_text().startswith("Attention explorer")
    assert "magma" not in page.locator("body").inner_text()
    assert len(page.locator("body").inner_text()) < 400  # no data, no code


@browser_only
def test_follows_the_theme_of_the_page_else_the_system_s(show, shapes):
    page = show(shapes[0].html, color_scheme="dark")
    look = "document.querySelector('[data-vit-explorer]').dataset.theme"

    def becomes(theme, change):
        page.evaluate(change)
        wait(page, f"{look} === '{theme}'")

    becomes("dark", "0")
    becomes("light", "document.body.dataset.jpThemeLight = 'true'")
    becomes("dark", "document.body.dataset.jpThemeLight = 'false'")
    page.emulate_media(color_scheme="light")
    becomes("light", "delete document.body.dataset.jpThemeLight")
    for kind, theme in (("vscode-dark", "dark"), ("vscode-light", "light"), ("vscode-high-contrast", "dark")):
        becomes(theme, f"document.body.className = '{kind}'")
    becomes("light", "document.body.className = 'vscode-high-contrast vscode-high-contrast-light'")
    becomes("dark", "document.body.className = ''; document.documentElement.dataset.theme = 'dark'")
    background = page.locator(".explorer").evaluate("e => getComputedStyle(e).backgroundColor")
    assert max(map(int, re.findall(r"\d+", background))) < 60


@browser_only
def test_moves_nothing_where_the_reader_asked_for_none(show, shapes):
    durations = "e => [...e.getRootNode().querySelectorAll('*')].map(x => getComputedStyle(x).transitionDuration)"
    for wish, moves in (("reduce", False), ("no-preference", True)):
        page = show(shapes[0], reduced_motion=wish)
        assert (set(page.locator(".explorer").evaluate(durations)) != {"0s"}) is moves


@browser_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["shapes", "mean"])
def test_axe_finds_nothing_serious(show, shapes, kind, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    model = model_of(**CONFIGS["mean"])
    content = shapes[0] if kind == "shapes" else explore(model, images_of(model))
    page = show(content, color_scheme=scheme, bypass_csp=True)
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 15
    bad = [f"{v['id']}: {v['nodes'][0]['html']}" for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert bad == []


@browser_only
@pytest.mark.parametrize("width", [400, pytest.param(720, marks=pytest.mark.slow), 1100])
def test_fits_its_column(show, shapes, width):
    page = show(shapes[0], size=(width, 900))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    from_box, to_box = (page.locator(f".{panel} > canvas").bounding_box() for panel in ("from", "to"))
    assert (from_box["y"] == to_box["y"]) is (width > 520)  # side by side, or one above the other
    assert (from_box["width"], from_box["height"]) == (to_box["width"], to_box["height"])
    assert from_box["width"] == pytest.approx(from_box["height"], abs=1)
    assert from_box["width"] > {400: 300, 720: 280, 1100: 340}[width]
