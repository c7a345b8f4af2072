"""Lessons 03 and 08: trained models without a head, or looking everywhere alike or as in another picture.

    python benchmarks/attention_off.py --data cifar10-jpeg    some five minutes on one thread

Each shipped model is asked about 1,000 test images (or new scenes): as it is, and with one thing changed. A head's
output is set to 0; or the queries of a layer, or of all layers, are set to 0, so that all weights are 1 / T; or the
class token's query alone; or queries and keys are those of the picture before it, so that each token looks
where it would look in another picture, at its own picture's values. A row for each goes to attention_off.csv:
how many answers are right, and how many are those of the whole model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from answers import logits_of
from result_table import ResultTable
from torch import Tensor, nn

import vit_tutorial as vt

COLUMNS = ["model", "changed", "block", "head", "images", "right", "same"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
IMAGES = 1_000
Hook = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


def head_off(width: int, head: int) -> Hook:
    """Before the output projection: the columns of one head are 0."""

    def off(layer: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        merged = inputs[0].clone()  # (B, T, D)
        merged[..., width * head : width * (head + 1)] = 0
        return merged

    return off


def no_queries(layer: nn.Module, inputs: tuple[Tensor, ...], qkv: Tensor) -> Tensor:
    """After the layer that makes q, k and v: all queries are 0, so all weights of a row are the same."""
    qkv = qkv.clone()  # (B, T, 3D)
    qkv[..., : qkv.shape[-1] // 3] = 0
    return qkv


def no_class_query(layer: nn.Module, inputs: tuple[Tensor, ...], qkv: Tensor) -> Tensor:
    """The same for the class token alone."""
    qkv = qkv.clone()
    qkv[:, 0, : qkv.shape[-1] // 3] = 0
    return qkv


def another_picture(layer: nn.Module, inputs: tuple[Tensor, ...], qkv: Tensor) -> Tensor:
    """Queries and keys of the picture before it in the batch: that one's weights, on this one's values."""
    width = 2 * qkv.shape[-1] // 3
    return torch.cat([qkv[..., :width].roll(1, dims=0), qkv[..., width:]], dim=-1)


def changes(model: vt.ViT) -> Iterator[tuple[tuple[str, int | str, int | str], Callable[[], list[object]]]]:
    """(what is changed, block, head), counted from 1, and a function that registers the hooks."""
    blocks, width = list(model.blocks), model.config.dim // model.config.num_heads
    yield ("nothing", "", ""), list
    for index, block in enumerate(blocks):
        for head in range(model.config.num_heads):
            hook = head_off(width, head)
            yield (
                ("head off", index + 1, head + 1),
                lambda block=block, hook=hook: [block.attention.proj.register_forward_pre_hook(hook)],
            )
    hooks = {
        "uniform": no_queries,
        "uniform, class token": no_class_query,
        "another picture's weights": another_picture,
    }
    for name, hook in hooks.items():
        for index, block in enumerate(blocks):
            yield (
                (name, index + 1, ""),
                lambda block=block, hook=hook: [block.attention.qkv.register_forward_hook(hook)],
            )
        yield (name, "all", ""), lambda hook=hook: [b.attention.qkv.register_forward_hook(hook) for b in blocks]


@contextmanager
def hooked(register: Callable[[], list[object]]) -> Iterator[None]:
    handles = register()
    yield
    for handle in handles:
        handle.remove()  # type: ignore[attr-defined]


def measure(name: str, model: vt.ViT, images: Tensor, labels: Tensor) -> None:
    whole = logits_of(model, images).argmax(dim=1)
    for (changed, block, head), register in changes(model):
        if RESULTS.rows(model=name, changed=changed, block=block, head=head):
            continue
        with hooked(register):
            classes = logits_of(model, images).argmax(dim=1)
        right, same = (classes == labels).sum().item(), (classes == whole).sum().item()
        RESULTS.add((name, changed, block, head, len(images), right, same))


def test_photographs(folder: str) -> tuple[Tensor, Tensor]:
    split = vt.data.load(folder, image_size=32).test
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:IMAGES]  # type: ignore[arg-type]
    pairs = [split[int(index)] for index in order]
    return torch.stack([image for image, _ in pairs]), torch.tensor([int(label) for _, label in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder of CIFAR-10's pictures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = {}, {}
    images["shapes"], labels["shapes"] = vt.data.shapes(seed=3, train=8, test=IMAGES).test.batch()
    images["photographs"], labels["photographs"] = test_photographs(args.data)
    for name in images:
        model, _, preprocess = vt.load(name)
        x = torch.cat([preprocess(part) for part in images[name].split(1000)])
        measure(name, model, x, labels[name])


if __name__ == "__main__":
    main()
