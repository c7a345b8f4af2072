"""Right answers to the exercises of lesson 02, written in different ways: no check may find fault with them."""

import math

import numpy as np
import torch
from einops import rearrange, repeat
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


def embed_by_loops(x, cls_token, position):
    images = []
    for image in x:
        tokens = [cls_token[0, 0], *image]
        images.append(torch.stack([token + position[0, t] for t, token in enumerate(tokens)]))
    return torch.stack(images)


def embed_in_two_parts(x, cls_token, position):
    """Each part gets its own rows first: a sum and a concatenation change places as long as the rows do."""
    first = (cls_token + position[:, :1]).repeat(len(x), 1, 1)
    return torch.cat([first, x + position[:, 1:]], dim=1)


def embed_by_padding(x, cls_token, position):
    z = F.pad(x, (0, 0, 1, 0))
    z[:, 0] = cls_token[0, 0]
    return z + position


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


class WithPlainShapes(ByExpand):
    """(D,) and (T, D): no axes of length 1."""

    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(dim))
        self.position = nn.Parameter(torch.randn(tokens, dim) * 0.02)

    def forward(self, images):
        z = self.patches(images)
        rows = [self.cls_token.view(1, 1, -1).repeat(z.size(0), 1, 1), z]
        return torch.cat(rows, dim=1) + self.position


class WithDropout(ByExpand):
    join = staticmethod(embed_in_two_parts)

    def __init__(self, *args):
        super().__init__(*args)
        self.drop = nn.Dropout(0.1)

    def forward(self, images):
        return self.drop(super().forward(images))


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


def sincos_by_broadcasting(grid, dim):
    quarter = dim // 4
    f = torch.exp(-math.log(10_000) * torch.arange(quarter) / (quarter - 1))
    x = (torch.arange(grid[1])[:, None] * f).expand(grid[0], grid[1], quarter)
    y = (torch.arange(grid[0])[:, None, None] * f).expand(grid[0], grid[1], quarter)
    return rearrange([x.sin(), x.cos(), y.sin(), y.cos()], "part r c q -> 1 (r c) (part q)")


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


def resize_by_matrix(position, old_grid, new_grid):
    """Interpolation is linear: one matrix (new N, old N) says what each new patch takes from each old one."""
    N = old_grid[0] * old_grid[1]
    matrix = F.interpolate(torch.eye(N).view(N, 1, *old_grid), new_grid, mode="bicubic").view(N, -1).T
    return torch.cat([position[:, :1], (matrix @ position[0, 1:])[None]], dim=1)


def resize_channel_by_channel(position, old_grid, new_grid):
    channels = []
    for d in range(position.shape[2]):
        one = position[0, 1:, d].view(1, 1, *old_grid)
        one = F.interpolate(one, size=new_grid, mode="bicubic").flatten()
        channels.append(torch.cat([position[0, :1, d], one]))
    return torch.stack(channels, dim=1)[None]


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


def stretch_by_lerp(grid, size):
    for axis in (0, 1):
        places = torch.linspace(0, grid.shape[0] - 1, size[axis])
        low = places.floor().long()
        high = (low + 1).clamp(max=grid.shape[0] - 1)
        grid = torch.lerp(grid[low], grid[high], (places - low)[:, None, None]).transpose(0, 1)
    return grid


def stretch_by_torch(grid, size):
    maps = F.interpolate(grid.permute(2, 0, 1)[None], size=size, mode="bilinear", align_corners=True)
    return maps[0].permute(1, 2, 0)


SOLUTIONS = {
    "embedding_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"z0": torch.tensor([[11.0, 11], [21, 22], [33, 30]]), "tokens": np.int64(141)},
        lambda: NUMBERS | {"z0": [(11, 11), (21, 22), (33, 30)], "stretched": np.linspace(0, 6, 4), "token": 24.0},
    ),
    "embed_tokens": (embed_by_expand, embed_by_einops, embed_by_loops, embed_in_two_parts, embed_by_padding),
    "embeddings": (ByExpand, WithPlainShapes, WithDropout),
    "sincos_positions": (sincos_by_loops, sincos_by_outer, sincos_by_broadcasting),
    "resize_positions": (resize_by_reshape, resize_by_einops, resize_by_matrix, resize_channel_by_channel),
    "stretch": (stretch_by_loops, stretch_by_tents, stretch_by_lerp, stretch_by_torch),
}
