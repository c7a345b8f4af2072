"""Lesson 07: bfloat16 or float32: does the machine have instructions for the first, and which is faster on it?"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import nn
from torch.nn import functional as F

from vit_tutorial.data import Data, Images, normalise
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.train import runs

Measured = Literal["fp32", "bf16"]
FEW, FAR = 8, 4  # images in a first try; it is enough if one precision takes FAR times as long as the other


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 by instructions of its own; True for unknown kinds of devices.

    On a CPU those are AVX512_BF16 or AMX (x86), BF16 (ARM). Environment variables may keep torch
    (ATEN_CPU_CAPABILITY) and oneDNN (ONEDNN_MAX_CPU_ISA) from using them. NVIDIA GPUs have them from compute
    capability 8.0 on.
    """
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return True
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch knows less: AVX512, with bf16 or without
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    if "arm" in capabilities["architecture"].lower() or "aarch64" in capabilities["architecture"].lower():
        return bool(capabilities.get("bf16"))
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    allowed = limit in ("ALL", "DEFAULT") or any(name in limit for name in ("BF16", "FP16", "AMX", "AVX10"))
    in_use = torch.backends.cpu.get_cpu_capability().startswith(("AVX512", "AVX10", "AMX"))
    return allowed and in_use and bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def step_seconds(
    model: nn.Module, data: Data, batch_size: int, device: torch.device, steps: int = 5
) -> dict[Measured, float]:
    """Seconds of a forward and backward pass in each precision: the median of ``steps``, after one to warm up.

    A copy of ``model`` is measured; torch's generators are left as they were.
    """
    trial = copy.deepcopy(model).to(device).train()
    split = data.train if isinstance(data.train, Images) else data.test  # a stream has no first images
    first = list(range(min(batch_size, len(split))))
    images, labels = (tensor.to(device) for tensor in runs.Reader(split)[0, first])
    seconds: dict[Measured, list[float]] = {"fp32": [], "bf16": []}
    with torch.random.fork_rng():
        for _ in range(1 + steps):
            for name, taken in seconds.items():
                start = time.perf_counter()
                with torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16"):
                    logits = trial(normalise(images, data))  # (B, K)
                torch.autograd.backward(F.cross_entropy(logits.float(), labels))
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                taken.append(time.perf_counter() - start)
    return {name: statistics.median(taken[1:] or taken) for name, taken in seconds.items()}


def resolved(
    recipe: Recipe, model: nn.Module, data: Data, accelerator: Accelerator, state: Mapping[str, Any] | None = None
) -> Recipe:
    """The recipe with "auto" replaced: by the precision of the run in ``state``, or by the faster one, measured.

    The measured times are printed to stderr, also for bf16 on a machine without instructions for it. All processes
    choose the same precision: their times are averaged.
    """
    if recipe.precision == "auto" and state:
        return replace(recipe, precision=state["settings"]["precision"])
    slow = recipe.precision == "bf16" and not has_bf16(accelerator.device)
    if recipe.precision != "auto" and not slow:
        return recipe
    share = max(recipe.batch_size // accelerator.num_processes, 1)
    images = min(share, FEW)
    fp32, bf16 = _together(step_seconds(model, data, images, accelerator.device, steps=1), accelerator)
    if not slow and share > FEW and FAR > bf16 / fp32 > 1 / FAR:  # too close to decide by a few images
        images = share
        fp32, bf16 = _together(step_seconds(model, data, images, accelerator.device), accelerator)
    faster: Measured = "bf16" if bf16 < fp32 else "fp32"
    measured = f"a step of {images} images takes {1000 * bf16:.3g} ms in bf16 and {1000 * fp32:.3g} ms in fp32"
    if accelerator.is_main_process and slow:
        where = "CPU" if accelerator.device.type == "cpu" else "GPU"
        print(
            f"precision: torch finds no instructions for bfloat16 on this {where}: {measured}; auto takes {faster}",
            file=sys.stderr,
        )
    elif accelerator.is_main_process:
        print(f"precision: {measured}, so it is {faster}", file=sys.stderr)
    return recipe if slow else replace(recipe, precision=faster)


def _together(seconds: Mapping[Measured, float], accelerator: Accelerator) -> tuple[float, float]:
    """The mean over the processes: (fp32, bf16)."""
    times = torch.tensor([seconds["fp32"], seconds["bf16"]], device=accelerator.device)
    fp32, bf16 = accelerator.reduce(times, "mean").tolist()
    return fp32, bf16
