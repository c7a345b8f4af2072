"""What a model's weights were at some moments of its training: how they differ from the moment before, in 8 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

State = dict[str, Tensor]
STEPS = 127  # of a tensor's scale: its largest difference


def differences(states: Iterable[State]) -> Iterator[tuple[State, State]]:
    """Each state's whole numbers, as int8, and the scale of each tensor; both by name.

    The first state differs from zeros. Each later one differs from what :func:`restored` makes of those before, so
    that errors don't add up: a number is off by half a step of its last scale at most.
    """
    before: State = {}
    for state in states:
        changes = {name: tensor.double().cpu() - before.get(name, 0) for name, tensor in state.items()}
        scales = {name: (change.abs().max() / STEPS).float() for name, change in changes.items()}
        steps = {name: (change / scales[name].double().clamp_min(1e-30)).round() for name, change in changes.items()}
        before = _after(before, steps, scales)
        yield {name: tensor.to(torch.int8) for name, tensor in steps.items()}, scales


def restored(packed: Iterable[tuple[State, State]]) -> Iterator[State]:
    """The states of which :func:`differences` made this."""
    state: State = {}
    for steps, scales in packed:
        state = _after(state, steps, scales)
        yield state


def _after(before: State, steps: State, scales: State) -> State:
    """In float32, as the page's script adds them."""
    return {name: (before.get(name, 0) + step.double() * scales[name].double()).float() for name, step in steps.items()}
