"""Lesson 06: the Vision Transformer (Figure 1, Eq. 1 to 4 and Table 1 of arXiv 2010.11929)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, cast

from torch import Tensor, nn

from vit_tutorial.embeddings import POSITIONS, Embeddings
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.mlp import GELUS
from vit_tutorial.patches import Size, as_pair, grid_shape

POOLS = {"cls": 1, "mean": 0, "distilled": 2}  # how many tokens stand before the patches
# Table 1, and the two smaller sizes of arXiv 2106.10270: D, L, h, M.
SIZES = {
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
}


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
    gelu: str = "exact"  # or "tanh"
    position: str = "learned"  # or "sincos", "none"
    pool: str = "cls"  # or "mean": no class token then; "distilled": DeiT's second one, and a head on both

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
        if self.position == "sincos" and (self.dim % 4 or self.dim < 8):
            raise ValueError(f"sincos positions need a dim that is a multiple of 4 and at least 8, got {self.dim}")
        for name in ("dropout", "attention_dropout", "drop_path"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is a probability in [0, 1), got {getattr(self, name)}: 0.0 switches it off")
        if not self.norm_eps > 0:
            raise ValueError(f"norm_eps must be positive, got {self.norm_eps}: the paper's code has 1e-6")
        for name, good in (("gelu", GELUS), ("position", POSITIONS), ("pool", POOLS)):
            if getattr(self, name) not in good:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose one of {', '.join(good)}")

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
    def num_tokens(self) -> int:
        """T: the patches, and the class token if there is one."""
        return self.grid[0] * self.grid[1] + POOLS[self.pool]


class ViT(nn.Module):
    """The Vision Transformer: images (B, C, H, W) -> logits (B, K), or features (B, D) if ``num_classes`` is 0.

    The head starts as zeros, so that every class is equally likely at first (the paper's code, and its section 3.2);
    the other layers as their modules say. Images that don't fit raise what :class:`PatchEmbedding` raises.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        c = self.config = config
        self.embed = Embeddings(
            c.image_size, c.patch_size, c.in_channels, c.dim,
            position=c.position, dropout=c.dropout, class_token=POOLS[c.pool],
        )  # fmt: skip
        rates = [c.drop_path * layer / max(c.depth - 1, 1) for layer in range(c.depth)]
        self.blocks = nn.Sequential(*[EncoderBlock(
            c.dim, c.num_heads, c.mlp_dim, qkv_bias=c.qkv_bias, norm_eps=c.norm_eps, gelu=c.gelu,
            dropout=c.dropout, attention_dropout=c.attention_dropout, drop_path=rate,
        ) for rate in rates])  # fmt: skip
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps)
        self.head = nn.Linear(c.dim * max(POOLS[c.pool], 1), c.num_classes) if c.num_classes else nn.Identity()
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        z = self.features(images)  # (B, T, D)
        y = z.mean(dim=1) if self.config.pool == "mean" else z[:, : POOLS[self.config.pool]].flatten(1)  # (B, D)
        return self.head(y)  # (B, K), Eq. 4

    def features(self, images: Tensor) -> Tensor:
        """Every token after the last norm: (B, C, H, W) -> (B, T, D)."""
        z = self.embed(images)  # (B, T, D), Eq. 1
        z = self.blocks(z)  # (B, T, D), Eq. 2 and 3, L times
        return self.norm(z)  # (B, T, D)

    def attention_maps(self, images: Tensor, layers: Iterable[int] | None = None) -> dict[int, Tensor]:
        """The attention weights of the layers asked for (None: all), ``{layer: (B, h, T, T)}``; rows sum to 1.

        The forward pass keeps its fused kernel and stops at the last layer asked for; only those layers' weights are
        computed beside it. Layers count from 0, or from the end as -1. Gradients flow: ``torch.inference_mode()``
        saves their memory. Raises ValueError for a layer that the model doesn't have.
        """
        depth = len(self.blocks)
        wanted = list(range(depth) if layers is None else layers)
        if bad := [layer for layer in wanted if not -depth <= layer < depth]:
            raise ValueError(f"there is no layer {bad[0]}: the model has layers 0 to {depth - 1}")
        indices, weights = {layer % depth for layer in wanted}, {}
        z = self.embed(images)  # (B, T, D)
        for index, block in enumerate(cast("Iterable[EncoderBlock]", self.blocks)):
            if index in indices:
                weights[index] = block.attention.attention_weights(block.norm1(z))  # (B, h, T, T)
            if len(weights) < len(indices):
                z = block(z)  # (B, T, D)
        return {layer: weights[layer % depth] for layer in wanted}


def count_parameters(config: ViTConfig) -> int:
    """Parameters by formula: 86,567,656 for B/16. Fixed sine-cosine positions are not learned and don't count."""
    c, D, M, (P, Q) = config, config.dim, config.mlp_dim, as_pair(config.patch_size, "patch_size")
    embed = (c.in_channels * P * Q + 1) * D + D * POOLS[c.pool] + c.num_tokens * D * (c.position == "learned")
    attention = 3 * D * (D + c.qkv_bias) + D * (D + 1)
    mlp = M * (D + 1) + D * (M + 1)
    return embed + c.depth * (2 * D + attention + 2 * D + mlp) + 2 * D + c.num_classes * (D * max(POOLS[c.pool], 1) + 1)


def count_macs(config: ViTConfig) -> int:
    """Multiply-accumulates of the matrix products in one image's forward pass, by formula: 17.564e9 for B/16."""
    c, D, M, (P, Q) = config, config.dim, config.mlp_dim, as_pair(config.patch_size, "patch_size")
    N, T = c.grid[0] * c.grid[1], c.num_tokens
    block = T * (4 * D * D + 2 * D * M) + 2 * T * T * D
    return N * c.in_channels * P * Q * D + c.depth * block + D * max(POOLS[c.pool], 1) * c.num_classes
