"""Notebooks' kernels that start in no time: they fork off a process that has imported torch and IPython already."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

# It computes nothing itself: threads don't live through a fork. Matplotlib's backend is chosen when it is imported.
SERVER = """
import json, os, signal, sys
os.environ["JPY_PARENT_PID"] = str(os.getpid())  # at whose end the kernels end
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
import ipykernel.kernelapp, torch, torchvision.transforms.v2, accelerate
import matplotlib.figure, scipy.stats, sklearn.linear_model
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone
del sys.path[0]
for line in sys.stdin:
    if os.fork() == 0:
        break
else:
    sys.exit()
sys.argv, folder, environment = json.loads(line)
os.setsid()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.write(1, b"%d\\n" % os.getpid())
for number in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), number)
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
ipykernel.kernelapp.launch_new_instance()
"""


class Kernel(psutil.Process):
    """With the rest of what jupyter_client asks of a process that it has started."""

    stdin = stdout = stderr = returncode = None

    def poll(self) -> int | None:
        return None if self.is_running() else 0


@cache
def server() -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def launch(words: Sequence[str], env: dict[str, str] | None = None, cwd: str | None = None, **_: Any) -> Kernel:
    """In place of jupyter_client's ``launch_kernel``: ``words`` is python -m ipykernel_launcher -f FILE."""
    given = [list(words[words.index("-m") + 1 :]), cwd or str(Path.cwd()), dict(os.environ if env is None else env)]
    server().stdin.write(json.dumps(given) + "\n")
    server().stdin.flush()
    return Kernel(int(server().stdout.readline()))
