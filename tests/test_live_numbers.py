"""The live page's numbers against PyTorch's, in Chromium (skipped where there is none)."""

import copy
import re

import numpy as np
import pytest
import torch
from browser import browser_only, wait
from live_reference import (
    CHANGES,
    CONFIGS,
    SETTLED,
    answer_of,
    compare,
    go,
    model_of,
    number_in,
    pictures_of,
    run_in,
    shipped,
    spelt,
    stations,
    text,
    together,
)
from live_reference import page_of_digits as page_of_digits  # a fixture
from live_reference import show_everything as show_everything  # a fixture

import vit_tutorial as vt
from vit_tutorial import live
from vit_tutorial.live.meaning import strongest
from vit_tutorial.plots.javascript import joined


@browser_only
def test_every_number_of_every_kind_of_model_is_pytorch_s_after_each_change(show):
    """Small random models with all changes; the page normalises with their numbers of channels."""
    models = {kind: model_of(**changes) for kind, changes in CONFIGS.items()}
    pictures = {kind: pictures_of(model, 1) for kind, model in models.items()}
    preprocess = {
        kind: vt.data.Preprocessing((16, 16), (0.2, 0.4, 0.7)[:channels], (1.0, 0.8, 0.9)[:channels])
        for kind, model in models.items()
        for channels in [model.config.in_channels]
    }
    page = show(together(live.page(models[kind], pictures[kind], None, preprocess[kind]) for kind in CONFIGS), ready=4)
    for host, (kind, model) in enumerate(models.items()):
        double, (picture,) = copy.deepcopy(model).double(), pictures[kind]
        plain = stations(double, picture, preprocess[kind], {})
        for name, change in CHANGES.items():
            changes = spelt(change, model.config)
            right = stations(double, picture, preprocess[kind], changes)
            compare(run_in(page, picture, changes, host=host), right)
            if kind == "plain" and change:
                assert np.abs(right["probabilities"] - plain["probabilities"]).max() > 1e-4, name


@browser_only
@pytest.mark.parametrize(("name", "change"), [("digits-patch2", "moved patches"), ("photographs", "as trained")])
def test_every_number_of_the_shipped_models_is_pytorch_s(show, name, change):
    live_page, model, preprocess, samples = shipped(name)
    changes = spelt(CHANGES[change], model.config)
    compare(run_in(show(live_page), samples[1], changes), stations(model, samples[1], preprocess, changes))


@browser_only
@torch.inference_mode()
def test_the_logit_lens_is_the_head_after_each_layer(show):
    models = [model_of(pool=kind) for kind in ("cls", "mean")]
    pictures = [pictures_of(model, 1) for model in models]
    page = show(together(map(live.page, models, pictures)), ready=2)
    for host, (model, picture) in enumerate(zip(models, pictures, strict=True)):
        found = run_in(page, picture, {}, lens=True, host=host)
        z = model.embed(picture)
        steps = [z, *(z := block(z) for block in model.blocks)]
        for step, tokens in enumerate(map(model.norm, steps)):
            pooled = tokens[:, 0] if model.config.pool == "cls" else tokens.mean(dim=1)
            assert np.allclose(found[str(step)], model.head(pooled).softmax(dim=-1)[0], atol=1e-5)
        assert len(found) == model.config.depth + 1


# What three keys read of the cells of a place, and what is said aloud: its first number, the second, and the last.
READ = """(place) => {
  const canvas = place.querySelector("canvas");
  const reading = place.querySelector(".reading");
  return ["Home", "ArrowRight", "End"].map((key) => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
    return [reading.textContent, place.getRootNode().querySelector(".live-region").textContent];
  });
}"""


@browser_only
def test_every_station_shows_the_numbers_of_the_chosen_token(show, digits):
    live_page, model, preprocess, samples = digits
    page, c = show(live_page), model.config
    T, D = c.num_tokens, c.dim
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

    def row(array):
        if isinstance(array, str):
            return right[array].reshape(T, -1)[token]
        return array.detach().numpy().ravel() if isinstance(array, torch.Tensor) else array

    def check(place, values):
        assert place.is_visible()
        said = place.evaluate(READ)
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
        for name, array in names.items():
            for place in page.locator(f'[data-station="{station}"] [data-show="{name}"]').all():
                check(place, row(array))


@browser_only
def test_the_map_s_answers_are_those_of_the_pass(show, digits):
    live_page, model, preprocess, samples = digits
    page, c = show(live_page), model.config
    for changes in ({}, {"off": ["blocks.1.mlp"]}):
        if changes:
            page.get_by_text("Cut parts", exact=True).click()
            page.get_by_label("block 2, MLP", exact=True).click()
        right = stations(model, samples[0], preprocess, changes)
        text(page, ".prediction")
        z = [right["embed.tokens"], *(right[f"blocks.{layer}.out"] for layer in range(c.depth))]
        with torch.inference_mode():
            tokens = torch.tensor(np.stack(z)).reshape(len(z), -1, c.dim)
            best = model.head(model.norm(tokens)[:, 0]).argmax(1)
        assert page.locator("[data-step]").all_text_contents() == [str(int(k)) for k in best]


# What the sentence under the stage says at each time.
CAPTIONS = """() => {
  const root = document.querySelector("[data-vit-live]").shadowRoot;
  const slider = root.querySelector('[name="time"]');
  return Array.from({ length: Number(slider.max) + 1 }, (_, time) => {
    slider.value = time;
    slider.oninput();
    return root.querySelector(".watch .caption").textContent.replaceAll("\\u00a0", " ");
  });
}"""


@browser_only
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.5}])
def test_attention_as_it_happens_says_the_numbers_of_the_pass(show, digits, changes):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    go(page, "attention")
    page.get_by_role("button", name="class token").click()
    page.locator('.layers input[value="1"]').check(force=True)
    page.locator('.heads input[value="2"]').check(force=True)
    if changes:
        page.locator('[name="temperature"]').evaluate("(slider) => { slider.value = -3; slider.oninput(); }")
        wait(page, SETTLED)
    right, head = stations(model, samples[0], preprocess, changes), "blocks.1.attention.heads.2"
    scores, shares = right[f"{head}.scaled"][:17], right[f"{head}.weights"][:17]
    asks, *captions = page.evaluate(CAPTIONS)
    assert asks == "The class token asks: its q, 12 numbers, goes to the k of every token."
    for token, caption in enumerate(captions[:17]):
        name = f"Patch {token - 1}" if token else "The class token"
        division = " ÷ √12 ÷ 0.5" if changes else " ÷ √12"
        assert caption.startswith(f"{name} answers: q · k{division} = ")
        assert number_in(caption.removesuffix(".")) == pytest.approx(scores[token], rel=1e-3, abs=1e-3)
    order = np.argsort(-shares, kind="stable")
    most = order[0]
    assert most > 0  # a patch
    result = f"Patch {most - 1} (row {(most - 1) // 4}, column {(most - 1) % 4}) has most, {100 * shares[most]:.1f} %"
    assert result in captions[17]
    for token, caption in zip(order[:-1], captions[18:-1], strict=True):
        name = f"patch {token - 1}" if token else "the class token"
        assert caption == f"{100 * shares[token]:.1f} % of the v of {name} flows in."
    cold = np.exp(2 * (scores - scores.max()))
    largest = f"The largest share is {100 * shares[most]:.1f} %, at half the temperature {100 / cold.sum():.1f} %."
    assert captions[-1] == f"All that flowed in is added up. {largest}"
    page.get_by_text("Show the mathematics", exact=True).locator("visible=true").click()
    power, total, percent = re.match(
        r"e\^\((.+)\) ÷ ([\d.]+) = ([\d.]+) % of the v", page.evaluate(CAPTIONS)[19]
    ).groups()
    assert np.exp(float(power.replace("−", "-"))) / float(total) == pytest.approx(shares[order[0]], rel=5e-3)
    assert float(percent) == pytest.approx(100 * shares[order[0]], abs=0.06)


# How the stage lays out the flows, and how much of each has come in, at a time.
FLOWS = """([source, shares, time]) => {
  const { progressOf, segmentsOf } = new Function(`${source}; return { progressOf, segmentsOf }`)();
  const { valueAdded, softmaxed, scored } = progressOf(time, Float64Array.from(shares));
  const every = (part) => shares.map((_, token) => part(token));
  return [segmentsOf(shares, { top: 10, bottom: 110 }), every(valueAdded), every(scored), softmaxed];
}"""


@browser_only
def test_flows_are_as_wide_as_the_shares_and_come_largest_first(show):
    page, shares = show("<!doctype html><body>", ready=0), [0.1, 0.6, 0.3]
    script = joined("vit_tutorial.live", "live.js")
    segments, value_added, scored, softmaxed = page.evaluate(FLOWS, [script, shares, 5.5])
    assert np.allclose(segments, [[10, 10], [20, 60], [80, 30]])
    assert (value_added, scored, softmaxed) == ([0, 1, 0.5], [1, 1, 1], 1)
    _, value_added, scored, softmaxed = page.evaluate(FLOWS, [script, shares, 1.5])
    assert (value_added, scored, softmaxed) == ([0, 0, 0], [1, 0.5, 0], 0)


# What each of the given cells of the open station says of its second number, and what lights up then.
SOURCES = """(station, names) => names.map((name) => {
  const place = station.querySelector(`[data-show="${name}"]`);
  const canvas = place.querySelector("canvas");
  ["Home", "ArrowRight"].forEach((key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key })));
  const marks = [...station.querySelectorAll(".source")];
  const lit = marks.filter((mark) => mark.style.display !== "none");
  const from = [...new Set(lit.map((mark) => mark.closest("[data-show]").dataset.show))];
  const said = place.querySelector(".reading").textContent;
  canvas.dispatchEvent(new FocusEvent("blur"));
  return [said, from, marks.some((mark) => mark.style.display !== "none")];
})"""


# {station: {cells: the cells that light up}}, of a patch in the first block.
ORIGINS = {
    "patches": {"x": ["pixels"]},
    "embedding": {"projected": ["E"]},
    "positions": {"z0": ["content", "position"]},
    "attention": {
        **{"norm1": ["z"], "q": ["norm1"], "k": ["norm1"], "v": ["norm1"], "sums": []},
        **{"joined": ["sums"], "attended": ["joined"]},
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
    found = {"sums": (weights.max() * v[weights.argmax(), 1], None)}
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
            if name == "probabilities":
                assert np.exp(numbers[0]) / numbers[1] == pytest.approx(number_in(value), rel=5e-3, abs=6e-5), said
            assert bool(equals) is (name != "joined")


@browser_only
def test_each_switch_changes_the_model_as_hooks_do(show, digits):
    live_page, model, preprocess, samples = digits
    page = show(live_page)
    go(page, "what-if")
    done = {}

    def now(**changes):
        done.update(changes)
        assert text(page, ".prediction") == answer_of(model, samples[0], preprocess, spelt(done, model.config)), changes
        assert page.locator(".changes").is_visible()

    page.get_by_label("block 2, head 3", exact=True).click()
    now(off=["blocks.1.attention.heads.2"])
    assert text(page, ".list") == "head 3 of block 2 off."
    page.get_by_label("block 4, shortcut beside the MLP", exact=True).click()
    now(off=["blocks.1.attention.heads.2", "blocks.3.mlp.residual"])
    page.get_by_label("block 4, shortcut beside the MLP", exact=True).click()
    now(off=["blocks.1.attention.heads.2"])
    go(page, "attention")
    page.locator('[name="temperature"]').press("ArrowRight")
    now(temperature=1.3)
    page.get_by_role("button", name="Show the mathematics").click()
    page.locator('[name="scale"]').uncheck()
    now(scale=False)
    go(page, "what-if")
    page.locator(".modes").get_by_text("reversed").click()
    now(position="reversed")
    page.get_by_text("Hide the chosen patch").click()
    now(hidden=[10])
    page.get_by_text("Shuffle all", exact=True).click()
    order = page.evaluate("document.querySelector('[data-vit-live]').live.state.changes.order")
    assert sorted(order) == [*range(16)]
    assert order != [*range(16)]
    now(order=order)
    page.get_by_text("Undo", exact=True).click()
    now(order=None)
    page.get_by_text("Show the chosen patch").click()
    now(hidden=[])
    page.locator(".modes").get_by_text("taken away").click()
    now(position="none")
    assert "can’t tell" not in text(page, ".difference")
    page.get_by_text("Shuffle all", exact=True).click()
    now(order=page.evaluate("document.querySelector('[data-vit-live]').live.state.changes.order"))
    assert "without positions it can’t tell" in text(page, ".difference")
    page.get_by_text("Reset", exact=True).click()
    assert text(page, ".prediction") == answer_of(model, samples[0], preprocess)
    assert not page.locator(".changes").is_visible()
    page.get_by_text("Undo", exact=True).click()
    now()


@pytest.mark.parametrize("kind", ["plain", "mean"])
def test_the_strongest_patches_of_every_part_are_those_that_hooks_find(kind):
    model = model_of(**CONFIGS[kind])
    pictures, c, seen = pictures_of(model, 9), model.config, {}
    for layer, block in enumerate(model.blocks):
        block.mlp.fc1.register_forward_hook(lambda m, i, y, layer=layer: seen.update({layer: y}))
    model.embed.patches.register_forward_hook(lambda m, i, y: seen.update(E=y))
    with torch.no_grad():
        model(pictures)
        maps = model.attention_maps(pictures)
    values = [seen["E"]]  # (n, N, parts) each
    for layer in range(c.depth):
        looks = maps[layer][:, :, 0] if c.prefix_tokens else maps[layer].mean(2)
        values += [seen[layer][:, c.prefix_tokens :], looks[:, :, c.prefix_tokens :].transpose(1, 2)]
    best = torch.cat(values, dim=2).amax(1).topk(6, dim=0).values.T  # (parts, 6)
    places = strongest(model, pictures, None)
    every = torch.cat(values, dim=2).permute(2, 0, 1)  # (parts, n, N)
    found = torch.stack([every[part, places[part, :, 0], places[part, :, 1]] for part in range(len(every))])
    torch.testing.assert_close(found, best)
