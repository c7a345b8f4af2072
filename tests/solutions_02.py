"""Answers to the exercises of lesson 02: right ones in different styles, and wrong ones, each with its report."""

import math
import warnings

import torch
from einops import rearrange, repeat
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {
    "z0": [[11, 11], [21, 22], [33, 30]], "tokens": 141, "table": 108_288, "token": 24, "class gradient": 5,
    "stretched": [0, 2, 4, 6],
}  # fmt: skip


def embed_by_expand(x, cls_token, position):
    cls = cls_token.expand(x.shape[0], -1, -1)
    return torch.cat((cls, x), 1) + position


def embed_by_einops(x, cls_token, position):
    return torch.cat([repeat(cls_token, "1 1 d -> b 1 d", b=len(x)), x], dim=1).add(position)


class ByExpand(nn.Module):
    join = staticmethod(embed_by_expand)

    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.patches = vt.PatchEmbedding(image_size, patch_size, in_channels, dim)
        rows, columns = self.patches.grid
        self.parameters_of(rows * columns + 1, dim)

    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, dim))

    def forward(self, images):
        return self.join(self.patches(images), self.cls_token, self.position)


def sincos_by_loops(grid, dim):
    rows, columns = grid
    quarter = dim // 4
    table = torch.zeros(1, rows * columns, dim)
    for n in range(rows * columns):
        y, x = divmod(n, columns)
        for k in range(quarter):
            f = 10_000 ** (-k / (quarter - 1))
            parts = math.sin(x * f), math.cos(x * f), math.sin(y * f), math.cos(y * f)
            for i, part in enumerate(parts):
                table[0, n, i * quarter + k] = part
    return table


def sincos_by_outer(grid, dim):
    f = torch.logspace(0, -4, dim // 4)
    x = torch.arange(grid[1]).repeat(grid[0])
    y = torch.arange(grid[0]).repeat_interleave(grid[1])
    x, y = torch.outer(x, f), torch.outer(y, f)
    return torch.cat([torch.sin(x), torch.cos(x), torch.sin(y), torch.cos(y)], -1).unsqueeze(0)


def resize_by_reshape(position, old_grid, new_grid):
    first, others = position[:, :1], position[:, 1:]
    maps = others.reshape(1, *old_grid, -1).permute(0, 3, 1, 2)
    maps = F.interpolate(maps, size=new_grid, mode="bicubic", align_corners=False)
    others = maps.permute(0, 2, 3, 1).reshape(1, new_grid[0] * new_grid[1], -1)
    return torch.cat([first, others], dim=1)


def resize_by_einops(position, old_grid, new_grid):
    maps = rearrange(position[:, 1:], "1 (r c) d -> d 1 r c", r=old_grid[0])
    maps = nn.Upsample(size=new_grid, mode="bicubic")(maps)
    return torch.cat([position[:, :1], rearrange(maps, "d 1 r c -> 1 (r c) d")], 1)


def stretch_by_loops(grid, size):
    rows, columns = grid.shape[:2]
    result = torch.zeros(*size, grid.shape[2])
    for i in range(size[0]):
        y = i * (rows - 1) / (size[0] - 1) if size[0] > 1 else 0.0
        top = int(y)
        for j in range(size[1]):
            x = j * (columns - 1) / (size[1] - 1) if size[1] > 1 else 0.0
            left = int(x)
            below, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            dy, dx = y - top, x - left
            upper = (1 - dx) * grid[top, left] + dx * grid[top, right]
            lower = (1 - dx) * grid[below, left] + dx * grid[below, right]
            result[i, j] = (1 - dy) * upper + dy * lower
    return result


def stretch_by_tents(grid, size):
    """A tent over each old cell: its weight falls to 0 at the next."""

    def weights(old, new):
        places = torch.linspace(0, old - 1, new) if new > 1 else torch.zeros(1)
        return (1 - (places[:, None] - torch.arange(old)).abs()).clamp(min=0)

    rows, columns = weights(grid.shape[0], size[0]), weights(grid.shape[1], size[1])
    return torch.einsum("ir,jc,rcd->ijd", rows, columns, grid)


class WithTruncatedNormal(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, dim), std=0.02))


RIGHT = {
    "embedding_numbers": (lambda: NUMBERS,),
    "embed_tokens": (embed_by_expand, embed_by_einops),
    "embeddings": (ByExpand, WithTruncatedNormal),
    "sincos_positions": (sincos_by_loops, sincos_by_outer),
    "resize_positions": (resize_by_reshape, resize_by_einops),
    "stretch": (stretch_by_loops, stretch_by_tents),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def rows(cls_token, x):
    return cls_token.expand(len(x), -1, -1)


class TurnedTable(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, dim, tokens))

    def forward(self, images):
        return self.join(self.patches(images), self.cls_token, self.position.mT)


class Cut(ByExpand):
    def forward(self, images):
        return self.join(self.patches(images), self.cls_token.detach(), self.position)


def sincos_with_y_before_x(grid, dim):
    return sincos_by_outer(grid, dim).roll(dim // 2, dims=-1)


def resize_where_it_grows(position, old_grid, new_grid):
    shrinks = math.prod(new_grid) < math.prod(old_grid)
    return position[:, : 1 + math.prod(new_grid)] if shrinks else resize_by_reshape(position, old_grid, new_grid)


def resize_by_the_package(position, old_grid, new_grid):
    return vt.resize_position_embedding(position, old_grid, new_grid, recipe="huggingface")


def stretch_for_more_than_one(grid, size):
    steps = [(old - 1) / (new - 1) for old, new in zip(grid.shape, size, strict=False)]
    return stretch_by_loops(grid, size) + 0 * sum(steps)


def enlarged(maps: torch.Tensor, size: tuple[int, int], corners: bool):
    return torch._C._nn.upsample_bilinear2d(maps, size, corners)


with warnings.catch_warnings(action="ignore"):
    scripted = torch.jit.script(enlarged)


def stretch_by(operator):
    return lambda grid, size: operator(grid.permute(2, 0, 1)[None], size, True)[0].permute(1, 2, 0)


def from_squares_backwards(position, old_grid, new_grid):
    resized = resize_by_reshape(position, old_grid, new_grid)
    return resized.flip(1) if old_grid[0] == old_grid[1] > 1 else resized


def mean_for_one_cell(grid, size):
    return grid.mean((0, 1), keepdim=True) if size == (1, 1) else stretch_by_loops(grid, size)


WRONG = {
    "embedding_numbers": [
        Wrong("positions forgotten", answer(z0=[[1, 1], [1, 2], [3, 0]]), "Write down the class token"),
        Wrong("rows of the table counted", answer(table=141), "One row for each token"),
    ],
    "embed_tokens": [
        Wrong("a class token of zeros", lambda x, c, p: embed_by_expand(x, 0 * c, p), "is at index 0"),
        Wrong(
            "as further tokens",
            lambda x, c, p: torch.cat([embed_by_expand(x, c, p), c.expand(len(x), -1, -1)], 1),
            "too many",
        ),
    ],
    "embeddings": [
        Wrong("a table turned", TurnedTable, "position has shape"),
        Wrong("cut off", Cut, "gradient of cls_token is missing"),
        Wrong("the package's, inherited", type("Mine", (vt.Embeddings,), {}), "derives from it"),
    ],
    "sincos_positions": [
        Wrong("y before x", sincos_with_y_before_x, "What your numbers show"),
        Wrong("no axis of images", lambda grid, dim: sincos_by_outer(grid, dim)[0], "has shape"),
        Wrong("the package's own", lambda grid, dim: vt.sincos_position_embedding(grid, dim), "the package's own"),
    ],
    "resize_positions": [
        Wrong("where it grows alone", resize_where_it_grows, "What your numbers show"),
        Wrong("the package's own", resize_by_the_package, "the package's own resize_position_embedding"),
        Wrong("squares backwards, which once passed", from_squares_backwards, "(3, 3) -> (5, 5)"),
    ],
    "stretch": [
        Wrong("torch's operator", stretch_by(torch._C._nn.upsample_bilinear2d), "it calls upsample_bilinear2d"),
        Wrong("a division by 0", stretch_for_more_than_one, "raised ZeroDivisionError"),
        Wrong("a mean for one cell", mean_for_one_cell, "grid (4, 3, 2) -> (1, 1)"),
    ],
}
