"""What a mistake in a ViT's code costs (lessons 02 and 06): on the trained model, on images held out.

Tables of positions are tried on all 10,000 test images: on 1,000 of them the largest mistake cost 3 points more.

``python benchmarks/code_mistakes.py --data cifar10-jpeg`` appends a row for each mistake to code_mistakes.csv beside it
and prints the table, with paired 95 % intervals over the images. Rows that are there are not measured again: when the
shipped weights of photographs change, delete their rows.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import torch
from answers import Answer, interval, logits_of, pair_counts
from cifar10 import read_cifar10
from result_table import ResultTable
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt

COLUMNS = ["model", "mistake", "images", "right", "only_without", "only_with", "logits"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)


def changed(model: vt.ViT, **fields: object) -> vt.ViT:
    """The same weights with another configuration; a state dict holds no trace of these fields."""
    other = vt.ViT(replace(model.config, **fields))  # type: ignore[arg-type]
    other.load_state_dict(model.state_dict())
    return other.eval()


def scaled_by_width(model: vt.ViT) -> vt.ViT:
    """Scores divided by the root of D in place of d."""
    other, D = changed(model), model.config.dim
    with torch.no_grad():
        for block in other.blocks:
            block.attention.qkv.weight[:D] /= math.sqrt(model.config.num_heads)
            block.attention.qkv.bias[:D] /= math.sqrt(model.config.num_heads)
    return other


def variants(model: vt.ViT) -> dict[str, Answer]:
    """{mistake: the model that makes it}."""
    return {
        "none": model,
        "tanh GELU": changed(model, gelu="tanh"),
        "eps 1e-3": changed(model, norm_eps=1e-3),
        "eval() forgotten": changed(model, drop_path=0.05).train(),  # as it was trained
        "last norm forgotten": lambda x: model.head(model.blocks(model.embed(x))[:, 0]),
        "mean of the tokens": lambda x: model.head(model.features(x).mean(dim=1)),
        "scaled by √D": scaled_by_width(model),
        "one head": changed(model, num_heads=1),
        "height and width exchanged": lambda x: model(x.transpose(2, 3)),
    }


def add_rows(name: str, models: dict[str, Answer], images: Tensor, labels: Tensor) -> None:
    """A row for each mistake, beside the model without one."""
    torch.manual_seed(0)
    plain = logits_of(models["none"], images, batch=100)
    rows = []
    for mistake, model in models.items():
        logits = logits_of(model, images, batch=100)
        off = ((logits - plain).abs().max() / plain.std()).item()
        rows.append([name, mistake, *pair_counts(plain, logits, labels), f"{off:.2g}"])
    for row in rows:  # all or none, so that a model that is there is done
        RESULTS.add(row)


def with_table(model: vt.ViT, prepare: vt.data.Preprocessing, size: tuple[int, int], table: Tensor) -> Answer:
    """The same weights at another size of images (H, W), with this table of positions (1, T, D) (lesson 02)."""
    other = vt.ViT(replace(model.config, image_size=size)).eval()
    other.load_state_dict(model.state_dict() | {"embed.position": table})

    def answer(x: Tensor) -> Tensor:
        scaled = F.interpolate(x, size=size, mode="bicubic", antialias=True).clamp(0, 1)
        return other(vt.data.normalise(scaled, prepare))  # type: ignore[no-any-return]

    return answer


def tables(model: vt.ViT, prepare: vt.data.Preprocessing) -> dict[str, dict[str, Answer]]:
    """{group: {table of positions: the model with it}}; a group's first is what the others are compared with."""
    learned = model.embed.position.detach()  # (1, 1 + N, D)
    prefix, grid = learned[:, :1], learned[:, 1:]

    def at(rows: int, columns: int, table: Tensor | None = None) -> Answer:
        """With the learned table, resized, or another."""
        stretched = vt.resize_position_embedding(learned, (8, 8), (rows, columns))
        return with_table(model, prepare, (4 * rows, 4 * columns), stretched if table is None else table)

    def stretched(rows: Tensor, **how: object) -> Tensor:
        """The class token's row and these, (1, D, ...), stretched with it."""
        return torch.cat([prefix, F.interpolate(rows, **how).flatten(2).mT], dim=1)  # type: ignore[arg-type]

    groups = {"positions": {"none": at(8, 8)}}
    groups["positions"] |= {f"resized, {4 * rows}": at(rows, rows) for rows in (6, 10, 12)}
    corner = learned[:, :64].mT.reshape(1, -1, 8, 8)  # the class token as the top left patch
    in_grid = stretched(corner, size=(10, 10), mode="bicubic", antialias=True)
    flat = stretched(grid.mT, size=100, mode="linear")
    groups["positions at 40"] = {"none": at(10, 10), "class token in the grid": at(10, 10, in_grid)}
    groups["positions at 40"]["one-dimensional"] = at(10, 10, flat)
    groups["positions at 24"] = {"none": at(6, 6), "cut to length": at(6, 6, learned[:, :37])}
    early = torch.cat([torch.zeros_like(prefix), learned[:, :64]], dim=1)
    groups["positions at 32"] = {"none": at(8, 8), "added too early": at(8, 8, early)}
    turned = vt.resize_position_embedding(learned, (8, 8), (8, 5))
    groups["positions at 20 x 32"] = {"none": at(5, 8), "height and width exchanged": at(5, 8, turned)}
    return groups


def measure(data: dict[str, Tensor], number: int) -> None:
    model, _, prepare = vt.load("photographs")
    images, labels = prepare(data["validation_images"][:number].float() / 255), data["validation_labels"][:number]
    done = {row["model"] for row in RESULTS.rows()}
    if "photographs" not in done:
        add_rows("photographs", variants(model), images, labels)
    pictures, truth = data["test_images"].float() / 255, data["test_labels"]
    for group, models in tables(model, prepare).items():
        if group not in done:
            add_rows(group, models, pictures, truth)


def table() -> str:
    lines = ["| model | mistake | images | accuracy | costs, points | logits off by |", "|---|---|---|---|---|---|"]
    for row in RESULTS.rows():
        n, right, lost, won = (int(row[column]) for column in ("images", "right", "only_without", "only_with"))
        cost, half = interval(lost, won, n)
        start = f"| {row['model']} | {row['mistake']} | {n} | {100 * right / n:.1f} % |"
        lines.append(f"{start} {cost:.1f} ± {half:.1f} | {row['logits']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="CIFAR-10 with train/ and test/, a folder for each class")
    parser.add_argument("--images", type=int, default=5000, help="of those held out, for the trained model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    measure(read_cifar10(args.data), args.images)
    print(table())


if __name__ == "__main__":
    main()
