"""Lesson 07: files of photographs: which are in a folder, and each one read safely."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.data.preprocessing import check_levels
from vit_tutorial.data.text import printable

if TYPE_CHECKING:
    from PIL import Image as PILImage

RAW = (".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2")  # Pillow may read their preview, a few pixels
MAX_PIXELS = 2**26  # of one decoded picture: 200 MB as RGB
PHOTOMETRIC, BITS = 262, 258  # tags of a TIFF
THREADS = min(os.cpu_count() or 1, 8)  # that read pictures; each may hold a whole one


def images_in(folder: Path) -> list[Path]:
    """The files in a folder and below it, sorted, but for hidden ones: reading one says whether it is an image.

    A link to a folder, which isn't followed, and a folder that may not be opened are among them, so that reading them
    says what is missing.
    """
    closed: list[OSError] = []
    files: list[Path] = []
    for place, inside, names in os.walk(folder, onerror=closed.append):
        inside[:] = [name for name in inside if not name.startswith(".")]
        links = [name for name in inside if Path(place, name).is_symlink()]
        files += [Path(place, name) for name in [*names, *links] if not name.startswith(".")]
    return sorted([*files, *(Path(error.filename) for error in closed)])


def open_photo(path: str | Path) -> PILImage.Image:
    """An image file, turned upright as its EXIF data say.

    A JPEG of more than :data:`MAX_PIXELS` pixels is decoded at a half, a quarter or an eighth of its size.

    Raises:
        ValueError: the file was not found, is not an image, is damaged, or has more than :data:`MAX_PIXELS` pixels:
            names the file.
    """
    name = printable(str(path))
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"{name} is not a file" + (": name the folder itself" if Path(path).is_dir() else ""))
    if Path(path).suffix.lower() in RAW:
        raise ValueError(f"{name} is a camera's raw file: convert it to JPEG")
    return decode(path, name)


def decode(file: str | Path | io.BytesIO, name: str) -> PILImage.Image:
    """:func:`open_photo` of a file or of a file's content; ``name`` is for error messages."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(file) as opened:
            sixteen_bits = ";16" in str(opened.tile)  # which Pillow reduces to 8 as it reads RGB
            _fit_into_memory(opened)
            opened.load()
            if sixteen_bits and opened.mode in ("RGB", "RGBA", "LA"):
                check_levels(int(np.asarray(opened.convert("RGB")).max()) << 8)
            ImageOps.exif_transpose(opened, in_place=True)
            return _positive(opened)
    except FileNotFoundError:
        raise ValueError(f"{name} was not found") from None
    except PermissionError as error:
        raise ValueError(f"{name} can't be opened ({error.strerror})") from None
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not an image that Pillow can read: if it is one, convert it to JPEG") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        raise ValueError(f"{name} can't be read as an image ({' '.join(str(error).split())})") from error


def _positive(opened: PILImage.Image) -> PILImage.Image:
    """The picture with 0 as black. Of a grey TIFF of 16 bits, Pillow ignores the tag that says that 0 is white."""
    from PIL import Image

    tags = getattr(opened, "tag_v2", {})
    if opened.mode.startswith("I;16") and tags.get(PHOTOMETRIC) == 0 and tags.get(BITS) == (16,):
        return Image.fromarray(65535 - np.asarray(opened).astype(np.uint16))
    return opened


def _fit_into_memory(opened: PILImage.Image) -> None:
    """Read a large JPEG smaller; raise a ValueError for another large picture."""
    width, height = opened.size
    factor = 1
    while opened.format == "JPEG" and width * height > factor**2 * MAX_PIXELS and factor < 8:
        factor *= 2
    if width * height > factor**2 * MAX_PIXELS:
        raise ValueError(f"more than {MAX_PIXELS // 10**6} million pixels: make it smaller first")
    if factor > 1:
        opened.draft("RGB", (width // factor, height // factor))


def read_all(paths: list[Path], pixels_of: Callable[[PILImage.Image], np.ndarray]) -> Iterator[np.ndarray | str]:
    """The pixels of each file, (H, W, C) uint8, or what is wrong with it, in their order."""

    def read(file: Path) -> np.ndarray | str:
        try:
            return pixels_of(open_photo(file))
        except ImportError:  # a package is missing, and the file is all right
            raise
        except Exception as error:  # whatever it is, it concerns this file alone
            return problem_of(str(file), error)

    with ThreadPoolExecutor(THREADS) as pool:
        yield from tqdm(pool.map(read, paths), total=len(paths), desc="reading", leave=False, disable=None)


def problem_of(file: str, error: Exception) -> str:
    """What is wrong with a file, in a line that begins with its name."""
    name, text = printable(file), " ".join(str(error).split()) or type(error).__name__
    return text if name in text else f"{name} can't be used ({text})"
