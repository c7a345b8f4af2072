"""Lesson 09: from a name to a model: the file, unwrapped, its names, its config, the model.

>>> import vit_tutorial as vt
>>> model, classes, preprocess = vt.load("torchvision/vit_b_16")  # doctest: +SKIP
>>> classes[model(preprocess(picture)).argmax()]  # doctest: +SKIP
'military uniform'
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vit_tutorial.data import Preprocessing
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.weights import configs, hub
from vit_tutorial.weights.fields import Given, Known, single
from vit_tutorial.weights.hub import Contents, Repository
from vit_tutorial.weights.keeping import SHIPPED, shipped, stored
from vit_tutorial.weights.messages import brief, refusing, short, some, warn
from vit_tutorial.weights.model import Converted, Trained, assemble, check_state, convert_given, with_head, with_size
from vit_tutorial.weights.reading import READERS, read_json, reader_of
from vit_tutorial.weights.sources import check_preprocess

REMOTE = ("torchvision", "timm", "hf", "google")


def load(
    name: str | os.PathLike[str],
    *,
    num_classes: int | None = None,
    image_size: Size | None = None,
    num_heads: int | None = None,
    gelu: Gelu | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    parts: Mapping[str, Any] | None = None,
    plain: bool | None = None,
    part: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Trained:
    """A trained model, the names of its classes and its preprocessing.

    What a file doesn't tell is assumed, and a UserWarning says in a sentence what; ``.assumed`` of the answer has it,
    and the keywords here give it. The config.json in a folder, or beside a file, is honoured key by key or refused. Of
    raw and averaged weights the average is taken, and the warning says so. Pictures are prepared as the library's own
    processor does, but for pixels that aren't 8-bit grey or RGB (see :class:`.Preprocessing`); as transformers' by
    Pillow: those by torchvision, its default in version 5, give a few pixels in a thousand the next of 256 levels.

    Args:
        name: one of

            - "digits", "digits-patch2", "shapes", "photographs" or "cifar10": come with the package;
            - a folder that ``python -m vit_tutorial.train`` or transformers' ``save_pretrained`` wrote, or a copy of a
              repository of timm's;
            - a file: .safetensors, .npz, .pth, .pt, .bin, .ckpt, .pth.tar, or the .index.json of several;
            - "torchvision/vit_b_16", or with weights named, "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1";
            - "google/vit-base-patch16-224", "facebook/dinov2-base", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k":
              a repository on the Hugging Face hub, for transformers or timm; "hf/" or "hf-hub:" may stand before it;
            - "google/NAME.npz" in the paper's bucket's folder augreg, or "google/FOLDER/NAME.npz".

            Downloads show their progress, go on where they broke off, and are kept: by huggingface_hub, and in
            torch.hub's folder.
        num_classes: another number of classes than the checkpoint's gives a new head, of zeros; 0 gives none.
        image_size: H = W, or (H, W), in pixels; learned positions are resized to it as the file's own library does. Of
            a file whose positions fill no square it must be the size that they were learned on (:func:`convert` takes
            that for any file).
        num_heads: h; by default, as all that follows, as the file or its library tells (see :func:`convert`).
        gelu: "exact" or "tanh".
        norm_eps: epsilon of the norms.
        preprocess: how pictures become what the model takes.
        parts: fields of the config that no tensor shows.
        plain: True if you know that a bare file is of the paper's architecture.
        part: which model, of several in one file.
        revision: of a repository on the hub: a branch, a tag or a commit.
        token: for a repository that isn't public; by default the one that huggingface_hub has.

    Raises:
        ValueError: no such name; weights that are damaged, of another architecture, or beyond the configs: which and
            why; a value out of its range.
        TypeError: a value of another type.
        OSError: a file isn't there and can't be downloaded: which file to put where.
    """
    text = os.fsdecode(name)
    if not text:
        raise ValueError("the name is empty: name a model, a folder or a file")
    if num_classes is not None and (isinstance(num_classes, bool) or not isinstance(num_classes, int)):
        raise TypeError(f"num_classes must be an int, got {num_classes!r:.100}")
    given = Given(num_heads, image_size, gelu, norm_eps, preprocess, parts, plain, part, revision, token)
    with refusing():
        found = _find(text, given)
    assumed = dict(found.assumed)
    with refusing(text):
        config, state, pixels, classes = found.config, found.state_dict, found.preprocess, found.classes
        projection = found.projection
        if num_classes is not None and num_classes != config.num_classes:
            config, state = with_head(config, state, num_classes)
            classes, projection = (), False
            assumed = {key: value for key, value in assumed.items() if key not in ("answers", "head", "names")}
        if image_size is not None:
            config, state = with_size(config, state, image_size, found.recipe)
            pixels = replace(pixels, image_size=as_pair(image_size, "image_size"), left_over=(0, 0))
        if preprocess is not None:
            pixels = preprocess
            assumed = {key: value for key, value in assumed.items() if key not in ("preprocess", "rounded")}
        check_preprocess(pixels, config)
        if not classes and not projection:
            classes = tuple(f"class {k}" for k in range(config.num_classes))
        if len(classes) == 1:
            assumed.setdefault("answers", "single numbers: a softmax over one is always 1")
        model = assemble(config, state, checked=True)
        vars(model)["preprocess"] = pixels  # so that training on other pixels is an error
    warn(repr(text), assumed)
    return Trained(model, classes, pixels, assumed)


def _find(text: str, given: Given) -> Converted:
    """What the name stands for."""
    text = re.sub(r"^hf[-_]hub:", "hf/", text)  # as timm and open_clip write it
    kind, _, rest = text.partition("/")
    path = Path(text)
    if text in shipped():
        return _own(SHIPPED / text, text, given)
    if path.is_dir():
        return _folder(path, text, given)
    if kind in REMOTE and rest and not path.exists():
        return _remote(kind, rest, given)
    if reader_of(path):
        return from_repository(hub.files_of(hub.folder(path.parent), str(path), path), str(path), given)
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text) and not path.exists():
        return _remote("hf", text, given)
    raise ValueError(
        f"{text!r} is neither a model of the package ({', '.join(shipped())}) nor a folder, nor a file that "
        f"ends in {', '.join(READERS)}, nor {', '.join(f'{kind}/NAME' for kind in REMOTE)}, nor OWNER/NAME on the "
        "Hugging Face hub; python -m vit_tutorial.train --out FOLDER writes such a folder"
    )


def _own(path: Path, text: str, given: Given) -> Converted:
    """A folder that this package wrote, or came with."""
    if unused := [name for name in ("parts", "plain", "part") if getattr(given, name) is not None]:
        raise ValueError(f"{unused[0]}= is for what other libraries' files don't tell: leave it out for {short(text)}")
    with refusing(f"{path} isn't as this package writes it"):
        config, state, classes, preprocess, answers = stored(path)
        check_state(config, state)
    told = ("num_heads", "gelu", "norm_eps")
    with refusing(text):
        config = replace(config, **{name: value for name in told if (value := getattr(given, name)) is not None})
    assumed = {"answers": brief(answers, 200)} if answers else {}
    return Converted(config, state, preprocess, assumed, not classes, classes=classes)


def _folder(path: Path, text: str, given: Given) -> Converted:
    """A folder that this package wrote, or a copy of a repository for transformers, timm or open_clip."""
    get, there, foreign = hub.folder(path), sorted(file.name for file in path.iterdir()), False
    with suppress(OSError, ValueError):  # of a damaged config, _own says what it is
        foreign = bool(hub.config_of(get))
    if foreign and {*hub.OPEN_CLIP, *hub.INDEXED} & set(there):
        return from_repository(hub.files_of(get, text), text, given)
    lacking = [name for name in ("config.json", "model.safetensors") if name not in there]
    if not lacking:
        return _own(path, text, given)
    found = f": it holds {some(there) or 'nothing'}"
    if set(hub.ADAPTER) & set(there):
        found = f": it holds an adapter (as LoRA) without its base, which adapter_config.json names; {hub.MERGE}"
    elif "state.pt" in there:
        way_out = "finish it by the same command with --resume, or vt.train.fit's resume=True"
        found = f": it holds an unfinished run; {way_out}"
    elif weights := [name for name in there if reader_of(Path(name))]:
        found = f"; of these files of weights, name one: {some(weights)}"
    elif folders := [name for name in there if (path / name / "config.json").is_file()]:
        found = f"; of these folders, name one: {some(folders)}"
    raise FileNotFoundError(brief(f"the folder {path} has no {' and no '.join(lacking)}{found}", 1000))


def _remote(kind: str, name: str, given: Given) -> Converted:
    """What a name in somebody's collection stands for."""
    if kind == "torchvision":
        return _converted(*hub.torchvision(name), given, f"torchvision/{name}")
    if kind == "google" and name.endswith(".npz"):
        return _converted(*hub.google(name), given, f"google/{name}")
    about = name if kind == "hf" else f"{kind}/{name}"
    get = hub.repository(about, given.revision, given.token)
    path = get("config.json")
    if path is not None and "model" in read_json(path) and get("model.safetensors") is not None:  # this package's
        return _own(path.parent, about, given)
    found = from_repository(hub.files_of(get, about), about, given)
    named = any(not re.fullmatch(r"class \d+", label) for label in found.classes)
    if about.startswith("timm/") and not named and "in1k" in name and found.config.num_classes == 1000:
        return replace(found, classes=hub.imagenet())
    return found


def from_repository(files: Repository, name: str, given: Given) -> Converted:
    """Tensors, and a config.json of timm's, transformers' or open_clip's, if there is one."""
    known = Known("auto", Given(wanted_size=given.image_size))
    with refusing(name):
        try:
            known = configs.read(files.config, files.processor) if files.config else known
        except ValueError:  # perhaps in the processor
            if given.preprocess is None:
                raise
            known = configs.read(files.config, None)
    return _converted(files.state, known, given, name)


def _converted(state: Contents, known: Known, given: Given, about: str) -> Converted:
    """The one way from tensors, and what is known beside them, to all that makes a model."""
    with refusing(about):
        asked = {name: value for name, value in vars(given).items() if value is not None}
        asked |= {"image_size": known.given.image_size, "preprocess": known.given.preprocess}
        found = convert_given(state, known.source, replace(known.given, **asked))
        config, tensors, preprocess = found.config, found.state_dict, found.preprocess
        assumed = found.assumed | known.check(config)
        if known.pixels is not None:
            preprocess = known.pixels
            assumed.pop("preprocess", None)
        if known.published:
            assumed = {key: value for key, value in assumed.items() if key in ("weights", "left_out")}
            preprocess = replace(preprocess, image_size=found.preprocess.image_size)
            known = replace(known, labels=known.labels if len(known.labels) == config.num_classes else {})
        classes = known.classes(config.num_classes) if config.num_classes and not found.projection else ()
        if classes and 0 < len(known.labels) < len(classes):
            assumed["names"] = f"there are only {len(known.labels)} for {len(classes)} outputs"
        if given.image_size is None and known.resized:
            config, tensors = with_size(config, tensors, single(preprocess.image_size), found.recipe)
        return replace(
            found, config=config, state_dict=tensors, preprocess=preprocess, assumed=assumed, classes=classes
        )
