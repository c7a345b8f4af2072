"""ModernViT beside timm's counterpart: the same weights, the same images, turn by turn in one run.

    python benchmarks/modern.py                   the table of benchmarks/README.md
    python benchmarks/modern.py --only DINOv2     one of them
    python benchmarks/modern.py --batch 1 --rounds 30

A turn is one forward pass of each of the two, their order drawn anew. The ratio is the median of the turns' ratios,
with the 95 % interval of that median (the turns drawn anew, 2,000 times). Below 1 ours is quicker. Memory is the most
that a forward pass holds at a time, beyond weights and images. The logits' largest difference shows that both do the
same.
"""

import argparse
import itertools
import random
import statistics
import time

import timm
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from vit_tutorial.weights import convert, timm_models

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
    ours = convert.model_of(timm_models.describe(theirs))
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
    memory = " / ".join(f"{peak(model, images):.0f}" for model in (ours, theirs))
    took = f"{1000 * statistics.median(seconds):.0f} ms"
    return f"| {name} | {took} | {middle:.3f} ({low:.3f} to {high:.3f}) | {memory} MB | {apart:.0e} |"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Between which 95 % of the medians lie, if the turns are drawn anew."""
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


@torch.inference_mode()
def peak(model: nn.Module, images: Tensor) -> float:
    """Megabytes that a forward pass holds at most, beyond weights and images: torch's own count."""
    model(images)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        model(images)
    found = [event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = itertools.accumulate(event.nbytes() for event in sorted(found, key=lambda event: event.start_ns()))
    return max(held) / 1e6


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
