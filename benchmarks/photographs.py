"""The shipped models of photographs: a masked autoencoder that paints, and the plain ViT that begins with its encoder.

``python benchmarks/photographs.py mae --data cifar10-jpeg --out runs/photographs``, then ``teach``, ``vit``, ``test``.
A state is kept after every epoch, and the same command goes on from it. 5,000 training images are held out, the same
in all runs: every choice looks at those. ``test`` looks at the test split, once, when the others are done.

The ViT learns from the labels and from what the hybrid, ``vt.load("cifar10")``, says of ten augmented
copies (``teach``).
It sees half of the patches of each image, other ones each time, until its last epochs: a step costs half as much.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cifar10 import read_cifar10
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import vit_tutorial as vt
import vit_tutorial.attention
from vit_tutorial.data.augment import Flip
from vit_tutorial.train.loop import parameter_groups, schedule, set_rate
from vit_tutorial.variants.selfsup import MaskedAutoencoder

CONFIG = vt.ViTConfig(
    image_size=32, patch_size=4, num_classes=10, dim=160, depth=6, num_heads=5, mlp_dim=320, drop_path=0.05
)
EPOCHS = 24  # of the autoencoder
HALF_COST, WHOLE_COST = 42, 100  # of a step: the schedule counts work, not steps
PLAIN_EPOCHS = 2  # the last ones, without mixing: the model ends on photographs as they are
COPIES = 10
PADDING = 4
TEACHER = 0.7  # weight of the hybrid's answers beside the labels
BATCH = 256
CLIP = 1.0


@dataclass(frozen=True)
class Recipe:
    """How the ViT learns; the defaults made the one that ships.

    Attributes:
        taught: whether the hybrid's answers count beside the labels.
        muon: whether the blocks' matrices have Muon; else AdamW, as all else.
        matrix_rate: the peak learning rate of the blocks' matrices.
        half_epochs: epochs with half of the patches.
        whole_epochs: epochs with all of them, at the end.
        seed: of the first weights, the batches and the mixing.
    """

    taught: bool = True
    muon: bool = True
    matrix_rate: float = 3e-3
    half_epochs: int = 28
    whole_epochs: int = 5
    seed: int = 0


class Steps:
    """A run's epochs, each with its row in a CSV and its state in a file."""

    def __init__(self, out: Path, name: str, parts: dict[str, Any]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.table, self.file, self.parts = out / f"{name}.csv", out / f"{name}.pt", parts
        self.rows: list[dict[str, float]] = []
        if self.file.exists():
            state = torch.load(self.file, weights_only=True)
            self.rows = state["rows"]
            for key, part in parts.items():
                part.load_state_dict(state[key])

    def done(self, row: dict[str, float]) -> None:
        """Note an epoch and keep the state."""
        self.rows.append(row)
        state = {key: part.state_dict() for key, part in self.parts.items()}
        torch.save(state | {"rows": self.rows}, self.file.with_suffix(".new"))
        self.file.with_suffix(".new").replace(self.file)
        with self.table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row.keys())
            writer.writeheader()
            writer.writerows(self.rows)
        print(*(f"{key} {value:.4g}" for key, value in row.items()), flush=True)


def attend_step_by_step(q: Tensor, k: Tensor, v: Tensor, attn_mask: None, dropout_p: float) -> Tensor:
    """Attention without the fused kernel, whose backward pass in bf16 takes half of a training step on a CPU."""
    return vit_tutorial.attention.dot_product_attention(q, k, v, attn_mask)[0]


def clock() -> dict[str, float]:
    """Both clocks, in seconds: a busy machine changes CPU time least."""
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}


def since(start: dict[str, float]) -> dict[str, float]:
    return {key: value - start[key] for key, value in clock().items()}


def share_of_rate(epoch: int, number: int, steps: int, epochs: int) -> float:
    """Of the peak rate: two epochs of warm-up, then a cosine."""
    return schedule(epoch * steps + number, steps=epochs * steps, warmup=2 * steps)


def batches(count: int, epoch: int) -> list[Tensor]:
    """The places of each batch's images, in an order that hangs on the epoch alone; the last, incomplete one goes."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    return list(order[: count // BATCH * BATCH].split(BATCH))


# ---- The masked autoencoder --------------------------------------------------------------------------------------


def autoencoder(data: dict[str, Tensor]) -> MaskedAutoencoder:
    """The one that ships: its target is the pixels as they are, so that what it paints can be looked at."""
    mean, std = tuple(data["mean"].tolist()), tuple(data["std"].tolist())
    return MaskedAutoencoder(
        CONFIG, mask_ratio=0.75, decoder_dim=80, decoder_depth=2, normalise_patches=False, mean=mean, std=std
    )


@torch.inference_mode()
def painting_error(model: nn.Module, images: Tensor) -> float:
    """The mean squared error of the hidden patches, the same ones hidden each time."""
    model.eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        losses = [model(batch.float() / 255).item() for batch in images.split(500)]
    return sum(losses) / len(losses)


def train_mae(data: dict[str, Tensor], out: Path) -> None:
    """AdamW at 1.5e-3 (0.9, 0.95), a cosine, mirrored images."""
    torch.manual_seed(0)
    model = autoencoder(data)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=1.5e-3, betas=(0.9, 0.95), fused=True)
    run = Steps(out, "mae", {"model": model, "optimizer": optimizer})
    flip, images = Flip(), data["train_images"]
    for epoch in range(len(run.rows), EPOCHS):
        start, total = clock(), 0.0
        torch.manual_seed(1000 + epoch)
        model.train()
        for number, places in enumerate(steps := batches(len(images), epoch)):
            share = share_of_rate(epoch, number, len(steps), EPOCHS)
            set_rate(optimizer, 1.5e-3 * share)
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(flip(images[places].float() / 255))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            total += loss.item()
        row = {"epoch": epoch + 1, "loss": total / len(steps)} | since(start)
        run.done(row | {"validation_error": painting_error(model, data["validation_images"])})


# ---- The plain ViT -----------------------------------------------------------------------------------------------


class Copies:
    """Ten cropped and mirrored copies of every training image, and what the hybrid says of each."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(500)
        self.corners = torch.randint(2 * PADDING + 1, (COPIES, 2, count), generator=generator)  # (copies, 2, n)
        self.mirrored = torch.rand(COPIES, count, generator=generator) < 0.5  # (copies, n)

    def images(self, copy: int, images: Tensor, places: Tensor) -> Tensor:
        """(n, 3, 32, 32) bytes -> (B, 3, 32, 32) in [0, 1]: reflected at the border, shifted, mirrored."""
        padded = F.pad(images[places].float() / 255, (PADDING,) * 4, mode="reflect")
        top, left = self.corners[copy, :, places]
        rows = (top[:, None] + torch.arange(32))[:, None, :, None]  # (B, 1, 32, 1)
        columns = (left[:, None] + torch.arange(32))[:, None, None, :]  # (B, 1, 1, 32)
        batch = torch.arange(len(places))[:, None, None, None]
        shifted = padded[batch, torch.arange(3)[None, :, None, None], rows, columns]  # (B, 3, 32, 32)
        return torch.where(self.mirrored[copy, places][:, None, None, None], shifted.flip(3), shifted)


@torch.inference_mode()
def teach(data: dict[str, Tensor], out: Path) -> None:
    """Keep the hybrid's probabilities of every copy: (copies, n, 10)."""
    hybrid, _, preprocess = vt.load("cifar10")
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (preprocess.mean, preprocess.std))
    images, answers = data["train_images"], []
    copies = Copies(len(images))
    for copy in range(COPIES):
        with torch.autocast("cpu", torch.bfloat16):
            parts = torch.arange(len(images)).split(500)
            logits = [hybrid((copies.images(copy, images, places) - mean) / std).float() for places in parts]
        answers.append(torch.cat(logits).softmax(1).half())
    torch.save(torch.stack(answers), out / "answers.pt")


def cut_mix(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A rectangle of each image comes from another one, and as large a share of its target (arXiv 1905.04899)."""
    other = torch.randperm(len(images))
    side = int(32 * (1 - torch.rand(()).item()) ** 0.5)
    middle = torch.randint(32, (2,))
    (top, left), (bottom, right) = (middle - side // 2).clamp(0), (middle + side // 2).clamp(max=32)
    images = images.clone()
    images[:, :, top:bottom, left:right] = images[other][:, :, top:bottom, left:right]
    share = 1 - float((bottom - top) * (right - left)) / 32**2
    return images, share * targets + (1 - share) * targets[other]


def logits_of(model: vt.ViT, images: Tensor, kept: int) -> Tensor:
    """(B, 3, 32, 32) -> (B, K) by the class token and ``kept`` of the 64 patches, other ones in each image."""
    z = model.embed(images)  # (B, 65, D)
    if kept < 64:
        places = 1 + torch.rand(len(z), 64).argsort(1)[:, :kept]  # (B, kept)
        patches = z.gather(1, places[..., None].expand(-1, -1, CONFIG.dim))  # (B, kept, D)
        z = torch.cat([z[:, :1], patches], dim=1)  # (B, 1 + kept, D)
    return model.head(model.norm(model.blocks(z))[:, 0])  # type: ignore[no-any-return]


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, data: dict[str, Tensor]) -> float:
    """The share of right answers."""
    model.eval()
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    right = [
        (model((batch.float() / 255 - mean) / std).argmax(1) == truth).sum().item()
        for batch, truth in zip(images.split(500), labels.split(500), strict=True)
    ]
    return sum(right) / len(labels)


def optimizers(model: vt.ViT, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (torch.optim.Muon) or AdamW for the blocks' matrices, AdamW for all else."""
    parameters = list(model.named_parameters())
    matrices = [parameter for name, parameter in parameters if name.startswith("blocks") and parameter.ndim == 2]
    others = [parameter for name, parameter in parameters if not (name.startswith("blocks") and parameter.ndim == 2)]
    decayed = [parameter for parameter in others if parameter.ndim > 1]
    plain = [parameter for parameter in others if parameter.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    rest = torch.optim.AdamW(groups, lr=1.5e-3, betas=(0.9, 0.99), fused=True)
    rate = recipe.matrix_rate
    if recipe.muon:
        return [rest, torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")]
    return [rest, torch.optim.AdamW(matrices, lr=rate, betas=(0.9, 0.99), weight_decay=0.05, fused=True)]


def train_vit(
    data: dict[str, Tensor], out: Path, name: str, recipe: Recipe, encoder: dict[str, Tensor] | None
) -> nn.Module:
    """A cosine, CutMix of every second batch, averaged weights, which are returned.

    Args:
        data: of :func:`read_cifar10`.
        out: where ``answers.pt`` lies, if the recipe needs it, and where the run's state and its curve go.
        name: of those files.
        recipe: how it learns.
        encoder: the weights that it begins with; None begins at random ones.
    """
    torch.manual_seed(recipe.seed)
    model = vt.ViT(CONFIG)
    if encoder is not None:
        model.load_state_dict(encoder, strict=False)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.998))  # type: ignore[no-untyped-call]
    steppers = optimizers(model, recipe)
    peaks = [stepper.param_groups[0]["lr"] for stepper in steppers]
    run = Steps(out, name, {"model": model, "average": average, "rest": steppers[0], "matrices": steppers[1]})
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    images, labels = data["train_images"], data["train_labels"]
    copies = Copies(len(images))
    answers = torch.load(out / "answers.pt", weights_only=True) if recipe.taught else None
    epochs, per_epoch = recipe.half_epochs + recipe.whole_epochs, len(images) // BATCH
    work = [HALF_COST] * recipe.half_epochs + [WHOLE_COST] * recipe.whole_epochs
    all_work = sum(work) * per_epoch
    for epoch in range(len(run.rows), epochs):
        start, total = clock(), 0.0
        torch.manual_seed(2000 + epoch + 1000 * recipe.seed)
        model.train()
        for number, places in enumerate(batches(len(images), epoch + 1000 * recipe.seed)):
            done = sum(work[:epoch]) * per_epoch + work[epoch] * number
            share = schedule(done, steps=all_work, warmup=all_work // 25)
            for stepper, peak in zip(steppers, peaks, strict=True):
                set_rate(stepper, peak * share)
            copy = int(torch.randint(COPIES, ()))
            pixels = (copies.images(copy, images, places) - mean) / std
            targets = F.one_hot(labels[places], 10).float()  # (B, 10)
            if answers is not None:
                targets = TEACHER * answers[copy, places].float() + (1 - TEACHER) * targets
            if epoch < epochs - PLAIN_EPOCHS and number % 2:
                pixels, targets = cut_mix(pixels, targets)
            with torch.autocast("cpu", torch.bfloat16):
                logits = logits_of(model, pixels, 32 if epoch < recipe.half_epochs else 64)
            loss = F.cross_entropy(logits.float(), targets)
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for stepper in steppers:
                stepper.step()
            average.update_parameters(model)
            total += loss.item()
        row = {"epoch": epoch + 1, "loss": total / per_epoch} | since(start)
        validation = accuracy(average.module, data["validation_images"], data["validation_labels"], data)
        run.done(row | {"validation_accuracy": validation})
    return average.module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=["mae", "teach", "vit", "test"])
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    vit_tutorial.attention.scaled_dot_product_attention = attend_step_by_step  # type: ignore[assignment]
    data = read_cifar10(args.data)
    if args.run == "mae":
        train_mae(data, args.out)
    elif args.run == "teach":
        teach(data, args.out)
    elif args.run == "vit":
        encoder = autoencoder(data)
        encoder.load_state_dict(torch.load(args.out / "mae.pt", weights_only=True)["model"])
        train_vit(data, args.out, "vit", Recipe(), encoder.encoder.state_dict())
    else:
        model = vt.ViT(CONFIG)
        average = AveragedModel(model)
        average.load_state_dict(torch.load(args.out / "vit.pt", weights_only=True)["average"])
        halved = {name: tensor.half().float() for name, tensor in average.module.state_dict().items()}
        model.load_state_dict(halved)  # what ships
        print(f"{accuracy(model, data['test_images'], data['test_labels'], data):.2%} of the test images")


if __name__ == "__main__":
    main()
