"""Lesson 19: a real ViT-S/14 on seven real photographs with fewer tokens: how much of what it sees is left.

    python benchmarks/fewer_tokens_real.py    five CPU minutes

It writes fewer_tokens_real.csv, and fewer_tokens_real.npz for the lesson's pictures.

The model and photographs are those of ``real_features.py``; nothing is trained. After each block's attention r of the
1,370 tokens go: "merge similar" (ToMe) and "merge neighbours" (the same places in all photographs, so that those that
stay lie evenly; each of the others merges into the nearest that stays). Three rivals have fewer tokens from the start:
"drop evenly" keeps the same places in all photographs, "drop random" any (three draws), a "smaller picture" all. From
the start, since it costs as much as dropping r per block, and more is left; between the tokens that are there, the
others are blended linearly.

"colours" is how much of the variance of the first three principal components is left (of the photograph's 1,369
tokens; 1: all). "mask" is the intersection over union of the main object, in percent: a ridge regression on the tokens
of the other six photographs, all tokens there, names the patches. "operations" are counted, as shares of all tokens'.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import fewer_tokens
import numpy as np
import real_features
import torch
from result_table import ResultTable
from scipy.interpolate import griddata
from torch import Tensor
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.data.real_features import GRID
from vit_tutorial.variants import tokens
from vit_tutorial.variants.tokens import FewerTokens

COLUMNS = ["photograph", "way", "r", "tokens", "operations", "colours", "mask"]
RESULTS = ResultTable(Path(__file__).with_suffix(".csv"), COLUMNS)
PER_BLOCK = (19, 38, 57, 76, 95, 104)  # r
SIDES = (34, 31, 29, 28, 24, 20, 16)  # of the smaller picture, in patches; as many are kept where others go
SHOWN = ("cat", "hopper")  # photographs of the slider
PAINTED = ("all tokens", "merge similar", "drop evenly", "smaller picture")
SIDE = GRID[0]
PLACES = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE)).float()  # (N, 2), row and column of each patch
# An order of the places in which any first few are spread evenly.
EVENLY = fewer_tokens.spread(64).view(64, 64)[:SIDE, :SIDE].flatten().argsort().argsort().float()


def merge_neighbours(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    """The same places in all photographs: the last r of EVENLY's order that are left merge into their neighbours."""
    left = (EVENLY < k.shape[2] - protected).nonzero()[:, 0]  # (n,), the places of the patches that are left
    stays = EVENLY[left] < len(left) - r  # (n,)
    distance = torch.cdist(PLACES[left], PLACES[left])  # (n, n)
    distance[:, ~stays] = torch.inf
    place = stays.cumsum(dim=0) - 1  # (n,), of each patch that stays
    destination = place[distance.argmin(dim=1)] + protected  # its own place, or the nearest one's
    return torch.cat([torch.arange(protected), destination]).expand(len(k), -1)


WAYS = {
    "merge similar": tokens.merge_similar,
    "merge neighbours": merge_neighbours,
}
RANDOM = [torch.randperm(SIDE * SIDE, generator=torch.Generator().manual_seed(draw)) for draw in range(3)]
ORDERS = [("drop evenly", EVENLY), *(("drop random", order) for order in RANDOM)]  # the first of each order are kept


@torch.inference_mode()
def with_fewer(model: vt.ViT, image: Tensor, way: str, r: int) -> tuple[Tensor, Tensor]:
    """Each patch's token (N, D) after the last norm, and the number of that token (N,)."""
    encoded = FewerTokens(model, r, WAYS[way]).encode(image)
    owner = encoded.sources[-1][0, 1:]  # (N,)
    return model.norm(encoded.tokens)[0, owner], owner


@torch.inference_mode()
def of_kept(model: vt.ViT, image: Tensor, kept: Tensor) -> Tensor:
    """Each patch's token (N, D), from the patches at the places ``kept`` (n,) alone."""
    z = model.embed(image)  # (1, T, D)
    z = torch.cat([z[:, :1], z[:, 1 + kept]], dim=1)  # (1, 1 + n, D)
    for block in model.blocks:
        z = block(z)
    return blended(model.norm(z)[0, 1:], PLACES[kept])


def blended(z: Tensor, places: Tensor) -> Tensor:
    """Tokens (N, D) at all places, from those (n, D) at some (n, 2): linear between them, outside the nearest one."""
    linear, nearest = (griddata(places, z, PLACES, method=method) for method in ("linear", "nearest"))
    return torch.from_numpy(np.where(np.isnan(linear), nearest, linear)).float()


@torch.inference_mode()
def of_smaller(state: dict[str, Tensor], config: vt.ViTConfig, photograph: Tensor, side: int) -> Tensor:
    """Each patch's token (N, D), from a picture of side x side patches."""
    small = vt.ViT(replace(config, image_size=14 * side)).eval()
    position = vt.resize_position_embedding(state["embed.position"], GRID, (side, side))
    small.load_state_dict(state | {"embed.position": position})
    image = F.interpolate(photograph, size=14 * side, mode="bicubic", antialias=True)
    z = small.features(image)[:, 1:].transpose(1, 2).unflatten(2, (side, side))  # (1, D, side, side)
    return F.interpolate(z, size=GRID, mode="bilinear")[0].flatten(1).T


def first_three(z: Tensor) -> tuple[Tensor, Tensor]:
    """Of tokens (N, D): their mean, and their first three principal directions (D, 3)."""
    return z.mean(dim=0), torch.linalg.svd((z - z.mean(dim=0)).double(), full_matrices=False)[2][:3].T.float()


def colours_left(full: Tensor, z: Tensor) -> float:
    """The share of the variance of the first three components that is left."""
    centre, directions = first_three(full)
    expected, actual = (full - centre) @ directions, (z - centre) @ directions  # (N, 3)
    return 1 - ((expected - actual).square().sum() / expected.square().sum()).item()


def ridge(z: Tensor, mask: Tensor, strength: float = 1000.0) -> Tensor:
    """Weights (D + 1,) that tell the object's tokens (1) from the others (-1)."""
    x = torch.cat([z, torch.ones(len(z), 1)], dim=1).double()
    y = 2 * mask.double() - 1
    return torch.linalg.solve(x.T @ x + strength * torch.eye(x.shape[1]), x.T @ y).float()


def overlap(z: Tensor, weights: Tensor, mask: Tensor) -> float:
    """Intersection over union, in percent."""
    actual = z @ weights[:-1] + weights[-1] > 0
    return 100 * ((actual & mask).sum() / (actual | mask).sum()).item()


def operations(config: vt.ViTConfig, way: str, r: int) -> int:
    """Multiply-accumulates; only ToMe compares keys."""
    macs = tokens.count_macs(config, r)
    if way == "merge similar":
        return macs
    before = tokens.tokens_left(config.num_tokens, r, config.depth)[:-1]
    return macs - sum((T + 1) // 2 * (T // 2) * config.dim // config.num_heads for T in before)


def painted(full: Tensor, z: Tensor) -> Tensor:
    """Tokens z (N, D) in the colours of ``full``, (rows, columns, 3) in 8 bits."""
    centre, directions = first_three(full)
    expected, actual = (full - centre) @ directions, (z - centre) @ directions  # (N, 3)
    low, high = expected.quantile(0.01, dim=0), expected.quantile(0.99, dim=0)
    return (255 * ((actual - low) / (high - low)).clamp(0, 1)).round().to(torch.uint8).unflatten(0, GRID)


def main() -> None:
    torch.set_num_threads(1)
    RESULTS.path.unlink(missing_ok=True)
    published, preprocess = real_features.load_model(real_features.onnx_file())
    model = real_features.plain(published)
    config, state = model.config, model.state_dict()
    images = {name: real_features.normalised(name, preprocess) for name in real_features.SOURCES}
    with torch.inference_mode():
        full = {name: model.features(image)[0, 1:] for name, image in images.items()}
    masks = {name: torch.from_numpy(real_features.mask_of(name)).flatten() for name in images}
    pictures: dict[str, list[Tensor]] = {}
    for name, image in images.items():
        others = [other for other in images if other != name]
        weights = ridge(torch.cat([full[other] for other in others]), torch.cat([masks[other] for other in others]))
        forms = [("all tokens", 0, 1370, vt.count_macs(config), full[name])]
        for r, way in itertools.product(PER_BLOCK, WAYS):
            z, owner = with_fewer(model, image, way, r)
            left = tokens.tokens_left(1370, r, config.depth)[-1]
            forms.append((way, r, left, operations(config, way, r), z))
            if way == "merge similar":
                pictures.setdefault(f"{name} owner", []).append(owner.to(torch.int16).unflatten(0, GRID))
        for side in SIDES:
            macs = vt.count_macs(replace(config, image_size=14 * side))
            forms.append(("smaller picture", 0, side * side + 1, macs, of_smaller(state, config, image, side)))
            for way, order in ORDERS:
                kept = order.argsort()[: side * side]  # (n,)
                forms.append((way, 0, side * side + 1, macs, of_kept(model, image, kept)))
        for way, r, left, macs, z in forms:
            share, colours = macs / vt.count_macs(config), colours_left(full[name], z)
            row = [name, way, r, left, f"{share:.3f}", f"{colours:.4f}", f"{overlap(z, weights, masks[name]):.2f}"]
            RESULTS.add(row)
            if way in PAINTED:
                pictures.setdefault(f"{name} {way}", []).append(painted(full[name], z))
    arrays = {key: torch.stack(parts).numpy() for key, parts in pictures.items() if key.split()[0] in SHOWN}
    np.savez_compressed(RESULTS.path.with_suffix(".npz"), **arrays)


if __name__ == "__main__":
    main()
