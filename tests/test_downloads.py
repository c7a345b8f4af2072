"""CIFAR-10 through torchvision, with an archive that the test makes."""

import hashlib
import io
import pickle
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from vit_tutorial import data

NOWHERE = "http://127.0.0.1:9/"  # nobody listens there


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def archive(monkeypatch, tmp_path):
    """The file of a CIFAR-10 of 12 images, two a batch, where torchvision downloads it from."""
    pixels = np.random.RandomState(0).randint(0, 256, (12, 3072), dtype=np.uint8)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    rows = {name: {"data": pixels[2 * i : 2 * i + 2], "labels": [i, 9 - i]} for i, name in enumerate(names)}
    rows["batches.meta"] = {"label_names": [f"kind {i}" for i in range(10)]}
    parts = {name: pickle.dumps(part) for name, part in rows.items()}
    path = tmp_path / "server" / "cifar-10-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=path.parent))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/{path.name}")
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(path.read_bytes()))
    monkeypatch.setattr(CIFAR10, "train_list", [[name, md5(parts[name])] for name in names[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [[names[5], md5(parts[names[5]])]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5(parts["batches.meta"])})
    yield path
    server.shutdown()
    server.server_close()


def test_cifar10_is_downloaded_once(archive, tmp_path):
    first = data.cifar10(tmp_path / "new")
    pixels = np.random.RandomState(0).randint(0, 256, (12, 3072), dtype=np.uint8)
    images = torch.from_numpy(pixels).view(12, 3, 32, 32)
    assert torch.equal(torch.cat([first.train.images, first.test.images]), images)
    assert (first.train.labels.tolist(), first.test.labels.tolist()) == ([0, 9, 1, 8, 2, 7, 3, 6, 4, 5], [5, 4])
    assert (first.classes[3], first.image_size, first.in_channels) == ("kind 3", (32, 32), 3)
    assert (first.mean, first.std) == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # the published ones
    archive.unlink()
    assert torch.equal(data.cifar10(tmp_path / "new").train.images, first.train.images)


def test_without_a_network_one_line_says_which_file_to_put_where(archive, monkeypatch, tmp_path):
    monkeypatch.setattr(CIFAR10, "url", f"{NOWHERE}cifar-10-python.tar.gz")
    for download in (True, False):
        with pytest.raises(OSError, match="CIFAR10") as caught:
            data.cifar10(tmp_path, download)
        line = str(caught.value)
        assert "\n" not in line
        assert f"cifar-10-python.tar.gz from {NOWHERE}cifar-10-python.tar.gz into {tmp_path}" in line
    (tmp_path / archive.name).write_bytes(archive.read_bytes()[:-30])  # a half of the file isn't enough
    with pytest.raises(OSError, match="CIFAR10"):
        data.cifar10(tmp_path)
    (tmp_path / archive.name).write_bytes(archive.read_bytes())
    assert len(data.cifar10(tmp_path).train) == 10
