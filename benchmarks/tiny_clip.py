"""Lesson 17: a tiny CLIP and two plain heads as its rival, on combinations of colour and figure that training left out.

    python benchmarks/tiny_clip.py run       200 steps with five seeds, 1,400 with three; 0.12 CPU seconds each
    python benchmarks/tiny_clip.py report    the table

A caption names colour and figure of a scene's target, in one of four prompts. Of the 40 combinations each seed leaves
out eight, one per figure, and draws scenes, weights and order anew. All ways start with the tower of
``vt.load("shapes")``, and all weights learn:

- "captions": CLIP's loss;
- "two heads": a linear head for the figure and one for the colour, and one softmax over the shown combinations alone.
  As in CLIP's loss, no left-out combination is ever a wrong answer;
- "two heads, a loss each": a cross-entropy for the figure and one for the colour.

A row holds the accuracy on test scenes at one moment of a run, in tiny_clip.csv; those of 200 steps are runs of their
own, whose rate fell to zero there. The rate, 0.002, was the best of 0.001, 0.002 and 0.004 for each way (scenes held
out, another seed, 200 steps). One thread.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from result_table import ResultTable
from seeds import mean_with_interval
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data import scenes
from vit_tutorial.variants import words

MEASURED = ["shown_figure", "shown_colour", "shown", "new_figure", "new_colour", "new"]
COLUMNS = ["way", "steps", "seed", "step", *MEASURED, "cpu_seconds"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
PROMPTS = (
    "a {colour} {figure}",
    "a {figure} in {colour}",
    "the {figure} is {colour}",
    "a picture of a {colour} {figure}",
)
CAPTIONS, HEADS, APART = WAYS = ("captions", "two heads", "two heads, a loss each")
SEEDS = {200: range(5), 1_400: range(3)}  # by the length of a run
MOMENTS = {200: (200,), 1_400: (50, 100, 200, 400, 700, 1_000, 1_400)}
BATCH, WARMUP, RATE = 64, 20, 2e-3
C = len(scenes.COLOURS)
NAMES = [(colour, figure) for figure in scenes.TARGETS for colour in scenes.COLOURS]  # 40 combinations, by number
Loss = Callable[[Tensor, Tensor], Tensor]  # pictures and their numbers, a batch


def captions(prompt: str) -> list[str]:
    """All 40 in one prompt."""
    return [prompt.format(colour=colour, figure=figure) for colour, figure in NAMES]


VOCABULARY = words.Vocabulary([caption for prompt in PROMPTS for caption in captions(prompt)])
TOKENS = torch.stack([VOCABULARY(captions(prompt)) for prompt in PROMPTS])  # (prompts, 40, W)


def left_out(seed: int) -> Tensor:
    """Eight combinations, one per figure; every colour is in one or two of them."""
    random = np.random.RandomState(seed)
    colours = random.permutation(np.arange(len(scenes.TARGETS)) % C)
    return torch.from_numpy(np.arange(len(scenes.TARGETS)) * C + colours)


def scenes_of(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scenes of the shown combinations and their numbers, and test scenes of all; as the tower reads them."""
    prepare, parts = vt.load("shapes")[2], []
    for split, n in ((0, 7_000), (2, 3_000)):
        images, figures, colours = scenes.coloured((1700 + seed, split), n)
        numbers = torch.from_numpy(figures * C + colours)
        kept = ~torch.isin(numbers, left_out(seed)) if split == 0 else torch.ones(len(numbers), dtype=torch.bool)
        parts += [prepare(torch.from_numpy(images[kept.numpy()]).float() / 255), numbers[kept]]
    return parts[0], parts[1], parts[2], parts[3]


def tower() -> vt.ViT:
    """The tower of the pictures, without a head: images -> (B, 64)."""
    model = vt.load("shapes")[0]
    bare = vt.ViT(vt.ViTConfig(**{**vars(model.config), "num_classes": 0}))
    bare.load_state_dict({name: x for name, x in model.state_dict().items() if not name.startswith("head")})
    return bare


class Heads(nn.Module):
    """The rival: a tower, and a linear head each for figure and colour."""

    def __init__(self, images: nn.Module) -> None:
        super().__init__()
        self.images = images
        self.figure = nn.Linear(64, len(scenes.TARGETS))
        self.colour = nn.Linear(64, C)

    def forward(self, images: Tensor) -> Tensor:
        """A score for each combination: (B, 40)."""
        z = self.images(images)
        return (self.figure(z)[:, :, None] + self.colour(z)[:, None]).flatten(1)


def model_of(way: str) -> nn.Module:
    if way == CAPTIONS:
        return words.TwoTowers(tower(), words.CaptionTower(len(VOCABULARY), VOCABULARY.length))
    return Heads(tower())


def loss_of(way: str, seed: int, model: nn.Module) -> Loss:
    """The loss of a batch: pictures and the numbers of their combinations."""
    if isinstance(model, words.TwoTowers):
        return lambda images, numbers: words.contrastive_loss(
            model(images, TOKENS[torch.randint(len(PROMPTS), numbers.shape), numbers])
        )
    if way == HEADS:
        return lambda images, numbers: F.cross_entropy(
            model(images).index_fill(1, left_out(seed), float("-inf")), numbers
        )

    def two(images: Tensor, numbers: Tensor) -> Tensor:
        z = model.images(images)
        return F.cross_entropy(model.figure(z), numbers // C) + F.cross_entropy(model.colour(z), numbers % C)

    return two


def training(model: nn.Module, loss: Loss, images: Tensor, numbers: Tensor, steps: int, seed: int) -> Iterator[int]:
    """Train, and give the number of each step when it is done."""
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    generator, n = torch.Generator().manual_seed(seed), len(numbers)
    order = torch.cat([torch.randperm(n, generator=generator) for _ in range(-(-steps * BATCH // n))])
    for step, rows in zip(range(steps), order.split(BATCH), strict=False):
        model.train()
        train.set_rate(optimizer, RATE * train.schedule(step, steps=steps, warmup=WARMUP))
        value = loss(images[rows], numbers[rows])
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield step + 1


@torch.inference_mode()
def combinations(model: nn.Module, images: Tensor) -> Tensor:
    """The combination that the model names, (B,): for captions the nearest, the vectors of the prompts averaged."""
    model.eval()
    if isinstance(model, Heads):
        return torch.cat([model(few) for few in images.split(500)]).argmax(dim=1)
    assert isinstance(model, words.TwoTowers)
    vectors = words.average_prompts(torch.stack([model.embed_captions(tokens) for tokens in TOKENS]))  # (40, E)
    return torch.cat([model.embed_images(few) @ vectors.T for few in images.split(500)]).argmax(dim=1)


def right(said: Tensor, numbers: Tensor) -> list[float]:
    """Shares of right figures, colours, and both."""
    figure, colour = said // C == numbers // C, said % C == numbers % C
    return [x.float().mean().item() for x in (figure, colour, figure & colour)]


def run(way: str, steps: int, seed: int) -> None:
    """The rows of a run, unless they are there."""
    if RESULTS.rows(way=way, steps=steps, seed=seed, step=steps):
        return
    images, numbers, test_images, test_numbers = scenes_of(seed)
    new, begin = torch.isin(test_numbers, left_out(seed)), time.process_time()
    torch.manual_seed(seed)
    model = model_of(way)
    for step in training(model, loss_of(way, seed, model), images, numbers, steps, seed):
        if step in MOMENTS[steps]:
            said = combinations(model, test_images)
            shares = [*right(said[~new], test_numbers[~new]), *right(said[new], test_numbers[new])]
            spent = time.process_time() - begin
            RESULTS.add([way, steps, seed, step, *(f"{x:.4f}" for x in shares), f"{spent:.0f}"])


def report() -> None:
    """Accuracies on test scenes, by way and moment."""
    print("| way | steps | step | seeds | shown | new | new, minus captions |\n|---" + "|---" * 6 + "|")
    for way, (steps, step) in itertools.product(WAYS, [(n, moment) for n, some in MOMENTS.items() for moment in some]):
        by_way = {name: {row["seed"]: row for row in RESULTS.rows(way=name, steps=steps, step=step)} for name in WAYS}
        rows = by_way[way]
        shown, new = ([100 * float(row[name]) for row in rows.values()] for name in ("shown", "new"))
        both = rows.keys() & by_way[CAPTIONS].keys()
        less = [100 * (float(rows[seed]["new"]) - float(by_way[CAPTIONS][seed]["new"])) for seed in both]
        cells = [mean_with_interval(values) if values else "–" for values in (shown, new, less)]
        print(f"| {way} | {steps} | {step} | {len(rows)} | {' | '.join(cells)} |")


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["report"]:
        report()
    elif sys.argv[1:] == ["run"]:
        for steps, seeds in SEEDS.items():
            for seed, way in itertools.product(seeds, WAYS):
                run(way, steps, seed)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
