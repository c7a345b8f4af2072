"""What a model's head reads of photographs, for other programs: a row of numbers each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.data.files import atomic_file
from vit_tutorial.data.text import counted, first_of
from vit_tutorial.predict.photos import read
from vit_tutorial.predict.probabilities import best_device, map_batches
from vit_tutorial.weights import LoadedModel


def write_features(out: Path, trained: LoadedModel, files: Sequence[str], batch_size: int) -> None:
    """Write "files" (n,) and "features" (n, D) of the n photographs that can be read into the .npz file ``out``.

    Args:
        out: the file.
        trained: a model without a head, as ``vt.load(name, num_classes=0)`` gives it.
        files: the photographs.
        batch_size: how many the model gets at a time.

    Raises:
        ValueError: no photograph can be read.
    """
    model, device = trained.model.to(best_device()), best_device()
    names: list[str] = []
    rows: list[Tensor] = []
    skipped: list[str] = []

    @torch.inference_mode()
    def features_of(images: Tensor) -> Tensor:
        return model(images.to(device)).cpu()  # (B, D)

    with closing(read(files, trained.preprocess, ahead=2 * batch_size)) as images:
        for answer in tqdm(map_batches(images, batch_size, features_of), total=len(files), unit=" photographs"):
            if isinstance(answer, ValueError):
                skipped.append(str(answer))
                continue
            file, _, row = answer
            names.append(file)
            rows.append(row)
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    if not rows:
        raise ValueError(f"no photograph can be read: {first_of(skipped)}")
    with atomic_file(out) as target:
        np.savez(target, files=np.array(names), features=torch.stack(rows).numpy())
    print(f"{counted(len(rows), 'photograph')}, {len(rows[0])} numbers each: {out}")
