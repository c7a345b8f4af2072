"""What the live page makes of a model: its data, what it refuses, and the command that writes it."""

import base64
import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from live_reference import data_of, model_of, pictures_of, shipped
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import live
from vit_tutorial.live.command import run, states_of
from vit_tutorial.live.states import differences, restored
from vit_tutorial.options.live import LiveOptions
from vit_tutorial.plots.javascript import joined
from vit_tutorial.variants import positions

ROOT = Path(__file__).parent.parent
HOSTILE = ["</script><script>window.pwned = 1</script>", '"><img src=x onerror="window.pwned = 1">', "<!-- 'a' & b"]


def test_holds_the_weights_and_the_pictures_as_they_are():
    live_page, model, _, samples = shipped("digits-patch2")
    data, state = data_of(live_page.html), copy.deepcopy(model).float().state_dict()
    values = np.frombuffer(base64.b64decode(data["weights"]["values"]), "<f4")
    assert [name for name, _ in data["weights"]["names"]] == list(state)
    assert np.array_equal(values, np.concatenate([tensor.numpy().ravel() for tensor in state.values()]))
    pixels = np.frombuffer(base64.b64decode(data["samples"]["values"]), np.uint8) / data["samples"]["white"]
    assert np.array_equal(pixels, samples.double().numpy().ravel())
    assert repr(live_page) == "Live(parameters=77530, patches=(4, 4), layers=4, heads=4)"
    assert len(live_page.html) <= 1_500_000


def test_weights_that_float16_holds_take_half_of_the_bytes():
    model = model_of()
    whole = data_of(live.page(model, pictures_of(model, 1)).html)["weights"]
    model.load_state_dict({name: tensor.half().float() for name, tensor in model.state_dict().items()})
    half = data_of(live.page(model, pictures_of(model, 1)).html)["weights"]
    assert (whole["half"], half["half"]) == (False, True)
    assert len(whole["values"]) == pytest.approx(2 * len(half["values"]), abs=4)
    values = np.frombuffer(base64.b64decode(half["values"]), "<f2").astype(np.float32)
    assert np.array_equal(values, np.concatenate([t.flatten().numpy() for t in model.state_dict().values()]))


def test_states_are_restored_within_half_a_step_and_packed_again_are_the_same():
    states = [{"a": scale * torch.randn(40, 30), "b": torch.zeros(7)} for scale in (1.0, 0.1, 3.0)]
    packed = list(differences(states))
    found = [dict(state) for state in restored(packed)]
    for state, small, (steps, scales) in zip(states, found, packed, strict=True):
        assert (state["a"] - small["a"]).abs().max() <= 0.5001 * scales["a"]
        assert steps["a"].dtype == torch.int8
        assert steps["a"].abs().max() == 127
        assert not small["b"].any()
    for (steps, scales), (again, same) in zip(packed, differences(found), strict=True):
        assert torch.equal(steps["a"], again["a"])
        assert torch.allclose(scales["a"], same["a"])


def test_the_slider_has_a_dozen_states_of_which_the_first_is_noise():
    states = states_of("digits-patch2")
    assert list(states)[:3] == ["0 epochs", "1 epoch", "2 epochs"]
    assert len(states) + 1 == 12  # with the trained model
    model, _, preprocess = vt.load("digits-patch2")
    images, labels = vt.data.digits().test.batch(torch.arange(360))
    right = []
    for state in states.values():
        model.load_state_dict(state)
        right.append(float((model(vt.data.normalise(images, preprocess)).argmax(dim=1) == labels).float().mean()))
    assert right == sorted(right)
    assert right[0] == pytest.approx(0.1, abs=0.02)
    assert right[-1] > 0.9
    page = live.shipped("digits", states=True)
    assert len(page.html) <= 1_820_000
    with pytest.raises(ValueError, match="a state of another model: blocks"):
        live.page(model_of(), pictures_of(model_of(), 1), states={"early": {"head": torch.ones(3)}})


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
        (lambda m, x: (torch.nn.Identity(), x), TypeError, ("Identity", "the ViT inside")),
        (lambda m, x: (m, [x]), TypeError, ("list", "(B, C, H, W)")),
        (lambda m, x: (m, x.to(torch.uint8)), TypeError, ("torch.uint8",)),
        (lambda m, x: (m, x[0]), ValueError, ("(3, 16, 16)", "(B, 3, 16, 16)")),
        (lambda m, x: (m, x[:0]), ValueError, ("at least 1", "(0, 3, 16, 16)")),
        (lambda m, x: (m, x - 1), ValueError, ("[0, 1]", "before preprocess")),
        (lambda m, x: (m, x * float("nan")), ValueError, ("[0, 1]", "nan")),
        (lambda m, x: (m, x, ["a", "b"]), ValueError, ("3 classes", "2 names")),
        (lambda m, x: (m, x, None, vt.data.Preprocessing((16, 16), (0.5,), (0.5,))), ValueError, ("1 channels",)),
        (lambda m, x: (model_of(num_classes=0), x), ValueError, ("no classes", "num_classes")),
        (lambda m, x: (model_of(dim=1200, mlp_dim=6000), x), ValueError, ("40,", "216 MB", "Ti/16")),
    ],
)  # fmt: skip
def test_refuses(refuses, change, error, words):
    model = model_of()
    with refuses(error, *words):
        live.page(*change(model, pictures_of(model, 2)))


def test_refuses_too_few_pictures_or_titles_and_weights_that_are_not_numbers(refuses):
    model, pictures = model_of(), pictures_of(model_of(), 2)
    with refuses(ValueError, "tried", "at least 6", "(2, 3, 16, 16)"):
        live.page(model, pictures, tried=pictures)
    with refuses(ValueError, "2 samples", "got 1"):
        live.page(model, pictures, titles=["one"])
    torch.nn.init.constant_(model.head.weight, float("nan"))
    with refuses(ValueError, "head.weight isn't finite"):
        live.page(model, pictures)


def test_refuses_what_is_no_plain_vit(refuses):
    """A page of a subclass would show another model's answers: its script has the plain forward pass alone."""
    model, pictures = model_of(), pictures_of(model_of(), 2)
    variant = positions.PositionViT(positions.PositionConfig(**vars(model.config), kind="2d"))
    with refuses(TypeError, "plain ViT", "PositionViT, has other parts"):
        live.page(variant, pictures)
    with refuses(TypeError, "this model, a HybridViT, takes its tokens from convolutions: fine-tune a plain one"):
        live.page(vt.load("cifar10").model, torch.rand(2, 3, 32, 32))
    for wrapper in (torch.nn.DataParallel, torch.compile):
        with refuses(TypeError, "give it the ViT inside"):
            live.page(wrapper(model), pictures)
    model.norm.eps = 0.5
    with refuses(TypeError, "norm isn't as the config says"):
        live.page(model, pictures)
    model.norm.eps = model.config.norm_eps
    model.blocks[1].mlp.gelu = torch.nn.ReLU()
    with refuses(TypeError, "blocks.1.mlp.gelu isn't as the config says"):
        live.page(model, pictures)


def test_without_out_the_page_lies_where_git_ignores_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(LiveOptions())
    assert capsys.readouterr().out.startswith("build/live.html: ")
    assert (tmp_path / "build" / "live.html").is_file()
    assert "build/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_command_line(tmp_path, capsys, refuses):
    out = tmp_path / "new" / "page.html"
    run(LiveOptions(out=out))
    assert re.match(re.escape(f"{out}: digits-patch2, ") + r"1\.\d MB", capsys.readouterr().out)
    assert out.read_text("utf-8").startswith("<!doctype html>")
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(photo := tmp_path / "a 'photo' & more.png")
    run(LiveOptions((str(photo), "nowhere.png"), "shapes", out=out))
    assert data_of(out.read_text("utf-8"))["titles"] == ["a 'photo' & more.png"]
    assert "note: 1 skipped, the others are in the page: nowhere.png" in capsys.readouterr().err
    run(LiveOptions(20 * (str(photo),), "shapes", out=out))
    assert data_of(out.read_text("utf-8"))["meaning"]["count"] == 20
    with refuses(ValueError, "name some, vit-tutorial live PHOTO ... --weights 'runs/my pets'"):
        run(LiveOptions(weights="runs/my pets", out=out))
    with refuses(ValueError, "--image-size is of the photographs"):
        LiveOptions(weights="shapes", image_size=7)
    with refuses(ValueError, "nowhere.png was not found"):
        run(LiveOptions(("nowhere.png",), out=out))
    with refuses(ValueError, "cats"):
        run(LiveOptions(weights="cats", out=out))
    with refuses(Exception, "vit_b_99"):
        run(LiveOptions((str(photo),), "torchvision/vit_b_99", out=out))
    assert live.shipped("shapes").patches == (8, 8)


def run_of(folder, data):
    """A folder as a training run leaves it, of a small model for digits that was trained on ``data``."""
    model = model_of(image_size=8, patch_size=2, in_channels=1, num_classes=10)
    digits = vt.data.digits()
    preprocess = vt.data.Preprocessing(digits.image_size, digits.mean, digits.std)
    vt.save(model, folder, classes=digits.classes, preprocess=preprocess)
    (folder / "run.json").write_text(json.dumps({"data": data}), "utf-8")


def test_the_page_of_a_run_begins_with_the_pictures_it_was_trained_for(tmp_path, capsys, refuses):
    run_of(tmp_path / "run", "digits")
    run(LiveOptions(weights=str(tmp_path / "run"), out=(out := tmp_path / "page.html")))
    assert data_of(out.read_text("utf-8"))["titles"] == [str(k) for k in range(10)]
    assert data_of(out.read_text("utf-8"))["meaning"]["count"] == 200
    run_of(tmp_path / "pets", "pets")
    with refuses(ValueError, f"name some, vit-tutorial live PHOTO ... --weights {tmp_path / 'pets'}"):
        run(LiveOptions(weights=str(tmp_path / "pets"), out=out))


# ------------------------------------------------------------------------------------------------------ how it is put


def test_the_script_is_all_modules_each_after_what_it_imports():
    code = joined("vit_tutorial.live", "live.js")
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE)
    assert code.index("function begin(") < code.index("begin(start);")
    for path in (ROOT / "vit_tutorial" / "live").rglob("*.js"):
        assert path.read_text("utf-8").splitlines()[-1].removeprefix("export ") in code  # none is forgotten
    assert code.count("// What every module draws with") == 1


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ('import all from "./dom.js";\n', ["can't be part of one script", "import all from"]),
        ('import { make as build } from "./dom.js";\n', ["can't be part of one script", "make as build"]),
        ("const a = 1;\nexport { a };\n", ["can't be part of one script", "export { a };"]),
        ('import { make } from "./dom.js";\nconst make = 1;\n', ["make is declared in two modules"]),
    ],
)
def test_a_module_that_can_t_be_joined_is_refused(tmp_path, monkeypatch, refuses, module, words):
    (tmp_path / "dom.js").write_text("export const make = () => 1;\n", "utf-8")
    (tmp_path / "live.js").write_text(module, "utf-8")
    monkeypatch.setattr("vit_tutorial.plots.javascript.files", lambda _: tmp_path)
    with refuses(ValueError, *words):
        joined("vit_tutorial.live", "live.js")


def test_a_page_of_its_own_has_one_heading_of_the_first_level(tmp_path):
    page = live.shipped("digits")
    page.save(tmp_path / "page.html")
    assert re.findall(r"<h1>(.*?)</h1>", (tmp_path / "page.html").read_text("utf-8")) == [page.title]
    assert "<h1" not in page.html  # a notebook and a book have their own
    with pytest.raises(ValueError, match=r"ends in \.html, got page\.pdf"):
        page.save("page.pdf")
