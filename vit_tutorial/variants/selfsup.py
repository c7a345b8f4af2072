"""Lesson 13: learning without labels (section 4.6 and appendix B.1.2 of arXiv 2010.11929, and arXiv 2111.06377).

Both methods hide a part of each image and predict it. :class:`MaskedViT` is the paper's: the encoder sees all tokens,
half of them corrupted, and predicts the colour of each corrupted patch. :class:`MaskedAutoencoder` came a year later:
the encoder sees only a quarter of the patches, and a small decoder reconstructs the rest. After training one keeps
``.encoder``, a plain :class:`~vit_tutorial.vit.ViT` without a head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.embeddings import Embeddings, sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.patches import as_pair, patchify, unpatchify
from vit_tutorial.vit import ViT, ViTConfig

LEVELS = 8  # of each channel: 3 bits


# ---- The paper's method: all tokens, half of them corrupted -------------------------------------------------------


def colour_classes(colours: Tensor) -> Tensor:
    """Colours (..., C) in [0, 1] as one whole number each, 3 bits a channel: (...), from 0 to 8 ** C - 1.

    512 classes with three channels (appendix B.1.2). The first channel counts most.
    """
    levels = (colours * LEVELS).long().clamp(0, LEVELS - 1)  # (..., C)
    places = LEVELS ** torch.arange(colours.shape[-1] - 1, -1, -1, device=colours.device)  # (C,): 64, 8, 1
    return (levels * places).sum(dim=-1)


def mean_colours(images: Tensor, patch_size: int | tuple[int, int]) -> Tensor:
    """The mean colour of each patch: (B, C, H, W) -> (B, N, C)."""
    mean = F.avg_pool2d(images, as_pair(patch_size, "patch_size"))  # (B, C, rows, columns)
    return mean.flatten(2).transpose(1, 2)


def random_mask(B: int, N: int, ratio: float, device: torch.device | str | None = None) -> Tensor:
    """A random mask with the same number of True in each image: (B, N), bool.

    Raises:
        ValueError: a ratio that masks none or all of the patches.
    """
    count = round(ratio * N)
    if not 0 < count < N:
        raise ValueError(f"ratio {ratio} masks {count} of {N} patches: mask at least one and leave at least one")
    order = torch.rand(B, N, device=device).argsort(dim=1)  # (B, N): each row 0 to N - 1 in an order of its own
    return order < count


def corrupt(tokens: Tensor, chosen: Tensor, mask_token: Tensor) -> Tensor:
    """Corrupt the chosen tokens: 80 % masked, 10 % another patch's token, 10 % stay (appendix B.1.2).

    Args:
        tokens: (B, N, D), without positions.
        chosen: (B, N), True for the tokens to corrupt.
        mask_token: (D,).

    Returns:
        (B, N, D), a new tensor.
    """
    B, N, _ = tokens.shape
    fate = torch.rand(B, N, device=tokens.device)
    further = torch.randint(1, N, (B, N), device=tokens.device)  # 1 to N - 1 places on: never itself
    other = (torch.arange(N, device=tokens.device) + further) % N  # (B, N)
    others = tokens.gather(1, other[..., None].expand_as(tokens))  # (B, N, D)
    masked = chosen & (fate < 0.8)  # (B, N)
    swapped = chosen & (fate >= 0.8) & (fate < 0.9)  # (B, N)
    corrupted = torch.where(masked[..., None], mask_token, tokens)  # (B, N, D)
    return torch.where(swapped[..., None], others, corrupted)  # (B, N, D)


def add_positions(embed: Embeddings, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 1 in two pieces, so that patches can be corrupted before it and left out after it.

    Args:
        embed: of the model.
        tokens: (B, N, D), the patches' own, without positions.

    Returns:
        The tokens before the patches (B, p, D), p 0 if there are none; and the patches (B, N, D); with positions
        and dropout.

    Raises:
        TypeError: a variant's embeddings, whose registers or norms would be lost.
    """
    if type(embed) is not Embeddings:
        raise TypeError(f"the pieces are those of plain Embeddings, got {type(embed).__name__}: use a plain ViT")
    B, N, D = tokens.shape
    front = tokens.new_zeros(B, 0, D) if embed.cls_token is None else embed.cls_token.expand(B, -1, -1)  # (B, p, D)
    if embed.position is not None:
        first, rest = torch.split(embed.position, [front.shape[1], N], dim=1)  # (1, p, D), (1, N, D)
        front, tokens = front + first, tokens + rest
    return embed.dropout(front), embed.dropout(tokens)


class MaskedViT(nn.Module):
    """Masked patch prediction (section 4.6, appendix B.1.2): images (B, C, H, W) in [0, 1] -> a loss.

    The loss is the cross-entropy of the corrupted patches' mean colours, each one of 512 classes.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean".
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.encoder = ViT(replace(config, num_classes=0))
        self.mask_token = nn.Parameter(torch.zeros(config.dim))
        self.predict = nn.Linear(config.dim, LEVELS**config.in_channels)

    def forward(self, images: Tensor) -> Tensor:
        N = self.encoder.config.grid[0] * self.encoder.config.grid[1]
        chosen = random_mask(len(images), N, 0.5, images.device)  # (B, N), half of them, as the paper has it
        target = colour_classes(mean_colours(images, self.encoder.config.patch_size))  # (B, N)
        logits = self.predict_patches(images, chosen)  # (B, N, 512)
        return F.cross_entropy(logits[chosen], target[chosen])

    def predict_patches(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The logits of every patch, the chosen ones corrupted: (B, C, H, W), (B, N) -> (B, N, 512)."""
        embed, prefix = cast(Embeddings, self.encoder.embed), self.encoder.config.prefix_tokens
        tokens = embed.patches((images - 0.5) / 0.5)  # (B, N, D), from pixels in [-1, 1]
        front, patches = add_positions(embed, corrupt(tokens, chosen, self.mask_token))  # (B, p, D), (B, N, D)
        z = self.encoder.blocks(torch.cat([front, patches], dim=1))  # (B, T, D)
        return self.predict(self.encoder.norm(z)[:, prefix:])  # (B, N, 512)


# ---- A year later: only a quarter of the tokens --------------------------------------------------------------------


def take_visible(tokens: Tensor, hidden: Tensor) -> Tensor:
    """The tokens that aren't hidden, in their order: (B, N, D), (B, N) with as many True in each row -> (B, n, D).

    Raises:
        ValueError: another mask.
    """
    B, _, D = tokens.shape
    if hidden.shape != tokens.shape[:2] or hidden.dtype != torch.bool or len(set(hidden.sum(dim=1).tolist())) > 1:
        raise ValueError(
            f"hidden must be {tuple(tokens.shape[:2])}, bool, with as many True in each row, as random_mask makes it, "
            f"got {tuple(hidden.shape)} of {hidden.dtype}"
        )
    return tokens[~hidden].reshape(B, -1, D)


def restore(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    """The inverse of :func:`take_visible`, with mask tokens for hidden ones: (B, n, D), (B, N), (D,) -> (B, N, D)."""
    number = ((~hidden).cumsum(dim=1) - 1).clamp(min=0)  # (B, N): of a visible patch, its number among the visible
    tokens = visible.gather(1, number[..., None].expand(-1, -1, visible.shape[-1]))  # (B, N, D)
    return torch.where(hidden[..., None], mask_token.to(visible.dtype), tokens)  # (B, N, D)


def normalised_patches(patches: Tensor) -> Tensor:
    """Each patch less its mean, over its standard deviation, MAE's better target: (B, N, C*P*P) -> the same shape."""
    mean = patches.mean(dim=-1, keepdim=True)  # (B, N, 1)
    variance = patches.var(dim=-1, keepdim=True)  # (B, N, 1)
    return (patches - mean) / (variance + 1e-6).sqrt()  # a patch of one colour has no variance


class MaskedAutoencoder(nn.Module):
    """MAE (arXiv 2111.06377): images (B, C, H, W) in [0, 1] -> the mean squared error of the hidden patches.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean".
        mask_ratio: the fraction of the patches that are hidden, in (0, 1); MAE hides three quarters.
        decoder_dim: width of the decoder, a multiple of 16 (its positions are sines and cosines, its heads 16 wide).
        decoder_depth: blocks of the decoder.
        normalise_patches: whether the target is each patch normalised by its own mean and standard deviation.
        mean, std: what normalises the encoder's images, a number per channel, 0.5 by default.

    Raises:
        ValueError: a width that the heads don't divide.
    """

    mean: Tensor
    std: Tensor
    position: Tensor

    def __init__(
        self,
        config: ViTConfig,
        *,
        mask_ratio: float = 0.75,
        decoder_dim: int = 64,
        decoder_depth: int = 1,
        normalise_patches: bool = True,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        if decoder_dim % 16:
            raise ValueError(f"decoder_dim must be a multiple of 16, got {decoder_dim}: its heads are 16 wide")
        self.mask_ratio, self.normalise_patches = mask_ratio, normalise_patches
        self.encoder = ViT(replace(config, num_classes=0))
        self.bridge = nn.Linear(config.dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(decoder_dim))
        nn.init.normal_(self.mask_token, std=0.02)
        self.register_buffer("position", sincos_position_embedding(config.grid, decoder_dim), persistent=False)
        blocks = [EncoderBlock(decoder_dim, decoder_dim // 16, 4 * decoder_dim) for _ in range(decoder_depth)]
        self.decoder = nn.Sequential(*blocks, nn.LayerNorm(decoder_dim, eps=config.norm_eps))
        P, Q = as_pair(config.patch_size, "patch_size")
        self.predict = nn.Linear(decoder_dim, config.in_channels * P * Q)
        half = (0.5,) * config.in_channels
        self.register_buffer("mean", torch.tensor(mean or half).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std or half).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        N = self.encoder.config.grid[0] * self.encoder.config.grid[1]
        hidden = random_mask(len(images), N, self.mask_ratio, images.device)  # (B, N)
        target = patchify(images, self.encoder.config.patch_size)  # (B, N, C*P*P)
        if self.normalise_patches:
            target = normalised_patches(target)
        return F.mse_loss(self.predict_patches(images, hidden)[hidden], target[hidden])

    def predict_patches(self, images: Tensor, hidden: Tensor) -> Tensor:
        """The decoder's pixels for every patch: (B, C, H, W), (B, N) -> (B, N, C*P*P)."""
        embed = cast(Embeddings, self.encoder.embed)
        tokens = embed.patches((images - self.mean) / self.std)  # (B, N, D)
        front, patches = add_positions(embed, tokens)  # (B, p, D), (B, N, D)
        seen = torch.cat([front, take_visible(patches, hidden)], dim=1)  # (B, p + n, D)
        z = self.encoder.norm(self.encoder.blocks(seen))  # (B, p + n, D)
        y = self.bridge(z)  # (B, p + n, D')
        front, visible = y.tensor_split([front.shape[1]], dim=1)  # (B, p, D'), (B, n, D')
        patches = restore(visible, hidden, self.mask_token) + self.position  # (B, N, D')
        y = self.decoder(torch.cat([front, patches], dim=1))  # (B, p + N, D')
        return self.predict(y[:, front.shape[1] :])  # (B, N, C*P*P)


def painter() -> MaskedAutoencoder:
    """The autoencoder that comes with the package: photographs of 32 x 32 pixels, three quarters of the patches hidden.

    It learned from 45,000 of CIFAR-10's training images without their labels (benchmarks/photographs.py), and its
    target is the pixels themselves, so that what it paints can be looked at. In eval mode.
    """
    config = ViTConfig(image_size=32, patch_size=4, dim=160, depth=6, num_heads=5, mlp_dim=320)
    mean, std = (0.4911, 0.4819, 0.4466), (0.2453, 0.2428, 0.2607)  # of those images
    model = MaskedAutoencoder(config, decoder_dim=80, decoder_depth=2, normalise_patches=False, mean=mean, std=std)
    model.load_state_dict(safetensors.torch.load_file(Path(__file__).with_name("painter.safetensors")))
    return model.eval()


# ---- To look at ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def reconstruct(model: MaskedAutoencoder, images: Tensor, hidden: Tensor) -> Tensor:
    """The images with the hidden patches as the autoencoder predicts them, to be looked at.

    Args:
        model: trained; in eval mode for the same picture twice.
        images: (B, C, H, W) in [0, 1].
        hidden: (B, N), from :func:`random_mask`.

    Returns:
        (B, C, H, W) in [0, 1]. A model of normalised patches gets each patch's own mean and standard deviation, which
        it doesn't predict, as in MAE's pictures.
    """
    patch_size = model.encoder.config.patch_size
    true = patchify(images, patch_size)  # (B, N, C*P*P)
    prediction = model.predict_patches(images, hidden)  # (B, N, C*P*P)
    if model.normalise_patches:
        prediction = prediction * true.std(dim=-1, keepdim=True) + true.mean(dim=-1, keepdim=True)
    patches = torch.where(hidden[..., None], prediction.clamp(0, 1), true)
    return unpatchify(patches, patch_size, (images.shape[2], images.shape[3]))
