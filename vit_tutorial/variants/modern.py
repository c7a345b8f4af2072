"""Lesson 15: the Vision Transformer with the parts that came after 2020, each of them an option.

>>> import torch
>>> from vit_tutorial import modern
>>> config = modern.ModernConfig.preset("S/14", image_size=98, registers=4, layer_scale=1e-5, num_classes=0)  # DINOv2's
>>> modern.ModernViT(config)(torch.rand(1, 3, 98, 98)).shape
torch.Size([1, 384])

Everything else is as in :mod:`vit_tutorial.vit`; with every option at its default it is the same model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention, silu

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.embeddings import Embeddings, Grid
from vit_tutorial.encoder import DropPath
from vit_tutorial.mlp import MLP, Gelu
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.hybrid import HybridConfig, HybridViT
from vit_tutorial.variants.modern_config import ARCHITECTURES, ModernConfig, Rotary
from vit_tutorial.variants.positions import bias_index, count_offsets
from vit_tutorial.vit import ViT, ViTConfig

__all__ = [
    "ARCHITECTURES",
    "AttentionPool",
    "LayerScale",
    "ModernAttention",
    "ModernBlock",
    "ModernConfig",
    "ModernEmbeddings",
    "ModernMLP",
    "ModernViT",
    "QuickGELU",
    "Rotary",
    "build",
    "count_macs",
    "count_parameters",
    "norm_layer",
    "position_bias_index",
    "rotate",
]


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
            class_token=config.class_tokens > 0,
        )
        if config.class_tokens > 1:  # Eq. 1 has one: more of them, with a position each
            tokens = config.num_tokens - config.registers
            self.cls_token = nn.Parameter(torch.zeros(1, config.class_tokens, config.dim))
            self.position = nn.Parameter(nn.init.normal_(torch.empty(1, tokens, config.dim), std=0.02))
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

    ``cos`` and ``sin`` (T, d / 2) belong to the angles of each token, ``bias_index`` (T, T) to the position bias. All
    three follow from the config's grid, so no file has them.
    """

    cos: Tensor
    sin: Tensor
    bias_index: Tensor

    def __init__(self, config: ModernConfig) -> None:
        super().__init__(
            config.dim,
            config.num_heads,
            qkv_bias=config.qkv_bias and config.k_bias,
            attention_dropout=config.attention_dropout,
            dropout=config.dropout,
        )
        no_k_bias = config.qkv_bias and not config.k_bias
        self.qv_bias = nn.Parameter(torch.zeros(2, config.dim)) if no_k_bias else None
        self.q_norm = norm_layer(config, config.head_dim) if config.qk_norm else nn.Identity()
        self.k_norm = norm_layer(config, config.head_dim) if config.qk_norm else nn.Identity()
        self.norm = norm_layer(config, config.dim) if config.attention_norm else nn.Identity()
        offsets = count_offsets(config.grid) + 3
        self.position_bias = nn.Parameter(torch.zeros(offsets, config.num_heads)) if config.position_bias else None
        self.config = config
        self._compute_buffers(torch.zeros((), device="cpu"))  # numbers, even where the model is built on "meta"

    def _compute_buffers(self, like: Tensor) -> None:
        """Compute ``cos``, ``sin`` and ``bias_index`` on the device of ``like``, in its precision or float32's."""
        config = self.config
        if config.rotary is not None:
            angles = config.rotary.angles(config.grid, config.head_dim, like)  # (N, d/2)
            angles = pad(angles, (0, 0, config.prefix_tokens, 0))  # (T, d/2): an angle of 0 rotates nothing
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
        if config.position_bias:
            self.register_buffer("bias_index", position_bias_index(config.grid, like.device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What ``.to``, ``.half`` and their like do. Places are computed anew: half precision would round angles."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._compute_buffers(next(self.parameters()))
        return self

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of tokens (B, T, D): q and k, normalised and rotated, and v, each (B, h, T, d)."""
        q, k, v = super().split_heads(x)  # each (B, h, T, d)
        if self.qv_bias is not None:
            q_bias, v_bias = self.qv_bias.to(q.dtype).view(2, self.num_heads, 1, -1)  # each (h, 1, d)
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
        return self.position_bias[self.bias_index].permute(2, 0, 1).to(q.dtype)  # (h, T, T)

    def merge_heads(self, z: Tensor) -> Tensor:
        return self.norm(super().merge_heads(z))


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x): GELU's first approximation, which OpenAI's CLIP was trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ModernMLP(MLP):
    """The MLP (..., D) -> (..., D), gated or not, with a norm inside or not.

    A gated one has gate and value in one layer: ``fc1`` has 2 M rows, the gate's first.

    Args:
        config: of the model; its width, dropout, activation function and kind of norm.
        hidden_dim: M.
        gated: silu(x W1) * (x W2) in place of the activation function.
        norm: a norm of the M numbers before the second layer.
    """

    def __init__(self, config: ModernConfig, hidden_dim: int, *, gated: bool = False, norm: bool = False) -> None:
        gelu: Gelu = "tanh" if config.gelu == "tanh" else "exact"
        super().__init__(config.dim, hidden_dim, dropout=config.dropout, gelu=gelu)
        self.gated = gated
        if gated:
            self.fc1 = nn.Linear(config.dim, 2 * hidden_dim)
            for weight in self.fc1.weight.chunk(2):  # each by itself, so that 2 M rows don't make it smaller
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
        """Eq. 2: tokens (B, T, D) after attention, before the MLP."""
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
        self.mlp = ModernMLP(config, config.mlp_dim)

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
        blocks = [ModernBlock(config, config.drop_path_of(layer)) for layer in range(config.depth)]
        pool = AttentionPool(config) if config.pool == "attention" else None
        super().__init__(config, embed=embed, blocks=blocks)
        self.norm = norm_layer(config, config.dim) if config.final_norm else nn.Identity()
        self.pool = pool
        self.pool_norm = norm_layer(config, config.head_width) if config.pool_norm else nn.Identity()
        if config.num_classes and config.head_width != config.dim:
            self.head = nn.Linear(config.head_width, config.num_classes)
            self.reset_parameters()

    def forward(self, images: Tensor) -> Tensor:
        z = self.features(images)  # (B, T, D)
        patches = z if self.config.pool_prefix else z[:, self.config.prefix_tokens :]  # (B, N, D)
        class_tokens = z[:, : self.config.class_tokens].flatten(1)  # (B, D) of one, (B, 2 D) of DeiT's two
        if self.config.pool == "cls":
            y = class_tokens
        elif self.config.pool == "mean":
            y = patches.mean(dim=1)  # (B, D)
        elif self.config.pool == "cls+mean":
            y = torch.cat([class_tokens, patches.mean(dim=1)], dim=1)  # (B, 2 D)
        else:  # "attention"
            y = cast(AttentionPool, self.pool)(patches)  # (B, D)
        return self.head(self.pool_norm(y))  # (B, K), Eq. 4


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
    from torch.utils.flop_counter import FlopCounterMode  # it loads Triton, which takes a tenth of a second

    with torch.device("meta"):
        model = build(config).to("meta").eval()
        image = torch.empty(1, config.in_channels, *as_pair(config.image_size, "image_size"))
    with FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops()) // 2
