"""Lesson 15: what a modern Vision Transformer's config says, and the configs of well-known models."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from vit_tutorial.attention import as_number
from vit_tutorial.embeddings import Grid
from vit_tutorial.patches import as_count, check_choice
from vit_tutorial.vit import ViTConfig, check_switches

Activation = Literal["exact", "tanh", "quick"]
Pooling = Literal["cls", "mean", "cls+mean", "attention"]
Norm = Literal["layer", "rms"]
Coordinates = Literal["centred", "index"]


@dataclass(frozen=True)
class Rotary:
    """How a patch's place rotates its query and key (RoPE, arXiv 2104.09864, in two dimensions).

    Of a head's d / 2 pairs of numbers, half rotate with the row and half with the column: pair k of d / 4 by
    ``coordinate / temperature ** (4 k / d)`` radians. Coordinates are "centred", from -2 pi at an edge of the image to
    2 pi at the other, whatever its size (DINOv3, arXiv 2508.10104), or an "index", 0, 1, 2, ... (EVA-02, 2303.11331).

    Raises:
        ValueError: unknown ``coordinates``, or a temperature that isn't above 1.
    """

    coordinates: Coordinates = "centred"
    temperature: float = 100.0
    reference: Grid | None = None  # "index" is stretched to this grid, that of the pretraining (EVA-02's)
    offset: float = 0.0  # added to "index"

    def __post_init__(self) -> None:
        check_choice(self.coordinates, "coordinates", Coordinates)
        if not 1.0 < as_number(self.temperature, "temperature") < math.inf:
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
        TypeError: a field of another type, such as a size that isn't an int.
    """

    gelu: Activation = "exact"  # type: ignore[assignment]  # more choices; "quick" is x * sigmoid(1.702 x), OpenAI's CLIP
    # "cls" reads all class tokens, end to end; "attention": a learned query attends to all patches (SigLIP's MAP head)
    pool: Pooling = "cls"  # type: ignore[assignment]
    class_tokens: int = 1  # 0 for none, 2 for DeiT's, whose second one learned from a teacher (arXiv 2012.12877)
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

    def __post_init__(self) -> None:
        check_choice(self.gelu, "gelu", Activation)
        check_choice(self.pool, "pool", Pooling)
        check_choice(self.norm, "norm", Norm)
        check_switches(self)
        # What both configs have is checked by the plain one, which has sizes and counts as they should be.
        shared = {f.name: getattr(self, f.name) for f in fields(ViTConfig) if f.name not in ("gelu", "pool")}
        plain = ViTConfig(**shared)
        for name in shared:
            object.__setattr__(self, name, getattr(plain, name))
        if isinstance(self.rotary, dict):  # as JSON has it
            object.__setattr__(self, "rotary", Rotary(**self.rotary))
        for name in ("class_tokens", "registers"):
            object.__setattr__(self, name, as_count(getattr(self, name), name, least=0))
        if self.layer_scale is not None:
            object.__setattr__(self, "layer_scale", as_number(self.layer_scale, "layer_scale"))
            if not math.isfinite(self.layer_scale):
                raise ValueError(f"layer_scale must be finite, got {self.layer_scale}: 1e-5 and 0.1 are usual")
        if self.class_tokens == 0 and self.pool in ("cls", "cls+mean"):
            raise ValueError(f"pool={self.pool!r} reads the class token: class_tokens=1, or pool='mean'")
        if self.class_tokens > 1 and self.position != "learned":
            raise ValueError(f"several class tokens have learned positions: position='learned', not {self.position!r}")
        if self.rotary is not None and self.head_dim % 4:
            raise ValueError(f"rotary positions need D / h divisible by 4, got {self.dim} / {self.num_heads}")
        if self.position_bias and self.prefix_tokens != 1:
            raise ValueError("position_bias is for one class token and patches (BEiT's): class_tokens=1, registers=0")
        heads = self.num_heads if self.pool_heads is None else as_count(self.pool_heads, "pool_heads")
        if self.pool == "attention" and self.dim % heads:
            raise ValueError(f"dim {self.dim} is not divisible by pool_heads {heads}: change one of them")

    @property
    def head_dim(self) -> int:
        """The width of a head, d = D / h."""
        return self.dim // self.num_heads

    @property
    def prefix_tokens(self) -> int:
        """Tokens before the patches: class tokens and registers."""
        return self.class_tokens + self.registers

    @property
    def head_width(self) -> int:
        """The width of what the head reads: D for each class token, D for a mean or an attention pool."""
        vectors = {"cls": self.class_tokens, "cls+mean": self.class_tokens + 1}.get(self.pool, 1)
        return vectors * self.dim


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
    "siglip": dict(class_tokens=0, pool="attention", gelu="tanh"),
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
