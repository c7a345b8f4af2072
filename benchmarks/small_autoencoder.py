"""A small masked autoencoder for selfsup_features.py, which hides a part of the patches or none, and its training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data.augment import Flip
from vit_tutorial.variants.selfsup import MaskedAutoencoder, normalised_patches

CONFIG = vt.ViTConfig(
    image_size=32, patch_size=8, num_classes=10, dim=64, depth=2, num_heads=4, mlp_dim=128, pool="mean",
    position="sincos",
)  # fmt: skip
EPOCHS, PRETRAINING_RATE, PRETRAINING_BATCH = 4, 2e-3, 128
RATES = (7e-4, 2e-3, 6e-3)
Data = dict[str, Tensor]


def autoencoder(data: Data, mask_ratio: float) -> MaskedAutoencoder:
    mean, std = tuple(data["mean"].tolist()), tuple(data["std"].tolist())
    return MaskedAutoencoder(CONFIG, mask_ratio=mask_ratio, decoder_dim=32, mean=mean, std=std)


def painting_loss(model: MaskedAutoencoder, images: Tensor) -> Tensor:
    """The autoencoder's own; if it hides nothing, the same error of all patches."""
    if model.mask_ratio:
        return model(images)
    target = normalised_patches(vt.patchify(images, 8))  # (B, N, C*P*P)
    hidden = torch.zeros(target.shape[:2], dtype=torch.bool)  # (B, N)
    return F.mse_loss(model.predict_patches(images, hidden), target)


def batches(images: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    """The places of each batch, in a new order per epoch, without an end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(images), generator=generator)
        yield from order[: max(size, len(order) // size * size)].split(size)


def pretrain(data: Data, seed: int, file: Path, mask_ratio: float, rate: float) -> Data:
    """The encoder's tensors, made once. With none of the patches hidden, a step costs twice as much."""
    if file.exists():
        return torch.load(file, weights_only=True)  # type: ignore[no-any-return]
    torch.manual_seed(seed)
    model, images, flip = autoencoder(data, mask_ratio), data["train_images"], Flip()
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), betas=(0.9, 0.95), fused=True)
    epochs = EPOCHS if mask_ratio else EPOCHS // 2
    steps = epochs * (len(images) // PRETRAINING_BATCH)
    for step, rows in zip(range(steps), batches(images, PRETRAINING_BATCH, seed), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=steps // 20))
        loss = painting_loss(model, flip(images[rows].float() / 255))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % (steps // epochs) == 0:
            print(f"pretraining, seed {seed}, step {step + 1} of {steps}: {loss.item():.3f}", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.encoder.state_dict(), file)
    return model.encoder.state_dict()
