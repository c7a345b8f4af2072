"""Lesson 13: learning without labels (section 4.6 and appendix B.1.2 of arXiv 2010.11929, and arXiv 2111.06377).

Both methods hide a part of each image and predict it. :class:`MaskedViT` is the paper's: the encoder sees all tokens,
half of them corrupted, and predicts the colour of each corrupted patch. :class:`MaskedAutoencoder` came a year later:
the encoder sees only a quarter of the patches, and a small decoder reconstructs the rest. After training one keeps
``.encoder``, a plain :class:`~vit_tutorial.vit.ViT` without a head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.embeddings import Embeddings, sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.patches import as_pair, patchify, unpatchify
from vit_tutorial.vit import ViT, ViTConfig

Target = Literal["mean colour", "small patch", "pixels"]
LEVELS = 8  # of each channel: 3 bits
SMALL = 4  # pixels, the side of the small version of a patch


# ---- What is predicted -------------------------------------------------------------------------------------------


def colour_classes(colours: Tensor) -> Tensor:
    """Colours (..., C) in [0, 1] as one whole number each, 3 bits a channel: (...), from 0 to 8 ** C - 1.

    512 classes with three channels (appendix B.1.2). The first channel counts most.
    """
    levels = (colours * LEVELS).long().clamp(0, LEVELS - 1)  # (..., C)
    places = LEVELS ** torch.arange(colours.shape[-1] - 1, -1, -1, device=colours.device)  # (C,): 64, 8, 1
    return (levels * places).sum(dim=-1)


def class_colours(classes: Tensor, channels: int) -> Tensor:
    """The middle of each class, to be drawn: (...) -> (..., C) in [0, 1]."""
    places = LEVELS ** torch.arange(channels - 1, -1, -1, device=classes.device)  # (C,)
    return (classes[..., None] // places % LEVELS + 0.5) / LEVELS


def targets(images: Tensor, patch_size: int | tuple[int, int], target: Target) -> Tensor:
    """What a masked model is to predict of each patch.

    Args:
        images: (B, C, H, W) in [0, 1], before any normalisation.
        patch_size: P, or (height, width), in pixels; of at least 4 x 4 for "small patch".
        target: "mean colour", "small patch" or "pixels".

    Returns:
        Classes (B, N, 1), classes (B, N, 16) of the patch made 4 x 4, or the pixels (B, N, C*P*P).

    Raises:
        ValueError: an unknown target, or for "small patch" a patch whose sides are no multiples of 4.
    """
    P, Q = as_pair(patch_size, "patch_size")
    C = images.shape[1]
    if target == "mean colour":
        mean = F.avg_pool2d(images, (P, Q))  # (B, C, rows, columns)
        return colour_classes(mean.flatten(2).transpose(1, 2))[..., None]  # (B, N, 1)
    if target == "small patch":
        if P % SMALL or Q % SMALL:
            raise ValueError(f"a patch of {P} x {Q} can't be averaged to {SMALL} x {SMALL}: take multiples of {SMALL}")
        small = F.avg_pool2d(images, (P // SMALL, Q // SMALL))  # (B, C, 4 rows, 4 columns)
        pixels = patchify(small, SMALL)  # (B, N, C*16)
        pixels = pixels.reshape(*pixels.shape[:2], C, SMALL * SMALL)  # (B, N, C, 16)
        return colour_classes(pixels.transpose(2, 3))  # (B, N, 16)
    if target == "pixels":
        return patchify(images, (P, Q))  # (B, N, C*P*P)
    raise ValueError(f"unknown target {target!r}: choose one of {', '.join(get_args(Target))}")


# ---- The paper's method: all tokens, half of them corrupted -------------------------------------------------------


def choose(B: int, N: int, share: float, device: torch.device | str | None = None) -> Tensor:
    """A random mask with the same number of patches in each image: (B, N), bool.

    Raises:
        ValueError: a share of none or all of the patches.
    """
    count = round(share * N)
    if not 0 < count < N:
        raise ValueError(f"share {share} takes {count} of {N} patches: some must be hidden and some be left")
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

    The loss is the cross-entropy of the corrupted patches' colours, or for "pixels" their mean squared error.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean".
        target: what is predicted of each corrupted patch; see :func:`targets`.
        share: of the patches that are corrupted, in (0, 1); the paper takes half.
        mean, std: what normalises the encoder's images, a number per channel, 0.5 by default; the targets are not
            normalised.

    Raises:
        ValueError: an unknown target.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        config: ViTConfig,
        target: Target = "mean colour",
        *,
        share: float = 0.5,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        self.target, self.share = target, share
        self.encoder = ViT(replace(config, num_classes=0))
        self.mask_token = nn.Parameter(torch.zeros(config.dim))
        C, (P, Q) = config.in_channels, as_pair(config.patch_size, "patch_size")
        outputs = {"mean colour": LEVELS**C, "small patch": SMALL**2 * LEVELS**C, "pixels": C * P * Q}
        if target not in outputs:
            raise ValueError(f"unknown target {target!r}: choose one of {', '.join(get_args(Target))}")
        self.predict = nn.Linear(config.dim, outputs[target])
        half = (0.5,) * config.in_channels
        self.register_buffer("mean", torch.tensor(mean or half).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std or half).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        N = self.encoder.config.grid[0] * self.encoder.config.grid[1]
        chosen = choose(len(images), N, self.share, images.device)  # (B, N)
        target = targets(images, self.encoder.config.patch_size, self.target)[chosen]  # (B', 1 or 16 or C*P*P)
        prediction = self.predict(self.features(images, chosen)[chosen])  # (B', outputs), of the chosen patches alone
        if self.target == "pixels":
            return F.mse_loss(prediction, target)
        logits = prediction.reshape(target.numel(), -1)  # (B' or 16 B', classes)
        return F.cross_entropy(logits, target.flatten())

    def features(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The patches' tokens after the encoder, the chosen ones corrupted: (B, C, H, W), (B, N) -> (B, N, D)."""
        embed, prefix = cast(Embeddings, self.encoder.embed), self.encoder.config.prefix_tokens
        tokens = embed.patches((images - self.mean) / self.std)  # (B, N, D)
        front, patches = add_positions(embed, corrupt(tokens, chosen, self.mask_token))  # (B, p, D), (B, N, D)
        z = self.encoder.blocks(torch.cat([front, patches], dim=1))  # (B, T, D)
        return self.encoder.norm(z)[:, prefix:]  # (B, N, D)

    def predict_patches(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The prediction for every patch, the chosen ones corrupted: (B, C, H, W), (B, N) -> (B, N, outputs)."""
        return self.predict(self.features(images, chosen))


# ---- A year later: only a quarter of the tokens --------------------------------------------------------------------


def take_visible(tokens: Tensor, hidden: Tensor) -> Tensor:
    """The tokens that aren't hidden, in their order: (B, N, D), (B, N) with as many True in each row -> (B, n, D)."""
    B, _, D = tokens.shape
    return tokens[~hidden].reshape(B, -1, D)


def restore(visible: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    """The inverse of :func:`take_visible`, with mask tokens for hidden ones: (B, n, D), (B, N), (D,) -> (B, N, D)."""
    number = ((~hidden).cumsum(dim=1) - 1).clamp(min=0)  # (B, N): of a visible patch, its number among the visible
    tokens = visible.gather(1, number[..., None].expand(-1, -1, visible.shape[-1]))  # (B, N, D)
    return torch.where(hidden[..., None], mask_token.to(visible.dtype), tokens)  # (B, N, D)


def normalised_patches(patches: Tensor, eps: float = 1e-6) -> Tensor:
    """Each patch less its mean, over its standard deviation, MAE's better target: (B, N, C*P*P) -> the same shape."""
    mean = patches.mean(dim=-1, keepdim=True)  # (B, N, 1)
    variance = patches.var(dim=-1, keepdim=True)  # (B, N, 1)
    return (patches - mean) / (variance + eps).sqrt()


class MaskedAutoencoder(nn.Module):
    """MAE (arXiv 2111.06377): images (B, C, H, W) in [0, 1] -> the mean squared error of the hidden patches.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean".
        share: of the patches that are hidden, in (0, 1); MAE hides three quarters.
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
        share: float = 0.75,
        decoder_dim: int = 64,
        decoder_depth: int = 1,
        normalise_patches: bool = True,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        if decoder_dim % 16:
            raise ValueError(f"decoder_dim must be a multiple of 16, got {decoder_dim}: its heads are 16 wide")
        self.share, self.normalise_patches = share, normalise_patches
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
        hidden = choose(len(images), N, self.share, images.device)  # (B, N)
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
def reconstruct(model: MaskedViT | MaskedAutoencoder, images: Tensor, hidden: Tensor) -> Tensor:
    """The images with the hidden patches as the model predicts them, to be looked at.

    Args:
        model: trained; in eval mode for the same picture twice.
        images: (B, C, H, W) in [0, 1].
        hidden: (B, N), from :func:`choose`.

    Returns:
        (B, C, H, W) in [0, 1]. A mean colour fills its patch, 16 colours fill a quarter of its side each. A model of
        normalised patches gets each patch's own mean and standard deviation, which it doesn't predict, as in
        MAE's pictures.
    """
    config = model.encoder.config
    P, Q = as_pair(config.patch_size, "patch_size")
    true = patchify(images, (P, Q))  # (B, N, C*P*P)
    prediction = model.predict_patches(images, hidden)  # (B, N, outputs)
    if isinstance(model, MaskedAutoencoder) and model.normalise_patches:
        prediction = prediction * true.std(dim=-1, keepdim=True) + true.mean(dim=-1, keepdim=True)
    elif isinstance(model, MaskedViT) and model.target != "pixels":
        C = config.in_channels
        side = 1 if model.target == "mean colour" else SMALL
        classes = prediction.reshape(*prediction.shape[:2], side * side, -1).argmax(dim=-1)  # (B, N, side²)
        small = class_colours(classes, C).transpose(2, 3).reshape(-1, C, side, side)  # (B N, C, side, side)
        prediction = F.interpolate(small, size=(P, Q)).reshape(true.shape)  # (B, N, C*P*P), nearest
    patches = torch.where(hidden[..., None], prediction.clamp(0, 1), true)
    return unpatchify(patches, (P, Q), (images.shape[2], images.shape[3]))
