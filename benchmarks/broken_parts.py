"""The trained ViT of photographs with one part removed or broken, on 1,000 test images (lessons 00, 01, 02, 04, 05).

``python benchmarks/broken_parts.py --data cifar10-jpeg`` appends a row for each change to broken_parts.csv, and prints
the table, with paired 95 % intervals over the images. Nothing is trained, and nothing is chosen by these images. Beside
the trained model stand raw pixels and three random encoders, whose heads alone were fitted to 4,000 training images.
Rows that are there are not measured again: when the shipped weights change, delete the file.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import code_mistakes
import torch
from answers import Answer, interval, logits_of, pair_counts
from cifar10 import read_cifar10
from result_table import ResultTable
from torch import Tensor, nn

import vit_tutorial as vt

COLUMNS = ["group", "change", "draw", "images", "right", "only_without", "only_with"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
Named = tuple[str, int, Answer]  # the change, which draw of it, the model with it
DRAWS = 10


class Zero(nn.Module):
    """In place of a part: it adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


class Mean(nn.Module):
    """What a part gives for the average image of the batch, whatever the image."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x).mean(dim=0, keepdim=True).expand_as(x)


class WithoutShortcut(nn.Module):
    """A block whose attention, whose MLP, or both, replace the tokens and aren't added to them."""

    def __init__(self, block: nn.Module, *parts: str) -> None:
        super().__init__()
        self.block, self.parts = block, parts

    def forward(self, z: Tensor) -> Tensor:
        attended = self.block.attention(self.block.norm1(z))
        z = attended if "attention" in self.parts else z + attended
        seen = self.block.mlp(self.block.norm2(z))
        return seen if "mlp" in self.parts else z + seen


class WithoutUnits(nn.Module):
    """The second layer of an MLP, with some hidden units at zero."""

    def __init__(self, layer: nn.Module, units: Tensor) -> None:
        super().__init__()
        self.layer, self.units = layer, units

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.index_fill(-1, self.units, 0.0))


class OffAt(nn.Module):
    """A part that adds nothing to some of the tokens."""

    def __init__(self, part: nn.Module, tokens: slice) -> None:
        super().__init__()
        self.part, self.tokens = part, tokens

    def forward(self, x: Tensor) -> Tensor:
        added = self.part(x).clone()  # (B, T, D)
        added[:, self.tokens] = 0
        return added


class Others(nn.Module):
    """What a part gives for another image."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x).roll(1, dims=0)


def with_parts(model: vt.ViT, prepare: vt.data.Preprocessing, parts: dict[str, nn.Module]) -> Answer:
    """The model with other modules, by their names, as in ``{"blocks.0.mlp": Zero()}``."""
    other = copy.deepcopy(model)
    for name, module in parts.items():
        owner, _, attribute = name.rpartition(".")
        setattr(other.get_submodule(owner), attribute, module)
    other.eval()
    return lambda pixels: other(vt.data.normalise(pixels, prepare))


def from_stream(model: vt.ViT, z: Tensor) -> Tensor:
    """The tokens (B, T, D) after the blocks and the last norm."""
    return model.norm(model.blocks(z))


def from_tokens(model: vt.ViT, x: Tensor) -> Tensor:
    """The logits (B, K) from patch tokens (B, N, D)."""
    z = torch.cat([model.embed.cls_token.expand(len(x), -1, -1), x], dim=1) + model.embed.position
    return model.head(from_stream(model, z)[:, 0])


def patch_mistakes(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 01: tokens of the right shape, made wrongly."""
    conv = model.embed.patches.proj
    E = conv.weight.flatten(1).T  # (C*P*P, D)

    def embedded(cut: Callable[[Tensor], Tensor]) -> Answer:
        """Patches (B, N, C*P*P), cut in some way, times E."""
        return lambda pixels: from_tokens(model, cut(vt.data.normalise(pixels, prepare)) @ E + conv.bias)

    def pixel_by_pixel(x: Tensor) -> Tensor:
        return vt.patchify(x, 4).unflatten(2, (3, 16)).mT.flatten(2)

    def each_mirrored(axis: int) -> Answer:
        """Each patch (C, P, P) mirrored along an axis, in its own place."""
        return embedded(lambda x: vt.patchify(x, 4).unflatten(2, (3, 4, 4)).flip(axis).flatten(2))

    def column_by_column(x: Tensor) -> Tensor:
        return vt.patchify(x, 4).unflatten(1, (8, 8)).transpose(1, 2).flatten(1, 2)

    yield "none", 0, embedded(lambda x: vt.patchify(x, 4))
    yield "image.reshape", 0, embedded(lambda x: x.reshape(len(x), 64, 48))
    yield "pixel by pixel within a patch", 0, embedded(pixel_by_pixel)
    yield "each patch mirrored", 0, each_mirrored(4)
    yield "each patch upside down", 0, each_mirrored(3)
    yield "patches column by column", 0, embedded(column_by_column)
    yield "blue first", 0, lambda pixels: model(vt.data.normalise(pixels.flip(1), prepare))
    yield "last patch first", 0, embedded(lambda x: vt.patchify(x, 4).flip(1))
    yield "not normalised", 0, model
    yield "from 0 to 255", 0, lambda pixels: model(255 * pixels)


def position_tables(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 02: other positions for the patches; the class token keeps its own."""
    learned = model.embed.position.detach()  # (1, 1 + N, D)
    prefix, rows = learned[:, :1], learned[0, 1:]  # (1, 1, D), (N, D)
    square = rows.unflatten(0, (8, 8))  # (rows, columns, D)

    def at(table: Tensor) -> Answer:
        """The model with these positions (N, D)."""
        return code_mistakes.with_table(model, prepare, (32, 32), torch.cat([prefix, table[None]], dim=1))

    yield "none", 0, at(rows)
    yield "zero", 0, at(0 * rows)
    for draw in range(DRAWS):
        generator = torch.Generator().manual_seed(draw)
        noise = torch.randn(64, rows.shape[1], generator=generator)
        yield "random", draw, at(rows.mean(dim=0) + rows.std(dim=0) * noise)
        yield "shuffled", draw, at(rows[torch.randperm(64, generator=generator)])
    for axis, name in ((0, "down"), (1, "to the right")):
        for k in (1, 4):
            moved = square.index_select(axis, (torch.arange(8) - k).clamp(min=0))
            yield f"moved by {k} {name}", 0, at(moved.flatten(0, 1))
        yield f"mirrored, {('rows', 'columns')[axis]}", 0, at(square.flip(axis).flatten(0, 1))


def without_positions(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 02: the patches' positions at zero; the class token keeps its own."""
    learned = model.embed.position.detach()  # (1, 1 + N, D)
    zero = torch.cat([learned[:, :1], 0 * learned[:, 1:]], dim=1)
    for change, table in (("none", learned), ("zero", zero)):
        yield change, 0, code_mistakes.with_table(model, prepare, model.config.image_size, table)


def class_token(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 02: what the head reads, and what the class token starts with."""
    first = (model.embed.cls_token + model.embed.position[:, :1]).detach()  # (1, 1, D)

    def patches(pixels: Tensor) -> Tensor:
        x = vt.data.normalise(pixels, prepare)
        return model.embed.patches(x) + model.embed.position[:, 1:]

    def starting_with(vector: Tensor) -> Answer:
        """The class token and its position as another vector (1, 1, D)."""

        def answer(pixels: Tensor) -> Tensor:
            z = torch.cat([vector.expand(len(pixels), -1, -1), patches(pixels)], dim=1)
            return model.head(from_stream(model, z)[:, 0])

        return answer

    def reading(place: int) -> Answer:
        return lambda pixels: model.head(model.features(vt.data.normalise(pixels, prepare))[:, place])

    def left_out(pixels: Tensor) -> Tensor:
        return model.head(from_stream(model, patches(pixels)).mean(dim=1))

    yield "none", 0, starting_with(first)
    yield "the class token's vector zero", 0, starting_with(model.embed.position[:, :1].detach())
    yield "vector and position zero", 0, starting_with(0 * first)
    for place in range(1, 65, 7):
        yield "the head on a patch's token", place - 1, reading(place)
    yield "left out, the head on the mean", 0, left_out


def mlps_off(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 04: one block's MLP adds nothing."""
    yield "none", 0, with_parts(model, prepare, {})
    for index in range(len(model.blocks)):
        yield f"mlp {index + 1} off", 0, with_parts(model, prepare, {f"blocks.{index}.mlp": Zero()})


def first_mlp_by_token(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 04: the first MLP off at some tokens only."""
    name = "blocks.0.mlp"
    part = model.get_submodule(name)
    yield "none", 0, with_parts(model, prepare, {})
    yield "off at the class token", 0, with_parts(model, prepare, {name: OffAt(part, slice(0, 1))})
    yield "off at the patches", 0, with_parts(model, prepare, {name: OffAt(part, slice(1, None))})


def first_mlp_replaced(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 04: the first MLP adds the same for every image, or what it adds for another one."""
    name = "blocks.0.mlp"
    part = model.get_submodule(name)
    yield "none", 0, with_parts(model, prepare, {})
    yield "mlp 1 its mean", 0, with_parts(model, prepare, {name: Mean(part)})
    swapped = with_parts(model, prepare, {name: Others(part)})
    # Each answer stands where the image is that the MLP was given, the one before.
    yield "mlp 1 another image's: it names the other", 0, lambda pixels: swapped(pixels).roll(-1, dims=0)


def block_parts(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 05: one norm, one shortcut or one whole block left out."""

    def answer(name: str, module: nn.Module) -> Answer:
        return with_parts(model, prepare, {name: module})

    yield "none", 0, with_parts(model, prepare, {})
    for number, block in enumerate(model.blocks, start=1):
        name = f"blocks.{number - 1}"
        yield f"block {number} left out", 0, answer(name, nn.Identity())
        yield f"norm before attention {number} left out", 0, answer(f"{name}.norm1", nn.Identity())
        yield f"norm before mlp {number} left out", 0, answer(f"{name}.norm2", nn.Identity())
        for part in ("attention", "mlp"):
            yield f"shortcut beside {part} {number} left out", 0, answer(name, WithoutShortcut(block, part))
        yield f"both shortcuts of block {number} left out", 0, answer(name, WithoutShortcut(block, "attention", "mlp"))


def hidden_units(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 04: hidden units at zero. Class-like: eight of their ten pictures show one class."""

    def without(block: int, units: Tensor) -> Answer:
        name = f"blocks.{block}.mlp.fc2"
        return with_parts(model, prepare, {name: WithoutUnits(model.get_submodule(name), units)})

    class_like = class_like_units(model, prepare)
    yield "none", 0, with_parts(model, prepare, {})
    yield f"the {len(class_like)} class-like units", 0, without(5, class_like)
    for draw in range(3):
        order = torch.randperm(model.config.mlp_dim, generator=torch.Generator().manual_seed(draw))
        yield "a random third of block 1's units", draw, without(0, order[: len(order) // 3])


@torch.inference_mode()
def class_like_units(model: vt.ViT, prepare: vt.data.Preprocessing) -> Tensor:
    """Hidden units of the last MLP that are largest, at the class token, for pictures of one class."""
    pictures, classes = vt.data.cifar10_pictures().batch()
    last = model.blocks[-1]
    z = last.attend(model.blocks[:-1](model.embed(vt.data.normalise(pictures, prepare))))
    ten = last.mlp.gelu(last.mlp.fc1(last.norm2(z)[:, 0])).topk(10, dim=0).indices  # (10, M)
    most_frequent = nn.functional.one_hot(classes[ten], 10).sum(dim=0).amax(dim=1)  # (M,)
    return (most_frequent >= 8).nonzero().flatten()


def activations(model: vt.ViT, prepare: vt.data.Preprocessing) -> Iterator[Named]:
    """Lesson 04: another activation function in every MLP, or one too many."""
    mlps = [f"blocks.{index}.mlp" for index in range(len(model.blocks))]

    def answer(activation: nn.Module) -> Answer:
        return with_parts(model, prepare, {f"{name}.gelu": activation for name in mlps})

    twice = {name: nn.Sequential(model.get_submodule(name), nn.GELU()) for name in mlps}
    yield "none", 0, answer(nn.GELU())
    yield "tanh GELU", 0, answer(nn.GELU(approximate="tanh"))
    yield "ReLU", 0, answer(nn.ReLU())
    yield "no activation function", 0, answer(nn.Identity())
    yield "a second GELU, after fc2", 0, with_parts(model, prepare, twice)


def least_squares(x: Tensor, labels: Tensor, strength: float) -> nn.Linear:
    """The best linear head from inputs (B, F) to ten classes, its weights shrunk by ``strength``."""
    mean, std = x.mean(dim=0), x.std(dim=0)
    y = torch.cat([(x - mean) / std, torch.ones(len(x), 1)], dim=1).double()  # (B, F + 1), for the bias
    target = nn.functional.one_hot(labels, 10).double()
    solution = torch.linalg.solve(y.T @ y + strength * torch.eye(y.shape[1]), y.T @ target).float()  # (F + 1, 10)
    head = nn.Linear(x.shape[1], 10).requires_grad_(False)
    head.weight.copy_((solution[:-1] / std[:, None]).T)
    head.bias.copy_(solution[-1] - head.weight @ mean)
    return head


def random_encoder(images: Tensor, labels: Tensor, seed: int) -> vt.ViT:
    """A ViT that was never trained, but for its head, by least squares."""
    torch.manual_seed(seed)
    model = vt.ViT(vt.load("photographs").model.config).eval().requires_grad_(False)
    y = torch.cat([model.features(batch)[:, 0] for batch in images.split(100)])  # (B, D)
    model.head = least_squares(y, labels, strength=100)
    return model


@torch.inference_mode()
def pooled_patches(model: vt.ViT, images: Tensor) -> Tensor:
    """The patches' tokens (B, 64, D), each four neighbours averaged: (B, 16 * D)."""
    maps = model.features(images)[:, 1:].mT.unflatten(2, (8, 8))  # (B, D, 8, 8)
    return nn.functional.avg_pool2d(maps, 2).flatten(1)


GROUPS: dict[str, Callable[[vt.ViT, vt.data.Preprocessing], Iterator[Named]]] = {
    "patches": patch_mistakes,
    "positions": position_tables,
    "class token": class_token,
    "parts off": mlps_off,
    "mlp replaced": first_mlp_replaced,
    "block parts": block_parts,
    "hidden units": hidden_units,
    "activation": activations,
}


def measure(group: str, changes: Iterator[Named], images: Tensor, labels: Tensor) -> None:
    """A row for each change; the first, "none", is what the others are compared with."""
    done = {(row["change"], row["draw"]) for row in RESULTS.rows(group=group)}
    before = None
    for change, draw, answer in changes:
        if before is None:
            before = logits_of(answer, images, batch=100)
        if (change, str(draw)) in done:
            continue
        after = before if change == "none" else logits_of(answer, images, batch=100)
        RESULTS.add([group, change, draw, *pair_counts(before, after, labels)])


def table() -> str:
    """A line for each change: right answers, over its draws from the lowest to the highest, and what it costs."""
    lines = ["| group | change | draws | images | right | costs, points |", "|---|---|---|---|---|---|"]
    rows = RESULTS.rows()
    for group, change in dict.fromkeys((row["group"], row["change"]) for row in rows):
        some = [row for row in rows if (row["group"], row["change"]) == (group, change)]
        right = [int(row["right"]) for row in some]
        n, lost, won = (sum(int(row[name]) for row in some) for name in ("images", "only_without", "only_with"))
        cost, half = interval(lost, won, n)
        span = f"{min(right)} to {max(right)}, mean {sum(right) / len(right):.0f}" if len(some) > 1 else f"{right[0]}"
        within = f" ± {half:.1f}" if len(some) == 1 else ""  # draws share their images: no interval for them
        lines.append(f"| {group} | {change} | {len(some)} | {some[0]['images']} | {span} | {cost:.1f}{within} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="CIFAR-10 with train/ and test/, a folder for each class")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = read_cifar10(args.data)
    # The split goes class by class; a batch needs all classes, where an image gets what belongs to another.
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    images, labels = data["test_images"][::10][order].float() / 255, data["test_labels"][::10][order]
    model, _, prepare = vt.load("photographs")
    for group, changes in GROUPS.items():
        measure(group, changes(model.eval(), prepare), images, labels)
    # Lesson 05: photographs was trained with drop path, 0.05; digits wasn't.
    digits, _, its = vt.load("digits")
    measure("digits", block_parts(digits.eval(), its), *vt.data.digits().test.batch())
    # Lesson 04: in each plain ViT of the package.
    measure("first mlp, photographs", first_mlp_by_token(model, prepare), images, labels)
    tests = {name: vt.data.digits().test.batch() for name in ("digits", "digits-patch2")}
    tests["shapes"] = vt.data.shapes(train=8, test=1000).test.batch()
    for name, (pictures, answers) in tests.items():
        other, _, its = vt.load(name)
        measure(f"first mlp, {name}", first_mlp_by_token(other.eval(), its), pictures, answers)
    # Lesson 02: scenes, whose classes don't need positions.
    other, _, its = vt.load("shapes")
    measure("positions, shapes", without_positions(other.eval(), its), *tests["shapes"])
    # Lesson 00: what a head can read without training. Strengths: the best of 1 to 10,000 on 1,000 images held out.
    known, classes = prepare(data["train_images"][:4000].float() / 255), data["train_labels"][:4000]
    head = least_squares(known.flatten(1), classes, strength=10_000)
    measure("pixels", iter([("none", 0, lambda x: head(prepare(x).flatten(1)))]), images, labels)
    for seed in range(1, 4):
        encoder = random_encoder(known, classes, seed)
        measure(f"random encoder {seed}", mlps_off(encoder, prepare), images, labels)
        tokens = torch.cat([pooled_patches(encoder, batch) for batch in known.split(100)])
        on_patches = least_squares(tokens, classes, strength=1_000)  # 300 or 3,000: within 2 points, held out
        answer = partial(lambda head, encoder, x: head(pooled_patches(encoder, prepare(x))), on_patches, encoder)
        measure(f"random encoder {seed}, patch tokens", iter([("none", 0, answer)]), images, labels)
    print(table())


if __name__ == "__main__":
    main()
