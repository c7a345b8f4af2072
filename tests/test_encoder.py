"""Lesson 05: one block against ``nn.TransformerEncoderLayer``, and stochastic depth by its statistics."""

from functools import partial

import pytest
import torch
from peers import randomise
from timm.layers import DropPath as TimmDropPath
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from vit_tutorial import DropPath, EncoderBlock

same = partial(assert_close, rtol=0, atol=1e-12)
double = partial(torch.randn, dtype=torch.float64)

# ----------------------------------------------------------------------------------------------------- one block

# Ours: torch's.
NAMES = {
    "norm1.": "norm1.",
    "attention.qkv.": "self_attn.in_proj_",
    "attention.proj.": "self_attn.out_proj.",
    "norm2.": "norm2.",
    "mlp.fc1.": "linear1.",
    "mlp.fc2.": "linear2.",
}


def theirs(tensors):
    stems = ((*key.rpartition(".")[::2], tensor) for key, tensor in tensors.items())
    return {NAMES[stem + "."] + leaf: tensor for stem, leaf, tensor in stems}


@pytest.mark.parametrize("training", [True, False])  # torch has a fast path of its own in evaluation
@pytest.mark.parametrize("eps", [1e-6, 0.5])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_equals_transformer_encoder_layer(training, eps, gelu):
    ours = randomise(EncoderBlock(12, 3, 20, norm_eps=eps, gelu=gelu)).double().train(training)
    activation = {"exact": F.gelu, "tanh": partial(F.gelu, approximate="tanh")}[gelu]
    layer = nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, activation=activation, layer_norm_eps=eps, batch_first=True, norm_first=True
    )
    layer.double().train(training).load_state_dict(theirs(ours.state_dict()))
    x = double(2, 5, 12)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = ours(one), layer(other)
    same(y, expected)
    y.square().sum().backward()
    expected.square().sum().backward()
    same(one.grad, other.grad, atol=1e-10)
    gradients = theirs({name: p.grad for name, p in ours.named_parameters()})
    for name, parameter in layer.named_parameters():
        same(gradients[name], parameter.grad, atol=1e-10)


def test_dropout_under_the_same_seed():
    p, attention_p, path_p = 0.2, 0.3, 0.4
    block = randomise(EncoderBlock(12, 3, 20, dropout=p, attention_dropout=attention_p, drop_path=path_p)).train()
    z = torch.randn(4, 5, 12)
    torch.manual_seed(1)
    ours = block(z)

    torch.manual_seed(1)  # the same, written without our modules
    path = TimmDropPath(path_p).train()
    norm = partial(F.layer_norm, normalized_shape=(12,), eps=1e-6)
    q, k, v = block.attention.split_heads(norm(z, weight=block.norm1.weight, bias=block.norm1.bias))
    merged = F.scaled_dot_product_attention(q, k, v, dropout_p=attention_p).transpose(1, 2).flatten(2)
    z = z + path(F.dropout(block.attention.proj(merged), p))
    hidden = F.dropout(F.gelu(block.mlp.fc1(norm(z, weight=block.norm2.weight, bias=block.norm2.bias))), p)
    assert_close(ours, z + path(F.dropout(block.mlp.fc2(hidden), p)))


def test_evaluation_drops_nothing():
    noisy = randomise(EncoderBlock(12, 3, 20, dropout=0.2, attention_dropout=0.3, drop_path=0.4)).eval()
    plain = EncoderBlock(12, 3, 20)
    plain.load_state_dict(noisy.state_dict())
    z = torch.randn(4, 5, 12)
    assert torch.equal(noisy(z), plain(z))


# ----------------------------------------------------------------------------------------------- stochastic depth


def test_drop_path_equals_timm():
    x = torch.randn(32, 3, 4)
    torch.manual_seed(1)
    ours = DropPath(0.3).train()(x)
    torch.manual_seed(1)
    assert_close(ours, TimmDropPath(0.3).train()(x))


def test_drop_path_is_the_identity_in_evaluation_and_at_zero():
    x = torch.randn(8, 3)
    assert DropPath(0.9).eval()(x) is x
    assert DropPath(0.0).train()(x) is x


@pytest.mark.parametrize("p", [1.0, 1.5, -0.1])
def test_drop_path_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match=r"p is a probability in \[0, 1\)"):
        DropPath(p)
    with pytest.raises(TypeError, match="p must be a number"):
        DropPath(str(p))
