"""What README.md and CONTRIBUTING.md tell a person to type, and the versions that the project's files name."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

import vit_tutorial_cli
from vit_tutorial import predict, train
from vit_tutorial.export.formats import ONNX_SINCE

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    *("README.md", "CONTRIBUTING.md", "TEACHING.md", "benchmarks/README.md"),
    *("book/command_line.md", "book/installation.md"),
)
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
# Commands of the README that the tests don't repeat, and who does.
BY_HAND = {
    "python -m venv .venv && . .venv/bin/activate": "make's set-up does",
    "pip install -r requirements.txt": "make's set-up does",
    "pip install --no-deps -e .": "make's set-up does",
    'pip install ".[train]"': "test_extras.py tests what each brings",
    "uv venv && uv pip install -r requirements.txt && uv pip install --no-deps -e .": "the same as with pip",
    "pip install --extra-index-url https://download.pytorch.org/whl/cpu -r requirements.txt": "CPU=1 does",
    "conda env create -f environment.yml && conda activate vit_tutorial": "test_environment_yml reads the file",
    "jupyter lab notebooks/00_start_here.ipynb": "make lab does, and test_the_first_lesson_is_where_make_opens_it",
    "pytest": "this is it",
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT[page], flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [command for line in lines if (command := line.split("#")[0].strip())]


def pins() -> dict[str, Version]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name: Version(next(iter(pin.specifier)).version) for pin in found}


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split, name in (("train", "ants"), ("train", "bees"), ("val", "ants"), ("val", "bees")):
        folder = tmp_path / "hymenoptera" / split / name
        folder.mkdir(parents=True)
        for number in range(20):
            shutil.copyfile(ROOT / "vit_tutorial" / "data" / "pictures" / "brick.jpg", folder / f"{number}.jpg")
    for page in PAGES:
        for block in blocks(page, "python"):  # with less training, for time's sake
            exec(
                block.replace("vt.data.FINE_TUNING", "vt.data.FINE_TUNING, epochs=1, warmup_epochs=0"),
                {"__name__": "__main__"},
            )


RECIPES = re.findall(r"## (.*?)\n.*?```python\n(.*?)```", (ROOT / "book" / "recipes.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_runs(title: str, code: str) -> None:
    if "ONNX" in title and torch.__version__ < ONNX_SINCE:
        pytest.skip("needs a later exporter")
    exec(compile(code, title, "exec"), {})


# On the CPU Accelerate leaves FSDP out: from here on it reads its configuration and prepares the model as on GPUs.
AS_ON_GPUS = """
import os, torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

def init(self, *words, fsdp_plugin=None, first=AcceleratorState.__init__, **options):
    first(self, *words, fsdp_plugin=fsdp_plugin, **options)
    self.distributed_type = DistributedType.FSDP
    self.fsdp_plugin = fsdp_plugin or FullyShardedDataParallelPlugin()

AcceleratorState.__init__ = init
torch.manual_seed(0)
"""


@pytest.mark.slow
def test_the_recipe_for_several_gpus_shards_as_accelerate_is_told(tmp_path: Path) -> None:
    """Two processes: each has half of the head and of every block, and one step gives the weights of one process."""
    (code,) = [code for title, code in RECIPES if title == "A model over several GPUs"]
    kept = """
pieces = {type(block).__name__ for block in model.blocks}
torch.save((model.head.weight.to_local().shape, pieces, whole), "rank" + os.environ["RANK"])
"""
    (tmp_path / "shard.py").write_text(AS_ON_GPUS + code.replace("accelerator.end", f"{kept}accelerator.end"), "utf-8")
    text = (ROOT / "book" / "recipes.md").read_text("utf-8")
    words = text.partition("accelerate launch ")[2].partition("\n```")[0].replace("\\\n", "").split()
    words = [*words[:-3], "--num_processes", "2", "--main_process_port", "0", "shard.py"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ACCELERATE_USE_CPU": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    alone: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(code, alone)
    for rank, names in ((0, set(alone["whole"])), (1, set())):
        shape, pieces, whole = torch.load(tmp_path / f"rank{rank}", weights_only=True)
        assert shape == (5, alone["model"].head.in_features)
        assert pieces == {"FSDPEncoderBlock"}
        assert set(whole) == names
        for name in names:
            torch.testing.assert_close(whole[name], alone["whole"][name])


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    if command.startswith("make "):
        if shutil.which("make") is None:
            pytest.skip("no make on this machine")
        done = subprocess.run(["make", "--dry-run", *command.split()[1:]], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    elif command == "vit-tutorial live":
        assert "live" in vit_tutorial_cli.COMMANDS
    elif command.startswith("python ") and ".py" in command:
        done = subprocess.run(
            [sys.executable, command.split()[1], "--help"], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    elif found := re.match(r"(?:python -m vit_tutorial\.|vit-tutorial )(\w+) (.*)", command):
        name, words = found[1], shlex.split(found[2])
        assert name in vit_tutorial_cli.COMMANDS
        parser = importlib.import_module(f"vit_tutorial.{name}").parser
        (parser(words) if name == "train" else parser()).parse_args(words)  # train's defaults depend on --data
    elif "accelerate launch " in command:
        from accelerate.commands.launch import launch_command_parser

        words = command.partition("accelerate launch ")[2].split()
        launch = launch_command_parser().parse_args(words)
        assert launch.module
        words = launch.training_script_args
        if launch.training_script == "vit_tutorial.train":
            train.parser(words).parse_args(words)
        else:
            assert launch.training_script == "vit_tutorial.predict"
            predict.parser().parse_args(words)
    else:
        assert command in BY_HAND


# Which of the six modules each needs, beside torch; the README says so.
NEEDS = {
    "patches": set(),
    "attention": set(),
    "mlp": set(),
    "embeddings": {"patches"},
    "encoder": {"attention", "mlp", "patches"},
    "vit": {"patches", "embeddings", "attention", "mlp", "encoder"},
}
ALONE = """
import importlib, sys, torch
sys.path = [entry for entry in sys.path if "packages" not in entry]  # what torch has loaded is there, nothing else
for package in sys.argv[1:]:
    sys.path.insert(0, package)
    name = package.rpartition("/")[2]
    module = importlib.import_module(f"{name}_copy.{name}")
    assert module.__file__.startswith(package), module.__file__
assert not [name for name in sys.modules if name.startswith(("vit_tutorial", "torchvision", "matplotlib", "PIL"))]
"""


def test_what_the_readme_says_can_be_copied_works_with_torch_alone(tmp_path: Path) -> None:
    folders = []
    for name, needed in NEEDS.items():
        package = tmp_path / name / f"{name}_copy"
        package.mkdir(parents=True)
        for module in {name, *needed}:
            source = (ROOT / "vit_tutorial" / f"{module}.py").read_text(encoding="utf-8")
            (package / f"{module}.py").write_text(source.replace("vit_tutorial", package.name), encoding="utf-8")
        folders.append((tmp_path / name).as_posix())
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", ALONE, *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_says_what_can_be_copied() -> None:
    said = re.sub(r"\s+", " ", TEXT["README.md"])
    assert "`patches.py`, `attention.py` and `mlp.py` stand alone;" in said
    assert "`vit.py` needs the other five." in said
    for name in ("embeddings", "encoder"):
        listed = re.search(rf"`{name}\.py` needs ([^;]*);", said)
        assert listed is not None
        assert set(re.findall(r"`(\w+)\.py`", listed[1])) == NEEDS[name]
    assert sorted(NEEDS, key=lambda name: len(NEEDS[name]))[-1] == "vit"
    assert NEEDS["vit"] == set(NEEDS) - {"vit"}


def test_the_first_lesson_is_where_make_opens_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "notebooks/00_start_here.ipynb" in makefile
    assert (ROOT / "notebooks/00_start_here.ipynb").exists()


def test_the_readme_lists_every_lesson() -> None:
    listed = re.findall(r"\]\(notebooks/(\S+?\.ipynb)\)", TEXT["README.md"])
    assert listed == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_the_readme_is_a_front_page() -> None:
    text = re.sub(r"\]\([^)]*\)", "]", TEXT["README.md"])
    assert len(re.findall(r"[\w'’.%/-]*\w[\w'’.%/-]*", text)) <= 900
    assert (ROOT / "assets" / "live.gif").stat().st_size < 1_500_000


def test_pins_fit_the_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = pins()
    extras = project["optional-dependencies"]
    developers = ("export", "learn", "plots", "shards", "test", "train", "weights")  # what requirements.txt installs
    for line in [*project["dependencies"], *(line for name in developers for line in extras[name])]:
        bound = Requirement(line)
        if bound.name == "vit_tutorial":  # its other extras
            assert bound.extras <= set(developers)
            continue
        assert bound.specifier.contains(pinned[bound.name]), line


def test_workflow_tries_the_oldest_torch_that_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = next(line for line in project["dependencies"] if line.startswith("torch>=")).removeprefix("torch>=")
    assert f"torch=={oldest}.0" in (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")


def test_environment_yml() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert re.search(r"^ +- python=3\.1[123]$", text, flags=re.MULTILINE)
    assert re.search(r"^ +- -r requirements.txt$", text, flags=re.MULTILINE)
    assert re.search(r"^ +- -e \.$", text, flags=re.MULTILINE)
