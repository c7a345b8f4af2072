"""The package as a whole: its names, its imports, its size, its documentation."""

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import vit_tutorial as vt

LESSONS = ("patches", "embeddings", "attention", "mlp", "encoder", "vit")  # 01 to 06
FOLDER = Path(vt.__file__).parent
NAMES = {
    "MLP", "DropPath", "Embeddings", "EncoderBlock", "MultiHeadSelfAttention", "PatchEmbedding", "ViT", "ViTConfig",
    "attention", "count_macs", "count_parameters", "load", "patchify", "resize_position_embedding",
    "sincos_position_embedding", "unpatchify",
}  # fmt: skip


def test_public_names(monkeypatch):
    assert set(vt.__all__) >= NAMES | {"checks", "data", "explain", "explorer", "plots", "train", "weights"}
    assert len(vt.__all__) == len(set(vt.__all__))
    assert all(callable(getattr(vt, name)) for name in NAMES)
    for name in ("checks", "data", "explain", "explorer", "plots", "train", "weights"):  # loaded at first use
        monkeypatch.delattr(vt, name, raising=False)
        assert getattr(vt, name) is importlib.import_module(f"vit_tutorial.{name}")
    with pytest.raises(AttributeError, match="'vit_tutorial' has no attribute 'nonsense'"):
        _ = vt.nonsense


# What users rely on; a star stands where the keyword-only arguments begin.
SIGNATURES = {
    "patchify": "images patch_size",
    "unpatchify": "patches patch_size image_size",
    "PatchEmbedding": "image_size=224 patch_size=16 in_channels=3 dim=768",
    "Embeddings": "image_size patch_size in_channels dim * position='learned' dropout=0.0",
    "sincos_position_embedding": "grid dim",
    "resize_position_embedding": "position old_grid new_grid * prefix_tokens=1 recipe='timm'",
    "attention": "q k v",
    "MultiHeadSelfAttention": "dim num_heads * qkv_bias=True attention_dropout=0.0 dropout=0.0",
    "MLP": "dim hidden_dim * dropout=0.0 gelu='exact'",
    "DropPath": "p",
    "EncoderBlock": (
        "dim num_heads mlp_dim * dropout=0.0 attention_dropout=0.0 drop_path=0.0 norm_eps=1e-06 gelu='exact'"
    ),
    "ViTConfig": (
        "image_size=224 patch_size=16 in_channels=3 num_classes=1000 dim=768 depth=12 num_heads=12 mlp_dim=3072 "
        "qkv_bias=True dropout=0.0 attention_dropout=0.0 drop_path=0.0 norm_eps=1e-06 gelu='exact' "
        "position='learned' pool='cls'"
    ),
    "ViT": "config",
    "count_parameters": "config",
    "count_macs": "config",
}


@pytest.mark.parametrize(("name", "expected"), SIGNATURES.items())
def test_signatures(name, expected):
    words, star = [], False
    for parameter in inspect.signature(getattr(vt, name)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            words, star = [*words, "*"], True
        words.append(str(parameter.replace(annotation=parameter.empty)))
    # An argument more may follow (class_token, qkv_bias); nothing moves and no default changes.
    assert words[: len(expected.split())] == expected.split()


@pytest.mark.parametrize("module", ["vit_tutorial", "vit_tutorial.files", "vit_tutorial.convert"])
def test_the_example_in_the_docstring(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted >= 3
    assert result.failed == 0


def test_importing_the_package_loads_torch_alone():
    heavy = ("matplotlib", "PIL", "torchvision", "timm", "accelerate", "vit_tutorial.plots", "vit_tutorial.data")
    code = f"import sys, vit_tutorial; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FOLDER.parent
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_imports_torch_and_earlier_lessons_alone(lesson):
    names = []
    for node in ast.walk(ast.parse((FOLDER / f"{lesson}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0  # absolute, so that a copied file says where its parts come from
            names.append(node.module)
    earlier = {f"vit_tutorial.{name}" for name in LESSONS[: LESSONS.index(lesson)]}
    for name in names:
        top = name.partition(".")[0]
        assert top == "torch" or top in sys.stdlib_module_names or name in earlier, name
    assert any(name.startswith("torch") for name in names)


def documented():
    names = (
        *LESSONS,
        "scenes",
        "data",
        "files",
        "train",
        "explain",
        "convert",
        "configs",
        "weights",
        "predict",
        "explorer",
        "checks.harness",
    )
    for module in (importlib.import_module(f"vit_tutorial.{name}") for name in names):
        yield module.__name__, module
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", None) != module.__name__ or name.startswith("_"):
                continue
            if inspect.isfunction(thing) or inspect.isclass(thing):
                yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    # The class's own docstring says what goes in and comes out of forward.
                    if method not in ("forward", "extra_repr") and not method.startswith("_") and callable(value):
                        yield f"{module.__name__}.{name}.{method}", value


@pytest.mark.parametrize(("name", "thing"), list(documented()))
def test_everything_public_is_documented(name, thing):
    # A dataclass without a docstring gets its signature for one.
    doc = inspect.getdoc(thing) or ""
    assert len(doc) > 20, name
    assert not doc.startswith(f"{name.rpartition('.')[2]}("), name
