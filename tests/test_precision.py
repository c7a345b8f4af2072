"""bf16 or fp32: which instructions a machine has, what was measured and said, and that a run keeps its choice."""

from types import SimpleNamespace

import pytest
import torch

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.data import Data, Images
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.train import precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def data():
    images = Images(torch.randint(0, 256, (8, 1, 4, 4), dtype=torch.uint8), torch.arange(8) % 2)
    return Data("tiny", images, images, ("a", "b"), (4, 4), 1, (0.5,), (0.5,))


@pytest.fixture
def model():
    config = ViTConfig(image_size=4, patch_size=2, in_channels=1, num_classes=2, dim=8, depth=1, num_heads=2, mlp_dim=8)
    return ViT(config)


class Alone(SimpleNamespace):
    """What resolved needs of an accelerator."""

    num_processes, is_main_process, device = 1, True, CPU

    def reduce(self, times, how):
        assert how == "mean"
        return times


def machine(monkeypatch, capability="AVX512", limit=None, **capabilities):
    """Pretend that the CPU has these instructions."""
    known = {"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": True} | capabilities
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)


@pytest.mark.parametrize(
    ("expected", "how"),
    [
        (True, {}),
        (True, {"avx512_bf16": False}),
        (True, {"amx_bf16": False}),
        (True, {"limit": "AVX512_CORE_BF16"}),
        (True, {"limit": "DEFAULT"}),
        (True, {"architecture": "aarch64", "bf16": True, "capability": "DEFAULT"}),
        (False, {"avx512_bf16": False, "amx_bf16": False}),
        (False, {"capability": "AVX2"}),
        (False, {"limit": "AVX2"}),
        (False, {"limit": "AVX512_CORE"}),
        (False, {"architecture": "arm64", "capability": "DEFAULT"}),
    ],
)
def test_instructions_of_a_cpu(monkeypatch, expected, how):
    machine(monkeypatch, **how)
    assert precision.has_bf16(CPU) is expected


def test_instructions_of_a_gpu(monkeypatch):
    for capability, expected in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, now=capability: now)
        assert precision.has_bf16(GPU) is expected


def test_measuring_changes_nothing(model, data):
    before, chance = [p.clone() for p in model.parameters()], torch.get_rng_state()
    seconds = precision.step_seconds(model.eval(), data, 4, CPU, steps=2)
    assert set(seconds) == {"fp32", "bf16"}
    assert min(seconds.values()) > 0
    assert all(torch.equal(p, q) and p.grad is None for p, q in zip(model.parameters(), before, strict=True))
    assert torch.equal(chance, torch.get_rng_state())
    assert not model.training


def test_it_measures_what_it_says(model, data, monkeypatch):
    kinds = []

    class Watched(type(model)):
        def forward(self, images):
            kinds.append((self.training, torch.is_autocast_enabled("cpu"), len(images)))
            return super().forward(images)

    model.__class__ = Watched
    precision.step_seconds(model, data, 4, CPU, steps=2)
    assert kinds == [(True, False, 4), (True, True, 4)] * 3


@pytest.mark.parametrize(("fp32", "bf16", "expected"), [(0.010, 0.004, "bf16"), (0.010, 0.020, "fp32")])
def test_auto_takes_the_quicker_and_says_what_it_measured(model, data, monkeypatch, capsys, fp32, bf16, expected):
    monkeypatch.setattr(precision, "step_seconds", lambda *_, **__: {"fp32": fp32, "bf16": bf16})
    recipe = Recipe(epochs=1, batch_size=4, precision="auto")
    assert precision.resolved(recipe, model, data, Alone()).precision == expected
    said = capsys.readouterr().err
    assert f"{1000 * bf16:.3g} ms in bf16" in said
    assert f"{1000 * fp32:.3g} ms in fp32" in said
    assert said.rstrip().endswith(expected)


@pytest.mark.parametrize(("slower", "asked"), [(30, [8]), (2, [8, 16])])
def test_a_few_images_do_where_one_is_far_slower(model, data, monkeypatch, slower, asked):
    """Emulated, a whole batch in bf16 may take minutes."""
    measured = []

    def step_seconds(model, data, batch_size, device, steps=5):
        measured.append(batch_size)
        return {"fp32": 0.01 * batch_size, "bf16": 0.01 * batch_size * slower}

    monkeypatch.setattr(precision, "step_seconds", step_seconds)
    recipe = Recipe(epochs=1, batch_size=16, precision="auto")
    assert precision.resolved(recipe, model, data, Alone()).precision == "fp32"
    assert measured == asked
    measured.clear()
    monkeypatch.setattr(precision, "has_bf16", lambda device: False)
    precision.resolved(Recipe(epochs=1, batch_size=16, precision="bf16"), model, data, Alone())
    assert measured == [8]


def test_auto_keeps_what_the_run_has(model, data, monkeypatch, capsys):
    monkeypatch.setattr(precision, "step_seconds", None)  # it isn't called
    recipe = Recipe(epochs=1, precision="auto")
    for kept in ("bf16", "fp32"):
        assert precision.resolved(recipe, model, data, Alone(), {"settings": {"precision": kept}}).precision == kept
    assert capsys.readouterr().err == ""


def test_bf16_without_instructions_says_what_it_costs(model, data, monkeypatch, capsys):
    monkeypatch.setattr(precision, "step_seconds", lambda *_, **__: {"fp32": 0.02, "bf16": 0.5})
    recipe = Recipe(epochs=1, batch_size=4, precision="bf16")
    for has, words in ((True, ""), (False, "no instructions for bfloat16 on this CPU")):
        monkeypatch.setattr(precision, "has_bf16", lambda device, has=has: has)
        assert precision.resolved(recipe, model, data, Alone()) == recipe
        said = capsys.readouterr().err
        assert words in said
        assert bool(said) is not has
    assert "500 ms in bf16 and 20 ms in fp32; auto takes fp32" in said


def test_fp32_is_never_measured(model, data, monkeypatch):
    monkeypatch.setattr(precision, "step_seconds", None)
    recipe = Recipe(epochs=1)
    assert precision.resolved(recipe, model, data, Alone()) == recipe
