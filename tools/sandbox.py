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
import re
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

TOOLS = Path(__file__).resolve().parent
KINDS = ("bwrap", "podman", "docker", "none")
IMAGE = "vit_tutorial-grading"
SCRATCH = "/scratch"
NEEDED = ("runner.py", "wire.py")  # of tools/; nothing else of it goes into a sandbox
MB = 1_000_000
MACHINE_FULL = "this machine's memory ran out"  # others may have taken it: it is tried again


@dataclass(frozen=True)
class Limits:
    """What one submission may take.

    Args:
        seconds: of a cell.
        grace: seconds more, until a cell that does not stop is stopped from outside with all the rest.
        check_seconds: of a check, with all its inputs.
        total_seconds: of the whole notebook.
        memory: bytes of all its processes together, beyond what torch itself needs.
        processes: at a time.
        disk: bytes of its scratch folder.
        output: bytes that may come out.
    """

    seconds: float = 60
    grace: float = 15
    check_seconds: float = 45
    total_seconds: float = 600
    memory: int = 2_000 * MB
    processes: int = 48
    disk: int = 64 * MB
    output: int = 64 * MB


class Stopped(Exception):
    """A sandbox that had to be ended, or ended itself; the message says why."""


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


def bwrap(limits: Limits, package: Path, hidden: list[Path], forbidding: int | None = None) -> list[str]:
    """The command line of bubblewrap.

    ``hidden`` are folders that stay empty even where a system folder holds them, ``forbidding`` is the descriptor of a
    file that holds :func:`forbidden_calls`.
    """
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
        *(("--seccomp", str(forbidding)) if forbidding is not None else ()),
        *(sys.executable, str(TOOLS / "runner.py")),
    ]


# Memory that belongs to no process is counted by nobody: System V's shared memory, and files that lie in memory alone.
CALLS = {"x86_64": (0xC000003E, (29, 319, 447)), "aarch64": (0xC00000B7, (194, 279, 447))}  # shmget, memfd_*


def forbidden_calls(machine: str) -> bytes:
    """A filter for the kernel (seccomp), which refuses them; empty for a machine that isn't known."""
    if machine not in CALLS:
        return b""
    architecture, numbers = CALLS[machine]
    load, jump_equal, jump_larger, give = 0x20, 0x15, 0x35, 0x06
    refuse, allow = 0x00050001, 0x7FFF0000  # EPERM
    steps = [(load, 0, 0, 4), (jump_equal, 1, 0, architecture), (give, 0, 0, refuse), (load, 0, 0, 0)]
    steps += [(jump_larger, len(numbers) + 1, 0, 0x40000000)]  # the numbers of a second interface, x32
    steps += [(jump_equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


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


def _group_of_processes(limits: Limits) -> list[Path]:
    """For root, whom no limit of processes binds: control groups of the kernel's, as far as they are to be had.

    They bound processes, and memory with all that belongs to no process; a wall behind what is watched from here.
    """
    if os.getuid() != 0:
        return []
    name, made = f"vit-{uuid.uuid4().hex[:12]}", []
    # threads count, too, and torch has some of its own; torch itself takes memory
    wanted = {"pids.max": limits.processes + 64, "memory.max": limits.memory + 1_500 * MB}
    wanted["memory.limit_in_bytes"] = wanted["memory.max"]
    for base in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):  # version 1, 1, 2
        folder = base / name
        with contextlib.suppress(OSError):
            folder.mkdir()
            bounds = [file for file in wanted if (folder / file).exists()]
            for file in bounds:
                (folder / file).write_text(str(wanted[file]), "utf-8")
            if bounds:
                made.append(folder)
            else:
                folder.rmdir()
    return made


def _remove(group: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)  # the last of its processes is still being ended


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


class Sandbox:
    """A sandbox that is open: it is asked, and it answers; whoever takes too much of anything is ended.

    Args:
        kind: one of :data:`KINDS`.
        hello: the first line for tools/runner.py.
        limits: what it may take.
        package: the package as sandboxes get it (tools/stripped.py).
        hidden: folders that it must not see.
    """

    def __init__(self, kind: str, hello: dict[str, Any], limits: Limits, package: Path, hidden: list[Path]) -> None:
        self.kind, self.limits, self.own = kind, limits, kind in ("bwrap", "none")
        self.name = f"vit-{uuid.uuid4().hex[:12]}"
        self.base = 0  # bytes, when the runner was ready
        self.size, self.waiting, self.looked = 0, b"", 0.0
        self.most: int | None = None  # bytes held while it is asked, where that is looked at closely
        self.group = _group_of_processes(limits) if self.own else []
        self.scratch = tempfile.TemporaryDirectory()
        self.process = self._start(package, hidden)
        self.started = self.heard = time.monotonic()
        self.selector = selectors.DefaultSelector()
        os.set_blocking(self._stdin, False)
        self.selector.register(self._stdout, selectors.EVENT_READ)
        self.hello = hello | {
            "seconds": limits.seconds,
            "check_seconds": limits.check_seconds,
            "cpu_seconds": limits.total_seconds,
            "memory_bytes": limits.memory,
            "file_bytes": limits.disk,
            "processes": _own_threads(kind) + limits.processes,
        }

    def __enter__(self) -> Sandbox:
        try:
            self.ask(self.hello)
        except BaseException:
            self.end()
            raise
        self.base = self._memory(self._processes())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    @property
    def _stdin(self) -> int:
        assert self.process.stdin is not None
        return self.process.stdin.fileno()

    @property
    def _stdout(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def _start(self, package: Path, hidden: list[Path]) -> subprocess.Popen[bytes]:
        # bubblewrap's own process can be seen from inside: it, too, must know nothing.
        found = shutil.which("bwrap")
        variables = {"PATH": os.pathsep.join([os.defpath, *([str(Path(found).parent)] if found else [])])}
        folder = "/"
        handed: tuple[int, ...] = ()
        if self.kind == "bwrap":
            calls = forbidden_calls(platform.machine())
            if calls:
                with tempfile.TemporaryFile() as file:
                    file.write(calls)
                    file.seek(0)
                    handed = (os.dup(file.fileno()),)
            command = bwrap(self.limits, package, hidden, *handed)
        elif self.kind == "none":
            command, folder = [sys.executable, str(TOOLS / "runner.py")], self.scratch.name
            variables = environment(package, TOOLS, folder) | {"PATH": os.environ.get("PATH", os.defpath)}
        else:
            command, variables = container(self.kind, self.limits, package, self.name), dict(os.environ)
        # Politely: a teacher's machine is used for other things, and a bomb must not outrun who watches it.
        command = ["nice", "-n", "10", *command]
        if self.group:
            joins = [f"echo $$ > {folder}/cgroup.procs" for folder in self.group]
            command = ["sh", "-c", " && ".join([*joins, 'exec "$0" "$@"']), *command]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                cwd=folder,
                start_new_session=True,
                pass_fds=handed,
            )
        finally:
            for number in handed:
                os.close(number)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the runner for something, and wait for its answer.

        Raises:
            Stopped: it was ended, or ended itself.
        """
        to_send = memoryview(json.dumps(message).encode() + b"\n")
        self.heard = time.monotonic()
        if b"\n" in self.waiting:
            raise Stopped("it answered before it was asked")
        while b"\n" not in self.waiting:
            to_send = self._send(to_send)
            if self.most is not None:
                self.most = max(self.most, self.held())
            if self.selector.select(timeout=0.002 if self.most is not None else 0.02 if to_send else 0.1):
                self._receive()
            if time.monotonic() - self.looked > 0.15:
                self.looked = time.monotonic()
                if problem := self._too_much():
                    raise Stopped(problem)
        line, _, self.waiting = self.waiting.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Stopped("what it answered can't be read")
        return answer

    def _send(self, data: memoryview) -> memoryview:
        try:
            return data[os.write(self._stdin, data) :] if data else data
        except BlockingIOError:
            return data
        except OSError:  # it has ended: what it said before can still be read
            return memoryview(b"")

    def _receive(self) -> None:
        data = os.read(self._stdout, 1 << 20)
        if not data:
            raise Stopped(self._why_it_ended())
        self.size += len(data)
        self.waiting += data
        if self.size > self.limits.output:
            raise Stopped("more output than a notebook may have")

    def _why_it_ended(self) -> str:
        if self.base:
            return "the notebook's process ended itself"
        assert self.process.stderr is not None
        words = self.process.stderr.read(4000).decode(errors="replace").strip()[:300]
        return f"the sandbox did not start: {words}"

    def _too_much(self) -> str:
        now = time.monotonic()
        if now - self.started > self.limits.total_seconds:
            return f"the notebook took more than {self.limits.total_seconds:.0f} seconds"
        # Before the first answer stands the import of torch, which a busy machine may take its time for.
        patience = max(self.limits.seconds, self.limits.check_seconds) + self.limits.grace if self.base else 180
        if now - self.heard > patience:
            return f"a cell took more than {self.limits.seconds:.0f} seconds and could not be stopped"
        if not self.own:
            return ""
        found = self._processes()
        if len(found) > self.limits.processes + 4:  # nice, and bubblewrap's own
            return f"more than {self.limits.processes} processes"
        if psutil.virtual_memory().available < 300 * MB:
            return MACHINE_FULL
        if self.base and self._memory(found) > self.base + self.limits.memory:
            return f"more than {self.limits.memory // MB} MB of memory"
        return ""

    def _processes(self) -> list[psutil.Process]:
        if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():  # some kernels don't list them
            with contextlib.suppress(psutil.Error):
                return psutil.Process(self.process.pid).children(recursive=True)
            return []
        return list(_below(self.process.pid))

    def _memory(self, processes: list[psutil.Process]) -> int:
        """Bytes that the processes hold together; what they share is counted once, if it matters."""
        total = _sum(processes, lambda process: process.memory_info().rss)
        if self.base and total > self.base + self.limits.memory:
            total = _sum(processes, _share)
        return total

    def held(self) -> int:
        """Bytes that its processes hold, but for programs' files: what the kernel says, 0 where it can't be asked."""
        total = 0
        for process in self._processes() if self.own else []:
            with contextlib.suppress(OSError):
                found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", _status(process.pid), re.MULTILINE)
                total += 1024 * sum(map(int, found))
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
        self.selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        for folder in self.group:
            _remove(folder)
        if not self.own:
            subprocess.run([self.kind, "kill", self.name], capture_output=True, check=False)
        self.scratch.cleanup()


def _below(number: int) -> Iterator[psutil.Process]:
    """A process's descendants, by what the kernel lists for it: psutil looks at all processes of the machine."""
    tasks: list[Path] = []
    with contextlib.suppress(OSError):  # it may end while its folder is read
        tasks = list(Path(f"/proc/{number}/task").glob("*/children"))
    for task in tasks:
        listed = ""
        with contextlib.suppress(OSError):
            listed = task.read_text("utf-8")
        for child in map(int, listed.split()):
            with contextlib.suppress(psutil.Error):  # it may have ended by now
                yield psutil.Process(child)
            yield from _below(child)


def _status(number: int) -> str:
    return Path(f"/proc/{number}/status").read_text("utf-8", errors="replace")


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
