"""What engineers do with a ViT that they have: the same on ours and on timm's, with the same weights."""

import copy
from dataclasses import replace

import peft
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
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


def test_an_adapter_is_saved_and_loaded(models, images, tmp_path):
    for name, model in models.items():
        base = copy.deepcopy(model)
        tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=["qkv"], modules_to_save=["head"])).eval()
        for parameter in tuned.parameters():
            if parameter.requires_grad:
                nn.init.normal_(parameter)
        tuned.save_pretrained(tmp_path / name)
        assert_close(peft.PeftModel.from_pretrained(base, tmp_path / name).eval()(images), tuned(images))


@pytest.mark.filterwarnings("ignore:Converting:torch.jit.TracerWarning", "ignore:.*is deprecated:FutureWarning")
def test_torch_fx_and_torchscript_give_the_same_logits(models, images):
    for model in models.values():
        expected = model(images)
        assert_close(torch.fx.symbolic_trace(model)(images), expected)
        assert_close(torch.jit.trace(model, images)(images[:1]), expected[:1])
        assert_close(torch.jit.script(model)(images[:1]), expected[:1])


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning", "ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "changes", [{"pool": "mean"}, {"position": "sincos"}, {"position": "none"}, {"num_classes": 0}]
)
def test_a_scripted_model_trains_and_checks_its_images(changes, images, tmp_path):
    model = vt.ViT(replace(CONFIG, dropout=0.1, drop_path=0.2, **changes))
    torch.jit.script(model).save(tmp_path / "model.pt")
    scripted = torch.jit.load(tmp_path / "model.pt")
    assert scripted(images).requires_grad
    assert_close(scripted.eval()(images), model.eval()(images))
    with pytest.raises(torch.jit.Error, match=r"images must have shape \(B, C, H, W\), got \[3, 16, 16\]"):
        scripted(images[0])


# ---- Several processes: here one, by gloo ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(model, mesh, method):
    """FSDP2 on each block and the rest; ``method`` may be called as forward is."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, method)
    return model


def test_fsdp2_with_the_tokens_and_their_gradients(models, images, mesh):
    for name, method in (("ours", "features"), ("timm", "forward_features")):
        model = models[name]
        expected = getattr(model, method)(images)
        expected.square().sum().backward()
        gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        tokens = getattr(sharded(model, mesh, method), method)(images)
        assert_close(tokens, expected)
        tokens.square().sum().backward()
        for key, parameter in model.named_parameters():
            assert isinstance(parameter, DTensor), key
            if key in gradients:
                assert_close(parameter.grad.full_tensor(), gradients[key])


def test_fsdp2_from_meta_starts_as_the_constructor_does(mesh):
    torch.manual_seed(0)
    built = vt.ViT(CONFIG)
    with torch.device("meta"):
        model = vt.ViT(CONFIG)
    sharded(model, mesh, "features").to_empty(device="cpu")
    torch.manual_seed(0)
    model.init_weights()
    for key, parameter in model.named_parameters():
        assert_close(parameter.full_tensor(), built.get_parameter(key), rtol=0, atol=0)


def test_ddp_finds_a_gradient_for_every_parameter(models, images, mesh):
    for model in models.values():
        parallel = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # the second call fails if a parameter had no gradient in the first
            parallel(images).sum().backward()
