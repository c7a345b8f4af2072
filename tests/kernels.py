"""Notebooks' kernels that start in no time: they fork off a process that has imported torch and IPython already.

One serves all processes of a run: the one that starts them starts it, and it ends with that one.
A lesson may forget to import what SERVER loads: that shows only in ``make run`` and with coverage, where kernels start
anew.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ENVIRONMENT = dict(os.environ)  # as it is before a test changes it

# It computes nothing itself: threads don't live through a fork. Matplotlib's backend is chosen when it is imported.
SERVER = """
import json, os, select, signal, socket, sys
asked = socket.socket(fileno=int(sys.argv[1]))
os.environ["JPY_PARENT_PID"] = str(os.getpid())  # at whose end the kernels end
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
import ipykernel.kernelapp, torch, torchvision.transforms.v2, accelerate
import matplotlib.figure, scipy.stats, sklearn.linear_model
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone
del sys.path[0]
while sys.stdin not in select.select([asked, sys.stdin], [], [])[0]:
    client, _ = asked.accept()
    line = client.makefile().readline()
    if os.fork() == 0:
        break
    client.close()
else:
    sys.exit()
sys.argv, folder, environment = json.loads(line)
os.setsid()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
client.sendall(b"%d" % os.getpid())
client.close()
asked.close()
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


# In the environment: the socket at which the server listens. A copy of the repository has a server of its own.
PLACE = f"VIT_TUTORIAL_KERNELS_{hashlib.sha256(__file__.encode()).hexdigest()[:8]}"
KEPT: list[object] = []  # the server's folder and its stdin, at whose end it ends


def serve() -> str:
    """Start the server, for this process and those that it starts; its socket."""
    folder = tempfile.TemporaryDirectory()
    os.environ[PLACE] = f"{folder.name}/kernels"
    with socket.socket(socket.AF_UNIX) as asked:
        asked.bind(os.environ[PLACE])
        asked.listen()
        number, pipe = asked.fileno(), subprocess.PIPE
        words = [sys.executable, "-c", SERVER, str(number)]
        KEPT.extend([folder, subprocess.Popen(words, env=ENVIRONMENT, stdin=pipe, pass_fds=[number])])
    return os.environ[PLACE]


def launch(words: Sequence[str], env: dict[str, str] | None = None, cwd: str | None = None, **_: Any) -> Kernel:
    """In place of jupyter_client's ``launch_kernel``: ``words`` is python -m ipykernel_launcher -f FILE."""
    given = [list(words[words.index("-m") + 1 :]), cwd or str(Path.cwd()), dict(os.environ if env is None else env)]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.environ.get(PLACE) or serve())
        client.sendall(json.dumps(given).encode() + b"\n")
        number = client.recv(20)
    assert number, "the process that kernels fork off has ended: what it said stands above"
    return Kernel(int(number))
