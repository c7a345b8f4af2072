"""Every Vision Transformer of timm and transformers, small and with random weights: equal to ours, or refused.

    python benchmarks/families.py                   the counts, and benchmarks/families.csv: a model of each family
    python benchmarks/families.py --only vit_reg    families whose name begins so; writes nothing
    python benchmarks/families.py --every           each size of each family; writes nothing

A family of timm's is a name of its ViT modules without sizes; the first of each, and each class of transformers' for
images, is built with two blocks. Every parameter is random, since zeros and ones would hide mistakes. ``vt.load``'s own
steps follow: the facts off the live module, our model by a table of names, the proof. A case is *equal*, or *refused*
with a sentence that says where the two differ first. It can't give other numbers silently: the comparison decides.
"""

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import timm
import transformers
from torch import nn
from transformers.models.auto import modeling_auto

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import peers

from vit_tutorial.weights import convert, loading, proof, timm_models, transformers_models

MODULES = (
    "vision_transformer", "deit", "beit", "eva", "cait", "naflexvit", "vision_transformer_hybrid",
    "vision_transformer_relpos", "vision_transformer_sam",
)  # fmt: skip
SIZE = re.compile(
    r"_(tiny|small|base|large|huge|giant|gigantic|medium|mediumd|xsmall|wee|pwee|little|betwixt|so150m2?|so400m|giantopt"
    r"|intern300m|[sml]?\d+|xxs\d+|xs\d+|7b|plus|patch\d+|huge_plus|small_plus|in\d+k)(?=_)"
)
TABLE = Path(__file__).with_name("families.csv")
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8, "vocab_size": 99, "max_position_embeddings": 16, "projection_size": 32, "projection_dim": 16,
}  # fmt: skip
Case = tuple[str, str, str, Callable[[], nn.Module], Callable[[nn.Module], convert.PublishedModel]]


def of_timm() -> Iterator[Case]:
    """Library, family, name, how it is built, how its facts are read: of each model in timm's modules of ViTs."""
    for module in MODULES:
        for name in timm.list_models(module=module):
            family = re.sub(r"_+", "_", SIZE.sub("_", f"{name}_")).strip("_")
            yield "timm", family, name, lambda name=name: small(name), timm_models.describe


def small(name: str) -> nn.Module:
    """A model of timm's with two blocks, on images of three by three patches, where its builder takes such sizes."""
    full = timm.create_model(name, depth=1, num_classes=5) if "naflex" not in name else None
    patch = getattr(getattr(full, "patch_embed", None), "patch_size", (16, 16))[0]
    try:
        return timm.create_model(name, depth=2, num_classes=5, img_size=3 * patch)
    except (AssertionError, RuntimeError, ValueError, TypeError):
        return timm.create_model(name, depth=2, num_classes=5)


def of_transformers() -> Iterator[Case]:
    """Of each class of transformers' whose config has images in patches, by itself or in a part of it."""
    mappings = (
        modeling_auto.MODEL_FOR_IMAGE_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    )
    for mapping in mappings:
        for kind, names in mapping.items():
            for name in (names,) if isinstance(names, str) else names:
                if has_patches(kind):
                    yield "transformers", kind, name, lambda name=name: tiny(name), transformers_models.describe


def has_patches(kind: str) -> bool:
    """Whether a config has image_size and patch_size, or a vision_config that has both."""
    try:
        config = transformers.AutoConfig.for_model(kind)
    except Exception:  # of a config that nothing can be built of without its parts
        return False
    seen = getattr(config, "vision_config", config)
    return hasattr(seen, "image_size") and hasattr(seen, "patch_size")


def tiny(name: str) -> nn.Module:
    """A model of transformers' with two blocks."""
    kind = getattr(transformers, name)
    parts = getattr(kind.config_class, "sub_configs", {})
    fields = {part: known(config) for part, config in parts.items() if part in ("vision_config", "text_config")}
    return kind(kind.config_class(**(fields or known(kind.config_class))))


def known(config_class: type) -> dict[str, int]:
    """Those of :data:`SIZES` that a config has."""
    config = config_class()
    return {name: size for name, size in SIZES.items() if isinstance(getattr(config, name, None), int)}


def outcome(build: Callable[[], nn.Module], read: Callable[[nn.Module], convert.PublishedModel]) -> tuple[str, str]:
    """Whether it is equal or refused, and why; or not built, by the library itself."""
    try:
        theirs = peers.randomise(build()).eval()
    except Exception as error:  # whatever a library raises for small sizes
        return "not built", f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    try:
        with loading.errors_named("it"):
            original = read(theirs)
            proof.prove(convert.model_of(original), original)
    except ValueError as error:
        return "refused", str(error).removeprefix("it: ")
    return "equal", ""


def main() -> None:
    """Print a row for each family that has a model refused, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="families whose name begins so")
    parser.add_argument("--every", action="store_true", help="each size of each family")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    rows, seen = [], set[tuple[str, str]]()
    for library, family, name, build, read in [*of_timm(), *of_transformers()]:
        first = library == "transformers" or (library, family) not in seen
        seen.add((library, family))
        if family.startswith(args.only) and (first or args.every):
            result, why = outcome(build, read)
            rows.append({"library": library, "family": family, "model": name, "result": result, "why": why})
            print(f"{library:<13}{name:<52}{result:<10}{why[:120]}", flush=True)
    for library in ("timm", "transformers"):
        counts = Counter(row["result"] for row in rows if row["library"] == library)
        print(library, ", ".join(f"{count} {result}" for result, count in counts.most_common()))
    if not args.only and not args.every:
        with TABLE.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


if __name__ == "__main__":
    main()
