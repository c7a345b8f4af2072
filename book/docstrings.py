"""The package's docstrings, made ready for Sphinx: what autodoc and napoleon would read otherwise than a person."""

from __future__ import annotations

import dataclasses
import functools
import re
import textwrap
import typing
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import vit_tutorial
from vit_tutorial.options import evaluate, export, live, predict, recipe, train

INITIAL = re.compile(r"^( +\w+: )([A-Z]\.)", re.MULTILINE)
RETURNS = re.compile(r"^Returns:((?:\n(?: +.*|(?=\n +)))+)", re.MULTILINE)


def prepare_for_napoleon(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from reading words before a colon as a type, and "dim: D." as a list that begins with D."""
    text = INITIAL.sub(r"\1\\\2", "\n".join(lines))
    lines[:] = RETURNS.sub(lambda found: f":returns:{textwrap.indent(found[1], '    ')}\n", text).splitlines()
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment: of these, napoleon looks for a type in the first line


def typeset_default_factories(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A dataclass's ``<factory>`` as ``...``, which can be parsed, and so be typeset."""
    return signature and signature.replace("<factory>", "..."), returns


def show_plain_types_of_options() -> None:
    """The reference shows an option's type without what the command line needs to know of it."""
    for module in (evaluate, export, live, predict, recipe, train):
        for value in vars(module).values():
            if dataclasses.is_dataclass(value) and isinstance(value, type):
                plain = typing.get_type_hints(value)
                value.__annotations__ = plain
                value.__init__.__annotations__ = plain


def find_in_package(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """Link a docstring's :class:`ViT` from any module; a name that is defined and has no entry stays plain text."""
    if node.get("refdomain") != "py":
        return None
    target, python = node["reftarget"], env.domains.python_domain
    places = [name for name in python.objects if name.endswith(f".{target}")]
    if len(places) == 1:
        return python.resolve_xref(env, node["refdoc"], app.builder, "obj", places[0], node, text)
    return text if target.rpartition(".")[2] in defined_names() else None


@functools.cache
def defined_names() -> set[str]:
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(vit_tutorial.__file__).parent.rglob("*.py"))
    return set(re.findall(r"^(?: *def | *class |)(\w+)(?=\(|:)", source, re.MULTILINE))
