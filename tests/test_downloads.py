"""Data sets that torchvision downloads: archives that a test makes and serves itself, whole and broken."""

import hashlib
import io
import pickle
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from vit_tutorial import data


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


@pytest.mark.parametrize("fault", ["cut", "other bytes", "missing"])
def test_a_download_that_went_wrong_is_taken_up_by_calling_again(cifar, server, tmp_path, refuses, fault):
    whole = dict(server.files)
    if fault == "cut":
        server.cut = 40
    elif fault == "missing":
        server.files.clear()
    else:
        server.files.update({file: content[::-1] for file, content in whole.items()})
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(7)
    with refuses(OSError, "try again"):
        data.cifar10(tmp_path)
    assert socket.getdefaulttimeout() == 7  # left as it was found
    socket.setdefaulttimeout(default)
    server.cut = None
    server.files.update(whole)
    assert len(data.cifar10(tmp_path).train) > 0


def test_a_file_is_no_place_for_a_download(tmp_path, refuses):
    (tmp_path / "file").touch()
    with refuses(ValueError, "is a file, and downloads need a folder"):
        data.cifar10(tmp_path / "file")


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


def test_a_broken_batch_of_cifar10_is_unpacked_again(cifar, server, tmp_path):
    data.cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"")
    server.files.clear()
    assert_is_cifar(data.cifar10(tmp_path), cifar)
