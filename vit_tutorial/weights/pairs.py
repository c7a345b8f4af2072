"""Lesson 17: a model of pictures and texts from its files: both towers of CLIP and SigLIP, and how they are compared.

>>> import vit_tutorial as vt
>>> pair = vt.load_pair("openai/clip-vit-base-patch32")  # doctest: +SKIP
>>> pair.probabilities(pair.preprocess(picture), ["a cat", "a dog"])  # doctest: +SKIP
tensor([[0.9927, 0.0073]])
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.variants.text import TextConfig, TextTower
from vit_tutorial.vit import ViT
from vit_tutorial.weights import configs, hf_configs, hub, names
from vit_tutorial.weights.fields import Given
from vit_tutorial.weights.keeping import shipped
from vit_tutorial.weights.loading import from_repository
from vit_tutorial.weights.messages import refusing, short, some, warn
from vit_tutorial.weights.model import assemble, check_state, head_width
from vit_tutorial.weights.names import State, Table
from vit_tutorial.weights.reading import check_numbers
from vit_tutorial.weights.sources import check_preprocess

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
TABLES: tuple[Table, ...] = (
    names.HF_CLIP_TEXT, names.HF_SIGLIP_TEXT, names.OPENAI_TEXT, names.OPEN_CLIP_TEXT, names.OPEN_CLIP_SIGLIP_TEXT,
)  # fmt: skip
CLEAN: dict[str, Callable[[str], str]] = {  # what open_clip does to a text before the tokenizer
    "": lambda text: text,
    "whitespace": lambda text: " ".join(text.split()),
    "lower": lambda text: " ".join(text.lower().split()),
    "canonicalize": lambda text: " ".join(
        text.replace("_", " ").translate(str.maketrans("", "", string.punctuation)).lower().split()
    ),
}


@dataclass(frozen=True)
class Pair:
    """What :func:`load_pair` returns: two towers into one space, and how a picture is compared with a text."""

    image: ViT  # (B, C, H, W) -> (B, E), in evaluation mode, on the CPU
    text: TextTower  # (K, T) -> (K, E), likewise
    preprocess: Preprocessing  # pictures -> what the image tower takes
    tokenize: Callable[[Sequence[str]], Tensor]  # texts -> (K, T), what the text tower takes
    scale: float  # the cosine of two embeddings times this is a logit
    bias: float | None  # and added to it; None, where texts compete for a picture in a softmax
    assumed: dict[str, Any] = field(default_factory=dict)  # what the files didn't tell

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Texts as unit vectors, (K, E)."""
        return normalize(self.text(self.tokenize(texts)), dim=-1)

    def logits(self, images: Tensor, texts: Sequence[str] | Tensor) -> Tensor:
        """How well each text fits each image: images (B, C, H, W), and K texts or what :meth:`embed` makes of them.

        Returns:
            (B, K).
        """
        embedded = texts if isinstance(texts, Tensor) else self.embed(texts)
        seen = normalize(self.image(images), dim=-1)  # (B, E)
        return self.scale * seen @ embedded.mT.to(seen) + (self.bias or 0.0)  # (B, K)

    @torch.inference_mode()
    def probabilities(self, images: Tensor, texts: Sequence[str] | Tensor) -> Tensor:
        """Of each text for each image, (B, K): they sum to 1 by CLIP's softmax; SigLIP's sigmoid judges each alone."""
        logits = self.logits(images, texts)  # (B, K)
        return logits.softmax(dim=-1) if self.bias is None else logits.sigmoid()


def load_pair(
    name: str | os.PathLike[str], *, revision: str | None = None, token: str | bool | None = None
) -> Pair:  # fmt: skip
    """Both towers of CLIP, MetaCLIP 2 or SigLIP, the tokenizer, and the scale and bias of their logits.

    Args:
        name: a folder as transformers' ``save_pretrained`` wrote it or as open_clip's repositories are, with its
            tokenizer; or a repository on the Hugging Face hub, "openai/clip-vit-base-patch32".
        revision: of a repository: a branch, a tag or a commit.
        token: for a repository that isn't public.

    Raises:
        ValueError: no such pair, or one beyond :class:`.TextConfig` and the configs of the image tower: what and why.
        OSError: a file isn't there and can't be downloaded.
        ImportError: transformers isn't installed, which reads tokenizers.
    """
    text = re.sub(r"^(hf[-_]hub:|hf/)", "", os.fsdecode(name))
    path = Path(text)
    if text in shipped():
        raise ValueError(f"{text} has no text tower: take one that has, such as openai/clip-vit-base-patch32")
    if not path.is_dir() and not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text):
        raise ValueError(f"{short(text)} is neither a folder nor OWNER/NAME on the Hugging Face hub")
    with refusing():
        get = hub.folder(path) if path.is_dir() else hub.repository(text, revision, token)
        files = hub.files_of(get, text)
        found = from_repository(files, text, Given())
    with refusing(text):
        check_preprocess(found.preprocess, found.config)
        of_open_clip = "model_cfg" in files.config
        config, clean = configs.open_clip_text(files.config) if of_open_clip else hf_configs.text_tower(files.config)
        if found.assumed.pop("left_out", None) != "the text tower":  # as the image tower's reader calls it
            raise ValueError("it has more than an image tower and a text tower, or less")
        width = found.config.num_classes or head_width(found.config)
        if width != config.out_dim:
            raise ValueError(f"its image tower makes {width} numbers of a picture, its text tower {config.out_dim}")
        scale, bias = (_number_of(files.state, name) for name in ("logit_scale", "logit_bias"))
        if scale is None:
            raise ValueError("it has no logit_scale, without which no cosine becomes a logit")
        tower = _text_tower(config, files.state)
        tokenize = _tokenizer(get, config, clean)
    warn(repr(text), found.assumed)
    image = assemble(found.config, found.state_dict, checked=True)
    return Pair(image, tower, found.preprocess, tokenize, float(torch.tensor(scale).exp()), bias, found.assumed)


def _text_tower(config: TextConfig, tensors: State) -> TextTower:
    """The text tower, float32, in evaluation mode; what is left of the tensors has been read as the image tower's."""
    read = names.read(TABLES, tensors)
    if read.missing:
        raise ValueError(f"its text tower isn't whole: {some(read.missing)} is missing")
    state = read.ours
    check_numbers(state)
    check_state(config, state, TextTower)
    with torch.device("meta"):
        tower = TextTower(config)
    tower.load_state_dict({name: tensor.detach().float() for name, tensor in state.items()}, assign=True)
    return tower.eval()


def _number_of(state: State, name: str) -> float | None:
    """A tensor of one number; None, if there is none of the name."""
    tensor = state.get(name)
    if tensor is None:
        return None
    if tensor.numel() != 1 or not tensor.isfinite().all():
        raise ValueError(f"{name} {tuple(tensor.shape)} must be one finite number")
    return float(tensor)


def _tokenizer(get: hub.Getter, config: TextConfig, clean: str) -> Callable[[Sequence[str]], Tensor]:
    """Texts -> numbers of tokens (K, context), by the checkpoint's own tokenizer, padded; none is cut short."""
    with needed():
        from transformers import AutoTokenizer

    there = [found for file in TOKENIZER if (found := hub.perhaps(get, file)) is not None]
    if not there:
        raise ValueError(f"no tokenizer lies beside its weights: {', '.join(TOKENIZER[:2])} of the same repository")
    try:
        tokenizer = AutoTokenizer.from_pretrained(there[0].parent, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of whatever kind: of a stranger's files
        raise ValueError(f"transformers can't read its tokenizer ({' '.join(str(error).split())[:300]})") from None

    def tokenize(texts: Sequence[str]) -> Tensor:
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"a list of texts is needed, got {short(texts)}")
        cleaned = [CLEAN[clean](text) for text in texts]
        rows = tokenizer(cleaned, padding="max_length", max_length=config.context, truncation=False)["input_ids"]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > config.context:
                raise ValueError(f"{short(text)} has {len(row)} tokens, and the text tower takes {config.context}")
            if config.end_token not in (None, *row) or not 0 <= min(row) <= max(row) < config.vocab_size:
                raise ValueError(f"its tokenizer and its text tower don't belong together: {short(text)} is {row[:9]}…")
        return torch.tensor(rows)  # (K, T)

    return tokenize
