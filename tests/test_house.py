"""The house's rule beside the layers, which import-linter tests: no room imports a private name of another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "vit_tutorial"
PRIVATE = re.compile(r"_[a-z]\w*$")


def room_of(module: str) -> str:
    """``vit_tutorial.weights.names`` is in the room ``weights``; each of the six is a room of its own."""
    return module.split(".")[1] if "." in module else ""


def private_names(source: str, module: str) -> Iterator[str]:
    """What a module takes from another room whose name begins with an underscore."""
    aliases = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("vit_tutorial"):
            continue
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if room_of(whole) != room_of(module):
                aliases[alias.asname or alias.name] = whole
                if any(PRIVATE.match(part) for part in whole.split(".")):
                    yield whole
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in aliases and PRIVATE.match(attribute):
                yield f"{aliases[name]}.{attribute}"


def test_no_room_takes_a_private_name_of_another() -> None:
    for file in PACKAGE.rglob("*.py"):
        module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        assert list(private_names(file.read_text(encoding="utf-8"), module)) == [], file


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from vit_tutorial.weights.names import _joined", ["vit_tutorial.weights.names._joined"]),
        ("from vit_tutorial import weights\nweights._private()", ["vit_tutorial.weights._private"]),
        ("from vit_tutorial.data.sets import _statistics", []),  # its own room's
        ("from vit_tutorial.weights import load", []),
        ("import torch\ntorch._dynamo", []),
    ],
)
def test_a_private_name_is_found(line: str, found: list[str]) -> None:
    assert list(private_names(line, "vit_tutorial.data.folders")) == found
