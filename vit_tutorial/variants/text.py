"""Lesson 17: the text towers of CLIP (arXiv 2103.00020) and SigLIP (arXiv 2303.15343): texts as vectors.

>>> import torch
>>> from vit_tutorial.variants import text
>>> config = text.TextConfig(vocab_size=100, dim=64, depth=2, num_heads=1, mlp_dim=256, out_dim=32)
>>> text.TextTower(config).eval()(torch.randint(100, (3, 77))).shape
torch.Size([3, 32])

Its blocks are the encoder's own; in CLIP's a token attends only to itself and to earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import as_count, check_choice
from vit_tutorial.variants.modern import QuickGELU
from vit_tutorial.variants.modern_config import Activation


@dataclass(frozen=True)
class TextConfig:
    """Everything that defines a text tower but its weights; the defaults are those of CLIP B/32 and B/16.

    Raises:
        ValueError: unknown ``gelu``, a count below 1, or D not divisible by h.
        TypeError: a count that isn't a whole number.
    """

    vocab_size: int = 49_408  # V, different tokens
    context: int = 77  # the most tokens of a text
    dim: int = 512  # D
    depth: int = 12  # L
    num_heads: int = 8  # h
    mlp_dim: int = 2048  # M
    out_dim: int = 512  # E, of the space that texts and pictures share
    gelu: Activation = "quick"
    norm_eps: float = 1e-5
    causal: bool = True  # CLIP: a token attends to earlier ones, and the end-of-text token is read; else the last is
    end_token: int | None = None  # its number; None: the largest number in each text
    head_bias: bool = False  # of the projection (SigLIP)

    def __post_init__(self) -> None:
        check_choice(self.gelu, "gelu", Activation)
        for name in ("vocab_size", "context", "dim", "depth", "num_heads", "mlp_dim", "out_dim"):
            object.__setattr__(self, name, as_count(getattr(self, name), name))
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}: change one of them")


class CausalAttention(MultiHeadSelfAttention):
    """Self-attention (B, T, D) -> (B, T, D) in which token t attends to the tokens 0 to t."""

    def score_bias(self, q: Tensor) -> Tensor:
        """-inf for each later token, of queries (B, h, T, d): (T, T)."""
        T = q.shape[-2]
        return torch.full((T, T), -torch.inf, dtype=q.dtype, device=q.device).triu(1)  # (T, T)


class TextTower(nn.Module):
    """Texts as numbers of tokens (B, T), int64 -> embeddings (B, E), in the space of the image tower's.

    Without a causal mask all T = ``context`` tokens are needed, padding included: SigLIP was trained so.

    Raises:
        ValueError: (of the call) no batch of texts, or more tokens than ``context``.
    """

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        D = config.dim
        self.tokens = nn.Embedding(config.vocab_size, D)
        self.position = nn.Parameter(torch.empty(1, config.context, D))
        for weight in (self.tokens.weight, self.position):
            nn.init.normal_(weight, std=0.02)
        self.blocks = nn.Sequential()
        for _ in range(config.depth):
            gelu: Gelu = "tanh" if config.gelu == "tanh" else "exact"
            block = EncoderBlock(D, config.num_heads, config.mlp_dim, norm_eps=config.norm_eps, gelu=gelu)
            # The encoder's own block, with CLIP's two changes.
            if config.causal:
                block.attention = CausalAttention(D, config.num_heads)
            if config.gelu == "quick":
                block.mlp.gelu = QuickGELU()  # type: ignore[assignment]
            self.blocks.append(block)
        self.norm = nn.LayerNorm(D, eps=config.norm_eps)
        self.head = nn.Linear(D, config.out_dim, bias=config.head_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        z = self.features(tokens)  # (B, T, D)
        # SigLIP reads the last token, as a rule padding; it has seen all others. CLIP's token sees only what comes
        # before it, so the one that ends the text is read.
        if not self.config.causal:
            return self.head(z[:, -1])  # (B, E)
        if self.config.end_token is None:
            place = tokens.argmax(dim=1)  # (B,)
        else:
            place = (tokens == self.config.end_token).int().argmax(dim=1)  # (B,), the first
        return self.head(z[torch.arange(len(z), device=z.device), place])  # (B, E)

    def features(self, tokens: Tensor) -> Tensor:
        """Every token after the last norm: (B, T) -> (B, T, D)."""
        if tokens.ndim != 2 or tokens.shape[1] > self.config.context:
            raise ValueError(f"tokens must be (B, T), T at most {self.config.context}, got {tuple(tokens.shape)}")
        z = self.tokens(tokens) + self.position[:, : tokens.shape[1]]  # (B, T, D)
        return self.norm(self.blocks(z))  # (B, T, D)
