"""Every vision transformer of timm and transformers through ``vt.weights.convert`` and ``vt.load``: equal, or refused.

    python benchmarks/families.py                 the table of benchmarks/README.md; exit status 1 if any is wrong
    python benchmarks/families.py --only deit     families whose name begins so
    python benchmarks/families.py --verbose       a line a case, with the reason of each refusal

Each name of timm's ViT families and each vision class of transformers is built small (the architecture's own heads, 16
numbers a head, two blocks), every parameter and buffer is random, and its checkpoint is read four ways: as a bare state
dict; as one with heads, GELU, epsilon, size and pixels told, as their modules have them ("told", whether ViTConfig can
express the architecture or not); as a file; and as the folder that the library itself saves.
Our answer to an image is compared with theirs, and for folders a photograph's preprocessing, too. A case is

- equal: the same numbers to 1e-4 of their spread (a warning or not);
- refused: a ValueError that says which part of the architecture or config is beyond ViTConfig, or what to give;
- unclear: a ValueError that lists names and no cause;
- warned: other numbers, and a UserWarning that says what was assumed;
- wrong: other numbers without a word, or another kind of error. There must be none.
"""

import argparse
import re
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from timm.models import save_for_hf
from timm.models.vision_transformer import ResPostBlock
from torch import Tensor, nn

import vit_tutorial as vt
from vit_tutorial.weights import configs
from vit_tutorial.weights.reading import read_json

MODULES = ("vision_transformer", "deit", "beit", "eva", "cait", "naflexvit", "vision_transformer_hybrid",
           "vision_transformer_relpos", "vision_transformer_sam")  # fmt: skip
ROUTES = ("state dict", "told", "file", "folder")
RESULTS = ("equal", "refused", "unclear", "warned", "wrong")
CAUSES = (
    "which ViTConfig can't express", "beyond ViTConfig", "which ModernConfig can't express", "beyond ModernConfig",
    "give num_heads", "give image_size", "give preprocess",
    "a head of another kind", "layers without a bias", "its config says", "its model_args", "no norm after",
    "Preprocessing can't express", "which this package doesn't know", "pools by",
    "must have 4 axes", "Give preprocess=", "isn't read here",
    "beyond ViTConfig and ModernConfig", "its config pools", "nothing tells whether",
)  # fmt: skip
Case = tuple[str, str, Callable[[], nn.Module], Callable[[nn.Module, Path], Any]]  # family, name, build, save
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (70, 101, 3), np.uint8)).resize((300, 210))


@torch.no_grad()
def randomise(model: nn.Module) -> nn.Module:
    """Noise in every parameter and every floating-point buffer that a checkpoint holds."""
    generator = torch.Generator().manual_seed(0)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point() and tensor.numel():
            fan = tensor[0].numel() ** -0.5 if tensor.ndim in (2, 4) else 0.3
            tensor.add_(torch.randn(tensor.shape, generator=generator) * fan)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.abs_()
    return model.eval()


# ---------------------------------------------------------------------------------------------------------------- timm


def timm_model(name: str, **changes: Any) -> nn.Module:
    """The architecture, small: two blocks, 16 numbers a head, three patches by three."""
    with torch.device("meta"):
        try:
            large = timm.create_model(name, num_classes=5, depth=1)
        except Exception:
            large = timm.create_model(name, num_classes=5)
    block = next(m for m in large.modules() if hasattr(m, "num_heads"))
    patch = getattr(getattr(large, "patch_embed", None), "patch_size", (16, 16))
    stride = max(patch) if max(patch) > 1 else 32
    small = {"embed_dim": 16 * block.num_heads, "depth": 2, "num_classes": 5, "img_size": 3 * stride}
    tries = (
        small,
        {key: value for key, value in small.items() if key != "img_size"},
        {key: value for key, value in small.items() if key != "embed_dim"} | {"img_size": 4 * stride},
        small | {"num_kv_heads": [block.num_heads] * 2},
        {"depth": 2, "num_classes": 5},
    )
    for attempt in tries:
        try:
            return timm.create_model(name, **(attempt | changes))
        except Exception as error:
            last = error
    raise last


def save_timm(model: nn.Module, folder: Path) -> Any:
    save_for_hf(model, folder, safe_serialization=True)
    about = timm.data.resolve_data_config({}, pretrained_cfg=saved_cfg(folder))
    if about["input_size"][0] != 3:
        return None
    return lambda picture: timm.data.create_transform(**about)(picture)[None]


def save_nothing(model: nn.Module, folder: Path) -> None:
    """For what timm's config.json can't say."""


def saved_cfg(folder: Path) -> dict[str, Any]:
    return timm.models._hub.load_model_config_from_path(folder)[0]


VARIANTS: dict[str, dict[str, Any]] = {  # what model_args and pretrained_cfg may say of a plain ViT
    **{f"act_layer {name}": {"act_layer": name} for name in ("gelu", "gelu_tanh", "relu", "silu", "quick_gelu")},
    **{f"global_pool {pool}": {"global_pool": pool} for pool in ("avg", "avgmax", "max", "map", "prr", "")},
    **{f"global_pool {pool}, no fc_norm": {"global_pool": pool, "fc_norm": False} for pool in ("avg", "avgmax", "max")},
    "mean": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    "mean, norm after": {"global_pool": "avg", "class_token": False},
    "mean with prefix": {"global_pool": "avg", "fc_norm": False, "pool_include_prefix": True},
    "token with fc_norm": {"fc_norm": True},
    "no final norm": {"final_norm": False},
    "no class position": {"no_embed_class": True},
    "no positions": {"pos_embed": "none"},
    "no qkv bias": {"qkv_bias": False},
    "no projection bias": {"proj_bias": False},
    "registers": {"reg_tokens": 2},
    "layer scale": {"init_values": 0.1},
    "qk_norm": {"qk_norm": True},
    "pre_norm": {"pre_norm": True},
    "rms norm": {"norm_layer": "rmsnorm"},
    "rectangle": {"img_size": (32, 64)},
    "grey": {"in_chans": 1},
    "other heads": {"num_heads": 6},
    "other mlp": {"mlp_ratio": 2.5},
    "norms behind": {"block_fn": ResPostBlock},  # which timm doesn't write into a folder
    "dynamic size": {"dynamic_img_size": True},
    "no head": {"num_classes": 0},
    "crop border": {"cfg": {"crop_mode": "border"}},
    "crop squash": {"cfg": {"crop_mode": "squash", "crop_pct": 1.0}},
    "crop squash 0.9": {"cfg": {"crop_mode": "squash", "crop_pct": 0.9}},
    "bilinear": {"cfg": {"interpolation": "bilinear", "crop_pct": 0.95}},
    "imagenet's mean": {"cfg": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}},
}


def timm_variant(changes: dict[str, Any]) -> nn.Module:
    changes = dict(changes)
    cfg = changes.pop("cfg", None)
    small = {"embed_dim": 96, "depth": 2, "num_classes": 5, "img_size": 48, "num_heads": 3}
    return timm.create_model("vit_tiny_patch16_224", pretrained_cfg_overlay=cfg, **(small | changes))


def timm_cases() -> Iterator[Case]:
    for module in MODULES:
        for name in timm.list_models(module=module):
            family = module
            if module == "vision_transformer":
                kind = re.search(r"clip|siglip_gap|siglip|dinov2|aimv2|beit3|flexivit|reg\d|gap|intern", name)
                family = f"vit, {kind[0].rstrip('0123456789')}" if kind else "vit"
            elif module == "eva":
                kind = re.search(r"eva02|eva|dinov3|rope|pe_", name)
                family = f"eva, {kind[0].rstrip('_')}" if kind else "eva"
            yield f"timm {family}", name, lambda name=name: timm_model(name), save_timm
    for name, changes in VARIANTS.items():
        save = save_nothing if "block_fn" in changes else save_timm
        yield "timm, options of vit_tiny", name, lambda changes=changes: timm_variant(changes), save


# -------------------------------------------------------------------------------------------------------- transformers

CLASSES = [
    "ViTModel",
    "ViTForImageClassification",
    "ViTForMaskedImageModeling",
    "DeiTModel",
    "DeiTForImageClassification",
    "DeiTForImageClassificationWithTeacher",
    "DeiTForMaskedImageModeling",
    "ViTMAEModel",
    "ViTMAEForPreTraining",
    "ViTMSNModel",
    "ViTMSNForImageClassification",
    "IJepaModel",
    "IJepaForImageClassification",
    "DPTModel",
    "DPTForDepthEstimation",
    "DPTForSemanticSegmentation",
    "BeitModel",
    "BeitForImageClassification",
    "BeitForMaskedImageModeling",
    "Data2VecVisionModel",
    "Data2VecVisionForImageClassification",
    "Dinov2Model",
    "Dinov2ForImageClassification",
    "Dinov2WithRegistersModel",
    "Dinov2WithRegistersForImageClassification",
    "DINOv3ViTModel",
    "DINOv3ViTForImageClassification",
    "SiglipVisionModel",
    "SiglipForImageClassification",
    "Siglip2VisionModel",
    "Siglip2ForImageClassification",
    "CLIPVisionModel",
    "CLIPVisionModelWithProjection",
    "CLIPForImageClassification",
    "BlipVisionModel",
    "YolosModel",
    "YolosForObjectDetection",
    "Blip2VisionModel",
    "MetaClip2VisionModel",
    "MetaClip2VisionModelWithProjection",
    "CLIPSegVisionModel",
    "AltCLIPVisionModel",
    "ChineseCLIPVisionModel",
    "SwinModel",
    "SwinForImageClassification",
    "Swinv2ForImageClassification",
    "HieraForImageClassification",
    "PvtForImageClassification",
    "LevitForImageClassification",
    "PoolFormerForImageClassification",
    "VitDetModel",
    "InternVLVisionModel",
    "GroupViTVisionModel",
    "OwlViTVisionModel",
    "VivitForVideoClassification",
]
SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 32,
    "patch_size": 8, "num_labels": 5, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2, "decoder_intermediate_size": 16, "mask_ratio": 0.0,
    "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8, "backbone_out_indices": [0, 0, 1, 1],
}  # fmt: skip
TOWER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size")
OPTIONS: dict[str, dict[str, Any]] = {
    **{f"hidden_act {act}": {"hidden_act": act}
       for act in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "silu")},
    "eps 1e-6": {"layer_norm_eps": 1e-6},
    "eps 0.01": {"layer_norm_eps": 1e-2},
    "no qkv bias": {"qkv_bias": False},
    "rectangle": {"image_size": (32, 64)},
    "oblong patches": {"patch_size": (8, 16)},
    "grey": {"num_channels": 1},
    "other heads": {"num_attention_heads": 2},
}  # fmt: skip
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "as it comes": ("ViT", {"size": {"height": 32, "width": 32}}),
    "size as a number": ("ViT", {"size": 32}),
    "no rescale": ("ViT", {"size": 32, "do_rescale": False}),
    "another rescale": ("ViT", {"size": 32, "rescale_factor": 1 / 128}),
    "no normalise": ("ViT", {"size": 32, "do_normalize": False}),
    "no resize": ("ViT", {"size": 32, "do_resize": False}),
    "nearest": ("ViT", {"size": 32, "resample": 0}),
    "lanczos": ("ViT", {"size": 32, "resample": 1}),
    "bicubic": ("ViT", {"size": 32, "resample": 3}),
    "box": ("ViT", {"size": 32, "resample": 4}),
    "imagenet's mean": ("ViT", {"size": 32, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    "DeiT, resize then crop": ("DeiT", {"size": 40, "crop_size": 32}),
    "DeiT, no crop": ("DeiT", {"size": 32, "do_center_crop": False}),
    "DeiT, odd border": ("DeiT", {"size": 37, "crop_size": 32}),
    "shortest edge and crop": ("CLIP", {"size": {"shortest_edge": 32}, "crop_size": 32}),
    "ConvNeXt's crop_pct": ("ConvNext", {"size": {"shortest_edge": 32}, "crop_pct": 0.9}),
    "another size than the model's": ("ViT", {"size": 64}),
}


def transformers_model(name: str, **changes: Any) -> nn.Module:
    kind = getattr(transformers, name)
    if "vision_config" in getattr(kind.config_class, "sub_configs", {}):
        tower = {key: value for key, value in SMALL.items() if key in TOWER}
        return kind(kind.config_class(vision_config=tower, num_labels=SMALL["num_labels"]))
    wanted = {key: value for key, value in SMALL.items() if hasattr(kind.config_class(), key)} | changes
    if name.startswith("DPT"):  # a neck takes four layers
        wanted |= {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
    for attempt in (wanted, {k: v for k, v in wanted.items() if k in ("image_size", "num_labels")} | changes, changes):
        try:
            return kind(kind.config_class(**attempt))
        except Exception as error:
            last = error
    raise last


def save_transformers(processor: tuple[str, dict[str, Any]]) -> Callable[[nn.Module, Path], Any]:
    def save(model: nn.Module, folder: Path) -> Any:
        model.save_pretrained(folder)
        name, options = processor
        kind = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
        theirs = kind(**options)
        if getattr(model.config, "num_channels", 3) == 3:
            theirs.save_pretrained(folder)
            return lambda picture: torch.as_tensor(np.array(theirs(picture, return_tensors="np")["pixel_values"]))
        return None

    return save


def size_of(model: nn.Module) -> tuple[str, dict[str, Any]]:
    size = getattr(getattr(model.config, "vision_config", model.config), "image_size", 32)
    height, width = (size, size) if isinstance(size, int) else size
    return "ViT", {"size": {"height": height, "width": width}}


def transformers_cases() -> Iterator[Case]:
    def save(model: nn.Module, folder: Path) -> Any:
        return save_transformers(size_of(model))(model, folder)

    for name in CLASSES:
        if hasattr(transformers, name):
            family = re.split(r"Model|For|Vision", name)[0]
            yield f"transformers {family}", name, lambda name=name: transformers_model(name), save
    for option, changes in OPTIONS.items():
        for name in ("ViTForImageClassification", "ViTMSNForImageClassification"):
            label = f"{name}, {option}"
            yield (
                "transformers, options",
                label,
                lambda name=name, changes=changes: transformers_model(name, **changes),
                save,
            )
    for label, processor in PROCESSORS.items():
        yield (
            "transformers, processors",
            label,
            lambda: transformers_model("ViTForImageClassification"),
            save_transformers(processor),
        )

    def wrapped() -> nn.Module:
        options = {"embed_dim": 96, "depth": 2, "img_size": 48}
        cfg = timm.models.get_pretrained_cfg("vit_tiny_patch16_224").to_dict() | {"input_size": (3, 48, 48)}
        config = transformers.TimmWrapperConfig(
            architecture="vit_tiny_patch16_224", num_labels=5, model_args=options, pretrained_cfg=cfg
        )
        return transformers.TimmWrapperForImageClassification(config)

    def save_wrapped(model: nn.Module, folder: Path) -> Any:
        model.save_pretrained(folder)

    yield "transformers TimmWrapper", "vit_tiny_patch16_224", wrapped, save_wrapped


# ------------------------------------------------------------------------------------------------------------ comparing


def answers(model: nn.Module, images: Tensor) -> list[Tensor]:
    """What theirs gives that ours may be compared with: logits, or tokens."""
    found = model(images)
    if isinstance(found, Tensor):
        return [found]
    if isinstance(found, (tuple, list)):
        return [found[0]]
    if re.match(r"(Alt|Chinese|Meta)?C(LIP|lip)|OwlViT", type(model).__name__):  # tokens are before the last norm
        names: tuple[str, ...] = ("logits", "image_embeds", "pooler_output")
    else:
        names = ("logits", "last_hidden_state")
    good = [getattr(found, name) for name in names if isinstance(getattr(found, name, None), Tensor)]
    inner = getattr(model, getattr(model, "base_model_prefix", ""), None)
    whole = re.search(r"(Classification|Projection|DINOv3ViTModel)$", type(model).__name__)
    if isinstance(inner, nn.Module) and inner is not model and not whole:
        good = answers(inner, images)  # of a model with a decoder or a neck, the encoder
    return good


def masked_in_order(model: nn.Module, images: Tensor) -> list[Tensor]:
    """ViTMAE shuffles its patches; a noise that rises leaves them in order."""
    inner = getattr(model, "vit", model)
    patches = inner.embeddings.patch_embeddings.num_patches
    noise = torch.linspace(0, 1, patches)[None].expand(len(images), -1)
    return [inner(images, noise=noise).last_hidden_state]


def accepts(theirs: nn.Module, images: Tensor) -> bool:
    """Whether theirs takes pictures of this size at all."""
    try:
        theirs(images)
    except (ValueError, RuntimeError, AssertionError):
        return False
    return True


def difference(ours: vt.ViT, theirs: nn.Module, images: Tensor) -> float:
    """The largest difference of the two answers, as a share of the spread of theirs."""
    kind = type(theirs).__name__
    with torch.inference_mode():
        if not accepts(theirs, images):
            return float("inf")
        expected = masked_in_order(theirs, images) if kind.startswith("ViTMAE") else answers(theirs, images)
        if not expected:
            return float("nan")
        want = expected[0]
        got = ours.features(images) if want.ndim == 3 else ours(images)
        if kind.startswith("DeiT") and want.ndim == 2 and got.shape != want.shape:
            return float("inf")
        if got.shape != want.shape and got.ndim == 2 and ours.config.num_classes == 0:
            got = got.unflatten(1, (-1, want.shape[1])).mean(1) if got.shape[1] % want.shape[1] == 0 else got
        if got.shape != want.shape:
            return float("inf")
        return ((got - want).abs().max() / want.std().clamp(min=1e-6)).item()


def judge(load: Callable[[], Any], theirs: nn.Module, pixels: Any = None) -> tuple[str, str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            loaded = load()
        except (ValueError, OSError) as error:
            text = str(error)
            if len(text) >= 2000:
                return "wrong", f"a message of {len(text)} characters"
            return "refused" if any(cause in text for cause in CAUSES) else "unclear", text
        except Exception as error:
            return "wrong", f"{type(error).__name__}: {str(error)[:200]}"
    model = loaded[0]
    if not isinstance(model, vt.ViT):  # convert's
        model = vt.modern.build(loaded.config).eval()
        model.load_state_dict({name: tensor.float() for name, tensor in loaded.state_dict.items()})
    H, W = vt.patches.as_pair(model.config.image_size, "image_size")
    images = torch.randn(2, model.config.in_channels, H, W, generator=torch.Generator().manual_seed(1))
    largest, text = difference(model, theirs, images), ""
    if pixels is not None:
        expected, got = pixels(PICTURE), loaded.preprocess(PICTURE)
        apart = float("inf") if expected.shape != got.shape else (expected - got).abs().max().item()
        text = f"pixels {apart:.1e}, "
        largest = max(largest, 0.0 if apart < 1e-4 * max(1.0, expected.abs().max().item()) else apart)
    told = any(issubclass(w.category, UserWarning) and "assumed" in str(w.message) for w in said)
    if largest < 1e-4:
        return "equal", f"{text}{largest:.1e}"
    return "warned" if told else "wrong", f"{text}{largest:.1e}"


GELUS = {
    "GELU": "exact", "GELUActivation": "exact", "GELUTanh": "tanh", "NewGELUActivation": "tanh",
    "PytorchGELUTanh": "tanh", "GELUTanhActivation": "tanh", "FastGELUActivation": "tanh",
}  # fmt: skip


def all_told(theirs: nn.Module) -> dict[str, Any]:
    """What a user who has their module can tell of it."""
    config = getattr(theirs, "config", None)
    told: dict[str, Any] = {}
    heads = [m.num_heads for m in theirs.modules() if isinstance(getattr(m, "num_heads", None), int)]
    heads += [getattr(config, "num_attention_heads", None)]
    if isinstance(heads[0], int):
        told["num_heads"] = heads[0]
    told["norm_eps"] = next((m.eps for m in theirs.modules() if isinstance(m, nn.LayerNorm)), 1e-6)
    for module in theirs.modules():
        if type(module).__name__ in GELUS:
            tanh = getattr(module, "approximate", "none") == "tanh"
            told["gelu"] = "tanh" if tanh else GELUS[type(module).__name__]
            break
    cut = getattr(theirs, "patch_embed", None)
    size = getattr(cut, "img_size", None) or getattr(config, "image_size", None)
    if isinstance(size, int | tuple | list):
        told["image_size"] = size if isinstance(size, int) else tuple(size)
        height, width = vt.patches.as_pair(told["image_size"], "image_size")
        channels = getattr(config, "num_channels", getattr(theirs, "in_chans", 3))
        told["preprocess"] = vt.data.Preprocessing((height, width), (0.5,) * channels, (0.5,) * channels)
    return told


def run(case: Case, folder: Path) -> dict[str, tuple[str, str]]:
    _, _, build, save = case
    torch.manual_seed(0)
    theirs = randomise(build())
    state = {name: tensor.detach().clone().contiguous() for name, tensor in theirs.state_dict().items()}
    file = folder / "bare" / "x.safetensors"
    file.parent.mkdir()
    save_file(state, file)
    pixels = save(theirs, folder / "folder")
    results = {
        "state dict": judge(lambda: vt.weights.convert(state), theirs),
        "told": judge(lambda: vt.weights.convert(state, **all_told(theirs)), theirs),
        "file": judge(lambda: vt.load(file), theirs),
    }
    if (folder / "folder").exists():
        results["folder"] = judge(lambda: vt.load(folder / "folder"), theirs, pixels)
        if results["folder"][0] == "equal":  # what its config tells of a model of after 2020
            known = configs.read(read_json(folder / "folder" / "config.json"), None).given
            told = all_told(theirs) | ({"gelu": known.gelu} if known.gelu else {}) | {"parts": known.parts}
            if known.parts:
                results["told"] = judge(lambda: vt.weights.convert(state, **told), theirs)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="families whose name begins so")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: {route: Counter() for route in ROUTES})
    cases, failed = Counter[str](), []
    for case in (*timm_cases(), *transformers_cases()):
        family, name = case[:2]
        if not family.partition(" ")[2].startswith(args.only) and not family.startswith(args.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                results = run(case, Path(folder))
            except Exception as error:  # theirs can't be built so small, or saved
                failed.append(f"{family}: {name} ({' '.join(str(error).split())[:120]})")
                continue
        cases[family] += 1
        for route, (result, text) in results.items():
            counts[family][route][result] += 1
            if args.verbose or result in ("wrong", "unclear"):
                print(f"{result:8} {family}: {name}, {route}: {text[:300]}", file=sys.stderr, flush=True)
    show(counts, cases)
    if failed:
        print(f"\nNot built so small, {len(failed)}: {'; '.join(failed)}")
    wrong = sum(count[route]["wrong"] for count in counts.values() for route in ROUTES)
    if wrong:
        raise SystemExit(f"{wrong} wrong")


def show(counts: dict[str, dict[str, Counter[str]]], cases: Counter[str]) -> None:
    """A row a family; in each route's cell equal / refused / unclear / warned / wrong."""
    print(f"| family | cases | {' | '.join(ROUTES)} |\n|{'---|' * (len(ROUTES) + 2)}")
    total = {route: Counter[str]() for route in ROUTES}
    for family in sorted(counts):
        cells = [" / ".join(str(counts[family][route][result]) for result in RESULTS) for route in ROUTES]
        for route in ROUTES:
            total[route] += counts[family][route]
        print(f"| {family} | {cases[family]} | {' | '.join(cells)} |")
    cells = [" / ".join(str(total[route][result]) for result in RESULTS) for route in ROUTES]
    print(f"| all | {sum(cases.values())} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
