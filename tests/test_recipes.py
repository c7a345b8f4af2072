"""CONTRIBUTING's recipes, followed to the letter in a copy of the repository: they say enough, and nothing idle."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
RECIPES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LESSON = RECIPES.partition("## A new lesson")[2].partition("\n## A data set")[0]
SOURCE = RECIPES.partition("## A source of weights")[2].partition("\n## ")[0]
FILE = re.compile(r"^```py\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES = re.compile(r"^```diff\n(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEM = "99_brightness"
SCRIPTS = Path(sys.executable).parent


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    assert not path.exists(), f"{name} would be a new file"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def add_lines(root: Path, name: str, block: str) -> None:
    """Add a block's lines before the first line that begins as its context does, or after the last one."""
    old = (root / name).read_text(encoding="utf-8").split("\n")
    new = [line[1:] for line in block.splitlines() if line[0] == "+"]
    (context,) = [line[1:].removesuffix("…") for line in block.splitlines() if line[0] == " "]
    places = [number for number, line in enumerate(old) if line.startswith(context)]
    assert places, f"{name} has no line that begins with {context!r}"
    place = places[0] if block.startswith("+") else places[-1] + 1
    (root / name).write_text("\n".join([*old[:place], *new, *old[place:]]), encoding="utf-8")


def run(root: Path, *words: str) -> str:
    """Run a command in the copy, and with its package; what it printed."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST_", "COV_CORE_"))}
    done = subprocess.run(
        words,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


# ---- A lesson 99 -----------------------------------------------------------------------------------------------------

MORE = {"darkest": "amin", "brightest": "amax"}  # exercises like the recipe's, of another function


def lesson() -> nbformat.NotebookNode:
    """A lesson with all that tests/test_notebooks.py wants of one."""
    prose, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    asked = "\n\n".join(
        f"**{n}.** What is {n}?\n\n<details><summary>Answer</summary>\n\nA number.\n\n</details>" for n in (1, 2, 3)
    )
    cells = [
        prose(
            "# 99 · Brightness\n\nAfter this lesson you can say how bright each patch is.\n\n"
            "| to read | to run | you need | module |\n|---|---|---|---|\n"
            "| 5 minutes | about 5 seconds | lesson [01](01_patches.ipynb) | `vit_tutorial/analysis/brightness.py` |\n"
        ),
        prose("## 1 · By hand\n\n" + "A patch is as bright as its pixels are in the mean. " * 60),
        code(
            "import torch\n\nimport vit_tutorial as vt\nfrom vit_tutorial import plots\n"
            "from vit_tutorial.analysis.brightness import patch_brightness\n\n"
            "images = torch.linspace(0, 1, 48).reshape(1, 3, 4, 4)  # (B, C, H, W)\n"
            "bright = patch_brightness(images, 2)  # (B, N)\n"
            'print("brightness", [round(value, 3) for value in bright[0].tolist()])\n'
            "assert bright.shape == (1, 4)\nassert torch.allclose(bright.mean(), images.mean())\n"
            "assert torch.allclose(bright, vt.patchify(images, 2).mean(-1))\nassert bright.min() > 0\n"
            "assert bright.max() < 1"
        ),
        code(
            "plots.show(\n    plots.bright_patches(bright[0]),\n"
            '    alt="Four bars, each a little higher than the one before.",\n'
            '    caption="**Figure 99.1.** The last patch is the brightest.",\n)'
        ),
        prose("## What goes wrong\n\nA sum in place of a mean.\n\n## Check yourself\n\n" + asked),
        prose(f"## Exercises\n\n[Write it yourself](exercises/{STEM}.ipynb)."),
        prose("## Summary\n\nThat was all.\n\n## Further reading\n\nThe paper."),
    ]  # fmt: skip
    return nbformat.v4.new_notebook(cells=cells)


def exercises() -> nbformat.NotebookNode:
    """A solved source with all that tests/test_exercises.py wants of one: three exercises, a question, a challenge."""

    def cell(kind: str, source: str, name: str = "", points: int = 0, **flags: bool) -> nbformat.NotebookNode:
        made = getattr(nbformat.v4, f"new_{kind}_cell")(source)
        if name:
            data: dict[str, Any] = {"grade": False, "locked": False, "solution": False, "task": False} | flags
            made.metadata["nbgrader"] = (
                data | {"grade_id": name, "schema_version": 3} | ({"points": points} if points else {})
            )
        return made

    names = ["patch_brightness", *MORE]
    titles = [f"`{name}`" for name in names[:2]] + ["A question", f"Challenge: {names[2]}"]
    points = (5, 5, 5, 5)
    rows = "".join(
        f"| {n} | {title} | easy | high | 10 | {p} |\n"
        for n, (title, p) in enumerate(zip(titles, points, strict=True), 1)
    )
    cells = [
        cell("markdown", f"# 99 · Brightness: exercises\n\nThe lesson: [99 · Brightness](../{STEM}.ipynb).\n\n"
             "| | exercise | difficulty | importance | minutes | points |\n|---|---|---|---|---|---|\n"
             + rows + "\n\n**Short path, 20 minutes:** exercises 1 and 2."),
        cell("code", "from torch import Tensor\nfrom vit_tutorial import checks, patchify", "given-setup", locked=True),
    ]  # fmt: skip
    for number, title in enumerate(titles, 1):
        card = f"## {number} · {title.strip('`')}\n\n*Difficulty: easy. Importance: high. 10 minutes.*\n\nA text.\n\n"
        cells.append(cell("markdown", card + "<details><summary>Hint 1</summary>\n\nThe last axis.\n\n</details>"))
        if title == "A question":
            answer = "Because it is.\n\n*Marking key. 3 points: because. 2 points: it is.*"
            cells.append(cell("markdown", answer, "answer-why", 5, grade=True, solution=True))
            continue
        name = names[min(number, 3) - 1]
        solved = "\n".join([
            f"def {name}(images: Tensor, patch_size: int) -> Tensor:",
            '    """(B, C, H, W) -> (B, N)."""',
            "    ### BEGIN SOLUTION",
            f"    return patchify(images, patch_size).{MORE.get(name, 'mean')}(dim=-1)",
            "    ### END SOLUTION",
        ])  # fmt: skip
        cells.append(cell("code", solved, name.replace("_", "-"), solution=True))
        cells.append(
            cell(
                "code",
                f"assert checks.check_{name}({name})",
                f"check-{name}".replace("_", "-"),
                5,
                grade=True,
                locked=True,
            )
        )
    return nbformat.v4.new_notebook(cells=cells)


def with_more(text: str) -> str:
    """The recipe's exercise three times: as it stands, and with another function in place of the mean."""
    if "RIGHT = {" in text:
        return text + "".join(
            f"\n\ndef {name}(images, patch_size):\n    return patchify(images, patch_size).{function}(dim=-1)\n\n\n"
            f'RIGHT["{name}"] = ({name}, lambda *args: 1 * {name}(*args), lambda *args: {name}(*args).clone())\n'
            f'WRONG["{name}"] = [Wrong("in percent", lambda *args: 100 * {name}(*args), "100 times the right one")]\n'
            for name, function in MORE.items()
        )
    _, name, body = text.partition("PATCH_BRIGHTNESS = ")
    for new, function in MORE.items() if name else ():
        again = (name + body).replace("PATCH_BRIGHTNESS", new.upper()).replace("patch_brightness", new)
        right = f"lambda images, patch_size: patchify(images, patch_size).{function}(dim=-1)"
        text += "\n\n" + again.replace(f"lesson.{new}", right).replace("mean(dim=1)", f"{function}(dim=1)")
    return text


TEACHERS_PAGE = """# 99 · Brightness

## What each exercise trains

| exercise | trains |
|---|---|
| `patch_brightness` | a mean |
| `darkest` | a minimum |
| Challenge | a maximum |

## Marking the open question

- because
- it is
"""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as it is here, with lesson 99; git knows what was there before."""
    root = tmp_path_factory.mktemp("scratch") / "vit_tutorial"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0")[:-1]:
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=root, check=True)

    for name, text in FILE.findall(LESSON):
        write(root, name, with_more(text) if "99" in name else text)
    for name, block in LINES.findall(LESSON):
        add_lines(root, name, block)
    write(root, "tests/test_brightness.py", TESTS)
    write(root, f"teaching/{STEM}.md", TEACHERS_PAGE)
    nbformat.write(lesson(), root / "notebooks" / f"{STEM}.ipynb")
    nbformat.write(exercises(), root / "notebooks" / "solutions" / f"{STEM}.ipynb")
    return root


TESTS = '''"""Lesson 99."""

import pytest
import torch

from vit_tutorial import plots
from vit_tutorial.analysis.brightness import patch_brightness


def test_it_is_the_mean():
    images = torch.rand(2, 3, 4, 6)
    assert torch.allclose(patch_brightness(images, 2).mean(), images.mean())
    with pytest.raises(ValueError, match="patch"):
        patch_brightness(images, 5)


def test_the_figure_has_a_bar_a_patch():
    (axes,) = plots.bright_patches([0.1, 0.2, 0.3]).axes
    assert [bar.get_height() for bar in axes.patches] == [0.1, 0.2, 0.3]
'''


def test_a_lesson_touches_at_most_six_files_and_adds_lines_alone(scratch: Path) -> None:
    done = subprocess.run(["git", "diff", "--numstat"], cwd=scratch, capture_output=True, text=True, check=True)
    touched = {name: (int(added), int(gone)) for added, gone, name in map(str.split, done.stdout.splitlines())}
    assert len(touched) <= 6, touched
    assert all(gone == 0 and added <= 4 for added, gone in touched.values()), touched


@pytest.mark.slow
def test_a_lesson_as_the_recipe_has_it_passes_its_tests_and_is_in_the_book(scratch: Path) -> None:
    assert "1 of 1 lessons ok" in run(scratch, sys.executable, "tools/lessons.py", "refresh", "99")
    run(scratch, sys.executable, "tools/classroom.py", "refresh", "99")
    run(scratch, sys.executable, "tools/classroom.py", "assignments", "99")
    copy = json.loads((scratch / "notebooks/exercises" / f"{STEM}.ipynb").read_text(encoding="utf-8"))
    assert "YOUR CODE HERE" in json.dumps(copy)
    chosen = "99 or brightness or brightest or darkest or every_lesson or every_module or map or mypy or documented"
    files = [
        f"tests/test_{name}.py"
        for name in ("brightness", "notebooks", "exercises", "checks", "package", "book", "readme")
    ]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    printed = run(scratch, sys.executable, "-m", "pytest", *options, *files, f"notebooks/{STEM}.ipynb", "-k", chosen)
    passed = int(re.search(r"(\d+) passed", printed)[1])
    assert passed > 50, printed


def test_a_lesson_as_the_recipe_has_it_is_in_the_house_s_style(scratch: Path) -> None:
    new = [name for name, _ in FILE.findall(LESSON)]
    for options in ("check", "format --check"):
        run(scratch, str(SCRIPTS / "ruff"), *options.split(), *new)


def test_an_import_of_a_room_above_is_noticed_and_nothing_else_is(scratch: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(scratch / "vit_tutorial", root / "vit_tutorial")
    shutil.copyfile(scratch / "pyproject.toml", root / "pyproject.toml")
    module = root / "vit_tutorial" / "analysis" / "brightness.py"
    upwards = "from vit_tutorial.train import fit as fit\n"
    module.write_text(
        module.read_text(encoding="utf-8").replace("from torch", f"{upwards}from torch"), encoding="utf-8"
    )
    with pytest.raises(AssertionError) as found:
        run(root, sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()")
    said = str(found.value)
    assert re.findall(r"(\S+) is not allowed to import (\S+):", said) == [
        ("vit_tutorial.analysis", "vit_tutorial.train")
    ]
    assert " 1 broken." in said


# ---- A source of weights ---------------------------------------------------------------------------------------------

OTHER = """
import torch
import vit_tutorial as vt
from vit_tutorial.weights import names, sources

torch.manual_seed(0)
config = vt.ViTConfig(image_size=16, patch_size=8, dim=32, depth=2, num_heads=2, mlp_dim=48, num_classes=5)
model = vt.ViT(config).double().eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.1)
theirs = names.rename(model.state_dict(), names.OTHERLIB)
assert "layers.1.mix.q.weight" in theirs
found = vt.weights.convert({f"model.{name}": tensor for name, tensor in theirs.items()}, num_heads=2)
images = torch.rand(2, 3, 16, 16, dtype=torch.float64)
other = vt.ViT(found.config).double().eval()
other.load_state_dict(found.state_dict)
assert torch.allclose(model(images), other(images), rtol=0, atol=1e-10)
print(found.preprocess.mean == sources.IMAGENET[0])
"""


def test_a_source_of_weights_as_the_recipe_has_it_is_read(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "vit_tutorial", tmp_path / "vit_tutorial")
    blocks = LINES.findall(SOURCE)
    assert len(blocks) == 2
    for name, block in blocks:
        add_lines(tmp_path, name, block)
    assert run(tmp_path, sys.executable, "-c", OTHER).strip() == "True"
