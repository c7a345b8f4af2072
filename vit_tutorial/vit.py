"""Lesson 06: the Vision Transformer (Figure 1, Eq. 1 to 4 and Table 1 of arXiv 2010.11929)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, cast, get_args, runtime_checkable

from torch import Tensor, nn

from vit_tutorial.embeddings import Embeddings, Position, check_sincos_dim
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair, check_probability, grid_shape

Pool = Literal["cls", "mean", "distilled"]
# Table 1, and the two smaller sizes of arXiv 2106.10270: D, L, h, M.
SIZES = {
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
}


@runtime_checkable
class Stem(Protocol):
    """A hashable record of what makes tokens in place of :class:`PatchEmbedding`; ``variants.hybrid`` has some."""

    @property
    def stride(self) -> int:
        """How many pixels of the image lie between two neighbours of the stem's feature map."""
        ...

    def embed(self, config: "ViTConfig") -> nn.Module:
        """The module: images (B, C, H, W) -> tokens (B, N, D)."""
        ...

    def count_parameters(self, config: "ViTConfig") -> int:
        """Parameters of that module."""
        ...

    def count_macs(self, config: "ViTConfig") -> int:
        """Its multiply-accumulates for one image."""
        ...


class Block(Protocol):
    """A layer of the encoder: :class:`EncoderBlock`, or a variant's with what it needs besides the tokens."""

    def __call__(self, z: Tensor) -> Tensor: ...

    def attend(self, z: Tensor) -> Tensor:
        """Eq. 2 alone: tokens (B, T, D) after attention, before the MLP."""
        ...

    def attention_weights(self, z: Tensor) -> Tensor:
        """The attention weights (B, h, T, T) of tokens (B, T, D); rows sum to 1."""
        ...


@dataclass(frozen=True)
class ViTConfig:
    """Everything that defines a model but its weights; the defaults are ViT-B/16 (Table 1).

    Raises:
        ValueError: a field out of its range, or two that don't go together; the message names them.
        TypeError: a size or a count that isn't an int.
    """

    image_size: Size = 224  # H = W, or (H, W), in pixels
    patch_size: Size = 16  # P, or (height, width)
    in_channels: int = 3  # C
    num_classes: int = 1000  # K; 0: no head, the model returns the features (B, D)
    dim: int = 768  # D
    depth: int = 12  # L
    num_heads: int = 12  # h
    mlp_dim: int = 3072  # M
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # of the last block; it grows linearly from 0 at the first
    norm_eps: float = 1e-6
    gelu: Gelu = "exact"  # or "tanh"
    position: Position = "learned"  # or "sincos", "none"
    pool: Pool = "cls"  # or "mean": no class token then; "distilled": DeiT's second one, and a head on both
    stem: Stem | None = None  # convolutions before the tokens (lesson 12); None: the paper's cut into patches

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):  # a list, as JSON has it, becomes a tuple: configs are hashable
            size = getattr(self, name)
            object.__setattr__(self, name, tuple(size) if isinstance(size, list) else size)
        grid_shape(self.image_size, self.patch_size)
        for name in ("in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim"):
            value, least = getattr(self, name), int(name != "num_classes")
            if not isinstance(value, int):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}: change one of them")
        for name in ("dropout", "attention_dropout", "drop_path"):
            check_probability(getattr(self, name), name)
        if not 0.0 < self.norm_eps < math.inf:
            raise ValueError(f"norm_eps must be positive and finite, got {self.norm_eps}: the paper's code has 1e-6")
        for name, choices in (("gelu", Gelu), ("position", Position), ("pool", Pool)):
            if getattr(self, name) not in get_args(choices):
                good = ", ".join(get_args(choices))
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose one of {good}")
        if self.position == "sincos":
            check_sincos_dim(self.dim)
        if self.stem is not None:
            self._check_stem(self.stem)

    def _check_stem(self, stem: Stem) -> None:
        if not isinstance(stem, Stem):
            raise TypeError(f"stem must be one of vit_tutorial.variants.hybrid's, or None, got {stem!r}")
        if any(side % stem.stride for side in as_pair(self.patch_size, "patch_size")):
            raise ValueError(
                f"patch_size {self.patch_size} is not a multiple of {stem.stride}, the stride of {stem}: a token is "
                "made of whole pixels of the stem's feature map"
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """``preset("B/16", num_classes=10)``: a size, a slash, a patch size. Raises ValueError for an unknown one."""
        size, _, patch = name.partition("/")
        if size not in SIZES or not patch.isdecimal():
            raise ValueError(f"unknown preset {name!r}: one of {', '.join(SIZES)}, a slash, a patch size, as in 'B/16'")
        row = dict(zip(("dim", "depth", "num_heads", "mlp_dim"), SIZES[size], strict=True))
        return cls(**({"patch_size": int(patch)} | row | changes))

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        return grid_shape(self.image_size, self.patch_size)

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the patches. 1 is the class token alone, 2 DeiT's as well, 0 neither (pooling by the mean)."""
        return {"mean": 0, "cls": 1, "distilled": 2}[self.pool]

    @property
    def num_tokens(self) -> int:
        """T: the patches, and the tokens before them."""
        return self.prefix_tokens + self.grid[0] * self.grid[1]

    @property
    def head_width(self) -> int:
        """How many numbers the head reads. D, or 2 D with DeiT's second token."""
        return 2 * self.dim if self.pool == "distilled" else self.dim


class ViT(nn.Module):
    """The Vision Transformer: images (B, C, H, W) -> logits (B, K); with ``num_classes`` 0, what a head would read.

    The head starts as zeros, so that every class is equally likely at first (the paper's code, and its section 3.2);
    the other layers as their modules say. Images that don't fit raise what :class:`PatchEmbedding` raises.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embeddings(
            config.image_size,
            config.patch_size,
            config.in_channels,
            config.dim,
            position=config.position,
            dropout=config.dropout,
            class_token=config.prefix_tokens >= 1,
            distillation_token=config.prefix_tokens == 2,
            patches=config.stem.embed(config) if config.stem else None,
        )
        self.blocks = nn.Sequential()
        for layer in range(config.depth):
            block = EncoderBlock(
                config.dim,
                config.num_heads,
                config.mlp_dim,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                drop_path=config.drop_path * layer / max(config.depth - 1, 1),
                norm_eps=config.norm_eps,
                gelu=config.gelu,
                qkv_bias=config.qkv_bias,
            )
            self.blocks.append(block)
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.head = nn.Linear(config.head_width, config.num_classes) if config.num_classes else nn.Identity()
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        z = self.features(images)  # (B, T, D)
        if self.config.pool == "cls":
            y = z[:, 0]  # (B, D), the class token
        elif self.config.pool == "mean":
            y = z.mean(dim=1)  # (B, D), every patch alike
        else:  # "distilled"
            y = z[:, :2].flatten(1)  # (B, 2 D), the class token and DeiT's, end to end
        return self.head(y)  # (B, K), Eq. 4

    def features(self, images: Tensor) -> Tensor:
        """Every token after the last norm: (B, C, H, W) -> (B, T, D)."""
        z = self.embed(images)  # (B, T, D), Eq. 1
        for block in self.blocks_for(images):
            z = block(z)  # (B, T, D), Eq. 2 and 3, L times
        return self.norm(z)  # (B, T, D)

    def blocks_for(self, images: Tensor) -> list[Block]:
        """The blocks as these images go through them, each (B, T, D) -> (B, T, D); here the blocks themselves.

        Everything inside the model is a loop away. The tokens (B, T, D) after block 9::

            z = model.embed(images)
            for block in model.blocks_for(images)[:10]:
                z = block(z)

        Of any block, ``block.attend(z)`` gives the tokens after attention, before the MLP (Eq. 2), and
        ``block.attention_weights(z)`` the weights (B, h, T, T).
        """
        return cast("list[Block]", list(self.blocks))

    def attention_maps(self, images: Tensor, layers: Iterable[int] | None = None) -> dict[int, Tensor]:
        """The attention weights of the layers asked for (None: all), ``{layer: (B, h, T, T)}``; rows sum to 1.

        The forward pass keeps its fused kernel and stops at the last layer asked for; only those layers' weights are
        computed beside it. Layers count from 0, or from the end as -1. Gradients flow: ``torch.inference_mode()``
        saves their memory.

        Raises:
            ValueError: a layer that the model doesn't have.
        """
        depth = len(self.blocks)
        wanted = list(range(depth) if layers is None else layers)
        if bad := [layer for layer in wanted if not -depth <= layer < depth]:
            raise ValueError(f"there is no layer {bad[0]}: the model has layers 0 to {depth - 1}")
        indices = {layer % depth for layer in wanted}
        weights: dict[int, Tensor] = {}
        z = self.embed(images)  # (B, T, D)
        for index, block in enumerate(self.blocks_for(images)):
            if index in indices:
                weights[index] = block.attention_weights(z)  # (B, h, T, T)
            if len(weights) < len(indices):
                z = block(z)  # (B, T, D)
        return {layer: weights[layer % depth] for layer in wanted}


def _must_be_plain(config: ViTConfig) -> None:
    if type(config) is not ViTConfig:
        kind = type(config).__name__
        raise TypeError(f"a {kind} has parts that this formula doesn't know: count with the function of its module")


def count_parameters(config: ViTConfig) -> int:
    """Parameters by formula: 86,567,656 for B/16. Fixed sine-cosine positions are not learned and don't count."""
    _must_be_plain(config)
    C, D, M, L = config.in_channels, config.dim, config.mlp_dim, config.depth
    P, Q = as_pair(config.patch_size, "patch_size")
    patches = config.stem.count_parameters(config) if config.stem else (C * P * Q + 1) * D
    cls_token = config.prefix_tokens * D
    position = config.num_tokens * D if config.position == "learned" else 0
    norm = 2 * D
    attention = 3 * D * (D + config.qkv_bias) + D * (D + 1)
    mlp = M * (D + 1) + D * (M + 1)
    head = config.num_classes * (config.head_width + 1)
    return patches + cls_token + position + L * (norm + attention + norm + mlp) + norm + head


def count_macs(config: ViTConfig) -> int:
    """Multiply-accumulates of the matrix products in one image's forward pass, by formula: 17.564e9 for B/16."""
    _must_be_plain(config)
    C, D, M, L, T = config.in_channels, config.dim, config.mlp_dim, config.depth, config.num_tokens
    P, Q = as_pair(config.patch_size, "patch_size")
    N = T - config.prefix_tokens
    patches = config.stem.count_macs(config) if config.stem else N * C * P * Q * D
    qkv_and_proj = T * 4 * D * D
    scores_and_sums = 2 * T * T * D
    mlp = T * 2 * D * M
    head = config.head_width * config.num_classes
    return patches + L * (qkv_and_proj + scores_and_sums + mlp) + head
