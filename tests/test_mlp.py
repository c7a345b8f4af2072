"""Lesson 04: the MLP by formula, as a 1x1 convolution, and its dropout under the same seed."""

import math
from functools import partial

import pytest
import torch
from peers import randomise
from torch.nn import functional as F
from torch.testing import assert_close

from vit_tutorial import MLP

same = partial(assert_close, rtol=0, atol=1e-12)
double = partial(torch.randn, dtype=torch.float64)


def exact(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # x times P(a standard normal < x)


def tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("gelu", [exact, tanh])
def test_the_formula(gelu):
    mlp, x = randomise(MLP(6, 10, gelu=gelu.__name__)).double(), 3 * double(2, 5, 6)
    hidden = gelu(x @ mlp.fc1.weight.T + mlp.fc1.bias)
    same(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_dropout_after_the_gelu_and_after_the_second_layer():
    mlp, x = randomise(MLP(6, 10, dropout=0.3)), torch.randn(2, 5, 6)
    torch.manual_seed(1)
    ours = mlp.train()(x)
    torch.manual_seed(1)
    assert torch.equal(ours, F.dropout(mlp.fc2(F.dropout(F.gelu(mlp.fc1(x)), 0.3)), 0.3))
    assert torch.equal(mlp.eval()(x), mlp.fc2(F.gelu(mlp.fc1(x))))  # evaluation drops nothing
    assert MLP(6, 10).dropout.p == 0.0


def test_initialisation():
    mlp = MLP(256, 1024)
    bound = math.sqrt(6 / (256 + 1024))
    for layer in (mlp.fc1, mlp.fc2):
        assert 0.999 * bound < layer.weight.abs().max().item() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert mlp.fc1.bias.std().item() == pytest.approx(1e-6, rel=0.1)  # 1024 numbers
    assert mlp.fc2.bias.std().item() == pytest.approx(1e-6, rel=0.2)  # 256 numbers


def test_an_unknown_gelu(refuses):
    with refuses(ValueError, "unknown gelu 'quick'", "exact, tanh"):
        MLP(6, 10, gelu="quick")
