"""Lesson 09: downloads from the Hugging Face hub and of torchvision's weights, from servers on this machine."""

import hashlib
import json
import shutil
import socket
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
import torch
from peers import randomise
from test_loading import timm_folder, transformers_folder
from torchvision.models import ViT_B_16_Weights, vit_b_16

import vit_tutorial as vt
from vit_tutorial.weights import files, torchvision_models


class Handler(SimpleHTTPRequestHandler):
    """A folder's files as the hub serves them: an API that lists a repository, and its files with their hashes."""

    requests: list[tuple[str, str]] = []  # noqa: RUF012

    def do_GET(self):
        self.requests.append((self.path, self.headers.get("Authorization", "")))
        if not self.path.startswith("/api/models/"):
            return super().do_GET()
        asked, what = self.path.partition("?")[0].removeprefix("/api/models/"), "revision"
        if "/tree/" in asked:
            what = "tree"
        name, _, revision = asked.partition(f"/{what}/")
        folder = Path(self.directory, name, "resolve", revision or "main")
        folder = folder if folder.is_dir() else at_commit(folder)
        if folder is None:
            known = Path(self.directory, name).is_dir()
            return self.send_error_of_the_hub("RevisionNotFound" if known else "RepoNotFound")
        files = sorted(file for file in folder.iterdir() if file.is_file())
        if what == "tree":
            found = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40} for f in files]
        else:
            found = {"id": name, "sha": revision_of(folder), "siblings": [{"rfilename": f.name} for f in files]}
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return self.wfile.write(content)

    def send_error_of_the_hub(self, code):
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def translate_path(self, path):
        path = Path(super().translate_path(path))
        folder = at_commit(path.parent)
        return str(path if folder is None else folder / path.name)

    def end_headers(self):
        self.send_header("ETag", f'"{hashlib.sha256(self.path.encode()).hexdigest()}"')  # what the hub's cache goes by
        folder = Path(self.translate_path(self.path)).parent
        self.send_header("X-Repo-Commit", revision_of(folder))
        super().end_headers()

    def log_message(self, *words):
        pass


def revision_of(folder):
    return hashlib.sha1(folder.name.encode()).hexdigest()


def at_commit(place):
    """The folder of the branch that a commit, the last part of the path, stands for; None without one."""
    return next((folder for folder in place.parent.glob("*") if revision_of(folder) == place.name), None)


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder that a server on this machine shows, in place of the hub."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = type("Here", (Handler,), {"requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.handler, server.folder = handler, folder
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    point_to(monkeypatch, tmp_path, f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def point_to(monkeypatch, tmp_path, url):
    constants = huggingface_hub.constants
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", url)
    for module in (constants, huggingface_hub.file_download):  # which of them counts depends on its version
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.hub.set_dir(str(tmp_path / "torch" / "hub"))


@pytest.fixture(autouse=True)
def _hub_folder_stays():
    yield
    torch.hub._hub_dir = None


def put(web, name, revision="main", make=transformers_folder):
    folder = web.folder / name / "resolve" / revision
    folder.parent.mkdir(parents=True, exist_ok=True)
    make(folder)
    return folder


def downloads(web):
    return [path for path, _ in web.handler.requests if path.endswith(".safetensors")]


def test_repositories_for_transformers_timm_and_this_package(web):
    put(web, "google/vit-tiny")
    put(web, "timm/vit_tiny_patch16_224.mine", make=timm_folder)
    put(web, "me/digits", make=lambda folder: vt.save(vt.load("digits"), folder))
    names = {"google/vit-tiny": 2, "timm/vit_tiny_patch16_224.mine": 3, "me/digits": 10}
    for name, classes in names.items():
        for _ in range(2):  # the second time from the cache
            assert len(vt.load(name).classes) == classes
    assert len(downloads(web)) == 3


def test_timm_s_name_alone_means_its_default_weights(web, refuses):
    with refuses(OSError, "the hub gives no timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"):
        vt.load("timm/vit_tiny_patch16_224")
    put(web, "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", make=timm_folder)
    assert len(vt.load("timm/vit_tiny_patch16_224").classes) == 3


def test_older_files_are_pickles(web):
    folder = put(web, "google/vit-tiny")
    state = __import__("safetensors.torch").torch.load_file(folder / "model.safetensors")
    torch.save(state, folder / "pytorch_model.bin")
    expected = vt.load(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    found = vt.load("google/vit-tiny").model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_shards(web):
    folder = put(web, "google/vit-tiny", make=lambda folder: transformers_folder(folder).save_pretrained(
        folder, max_shard_size="20KB"))  # fmt: skip
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert len(vt.load("google/vit-tiny").classes) == 2


def test_a_revision_and_a_token(web, refuses):
    put(web, "google/vit-tiny", "v2")
    assert vt.load("google/vit-tiny", revision="v2", token="hf_x")
    assert {key for _, key in web.handler.requests if key} == {"Bearer hf_x"}
    with refuses(OSError, "no google/vit-tiny at revision v3", "RevisionNotFoundError", "revision="):
        vt.load("google/vit-tiny", revision="v3")
    with refuses(OSError, "no google/nobody", "RepositoryNotFoundError", "token="):
        vt.load("google/nobody")


def test_without_a_network_the_cache_is_enough(web, monkeypatch, refuses):
    put(web, "google/vit-tiny")
    vt.load("google/vit-tiny")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert vt.load("google/vit-tiny")
    with refuses(OSError, "facebook/other is not on disk", "HF_HUB_OFFLINE is set", "into a folder"):
        vt.load("facebook/other")


@pytest.mark.parametrize("name", ["google/vit", "timm/vit_tiny_patch16_224", "torchvision/vit_b_16"])
def test_without_a_network_one_line_says_what_to_do(name, tmp_path, monkeypatch):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(OSError, match=r"can't be downloaded.*put") as caught:
        vt.load(name)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["google/vit", "torchvision/vit_b_16"])
def test_a_server_that_takes_a_call_and_says_nothing_isn_t_waited_for(name, tmp_path, monkeypatch, refuses):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        point_to(monkeypatch, tmp_path, url)
        for weights in ViT_B_16_Weights:
            monkeypatch.setitem(weights.value.__dict__, "url", f"{url}/x.pth")
        assert files.PATIENCE < 5
        monkeypatch.setattr(files, "PATIENCE", 0.2)
        with refuses(OSError, "127.0.0.1 doesn't answer"):
            vt.load(name)


# --------------------------------------------------------------------------------------------------------- torchvision


@pytest.fixture
def published(web):
    """Puts torchvision's B/16 on the server; the name tells its hash, rightly or not."""
    before = {weights: weights.value.url for weights in ViT_B_16_Weights}

    def put_there(right=True, classes=3):
        path = web.folder / "vit.pth"
        torch.save(randomise(vit_b_16(num_classes=classes)).state_dict(), path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8] if right else "0" * 8
        path = path.rename(web.folder / f"vit_b_16-{digest}.pth")
        for weights in ViT_B_16_Weights:
            object.__setattr__(weights.value, "url", f"http://127.0.0.1:{web.server_port}/{path.name}")
        return path

    yield put_there
    for weights, url in before.items():
        object.__setattr__(weights.value, "url", url)


def test_torchvision_by_name(published, web, tmp_path):
    path = published()
    found = vt.load("torchvision/vit_b_16.IMAGENET1K_V1")
    assert found.classes == ("class 0", "class 1", "class 2")  # a thousand names would be wrong for three
    assert (found.preprocess.crop, found.preprocess.interpolation) == (224 / 256, "bilinear")
    state = torch.load(path, weights_only=True)
    assert torch.equal(found.model.head.bias, state["heads.head.bias"])
    path.unlink()  # it is in torch.hub's folder now
    assert vt.load("torchvision/vit_b_16.IMAGENET1K_V1", num_classes=0).classes == ()


def test_torchvision_s_other_weights_are_prepared_in_their_own_way():
    how = {weights.name: weights.transforms() for weights in ViT_B_16_Weights}
    found = {name: torchvision_models.preprocessing(transforms) for name, transforms in how.items()}
    assert found["IMAGENET1K_SWAG_E2E_V1"].image_size == (384, 384)
    assert {name: pixels.crop for name, pixels in found.items()}["IMAGENET1K_SWAG_LINEAR_V1"] == 1.0


def test_a_download_with_another_hash(published, refuses, tmp_path):
    path = published(right=False)
    with refuses(ValueError, path.name, "hash", "downloaded again"):
        vt.load("torchvision/vit_b_16")
    shutil.rmtree(tmp_path / "torch", ignore_errors=True)


def test_a_damaged_file_in_torch_hub_s_folder_says_what_to_do(published, refuses, tmp_path):
    path = published()
    place = tmp_path / "torch" / "hub" / "checkpoints"
    place.mkdir(parents=True)
    (place / path.name).write_bytes(b"nothing")
    with refuses(ValueError, "is damaged", f"remove {place / path.name}"):
        vt.load("torchvision/vit_b_16")
