"""Folders of images: splits, every kind of pixel, files that are broken, and what is refused."""

import errno
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vit_tutorial import data


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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_pictures_upright(folder, orientation):
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
    pixels = crop_of(folder, Image.fromarray(store(upright).copy()), 16, ".jpg", exif=exif)
    torch.testing.assert_close(
        pixels.permute(1, 2, 0)[::5, ::5].int(), torch.from_numpy(upright)[::5, ::5].int(), rtol=0, atol=12
    )


def truncated(path):
    Image.fromarray(noise(64, 64)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BROKEN = {  # a file: what is wrong with it
    "half.jpg": (truncated, "can't be read as an image"),
    "half.png": (truncated, "can't be read as an image"),
    "empty.jpg": (lambda path: path.touch(), "is not an image"),
    "page.jpg": (lambda path: path.write_text("<html>404</html>"), "is not an image"),
    "IMG_1.HEIC": (lambda path: path.write_bytes(b"\0\0\0\x18ftypheic"), "convert it to JPEG"),
    "IMG_2.CR2": (lambda path: Image.new("RGB", (160, 120)).save(path, "tiff"), "raw file"),  # Pillow reads its preview
    "Thumbs.db": (lambda path: path.write_bytes(b"nonsense"), "is not an image"),
    "link.png": (lambda path: path.symlink_to("nowhere"), "was not found"),
    "more": (lambda path: path.symlink_to(path.parent.parent / "cat"), "is not a file"),
    "float.tif": (lambda path: Image.new("F", (20, 20), 0.5).save(path), "8 or 16 bits"),
    "deep.tif": (lambda path: Image.new("I", (20, 20), 70000).save(path), "8 or 16 bits"),
    "below.tif": (lambda path: Image.new("I", (20, 20), -1).save(path), "8 or 16 bits"),
    "bomb.png": (lambda path: Image.new("1", (9000, 9000)).save(path), "more than 67 million pixels"),
    "larger.png": (lambda path: Image.new("1", (20000, 20000)).save(path), "exceeds limit"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_names_the_file_that_is_not_an_image(folder, name):
    file = folder / "test" / "dog" / name
    make, reason = BROKEN[name]
    make(file)
    with pytest.warns(UserWarning, match="skipped 1 file that can't be read") as caught:
        d = data.image_folder(folder, 16)
    assert len(caught) == 1
    for text in (str(file), reason):
        assert text in str(caught[0].message)
        assert text in d.skipped[0]
    assert (len(d.skipped), d.test.labels.tolist()) == (1, [0, 0, 0, 1, 1, 1])
    assert d.test_files == tuple(f"test/{kind}/{i}.png" for kind in ("cat", "dog") for i in (1, 10, 2))


def test_a_picture_needs_no_suffix(folder):
    picture = Image.new("RGB", (20, 20), (200, 60, 77))
    names = {"photo": "PNG", "a.jpg_large": "JPEG", "b.jpe": "JPEG", "c.tga": "TGA", "d.pcx": "PCX", "e.ppm": "PPM"}
    for name, kind in names.items():
        picture.save(folder / "train" / "cat" / name, kind)
    (folder / "train" / "cat" / "old").mkdir()
    picture.save(folder / "train" / "cat" / "old" / "3.png")
    d = data.image_folder(folder, 16)
    assert d.train.labels.tolist() == 10 * [0] + 3 * [1]
    assert d.skipped == ()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_a_folder_that_can_t_be_opened_is_named(folder, monkeypatch):
    closed, scandir = folder / "train" / "cat" / "closed", os.scandir
    closed.mkdir()

    def refused(path):
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # root, as whom tests may run, may read everything
    with pytest.warns(UserWarning, match="closed is not a file"):
        data.image_folder(folder, 16)


def test_the_digest_is_of_names_and_sizes(folder):
    first = data.image_folder(folder, 16).digest
    assert first.startswith("12 files, SHA-256 ")
    assert data.image_folder(folder, 8).digest == first
    (folder / "train" / "cat" / "1.png").rename(folder / "train" / "cat" / "3.png")
    assert data.image_folder(folder, 16).digest != first
    (folder / "train" / "cat" / "3.png").rename(folder / "train" / "cat" / "1.png")
    save(folder / "train" / "cat" / "1.png", size=(70, 30))
    assert data.image_folder(folder, 16).digest != first


def test_a_class_without_a_readable_image_is_refused(folder, refuses):
    for file in folder.glob("test/dog/*.png"):
        file.write_bytes(b"not an image")
    with refuses(ValueError, "'dog'", "to test on", "1.png"):
        data.image_folder(folder, 16)


def test_the_checkpoint_s_own_pixels(folder):
    picture = Image.fromarray(noise(40, 30))
    picture.save(folder / "test" / "cat" / "1.png")
    for mean, std in (((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), ((0.3,), (0.4,))):
        how = data.Preprocessing((16, 16), mean, std, crop=0.875, interpolation="bilinear")
        d = data.image_folder(folder, preprocess=how)
        assert (d.image_size, d.in_channels, d.mean, d.std, d.preprocess) == ((16, 16), len(mean), mean, std, how)
        ours = data.normalise(d.test.batch()[0][:1], d)
        torch.testing.assert_close(ours, how(picture), rtol=0, atol=0.5 / 255 / min(std) if len(mean) == 1 else 0)
        assert torch.equal(data.load(str(folder), preprocess=how).test.images, d.test.images)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "train" / "bird").mkdir(), ("train/bird", "no images")),
        (lambda root: save(root / "train" / "bird" / "1.png"), ("'bird'", "only in", "train")),
        (lambda root: save(root / "test" / "bird" / "1.png"), ("'bird'", "only in", "test")),
        (lambda root: [f.unlink() for f in (root / "test" / "cat").glob("*.png")], ("test/cat", "no images")),
        (lambda root: save(root / "train" / "stray.png"), ("train/stray.png", "class")),
        (lambda root: save(root / "train" / "large.png", 0, (14_000, 14_000), "1"), ("train/large.png", "class")),
        (lambda root: (root / "train").rename(root / "training"), ("pets/train", "missing", "it holds test; training")),
        (lambda root: (root / "test").rename(root / "tests"), ("pets/test", "missing")),
        (
            lambda root: [(root / "test").rename(root / "val"), (root / "valid").mkdir()],
            ("val and valid", "rename the one"),
        ),
        (lambda root: save((root / "test").rename(root / "val") / "bird" / "1.png"), ("'bird'", "only in", "pets/val")),
        (lambda root: (root / "train" / "cat").rename(root / "cat"), ("'cat'", "only in", "pets/test")),
        (
            lambda root: [shutil.rmtree(root / split / "cat") for split in ("train", "test")],
            ("pets has only the class 'dog'", "at least 2"),
        ),
        (lambda root: root.rename(root.parent / "moved"), ("pets", "was not found")),
    ],
)
def test_refuses_a_folder_that_is_not_as_it_should_be(folder, refuses, change, words):
    change(folder)
    with refuses(ValueError, *words):
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
    d = data.image_folder(classes, 8, test_fraction=0.2)
    assert d.classes == ("cat", "dog", "newt")
    assert d.train.labels.bincount().tolist() == [16, 9, 1]
    assert d.test.labels.bincount().tolist() == [4, 2, 1]  # at least one of each
    everything = colours(d.train) + colours(d.test)
    assert len(set(everything)) == len(everything) == 33
    assert sorted(everything) == sorted((10 * c, 5 * i, 77) for c, n in enumerate((20, 11, 2)) for i in range(n))
    # What is written down is what was set aside, and by chance: not the first ones, nor the same places everywhere.
    files = d.random_test_files
    named = [(10 * d.classes.index(file.split("/")[0]), 5 * int(file.split("/")[1][:-4]), 77) for file in files]
    assert named == colours(d.test)
    places = {name: [int(f.split("/")[1][:-4]) for f in files if f.startswith(name)] for name in ("cat", "dog")}
    assert places["cat"] != [0, 1, 2, 3]
    x = d.train.images.double() / 255
    torch.testing.assert_close(torch.tensor(d.mean).double(), x.mean((0, 2, 3)), rtol=0, atol=1e-6)


def test_the_same_pictures_are_set_aside_each_time(classes):
    first = data.image_folder(classes, 8, test_fraction=0.2)
    np.random.seed(99)
    assert data.image_folder(classes, 8, test_fraction=0.2).random_test_files == first.random_test_files
    assert data.image_folder(classes, 8, test_fraction=0.5).random_test_files != first.random_test_files
    assert data.image_folder(classes, 8, test_fraction=0.999).train.labels.bincount().tolist() == [1, 1, 1]


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, float("nan")])
def test_refuses_a_share_that_leaves_nothing(classes, refuses, share):
    with refuses(ValueError, "test_fraction", str(share), "0.2"):
        data.image_folder(classes, 8, test_fraction=share)


def test_refuses_what_can_t_be_split(classes, folder, refuses):
    with refuses(ValueError, "pets has splits", "leave test_fraction=0.2 out", "or split"):
        data.image_folder(folder, 8, test_fraction=0.2)
    with refuses(ValueError, "zoo/train", "missing", "--test-fraction 0.2"):
        data.image_folder(classes, 8)
    (classes / "newt" / "1.png").unlink()
    with refuses(ValueError, "zoo/newt", "one image", "at least 2"):
        data.image_folder(classes, 8, test_fraction=0.2)
