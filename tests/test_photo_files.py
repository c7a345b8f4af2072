"""Photographs read from files: 16 bits, and pictures too large for memory."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from vit_tutorial import data
from vit_tutorial.data import photo_files

NOISE = np.random.RandomState(0).randint(0, 256, (48, 64, 3), dtype=np.uint8)


@pytest.mark.parametrize("most", [255, 4095])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_files_that_do_not_fill_16_bits_are_refused(tmp_path, channels, most):
    levels = np.linspace(0, most, 400).astype(np.uint16).reshape(20, 20)
    Image.fromarray(levels).save(file := tmp_path / "grey.png")
    if channels == 3:
        write_rgb16(file := tmp_path / "rgb.png", levels)
    with pytest.raises(ValueError, match="16-bit levels end at about"):
        data.Preprocessing((8, 8), (0.5,) * 3, (0.5,) * 3).pixels(data.open_photo(file))


def test_16_bits_in_colour_become_8(tmp_path):
    write_rgb16(file := tmp_path / "rgb.png", np.full((20, 20), 100 * 257, np.uint16))
    assert data.open_photo(file).getextrema() == ((100, 100),) * 3


def test_a_16_bit_tiff_in_which_white_is_zero_is_not_read_as_its_negative(tmp_path):
    Image.fromarray(np.full((20, 20), 100 * 257, np.uint16)).save(file := tmp_path / "grey.tiff")
    black_is_zero, white_is_zero = (struct.pack("<HHIH", 262, 3, 1, value) for value in (1, 0))
    assert black_is_zero in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(black_is_zero, white_is_zero))
    how = data.Preprocessing((8, 8), (0.5,) * 3, (0.5,) * 3)
    assert set(how.pixels(data.open_photo(file)).flat) == {155}


def write_rgb16(path, levels):
    """A PNG of three channels of 16 bits, which Pillow can't write."""

    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    rows = b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 16, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))


def test_a_picture_that_would_grow_beyond_memory_is_refused(tmp_path):
    Image.new("RGB", (20_000, 1)).save(file := tmp_path / "line.png")
    how = data.Preprocessing((224, 224), (0.5,) * 3, (0.5,) * 3, crop=0.875)
    with pytest.raises(ValueError, match="20000 x 1 pixels would be resized to 5120000 x 256: crop it first"):
        how.pixels(data.open_photo(file))
    assert data.Preprocessing((8, 8), (0.5,) * 3, (0.5,) * 3).pixels(data.open_photo(file)).shape == (8, 8, 3)


def test_a_large_jpeg_is_decoded_at_a_part_of_its_size(tmp_path, monkeypatch):
    Image.fromarray(NOISE).save(file := tmp_path / "large.jpg")
    monkeypatch.setattr(photo_files, "MAX_PIXELS", 64 * 48 // 4)
    assert data.open_photo(file).size == (32, 24)
    monkeypatch.setattr(photo_files, "MAX_PIXELS", 40)
    with pytest.raises(ValueError, match="pixels: make it smaller first"):
        data.open_photo(file)
