"""The package as a whole: its names, its imports, its size, its documentation."""

import ast
import doctest
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import vit_tutorial as vt

LESSONS = ("patches", "embeddings", "attention", "mlp", "encoder", "vit")  # 01 to 06
FOLDER = Path(vt.__file__).parent
NAMES = {
    "MLP", "DropPath", "Embeddings", "EncoderBlock", "MultiHeadSelfAttention", "PatchEmbedding", "ViT", "ViTConfig",
    "count_macs", "count_parameters", "dot_product_attention", "load", "load_pair", "patchify",
    "resize_position_embedding", "save", "sincos_position_embedding", "unpatchify",
}  # fmt: skip


SIX = {path.stem for path in FOLDER.glob("[!_]*.py")}
ROOMS = {path.parent.name for path in FOLDER.glob("*/__init__.py")}
OF_LESSONS = ("variants", "analysis")  # the rooms whose modules each belong to a lesson
LESSON_MODULES = {f"{room}.{path.stem}" for room in OF_LESSONS for path in (FOLDER / room).glob("[!_]*.py")}
SHORT = {name.rpartition(".")[2] for name in LESSON_MODULES}  # vt.explain is analysis.explain
ROW = re.compile(r"^\| ([\d, ]+|--) +\| ([\w.]+) +\| (.+\.)$", re.MULTILINE)


def test_public_names(monkeypatch):
    assert set(vt.__all__) == NAMES | ROOMS | SHORT
    assert len(vt.__all__) == len(set(vt.__all__))
    assert set(vt.__all__) <= set(dir(vt))
    assert all(callable(getattr(vt, name)) for name in NAMES)
    full = {name: name for name in ROOMS} | {name.rpartition(".")[2]: name for name in LESSON_MODULES}
    for name, module in full.items():  # loaded at first use
        monkeypatch.delitem(vars(vt), name, raising=False)
        assert getattr(vt, name) is importlib.import_module(f"vit_tutorial.{module}")
    with pytest.raises(AttributeError, match="'vit_tutorial' has no attribute 'nonsense'"):
        _ = vt.nonsense


def test_mypy_and_editors_know_every_module():
    (hidden,) = [
        node for node in ast.parse((FOLDER / "__init__.py").read_text("utf-8")).body if isinstance(node, ast.If)
    ]
    named = {alias.name for node in hidden.body for alias in node.names}
    assert named == set(vt.__all__)


def test_the_docstring_is_a_map_of_the_modules():
    rows = [(lessons.strip(), name) for lessons, name, _ in ROW.findall(vt.__doc__)]
    assert len(rows) == vt.__doc__.count("\n| "), "a row is: | lesson | module | sentence."
    assert sorted(name for _, name in rows) == sorted(SIX | ROOMS - set(OF_LESSONS) | LESSON_MODULES)
    assert [lessons for lessons, _ in rows] == sorted((lessons for lessons, _ in rows), key=lambda n: (n == "--", n))
    for lessons, name in rows:
        docstring = importlib.import_module(f"vit_tutorial.{name}").__doc__
        assert (re.findall(r"^Lesson (\d\d)", docstring) or ["--"]) == [lessons.partition(",")[0]], name


def test_every_lesson_names_its_modules_and_they_are_on_the_map():
    first_lesson = {name: lessons[:2] for lessons, name, _ in ROW.findall(vt.__doc__)}
    for path in sorted((FOLDER.parent / "notebooks").glob("[0-9][0-9]_*.ipynb"))[1:]:
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        named = re.findall(r"`vit_tutorial/([\w/]+?)(?:\.py|/)`", first)
        assert named, path.name
        assert all(first_lesson[name.replace("/", ".")] <= path.name[:2] for name in named), path.name


def test_the_example_in_the_docstring():
    result = doctest.testmod(vt)
    assert result.attempted >= 3
    assert result.failed == 0


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


NEEDS = {  # which of the six modules each needs beside torch, as the README says
    "patches": set(),
    "attention": set(),
    "mlp": set(),
    "embeddings": {"patches"},
    "encoder": {"attention", "mlp"},
    "vit": {"patches", "embeddings", "attention", "mlp", "encoder"},
}
IMPORT_COPIES = """
import importlib, sys, torch
sys.path = [entry for entry in sys.path if "packages" not in entry]  # torch is loaded, nothing else can be
for name in sys.argv[1:]:
    importlib.import_module(f"{name}_copy.{name}")
assert not [name for name in sys.modules if name.startswith(("vit_tutorial", "torchvision", "matplotlib", "PIL"))]
"""


def test_the_six_modules_can_be_copied(tmp_path):
    for name, needed in NEEDS.items():
        (tmp_path / f"{name}_copy").mkdir()
        for module in {name, *needed}:
            source = (FOLDER / f"{module}.py").read_text("utf-8").replace("vit_tutorial", f"{name}_copy")
            (tmp_path / f"{name}_copy" / f"{module}.py").write_text(source, "utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", IMPORT_COPIES, *NEEDS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("pins", ["requirements.txt", "book/requirements.txt", "requirements-classroom.txt"])
def test_pins_fit_the_bounds(pins):
    root = FOLDER.parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    bounds = {bound.name: bound for bound in map(Requirement, lines)}
    lines = (root / pins).read_text("utf-8").splitlines()
    pinned = {pin.name: pin for line in lines if line and line[0] != "#" and (pin := Requirement(line))}
    assert bounds.keys() & pinned.keys()
    for name in bounds.keys() & pinned.keys():
        version = Version(next(iter(pinned[name].specifier)).version)
        assert bounds[name].specifier.contains(version), f"{pinned[name]}, but pyproject.toml has {bounds[name]}"


DESCRIPTION = """
import sys
from setuptools.build_meta import prepare_metadata_for_build_wheel
print(prepare_metadata_for_build_wheel(sys.argv[1]))
"""


def test_the_package_s_page_has_absolute_links_and_pictures(tmp_path):
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "assets/CREDITS.md", "vit_tutorial/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((FOLDER.parent / name).read_bytes())
    (tmp_path / "built").mkdir()
    environment = os.environ | {"REPOSITORY_URL": "https://example.org/vit_tutorial"}
    command = [sys.executable, "-c", DESCRIPTION, "built"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    (metadata,) = tmp_path.glob("built/*.dist-info/METADATA")
    text = metadata.read_text("utf-8")
    assert "Description-Content-Type: text/markdown" in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 30
    assert [link for link in links if not link.startswith("https://")] == []
    for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text):
        assert picture.startswith("https://example.org/vit_tutorial/raw/main/assets/")
    for path in re.findall(r"https://example.org/vit_tutorial/(?:raw|blob)/main/([^)]+)", text):
        assert (FOLDER.parent / path).exists(), path
