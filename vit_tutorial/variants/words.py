"""Lesson 17: pictures and words in one space (CLIP, arXiv 2103.00020; LiT, 2111.07991; SigLIP, 2303.15343).

Two towers, one for pictures and one for captions, give unit vectors of the same width. They are trained so that the dot
product of a picture and its own caption is larger than those of all other pairs of the batch. The tower of the pictures
is any model from pictures to vectors (B, D); the tower of the captions is a ViT with words in place of patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.encoder import EncoderBlock

LARGEST_SCALE = 100.0  # section 2.5: larger ones made the training unstable
PAD = 0  # the token that fills a short caption up


class Vocabulary:
    """Whole words, each with a number from 1: the words of some captions, in alphabetical order.

    Args:
        captions: whose words are known.

    Raises:
        ValueError: no word at all.
        TypeError: one text in place of several.
    """

    def __init__(self, captions: Sequence[str]) -> None:
        if isinstance(captions, str):
            raise TypeError(f"captions must be a list of texts, got {captions!r}")
        self.words = sorted({word for caption in captions for word in caption.split()})
        if not self.words:
            raise ValueError("a vocabulary needs at least one word, got captions without any")
        self.length = max(len(caption.split()) for caption in captions)
        self._numbers = {word: number for number, word in enumerate(self.words, start=1)}

    def __len__(self) -> int:
        return len(self.words) + 1  # with the padding

    def __call__(self, captions: Sequence[str]) -> Tensor:
        """Captions as numbers of words, filled up with 0: (B, W), W the largest number of words of a caption.

        Raises:
            ValueError: a word that isn't known, or a caption of more than W words.
            TypeError: one text in place of several.
        """
        if isinstance(captions, str):
            raise TypeError(f"captions must be a list of texts, got {captions!r}")
        rows = torch.full((len(captions), self.length), PAD)  # (B, W)
        for row, caption in zip(rows, captions, strict=True):
            words = caption.split()
            if unknown := [word for word in words if word not in self._numbers]:
                raise ValueError(f"{unknown[0]!r} is not in the vocabulary: use {', '.join(self.words)}")
            if len(words) > self.length:
                raise ValueError(f"{caption!r} has {len(words)} words: the longest that fits has {self.length}")
            row[: len(words)] = torch.tensor([self._numbers[word] for word in words])
        return rows


class CaptionTower(nn.Module):
    """Numbers of words (B, W) -> vectors (B, D): a class token, positions and one encoder block, as in a ViT.

    Padding is a word like others, as in SigLIP: nothing hides it from the attention.

    Args:
        words: how many words there are, with the padding.
        length: W.
        dim: D.
        num_heads: h, a divisor of D.
        mlp_dim: M.
    """

    def __init__(self, words: int, length: int, dim: int = 64, num_heads: int = 4, mlp_dim: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(words, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.empty(1, 1 + length, dim))
        self.block = EncoderBlock(dim, num_heads, mlp_dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        tokens = self.words(words)  # (B, W, D)
        tokens = torch.cat([self.cls_token.expand(words.shape[0], -1, -1), tokens], dim=1)  # (B, 1 + W, D)
        z = self.block(tokens + self.position)  # (B, 1 + W, D)
        return self.norm(z)[:, 0]  # (B, D)


class TwoTowers(nn.Module):
    """A tower for pictures, one for captions, and a projection behind each: unit vectors of the same width.

    Args:
        images: pictures (B, C, H, W) -> vectors (B, D): a ViT with ``num_classes=0``, say. ``nn.Identity()`` if the
            vectors are computed once, as a locked tower allows.
        captions: numbers of words (B, W) -> vectors (B, D').
        image_dim: D.
        caption_dim: D'.
        dim: E, the width of the common space.

    ``log_scale`` is the logarithm of the factor on the cosines, which is 1 / 0.07 at the start.
    """

    def __init__(
        self, images: nn.Module, captions: nn.Module, *, image_dim: int = 64, caption_dim: int = 64, dim: int = 32
    ) -> None:
        super().__init__()
        self.images, self.captions = images, captions
        self.image_projection = nn.Linear(image_dim, dim, bias=False)
        self.caption_projection = nn.Linear(caption_dim, dim, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def embed_images(self, images: Tensor) -> Tensor:
        """Unit vectors: (B, C, H, W) -> (B, E)."""
        return F.normalize(self.image_projection(self.images(images)), dim=-1)

    def embed_captions(self, words: Tensor) -> Tensor:
        """Unit vectors: (B, W) -> (B, E)."""
        return F.normalize(self.caption_projection(self.captions(words)), dim=-1)

    def scale(self) -> Tensor:
        """The factor on the cosines, at most 100: ()."""
        return self.log_scale.exp().clamp(max=LARGEST_SCALE)

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        """Each picture's cosine with each caption, times the scale: (B, C, H, W), (B', W) -> (B, B')."""
        return self.scale() * self.embed_images(images) @ self.embed_captions(words).T


def contrastive_loss(logits: Tensor) -> Tensor:
    """CLIP's loss: which caption belongs to a picture, and which picture to a caption, half each.

    Args:
        logits: (B, B), pictures down and captions across; the pairs stand on the diagonal.

    Returns:
        The mean of the cross-entropies of rows and of columns, ().

    Raises:
        ValueError: logits that aren't square.
    """
    _check_square(logits)
    own = torch.arange(len(logits), device=logits.device)  # (B,): picture i belongs to caption i
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def _check_square(logits: Tensor) -> None:
    if logits.ndim != 2 or logits.shape[0] != logits.shape[1]:
        raise ValueError(f"each picture has one caption: the logits must be (B, B), got {tuple(logits.shape)}")


def loss_floor(meanings: Tensor) -> float:
    """The least that :func:`contrastive_loss` can be where some captions of a batch mean the same.

    Nothing in a picture says which of m such captions was its own, so each gets 1 / m: ln m, averaged over the batch.

    Args:
        meanings: (B,), a number for each caption; equal numbers mean the same.
    """
    same = (meanings[:, None] == meanings).sum(dim=1)  # (B,), how many mean what this one means
    return same.double().log().mean().item()


def sigmoid_loss(logits: Tensor, bias: Tensor) -> Tensor:
    """SigLIP's loss (Algorithm 1): every pair is a question of its own, "do these two belong together?".

    Args:
        logits: (B, B), pictures down and captions across; the pairs stand on the diagonal.
        bias: (), added to all of them; -10 at the start.

    Returns:
        Minus the log probability of the right answers, summed over captions, averaged over pictures, ().

    Raises:
        ValueError: logits that aren't square.
    """
    _check_square(logits)
    together = 2 * torch.eye(len(logits), device=logits.device) - 1  # (B, B): 1 for a pair, -1 elsewhere
    return -F.logsigmoid(together * (logits + bias)).sum(dim=1).mean()


def average_prompts(vectors: Tensor) -> Tensor:
    """One unit vector for each name from its captions in several prompts: (prompts, K, E) -> (K, E).

    The mean of the unit vectors is shorter than 1, so it is made a unit vector again (section 3.1.4).
    """
    return F.normalize(vectors.mean(dim=0), dim=-1)  # (K, E)
