"""Lesson 07: training against a loop written out by hand, resuming after real kills, several processes, full disks."""

import csv
import errno
import json
import math
import os
import pickle
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import ViT, ViTConfig, train
from vit_tutorial.data import Data, Images

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
    rows = train.fit(model, data, **(SETTINGS | {"augment": noise, "ema": 0.5} | changes))
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


def test_what_decays():
    model = tiny()
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
    assert not names


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.9},
        {"clip": 0.05},
        {"label_smoothing": 0.0, "weight_decay": 1.0},
        {"learning_rate": 0.02, "seed": 5},
    ],
)
def test_fit_equals_the_loop_by_hand(data, changes):
    recipe = {"learning_rate": 1e-2, "weight_decay": 0.05, "label_smoothing": 0.1, "clip": 1.0, "ema": 0.0, "seed": 0}
    recipe |= changes
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
        order = train._Order(26, 8, recipe["seed"], 0, 1)
        order.epoch = epoch
        sums = 0.0
        for batch in order:
            images, labels = data.train.batch(torch.tensor([index for _, index in batch]))
            for group in adam.param_groups:
                group["lr"] = recipe["learning_rate"] * (
                    (step + 1) / 3 if step < 3 else (1 + math.cos(math.pi * (step - 3) / 6)) / 2
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
    history = train.fit(ours, data, **SETTINGS, **recipe)
    assert_close(weights(ours), average, rtol=0, atol=1e-5)
    assert [row["loss"] for row in history] == pytest.approx(losses, abs=1e-5)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert history[-1]["rate"] == pytest.approx(recipe["learning_rate"] * (1 + math.cos(math.pi * 5 / 6)) / 2)
    assert history[-1] | train.evaluate(ours, data) == history[-1]


def test_it_starts_at_log_k_and_learns(data):
    model = tiny(dropout=0.0, drop_path=0.0)
    assert train.evaluate(model, data)["test_loss"] == pytest.approx(math.log(3))
    history = train.fit(model, data, epochs=25, batch_size=8, learning_rate=1e-2, warmup_epochs=2, progress=False)
    assert (history[-1]["accuracy"], history[-1]["test_accuracy"]) == (1.0, 1.0)
    assert history[-1]["test_loss"] < 0.2


def test_predict_and_evaluate(data):
    model = tiny()
    nn.init.normal_(model.head.weight)
    images, expected = data.test.batch()
    by_hand = model.eval()((images - 0.3) / 0.2)
    for training in (True, False):  # without dropout in either, and the mode stays
        logits, labels = train.predict(model.train(training), data, batch_size=5)
        assert model.training is training
        assert torch.equal(labels, expected)
        assert_close(logits, by_hand, rtol=0, atol=1e-5)
    assert len(train.predict(model, data, split="train")[1]) == 26
    assert torch.equal(train.predict(model, data, part=slice(1, None, 2))[1], expected[1::2])
    accuracy = (by_hand.argmax(1) == expected).float().mean().item()
    loss = F.cross_entropy(by_hand, expected).item()
    assert train.evaluate(model, data) == pytest.approx({"test_loss": loss, "test_accuracy": accuracy})


def test_normalise_by_channel():
    images = torch.rand(2, 3, 4, 5)
    values = SimpleNamespace(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    out = train.normalise(images, values)
    for channel in range(3):
        assert_close(out[:, channel], (images[:, channel] - values.mean[channel]) / values.std[channel])


def test_mixed_labels(data):
    seen = []

    def mix(images, labels):
        seen.append(labels)
        return images.flip(0), F.one_hot(labels.flip(0), 3).float()

    changes = {"augment": None, "ema": 0.0, "epochs": 1}
    mixed, rows = trained(data, mix=mix, **changes)
    assert len(seen) == 3
    assert_close(mixed, trained(data, mix=lambda images, labels: (images.flip(0), labels.flip(0)), **changes)[0])
    assert rows[0]["accuracy"] > 0  # right answers are counted by the larger share


# ------------------------------------------------------------------------------------------------------- determinism


def test_the_order_is_a_function_of_seed_and_epoch():
    def epoch(number, seed=0, rank=0, processes=1):
        order = train._Order(26, 8, seed, rank, processes)
        order.epoch = number
        assert len(order) == len(list(order)) == 3
        return list(order)

    assert epoch(1) == epoch(1)
    assert {key[0] for batch in epoch(4) for key in batch} == {4}
    indices = [[index for batch in epoch(number) for _, index in batch] for number in range(40)]
    assert all(len(set(order)) == 24 for order in indices)
    assert len({tuple(order) for order in indices}) == 40
    assert {index for order in indices for index in order} == set(range(26))  # nothing is left out for good
    assert epoch(1) != epoch(1, seed=1)
    shares = [epoch(2, rank=rank, processes=4) for rank in range(4)]
    assert all(len(batch) == 2 for share in shares for batch in share)
    for whole, *parts in zip(epoch(2), *shares, strict=True):
        assert sorted(whole) == sorted(key for part in parts for key in part)


def test_same_seed_same_weights_whatever_the_workers(data):
    ours, rows = trained(data)
    for workers in (0, 2):
        torch.manual_seed(99)  # what was drawn before doesn't count
        others, same = trained(data, workers=workers)
        assert torch.equal(ours, others)
        assert rows == same
    assert not torch.equal(ours, trained(data, seed=1)[0])
    in_use = tiny().eval()  # a model that was in use is trained with dropout, too
    train.fit(in_use, data, **SETTINGS, augment=noise, ema=0.5)
    assert torch.equal(weights(in_use), ours)


def test_augmentation_depends_on_seed_epoch_and_image_alone(data):
    images = train._Images(data.train, noise, seed=0)
    before = torch.get_rng_state()
    first = images[0, 5][0]
    assert torch.equal(before, torch.get_rng_state())  # dropout goes on as if nothing had been drawn
    torch.rand(7)
    assert torch.equal(first, images[0, 5][0])
    others = [images[1, 5], images[0, 6], train._Images(data.train, noise, seed=1)[0, 5]]
    added = [
        image - data.train[index][0] for image, index in zip([image for image, _ in others], (5, 6, 5), strict=True)
    ]
    assert not any(torch.allclose(first - data.train[5][0], other) for other in added)


def test_affine(data):
    image = torch.rand(2, 8, 6)
    assert_close(train.Affine(0.0)(image), image, rtol=0, atol=1e-5)
    torch.manual_seed(0)
    moved = torch.stack([train.Affine()(image) for _ in range(200)])
    assert moved.shape == (200, 2, 8, 6)
    assert (moved[0] - moved[1]).abs().max() > 0.01
    # A bright dot in the middle goes as far as it should: 0.1 of half an image is 0.4 of a pixel on 8 rows.
    dot = torch.zeros(1, 80, 80)
    dot[:, 39:41, 39:41] = 1
    places = [(torch.nonzero(train.Affine()(dot)[0]).float().mean(dim=0) - 39.5) / 40 for _ in range(400)]
    assert_close(torch.stack(places).std(dim=0), torch.tensor([0.1, 0.1]), rtol=0.15, atol=0)
    assert "0.1" in train._name(train.Affine())
    assert train._name(train.Affine()) != train._name(train.Affine(0.2))


def test_augmentation_by_name(data):
    def parts(name):
        image, batch = train._augmentation(name, data)
        return [type(part).__name__ for part in image or []], batch is not None

    assert parts("none") == ([], False)
    assert parts("affine") == (["Affine"], False)
    assert parts("affine+flip+mixup") == (["Affine", "Compose"], True)
    assert parts("crop") == (["Compose"], False)


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


@pytest.mark.parametrize("images", [0, 20, 24, 25, 47, 60, 71])
def test_resume_is_exact(data, tmp_path, images):
    whole = trained(data)
    with pytest.raises(Stopped):
        trained(data, augment=stopping_after(images), out=tmp_path)
    torch.manual_seed(99)
    model = tiny(seed=1)  # other weights: all of them come from the state
    rows = train.fit(model, data, **SETTINGS, augment=noise, ema=0.5, out=tmp_path, resume=True)
    assert torch.equal(weights(model), whole[0])
    assert [row | {"seconds": 0} for row in rows] == [row | {"seconds": 0} for row in whole[1]]
    # Once more: nothing is left to do, and the result is the same.
    again = trained(data, augment=stopping_after(0), out=tmp_path, resume=True)
    assert torch.equal(again[0], whole[0])
    assert again[1] == whole[1]


def test_resume_without_a_state_begins(data, tmp_path):
    assert torch.equal(trained(data, out=tmp_path / "new" / "run", resume=True)[0], trained(data)[0])


def test_a_run_is_not_overwritten(data, tmp_path, refuses):
    trained(data, out=tmp_path)
    before = (tmp_path / "state.pt").read_bytes()
    with refuses(FileExistsError, str(tmp_path), "resume", "another folder"):
        trained(data, out=tmp_path)
    with refuses(ValueError, str(tmp_path), "learning_rate=0.001", "0.5", "same settings"):
        trained(data, out=tmp_path, resume=True, learning_rate=0.5)
    with refuses(ValueError, "augment=noise", "None"):
        trained(data, out=tmp_path, resume=True, augment=None)
    with refuses(ValueError, "dim=8", "dim=16"):
        train.fit(tiny(dim=16), data, **SETTINGS, augment=noise, ema=0.5, out=tmp_path, resume=True)
    assert (tmp_path / "state.pt").read_bytes() == before
    with refuses(ValueError, "resume", "folder"):
        trained(data, resume=True)


def test_machines_without_a_shared_folder_are_told(tmp_path, refuses):
    def gather(done):
        return torch.cat([done, done + 2])  # the other machine has two epochs more

    apart = SimpleNamespace(gather=gather, device=torch.device("cpu"), is_main_process=True)
    with refuses(ValueError, str(tmp_path), "share"):
        train._Store(tmp_path, {}, {}, apart).open(resume=True)
    assert not list(tmp_path.iterdir())


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


def test_sigkill_at_random_moments(tmp_path):
    # Four kills here; by hand: python tests/stress_resume.py FOLDER --kills 40
    command = [sys.executable, str(ROOT / "tests/stress_resume.py"), str(tmp_path), "--kills", "4"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["from outside"] + counts["while writing"] == 4
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


def test_a_read_only_folder_stops_the_run_before_it_trains(data, tmp_path, monkeypatch, refuses):
    monkeypatch.setattr(Path, "open", failing(errno.EROFS))
    with refuses(OSError, str(tmp_path), "Read-only"):
        trained(data, augment=stopping_after(0), out=tmp_path)


# ----------------------------------------------------------------------------------------- numbers that are no good


def test_a_loss_that_is_no_number_stops(data, tmp_path, refuses):
    calls = []

    def spoil(images, labels):
        calls.append(labels)
        return (images * math.nan if len(calls) == 5 else images), labels  # the fifth step: number 4

    with refuses(FloatingPointError, "step 4", "rate of 0.000933", "nan", "smaller learning rate", "warm-up"):
        trained(data, mix=spoil, out=tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert len(state["history"]) == 1
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


def test_an_infinite_gradient_stops(refuses):
    with refuses(FloatingPointError, "step 7", "rate of 0.1", "inf"):
        train.check_finite(torch.tensor(1.0), torch.tensor(math.inf), 7, 0.1)
    train.check_finite(torch.tensor(1.0), torch.tensor(1e30), 7, 0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0), ("epochs", 1.5), ("batch_size", 0), ("batch_size", 27), ("learning_rate", 0.0),
        ("learning_rate", math.nan), ("learning_rate", math.inf), ("weight_decay", -1), ("warmup_epochs", 4),
        ("warmup_epochs", -1), ("label_smoothing", 1.0), ("label_smoothing", -0.1), ("clip", 0.0), ("clip", math.nan),
        ("ema", 1.0), ("ema", -0.1), ("seed", -1), ("seed", 0.5), ("precision", "fp16"),
    ],
)  # fmt: skip
def test_refuses(data, refuses, name, value):
    with refuses(ValueError, name, str(value)):
        trained(data, **{name: value})


def test_a_batch_must_be_divisible_by_the_processes(data, refuses):
    three = SimpleNamespace(num_processes=3, process_index=0, device=torch.device("cpu"))
    with refuses(ValueError, "8", "3 processes"):
        train._loader(data.train, 8, None, 0, 0, three)


# -------------------------------------------------------------------------------- precision, compile, several processes


def test_bf16(data):
    kinds = set()
    model = tiny()
    model.blocks[0].mlp.fc1.register_forward_hook(lambda *call: kinds.add((call[0].training, call[-1].dtype)))
    train.fit(model, data, **SETTINGS, augment=noise, ema=0.5, precision="bf16")
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
    changes = {"augment": None, "epochs": 1, "warmup_epochs": 0}
    plain = trained(data, **changes)[0]
    assert not compiled
    assert_close(trained(data, **changes, compile=True)[0], plain, rtol=0, atol=1e-5)
    assert len(compiled) == 1


LINE = r"test accuracy \d+\.\d\d% \(\d+ of 360 images\), [\d,]+ parameters, \d+ s on {processes} x cpu, saved in "
SMALL = "--data digits --patch 4 --depth 1 --dim 16 --heads 2 --mlp 16 --epochs 2 --batch 128".split()  # noqa: SIM905


def history_of(folder):
    with (folder / "history.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    train.main([*SMALL, "--out", str(out)])
    return out


def test_two_processes_have_the_loss_curve_of_one(digits_run, tmp_path):
    # --multi_gpu is how accelerate is told of several processes; ACCELERATE_USE_CPU takes the GPUs out again.
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch += f"--dynamo_backend no --num_cpu_threads_per_process 1 --main_process_port {port} -m vit_tutorial.train"
    done = subprocess.run(
        [sys.executable, *launch.split(), *SMALL, "--out", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"ACCELERATE_USE_CPU": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "s on 2 x cpu" in done.stdout
    assert done.stdout.count("test accuracy") == 1  # one of the two speaks
    one, two = history_of(digits_run), history_of(tmp_path)
    assert len(one) == len(two) == 2
    for ours, theirs in zip(one, two, strict=True):
        for name in ("epoch", "rate", "loss", "test_loss"):
            assert theirs[name] == pytest.approx(ours[name], abs=1e-4)
        for name, images in (("accuracy", 1408), ("test_accuracy", 360)):
            assert theirs[name] == pytest.approx(ours[name], abs=2.5 / images)


# ------------------------------------------------------------------------------------------------------ command line


def test_what_a_run_leaves(digits_run):
    assert {file.name for file in digits_run.iterdir()} == {
        "state.pt", "model.safetensors", "config.json", "history.csv", "curves.png",
    }  # fmt: skip
    rows = history_of(digits_run)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert list(rows[0]) == ["epoch", "rate", "loss", "accuracy", "test_loss", "test_accuracy", "seconds"]
    assert (digits_run / "curves.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((digits_run / "config.json").read_text())
    assert config["classes"] == list("0123456789")
    digits = train.data_sets.load("digits")
    assert (config["data"], config["image_size"]) == ("digits", [8, 8])
    assert (tuple(config["mean"]), tuple(config["std"])) == (digits.mean, digits.std)
    assert config["command"] == f"python -m vit_tutorial.train {' '.join(SMALL)} --out {digits_run}"
    assert config["test_accuracy"] == rows[-1]["test_accuracy"]


def test_the_checkpoint_is_what_it_claims(digits_run):
    model, classes, preprocess = vt.load(digits_run)
    assert (model.config.dim, model.training, classes) == (16, False, tuple("0123456789"))
    digits = train.data_sets.load("digits")
    assert (preprocess.image_size, preprocess.mean, preprocess.std) == (digits.image_size, digits.mean, digits.std)
    claimed = history_of(digits_run)[-1]
    assert train.evaluate(model, digits) == pytest.approx(
        {name: claimed[name] for name in ("test_loss", "test_accuracy")}
    )
    assert claimed["test_accuracy"] > 0.1


def test_the_last_line(digits_run, capsys):
    train.main([*SMALL, "--out", str(digits_run), "--resume"])  # done already: it only says so again
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    accuracy = history_of(digits_run)[-1]["test_accuracy"]
    assert out.startswith(f"test accuracy {accuracy:.2%} ({round(360 * accuracy)} of 360 images), ")
    assert out.endswith(f" s on 1 x cpu, saved in {digits_run}\n")


def test_the_bar(data, capsys):
    trained(data, progress=True, epochs=1)
    assert "3/3" in capsys.readouterr().err
    trained(data, progress=False, epochs=1)
    assert capsys.readouterr() == ("", "")


def test_the_command_line_has_the_data_set_s_defaults():
    def parse(*arguments):
        arguments = [*arguments, "--out", "x"]
        return train.parser(arguments).parse_args(arguments)

    for name, defaults in train.DEFAULTS.items():
        args = vars(parse("--data", name or "my/folder"))
        assert {key: args[key] for key in defaults} == defaults
    assert vars(parse()) == vars(parse("--data", "digits"))
    sized = parse("--size", "Ti/4", "--depth", "5")
    assert (sized.patch, sized.dim, sized.depth, sized.heads, sized.mlp) == (4, 192, 5, 3, 768)
    assert parse("--epochs", "7", "--data", "shapes").epochs == 7
    assert parse("--clip", "inf").clip == math.inf


def test_help_is_for_people(capsys):
    with pytest.raises(SystemExit):
        train.main(["--data", "cifar10", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for action in train.parser([])._actions:
        assert action.help
        assert action.option_strings[0] in text
    assert f"passes over the training images (default: {train.DEFAULTS['cifar10']['epochs']})" in text
    assert "default: None" not in text
    assert "default: False" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nonsense"], ["nonsense", "digits", "shapes"]),
        (["--augment", "nonsense"], ["nonsense", "flip"]),
        (["--patch", "3"], ["8", "3"]),
        (["--epochs", "0"], ["epochs", "0"]),
        (["--batch", "5000"], ["5000", "1437"]),
    ],
)
def test_errors_are_one_line(tmp_path, refuses, arguments, words):
    with refuses(SystemExit, "error: ", *words):
        train.main([*SMALL, "--out", str(tmp_path / "run"), *arguments])
    assert not (tmp_path / "run").exists()


def test_a_wrong_size_is_a_usage_error(capsys):
    with pytest.raises(SystemExit):
        train.main(["--size", "XXL/2", "--out", "x"])
    assert "'XXL/2'" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(tmp_path, refuses, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "fit", interrupt)
    with refuses(SystemExit, "--resume"):
        train.main([*SMALL, "--out", str(tmp_path)])


def test_the_same_weights_by_another_data_set_s_name_are_no_resume(data, tmp_path, refuses):
    trained(data, out=tmp_path, epochs=1)
    with refuses(ValueError, "data=tiny", "other"):
        trained(replace(data, name="other"), out=tmp_path, epochs=1, resume=True)
