"""Where submissions run: bubblewrap on Linux, a container elsewhere, or (knowingly) nothing at all.

A sandbox sees Python, its packages and the package vit_tutorial, all read-only, and one empty folder of its own in
memory. It has no network, no home, none of the teacher's environment variables, and no other process in sight. What all
its processes take together is watched from here, since a limit that the kernel sets on each of them bounds no sum.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

TOOLS = Path(__file__).resolve().parent
KINDS = ("bwrap", "podman", "docker", "none")
IMAGE = "vit_tutorial-grading"
SCRATCH = "/scratch"
NEEDED = ("runner.py", "wire.py")  # of tools/; nothing else of it goes into a sandbox
MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Args:
        seconds: of a cell.
        grace: seconds more, until a cell that does not stop is stopped from outside with all the rest.
        total_seconds: of the whole notebook.
        memory: bytes of all its processes together, beyond what torch itself needs.
        processes: at a time.
        disk: bytes of its scratch folder.
        output: bytes that may come out.
    """

    seconds: float = 60
    grace: float = 15
    total_seconds: float = 600
    memory: int = 2_000 * MB
    processes: int = 48
    disk: int = 64 * MB
    output: int = 64 * MB


@dataclass
class Ran:
    """What came out of a sandbox: the lines of JSON, and why it was ended before its time ("" if it wasn't)."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0


def choose(wanted: str) -> str:
    """The sandbox to use: ``wanted``, or what this machine has.

    Raises:
        SystemExit: there is none; it says how to go on.
    """
    if wanted and wanted not in KINDS:
        raise SystemExit(f"SANDBOX={wanted} is not known: take {', '.join(KINDS)}")
    kind = wanted or ("bwrap" if sys.platform == "linux" else "")
    if kind == "none":
        return kind
    if kind and shutil.which(kind):
        problem = "" if kind != "bwrap" else _bwrap_fails()
        if not problem:
            return kind
        raise SystemExit(f"bubblewrap can't make a sandbox here: {problem}\n{_ways_out()}")
    missing = f"{kind} is not installed" if kind else "there is no bubblewrap on this system, it needs Linux"
    raise SystemExit(f"Submissions are programs, and run in a sandbox; but {missing}.\n{_ways_out()}")


def _ways_out() -> str:
    return (
        "  Debian, Ubuntu: apt install bubblewrap (Fedora: dnf install bubblewrap), then make grade\n"
        "  Elsewhere, or without it: make grade SANDBOX=podman (or docker), in a container\n"
        "  make grade SANDBOX=none runs them with your rights: they can read and delete what you can, and use the "
        "network.\n  Do that only with submissions that you have read, or on a machine that holds nothing."
    )


def _bwrap_fails() -> str:
    """Why bubblewrap doesn't work, or ""."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--dev", "/dev"]
    command += ["--proc", "/proc", "--size", "4096", "--tmpfs", "/tmp", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return ""
    hint = " (version 0.8 or newer is needed)" if "nknown option" in done.stderr else ""
    hint = hint or " (some systems forbid user namespaces to programs that no profile names: see their notes)"
    return done.stderr.strip() + hint


# ---- Command lines -----------------------------------------------------------------------------------------------


def environment(package: Path, tools: Path, scratch: str) -> dict[str, str]:
    """All that a submission finds in its environment: nothing of the teacher's."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "TORCH_HOME", "XDG_CACHE_HOME"), scratch)
    return (
        one
        | folders
        | {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join([str(package.parent), str(tools)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "LANG": "C.UTF-8",
            "USER": "student",
            "LOGNAME": "student",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }
    )


def bwrap(limits: Limits, package: Path, hidden: list[Path]) -> list[str]:
    """The command line of bubblewrap; ``hidden`` are folders that stay empty even where a system folder holds them."""
    binds = {path: ["--ro-bind", str(path), str(path)] for path in [*_system(), *_python()]}
    covered: list[Path] = []
    for path in hidden:
        if any(path == bound or bound in path.parents for bound in binds):
            binds[path] = ["--size", "65536", "--tmpfs", str(path)]
            covered.append(path)
    binds |= {path: ["--ro-bind", str(path), str(path)] for path in [package, *(TOOLS / name for name in NEEDED)]}
    links = [part for path in _links() for part in ("--symlink", str(path.readlink()), str(path))]
    mounts = [part for path in sorted(binds, key=lambda path: len(path.parts)) for part in binds[path]]
    variables = environment(package, TOOLS, SCRATCH)
    return [
        "bwrap",
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"),
        *("--size", str(limits.disk), "--tmpfs", "/tmp"),  # before the rest: a course may lie in /tmp
        *links,
        *mounts,
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.disk), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(limits.disk), "--tmpfs", SCRATCH),
        *[part for path in covered for part in ("--remount-ro", str(path))],
        *("--remount-ro", "/", "--chdir", SCRATCH),
        *[part for name, value in variables.items() for part in ("--setenv", name, value)],
        *(sys.executable, str(TOOLS / "runner.py")),
    ]


def _links() -> list[Path]:
    """/bin and its like, where they are links into /usr."""
    return [path for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")) if path.is_symlink()]


def _system() -> list[Path]:
    names = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"]
    names += ["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"]
    return [path for path in map(Path, names) if path.exists() and path not in _links()]


def _python() -> list[Path]:
    """Of this interpreter the folders that hold programs and packages: a course may lie in its prefix, too."""
    parts = ("bin", "lib", "lib64", "pyvenv.cfg")
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)])
    found = [Path(prefix) / part for prefix in prefixes for part in parts]
    return [path for path in found if path.exists() and Path("/usr") not in path.parents]


def container(kind: str, limits: Limits, package: Path, name: str) -> list[str]:
    """The command line of podman or docker."""
    size = f"size={limits.disk},mode=1777"
    inside, tools = Path("/course/vit_tutorial"), Path("/course/tools")
    memory = str(limits.memory + 1_500 * MB)
    variables = environment(inside, tools, SCRATCH)
    return [
        *(kind, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--network", "none", "--read-only"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534", "--ipc", "private"),
        *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes), "--cpus", "1"),
        *("--tmpfs", f"{SCRATCH}:{size}", "--tmpfs", f"/tmp:{size}", "--shm-size", str(limits.disk)),
        *("--workdir", SCRATCH, "--volume", f"{package}:{inside}:ro"),
        *[part for file in NEEDED for part in ("--volume", f"{TOOLS / file}:{tools / file}:ro")],
        *[part for key, value in variables.items() if key != "PATH" for part in ("--env", f"{key}={value}")],
        *(IMAGE, "python", str(tools / "runner.py")),
    ]


def build_image(kind: str, context: Path) -> list[str]:
    """The command that makes the containers' image; ``context`` holds grading.Dockerfile and requirements.txt alone."""
    return [kind, "build", "--tag", IMAGE, "--file", str(context / "grading.Dockerfile"), str(context)]


# ---- Running -----------------------------------------------------------------------------------------------------


def run(
    kind: str, job: dict[str, Any], limits: Limits, package: Path, hidden: list[Path], stop: threading.Event
) -> Ran:
    """Run a job (see tools/runner.py) in a sandbox, and listen until it ends, or has to be ended."""
    job = job | {
        "seconds": limits.seconds,
        "cpu_seconds": limits.total_seconds,
        "memory_bytes": limits.memory,
        "file_bytes": limits.disk,
        "processes": _own_threads(kind) + limits.processes,
    }
    name = f"vit-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as scratch:
        # bubblewrap's own process can be seen from inside: it, too, must know nothing.
        variables, folder = {"PATH": os.environ.get("PATH", os.defpath)}, None
        if kind == "bwrap":
            command = bwrap(limits, package, hidden)
        elif kind == "none":
            command, folder = [sys.executable, str(TOOLS / "runner.py")], scratch
            variables = environment(package, TOOLS, scratch) | {"PATH": os.environ.get("PATH", os.defpath)}
        else:
            command, variables = container(kind, limits, package, name), dict(os.environ)
        # Politely: a teacher's machine is used for other things, and a bomb must not outrun who watches it.
        command = ["nice", "-n", "10", *command]
        group = _group_of_processes(limits) if kind in ("bwrap", "none") else None
        if group:
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )
        watch = _Watch(process, limits, stop, own=kind in ("bwrap", "none"))
        try:
            return watch.listen(json.dumps(job).encode())
        finally:
            watch.end()
            if group:
                _remove(group)
            if kind in ("podman", "docker"):
                subprocess.run([kind, "kill", name], capture_output=True, check=False)


def _group_of_processes(limits: Limits) -> Path | None:
    """For root, whom no limit of processes binds: a control group of the kernel's that does, if there is one to be had.

    It counts threads, too, and torch has some of its own: the limit is a wall behind the one that is watched from here.
    """
    if os.getuid() != 0:
        return None
    for base in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):  # version 1, version 2
        group = base / f"vit-{uuid.uuid4().hex[:12]}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / "pids.max").exists():
                (group / "pids.max").write_text(str(limits.processes + 64))
                return group
            group.rmdir()
    return None


def _remove(group: Path) -> None:
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)  # the last of its processes is still being ended


def _own_threads(kind: str) -> int:
    """What an ordinary user runs already: before Linux 5.14 the limit of processes counts that in."""
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    if kind == "bwrap" and release >= (5, 14):
        return 0
    own = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            own += process.num_threads() if process.uids().real == os.getuid() else 0
    return own


class _Watch:
    """Listens to a sandbox, and ends it when it takes too much of anything."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, stop: threading.Event, own: bool) -> None:
        self.process, self.limits, self.stop, self.own = process, limits, stop, own
        self.started = self.heard = time.monotonic()
        self.ran = Ran()
        self.base = 0  # bytes, when the runner was ready

    def listen(self, job: bytes) -> Ran:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        threading.Thread(target=self._give, args=(job,), daemon=True).start()
        complaints: list[bytes] = []
        listener = threading.Thread(target=lambda: complaints.append(self.process.stderr.read(4000)), daemon=True)
        listener.start()
        waiting, size, looked = b"", 0, 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not self.ran.problem:
                if selector.select(timeout=0.1):
                    data = os.read(self.process.stdout.fileno(), 1 << 20)
                    if not data:
                        break
                    size += len(data)
                    *lines, waiting = (waiting + data).split(b"\n")
                    for line in lines:
                        self._take(line)
                if size > self.limits.output:
                    self.ran.problem = "more output than a notebook may have"
                if time.monotonic() - looked > 0.15:
                    self.ran.problem = self.ran.problem or self._too_much()
                    looked = time.monotonic()
        self.ran.seconds = time.monotonic() - self.started
        if not self.ran.problem and not (self.ran.messages and "end" in self.ran.messages[-1]):
            self.end()
            listener.join(1)
            words = b"".join(complaints).decode(errors="replace").strip()[:300]
            began = any("ready" in message for message in self.ran.messages)
            self.ran.problem = "the notebook's process ended itself" if began else f"the sandbox did not start: {words}"
        return self.ran

    def _give(self, job: bytes) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.write(job)
            self.process.stdin.close()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.ran.messages.append({"garbled": True})
            return
        self.heard = time.monotonic()
        self.ran.messages.append(message)
        if "ready" in message and not self.base:
            self.base = self._memory(self._processes())

    def _too_much(self) -> str:
        now = time.monotonic()
        if self.stop.is_set():
            return "grading was interrupted"
        if now - self.started > self.limits.total_seconds:
            return f"the notebook took more than {self.limits.total_seconds:.0f} seconds"
        # Before the first message stands the import of torch, which a busy machine may take its time for.
        patience = self.limits.seconds + self.limits.grace if self.base or not self.own else 180
        if now - self.heard > patience:
            return f"a cell took more than {self.limits.seconds:.0f} seconds and could not be stopped"
        if not self.own:
            return ""
        found = self._processes()
        if len(found) > self.limits.processes + 4:  # nice, and bubblewrap's own
            return f"more than {self.limits.processes} processes"
        if psutil.virtual_memory().available < 300 * MB:
            return "this machine's memory ran out"
        if self.base and self._memory(found) > self.base + self.limits.memory:
            return f"more than {self.limits.memory // MB} MB of memory"
        return ""

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def _memory(self, processes: list[psutil.Process]) -> int:
        """Bytes that the processes hold together; what they share is counted once, if it matters."""
        total = _sum(processes, lambda process: process.memory_info().rss)
        if self.base and total > self.base + self.limits.memory:
            total = _sum(processes, _share)
        return total

    def end(self) -> None:
        """Kill everything. In bubblewrap the kernel does: a process tree whose first one dies is ended with it."""
        found = self._processes()
        for process in [*found, self.process]:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def _share(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.AccessDenied:  # a process can make itself unreadable
        return process.memory_info().rss


def _sum(processes: list[psutil.Process], of: Callable[[psutil.Process], int]) -> int:
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            total += of(process)
    return total
