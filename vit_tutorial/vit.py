"""Lesson 06: the Vision Transformer (Figure 1, Eq. 1 to 4 and Table 1 of arXiv 2010.11929)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, Literal, Self, cast

from torch import Tensor, nn

from vit_tutorial.attention import as_number, as_probability
from vit_tutorial.embeddings import Embeddings, Position, check_sincos_dim
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_count, as_pair, check_choice, grid_shape

Pool = Literal["cls", "mean"]
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

    ``image_size`` and ``patch_size`` may be one number for a square; after construction each is a pair of ints.

    Raises:
        ValueError: a field out of its range, or two that don't go together; the message names them.
        TypeError: a field of another type, such as a size that isn't an int.
    """

    image_size: Size = 224  # (H, W), in pixels
    patch_size: Size = 16  # (height, width)
    in_channels: int = 3  # C
    num_classes: int = 1000  # K; 0: no head, the model returns the features (B, D)
    dim: int = 768  # D
    depth: int = 12  # L
    num_heads: int = 12  # h
    mlp_dim: int = 3072  # M
    qkv_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # of the last block
    norm_eps: float = 1e-6
    gelu: Gelu = "exact"  # or "tanh"
    position: Position = "learned"  # or "sincos", "none"
    pool: Pool = "cls"  # or "mean": no class token then

    def __post_init__(self) -> None:
        # Sizes become pairs here, so that all other code reads (height, width), and NumPy's numbers become Python's,
        # which JSON can hold. A frozen dataclass has no other setter.
        object.__setattr__(self, "image_size", as_pair(self.image_size, "image_size"))
        object.__setattr__(self, "patch_size", as_pair(self.patch_size, "patch_size"))
        grid_shape(self.image_size, self.patch_size)
        for name in ("in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim"):
            count = as_count(getattr(self, name), name, least=0 if name == "num_classes" else 1)
            object.__setattr__(self, name, count)
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}: change one of them")
        for name in ("dropout", "attention_dropout", "drop_path"):
            object.__setattr__(self, name, as_probability(getattr(self, name), name))
        object.__setattr__(self, "norm_eps", as_number(self.norm_eps, "norm_eps"))
        if not 0.0 < self.norm_eps < math.inf:
            raise ValueError(f"norm_eps must be positive and finite, got {self.norm_eps}: the paper's code has 1e-6")
        check_choice(self.gelu, "gelu", Gelu)
        check_choice(self.position, "position", Position)
        check_choice(self.pool, "pool", Pool)
        check_switches(self)
        if self.position == "sincos":
            check_sincos_dim(self.dim)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """``preset("B/16", num_classes=10)``: a size, a slash, a patch size. Raises ValueError for an unknown one."""
        size, _, patch = str(name).partition("/")
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
        """Tokens before the patches: 1, the class token, or 0 where the mean is pooled."""
        return 1 if self.pool == "cls" else 0

    @property
    def num_tokens(self) -> int:
        """T: the patches, and the tokens before them."""
        return self.prefix_tokens + self.grid[0] * self.grid[1]

    def drop_path_of(self, layer: int) -> float:
        """The drop path of a block: it grows linearly from 0 in the first one to ``drop_path`` in the last."""
        return self.drop_path * layer / max(self.depth - 1, 1)


def check_switches(config: ViTConfig) -> None:
    """Raise a TypeError for a field that is on or off, and neither True nor False: "False" would be on."""
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            raise TypeError(f"{field.name} must be True or False, got {value!r}")


class ViT(nn.Module):
    """The Vision Transformer: images (B, C, H, W) -> logits (B, K); with ``num_classes=0``, the features (B, D).

    The head starts as zeros, so that every class is equally likely at first (the paper's code, and its section 3.2);
    the other layers as their modules say. Images that don't fit raise what :class:`PatchEmbedding` raises.

    Args:
        config: the sizes.
        embed: images (B, C, H, W) -> tokens (B, T, D), used instead of :class:`Embeddings`.
        blocks: (B, T, D) -> (B, T, D) each, used instead of L times :class:`EncoderBlock`.

    Raises:
        TypeError: not a ViTConfig, or a variant's without the parts that it describes.

    The tokens (B, T, D) after block 9 are a loop away, in this model and in every variant::

        z = model.embed(images)
        for block in model.blocks[:10]:
            z = block(z)
    """

    def __init__(
        self, config: ViTConfig, *, embed: nn.Module | None = None, blocks: Iterable[nn.Module] | None = None
    ) -> None:
        super().__init__()
        if type(config) is not ViTConfig and embed is None and blocks is None:
            raise TypeError(
                f"ViT builds a plain ViTConfig, got a {type(config).__name__}: vt.ViTConfig(**fields), or for a "
                "variant's config the model of its own module"
            )
        self.config = config
        self.reads_cls_token = config.pool == "cls"  # in forward, TorchScript can't read a config
        self.embed: nn.Module = _embeddings(config) if embed is None else embed
        self.blocks = nn.Sequential(*(encoder_blocks(config) if blocks is None else blocks))
        self.norm: nn.Module = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.head = nn.Linear(config.dim, config.num_classes) if config.num_classes else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give the head its first values."""
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def init_weights(self) -> None:
        """Give all parameters their first values, in place: for a model from the meta device, after ``to_empty``.

        With the same seed they are those that the constructor draws.

        Raises:
            TypeError: a variant's model, or a part that has parameters or buffers and no ``reset_parameters``.
        """
        if type(self.config) is not ViTConfig:
            raise TypeError(
                f"init_weights is for a plain ViT, got a {type(self).__name__}: build it without the meta device, or "
                "load weights into it"
            )
        self.apply(_reset)  # layers before what they are part of, as in the constructors

    def forward(self, images: Tensor) -> Tensor:
        z = self.features(images)  # (B, T, D)
        # By now every token knows of all others, so one vector can stand for the whole image.
        y = z[:, 0] if self.reads_cls_token else z.mean(dim=1)  # (B, D)
        # No softmax here: the loss takes logits, and the largest logit is the most likely class anyway.
        return self.head(y)  # (B, K), Eq. 4

    def features(self, images: Tensor) -> Tensor:
        """Every token after the last norm: (B, C, H, W) -> (B, T, D)."""
        z = self.embed(images)  # (B, T, D), Eq. 1
        # Every block maps (B, T, D) to (B, T, D), so depth is a loop.
        for block in self.blocks:
            z = block(z)  # (B, T, D), Eq. 2 and 3
        # Blocks normalise what they read, not what they add, so the sum has grown: one last norm.
        return self.norm(z)  # (B, T, D)

    def attention_maps(self, images: Tensor, layers: Iterable[int] | None = None) -> dict[int, Tensor]:
        """The attention weights of the layers asked for (None: all), ``{layer: (B, h, T, T)}``; rows sum to 1.

        The forward pass keeps its fused kernel and stops at the last layer asked for; only those layers' weights are
        computed beside it. Layers count from 0, or from the end as -1. Gradients flow: ``torch.inference_mode()``
        saves their memory.

        Raises:
            ValueError: a layer that the model doesn't have.
            TypeError: one layer in place of a list.
        """
        if isinstance(layers, Integral):
            raise TypeError(f"layers must be a list, got {layers}: [{layers}]")
        depth = len(self.blocks)
        requested = list(range(depth) if layers is None else layers)
        for layer in requested:
            if not isinstance(layer, Integral) or not -depth <= layer < depth:
                raise ValueError(f"there is no layer {layer!r}: the model has layers 0 to {depth - 1}")
        indices = {layer % depth for layer in requested}
        last = max(indices, default=-1)
        weights: dict[int, Tensor] = {}
        z = self.embed(images)  # (B, T, D)
        for index, block in enumerate(self.blocks[: last + 1]):
            if index in indices:
                weights[index] = cast(EncoderBlock, block).attention_weights(z)  # (B, h, T, T)
            if index < last:  # nothing reads what the last one returns
                z = block(z)  # (B, T, D)
        return {layer: weights[layer % depth] for layer in requested}


def _reset(part: nn.Module) -> None:
    reset = getattr(part, "reset_parameters", None)
    if reset is not None:
        reset()
    elif own := [*dict(part.named_parameters(recurse=False)), *dict(part.named_buffers(recurse=False))]:
        raise TypeError(f"{type(part).__name__} has {own[0]}, and no reset_parameters() to give it its first values")


def _embeddings(config: ViTConfig) -> Embeddings:
    return Embeddings(
        config.image_size,
        config.patch_size,
        config.in_channels,
        config.dim,
        position=config.position,
        dropout=config.dropout,
        class_token=bool(config.prefix_tokens),
    )


def encoder_blocks(config: ViTConfig, kind: type[EncoderBlock] = EncoderBlock) -> list[EncoderBlock]:
    """The L blocks that a config describes; ``kind`` is a variant's subclass with the same arguments."""
    return [
        kind(
            config.dim,
            config.num_heads,
            config.mlp_dim,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            drop_path=config.drop_path_of(layer),
            norm_eps=config.norm_eps,
            gelu=config.gelu,
            qkv_bias=config.qkv_bias,
        )
        for layer in range(config.depth)
    ]


def count_parameters(config: ViTConfig) -> int:
    """Parameters by formula: 86,567,656 for B/16. Fixed sine-cosine positions are not learned and don't count."""
    check_plain(config)
    C, D, M, L = config.in_channels, config.dim, config.mlp_dim, config.depth
    P, Q = as_pair(config.patch_size, "patch_size")
    # A linear layer from n to m numbers has n m weights and m biases; a norm has a factor and a shift for each number.
    patches = (C * P * Q + 1) * D
    cls_token = config.prefix_tokens * D
    position = config.num_tokens * D if config.position == "learned" else 0
    norm = 2 * D
    attention = 3 * D * (D + config.qkv_bias) + D * (D + 1)
    mlp = M * (D + 1) + D * (M + 1)
    head = config.num_classes * (D + 1)
    return patches + cls_token + position + L * (norm + attention + norm + mlp) + norm + head


def count_macs(config: ViTConfig) -> int:
    """Multiply-accumulates of the matrix products in one image's forward pass, by formula: 17.564e9 for B/16."""
    check_plain(config)
    C, D, M, L, T = config.in_channels, config.dim, config.mlp_dim, config.depth, config.num_tokens
    P, Q = as_pair(config.patch_size, "patch_size")
    N = T - config.prefix_tokens
    # A layer from n to m numbers costs n m for each token. Only scores and weighted sums grow with T squared.
    patches = N * C * P * Q * D
    qkv_and_proj = T * 4 * D * D
    scores_and_sums = 2 * T * T * D
    mlp = T * 2 * D * M
    return patches + L * (qkv_and_proj + scores_and_sums + mlp) + D * config.num_classes


def check_plain(config: ViTConfig) -> None:
    """Raise a TypeError for the config of a variant, whose parts the formulas don't know."""
    if type(config) is not ViTConfig:
        raise TypeError(
            f"the formula is that of a plain ViTConfig, got a {type(config).__name__}: of a model give "
            "model.config; vt.modern.count_parameters and vt.modern.count_macs count what a variant's config builds"
        )
