"""Lesson 13: learning without labels (section 4.6 and appendix B.1.2 of arXiv 2010.11929, and arXiv 2111.06377).

Both ways hide a part of each image and ask for it. :class:`MaskedViT` is the paper's: the encoder sees all tokens, half
of them spoilt, and says what colour each spoilt patch had. :class:`MaskedAutoencoder` came a year later: the encoder
sees a quarter of the patches and no others, and a small decoder paints the rest. What is kept afterwards is
``.encoder``, a plain :class:`~vit_tutorial.vit.ViT` without a head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.embeddings import Embeddings, sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.patches import as_pair, check_probability, patchify, unpatchify
from vit_tutorial.vit import ViT, ViTConfig

Target = Literal["mean colour", "small patch", "pixels"]
LEVELS = 8  # of each channel: 3 bits
SMALL = 4  # pixels, the side of the small version of a patch


# ---- What is asked for -------------------------------------------------------------------------------------------


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
    """What a masked model shall say of each patch.

    Args:
        images: (B, C, H, W) in [0, 1], before any normalisation.
        patch_size: P, or (height, width), in pixels; of at least 4 x 4 for "small patch".
        target: "mean colour", "small patch" or "pixels".

    Returns:
        Classes (B, N, 1), classes (B, N, 16) of the patch made 4 x 4, or the pixels (B, N, C*P*P).

    Raises:
        ValueError: an unknown target, or a patch too small to be made smaller.
    """
    P, Q = as_pair(patch_size, "patch_size")
    C = images.shape[1]
    if target == "mean colour":
        mean = F.avg_pool2d(images, (P, Q))  # (B, C, rows, columns)
        return colour_classes(mean.flatten(2).transpose(1, 2))[..., None]  # (B, N, 1)
    if target == "small patch":
        if P % SMALL or Q % SMALL:
            raise ValueError(f"a patch of {P} x {Q} can't be made {SMALL} x {SMALL} by whole pixels: take a multiple")
        small = F.avg_pool2d(images, (P // SMALL, Q // SMALL))  # (B, C, 4 rows, 4 columns)
        pixels = patchify(small, SMALL)  # (B, N, C*16)
        pixels = pixels.reshape(*pixels.shape[:2], C, SMALL * SMALL)  # (B, N, C, 16)
        return colour_classes(pixels.transpose(2, 3))  # (B, N, 16)
    if target == "pixels":
        return patchify(images, (P, Q))  # (B, N, C*P*P)
    raise ValueError(f"unknown target {target!r}: choose one of {', '.join(get_args(Target))}")


# ---- The paper's way: all tokens, half of them spoilt --------------------------------------------------------------


def choose(B: int, N: int, share: float, device: torch.device | str | None = None) -> Tensor:
    """Which patches, the same number in each image, by chance: (B, N) of True and False.

    Raises:
        ValueError: a share that leaves none, or takes all.
    """
    check_probability(share, "share")
    count = round(share * N)
    if not 0 < count < N:
        raise ValueError(f"share {share} takes {count} of {N} patches: some must be hidden and some be left")
    order = torch.rand(B, N, device=device).argsort(dim=1)  # (B, N): each row 0 to N - 1 in an order of its own
    return order < count


def corrupt(tokens: Tensor, chosen: Tensor, mask_token: Tensor) -> Tensor:
    """Spoil the chosen tokens: 80 % become the mask token, 10 % another patch's token, 10 % stay (appendix B.1.2).

    Args:
        tokens: (B, N, D), without positions.
        chosen: (B, N), True for those to be spoilt.
        mask_token: (D,).

    Returns:
        (B, N, D), a new tensor.
    """
    B, N, _ = tokens.shape
    fate = torch.rand(B, N, device=tokens.device)
    further = torch.randint(1, N, (B, N), device=tokens.device)  # 1 to N - 1 places on, round the end: never itself
    other = (torch.arange(N, device=tokens.device) + further) % N  # (B, N)
    others = tokens.gather(1, other[..., None].expand_as(tokens))  # (B, N, D)
    masked, swapped = chosen & (fate < 0.8), chosen & (fate >= 0.8) & (fate < 0.9)
    spoilt = torch.where(masked[..., None], mask_token, tokens)
    return torch.where(swapped[..., None], others, spoilt)  # (B, N, D)


def placed(embed: Embeddings, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 1 in two pieces, so that patches can be spoilt before and left out after.

    Args:
        embed: of the model.
        tokens: (B, N, D), the patches' own, without positions.

    Returns:
        The tokens before the patches (B, p, D), p 0 if there are none; and the patches (B, N, D); with positions.
    """
    B, N, D = tokens.shape
    front = tokens.new_zeros(B, 0, D) if embed.cls_token is None else embed.cls_token.expand(B, -1, -1)  # (B, p, D)
    if embed.position is None:
        return front, tokens
    first, rest = torch.split(embed.position, [front.shape[1], N], dim=1)  # (1, p, D), (1, N, D)
    return front + first, tokens + rest


class MaskedViT(nn.Module):
    """Masked patch prediction (section 4.6, appendix B.1.2): images (B, C, H, W) in [0, 1] -> a loss.

    The loss is the cross-entropy of the spoilt patches' colours, or for "pixels" their mean squared error.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean", no stem.
        target: what is predicted of each spoilt patch; see :func:`targets`.
        share: of the patches that are spoilt, in (0, 1); the paper takes half.
        mean, std: what the encoder's images are normalised by, a number a channel; the targets are not.

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
        mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        std: tuple[float, ...] = (0.5, 0.5, 0.5),
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
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        B, N = len(images), self.encoder.config.grid[0] * self.encoder.config.grid[1]
        chosen = choose(B, N, self.share, images.device)  # (B, N)
        wanted = targets(images, self.encoder.config.patch_size, self.target)[chosen]  # (B', 1 or 16 or C*P*P)
        said = self.predict(self.features(images, chosen)[chosen])  # (B', outputs): only what is asked for
        if self.target == "pixels":
            return F.mse_loss(said, wanted)
        logits = said.reshape(wanted.numel(), -1)  # (B' or 16 B', classes)
        return F.cross_entropy(logits, wanted.flatten())

    def features(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The patches' tokens after the encoder, the chosen ones spoilt: (B, C, H, W), (B, N) -> (B, N, D)."""
        embed, prefix = self.encoder.embed, self.encoder.config.prefix_tokens
        tokens = embed.patches((images - self.mean) / self.std)  # (B, N, D)
        front, patches = placed(embed, corrupt(tokens, chosen, self.mask_token))  # (B, p, D), (B, N, D)
        z = self.encoder.blocks(torch.cat([front, patches], dim=1))  # (B, T, D)
        return self.encoder.norm(z)[:, prefix:]  # (B, N, D)

    def say(self, images: Tensor, chosen: Tensor) -> Tensor:
        """The prediction for every patch, the chosen ones spoilt: (B, C, H, W), (B, N) -> (B, N, outputs)."""
        return self.predict(self.features(images, chosen))


# ---- A year later: a quarter of the tokens, and no others ----------------------------------------------------------


def keep_some(tokens: Tensor, hidden: Tensor) -> Tensor:
    """The tokens that aren't hidden, in their order: (B, N, D), (B, N) with as many True in each row -> (B, n, D)."""
    B, _, D = tokens.shape
    return tokens[~hidden].reshape(B, -1, D)


def put_back(kept: Tensor, hidden: Tensor, mask_token: Tensor) -> Tensor:
    """The inverse of :func:`keep_some`, the mask token in the holes: (B, n, D), (B, N), (D,) -> (B, N, D)."""
    holes = mask_token.to(kept.dtype).expand(*hidden.shape, -1).clone()  # (B, N, D)
    holes[~hidden] = kept.flatten(0, 1)
    return holes


def normalised_patches(patches: Tensor, eps: float = 1e-6) -> Tensor:
    """Each patch less its mean, over its spread, which MAE found to be the better target: (B, N, C*P*P)."""
    mean, var = patches.mean(dim=-1, keepdim=True), patches.var(dim=-1, keepdim=True)  # each (B, N, 1)
    return (patches - mean) / (var + eps).sqrt()


class MaskedAutoencoder(nn.Module):
    """MAE (arXiv 2111.06377): images (B, C, H, W) in [0, 1] -> the mean squared error of the hidden patches.

    Args:
        config: of the encoder; its head is left out. Pooling "cls" or "mean", no stem.
        share: of the patches that are hidden, in (0, 1); MAE hides three quarters.
        decoder_dim: width of the decoder, a multiple of 16 (its positions are sines and cosines, its heads 16 wide).
        decoder_depth: blocks of the decoder.
        normalise_patches: whether each patch's pixels are normalised by themselves before they are asked for.
        mean, std: what the encoder's images are normalised by, a number a channel.

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
        mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        std: tuple[float, ...] = (0.5, 0.5, 0.5),
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
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        N = self.encoder.config.grid[0] * self.encoder.config.grid[1]
        hidden = choose(len(images), N, self.share, images.device)  # (B, N)
        wanted = patchify(images, self.encoder.config.patch_size)  # (B, N, C*P*P)
        if self.normalise_patches:
            wanted = normalised_patches(wanted)
        return F.mse_loss(self.say(images, hidden)[hidden], wanted[hidden])

    def say(self, images: Tensor, hidden: Tensor) -> Tensor:
        """Every patch's pixels as the decoder paints them: (B, C, H, W), (B, N) -> (B, N, C*P*P)."""
        tokens = self.encoder.embed.patches((images - self.mean) / self.std)  # (B, N, D)
        front, patches = placed(self.encoder.embed, tokens)  # (B, p, D), (B, N, D)
        seen = torch.cat([front, keep_some(patches, hidden)], dim=1)  # (B, p + n, D), all that the encoder gets
        z = self.encoder.norm(self.encoder.blocks(seen))  # (B, p + n, D)
        y = self.bridge(z)  # (B, p + n, D')
        front, kept = torch.split(y, [front.shape[1], y.shape[1] - front.shape[1]], dim=1)  # (B, p, D'), (B, n, D')
        patches = put_back(kept, hidden, self.mask_token) + self.position  # (B, N, D')
        y = self.decoder(torch.cat([front, patches], dim=1))  # (B, p + N, D')
        return self.predict(y[:, front.shape[1] :])  # (B, N, C*P*P)


# ---- To look at ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def painted(model: MaskedViT | MaskedAutoencoder, images: Tensor, hidden: Tensor) -> Tensor:
    """The images with the hidden patches as the model paints them, to be looked at.

    Args:
        model: trained; in eval mode for the same picture twice.
        images: (B, C, H, W) in [0, 1].
        hidden: (B, N), from :func:`choose`.

    Returns:
        (B, C, H, W) in [0, 1]. A mean colour fills its patch, 16 colours a quarter of its side each. A model of
        normalised patches is given each patch's own mean and spread, as in MAE's pictures: it didn't predict them.
    """
    config = model.encoder.config
    P, Q = as_pair(config.patch_size, "patch_size")
    true = patchify(images, (P, Q))  # (B, N, C*P*P)
    said = model.say(images, hidden)  # (B, N, outputs)
    if isinstance(model, MaskedAutoencoder) and model.normalise_patches:
        said = said * true.std(dim=-1, keepdim=True) + true.mean(dim=-1, keepdim=True)
    elif isinstance(model, MaskedViT) and model.target != "pixels":
        C = config.in_channels
        side = 1 if model.target == "mean colour" else SMALL
        classes = said.reshape(*said.shape[:2], side * side, -1).argmax(dim=-1)  # (B, N, side²)
        small = class_colours(classes, C).transpose(2, 3).reshape(-1, C, side, side)  # (B N, C, side, side)
        said = F.interpolate(small, size=(P, Q)).reshape(true.shape)  # (B, N, C*P*P), nearest
    patches = torch.where(hidden[..., None], said.clamp(0, 1), true)
    return unpatchify(patches, (P, Q), (images.shape[2], images.shape[3]))
