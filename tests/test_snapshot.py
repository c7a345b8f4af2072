"""What a student's work is given is as it was afterwards: a model, a dictionary, the settings of torch."""

import copy

import pytest
import torch
from solutions_07 import fit_by_scheduler
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks.snapshot import AS_IT_WAS, ModelSnapshot


def said(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.3), nn.LayerNorm(3))


def replace_a_parameter(m):
    m[0].weight = nn.Parameter(m[0].weight.detach().clone())


def patch_forward(m):
    m[2].forward = lambda x: x


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m[0].register_forward_hook(lambda *a: None), "a hook is left on 0 (take it off: handle.remove())"),
        (lambda m: m.register_forward_pre_hook(lambda *a: None), "a hook is left on it"),
        (patch_forward, "2.forward is new, gone or another one"),
        (lambda m: setattr(m[1], "p", 0.0), "1.p is new, gone or another one"),
        (lambda m: setattr(m, "answer", []), "not as it was: answer is new, gone or another one"),
        (lambda m: m.append(nn.GELU()), "its part 3 is not the one that it had"),
        (lambda m: m.__setitem__(1, nn.Identity()), "its part 1 is not the one that it had"),
        (replace_a_parameter, "its parameter 0.weight is not the one that it had"),
        (lambda m: nn.init.zeros_(m[0].weight), "0.weight has other numbers"),
        (lambda m: m.double(), "0.weight has other numbers, or another dtype"),
        (lambda m: m[2].requires_grad_(False), "requires_grad of 2.weight is False"),
    ],
)
def test_what_has_changed_is_named(change, words):
    snapshot = ModelSnapshot(one := model())
    change(one)
    assert words in snapshot.afterwards()


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m(torch.ones(1, 2)).sum().backward(),
        lambda m: m.eval(),
        lambda m: m[0].register_forward_hook(lambda *a: None).remove(),
        lambda m: copy.deepcopy(m).append(nn.GELU()),
        lambda m: m.zero_grad(),
    ],
)
def test_what_may_change_is_not(use):
    snapshot = ModelSnapshot(one := model())
    use(one)
    assert snapshot.afterwards() == AS_IT_WAS


def test_a_model_that_is_to_be_trained_may_have_other_numbers():
    snapshot = ModelSnapshot(one := model(), trained=True)
    nn.init.zeros_(one[0].weight)
    one[2].requires_grad_(False)
    assert snapshot.afterwards() == AS_IT_WAS


# ---- In the checks -----------------------------------------------------------------------------------------------


def maps(model, images):
    z, found = model.embed(images), []
    for block in model.blocks:
        q, k, _ = block.attention.qkv(block.norm1(z)).unflatten(-1, (3, block.attention.num_heads, -1)).unbind(2)
        found.append((q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / q.shape[-1] ** 0.5).softmax(-1))
        z = block(z)
    return found


def leaves_a_hook(model, images):
    model.blocks[0].register_forward_hook(lambda *a: None)
    return maps(model, images)


class Seeded(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool):
        super().__init__()
        torch.manual_seed(0)
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=pool == "cls")
        self.blocks = nn.Sequential(*[vt.EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth)])
        self.norm, self.head, self.pool = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes), pool
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images):
        z = self.norm(self.blocks(self.embed(images)))
        return self.head(z[:, 0] if self.pool == "cls" else z.mean(dim=1))


def groups(model, weight_decay):
    kernels = [p for name, p in model.named_parameters() if name.endswith("weight") and p.ndim > 1]
    rest = [p for p in model.parameters() if not any(p is kernel for kernel in kernels)]
    return [{"params": kernels, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def begins_anew(model, weight_decay):
    nn.init.zeros_(next(model.parameters()))
    return groups(model, weight_decay)


def accuracy(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        pairs = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        share = torch.cat([model(x).argmax(1) == y for x, y in pairs]).double().mean().item()
    model.train()
    return share


def freezes(model, *task):
    model.requires_grad_(False)
    return accuracy(model, *task)


def switches_gradients_off(model, *task):
    torch.set_grad_enabled(False)
    return accuracy(model, *task)


def takes_a_tensor_out(checkpoint):
    found = checks.CATALOGUE["teacher"].right(checkpoint)
    checkpoint["teacher"].popitem()
    return found


def as_float32(state, num_classes, old_grid, new_grid):
    new = {name: tensor.float() for name, tensor in state.items()}
    D = new["head.weight"].shape[1]
    new |= {"head.weight": torch.zeros(num_classes, D), "head.bias": torch.zeros(num_classes)}
    return new | {"embed.position": vt.resize_position_embedding(new["embed.position"], old_grid, new_grid)}


def trains_with_a_hook(model, *task):
    model.register_forward_hook(lambda *a: None)
    return fit_by_scheduler(model, *task)


def rates(model, rate, decay, lowest=None):
    L = len(model.blocks)
    found = [{"params": [*model.norm.parameters(), *model.head.parameters()], "lr": rate}]
    found += [{"params": list(b.parameters()), "lr": rate * decay ** (L - i)} for i, b in enumerate(model.blocks)]
    lowest = rate * decay ** (L + 1) if lowest is None else lowest
    return [*found, {"params": list(model.embed.parameters()), "lr": lowest}]


def no_rate_for_the_embedding(model, rate, decay):
    return rates(model, rate, decay, lowest=0.0)


def trained(model, images, labels, rate, decay, steps, loss=F.cross_entropy, share=lambda step: 1.0):
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    model.eval()
    for step in range(steps):
        adam.param_groups[0]["lr"] = rate * share(step)
        adam.zero_grad()
        loss(model(images), labels).backward()
        adam.step()


def on_other_labels(*task):
    trained(*task, loss=lambda logits, labels: F.cross_entropy(logits, (labels + 1) % logits.shape[1]))


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (on_other_labels, "12 of 18 numbers of head.weight don't move with the right sign"),
        (
            lambda *task: trained(*task, share=lambda step: 0.7),
            "all in all it moves 0.7 times as far as it should",
        ),
        (
            lambda *task: trained(*task, share=lambda step: 1 - 0.1 * step),
            "It goes wrong with 6 images, 4 classes, 5 steps",
        ),
    ],
)
def test_a_head_that_is_trained_otherwise_is_told_from_when(work, words, capsys):
    assert not checks.check_tune_head(work)
    assert words in said(capsys)


@pytest.mark.parametrize(
    ("name", "work", "words"),
    [
        ("fit", trains_with_a_hook, "a hook is left on it"),
        ("attention_maps", leaves_a_hook, "the model afterwards is not as it was: a hook is left on blocks.0"),
        ("parameter_groups", begins_anew, "has other numbers"),
        ("vit", Seeded, "the same in two models (is a seed set?)"),
        ("accuracy", freezes, "what is frozen afterwards is layers."),
        ("accuracy", switches_gradients_off, "gradients stay switched off afterwards"),
        ("teacher", takes_a_tensor_out, "the check's own answer"),
        ("for_a_new_task", as_float32, "is of dtype torch.float32 now, and must stay as it was, torch.float64"),
        ("layer_rates", no_rate_for_the_embedding, "with a rate of 0"),
    ],
)
def test_a_work_that_leaves_something_else_behind(name, work, words, capsys):
    assert not getattr(checks, f"check_{name}")(work)
    assert words in said(capsys)


def test_a_rate_of_0_is_not_a_parameter_in_no_group(capsys):
    checks.check_layer_rates(no_rate_for_the_embedding)
    assert "an embedding in no group" not in said(capsys)


def test_a_dictionary_that_is_given_is_compared(capsys):
    """Behind the check's own answer the dictionary is what it is about."""
    observe = checks.CATALOGUE["teacher"].observe
    case = checks.CATALOGUE["teacher"].cases()[0]
    assert observe(takes_a_tensor_out, case)["the given dictionary afterwards"] == "changed"
