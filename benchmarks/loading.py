"""Loading ViT-B/16 from a .safetensors file beside timm: seconds, and the most memory.

    python benchmarks/loading.py                 in about two minutes on two cores
    python benchmarks/loading.py --rounds 5      quicker, and noisier

One file of 346 MB with timm's names, already in the system's file cache, is read in turns by ``vt.load`` and by timm,
as users do it: a model is built and filled. Ours maps the file and reads a page when it is used, so the time to the
first answer is compared too. Then both fill a model that exists already. Memory is the most by which a fresh process's
resident set grows while it loads, mapped pages of the file included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import timm
import timm.models
import torch
from safetensors.torch import save_file
from speed import Run, interleaved, peers, table

import vit_tutorial as vt

NAME = "vit_base_patch16_224"
WAYS = {  # what a fresh process runs, with the file's path as PATH
    "ours": "model = vt.load(PATH).model",
    "timm": f"model = timm.create_model({NAME!r}, pretrained=True, pretrained_cfg_overlay={{'file': PATH}}).eval()",
}
PEAK = """
import json, sys
from pathlib import Path
import timm, torch
import vit_tutorial as vt

def resident(kind):
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(kind))

PATH, images = sys.argv[1], torch.rand(1, 3, 224, 224)
vt.load("digits"), timm.create_model("vit_tiny_patch16_224")  # what is imported late, and each library's caches
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the high-water mark starts anew
{way}
loaded = resident("VmHWM") - before
with torch.inference_mode():
    model(images)
print(json.dumps([loaded, resident("VmHWM") - before]))
"""


def ours(path: str) -> torch.nn.Module:
    return vt.load(path).model


def timms(path: str) -> torch.nn.Module:
    return timm.create_model(NAME, pretrained=True, pretrained_cfg_overlay={"file": path}).eval()


def fill(model: vt.ViT, path: str) -> None:
    model.load_state_dict(vt.weights.convert(vt.weights.read(path)).state_dict)


def seconds(path: str, rounds: int) -> None:
    images = torch.rand(1, 3, 224, 224)
    cases: dict[str, dict[str, Run]] = {
        "Built and filled": {"ours": partial(ours, path), "timm": partial(timms, path)},
        "Built and filled, and one image answered": {
            "ours": lambda: ours(path)(images),
            "timm": lambda: timms(path)(images),
        },
        "A model that exists, filled": {
            "ours": partial(fill, vt.ViT(vt.ViTConfig.preset("B/16")), path),
            "timm": partial(timm.models.load_checkpoint, timm.create_model(NAME), path),
        },
    }
    for title, runs in cases.items():
        with torch.inference_mode():
            times = interleaved(runs, rounds)
        table(f"B/16 from .safetensors. {title}", times)


def memory(path: str) -> None:
    size = Path(path).stat().st_size
    print(f"\nMost memory, of a file of {size / 1e6:.1f} MB\n")
    print("| model | loading, MB | / file | and one image, MB | / file |\n|---|---|---|---|---|")
    for name, way in WAYS.items():
        words = [sys.executable, "-c", PEAK.replace("{way}", way), path]
        done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=True)
        loaded, used = json.loads(done.stdout)
        cells = f"{loaded / 1e6:.1f} | {loaded / size:.2f} | {used / 1e6:.1f} | {used / size:.2f}"
        print(f"| {name} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="times each way of loading is run (20)")
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {rounds} rounds")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps mapped files
        path = str(Path(folder) / "model.safetensors")
        model = peers.randomise(vt.ViT(vt.ViTConfig.preset("B/16")))
        save_file({name: tensor.clone() for name, tensor in vt.weights.to_timm(model).items()}, path)
        seconds(path, rounds)
        if Path("/proc/self/clear_refs").exists():
            memory(path)
        else:
            print("\nMost memory: only Linux counts it from a given moment on.")


if __name__ == "__main__":
    main()
