"""Lesson 17: a model of pictures and texts: both towers of CLIP and SigLIP, and how they are compared.

>>> import vit_tutorial as vt
>>> pair = vt.load_pair("openai/clip-vit-base-patch32")  # doctest: +SKIP
>>> pair.probabilities(pair.preprocess(picture), ["a cat", "a dog"])  # doctest: +SKIP
tensor([[0.9927, 0.0073]])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vit_tutorial.data import Preprocessing
from vit_tutorial.variants.text import TextConfig, TextTower
from vit_tutorial.vit import ViT
from vit_tutorial.weights import convert, files, loading, proof, tables, transformers_models
from vit_tutorial.weights.convert import Publication, PublishedModel, tensors_of
from vit_tutorial.weights.our_models import with_tensors


@dataclass(frozen=True)
class Pair:
    """What :func:`load_pair` returns: two towers into one space, and how a picture is compared with a text."""

    image: ViT  # (B, C, H, W) -> (B, E), in evaluation mode, on the CPU
    text: TextTower  # (K, T) -> (K, E), likewise
    preprocess: Preprocessing  # pictures -> what the image tower takes
    tokenize: Callable[[Sequence[str]], Tensor]  # texts -> (K, T), what the text tower takes
    scale: float  # the cosine of two embeddings times this is a logit
    bias: float | None  # and added to it; None, where texts compete for a picture in a softmax

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
        vectors = normalize(self.image(images), dim=-1)  # (B, E)
        return self.scale * vectors @ embedded.mT.to(vectors) + (self.bias or 0.0)  # (B, K)

    @torch.inference_mode()
    def probabilities(self, images: Tensor, texts: Sequence[str] | Tensor) -> Tensor:
        """Of each text for each image, (B, K): CLIP's softmax, in which they sum to 1, or SigLIP's sigmoid."""
        logits = self.logits(images, texts)  # (B, K)
        return logits.softmax(dim=-1) if self.bias is None else logits.sigmoid()


def load_pair(name: str | os.PathLike[str], *, revision: str | None = None, token: str | bool | None = None) -> Pair:
    """Both towers of transformers' CLIP or SigLIP, the tokenizer, and the scale and bias of their logits.

    Args:
        name: a folder as transformers' ``save_pretrained`` wrote it, with its tokenizer and processor; or a repository
            on the Hugging Face hub, "openai/clip-vit-base-patch32".
        revision: of a repository: a branch, a tag or a commit.
        token: for a repository that isn't public.

    Raises:
        ValueError: no such pair, or one that isn't equal to ours: where it first differs.
        OSError: a file isn't there and can't be downloaded.
        ImportError: transformers isn't installed.
    """
    source = loading.parse_name(name)
    loading.check_hub_options(source.kind == "hub", name, revision, token)
    if source.kind not in ("folder", "hub"):
        raise ValueError(f"{source.name} has no text tower: take one that has, such as openai/clip-vit-base-patch32")
    folder = source.path if source.kind == "folder" else files.download(source.name, revision, token)
    with loading.errors_named(source.name):
        original = transformers_models.build(folder)
        if not hasattr(original, "text_model") or not hasattr(original, "logit_scale"):
            raise ValueError(f"transformers' {type(original).__name__} isn't a pair of towers with a scale")
        publication = Publication(transformers_models.describe(original), transformers_models.preprocessing(folder), ())
        image, _, preprocess = loading.convert_and_prove(publication)
        text = text_tower(original)
        bias = original.logit_bias.item() if hasattr(original, "logit_bias") else None
        return Pair(image, text, preprocess, tokenizer(folder, text.config), original.logit_scale.exp().item(), bias)


def text_tower(original: Any) -> TextTower:
    """Our text tower with the tensors of a CLIP or SigLIP of transformers', compared with its own."""
    tower = original.text_model
    published = PublishedModel(
        original=original,
        tower=tower,
        table=transformers_models.CLIP_TEXT,
        tensors=transformers_models.with_clip_views(tensors_of(original, tower)),
        forward=lambda tokens: original.get_text_features(tokens).pooler_output,
        facts={},
    )
    ours = tables.to_ours(published.table, published.tensors)
    causal, end = not hasattr(tower, "head"), tower.config.eos_token_id  # SigLIP's reads the last token, which sees all
    config = TextConfig(
        vocab_size=len(ours["tokens.weight"]), context=ours["position"].shape[1], dim=ours["position"].shape[2],
        depth=len(published.blocks), mlp_dim=len(ours["blocks.0.mlp.fc1.weight"]), out_dim=len(ours["head.weight"]),
        causal=causal, head_bias="head.bias" in ours, **convert.block_facts(published),
        end_token=end if causal and end != 2 else None,  # 2: of CLIP's older configs, whose tokenizer has another
    )  # fmt: skip
    text = with_tensors(lambda: TextTower(config), ours)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (2, config.context), generator=generator)  # (B, T)
    if config.end_token is not None:
        tokens[:, config.context // 2] = config.end_token
    proof.prove(text, published, tokens)
    return text


def tokenizer(folder: Path, config: TextConfig) -> Callable[[Sequence[str]], Tensor]:
    """Texts -> numbers of tokens (K, context), by the checkpoint's own tokenizer, padded; none is cut short."""
    from transformers import AutoTokenizer

    if not any(list(folder.glob(name)) for name in files.TOKENIZER):
        raise ValueError("there is no tokenizer with its weights: tokenizer.json of the same repository")
    try:
        published = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of whatever kind: of a stranger's files
        raise ValueError(f"transformers can't read its tokenizer ({' '.join(str(error).split())[:300]})") from error

    def tokenize(texts: Sequence[str]) -> Tensor:
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"a list of texts is needed, got {texts!r:.100}")
        rows = published(list(texts), padding="max_length", max_length=config.context, truncation=False)["input_ids"]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > config.context:
                raise ValueError(f"{text!r:.100} has {len(row)} tokens, and the text tower takes {config.context}")
            if config.end_token not in (None, *row) or not 0 <= min(row) <= max(row) < config.vocab_size:
                raise ValueError(f"its tokenizer and its text tower don't belong together: {text!r:.100} is {row[:9]}…")
        return torch.tensor(rows)  # (K, T)

    return tokenize
