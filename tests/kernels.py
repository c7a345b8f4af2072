"""Notebooks' kernels and pytest-xdist's workers, which start in no time: they fork off a process that has imported
torch, IPython and the libraries that tests compare with already.

One serves all processes of a run: the one that starts them starts it, and it ends with that one.
A lesson may forget to import what SERVER loads: that shows only in ``make run`` and with coverage, where kernels start
anew.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

ENVIRONMENT = dict(os.environ)  # as it is before a test changes it

# It computes nothing itself: threads don't live through a fork. What it has imported stays: no look for garbage there.
SERVER = """
import gc, json, os, select, signal, socket, sys
asked = socket.socket(fileno=int(sys.argv[1]))
os.environ["JPY_PARENT_PID"] = str(os.getpid())  # at whose end the kernels end
import tqdm.auto  # before IPython is there: else it would draw a notebook's bars in workers, too
import ipykernel.kernelapp, torch, torchvision.transforms.v2, accelerate
import matplotlib.figure, scipy.ndimage, scipy.stats, sklearn.decomposition, sklearn.linear_model
import timm, transformers.models.dinov3_vit.modeling_dinov3_vit, transformers.models.vit.modeling_vit
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone
del sys.path[0]
gc.freeze()
while sys.stdin not in select.select([asked, sys.stdin], [], [])[0]:
    client, _ = asked.accept()
    line, given, _, _ = socket.recv_fds(client, 2**16, 3)
    while not line.endswith(b"\\n"):
        line += client.recv(2**16)
    if os.fork() == 0:
        break
    for number in [client.fileno(), *given]:
        os.close(number)
    client.detach()
else:
    sys.exit()
words, folder, environment = json.loads(line)
if not given:
    os.setsid()  # before its number is known: a kernel is stopped with its group
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
client.sendall(b"%d" % os.getpid())
asked.close()
for number in range(3):
    os.dup2(given[number] if given else os.open(os.devnull, os.O_RDWR), number)
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
if given:  # a worker: its client waits until both ends of the connection are closed
    for number in given:
        os.close(number)
    sys.argv = ["-c"]
    exec(words[-1], {"__name__": "__main__"})
else:
    client.close()
    sys.argv = words
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
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


def ask(words: Sequence[str], folder: str, environment: dict[str, str], files: Sequence[int] = ()) -> socket.socket:
    """A connection to the server, which forks and answers with a number."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.environ.get(PLACE) or serve())
    line = json.dumps([list(words), folder, environment]).encode() + b"\n"
    sent = socket.send_fds(client, [line], files) if files else 0
    client.sendall(line[sent:])
    return client


def launch(words: Sequence[str], env: dict[str, str] | None = None, cwd: str | None = None, **_: Any) -> Kernel:
    """In place of jupyter_client's ``launch_kernel``: ``words`` is python -m ipykernel_launcher -f FILE."""
    given = words[words.index("-m") + 1 :]
    with ask(given, cwd or str(Path.cwd()), dict(os.environ if env is None else env)) as client:
        number = client.recv(20)
    assert number, "the process that kernels fork off has ended: what it said stands above"
    return Kernel(int(number))


def work() -> None:
    """In place of ``python -u -c CODE``, by which a worker starts: lasts as long as the one that is forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that's for the one that is forked
    with ask(sys.argv[1:], str(Path.cwd()), dict(os.environ), files=[0, 1, 2]) as client:
        os.closerange(0, 3)
        while client.recv(20):
            pass


if __name__ == "__main__":
    work()
