"""The core alone predicts; where it needs another package, the error names the extra that brings it."""

import subprocess
import sys
from pathlib import Path

import pytest

from vit_tutorial.data.extras import requirement

ROOT = Path(__file__).resolve().parent.parent
# All that the extras bring can't be imported; what torch may bring along can.
BLOCKED = ("accelerate", "matplotlib", "torchvision", "huggingface_hub", "IPython", "sklearn", "torchinfo")
WITHOUT = f"import sys\nsys.modules.update(dict.fromkeys({BLOCKED!r}))\n"  # None there: it can't be imported


def without_extras(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_a_prediction_needs_the_core_alone(tmp_path):
    code = """
import torch, vit_tutorial as vt
print({"PIL", "timm", "vit_tutorial.plots", "vit_tutorial.data"} & set(sys.modules))
vt.load("photographs")
print("torch._dynamo" in sys.modules)  # it takes more than a second to load
from PIL import Image
model, classes, preprocess = vt.load("cifar10")
photo = vt.data.photograph_file("cat")
with torch.inference_mode(), Image.open(photo) as picture:
    print(classes[model(preprocess(picture)).argmax()])
import vit_tutorial_cli
vit_tutorial_cli.main(["predict", str(photo), "--weights", "cifar10", "--out", sys.argv[1]])
print(vt.data.image_folder(sys.argv[2], 8).classes)
"""
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            picture = ROOT / "vit_tutorial" / "data" / "pictures" / "brick.jpg"
            (tmp_path / split / name / "1.jpg").write_bytes(picture.read_bytes())
    out = tmp_path / "answers.csv"
    done = without_extras(code, str(out), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"set()\nFalse\ncat\n1 photograph: {out}\n('a', 'b')\n"
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("package", ["tqdm", "tyro"])
def test_torch_hub_asks_for_what_loading_needs(package):
    code = f"import hubconf, sys\nprint(hubconf.dependencies)\nsys.modules[{package!r}] = None\nhubconf.vit('digits')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode != 0) == (repr(package) in done.stdout), done.stderr


MISSING = {  # code: the package that it asks for, and the extra that brings it
    "vt.train.fit": ("accelerate", "train"),
    "vt.data.cifar10()": ("torchvision", "train"),
    "vt.data.augmentation('mixup', vt.data.digits())": ("torchvision", "train"),
    "from vit_tutorial import plots": ("matplotlib", "plots"),
    "vt.data.photograph()": ("matplotlib", "plots"),
    "vt.load('torchvision/vit_b_16')": ("torchvision", "train"),
    "vt.load('somebody/model')": ("huggingface_hub", "weights"),
}
EACH = """
for code in sys.argv[1:]:
    for name in [name for name in sys.modules if name.startswith("vit_tutorial")]:
        del sys.modules[name]
    try:
        exec(f"import vit_tutorial as vt\\n{code}", {})
    except ModuleNotFoundError as error:
        print(type(error).__name__, error)
"""


def test_a_missing_extra_is_one_sentence():
    done = without_extras(EACH, *MISSING)
    assert done.stderr == ""
    for said, (code, (package, extra)) in zip(done.stdout.splitlines(), MISSING.items(), strict=True):
        assert said == f'ModuleNotFoundError {package} is not installed: pip install -e "{ROOT}[{extra}]"', code


PHOTO = str(ROOT / "vit_tutorial" / "data" / "pictures" / "cat.jpg")
COMMANDS = {  # a command line: the package that it asks for, and the extra that brings it
    ("train", "--out", "x"): ("accelerate", "train"),
    ("live", "--out", "x.html"): ("matplotlib", "plots"),
    ("predict", PHOTO, "--weights", "photographs", "--attention", "x.png"): ("matplotlib", "plots"),
    ("predict", PHOTO, "--weights", "somebody/model"): ("huggingface_hub", "weights"),
}


def test_a_command_says_which_extra_it_needs(tmp_path):
    code = f"""
import contextlib, os, vit_tutorial_cli
os.chdir(sys.argv[1])
for command in {list(COMMANDS)!r}:
    with contextlib.suppress(SystemExit):
        vit_tutorial_cli.main(command)
"""
    done = without_extras(code, str(tmp_path))
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for said, (package, extra) in zip(errors, COMMANDS.values(), strict=True):
        assert said == f'error: {package} is not installed: pip install -e "{ROOT}[{extra}]"'


def test_without_a_clone_the_package_is_installed_by_its_name(tmp_path):
    assert requirement("train", tmp_path) == '"vit-tutorial[train]"'
