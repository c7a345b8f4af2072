"""The command line of lesson 09, on the checkpoints that come with the package."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import data, files, predict

ROOT = Path(__file__).parent.parent
SCENES = data.shapes(train=1, test=8).test


@pytest.fixture
def photos(tmp_path):
    """Four scenes as files, twice as large as the model wants them."""
    paths = []
    for number, image in enumerate(SCENES.images[:4]):
        pixels = image.permute(1, 2, 0).numpy().repeat(2, axis=0).repeat(2, axis=1)
        Image.fromarray(pixels).save(path := tmp_path / f"scene {number}.png")
        paths.append(str(path))
    return paths


def test_names_what_is_in_each_photograph(photos, capsys):
    predict.main([*photos, "--weights", "shapes"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 * 6
    for number, (photo, label) in enumerate(zip(photos, SCENES.labels[:4].tolist(), strict=True)):
        title, *found = lines[6 * number : 6 * number + 6]
        assert title == photo
        shares = [float(line.split("%")[0]) for line in found]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) <= 100.3
        assert found[0].split("%  ")[1] == data.scenes.TARGETS[label]
        assert shares[0] > 50


def test_the_percentages_are_the_model_s(photos, capsys):
    predict.main([photos[0], "--weights", "shapes", "--top", "99"])
    model, classes, preprocess = vt.load("shapes")
    with Image.open(photos[0]) as photo, torch.inference_mode():
        chances = model(preprocess(photo)).softmax(dim=1)[0]
    expected = [f"  {chances[k]:6.1%}  {classes[k]}" for k in chances.argsort(descending=True).tolist()]
    assert capsys.readouterr().out.splitlines()[1:] == expected  # all eight, not 99


def test_a_photograph_is_turned_upright(photos, tmp_path, capsys):
    with Image.open(photos[0]) as photo:
        exif = photo.getexif()
        exif[0x0112] = 6  # orientation: the camera was held on its side, turn a quarter clockwise to look
        photo.transpose(Image.Transpose.ROTATE_90).save(path := tmp_path / "turned.png", exif=exif)
        assert np.array_equal(predict.open_photo(str(path)), photo)
    found = []
    for photo in (photos[0], str(path)):
        predict.main([photo, "--weights", "shapes"])
        found.append(capsys.readouterr().out.splitlines()[1:])
    assert found[0] == found[1]


def test_draws_where_it_looked(photos, tmp_path, capsys, monkeypatch):
    drawn = {}

    def overlays(images, maps, titles, **options):
        drawn.update(images=images, maps=maps, titles=titles)
        return plots_overlays(images, maps, titles, **options)

    plots_overlays = predict.plots.overlays
    monkeypatch.setattr(predict.plots, "overlays", overlays)
    out = tmp_path / "pictures" / "looked.png"
    predict.main([*photos[:2], "--weights", "shapes", "--attention", str(out)])
    assert str(out) in capsys.readouterr().out.splitlines()[-1]
    assert min(Image.open(out).size) > 200
    assert drawn["titles"] == [data.scenes.TARGETS[label] for label in SCENES.labels[:2].tolist()]
    model, _, preprocess = vt.load("shapes")
    shown = torch.stack(drawn["images"])  # (B, C, H, W), as the model got them
    assert (shown - SCENES.images[:2] / 255).abs().max() < 0.5
    with torch.inference_mode():
        maps = model.attention_maps(preprocess(shown))
    expected = torch.stack([maps[layer][:, :, 0, 1:].mean(dim=1) for layer in range(4)]).mean(dim=0)
    assert torch.allclose(torch.stack(list(drawn["maps"]["attention"])).flatten(1), expected, atol=1e-5)


def test_a_model_without_a_head_names_nothing(photos, tmp_path, refuses):
    config = vt.ViTConfig(image_size=8, patch_size=4, num_classes=0, dim=16, depth=1, num_heads=2, mlp_dim=16)
    history = [dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 0.1)]
    about = data.Data("none", None, None, (), (8, 8), 3, (0.5,) * 3, (0.5,) * 3)
    files.save(tmp_path / "body", vt.ViT(config), about, history)
    with refuses(SystemExit, "error: ", "body", "no head", "fine-tuned"):
        predict.main([photos[0], "--weights", str(tmp_path / "body")])


def test_a_mean_pooled_grey_model(tmp_path, capsys):
    # No class token: the picture is the mean over the patches.
    digits = data.digits()
    config = vt.ViTConfig(
        image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=16, depth=2, num_heads=2, mlp_dim=16, pool="mean"
    )
    history = [dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 0.1)]
    files.save(tmp_path / "model", vt.ViT(config), digits, history)
    Image.fromarray(np.full((20, 30), 200, np.uint8)).save(tmp_path / "grey.png")
    arguments = [str(tmp_path / "grey.png"), "--weights", str(tmp_path / "model")]
    predict.main([*arguments, "--attention", str(tmp_path / "looked.png")])
    assert capsys.readouterr().out.splitlines()[1] == "   10.0%  0"
    assert (tmp_path / "looked.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda photo: ["nowhere.jpg", "--weights", "shapes"], ("nowhere.jpg", "isn't there")),
        (lambda photo: [__file__, "--weights", "shapes"], ("test_predict.py", "no picture")),
        (lambda photo: [photo, "--weights", "cats"], ("cats", "digits", "shapes")),
        (lambda photo: [photo, "--weights", "shapes", "--top", "0"], ("--top", "at least 1", "0")),
        (lambda photo: [photo, "--weights", "shapes", "--attention", f"{photo}/x.png"], ("x.png", "can't write")),
    ],
)
def test_refuses_in_one_line(photos, capsys, refuses, change, words):
    with refuses(SystemExit, "error: ", *words):
        predict.main(change(photos[0]))


def test_ctrl_c_needs_no_traceback(photos, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "load", interrupted)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught:
        predict.main([photos[0], "--weights", "shapes"])
    assert str(caught.value) == "stopped"


def test_from_the_command_line(photos):
    words = ["-m", "vit_tutorial.predict", photos[0], "--weights", "shapes", "--top", "1"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == photos[0]
    assert len(done.stdout.splitlines()) == 2
