"""Several models of one shape trained at once, which a small model's many short operations make worthwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Batch = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # inputs (B, ...) and answers (B,), drawn at random


def fit(
    models: Sequence[nn.Module], seeds: Sequence[int], batch: Batch, rate: float, *, steps: int, warmup: int = 0
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Train with Adam, each model on batches of its own seed. Their weights are stacked, and nothing mixes them.

    Returns:
        What gives all models' logits (models, B, K) of inputs (B, ...), and the losses (steps, models).
    """
    weights, _ = stack_module_state(list(models))  # {name: (models, ...)}
    optimizer = torch.optim.Adam(weights.values(), lr=rate)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    losses = []

    def logits_of(own: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(models[0], own, (inputs,))

    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel knows no stacks
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / max(warmup, 1))
            inputs, answers = (torch.stack(part) for part in zip(*map(batch, generators), strict=True))
            logits = vmap(logits_of)(weights, inputs)  # (models, B, K)
            loss = F.cross_entropy(logits.transpose(1, 2), answers, reduction="none").mean(dim=1)  # (models,)
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
            losses.append(loss.detach())

    def answer(inputs: Tensor) -> Tensor:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return vmap(logits_of, in_dims=(0, None))(weights, inputs)

    return answer, torch.stack(losses)
