"""Few bits by hand: against arithmetic on paper, torch's own kernels and ONNX Runtime's int8 layer."""

import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn
from torch.nn import functional as F

from vit_tutorial.export import formats
from vit_tutorial.export.quantise import (
    dequantise,
    fake_quantise,
    integer_layers,
    integer_linear,
    quantise,
    saturating_sums,
)


def test_by_pencil():
    x = torch.tensor([-0.6, 0.1, 0.4, 1.1, 1.5])
    codes = quantise(x, 3)
    assert codes.values.tolist() == [-1, 0, 1, 2, 3]
    assert (codes.scale.item(), codes.zero.item()) == (0.5, 0)
    codes = quantise(x, 3, zero_point=True)
    assert codes.values.tolist() == [0, 2, 3, 6, 7]
    assert codes.zero.item() == 2
    torch.testing.assert_close(dequantise(codes), torch.tensor([-0.6, 0.0, 0.3, 1.2, 1.5]))


@given(st.integers(2, 12), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_codes_fit_the_error_is_half_a_step_and_zero_stays(bits, per_row, zero_point, seed):
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + seed % 5
    x[1, 2] = 0
    codes = quantise(x, bits, per_row=per_row, zero_point=zero_point)
    least, most = (0, 2**bits - 1) if zero_point else (1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    assert codes.values.min() >= least
    assert codes.values.max() <= most
    assert codes.scale.shape == codes.zero.shape == ((3, 1) if per_row else ())
    back = dequantise(codes)
    # With a zero point, an end of the range may be off by half a step more: z is rounded, too.
    assert ((back - x).abs() <= (1.0 if zero_point else 0.5) * codes.scale * (1 + 1e-9)).all()
    assert back[1, 2] == 0


def test_a_scale_for_each_row_keeps_small_rows():
    weight = torch.tensor([[0.02, -0.01, 0.03], [1.4, -0.6, 0.5]])
    assert quantise(weight, 4).values[0].tolist() == [0, 0, 0]
    assert quantise(weight, 4, per_row=True).values.tolist() == [[5, -2, 7], [7, -3, 2]]


def test_zeros_and_one_sign_have_codes():
    assert not fake_quantise(torch.zeros(2, 3), per_row=True).any()
    codes = quantise(torch.tensor([3.0, 5.0, 4.0]), 8, zero_point=True)
    assert codes.zero == 0
    torch.testing.assert_close(codes.scale, torch.tensor(5 / 255))


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("zero_point", [False, True])
def test_whole_numbers_give_the_product_of_the_rounded(per_row, zero_point):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 5, 12), torch.randn(7, 12), torch.randn(7)
    codes = quantise(x, 8, per_row=per_row, zero_point=zero_point), quantise(weight, 8, per_row=per_row)
    expected = F.linear(dequantise(codes[0]), dequantise(codes[1]), bias)
    torch.testing.assert_close(integer_linear(*codes, bias), expected)


def pairs_in_16_bits(x, weight):
    """Each pair of products, clamped and summed: the instruction, written out."""
    sums = torch.zeros(len(x), len(weight), dtype=torch.long)
    for k in range(0, x.shape[1], 2):
        sums += (x[:, k : k + 2].long() @ weight[:, k : k + 2].long().T).clamp(-(2**15), 2**15 - 1)
    return sums


@pytest.mark.parametrize("n", [1, 4, 27, 64])
def test_saturating_sums_clamp_each_pair(n):
    draw = torch.Generator().manual_seed(n)
    x = torch.randint(0, 256, (5, n), generator=draw)
    weight = torch.randint(-128, 128, (40, n), generator=draw)
    assert torch.equal(saturating_sums(x, weight), pairs_in_16_bits(x, weight))
    assert torch.equal(saturating_sums(x, weight), x @ weight.T) == (n == 1)
    assert torch.equal(saturating_sums(x, weight.clamp(-64, 64)), x @ weight.clamp(-64, 64).T)


def test_by_pencil_two_large_products_saturate():
    x, weight = torch.tensor([200, 200, 10, 0]), torch.tensor([[100, 100, -3, 7]])
    assert (x @ weight.T).tolist() == [39970]
    assert saturating_sums(x, weight).tolist() == [32767 - 30]


@pytest.mark.skipif(torch.__version__ < formats.ONNX_SINCE, reason="needs a later exporter")
def test_a_layer_is_onnx_runtimes_exactly_or_in_16_bits(tmp_path):
    """Which of the two depends on the processor: with VNNI sums are exact."""
    torch.manual_seed(0)
    layer, x = nn.Linear(16, 24), F.gelu(torch.randn(3, 5, 16)) + 3  # far from 0, so that products are large
    with formats._quiet():
        torch.onnx.export(layer, (x,), tmp_path / "a.onnx", dynamo=True, verbose=False, input_names=["x"])
        quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx", weight_type=QuantType.QInt8)
    assert len(formats.saturating_weights(tmp_path / "b.onnx")) == 1
    (theirs,) = onnxruntime.InferenceSession(tmp_path / "b.onnx").run(None, {"x": x.numpy()})
    codes = quantise(x, zero_point=True), quantise(layer.weight)
    exact, in_16_bits = (integer_linear(*codes, layer.bias, saturate=saturate) for saturate in (False, True))
    assert (exact - in_16_bits).abs().max() > 0.1
    assert min((ours - torch.from_numpy(theirs)).abs().max() for ours in (exact, in_16_bits)) < 1e-5


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_layers_give_the_product_of_the_rounded(saturate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False), nn.Flatten(), nn.Linear(6 * 12, 5))
    x = torch.rand(2, 3, 7, 6)
    whole = integer_layers(model, per_row=True, saturate=saturate)
    convolution, _, linear = model
    weights = (fake_quantise(convolution.weight.flatten(1), per_row=True), fake_quantise(linear.weight, per_row=True))
    features = F.conv2d(fake_quantise(x, zero_point=True), weights[0].view_as(convolution.weight), stride=2, padding=1)
    expected = F.linear(fake_quantise(features.flatten(1), zero_point=True), weights[1], linear.bias)
    assert torch.allclose(whole(x), expected, atol=1e-5) != saturate
    assert not torch.equal(model(x), whole(x))


@pytest.mark.parametrize("bits", [1, 17])
def test_refuses_a_number_of_bits(bits, refuses):
    with refuses(ValueError, f"bits={bits}", "2 to 16"):
        quantise(torch.ones(3), bits)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_what_is_not_finite(value, refuses):
    with refuses(ValueError, "finite"):
        quantise(torch.tensor([1.0, value]))


@pytest.mark.parametrize("shape", [{"stride": (1, 2)}, {"dilation": 2}, {"padding": (1, 0)}, {"kernel_size": (4, 2)}])
def test_convolutions_of_any_shape_are_computed_in_whole_numbers(shape):
    layer = nn.Conv2d(3, 4, **({"kernel_size": 3} | shape))
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(integer_layers(layer, bits=12)(x), layer(x), rtol=0, atol=1e-2)


def test_a_convolution_of_groups_is_refused():
    with pytest.raises(ValueError, match="2 groups isn't one matrix"):
        integer_layers(nn.Conv2d(4, 4, 3, groups=2))
