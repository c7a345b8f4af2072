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
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.text import TextConfig, TextTower
from vit_tutorial.vit import ViT
from vit_tutorial.weights import adapters, convert, download, loading, pixels, proof, tables
from vit_tutorial.weights.checkpoint import shipped


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
    text = os.fsdecode(name)
    if text in shipped():
        raise ValueError(f"{text} has no text tower: take one that has, such as openai/clip-vit-base-patch32")
    if not Path(text).is_dir() and text.count("/") != 1:
        raise ValueError(f"{text!r} is neither a folder nor OWNER/NAME on the Hugging Face hub")
    folder = Path(text) if Path(text).is_dir() else download.repository(text, revision, token)
    with loading.refusing(text):
        live = loading.transformers_model(folder)
        if not hasattr(live, "text_model") or not hasattr(live, "logit_scale"):
            raise ValueError(f"transformers' {type(live).__name__} isn't a pair of towers with a scale")
        image = adapters.from_transformers(live)
        model = convert.model_of(image)
        proof.prove(model, image)
        own = as_pair(model.config.image_size, "image_size")
        preprocess = pixels.from_transformers(loading.processor_of(folder))
        preprocess = pixels.without_left_over(preprocess, image.left_over, own)
        pixels.check_fits(preprocess, model.config)
        tower = text_tower(live)
        bias = live.logit_bias.item() if hasattr(live, "logit_bias") else None
        return Pair(model, tower, preprocess, tokenizer(folder, tower.config), live.logit_scale.exp().item(), bias)


def text_tower(live: Any) -> TextTower:
    """Our text tower with the tensors of a live CLIP or SigLIP, compared with its own."""
    tower, settings = live.text_model, live.text_model.config
    twin = adapters.twin_of(
        live,
        tables.HUGGING_FACE_TEXT,
        lambda tokens: live.get_text_features(tokens).pooler_output,
        tower=tower,
        facts={},
    )
    ours = tables.read(twin.table, twin.tensors).ours
    causal = not hasattr(tower, "head")  # SigLIP's reads the last token, which sees all
    end = settings.eos_token_id if causal and settings.eos_token_id != 2 else None  # 2: of CLIP's older configs
    config = TextConfig(
        vocab_size=len(ours["tokens.weight"]), context=ours["position"].shape[1], dim=ours["position"].shape[2],
        depth=len(twin.blocks), mlp_dim=len(ours["blocks.0.mlp.fc1.weight"]), out_dim=len(ours["head.weight"]),
        causal=causal, end_token=end, head_bias="head.bias" in ours, **twin.facts,
    )  # fmt: skip
    found = convert.assemble(config, ours, TextTower)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (2, config.context), generator=generator)  # (B, T)
    if end is not None:
        tokens[:, config.context // 2] = end
    proof.prove(found, twin, tokens)
    return found


def tokenizer(folder: Path, config: TextConfig) -> Callable[[Sequence[str]], Tensor]:
    """Texts -> numbers of tokens (K, context), by the checkpoint's own tokenizer, padded; none is cut short."""
    from transformers import AutoTokenizer

    if not any(list(folder.glob(name)) for name in download.TOKENIZER):
        raise ValueError("no tokenizer lies beside its weights: tokenizer.json of the same repository")
    try:
        theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of whatever kind: of a stranger's files
        raise ValueError(f"transformers can't read its tokenizer ({' '.join(str(error).split())[:300]})") from error

    def tokenize(texts: Sequence[str]) -> Tensor:
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"a list of texts is needed, got {texts!r:.100}")
        rows = theirs(list(texts), padding="max_length", max_length=config.context, truncation=False)["input_ids"]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > config.context:
                raise ValueError(f"{text!r:.100} has {len(row)} tokens, and the text tower takes {config.context}")
            if config.end_token not in (None, *row) or not 0 <= min(row) <= max(row) < config.vocab_size:
                raise ValueError(f"its tokenizer and its text tower don't belong together: {text!r:.100} is {row[:9]}…")
        return torch.tensor(rows)  # (K, T)

    return tokenize
