"""Answers to the exercises of lesson 13: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from torch.nn import functional as F

NUMBERS = {
    "level": 5, "class": 168, "mean colour": 512, "small patch": 8192, "pixels": 192, "first loss": 6.238,
    "masked": 400, "unchanged": 550, "encoder": 5, "decoder": 17, "scores": 25,
}  # fmt: skip


def classes_by_pooling(images, patch_size):
    mean = F.avg_pool2d(images, patch_size).clamp(0, 1)  # (B, C, rows, columns)
    red, green, blue = (8 * mean).floor().clamp(max=7).long().unbind(1)
    return (64 * red + 8 * green + blue).flatten(1)


def classes_by_loop(images, patch_size):
    B, _, H, W = images.shape
    rows = []
    for b in range(B):
        row = []
        for r in range(0, H, patch_size):
            for c in range(0, W, patch_size):
                colour = images[b, :, r : r + patch_size, c : c + patch_size].mean(dim=(1, 2)).tolist()
                row.append(sum(min(int(8 * value), 7) * place for value, place in zip(colour, (64, 8, 1), strict=True)))
        rows.append(row)
    return torch.tensor(rows)


def classes_by_numpy(images, patch_size):
    B, C, H, W = images.shape
    P = patch_size
    mean = images.numpy().reshape(B, C, H // P, P, W // P, P).mean(axis=(3, 5))
    levels = np.minimum((mean * 8).astype(int), 7)
    return (levels * np.array([64, 8, 1])[:, None, None]).sum(axis=1).reshape(B, -1)


def classes_in_floats(images, patch_size):
    return classes_by_pooling(images, patch_size).float()


def classes_by_bits(images, patch_size):
    patches = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)  # (B, C, rows, columns, P, P)
    levels = torch.minimum((patches.mean(dim=(4, 5)) * 8).int(), torch.tensor(7))
    return ((levels[:, 0] << 6) | (levels[:, 1] << 3) | levels[:, 2]).flatten(1)


def spoil_by_loop(tokens, chosen, fate, other, mask_token):
    rows = []
    for b in range(tokens.shape[0]):
        for n in range(tokens.shape[1]):
            if chosen[b, n] and fate[b, n] < 0.8:
                rows.append(mask_token)
            elif chosen[b, n] and fate[b, n] < 0.9:
                rows.append(tokens[b, other[b, n]])
            else:
                rows.append(tokens[b, n])
    return torch.stack(rows).reshape(tokens.shape)


def spoil_by_index(tokens, chosen, fate, other, mask_token):
    spoilt = tokens.clone()
    spoilt[chosen & (fate < 0.8)] = mask_token
    b, n = (chosen & (fate >= 0.8) & (fate < 0.9)).nonzero(as_tuple=True)
    spoilt[b, n] = tokens[b, other[b, n]]
    return spoilt


def spoil_by_weights(tokens, chosen, fate, other, mask_token):
    masked = (chosen & (fate < 0.8)).to(tokens.dtype)[..., None]
    swapped = (chosen & (fate >= 0.8) & (fate < 0.9)).to(tokens.dtype)[..., None]
    others = torch.take_along_dim(tokens, other[..., None], dim=1)
    return masked * mask_token + swapped * others + (1 - masked - swapped) * tokens


def back_by_loop(kept, hidden, mask_token):
    images = []
    for b in range(len(hidden)):
        left = iter(kept[b])
        images.append(torch.stack([mask_token if gone else next(left) for gone in hidden[b].tolist()]))
    return torch.stack(images)


def back_by_scatter(kept, hidden, mask_token):
    places = (~hidden).nonzero()[:, 1].reshape(len(kept), -1)  # (B, n)
    holes = mask_token.expand(*hidden.shape, -1)
    return holes.scatter(1, places[..., None].expand_as(kept), kept)


def back_by_gather(kept, hidden, mask_token):
    # which of the kept tokens, or the mask token behind them, belongs to each place
    all_tokens = torch.cat([kept, mask_token.expand(len(kept), 1, -1)], dim=1)
    which = torch.where(hidden, kept.shape[1], (~hidden).long().cumsum(dim=1) - 1)
    return all_tokens.gather(1, which[..., None].expand(-1, -1, kept.shape[2]))


def _flat(images, P):
    B, C, H, W = images.shape
    return images.reshape(B, C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)


def loss_by_index(said, images, hidden, patch_size):
    wanted = _flat(images, patch_size)[hidden]
    wanted = (wanted - wanted.mean(-1, keepdim=True)) / torch.sqrt(wanted.var(-1, keepdim=True) + 1e-6)
    return F.mse_loss(said[hidden], wanted)


def loss_by_weights(said, images, hidden, patch_size):
    patches = _flat(images, patch_size)
    var, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    errors = (said - (patches - mean) * (var + 1e-6) ** -0.5).square().mean(dim=-1)  # (B, N)
    return (errors * hidden).sum() / hidden.sum()


def loss_by_loop(said, images, hidden, patch_size):
    patches, losses = _flat(images, patch_size), []
    for b, n in hidden.nonzero().tolist():
        patch = patches[b, n]
        patch = (patch - patch.mean()) / (patch.var() + 1e-6).sqrt()
        losses.append(((said[b, n] - patch) ** 2).mean())
    return torch.stack(losses).mean()


SOLUTIONS = {
    "masking_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"first loss": math.log(512), "class": torch.tensor(168)},
        lambda: {name: float(value) for name, value in NUMBERS.items()},
    ),
    "colour_classes": (classes_by_pooling, classes_by_loop, classes_by_numpy, classes_by_bits, classes_in_floats),
    "spoil": (spoil_by_loop, spoil_by_index, spoil_by_weights),
    "put_back": (back_by_loop, back_by_scatter, back_by_gather),
    "hidden_loss": (loss_by_index, loss_by_weights, loss_by_loop),
}


def classes_of_the_left_half(images, patch_size):
    half = classes_by_pooling(images, patch_size)
    return half[:, : half.shape[1] // 2]


def classes_of_floats(images, patch_size):
    return classes_by_pooling(images, patch_size) / 2


def spoilt_in_place(tokens, chosen, fate, other, mask_token):
    with torch.no_grad():
        tokens[:] = spoil_by_index(tokens, chosen, fate, other, mask_token)
    return tokens


def spoilt_by_its_own_chance(tokens, chosen, fate, other, mask_token):
    return spoil_by_index(tokens, chosen, torch.rand(fate.shape), other, mask_token)


def back_without_the_last(kept, hidden, mask_token):
    return back_by_loop(kept, hidden, mask_token)[:, :-1]


def loss_cut_off(said, images, hidden, patch_size):
    return loss_by_index(said.detach(), images, hidden, patch_size)


def loss_of_each_image(said, images, hidden, patch_size):
    return torch.stack(
        [loss_by_index(said[b : b + 1], images[b : b + 1], hidden[b : b + 1], patch_size) for b in range(len(said))]
    )


WRONG = {
    "colour_classes": ((classes_of_the_left_half, "has shape"), (classes_of_floats, "")),
    "spoil": ((spoilt_in_place, ""), (spoilt_by_its_own_chance, "")),
    "put_back": ((back_without_the_last, "has shape"),),
    "hidden_loss": ((loss_cut_off, "gradient"), (loss_of_each_image, "shape")),
}
