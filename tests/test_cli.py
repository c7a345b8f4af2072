"""The command ``vit-tutorial``: what it hands on, and what pip installs."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from PIL import Image

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial.plots.javascript import joined

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert not caught.value.code
    assert capsys.readouterr().out.startswith(f"usage: vit-tutorial {command} [-h]")


@pytest.mark.parametrize("name", ["", ".train", ".predict"])
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_python_m_starts_it(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module(f"vit_tutorial{name}", run_name="__main__", alter_sys=False)
    assert not caught.value.code
    assert capsys.readouterr().out.startswith("usage: ")


def test_the_options_are_handed_to_the_command_s_room(monkeypatch):
    got = []
    monkeypatch.setattr("vit_tutorial.train.command.run", lambda *options: got.append(options))
    monkeypatch.setattr(sys, "argv", ["vit-tutorial", "train", "--out", "x", "--resume", "--epochs", "3"])
    cli.main()
    ((options, recipe),) = got
    assert (options.out, options.resume, recipe.epochs) == (Path("x"), True, 3)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (OSError(28, "No space left", "file"), 1, "error: file: No space left"),
        (FloatingPointError("a\n  b"), 1, "error: a b"),
        (torch.OutOfMemoryError("memory"), 1, "error: memory"),
        (KeyboardInterrupt(), 1, "stopped"),
    ],
)
def test_errors_are_one_line_and_a_status(monkeypatch, capsys, error, status, text):
    def fail(*_):
        raise error

    monkeypatch.setattr("vit_tutorial.predict.command.run", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main(["predict", "photo.png", "--weights", "shapes"])
    assert (caught.value.code, capsys.readouterr().err) == (status, f"{text}\n")


def test_a_mistake_in_a_library_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("vit_tutorial.predict.command.run", lambda _: torch.nn.LayerNorm(3)(torch.ones(2).numpy()))
    with pytest.raises(TypeError):
        cli.main(["predict", "photo.png", "--weights", "shapes"])


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert not caught.value.code
    out = capsys.readouterr().out
    assert re.findall(r"^  (\w+)  +[a-z]", out, re.MULTILINE) == ["train", "predict", "evaluate", "export", "live"]
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "nonsense",
        "train --out x --epochs -3",
        "predict a.jpg --weights digits --out a.xlsx",
        "evaluate a --weights digits --batch-size 0",
        "export --weights digits --to pt2 --out model.onnx",
        "live --out page.txt",
        "live a.jpg --image-size 0",
    ],
)
def test_help_and_wrong_arguments_do_not_wait_for_torch(arguments):
    code = (
        "import sys, vit_tutorial_cli\ntry: vit_tutorial_cli.main(sys.argv[1:])\n"
        "finally: print('heavy:', *{'torch', 'numpy', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.splitlines()[-1] == "heavy:"
    assert done.returncode == (0 if arguments == "--help" else 2)


ELSEWHERE = """
import multiprocessing, os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "killpg", "mkfifo", "sched_getaffinity", "setsid"):
    vars(os).pop(name, None)
import vit_tutorial_cli
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    vit_tutorial_cli.main("train --data digits --epochs 1 --workers 1 --out run".split())
    photo = "photo.png"
    for command in ("predict", "live", "export --to pt2"):
        vit_tutorial_cli.main([*command.split(), *([photo] * ("export" not in command)), "--weights", "run"])
"""


@pytest.mark.slow
def test_the_commands_need_nothing_that_windows_and_macos_lack(tmp_path):
    """Modules and functions that only Unix has are gone, and processes are spawned, as they are there."""
    Image.new("RGB", (20, 30)).save(tmp_path / "photo.png")
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE, "utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "elsewhere.py"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"run", "build", "model.pt2"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["--", "train"], ["tra"]])
def test_refuses_what_it_does_not_know(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "vit-tutorial: error: " in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert not caught.value.code
    assert capsys.readouterr().out.startswith(f"vit_tutorial {vt.__version__} (torch {torch.__version__}, Python 3.")


@pytest.mark.slow
def test_what_pip_installs_works_by_itself(tmp_path):
    """The script and its page, from a wheel, far from the sources."""
    if int(metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or newer: without a network, pip builds with what is here")
    script = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert script == {"vit-tutorial": "vit_tutorial_cli:main"}
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "vit_tutorial", sources / "vit_tutorial", ignore=shutil.ignore_patterns("__pycache__"))
    (sources / "assets").mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "assets/CREDITS.md", "vit_tutorial_cli.py"):
        shutil.copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", tmp_path / "site", sources], check=True, cwd=tmp_path, capture_output=True)
    shutil.rmtree(sources)
    code = (
        "import sys; sys.path.insert(0, 'site'); import vit_tutorial_cli, vit_tutorial\n"
        "assert vit_tutorial_cli.__file__.startswith(sys.argv[1]) and vit_tutorial.__file__.startswith(sys.argv[1])\n"
        "vit_tutorial_cli.main(['live', '--weights', 'shapes', '--out', 'live.html'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "live.html").read_text("utf-8")
    assert (ROOT / "vit_tutorial" / "live" / "diagram.css").read_text("utf-8") in page
    assert joined("vit_tutorial.live", "live.js") in page
    assert any((tmp_path / "site" / "bin").glob("vit-tutorial*")) or sys.platform == "win32"
