"""Lesson 07: training against a loop written out by hand, resuming after real kills, disks that are full."""

import errno
import importlib.util
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.tracking import GeneralTracker
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from vit_tutorial import ViT, ViTConfig, train
from vit_tutorial.data import Data, Images, hold_out
from vit_tutorial.data.augment import Affine, Augmentation, Flip
from vit_tutorial.options.recipe import Recipe
from vit_tutorial.train import batches

ROOT = Path(__file__).parent.parent
SETTINGS = {"epochs": 3, "batch_size": 8, "warmup_epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def data():
    # Three classes, told apart by which pixel of every 2 x 2 patch is bright; 26 to train on, so that 2 are left over.
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randint(0, 100, (38, 1, 4, 4), generator=generator, dtype=torch.uint8), torch.arange(38) % 3
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, label // 2 :: 2, label % 2 :: 2] += 130
    splits = (Images(images[rows], labels[rows]) for rows in (slice(26), slice(26, None)))
    return Data("tiny", *splits, ("a", "b", "c"), (4, 4), 1, (0.3,), (0.2,))


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    config = {"dim": 8, "depth": 2, "num_heads": 2, "mlp_dim": 16, "dropout": 0.1, "drop_path": 0.1} | changes
    return ViT(ViTConfig(image_size=4, patch_size=2, in_channels=1, num_classes=3, **config))


def noise(image):
    return image + 0.1 * torch.rand_like(image)


def weights(model):
    return torch.cat([tensor.flatten() for tensor in model.state_dict().values()])


def trained(data, **changes):
    """The weights and the history, but for the seconds, of a run with everything that is random switched on."""
    model = tiny()
    rows = train.fit(model, data, **(SETTINGS | {"augmentation": noise, "ema": 0.5} | changes))
    return weights(model), [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


# ------------------------------------------------------------------------------------------------------ the recipe


def test_schedule_in_closed_form():
    rate = partial(train.schedule, steps=110, warmup=10)
    assert [rate(step) for step in range(10)] == [(step + 1) / 10 for step in range(10)]
    assert rate(10) == 1.0
    assert rate(10 + 25) == pytest.approx((1 + math.sqrt(0.5)) / 2)  # a quarter of the cosine: 45 degrees
    assert rate(10 + 50) == pytest.approx(0.5)
    assert rate(10 + 75) == pytest.approx((1 - math.sqrt(0.5)) / 2)
    assert rate(110) == pytest.approx(0.0)
    assert 0 < rate(109) < 0.001
    assert train.schedule(0, steps=5, warmup=0) == 1.0
    assert train.schedule(4, steps=5, warmup=5) == 1.0
    assert train.schedule(5, steps=5, warmup=5) == 0.0


def test_what_decays():
    model = tiny()
    model.norm.bias.requires_grad = False  # in neither group
    decayed, free = train.parameter_groups(model, 0.3)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    layers = ("attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2")
    kernels = {f"blocks.{block}.{layer}.weight" for block in (0, 1) for layer in layers}
    assert {names.pop(id(p)) for p in decayed["params"]} == kernels | {"embed.patches.proj.weight", "head.weight"}
    assert {names.pop(id(p)) for p in free["params"]} >= {
        "embed.cls_token",
        "embed.position",
        "norm.weight",
        "head.bias",
    }
    assert list(names.values()) == ["norm.bias"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.9},
        {"clip": 0.05},
        {"label_smoothing": 0.0, "weight_decay": 1.0},
        {"learning_rate": 0.02, "seed": 5, "warmup_epochs": 1.4},
    ],
)
def test_fit_equals_the_loop_by_hand(data, changes):
    recipe = {"learning_rate": 1e-2, "weight_decay": 0.05, "label_smoothing": 0.1, "clip": 1.0, "ema": 0.0, "seed": 0}
    recipe |= SETTINGS | changes
    warm = round(3 * recipe["warmup_epochs"])  # steps
    # Without biases of the keys: their gradient is rounding and nothing else, which Adam blows up.
    model, ours = (tiny(dropout=0.0, drop_path=0.0, qkv_bias=False) for _ in range(2))
    groups = ([], [])
    for name, parameter in model.named_parameters():
        groups[parameter.ndim == 1 or "cls_token" in name or "position" in name].append(parameter)
    adam = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": recipe["weight_decay"]}, {"params": groups[1], "weight_decay": 0}]
    )
    average, losses, step = None, [], 0
    for epoch in range(3):
        order = batches.Order(26, 8, recipe["seed"])
        order.epoch = epoch
        sums = 0.0
        for _, rows in order:
            images, labels = data.train.batch(torch.tensor(rows))
            for group in adam.param_groups:
                group["lr"] = recipe["learning_rate"] * (
                    (step + 1) / warm if step < warm else (1 + math.cos(math.pi * (step - warm) / (9 - warm))) / 2
                )
            logits = model((images - 0.3) / 0.2)
            target = F.one_hot(labels, 3) * (1 - recipe["label_smoothing"]) + recipe["label_smoothing"] / 3
            loss = -(target * logits.log_softmax(1)).sum(1).mean()
            model.zero_grad()
            loss.backward()
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            for parameter in model.parameters():
                parameter.grad *= min(1, recipe["clip"] / norm)
            adam.step()
            now = weights(model).clone()
            average = now if average is None else recipe["ema"] * average + (1 - recipe["ema"]) * now
            sums, step = sums + loss.item(), step + 1
        losses.append(sums / 3)
    history = train.fit(ours, data, **recipe)
    assert_close(weights(ours), average, rtol=0, atol=1e-5)
    assert [row["loss"] for row in history] == pytest.approx(losses, abs=1e-5)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert history[-1]["rate"] == pytest.approx(adam.param_groups[0]["lr"])
    assert history[-1] | train.evaluate(ours, data) == history[-1]


def test_predict_and_evaluate(data):
    model = tiny()
    nn.init.normal_(model.head.weight)
    images, expected = data.test.batch()
    by_hand = model.eval()((images - 0.3) / 0.2)
    model.train().blocks[0].eval()
    train.predict(model, data)
    assert (model.training, model.blocks[0].training, model.blocks[1].training) == (True, False, True)
    for training in (True, False):  # without dropout in either, and the mode stays
        logits, labels = train.predict(model.train(training), data, batch_size=5)
        assert model.training is training
        assert torch.equal(labels, expected)
        assert_close(logits, by_hand, rtol=0, atol=1e-5)
    assert len(train.predict(model, data, split="train")[1]) == 26
    assert torch.equal(train.predict(model, data, part=slice(1, None, 2))[1], expected[1::2])
    nothing = train.predict(model, data, part=slice(1000, None))
    assert [tuple(x.shape) for x in nothing] == [(0, len(data.classes)), (0,)]
    accuracy = (by_hand.argmax(1) == expected).float().mean().item()
    loss = F.cross_entropy(by_hand, expected).item()
    assert train.evaluate(model, data) == pytest.approx({"test_loss": loss, "test_accuracy": accuracy})


def test_mixed_labels(data):
    def mixing(mix):
        return Augmentation("mix", mix=mix)

    seen = []

    def flip(images, labels):
        seen.append(labels)
        return images.flip(0), F.one_hot(labels.flip(0), 3).float()

    changes = {"ema": 0.0, "epochs": 1}
    mixed, rows = trained(data, augmentation=mixing(flip), **changes)
    assert len(seen) == 3
    hard = mixing(lambda images, labels: (images.flip(0), labels.flip(0)))
    assert_close(mixed, trained(data, augmentation=hard, **changes)[0])
    assert rows[0]["accuracy"] > 0  # correct is the class with the larger share


@pytest.mark.parametrize("class_weights", [False, True])
def test_parts_of_a_batch_give_the_gradient_of_the_whole(data, class_weights):
    rows = [*range(0, 26, 3), 1, 4, 2]  # 9 images of the first class, 2 of the second, 1 of the third
    uneven = replace(data, train=Images(data.train.images[rows], data.train.labels[rows]))
    still = {"dropout": 0.0, "drop_path": 0.0, "qkv_bias": False}  # see above
    whole, parts = tiny(**still), tiny(**still)
    settings = SETTINGS | {"class_weights": class_weights}
    rows = [train.fit(model, uneven, **settings, accumulate=n) for model, n in ((whole, 1), (parts, 3))]
    assert_close(weights(parts), weights(whole), rtol=0, atol=1e-5)
    assert rows[1][-1]["loss"] == pytest.approx(rows[0][-1]["loss"], abs=1e-5)
    assert rows[1][-1]["accuracy"] == rows[0][-1]["accuracy"]


def test_with_class_weights_a_rare_class_counts_as_much_as_a_frequent_one(data):
    images, labels = data.train.batch()
    rows = [*range(0, 26, 3), 1, 4, 2]  # 9 images of the first class, 2 of the second, 1 of the third
    uneven = replace(data, train=Images(data.train.images[rows], data.train.labels[rows]))
    model = tiny(dropout=0.0, drop_path=0.0)
    nn.init.normal_(model.head.weight)
    logits = model((images[rows] - 0.3) / 0.2)
    by_class = [F.cross_entropy(logits[labels[rows] == k], labels[rows][labels[rows] == k]) for k in range(3)]
    settings = SETTINGS | {"batch_size": 12, "epochs": 1, "label_smoothing": 0.0}
    (row,) = train.fit(model, uneven, **settings, class_weights=True)
    assert row["loss"] == pytest.approx(torch.stack(by_class).mean().item(), abs=1e-5)


@pytest.mark.parametrize(("keep", "epoch"), [("best", 1), ("last", 3)])
def test_the_weights_that_a_run_ends_with(data, tmp_path, monkeypatch, keep, epoch):
    validated, accuracies, after = replace(data, test_split="validation"), [0.1, 0.9, 0.9, 0.2], []

    def evaluate(model, data, accelerator):
        after.append(weights(model).clone())
        if len(after) == 3:  # stopped, and resumed
            raise Stopped
        return {"test_loss": 1.0, "test_accuracy": accuracies[len(after) - 1 - (len(after) > 3)]}

    monkeypatch.setattr(train.loop, "evaluate", evaluate)
    settings = SETTINGS | {"epochs": 4, "keep": keep, "out": tmp_path}
    with pytest.raises(Stopped):
        train.fit(tiny(), validated, **settings)
    model = tiny(seed=1)
    train.fit(model, validated, **settings, resume=True)
    assert "average" not in torch.load(tmp_path / "state.pt", weights_only=True), "there is no ema: no second copy"
    del after[2]
    assert [torch.equal(weights(model), then) for then in after] == [number == epoch for number in range(4)]
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["kept_epoch"], run["validation_accuracy"]) == (epoch + 1, accuracies[epoch])


def test_the_best_epoch_is_not_chosen_by_the_test_images(data, refuses):
    with refuses(ValueError, 'keep="best"', "hold_out"):
        train.fit(tiny(), data, **SETTINGS, keep="best")
    with refuses(ValueError, "keep must be one of last, best", "'first'"):
        train.fit(tiny(), data, **SETTINGS, keep="first")


class Rows(GeneralTracker):
    name, requires_logging_directory, tracker = "rows", False, None

    def __init__(self):
        super().__init__(_blank=True)
        self.rows, self.settings, self.finished = [], {}, False

    def store_init_configuration(self, values):
        self.settings = values

    def log(self, values, step, **_):
        self.rows.append((step, values))

    def finish(self):
        self.finished = True


def test_a_tracker_gets_the_settings_and_each_epoch(data):
    tracker = Rows()
    history = train.fit(tiny(), replace(data, test_split="validation"), **SETTINGS, log_with=tracker)
    assert tracker.settings["epochs"] == 3
    assert [step for step, _ in tracker.rows] == [1, 2, 3]
    assert tracker.rows[-1][1]["validation_accuracy"] == history[-1]["test_accuracy"]
    assert tracker.finished


def test_a_tracker_is_finished_when_training_stops_with_an_error(data):
    tracker = Rows()
    with pytest.raises(FloatingPointError):
        train.fit(tiny(), data, **SETTINGS | {"learning_rate": 1e30}, log_with=tracker)
    assert tracker.finished


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
def test_a_tracker_that_is_not_installed_is_named(data, refuses):
    with refuses(ImportError, "pip install wandb"):
        train.fit(tiny(), data, **SETTINGS, log_with="wandb")


# ------------------------------------------------------------------------------------------------------- determinism


def test_same_seed_same_weights_whatever_the_workers(data):
    ours, rows = trained(data)
    torch.manual_seed(99)  # what was drawn before doesn't count
    others, same = trained(data)
    assert torch.equal(ours, others)
    assert rows == same
    whole_and_each = Augmentation("noisy flips", changes=(Flip(), Affine()), image_change=noise)
    alone, in_two = (trained(data, augmentation=whole_and_each, workers=workers, epochs=2) for workers in (0, 2))
    assert torch.equal(alone[0], in_two[0])
    assert alone[1] == in_two[1]
    assert not torch.equal(ours, trained(data, seed=1)[0])
    in_use = tiny().eval()  # a model that was in use is trained with dropout, too
    train.fit(in_use, data, **SETTINGS, augmentation=noise, ema=0.5)
    assert torch.equal(weights(in_use), ours)


# ---------------------------------------------------------------------------------------------------------- resume


class Stopped(Exception):
    pass


def stopping_after(images):
    """An augmentation that stops the run at the image with this number; __qualname__ is ``noise``, as in the others."""
    left = [images]

    def noise_until(image):
        left[0] -= 1
        if left[0] < 0:
            raise Stopped
        return noise(image)

    noise_until.__qualname__ = "noise"
    return noise_until


def test_a_second_run_into_the_same_folder_is_refused(data, tmp_path, refuses):
    tries = []

    def begin_another(image):
        if not tries:
            tries.append("one")
            with refuses(OSError, "another run writes to", str(tmp_path), "wait for it, or choose another folder"):
                trained(data, out=tmp_path, resume=True)
        return image

    trained(data, out=tmp_path, augmentation=begin_another)
    assert tries
    trained(data, out=tmp_path, augmentation=begin_another, resume=True)  # free again


@pytest.mark.parametrize("images", [0, 47])
def test_resume_is_exact(data, tmp_path, images):
    whole = trained(data)
    with pytest.raises(Stopped):
        trained(data, augmentation=stopping_after(images), out=tmp_path)
    torch.manual_seed(99)
    model = tiny(seed=1)  # other weights: all of them come from the state
    rows = train.fit(model, data, **SETTINGS, augmentation=noise, ema=0.5, out=tmp_path, resume=True)
    assert torch.equal(weights(model), whole[0])
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in whole[1]]
    # Once more: nothing is left to do, and the result is the same.
    again = trained(data, augmentation=stopping_after(0), out=tmp_path, resume=True)
    assert torch.equal(again[0], whole[0])
    assert again[1] == whole[1]


def test_a_run_is_not_overwritten(data, tmp_path, refuses):
    trained(data, out=tmp_path)
    before = (tmp_path / "state.pt").read_bytes()
    with refuses(FileExistsError, str(tmp_path), "resume", "another folder"):
        trained(data, out=tmp_path)
    with refuses(ValueError, str(tmp_path), "learning_rate=0.001", "0.5", "same settings"):
        trained(data, out=tmp_path, resume=True, learning_rate=0.5)
    with refuses(ValueError, "augment=noise", "not none"):
        trained(data, out=tmp_path, resume=True, augmentation=None)
    with refuses(ValueError, "dim=8", "dim=16"):
        train.fit(tiny(dim=16), data, **SETTINGS, augmentation=noise, ema=0.5, out=tmp_path, resume=True)
    assert (tmp_path / "state.pt").read_bytes() == before
    with refuses(ValueError, "resume", "folder"):
        trained(data, resume=True)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", bytes(range(100)), pickle.dumps(Bomb(), protocol=2), "half", "other", "bomb"]
)
def test_a_damaged_or_hostile_state_is_refused(data, tmp_path, refuses, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "state.pt"
    if content == "half":
        trained(data, out=tmp_path, epochs=1)
        content = path.read_bytes()[: path.stat().st_size // 2]
    if content in ("other", "bomb"):
        torch.save({"other": {"weight": torch.ones(2)}, "bomb": {"settings": Bomb()}}[content], path)
    else:
        path.write_bytes(content)
    with refuses(ValueError, str(path), "damaged", "move it away"):
        trained(data, out=tmp_path, resume=True)
    assert not Path("exploded").exists()


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path):
    # By hand: python tests/stress_resume.py FOLDER --kills 40
    command = [sys.executable, str(ROOT / "tests/stress_resume.py"), str(tmp_path), "--kills", "6"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["from outside"] + counts["while writing"] == 6
    assert counts["while writing"] >= 1
    assert counts["equal"] == counts["runs"] >= 1


# ------------------------------------------------------------------------------------------- disks that are no good


def failing(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def test_a_disk_that_fills_up_loses_no_epoch(data, tmp_path, monkeypatch, refuses):
    calls, fsync = [], os.fsync

    def full_after_two(descriptor):
        calls.append(descriptor)
        if len(calls) > 2:  # the state at the start, the first epoch's, then no more
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch, refuses(OSError, str(tmp_path), "No space left"):
        patch.setattr(os, "fsync", full_after_two)
        trained(data, out=tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert [row["epoch"] for row in state["history"]] == [1]
    assert torch.equal(trained(data, out=tmp_path, resume=True)[0], trained(data)[0])


# ----------------------------------------------------------------------------------------- numbers that are no good


def test_a_loss_that_is_no_number_stops(data, tmp_path, refuses):
    calls = []

    def with_nan(images, labels):
        calls.append(labels)
        return (images * math.nan if len(calls) == 5 else images), labels  # the fifth step: number 4

    with refuses(FloatingPointError, "step 4", "learning rate of 0.000933", "nan", "smaller learning rate", "warm-up"):
        trained(data, augmentation=Augmentation("nan", mix=with_nan), out=tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert len(state["history"]) == 1
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


# ------------------------------------------------------------------------------------------------ recipes and keywords


def test_a_recipe_and_keywords_say_the_same(data):
    recipe = Recipe(epochs=2, batch_size=8, learning_rate=3e-3, ema=0.5, augment="flip")
    whole = tiny()
    train.fit(whole, data, recipe, progress=False)
    for given, changes in [
        (None, asdict(recipe)),
        (replace(recipe, ema=0.0, seed=5), {"ema": 0.5, "seed": 0}),
        (recipe, {"augmentation": Augmentation("flip", changes=(Flip(),))}),
        (recipe, {"augmentation": Flip()}),
    ]:
        model = tiny()
        train.fit(model, data, given, progress=False, **changes)
        assert torch.equal(weights(model), weights(whole))
    assert recipe.ema == 0.5


def test_a_setting_that_there_is_not(data, refuses):
    with refuses(TypeError, "'lr'", "learning_rate"):
        trained(data, lr=1e-3)
    with refuses(TypeError, "epochs"):
        train.fit(tiny(), data)
    with refuses(ValueError, "batch_size 27", "26"):
        trained(data, batch_size=27)
    with refuses(ValueError, "ema", "1.5"):
        trained(data, ema=1.5)
    with refuses(ValueError, "epochs must be a whole number", "True"):
        trained(data, epochs=True)
    assert type(train.Recipe(epochs=np.int64(2)).epochs) is int


def test_the_data_set_s_own_augmentation(data):
    own = trained(replace(data, augment="flip"), augmentation=None, augment="default")[0]
    assert torch.equal(own, trained(data, augmentation=None, augment="flip")[0])
    assert not torch.equal(own, trained(data, augmentation=None, augment="none")[0])


# ----------------------------------------------------------------------------------------------- precision and compile


def test_bf16(data):
    kinds = set()
    model = tiny()
    model.blocks[0].mlp.fc1.register_forward_hook(lambda *call: kinds.add((call[0].training, call[-1].dtype)))
    train.fit(model, data, **SETTINGS, augmentation=noise, ema=0.5, precision="bf16")
    assert (True, torch.bfloat16) in kinds
    assert weights(model).dtype == torch.float32
    exact = trained(data)[0]
    assert not torch.equal(weights(model), exact)
    assert_close(weights(model), exact, rtol=0, atol=0.02)
    kinds.clear()
    train.fit(model, data, **SETTINGS)
    assert {kind for training, kind in kinds if training} == {torch.float32}  # and fp32 afterwards is fp32 again


def test_compile(data, monkeypatch):
    compiled, original = [], torch.compile

    def eager(model):
        compiled.append(model)
        return original(model, backend="eager")  # the real one takes minutes

    monkeypatch.setattr(torch, "compile", eager)
    changes = {"augmentation": None, "epochs": 1, "warmup_epochs": 0}
    plain = trained(data, **changes)[0]
    assert not compiled
    assert_close(trained(data, **changes, compile=True)[0], plain, rtol=0, atol=1e-5)
    assert len(compiled) == 1


def test_resume_knows_its_data(data, tmp_path, refuses):
    trained(data, out=tmp_path, epochs=1)
    for change, words in (
        ({"name": "other"}, ("data=tiny", "other")),
        ({"classes": ("a", "c", "b")}, ("classes=['a', 'b', 'c']", "['a', 'c', 'b']")),
        ({"digest": "3 files, SHA-256 12"}, ("files=, not 3 files",)),
    ):
        with refuses(ValueError, *words, "same settings and data"):
            trained(replace(data, **change), out=tmp_path, epochs=1, resume=True)


def test_what_a_killed_run_left_is_cleared(data, tmp_path):
    left, others = tmp_path / "state.pt.0a1b2c3d.partial", tmp_path / "notes.partial"
    for file in (left, others):
        file.write_bytes(b"half")
    train.fit(tiny(), data, **SETTINGS | {"epochs": 1, "warmup_epochs": 0, "out": tmp_path})
    assert not left.exists()
    assert others.exists()


def test_resume_knows_its_images(data, tmp_path, refuses):
    settings = SETTINGS | {"epochs": 1, "warmup_epochs": 0, "keep": "best", "out": tmp_path}
    train.fit(tiny(), hold_out(data, 0.25), **settings)
    for fraction, seed in ((0.5, 0), (0.25, 1)):
        with refuses(ValueError, "not held out", "same settings and data"):
            train.fit(tiny(), hold_out(data, fraction, seed), **settings, resume=True)
    data.train.images[0] += 1
    with refuses(ValueError, "_images=", "SHA-256", "same settings and data"):
        train.fit(tiny(), hold_out(data, 0.25), **settings, resume=True)
    data.train.images[0] -= 1
    train.fit(tiny(), hold_out(data, 0.25), **settings, resume=True)


def test_a_model_that_can_t_be_saved_is_refused_before_it_trains(data, tmp_path, refuses):
    class Mine(ViT):
        pass

    with refuses(TypeError, "Mine", "Mine"):
        train.fit(Mine(tiny().config), data, **SETTINGS, augmentation=stopping_after(0), out=tmp_path)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------- models changed by hand


def test_a_head_that_was_replaced_is_trained(data):
    model = ViT(replace(tiny().config, num_classes=1000))
    model.head = torch.nn.Linear(model.config.dim, len(data.classes))
    before = model.head.weight.clone()
    train.fit(model, data, epochs=1, batch_size=13, progress=False)
    assert not torch.equal(model.head.weight, before)


def test_features_are_not_trained_as_logits(data, refuses):
    model = tiny()
    model.head = torch.nn.Identity()
    with refuses(ValueError, "0 classes", "num_classes=3"):
        train.fit(model, data, epochs=1, batch_size=13, progress=False)


def test_nothing_to_test_on_is_an_error(data, refuses):
    untested = replace(data, test=data.test.part(torch.zeros(12, dtype=torch.bool)))
    with refuses(ValueError, "tiny has no test images"):
        train.evaluate(tiny(), untested)
    model, before = tiny(), tiny().state_dict()
    with refuses(ValueError, "tiny has no test images"):
        train.fit(model, untested, **SETTINGS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())  # not after an epoch


def test_a_model_in_half_precision_is_evaluated(data):
    model = tiny()
    expected = train.predict(model, data)[0]
    logits = train.predict(model.half(), data)[0]
    assert logits.dtype == torch.float16
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=0.01)
    assert 0 <= train.evaluate(model, data)["test_accuracy"] <= 1
