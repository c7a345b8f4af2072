"""The command ``vit-tutorial``: training, prediction, export and the live page under one name.

It is beside the package, not in it, because importing the package imports torch: ``vit-tutorial --help`` would take a
second, and on a slow disk several.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence

COMMANDS = {  # a module of the package with a function ``main``: what it does
    "train": "train a Vision Transformer, on one machine or many",
    "predict": "classify photographs, and draw where the model looked",
    "export": "write a model as a file for other runtimes: ONNX, int8, pt2",
    "live": "write a page that runs a model: draw, watch each step, change it",
}


class _Version(argparse.Action):
    """Prints the versions that a bug report needs; imports them only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        package, torch = importlib.import_module("vit_tutorial"), importlib.import_module("torch")
        print(f"vit_tutorial {package.__version__} (torch {torch.__version__}, Python {platform.python_version()})")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The command line without the commands' own options."""
    width = max(map(len, COMMANDS))
    p = argparse.ArgumentParser(
        prog="vit-tutorial",
        usage="%(prog)s COMMAND ...",
        description="The Vision Transformer, from pixels to published weights.",
        epilog="commands:\n"
        + "".join(f"  {name:{width}}  {what}\n" for name, what in COMMANDS.items())
        + "\nvit-tutorial COMMAND --help explains a command's options; python -m vit_tutorial.COMMAND is the same.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    p.add_argument("--version", action=_Version, nargs=0, help="show the versions of the package, torch and Python")
    return p


def main(arguments: Sequence[str] | None = None) -> None:
    """Pass the arguments after the command's name to that command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        name, *rest = arguments
        try:
            command = getattr(importlib.import_module("vit_tutorial"), name)
        except ModuleNotFoundError as error:  # what pip install vit-tutorial leaves out: the error says what to type
            raise SystemExit(f"error: {error}") from error
        command.main(rest, prog=f"vit-tutorial {name}")
        return
    p = parser()
    p.parse_args(arguments or ["--help"])
    p.error("put the command first")


if __name__ == "__main__":
    main()
