"""Models as files for other runtimes: the same logits for any batch size, and nothing kept that disagrees."""

import errno
import json
import os
from pathlib import Path

import onnx
import onnxruntime
import onnxruntime.quantization
import pytest
import torch

import vit_tutorial as vt
from vit_tutorial import data, export, hybrid, modern
from vit_tutorial.export import command, formats
from vit_tutorial.options.export import ExportOptions
from vit_tutorial.weights import LoadedModel

SMALL = {"image_size": 8, "patch_size": 4, "dim": 32, "depth": 1, "num_heads": 2, "mlp_dim": 32, "num_classes": 3}
HOW = data.Preprocessing((8, 8), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2), crop=0.875)


def trained_of(config):
    """Random weights, where a model begins with zeros too, so that no part is without effect."""
    torch.manual_seed(0)
    model = modern.build(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return LoadedModel(model, ("a", "b", "c"), HOW)


@pytest.fixture(scope="module")
def trained():
    return trained_of(vt.ViTConfig(**SMALL))


def assert_no_path_of_the_writer_s_machine_leaves_with(file):
    kept = file.read_bytes()
    assert b"weight" in kept  # names are readable, so a path would be
    for path in (vt.__file__, torch.__file__):
        assert str(Path(path).parent).encode() not in kept


@pytest.mark.skipif(torch.__version__ < formats.ONNX_SINCE, reason="needs a later exporter")
def test_onnx_and_its_int8_give_the_model_s_logits(trained, tmp_path):
    said = command.export(trained, tmp_path / "m" / "whole.onnx")
    assert "same for 67 of 67" in said
    command.export(trained, tmp_path / "small.onnx", int8=True)
    for file, far in (("m/whole.onnx", 1e-6), ("small.onnx", 0.1)):  # of the largest logit
        session = onnxruntime.InferenceSession(tmp_path / file)
        for batch in (1, 5):
            images = torch.randn(batch, 3, 8, 8)
            (logits,) = session.run(None, {"images": images.numpy()})
            with torch.inference_mode():
                expected = trained.model(images)
            largest = far * expected.abs().max().item()
            torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=0, atol=largest)
        kept = json.loads(session.get_modelmeta().custom_metadata_map["config"])
        assert kept["classes"] == ["a", "b", "c"]
        assert kept["preprocess"]["crop"] == 0.875
    types = {node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node}
    assert "MatMulInteger" in types
    assert "Conv" in types  # int8 convolutions are slower: the patches' stays as it is
    assert {path.name for path in tmp_path.rglob("*")} == {"m", "whole.onnx", "small.onnx"}
    assert_no_path_of_the_writer_s_machine_leaves_with(tmp_path / "m" / "whole.onnx")


def test_pt2_gives_the_model_s_logits(trained, tmp_path):
    command.export(trained, tmp_path / "m.pt2")
    extra = {"config": ""}
    module = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    assert json.loads(extra["config"])["classes"] == ["a", "b", "c"]
    images = torch.randn(5, 3, 8, 8)
    with torch.inference_mode():
        torch.testing.assert_close(module(images), trained.model(images))
        torch.testing.assert_close(formats.run(tmp_path / "m.pt2", images[:1]), trained.model(images[:1]))
    assert_no_path_of_the_writer_s_machine_leaves_with(tmp_path / "m.pt2")


FAMILIES = {
    "plain": vt.ViTConfig(**SMALL),
    "mean": vt.ViTConfig(**SMALL, pool="mean", position="sincos"),
    "hybrid": hybrid.HybridConfig(**SMALL, stem=hybrid.ConvStem(((8, 3, 2), (16, 3, 2)))),
    "rms": modern.ModernConfig(**SMALL, norm="rms", gated=True, qk_norm=True, registers=1),
    **{name: modern.ModernConfig(**SMALL | parts) for name, parts in modern.ARCHITECTURES.items()},
}


QUICK = ("dinov2", "siglip")  # both once failed: registers, and a pooling that attends


@pytest.mark.parametrize(
    ("family", "ending"),
    [(family, "pt2") for family in FAMILIES]
    + [(family, "onnx") for family in QUICK]
    + [pytest.param(family, "onnx", marks=pytest.mark.slow) for family in FAMILIES if family not in QUICK],
)
def test_every_family_takes_batches_of_any_size(tmp_path, family, ending):
    if ending == "onnx" and torch.__version__ < formats.ONNX_SINCE:
        pytest.skip("needs a later exporter")
    trained, file = trained_of(FAMILIES[family]), tmp_path / f"m.{ending}"
    getattr(export, ending)(trained, file)
    for batch in (1, 2, 5, 67):
        images = torch.randn(batch, 3, 8, 8)
        with torch.inference_mode():
            expected = trained.model(images)
        assert expected.std() > 0.01  # and so no family answers with a constant
        torch.testing.assert_close(export.run(file, images), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


class CountsInPython(torch.nn.Linear):
    """A part that fixes the batch size while a graph is recorded."""

    def forward(self, x):
        return super().forward(x) + torch.zeros(len(x), 1)


@pytest.mark.parametrize("write", [export.onnx, export.pt2])
def test_what_cannot_be_written_leaves_no_file(tmp_path, write, refuses):
    fixed = trained_of(vt.ViTConfig(**SMALL))
    fixed.model.head = CountsInPython(32, 3).eval()
    training = trained_of(vt.ViTConfig(**SMALL, dropout=0.1))
    training.model.train()

    class Subclass(vt.ViT):
        pass

    other = LoadedModel(Subclass(vt.ViTConfig(**SMALL)).eval(), ("a", "b", "c"), HOW)
    with refuses(ValueError, "batch size", "can't stay free"):
        write(fixed, tmp_path / "m")
    with refuses(ValueError, "training mode", "model.eval()"):
        write(training, tmp_path / "m")
    training.model.eval().blocks[0].mlp.dropout.train()
    with refuses(ValueError, "training mode", "model.eval()"):
        write(training, tmp_path / "m")
    training.model.eval().bfloat16()
    with refuses(ValueError, "float32 weights on the CPU", "model.float().cpu()"):
        write(training, tmp_path / "m")
    with refuses(TypeError, "ViT, HybridViT, ModernViT", "got Subclass"):
        write(other, tmp_path / "m")
    with refuses(TypeError, "LoadedModel(model, classes, preprocess)", "got ViT"):
        write(training.model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_full_disk_leaves_the_old_file(trained, tmp_path, monkeypatch, refuses, ending):
    (file := tmp_path / f"m.{ending}").write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(OSError, f"m.{ending}", "untouched"):
        getattr(export, ending)(trained, file)
    assert file.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("int8", "wrong", "kept"),
    [
        *((False, 1.01, False), (False, float("nan"), False), (False, 1.0001, True), (False, 1.0005, False)),
        *((True, 1.01, True), (True, -1, False)),
    ],
)
def test_a_file_that_disagrees_is_not_kept(trained, tmp_path, monkeypatch, refuses, int8, wrong, kept):
    def write(trained, path, **_):
        path.write_bytes(b"a file")

    monkeypatch.setattr(formats, "onnx", write)
    monkeypatch.setattr(formats, "saturating_weights", lambda path: [])
    monkeypatch.setattr(formats, "run", lambda path, images: wrong * trained.model(images).detach())
    out = tmp_path / "m.onnx"
    if kept:
        command.export(trained, out, int8=int8)
    else:
        with refuses(ValueError, "was not written", "doesn't agree", "of 67"):
            command.export(trained, out, int8=int8)
    assert out.exists() == kept


def test_an_int8_file_that_saturates_elsewhere_is_not_kept(trained, tmp_path, monkeypatch, refuses):
    formats.onnx(trained, tmp_path / "right.onnx", int8=True)
    assert formats.saturating_weights(tmp_path / "right.onnx") == []
    quantize_dynamic = onnxruntime.quantization.quantize_dynamic

    def eight_bits(*args, reduce_range, **kwargs):
        quantize_dynamic(*args, **kwargs)

    monkeypatch.setattr(onnxruntime.quantization, "quantize_dynamic", eight_bits)
    with refuses(ValueError, "was not written", "saturates on processors without VNNI"):
        command.export(trained, tmp_path / "wrong.onnx", int8=True)
    assert not (tmp_path / "wrong.onnx").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "shapes", "to": "pt2", "int8": True}, ["--int8 needs --to onnx"]),
        ({"weights": "shapes", "to": "onnx", "out": Path("model.pt2")}, ["ends in .onnx", "model.pt2"]),
        ({"weights": "nowhere", "to": "pt2"}, ["nowhere"]),
        ({"weights": "nowhere", "to": "pt2", "out": Path(__file__, "m.pt2")}, [f"{__file__} is a file"]),  # at once
    ],
)
def test_refuses(options, words, refuses):
    with refuses((ValueError, OSError), *words):
        command.run(ExportOptions(**options))


def test_a_model_without_a_head_is_refused(monkeypatch, refuses, trained):
    monkeypatch.setattr(command, "load", lambda name: LoadedModel(trained.model, (), trained.preprocess))
    with refuses(ValueError, "has no head"):
        command.run(ExportOptions("features", "pt2"))


def test_the_command_writes_and_says_so(monkeypatch, capsys, tmp_path):
    seen = []
    monkeypatch.setattr(command, "export", lambda trained, out, int8: seen.append((out.name, int8)) or "written")
    monkeypatch.chdir(tmp_path)
    command.run(ExportOptions("shapes", "onnx", int8=True))
    assert capsys.readouterr().out == "written\n"
    assert seen == [("model.onnx", True)]
