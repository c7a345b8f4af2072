"""Lesson 17: a tiny CLIP on scenes with captions: what each way says of combinations that it was never shown.

    python benchmarks/words.py run       all of it, resumable
    python benchmarks/words.py report    the tables

A caption names colour and figure of a scene's target, in one of four prompts. Of the 40 combinations each seed leaves
out eight, one per figure, and draws scenes, weights and order anew. Ways:

- "locked": the tower of ``vt.load("shapes")`` stays as it is, a projection and the captions' tower learn (LiT);
- "unlocked": it starts with that tower, and all weights learn; "scratch": random weights in its place;
- "two heads": the rival without words, a linear head for the figure and one for the colour, on the unlocked tower;
- "two heads, locked": on the locked one;
- "two heads, pairs": as "two heads", with one softmax over the shown combinations alone: as in CLIP's loss, no left-out
  combination is ever a wrong answer; "two heads, pairs, locked": on the locked tower;
- "sigmoid": unlocked, with SigLIP's loss.

Part "pairs": scenes of two targets, "a white ring left of a blue star", from the same tower, with the captions of other
pictures as negatives ("plain"), or with two more per picture ("exchanged"): its own caption with the order or the
colours exchanged.

Each way's rate is chosen on scenes of shown combinations that are held out: from RATES, and beyond them by factors of
two until the best has a worse one on both sides. A row per run goes to words.csv or, of pairs, to words_pairs.csv. One
thread.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from pathlib import Path

import numpy as np
import sheet
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train
from vit_tutorial.data import scenes
from vit_tutorial.variants import words

CSV = Path(__file__).parent / "words.csv"
KEY = ["part", "way", "seed", "rate", "steps"]
MEASURED = ["shown_figure", "shown_colour", "shown", "new_figure", "new_colour", "new"]
PROMPTED = ["averaged", "one_prompt", "strange_prompt"]  # all test scenes, by the captions they are compared with
COLUMNS = [*KEY, "held_out", *MEASURED, *PROMPTED, "loss", "floor", "scale", "cpu_seconds"]
PROMPTS = (
    "a {colour} {figure}",
    "a {figure} in {colour}",
    "the {figure} is {colour}",
    "a picture of a {colour} {figure}",
)
STRANGE = "{figure} {colour}"  # its words are known, but no caption had them so
BATCH, WARMUP = 64, 20
STEPS, STEPS_OF_PAIRS = 200, 300
RATES = (1e-3, 2e-3)  # and more by best_rate
LOCKED = ("locked", "two heads, locked", "two heads, pairs, locked")
MORE_STEPS = {**dict.fromkeys(LOCKED, 400), "scratch": 600}  # cheap ones, and one that has nothing to start with
WAYS = (*LOCKED, "unlocked", "two heads", "two heads, pairs", "scratch", "sigmoid")
PAIRS = ("plain", "exchanged")
LEFT_OF = "a {} {} left of a {} {}"
CHOICES = ("order", "colours", "another colour", "another figure")
SEEDS = 5
NAMES = [(colour, figure) for figure in scenes.TARGETS for colour in scenes.COLOURS]  # 40 combinations, by number
Data = dict[str, Tensor]


def captions(prompt: str) -> list[str]:
    """All 40 in one prompt."""
    return [prompt.format(colour=colour, figure=figure) for colour, figure in NAMES]


VOCABULARY = words.Vocabulary([caption for prompt in PROMPTS for caption in captions(prompt)])
TOKENS = torch.stack([VOCABULARY(captions(prompt)) for prompt in PROMPTS])  # (prompts, 40, W)
STRANGE_TOKENS = VOCABULARY(captions(STRANGE))[None]  # (1, 40, W)


def left_out(seed: int) -> Tensor:
    """Eight combinations, one per figure; every colour is in one or two of them."""
    random = np.random.RandomState(seed)
    colours = random.permutation(np.arange(len(scenes.TARGETS)) % len(scenes.COLOURS))
    return torch.from_numpy(np.arange(len(scenes.TARGETS)) * len(scenes.COLOURS) + colours)


@functools.lru_cache(maxsize=1)
def scenes_of(seed: int) -> Data:
    """Scenes normalised as ``vt.load("shapes")`` wants them, and their combinations, in three splits."""
    prepare, data = vt.load("shapes")[2], {}
    for split, (name, n) in enumerate({"train": 7_000, "held_out": 1_200, "test": 3_000}.items()):
        images, figures, colours = scenes.coloured((1700 + seed, split), n)
        numbers = torch.from_numpy(figures * len(scenes.COLOURS) + colours)
        if name != "test":
            kept = ~torch.isin(numbers, left_out(seed))
            images, numbers = images[kept.numpy()], numbers[kept]
        data[f"{name}_images"] = prepare(torch.from_numpy(images).float() / 255)
        data[f"{name}_numbers"] = numbers
    return data


def tower(way: str) -> vt.ViT:
    """The tower of the pictures, without a head: images -> (B, 64)."""
    model = vt.load("shapes")[0]
    config = vt.ViTConfig(**{**vars(model.config), "num_classes": 0})
    bare = vt.ViT(config)
    if way != "scratch":
        bare.load_state_dict({name: x for name, x in model.state_dict().items() if not name.startswith("head")})
    return bare


class Heads(nn.Module):
    """The rival: a tower, and a linear head each for figure and colour."""

    def __init__(self, images: nn.Module) -> None:
        super().__init__()
        self.images = images
        self.figure = nn.Linear(64, len(scenes.TARGETS))
        self.colour = nn.Linear(64, len(scenes.COLOURS))

    def forward(self, images: Tensor) -> Tensor:
        """A score for each combination: (B, 40)."""
        z = self.images(images)
        return (self.figure(z)[:, :, None] + self.colour(z)[:, None]).flatten(1)


def model_of(way: str, images: nn.Module) -> nn.Module:
    if way.startswith("two heads"):
        return Heads(images)
    model = words.TwoTowers(images, words.CaptionTower(len(VOCABULARY), VOCABULARY.length))
    if way == "sigmoid":
        nn.init.constant_(model.log_scale, np.log(10))
        model.bias = nn.Parameter(torch.tensor(-10.0))
    return model


def loss_of(way: str, seed: int, model: nn.Module, images: Tensor, numbers: Tensor) -> Tensor:
    if way.startswith("two heads, pairs"):
        return F.cross_entropy(model(images).index_fill(1, left_out(seed), float("-inf")), numbers)
    if isinstance(model, Heads):
        z = model.images(images)
        figure, colour = numbers // len(scenes.COLOURS), numbers % len(scenes.COLOURS)
        return F.cross_entropy(model.figure(z), figure) + F.cross_entropy(model.colour(z), colour)
    assert isinstance(model, words.TwoTowers)
    tokens = TOKENS[torch.randint(len(PROMPTS), numbers.shape), numbers]  # (B, W)
    logits = model(images, tokens)  # (B, B)
    if way == "sigmoid":
        return words.sigmoid_loss(logits, model.bias)
    return words.contrastive_loss(logits)


def steps_of(model: nn.Module, loss: object, data: Data, rate: float, steps: int, seed: int) -> list[float]:
    """Train; returns the loss of each step."""
    optimizer = torch.optim.AdamW(train.parameter_groups(model, 0.05), fused=True)
    generator, n, losses = torch.Generator().manual_seed(seed), len(data["train_numbers"]), []
    order = torch.cat([torch.randperm(n, generator=generator) for _ in range(-(-steps * BATCH // n))])
    model.train()
    for step, rows in zip(range(steps), order.split(BATCH), strict=False):
        train.set_rate(optimizer, rate * train.schedule(step, steps=steps, warmup=WARMUP))
        value = loss(model, data["train_images"][rows], data["train_numbers"][rows])
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    return losses


@torch.inference_mode()
def combinations(model: nn.Module, images: Tensor, prompts: Tensor = TOKENS) -> Tensor:
    """The number of the combination that each picture is nearest to, (B,), the vectors of the prompts averaged."""
    model.eval()
    if isinstance(model, Heads):
        return torch.cat([model(few) for few in images.split(500)]).argmax(dim=1)
    vectors = words.average_prompts(torch.stack([model.embed_captions(tokens) for tokens in prompts]))  # (40, E)
    return torch.cat([model.embed_images(few) @ vectors.T for few in images.split(500)]).argmax(dim=1)


def right(said: Tensor, numbers: Tensor) -> list[float]:
    """Shares of right figures, colours, and both."""
    C = len(scenes.COLOURS)
    figure, colour = said // C == numbers // C, said % C == numbers % C
    return [x.float().mean().item() for x in (figure, colour, figure & colour)]


@functools.lru_cache(maxsize=1)
def locked_features(seed: int) -> Data:
    with torch.inference_mode():
        bare, data = tower("locked").eval(), dict(scenes_of(seed))
        for name in ("train", "held_out", "test"):
            data[f"{name}_images"] = torch.cat([bare(few) for few in data[f"{name}_images"].split(500)])
    return {name: x.clone() for name, x in data.items()}


def one(part: str, way: str, seed: int, rate: float, steps: int) -> None:
    """One row, unless it is there."""
    known = [part, way, seed, rate, steps]
    if sheet.read(CSV, **dict(zip(KEY, known, strict=True))):
        return
    locked = way in LOCKED  # the features are computed once
    data = locked_features(seed) if locked else scenes_of(seed)
    begin = time.process_time()
    torch.manual_seed(seed)
    model = model_of(way, nn.Identity() if locked else tower(way))
    losses = steps_of(model, functools.partial(loss_of, way, seed), data, rate, steps, seed)
    held = right(combinations(model, data["held_out_images"]), data["held_out_numbers"])[2]
    numbers, images = data["test_numbers"], data["test_images"]
    measured = [float("nan")] * len(MEASURED + PROMPTED)
    if part != "rates":  # the test scenes are looked at once
        said, new = combinations(model, images), torch.isin(numbers, left_out(seed))
        measured = [*right(said[~new], numbers[~new]), *right(said[new], numbers[new]), right(said, numbers)[2]]
        ones = [right(combinations(model, images, tokens[None]), numbers)[2] for tokens in TOKENS]
        measured += [statistics.mean(ones), right(combinations(model, images, STRANGE_TOKENS), numbers)[2]]
    batches = data["train_numbers"][: 50 * BATCH].split(BATCH)
    floor = statistics.mean(words.loss_floor(batch) for batch in batches if len(batch) == BATCH)
    scale = model.scale().item() if isinstance(model, words.TwoTowers) else float("nan")
    spent = time.process_time() - begin
    last = statistics.mean(losses[-20:])
    row = [held, *measured, last, floor, scale]
    sheet.add(CSV, COLUMNS, [*known, *(f"{x:.4f}" for x in row), f"{spent:.0f}"])


# --------------------------------------------------------------------------------------------------- scenes of two


def sentence(figures: np.ndarray, colours: np.ndarray) -> str:
    """The caption of two targets, (2,) each, the left one first."""
    names, paints = scenes.TARGETS, list(scenes.COLOURS)
    return LEFT_OF.format(paints[colours[0]], names[figures[0]], paints[colours[1]], names[figures[1]])


def tokens_of(vocabulary: words.Vocabulary, figures: np.ndarray, colours: np.ndarray) -> Tensor:
    return vocabulary([sentence(*both) for both in zip(figures, colours, strict=True)])


def choices_of(figures: np.ndarray, colours: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Wrong captions of each picture, (n, 2) each: the last two have a colour or a figure that the picture hasn't."""
    other_colour, other_figure = colours.copy(), figures.copy()
    for i in range(len(figures)):
        other_colour[i, 0] = next(c for c in range(len(scenes.COLOURS)) if c not in colours[i])
        other_figure[i, 0] = next(f for f in range(len(scenes.TARGETS)) if f not in figures[i])
    return {
        "order": (figures[:, ::-1], colours[:, ::-1]),
        "colours": (figures, colours[:, ::-1]),
        "another colour": (figures, other_colour),
        "another figure": (other_figure, colours),
    }


def one_of_pairs(way: str, seed: int, rate: float = 2e-3) -> None:
    """Train on scenes of two, then choose between a picture's caption and a wrong one, four kinds; a row."""
    file = CSV.with_name("words_pairs.csv")
    known = [way, seed, rate, STEPS_OF_PAIRS]
    if sheet.read(file, way=way, seed=seed, rate=rate, steps=STEPS_OF_PAIRS):
        return
    prepare, begin = vt.load("shapes")[2], time.process_time()
    images, figures, colours = scenes.pairs((1800 + seed, 0), 5_000)
    vocabulary = words.Vocabulary([sentence(*both) for both in zip(figures, colours, strict=True)])
    own, wrong = tokens_of(vocabulary, figures, colours), choices_of(figures, colours)
    exchanged = torch.stack([tokens_of(vocabulary, *wrong[kind]) for kind in ("order", "colours")], 1)  # (n, 2, W)
    torch.manual_seed(seed)
    model = words.TwoTowers(tower("unlocked"), words.CaptionTower(len(vocabulary), vocabulary.length))

    def loss(model: nn.Module, pictures: Tensor, rows: Tensor) -> Tensor:
        assert isinstance(model, words.TwoTowers)
        vectors, texts = model.embed_images(pictures), model.embed_captions(own[rows])
        logits = model.scale() * vectors @ texts.T  # (B, B)
        if way == "plain":
            return words.contrastive_loss(logits)
        hard = model.embed_captions(exchanged[rows].flatten(0, 1)).unflatten(0, (-1, 2))  # (B, 2, E)
        more = model.scale() * torch.einsum("be,bke->bk", vectors, hard)  # (B, 2)
        right_ones = torch.arange(len(rows))
        return (F.cross_entropy(torch.cat([logits, more], 1), right_ones) + F.cross_entropy(logits.T, right_ones)) / 2

    data = {"train_images": prepare(torch.from_numpy(images).float() / 255), "train_numbers": torch.arange(len(images))}
    losses = steps_of(model, loss, data, rate, STEPS_OF_PAIRS, seed)
    images, figures, colours = scenes.pairs((1800 + seed, 1), 1_000)
    chosen = preferred(model, vocabulary, prepare(torch.from_numpy(images).float() / 255), figures, colours)
    spent = time.process_time() - begin
    row = [*chosen, statistics.mean(losses[-20:])]
    sheet.add(
        file,
        ["way", "seed", "rate", "steps", *CHOICES, "loss", "cpu_seconds"],
        [*known, *(f"{x:.4f}" for x in row), f"{spent:.0f}"],
    )


@torch.inference_mode()
def preferred(
    model: words.TwoTowers, vocabulary: words.Vocabulary, images: Tensor, figures: np.ndarray, colours: np.ndarray
) -> list[float]:
    """How often a picture is nearer to its caption than to the wrong one, for each of :data:`CHOICES`."""
    model.eval()
    vectors = torch.cat([model.embed_images(few) for few in images.split(500)])  # (n, E)
    near = (vectors * model.embed_captions(tokens_of(vocabulary, figures, colours))).sum(dim=1)  # (n,)
    shares = []
    for kind in CHOICES:
        other = model.embed_captions(tokens_of(vocabulary, *choices_of(figures, colours)[kind]))
        shares.append((near > (vectors * other).sum(dim=1)).float().mean().item())
    return shares


def held_out(way: str) -> dict[float, float]:
    """Accuracy on what was held out, by rate."""
    return {float(row["rate"]): float(row["held_out"]) for row in sheet.read(CSV, part="rates", way=way)}


def best_rate(way: str, steps: int) -> float:
    """The rate that did best on what was held out, with one that did worse on each side."""

    def score(rate: float) -> float:
        one("rates", way, 100, rate, steps)
        return held_out(way)[rate]

    return sheet.search(RATES, score, lambda best, side: best * 2.0**side)


def run(ways: list[str], seeds: int) -> None:
    steps = {way: MORE_STEPS.get(way, STEPS) for way in ways}
    rates = {way: best_rate(way, steps[way]) for way in ways if way not in PAIRS}
    for seed, way in itertools.product(range(seeds), ways):
        if way in PAIRS:
            one_of_pairs(way, seed)
        else:
            one("test", way, seed, rates[way], steps[way])


def report() -> None:
    """Accuracies on test scenes, and differences to "unlocked", paired by seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in sheet.read(CSV, part="test"):
        for measure in MEASURED:
            found.setdefault(row["way"], {}).setdefault(measure, {})[int(row["seed"])] = 100 * float(row[measure])
    names = [*(name.replace("_", ", ") for name in MEASURED), "new, less unlocked", "seeds"]
    print("| right (%) | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for way, by in found.items():
        cells = [sheet.interval(list(by[measure].values())) for measure in MEASURED]
        unlocked = found.get("unlocked", {}).get("new", {})
        less = [value - unlocked[seed] for seed, value in by["new"].items() if seed in unlocked]
        paired = sheet.interval(less) if less and way != "unlocked" else "–"
        print(f"| {way} | " + " | ".join(cells) + f" | {paired} | {len(by['new'])} |")
    print("\n| way | held out (%), by rate |\n|---|---|")
    for way in WAYS:
        held = held_out(way)
        print(f"| {way} | " + ", ".join(f"{rate:g}: {100 * held[rate]:.1f}" for rate in sorted(held)) + " |")
    rows = sheet.read(CSV)
    print(f"\n{len(rows)} runs, {sum(float(row['cpu_seconds']) for row in rows) / 60:.1f} CPU minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--ways", nargs="+", default=[*WAYS, *PAIRS])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "report":
        return report()
    run(args.ways, args.seeds)


if __name__ == "__main__":
    main()
