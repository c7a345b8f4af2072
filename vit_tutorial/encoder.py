"""Lesson 05: one block of the encoder (Eq. 2 and 3 of arXiv 2010.11929)."""

from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention, as_probability
from vit_tutorial.mlp import MLP, Gelu


class DropPath(nn.Module):
    """Stochastic depth (arXiv 1603.09382): in training, zero a branch (B, ...) for whole samples at a time.

    Samples are dropped with probability ``p`` in [0, 1); the others are divided by 1 - p, which keeps the expectation.

    Raises:
        ValueError: a probability outside [0, 1).
        TypeError: one that isn't a number.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = as_probability(p, "p")

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        # One coin toss for each sample, not for each number: a dropped sample skips the branch entirely.
        shape = [1] * x.ndim
        shape[0] = x.shape[0]
        mask = x.new_empty(shape).bernoulli_(1 - self.p)  # (B, 1, ..., 1), 0 drops
        return x * mask / (1 - self.p)  # (B, ...)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class EncoderBlock(nn.Module):
    """z' = MSA(LN(z)) + z (Eq. 2), then MLP(LN(z')) + z' (Eq. 3): (B, T, D) -> (B, T, D).

    Args:
        dim: D.
        num_heads: h, a divisor of D.
        mlp_dim: M.
        dropout: probability in [0, 1) on each branch's dense layers.
        attention_dropout: probability in [0, 1) on the attention weights.
        drop_path: probability in [0, 1) that a sample skips a branch.
        norm_eps: epsilon of both layer norms: 1e-6 in the paper's code, 1e-5 in torch, 1e-12 in Hugging Face.
        gelu: "exact" or "tanh".
        qkv_bias: whether q, k and v have biases.

    Raises:
        ValueError, TypeError: what :class:`DropPath`, :class:`MultiHeadSelfAttention` or :class:`MLP` refuses.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_dim: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        norm_eps: float = 1e-6,
        gelu: Gelu = "exact",
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attention = MultiHeadSelfAttention(
            dim, num_heads, qkv_bias=qkv_bias, attention_dropout=attention_dropout, dropout=dropout
        )
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, mlp_dim, dropout=dropout, gelu=gelu)
        self.drop_path = DropPath(drop_path)

    def forward(self, z: Tensor) -> Tensor:
        z = self.attend(z)  # (B, T, D), Eq. 2
        # The branch reads a normalised copy and adds its result; the stream itself passes unchanged. So gradients reach
        # the first block directly, however many blocks there are.
        return z + self.drop_path(self.mlp(self.norm2(z)))  # (B, T, D), Eq. 3

    def attend(self, z: Tensor) -> Tensor:
        """The first half of the block, Eq. 2: tokens (B, T, D) after attention, before the MLP."""
        # The norm comes first (pre-norm), inside the branch: however large the stream, attention reads steady numbers.
        return z + self.drop_path(self.attention(self.norm1(z)))  # (B, T, D)

    def attention_weights(self, z: Tensor) -> Tensor:
        """The attention weights (B, h, T, T) that :meth:`forward` uses for tokens (B, T, D); rows sum to 1."""
        return self.attention.attention_weights(self.norm1(z))
