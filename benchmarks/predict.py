"""``python -m vit_tutorial.predict`` beside the plain torchvision script one would write: seconds, and the most memory.

    python benchmarks/predict.py                 500 photographs, ViT-Ti/16 and B/16: about half an hour on two cores
    python benchmarks/predict.py --models Ti/16  five minutes
    python benchmarks/predict.py --only memory   100 photographs and 2,000

The photographs are JPEG files of 1,600 x 1,200 pixels, cut out of the two that come with scikit-learn, in a temporary
folder. Both get the same random weights and write the same CSV, which is compared. Every run is a process of its own,
in turns: its time is all of it, the imports included. Two scripts stand beside ours: a loop, one photograph after the
other, and torch's DataLoader with as many workers as there are cores. The memory is that of the process alone,
without the DataLoader's workers.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torchvision.models import VisionTransformer

import vit_tutorial as vt
from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.weights import assemble, save

SIZE = (1600, 1200)  # width, height
FEW, MOST = 100, 2000  # photographs
MODELS = {
    "Ti/16": {"num_layers": 12, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768},
    "B/16": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072},
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BEGIN = """
import csv, json, os, sys
from pathlib import Path
import torch
from PIL import Image
from torchvision.models import VisionTransformer
from torchvision.transforms._presets import ImageClassification

folder, weights, out, sizes = *sys.argv[1:4], json.loads(sys.argv[4])
model = VisionTransformer(image_size=224, patch_size=16, **sizes).eval()
model.load_state_dict(torch.load(weights, weights_only=True))
preprocess = ImageClassification(crop_size=224)
paths = sorted(Path(folder).glob("*.jpg"))
"""
LOOP = """
with open(out, "w", newline="") as file, torch.inference_mode():
    rows = csv.writer(file)
    rows.writerow(["file", "class", "probability", "rank"])
    for path in paths:
        with Image.open(path) as picture:
            images = preprocess(picture.convert("RGB"))[None]
        best = model(images).softmax(dim=1)[0].topk(5)
        for rank, (value, k) in enumerate(zip(best.values.tolist(), best.indices.tolist()), start=1):
            rows.writerow([path, f"class {k}", value, rank])
"""
LOADER = """
class Photographs(torch.utils.data.Dataset):
    def __len__(self):
        return len(paths)

    def __getitem__(self, i):
        with Image.open(paths[i]) as picture:
            return str(paths[i]), preprocess(picture.convert("RGB"))

with open(out, "w", newline="") as file, torch.inference_mode():
    rows = csv.writer(file)
    rows.writerow(["file", "class", "probability", "rank"])
    for names, images in torch.utils.data.DataLoader(Photographs(), batch_size=16, num_workers=os.cpu_count()):
        best = model(images).softmax(dim=1).topk(5)
        for name, values, ks in zip(names, best.values.tolist(), best.indices.tolist()):
            for rank, (value, k) in enumerate(zip(values, ks), start=1):
                rows.writerow([name, f"class {k}", value, rank])
"""


LAUNCH = """
import json, os, subprocess, sys, time
start = time.perf_counter()  # a small process starts it: a child's largest memory is at least its parent's
_, status, usage = os.wait4(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL).pid, 0)
unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes, or KiB
print(json.dumps([time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit]))
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Cost(NamedTuple):
    """Of one process."""

    seconds: float
    cpu_seconds: float
    megabytes: float  # the largest resident set


def photographs(folder: Path, count: int) -> None:
    """Different JPEG files: parts of two photographs, enlarged, every second one mirrored."""
    folder.mkdir()
    rng, originals = np.random.default_rng(0), [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for i in range(count):
        original = originals[i % 2]
        width = rng.uniform(0.5, 0.8) * original.width
        height = width * SIZE[1] / SIZE[0]
        left, top = rng.uniform(0, original.width - width), rng.uniform(0, max(original.height - height, 1))
        box = (left, top, left + width, min(top + height, original.height))
        picture = original.resize(SIZE, Image.Resampling.BICUBIC, box=box)
        if i % 4 > 1:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture.save(folder / f"{i:05}.jpg", quality=90)


def weights(folder: Path, sizes: dict[str, int]) -> None:
    """Torchvision's model with random weights, as its own file and as a folder of ours."""
    torch.manual_seed(0)
    model = VisionTransformer(image_size=224, patch_size=16, **sizes)
    torch.nn.init.normal_(model.heads.head.weight, std=0.05)  # torchvision starts from zeros: every class alike
    folder.mkdir()
    torch.save(model.state_dict(), folder / "torchvision.pth")
    config, state, _ = vt.weights.convert(model.state_dict(), "torchvision")
    about = Data("none", None, None, tuple(f"class {k}" for k in range(1000)), (224, 224), 3, MEAN, STD)
    history = [dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 0.0)]
    preprocess = Preprocessing((224, 224), MEAN, STD, crop=224 / 256, interpolation="bilinear")
    save(folder / "ours", assemble(config, state), about, history, preprocess=preprocess)


def cost(command: list[str]) -> Cost:
    """What a fresh process takes. Raises CalledProcessError, with what it said, if it fails."""
    done = subprocess.run([sys.executable, "-c", LAUNCH, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return Cost(*json.loads(done.stdout))


def commands(folder: Path, model: str, pictures: str) -> dict[str, list[str]]:
    """{who: the command that writes FOLDER/WHO.csv}."""
    found = {
        "ours": [
            *(sys.executable, "-m", "vit_tutorial.predict", str(folder / pictures)),
            *("--weights", str(folder / model / "ours"), "--out", str(folder / "ours.csv")),
        ]
    }
    for name, script in (("a loop", BEGIN + LOOP), ("a DataLoader", BEGIN + LOADER)):
        (path := folder / f"{name}.py").write_text(script, "utf-8")
        found[name] = [
            *(sys.executable, str(path), str(folder / pictures), str(folder / model / "torchvision.pth")),
            *(str(folder / f"{name}.csv"), json.dumps(MODELS[model])),
        ]
    return found


def difference(one: Path, other: Path) -> float:
    """The largest between two files' probabilities; infinite if files or classes differ."""
    with one.open() as mine, other.open() as theirs:
        largest = 0.0
        for row, right in zip(csv.DictReader(mine), csv.DictReader(theirs), strict=True):
            if any(row[key] != right[key] for key in ("file", "class", "rank")):
                return float("inf")
            largest = max(largest, abs(float(row["probability"]) - float(right["probability"])))
        return largest


def speed(folder: Path, model: str, rounds: int) -> None:
    """Print what each way costs, and ours beside the others, round by round."""
    ways = commands(folder, model, "many")
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for i in range(rounds):
        order = list(ways) if i % 2 else list(ways)[::-1]
        for name in order:
            costs[name].append(cost(ways[name]))
    print(f"| {model} | seconds | CPU seconds | MB | ours / theirs, seconds | largest difference |")
    print("|---|---|---|---|---|---|")
    for name, runs in costs.items():
        seconds, cpu, megabytes = (statistics.median(column) for column in zip(*runs, strict=True))
        ratios = [ours.seconds / theirs.seconds for ours, theirs in zip(costs["ours"], runs, strict=True)]
        beside = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]" if name != "ours" else ""
        far = f"{difference(folder / 'ours.csv', folder / f'{name}.csv'):.1e}" if name != "ours" else ""
        print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {megabytes:.0f} | {beside} | {far} |")


def memory(folder: Path, model: str) -> None:
    """Print the most memory for few photographs and for many."""
    few, many = (cost(commands(folder, model, pictures)["ours"]).megabytes for pictures in ("few", "most"))
    print(f"{model}, memory: {few:.0f} MB for {FEW} photographs, {many:.0f} MB for {MOST:,}: {many / few:.3f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--only", choices=("speed", "memory"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in args.models:
            (folder / name).parent.mkdir(exist_ok=True)
            weights(folder / name, MODELS[name])
        if args.only != "memory":
            photographs(folder / "many", args.photographs)
            for name in args.models:
                speed(folder, name, args.rounds)
        if args.only != "speed":
            photographs(folder / "few", FEW)
            photographs(folder / "most", MOST)
            memory(folder, args.models[0])


if __name__ == "__main__":
    main()
