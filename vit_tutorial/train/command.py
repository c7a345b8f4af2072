"""Lesson 07's command line: ``vit-tutorial train --data digits --out runs/digits``."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]

from vit_tutorial import data as data_sets
from vit_tutorial.data import Data
from vit_tutorial.data.text import counted, first_of
from vit_tutorial.options.processes import processes
from vit_tutorial.options.recipe import Recipe
from vit_tutorial.options.train import ModelOptions, TrainOptions, stem_layers
from vit_tutorial.patches import Size
from vit_tutorial.train import report
from vit_tutorial.train.checkpoints import check_free
from vit_tutorial.train.loop import fit
from vit_tutorial.train.results import final_row
from vit_tutorial.variants.hybrid import ConvStem, HybridConfig, HybridViT
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, ModernViT
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import load
from vit_tutorial.weights.our_models import with_head


def run(options: TrainOptions, recipe: Recipe) -> None:
    """Train, save, and print how the model does on the test split.

    Raises:
        ValueError: options, data or weights that can't be used.
        OSError: data or weights that can't be fetched, a folder that can't be written.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _note(str(message))
        check_free(options.out, options.resume)
        _check_folders(options)
        model, data = _model_and_data(options, recipe.seed)
        # With --validation, the test images are left for the report at the end.
        splits = data if options.validation is None else data_sets.hold_out(data, options.validation)
        recipe = _with_fitting_batch(recipe, options, len(splits.train))
        _note(_plan(splits, recipe))
        history = fit(
            model,
            splits,
            recipe,
            workers=options.workers,
            out=options.out,
            resume=options.resume,
            log_with=options.log_with,
        )
        final = final_row(history, recipe.keep)
        _note(
            f"the weights are those after epoch {final['epoch']:.0f} of {recipe.epochs}, the {recipe.keep} one, with a "
            f"{splits.test_split} accuracy of {final['test_accuracy']:.2%}"
        )
        _report(model, data, options.out, sum(row["seconds"] for row in history))


def _note(text: str) -> None:
    if processes().rank == 0:
        print(f"note: {text}", file=sys.stderr)


def _check_folders(options: TrainOptions) -> None:
    """Raise a ValueError for data that is neither a set nor a folder, and for results among the images."""
    if options.data in data_sets.DATASETS or options.data.startswith("hf://"):
        return
    pictures, out = Path(options.data).resolve(), options.out.resolve()
    if not pictures.is_dir():
        data_sets.load(options.data)  # whose error says which data sets there are
    if pictures in (out, *out.parents):
        raise ValueError(f"--out {options.out} is in {options.data}, the folder of the images: name one outside it")


def _model_and_data(options: TrainOptions, seed: int) -> tuple[ViT, Data]:
    """The model as it is before training, and its data."""
    if options.weights is None:
        data = data_sets.load(options.data, options.root, options.image_size, options.test_fraction)
        return new_model(options.model, data_sets.spec_of(options.data).model, data, seed), data
    image_size: Size | None = options.image_size
    if options.data in data_sets.DATASETS:
        image_size = data_sets.DATASETS[options.data].model.image_size
    model, classes, preprocess = load(options.weights, image_size=image_size)
    data = data_sets.load(options.data, options.root, options.image_size, options.test_fraction, preprocess=preprocess)
    return model if classes == data.classes else with_head(model, len(data.classes)), data


def new_model(options: ModelOptions, default: ViTConfig, data: Data, seed: int) -> ViT:
    """A model from scratch for the data, with what the options say in place of the default."""
    if options.size:
        patch = options.size.rpartition("/")[2]
        preset = ViTConfig.preset(options.size, image_size=int(patch) if patch.isdecimal() else 1)
        default = replace(preset, drop_path=default.drop_path)
    C, K = data.in_channels, len(data.classes)
    config = replace(default, image_size=data.image_size, in_channels=C, num_classes=K, **options.config_fields())
    torch.manual_seed(seed)
    if options.stem:
        stem = ConvStem(tuple((channels, 3, stride) for channels, stride in stem_layers(options.stem)))
        return HybridViT(HybridConfig(**vars(config), stem=stem))
    if options.arch == "vit":
        return ViT(config)
    return ModernViT(ModernConfig(**vars(config) | ARCHITECTURES[options.arch]))


def _with_fitting_batch(recipe: Recipe, options: TrainOptions, images: int) -> Recipe:
    """The recipe. A batch size that nobody typed is at most a quarter of the images; a note says so."""
    most = max(images // 4 // processes().number, 1) * processes().number
    if options.batch_size_given or recipe.batch_size <= most:
        return recipe
    _note(f"batch_size is {most}, a quarter of {counted(images, 'training image')}, not {recipe.batch_size}")
    return replace(recipe, batch_size=most)


def _plan(data: Data, recipe: Recipe) -> str:
    """What a run is about to do."""
    steps = len(data.train) // recipe.batch_size
    height, width = data.image_size
    return (
        f"{counted(len(data.train), 'training image')} and {counted(len(data.test), f'{data.test_split} image')} of "
        f"{height} x {width} pixels, {len(data.classes)} classes; {counted(recipe.epochs, 'epoch')} of "
        f"{counted(steps, 'step')}, {recipe.epochs * steps:,} in all, of {counted(recipe.batch_size, 'image')}"
    )


def _report(model: ViT, data: Data, out: Path, seconds: float) -> None:
    """Measure the model on the test split, save and print what it gets wrong, and last its accuracy."""
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.is_main_process:
        measured = report.measure(model, data)
        written = report.save(out, measured, data)
        print(report.lines(measured, data.classes))
        print(f"mistakes: {', '.join(written)} in {out}")
        if data.skipped:
            files = counted(len(data.skipped), "file")
            _note(f"{files} skipped, the model is trained on the others: {first_of(data.skipped)}")
        print(
            f"test accuracy {report.accuracy(measured)}, "
            f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters, {seconds:.0f} s on "
            f"{accelerator.num_processes} x {accelerator.device.type}, saved in {out}"
        )
    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():  # gloo's threads must be joined: a process that simply ends may abort
        torch.distributed.destroy_process_group()
