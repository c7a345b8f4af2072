"""Lesson 04: the MLP of an encoder block (section 3.1 of arXiv 2010.11929; GELU: arXiv 1606.08415)."""

from typing import Literal, get_args

from torch import Tensor, nn

Gelu = Literal["exact", "tanh"]


class MLP(nn.Module):
    """Two linear layers with a GELU between them, on each token by itself: (..., D) -> (..., D).

    Args:
        dim: D.
        hidden_dim: M, four times D in the paper.
        dropout: probability in [0, 1], after the GELU and after the second layer (the paper's code).
        gelu: "exact" (erf) or "tanh" (its approximation, which JAX uses by default).

    Raises:
        ValueError: another ``gelu``, or what torch's layers refuse.

    Weights start Xavier uniform, biases normal with standard deviation 1e-6 (the paper's code).
    """

    def __init__(self, dim: int, hidden_dim: int, *, dropout: float = 0.0, gelu: Gelu = "exact") -> None:
        super().__init__()
        # check_choice of patches.py, written out, so that this file needs no other.
        if gelu not in get_args(Gelu):
            raise ValueError(f"unknown gelu {gelu!r}: choose one of {', '.join(get_args(Gelu))}")
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.gelu = nn.GELU(approximate="tanh" if gelu == "tanh" else "none")
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give the parameters their first values."""
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        # Attention moved information between tokens. Here each token is transformed by itself, with shared weights.
        # Without the GELU between them, the two layers would collapse into one matrix.
        x = self.dropout(self.gelu(self.fc1(x)))  # (..., M)
        return self.dropout(self.fc2(x))  # (..., D)
