"""CIFAR-10 from scratch in 60 minutes of one CPU core: our recipe, the same around timm's model, and plain Adam.

``python benchmarks/cifar10_recipe.py ours|timm|adam --out runs/cifar10-ours``, one at a time or one a core. The budget
is CPU time, so that a busy machine doesn't count; --resume goes on after a kill. ``--data`` takes CIFAR-10's own files,
or the pictures in folders. On a GPU, ``python -m vit_tutorial.train --data cifar10`` is the long recipe.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import timm
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import train

SHAPE = {"dim": 96, "depth": 6, "num_heads": 3, "mlp_dim": 192}
EPOCHS, BATCH, RATE = 16, 128, 2e-3  # as many epochs as an hour of one core holds


def ours() -> nn.Module:
    return vt.ViT(vt.ViTConfig(image_size=32, patch_size=4, num_classes=10, **SHAPE))


def timms() -> nn.Module:
    return timm.models.VisionTransformer(
        img_size=32, patch_size=4, num_classes=10, embed_dim=SHAPE["dim"], depth=SHAPE["depth"],
        num_heads=SHAPE["num_heads"], mlp_ratio=SHAPE["mlp_dim"] / SHAPE["dim"],
    )  # fmt: skip


def plain_adam(model: nn.Module, data: vt.data.Data, seconds: float) -> list[dict[str, float]]:
    """``torch.optim.Adam()`` as it comes, nothing else, until the time is up."""
    optimizer, history, begin = torch.optim.Adam(model.parameters()), [], time.process_time()
    while True:
        for rows in torch.randperm(len(data.train)).split(BATCH):
            images, labels = data.train.batch(rows)
            loss = F.cross_entropy(model(train.normalise(images, data)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if time.process_time() - begin > seconds:
                return [*history, {"epoch": len(history) + 1, **train.evaluate(model, data)}]
        history.append({"epoch": len(history) + 1, **train.evaluate(model, data)})
        print(history[-1], round(time.process_time() - begin), "s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", choices=["ours", "timm", "adam"])
    parser.add_argument("--data", default="cifar10", help="cifar10, or a folder with train/ and test/")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--minutes", type=float, default=60, help="of CPU time, for adam")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="for ours and timm")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = vt.data.load(args.data, image_size=32)
    torch.manual_seed(0)
    model = timms() if args.run == "timm" else ours()
    begin = time.process_time()
    if args.run == "adam":
        history = plain_adam(model, data, 60 * args.minutes)
    else:
        history = train.fit(
            model, data, epochs=args.epochs, batch_size=BATCH, learning_rate=RATE, warmup_epochs=1,
            augment="crop+flip", out=args.out, resume=args.resume,
        )  # fmt: skip
    minutes, count = (time.process_time() - begin) / 60, sum(p.numel() for p in model.parameters())
    result = {"run": args.run, "cpu_minutes": round(minutes, 2), "parameters": count, "history": history}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{args.run}: {history[-1]['test_accuracy']:.2%} after {minutes:.1f} minutes of one core, {count:,} parameters"
    )


if __name__ == "__main__":
    main()
