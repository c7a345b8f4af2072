"""One thing in a checkpoint changed at random: ours answers as before, as the library, with a warning, or refuses.

    python benchmarks/mutations.py                    10,000 draws; exit status 1 if any is wrong
    python benchmarks/mutations.py --draws 300 --seed 7
    python benchmarks/mutations.py --only clip        models whose name has that

Each draw takes a model of ``benchmarks/families.py`` that :func:`vt.load` reads silently from its library's folder, and
adds, removes, renames or reshapes one tensor, wraps all of them, or adds, removes, renames or changes one field of its
config or processor. The answer is

- equal: the numbers of the folder as it was, or those of the library, which loads the changed folder too;
- warned: a UserWarning says what was assumed;
- refused: a ValueError or OSError;
- wrong: other numbers silently, any other error, more than 5 seconds or 2 GB. There must be none.
"""

import argparse
import copy
import json
import math
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import families
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import vit_tutorial as vt

State = dict[str, Tensor]
SECONDS, BYTES = 5, 2 * 2**30
RESULTS = ("equal", "as the library", "warned", "refused", "wrong")
KEPT = 40  # models at a time
DRAWS_A_MODEL = 15  # before another is built
NAMES = (
    "lora_A.weight", "adapter.weight", "fc.weight", "head.1.weight", "head.bias2", "gate", "prompt_embeddings",
    "norm3.weight", "classifier.out_proj.weight", "rope.freqs", "query_tokens", "temperature", "alpha",
)  # fmt: skip
FIELDS = {
    "attention_bias": False, "hidden_activation": "relu", "use_rotary": True, "norm_first": False, "scale": 2.0,
    "head_dim": 8, "num_key_value_heads": 1, "adapter": {"r": 4}, "do_flip": True, "pooling": "max", "crop_pct": 0.5,
    "auto_map": {"AutoModel": "x.Y"}, "quantization_config": {"bits": 8}, "size_divisor": 32, "window_size": 7,
}  # fmt: skip
VALUES = (
    0, -1, 1, 2, 3, 0.5, 1e-3, 7, 64, 10**6, 10**12, 1e308, None, True, False, "", "relu", "gelu_new", "mean", [], [1],
    [32, 48], {}, {"height": 16, "width": 32}, {"shortest_edge": 40}, "x" * 3000,
)  # fmt: skip


class Subject:
    """A model, its library's folder, and what it answers there."""

    def __init__(self, case: families.Case, folder: Path) -> None:
        family, name, build, save = case
        self.name, self.folder, self.from_timm = f"{family}: {name}", folder, family.startswith("timm")
        torch.manual_seed(0)
        self.theirs = families.randomise(build())
        save(self.theirs, folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.answer = answer(vt.load(folder))
        self.state = load_file(folder / "model.safetensors")

    def changed(self, folder: Path) -> tuple[nn.Module, Callable[[Any], Tensor] | None]:
        """The library's own model of a changed folder, and its way with a picture."""
        if self.from_timm:
            model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
            about = timm.data.resolve_data_config({}, model=model)
            return model, lambda picture: timm.data.create_transform(**about)(picture)[None]
        model = type(self.theirs).from_pretrained(folder).eval()
        if not (folder / "preprocessor_config.json").exists():
            return model, None
        processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=False)
        return model, lambda picture: torch.as_tensor(processor(picture, return_tensors="pt")["pixel_values"])


def answer(found: Any) -> Tensor:
    with torch.inference_mode():
        return found.model(found.preprocess(families.PICTURE))


def subjects(only: str, chance: random.Random, root: Path) -> Iterator[Subject]:
    """Models that are read silently as their library saves them, in an order of chance, for ever."""
    cases = [
        case for case in (*families.timm_cases(), *families.transformers_cases()) if only in f"{case[0]} {case[1]}"
    ]
    chance.shuffle(cases)
    ready: list[Subject] = []
    for number, case in enumerate(cycle(cases)):
        if number == len(cases) and not ready:
            raise SystemExit("none of these models is read silently")
        try:
            ready.append(Subject(case, root / str(number)))
        except Exception:  # not built so small, refused, or read with a warning
            shutil.rmtree(root / str(number), ignore_errors=True)
            continue
        if len(ready) > KEPT:
            shutil.rmtree(ready.pop(0).folder)
        for _ in range(DRAWS_A_MODEL):
            yield chance.choice(ready)


# ------------------------------------------------------------------------------------------------------------- changes


def change_tensors(state: State, chance: random.Random) -> tuple[State, str]:
    """The tensors with one added, removed, renamed or reshaped, or all of them wrapped."""
    name = chance.choice(sorted(state))
    tensor, others = state[name], {other: state[other] for other in state if other != name}
    kind = chance.choice(("add", "add", "remove", "rename", "rename", "reshape", "retype", "wrap", "twice"))
    if kind == "add":
        parts = name.split(".")
        new = chance.choice((
            chance.choice(NAMES), f"{name}_extra", f"{'.'.join(parts[:-1])}.{chance.choice(NAMES)}", f"x.{name}",
            ".".join(str(int(part) + 2) if part.isdigit() else part for part in parts),
            ".".join([*parts[:-1], "gamma"]),
        ))  # fmt: skip
        return state | {
            new: chance.choice((torch.randn(tensor.shape), torch.randn(3, 5), torch.randn(1)))
        }, f"add {new}"
    if kind == "remove":
        return others, f"remove {name}"
    if kind == "rename":
        parts = name.split(".")
        place = chance.randrange(len(parts))
        parts[place] = chance.choice(
            (f"{parts[place]}x", parts[place][:-1] or "y", "gamma", "weight", "norm", "0", "1")
        )
        new = ".".join(parts)
        return others | {new: tensor}, f"rename {name} -> {new}"
    if kind == "reshape":
        new_shape = chance.choice((
            lambda t: t.flatten(), lambda t: t[None], lambda t: t.mT if t.ndim > 1 else t[:, None], lambda t: t[:-1],
            lambda t: torch.cat([t, t]), lambda t: t.reshape(t.shape[::-1]), lambda t: t[..., :-1], lambda t: t.sum(),
        ))  # fmt: skip
        return state | {
            name: new_shape(tensor.clone()[None] if not tensor.ndim else tensor).contiguous()
        }, f"reshape {name}"
    if kind == "retype":
        dtype = chance.choice((torch.int8, torch.int64, torch.bool))
        return state | {name: tensor.to(dtype)}, f"retype {name}"
    prefix = chance.choice(("module.", "model.", "ema.", "teacher.", "base_model.model.", "student.", "x."))
    if kind == "wrap":
        return {prefix + other: state[other] for other in state}, f"wrap {prefix}"
    noisy = {prefix + other: t + torch.randn(t.shape) if t.is_floating_point() else t for other, t in state.items()}
    return state | noisy, f"twice {prefix}"


def change_json(content: Any, chance: random.Random) -> str:
    """One field added, removed, renamed or changed, at any depth, in place."""
    levels = [content]
    for level in levels:
        levels += [value for value in level.values() if isinstance(value, dict) and value]
    level = chance.choice(levels)
    key = chance.choice(sorted(level))
    kind = chance.choice(("add", "remove", "rename", "change", "change"))
    if kind == "add":
        key = chance.choice(sorted(FIELDS))
        level[key] = copy.deepcopy(FIELDS[key])
    elif kind == "remove":
        del level[key]
    elif kind == "rename":
        level[f"{key}_"] = level.pop(key)
    else:
        old = level[key]
        number = isinstance(old, (int, float)) and not isinstance(old, bool)
        near = (old * 2, old + 1, -old) if number else (not old,) if isinstance(old, bool) else ()
        level[key] = copy.deepcopy(chance.choice((*VALUES, *near)))
    return f"{kind} {key} {str(level.get(key))[:40]}"


def changed_folder(subject: Subject, folder: Path, chance: random.Random) -> str:
    """A copy of the subject's folder with one thing changed; what."""
    shutil.copytree(subject.folder, folder)
    files = ["model.safetensors"] * 2 + [
        file for file in ("config.json", "preprocessor_config.json") if (folder / file).exists()
    ]
    file = chance.choice(files)
    if file.endswith(".json"):
        content = json.loads((folder / file).read_text())
        what = change_json(content, chance)
        (folder / file).write_text(json.dumps(content))
    else:
        state, what = change_tensors(subject.state, chance)
        save_file({name: tensor.clone() for name, tensor in state.items()}, folder / file, metadata={"format": "pt"})
    return f"{file}: {what}"


# ------------------------------------------------------------------------------------------------------------- judging


def judge(subject: Subject, folder: Path) -> tuple[str, str]:
    memory, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = vt.load(folder)
            got = answer(found)
        except (ValueError, OSError) as error:
            found, text = None, str(error)
        except Exception as error:
            return "wrong", f"{type(error).__name__}: {error}"
    taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
    if time.process_time() - begin > SECONDS or taken > BYTES:
        return "wrong", f"{time.process_time() - begin:.1f} s, {taken / 2**30:.1f} GB"
    if found is None:
        return "refused", text
    if any(issubclass(one.category, UserWarning) for one in said):
        return "warned", str(said[0].message)
    if got.shape == subject.answer.shape and torch.allclose(got, subject.answer, rtol=1e-4, atol=1e-4):
        return "equal", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs, pixels = subject.changed(folder)
            result, text = families.judge(lambda: found, theirs, pixels)
    except Exception as error:
        return (
            "wrong",
            f"other numbers, and the library says {type(error).__name__}: {' '.join(str(error).split())[:200]}",
        )
    return ("as the library", text) if result == "equal" else ("wrong", f"other numbers than the library: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="models whose family or name has this")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    chance, counts, models = random.Random(args.seed), Counter[str](), defaultdict[str, int](int)
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as root:
        drawn = subjects(args.only, chance, Path(root))
        for number in range(args.draws):
            if time.monotonic() > end:
                break
            subject, folder = next(drawn), Path(root, "changed")
            what = changed_folder(subject, folder, chance)
            result, text = judge(subject, folder)
            shutil.rmtree(folder)
            counts[result] += 1
            models[subject.name] += 1
            if result == "wrong":
                print(f"wrong  draw {number}, {subject.name}, {what}: {text[:300]}", file=sys.stderr, flush=True)
    print(f"{sum(counts.values()):,} draws from {len(models)} models")
    print(" | ".join(f"{result} {counts[result]:,}" for result in RESULTS))
    if counts["wrong"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
