"""The same Vision Transformer in timm, torchvision and transformers, with our weights."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from vit_tutorial import ViT, ViTConfig, weights
from vit_tutorial.weights import tables, timm_models, torchvision_models, transformers_models

Module = TypeVar("Module", bound=nn.Module)
BUILDERS = {
    "timm": weights.timm_model, "torchvision": weights.torchvision_model, "transformers": weights.huggingface_model,
}  # fmt: skip
DESCRIBE = {
    "timm": timm_models.describe,
    "torchvision": torchvision_models.describe,
    "transformers": transformers_models.describe,
}


@torch.no_grad()
def randomise(module: Module, seed: int = 0) -> Module:
    """Add noise to every parameter: a zero head, zero biases and norms of one would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        spread = parameter[0].numel() ** -0.5 if parameter.ndim in (2, 4) else 0.2
        parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * spread)
    return module


def twin(peer: str, ours: ViT, attention: str | None = None) -> nn.Module:
    """The same model from a peer, in ours's mode; ``attention`` is the name of transformers' kind of attention."""
    theirs = BUILDERS[peer](ours)
    if attention is not None:
        theirs.set_attn_implementation(attention)
    return theirs.train(ours.training)


def pair(
    peer: str, config: ViTConfig, dtype: torch.dtype = torch.float32, seed: int = 0, **options: str
) -> tuple[ViT, nn.Module]:
    """(ours, theirs) in eval mode, with equal random weights."""
    ours = randomise(ViT(config), seed).eval()
    theirs = twin(peer, ours, **options)
    return ours.to(dtype), theirs.to(dtype)


def logits(model: nn.Module, images: Tensor) -> Tensor:
    """What the model answers, also where the answer is an object around it (transformers)."""
    answer = model(images)
    return getattr(answer, "logits", answer)


def under_our_names(peer: str, theirs: nn.Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a peer's parameters are called by, such as their gradients, under our names."""
    prefix = "vit." if peer == "transformers" else ""
    return tables.to_ours(DESCRIBE[peer](theirs).table, {name.removeprefix(prefix): v for name, v in values.items()})
