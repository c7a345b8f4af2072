"""Lesson 03: attention by hand, against torch's fused kernel, and many heads against ``nn.MultiheadAttention``."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peers import randomise
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from vit_tutorial import MultiHeadSelfAttention, dot_product_attention

same = partial(assert_close, rtol=0, atol=1e-12)
double = partial(torch.randn, dtype=torch.float64)

# ------------------------------------------------------------------------------------------------------- one head


def test_by_hand():
    q, k, v = [[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0], [10.0], [100.0]]
    scores = [sum(a * b for a, b in zip(q[0], key, strict=True)) / math.sqrt(2) for key in k]  # 1, 2 and 3, over sqrt 2
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    out, ours = dot_product_attention(*(torch.tensor(x, dtype=torch.float64) for x in (q, k, v)))
    assert ours[0].tolist() == pytest.approx(weights, abs=1e-15)
    assert out.item() == pytest.approx(weights[0] + 10 * weights[1] + 100 * weights[2], abs=1e-12)


few = st.integers(1, 5)


@given(few, few, few, few, few)
def test_equals_the_fused_kernel(B, T, S, d, e):
    q, k, v = double(B, 2, T, d), double(B, 2, S, d), double(B, 2, S, e)
    out, weights = dot_product_attention(q, k, v)
    same(out, F.scaled_dot_product_attention(q, k, v))
    assert weights.shape == (B, 2, T, S)
    assert (weights >= 0).all()
    same(weights.sum(dim=-1), torch.ones(B, 2, T, dtype=torch.float64))


def test_shapes_that_do_not_fit(refuses):
    q, k, v = double(1, 4, 8), double(1, 5, 8), double(1, 5, 3)
    with refuses(ValueError, "(..., S, d)", "(1, 4, 8), (1, 5, 7) and (1, 5, 3)"):
        dot_product_attention(q, k[..., :7], v)
    with refuses(ValueError, "(..., S, e)", "(1, 4, 8), (1, 5, 8) and (1, 4, 3)"):
        dot_product_attention(q, k, v[:, :4])


# ------------------------------------------------------------------------------------------------------ many heads


def torch_twin(ours: MultiHeadSelfAttention) -> nn.MultiheadAttention:
    dim = ours.qkv.in_features
    twin = nn.MultiheadAttention(dim, ours.num_heads, batch_first=True, dtype=torch.float64)
    bias = torch.zeros(3 * dim) if ours.qkv.bias is None else ours.qkv.bias.detach()
    proj = {f"out_proj.{key}": value for key, value in ours.proj.state_dict().items()}
    twin.load_state_dict({"in_proj_weight": ours.qkv.weight.detach(), "in_proj_bias": bias, **proj})
    return twin


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dim", "heads"), [(12, 1), (12, 3), (12, 4), (12, 12)])
def test_equals_multihead_attention(dim, heads, bias):
    ours = randomise(MultiHeadSelfAttention(dim, heads, qkv_bias=bias)).double()
    theirs = torch_twin(ours)
    x = double(2, 5, dim).requires_grad_()
    y, (expected, weights) = ours(x), theirs(x, x, x, average_attn_weights=False)
    same(y, expected)
    same(ours.attention_weights(x), weights)
    y.square().sum().backward()
    gradient, x.grad = x.grad, None
    expected.square().sum().backward()
    same(gradient, x.grad, atol=1e-11)
    same(ours.qkv.weight.grad, theirs.in_proj_weight.grad, atol=1e-11)
    same(ours.proj.weight.grad, theirs.out_proj.weight.grad, atol=1e-11)
    assert (ours.qkv.bias is not None) == bias


def test_a_variant_s_bias_is_added_to_the_scores_before_the_softmax():
    bias = 3 * double(2, 5, 5)

    class Biased(MultiHeadSelfAttention):
        def score_bias(self, q):
            return bias

    layer, x = randomise(Biased(8, 2)).double(), double(3, 5, 8)
    q, k, v = layer.split_heads(x)
    weights = (q @ k.mT / 2 + bias).softmax(dim=-1)  # 2: the root of 4
    same(layer.attention_weights(x), weights)
    same(layer(x), layer.proj((weights @ v).transpose(1, 2).flatten(2)))


def test_a_mask_of_bools_is_no_bias(refuses):
    class Masked(MultiHeadSelfAttention):
        def score_bias(self, q):
            return torch.ones(5, 5, dtype=torch.bool).tril()

    layer, x = Masked(8, 2), torch.randn(3, 5, 8)
    for use in (layer.attention_weights, lambda x: dot_product_attention(x, x, x, layer.score_bias(x))):
        with refuses(TypeError, "floating point", "torch.where(mask, 0.0, -torch.inf)"):
            use(x)


def test_split_heads_takes_rows_q_k_v_head_by_head():
    layer = MultiHeadSelfAttention(6, 2)
    x = torch.randn(1, 4, 6)
    rows = layer.qkv(x)
    for part, ours in enumerate(layer.split_heads(x)):
        for head in range(2):
            start = part * 6 + head * 3
            assert torch.equal(ours[:, head], rows[:, :, start : start + 3])


def test_dropout_on_the_weights_and_on_the_output():
    layer, x = randomise(MultiHeadSelfAttention(8, 2, attention_dropout=0.4, dropout=0.25)), torch.randn(2, 5, 8)
    q, k, v = layer.split_heads(x)
    torch.manual_seed(1)
    ours = layer.train()(x)
    torch.manual_seed(1)
    z = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4).transpose(1, 2).reshape(2, 5, 8)
    assert_close(ours, F.dropout(layer.proj(z), 0.25))
    weights = layer.attention_weights(x)  # before dropout, also in training
    assert_close(weights.sum(-1), torch.ones(2, 2, 5))

    plain = MultiHeadSelfAttention(8, 2)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x), plain(x))  # evaluation drops nothing


def test_initialisation_is_xavier_uniform_for_each_square_matrix():
    dim = 384
    layer = MultiHeadSelfAttention(dim, 6)
    bound = math.sqrt(6 / (dim + dim))
    for weight in (*layer.qkv.weight.chunk(3), layer.proj.weight):
        assert 0.999 * bound < weight.abs().max().item() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)  # uniform
    assert not layer.qkv.bias.any()
    assert not layer.proj.bias.any()


@pytest.mark.parametrize("heads", [5, 0, 24, -3])
def test_heads_that_do_not_divide_the_width_are_refused(refuses, heads):
    with refuses(ValueError, "width 12", f"{heads} heads", "[1, 2, 3, 4, 6, 12]"):
        MultiHeadSelfAttention(12, heads)
    with refuses(TypeError, "num_heads must be an int", f"'{heads}'"):
        MultiHeadSelfAttention(12, str(heads))
    with refuses(TypeError, "dim must be an int", "12.0"):
        MultiHeadSelfAttention(12.0, 4)
    assert type(MultiHeadSelfAttention(12, np.int64(4)).num_heads) is int  # TorchScript takes no other


@pytest.mark.parametrize("width", [0, -12])
def test_a_width_below_1_is_refused(refuses, width):
    with refuses(ValueError, "the width must be at least 1", f"got {width}"):
        MultiHeadSelfAttention(width, 1)


@pytest.mark.parametrize("name", ["attention_dropout", "dropout"])
def test_no_probability_is_refused_when_built(refuses, name):
    with refuses(ValueError, f"{name} is a probability in [0, 1)", "got 1.5"):
        MultiHeadSelfAttention(12, 2, **{name: 1.5})
    with refuses(TypeError, f"{name} must be a number", "'a'"):
        MultiHeadSelfAttention(12, 2, **{name: "a"})
