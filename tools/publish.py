"""Put links to the book, Binder and Colab into README and lessons, for your own copy of the course on a code host.

python tools/publish.py https://github.com/you/vit_tutorial      writes the links, or changes those that are there
python tools/publish.py                                          takes them out again, to the byte

Each lesson gets a line of links below its title, and a cell that installs the package where it is missing, since Colab
opens the notebook alone. Commit and push the result: the services read what is on the host.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lessons

ROOT = Path(__file__).resolve().parent.parent
PAGE = "README.md"
START, NAMES = "Without installing: ", ("the book", "Binder", "Colab (`make publish` puts the links here)")
PROJECT = "pyproject.toml"
URLS = """
[project.urls]  # written by make publish
Homepage = "{address}"
Documentation = "{address}#readme"
Changelog = "{address}/blob/{branch}/CHANGELOG.md"
Issues = "{address}/issues"
"""
ADDRESS = re.compile(r"(https?|git|file)://[\w.~:/@+-]+")
IDS = ("published-links", "published-install")
INSTALL = """\
# In Colab, which has this notebook alone: install the package. Anywhere else nothing happens.
import importlib.util

if importlib.util.find_spec("vit_tutorial") is None:
    %pip install --quiet "vit_tutorial[learn] @ git+{address}"
"""


def links(address: str, branch: str, path: str = "") -> list[str]:
    """Markdown links that open ``path``, or all of the course, on Binder and, for GitHub, in the book and on Colab."""
    host, _, place = address.partition("://")[2].partition("/")
    service = {"github.com": f"gh/{place}", "gitlab.com": f"gl/{quote(place, safe='')}"}
    kind = service.get(host, f"git/{quote(address, safe='')}")
    found = [f"[Binder](https://mybinder.org/v2/{kind}/{branch}?labpath={quote(path or 'notebooks', safe='')})"]
    if host == "github.com":
        start = path or "notebooks/00_start_here.ipynb"
        found.append(f"[Colab](https://colab.research.google.com/github/{place}/blob/{branch}/{start})")
        owner, _, name = place.partition("/")
        page = path.replace(
            ".ipynb", ".html"
        )  # of the book, as the workflow publishes it: what needs a script runs there
        found.insert(0, f"[the book](https://{owner.lower()}.github.io/{name}/{page})")
    return found


def page(text: str, address: str, branch: str) -> str:
    """README with the links in the line that it keeps for them; without an address, with their names alone."""
    found = links(address, branch) if address else NAMES
    return re.sub(rf"(?m)^{START}.*$", lambda _: START + " · ".join(found), text)


def project(text: str, address: str, branch: str) -> str:
    """pyproject.toml with the addresses that PyPI shows; without an address, without them."""
    text = re.sub(r"\n\[project\.urls\]  # written by make publish\n(?:\w+ = [^\n]*\n)*", "", text, count=1)
    if not address:
        return text
    return text.replace(
        "\n[tool.setuptools]\n", f"{URLS.format(address=address, branch=branch)}\n[tool.setuptools]\n", 1
    )


def absolute(text: str, address: str, branch: str) -> str:
    """The README for PyPI, which has none of the repository's files: every relative link and picture by its address."""
    raw = address.replace("://github.com/", "://raw.githubusercontent.com/") + f"/{branch}"
    if "://github.com/" not in address:
        raw = f"{address}/-/raw/{branch}"
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:|#)([^)\s]+)\)", rf"\g<1>{raw}/\g<2>)", text)
    return re.sub(r"(\]\()(?!\w+:|#)([^)\s]+)\)", rf"\g<1>{address}/blob/{branch}/\g<2>)", text)


def notebook(text: str, name: str, address: str, branch: str) -> str:
    """A lesson's file with the links and the cell that installs; without an address, without them.

    Raises:
        ValueError: the file isn't written as nbformat does, so it would come back with other bytes.
    """
    found: dict[str, Any] = json.loads(text)
    if _text(found) != text:
        raise ValueError(f"{name} is written in another way than Jupyter's: python tools/lessons.py refresh {name[:2]}")
    found["cells"] = [cell for cell in found["cells"] if cell.get("id") not in IDS]
    if address:
        line = (
            f"Open this lesson without installing anything: {' · '.join(links(address, branch, f'notebooks/{name}'))}"
        )
        source = INSTALL.format(address=address).rstrip("\n").splitlines(keepends=True)
        found["cells"][1:1] = [
            {"cell_type": "markdown", "id": IDS[0], "metadata": {}, "source": [line]},
            {
                "cell_type": "code",
                "execution_count": None,
                "id": IDS[1],
                "metadata": {"jupyter": {"source_hidden": True}, "tags": ["remove-cell"]},
                "outputs": [],
                "source": source,
            },
        ]
    return _text(found)


def _text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def publish(root: Path, address: str, branch: str = "main") -> list[Path]:
    """Write the links into the pages and lessons below ``root``; which files changed.

    Raises:
        ValueError: an address that is none, or a file that can't be changed; nothing is written then.
    """
    address = address.rstrip("/").removesuffix(".git")
    if address and not ADDRESS.fullmatch(address):
        raise ValueError(
            f"ADDRESS={address} is not the address of a repository, such as https://github.com/you/vit_tutorial"
        )
    if not re.fullmatch(r"[\w./-]+", branch):
        raise ValueError(f"BRANCH={branch} is not the name of a branch")
    made = {root / PAGE: page((root / PAGE).read_text("utf-8"), address, branch)}
    made[root / PROJECT] = project((root / PROJECT).read_text("utf-8"), address, branch)
    for path in lessons.find([], root / "notebooks"):
        made[path] = notebook(path.read_text("utf-8"), path.name, address, branch)
    changed = [path for path, text in made.items() if path.read_text("utf-8") != text]
    for path in changed:
        lessons.write(path, made[path])
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", default="", help="of your repository; none takes the links out")
    parser.add_argument("--branch", default="main")
    parser.add_argument(
        "--release",
        action="store_true",
        help="make the README's links absolute, too, as PyPI needs them: not to commit",
    )
    arguments = parser.parse_args()
    try:
        changed = publish(ROOT, arguments.address, arguments.branch)
        if arguments.release and arguments.address:
            readme = ROOT / "README.md"
            lessons.write(readme, absolute(readme.read_text("utf-8"), arguments.address.rstrip("/"), arguments.branch))
    except ValueError as error:
        raise SystemExit(str(error)) from error
    for path in changed:
        print(path.relative_to(ROOT).as_posix())
    if arguments.address and "://github.com/" not in arguments.address:
        print("There are no links to Colab: it opens notebooks from GitHub alone.")
    what = "with the links" if arguments.address else "without links"
    print(f"{len(changed)} files changed, {what}" if changed else f"Nothing to do: all files are {what} already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
