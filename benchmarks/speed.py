"""Side by side with timm, torchvision, transformers and vit-pytorch: inference and a training step.

    python benchmarks/speed.py                    everything, in about a quarter of an hour on two cores
    python benchmarks/speed.py --rounds 5         quicker, and noisier
    python benchmarks/speed.py --only inference   or compiled, bf16, training, training-compiled, training-bf16

All models of a table live in one process with the same random weights and take turns, in a new order each round, so a
busy machine slows all of them alike. A ratio is the median over rounds of ours / theirs within the same round; in
brackets is its 95 % interval (bootstrap). The floor is the model's matrix products alone: nothing computes less.
With glibc, freed memory stays with the process: see :func:`keep_memory`.
Vit-pytorch's ViT is another architecture (two norms more around the patches, no biases of q, k and v), of the same
sizes and with random weights of its own.
"""

import argparse
import contextlib
import ctypes
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # torch's profiler talks a lot; it reads this when it is imported

import torch
import vit_pytorch
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import peers  # the converters that the parity tests use

Run = Callable[[], object]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
CASES = (("Ti/16", 8), ("B/16", 1), ("S/16", 1), ("S/16", 16))
# What a user would write, and the same for every model. Compiling is torch.compile as it comes.
SETTINGS: dict[str, Callable[[nn.Module, Tensor], Run]] = {
    "float32": lambda model, images: partial(peers.logits, model, images),
    "compiled": lambda model, images: partial(peers.logits, torch.compile(model), images),
    "bf16": lambda model, images: partial(peers.logits, model.bfloat16(), images.bfloat16()),
}


def keep_memory() -> None:
    """Keep what is freed, so that rounds differ by what models compute, and not by what the allocator does.

    By default glibc hands the end of its heap back to the system when enough of it is free, and gets it again page by
    page. Whether that happens in every layer or never depends on what was allocated before, by whom, and so on chance.
    """
    with contextlib.suppress(AttributeError, OSError):  # no glibc, no mallopt
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_THRESHOLD, 2**25)  # the most it takes


def vit_pytorch_vit(c: vt.ViTConfig) -> nn.Module:
    return vit_pytorch.ViT(
        image_size=c.image_size, patch_size=c.patch_size, num_classes=c.num_classes, dim=c.dim, depth=c.depth,
        heads=c.num_heads, dim_head=c.dim // c.num_heads, mlp_dim=c.mlp_dim,
    )  # fmt: skip


def models(config: vt.ViTConfig) -> dict[str, nn.Module]:
    ours = peers.randomise(vt.ViT(config)).eval()
    twins = {name: peers.twin(name, ours) for name in peers.BUILDERS}
    return {"ours": ours, **twins, "vit-pytorch": vit_pytorch_vit(config).eval()}


def floor(c: vt.ViTConfig, batch: int, dtype: torch.dtype) -> Run:
    """The forward pass's matrix products, with weights of their own for each layer, and nothing between them."""
    D, M, h, T = c.dim, c.mlp_dim, c.num_heads, c.num_tokens
    shapes = [(3 * D, D), (D, D), (M, D), (D, M)] * c.depth
    randn = partial(torch.randn, dtype=dtype)
    weights = [randn(shape) * shape[1] ** -0.5 for shape in shapes]
    patch, head = randn(D, 3 * 16 * 16), randn(c.num_classes, D)
    pixels, tokens, hidden = randn(batch, T - 1, 768), randn(batch, T, D), randn(batch, T, M)
    q, scores = randn(batch, h, T, D // h), randn(batch, h, T, T)

    def run() -> None:
        F.linear(pixels, patch)
        for layer in range(c.depth):
            qkv, proj, fc1, fc2 = weights[4 * layer : 4 * layer + 4]
            F.linear(tokens, qkv)
            q @ q.transpose(-2, -1)
            scores @ q
            F.linear(tokens, proj)
            F.linear(tokens, fc1)
            F.linear(hidden, fc2)
        F.linear(tokens[:, 0], head)

    return run


def interleaved(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round."""
    order, seconds = list(runs), {name: [] for name in runs}
    for number in range(rounds + 2):  # two rounds warm up
        random.shuffle(order)
        for name in order:
            start = time.perf_counter()
            runs[name]()
            if number >= 2:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Median of the ratios round by round, and its 95 % bootstrap interval."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[49], medians[1949]


def table(title: str, seconds: dict[str, list[float]], images: int = 0) -> None:
    """One row a run, the quickest first; with a number of images, their throughput too."""
    heads = ["model", "median, ms", *["images/s"] * bool(images), "ours / it, with 95 % interval"]
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, times in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
        median = statistics.median(times)
        compared = "" if name == "ours" else "{:.3f} [{:.3f}, {:.3f}]".format(*ratio(seconds["ours"], times))
        extra = f" {images / median:.1f} |" if images else ""
        print(f"| {name} | {1000 * median:.1f} |{extra} {compared} |", flush=True)


def working(runs: dict[str, Run]) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs that work, after one call each (which compiles), and of the others why they don't."""
    good, bad = {}, {}
    for name, run in runs.items():
        try:
            run()
            good[name] = run
        except Exception as error:  # a peer's limits are a result
            if name == "ours":
                raise
            bad[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return good, bad


def inference(rounds: int, setting: str = "float32") -> None:
    for preset, batch in CASES:
        torch.compiler.reset()  # else the second batch size would be compiled for any
        config, images = vt.ViTConfig.preset(preset), torch.rand(batch, 3, 224, 224)
        with torch.inference_mode():
            good, bad = working({name: SETTINGS[setting](m, images) for name, m in models(config).items()})
            good["floor"] = floor(config, batch, torch.bfloat16 if setting == "bf16" else torch.float32)
            seconds = interleaved(good, max(rounds // 2, 3) if batch > 8 else rounds)
        table(f"Inference, {setting}, {preset}, batch {batch}", seconds, batch)
        for name, reason in bad.items():
            print(f"| {name} | not run: {reason} | | |", flush=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, bf16: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = F.cross_entropy(peers.logits(model, images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def training(rounds: int, setting: str = "float32") -> None:
    """bf16 is autocast here, as in ``python -m vit_tutorial.train --precision bf16``: the weights stay float32."""
    for preset, batch in CASES[:2] if setting == "float32" else CASES[:1]:
        torch.compiler.reset()
        images, labels = torch.rand(batch, 3, 224, 224), torch.randint(1000, (batch,))
        runs: dict[str, Run] = {}
        for name, model in models(vt.ViTConfig.preset(preset)).items():
            optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)  # 5 x faster than the loop
            forward = torch.compile(model) if setting == "compiled" else model
            runs[name] = partial(step, forward, optimizer, images, labels, setting == "bf16")
        good, bad = working(runs)
        table(f"Training step with AdamW, {setting}, {preset}, batch {batch}", interleaved(good, max(rounds // 2, 3)))
        for name, reason in bad.items():
            print(f"| {name} | not run: {reason} | |", flush=True)


def main(parts: dict[str, Callable[[int], None]]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="times each model runs; training takes half (20)")
    parser.add_argument("--only", choices=parts, help="one part")
    arguments = parser.parse_args()
    keep_memory()
    torch.manual_seed(0)
    random.seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.rounds} rounds")
    for name, part in parts.items():
        if arguments.only in (None, name):
            part(arguments.rounds)


if __name__ == "__main__":
    main({
        "inference": inference,
        "compiled": partial(inference, setting="compiled"),
        "bf16": partial(inference, setting="bf16"),
        "training": training,
        "training-compiled": partial(training, setting="compiled"),
        "training-bf16": partial(training, setting="bf16"),
    })  # fmt: skip
