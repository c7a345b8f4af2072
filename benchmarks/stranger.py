"""A stranger's folder, fine-tuned by three commands: this package's, timm's train script, torchvision's reference.

python benchmarks/stranger.py --data FOLDER --timm TRAIN.PY --torchvision TRAIN.PY --out benchmarks/stranger.csv

FOLDER holds classes of CIFAR-10 as JPEG, as in FOLDER/deer/0000.jpg, which the model wasn't trained on. Two of them
become a folder of photographs of many sizes: 122 to train on and 77 to test on of each. The two scripts aren't in their
packages: they are train.py of huggingface/pytorch-image-models, and references/classification/train.py of
pytorch/vision with the files beside it. All three start from vt.load("photographs") and run 15 epochs. What counts is
the accuracy that each reports after its last epoch, the CPU seconds of its process, and what one has to type: options,
and lines of Python that must be written first.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import sheet
from PIL import Image

COLUMNS = ("way", "seed", "right", "of", "cpu_seconds", "options", "lines")
CLASSES, EACH = ("deer", "horse"), 77  # test pictures of each class

TIMM = """
import safetensors.torch
import vit_tutorial as vt
safetensors.torch.save_file(vt.weights.to_timm(vt.load("photographs").model), "photographs.safetensors")
"""

# The reference knows models by their registered names alone. It normalises by ImageNet's mean and standard deviation,
# without an option, so the first layer is changed to expect those. It reports the best five classes, and ends in an
# error if there are fewer: the head has three that no picture belongs to.
TORCHVISION = """
import runpy, sys
import torch, torchvision, torchvision.models._api
import vit_tutorial as vt
@torchvision.models._api.register_model()
def photographs(weights=None, num_classes=10):
    trained = vt.load("photographs")
    model = torchvision.models.VisionTransformer(32, 4, 6, 5, 160, 320, num_classes=max(num_classes, 5))
    tensors = vt.weights.to_torchvision(trained.model)
    ours, theirs = (trained.preprocess.mean, trained.preprocess.std), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    (mean, std), (new_mean, new_std) = (torch.tensor(pair).view(2, 3, 1, 1) for pair in (ours, theirs))
    kernel = tensors["conv_proj.weight"]
    tensors["conv_proj.bias"] = tensors["conv_proj.bias"] + (kernel * (new_mean - mean) / std).sum((1, 2, 3))
    tensors["conv_proj.weight"] = kernel * new_std / std
    model.load_state_dict({name: t for name, t in tensors.items() if not name.startswith("heads.")}, strict=False)
    return model
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

OPTIONS = {
    "ours": "-m vit_tutorial.train --data animals --weights photographs --seed {seed} --out out",
    "timm": "{timm} --data-dir animals --val-split val --device cpu --model vit_tiny_patch16_224 --pretrained "
    "--pretrained-path photographs.safetensors --num-classes 2 --model-kwargs img_size=32 patch_size=4 embed_dim=160 "
    "depth=6 num_heads=5 mlp_ratio=2.0 --img-size 32 --crop-pct 1 --mean 0.491 0.482 0.447 --std 0.245 0.243 0.261 "
    "--interpolation bicubic -b 32 --epochs 15 --warmup-epochs 1 --opt adamw --lr 1e-3 --weight-decay 0.05 "
    "--layer-decay 0.75 --clip-grad 1 --scale 0.6 1 -j 0 --seed {seed} --output . --experiment out",
    "torchvision": "run.py {torchvision} --data-path animals --model photographs --device cpu -j 0 -b 32 --epochs 15 "
    "--opt adamw --lr 3e-4 --wd 0.05 --lr-scheduler cosineannealinglr --lr-warmup-epochs 1 --lr-warmup-method linear "
    "--lr-warmup-decay 0.033 --label-smoothing 0.1 --clip-grad-norm 1 --interpolation bicubic --train-crop-size 32 "
    "--val-resize-size 32 --val-crop-size 32 --output-dir out",
}
LINES = {"ours": "", "timm": TIMM, "torchvision": TORCHVISION}


def folder(source: Path, out: Path) -> None:
    """Pictures of 240 to 500 pixels a side, in train/ and val/."""
    draw = random.Random(0)
    for split, first, last in (("train", 0, 122), ("val", 200, 200 + EACH)):
        for name in CLASSES:
            (out / split / name).mkdir(parents=True)
            for number, file in enumerate(sorted((source / name).iterdir())[first:last]):
                width, height = draw.randint(240, 500), draw.randint(240, 500)
                side = max(width, height)
                left, top = (side - width) // 2, (side - height) // 2
                picture = Image.open(file).resize((side, side), Image.Resampling.BICUBIC)
                picture.crop((left, top, left + width, top + height)).save(out / split / name / f"{number:04}.jpg")


def _last(column: str) -> Callable[[Path, str], float]:
    def of(table: Path, printed: str) -> float:
        return float(list(csv.DictReader(table.open(encoding="utf-8")))[-1][column])

    return of


ACCURACY: dict[str, tuple[str, Callable[[Path, str], float]]] = {  # which file has it; how it is read, as a share
    "ours": ("history.csv", _last("test_accuracy")),
    "timm": ("summary.csv", lambda table, printed: _last("eval_top1")(table, printed) / 100),
    "torchvision": ("", lambda table, printed: float(re.findall(r"Acc@1 ([\d.]+)", printed)[-1]) / 100),
}


def run(way: str, seed: int, scripts: dict[str, Path], source: Path) -> tuple[object, ...]:
    """One row: the folder, what must be written first, and the command, in a new place."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        folder(source, place / "animals")
        (place / "run.py").write_text(LINES[way], encoding="utf-8")
        command = OPTIONS[way].format(seed=seed, **scripts).split()
        if way == "timm":
            subprocess.run([sys.executable, "run.py"], cwd=place, check=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        printed = subprocess.run([sys.executable, *command], cwd=place, check=True, stdout=subprocess.PIPE, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        name, accuracy = ACCURACY[way]
        right = round(accuracy(place / "out" / name, printed.stdout) * EACH * len(CLASSES))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    options = sum(bool(re.match("-[a-z-]", word)) and word != "-m" for word in command)
    return way, seed, right, EACH * len(CLASSES), f"{cpu:.0f}", options, len(LINES[way].split("\n")[1:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--data", "--timm", "--torchvision", "--out"):
        parser.add_argument(option, type=Path, required=True)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    scripts = {name: getattr(arguments, name).resolve() for name in ("timm", "torchvision")}
    done = {(row["way"], row["seed"]) for row in sheet.read(arguments.out)}
    for seed in range(5):
        for way in OPTIONS:
            if (way, str(seed)) not in done:
                sheet.add(arguments.out, COLUMNS, run(way, seed, scripts, arguments.data.resolve()))


if __name__ == "__main__":
    main()
