"""Images that are read from the disk: shards of WebDataset and data sets of Hugging Face, by the library datasets."""

import dataclasses
import io
import pickle
import tarfile

import pytest
import torch
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import data, train

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    datasets.disable_progress_bars()


def png(colour):
    out = io.BytesIO()
    Image.new("RGB", (20, 16), colour).save(out, "png")
    return out.getvalue()


def add(path, samples):
    """A shard of (key, image file, label)."""
    with tarfile.open(path, "w") as tar:
        for key, image, label in samples:
            for suffix, content in (("png", image), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{key}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    """24 training images in 4 shards, whose red is their number, and 4 to test on."""
    for shard in range(4):
        numbers = range(6 * shard, 6 * shard + 6)
        add(tmp_path / f"train-{shard}.tar", [(f"{n:03}", png((10 * n, 0, 200 * (n % 2))), n % 2) for n in numbers])
    add(tmp_path / "val-0.tar", [(f"{n}", png((n, 0, 200 * (n % 2))), n % 2) for n in range(4)])
    (tmp_path / "classes.txt").write_bytes("\ufeffeven\r\nodd\r\n".encode())  # as Windows' editor writes it
    return tmp_path


@pytest.fixture
def parquet(tmp_path):
    """A data set of Hugging Face on the disk: a folder with one parquet file per split."""
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["even", "odd"])})
    for split, count in (("train", 12), ("test", 4)):
        rows = [{"image": Image.new("RGB", (9, 9), (20 * n, 0, 0)), "label": n % 2} for n in range(count)]
        datasets.Dataset.from_list(rows, features=kinds).to_parquet(tmp_path / f"{split}.parquet")
    return f"hf://{tmp_path.as_posix()}"


def test_shards(shards):
    found = data.load(str(shards), image_size=8)
    assert (len(found.train), len(found.test), found.classes, found.image_size) == (24, 4, ("even", "odd"), (8, 8))
    for number in (0, 11, 23):
        image, label = found.train[number]
        assert image.shape == (3, 8, 8)
        assert (round(float(image[0, 0, 0]) * 25.5), label) == (number, number % 2)
    assert found.mean[0] == pytest.approx(sum(10 * n for n in range(24)) / 24 / 255)
    assert data.load(str(shards), image_size=8).digest == found.digest


def test_a_data_set_of_hugging_face(parquet, refuses):
    found = data.load(parquet, image_size=8)
    assert (len(found.train), len(found.test), found.classes) == (12, 4, ("even", "odd"))
    assert [round(float(found.train[n][0][0, 0, 0]) * 255 / 20) for n in range(12)] == list(range(12))
    assert pickle.loads(pickle.dumps(found.train))[3][1] == 1
    assert data.load(f"{parquet}#label", image_size=8).classes == ("even", "odd")
    with refuses(ValueError, "one column of images and one of labels", "image, label", "#label"):
        data.load(f"{parquet}#colour", image_size=8)
    with refuses(ValueError, "hf://owner/name"):
        data.load("hf://")


def small():
    torch.manual_seed(0)
    config = vt.ViTConfig(image_size=8, patch_size=4, dim=16, depth=1, num_heads=2, mlp_dim=16, num_classes=2)
    return vt.ViT(config)


def test_a_model_learns_from_the_disk_and_a_stopped_run_resumes_exactly(shards, tmp_path, monkeypatch):
    found = data.load(str(shards), image_size=8)
    recipe = data.Recipe(epochs=6, batch_size=8, learning_rate=3e-2, augment="flip")
    whole, again = small(), small()
    history = train.fit(whole, found, recipe, out=tmp_path / "a", progress=False)
    assert history[-1]["test_accuracy"] == 1
    save = train.loop.Checkpoint.save

    def stop(self, settings, parts, history):
        save(self, settings, parts, history)
        if len(history) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(train.loop.Checkpoint, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        train.fit(small(), found, recipe, out=tmp_path / "b", progress=False)
    monkeypatch.setattr(train.loop.Checkpoint, "save", save)
    train.fit(again, found, recipe, out=tmp_path / "b", resume=True, progress=False)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert vt.load(tmp_path / "b").classes == ("even", "odd")


def test_an_image_that_can_t_be_read_is_named(shards):
    add(shards / "train-0.tar", [("000", b"nonsense", 0), ("001", png((10, 0, 0)), 1)])
    how = data.Preprocessing((8, 8), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    found = data.load(str(shards), preprocess=how)
    assert (found.preprocess, found.mean, found.image_size) == (how, how.mean, (8, 8))
    with pytest.raises(ValueError, match=r"image 0 of .*, train is not an image"):
        found.train[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "val-0.tar").unlink(), ["no test*.tar or val*.tar"]),
        (lambda root: (root / "classes.txt").unlink(), ["classes.txt is missing"]),
        (lambda root: add(root / "train-3.tar", [("0", png(0), 7)]), ["the label 7", "0 to 1"]),
    ],
)
def test_refuses(shards, refuses, change, words):
    change(shards)
    with refuses(ValueError, *words):
        data.load(str(shards), image_size=8)


def test_a_share_is_for_folders_of_images(shards, refuses):
    with refuses(ValueError, "test split of its own"):
        data.load(str(shards), test_fraction=0.2)


def test_images_on_the_disk_are_held_out_as_those_in_memory_are(shards):
    whole = data.load(str(shards), image_size=8)
    images, labels = whole.train.batch(torch.arange(len(whole.train)))
    in_memory = data.Images((255 * images).round().to(torch.uint8), labels)
    ours, theirs = (data.hold_out(dataclasses.replace(whole, train=train), 0.5) for train in (whole.train, in_memory))
    assert len(ours.train) + len(ours.test) == len(whole.train)
    assert ours.digest == theirs.digest != data.hold_out(whole, 0.5, seed=1).digest
    for one, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
        assert torch.equal(one.labels, other.labels)
        torch.testing.assert_close(one.batch(torch.arange(len(one))), other.batch(torch.arange(len(other))))
