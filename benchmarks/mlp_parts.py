"""What is lost without the MLP, without its activation function, at half its width: small models trained in each form.

    python benchmarks/mlp_parts.py            all runs, ten seeds: some ten minutes on one thread

Two tasks. "facts": one block reads two of 40 symbols and says what a fixed random table of 1,600 answers has for them.
There is no rule to find, so all must be remembered; the score is over the whole table. "digits": four blocks, trained
on four fifths of the training images. "attention only" and "no MLP, wider" have
no MLP, and as many more blocks or as much more width as make up for its parameters.

Five seeds choose each form's rate from a grid, the same for all forms ("choose"; digits: on the last fifth of the
training images). Five other seeds are then trained at that rate and give the score ("report"; digits: on the test
split). Three seeds train the forms without activation function or MLP three times as long on the facts, at 0.003
("longer"). A row a run goes to benchmarks/mlp_parts.csv as soon as it is done; rows that are there are not run again.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import sheet
import together
import torch
from torch import Tensor, nn

import vit_tutorial as vt

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["purpose", "task", "form", "rate", "seed", "parameters", "accuracy", "cpu_seconds"]
FORMS = ("whole", "half the width", "no activation function", "no MLP", "no MLP, wider", "attention only")
TASKS = ("facts", "digits")
RATES = {"facts": (1e-3, 3e-3, 1e-2, 3e-2), "digits": (3e-4, 1e-3, 3e-3, 1e-2)}
SEEDS = {"choose": (1, 2, 3, 4, 5), "report": (6, 7, 8, 9, 10), "longer": (1, 2, 3)}
SYMBOLS, DIM, WIDER = 40, 32, {"facts": 52, "digits": 56}
STEPS = {"facts": 600, "digits": 250}
BATCH = {"facts": 256, "digits": 32}


class Nothing(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)


def width(task: str, form: str) -> int:
    return WIDER[task] if form == "no MLP, wider" else DIM


def blocks(form: str, dim: int, depth: int) -> Iterator[nn.Module]:
    """Blocks of one of the forms."""
    hidden = 2 * dim if form == "half the width" else 4 * dim  # M
    for _ in range(3 * depth if form == "attention only" else depth):  # an MLP has twice attention's parameters
        block = vt.EncoderBlock(dim, num_heads=4, mlp_dim=hidden)
        if form == "no activation function":
            block.mlp.gelu = nn.Identity()
        if form in ("no MLP", "no MLP, wider", "attention only"):
            block.norm2, block.mlp = nn.Identity(), Nothing()
        yield block


class Reader(nn.Module):
    """Two symbols (B, 2) in, the logits of 40 answers (B, 40) out."""

    def __init__(self, form: str) -> None:
        super().__init__()
        dim = width("facts", form)
        self.symbol, self.place = nn.Embedding(SYMBOLS, dim), nn.Parameter(0.1 * torch.randn(2, dim))
        self.blocks = nn.Sequential(*blocks(form, dim, depth=1))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, SYMBOLS)

    def forward(self, read: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.symbol(read) + self.place)[:, 0]))


def digit_model(form: str) -> vt.ViT:
    dim = width("digits", form)
    model = vt.ViT(
        vt.ViTConfig(
            image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=dim, depth=4, num_heads=4, mlp_dim=4 * dim
        )
    )
    model.blocks = nn.Sequential(*blocks(form, dim, depth=4))
    return model


def questions(task: str, purpose: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What to train on, inputs and answers, and what to score on."""
    if task == "facts":
        table = torch.randint(SYMBOLS, (SYMBOLS, SYMBOLS), generator=torch.Generator().manual_seed(0))
        pairs = torch.cartesian_prod(torch.arange(SYMBOLS), torch.arange(SYMBOLS))  # (1600, 2)
        return pairs, table.flatten(), pairs, table.flatten()
    data = vt.data.load("digits")
    (images, labels), (test, test_labels) = data.train.batch(), data.test.batch()
    images, test = ((pixels - data.mean[0]) / data.std[0] for pixels in (images, test))
    held_out = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 0.2
    asked, right = (images[held_out], labels[held_out]) if purpose == "choose" else (test, test_labels)
    return images[~held_out], labels[~held_out], asked, right


def run(purpose: str, task: str, form: str, rate: float, seeds: list[int]) -> list[list[object]]:
    """A row for each seed."""
    inputs, answers, asked, right = questions(task, purpose)
    models: list[nn.Module] = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(Reader(form) if task == "facts" else digit_model(form))

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(answers), (BATCH[task],), generator=generator)
        return inputs[chosen], answers[chosen]

    steps = STEPS[task] * (3 if purpose == "longer" else 1)
    begin = time.process_time()
    answer, _ = together.fit(models, seeds, batch, rate, steps=steps)
    accuracy = (answer(asked).argmax(dim=-1) == right).double().mean(dim=1)
    seconds = (time.process_time() - begin) / len(seeds)
    parameters = sum(p.numel() for p in models[0].parameters())
    return [
        [purpose, task, form, rate, seed, parameters, f"{accuracy[i]:.4f}", f"{seconds:.1f}"]
        for i, seed in enumerate(seeds)
    ]


def accuracies(purpose: str, task: str, form: str, rate: float) -> list[float]:
    rows = sheet.read(CSV, purpose=purpose, task=task, form=form, rate=rate)
    return [float(row["accuracy"]) for row in rows]


def best_rate(task: str, form: str) -> float:
    """The rate with the best mean over the seeds that choose."""
    return max(RATES[task], key=lambda rate: statistics.mean(accuracies("choose", task, form, rate) or [0.0]))


def complete(purpose: str, task: str, form: str, rate: float) -> None:
    """Run the seeds that have no row yet."""
    done = {int(row["seed"]) for row in sheet.read(CSV, purpose=purpose, task=task, form=form, rate=rate)}
    seeds = [seed for seed in SEEDS[purpose] if seed not in done]
    for row in run(purpose, task, form, rate, seeds) if seeds else []:
        sheet.add(CSV, COLUMNS, row)


def main() -> None:
    torch.set_num_threads(1)
    for task, form in itertools.product(TASKS, FORMS):
        for rate in RATES[task]:
            complete("choose", task, form, rate)
        complete("report", task, form, best_rate(task, form))
    for form in ("no activation function", "no MLP"):
        complete("longer", "facts", form, 3e-3)


if __name__ == "__main__":
    main()
