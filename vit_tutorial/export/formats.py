"""Files for other runtimes: how they are written, and what they compute.

The input is "images", (B, C, H, W) float32, normalised; the output is "logits", (B, K). The batch size stays free. Each
file also holds, as JSON under "config", the names of the classes and the preprocessing.
"""

from __future__ import annotations

import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch._dynamo.exc import UserError

from vit_tutorial.data.extras import install_hint
from vit_tutorial.data.files import write
from vit_tutorial.variants.hybrid import HybridViT
from vit_tutorial.variants.modern import ModernViT
from vit_tutorial.vit import ViT
from vit_tutorial.weights import LoadedModel

MODELS = (ViT, HybridViT, ModernViT)  # and no subclass: its forward may be another one
ONNX_SINCE = "2.9"  # of torch: with 2.6 the exporter fails; 2.7 and 2.8 weren't tried
BATCH = torch.export.Dim("batch", min=1, max=4096)


def pt2(trained: LoadedModel, path: str | os.PathLike[str]) -> None:
    """Write what ``torch.export.load`` reads, the graph with its weights; C++ runs it with AOTInductor.

    Raises:
        TypeError: a model that isn't one of :data:`MODELS`.
        ValueError: a model of which a part is in training mode, one that isn't of float32 on the CPU, or one whose
            batch size can't stay free.
    """
    program, content = _program(trained), io.BytesIO()
    with _quiet():
        torch.export.save(program, content, extra_files={"config": _config(trained)})
    write(Path(path), content.getbuffer())


def onnx(trained: LoadedModel, path: str | os.PathLike[str], *, int8: bool = False) -> None:
    """Write an ONNX file; with ``int8`` the matrices of weights take a byte per number, and activations are quantised
    as they come (ONNX Runtime's dynamic quantisation).

    The weights' codes have 7 bits, a scale for each output, so that no sum saturates on a processor without VNNI: see
    :func:`saturating_weights`.

    Raises:
        ModuleNotFoundError: onnx, onnxscript or onnxruntime is missing: what to type.
        ImportError: torch is older than 2.9.
    """
    if torch.__version__ < ONNX_SINCE:
        raise ImportError(
            f"an ONNX file needs torch {ONNX_SINCE}, and this is {torch.__version__}: upgrade, or write .pt2"
        )
    with install_hint():
        import onnx as onnx_package
        import onnxruntime.quantization as quantization  # type: ignore[import-untyped]
        import onnxscript  # noqa: F401  torch.onnx.export needs it
    program = _program(trained)
    with _quiet(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        unfinished = Path(folder) / "model.onnx"
        torch.onnx.export(
            program,
            (),
            unfinished,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=["images"],
            output_names=["logits"],
        )
        if int8:
            quantization.quantize_dynamic(
                unfinished,
                unfinished,
                op_types_to_quantize=["MatMul", "Gemm"],  # convolutions would get slower: benchmarks/fewer_bits.py
                per_channel=True,
                reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
            )
        graph = onnx_package.load(unfinished)
    onnx_package.helper.set_model_props(graph, {"config": _config(trained)})
    for node in graph.graph.node:
        node.ClearField("metadata_props")  # stack traces: paths of the one who wrote it
    write(Path(path), graph.SerializeToString())


def saturating_weights(path: str | os.PathLike[str]) -> list[str]:
    """The int8 weights of an ONNX file with which x86 processors without VNNI may compute something else.

    They add two products of an unsigned activation and a signed weight in 16 bits. Two codes of 64 always fit, since
    2 x 255 x 64 = 32,640; two of 65 may not. Unsigned weights have another instruction, and no such limit.
    """
    with install_hint():
        import onnx as onnx_package
    weights = [w for w in onnx_package.load(path).graph.initializer if w.data_type == onnx_package.TensorProto.INT8]
    codes = {w.name: onnx_package.numpy_helper.to_array(w).astype(int) for w in weights}
    return [name for name, values in codes.items() if abs(values).max() > 64]


def run(path: Path, images: Tensor) -> Tensor:
    """The logits (B, K) that a file gives for images (B, C, H, W), normalised."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        with torch.inference_mode():
            logits: Tensor = module(images)
        return logits
    with install_hint():
        import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _program(trained: LoadedModel) -> torch.export.ExportedProgram:
    """The model's graph with its weights, for any batch size; without the paths of the files that it comes from."""
    if not isinstance(trained, LoadedModel):
        raise TypeError(f"vt.weights.LoadedModel(model, classes, preprocess) is needed, got {type(trained).__name__}")
    if type(trained.model) not in MODELS:
        names = ", ".join(model.__name__ for model in MODELS)
        raise TypeError(f"export knows {names}, got {type(trained.model).__name__}: call torch.export.export yourself")
    if any(part.training for part in trained.model.modules()):
        raise ValueError("the model is in training mode, and a file would keep its dropout: call model.eval() first")
    if {(x.dtype, x.device.type) for x in trained.model.parameters()} != {(torch.float32, "cpu")}:
        raise ValueError("export needs float32 weights on the CPU: call model.float().cpu() first")
    how = trained.preprocess
    two_images = torch.zeros(2, len(how.mean), *how.image_size)  # a batch of one would count as a constant
    with _quiet():
        try:
            program = torch.export.export(trained.model, (two_images,), dynamic_shapes=({0: BATCH},))
        except UserError as error:  # torch writes a page about it
            raise ValueError(
                "the batch size of this model can't stay free: a part of it computes with len(x)"
            ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def _config(trained: LoadedModel) -> str:
    return json.dumps({"classes": trained.classes, "preprocess": asdict(trained.preprocess)})


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, the exporters' warnings about their own versions are not shown; errors are."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
