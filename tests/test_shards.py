"""Training data that is streamed: shards of WebDataset and data sets of Hugging Face."""

import io
import pickle
import tarfile
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import data, train
from vit_tutorial.data import shards
from vit_tutorial.data.augment import Augmentation, Flip
from vit_tutorial.train import runs


def jpeg(colour):
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


def cut(path):
    """Leave an image without its label."""
    with tarfile.open(path) as tar:
        end = tar.getmembers()[3].offset
    path.write_bytes(path.read_bytes()[:end])


@pytest.fixture
def folder(tmp_path):
    """24 training images in 4 shards, whose red is their number, and 4 to test on."""
    for shard in range(4):
        numbers = range(6 * shard, 6 * shard + 6)
        add(tmp_path / f"train-{shard}.tar", [(f"{n:03}", jpeg((10 * n, 0, 200 * (n % 2))), n % 2) for n in numbers])
    add(tmp_path / "val-0.tar", [(f"{n}", jpeg((n, 0, 200 * (n % 2))), n % 2) for n in range(4)])
    (tmp_path / "classes.txt").write_bytes("\ufeffeven\r\nodd\r\n".encode())  # as Windows' editor writes it
    return tmp_path


def reds(items):
    return [round(float(image[0, 0, 0]) * 25.5) for image, _ in items]


def test_each_image_comes_once_per_epoch_in_the_order_of_the_seed(folder):
    found = data.load(str(folder), image_size=8)
    assert (len(found.train), len(found.test), found.classes, found.image_size) == (24, 4, ("even", "odd"), (8, 8))
    assert found.test.labels.bincount().tolist() == [2, 2]
    once = list(islice(found.train.images(1), 24))
    assert all(
        image.shape == (3, 8, 8) and label == red % 2 for (image, label), red in zip(once, reds(once), strict=True)
    )
    assert sorted(reds(once)) == list(range(24))
    assert reds(once) != sorted(reds(once))
    assert reds(islice(found.train.images(1), 24)) == reds(once) != reds(islice(found.train.images(2), 24))
    twice = reds(islice(found.train.images(1), 48))
    assert sorted(twice[24:]) == list(range(24))


def test_processes_share_the_shards(folder):
    stream = data.load(str(folder), image_size=8).train
    shares = [reds(islice(stream.images(5, rank, 2), 12)) for rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == list(range(24))
    assert reds(islice(pickle.loads(pickle.dumps(stream)).images(5, 1, 2), 12)) == shares[1]  # as spawn does
    with pytest.raises(ValueError, match=r"4 shards, such as .*train-0.tar, can.t serve 5 readers"):
        next(stream.images(5, 0, 5))


class Noted(Flip):
    """Keeps what it has drawn."""

    def draw(self, n, generator=None):
        DRAWN.append(super().draw(n, generator).tolist())
        return torch.tensor(DRAWN[-1])


DRAWN = []


def test_each_batch_of_a_stream_is_augmented_in_its_own_way(folder):
    stream, order = data.load(str(folder), image_size=8).train, runs.Order(24, 8, 0, 0, 1)
    assert len(list(islice(runs.StreamReader(stream, Augmentation("flip", changes=(Noted(),)), order), 3))) == 3
    assert DRAWN[0] != DRAWN[1] != DRAWN[2] != DRAWN[0]


def small():
    torch.manual_seed(0)
    config = vt.ViTConfig(image_size=8, patch_size=4, dim=16, depth=1, num_heads=2, mlp_dim=16, num_classes=2)
    return vt.ViT(config)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_model_learns_from_a_stream_and_a_stopped_run_goes_on(folder, tmp_path, workers, monkeypatch):
    found = data.load(str(folder), image_size=8)
    recipe = data.Recipe(epochs=6, batch_size=8, learning_rate=3e-2, augment="flip")
    whole = small()
    history = train.fit(whole, found, recipe, workers=workers, out=tmp_path / "a", progress=False)
    assert history[-1]["test_accuracy"] == 1
    save = train.runs.Store.save

    def stop(self, settings, parts, history):
        save(self, settings, parts, history)
        if len(history) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(train.runs.Store, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        train.fit(small(), found, recipe, workers=workers, out=tmp_path / "b", progress=False)
    monkeypatch.undo()
    again = small()
    train.fit(again, found, recipe, workers=workers, out=tmp_path / "b", resume=True, progress=False)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert vt.load(tmp_path / "b").classes == ("even", "odd")


def test_what_can_t_be_read_is_named_and_skipped(folder):
    add(folder / "train-0.tar", [("000", b"nonsense", 0), ("001", jpeg((10, 0, 0)), 1)])
    stream = data.load(str(folder), image_size=8).train
    with pytest.warns(UserWarning, match=r"skipped 000 in .*train-0\.tar is not an image"):
        assert len(list(islice(stream.images(0), 19))) == 19
    for path in folder.glob("train-*.tar"):
        add(path, [(f"{n:03}", b"nonsense", 0) for n in range(3)])
    add(folder / "val-0.tar", [("0", jpeg(0), 0), ("1", b"nonsense", 1)])
    with pytest.warns(UserWarning, match="skipped 1 in"):
        found = data.load(str(folder), image_size=8)
    assert found.skipped == (f"1 in {(folder / 'val-0.tar').as_posix()} is not an image",)
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(ValueError, match="ended too soon"):
        train.fit(small(), found, data.Recipe(epochs=1, batch_size=2), progress=False)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_status_says_that_a_training_image_was_skipped(folder, tmp_path_factory, workers, refuses, capfd):
    add(folder / "train-0.tar", [("a\n\x1b[31m", b"nonsense", 0), *((f"{n}", jpeg((9, 0, 0)), 0) for n in range(5))])
    words = {"epochs": 2, "batch-size": 8, "workers": workers, "image-size": 8}
    words |= {"patch-size": 4, "dim": 16, "depth": 1, "num-heads": 2, "mlp-dim": 16}
    options = [f"--{name}={value}" for name, value in words.items()]
    said, out = r"a\n\x1b[31m in ", tmp_path_factory.mktemp("out") / "run"
    with refuses(SystemExit, "error: 1 image file skipped", said):
        train.main([*options, "--data", str(folder), "--out", str(out)])
    assert capfd.readouterr().err.count(f"skipped {said}") == 1
    assert (out / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "val-0.tar").unlink(), ["no test-*.tar or val-*.tar"]),
        (lambda root: (root / "classes.txt").unlink(), ["classes.txt is missing"]),
        (lambda root: add(root / "val-0.tar", [("0", b"nonsense", 0)]), ["test split", "no image"]),
        (lambda root: add(root / "val-0.tar", [("0", jpeg(0), 7)]), ["label '7'", "0 to 1"]),
        (lambda root: add(root / "val-0.tar", [("0", jpeg(0), "zero")]), ["label 'zero'", "0 to 1"]),
        (lambda root: add(root / "train-3.tar", [("0", jpeg(0), 7)]), ["label '7'", "0 to 1"]),
        (lambda root: (root / "classes.txt").write_text("odd\nodd\n"), ["'odd' twice"]),
        (lambda root: cut(root / "train-1.tar"), ["needs an image and a label", "cut short"]),
        (lambda root: (root / "classes.txt").write_bytes(b"k\xe4se\nbrot"), ["classes.txt isn't UTF-8"]),
        (lambda root: (root / "train-2.tar").write_bytes(b"nonsense"), ["train-2.tar", "damaged"]),
        (lambda root: [add(path, []) for path in root.glob("train*")], ["training split", "no images"]),
    ],
)
@pytest.mark.filterwarnings("ignore:skipped")
def test_refuses(folder, refuses, change, words):
    change(folder)
    with refuses(ValueError, *words):
        data.load(str(folder), image_size=8)


def test_refuses_what_is_for_images_in_memory(folder, refuses):
    with refuses(ValueError, "test split of its own"):
        data.load(str(folder), test_share=0.2)
    with refuses(ValueError, "streamed", "val-*.tar"):
        data.hold_out(data.load(str(folder), image_size=8), 0.5)


def test_fine_tuning_gets_the_checkpoint_s_pixels(folder):
    how = data.Preprocessing((8, 8), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    found = data.load(str(folder), preprocess=how)
    assert (found.preprocess, found.mean, found.image_size) == (how, how.mean, (8, 8))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A data set of Hugging Face, on disk: a folder with one parquet file per split."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.05)  # 5 seconds after each pass
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["even", "odd"])})
    for split, count in (("train", 12), ("test", 4)):
        rows = [{"image": Image.new("RGB", (9, 9), (20 * n, 0, 0)), "label": n % 2} for n in range(count)]
        datasets.Dataset.from_list(rows, features=kinds).to_parquet(tmp_path / f"{split}.parquet")
    return f"hf://{tmp_path.as_posix()}"


def test_a_data_set_of_hugging_face(hub, refuses):
    found = data.load(hub, image_size=8)
    assert (len(found.train), len(found.test), found.classes) == (12, 4, ("even", "odd"))
    once = list(islice(found.train.images(1), 12))
    assert sorted(round(float(image[0, 0, 0]) * 255 / 20) for image, _ in once) == list(range(12))
    shares = [[int(image[0, 0, 0] * 255) for image, _ in islice(found.train.images(1, rank, 2), 6)] for rank in (0, 1)]
    assert len(set(np.concatenate(shares))) == 12
    pickle.dumps(found.train)
    assert data.load(f"{hub}#label", image_size=8).classes == ("even", "odd")
    with refuses(ValueError, "hf://owner/name"):
        data.load("hf://")
    datasets = pytest.importorskip("datasets")
    split = datasets.load_dataset("parquet", data_files=f"{hub[5:]}/test.parquet")["train"]
    split.map(lambda row: {"label": -1}).to_parquet(f"{hub[5:]}/test.parquet")
    with refuses(ValueError, "image 0 of", "has no label"):
        data.load(hub, image_size=8)
    with refuses(ValueError, "one column of images and one of labels", "image, label", "#label"):
        data.load(f"{hub}#colour", image_size=8)


def test_names():
    assert shards.is_stream("hf://owner/name")
    assert not shards.is_stream("digits")
