"""The command ``vit-tutorial``: training, prediction, evaluation, export and the live page under one name.

The options of a command are a dataclass in :mod:`vit_tutorial.options`, from which tyro makes the command line. These
don't import torch, so a wrong argument is reported at once. Then ``run`` of the command's room does the work.

Exit status: 0 if the command did its work, 2 for a wrong argument, 1 for all else that fails.
"""

from __future__ import annotations

import argparse
import importlib
import io
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, TextIO

import tyro

from vit_tutorial.options.evaluate import EvaluateOptions
from vit_tutorial.options.export import ExportOptions
from vit_tutorial.options.live import LiveOptions
from vit_tutorial.options.predict import PredictOptions
from vit_tutorial.options.recipe import Recipe
from vit_tutorial.options.train import TrainOptions, check_options, default_recipe


class Command(NamedTuple):
    """What a command does, its options, and the module of the package whose ``run`` takes them."""

    summary: str
    options: type
    module: str


COMMANDS = {
    "train": Command("train a Vision Transformer, on one machine or many", TrainOptions, "train.command"),
    "predict": Command("classify photographs, and draw where the model looked", PredictOptions, "predict.command"),
    "evaluate": Command("measure a model on labelled images: accuracy, confusion", EvaluateOptions, "predict.evaluate"),
    "export": Command("write a model as a file for other runtimes: ONNX, int8, pt2", ExportOptions, "export.command"),
    "live": Command("write a page that runs a model: draw, watch each step, change it", LiveOptions, "live.command"),
}
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names, with the others."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    write_anything(sys.stdout, sys.stderr)
    if not words or words[0] not in COMMANDS:
        parser().parse_args(words or ["--help"])  # --help, --version, or an error
        parser().error("put the command first")
    name, *rest = words
    options = train_options(rest) if name == "train" else (options_of(name, rest),)
    with exit_status(name):
        run(name, *options)


def run(name: str, *options: Any) -> None:
    """Run a command with its options; the error for a package that isn't installed says what to type."""
    from vit_tutorial.data.extras import install_hint  # imports torch

    with install_hint():
        importlib.import_module(f"vit_tutorial.{COMMANDS[name].module}").run(*options)


def parser() -> argparse.ArgumentParser:
    """The command line without the commands' own options."""
    width = max(map(len, COMMANDS))
    p = argparse.ArgumentParser(
        prog="vit-tutorial",
        usage="%(prog)s COMMAND ...",
        description="The Vision Transformer, from pixels to published weights.",
        epilog="commands:\n"
        + "".join(f"  {name:{width}}  {command.summary}\n" for name, command in COMMANDS.items())
        + "\nvit-tutorial COMMAND --help explains a command's options; python -m vit_tutorial COMMAND is the same.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    p.add_argument("--version", action=_Version, nargs=0, help="show the versions of the package, torch and Python")
    return p


class _Version(argparse.Action):
    """Prints the versions that a bug report needs; imports them only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        package, torch = importlib.import_module("vit_tutorial"), importlib.import_module("torch")
        print(f"vit_tutorial {package.__version__} (torch {torch.__version__}, Python {platform.python_version()})")
        parser.exit()


def options_of(name: str, words: Sequence[str]) -> Any:
    """The options of a command. Wrong arguments end the program with status 2, --help with 0."""
    return tyro.cli(COMMANDS[name].options, prog=f"vit-tutorial {name}", args=words, config=STYLE)


def train_options(words: Sequence[str]) -> tuple[TrainOptions, Recipe]:
    """The options and the recipe of a training.

    tyro needs the defaults before it parses, and they depend on --data, --weights, --freeze and --epochs: so these are
    looked for first.
    """
    first = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    first.add_argument("--data", default="digits")
    first.add_argument("--weights")
    first.add_argument("--freeze", action="store_true")
    first.add_argument("--epochs", type=int)
    first.add_argument("--batch-size", "--batch_size")
    try:
        chosen, _ = first.parse_known_args(words)
    except argparse.ArgumentError:  # tyro finds it again, and says so
        chosen = first.parse_args([])
    default = default_recipe(chosen.data, chosen.weights, chosen.freeze, chosen.epochs)

    def train(run: TrainOptions, recipe: Recipe = default) -> tuple[TrainOptions, Recipe]:
        """Train a Vision Transformer from scratch, or with --weights fine-tune a trained one.

        The defaults shown are those of the data set named by --data, or those of fine-tuning. Several processes:
        accelerate launch -m vit_tutorial.train ... (the same arguments).
        """
        return replace(run, batch_size_given=chosen.batch_size is not None), recipe

    options = tyro.cli(train, prog="vit-tutorial train", args=words, config=STYLE)
    with exit_status("train"):
        check_options(*options)
    return options


@contextmanager
def exit_status(command: str) -> Iterator[None]:
    """End the program with one line for an error that the user can mend, with status 2 for a wrong argument, else 1."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not _is_refusal(error):
            raise
        _stop(2, error)
    except (FloatingPointError, OSError, ImportError, MemoryError) as error:
        _stop(1, error)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which isn't imported here
            raise
        _stop(1, error)
    except KeyboardInterrupt:
        hint = ": the same command with --resume continues" if command == "train" else ""
        print(f"stopped{hint}", file=sys.stderr)
        raise SystemExit(1) from None


def _is_refusal(error: Exception) -> bool:
    """Whether this package raised the error. One from inside a library is a mistake of ours: it keeps its traceback."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals["__name__"]).startswith("vit_tutorial")


def _stop(status: int, error: Exception) -> NoReturn:
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    raise SystemExit(status) from error


def write_anything(*streams: TextIO) -> None:
    """Let ``print`` write escapes for what a stream has no place for, such as Chinese names in a pipe on Windows."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
