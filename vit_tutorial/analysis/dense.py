"""Lesson 16: what each patch knows: masks, maps and matches from the patch tokens of a frozen model.

B images of (H, W) pixels, a grid of (rows, columns) = N patches, K classes of a mask, class 0 the background.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.analysis.explain import mask_fraction
from vit_tutorial.embeddings import Grid
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViT

# ------------------------------------------------------------------------------------------- tokens and targets


@torch.no_grad()
def layer_tokens(model: ViT, images: Tensor) -> list[Tensor]:
    """Every token after the embedding, after each block, and after the last norm: L + 2 tensors (B, T, D)."""
    z = model.embed(images)  # (B, T, D)
    tokens = [z]
    for block in model.blocks:
        z = block(z)  # (B, T, D)
        tokens.append(z)
    return [*tokens, model.norm(z)]


def token_grid(tokens: Tensor, grid: Grid, *, prefix_tokens: int = 1) -> Tensor:
    """Patch tokens laid out as the patches lie in the picture: (B, T, D) -> (B, D, rows, columns).

    Args:
        tokens: T = prefix_tokens + rows * columns.
        grid: (rows, columns), ``model.config.grid``.
        prefix_tokens: tokens before the patches: class token and registers, ``model.config.prefix_tokens``.

    Raises:
        ValueError: another number of tokens than prefix and grid have.
    """
    rows, columns = grid
    if tokens.ndim != 3 or tokens.shape[1] != prefix_tokens + rows * columns:
        raise ValueError(
            f"a grid of {tuple(grid)} with prefix_tokens={prefix_tokens} needs tokens (B, "
            f"{prefix_tokens + rows * columns}, D), got {tuple(tokens.shape)}: take both from model.config"
        )
    return tokens[:, prefix_tokens:].mT.reshape(len(tokens), -1, rows, columns)  # (B, D, rows, columns)


def class_fractions(targets: Tensor, num_classes: int, grid: Grid) -> Tensor:
    """How much of each patch each class covers: (B, H, W) int64 -> (B, K, rows, columns), which sums to 1 over K.

    Raises:
        ValueError: a grid that doesn't divide H and W.
    """
    return torch.stack([mask_fraction(targets == k, grid) for k in range(num_classes)], dim=1)


# ----------------------------------------------------------------------------------------------------- the head


class PatchHead(nn.Module):
    """Features (B, D, rows, columns) -> logits (B, K, rows, columns): each patch by itself, K numbers a patch.

    Args:
        mean: of each feature, (D,), subtracted first.
        std: of each feature, (D,).
        num_classes: K.
        hidden: units of a hidden layer; 0 for a linear head.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, num_classes: int, *, hidden: int = 0) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.hidden = nn.Sequential(nn.Conv2d(len(mean), hidden, 1), nn.GELU()) if hidden else nn.Identity()
        self.linear = nn.Conv2d(hidden or len(mean), num_classes, 1)  # a linear layer for each patch
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.hidden((features - self.mean[:, None, None]) / self.std[:, None, None]))


def fit_head(
    features: Tensor,
    targets: Tensor,
    num_classes: int,
    *,
    hidden: int = 0,
    background_weight: float = 0.25,
    steps: int = 300,
    rate: float = 6e-2,
    seed: int = 0,
) -> PatchHead:
    """A head on frozen features, trained to say how much of each patch each class covers.

    The loss is the weighted cross-entropy between a patch's logits and :func:`class_fractions`: what its
    pixels would give if they had the patch's logits. AdamW, 32 scenes a batch, a rate falling to 0.

    Args:
        features: (B, D, rows, columns), from :func:`token_grid`.
        targets: (B, H, W) int64, the class of each pixel.
        num_classes: K, the background included.
        hidden: units of a hidden layer; 0 for a linear head.
        background_weight: how much a pixel of the background (class 0) counts; one of the others counts 1.
        steps: of the optimiser.
        rate: at the first step.
        seed: of the batches, and of a hidden layer's first weights.
    """
    grid = features.shape[2], features.shape[3]
    fractions = class_fractions(targets, num_classes, grid)  # (B, K, rows, columns)
    weight = torch.ones(num_classes, device=fractions.device)
    weight[0] = background_weight
    fractions = fractions * weight[:, None, None]
    mean, std = features.mean(dim=(0, 2, 3)), features.std(dim=(0, 2, 3)) + 1e-5
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = PatchHead(mean, std, num_classes, hidden=hidden).to(features.device)
    optimiser = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        batch = torch.randint(len(features), (32,), generator=generator)
        loss = -(fractions[batch] * head(features[batch]).log_softmax(dim=1)).sum(dim=1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return head.eval()


def upsample(logits: Tensor, size: Size) -> Tensor:
    """Logits of patches -> of pixels, bilinear: (B, K, rows, columns) -> (B, K, H, W)."""
    return F.interpolate(logits, size=as_pair(size, "size"), mode="bilinear", align_corners=False)


# -------------------------------------------------------------------------------------------------- the score


def confusion(predicted: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """How many pixels of each class (row) were predicted as each class (column): twice (B, H, W) -> (K, K) int64.

    Raises:
        ValueError: masks of different sizes, since a prediction is scored at the size of the picture; or a class
            outside 0 to K - 1.
    """
    if predicted.shape != targets.shape:
        raise ValueError(
            f"predicted {tuple(predicted.shape)} and targets {tuple(targets.shape)} differ: upsample the logits to the "
            "picture's size before argmax"
        )
    for name, mask in {"predicted": predicted, "targets": targets}.items():
        if other := sorted(set(mask[(mask < 0) | (mask >= num_classes)].tolist())):
            raise ValueError(f"{name} hold {other}, outside the classes 0 to {num_classes - 1}: leave such pixels out")
    pairs = targets * num_classes + predicted  # one number for each pair of classes
    return torch.bincount(pairs.flatten(), minlength=num_classes**2).view(num_classes, num_classes)


def iou(counts: Tensor) -> Tensor:
    """Each class's intersection over union: (K, K) from :func:`confusion` -> (K,); nan for a class that isn't there."""
    both = counts.diagonal()  # (K,)
    return both / (counts.sum(dim=0) + counts.sum(dim=1) - both)


def mean_iou(counts: Tensor) -> float:
    """The mean over the classes that are there, in the masks or in the prediction: mIoU."""
    return iou(counts).nanmean().item()


def foreground_iou(counts: Tensor) -> float:
    """The IoU of everything that isn't background, whatever its class: where, without what."""
    both = counts[1:, 1:].sum()
    return (both / (counts.sum() - counts[0, 0])).item()


# ------------------------------------------------------------------------------------------ maps and matches


def principal_maps(features: Tensor) -> Tensor:
    """The three directions in which patches differ most, as red, green and blue: (B, D, rows, columns) -> (B, 3, ...).

    Args:
        features: of some pictures, which share the directions.

    Returns:
        (B, 3, rows, columns), in [0, 1]: a sigmoid of twice the component, divided by its standard deviation. Its sign
        is that which makes the middle of the pictures brighter than the rest.
    """
    _, _, rows, columns = features.shape
    patches = features.movedim(1, -1)  # (B, rows, columns, D)
    from_mean = patches.flatten(0, 2) - patches.flatten(0, 2).mean(dim=0)  # (n, D)
    _, _, directions = torch.linalg.svd(from_mean, full_matrices=False)  # (., D)
    parts = (from_mean @ directions[:3].T).view(*patches.shape[:3], 3)  # (B, rows, columns, 3)
    middle = parts[:, rows // 4 : rows - rows // 4, columns // 4 : columns - columns // 4].mean(dim=(0, 1, 2))  # (3,)
    parts = parts * middle.sign()
    return (2 * parts / parts.std(dim=(0, 1, 2))).sigmoid().movedim(-1, 1)
