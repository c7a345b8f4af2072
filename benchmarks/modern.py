"""ModernViT beside timm's counterpart: the same weights, the same images, turn by turn in one run.

    python benchmarks/modern.py                   the table of benchmarks/README.md
    python benchmarks/modern.py --only DINOv2     one of them
    python benchmarks/modern.py --batch 1 --rounds 30

A turn is one forward pass of each of the two, their order drawn anew. The ratio is the median of the turns' ratios,
with the 95 % interval of that median (the turns drawn anew, 2,000 times). Below 1 ours is quicker. Memory is the most
that a process of its own had after the passes beyond what it had before (Linux). The logits' largest difference shows
that both do the same.
"""

import argparse
import multiprocessing
import random
import re
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial import modern

MODELS = {  # timm's name, and what is told to it
    "DINOv2 S/14": ("vit_small_patch14_dinov2", {"img_size": 224}),
    "DINOv3 S/16": ("vit_small_patch16_dinov3", {}),
    "EVA-02 S/14": ("eva02_small_patch14_224", {}),
    "SigLIP B/16": ("vit_base_patch16_siglip_224", {}),
}


def pair(name: str) -> tuple[nn.Module, nn.Module]:
    """(ours, timm's), with equal random weights, in evaluation mode."""
    timms, changes = MODELS[name]
    torch.manual_seed(0)
    theirs = timm.create_model(timms, num_classes=10, **changes).eval()
    with torch.no_grad():  # a layer scale of 0.00001 would hide a difference
        for parameter in theirs.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    known = vt.configs_modern.timm({"architecture": timms, "pretrained_cfg": {"input_size": (3, 224, 224)}})
    told: dict[str, Any] = {"num_heads": known.told.num_heads, "norm_eps": known.told.norm_eps, "image_size": 224}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = vt.weights.convert(theirs.state_dict(), parts=known.told.parts, **told)
    ours = modern.build(found.config).eval()
    ours.load_state_dict(found.state_dict)
    return ours, theirs


def once(model: nn.Module, images: Tensor) -> float:
    start = time.perf_counter()
    model(images)
    return time.perf_counter() - start


@torch.inference_mode()
def compare(name: str, batch: int, rounds: int) -> str:
    """A row of the table."""
    ours, theirs = pair(name)
    images = torch.randn(batch, 3, 224, 224)
    apart = (ours(images) - theirs(images)).abs().max().item()
    for model in (ours, theirs):
        once(model, images)
    ratios, seconds = [], []
    for _ in range(rounds):
        times = {}
        for key in random.sample(["ours", "theirs"], 2):
            times[key] = once(ours if key == "ours" else theirs, images)
        ratios.append(times["ours"] / times["theirs"])
        seconds.append(times["ours"])
    middle, (low, high) = statistics.median(ratios), interval(ratios)
    memory = " / ".join(f"{peak(name, who, batch):.0f}" for who in (0, 1))
    took = f"{1000 * statistics.median(seconds):.0f} ms"
    return f"| {name} | {took} | {middle:.3f} ({low:.3f} to {high:.3f}) | {memory} MB | {apart:.0e} |"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Between which 95 % of the medians lie, if the turns are drawn anew."""
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def peak(name: str, who: int, batch: int) -> float:
    """Megabytes that a forward pass of ours (0) or theirs (1) adds to a process's largest."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(added, (name, who, batch))


def added(name: str, who: int, batch: int) -> float:
    """In a process of its own."""
    model, images = pair(name)[who], torch.randn(batch, 3, 224, 224)
    Path("/proc/self/clear_refs").write_text("5")  # the largest so far is forgotten
    before = largest()
    with torch.inference_mode():
        model(images)
    return largest() - before


def largest() -> float:
    """Megabytes that this process has had at most."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name begins so")
    parser.add_argument("--batch", type=int, default=8, help="images at a time")
    parser.add_argument("--rounds", type=int, default=15, help="turns")
    args = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, batches of {args.batch}, float32")
    print("| model | ours | ours / timm's | memory, ours / timm's | logits apart |\n|---|---|---|---|---|")
    for name in MODELS:
        if name.startswith(args.only):
            print(compare(name, args.batch, args.rounds), flush=True)


if __name__ == "__main__":
    main()
