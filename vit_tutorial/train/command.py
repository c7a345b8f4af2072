"""Lesson 07's command line: ``python -m vit_tutorial.train --data digits --out runs/digits``.

Each field of the recipe and of the model's config has an option of the same name. Defaults come from the
entry of the data set (:data:`vit_tutorial.data.DATASETS`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]

from vit_tutorial import data as data_sets
from vit_tutorial.data import Data
from vit_tutorial.data.augment import by_name
from vit_tutorial.data.extras import counted, first_of, print_anything, told
from vit_tutorial.data.recipe import Precision, Recipe
from vit_tutorial.data.shards import HUB, Stream, is_stream
from vit_tutorial.train import report, runs
from vit_tutorial.train.evaluation import evaluate
from vit_tutorial.train.loop import check_workers, fit
from vit_tutorial.train.runs import RECIPE
from vit_tutorial.variants.hybrid import ConvStem, HybridConfig
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, build
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import keeping, load
from vit_tutorial.weights.hub import unreachable

PROG = "python -m vit_tutorial.train"
MODEL = ("patch_size", "dim", "depth", "num_heads", "mlp_dim", "drop_path")  # the fields of ViTConfig with an option


class _Default(int):
    """A whole number that nobody typed, which may be replaced."""


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None or action.default is False else super()._get_help_string(action)


def _note(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # only one of several processes prints
        print(f"note: {text}", file=sys.stderr)


def parser(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line; its defaults are those of the --data and the --size that ``arguments`` name."""
    first = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    first.add_argument("--data", default="digits")
    first.add_argument("--size")
    first.add_argument("--weights")
    first.add_argument("--freeze", action="store_true")
    first.add_argument("--lora", type=int, default=0)
    try:
        chosen = first.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # the whole command line finds it again, and says so with its own usage
        chosen = first.parse_args([])
    p = argparse.ArgumentParser(
        prog=prog,
        formatter_class=_Help,
        description="Train a Vision Transformer from scratch, or with --weights fine-tune a trained one. The defaults "
        "shown are those of the data set named by --data, or those of fine-tuning.",
        epilog="Several processes: accelerate launch -m vit_tutorial.train ... (the same arguments).",
    )
    _add_data(p.add_argument_group("data"))
    _add_weights(p.add_argument_group("a trained model to start from"))
    _add_model(p.add_argument_group("a model from scratch"))
    _add_recipe(p.add_argument_group("recipe"))
    _add_run(p.add_argument_group("run"))
    spec = data_sets.spec_of(chosen.data)
    model = spec.model
    if chosen.size:
        try:
            patch = chosen.size.rpartition("/")[2]
            preset = ViTConfig.preset(chosen.size, image_size=max(int(patch), 1) if patch.isdecimal() else 1)
        except ValueError as error:
            p.error(str(error))
        model = replace(preset, drop_path=model.drop_path)
    p.set_defaults(**{name: getattr(model, name) for name in MODEL})
    recipe = spec.recipe
    if chosen.weights is not None:  # which bring the model
        p.set_defaults(**dict.fromkeys(MODEL))
        recipe = data_sets.FINE_TUNING
    if chosen.lora:
        recipe = replace(recipe, learning_rate=3e-3, layer_decay=1.0)
    if chosen.freeze:  # a head alone takes a larger rate, and has no layers below it
        recipe = replace(recipe, learning_rate=1e-2, layer_decay=1.0)
    p.set_defaults(**{name: getattr(recipe, name) for name in RECIPE} | {"batch_size": _Default(recipe.batch_size)})
    return p


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        default="digits",
        metavar="NAME",
        help=f"{', '.join(data_sets.DATASETS)}, or a folder with train/ and test/ (or val/) and in each a folder per "
        "class; with --test-share, a folder of classes. What doesn't fit into memory is streamed: hf://owner/name, a "
        "data set of Hugging Face, or a folder of WebDataset shards, train-*.tar, test-*.tar and classes.txt",
    )
    group.add_argument("--root", default="data", metavar="FOLDER", help="where downloads go")
    group.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="height and width of a folder's images; with --weights the positions are resized to it",
    )
    group.add_argument(
        "--test-share",
        type=float,
        metavar="SHARE",
        help="the share of each class to test on, as in 0.2, for a folder of classes without splits",
    )
    group.add_argument(
        "--validation",
        type=float,
        metavar="SHARE",
        help="the share of each class's training images, as in 0.1, to hold out and validate on after every epoch; the "
        "test split is then used once, at the end",
    )
    group.add_argument(
        "--augment",
        metavar="PARTS",
        help="none, default (the data set's own), or parts joined by +: affine, crop, flip, randaugment, mixup, cutmix",
    )
    group.add_argument("--workers", type=int, default=0, help="extra processes that load images")


def _add_weights(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--weights",
        metavar="NAME",
        help=f"fine-tune {', '.join(keeping.shipped())}, a folder or a file of weights, or a published model, as in "
        "torchvision/vit_b_16; the images get its preprocessing",
    )
    group.add_argument("--freeze", action="store_true", help="train the head alone")
    group.add_argument("--head-first", type=int, metavar="EPOCHS", help="epochs in which only the head changes")
    group.add_argument(
        "--layer-decay",
        type=float,
        metavar="FACTOR",
        help="of the learning rate, from each block to the one below it; 1: the same rate everywhere",
    )
    group.add_argument(
        "--lora",
        type=int,
        metavar="RANK",
        help="train the head and a product of this rank beside each matrix of attention, as in 4; 0: none",
    )


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--size",
        metavar="PRESET",
        help="Ti, S, B, L or H and a patch size, as in Ti/4; sets all from --patch-size to --mlp-dim",
    )
    group.add_argument(
        "--arch",
        choices=("vit", *ARCHITECTURES),
        default="vit",
        help="vit: the paper's; the others have the parts of that modern model (lesson 15)",
    )
    group.add_argument("--patch-size", type=int, metavar="P", help="height and width of a patch in pixels")
    group.add_argument("--dim", type=int, metavar="D", help="width")
    group.add_argument("--depth", type=int, metavar="L", help="blocks")
    group.add_argument("--num-heads", type=int, metavar="h", help="attention heads, a divisor of the width")
    group.add_argument("--mlp-dim", type=int, metavar="M", help="hidden width of the MLP")
    group.add_argument("--drop-path", type=float, help="stochastic depth: the probability of the last block")
    group.add_argument(
        "--stem",
        type=_stem,
        metavar="LAYERS",
        help="3 x 3 convolutions before the tokens, each as channels x stride: 32x1,64x2,128x2; the product of the "
        "strides must divide the patch size",
    )


def _stem(text: str) -> ConvStem:
    """``32x1,64x2``: two 3 x 3 convolutions, of 32 channels with stride 1, and of 64 with stride 2."""
    try:
        layers = [tuple(int(number) for number in layer.split("x")) for layer in text.split(",")]
        return ConvStem(tuple((channels, 3, stride) for channels, stride in layers))
    except ValueError:
        raise argparse.ArgumentTypeError(f"channels x stride are needed, as in 32x1,64x2, got {text!r}") from None


def _add_recipe(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs", type=int, help="passes over the training images")
    group.add_argument("--batch-size", type=int, help="images per step, over all processes together")
    group.add_argument("--learning-rate", type=float, help="of AdamW, at its peak after the warm-up")
    group.add_argument("--weight-decay", type=float, help="of AdamW, on matrices and kernels")
    group.add_argument(
        "--warmup-epochs",
        type=float,
        metavar="EPOCHS",
        help="epochs in which the learning rate grows, at most half of all; a cosine follows",
    )
    group.add_argument("--label-smoothing", type=float, metavar="SHARE", help="0: none")
    group.add_argument("--clip", type=float, metavar="NORM", help="maximum gradient norm; inf: no clipping")
    group.add_argument(
        "--ema", type=float, metavar="DECAY", help="decay per step of the weights' moving average; 0: none"
    )
    group.add_argument("--seed", type=int, help="of the first weights, the order of the images and the augmentation")


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--out", required=True, metavar="FOLDER", help="where the state and the results go")
    group.add_argument("--resume", action="store_true", help="continue from the last epoch in --out, or start")
    group.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="bf16: half the memory, less exact; a CPU without instructions for it takes longer",
    )
    group.add_argument("--compile", action="store_true", help="use torch.compile: minutes to start, then faster")


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Train as the command line says, save, and print one line with the test accuracy."""
    arguments = sys.argv[1:] if arguments is None else arguments
    args = parser(arguments, prog=prog).parse_args(arguments)
    print_anything()
    with told("stopped: the same command with --resume continues"), warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _note(str(message))
        if not args.out:
            raise ValueError("--out is empty: name a folder")
        _run(args, f"{prog} {shlex.join(arguments)}")


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The recipe that the options name; its warm-up is at most half of the epochs, with a note if that shortens it."""
    given = {name: getattr(args, name) for name in RECIPE}
    for option in ("freeze", "lora"):
        if getattr(args, option) and not args.weights:
            raise ValueError(f"--{option} needs --weights: a model from scratch has nothing worth keeping")
    if given["warmup_epochs"] > args.epochs / 2 > 0:
        given["warmup_epochs"] = args.epochs / 2
        _note(
            f"warmup_epochs is {args.epochs / 2:g}, half of {counted(args.epochs, 'epoch')}, not {args.warmup_epochs:g}"
        )
    return Recipe(**given | {"batch_size": int(args.batch_size)})


def _from_scratch(args: argparse.Namespace, data: Data) -> ViT:
    if args.stem is not None and args.arch != "vit":
        raise ValueError(f"--stem goes with --arch vit, got --arch {args.arch}")
    kind: type[ViTConfig]
    kind, parts = (ViTConfig, {}) if args.arch == "vit" else (ModernConfig, ARCHITECTURES[args.arch])
    if args.stem is not None:
        kind, parts = HybridConfig, {"stem": args.stem}
    config = kind(
        image_size=data.image_size,
        in_channels=data.in_channels,
        num_classes=len(data.classes),
        **{name: getattr(args, name) for name in MODEL},
        **parts,
    )
    torch.manual_seed(args.seed)
    return build(config)


def _start(args: argparse.Namespace) -> tuple[ViT, Data]:
    """The model as it is before training, and its data."""
    hub = args.data.removeprefix(HUB).partition("#")[0] if args.data.startswith(HUB) else ""
    if hub and not Path(hub).exists() and (reason := unreachable()):  # its own library would try for half a minute
        raise OSError(f"{args.data} is on the Hugging Face hub, and {reason}: try again with a network")
    if args.weights is None:
        data = data_sets.load(args.data, args.root, args.image_size, args.test_share)
        return _from_scratch(args, data), data
    given = [name for name in ("size", *MODEL, "stem") if getattr(args, name) is not None]
    if given or args.arch != "vit":
        option = f"--{(given or ['arch'])[0].replace('_', '-')}"
        raise ValueError(f"--weights brings the whole model: leave {option} out")
    if not (args.data in data_sets.DATASETS or Path(args.data).is_dir() or is_stream(args.data)):
        data_sets.load(args.data)  # whose error says what there is; before anything is downloaded
    size = args.image_size
    if args.data in data_sets.DATASETS:
        size = data_sets.load(args.data, args.root).image_size
    trained = load(args.weights, num_classes=0, image_size=size)
    data = data_sets.load(args.data, args.root, None, args.test_share, preprocess=trained.preprocess)
    return load(args.weights, num_classes=len(data.classes), image_size=size).model, data


def _with_steps(recipe: Recipe, images: int) -> Recipe:
    """The recipe with a batch of at most a quarter of the images, divisible by the processes; a note says so."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    most = max(images // 4 // processes, 1) * processes
    if recipe.batch_size <= most:
        return recipe
    _note(f"batch_size is {most}, a quarter of {counted(images, 'training image')}, not {recipe.batch_size}")
    return replace(recipe, batch_size=most)


def _plan(data: Data, recipe: Recipe) -> str:
    """What a run is about to do."""
    steps = len(data.train) // recipe.batch_size
    height, width = data.image_size
    return (
        f"{counted(len(data.train), 'training image')} and {counted(len(data.test), 'test image')} of "
        f"{height} x {width} pixels, {len(data.classes)} classes; {counted(recipe.epochs, 'epoch')} of "
        f"{counted(steps, 'step')}, {recipe.epochs * steps:,} in all, of {counted(recipe.batch_size, 'image')}"
    )


def _run(args: argparse.Namespace, command: str) -> None:
    recipe = recipe_of(args)
    runs.check_free(args.out, args.resume)
    out, pictures = Path(args.out).resolve(), Path(args.data).resolve()
    if args.data not in ("", *data_sets.DATASETS) and pictures.is_dir() and pictures in (out, *out.parents):
        raise ValueError(f"--out {args.out} is in {args.data}, the folder of the images: name one outside it")
    check_workers(args.workers)
    if args.augment not in (None, "default"):
        by_name(args.augment, (32, 32), 2)  # an unknown part, said before the images are read
    model, data = _start(args)
    seen = data if args.validation is None else data_sets.hold_out(data, args.validation)
    if isinstance(args.batch_size, _Default):
        recipe = _with_steps(recipe, len(seen.train))
    _note(_plan(seen, recipe))
    history = fit(model, seen, recipe, workers=args.workers, out=args.out, resume=args.resume)
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.is_main_process:
        used = json.loads((Path(args.out) / "config.json").read_text("utf-8"))["recipe"]  # "default" is resolved there
        test = None if args.validation is None else evaluate(model, data)
        keeping.save(
            args.out, model, data, history, command=command, preprocess=data.preprocess, recipe=used, test=test
        )
        found = report.measure(model, data)
        files = report.save(args.out, found, data)
        size = sum(parameter.numel() for parameter in model.parameters())
        seconds, accuracy = sum(row["seconds"] for row in history), (test or history[-1])["test_accuracy"]
        print(report.lines(found, data.classes))
        print(f"mistakes: {', '.join(files)} in {args.out}")
        print(
            f"test accuracy {accuracy:.2%} ({round(accuracy * len(data.test))} of {counted(len(data.test), 'image')}), "
            f"{size:,} parameters, {seconds:.0f} s on {accelerator.num_processes} x "
            f"{accelerator.device.type}, saved in {args.out}"
        )
    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():  # gloo's threads must be joined: a process that simply ends may abort
        torch.distributed.destroy_process_group()
    if skipped := [*data.skipped, *(data.train.skipped if isinstance(data.train, Stream) else ())]:
        files_skipped = counted(len(skipped), "image file")
        raise ValueError(f"{files_skipped} skipped, the model is trained on the others: {first_of(skipped)}")
