"""A stranger's folder, fine-tuned in three ways: this package's fit, timm's loop, torchvision's reference loop.

python benchmarks/stranger.py --data FOLDER --out benchmarks/stranger.csv

FOLDER holds classes of CIFAR-10 as JPEG, as in FOLDER/deer/0000.jpg, which the model wasn't trained on. Two of them
become a folder of photographs of many sizes: 122 to train on and 77 to test on of each. All three start from the same
weights, vt.load("photographs"), and see the same pixels in the same number of epochs. timm's script and torchvision's
aren't in their packages, so their loops are written here from their parts, with the settings that their documentation
gives for fine-tuning a ViT. The lines counted are those between the marks, without imports and blank lines.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sheet
import torch
from PIL import Image
from torch import nn

import vit_tutorial as vt

EPOCHS, BATCH = 15, 32
CLASSES = ("deer", "horse")


def folder(source: Path, out: Path) -> None:
    """Pictures of 240 to 500 pixels a side, in train/ and val/."""
    draw = random.Random(0)
    for split, first, last in (("train", 0, 122), ("val", 200, 277)):
        for name in CLASSES:
            (out / split / name).mkdir(parents=True)
            for number, file in enumerate(sorted((source / name).iterdir())[first:last]):
                width, height = draw.randint(240, 500), draw.randint(240, 500)
                side = max(width, height)
                left, top = (side - width) // 2, (side - height) // 2
                picture = Image.open(file).resize((side, side), Image.Resampling.BICUBIC)
                picture.crop((left, top, left + width, top + height)).save(out / split / name / f"{number:04}.jpg")


def ours(path: Path, seed: int) -> nn.Module:
    # begin
    trained = vt.load("photographs", num_classes=2)
    data = vt.data.image_folder(path, preprocess=trained.preprocess)
    recipe = vt.data.FINE_TUNING
    vt.train.fit(trained.model, data, recipe, seed=seed, progress=False)
    return trained.model
    # end


def with_timm(path: Path, seed: int) -> nn.Module:
    import timm
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2

    # begin
    torch.manual_seed(seed)
    model = as_timm()
    loader = timm.data.create_loader(
        timm.data.create_dataset("", root=path, split="train", is_training=True),
        input_size=(3, 32, 32),
        batch_size=BATCH,
        is_training=True,
        scale=(0.6, 1.0),
        interpolation="bicubic",
        mean=MEAN,
        std=STD,
        num_workers=0,
        use_prefetcher=False,
    )
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)
    scheduler, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=EPOCHS, warmup_epochs=1, warmup_lr=1e-5)
    loss_of = LabelSmoothingCrossEntropy(0.1)
    for epoch in range(EPOCHS):
        model.train()
        for images, labels in loader:
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step(epoch + 1)
    # end
    return model


def with_torchvision(path: Path, seed: int) -> nn.Module:
    from torchvision import datasets, transforms
    from torchvision.transforms import InterpolationMode

    # begin
    torch.manual_seed(seed)
    model = as_timm()
    change = transforms.Compose(
        [
            transforms.RandomResizedCrop(32, scale=(0.6, 1.0), interpolation=InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    pictures = datasets.ImageFolder(path / "train", change)
    loader = torch.utils.data.DataLoader(pictures, BATCH, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.033, total_iters=1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS - 1)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[1])
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _ in range(EPOCHS):
        model.train()
        for images, labels in loader:
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
    # end
    return model


START = vt.load("photographs")
MEAN, STD = START.preprocess.mean, START.preprocess.std


def as_timm() -> nn.Module:
    """A ViT of timm's with the weights that all three begin with, and a new head of zeros."""
    import timm

    config = START.model.config
    model = timm.models.VisionTransformer(
        img_size=32,
        patch_size=config.patch_size,
        embed_dim=config.dim,
        depth=config.depth,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_dim / config.dim,
        num_classes=2,
    )
    tensors = vt.weights.to_timm(START.model)
    missing = model.load_state_dict({n: t for n, t in tensors.items() if not n.startswith("head.")}, strict=False)
    assert missing.missing_keys == ["head.weight", "head.bias"]
    nn.init.zeros_(model.head.weight)
    return model


WAYS: dict[str, Callable[..., nn.Module]] = {"ours": ours, "timm": with_timm, "torchvision": with_torchvision}


def lines_of(way: Callable[..., nn.Module]) -> int:
    """Lines between the marks; a call that stands in several lines counts as one."""
    text = inspect.getsource(way).partition("# begin\n")[2].partition("# end")[0]
    return sum(bool(re.match(r" {4}(?: {4})*[^\s)\]}]", line)) for line in text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    done = {(row["way"], row["seed"]) for row in sheet.read(arguments.out)}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "animals"
        folder(arguments.data, path)
        test = vt.data.image_folder(path, preprocess=START.preprocess)
        for seed, (name, way) in itertools.product(range(arguments.seeds), WAYS.items()):
            if (name, str(seed)) in done:
                continue
            start, used = time.perf_counter(), time.process_time()
            model = way(path, seed)
            seconds, cpu = time.perf_counter() - start, time.process_time() - used
            right = round(vt.train.evaluate(model, test)["test_accuracy"] * len(test.test))
            columns = ("way", "seed", "right", "of", "seconds", "cpu_seconds", "lines")
            row = (name, seed, right, len(test.test), f"{seconds:.0f}", f"{cpu:.0f}", lines_of(way))
            sheet.add(arguments.out, columns, row)


if __name__ == "__main__":
    main()
