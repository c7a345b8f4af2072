"""make publish: links and the cell that installs, in and out to the byte, and an installation from a git server."""

import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
HOST = "https://github.com/you/vit_tutorial"

publish = importlib.import_module("publish")


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A copy of what make publish writes into, without links."""
    for name in [publish.PAGE, publish.PROJECT, *[path.relative_to(ROOT).as_posix() for path in LESSONS]]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    publish.publish(tmp_path, "")
    return tmp_path


def files(course: Path) -> dict[str, bytes]:
    return {path.relative_to(course).as_posix(): path.read_bytes() for path in course.rglob("*") if path.is_file()}


def first_code(path: Path) -> str:
    return next(str(cell.source) for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")


def test_links_go_in_and_out_to_the_byte(course):
    before = files(course)
    assert len(publish.publish(course, HOST)) == len(before) == len(LESSONS) + 2
    published = files(course)
    assert not [name for name in before if before[name] == published[name]]
    assert publish.publish(course, f"{HOST}.git/") == []
    publish.publish(course, "https://gitlab.com/a/b/vit_tutorial", "develop")
    assert not [name for name in before if files(course)[name] == published[name]]
    publish.publish(course, HOST)
    assert files(course) == published
    publish.publish(course, "")
    assert files(course) == before
    assert publish.publish(course, "") == []


def test_every_lesson_links_to_itself_and_installs_what_is_missing(course):
    publish.publish(course, HOST)
    for path in sorted((course / "notebooks").glob("*.ipynb")):
        title, line, install = nbformat.read(path, as_version=4).cells[:3]
        assert title.source.startswith(f"# {path.name[:2]} · ")
        assert (
            f"(https://colab.research.google.com/github/you/vit_tutorial/blob/main/notebooks/{path.name})"
            in line.source
        )
        assert f"(https://mybinder.org/v2/gh/you/vit_tutorial/main?labpath=notebooks%2F{path.name})" in line.source
        assert f"[the book](https://you.github.io/vit_tutorial/notebooks/{path.stem}.html)" in line.source
        assert f'%pip install --quiet "vit_tutorial[learn] @ git+{HOST}"' in install.source
        assert install.source == first_code(path)
        nbformat.validate(nbformat.read(path, as_version=4))
    readme = (course / "README.md").read_text("utf-8")
    assert re.search(
        r"^Without installing: \[the book\]\(https://you\.github\.io/vit_tutorial/\) · "
        r"\[Binder\]\(.+\) · \[Colab\]\(.+\)$",
        readme,
        re.M,
    )
    assert "\nWithout installing: the book · Binder · Colab (" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("address", "binder", "colab"),
    [
        ("https://gitlab.com/a/b/vit", "https://mybinder.org/v2/gl/a%2Fb%2Fvit/main?", False),
        ("https://codeberg.org/a/vit", "https://mybinder.org/v2/git/https%3A%2F%2Fcodeberg.org%2Fa%2Fvit/main?", False),
        ("https://github.com/a/vit", "https://mybinder.org/v2/gh/a/vit/main?", True),
    ],
)
def test_links_know_the_host(address, binder, colab):
    found = publish.links(address, "main", "notebooks/01_patches.ipynb")
    assert f"({binder}labpath=notebooks%2F01_patches.ipynb)" in found[int(colab)]  # after the book
    assert len(found) == 1 + 2 * colab


def test_an_address_or_a_branch_that_is_none_and_a_file_in_another_style_change_nothing(course):
    before = files(course)
    for address in ("you/vit_tutorial", "https://a b/c", 'https://a/b"\nimport os', "ssh://git@a/b", "https://a/b;rm"):
        with pytest.raises(ValueError, match=re.escape("is not the address of a repository")):
            publish.publish(course, address)
    assert files(course) == before
    with pytest.raises(ValueError, match="BRANCH=a b is not the name of a branch"):
        publish.publish(course, HOST, "a b")
    path = course / "notebooks" / LESSONS[-1].name
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=2), encoding="utf-8")
    before = files(course)
    with pytest.raises(ValueError, match=f"{LESSONS[-1].name} is written in another way"):
        publish.publish(course, HOST)
    assert files(course) == before


@pytest.mark.slow
def test_a_published_lesson_still_passes_nbval(course):
    publish.publish(course, HOST)
    lesson = course / "notebooks" / LESSONS[0].name
    options = ["--nbval", "--nbval-current-env", f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *options, str(lesson)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=course, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_first_cell_installs_the_package_from_a_git_server(course, tmp_path_factory):
    """As in Colab: an environment with torch and without the package, and a folder with the notebook alone."""
    folder = tmp_path_factory.mktemp("server")
    subprocess.run(["git", "clone", "--quiet", "--bare", str(ROOT), str(folder / "vit_tutorial")], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = ["git", "daemon", "--export-all", f"--base-path={folder}", "--listen=127.0.0.1", f"--port={port}"]
    server = subprocess.Popen([*listen, "--reuseaddr", str(folder)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        publish.publish(course, f"git://127.0.0.1:{port}/vit_tutorial")
        alone = tmp_path_factory.mktemp("alone")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(alone / "venv")], check=True)
        (site,) = (alone / "venv").glob("lib/python*/site-packages")
        # Packages by a path file: what is installed there as editable isn't seen.
        (site / "all.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        code = first_code(course / "notebooks" / LESSONS[0].name)
        code += "\nimport vit_tutorial as vt\nprint(vt.__file__, vt.load('digits').classes[3])"
        (alone / "cell.ipy").write_text(code, encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "false", "IPYTHONDIR": str(alone)}
        command = [str(alone / "venv" / "bin" / "python"), "-m", "IPython", "cell.ipy"]
        done = subprocess.run(command, cwd=alone, capture_output=True, text=True, env=environment, check=False)
    finally:
        server.terminate()
        server.wait()
    assert str(site / "vit_tutorial") in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.strip().endswith(" 3")


def test_pypi_gets_addresses_and_whole_links(course):
    plain = tomllib.loads((course / "pyproject.toml").read_text("utf-8"))["project"]
    assert "urls" not in plain
    publish.publish(course, HOST)
    urls = tomllib.loads((course / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls["Homepage"] == HOST
    assert urls["Changelog"] == f"{HOST}/blob/main/CHANGELOG.md"
    readme = publish.absolute((course / "README.md").read_text("utf-8"), HOST, "main")
    assert "](https://raw.githubusercontent.com/you/vit_tutorial/main/assets/hero.png)" in readme
    assert f"]({HOST}/blob/main/CONTRIBUTING.md)" in readme
    assert re.findall(r"\]\((?!https?://|#)", readme) == []
