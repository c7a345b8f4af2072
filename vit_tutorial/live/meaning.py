"""What each row of E, each hidden unit and each head answers to most, found by trying the model on some pictures.

Used by page.py, and shown by meaning.js.
"""

from __future__ import annotations

import base64
import copy
import io
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit_tutorial.data import Data, Preprocessing, normalise
from vit_tutorial.embeddings import Embeddings
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.live.html import base64_of
from vit_tutorial.vit import ViT

SHOWN = 6  # patches of each part, of as many pictures
ACROSS = 20  # pictures side by side in the sheet


@torch.inference_mode()
def strongest(model: ViT, pictures: Tensor, preprocess: Preprocessing | Data | None) -> Tensor:
    """The pictures and patches that each part answers to most: (parts, 6, 2), whole numbers.

    The parts in their order: the D rows of E, by the token's number; then of each block its M hidden units, by their
    value before the activation function, and its h heads, by how much of the class token's
    attention a patch gets (of the mean of all tokens, where there is none). A picture comes once per part, with its
    best patch.

    Args:
        model: it isn't changed.
        pictures: (n, C, H, W) in [0, 1], n of 6 or more.
        preprocess: how a picture is normalised; None: not at all.
    """
    model = copy.deepcopy(model).to("cpu", torch.float32).eval()
    images = pictures if preprocess is None else normalise(pictures, preprocess)
    prefix = model.config.prefix_tokens
    found = [_best(cast(Embeddings, model.embed).patches(images))]
    z = model.embed(images)  # (n, T, D)
    for block in cast("Iterable[EncoderBlock]", model.blocks):
        weights = block.attention_weights(z)  # (n, h, T, T)
        looks = weights[:, :, 0] if prefix else weights.mean(dim=2)  # (n, h, T)
        units = block.mlp.fc1(block.norm2(block.attend(z)))  # (n, T, M)
        z = block(z)
        found += [_best(units[:, prefix:]), _best(looks[:, :, prefix:].transpose(1, 2))]
    return torch.cat(found)


def _best(values: Tensor) -> Tensor:
    """(n, N, parts) -> (parts, 6, 2): the pictures with the largest values, and where in them they are."""
    largest, patches = values.max(dim=1)  # (n, parts)
    pictures = largest.topk(SHOWN, dim=0).indices  # (6, parts)
    return torch.stack([pictures, patches.gather(0, pictures)], dim=-1).transpose(0, 1)


def meaning(model: ViT, pictures: Tensor, preprocess: Preprocessing | Data | None) -> dict[str, Any]:
    """For the page: the pictures as one PNG, and :func:`strongest` of the ones that it names."""
    places = strongest(model, pictures, preprocess)
    used, numbers = np.unique(places[:, :, 0].numpy(), return_inverse=True)
    places = torch.stack([torch.from_numpy(numbers), places[:, :, 1]], dim=-1)  # (parts, 6, 2)
    seen = pictures[torch.from_numpy(used)]  # (n, C, H, W)
    seen = seen if seen.shape[1] == 3 else seen.mean(dim=1, keepdim=True)  # as html.figure shows them
    levels = (255 * seen).round().to(torch.uint8).expand(-1, 3, -1, -1)  # (n, 3, H, W)
    rows = -(-len(levels) // ACROSS)
    sheet = torch.zeros(rows * ACROSS, *levels.shape[1:], dtype=torch.uint8)
    sheet[: len(levels)] = levels
    _, C, H, W = sheet.shape
    sheet = sheet.reshape(rows, ACROSS, C, H, W).permute(0, 3, 1, 4, 2).reshape(rows * H, ACROSS * W, C)
    png = io.BytesIO()
    Image.fromarray(sheet.numpy()).save(png, format="PNG", optimize=True)
    return {
        "sheet": f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}",
        "across": ACROSS,
        "shown": SHOWN,
        "count": len(pictures),
        "places": base64_of(places.numpy().astype(np.uint16)),
    }
