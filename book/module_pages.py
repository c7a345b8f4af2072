"""The reference: a page for each module of the package, and one that lists them."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import vit_tutorial as vt

BOOK = Path(__file__).resolve().parent
PACKAGE = BOOK.parent / "vit_tutorial"
ROW_OF_MAP = re.compile(r"^\| [\d, -]+? +\| ([\w.]+) +\| .+\.$", re.MULTILINE)  # in the package's docstring


def modules() -> dict[str, str]:
    """{page: the module's full name}, in the order of the package's map; "explain" is vit_tutorial.analysis.explain."""
    return {name.rpartition(".")[2]: f"vit_tutorial.{name}" for name in ROW_OF_MAP.findall(vt.__doc__ or "")}


def page_of(path: str) -> str:
    """The page that documents a module, named by its path in the package: its room's page, if the room has one."""
    room, _, module = path.partition("/")
    return room if room in modules() else module


def has_source_page(path: str) -> bool:
    """Whether Sphinx makes a page of a module's source: it does if the module defines a public class or function."""
    name = f"vit_tutorial.{path.replace('/', '.')}"
    public = {key: value for key, value in vars(importlib.import_module(name)).items() if not key.startswith("_")}
    return any(getattr(value, "__module__", "") == name for value in public.values())


def module_page(page: str, notebooks: list[Path]) -> str:
    """A module's page in MyST. A room's page holds its modules, one after the other.

    Args:
        page: a key of :func:`modules`.
        notebooks: lessons and exercises, by their paths below the repository; those about the module are linked.
    """
    module = modules()[page]
    path = module.removeprefix("vit_tutorial.").replace(".", "/")
    number = lesson_of(module)
    links = [
        f"[{'Exercises' if 'exercises' in notebook.parts else f'Lesson {number}'}](../{notebook.as_posix()})"
        for notebook in notebooks
        if number and notebook.name.startswith(number)
    ]
    if has_source_page(path):
        links.append(f'<a href="../_modules/vit_tutorial/{path}.html">Source</a>')
    text = f"# `{page}`\n\n{line_of_links(links)}\n\n{automodule(module)}"
    for file in sorted((PACKAGE / path).glob("[!_]*.py")):
        text += f"\n## `{file.stem}`\n\n{automodule(f'{module}.{file.stem}')}"
    return text


def lesson_of(module: str) -> str:
    """The number of a module's lesson, from a docstring that begins with "Lesson 03"; "" for any other."""
    docstring = importlib.import_module(module).__doc__ or ""
    return docstring[7:9] if docstring.startswith("Lesson ") else ""


def line_of_links(links: list[str]) -> str:
    """The line below a page's title; "" without links."""
    return ":::{container} links\n" + "\n· ".join(links) + "\n:::" if links else ""


def automodule(name: str) -> str:
    """The directive that documents one module. Names that it imports from others are linked to their own pages."""
    module = importlib.import_module(name)
    homes = {public: getattr(getattr(module, public), "__module__", "") for public in getattr(module, "__all__", [])}
    imported = [
        f":py:obj:`{public} <{home}.{public}>`"
        for public, home in homes.items()
        if home.startswith("vit_tutorial.") and home != name and hasattr(sys.modules[home], public)
    ]
    lines = [f".. automodule:: {name}", "   :members:", "   :ignore-module-all:"]
    lines += ["", f"Also here: {', '.join(imported)}."] if imported else []
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def reference_page() -> str:
    """The page that lists what ``import vit_tutorial as vt`` gives: functions and classes, then modules."""
    public = {name: getattr(vt, name) for name in vt.__all__}
    names = [
        f"| [`vt.{name}`](#{value.__module__}.{name}) | {first_line(value)} |"
        for name, value in public.items()
        if not inspect.ismodule(value)
    ]
    rows = [
        f"| [`{page}`]({page}.md) | {first_line(importlib.import_module(name))} |" for page, name in modules().items()
    ]
    text = (BOOK / "reference.md").read_text(encoding="utf-8")
    return text.replace("{names}", "\n".join(names)).replace("{modules}", "\n".join(rows))


def first_line(documented: object) -> str:
    """The first line of a docstring, for a cell of a table."""
    return (documented.__doc__ or "").strip().partition("\n")[0].replace("|", r"\|")
