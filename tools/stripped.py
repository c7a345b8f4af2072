"""The package as a sandbox gets it: it tells nobody what is right, and says which of its functions have run.

* Of a lesson's checks only the observers are left, with what they need: no reference, no input, no wrong work, no
  answer to a pencil exercise. The checks themselves run outside.
* What a lesson's exercises ask for has no body: whoever calls it is told so.
* Where the rest of a lesson needs it, it stays, and every function of the package notes its name when it runs. So the
  package's own work is seen by another name, in a thread or through ``exec``, but not as a copy without the note.
"""

from __future__ import annotations

import ast
import compileall
import functools
import importlib
import os
import py_compile
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

KEPT = ("name", "lesson", "observe", "forbidden", "tolerance")  # of an exercise's declaration
LEFT_OUT = ("live", "pages")  # rooms that no notebook's code needs
NOTES = '''"""Which functions of the package have run: tools/stripped.py makes them say so."""

import os
import sys
from pathlib import Path

RAN: set[str] = set()
AS_IT_WAS: dict[tuple[str, str], tuple[object, object]] = {}  # before the student's code
OTHERS = Path(os.environ.get("HOME", "/tmp")) / ".ran"  # for processes that the student's code has started


def note(name: str) -> None:
    if name in RAN:
        return
    RAN.add(name)
    with OTHERS.open("a", encoding="utf-8") as file:
        file.write(f"{name}\\n")


def forget() -> None:
    RAN.clear()
    OTHERS.write_text("", encoding="utf-8")


def works() -> dict[tuple[str, str], tuple[object, object]]:
    """All functions and classes of the package's modules, with their code."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if name.startswith("vit_tutorial.")]
    found = [(name, key, value) for name, module in modules for key, value in vars(module).items() if callable(value)]
    return {(name, key): (value, getattr(value, "__code__", None)) for name, key, value in found}


def remember() -> None:
    AS_IT_WAS.update(works())


def told() -> list[str]:
    now = works()
    changed = [place for place, work in AS_IT_WAS.items() if [*map(id, now.get(place, ()))] != [*map(id, work)]]
    if changed or any(work is not note for (_, key), (work, _) in now.items() if key == "_ran"):
        return ["changed"]
    return sorted({*RAN, *OTHERS.read_text("utf-8").split()})
'''
CHECKS = """
EXERCISES = [value for value in list(globals().values()) if isinstance(value, Exercise)]


def _later(name):
    def check(work, *more):
        print(f"check_{name} runs when you are graded.")
        return True

    return check


for _one in EXERCISES:
    globals()[f"check_{_one.name}"] = _later(_one.name)
"""


def make(package: Path, target: Path) -> Path:
    """Copy the package into a folder, as described above; returns the copy."""
    copy = target / "vit_tutorial"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", *LEFT_OUT))
    for path in sorted(copy.rglob("*.py")):
        module = ".".join(path.relative_to(target).with_suffix("").parts).removesuffix(".__init__")
        if path.parent.name == "checks":
            if path.stem.startswith("lesson"):
                path.write_text(observers(importlib.import_module(module)), encoding="utf-8")
        else:
            path.write_text(telling(path.read_text("utf-8"), module), encoding="utf-8")
    (copy / "ran.py").write_text(NOTES, encoding="utf-8")
    return copy


def for_lesson(package: Path, lesson: str, target: Path) -> Path:
    """The copy of a package for one lesson, without what its exercises ask for."""
    copy = target / lesson / package.name
    if copy.exists():
        return copy
    shutil.copytree(package, copy, copy_function=os.link)
    importlib.import_module(f"vit_tutorial.checks.lesson{lesson}")
    watch = importlib.import_module("vit_tutorial.checks.watch")
    asked = set(watch.asked_for(lesson))
    for path in sorted(copy.rglob("*.py")):
        module = ".".join(path.relative_to(copy.parent).with_suffix("").parts).removesuffix(".__init__")
        if any(name.startswith(f"{module}.") for name in asked):
            tree = ast.parse(path.read_text("utf-8"))
            _empty(tree, module, asked)
            path.unlink()  # it is the same file as the other copies'
            path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    # Once for all sandboxes, which can't write: each would compile it anew.
    compileall.compile_dir(copy, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return copy


def _empty(owner: ast.AST, name: str, asked: set[str]) -> None:
    """Take the body out of the functions and classes of these names."""
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, ast.ClassDef):
            _empty(node, f"{name}.{node.name}", asked)
        elif isinstance(node, ast.FunctionDef) and {name, f"{name}.{node.name}"} & asked:
            own = f"{name}.{node.name}".removeprefix("vit_tutorial.").removesuffix(".__init__")
            said = f"it calls the package's own {own}: write your own in the cell above"
            node.body = ast.parse(f"_ran({f'{name}.{node.name}'!r})\nraise RuntimeError({said!r})").body


# ---- What has run ------------------------------------------------------------------------------------------------


@functools.cache
def telling(source: str, module: str) -> str:
    """A module's source in which each function notes its full name first."""
    tree = ast.parse(source)
    if not _note_all(tree, module):
        return source
    first = [i for i, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    place = first[-1] + 1 if first else int(ast.get_docstring(tree, clean=False) is not None)
    tree.body[place:place] = ast.parse("from vit_tutorial.ran import note as _ran").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _note_all(owner: ast.AST, name: str) -> int:
    """Put a note into each function of a module or class; how many there are."""
    found = 0
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, ast.ClassDef):
            found += _note_all(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef) and node.name != "__getattr__":
            first = int(ast.get_docstring(node, clean=False) is not None)
            node.body[first:first] = ast.parse(f"_ran({f'{name}.{node.name}'!r})").body
            found += 1
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            found += _note_all(node, name)
    return found


def borrowed(exercise: Any, ran: list[str]) -> str:
    """The first of the functions that have run which an exercise forbids, "" for none."""
    watch = importlib.import_module("vit_tutorial.checks.watch")
    for one in watch.forbidden(exercise):
        name = watch.full_name(one.what)
        if one.when is None and name.startswith("vit_tutorial."):
            start = name.removesuffix("*") if name.endswith(".*") else f"{name}."
            if theirs := [own for own in ran if own == name or own.startswith(start)]:
                return str(theirs[0]).removeprefix("vit_tutorial.")
    return ""


def sources(package: Path, lesson: str) -> dict[str, dict[str, str]]:
    """Of each exercise the sources of the package's functions and classes that it forbids, by full names."""
    exercises = importlib.import_module("vit_tutorial.checks.declare").exercises_of
    watch = importlib.import_module("vit_tutorial.checks.watch")
    found = {}
    for one in exercises(importlib.import_module(f"vit_tutorial.checks.lesson{lesson}")):
        names = [watch.full_name(rule.what) for rule in watch.listed(one) if rule.when is None]
        starts = tuple(name.removesuffix("*") for name in names if name.endswith(".*"))
        found[one.name] = {
            name: source for name, source in _sources(package).items() if name in names or name.startswith(starts)
        }
    return found


@functools.cache
def _sources(package: Path) -> dict[str, str]:
    """The sources of all functions and classes of the package but its checks, as they are written."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        if not module.startswith("vit_tutorial.checks"):
            lines = path.read_text("utf-8").splitlines()
            for name, node in _defined(ast.parse("\n".join(lines)), module):
                found[name] = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return found


def _defined(owner: ast.AST, name: str) -> Iterator[tuple[str, ast.stmt]]:
    """The functions and classes of a module or class, by their full names."""
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield f"{name}.{node.name}", node
            yield from _defined(node, f"{name}.{node.name}")


# ---- What is right, left out -------------------------------------------------------------------------------------


@functools.cache
def observers(module: ModuleType) -> str:
    """The source of a lesson's checks without what is right."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    exercises = importlib.import_module("vit_tutorial.checks.declare").exercises_of(module)
    wanted = {name for exercise in exercises for name in _classes(exercise.cases(), module.__name__)}
    kept, defined = [], {name: node for node in tree.body for name in _names(node)}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept.append(node)
        elif isinstance(node, ast.Assign) and _calls(node, "Exercise"):
            _strip(node, module)
            kept.append(node)
        elif isinstance(node, ast.Assign) and _calls(node, "pencil"):
            (name,) = _names(node)
            defined[name] = _answered_by_hand(node, module)
            kept.append(defined[name])
    while True:
        used = wanted | {name.id for node in kept for name in ast.walk(node) if isinstance(name, ast.Name)}
        more = [node for name, node in defined.items() if name in used and node not in kept]
        if not more:
            break
        kept += [_without_formulas(node) for node in more]
    at = {name: index for index, node in enumerate(tree.body) for name in _names(node)}
    rest = [node for node in kept if not isinstance(node, (ast.Import, ast.ImportFrom))]
    tree.body = [node for node in kept if node not in rest] + sorted(rest, key=lambda node: at[_names(node)[0]])
    return ast.unparse(ast.fix_missing_locations(tree)) + CHECKS


def _without_formulas(node: ast.stmt) -> ast.stmt:
    """A table of the module without its formulas: only its keys are looked at."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        for part in ast.walk(node):
            if isinstance(part, ast.Dict):
                part.values = [ast.Constant(None) if isinstance(v, ast.Lambda) else v for v in part.values]
    return node


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _calls(node: ast.Assign, function: str) -> bool:
    return isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == function


def _answered_by_hand(node: ast.Assign, module: ModuleType) -> ast.stmt:
    """An exercise of questions without the questions: its answers are read, and judged elsewhere."""
    (target,) = _names(node)
    one = getattr(module, target)
    what = f"name={one.name!r}, lesson={one.lesson!r}, tolerance={one.tolerance!r}"
    declare, observe = "vit_tutorial.checks.declare", "vit_tutorial.checks.observe"
    made = f"{target} = __import__({declare!r}, fromlist=['']).Exercise({what}, right=None, cases=list, mistakes=(), "
    return ast.parse(f"{made}observe=__import__({observe!r}, fromlist=['']).answers)").body[0]


def _strip(node: ast.Assign, module: ModuleType) -> None:
    """Leave of a declaration what an observer needs; the package's own work as the reference, since it is forbidden."""
    call = node.value
    assert isinstance(call, ast.Call)
    (target,) = _names(node)
    reference = getattr(module, target).right
    ours = (
        str(getattr(reference, "__module__", "")).startswith("vit_tutorial") and ".checks" not in reference.__module__
    )
    call.keywords = [word for word in call.keywords if word.arg in KEPT or (word.arg == "right" and ours)]
    missing = "cases=list, mistakes=()" if ours else "right=None, cases=list, mistakes=()"
    filler = ast.parse(f"f({missing})", mode="eval").body
    assert isinstance(filler, ast.Call)
    call.keywords += filler.keywords


def _classes(value: Any, module: str) -> set[str]:
    """The names of a module's own classes that stand in a value, however deep: a sandbox must know them, too."""
    torch = importlib.import_module("torch")
    own = {type(value).__name__} if type(value).__module__ == module else set()
    if isinstance(value, torch.nn.Module):
        parts: Any = list(value.children())
    elif isinstance(value, dict):
        parts = [*value.values()]
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        parts = [value.args, value.build] if type(value).__name__ == "Case" else []
    return own.union(*(_classes(part, module) for part in parts))
