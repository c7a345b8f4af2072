"""Trained models in the forms in which they may be shipped (lesson 18): bytes, accuracy, time.

    python benchmarks/fewer_bits.py accuracy --data cifar10-jpeg
        the files of "cifar10" on images held out, into fewer_bits.csv
    python benchmarks/fewer_bits.py bits --data cifar10-jpeg
        fewer bits for weights, into fewer_bits_rounded.csv
    python benchmarks/fewer_bits.py real --model FOLDER
        DINOv2's ViT-S/14 on processors with and without VNNI, into fewer_bits_real.csv

Rows that are there aren't measured again: delete them to do so. The photographs are CIFAR-10's 10,000 test images,
which neither model was trained on, as a folder that ``vt.data.load`` takes; the scenes are drawn. For the times of
"real" all forms are in one process, on one thread, and take turns in a new order each round. The clock is the process's
CPU time. A ratio is the median over the rounds of form / float32 within the same round: that of one process on one
machine.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import onnxruntime.quantization as quantization  # type: ignore[import-untyped]
import torch
from answers import Answer, logits_of, pair_counts
from PIL import Image
from result_table import ResultTable
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.export import formats
from vit_tutorial.export.quantise import fake_quantise, integer_layers
from vit_tutorial.weights import LoadedModel

MEASURED = ["cosine", "smallest_cosine", "matches"]
PAIRED = ["images", "right", "only_torch", "only_this"]
HERE = Path(__file__).parent
ACCURACY = ResultTable(HERE / "fewer_bits.csv", ["model", "form", "bytes", *PAIRED, "largest_off"])
BITS = ResultTable(HERE / "fewer_bits_rounded.csv", ["model", "scale", "bits", *PAIRED])
REAL = ResultTable(
    HERE / "fewer_bits_real.csv",
    ["model", "form", "bytes", "time", *MEASURED, *(f"{name}_without_vnni" for name in MEASURED)],
)
CONVOLUTIONS = {
    "op_types_to_quantize": ["Conv"],
    "per_channel": True,
    "reduce_range": True,  # 7 bits: no sum saturates on processors without VNNI
    "activation_type": quantization.QuantType.QUInt8,
    "weight_type": quantization.QuantType.QInt8,
}


class Int8(NamedTuple):
    """How ONNX Runtime's dynamic quantisation is called, and how :func:`integer_layers` computes the same."""

    settings: dict[str, object]
    bits: int = 8
    per_row: bool = False
    signed: bool = True

    def of(self, model: vt.ViT, *, vnni: bool) -> vt.ViT:
        """A copy whose linear layers compute in whole numbers as a processor with VNNI does, or as one without."""
        saturate = self.signed and not vnni
        return integer_layers(model, bits=self.bits, per_row=self.per_row, saturate=saturate, kinds=(nn.Linear,))


INT8 = {
    "8 bits, signed": Int8({"weight_type": quantization.QuantType.QInt8}),
    "8 bits, unsigned": Int8({"weight_type": quantization.QuantType.QUInt8}, signed=False),
    "7 bits, per row": Int8(
        {"weight_type": quantization.QuantType.QInt8, "reduce_range": True, "per_channel": True}, bits=7, per_row=True
    ),
}
ROUNDS, LEAST = 15, 0.02  # rounds; seconds that one measurement takes at least


def forms(trained: LoadedModel, folder: Path, some: Tensor) -> Iterator[tuple[str, Answer, int]]:
    """Name, what to call, and bytes on disk; ``some`` images (n, C, H, W), normalised, set the convolutions' ranges."""
    whole, matrices, mixed = (folder / f"{name}.onnx" for name in ("whole", "matrices", "mixed"))
    formats.onnx(trained, whole)
    formats.onnx(trained, matrices, int8=True)
    quantization.quantize_static(matrices, mixed, Calibration(some), **CONVOLUTIONS)
    for name, path in {"ONNX": whole, "int8, matrices": matrices, "int8, mixed": mixed}.items():
        yield name, running(path), path.stat().st_size


class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Hands out images (n, C, H, W), normalised, in batches."""

    def __init__(self, images: Tensor) -> None:
        self.batches = iter(torch.split(images, 20))

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"images": batch.numpy()}


def running(path: Path) -> Answer:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])


# ---- Accuracy ----------------------------------------------------------------------------------------------------


def held_out(name: str, folder: str | None) -> tuple[Tensor, Tensor]:
    """Images (n, C, H, W) in [0, 1] and labels (n,) that the model never saw."""
    if name == "shapes":
        return vt.data.shapes(seed=18, train=8, test=4000).test.batch()
    split = loaded(folder).test
    images, labels = zip(*(split[i] for i in range(len(split))), strict=True)
    return torch.stack(images), torch.tensor(labels)


def loaded(folder: str | None) -> vt.data.Data:
    if folder is None:
        raise SystemExit("--data: a folder of photographs, as vt.data.load takes it")
    return vt.data.load(folder, image_size=32)


def accuracy(folder: str | None) -> None:
    """Of ``cifar10``; a hundred images of the training split set the convolutions' ranges."""
    trained = vt.load("cifar10")
    images, labels = held_out("cifar10", folder)
    images = trained.preprocess(images)
    expected = logits_of(trained.model, images)
    split = loaded(folder).train
    some = torch.stack([split[i][0] for i in range(0, len(split), len(split) // 100)][:100])
    with tempfile.TemporaryDirectory() as files:
        for form, answer, size in forms(trained, Path(files), trained.preprocess(some)):
            if not ACCURACY.rows(form=form):
                logits = logits_of(answer, images)
                off = (logits - expected).abs().max() / expected.abs().max()
                row = ["cifar10", form, size, *pair_counts(expected, logits, labels), f"{off:.2g}"]
                ACCURACY.add(row)


def bits(folder: str | None) -> None:
    """Weights of all linear layers of "photographs", with one scale or one for each row."""
    model, _, prepare = vt.load("photographs")
    images, labels = (part[::10] for part in held_out("photographs", folder))  # 1,000: a folder is class by class
    images = prepare(images)
    expected = logits_of(model, images)
    for number, scale in itertools.product((8, 6, 5, 4, 3, 2), ("tensor", "row")):
        if not BITS.rows(scale=scale, bits=number):
            logits = logits_of(rounded_copy(model, number, per_row=scale == "row"), images)
            BITS.add(["photographs", scale, number, *pair_counts(expected, logits, labels)])


def rounded_copy(model: nn.Module, bits: int, *, per_row: bool) -> nn.Module:
    """A copy of a model whose linear layers have rounded weights."""
    other = copy.deepcopy(model)
    for layer in other.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data = fake_quantise(layer.weight.data, bits=bits, per_row=per_row)
    return other


# ---- A real model ------------------------------------------------------------------------------------------------


def real(folder: str) -> None:
    """Bytes, time and patch tokens of a ViT-S/14: cosines to float32's, and how many patches keep their best match."""
    trained = vt.load(folder)
    pictures = [vt.data.photograph_file(name) for name in ("cat", "hopper")]
    images = torch.cat([trained.preprocess(Image.open(picture).convert("RGB")) for picture in pictures])
    with tempfile.TemporaryDirectory() as files, torch.inference_mode():
        whole = Path(files) / "whole.onnx"
        formats.onnx(trained, whole)
        paths = {"float32": whole} | {form: Path(files) / f"{form}.onnx" for form in INT8}
        for form, int8 in INT8.items():
            quantization.quantize_dynamic(whole, paths[form], ["MatMul", "Gemm"], **int8.settings)
        seconds = in_turns({form: partial(running(path), images[:1]) for form, path in paths.items()})
        exact = patches_of(trained.model, images)
        for form, path in paths.items():
            ratios = [a / b for a, b in zip(seconds[form], seconds["float32"], strict=True)]
            row: list[object] = ["ViT-S/14", form, path.stat().st_size, f"{statistics.median(ratios):.2f}"]
            for vnni in (True, False):
                model = trained.model if form == "float32" else INT8[form].of(trained.model, vnni=vnni)
                rounded = patches_of(model, images)
                cosine = (exact * rounded).sum(dim=2)  # (B, N)
                row += [f"{cosine.median():.4f}", f"{cosine.min():.4f}", f"{same_matches(exact, rounded):.3f}"]
            REAL.add(row)


def patches_of(model: vt.ViT, images: Tensor) -> Tensor:
    """Patch tokens, each of length 1: (B, N, D)."""
    return nn.functional.normalize(model.features(images)[:, model.config.prefix_tokens :], dim=2)


def same_matches(exact: Tensor, rounded: Tensor) -> float:
    """For each patch of the first picture, the most similar one of the second: how many stay the same."""
    before, after = ((tokens[0] @ tokens[1].T).argmax(dim=1) for tokens in (exact, rounded))
    return float((before == after).float().mean())


def in_turns(every: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """CPU seconds of one call, round by round."""
    repeats = {}
    for name, call in every.items():
        for _ in range(3):  # the first ones choose kernels and allocate
            took = seconds_of(call, 1)
        repeats[name] = max(1, math.ceil(LEAST / took))
    draw = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(ROUNDS):
        for name in draw.sample(list(every), len(every)):
            seconds[name].append(seconds_of(every[name], repeats[name]))
    return seconds


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accuracy", "bits", "real"))
    parser.add_argument("--data", help="photographs in folders: CIFAR-10's test images under test/")
    parser.add_argument("--model", help="for real: a folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "real":
        real(args.model)
    else:
        {"accuracy": accuracy, "bits": bits}[args.part](args.data)


if __name__ == "__main__":
    main()
