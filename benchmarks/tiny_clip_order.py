"""Lesson 17: does a tiny CLIP notice exchanged words, once its towers know the colours?

    python benchmarks/tiny_clip_order.py    tiny_clip_order.csv; three CPU minutes

A CLIP learns single scenes for 300 steps, as in tiny_clip.py. Two scenes then stand side by side, with a caption such
as "a white heart left of a pink star". A small MLP reads the CLIP's vectors of both; it and a new captions' tower learn
by CLIP's loss. A row says how often (%) the own caption is nearer than one with sides or colours exchanged, or with a
colour of neither scene. "no positions": the captions' tower has none. "added": the MLP reads the sum of both vectors.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import tiny_clip as single
import torch
from result_table import ResultTable
from torch import Tensor, nn

from vit_tutorial.variants import words

COLUMNS = ["seed", "way", "steps", "sides", "colours", "another colour"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
C = single.C
ONE = single.captions(single.PROMPTS[0])
VOCABULARY = words.Vocabulary([f"{ONE[0]} left of {scene}" for scene in ONE])
TOKENS = torch.stack([VOCABULARY([f"{left} left of {right}" for right in ONE]) for left in ONE])  # (40, 40, W)


@torch.no_grad()
def embedded(model: words.TwoTowers, images: Tensor) -> Tensor:
    return torch.cat([model.eval().embed_images(few) for few in images.split(500)])  # (n, E)


def changed(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    """Captions of two scenes: their own, sides exchanged, colours exchanged, another colour on the left."""
    third = (left + 1) % C
    third = torch.where(third == right % C, (left + 2) % C, third)
    exchanged = TOKENS[left // C * C + right % C, right // C * C + left % C]
    return TOKENS[left, right], TOKENS[right, left], exchanged, TOKENS[left // C * C + third, right]


def order(seed: int, way: str, steps: int, seen: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> list[float]:
    """Train on scenes' vectors and numbers; how often the own caption is nearer than each changed one."""

    def pairs(z: Tensor) -> Tensor:
        right = z.roll(1, 0)
        return torch.cat([z + right] * 2 if way == "added" else [z, right], dim=1)  # (B, 2 E)

    def loss(z: Tensor, numbers: Tensor) -> Tensor:
        return words.contrastive_loss(model(pairs(z), TOKENS[numbers, numbers.roll(1)]))

    torch.manual_seed(seed)
    mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    model = words.TwoTowers(mlp, words.CaptionTower(len(VOCABULARY), VOCABULARY.length))
    if way == "no positions":
        model.captions.position.requires_grad_(False).zero_()
    for _ in single.training(model, loss, *seen, steps, seed):
        pass
    left, right = test[1], test[1].roll(1)
    differ = (left // C != right // C) & (left % C != right % C)
    with torch.inference_mode():
        vectors = model.eval().embed_images(pairs(test[0]))
        own, *others = ((vectors * model.embed_captions(text)).sum(1)[differ] for text in changed(left, right))
    return [50 + 50 * (own - other).round(decimals=5).sign().mean().item() for other in others]  # a tie counts half


def main() -> None:
    torch.set_num_threads(1)
    for seed in range(3):
        images, numbers, test_images, test_numbers = single.scenes_of(seed)
        torch.manual_seed(seed)
        clip = single.model_of(single.CAPTIONS)
        for _ in single.training(clip, single.loss_of(single.CAPTIONS, seed, clip), images, numbers, 300, seed):
            pass
        seen, test = (embedded(clip, images), numbers), (embedded(clip, test_images), test_numbers)
        for way, steps in itertools.product(("as it is", "no positions", "added"), (150, 1050)):
            found = order(seed, way, steps, seen, test)
            RESULTS.add([seed, way, steps, *(f"{share:.1f}" for share in found)])


if __name__ == "__main__":
    main()
