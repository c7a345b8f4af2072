"""Lesson 15: the Vision Transformer with the parts that came after 2020, each of them an option.

>>> import torch
>>> from vit_tutorial import modern
>>> config = modern.ModernConfig.preset("S/14", image_size=98, registers=4, layer_scale=1e-5, num_classes=0)  # DINOv2's
>>> modern.ModernViT(config)(torch.rand(1, 3, 98, 98)).shape
torch.Size([1, 384])

Everything else is as in :mod:`vit_tutorial.vit`; with every option at its default it is the same model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention, silu
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.embeddings import Embeddings, Grid
from vit_tutorial.encoder import DropPath
from vit_tutorial.mlp import MLP, Gelu
from vit_tutorial.patches import as_pair, is_whole
from vit_tutorial.variants.hybrid import HybridConfig, HybridViT
from vit_tutorial.variants.positions import bias_index, count_offsets
from vit_tutorial.vit import ViT, ViTConfig, check_switches

Activation = Literal["exact", "tanh", "quick"]
Pooling = Literal["cls", "mean", "cls+mean", "attention", "distilled"]
Norm = Literal["layer", "rms"]


@dataclass(frozen=True)
class Rotary:
    """How a patch's place rotates its query and key (RoPE, arXiv 2104.09864, in two dimensions).

    Of a head's d / 2 pairs of numbers, half rotate with the row and half with the column: pair k of d / 4 by
    ``coordinate / temperature ** (4 k / d)`` radians. Coordinates are "centred", from -2 pi at an edge of the image to
    2 pi at the other, whatever its size (DINOv3, arXiv 2508.10104), or an "index", 0, 1, 2, ... (EVA-02, 2303.11331).

    Raises:
        ValueError: unknown ``coordinates``, or a temperature that isn't above 1.
    """

    coordinates: Literal["centred", "index"] = "centred"
    temperature: float = 100.0
    reference: Grid | None = None  # "index" is stretched to this grid, that of the pretraining (EVA-02's)
    offset: float = 0.0  # added to "index"

    def __post_init__(self) -> None:
        if self.coordinates not in ("centred", "index"):
            raise ValueError(f"unknown coordinates {self.coordinates!r}: choose centred or index")
        if not 1.0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be above 1 and finite, got {self.temperature}")
        if isinstance(self.reference, list):  # as JSON has it
            object.__setattr__(self, "reference", tuple(self.reference))

    def angles(self, grid: Grid, head_dim: int, like: Tensor) -> Tensor:
        """The angle of each pair of numbers at each patch, in radians: (N, d / 2)."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        steps = [torch.arange(side, dtype=dtype, device=like.device) for side in grid]
        if self.coordinates == "centred":
            places = [2 * math.pi * (2 * (i + 0.5) / side - 1) for i, side in zip(steps, grid, strict=True)]
        else:
            reference = self.reference or grid
            places = [(i + self.offset) / side * to for i, side, to in zip(steps, grid, reference, strict=True)]
        k = torch.arange(head_dim // 4, dtype=dtype, device=like.device)
        frequency = self.temperature ** (-4 * k / head_dim)  # (d/4,)
        y, x = torch.meshgrid(*places, indexing="ij")  # (rows, columns) each
        return torch.cat([y.flatten()[:, None] * frequency, x.flatten()[:, None] * frequency], dim=1)  # (N, d/2)


@dataclass(frozen=True)
class ModernConfig(ViTConfig):
    """Everything that defines a model but its weights: the fields of :class:`ViTConfig`, and one for each newer part.

    Raises:
        ValueError: a field out of its range, or two that don't go together; the message names them.
        TypeError: a size or a count that isn't an int.
    """

    gelu: Activation = "exact"  # type: ignore[assignment]  # more choices; "quick" is x * sigmoid(1.702 x), OpenAI's CLIP
    # "attention": a learned query attends to all patches (SigLIP's MAP head); "distilled": DeiT's second class token
    # (arXiv 2012.12877), and a head on both
    pool: Pooling = "cls"  # type: ignore[assignment]
    class_token: bool = True
    registers: int = 0  # tokens without a place or a task, after the class token (arXiv 2309.16588)
    pre_norm: bool = False  # a norm before the first block; the patch embedding has no bias then (CLIP)
    norm: Norm = "layer"  # or "rms", without mean and bias (arXiv 1910.07467)
    k_bias: bool = True  # with ``qkv_bias``; the softmax cancels it: BEiT, EVA and DINOv3 have none
    qk_norm: bool = False  # queries and keys normalised, each head's d numbers (arXiv 2302.05442)
    attention_norm: bool = False  # a norm before attention's projection (EVA-02's CLIP, BEiT-3)
    layer_scale: float | None = None  # each branch times a learned vector that starts so (arXiv 2103.17239)
    gated: bool = False  # MLP: silu(x W1) * (x W2) in place of gelu(x W1) (SwiGLU, arXiv 2002.05202)
    mlp_norm: bool = False  # a norm before the MLP's second layer (EVA-02, BEiT-3)
    rotary: Rotary | None = None
    position_bias: bool = False  # a learned number per head and relative offset of two patches (BEiT, arXiv 2106.08254)
    final_norm: bool = True  # after the last block
    pool_prefix: bool = False  # whether class token and registers take part in "mean" and "attention"
    pool_norm: bool = False  # a norm after pooling
    pool_heads: int | None = None  # of "attention"; None: num_heads
    pool_mlp_dim: int | None = None  # of "attention"; None: mlp_dim

    def __post_init__(self) -> None:
        for name, choices in (("gelu", Activation), ("pool", Pooling), ("norm", Norm)):
            if getattr(self, name) not in get_args(choices):
                good = ", ".join(get_args(choices))
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose one of {good}")
        # What both configs have is checked by the plain one.
        shared = {f.name: getattr(self, f.name) for f in fields(ViTConfig)}
        check_switches(self)
        plain = ViTConfig(**shared | {"gelu": "exact", "pool": "cls"})
        object.__setattr__(self, "image_size", plain.image_size)
        object.__setattr__(self, "patch_size", plain.patch_size)
        if isinstance(self.rotary, dict):  # as JSON has it
            object.__setattr__(self, "rotary", Rotary(**self.rotary))
        if not is_whole(self.registers) or self.registers < 0:
            raise ValueError(f"registers must be an int, 0 or more, got {self.registers!r}")
        if not self.class_token and self.pool in ("cls", "cls+mean", "distilled"):
            raise ValueError(f"pool={self.pool!r} reads the class token: class_token=True, or pool='mean'")
        if self.pool == "distilled" and self.position != "learned":
            raise ValueError(f"DeiT's second class token has a learned position: position='learned', {self.position!r}")
        if self.rotary is not None and self.head_dim % 4:
            raise ValueError(f"rotary positions need D / h divisible by 4, got {self.dim} / {self.num_heads}")
        if self.position_bias and (not self.class_token or self.registers):
            raise ValueError("position_bias is for a class token and patches (BEiT's): class_token=True, registers=0")
        heads = self.num_heads if self.pool_heads is None else self.pool_heads
        if self.pool == "attention" and (heads < 1 or self.dim % heads):
            raise ValueError(f"dim {self.dim} is not divisible by pool_heads {heads}: change one of them")

    @property
    def head_dim(self) -> int:
        """The width of a head, d = D / h."""
        return self.dim // self.num_heads

    @property
    def class_tokens(self) -> int:
        """The class token, and DeiT's second one."""
        return 2 if self.pool == "distilled" else int(self.class_token)

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the patches: class tokens and registers."""
        return self.class_tokens + self.registers

    @property
    def head_width(self) -> int:
        """The width of what the head reads: D, or 2 D for two tokens, or one and the mean."""
        return 2 * self.dim if self.pool in ("cls+mean", "distilled") else self.dim


def norm_layer(config: ModernConfig, width: int) -> nn.Module:
    """The config's kind of norm, over ``width`` numbers."""
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps)


class ModernEmbeddings(Embeddings):
    """Eq. 1, then the registers, then a norm: images (B, C, H, W) -> (B, T, D)."""

    def __init__(self, config: ModernConfig) -> None:
        super().__init__(
            config.image_size,
            config.patch_size,
            config.in_channels,
            config.dim,
            position=config.position,
            dropout=config.dropout,
            class_token=config.class_token,
        )
        if config.pool == "distilled":
            N = config.grid[0] * config.grid[1]
            self.cls_token = nn.Parameter(torch.zeros(1, 2, config.dim))
            self.position = nn.Parameter(nn.init.normal_(torch.empty(1, 2 + N, config.dim), std=0.02))
        if config.pre_norm:
            self.patches.proj.register_parameter("bias", None)
        self.class_tokens = config.class_tokens
        self.registers = nn.Parameter(torch.empty(1, config.registers, config.dim)) if config.registers else None
        if self.registers is not None:
            nn.init.normal_(self.registers, std=0.02)
        self.norm = norm_layer(config, config.dim) if config.pre_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        z = super().forward(images)  # (B, class tokens + N, D)
        # Registers have no place in the image, so they come after the positions were added.
        if self.registers is not None:
            registers = self.registers.expand(z.shape[0], -1, -1)
            z = torch.cat([z[:, : self.class_tokens], registers, z[:, self.class_tokens :]], dim=1)  # (B, T, D)
        return self.norm(z)  # (B, T, D)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + d / 2) of queries or keys (..., T, d) by angles whose cos and sin are (T, d / 2)."""
    a, b = x.chunk(2, dim=-1)  # (..., T, d/2) each
    rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)  # (..., T, d)
    return rotated.to(x.dtype)


def position_bias_index(grid: Grid, device: torch.device | str | None = None) -> Tensor:
    """The row of a position bias for each query and key, (T, T), T = 1 + N, in BEiT's order.

    BEiT counts an offset from the key to the query, :func:`bias_index` from the query to the key: the same list of
    offsets from its other end.
    """
    index, offsets = bias_index(grid, 1, device), count_offsets(grid)
    return torch.where(index < offsets, offsets - 1 - index, index)  # (T, T)


class ModernAttention(MultiHeadSelfAttention):
    """Self-attention (B, T, D) -> (B, T, D) that knows its tokens' places.

    ``cos`` and ``sin`` (T, d / 2) belong to the angles of each token, ``bias_rows`` (T, T) to the position bias. All
    three follow from the config's grid, so no file has them.
    """

    cos: Tensor
    sin: Tensor
    bias_rows: Tensor

    def __init__(self, config: ModernConfig) -> None:
        super().__init__(
            config.dim,
            config.num_heads,
            qkv_bias=config.qkv_bias and config.k_bias,
            attention_dropout=config.attention_dropout,
            dropout=config.dropout,
        )
        no_k_bias = config.qkv_bias and not config.k_bias
        self.bias = nn.Parameter(torch.zeros(2, config.dim)) if no_k_bias else None  # of q and v
        self.q_norm = norm_layer(config, config.head_dim) if config.qk_norm else nn.Identity()
        self.k_norm = norm_layer(config, config.head_dim) if config.qk_norm else nn.Identity()
        self.norm = norm_layer(config, config.dim) if config.attention_norm else nn.Identity()
        offsets = count_offsets(config.grid) + 3
        self.position_bias = nn.Parameter(torch.zeros(offsets, config.num_heads)) if config.position_bias else None
        self.config = config
        self._compute_places(torch.zeros((), device="cpu"))  # numbers, even where the model is built on "meta"

    def _compute_places(self, like: Tensor) -> None:
        """Compute ``cos``, ``sin`` and ``bias_rows`` on the device of ``like``, in its precision or float32's."""
        config = self.config
        if config.rotary is not None:
            angles = config.rotary.angles(config.grid, config.head_dim, like)  # (N, d/2)
            angles = pad(angles, (0, 0, config.prefix_tokens, 0))  # (T, d/2): an angle of 0 rotates nothing
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
        if config.position_bias:
            self.register_buffer("bias_rows", position_bias_index(config.grid, like.device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What ``.to``, ``.half`` and their like do. Places are computed anew: half precision would round angles."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._compute_places(next(self.parameters()))
        return self

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of tokens (B, T, D): q and k, normalised and rotated, and v, each (B, h, T, d)."""
        q, k, v = super().split_heads(x)  # each (B, h, T, d)
        if self.bias is not None:
            q_bias, v_bias = self.bias.to(q.dtype).view(2, self.num_heads, 1, -1)  # each (h, 1, d)
            q = q + q_bias
            v = v + v_bias
        q = self.q_norm(q)
        k = self.k_norm(k)
        if self.config.rotary is not None:
            q = rotate(q, self.cos, self.sin)
            k = rotate(k, self.cos, self.sin)
        return q, k, v

    def score_bias(self, q: Tensor) -> Tensor | None:
        """The position bias for queries (B, h, T, d), (h, T, T); or None."""
        if self.position_bias is None:
            return None
        return self.position_bias[self.bias_rows].permute(2, 0, 1).to(q.dtype)  # (h, T, T)

    def merge_heads(self, z: Tensor) -> Tensor:
        return self.norm(super().merge_heads(z))


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x): GELU's first approximation, which OpenAI's CLIP was trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ModernMLP(MLP):
    """The MLP (..., D) -> (..., D), gated or not, with a norm inside or not.

    A gated one has gate and value in one layer: ``fc1`` has 2 M rows, the gate's first.
    """

    def __init__(self, config: ModernConfig, hidden_dim: int, *, gated: bool = False, norm: bool = False) -> None:
        gelu: Gelu = "tanh" if config.gelu == "tanh" else "exact"
        super().__init__(config.dim, hidden_dim, dropout=config.dropout, gelu=gelu)
        self.gated = gated
        if gated:
            self.fc1 = nn.Linear(config.dim, 2 * hidden_dim)
            for weight in self.fc1.weight.chunk(2):
                nn.init.xavier_uniform_(weight)
            nn.init.zeros_(self.fc1.bias)
        if config.gelu == "quick":
            self.gelu = QuickGELU()  # type: ignore[assignment]
        self.norm = norm_layer(config, hidden_dim) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.gated:
            gate, value = self.fc1(x).chunk(2, dim=-1)  # (..., M) each
            x = silu(gate) * value  # (..., M)
        else:
            x = self.gelu(self.fc1(x))  # (..., M)
        return self.dropout(self.fc2(self.norm(self.dropout(x))))  # (..., D)


class LayerScale(nn.Module):
    """Each of D numbers times its own learned factor: a new block starts close to the identity."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), float(start)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma  # (B, T, D)


class ModernBlock(nn.Module):
    """Eq. 2 and 3, each branch scaled: (B, T, D) -> (B, T, D)."""

    def __init__(self, config: ModernConfig, drop_path: float) -> None:
        super().__init__()
        self.norm1 = norm_layer(config, config.dim)
        self.attention = ModernAttention(config)
        self.norm2 = norm_layer(config, config.dim)
        self.mlp = ModernMLP(config, config.mlp_dim, gated=config.gated, norm=config.mlp_norm)
        start = config.layer_scale
        self.scale1 = nn.Identity() if start is None else LayerScale(config.dim, start)
        self.scale2 = nn.Identity() if start is None else LayerScale(config.dim, start)
        self.drop_path = DropPath(drop_path)

    def forward(self, z: Tensor) -> Tensor:
        z = self.attend(z)  # (B, T, D), Eq. 2
        return z + self.drop_path(self.scale2(self.mlp(self.norm2(z))))  # (B, T, D), Eq. 3

    def attend(self, z: Tensor) -> Tensor:
        """Eq. 2 alone: tokens (B, T, D) after attention, before the MLP."""
        return z + self.drop_path(self.scale1(self.attention(self.norm1(z))))  # (B, T, D)

    def attention_weights(self, z: Tensor) -> Tensor:
        """The attention weights (B, h, T, T) that :meth:`forward` uses for tokens (B, T, D); rows sum to 1."""
        return self.attention.attention_weights(self.norm1(z))


class AttentionPool(nn.Module):
    """One learned query, the probe, attends to all tokens; then an MLP with its shortcut: (B, S, D) -> (B, D).

    Multihead attention pooling (arXiv 2106.04560, SigLIP's head).
    """

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        D = config.dim
        self.num_heads = config.pool_heads or config.num_heads
        self.probe = nn.Parameter(torch.empty(1, 1, D))
        nn.init.normal_(self.probe, std=D**-0.5)
        self.q, self.kv, self.proj = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.norm = norm_layer(config, D)
        self.mlp = ModernMLP(config, config.pool_mlp_dim or config.mlp_dim)

    def forward(self, z: Tensor) -> Tensor:
        q = self.q(self.probe).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (1, h, 1, d)
        kv = self.kv(z).unflatten(-1, (2, self.num_heads, -1))  # (B, S, 2, h, d)
        k, v = kv.permute(2, 0, 3, 1, 4).unbind()  # (B, h, S, d) each
        y = scaled_dot_product_attention(q.expand(z.shape[0], -1, -1, -1), k, v)  # (B, h, 1, d)
        y = self.proj(y.transpose(1, 2).flatten(2))  # (B, 1, D)
        return (y + self.mlp(self.norm(y)))[:, 0]  # (B, D)


class ModernViT(ViT):
    """Images (B, C, H, W) -> logits (B, K), or with ``num_classes`` 0 what a head would read."""

    config: ModernConfig

    def __init__(self, config: ModernConfig) -> None:
        embed = ModernEmbeddings(config)
        blocks = [
            ModernBlock(config, config.drop_path * layer / max(config.depth - 1, 1)) for layer in range(config.depth)
        ]
        pool = AttentionPool(config) if config.pool == "attention" else None
        super().__init__(config, embed=embed, blocks=blocks)
        self.norm = norm_layer(config, config.dim) if config.final_norm else nn.Identity()
        self.pool = pool
        self.pool_norm = norm_layer(config, config.head_width) if config.pool_norm else nn.Identity()
        if config.num_classes and config.head_width != config.dim:
            self.head = nn.Linear(config.head_width, config.num_classes)
            for parameter in self.head.parameters():
                nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        z = self.features(images)  # (B, T, D)
        patches = z if self.config.pool_prefix else z[:, self.config.prefix_tokens :]  # (B, N, D)
        if self.config.pool == "cls":
            y = z[:, 0]  # (B, D)
        elif self.config.pool == "mean":
            y = patches.mean(dim=1)  # (B, D)
        elif self.config.pool == "cls+mean":
            y = torch.cat([z[:, 0], patches.mean(dim=1)], dim=1)  # (B, 2 D)
        elif self.config.pool == "distilled":
            y = z[:, :2].flatten(1)  # (B, 2 D), the two class tokens end to end
        else:  # "attention"
            y = cast(AttentionPool, self.pool)(patches)  # (B, D)
        return self.head(self.pool_norm(y))  # (B, K), Eq. 4


# The parts of well-known models: ``ModernConfig.preset("S/16", **ARCHITECTURES["dinov3"])``.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "deit3": dict(layer_scale=1e-6),
    "beit": dict(
        position="none",
        position_bias=True,
        k_bias=False,
        layer_scale=0.1,
        pool="mean",
        final_norm=False,
        pool_norm=True,
    ),
    "clip": dict(pre_norm=True, gelu="quick", norm_eps=1e-5),
    "siglip": dict(class_token=False, pool="attention", gelu="tanh"),
    "eva02": dict(
        rotary=Rotary("index", 10_000.0, (16, 16)),
        k_bias=False,
        gated=True,
        mlp_norm=True,
        pool="mean",
        final_norm=False,
        pool_norm=True,
    ),
    "dinov2": dict(registers=4, layer_scale=1e-5),
    "dinov3": dict(position="none", rotary=Rotary(), k_bias=False, registers=4, layer_scale=1e-5, norm_eps=1e-5),
}


def build(config: ViTConfig) -> ViT:
    """The model of a config: plain, hybrid or modern.

    Raises:
        TypeError: a config of another kind.
    """
    if isinstance(config, ModernConfig):
        return ModernViT(config)
    if isinstance(config, HybridConfig):
        return HybridViT(config)
    if type(config) is not ViTConfig:
        raise TypeError(f"a ViTConfig, HybridConfig or ModernConfig is needed, got a {type(config).__name__}")
    return ViT(config)


def count_parameters(config: ViTConfig) -> int:
    """Parameters of a plain, hybrid or modern model, counted on a copy without memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(config).parameters())


def count_macs(config: ViTConfig) -> int:
    """Multiply-accumulates of the matrix products in one image's forward pass, as :func:`vit_tutorial.count_macs`."""
    with torch.device("meta"):
        model = build(config).to("meta").eval()
        image = torch.empty(1, config.in_channels, *as_pair(config.image_size, "image_size"))
    with FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops()) // 2
