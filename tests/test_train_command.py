"""The command line of training: its options, what a run leaves, fine-tuning, two processes, errors of one line."""

import csv
import json
import math
import os
import re
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import torch
from PIL import Image

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial import ViTConfig, data, train
from vit_tutorial.options.recipe import FINE_TUNING, FOLDER_RECIPE, RECIPES, Recipe
from vit_tutorial.options.train import Architecture, ModelOptions
from vit_tutorial.train import command as train_command
from vit_tutorial.variants.modern import ARCHITECTURES

ROOT = Path(__file__).parent.parent
SMALL = (
    *("--data", "digits", "--patch-size", "4", "--depth", "1", "--dim", "16", "--num-heads", "2", "--mlp-dim", "16"),
    *("--epochs", "2", "--batch-size", "128"),
)
TINY = (
    *("--image-size", "8", "--patch-size", "4", "--depth", "1", "--dim", "12", "--num-heads", "2", "--mlp-dim", "12"),
    *("--epochs", "2", "--batch-size", "4"),
)


def options(*words):
    return cli.train_options([*words, "--out", "x"])


def new_model(*words):
    chosen, _ = options(*words)
    return train_command.new_model(chosen.model, data.spec_of(chosen.data).model, data.digits(), seed=0)


@pytest.fixture
def run(capfd):
    """The command: its exit status, what it printed, what it said."""

    def run(*words):
        capfd.readouterr()
        try:
            cli.main(["train", *map(str, words)])
            status = 0
        except SystemExit as error:
            status = error.code
        out, err = capfd.readouterr()
        return status, out, " ".join(err.replace("│", " ").split())

    return run


def history_of(folder):
    with (folder / "history.csv").open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    cli.main(["train", *SMALL, "--out", str(out)])
    return out


# --- the options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RECIPES, "my/folder"])
def test_the_defaults_are_the_data_set_s(name):
    assert options("--data", name)[1] == RECIPES.get(name, FOLDER_RECIPE)


def test_the_defaults_of_fine_tuning():
    assert options("--data", "pets", "--weights", "cifar10")[1] == FINE_TUNING
    _, recipe = options("--data", "pets", "--weights=cifar10", "--freeze", "--clip", "inf")
    assert (recipe.freeze, recipe.layer_decay, recipe.learning_rate, recipe.clip) == (True, 1.0, 1e-2, math.inf)
    assert options("--epochs", "3")[1].warmup_epochs == 1.5  # half of the epochs, not 5


def test_each_field_of_the_recipe_is_an_option_with_its_docstring_as_help(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["train", "--data", "cifar10", "--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in fields(Recipe):
        assert f"--{field.name.replace('_', '-')} " in text
    assert "Passes over the training images; each drops the last, incomplete batch. (default: 300)" in text


def test_the_options_of_the_model_are_the_config_s():
    chosen = {field.name for field in fields(ModelOptions)} - {"size", "arch", "stem"}
    assert chosen <= {field.name for field in fields(ViTConfig)}
    assert get_args(Architecture) == ("vit", *ARCHITECTURES)


@pytest.mark.parametrize("arch", get_args(Architecture))
def test_each_architecture_begins_as_its_data_set_s_model(arch):
    model = new_model("--arch", arch)
    assert (model.config.dim, model.config.num_classes, model.config.image_size) == (64, 10, (8, 8))
    assert (type(model) is vt.ViT) == (arch == "vit")


def test_a_folder_called_digits_starts_from_the_model_of_folders():
    model = new_model("--data", "my/digits")
    assert model.config.dim == data.spec_of("my/digits").model.dim != 64


def test_the_size_and_the_stem_of_a_model_from_scratch():
    sized = new_model("--size", "Ti/4", "--depth", "5").config
    assert (sized.dim, sized.depth, sized.num_heads, sized.mlp_dim) == (192, 5, 3, 768)
    model = new_model("--stem", "8x2,8x2")
    assert model.config.stem.layers == ((8, 3, 2), (8, 3, 2))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", "two"], "--epochs: invalid literal for int() with base 10: 'two'"),
        (["--epochs", "0"], "epochs must be a whole number from 1"),
        (["--learning-rate", "nan"], "learning_rate must be above 0"),
        (["--augment", "crop+blur"], "'blur' is not an augmentation"),
        (["--arch", "vgg"], "invalid choice 'vgg'"),
        (["--out", ""], "--out is empty or this folder: name it"),
        (["--out", "."], "--out is empty or this folder: name it"),
        (["--weights", ""], "--weights is empty"),
        (["--test-fraction", "0.2"], "digits has a test split of its own"),
        (["--workers", "-1"], "--workers must be from 0 to 256"),
        (["--validation", "2"], "--validation must be above 0 and below 1"),
        (["--freeze"], "--freeze needs --weights"),
        (["--keep", "best"], "--keep best needs --validation"),
        (["--accumulate", "0"], "accumulate must be a whole number from 1"),
        (["--weights", "cifar10", "--dim", "64"], "leave --dim out"),
        (["--weights", "cifar10", "--arch", "dinov2"], "leave --arch out"),
        (["--weights", "cifar10", "--layer-decay", "1.5"], "layer_decay must be in (0, 1]"),
        (["--weights", "cifar10", "--head-first", "15"], "head_first must be less than epochs=15"),
        (["--stem", "8x2x2"], "as in 32x1,64x2"),
        (["--epoch", "3"], "--epochs"),
    ],
)
def test_a_wrong_argument_is_told_before_any_work(run, tmp_path, monkeypatch, words, said):
    monkeypatch.setattr(train_command, "run", lambda *_: pytest.fail("the work has begun"))
    status, _, err = run("--out", tmp_path / "run", *words)
    assert status == 2
    assert said in err


def test_a_wrong_argument_does_not_wait_for_torch():
    code = "import sys, vit_tutorial_cli\ntry: vit_tutorial_cli.main(sys.argv[1:])\nfinally: print(*sys.modules)"
    words = ["train", "--out", "x", "--learning-rate", "fast"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT, check=False)
    assert not {"torch", "numpy", "PIL"} & set(done.stdout.split())
    assert done.returncode == 2


# --- what a run leaves ---------------------------------------------------------------------------------------------


def test_what_a_run_leaves(digits_run):
    names = {"state.pt", "model.safetensors", "config.json", "README.md", "run.json", "history.csv", "curves.png"}
    names |= {".lock"}
    mistakes = {"confusion.csv", "confusion.png", "mistakes.html"}
    assert {file.name for file in digits_run.iterdir()} == names | mistakes
    rows = history_of(digits_run)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert list(rows[0]) == ["epoch", "rate", "loss", "accuracy", "test_loss", "test_accuracy", "seconds"]
    run = json.loads((digits_run / "run.json").read_text())
    assert (run["data"], run["test_accuracy"]) == ("digits", rows[-1]["test_accuracy"])
    recipe = Recipe(**{field.name: run[field.name] for field in fields(Recipe)})
    assert (recipe.epochs, recipe.batch_size, recipe.warmup_epochs, recipe.augment) == (2, 128, 1, "affine")


def test_the_checkpoint_is_what_it_claims(digits_run):
    model, classes, preprocess = vt.load(digits_run)
    assert (model.config.dim, model.training, classes) == (16, False, tuple("0123456789"))
    digits, last = data.digits(), history_of(digits_run)[-1]
    assert (preprocess.image_size, preprocess.mean, preprocess.std) == (digits.image_size, digits.mean, digits.std)
    assert train.evaluate(model, digits) == pytest.approx({name: last[name] for name in ("test_loss", "test_accuracy")})
    assert last["test_accuracy"] > 0.1


def test_the_last_line_is_what_was_measured_now(digits_run, run):
    status, out, _ = run(*SMALL, "--out", digits_run, "--resume")  # done already: it only says so again
    assert status == 0
    right = round(360 * history_of(digits_run)[-1]["test_accuracy"])
    assert re.findall(r"^  (\d) +[\d.]+%  \d+ of (\d+)$", out, re.MULTILINE) == [
        (str(k), str(n)) for k, n in enumerate(data.digits().test.labels.bincount().tolist())
    ]
    last = out.splitlines()[-1]
    assert last.startswith(f"test accuracy {right / 360:.2%} ({right} of 360 images, 95 % interval ")
    assert last.endswith(f" s on 1 x cpu, saved in {digits_run}")


def test_choices_are_made_on_a_validation_split_and_the_test_split_is_used_once(tmp_path, run):
    status, out, err = run(*SMALL, "--validation", "0.2", "--clip", "inf", "--augment", "none", "--out", tmp_path)
    assert status == 0
    assert "1,150 training images and 287 validation images" in err
    assert "note: the weights are those after epoch 2 of 2, the last one, with a validation accuracy of" in err
    model = vt.load(tmp_path).model
    config, last = json.loads((tmp_path / "run.json").read_text()), history_of(tmp_path)[-1]
    assert config["clip"] == "inf"  # JSON has no infinity
    held_out = train.evaluate(model, data.hold_out(data.digits(), 0.2))["test_accuracy"]
    assert last["validation_accuracy"] == config["validation_accuracy"] == pytest.approx(held_out)
    assert not any(name.startswith("test_") for name in last)
    tested = train.evaluate(model, data.digits())["test_accuracy"]
    assert f"test accuracy {tested:.2%} ({round(360 * tested)} of 360 images, " in out


@pytest.fixture
def classes(tmp_path):
    """Red cats and green dogs, ten of each, without splits."""
    for name, colour in (("cat", (200, 60, 20)), ("dog", (20, 160, 60))):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (12, 12), (*colour[:2], i)).save(tmp_path / "pets" / name / f"{i}.png")
    return tmp_path / "pets"


def test_a_folder_of_classes_from_end_to_end(classes, tmp_path, run):
    command = [*TINY, "--data", classes, "--out", tmp_path / "run"]
    (classes / "cat" / "notes").write_text("no image")
    status, out, err = run(*command, "--test-fraction", "0.3")
    assert status == 0
    assert "1 file skipped, the model is trained on the others" in err
    assert "notes is not an image" in err
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["test_files"] == list(data.image_folder(classes, 8, 0.3).random_test_files)
    assert found["data"] == "pets"
    assert run(*command, "--test-fraction", "0.3", "--resume")[0] == 0
    (classes / "cat").rename(classes / "eagle")
    status, out, err = run(*command, "--test-fraction", "0.3", "--resume")
    assert (status, out) == (2, "")
    assert "has classes=['cat', 'dog'], not ['dog', 'eagle']" in err
    (classes / "eagle").rename(classes / "cat")
    Image.new("RGB", (13, 13)).save(classes / "cat" / "0.png")
    status, _, err = run(*command, "--test-fraction", "0.3", "--resume")
    assert status == 2
    assert "has files=20 files" in err


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(digits_run, tmp_path):
    # --multi_gpu is how accelerate is told of several processes; ACCELERATE_USE_CPU takes the GPUs out again.
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch += f"--dynamo_backend no --num_cpu_threads_per_process 1 --main_process_port {port} -m vit_tutorial.train"
    done = subprocess.run(
        [sys.executable, *launch.split(), *SMALL, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"ACCELERATE_USE_CPU": "1"},
        timeout=300,
    )
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


# --- errors of the work --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--data", "nonsense"], 2, "'nonsense' is neither a data set nor a folder: use digits, shapes"),
        (["--patch-size", "3"], 2, "patch"),
        (["--size", "XXL/2"], 2, "XXL"),
        (["--batch-size", "5000"], 2, "batch_size 5000 is more than 1,437 training images"),
        (["--out", f"{__file__}/run"], 1, "can't write state.pt"),
        (["--weights", "nonsense"], 2, "'nonsense'"),
        (["--data", "digits", "--weights", "cifar10"], 2, "(1, 8, 8) (channels, height, width)"),
    ],
)
def test_errors_are_one_line(tmp_path, run, words, status, said):
    model = () if "--weights" in words else SMALL
    found, _, err = run(*model, "--out", tmp_path / "run", *words)
    assert found == status
    assert "error: " in err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_results_are_not_written_among_the_images(classes, run):
    status, _, err = run(*TINY, "--data", classes, "--test-fraction", "0.3", "--out", classes / "run")
    assert status == 2
    assert "the folder of the images" in err


def test_ctrl_c_says_how_to_go_on(tmp_path, run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_command, "fit", interrupt)
    status, _, err = run(*SMALL, "--out", tmp_path)
    assert status == 1
    assert err.endswith("stopped: the same command with --resume continues")


# --- fine-tuning ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grounds(tmp_path_factory):
    """Pieces of two photographs, 16 to train on and 8 to test on."""
    folder = tmp_path_factory.mktemp("data") / "grounds"
    for ground in ("brick", "grass"):
        with Image.open(data.photograph_file(ground)) as photo:
            for i in range(24):
                file = folder / ("train" if i < 16 else "test") / ground / f"{i}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                row, column = divmod(i, 6)
                photo.crop((80 * column, 100 * row, 80 * column + 64, 100 * row + 48)).save(file)
    return folder


def test_fine_tuning_reads_the_checkpoint_once_and_changes_the_head(grounds, tmp_path, run, monkeypatch):
    read = []
    load = train_command.load
    monkeypatch.setattr(train_command, "load", lambda name, **how: read.append(name) or load(name, **how))
    words = ["--data", grounds, "--weights", "photographs", "--epochs", "3", "--freeze", "--out", tmp_path]
    status, _, err = run(*words)
    assert status == 0
    assert read == ["photographs"]
    assert "note: batch_size is 8, a quarter of 32 training images, not 32" in err
    assert "32 training images and 16 test images of 32 x 32 pixels, 2 classes; 3 epochs of 4 steps, 12 in all" in err
    start, trained = vt.load("photographs"), vt.load(tmp_path)
    assert trained.classes == ("brick", "grass")
    assert trained.preprocess == start.preprocess
    before, after = start.model.state_dict(), trained.model.state_dict()
    assert [name for name in after if not before[name].equal(after[name])] == ["head.weight", "head.bias"]
    accuracy = train.evaluate(trained.model, data.image_folder(grounds, preprocess=trained.preprocess))["test_accuracy"]
    assert accuracy > 0.8
    with (tmp_path / "confusion.csv").open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["number", "true class", "brick", "grass", "right"]
    assert sum(int(row[2 + k]) for k, row in enumerate(rows)) == round(16 * accuracy)
    assert (tmp_path / "mistakes.html").read_text("utf-8").count("<li>") == 16 - round(16 * accuracy)


def test_a_batch_size_that_was_typed_stays(grounds, tmp_path, run):
    words = ["--data", grounds, "--weights", "photographs", "--epochs", "1", "--freeze", "--out", tmp_path]
    status, _, err = run(*words, "--batch-size", "32")  # the default's number
    assert status == 0
    assert "1 epoch of 1 step, 1 in all, of 32 images" in err


def test_the_same_classes_go_on_with_their_head(tmp_path, run):
    words = ["--data", "digits", "--weights", "digits", "--epochs", "1", "--freeze", "--learning-rate", "1e-9"]
    status, _, _ = run(*words, "--out", tmp_path)
    assert status == 0
    assert torch.allclose(vt.load(tmp_path).model.head.weight, vt.load("digits").model.head.weight, atol=1e-6)
