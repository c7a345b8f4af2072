"""The logits of ViT-B/16 and of its peers, from every kind of checkpoint that ``vt.weights.convert`` reads.

    python benchmarks/parity.py      a table, in about three minutes; exit status 1 if a bar is missed

Each peer's own model, B/16 with random weights, gives a state dict (or a Google .npz, which timm's own loader reads);
``convert`` makes our model of it, and both answer the same two random images: of 224 x 224 pixels, and of 224 x 160.
The largest difference of the logits must stay under 1e-10 in float64 and 1e-5 in float32.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

import vit_tutorial as vt
from vit_tutorial.patches import Size, as_pair

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import peers  # the builders that the tests use

BARS = {torch.float64: 1e-10, torch.float32: 1e-5}
Checkpoint = dict[str, Any]


def plain(theirs: nn.Module, config: vt.ViTConfig, folder: Path) -> Checkpoint:
    return theirs.state_dict()


def deit(theirs: nn.Module, config: vt.ViTConfig, folder: Path) -> Checkpoint:
    return {"model": theirs.state_dict()}


def dino(theirs: nn.Module, config: vt.ViTConfig, folder: Path) -> Checkpoint:
    return {"teacher": {f"backbone.{name}": tensor for name, tensor in theirs.state_dict().items()}, "epoch": 3}


def hub(theirs: nn.Module, config: vt.ViTConfig, folder: Path) -> Checkpoint:
    """The file as it lies on the Hugging Face hub, under version 4's names."""
    theirs.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def google(theirs: nn.Module, config: vt.ViTConfig, folder: Path) -> Checkpoint:
    """Random arrays under google-research/vision_transformer's names, and timm's model (tanh GELU) that read them."""
    D, h, M, T, K = config.dim, config.num_heads, config.mlp_dim, config.num_tokens, config.num_classes
    shapes = {"embedding/kernel": (16, 16, 3, D), "embedding/bias": (D,), "cls": (1, 1, D)}
    shapes |= {"Transformer/posembed_input/pos_embedding": (1, T, D), "head/kernel": (D, K), "head/bias": (K,)}
    norms = ["Transformer/encoder_norm"]
    for i in range(config.depth):
        block = f"Transformer/encoderblock_{i}"
        for part in ("query", "key", "value"):
            name = f"{block}/MultiHeadDotProductAttention_1/{part}"
            shapes |= {f"{name}/kernel": (D, h, D // h), f"{name}/bias": (h, D // h)}
        name = f"{block}/MultiHeadDotProductAttention_1/out"
        shapes |= {f"{name}/kernel": (h, D // h, D), f"{name}/bias": (D,)}
        for j, (rows, columns) in enumerate(((D, M), (M, D))):
            name = f"{block}/MlpBlock_3/Dense_{j}"
            shapes |= {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}
        norms += [f"{block}/LayerNorm_0", f"{block}/LayerNorm_2"]
    shapes |= {f"{name}/{leaf}": (D,) for name in norms for leaf in ("scale", "bias")}
    generator = np.random.default_rng(0)
    arrays = {}
    for name, shape in shapes.items():
        spread = D**-0.5 if name.endswith("kernel") else 0.2
        arrays[name] = (generator.normal(0, spread, shape) + name.endswith("scale")).astype(np.float32)
    np.savez(folder / "google.npz", **arrays)
    theirs.load_pretrained(str(folder / "google.npz"))
    return vt.weights.read(folder / "google.npz")


# Name: how their model is built, what of B/16's config differs, the checkpoint that convert gets.
SOURCES: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], Callable[..., Checkpoint]]] = {
    "torchvision": (peers.torchvision_vit, {}, plain),
    "timm": (peers.timm_vit, {}, plain),
    "DeiT's names, timm's model": (peers.timm_vit, {}, deit),
    "DeiT distilled, timm's model": (peers.timm_vit, {"pool": "distilled"}, plain),
    "DINO's names, timm's model, features": (peers.timm_vit, {"num_classes": 0}, dino),
    "transformers, a file as on the hub": (peers.transformers_vit, {"norm_eps": 1e-12}, hub),
    "transformers, the live model": (peers.transformers_vit, {"norm_eps": 1e-12}, plain),
    "Google .npz, timm's loader and model": (peers.timm_vit, {"gelu": "tanh"}, google),  # JAX's GELU is the tanh one
}


@torch.inference_mode()
def difference(name: str, size: Size, dtype: torch.dtype) -> tuple[float, float]:
    """The largest difference between the two models' logits, and the spread of theirs."""
    build, changes, checkpoint = SOURCES[name]
    config = vt.ViTConfig.preset("B/16", image_size=size, **changes)
    theirs = peers.randomise(build(config)).to(dtype).eval()
    with tempfile.TemporaryDirectory() as folder:
        converted = vt.weights.convert(checkpoint(theirs, config, Path(folder)), image_size=size)
        if converted.config != config:
            raise SystemExit(f"{name}: {converted.config} instead of {config}")
        with torch.device("meta"):
            ours = vt.ViT(config).eval()
        ours.load_state_dict({name: t.to(dtype) for name, t in converted.state_dict.items()}, assign=True)
        images = torch.randn(2, 3, *as_pair(size, "image_size")).to(dtype)
        expected = peers.logits(theirs, images)
        return (ours(images) - expected).abs().max().item(), expected.std().item()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    print("| checkpoint of B/16 | image | float64 | float32 | spread of the logits |\n|---|---|---|---|---|")
    missed = 0
    for name in SOURCES:
        for size in (224, (224, 160)):
            label = "{} x {}".format(*as_pair(size, "image_size"))
            if name == "torchvision" and size != 224:
                print(f"| {name} | {label} | its ViT takes squares alone | | |")
                continue
            cells = []
            for dtype, bar in BARS.items():
                largest, spread = difference(name, size, dtype)
                good = largest <= bar and spread > 0.1  # logits that are all alike would prove nothing
                missed += not good
                cells.append(f"{largest:.1e}{'' if good else ' MISSED'}")
            print(f"| {name} | {label} | {cells[0]} | {cells[1]} | {spread:.2f} |", flush=True)
    if missed:
        raise SystemExit(f"{missed} missed")


if __name__ == "__main__":
    main()
