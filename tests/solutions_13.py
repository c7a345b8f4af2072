"""Answers to the exercises of lesson 13: right ones in different styles, and wrong ones, each with its report."""

import torch
from submissions import Wrong
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


def back_by_loop(visible, hidden, mask_token):
    images = []
    for b in range(len(hidden)):
        left = iter(visible[b])
        images.append(torch.stack([mask_token if gone else next(left) for gone in hidden[b].tolist()]))
    return torch.stack(images)


def back_by_scatter(visible, hidden, mask_token):
    places = (~hidden).nonzero()[:, 1].reshape(len(visible), -1)  # (B, n)
    holes = mask_token.expand(*hidden.shape, -1)
    return holes.scatter(1, places[..., None].expand_as(visible), visible)


def _flat(images, P):
    B, C, H, W = images.shape
    return images.reshape(B, C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)


def loss_by_index(said, images, hidden, patch_size):
    wanted = _flat(images, patch_size)[hidden]
    wanted = (wanted - wanted.mean(-1, keepdim=True)) / torch.sqrt(wanted.var(-1, keepdim=True) + 1e-6)
    losses = said.new_zeros(hidden.shape)
    losses[hidden] = ((said[hidden] - wanted) ** 2).mean(-1)
    return losses, F.mse_loss(said[hidden], wanted)


def loss_by_weights(said, images, hidden, patch_size):
    patches = _flat(images, patch_size)
    var, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    errors = (said - (patches - mean) * (var + 1e-6) ** -0.5).square().mean(dim=-1)  # (B, N)
    return errors * hidden, (errors * hidden).sum() / hidden.sum()


RIGHT = {
    "masking_numbers": (lambda: NUMBERS,),
    "colour_classes": (classes_by_pooling, classes_by_loop),
    "spoil": (spoil_by_loop, spoil_by_index),
    "restore": (back_by_loop, back_by_scatter),
    "hidden_loss": (loss_by_index, loss_by_weights),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def spoil(fates=lambda fate: fate, chosen_of=lambda chosen: chosen, places=lambda other: other):
    """The tokens corrupted by other fates, choices or swaps."""

    def work(tokens, chosen, fate, other, mask_token):
        return spoil_by_index(tokens, chosen_of(chosen), fates(fate), places(other), mask_token)

    return work


def back_by_one_argsort(visible, hidden, mask_token):
    order = torch.cat(
        [(~hidden).nonzero()[:, 1].view(len(visible), -1), hidden.nonzero()[:, 1].view(len(visible), -1)], 1
    )
    masks = mask_token.expand(len(visible), hidden.shape[1] - visible.shape[1], -1)
    return torch.cat([visible, masks], 1)[torch.arange(len(visible))[:, None], order]


def loss(
    patches=_flat, divide=lambda p: (p.var(-1, keepdim=True) + 1e-6).sqrt(), end=lambda e, h: (e, e.sum() / h.sum())
):
    """MAE's loss with other patches, another division, or another end."""

    def hidden_loss(said, images, hidden, patch_size):
        wanted = patches(images, patch_size)
        errors = ((said - (wanted - wanted.mean(-1, keepdim=True)) / divide(wanted)) ** 2).mean(-1)
        return end(errors * hidden, hidden)

    return hidden_loss


def mean_of_means(errors, hidden):
    return errors, (errors.sum(1) / hidden.sum(1)).mean()


WRONG = {
    "masking_numbers": [
        Wrong("hidden ones", answers(encoder=13), "A quarter of the patches"),
    ],
    "colour_classes": [
        Wrong("an axis more", changed(classes_by_pooling, lambda x: x[..., None]), "only the shape isn't"),
    ],
    "spoil": [
        Wrong("once passed: larger fates", spoil(lambda fate: fate + 1e-4), "fates of just 0"),
        Wrong("once passed: up to 0.89", spoil(lambda fate: torch.where(fate >= 0.89, 0.95, fate)), "fates of just 0"),
    ],
    "restore": [
        Wrong("one argsort", back_by_one_argsort, "in other places"),
    ],
    "hidden_loss": [
        Wrong("once passed: mean of means", loss(end=mean_of_means), "a mean of the images' means"),
    ],
}
