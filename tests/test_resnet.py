"""The small ResNet of lesson 12."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.models.resnet import BasicBlock

from vit_tutorial.variants.resnet import Residual, ResNet

BLOCKS = [(6, 1), (10, 2), (10, 1), (12, 2)]


def filled(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        if name.endswith("running_var"):
            tensor.abs_().add_(0.5)
    return module.double().eval()


@pytest.mark.parametrize(("in_channels", "channels", "stride"), [(5, 5, 1), (5, 7, 2), (5, 7, 1), (6, 6, 2)])
def test_a_block_is_torchvisions_basic_block(in_channels, channels, stride):
    ours = filled(Residual(in_channels, channels, stride))
    downsample = None
    if stride > 1 or in_channels != channels:
        conv = nn.Conv2d(in_channels, channels, 1, stride, bias=False)
        downsample = nn.Sequential(conv, nn.BatchNorm2d(channels))
    theirs = BasicBlock(in_channels, channels, stride, downsample).double().eval()
    names = {"norm1": "bn1", "norm2": "bn2", "shortcut": "downsample"}
    state = {
        f"{names.get(name.split('.')[0], name.split('.')[0])}.{name.split('.', 1)[1]}": tensor
        for name, tensor in ours.state_dict().items()
    }
    theirs.load_state_dict(state)
    x = torch.randn(2, in_channels, 9, 6, dtype=torch.float64)
    assert torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.integers(4, 17), st.integers(4, 17), st.integers(1, 3))
def test_images_of_any_size_give_logits_and_a_map_of_a_quarter_of_the_sides(height, width, batch):
    model = ResNet(BLOCKS, num_classes=3, in_channels=2).eval()
    images = torch.rand(batch, 2, height, width)
    assert model(images).shape == (batch, 3)
    assert model.features(images).shape == (batch, 12, -(-height // 4), -(-width // 4))


def test_logits_are_the_heads_of_the_maps_mean():
    model = filled(ResNet(BLOCKS, num_classes=3))
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    pooled = model.features(images).flatten(2).mean(dim=2)
    assert torch.allclose(model(images), pooled @ model.head.weight.T + model.head.bias, rtol=0, atol=1e-12)
    assert model(images).std() > 1e-3
