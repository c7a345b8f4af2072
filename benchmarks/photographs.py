"""The shipped models of photographs: a masked autoencoder that paints, and the plain ViT that begins with its encoder.

``python benchmarks/photographs.py mae --data cifar10-jpeg --out runs/photographs``, then ``vit``, which begins with the
autoencoder's encoder. A state is kept after every epoch, and the same command goes on from it. 5,000 training images
are held out, the same in both runs: every choice looks at those. ``test`` looks at the test split, once, when both are
done.

The ViT sees half of the patches of each image, other ones each time, until its last epochs: a step costs half as much.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.transforms import v2

import vit_tutorial as vt
from vit_tutorial.data.augment import Crop, Flip
from vit_tutorial.train.loop import parameter_groups, schedule, set_rate
from vit_tutorial.variants.selfsup import MaskedAutoencoder

CONFIG = vt.ViTConfig(
    image_size=32, patch_size=4, num_classes=10, dim=160, depth=6, num_heads=5, mlp_dim=320, drop_path=0.05
)
EPOCHS = {"mae": 24, "vit": 60}
WHOLE_EPOCHS = 12  # the ViT's last ones, with all patches
KEPT = 32  # of 64 patches, before
VALIDATION = 5_000  # images of the training split
BATCH = 256
SMOOTHING = 0.1
CLIP = 1.0
PLAIN_EPOCHS = 3  # the last ones, without mixing: the model ends on photographs as they are


def read(folder: str) -> dict[str, Tensor]:
    """The pictures as bytes and their labels, the validation split apart, kept beside the folder for the next run."""
    kept = Path(folder).with_suffix(".pt")
    if kept.exists():
        return torch.load(kept, weights_only=True)  # type: ignore[no-any-return]
    data = vt.data.load(folder, image_size=32)
    splits = {}
    for name, split in (("train", data.train), ("test", data.test)):
        pairs = [split[i] for i in range(len(split))]  # type: ignore[arg-type]
        splits[f"{name}_images"] = torch.stack([(image * 255).round().byte() for image, _ in pairs])  # (n, 3, 32, 32)
        splits[f"{name}_labels"] = torch.tensor([int(label) for _, label in pairs])
    order = torch.randperm(len(splits["train_labels"]), generator=torch.Generator().manual_seed(0))
    for part in ("images", "labels"):
        every = splits[f"train_{part}"][order]
        splits[f"validation_{part}"], splits[f"train_{part}"] = every[:VALIDATION], every[VALIDATION:]
    pixels = splits["train_images"].float() / 255
    splits["mean"], splits["std"] = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    torch.save(splits, kept)
    return splits


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
        with self.table.open("w", newline="") as file:
            writer = csv.DictWriter(file, row.keys())
            writer.writeheader()
            writer.writerows(self.rows)
        print(*(f"{key} {value:.4g}" for key, value in row.items()), flush=True)


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
        CONFIG, share=0.75, decoder_dim=80, decoder_depth=2, normalise_patches=False, mean=mean, std=std
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
    for epoch in range(len(run.rows), EPOCHS["mae"]):
        start, total = clock(), 0.0
        torch.manual_seed(1000 + epoch)
        model.train()
        for number, places in enumerate(steps := batches(len(images), epoch)):
            share = share_of_rate(epoch, number, len(steps), EPOCHS["mae"])
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


def change(images: Tensor, labels: Tensor, mix: v2.Transform | None) -> tuple[Tensor, Tensor]:
    """Bytes -> mixed photographs in [0, 1], cropped, mirrored, brighter or darker, and labels (B, K)."""
    pixels = Flip()(Crop((4, 4))(images.float() / 255))
    scale = 1 + 0.2 * (2 * torch.rand(len(pixels), 3, 1, 1, 1) - 1)  # contrast, brightness, colour of each image
    middle = pixels.mean((1, 2, 3), keepdim=True)
    pixels = (middle * scale[:, 1] + (pixels - middle) * scale[:, 0]).clamp(0, 1)
    grey = pixels.mean(1, keepdim=True)
    pixels = (grey + (pixels - grey) * scale[:, 2]).clamp(0, 1)
    if mix is None:
        return pixels, F.one_hot(labels, 10).float()
    return mix(pixels, labels)  # type: ignore[no-any-return]


def logits_of(model: vt.ViT, images: Tensor, kept: int) -> Tensor:
    """(B, 3, 32, 32) -> (B, K) by the class token and ``kept`` of the 64 patches, other ones in each image."""
    z = model.embed(images)  # (B, 65, D)
    if kept < 64:
        chosen = 1 + torch.rand(len(z), 64).argsort(1)[:, :kept]  # (B, kept)
        patches = z.gather(1, chosen[..., None].expand(-1, -1, CONFIG.dim))  # (B, kept, D)
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


def layers(model: vt.ViT, rate: float, decay: float) -> list[dict[str, Any]]:
    """AdamW's groups with a rate per layer: a block's is ``decay`` times the next one's, as in MAE's fine-tuning."""
    groups = []
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        layer = 0 if parts[0] == "embed" else int(parts[1]) + 1 if parts[0] == "blocks" else CONFIG.depth + 1
        kernel = name.endswith("weight") and parameter.ndim > 1
        share = decay ** (CONFIG.depth + 1 - layer)
        groups.append({"params": [parameter], "share": share, "weight_decay": 0.05 if kernel else 0.0})
    return groups


def train_vit(data: dict[str, Tensor], out: Path, rate: float = 1.5e-3, decay: float = 0.9) -> None:
    """From the autoencoder's encoder: AdamW, a cosine, CutMix or MixUp, label smoothing, averaged weights."""
    torch.manual_seed(0)
    model = vt.ViT(CONFIG)
    encoder = autoencoder(data)
    encoder.load_state_dict(torch.load(out / "mae.pt", weights_only=True)["model"])
    model.load_state_dict(encoder.encoder.state_dict(), strict=False)
    optimizer = torch.optim.AdamW(layers(model, rate, decay), lr=rate, fused=True)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9985))  # type: ignore[no-untyped-call]
    run = Steps(out, "vit", {"model": model, "average": average, "optimizer": optimizer})
    mixing = v2.RandomChoice([v2.CutMix(alpha=1.0, num_classes=10), v2.MixUp(alpha=0.4, num_classes=10)], p=[0.7, 0.3])
    mean, std = data["mean"].reshape(-1, 1, 1), data["std"].reshape(-1, 1, 1)
    images, labels = data["train_images"], data["train_labels"]
    for epoch in range(len(run.rows), EPOCHS["vit"]):
        start, total = clock(), 0.0
        torch.manual_seed(2000 + epoch)
        model.train()
        mix = None if epoch >= EPOCHS["vit"] - PLAIN_EPOCHS else mixing
        kept = 64 if epoch >= EPOCHS["vit"] - WHOLE_EPOCHS else KEPT
        for number, places in enumerate(steps := batches(len(images), epoch)):
            share = share_of_rate(epoch, number, len(steps), EPOCHS["vit"])
            for group in optimizer.param_groups:
                group["lr"] = rate * share * group["share"]
            pixels, targets = change(images[places], labels[places], mix)
            with torch.autocast("cpu", torch.bfloat16):
                logits = logits_of(model, (pixels - mean) / std, kept)
            loss = F.cross_entropy(logits.float(), targets, label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            average.update_parameters(model)
            total += loss.item()
        row = {"epoch": epoch + 1, "loss": total / len(steps)} | since(start)
        validation = accuracy(average.module, data["validation_images"], data["validation_labels"], data)
        run.done(row | {"validation_accuracy": validation})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=["mae", "vit", "test"])
    parser.add_argument("--data", default="cifar10-jpeg", help="a folder with train/ and test/")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = read(args.data)
    if args.run == "mae":
        train_mae(data, args.out)
    elif args.run == "vit":
        train_vit(data, args.out)
    else:
        model = vt.ViT(CONFIG)
        average = AveragedModel(model)
        average.load_state_dict(torch.load(args.out / "vit.pt", weights_only=True)["average"])
        halved = {name: tensor.half().float() for name, tensor in average.module.state_dict().items()}
        model.load_state_dict(halved)  # what ships
        print(f"{accuracy(model, data['test_images'], data['test_labels'], data):.2%} of the test images")


if __name__ == "__main__":
    main()
