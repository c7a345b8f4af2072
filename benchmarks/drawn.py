"""One thing changed at random in a checkpoint: the same logits as its library, a warning, or a refusal; nothing else.

    python benchmarks/drawn.py --draws 10000      the counts of benchmarks/README.md; exit status 1 if one draw is wrong
    python benchmarks/drawn.py --seed 7           other draws

A model of timm's or transformers' is built small, every tensor random, and saved by its own library. A draw adds,
removes, renames or reshapes one tensor, or changes, adds or removes one field of config.json or
preprocessor_config.json, and loads the folder. A draw is

- equal: our answer is what the library gives for the changed folder, or gave before the change;
- warned: another, and a UserWarning;
- refused: a ValueError in one line;
- alone: an answer for pictures of a size that the library itself doesn't take;
- wrong: another answer silently, another kind of error, more than 2 GB, or more than 5 seconds.
"""

import argparse
import copy
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
import transformers
from families import PICTURE, randomise, transformers_model
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf
from torch import Tensor, nn

import vit_tutorial as vt

TIMM = {
    "vit_tiny_patch16_224": {},
    "deit_tiny_distilled_patch16_224": {},
    "deit3_small_patch16_224": {},
    "vit_small_patch14_reg4_dinov2": {"img_size": 56},
    "vit_base_patch16_clip_quickgelu_224": {},
    "vit_base_patch16_siglip_224": {},
    "eva02_tiny_patch14_224": {"img_size": 56},
    "beit_base_patch16_224": {},
    "vit_small_patch16_dinov3": {},
    "vit_pe_core_tiny_patch16_384": {},
}
TRANSFORMERS = [
    "ViTForImageClassification", "ViTModel", "DeiTForImageClassification", "ViTMSNForImageClassification",
    "Dinov2ForImageClassification", "Dinov2WithRegistersModel", "DINOv3ViTModel", "CLIPVisionModelWithProjection",
    "CLIPForImageClassification", "SiglipVisionModel", "BeitForImageClassification", "IJepaForImageClassification",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, 5, 16, 64, 1e6, 1e308, -1, 0.5, 1e-5, 2.0, float("nan"), "", "gelu", "relu",
    "avg", "map", "token", "quick_gelu", "bilinear", "squash", "x" * 300, [], [1], [3, 32, 32], [0.5] * 3, [16, 32], {},
    {"a": 1}, {"height": 32, "width": 32}, {"shortest_edge": 40},
]  # fmt: skip
FIELDS = [
    "new_field", "use_rope", "layer_norm_eps", "hidden_act", "qkv_bias", "num_attention_heads", "global_pool",
    "crop_pct", "do_center_crop", "size", "resample", "image_mean", "rescale_factor", "num_heads", "act_layer",
    "norm_layer", "quantization_config", "image_size", "img_size", "pool_include_prefix", "final_norm", "rope_theta",
]  # fmt: skip
PARTS = ["head", "norm", "adapter", "lora_A", "weight", "prompt", "gamma", "proj", "ema", "text_model", "mask_token"]


class Peer(NamedTuple):
    """A saved model, and how its library reads it."""

    name: str
    folder: Path
    load: Callable[[Path], nn.Module]
    answer: Tensor
    images: Tensor
    place: int  # of the answer among all that the library gives


def timm_peer(name: str, folder: Path) -> Peer:
    changes: dict[str, Any] = {"img_size": 64} | TIMM[name]
    model = timm.create_model(name, depth=1, num_classes=5, **changes)
    save_for_hf(randomise(model), folder, safe_serialization=True)
    size = model.patch_embed.img_size or (64, 64)

    def load(path: Path) -> nn.Module:
        return timm.create_model(f"local-dir:{path}", pretrained=True).eval()

    return peer(f"timm {name}", folder, load, torch.randn(2, 3, *size))


def transformers_peer(name: str, folder: Path) -> Peer:
    torch.manual_seed(0)
    model = randomise(transformers_model(name, **({"num_register_tokens": 4} if "Registers" in name else {})))
    model.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(folder)

    def load(path: Path) -> nn.Module:
        found, told = type(model).from_pretrained(path, output_loading_info=True)
        left = [key for key in told["missing_keys"] if "mask_token" not in key]
        if left or told["mismatched_keys"] or told["unexpected_keys"]:
            raise ValueError("not all of it was read")
        return found.eval()

    return peer(f"transformers {name}", folder, load, torch.randn(2, 3, 32, 32))


def peer(name: str, folder: Path, load: Callable[[Path], nn.Module], images: Tensor) -> Peer:
    """With that of its library's answers which is ours, for the folder as it was saved."""
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = vt.load(folder).model(images), answers_of(load(folder), images)
    place = next(place for place, answer in enumerate(theirs) if alike(ours, answer))
    return Peer(name, folder, load, theirs[place], images, place)


def answers_of(model: nn.Module, images: Tensor) -> list[Tensor]:
    """All that a library's model answers; of tokens, the first, and the mean of the rest."""
    found = model(images)
    if isinstance(found, Tensor):
        return [found]
    names = ("logits", "image_embeds", "pooler_output", "last_hidden_state")
    all_of_them = [answer for name in names if (answer := getattr(found, name, None)) is not None]
    return [answer[:, 0] if answer.ndim == 3 else answer for answer in all_of_them]


def change_tensor(rng: random.Random, state: dict[str, Tensor]) -> str:
    """One tensor added, removed, renamed or reshaped."""
    name = rng.choice(sorted(state))
    kind = rng.choice(["add", "add", "remove", "rename", "reshape", "copy"])
    tensor = state[name]
    if kind == "remove":
        del state[name]
    elif kind == "add":
        before, _, last = name.rpartition(".")
        new = rng.choice(
            [f"{before}.{rng.choice(PARTS)}", f"{rng.choice(PARTS)}.{last}", f"{name}.{rng.choice(PARTS)}"]
        )
        state.setdefault(new, torch.randn(rng.choice([(5,), (4, 4), tuple(tensor.shape)])))
    elif kind == "copy":
        state[f"{rng.choice(['ema', 'teacher', 'model', rng.choice(PARTS)])}.{name}"] = torch.randn_like(tensor)
    elif kind == "rename":
        state[name.replace(rng.choice(name), rng.choice("xyz01."), 1)] = state.pop(name)
    else:
        state[name] = rng.choice(
            [tensor[None], tensor[..., :-1], tensor.flatten(), torch.cat([tensor, tensor])]
        ).clone()
    return f"{kind} {name}"


def change_field(rng: random.Random, config: dict[str, Any]) -> str:
    """One field, of any level, removed, added, or given another value."""
    levels = [config, *(value for value in config.values() if isinstance(value, dict) and value)]
    level = rng.choice(levels)
    kind = rng.choice(["remove", "add", "value", "value"])
    key = rng.choice(FIELDS) if kind == "add" or not level else rng.choice(sorted(level))
    if kind == "remove":
        level.pop(key, None)
        return f"remove {key}"
    old = level.get(key)
    number = isinstance(old, (int, float)) and not isinstance(old, bool)
    level[key] = rng.choice([old * 2, old + 1, old / 2]) if number and rng.random() < 0.5 else rng.choice(VALUES)
    return f"{kind} {key}={str(level[key])[:40]}"


def draw(rng: random.Random, model: Peer, folder: Path) -> tuple[str, str]:
    """What became of one change, and what it was."""
    for file in model.folder.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    target = rng.choice(["model.safetensors", "config.json", "config.json", "preprocessor_config.json"])
    target = target if (folder / target).exists() else "config.json"
    if target == "model.safetensors":
        state = {key: tensor.clone() for key, tensor in load_file(folder / "model.safetensors").items()}
        what = change_tensor(rng, state)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        config = copy.deepcopy(json.loads((folder / target).read_text("utf-8")))
        what = f"{target}: {change_field(rng, config)}"
        (folder / target).write_text(json.dumps(config))
    return judge(model, folder, target), f"{model.name}: {what}"


def judge(model: Peer, folder: Path, target: str) -> str:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = vt.load(folder)
        except (ValueError, OSError) as error:
            return "refused" if len(str(error)) < 2000 and "\n" not in str(error) else "wrong: a long message"
        except Exception as error:
            return f"wrong: {type(error).__name__}: {str(error)[:200]}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    if time.process_time() - start > 5 or grown > 2:
        return f"wrong: {time.process_time() - start:.1f} s, {grown:.1f} GB"
    told = any(w.category is UserWarning for w in said)
    with torch.inference_mode():
        images = model.images
        size = vt.patches.as_pair(found.model.config.image_size, "image_size")
        other_size = size != tuple(images.shape[-2:]) and not getattr(found.model.config, "any_size", False)
        if other_size:  # by the processor, or by the config: compared at this size
            images = torch.randn(2, 3, *size)
        ours = found.model(images)
        if not other_size and alike(ours, model.answer) and target != "preprocessor_config.json":
            return "equal"
        try:
            expected = answers_of(model.load(folder), images)[model.place]
        except Exception:  # the library takes no such folder, or no such pictures
            expected = None if other_size else model.answer
        if expected is None:
            return "warned" if told else "alone"
        same = alike(ours, expected) and (target != "preprocessor_config.json" or pixels_of(folder, found.preprocess))
    return "equal" if same else "warned" if told else "wrong: another answer silently"


def alike(ours: Tensor | None, theirs: Tensor) -> bool:
    """The same numbers, to 1e-4 of their spread."""
    if ours is None or ours.shape != theirs.shape:
        return False
    return bool((ours - theirs).abs().max() < 1e-4 * theirs.std().clamp(min=1e-3))


def pixels_of(folder: Path, ours: vt.data.Preprocessing) -> bool:
    """Whether transformers prepares a picture likewise; true if it can't at all."""
    content = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    try:
        theirs = transformers.ViTImageProcessorPil.from_dict(content)
        expected = torch.as_tensor(theirs(PICTURE, return_tensors="np")["pixel_values"]).float()
    except Exception:
        return True
    got = ours(PICTURE)
    (H, W), (rows, columns) = ours.image_size, ours.left_over  # their convolution drops what patches leave over
    if expected.shape[-2:] != (H + rows, W + columns):
        return False
    expected = expected[..., :H, :W]
    return got.shape == expected.shape and bool(
        (got - expected).abs().max() < 1e-4 * max(1.0, float(expected.abs().max()))
    )


def peers(folder: Path) -> list[Peer]:
    """All of them, saved."""
    made = [timm_peer(name, folder / name) for name in TIMM]
    return made + [transformers_peer(name, folder / name) for name in TRANSFORMERS]


def run(draws: int, seed: int) -> tuple[Counter[str], list[str]]:
    """The counts, and the draws that are wrong."""
    counts, wrong = Counter[str](), []
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        models = peers(Path(folder))
        for number in range(draws):
            rng = random.Random(f"{seed} {number}")
            with tempfile.TemporaryDirectory() as changed, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result, what = draw(rng, rng.choice(models), Path(changed))
            counts[result.partition(":")[0]] += 1
            if result.startswith("wrong"):
                wrong.append(f"draw {number}, {what}: {result}")
                print(wrong[-1], file=sys.stderr, flush=True)
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts, wrong = run(args.draws, args.seed)
    print(", ".join(f"{kind}: {counts[kind]:,}" for kind in ("equal", "warned", "refused", "alone", "wrong")))
    if wrong:
        raise SystemExit(f"{len(wrong)} wrong")


if __name__ == "__main__":
    main()
