"""Files that mean harm, through ``vt.load``: each refused, in how many seconds, with how much memory.

    python benchmarks/hostile.py                  the table of benchmarks/README.md; exit status 1 if one is accepted
                                                  or runs code, takes 3 s, or more than twice its size and 20 MB

Each file is loaded in a process of its own, forked when everything is imported. Seconds are those of its processor.
Memory is the most by which the process's resident set grows, mapped pages of the file included. A few megabytes are
what Python needs to say anything; a pickle of 250 kB, which is allowed in any file, can take 20 MB. Linux only.
"""

import argparse
import json
import os
import pickle
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import vit_tutorial as vt

Make = Callable[[Path], Path]  # writes into a folder -> what to load
STATE = {name: tensor.clone() for name, tensor in vt.weights.to_timm(vt.load("digits").model).items()}
TRACE = Path(tempfile.gettempdir()) / f"vit_tutorial-hostile-{os.getpid()}"


class Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(TRACE),)


def pickled(content: object, *, zipped: bool = True, protocol: int = 2) -> Make:
    def make(folder: Path) -> Path:
        torch.save(content, folder / "x.pth", _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
        return folder / "x.pth"

    return make


def opcodes(content: bytes, *, zipped: bool) -> Make:
    """A pickle written by hand."""

    def make(folder: Path) -> Path:
        path = folder / "x.pth"
        if not zipped:
            path.write_bytes(content)
            return path
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", content)
            archive.writestr("a/version", "3\n")
        return path

    return make


def zipped(name: str, *parts: tuple[str, bytes], squeezed: bool = False, times: int = 1) -> Make:
    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED if squeezed else zipfile.ZIP_STORED) as archive:
            for part, content in parts:
                archive.writestr(part, content)
            archive.filelist *= times  # its table of contents alone
        return folder / name

    return make


def table(header: bytes, length: int | None = None, numbers: int = 4) -> Make:
    def make(folder: Path) -> Path:
        path = folder / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(numbers))
        return path

    return make


def tensors(state: dict[str, torch.Tensor]) -> Make:
    def make(folder: Path) -> Path:
        save_file(state, folder / "x.safetensors")
        return folder / "x.safetensors"

    return make


def folder_with(config: str, weights: bool = True) -> Make:
    def make(folder: Path) -> Path:
        (folder / "config.json").write_text(config, "utf-8")
        if weights:
            save_file(STATE, folder / "model.safetensors")
        return folder

    return make


def index_of(weight_map: dict[str, str]) -> Make:
    def make(folder: Path) -> Path:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return folder / "model.safetensors.index.json"

    return make


def npy(shape: tuple[int, ...], numbers: int) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(numbers)


def laughs() -> dict[str, object]:
    """Two to the fortieth ways lead to the innermost."""
    inner: dict[str, object] = {"x": torch.ones(1)}
    for _ in range(40):
        inner = {"a": inner, "model": inner, "ema": inner}
    return inner


MANY = {f"blocks.{i}.norm1.weight": torch.ones(1) for i in range(20_000)}
LISTS = b"\x80\x02]" + b"]" * 5_000_000 + b"a" * 5_000_000 + b"."
FEW = b"\x80\x02(" + b"]" * 240_000 + b"t."
NOISE = random.Random(0).randbytes(2_000_000)
FILES: dict[str, Make] = {
    "code in a pickle": pickled(Evil()),
    "code in a pickle of the old format": pickled(Evil(), zipped=False),
    "code among the tensors": pickled(STATE | {"x": Evil()}),
    "code in a plain pickle, protocol 4": lambda folder: opcodes(pickle.dumps(Evil(), 4), zipped=False)(folder),
    "an object in a .npz": zipped("x.npz", ("a.npy", npy((1,), 4).replace(b"'<f4'", b"'|O' "))),
    "50 MB of zeros, packed, .pth": zipped("x.pth", ("a/data.pkl", bytes(50_000_000)), squeezed=True),
    "50 MB of zeros, packed, .npz": zipped("x.npz", ("a.npy", bytes(50_000_000)), squeezed=True),
    "four times its size, .npz": zipped("x.npz", ("a.npy", NOISE + bytes(6_000_000)), squeezed=True),
    "an array of 10 billion, .npz": zipped("x.npz", ("cls.npy", npy((10**10,), 40))),
    "50,001 arrays, .npz": zipped("x.npz", ("0.npy", b""), times=50_001),
    "a tensor of strides 0": pickled(STATE | {"norm.bias": torch.ones(1).expand(10**12)}),
    "a table that lies about a shape": table(b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}'),
    "a table of 2^60 bytes": table(b"{}", 2**60),
    "a table of 20 MB": table(b"{" + b" " * 20_000_000 + b"}"),
    "a table nested 100,000 deep": table(b'{"a":' * 100_000),
    "20,000 names": tensors(MANY),
    "20,000 names, .pth": pickled(MANY),
    "51,000 names": tensors({f"a{i}": torch.ones(1) for i in range(51_000)}),
    "a name of 5 MB": tensors(STATE | {"x" * 5_000_000: torch.ones(1)}),
    "5 million lists": opcodes(LISTS, zipped=True),
    "5 million lists, old format": opcodes(LISTS, zipped=False),
    "240,000 lists": opcodes(FEW, zipped=True),
    "dictionaries, 2^40 ways": pickled(laughs()),
    "a list nested 50,000 deep": opcodes(b"\x80\x02" + b"]" * 50_001 + b"a" * 50_000 + b".", zipped=True),
    "a config nested 100,000 deep": folder_with("[" * 100_000),
    "a config of 100 MB": lambda folder: folder_with('{"model_type": "vit", "x": "' + "y" * 100_000_000)(folder),
    "a config of half a million lists": folder_with('{"architecture": [' + "[]," * 500_000 + "[]]}"),
    "an index that leads outside": index_of({"a": "../../etc/passwd"}),
    "an index of 40,000 files": index_of({f"a{i}": f"{i}.safetensors" for i in range(40_000)}),
    "NaN": tensors(STATE | {"norm.bias": torch.full((64,), torch.nan)}),
    "infinity beyond float32": tensors(STATE | {"norm.bias": torch.full((64,), 1e300, dtype=torch.float64)}),
    "int8": tensors({name: tensor.to(torch.int8) for name, tensor in STATE.items()}),
}


def resident(kind: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(kind))


def attempt(path: Path) -> tuple[str, float, int]:
    """What a process of its own says of the file ("" if it accepts it), its seconds, and by how much it grew."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the high-water mark starts anew
        before, begin, said = resident("VmRSS"), os.times(), ""
        try:
            vt.load(path, num_heads=4)
        except (ValueError, OSError) as error:
            said = str(error)
        except BaseException as error:
            said = f"TRACEBACK {type(error).__name__}"
        end, grown = os.times(), resident("VmHWM") - before
        os.write(theirs, json.dumps([said[:3000], end.user + end.system - begin.user - begin.system, grown]).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    said, seconds, grown = json.loads(answer) if answer else ("TRACEBACK the process died", 99.0, 0)
    return said, seconds, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="what each refusal says")
    verbose, bad = parser.parse_args().verbose, []
    vt.load("digits")  # what is imported late
    np.zeros(1)
    print("| file | MB | seconds | memory, MB |\n|---|---|---|---|")
    for name, make in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = make(Path(folder))
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            said, seconds, grown = attempt(path)
        print(f"| {name} | {size / 1e6:.2f} | {seconds:.2f} | {grown / 1e6:.1f} |", flush=True)
        if verbose:
            print(f"  {said[:200]!r}")
        good = said and not said.startswith("TRACEBACK") and len(said) < 2000 and not TRACE.exists()
        if not good or seconds > 3 or grown > 2 * size + 20_000_000:
            bad.append(name)
    if bad:
        raise SystemExit(f"{len(bad)} not as they should be: {', '.join(bad)}")


if __name__ == "__main__":
    main()
