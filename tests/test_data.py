"""Data sets: what is promised of each, archives that a test makes and serves itself, and bad pictures of every kind.

The photograph: at its own resolution a crop holds the file's very pixels, so no tolerance is needed.
"""

import gzip
import hashlib
import io
import pickle
import socket
import tarfile
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import cbook
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10, FashionMNIST

from vit_tutorial import ViTConfig, count_parameters, data
from vit_tutorial.data import augment, photograph, sets
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.patches import as_pair

# --- the photograph -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original():
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture:
        pixels = np.array(picture.convert("RGB"))
    assert pixels.shape == (600, 512, 3)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255


@pytest.mark.parametrize("size", [224, (224, 160), (32, 96)])
def test_shape_range_and_dtype(size):
    image = photograph(size)
    height, width = (size, size) if isinstance(size, int) else size
    assert image.shape == (3, height, width)
    assert image.dtype == torch.float32
    assert 0.0 <= image.min() < 0.1
    assert 0.9 < image.max() <= 1.0
    assert torch.equal(image, photograph(size))


def test_the_default_is_224_pixels():
    assert torch.equal(photograph(), photograph((224, 224)))


def test_the_photographs_of_the_package_have_a_file_an_author_and_a_licence():
    names = ("hopper", "cat", "brick", "grass", "gravel")
    shipped = {file.stem: file for file in (Path(data.__file__).parent / "pictures").iterdir()}
    assert sorted(shipped) == sorted(names[1:])
    assert sum(file.stat().st_size for file in shipped.values()) < 250_000
    credits = (Path(__file__).parent.parent / "assets/CREDITS.md").read_text("utf-8")
    for name in names:
        assert photograph(32, name).shape == (3, 32, 32)
        if name in shipped:
            assert data.photograph_file(name) == shipped[name]
            (row,) = [line for line in credits.splitlines() if f"`vit_tutorial/data/pictures/{name}.jpg`" in line]
            assert row.count("|") == 5
            assert row.endswith("| CC0 |")
    assert not torch.equal(photograph(32, "grass"), photograph(32, "gravel"))
    assert torch.equal(photograph(32), photograph(32, "hopper"))


def test_a_photograph_that_is_not_there_is_refused_with_those_that_are(refuses):
    with refuses(ValueError, "'dog'", "hopper, brick, cat, grass, gravel"):
        photograph(32, "dog")


def test_other_photographs_are_cropped_in_the_middle():
    with Image.open(data.photograph_file("cat")) as picture:
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255  # (3, 300, 451)
    assert torch.equal(photograph((300, 151), "cat"), pixels[:, :, 150:301])


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [((600, 512), (0, 600), (0, 512)), (512, (0, 512), (0, 512)), ((600, 256), (0, 600), (128, 384))],
)
def test_crops_from_the_top_and_from_the_middle(original, size, rows, columns):
    assert torch.equal(photograph(size), original[:, slice(*rows), slice(*columns)])


def test_a_smaller_one_shows_the_same(original):
    means = torch.nn.functional.avg_pool2d(original[None, :, :512, :512], 64)[0]  # 8 x 8 boxes
    torch.testing.assert_close(photograph(8), means, rtol=0, atol=0.15)
    torch.testing.assert_close(photograph(8).mean(), means.mean(), rtol=0, atol=0.01)


@pytest.mark.parametrize(("size", "error"), [("224", TypeError), ((1, 2, 3), TypeError), (0, ValueError)])
def test_refuses(refuses, size, error):
    with refuses(error, "size", repr(size)):
        photograph(size)


# --- what every data set gives -------------------------------------------------------------------------------------


def sha(*tensors):
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


@pytest.fixture(scope="module")
def shapes():
    return data.shapes()


@pytest.fixture(scope="module")
def digits():
    return data.digits()


@pytest.mark.parametrize(
    ("name", "sizes", "image"), [("digits", (1437, 360), (1, 8, 8)), ("shapes", (20_000, 1000), (3, 64, 64))]
)
def test_the_contract(request, name, sizes, image):
    d = request.getfixturevalue(name)
    assert d.name == name
    assert (len(d.train), len(d.test)) == sizes
    assert (d.in_channels, *d.image_size) == image
    assert len(d.mean) == len(d.std) == d.in_channels
    for split in (d.train, d.test):
        x, y = split[3]
        assert x.shape == image
        assert x.dtype == torch.float32
        assert type(y) is int
        assert torch.equal(x, split.batch(slice(3, 4))[0][0])
        images, labels = split.batch(slice(0, 500))
        assert images.min() >= 0
        assert 0.98 < images.max() <= 1
        assert torch.equal(labels, split.labels[:500])
        assert set(split.labels.tolist()) == set(range(len(d.classes)))
        with pytest.raises(IndexError):  # what ends a for loop over the split
            split[len(split)]


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_mean_and_standard_deviation_are_those_of_the_training_images(request, name):
    d = request.getfixturevalue(name)
    levels = torch.arange(d.train.white + 1).double() / d.train.white
    for channel, (mean, std) in enumerate(zip(d.mean, d.std, strict=True)):
        often = torch.bincount(d.train.images[:, channel].flatten(), minlength=len(levels)).double()
        share = often / often.sum()
        assert abs(mean - share @ levels) < 6e-5
        assert abs(std - (share @ (levels - share @ levels) ** 2).sqrt()) < 6e-5


def test_a_loader_takes_the_splits(digits):
    x, y = next(iter(DataLoader(digits.train, batch_size=5)))
    images, labels = digits.train.batch(torch.arange(5))
    assert torch.equal(x, images)
    assert torch.equal(y, labels)


def test_digits_are_scikit_learn_s_split_once_and_for_all(digits):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    rows = train_test_split(np.arange(1797), test_size=360, stratify=labels, random_state=0)
    for split, its in zip((digits.train, digits.test), rows, strict=True):
        its = np.sort(its)
        assert np.array_equal(split.batch()[0].flatten(1).numpy(), (images[its] / 16).astype(np.float32))
        assert np.array_equal(split.labels.numpy(), labels[its])
    # Stratified: each class has a fifth, to within one image.
    share = digits.test.labels.bincount() - torch.from_numpy(np.bincount(labels)) * 360 / 1797
    assert share.abs().max() < 1
    assert (
        sha(digits.test.images, digits.test.labels)
        == "0b158ab078d0e70779b9decc98a20f2e58c7c21337cf7655cb74843562f00e31"
    )


def test_a_share_of_each_class_is_held_out_of_the_training_images(digits, shapes):
    held = data.hold_out(digits, 0.1)
    total = digits.train.labels.bincount()
    assert held.test.labels.bincount().tolist() == [round(0.1 * n) for n in total.tolist()]
    assert (held.train.labels.bincount() + held.test.labels.bincount()).tolist() == total.tolist()
    rows = {tuple(image.flatten().tolist()) for image in held.train.images}
    assert not any(tuple(image.flatten().tolist()) in rows for image in held.test.images)
    assert (held.mean, held.name, held.train.white) == (digits.mean, digits.name, 16)
    assert torch.equal(data.hold_out(digits, 0.1).test.images, held.test.images)
    assert not torch.equal(data.hold_out(digits, 0.1, seed=1).test.images, held.test.images)
    masked = data.hold_out(shapes, 0.25).test
    assert masked.masks.shape == (len(masked), 64, 64)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1e-9, 1 - 1e-9])
def test_a_share_that_leaves_nothing_on_one_side_is_refused(digits, share):
    with pytest.raises(ValueError, match=r"share must be|to hold out"):
        data.hold_out(digits, share)


def test_shapes_are_the_same_on_every_machine(shapes):
    # All 21,000 scenes of the default; tests/test_scenes.py looks at what is in them.
    parts = [tensor for split in (shapes.train, shapes.test) for tensor in (split.images, split.labels, split.masks)]
    assert sha(*parts) == "c9482c21459f4d6c93175b441b479790669f877ecf77e281d1258165aca3abc1"


# --- load ----------------------------------------------------------------------------------------------------------


def test_load_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(sets, "shapes", lambda: "the shapes")
    assert data.load("shapes") == "the shapes"
    for name in ("cifar10", "fashion_mnist"):
        monkeypatch.setattr(sets, name, lambda root, name=name: (name, root))
        assert data.load(name, str(tmp_path)) == (name, tmp_path)
    assert data.load("digits", image_size=8).name == "digits"


def test_load_a_folder(folder):
    assert data.load(str(folder)).image_size == (64, 64)
    assert data.load(str(folder), image_size=(8, 12)).image_size == (8, 12)
    assert len(data.load(str(folder / "train"), test_share=0.4).test) == 2


def test_load_refuses(refuses, tmp_path):
    with refuses(ValueError, "'mnist'", "digits, shapes, cifar10, fashion_mnist", "folder"):
        data.load("mnist")
    with refuses(ValueError, "digits", "(8, 8)", "image_size=32"):
        data.load("digits", image_size=32)
    with refuses(ValueError, "digits", "test split of its own", "test_share=0.2"):
        data.load("digits", test_share=0.2)


# --- one entry per data set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_the_entry_says_what_the_images_are(request, name):
    d, spec = request.getfixturevalue(name), data.DATASETS[name]
    config = spec.model
    assert as_pair(config.image_size, "image_size") == d.image_size
    assert (config.in_channels, config.num_classes) == (d.in_channels, len(d.classes))
    assert (d.mean, d.std, d.augment) == (spec.mean, spec.std, spec.recipe.augment)


@pytest.mark.parametrize("name", [*data.DATASETS, "my/pictures"])
def test_a_run_on_every_data_set_can_begin(name):
    spec = data.spec_of(name)
    assert count_parameters(spec.model) > 100_000
    assert spec.recipe.warmup_epochs <= spec.recipe.epochs / 2
    size = as_pair(spec.model.image_size, "image_size")
    assert augment.by_name(spec.recipe.augment, size, spec.model.num_classes).name != "none"


def test_a_new_data_set_is_one_entry(monkeypatch):
    """As CONTRIBUTING has it: a function for the images, an entry for the rest; its statistics are measured."""

    def stripes():
        images = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
        images[::2, :, ::2], images[1::2, :, :, ::2] = 200, 200  # lying, standing
        splits = (data.Images(images[rows], torch.arange(40)[rows] % 2) for rows in (slice(30), slice(30, None)))
        return data.from_spec("stripes", ("lying", "standing"), *splits)

    model = ViTConfig(
        image_size=8, patch_size=4, in_channels=1, num_classes=2, dim=16, depth=1, num_heads=2, mlp_dim=16
    )
    recipe = Recipe(epochs=2, batch_size=10, augment="flip")
    spec = data.DatasetSpec(load=lambda root: stripes(), model=model, recipe=recipe)
    monkeypatch.setitem(data.DATASETS, "stripes", spec)
    d = data.load("stripes")
    assert (d.name, d.classes, d.image_size, d.in_channels, d.augment) == (
        "stripes",
        ("lying", "standing"),
        (8, 8),
        1,
        "flip",
    )
    assert d.mean == pytest.approx((100 / 255,))
    assert d.std == pytest.approx((100 / 255,))


def test_what_becomes_of_the_training_images(digits):
    def changes(what):
        found = data.augmentation(what, digits)
        return found.name, found.changes, found.each

    assert changes("default") == ("affine", (augment.Affine(),), None)
    assert changes("none") == changes(None) == ("none", (), None)
    assert changes("crop") == ("crop", (augment.Crop((1, 1)),), None)
    assert changes(augment.Affine(0.3)) == ("Affine(strength=0.3)", (augment.Affine(0.3),), None)
    assert changes(save) == ("save", (), save)  # any function will do
    ready = augment.Augmentation("mine", each=save)
    assert data.augmentation(ready, digits) is ready
    with pytest.raises(ValueError, match="nonsense"):
        data.augmentation("nonsense", digits)


# --- downloads -----------------------------------------------------------------------------------------------------


class Server:
    """Files over HTTP on this machine; ``cut`` sends that many bytes of each and hangs up; counts the requests."""

    def __init__(self):
        self.files, self.cut, self.requests = {}, None, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                content = outer.files.get(self.path.lstrip("/"))
                self.send_response(200 if content is not None else 404)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write((content or b"")[: outer.cut])

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    running = Server()
    yield running
    running.close()


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def cifar(monkeypatch, server):
    """A CIFAR-10 of 12 images behind the server; gives (images (12, 3, 32, 32), labels): two a batch."""
    pixels = np.random.RandomState(0).randint(0, 256, (12, 3072), dtype=np.uint8)
    labels = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    parts = {
        name: pickle.dumps({"data": pixels[2 * i : 2 * i + 2], "labels": labels[2 * i : 2 * i + 2]})
        for i, name in enumerate(names)
    }
    parts["batches.meta"] = pickle.dumps({"label_names": [f"kind {i}" for i in range(10)]})
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    server.files["cifar-10-python.tar.gz"] = archive.getvalue()
    monkeypatch.setattr(CIFAR10, "url", f"{server.url}cifar-10-python.tar.gz")
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(archive.getvalue()))
    monkeypatch.setattr(CIFAR10, "train_list", [[name, md5(parts[name])] for name in names[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [[names[5], md5(parts[names[5]])]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5(parts["batches.meta"])})
    return torch.from_numpy(pixels).view(12, 3, 32, 32), labels


@pytest.fixture
def fashion(monkeypatch, server):
    """A Fashion-MNIST of 8 images behind the server; gives (images (8, 28, 28), labels): 5 to train, 3 to test."""
    pixels = np.random.RandomState(1).randint(0, 256, (8, 28, 28), dtype=np.uint8)
    labels, resources = np.array([9, 0, 3, 2, 7, 1, 4, 6], np.uint8), []
    for prefix, rows in (("train", slice(0, 5)), ("t10k", slice(5, 8))):
        for kind, part in (("images-idx3", pixels[rows]), ("labels-idx1", labels[rows])):
            content = bytes([0, 0, 8, part.ndim]) + np.array(part.shape, ">i4").tobytes() + part.tobytes()
            name = f"{prefix}-{kind}-ubyte.gz"
            server.files[name] = gzip.compress(content)
            resources.append((name, md5(server.files[name])))
    monkeypatch.setattr(FashionMNIST, "resources", resources)
    monkeypatch.setattr(FashionMNIST, "mirrors", [server.url])
    return torch.from_numpy(pixels), labels.tolist()


def assert_is_cifar(d, cifar):
    images, labels = cifar
    assert torch.equal(torch.cat([d.train.images, d.test.images]), images)
    assert [*d.train.labels.tolist(), *d.test.labels.tolist()] == labels
    assert len(d.test) == 2
    assert d.classes == tuple(f"kind {i}" for i in range(10))
    assert (d.name, d.image_size, d.in_channels) == ("cifar10", (32, 32), 3)
    assert (d.mean, d.std) == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # published, whatever the images


def test_cifar10_is_downloaded_once(cifar, server, tmp_path):
    assert_is_cifar(data.cifar10(tmp_path / "new"), cifar)
    asked = len(server.requests)
    assert asked > 0
    assert_is_cifar(data.cifar10(tmp_path / "new"), cifar)
    assert_is_cifar(data.cifar10(str(tmp_path / "new"), download=False), cifar)
    assert len(server.requests) == asked


def test_fashion_mnist_is_downloaded_once(fashion, server, tmp_path):
    images, labels = fashion
    for download in (True, True, False):
        d = data.fashion_mnist(tmp_path, download)
        assert torch.equal(torch.cat([d.train.images, d.test.images]), images[:, None])
        assert [*d.train.labels.tolist(), *d.test.labels.tolist()] == labels
        assert (d.name, d.image_size, d.in_channels, len(d.test)) == ("fashion_mnist", (28, 28), 1, 3)
        assert (d.mean, d.std) == ((0.2860,), (0.3530,))
        assert d.classes[9] == "Ankle boot"
        server.files.clear()  # a second download would fail


@pytest.mark.parametrize(("name", "fixture"), [("cifar10", "cifar"), ("fashion_mnist", "fashion")])
@pytest.mark.parametrize("fault", ["cut", "other bytes", "missing"])
def test_a_download_that_went_wrong_is_taken_up_by_calling_again(
    request, server, tmp_path, refuses, name, fixture, fault
):
    request.getfixturevalue(fixture)
    whole = dict(server.files)
    if fault == "cut":
        server.cut = 40
    elif fault == "missing":
        server.files.clear()
    else:
        server.files.update({file: content[::-1] for file, content in whole.items()})
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(7)
    with refuses(OSError, "call again"):
        getattr(data, name)(tmp_path)
    assert socket.getdefaulttimeout() == 7  # left as it was found
    socket.setdefaulttimeout(default)
    server.cut = None
    server.files.update(whole)
    assert len(getattr(data, name)(tmp_path).train) > 0


NOWHERE = "http://127.0.0.1:9/"  # nobody listens there


def test_without_a_network_one_line_says_which_file_to_put_where(cifar, server, monkeypatch, tmp_path):
    monkeypatch.setattr(CIFAR10, "url", f"{NOWHERE}cifar-10-python.tar.gz")
    for download in (True, False):
        with pytest.raises(OSError, match="CIFAR10") as caught:
            data.cifar10(tmp_path, download)
        line = str(caught.value)
        assert "\n" not in line
        assert f"cifar-10-python.tar.gz from {NOWHERE}cifar-10-python.tar.gz into {tmp_path}" in line
        assert caught.value.__suppress_context__  # no torchvision traceback above it
    # Doing what the line says is enough, and a half of the file is not.
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(server.files[archive.name][:-30])
    with pytest.raises(OSError, match="CIFAR10"):
        data.cifar10(tmp_path)
    archive.write_bytes(server.files[archive.name])
    assert_is_cifar(data.cifar10(tmp_path), cifar)


def test_without_a_network_the_line_names_all_four_files(fashion, server, monkeypatch, tmp_path):
    monkeypatch.setattr(FashionMNIST, "mirrors", [NOWHERE])
    with pytest.raises(OSError, match="FashionMNIST") as caught:
        data.fashion_mnist(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    for words in (*server.files, NOWHERE, f"into {tmp_path / 'FashionMNIST' / 'raw'}"):
        assert words in line
    for name, content in server.files.items():
        (tmp_path / "FashionMNIST" / "raw" / name).write_bytes(content)
    assert len(data.fashion_mnist(tmp_path).train) == 5


@pytest.mark.parametrize("left", [0, 3, 10, 100, -1])
def test_unpacking_that_was_cut_short_is_done_again(fashion, server, tmp_path, left):
    data.fashion_mnist(tmp_path)
    file = tmp_path / "FashionMNIST" / "raw" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:left])
    server.files.clear()  # from the archive that is there
    assert torch.equal(data.fashion_mnist(tmp_path).train.images[:, 0], fashion[0][:5])


def test_a_broken_batch_of_cifar10_is_unpacked_again(cifar, server, tmp_path):
    data.cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"")
    server.files.clear()
    assert_is_cifar(data.cifar10(tmp_path), cifar)


# --- a folder of pictures ------------------------------------------------------------------------------------------


def save(path, colour=(200, 60, 20), size=(20, 20), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Cats are red, dogs are green; the dogs' folder is made first, and hidden files lie about."""
    root = tmp_path / "pets"
    for split in ("test", "train"):
        for name, colour in (("dog", (20, 160, 60)), ("cat", (200, 60, 20))):
            for i in (2, 10, 1):
                save(root / split / name / f"{i}.png", (*colour[:2], i))
            (root / split / name / ".DS_Store").write_bytes(b"not an image")
            (root / split / name / "Thumbs.db").write_bytes(b"not an image")
        (root / split / ".ipynb_checkpoints").mkdir()
        (root / split / ".hidden").write_bytes(b"")
    return root


def test_image_folder(folder):
    d = data.image_folder(folder, 16)
    assert (d.name, d.classes, d.image_size, d.in_channels) == ("pets", ("cat", "dog"), (16, 16), 3)
    assert d.train.labels.tolist() == d.test.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert d.train.images.shape == (6, 3, 16, 16)
    assert d.train.images[:, 2, 0, 0].tolist() == [1, 10, 2] * 2  # in the order of their names: "1", "10", "2"
    assert d.train.images[0, :, 5, 5].tolist() == [200, 60, 1]
    x = d.train.images.double() / 255
    torch.testing.assert_close(torch.tensor(d.mean).double(), x.mean((0, 2, 3)), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.tensor(d.std[:2]).double(), x.std((0, 2, 3), correction=0)[:2], rtol=0, atol=1e-6)


def test_a_folder_called_digits_is_still_a_folder_of_colour_pictures(folder):
    d = data.image_folder(folder.rename(folder.parent / "digits"), 16)
    assert (d.name, d.in_channels, len(d.mean), len(d.std)) == ("digits", 3, 3, 3)


def test_a_channel_without_spread_can_still_be_normalised(folder):
    for file in folder.glob("train/*/*.png"):
        save(file, (0, 0, int(file.stem)))
    assert min(data.image_folder(folder, 16).std) >= 1 / 255


def crop_of(folder, image, size, suffix=".png", **options):
    """What image_folder makes of one picture, (3, H, W)."""
    image.save(folder / "train" / "cat" / f"0{suffix}", **options)
    return data.image_folder(folder, size).train.images[0]


def noise(width, height):
    return np.random.RandomState(0).randint(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("picture", "size", "rows", "columns"),
    [((20, 20), 20, (0, 20), (0, 20)), ((30, 20), 20, (0, 20), (5, 25)), ((20, 36), (16, 20), (10, 26), (0, 20))],
)
def test_crops_the_middle(folder, picture, size, rows, columns):
    pixels = noise(*picture)
    expected = torch.from_numpy(pixels).permute(2, 0, 1)[:, slice(*rows), slice(*columns)]
    assert torch.equal(crop_of(folder, Image.fromarray(pixels), size), expected)


def test_resizes_with_antialiasing(folder):
    fine = (
        np.indices((64, 64)).sum(0) % 2 * np.uint8(255)
    )  # a chessboard of single pixels: aliasing shows as black or white
    assert (crop_of(folder, Image.fromarray(fine.astype(np.uint8)), 9).int() - 128).abs().max() <= 12
    pixels = noise(40, 40)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(pixels).permute(2, 0, 1)[None].float(), size=(10, 10), mode="bicubic", antialias=True
    )[0]
    torch.testing.assert_close(crop_of(folder, Image.fromarray(pixels), 10).float(), expected, rtol=0, atol=2)


@pytest.mark.parametrize("size", [(1, 1), (3, 1000), (1000, 3), (333, 77), (7, 11)])
def test_any_size_goes(folder, size):
    assert crop_of(folder, Image.new("RGB", size, (9, 8, 7)), (17, 13)).flatten(1).unique(dim=1).tolist() == [
        [9],
        [8],
        [7],
    ]


def half_transparent():
    picture = Image.new("RGBA", (20, 20), (200, 60, 20, 255))
    picture.paste((0, 0, 0, 0), (0, 0, 20, 10))
    return picture


def with_palette(alpha):
    picture = Image.new("P", (20, 20), 1)
    picture.putpalette([0, 0, 0, 200, 60, 20])
    if alpha:
        picture.paste(0, (0, 0, 20, 10))
        picture.info["transparency"] = 0
    return picture


RED, GREY, WHITE = (200, 60, 20), (100, 100, 100), (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "suffix", "above", "below"),
    [
        (Image.new("L", (20, 20), 100), ".png", GREY, GREY),
        (Image.new("L", (20, 20), 100), ".jpg", GREY, GREY),
        (Image.new("1", (20, 20), 1), ".png", WHITE, WHITE),
        (Image.new("LA", (20, 20), (100, 255)), ".png", GREY, GREY),
        (Image.new("LA", (20, 20), (100, 0)), ".png", WHITE, WHITE),
        (half_transparent(), ".png", WHITE, RED),
        (half_transparent(), ".webp", WHITE, RED),
        (Image.new("RGBA", (20, 20), (0, 0, 0, 51)), ".png", (204, 204, 204), (204, 204, 204)),
        (with_palette(alpha=False), ".png", RED, RED),
        (with_palette(alpha=True), ".png", WHITE, RED),
        (with_palette(alpha=True), ".gif", WHITE, RED),
        (Image.new("CMYK", (20, 20), (55, 195, 235, 0)), ".jpg", RED, RED),
        (Image.new("CMYK", (20, 20), (55, 195, 235, 0)), ".tif", RED, RED),
        (Image.fromarray(np.full((20, 20), 100 * 257, np.uint16)), ".png", GREY, GREY),
        (Image.fromarray(np.full((20, 20), 100 * 257, np.uint16)), ".tif", GREY, GREY),
    ],
    ids=lambda value: f"{value.mode}" if isinstance(value, Image.Image) else None,
)
def test_every_kind_of_pixel_becomes_rgb(folder, image, suffix, above, below):
    options = {"quality": 100} if suffix == ".jpg" else {"lossless": True} if suffix == ".webp" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels = crop_of(folder, image, 20, suffix, **options)
    torch.testing.assert_close(pixels[:, 2, 10].tolist(), list(above), rtol=0, atol=2)
    torch.testing.assert_close(pixels[:, 17, 10].tolist(), list(below), rtol=0, atol=2)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_pictures_upright(folder, orientation, suffix):
    upright = np.zeros((16, 16, 3), np.uint8)
    upright[:8, :8] = 255  # a white corner, and beside it a grey one: no two of the eight orientations look alike
    upright[:8, 8:] = 100
    # What a camera held that way would store: the inverse of what EXIF tells a viewer to do.
    store = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = crop_of(folder, Image.fromarray(store(upright).copy()), 16, suffix, exif=exif)
    torch.testing.assert_close(
        pixels.permute(1, 2, 0)[::5, ::5].int(), torch.from_numpy(upright)[::5, ::5].int(), rtol=0, atol=12
    )


def truncated(path):
    Image.fromarray(noise(64, 64)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BROKEN = {
    "half.jpg": truncated,
    "half.png": truncated,
    "half.webp": truncated,
    "empty.jpg": lambda path: path.touch(),
    "page.jpg": lambda path: path.write_text("<html>404</html>"),
    "IMG_1.HEIC": lambda path: path.write_bytes(b"\0\0\0\x18ftypheic"),
    "head.png": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n"),
    "float.tif": lambda path: Image.new("F", (20, 20), 0.5).save(path),
    "deep.tif": lambda path: Image.new("I", (20, 20), 70000).save(path),
    "below.tif": lambda path: Image.new("I", (20, 20), -1).save(path),
    "bomb.png": lambda path: Image.new("1", (20000, 10000)).save(path),
}


@pytest.mark.parametrize("name", BROKEN)
def test_names_the_file_that_is_not_an_image(folder, refuses, name):
    BROKEN[name](folder / "test" / "dog" / name)
    reason = "8 or 16 bits" if name in ("float.tif", "deep.tif", "below.tif") else name
    with refuses(ValueError, str(folder / "test" / "dog" / name), reason), warnings.catch_warnings():
        warnings.simplefilter("error")
        data.image_folder(folder, 16)


def test_a_class_is_the_images_in_its_folder_and_below(folder):
    (folder / "train" / "cat" / "notes.txt").write_text("cats, mostly")
    (folder / "train" / "notes.txt").write_text("pets")
    save(folder / "train" / "cat" / "old" / "3.png", (200, 60, 3))
    d = data.image_folder(folder, 16)
    assert d.train.labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert d.train.images[:4, 2, 0, 0].tolist() == [1, 10, 2, 3]


def test_names_all_broken_files_at_once(folder, refuses):
    for i in range(7):
        (folder / "train" / "dog" / f"bad{i}.png").touch()
    with refuses(ValueError, "bad0.png", "bad4.png", "and 2 more") as _:
        data.image_folder(folder, 16)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "train" / "bird").mkdir(), ("train/bird", "no images")),
        (lambda root: save(root / "train" / "bird" / "1.png"), ("'bird'", "only in", "train")),
        (lambda root: save(root / "test" / "bird" / "1.png"), ("'bird'", "only in", "test")),
        (lambda root: [f.unlink() for f in (root / "test" / "cat").glob("*.png")], ("test/cat", "no images")),
        (lambda root: save(root / "train" / "stray.png"), ("train/stray.png", "class")),
        (lambda root: (root / "train").rename(root / "training"), ("pets/train", "missing")),
        (lambda root: (root / "test").rename(root / "tests"), ("pets/test", "missing")),
        (
            lambda root: [(root / "test").rename(root / "val"), (root / "valid").mkdir()],
            ("val and valid", "rename the one"),
        ),
        (lambda root: save((root / "test").rename(root / "val") / "bird" / "1.png"), ("'bird'", "only in", "pets/val")),
        (lambda root: (root / "train" / "cat").rename(root / "cat"), ("train", "1 class", "at least 2")),
        (lambda root: root.rename(root.parent / "moved"), ("pets/train", "missing")),
    ],
)
def test_refuses_a_folder_that_is_not_as_it_should_be(folder, refuses, change, words):
    change(folder)
    with refuses(ValueError, *words):
        data.image_folder(folder, 16)


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_other_names_of_the_test_split(folder, name):
    before = data.image_folder(folder, 16)
    (folder / "test").rename(folder / name)
    after = data.image_folder(folder, 16)
    assert torch.equal(after.test.images, before.test.images)
    (folder / "test").mkdir()  # where both are, test is tested on, and it is empty here
    with pytest.raises(ValueError, match="pets/test"):
        data.image_folder(folder, 16)


# --- one folder of classes, split by a share ------------------------------------------------------------------------


@pytest.fixture
def classes(tmp_path):
    """20 cats, 11 dogs, 2 newts without splits; each picture's colour is its own."""
    root = tmp_path / "zoo"
    for label, (name, n) in enumerate({"cat": 20, "dog": 11, "newt": 2}.items()):
        for i in range(n):
            save(root / name / f"{i}.png", (10 * label, 5 * i, 77), size=(8, 8))
    return root


def colours(images):
    return [tuple(image[:, 0, 0].tolist()) for image in images.images]


def test_a_share_of_each_class_is_set_aside(classes):
    d = data.image_folder(classes, 8, test_share=0.2)
    assert d.classes == ("cat", "dog", "newt")
    assert d.train.labels.bincount().tolist() == [16, 9, 1]
    assert d.test.labels.bincount().tolist() == [4, 2, 1]  # at least one of each
    everything = colours(d.train) + colours(d.test)
    assert len(set(everything)) == len(everything) == 33
    assert sorted(everything) == sorted((10 * c, 5 * i, 77) for c, n in enumerate((20, 11, 2)) for i in range(n))
    # What is written down is what was set aside, and by chance: not the first ones, nor the same places everywhere.
    named = [(10 * d.classes.index(file.split("/")[0]), 5 * int(file.split("/")[1][:-4]), 77) for file in d.test_files]
    assert named == colours(d.test)
    places = {name: [int(f.split("/")[1][:-4]) for f in d.test_files if f.startswith(name)] for name in ("cat", "dog")}
    assert places["cat"] != [0, 1, 2, 3]
    x = d.train.images.double() / 255
    torch.testing.assert_close(torch.tensor(d.mean).double(), x.mean((0, 2, 3)), rtol=0, atol=1e-6)


def test_the_same_pictures_are_set_aside_each_time(classes):
    first = data.image_folder(classes, 8, test_share=0.2)
    np.random.seed(99)
    assert data.image_folder(classes, 8, test_share=0.2).test_files == first.test_files
    assert data.image_folder(classes, 8, test_share=0.5).test_files != first.test_files
    assert data.image_folder(classes, 8, test_share=0.999).train.labels.bincount().tolist() == [1, 1, 1]


@pytest.mark.parametrize("test_share", [None, 0.2])
def test_each_picture_is_decoded_once(folder, monkeypatch, test_share):
    opened, original = [], Image.open

    def count(file, *rest):
        opened.append(file)
        return original(file, *rest)

    monkeypatch.setattr(Image, "open", count)
    where = folder if test_share is None else folder / "train"
    d = data.image_folder(where, 16, test_share)
    assert len(opened) == len(set(opened)) == len(d.train) + len(d.test)


def test_a_broken_picture_is_named_whichever_split_it_fell_into(classes, refuses):
    for file in classes.glob("*/0.png"):
        file.write_bytes(b"not an image")
    with refuses(ValueError, "cat/0.png", "dog/0.png", "newt/0.png"):
        data.image_folder(classes, 8, test_share=0.2)


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, float("nan")])
def test_refuses_a_share_that_leaves_nothing(classes, refuses, share):
    with refuses(ValueError, "test_share", str(share), "0.2"):
        data.image_folder(classes, 8, test_share=share)


def test_refuses_what_can_t_be_split(classes, folder, refuses):
    with refuses(ValueError, "pets has splits", "leave the test share (0.2) out", "or split"):
        data.image_folder(folder, 8, test_share=0.2)
    with refuses(ValueError, "zoo/train", "missing", "--test-share 0.2"):
        data.image_folder(classes, 8)
    (classes / "newt" / "1.png").unlink()
    with refuses(ValueError, "zoo/newt", "one image", "at least 2"):
        data.image_folder(classes, 8, test_share=0.2)


def test_a_class_called_train_is_no_split(classes):
    (classes / "dog").rename(classes / "train")  # toy trains
    assert data.image_folder(classes, 8, test_share=0.2).classes == ("cat", "newt", "train")


# --- from pixels to a model's input and back ------------------------------------------------------------------------


def test_normalise_and_back():
    images = torch.rand(2, 3, 4, 5)
    preprocess = data.Preprocessing((4, 5), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    out = data.normalise(images, preprocess)
    for channel in range(3):
        expected = (images[:, channel] - preprocess.mean[channel]) / preprocess.std[channel]
        torch.testing.assert_close(out[:, channel], expected)
    torch.testing.assert_close(data.denormalise(out, preprocess), images)
    assert torch.equal(data.denormalise(torch.full((1, 3, 4, 5), 9.0), preprocess), torch.ones(1, 3, 4, 5))
    assert data.denormalise(torch.full((1, 3, 4, 5), -9.0), preprocess).max() == 0


def test_one_picture_becomes_a_batch_of_one():
    preprocess = data.Preprocessing((4, 5), (0.5,) * 3, (0.5,) * 3)
    assert preprocess(Image.new("RGB", (30, 20))).shape == (1, 3, 4, 5)
    assert preprocess(torch.rand(3, 4, 5)).shape == (1, 3, 4, 5)
    assert preprocess(torch.rand(2, 3, 4, 5)).shape == (2, 3, 4, 5)
