"""Answers to the exercises of lesson 02: right ones, written in different ways, and wrong ones with what they hear."""

import math
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
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


def embed_by_loops(x, cls_token, position):
    images = []
    for image in x:
        tokens = [cls_token[0, 0], *image]
        images.append(torch.stack([token + position[0, t] for t, token in enumerate(tokens)]))
    return torch.stack(images)


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


def stretch_by_numpy(grid, size):
    x = grid.numpy().astype("float64")
    for axis in (0, 1):
        places = np.linspace(0, x.shape[axis] - 1, size[axis])
        low = np.floor(places).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        share = (places - low).reshape([-1 if a == axis else 1 for a in range(3)])
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


def embed_by_numpy(x, cls_token, position):
    cls = np.broadcast_to(cls_token.numpy(), (len(x), 1, x.shape[2]))
    return np.concatenate([cls, x.numpy()], axis=1) + position.numpy()


class WithTruncatedNormal(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, dim), std=0.02))


class WithJaxsTruncatedNormal(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        std = 0.02 / 0.87962566
        start = nn.init.trunc_normal_(torch.empty(1, tokens, dim), std=std, a=-2 * std, b=2 * std)
        self.position = nn.Parameter(start)


class FromNumpy(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.from_numpy(np.random.normal(0, 0.02, (1, tokens, dim))).float())


def sincos_by_numpy(grid, dim):
    f = 10_000.0 ** -np.linspace(0, 1, dim // 4)
    y, x = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    x, y = np.outer(x, f), np.outer(y, f)
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)[None]


RIGHT = {
    "embedding_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"z0": torch.tensor([[11.0, 11], [21, 22], [33, 30]]), "tokens": np.int64(141)},
        lambda: NUMBERS | {"z0": [(11, 11), (21, 22), (33, 30)], "stretched": np.linspace(0, 6, 4), "token": 24.0},
    ),
    "embed_tokens": (
        embed_by_expand,
        embed_by_einops,
        embed_by_loops,
        embed_by_numpy,
    ),
    "embeddings": (
        ByExpand,
        WithTruncatedNormal,
        WithJaxsTruncatedNormal,
        FromNumpy,
    ),
    "sincos_positions": (
        sincos_by_loops,
        sincos_by_outer,
        sincos_by_broadcasting,
        sincos_by_numpy,
    ),
    "resize_positions": (
        resize_by_reshape,
        resize_by_einops,
        resize_by_matrix,
        resize_channel_by_channel,
    ),
    "stretch": (stretch_by_loops, stretch_by_tents, stretch_by_lerp, stretch_by_numpy),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def rows(cls_token, x):
    return cls_token.expand(len(x), -1, -1)


def embed_mean_class(x, cls_token, position):
    return torch.cat([x.mean(1, keepdim=True), x], dim=1) + position


def embed_in_place(x, cls_token, position):
    x += position[:, 1:]
    return torch.cat([rows(cls_token + position[:, :1], x), x], dim=1)


def embed_new_class_token(x, cls_token, position):
    return torch.cat([torch.randn(len(x), 1, x.shape[2]), x], dim=1) + position


class Start(ByExpand):
    cls, std = staticmethod(torch.zeros), 0.02

    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(self.cls(1, 1, dim))
        self.position = nn.Parameter(self.draw(1, tokens, dim))

    def draw(self, *shape):
        return self.std * torch.randn(*shape)


def starting(**options):
    """A class that starts in another way: cls(*shape), draw(self, *shape), std."""
    if "cls" in options:
        options["cls"] = staticmethod(options["cls"])
    return type("Embeddings", (Start,), options)


def zero_for_the_class_token(self, *shape):
    start = 0.02 * torch.randn(*shape)
    start[:, :2] = 0
    return start


class Seeded(Start):
    def draw(self, *shape):
        torch.manual_seed(0)
        return super().draw(*shape)


class Buffers(ByExpand):
    def parameters_of(self, tokens, dim):
        self.register_buffer("cls_token", torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, dim))


class PlainTensor(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = 0.02 * torch.randn(1, tokens, dim)


class TurnedTable(ByExpand):
    def parameters_of(self, tokens, dim):
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, dim, tokens))

    def forward(self, images):
        return self.join(self.patches(images), self.cls_token, self.position.mT)


class Cut(ByExpand):
    def forward(self, images):
        return self.join(self.patches(images), self.cls_token.detach(), self.position)


def waves(order="sin x, cos x, sin y, cos y", exponent=None):
    """sincos_positions with another order of the blocks, or other frequencies."""

    def sincos_positions(grid, dim):
        many = dim // 4
        k = torch.arange(many)
        f = 10_000.0 ** -(k / (many - 1) if exponent is None else exponent(k, many))
        n = torch.arange(grid[0] * grid[1])[:, None]
        found = {"x": n % grid[1] * f, "y": n // grid[1] * f}
        parts = [getattr(found[block[-1]], block[:3])() for block in order.split(", ")]
        return torch.cat(parts, dim=1)[None]

    return sincos_positions


def sincos_interleaved(grid, dim):
    parts = sincos_by_outer(grid, dim).chunk(4, dim=-1)
    return torch.stack(parts, dim=-1).flatten(2)


def sincos_integer_division(grid, dim):
    k = torch.arange(dim // 4)
    f = 10_000.0 ** -(k // (dim // 4 - 1))
    x = torch.arange(grid[1]).repeat(grid[0])
    y = torch.arange(grid[0]).repeat_interleave(grid[1])
    x, y = torch.outer(x, f), torch.outer(y, f)
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], -1)[None]


def resize_where_it_grows(position, old_grid, new_grid):
    shrinks = math.prod(new_grid) < math.prod(old_grid)
    return position[:, : 1 + math.prod(new_grid)] if shrinks else resize_by_reshape(position, old_grid, new_grid)


def resize_unless_as_many(position, old_grid, new_grid):
    same = math.prod(new_grid) == math.prod(old_grid)
    return position if same else resize_by_reshape(position, old_grid, new_grid)


def resize_by_two_reshapes(position, old_grid, new_grid):
    maps = position[:, 1:].reshape(1, -1, *old_grid)
    rows = F.interpolate(maps, size=new_grid, mode="bicubic").reshape(1, -1, position.shape[2])
    return torch.cat([position[:, :1], rows], dim=1)


def resize_by_the_package(position, old_grid, new_grid):
    return vt.resize_position_embedding(position, old_grid, new_grid, recipe="huggingface")


def stretch_at(place, weigh=lambda s: s):
    """Stretch by other places place(i, old, new), or other weights."""

    def stretch(grid, size):
        for axis in (0, 1):
            old, new = grid.shape[axis], size[axis]
            p = torch.tensor([float(place(i, old, new)) for i in range(new)]).clamp(0, old - 1)
            low = p.long()
            high = (low + 1).clamp(max=old - 1)
            s = weigh(p - low).reshape(-1, *[1] * (2 - axis))
            grid = (1 - s) * grid.index_select(axis, low) + s * grid.index_select(axis, high)
        return grid

    return stretch


def corners(i, old, new):
    return i * (old - 1) / max(new - 1, 1)


def stretch_by_upsample(grid, size):
    return nn.Upsample(size, mode="bilinear", align_corners=True)(grid.permute(2, 0, 1)[None])[0].permute(1, 2, 0)


def in_a_thread(work):
    def stretch(grid, size):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, grid, size).result()

    return stretch


def stretch_unseen(grid, size):
    sys.setprofile(None)
    return stretch_by_upsample(grid, size)


def stretch_unrecorded(grid, size):
    torch.autograd._disable_profiler_legacy()
    return stretch_by_script(grid, size)


def enlarged(maps: torch.Tensor, size: tuple[int, int], corners: bool):
    return torch._C._nn.upsample_bilinear2d(maps, size, corners)


with warnings.catch_warnings(action="ignore"):
    scripted = torch.jit.script(enlarged)


def stretch_by_script(grid, size):
    return stretch_by(scripted)(grid, size)


UNDER_THE_OVERLOAD = torch.ops.aten.upsample_bilinear2d.default._op


def stretch_by(operator):
    return lambda grid, size: operator(grid.permute(2, 0, 1)[None], size, True)[0].permute(1, 2, 0)


def kept_by_shape(work):
    """What it gave for numbers of a shape is given for others of that shape, too."""
    found = {}

    def keeps(x, *rest):
        return found.setdefault((x.shape, *rest), work(x, *rest))

    return keeps


def stretch_to_the_middle(grid, size):
    tall = grid if size[0] > 1 else middle_row(grid)
    wide = tall if size[1] > 1 else middle_row(tall.transpose(0, 1)).transpose(0, 1)
    return stretch_by_loops(wide, size)


def middle_row(grid):
    rows = len(grid)
    return (grid[(rows - 1) // 2] + grid[rows // 2])[None] / 2


def one_number_a_token(self, *shape):
    return 0.02 * torch.randn(1, shape[1], 1).repeat(1, 1, shape[2])


def only_larger_grids(grid, size, right=stretch_by_loops):
    """Right, unless the new grid has two rows."""
    return right(grid, size) if size[0] != 2 else right(grid, (3, size[1]))[:2]


def by_rows_alone(grid, dim, right=sincos_by_outer):
    """Right for at most five rows."""
    return right(grid, dim) if grid[0] <= 5 else torch.zeros(1, grid[0] * grid[1], dim)


def from_squares_backwards(position, old_grid, new_grid):
    resized = resize_by_reshape(position, old_grid, new_grid)
    return resized.flip(1) if old_grid[0] == old_grid[1] > 1 else resized


def mean_for_one_cell(grid, size):
    return grid.mean((0, 1), keepdim=True) if size == (1, 1) else stretch_by_loops(grid, size)


def channels_last(position, old_grid, new_grid):
    maps = F.interpolate(position[:, 1:].reshape(1, *old_grid, -1), size=new_grid, mode="bicubic")
    return torch.cat([position[:, :1], maps.flatten(2).mT], dim=1)


WRONG = {
    "embedding_numbers": [
        Wrong("positions forgotten", answer(z0=[[1, 1], [1, 2], [3, 0]]), "Write down the class token"),
        Wrong("rows of the table counted", answer(table=141), "One row for each token"),
        Wrong("rows of 14 patches", answer(token=32), "Which number does the patch have"),
        Wrong("one image's gradient", answer(class_gradient=3), "Raise one number"),
        Wrong("numbers repeated", answer(stretched=[0, 0, 6, 6]), "The first number stays"),
        Wrong("no answer", lambda: {"z0": ...}, "there is no answer for 'z0' yet"),
    ],
    "embed_tokens": [
        Wrong("positions forgotten", lambda x, c, p: embed_by_expand(x, c, 0 * p), "What is missing is position"),
        Wrong("positions twice", lambda x, c, p: embed_by_expand(x, c, 2 * p), "position is added once too often"),
        Wrong(
            "positions twice for the patches",
            lambda x, c, p: embed_by_expand(x + p[:, 1:], c, p),
            "All is right at the first index along axis 1",
        ),
        Wrong("row 0 for all", lambda x, c, p: embed_by_expand(x, c, p[:, :1]), "All is right at the first index"),
        Wrong("a class token of zeros", lambda x, c, p: embed_by_expand(x, 0 * c, p), "is at index 0"),
        Wrong(
            "as further tokens",
            lambda x, c, p: torch.cat([embed_by_expand(x, c, p), c.expand(len(x), -1, -1)], 1),
            "too many",
        ),
        Wrong("a mean for the class token", embed_mean_class, "wrong is at index 0, the first along axis 1"),
        Wrong(
            "positions a place too late", lambda x, c, p: embed_by_expand(x, c, p.roll(1, 1)), "What your numbers show"
        ),
        Wrong("in place", embed_in_place, "argument 1 was changed in place"),
        Wrong("a new class token", embed_new_class_token, "Is something random"),
    ],
    "embeddings": [
        Wrong("plain shapes", WithPlainShapes, "cls_token has shape (6,)"),
        Wrong("a class token drawn", starting(cls=torch.randn), "a new class token is numbers that aren't zero"),
        Wrong("positions of zeros", starting(std=0.0), "the start of new positions is all 0"),
        Wrong("uniform positions", starting(draw=lambda self, *shape: 0.02 * torch.rand(*shape)), "not normal"),
        Wrong("zeros for some", starting(draw=zero_for_the_class_token), "another one for some tokens than for others"),
        Wrong("a seed", Seeded, "tied to a seed"),
        Wrong("a buffer", Buffers, "cls_token is no nn.Parameter"),
        Wrong("a plain tensor", PlainTensor, "position is no nn.Parameter"),
        Wrong("a table turned", TurnedTable, "position has shape"),
        Wrong("cut off", Cut, "gradient of cls_token is missing"),
        Wrong("the package's, inherited", type("Mine", (vt.Embeddings,), {}), "derives from it"),
        Wrong("one number a token, which once passed", starting(draw=one_number_a_token), "the same for some"),
    ],
    "sincos_positions": [
        Wrong("y before x", waves("sin y, cos y, sin x, cos x"), "Your four blocks are sin y, cos y, sin x, cos x"),
        Wrong("x alone", waves("sin x, cos x, sin x, cos x"), "Your four blocks are sin x, cos x, sin x, cos x"),
        Wrong("backwards", waves(exponent=lambda k, many: k.flip(0) / (many - 1)), "the frequencies 0.0001, 1"),
        Wrong("whole exponents", sincos_integer_division, "the frequencies 1, 1, 1, 0.0001"),
        Wrong("channel by channel", sincos_interleaved, "they go frequency by frequency"),
        Wrong("no axis of images", lambda grid, dim: sincos_by_outer(grid, dim)[0], "has shape"),
        Wrong("the package's own", lambda grid, dim: vt.sincos_position_embedding(grid, dim), "the package's own"),
        Wrong("right for few rows, which once passed", by_rows_alone, "grid=(7, 7), dim=32"),
    ],
    "resize_positions": [
        Wrong("unless as many", resize_unless_as_many),
        Wrong(
            "maps by reshape, there and back", resize_by_two_reshapes, "All is right at the first index along axis 1"
        ),
        Wrong("where it grows alone", resize_where_it_grows, "What your numbers show"),
        Wrong("channels last", channels_last, "Sizes of tensors must match"),
        Wrong("the package's own", resize_by_the_package, "the package's own resize_position_embedding"),
        Wrong("squares backwards, which once passed", from_squares_backwards, "(3, 3) -> (5, 5)"),
    ],
    "stretch": [
        Wrong("torch's", stretch_by_upsample, "it calls torch's interpolate"),
        Wrong("torch's operator", stretch_by(torch._C._nn.upsample_bilinear2d), "it calls upsample_bilinear2d"),
        Wrong("torch's in a thread", in_a_thread(stretch_by_upsample), "it calls torch's interpolate"),
        Wrong("torch's unseen", stretch_unseen, "it calls setprofile"),
        Wrong("torch's unrecorded", stretch_unrecorded, "it calls _disable_profiler_legacy"),
        Wrong("once passed: a script", stretch_by_script, "it calls upsample_bilinear2d"),
        Wrong("once passed: what an overload calls", stretch_by(UNDER_THE_OVERLOAD), "it calls upsample_bilinear2d"),
        Wrong("a script in a thread", in_a_thread(stretch_by_script), "it calls upsample_bilinear2d"),
        Wrong("its overload", stretch_by(torch.ops.aten.upsample_bilinear2d.default), "it calls upsample_bilinear2d"),
        Wrong("the middle where one is left", stretch_to_the_middle),
        Wrong("the cell before", stretch_at(corners, weigh=torch.zeros_like)),
        Wrong("a division by 0", stretch_at(lambda i, old, new: i * (old - 1) / (new - 1)), "raised ZeroDivisionError"),
        Wrong("rounded", lambda g, s: stretch_by_tents(g, s).round(), "the rounding of the right one"),
        Wrong("kept by shape", kept_by_shape(stretch_by_loops), "is something of the first call kept"),
        # These once passed.
        Wrong("two rows", only_larger_grids, "grid (4, 3, 2) -> (2, 6)"),
        Wrong("a mean for one cell", mean_for_one_cell, "grid (4, 3, 2) -> (1, 1)"),
    ],
}
