"""Lesson 09: a published model's files, downloaded once by huggingface_hub and torch.hub, which keep them."""

from __future__ import annotations

import pickle
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import torch

from vit_tutorial.data.extras import needed

PATIENCE = 4.0  # seconds without any answer, after which there is no network
ABOUT = ["config.json", "preprocessor_config.json", "processor_config.json"]
TOKENIZER = ["*token*.json", "vocab.json", "merges.txt", "*.model"]
SAFE, OLDER = ["model*.safetensors", "model.safetensors.index.json"], ["pytorch_model*.bin", "*.bin.index.json"]


def repository(name: str, revision: str | None, token: str | bool | None) -> Path:
    """The folder of a repository on the Hugging Face hub: its config, its weights, its tokenizer.

    Raises:
        OSError: it isn't on disk and can't be downloaded: what to do.
    """
    folder = _snapshot(name, revision, token, ABOUT + TOKENIZER + SAFE)
    if not list(folder.glob("model*.safetensors")):
        folder = _snapshot(name, revision, token, ABOUT + TOKENIZER + OLDER)
    return folder


def _snapshot(name: str, revision: str | None, token: str | bool | None, files: list[str]) -> Path:
    with needed():
        from huggingface_hub import errors, snapshot_download

    refused = (errors.RepositoryNotFoundError, errors.GatedRepoError, errors.RevisionNotFoundError)
    offline = unreachable()
    only = bool(offline)
    try:
        got = snapshot_download(name, revision=revision, token=token, allow_patterns=files, local_files_only=only)
    except refused as error:
        raise OSError(
            f"the hub gives no {name}{f' at revision {revision}' if revision else ''} ({type(error).__name__}): check "
            "the name and revision=; a private or gated one needs token="
        ) from None
    except Exception as error:  # those of its HTTP library, which isn't always the same one, come through
        why = offline or " ".join(str(error).split())[:200]
        raise OSError(
            f"{name} is not on disk and can't be downloaded ({why}): with a network, call again; without, put the "
            f"files of https://huggingface.co/{name} into a folder, and load that"
        ) from None
    return Path(got)


def torchvision_state(weights: Any) -> dict[str, torch.Tensor]:
    """The tensors of one of torchvision's weights, checked by the hash in their name.

    Raises:
        OSError: they aren't on disk and can't be downloaded: which file to put where.
    """
    name = weights.url.rpartition("/")[2]
    place = Path(torch.hub.get_dir(), "checkpoints")
    try:
        if not (place / name).exists() and not answers(weights.url):
            raise OSError(f"{urlsplit(weights.url).hostname} doesn't answer within {PATIENCE:g} s")
        return weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (OSError, HTTPException) as error:
        raise OSError(
            f"{name} is not on disk and can't be downloaded ({' '.join(str(error).split())[:200]}): with a network, "
            f"call again; without, put {name} from {weights.url} into {place} first"
        ) from None
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{name} is damaged ({error!s:.80}): remove {place / name}, and it is downloaded again"
        ) from error


def unreachable() -> str:
    """Why the Hugging Face hub can't be asked, found within seconds; "" if it can."""
    with needed():
        from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    silent = f"{urlsplit(constants.ENDPOINT).hostname} doesn't answer within {PATIENCE:g} s"
    return "" if answers(constants.ENDPOINT) else silent


def answers(url: str) -> bool:
    """Whether anything answers at this address, known within seconds; huggingface_hub would try for minutes."""
    heard = list[bool]()

    def ask() -> None:
        try:
            urlopen(Request(url, method="HEAD"), timeout=PATIENCE).close()
        except (OSError, HTTPException) as error:  # no such page, no trusted certificate: an answer all the same
            socks = "unknown url type" in str(error)  # a proxy that urllib doesn't know, and huggingface_hub may
            if not isinstance(error, HTTPError) and not isinstance(getattr(error, "reason", 0), SSLError) and not socks:
                return
        heard.append(True)

    thread = Thread(target=ask, daemon=True)  # looking up a name has no limit of its own
    thread.start()
    thread.join(PATIENCE)
    return bool(heard)
