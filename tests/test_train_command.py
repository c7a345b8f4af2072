"""The command line of training: one word for one thing, what a run leaves, two processes, errors of one line."""

import csv
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from PIL import Image

from vit_tutorial import ViTConfig, data, train, weights
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.train import command as train_command
from vit_tutorial.variants.hybrid import ConvStem

ROOT = Path(__file__).parent.parent
SMALL = (
    *("--data", "digits", "--patch-size", "4", "--depth", "1", "--dim", "16", "--num-heads", "2", "--mlp-dim", "16"),
    *("--epochs", "2", "--batch-size", "128"),
)


def parse(*arguments):
    arguments = [*arguments, "--out", "x"]
    return train.parser(arguments).parse_args(arguments)


def history_of(folder):
    with (folder / "history.csv").open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    train.main([*SMALL, "--out", str(out)])
    return out


# --- what a run leaves ---------------------------------------------------------------------------------------------


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
    assert done.stderr.count("warmup_epochs is 1") == 1
    one, two = history_of(digits_run), history_of(tmp_path)
    assert len(one) == len(two) == 2
    for ours, theirs in zip(one, two, strict=True):
        for name in ("epoch", "rate", "loss", "test_loss"):
            assert theirs[name] == pytest.approx(ours[name], abs=1e-4)
        for name, images in (("accuracy", 1408), ("test_accuracy", 360)):
            assert theirs[name] == pytest.approx(ours[name], abs=2.5 / images)


def test_what_a_run_leaves(digits_run):
    names = {"state.pt", "model.safetensors", "config.json", "history.csv", "curves.png"}
    mistakes = {"confusion.csv", "confusion.png", "mistakes.html"}
    assert {file.name for file in digits_run.iterdir()} == names | mistakes
    rows = history_of(digits_run)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert list(rows[0]) == ["epoch", "rate", "loss", "accuracy", "test_loss", "test_accuracy", "seconds"]
    assert (digits_run / "curves.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((digits_run / "config.json").read_text())
    assert config["classes"] == list("0123456789")
    digits = data.digits()
    assert (config["data"], config["image_size"]) == ("digits", [8, 8])
    assert (tuple(config["mean"]), tuple(config["std"])) == (digits.mean, digits.std)
    assert config["command"] == f"python -m vit_tutorial.train {' '.join(SMALL)} --out {digits_run}"
    assert config["test_accuracy"] == rows[-1]["test_accuracy"]
    recipe = Recipe(**config["recipe"])
    assert (recipe.epochs, recipe.batch_size, recipe.warmup_epochs, recipe.augment) == (2, 128, 1, "affine")


def test_the_checkpoint_is_what_it_claims(digits_run):
    model, classes, preprocess = weights.load(digits_run)
    assert (model.config.dim, model.training, classes) == (16, False, tuple("0123456789"))
    digits = data.digits()
    assert (preprocess.image_size, preprocess.mean, preprocess.std) == (digits.image_size, digits.mean, digits.std)
    claimed = history_of(digits_run)[-1]
    assert train.evaluate(model, digits) == pytest.approx(
        {name: claimed[name] for name in ("test_loss", "test_accuracy")}
    )
    assert claimed["test_accuracy"] > 0.1


def test_choices_are_made_on_images_held_out_and_the_test_split_is_looked_at_once(tmp_path, capsys):
    arguments = [*SMALL, "--validation", "0.2", "--stem", "8x2,8x2", "--augment", "none", "--out", str(tmp_path)]
    train.main(arguments)
    digits = data.digits()
    seen = data.hold_out(digits, 0.2)
    model, _, _ = weights.load(tmp_path)
    assert model.config.stem == ConvStem(((8, 3, 2), (8, 3, 2)))
    config, last = json.loads((tmp_path / "config.json").read_text()), history_of(tmp_path)[-1]
    for split, name in ((digits, "test"), (seen, "validation")):
        found = train.evaluate(model, split)
        assert config[f"{name}_accuracy"] == pytest.approx(found["test_accuracy"])
    assert last["validation_accuracy"] == config["validation_accuracy"]
    assert not any(name.startswith("test_") for name in last)
    assert f"of {len(digits.test)} images" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["8", "8x2x2", "8x2,", "8x0", "ax2"])
def test_a_stem_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        parse("--stem", text)
    assert "as in 32x1,64x2" in capsys.readouterr().err


def test_the_last_line(digits_run, capsys):
    train.main([*SMALL, "--out", str(digits_run), "--resume"])  # done already: it only says so again
    out = capsys.readouterr().out
    accuracy = history_of(digits_run)[-1]["test_accuracy"]
    assert re.findall(r"^  (\d) +[\d.]+%  \d+ of (\d+)$", out, re.MULTILINE) == [
        (str(k), str(n)) for k, n in enumerate(data.digits().test.labels.bincount().tolist())
    ]
    assert f"mistakes: confusion.csv, mistakes.html, confusion.png in {digits_run}\n" in out
    last = out[out.index("test accuracy") :]
    assert last.count("\n") == 1
    assert last.startswith(f"test accuracy {accuracy:.2%} ({round(360 * accuracy)} of 360 images), ")
    assert out.endswith(f" s on 1 x cpu, saved in {digits_run}\n")


@pytest.fixture
def classes(tmp_path):
    """Red cats and green dogs, ten of each, without splits."""
    for name, colour in (("cat", (200, 60, 20)), ("dog", (20, 160, 60))):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (12, 12), (*colour[:2], i)).save(tmp_path / "pets" / name / f"{i}.png")
    return tmp_path / "pets"


def test_a_folder_of_classes_from_end_to_end(classes, tmp_path, refuses, capsys):
    tiny = "--image-size 8 --patch-size 4 --depth 1 --dim 12 --num-heads 2 --mlp-dim 12 --epochs 2 --batch-size 4"
    command = [*tiny.split(), "--data", str(classes), "--out", str(tmp_path / "run")]
    train.main([*command, "--test-share", "0.3"])
    assert "of 6 images" in capsys.readouterr().out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    expected = data.image_folder(classes, 8, 0.3)
    assert config["test_files"] == list(expected.test_files)
    assert len(config["test_files"]) == 6
    assert config["data"] == "pets"
    train.main([*command, "--test-share", "0.3", "--resume"])
    with refuses(SystemExit, "test_files=6", "not 4"):
        train.main([*command, "--test-share", "0.2", "--resume"])
    (classes / "cat" / "0.png").rename(classes / "cat" / "new.png")
    with refuses(SystemExit, "test_files=6", "not 6", "another folder"):
        train.main([*command, "--test-share", "0.3", "--resume"])


def test_infinity_can_be_read_by_every_reader_of_json(tmp_path):
    train.main([*SMALL, "--clip", "inf", "--out", str(tmp_path)])
    text = (tmp_path / "config.json").read_text()
    assert "Infinity" not in text
    assert Recipe(**json.loads(text)["recipe"]).clip == math.inf


@pytest.mark.slow
def test_contributing_s_data_set_trains(tmp_path):
    """In a copy of the package, what CONTRIBUTING says is done to the letter."""
    shutil.copytree(ROOT / "vit_tutorial", tmp_path / "vit_tutorial", ignore=shutil.ignore_patterns("__pycache__"))
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## A data set\n")[1].split("\n## ")[0]
    function, entry = re.findall(r"```py\n(.*?)```", section, flags=re.DOTALL)
    module = tmp_path / "vit_tutorial" / "data" / "sets.py"
    above, table, below = module.read_text("utf-8").partition("DATASETS: dict[str, DatasetSpec] = {\n")
    module.write_text(f"{above}{function}\n\n{table}{entry}{below}", "utf-8")
    command = re.search(r"`python (-m vit_tutorial.train .*?)`", section)[1].split()
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "\ntest accuracy 100.00% (100 of 100 images)" in done.stdout
    config = json.loads((tmp_path / "runs" / "stripes" / "config.json").read_text())
    assert (config["classes"], config["recipe"]["augment"]) == (["horizontal", "vertical"], "flip")


# --- one word for one thing ----------------------------------------------------------------------------------------


def test_the_command_line_has_the_data_set_s_defaults():
    for name in (*data.DATASETS, "my/folder"):
        args, spec = parse("--data", name), data.spec_of(name)
        for field in train_command.MODEL:
            assert getattr(args, field) == getattr(spec.model, field)
        for field in train_command.RECIPE:
            assert getattr(args, field) == getattr(spec.recipe, field)
    assert vars(parse()) == vars(parse("--data", "digits"))
    sized = parse("--size", "Ti/4", "--depth", "5", "--data", "cifar10")
    assert (sized.patch_size, sized.dim, sized.depth, sized.num_heads, sized.mlp_dim) == ((4, 4), 192, 5, 3, 768)
    assert sized.drop_path == data.DATASETS["cifar10"].model.drop_path
    assert parse("--epochs", "7", "--data", "shapes").epochs == 7
    assert parse("--clip", "inf").clip == math.inf


def test_every_option_is_called_as_in_the_recipe_and_the_config():
    options = {option for action in train.parser([])._actions for option in action.option_strings}
    assert set(train_command.MODEL) <= {field.name for field in fields(ViTConfig)}
    for name in (*train_command.RECIPE, *train_command.MODEL):
        assert "--" + name.replace("_", "-") in options


def test_a_warm_up_of_more_than_half_is_shortened_and_said(capsys):
    recipe = train_command.recipe_of(parse("--epochs", "3"))
    assert recipe.warmup_epochs == 1.5
    assert capsys.readouterr().err == "note: warmup_epochs is 1.5, half of 3 epochs, not 5\n"
    assert train_command.recipe_of(parse("--epochs", "10")).warmup_epochs == 5
    assert capsys.readouterr().err == ""


def test_help_is_for_people(capsys):
    with pytest.raises(SystemExit):
        train.main(["--data", "cifar10", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for action in train.parser([])._actions:
        assert action.help
        assert action.option_strings[0] in text
    assert f"passes over the training images (default: {data.DATASETS['cifar10'].recipe.epochs})" in text
    assert "default: None" not in text
    assert "default: False" not in text


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nonsense"], ["nonsense", "digits", "shapes"]),
        (["--augment", "nonsense"], ["nonsense", "flip"]),
        (["--patch-size", "3"], ["8", "3"]),
        (["--epochs", "0"], ["epochs", "0"]),
        (["--batch-size", "5000"], ["5000", "1,437"]),
        (["--learning-rate", "nan"], ["learning_rate", "nan"]),
        (["--seed", str(2**63)], ["seed", "below 2^63"]),
        (["--out", ""], ["--out is empty"]),
        (["--test-share", "0.2"], ["digits", "split of its own"]),
    ],
)
def test_errors_are_one_line(tmp_path, refuses, arguments, words):
    with refuses(SystemExit, "error: ", *words):
        train.main([*SMALL, "--out", str(tmp_path / "run"), *arguments])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", f"{__file__}/run"], ["can't write state.pt", __file__]),
        (["--augment", "crop+blur"], ["'blur' is not an augmentation"]),
        (["--workers", "-1"], ["workers must be"]),
        (["--data", "hf://nobody/nothing"], ["hf://nobody/nothing", "HF_HUB_OFFLINE is set", "with a network"]),
    ],
)
def test_what_can_be_checked_is_checked_before_the_images_are_read(tmp_path, refuses, monkeypatch, arguments, words):
    monkeypatch.setattr(data, "load", lambda *_: pytest.fail("the work has begun"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refuses(SystemExit, "error: ", *words):
        train.main([*SMALL, "--out", str(tmp_path / "run"), *arguments])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["S/7", "Ti/4"])
def test_a_size_has_any_patch(size):
    assert parse("--size", size).patch_size == (int(size[-1]),) * 2


@pytest.mark.parametrize("arguments", [["--size", "XXL/2"], ["--lora", "two"], ["--num-heads", "two"]])
def test_a_wrong_word_is_a_usage_error(capsys, arguments):
    with pytest.raises(SystemExit):
        train.main([*arguments, "--out", "x"])
    err = capsys.readouterr().err
    assert f"'{arguments[1]}'" in err
    assert err.startswith("usage: python -m vit_tutorial.train [-h]")


def test_an_empty_name_is_no_model_from_scratch(tmp_path, refuses):
    with refuses(SystemExit, "error: the name is empty"):
        train.main(["--weights", "", "--out", str(tmp_path)])


def test_ctrl_c_says_how_to_go_on(tmp_path, refuses, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_command, "fit", interrupt)
    with refuses(SystemExit, "--resume"):
        train.main([*SMALL, "--out", str(tmp_path)])


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


@pytest.fixture(scope="module")
def tuned(grounds, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "grounds"
    train.main(["--data", str(grounds), "--weights", "cifar10", "--epochs", "3", "--freeze", "--out", str(out)])
    return out


def test_fine_tuning_in_one_line(grounds, tuned):
    start, trained = weights.load("cifar10"), weights.load(tuned)
    assert trained.classes == ("brick", "grass")
    assert trained.preprocess == start.preprocess
    assert trained.model.config == start.model.config.__class__(**vars(start.model.config) | {"num_classes": 2})
    before, after = start.model.state_dict(), trained.model.state_dict()
    assert [name for name in after if not before[name].equal(after[name])] == ["head.weight", "head.bias"]
    shown = data.image_folder(grounds, preprocess=trained.preprocess)
    accuracy = train.evaluate(trained.model, shown)["test_accuracy"]
    assert accuracy > 0.8
    with (tuned / "confusion.csv").open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["number", "true class", "brick", "grass", "right"]
    right = sum(int(row[2 + k]) for k, row in enumerate(rows))
    assert right == round(16 * accuracy)
    assert sum(int(cell) for row in rows for cell in row[2:4]) == 16
    page = (tuned / "mistakes.html").read_text("utf-8")
    assert page.count("<li>") == 16 - right
    assert 'src="http' not in page


def test_it_says_what_it_is_about_to_do(grounds, tmp_path, capsys):
    command = ["--data", str(grounds), "--weights", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]
    (grounds / "train" / "brick" / "broken.heic").write_bytes(b"\0\0\0\x18ftypheic")
    try:
        with pytest.raises(SystemExit, match=r"1 image file skipped, the model is trained on the others"):
            train.main(command)
    finally:
        (grounds / "train" / "brick" / "broken.heic").unlink()
    out, err = capsys.readouterr()
    assert "note: skipped 1 image file that can't be read" in err
    assert "convert it to JPEG" in err
    assert "note: batch_size is 8, a quarter of 32 training images, not 32" in err
    assert "note: 32 training images and 16 test images of 8 x 8 pixels, 2 classes; 1 epoch of 4 steps, 4 in all" in err
    assert "test accuracy" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weights", "cifar10", "--dim", "64"], ["leave --dim out"]),
        (["--weights", "cifar10", "--arch", "dinov2"], ["leave --arch out"]),
        (["--weights", "nonsense"], ["'nonsense'", "cifar10"]),
        (["--data", "digits", "--weights", "cifar10"], ["channels", "(1, 8, 8)", "(3, 8, 8)"]),
        (["--freeze"], ["--freeze needs --weights"]),
        (["--lora", "4"], ["--lora needs --weights"]),
        (["--weights", "cifar10", "--lora", "4", "--freeze"], ["lora=4", "leave freeze"]),
        (["--weights", "cifar10", "--layer-decay", "1.5"], ["layer_decay", "(0, 1]"]),
        (["--weights", "cifar10", "--head-first", "15"], ["head_first", "epochs=15"]),
        (["--weights", "cifar10", "--data", "{out}/.."], ["run is in", "the folder of the images"]),
    ],
)
def test_fine_tuning_that_can_t_be(grounds, tmp_path, refuses, arguments, words):
    with refuses(SystemExit, "error: ", *words):
        words = ["--data", str(grounds), *arguments, "--out", str(tmp_path / "run")]
        train.main([word.replace("{out}", str(tmp_path / "run")) for word in words])
    assert not (tmp_path / "run").exists()


def test_the_defaults_of_fine_tuning():
    args, recipe = parse("--data", "pets", "--weights", "cifar10"), data.FINE_TUNING
    assert {name: getattr(args, name) for name in train_command.RECIPE} == {
        name: getattr(recipe, name) for name in train_command.RECIPE
    }
    assert parse("--data", "pets", "--weights", "cifar10", "--freeze").layer_decay == 1
    assert parse("--data", "pets", "--weights", "cifar10", "--lora", "4").layer_decay == 1
