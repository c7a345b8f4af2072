"""Joins JavaScript modules into one script, as a page or an output that loads nothing has no modules.

A small part of what modules may do is known, and anything else is refused:

- imports: ``import { a, b } from "./file.js";`` at the beginning of a line; no default import, no ``as``, no package
- exports: ``export`` before the ``function``, ``const`` or ``class`` that it exports; no list, no default export
- names: all modules share one scope, so no two may declare the same one
"""

from __future__ import annotations

import collections
import posixpath
import re
from importlib.resources import files

IMPORT = re.compile(r'^import \{\s*\w+(?:,\s*\w+)*,?\s*\} from "(.+?)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=async |function|const |class )", re.MULTILINE)
UNKNOWN = re.compile(r"^(import|export)\b.*", re.MULTILINE)  # once those are taken out
DECLARED = re.compile(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)


def joined(package: str, first: str) -> str:
    """A module of a package and all that it imports as one script, each after those that it imports.

    Args:
        package: that has the modules, such as "vit_tutorial.live".
        first: the module's file; others may be imported by way of others.

    Raises:
        ValueError: an import or an export of another kind than above.
        ValueError: a name that two modules declare.
    """
    code = "\n".join(_modules(package, first, {}).values())
    names = collections.Counter(DECLARED.findall(code))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"{', '.join(twice)} is declared in two modules, which share one scope")
    return code


def _modules(package: str, name: str, before: dict[str, str]) -> dict[str, str]:
    """The code of a module after that of all that it imports, by name; ``before`` has those that are there already."""
    text = files(package).joinpath(name).read_text("utf-8")
    modules = before
    for target in IMPORT.findall(text):
        imported = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if imported not in modules:
            modules = _modules(package, imported, modules)
    return modules | {name: _without_imports(name, text)}


def _without_imports(name: str, text: str) -> str:
    code = EXPORT.sub("", IMPORT.sub("", text)).lstrip()
    if bad := UNKNOWN.search(code):
        raise ValueError(f"{name} can't be part of one script: {bad[0]}")
    return code
