"""Notebooks' kernels that start in no time: they fork off a process that has imported torch and IPython already.

A lesson may forget to import what SERVER loads: that shows only in ``make run`` and with coverage, where kernels start
anew.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ENVIRONMENT = dict(os.environ)  # as it is before a test changes it

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
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SERVER], env=ENVIRONMENT, text=True, **pipes)


def launch(words: Sequence[str], env: dict[str, str] | None = None, cwd: str | None = None, **_: Any) -> Kernel:
    """In place of jupyter_client's ``launch_kernel``: ``words`` is python -m ipykernel_launcher -f FILE."""
    given = [list(words[words.index("-m") + 1 :]), cwd or str(Path.cwd()), dict(os.environ if env is None else env)]
    server().stdin.write(json.dumps(given) + "\n")
    server().stdin.flush()
    number = server().stdout.readline()
    assert number, "the process that kernels fork off has ended: what it said stands above"
    return Kernel(int(number))
