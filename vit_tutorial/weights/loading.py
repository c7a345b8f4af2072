"""Lesson 09: from a name to a model. :func:`load` asks the library that published it, then proves that ours is equal.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'

Of a published model: :mod:`.download` fetches the files, the library builds its own model, :mod:`.adapters` reads the
facts off it, :mod:`.convert` makes ours by a table of :mod:`.tables`, :mod:`.proof` compares the two, :mod:`.pixels`
the preprocessing. A folder of this package is read by :mod:`.checkpoint` alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vit_tutorial.data import Preprocessing
from vit_tutorial.data.extras import needed
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.weights import adapters, checkpoint, convert, download, files, pixels, proof
from vit_tutorial.weights.adapters import Twin
from vit_tutorial.weights.checkpoint import SHIPPED, Trained, shipped

FILES = (".safetensors", ".npz", ".pth", ".pt", ".bin", ".ckpt", ".tar")
LIKE = "vt.load(file, like='timm/vit_small_patch16_224'), or like='torchvision/…', or a folder or name of transformers'"


class Published(NamedTuple):
    """A library's live model, and what stands beside it."""

    twin: Twin
    preprocess: Preprocessing
    classes: tuple[str, ...]


def load(
    name: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    num_classes: int | None = None,
    image_size: Size | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    A published model is built by the library that published it, and ours is compared with it: the tokens after each
    block, the answer, the preprocessing of a photograph. It is equal, or a ValueError says where it first differs.

    Args:
        name: one of

            - "digits", "digits-patch2", "shapes", "photographs" or "cifar10": come with the package;
            - a folder that ``vt.save`` or ``vit-tutorial train`` wrote;
            - "timm/vit_small_patch16_224.augreg_in21k_ft_in1k": a model of timm's, with or without the name of weights;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "google/vit-base-patch16-224": a repository on the Hugging Face hub, for transformers, timm or this
              package;
            - a folder with the files of such a repository;
            - a file of weights, which must be said to be ``like`` something.

        like: what a file of weights is: a name as above, of timm's, torchvision's or transformers', or a folder with a
            config.json of transformers'.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels, which the model then takes. Learned positions are resized to it, as the
            library does; it is set here alone, since the model's config says it.
        revision: of a repository on the hub: a branch, a tag or a commit.
        token: for a repository that isn't public; by default the one that huggingface_hub has.

    Raises:
        ValueError: no such name; weights that are damaged; a model that isn't equal to ours: where it differs.
        TypeError: a value of another type.
        OSError: a file isn't there and can't be downloaded: which file to put where.
        ImportError: the library that published the model isn't installed.
    """
    text = os.fsdecode(name)
    if not text:
        raise ValueError("the name is empty: name a model, OWNER/NAME, a folder or a file")
    if num_classes is not None and (isinstance(num_classes, bool) or not isinstance(num_classes, int)):
        raise TypeError(f"num_classes must be an int, got {num_classes!r}")
    if text in shipped() and like is None:
        found = checkpoint.read(SHIPPED / text)
    else:
        found = _find(text, None if like is None else os.fsdecode(like), image_size, revision, token)
    model, classes, preprocess = found
    if image_size is not None and as_pair(image_size, "image_size") != model.config.image_size:
        model = convert.with_size(model, image_size)
        preprocess = replace(preprocess, image_size=as_pair(image_size, "image_size"), left_over=(0, 0))
    if num_classes is not None and num_classes != model.config.num_classes:
        model, classes = convert.with_head(model, num_classes), numbered(num_classes)
    vars(model)["preprocess"] = preprocess  # so that training on other pixels is an error
    return Trained(model, classes, preprocess)


def numbered(rows: int) -> tuple[str, ...]:
    """Names for the rows of a head that names none."""
    return tuple(f"class {k}" for k in range(rows))


def _find(
    text: str, like: str | None, image_size: Size | None, revision: str | None, token: str | bool | None
) -> Trained:
    """What the name, or the file that is ``like`` something, stands for."""
    path, name = Path(text), text.removeprefix("hf-hub:").removeprefix("hf/")
    if like is not None:
        files.check_file(path)
        return proven(_file(path, like, image_size, revision, token), text, image_size)
    if path.is_dir():
        return _folder(path, text, image_size)
    if path.suffix.lower() in FILES and (path.is_file() or path.suffix != ".tar"):
        files.check_file(path)
        raise ValueError(f"{text} is a file of tensors, and doesn't say which model they belong to: {LIKE}")
    kind, _, rest = name.partition("/")
    if kind == "torchvision" and rest:
        return proven(lambda: _torchvision(rest), text, image_size)
    if kind == "timm" and rest:
        return _folder(download.repository(_timm_repository(rest), revision, token), text, image_size)
    if rest and "/" not in rest:
        return _folder(download.repository(name, revision, token), text, image_size)
    raise ValueError(
        f"{text!r} is neither a model of the package ({', '.join(shipped())}) nor a folder, nor timm/NAME, "
        "torchvision/NAME, or OWNER/NAME on the Hugging Face hub; vit-tutorial train --out FOLDER writes such a folder"
    )


def _folder(path: Path, text: str, image_size: Size | None) -> Trained:
    """A folder of this package's, or with the files of a repository for transformers or timm."""
    there = sorted(file.name for file in path.iterdir())
    if "config.json" not in there:
        if "state.pt" in there:
            raise FileNotFoundError(f"{path} holds an unfinished run: finish it by the same command with --resume")
        raise FileNotFoundError(f"the folder {path} has no config.json, but {', '.join(there[:10]) or 'nothing'}")
    if "adapter_config.json" in there:  # which transformers leaves out, if peft isn't installed
        raise ValueError(f"{path} holds an adapter: merge it (peft's merge_and_unload), save that model, and load it")
    settings = files.read_json(path / "config.json")
    if checkpoint.is_ours(settings):
        return checkpoint.read(path)
    if "architecture" in settings:
        return proven(lambda: _timm(path, image_size), text, image_size)
    if "model_type" in settings:
        return proven(lambda: _transformers(path), text, image_size)
    raise ValueError(f"{path / 'config.json'} is neither this package's, nor transformers' (model_type), nor timm's")


def proven(published: Callable[[], Published], text: str, image_size: Size | None) -> Trained:
    """Our model of a published one, compared with it.

    Raises:
        ValueError: they aren't equal: where they first differ.
    """
    with refusing(text):
        twin, preprocess, classes = published()
        model = convert.model_of(twin)
        own = as_pair(model.config.image_size, "image_size")
        preprocess = pixels.without_left_over(preprocess, twin.left_over, own)
        size = preprocess.image_size if image_size is None else as_pair(image_size, "image_size")
        if size != own and twin.any_size:  # then the library resizes the positions, too
            model, twin = convert.with_size(model, size, twin.recipe), replace(twin, left_over=(0, 0))
        proof.prove(model, twin)
        if size != model.config.image_size:
            model = convert.with_size(model, size, twin.recipe)
        if size != preprocess.image_size:
            preprocess = replace(preprocess, image_size=size, left_over=(0, 0))
        pixels.check_fits(preprocess, model.config)
    return Trained(model, classes, preprocess)


@contextmanager
def refusing(text: str) -> Iterator[None]:
    """Whatever a library, or a model of another kind, makes go wrong becomes a ValueError with the name before it."""
    try:
        yield
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:1000]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{text}: {kind}{said}") from error


# ---------------------------------------------------------------------------------------------------------------- timm


def _timm_repository(name: str) -> str:
    """Where timm keeps the weights of one of its models; without the name of weights, of its default ones."""
    with needed():
        import timm
    try:
        known = timm.models.get_pretrained_cfg(name)
    except RuntimeError:  # of weights that this version of timm doesn't know
        known = None
    if known is None:
        return f"timm/{name}"
    repository = known.hf_hub_id or "timm/"
    return f"{repository}{known.architecture}.{known.tag}" if repository.endswith("/") else repository


def _timm(folder: Path, image_size: Size | None) -> Published:
    with needed():
        import timm
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    rows = model.pretrained_cfg.get("num_classes", model.num_classes)
    if rows != model.num_classes:
        raise ValueError(f"its config says {model.num_classes} classes, and its weights have {rows}")
    return _timm_published(model, image_size)


def _timm_published(model: nn.Module, image_size: Size | None, named: bool = True) -> Published:
    preprocess = pixels.from_timm(model)
    resizable: Any = model
    if image_size is not None:
        resizable.set_input_size(as_pair(image_size, "image_size"))
    classes = _timm_classes(model) if named else ()
    return Published(adapters.from_timm(model), preprocess, classes or numbered(resizable.num_classes))


def _timm_classes(model: Any) -> tuple[str, ...]:
    """The names in its config; of models for ImageNet, which have none there, ImageNet's."""
    from torchvision.models import ViT_B_16_Weights

    names = model.pretrained_cfg.get("label_names")
    if names and len(names) == model.num_classes:
        return tuple(names)
    if model.num_classes == 1000 and "in1k" in (model.pretrained_cfg.get("tag") or ""):
        return tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])
    return ()


# --------------------------------------------------------------------------------------------------------- torchvision


def _torchvision_weights(name: str) -> tuple[str, Any]:
    """The name of a model of torchvision's, and its weights: "vit_b_16", or "vit_b_16.IMAGENET1K_V1"."""
    with needed():
        from torchvision.models import get_model_weights, list_models
    model, _, version = name.partition(".")
    if model not in list_models(include="vit_*"):
        raise ValueError(f"torchvision has {', '.join(list_models(include='vit_*'))}, no {model!r}")
    weights = get_model_weights(model)
    if version and version not in weights.__members__:
        raise ValueError(f"{model} has the weights {', '.join(weights.__members__)}, no {version!r}")
    return model, weights[version or "DEFAULT"]


def _torchvision(name: str) -> Published:
    model, weights = _torchvision_weights(name)
    return _torchvision_published(model, weights, download.torchvision_state(weights), weights.meta["categories"])


def _torchvision_published(name: str, weights: Any, state: dict[str, Tensor], classes: list[str]) -> Published:
    from torchvision.models import get_model

    head = state.get("heads.head.weight")
    if head is None:
        raise ValueError("there is no heads.head.weight: not torchvision's names of a ViT")
    model = get_model(name, weights=None, num_classes=len(head), image_size=weights.meta["min_size"][0])
    model.load_state_dict(state)
    names = tuple(classes) if len(classes) == len(head) else numbered(len(head))
    return Published(adapters.from_torchvision(model.eval()), pixels.from_torchvision(weights.transforms()), names)


# -------------------------------------------------------------------------------------------------------- transformers


def transformers_model(folder: Path, state: dict[str, Tensor] | None = None) -> Any:
    """The live model of a folder; with ``state`` its config's, with these tensors.

    Raises:
        ValueError: tensors that the model needs are missing.
    """
    with needed():
        import transformers
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    named: Any = getattr(transformers, (getattr(config, "architectures", None) or ["AutoModel"])[0], None)
    if named is None:
        raise ValueError(f"transformers has no {config.architectures[0]}")
    model, told = named.from_pretrained(
        None if state is not None else folder, config=config, state_dict=state, dtype=torch.float32,
        output_loading_info=True, local_files_only=True,
    )  # fmt: skip
    unexpected = sorted(told["unexpected_keys"])
    if missing := sorted(name for name in told["missing_keys"] if "pooler.dense" not in name):
        others = f"; it has {', '.join(unexpected[:3])}" if unexpected else ""
        raise ValueError(f"the file isn't whole: {', '.join(missing[:5])} missing, of {len(missing)}{others}")
    stacks = {_stack(name) for name in model.state_dict()}
    if beyond := [name for name in unexpected if "lora_" in name or _stack(name) in stacks]:
        raise ValueError(f"the model has no place for {beyond[0]}: more layers than its config says, or an adapter")
    return model.eval()


def _stack(name: str) -> str:
    """The name of a tensor, the same for all layers."""
    return re.sub(r"\d+", "#", name)


def _transformers(folder: Path, state: dict[str, Tensor] | None = None) -> Published:
    model = transformers_model(folder, state)
    config = model.config
    if getattr(config, "problem_type", None) not in (None, "single_label_classification"):
        raise ValueError(f"its answers are for {config.problem_type}, and no softmax over classes")
    twin = adapters.from_transformers(model)
    labels = [str(config.id2label[k]) for k in sorted(config.id2label)] if _classifies(model) else []
    if labels == [f"LABEL_{k}" for k in range(len(labels))]:
        labels = list(numbered(len(labels)))
    return Published(twin, pixels.from_transformers(processor_of(folder)), tuple(labels))


def _classifies(model: Any) -> bool:
    return any(hasattr(model, name) for name in ("classifier", "cls_classifier"))


def processor_of(folder: Path) -> Any:
    """The image processor that lies beside the weights."""
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    except OSError as error:
        raise ValueError(
            "there is no preprocessor_config.json beside its weights, which says how pictures are prepared: "
            "AutoImageProcessor.from_pretrained(the published model).save_pretrained(the folder) puts one there"
        ) from error


# --------------------------------------------------------------------------------------------- a file, like something


def _file(
    path: Path, like: str, image_size: Size | None, revision: str | None, token: str | bool | None
) -> Callable[[], Published]:
    """A file of weights, read by the library whose model it is like."""
    kind, _, rest = like.removeprefix("hf-hub:").removeprefix("hf/").partition("/")
    if kind == "timm" and rest:
        return lambda: _timm_file(path, rest, image_size)
    if kind == "torchvision" and rest:
        return lambda: _torchvision_file(path, rest)
    if Path(like).is_dir():
        if "model_type" not in files.read_json(Path(like) / "config.json"):
            raise ValueError(
                f"like={like!r} isn't a folder of transformers': a folder with a model of this package or of timm's is "
                "loaded by its own name"
            )
        return lambda: _transformers(Path(like), files.read(path))
    if rest and "/" not in rest:
        return lambda: _transformers(download.repository(like, revision, token), files.read(path))
    raise ValueError(f"like={like!r} is neither timm/NAME, torchvision/NAME, a folder, nor OWNER/NAME: {LIKE}")


def _timm_file(path: Path, name: str, image_size: Size | None) -> Published:
    """Google's .npz, DeiT's, DINO's, files of its own training: as timm's loader reads them."""
    with needed():
        import timm
        from timm.models import load_checkpoint, load_state_dict, model_entrypoint

    state: dict[str, Any] = files.read(path)  # first, so that a damaged file is called so
    module = sys.modules[model_entrypoint(name.partition(".")[0]).__module__]
    dialect = getattr(module, "checkpoint_filter_fn", None)
    if path.suffix == ".npz":
        rows = [tensor.shape[-1] for key, tensor in state.items() if key.endswith("head/bias")]
    else:
        state = load_state_dict(str(path), weights_only=True)
        read = dialect(dict(state), timm.create_model(name, num_classes=0)) if dialect else state
        rows = [len(tensor) for key, tensor in read.items() if key == "head.bias"]
    model = timm.create_model(name, num_classes=rows[0] if rows else 0).eval()
    load_checkpoint(model, str(path), filter_fn=dialect, weights_only=True)
    return _timm_published(model, image_size, named=False)


def _torchvision_file(path: Path, name: str) -> Published:
    model, weights = _torchvision_weights(name)
    state = files.read(path)
    state = state.get("model", state)  # as torchvision's own script of training writes it
    return _torchvision_published(model, weights, state, [])
