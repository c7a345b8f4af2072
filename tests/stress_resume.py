"""Kill training for real, again and again, and ask for the very weights of a run that nobody killed.

``python tests/stress_resume.py FOLDER --kills 40``. Each victim is a child process that runs the command line with
--resume and gets SIGKILL: from outside at a random moment, or from itself, in the middle of a file that it writes.
It prints a line of JSON: how many kills of which kind, how many runs came to their end, how many of them were equal.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import random
import shlex
import signal
import time
import traceback
from pathlib import Path

# Some of these are imported here only so that no child has to: it starts in no time.
import torch
import torch._dynamo  # noqa: F401
import torchvision.transforms.v2  # noqa: F401

import vit_tutorial_cli
from vit_tutorial.train import checkpoints, results

# Everything that draws random numbers or has a memory is switched on.
ARGUMENTS = shlex.split(
    "--data digits --depth 2 --dim 16 --num-heads 2 --mlp-dim 16 --patch-size 4 --drop-path 0.3 "
    "--epochs 8 --batch-size 256 --warmup-epochs 2 --ema 0.9 --augment crop+cutmix --seed 3"
)


def die_while_writing(writes: int, share: float) -> None:
    """Make this process kill itself in its next file but ``writes``, with a ``share`` of the bytes on disk."""
    left, write = [writes], checkpoints.write

    def deadly(path, content):
        if left[0] == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f"{path.name}.1.partial").write_bytes(bytes(content)[: int(share * len(content))])
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        write(path, content)

    checkpoints.write = results.write = deadly


def child(folder: Path, *, resume: bool, death: tuple[int, float] | None = None) -> int:
    """Fork a run; its process number. (The parent has computed nothing yet: OpenMP does not survive a fork.)"""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            if death:
                die_while_writing(*death)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                vit_tutorial_cli.main(["train", *ARGUMENTS, "--out", str(folder), *(["--resume"] if resume else [])])
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def result(folder: Path) -> tuple[bytes, list[dict[str, str]]]:
    """The weights, byte by byte, and the history without the seconds."""
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    return (folder / "model.safetensors").read_bytes(), [
        {name: value for name, value in row.items() if name != "seconds"} for row in rows
    ]


def stress(folder: Path, kills: int, chance: random.Random) -> dict[str, int]:
    """Until ``kills`` runs were killed, and every run then came to its end."""
    start = time.monotonic()
    assert os.waitpid(child(folder / "whole", resume=False), 0)[1] == 0
    seconds, whole = time.monotonic() - start, result(folder / "whole")
    counts = {"from outside": 0, "while writing": 0, "runs": 0, "equal": 0}
    while True:
        done = counts["from outside"] + counts["while writing"]
        out = folder / f"run{counts['runs']}"
        # A run writes 9 states, then its results.
        death = (chance.randrange(5), chance.random()) if done % 2 and done < kills else None
        pid = child(out, resume=True, death=death)
        if death is None and done < kills:
            time.sleep(chance.random() * seconds * 0.8)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            counts["from outside" if death is None else "while writing"] += 1
            continue
        assert os.WEXITSTATUS(status) == 0, f"resuming {out} failed"
        counts["runs"] += 1
        counts["equal"] += result(out) == whole
        if done >= kills:
            return counts


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path, help="an empty one")
    p.add_argument("--kills", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    print(json.dumps(stress(args.folder, args.kills, random.Random(args.seed))))
