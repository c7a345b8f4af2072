"""Run a program on one submission where it can do no harm: in bubblewrap on Linux, else in a container.

The program finds Python with its packages and the package vit_tutorial, all read-only, and an empty folder in memory.
It finds no network, no home folder, no other submission, no gradebook, no solution, none of the teacher's environment.
JSON goes in, JSON comes out. What needs too much time, memory or disk is ended, with all its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import psutil
from messages import Bounds, ChecksMessage, NotebookMessage

TOOLS = Path(__file__).resolve().parent
PACKAGE = TOOLS.parent / "vit_tutorial"
PROGRAMS = ("check_submission.py", "execute_notebook.py", "messages.py")  # nothing else of tools/ is in a sandbox
Kind = Literal["bwrap", "podman", "docker", "none"]
IMAGE = "vit_tutorial-grading"
SCRATCH = "/scratch"
MB = 1_000_000
LEAST_FREE = 300 * MB  # of the machine's memory
MACHINE_FULL = "this machine's memory ran out"  # others may hold it: the submission is tried again by itself


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Args:
        cell_seconds: of a cell.
        check_seconds: of a check.
        total_seconds: of all cells and checks together.
        memory: bytes of all its processes together.
        processes: at a time, threads included.
        disk: bytes of each of its folders.
        answer: bytes of what comes out; read as JSON they need 25 times as much memory.
    """

    cell_seconds: int = 60
    check_seconds: int = 60
    total_seconds: int = 600
    memory: int = 4_000 * MB
    processes: int = 128
    disk: int = 64 * MB
    answer: int = 8 * MB


class GradingError(Exception):
    """Grading can't begin; the message says why, and how to go on."""


class SandboxStopped(Exception):
    """A program that was ended, or ended itself; the message says why."""


def check_kind(kind: Kind) -> None:
    """Raise a GradingError, which says how to go on, if the sandbox isn't there."""
    if kind == "none":
        return
    if not shutil.which(kind):
        raise GradingError(f"Submissions are programs, and run in a sandbox; but {kind} is not installed.\n{WAYS_OUT}")
    if kind == "bwrap":
        trial = subprocess.run([*bwrap(Limits()), "true"], capture_output=True, text=True, timeout=20, env=_path())
        if trial.returncode:
            raise GradingError(f"bubblewrap can't make a sandbox here: {trial.stderr.strip()}\n{WAYS_OUT}")
    elif subprocess.run([kind, "image", "inspect", IMAGE], capture_output=True).returncode:
        raise GradingError(f"There is no image {IMAGE} yet: {kind} build -t {IMAGE} -f tools/grading.Dockerfile .")


WAYS_OUT = """\
  Debian, Ubuntu: apt install bubblewrap, version 0.8 or newer (Fedora: dnf install bubblewrap), then make grade
  macOS, Windows (in WSL), or without it: make grade SANDBOX=docker (or podman), in a container
  make grade SANDBOX=none runs them with your rights: they can read and delete what you can, and use the network.
  Do that only with submissions that you have read, or on a machine that holds nothing."""


# ---- Command lines -----------------------------------------------------------------------------------------------


def environment(root: Path) -> dict[str, str]:
    """All environment variables that a submission finds; ``root`` is the folder that holds the package and tools/."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folders = ("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR", "TORCH_HOME", "XDG_CACHE_HOME")
    return {
        **threads,
        **dict.fromkeys(folders, SCRATCH),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'tools'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def bwrap(limits: Limits) -> list[str]:
    """The beginning of a command line that runs the rest of it in bubblewrap."""
    links = [path for path in SYSTEM if path.is_symlink()]  # /bin is one into /usr on most systems
    bound = [path for path in (*SYSTEM, *_python()) if path.exists() and path not in links]
    bound += [PACKAGE, *(TOOLS / name for name in PROGRAMS)]
    size = str(limits.disk)
    flags: list[tuple[str, ...]] = [
        ("--unshare-all",),  # no network, and no processes, mounts or names but its own
        ("--unshare-user",),  # --unshare-all only tries this one, and the next flag needs it
        ("--disable-userns",),  # no sandbox in the sandbox, in which it would be root
        ("--die-with-parent",),  # nothing goes on when grading is interrupted
        ("--new-session",),  # it can't type into the teacher's terminal
        ("--uid", "1000"),
        ("--gid", "1000"),
        ("--cap-drop", "ALL"),  # also where root grades
        ("--hostname", "sandbox"),
        ("--clearenv",),  # nothing of the teacher's environment
        ("--size", size, "--tmpfs", "/tmp"),  # before what is bound: a course may lie in /tmp
        *[("--symlink", str(path.readlink()), str(path)) for path in links],
        *[("--ro-bind", str(path), str(path)) for path in bound],
        ("--proc", "/proc"),
        ("--dev", "/dev"),
        ("--size", size, "--tmpfs", "/dev/shm"),  # PyTorch's shared memory
        ("--remount-ro", "/dev"),  # no files there, which would lie in memory without a limit
        ("--size", size, "--tmpfs", SCRATCH),
        ("--remount-ro", "/"),  # not what is mounted in it: /tmp and the scratch folder can be written
        ("--chdir", SCRATCH),
        *[("--setenv", name, value) for name, value in environment(TOOLS.parent).items()],
    ]
    return ["nice", "-n", "10", "bwrap", *[part for flag in flags for part in flag]]


SYSTEM = [Path(f"/{name}") for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix/store")]
SYSTEM += [Path(f"/etc/{name}") for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")]


def _python() -> list[Path]:
    """The interpreter's folders of programs and packages, where they lie outside of /usr."""
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)])
    paths = [Path(prefix) / part for prefix in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    return [path for path in paths if Path("/usr") not in path.parents]


def check_invisible(folders: list[Path]) -> None:
    """Raise a GradingError if a folder lies in one that every sandbox sees."""
    for folder in folders:
        for visible in (*SYSTEM, *_python(), PACKAGE):
            if visible in folder.resolve().parents:
                raise GradingError(f"{folder} lies in {visible}, which every submission can read: put it elsewhere")


def container(kind: Kind, limits: Limits, name: str) -> list[str]:
    """The beginning of a command line that runs the rest of it in a container."""
    inside, size = Path("/course"), f"size={limits.disk},mode=1777"
    memory = str(limits.memory)
    volumes = [f"{PACKAGE}:{inside / 'vit_tutorial'}:ro"]
    volumes += [f"{TOOLS / program}:{inside / 'tools' / program}:ro" for program in PROGRAMS]
    variables = {key: value for key, value in environment(inside).items() if key != "PATH"}  # the image has its own
    flags: list[tuple[str, ...]] = [
        ("--rm",),  # nothing of it is kept
        ("--interactive",),  # the messages come by its standard input
        ("--name", name),  # by which it is killed
        ("--pull", "never"),  # no image from elsewhere
        ("--network", "none"),
        ("--read-only",),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),  # no program that makes its user root
        ("--user", "65534:65534"),  # nobody
        ("--ipc", "private"),
        ("--memory", memory),
        ("--memory-swap", memory),  # both together: so no swap
        ("--pids-limit", str(limits.processes)),
        ("--cpus", "1"),
        ("--tmpfs", f"{SCRATCH}:{size}"),
        ("--tmpfs", f"/tmp:{size}"),
        ("--shm-size", str(limits.disk)),  # PyTorch's shared memory
        ("--workdir", SCRATCH),
        *[("--volume", volume) for volume in volumes],
        *[("--env", f"{key}={value}") for key, value in variables.items()],
    ]
    return [kind, "run", *[part for flag in flags for part in flag], IMAGE]


# ---- Running -----------------------------------------------------------------------------------------------------


def run(messages: tuple[NotebookMessage, ChecksMessage], kind: Kind, limits: Limits) -> Any:
    """What tools/check_submission.py answers to messages. The answer may be forged: trust nothing.

    Raises:
        SandboxStopped: it had to be ended, or ended without an answer.
    """
    name = f"vit-{uuid.uuid4().hex[:12]}"
    bounds: Bounds = {"file_bytes": limits.disk, "processes": limits.processes if kind == "bwrap" else 0}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as out:
        request.writelines(json.dumps({**message, **bounds}).encode() + b"\n" for message in messages)
        request.seek(0)
        with _control_group(name, kind, limits) as joining:
            process = _start(joining + _command(kind, limits, name), request, out, kind, scratch)
            try:
                _wait(process, out, limits)
            finally:
                _end(process, kind, name)
        out.seek(0)
        # Where the program was killed, what is there may be a student's.
        answer = out.read(limits.answer) if process.returncode == 0 else b""
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise SandboxStopped("the notebook's process ended itself, or what it answered can't be read") from None


def _command(kind: Kind, limits: Limits, name: str) -> list[str]:
    program = "check_submission.py"
    if kind == "bwrap":
        return [*bwrap(limits), sys.executable, str(TOOLS / program)]
    if kind == "none":
        return [sys.executable, str(TOOLS / program)]
    return [*container(kind, limits, name), "python", f"/course/tools/{program}"]


def _start(command: list[str], request: IO[bytes], out: IO[bytes], kind: Kind, scratch: str) -> subprocess.Popen[bytes]:
    variables = dict(os.environ)
    if kind == "bwrap":
        variables = _path()
    elif kind == "none":
        variables = {key: value.replace(SCRATCH, scratch) for key, value in environment(TOOLS.parent).items()}
    return subprocess.Popen(
        command,
        stdin=request,
        stdout=out,
        stderr=subprocess.DEVNULL,
        env=variables,
        cwd=scratch if kind == "none" else "/",
        start_new_session=True,
    )


def _path() -> dict[str, str]:
    """The environment of bubblewrap's own process, which can be seen from inside."""
    return {"PATH": os.environ.get("PATH", os.defpath)}


def _wait(process: subprocess.Popen[bytes], out: IO[bytes], limits: Limits) -> None:
    """Wait for the end of a process, and measure its tree several times a second."""
    start = time.monotonic()
    while process.poll() is None:
        if time.monotonic() - start > limits.total_seconds:
            raise SandboxStopped(f"the notebook took more than {limits.total_seconds} seconds")
        if os.fstat(out.fileno()).st_size > limits.answer:
            raise SandboxStopped(f"more than {limits.answer // MB} MB of output")
        if _memory(process.pid) > limits.memory:
            raise SandboxStopped(f"more than {limits.memory // MB} MB of memory")
        if psutil.virtual_memory().available < LEAST_FREE:
            raise SandboxStopped(MACHINE_FULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)


def _memory(number: int) -> int:
    """Bytes that a tree of processes holds; what they share is counted by each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(number).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _end(process: subprocess.Popen[bytes], kind: Kind, name: str) -> None:
    """End a process and its tree. The first process of bubblewrap's dies with it, and the kernel ends all others."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if kind in ("podman", "docker"):
        subprocess.run([kind, "kill", name], capture_output=True, check=False)


@contextlib.contextmanager
def _control_group(name: str, kind: Kind, limits: Limits) -> Iterator[list[str]]:
    """For root, whom no limit of processes binds: a group of the kernel's, and the command that joins it."""
    values = {"pids.max": limits.processes, "memory.max": limits.memory, "memory.limit_in_bytes": limits.memory}
    groups = [Path(base) / name for base in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup")]
    joined = []
    for group in groups if kind == "bwrap" and os.getuid() == 0 else []:
        with contextlib.suppress(OSError):  # versions 1 and 2 of control groups have different ones
            group.mkdir()
            joined.append(group)
        for file, value in values.items():
            if (group / file).exists():
                (group / file).write_text(str(value), "utf-8")
    joins = [f"echo $$ > {group}/cgroup.procs" for group in joined if (group / "cgroup.procs").exists()]
    try:
        yield ["sh", "-c", " && ".join([*joins, 'exec "$0" "$@"'])] if joins else []
    finally:
        for group in joined:
            _remove(group)


def _remove(group: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)  # the last of its processes is still being ended
