"""Lesson 03: self-attention, one head and many (appendix A of arXiv 2010.11929; arXiv 1706.03762)."""

from numbers import Integral, Real
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d + bias) v, step by step (Eq. 6 and 7; the paper has no bias).

    Args:
        q: (..., T, d) queries.
        k: (..., S, d) keys.
        v: (..., S, e) values.
        bias: (..., T, S), added to the scores (lesson 11).

    Returns:
        The output (..., T, e), and the weights (..., T, S): each row is non-negative and sums to 1.

    Raises:
        ValueError: q and k of different widths, or k and v of different lengths.
        TypeError: a mask of bools as the bias.
    """
    check_shapes(q, k, v)
    check_bias(bias)
    # Dot products of d numbers grow with √d, and a softmax of large scores looks at one key alone: so divide by √d.
    # Dividing the queries is cheaper than dividing the scores: they are fewer numbers.
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)  # (..., T, S)
    if bias is not None:
        scores = scores + bias  # (..., T, S)
    weights = scores.softmax(dim=-1)  # (..., T, S): how much of each value
    return weights @ v, weights  # (..., T, e)


class MultiHeadSelfAttention(nn.Module):
    """h attentions side by side on slices of width d = D / h, then one projection (Eq. 5 to 8): (B, T, D) -> (B, T, D).

    Torch's fused kernel stores no weights; :meth:`attention_weights` computes them. A variant replaces
    :meth:`split_heads`, :meth:`score_bias` or :meth:`merge_heads`.

    Args:
        dim: D.
        num_heads: h, a divisor of D.
        qkv_bias: whether q, k and v have biases.
        attention_dropout: probability in [0, 1) on the attention weights.
        dropout: probability in [0, 1) on the output.

    Raises:
        ValueError: D below 1 or not divisible by h, or a probability outside [0, 1).
        TypeError: D or h that isn't an int, or a probability that isn't a number.

    q, k and v (the rows of ``qkv``, in this order) and ``proj`` start Xavier uniform, each as its own D x D matrix;
    biases start as zeros (the paper's code).
    """

    def __init__(
        self, dim: int, num_heads: int, *, qkv_bias: bool = True, attention_dropout: float = 0.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = int(num_heads)
        self.attention_dropout = as_probability(attention_dropout, "attention_dropout")
        # One large product makes queries, keys and values together, which is faster than three small ones.
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(as_probability(dropout, "dropout"))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give the parameters their first values."""
        bound = (3 / self.proj.in_features) ** 0.5  # Xavier's for D x D; as one matrix, qkv would get a smaller one
        for weight in (self.qkv.weight, self.proj.weight):
            nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(self.proj.bias)
        if self.qkv.bias is not None:
            nn.init.zeros_(self.qkv.bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # each (B, h, T, d)
        # The same result as dot_product_attention, from one kernel that never writes the T x T weights to memory.
        p = self.attention_dropout if self.training else 0.0
        z = scaled_dot_product_attention(q, k, v, attn_mask=self.score_bias(q), dropout_p=p)  # (B, h, T, d)
        # The heads worked side by side without seeing each other; the projection mixes their results.
        return self.dropout(self.proj(self.merge_heads(z)))  # (B, T, D)

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens (B, T, D), each (B, h, T, d)."""
        # The rows of qkv belong to q, then k, then v, and within each to head after head: the last axis is (3, h, d).
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, h, d)
        # Heads become a batch axis: one product handles all of them, and no head sees another.
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()  # each (B, h, T, d)
        return q, k, v

    def score_bias(self, q: Tensor) -> Tensor | None:
        """What is added to the scores of queries (B, h, T, d) before the softmax, floating point: here nothing."""
        return None

    def merge_heads(self, z: Tensor) -> Tensor:
        """The heads side by side: (B, h, T, d) -> (B, T, D)."""
        return z.transpose(1, 2).flatten(2)

    def attention_weights(self, x: Tensor) -> Tensor:
        """The weights (B, h, T, T) that :meth:`forward` uses for ``x`` (B, T, D), before dropout; rows sum to 1."""
        q, k, v = self.split_heads(x)  # each (B, h, T, d)
        return dot_product_attention(q, k, v, self.score_bias(q))[1]


def check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise a ValueError unless each query has a product with each key, and each key a value."""
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        shapes = f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        raise ValueError(f"q, k and v must be (..., T, d), (..., S, d) and (..., S, e), got {shapes}")


def check_bias(bias: Tensor | None) -> None:
    """Raise a TypeError for a mask of bools, which would be added as 0 and 1."""
    if bias is not None and not bias.is_floating_point():
        raise TypeError(
            "the bias is added to the scores, so it must be floating point: torch.where(mask, 0.0, -torch.inf)"
        )


def check_heads(dim: Any, num_heads: Any) -> None:
    """Raise a TypeError or ValueError unless the number of heads is a whole number that divides the width."""
    for value, name in ((dim, "dim"), (num_heads, "num_heads")):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an int, got {value!r}")
    if dim < 1:
        raise ValueError(f"the width must be at least 1, got {dim}")
    if num_heads < 1 or dim % num_heads:
        good = [h for h in range(1, min(dim, 64) + 1) if dim % h == 0]
        raise ValueError(f"width {dim} is not divisible by {num_heads} heads: num_heads may be one of {good}")


def as_probability(value: float, name: str) -> float:
    """A number in [0, 1) as a float; ``name`` is what an error calls it."""
    probability = as_number(value, name)
    if not 0.0 <= probability < 1.0:
        raise ValueError(f"{name} is a probability in [0, 1), got {value}: 0.0 switches it off")
    return probability


def as_number(value: float, name: str) -> float:
    """A number, NumPy's kind included, as a float; ``name`` is what an error calls it."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return float(value)
