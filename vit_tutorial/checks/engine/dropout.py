"""What a layer with dropout makes of equal inputs in training, and how often.

All bounds are so wide that a right submission fails less than once in a million runs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vit_tutorial.checks.engine.compare import describe, shape
from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Submission
from vit_tutorial.checks.engine.functions import changed_argument
from vit_tutorial.checks.engine.layers import build_layer, copy_weights

DEVIATIONS = 6.0  # how many standard deviations a fraction may be off: 2 in a billion
FEW = 9  # different results: more of them don't all come up


def layer_with_dropout(submission: Submission, case: Case, p: float = 0.0) -> Observation:
    """Build a layer, copy the weights in, call it on many equal inputs, and count what comes out in training.

    Args:
        submission: the layer's class; the layer keeps its input's shape.
        case: its input is equal along the first axis.
        p: the probability that the first number of a result is 0.
    """
    module, (x,) = build_layer(submission, case), case.args
    copy_weights(module, case.weights)
    in_eval = module.eval()(x.clone())
    output = module.train()(argument := x.clone())
    if not isinstance(output, Tensor) or output.shape != x.shape:
        raise Fault(f"the result is {describe(output)}, and must be a tensor of the input's shape, {shape(x)}")
    another = module(x.clone().requires_grad_() + 0)
    results = output.detach().flatten(1)
    different = len(results.mul(1000).round().unique(dim=0))
    values = {
        "what the first number can be (in eval mode)": distinct_numbers(in_eval.flatten(1)[:, 0], 3),
        "the number of different results of equal inputs (in training)": str(different) if different <= FEW else "many",
        "the path of the gradient (in training)": "whole" if another.requires_grad else "cut",
    }
    if different > 1:
        values["the result of another call (in training)"] = (
            "the same" if torch.equal(output, another) else "another one"
        )
    if 1 < different <= FEW:
        zeros = int((results[:, 0] == 0).sum())
        fraction = f"{zeros / len(x):.2g}" if is_improbable(zeros, len(x), p) else f"{p:g}"
        values["what the first number can be (in training)"] = distinct_numbers(results[:, 0], 3)
        values["how often the first number is 0 (in training)"] = fraction
    return Observation(values, changed_argument=changed_argument([x], [argument]))


def is_improbable(hits: int, draws: int, p: float) -> bool:
    """Whether so many ``hits`` can't be chance, out of independent ``draws`` of probability ``p``."""
    return abs(hits - draws * p) > DEVIATIONS * math.sqrt(draws * p * (1 - p)) + 1


def distinct_numbers(numbers: Tensor, digits: int) -> str:
    """The different numbers among many, in order, rounded."""
    ordered = numbers.detach().flatten().sort().values
    first = torch.cat([torch.tensor([True]), ordered.diff() > 1e-3])
    distinct = [f"{round(number, digits) + 0.0:g}" for number in ordered[first].tolist()]
    return ", ".join(distinct[:8]) + (", …" if len(distinct) > 8 else "")
