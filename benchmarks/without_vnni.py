"""Lesson 18's int8 files of "cifar10", run by ONNX Runtime with VNNI and without, into without_vnni.csv.

    python benchmarks/without_vnni.py

A processor with VNNI runs them as one without does under valgrind, which knows AVX2 and no VNNI: apt install valgrind.
As in the lesson, 40 photographs set the convolutions' ranges, and the other 160 are scored. Rows that are there aren't
measured again: delete them to do so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from fewer_bits import Calibration
from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static  # type: ignore[import-untyped]
from result_table import ResultTable
from torch import Tensor

import vit_tutorial as vt
from vit_tutorial import export

TABLE = ResultTable(
    Path(__file__).with_suffix(".csv"), ["file", "processor", "images", "right", "answers_changed", "largest_off"]
)
PROCESSORS: dict[str, list[str]] = {"with VNNI": [], "without VNNI (valgrind)": ["valgrind", "--tool=none"]}
SETTINGS: dict[str, dict[str, object]] = {
    "8 bits, signed": {"weight_type": QuantType.QInt8},
    "7 bits": {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True},
    "8 bits, unsigned": {"weight_type": QuantType.QUInt8},
    "8 bits, signed, x64quantprecision": {"weight_type": QuantType.QInt8},
}
# Without torch, which would take minutes to import under valgrind.
RUN = """
import sys
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.x64quantprecision", sys.argv[4])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
np.save(sys.argv[3], session.run(None, {"images": np.load(sys.argv[2])})[0])
"""


def eight_bits(whole: Path, path: Path, some: Tensor, settings: dict[str, object]) -> None:
    """Write lesson 18's int8 file; ``some`` images (n, C, H, W), normalised, set the convolutions' ranges."""
    quantize_dynamic(whole, path, ["MatMul", "Gemm"], **settings)
    quantize_static(
        path,
        path,
        Calibration(some),
        op_types_to_quantize=["Conv"],
        activation_type=QuantType.QUInt8,
        **settings | {"per_channel": True},
    )


def main() -> None:
    torch.set_num_threads(1)
    trained = vt.load("cifar10")
    pictures, truth = vt.data.cifar10_pictures().batch()
    photos = trained.preprocess(pictures)  # (200, C, H, W)
    scored = torch.arange(len(photos)) % 5 > 0
    with torch.inference_mode():
        expected = trained.model(photos)[scored]  # (160, K)
    with tempfile.TemporaryDirectory() as files:
        whole, images, logits = (Path(files) / name for name in ("whole.onnx", "images.npy", "logits.npy"))
        np.save(images, photos[scored].numpy())
        export.onnx(trained, whole)
        for form, settings in SETTINGS.items():
            path = Path(files) / f"{form}.onnx"
            eight_bits(whole, path, photos[~scored], settings)
            precise = "1" if form.endswith("x64quantprecision") else "0"
            for processor, under in PROCESSORS.items():
                if not TABLE.rows(file=form, processor=processor):
                    subprocess.run([*under, sys.executable, "-c", RUN, path, images, logits, precise], check=True)
                    given = torch.from_numpy(np.load(logits))  # (160, K)
                    right = int((given.argmax(1) == truth[scored]).sum())
                    changed = int((given.argmax(1) != expected.argmax(1)).sum())
                    off = f"{(given - expected).abs().max():.2f}"
                    TABLE.add([form, processor, len(given), right, changed, off])


if __name__ == "__main__":
    main()
