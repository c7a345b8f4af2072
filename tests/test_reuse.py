"""What engineers do with a ViT that they have: the same on ours and on timm's, with the same weights."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torchvision.models.feature_extraction import create_feature_extractor

import vit_tutorial as vt

CONFIG = vt.ViTConfig(image_size=16, patch_size=8, dim=16, depth=2, num_heads=2, mlp_dim=24, num_classes=5)


@pytest.fixture
def models():
    """Ours and timm's, in evaluation mode."""
    torch.manual_seed(0)
    ours = vt.ViT(CONFIG).eval()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.2)
    return {"ours": ours, "timm": vt.weights.timm_model(ours).eval()}


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16)


class Adapter(nn.Module):
    """A layer and a low-rank path beside it, as PEFT puts it in the layer's place: without the layer's attributes."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * self.layer(x)


def adapted(model):
    for name, layer in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if last in ("qkv", "proj"):  # of each block, and the patches' convolution
            setattr(model.get_submodule(parent), last, Adapter(layer))
    return [part for part in model.modules() if isinstance(part, Adapter)]


def test_layers_are_replaced_by_name_as_peft_does(models, images):
    expected = models["ours"](images)
    for name, model in models.items():
        adapters = adapted(model)
        assert len(adapters) == 1 + 2 * CONFIG.depth, name
        assert_close(model(images), expected)
        model(images).sum().backward()
        assert all(adapter.scale.grad is not None for adapter in adapters), name


def test_peft_s_usual_line(models, images):
    peft = pytest.importorskip("peft")
    model = models["ours"]
    expected = model(images)
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["qkv", "proj"])).eval()
    assert_close(tuned(images), expected)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    changed = tuned(images)
    assert not torch.allclose(changed, expected, atol=0.1)
    assert_close(tuned.merge_and_unload()(images), changed, rtol=0, atol=1e-4)


def test_torchvision_s_extractor_gives_the_tokens_after_a_block(models, images):
    ours, timms = (create_feature_extractor(model, {"blocks.0": "tokens"})(images) for model in models.values())
    assert_close(ours["tokens"], timms["tokens"])


@pytest.mark.filterwarnings("ignore:Converting:torch.jit.TracerWarning", "ignore:.*is deprecated:FutureWarning")
def test_torch_fx_and_a_trace_give_the_same_logits(models, images):
    for model in models.values():
        expected = model(images)
        assert_close(torch.fx.symbolic_trace(model)(images), expected)
        assert_close(torch.jit.trace(model, images)(images[:1]), expected[:1])
