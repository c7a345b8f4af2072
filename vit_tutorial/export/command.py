"""Lesson 18's command line: a model as a file for other runtimes, compared with the model before it is kept.

``vit-tutorial export --weights cifar10 --to onnx --out cifar10.onnx``
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from vit_tutorial.data import cifar10_pictures
from vit_tutorial.data.files import check_writable, write
from vit_tutorial.export import formats
from vit_tutorial.options.export import ExportOptions
from vit_tutorial.weights import LoadedModel, load

# Of a float32 file's logits, as a fraction of the largest logit; the other GELU: 7e-4.
MAX_DIFFERENCE = 2e-4
MIN_AGREEMENT = 0.9  # the part of the photographs for which an int8 file gives the model's class


def run(options: ExportOptions) -> None:
    """Write the file, and print how well it agrees with the model.

    Raises:
        ValueError: weights that can't be used, or a file that doesn't agree with them.
        OSError: weights that can't be fetched, a file that can't be written.
    """
    check_writable(options.file)
    trained = load(options.weights)
    if not trained.classes:
        raise ValueError(f"{options.weights} has no head with named classes: there are no logits to compare")
    print(export(trained, options.file, int8=options.int8))


def export(trained: LoadedModel, out: Path, *, int8: bool = False) -> str:
    """Write the file ``out``, .onnx or .pt2, if it agrees with the model; a line that says how well.

    Raises:
        ValueError: its answers differ by more than :data:`MAX_DIFFERENCE`, with ``int8`` for too many photographs, or
            they would on another processor.
    """
    images = samples(trained)  # (B, C, H, W)
    with torch.inference_mode():
        expected = trained.model(images)  # (B, K)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / out.name
        if out.suffix == ".pt2":
            formats.pt2(trained, path)
        else:
            formats.onnx(trained, path, int8=int8)
        logits = formats.run(path, images)
        content = path.read_bytes()
        unsafe = formats.saturating_weights(path) if int8 else []
    difference = float((logits - expected).abs().max() / expected.abs().max())
    same = int((logits.argmax(dim=1) == expected.argmax(dim=1)).sum())
    agrees = same >= MIN_AGREEMENT * len(images) if int8 else difference <= MAX_DIFFERENCE
    found = (
        f"the most likely class is the same for {same} of {len(images)} photographs, and logits differ by at most "
        f"{difference:.1g} of the largest"
    )
    if not agrees:
        raise ValueError(f"{out} was not written, because it doesn't agree with the model: {found}")
    if unsafe:
        raise ValueError(f"{out} was not written: {unsafe[0]} saturates on processors without VNNI")
    write(out, content)
    return f"{out}: {len(content) / 1e6:.1f} MB; {found}"


def samples(trained: LoadedModel) -> Tensor:
    """67 photographs that come with the package, as the model takes them: (67, C, H, W), normalised."""
    pictures = cifar10_pictures().images[::3].permute(0, 2, 3, 1).numpy()  # (67, 32, 32, 3)
    return torch.cat([trained.preprocess(Image.fromarray(picture)) for picture in pictures])
