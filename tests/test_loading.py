"""Lesson 09: vt.load from names, folders and files; other heads and sizes; what it refuses, and what it says then."""

import contextlib
import json
import pickle

import numpy as np
import pytest
import timm
import torch
import transformers
from peers import pair, randomise
from safetensors.torch import save_file
from timm.models import save_for_hf
from torchvision.models import vit_b_16

import vit_tutorial as vt
from vit_tutorial import weights
from vit_tutorial.embeddings import resize_position_embedding

SMALL = {"embed_dim": 64, "depth": 2, "num_heads": 2, "img_size": 32, "num_classes": 3}
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
SQUARE = {"height": 32, "width": 32}
PROCESSORS = {  # of transformers, by its model
    "ViTForImageClassification": ("ViTImageProcessor", {"size": SQUARE}),
    "Dinov2Model": ("BitImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": {"height": 24, "width": 24}}),
    "DINOv3ViTModel": ("DINOv3ViTImageProcessor", {"size": SQUARE}),
    "CLIPVisionModelWithProjection": ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}),
    "SiglipVisionModel": ("SiglipImageProcessor", {"size": SQUARE}),
    "BeitForImageClassification": (
        "BeitImageProcessor", {"size": {"height": 36, "width": 36}, "crop_size": SQUARE, "do_center_crop": True}
    ),
}  # fmt: skip


def timm_folder(folder, name="vit_tiny_patch16_224", **sizes):
    """A folder as timm writes it for the hub; the model."""
    sizes = SMALL | sizes
    theirs = randomise(timm.create_model(name, **sizes)).eval()
    save_for_hf(theirs, folder, model_args=sizes, safe_serialization=True)
    return theirs


def transformers_folder(folder, name="ViTForImageClassification", processor=True, **fields):
    """A folder as transformers writes it; the model."""
    kind = getattr(transformers, name)
    fields = ({"use_relative_position_bias": True} if "Beit" in name else {}) | fields
    theirs = randomise(kind(kind.config_class(**SIZES | fields))).eval()
    theirs.save_pretrained(folder)
    if processor:
        processor_name, settings = PROCESSORS[name]
        getattr(transformers, processor_name)(**settings).save_pretrained(folder)
    return theirs


def same_answers(ours, expected, images):
    with torch.inference_mode():
        difference = (ours(images) - expected(images)).abs().max()
        return difference < 1e-4 * expected(images).std()


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "eva02_tiny_patch14_224", "beit_base_patch16_224"])
def test_a_folder_of_timm_s(name, tmp_path):
    theirs = timm_folder(tmp_path, name, img_size=56 if "14" in name else 32)
    model, classes, preprocess = vt.load(tmp_path)
    assert classes == ("class 0", "class 1", "class 2")
    assert preprocess.crop == 0.9
    assert same_answers(model, theirs, torch.randn(2, 3, *preprocess.image_size))


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_folder_of_transformers(name, tmp_path):
    theirs = transformers_folder(tmp_path, name)
    model, _, preprocess = vt.load(tmp_path)
    assert model.config.image_size in (preprocess.image_size, preprocess.image_size[0])

    def expected(images):
        found = theirs(images)
        return next(found[key] for key in ("logits", "image_embeds", "pooler_output") if key in found)

    assert same_answers(model, expected, torch.randn(2, 3, *preprocess.image_size))


def test_names_of_classes(tmp_path):
    names = {str(k): f"name {k}" for k in range(12)}  # as text, "10" comes before "2"
    transformers_folder(tmp_path / "a", id2label=names)
    assert vt.load(tmp_path / "a").classes == tuple(names.values())
    transformers_folder(tmp_path / "b", num_labels=2)
    assert vt.load(tmp_path / "b").classes == ("class 0", "class 1")
    transformers_folder(tmp_path / "c", "CLIPVisionModelWithProjection", projection_dim=7)
    assert vt.load(tmp_path / "c").classes == ()  # a place in a space, not a class
    timm_folder(tmp_path / "d")
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    config["pretrained_cfg"] |= {"label_names": ["x", "y", "z"]}
    (tmp_path / "d" / "config.json").write_text(json.dumps(config))
    assert vt.load(tmp_path / "d").classes == ("x", "y", "z")


def test_code_in_a_folder_never_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # what a user might answer to transformers' question
    transformers_folder(tmp_path)
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with contextlib.suppress(ValueError):
        vt.load(tmp_path)
    assert not (tmp_path / "ran").exists()


# ------------------------------------------------------------------------------------------------------ files are like


def files(folder):
    """The same model as timm's training writes it, as a bare state dict, as safetensors, under two prefixes."""
    theirs = randomise(timm.create_model("vit_tiny_patch16_224", num_classes=3)).eval()
    state = theirs.state_dict()
    torch.save({"state_dict": {k: v + 1 for k, v in state.items()}, "state_dict_ema": state}, folder / "ema.pth.tar")
    torch.save(state, folder / "bare.pth")
    torch.save({"model": {f"module.{name}": tensor for name, tensor in state.items()}}, folder / "model.pt")
    save_file(state, folder / "model.safetensors")
    lightning = {f"model._orig_mod.{name}": tensor for name, tensor in state.items()}
    torch.save({"state_dict": lightning, "epoch": 3}, folder / "lightning.ckpt")
    return theirs


def test_a_file_is_like_a_model_of_timm_s(tmp_path, refuses):
    theirs = files(tmp_path)
    images = torch.randn(1, 3, 224, 224)
    for file in ("ema.pth.tar", "bare.pth", "model.pt", "model.safetensors", "lightning.ckpt"):
        model, classes, _ = vt.load(tmp_path / file, like="timm/vit_tiny_patch16_224")
        assert classes == ("class 0", "class 1", "class 2")
        assert same_answers(model, theirs, images)
        with refuses(ValueError, file, "doesn't say which model", "like="):
            vt.load(tmp_path / file)
    with refuses(ValueError, "bare.pth", "size mismatch"):
        vt.load(tmp_path / "bare.pth", like="timm/vit_small_patch16_224")


def google_file(folder, heads=3, D=192, K=4, depth=12):
    """A file of Google's, in Flax's names and layout; K = 0: without a head."""
    d, M, T = D // heads, 4 * D, 197
    shapes = {"cls": (1, 1, D), "embedding/kernel": (16, 16, 3, D), "embedding/bias": (D,)}
    shapes |= {"Transformer/posembed_input/pos_embedding": (1, T, D)}
    for i in range(depth):
        block, attention = f"Transformer/encoderblock_{i}", "MultiHeadDotProductAttention_1"
        for part in ("query", "key", "value"):
            shapes |= {f"{block}/{attention}/{part}/kernel": (D, heads, d)}
            shapes |= {f"{block}/{attention}/{part}/bias": (heads, d)}
        shapes |= {f"{block}/{attention}/out/kernel": (heads, d, D), f"{block}/{attention}/out/bias": (D,)}
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            shapes |= {f"{block}/{norm}/scale": (D,), f"{block}/{norm}/bias": (D,)}
        shapes |= {f"{block}/MlpBlock_3/Dense_0/kernel": (D, M), f"{block}/MlpBlock_3/Dense_0/bias": (M,)}
        shapes |= {f"{block}/MlpBlock_3/Dense_1/kernel": (M, D), f"{block}/MlpBlock_3/Dense_1/bias": (D,)}
    shapes |= {"Transformer/encoder_norm/scale": (D,), "Transformer/encoder_norm/bias": (D,)}
    shapes |= {"head/kernel": (D, K), "head/bias": (K,)} if K else {}
    draw = np.random.default_rng(0)
    arrays = {name: draw.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(folder / "S_16.npz", **arrays)
    return arrays


@pytest.mark.parametrize("K", [4, 0])
def test_google_s_file(K, tmp_path):
    arrays = google_file(tmp_path, K=K)
    model, classes, _ = vt.load(tmp_path / "S_16.npz", like="timm/vit_tiny_patch16_224")
    assert len(classes) == K
    kernel = arrays["Transformer/encoderblock_5/MultiHeadDotProductAttention_1/key/kernel"]  # (D, h, d)
    found = model.blocks[5].attention.qkv.weight[192:384]  # (D, D)
    assert torch.equal(found, torch.from_numpy(kernel).flatten(1).T)
    if K:
        assert torch.equal(model.head.weight, torch.from_numpy(arrays["head/kernel"]).T)


def test_a_file_of_another_image_size_is_resized_by_timm(tmp_path):
    theirs = randomise(timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=384)).eval()
    torch.save(theirs.state_dict(), tmp_path / "a.pth")
    model = vt.load(tmp_path / "a.pth", like="timm/vit_tiny_patch16_224").model
    expected = resize_position_embedding(theirs.pos_embed.detach(), (24, 24), (14, 14), recipe="timm")
    assert torch.allclose(model.embed.position, expected, atol=1e-5)


def test_a_file_is_like_a_model_of_torchvision_s(tmp_path):
    theirs = randomise(vit_b_16(num_classes=3)).eval()
    torch.save({"model": theirs.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pth")
    model, classes, preprocess = vt.load(tmp_path / "checkpoint.pth", like="torchvision/vit_b_16.IMAGENET1K_V1")
    assert classes == ("class 0", "class 1", "class 2")
    assert (preprocess.crop, preprocess.interpolation) == (224 / 256, "bilinear")
    assert same_answers(model, theirs, torch.randn(1, 3, 224, 224))


def test_a_file_is_like_a_folder_of_transformers(tmp_path, refuses):
    theirs = transformers_folder(tmp_path / "config")
    torch.save(randomise(theirs, 7).state_dict(), tmp_path / "file.bin")
    model = vt.load(tmp_path / "file.bin", like=tmp_path / "config").model
    assert same_answers(model, lambda images: theirs(images).logits, torch.randn(2, 3, 32, 32))
    state = {name: tensor for name, tensor in theirs.state_dict().items() if "layers.1." not in name}
    torch.save(state, tmp_path / "part.bin")
    with refuses(ValueError, "isn't whole", "layers.1."):
        vt.load(tmp_path / "part.bin", like=tmp_path / "config")
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, tmp_path / "prefix.bin")
    with refuses(ValueError, "isn't whole", "it has module."):
        vt.load(tmp_path / "prefix.bin", like=tmp_path / "config")


def test_tensors_that_the_model_would_go_without_are_refused(tmp_path, refuses):
    theirs = transformers_folder(tmp_path / "two")
    deeper = transformers_folder(tmp_path / "three", num_hidden_layers=3).state_dict()
    torch.save(deeper, tmp_path / "three.bin")
    with refuses(ValueError, "no place", "layers.2.", "more layers"):
        vt.load(tmp_path / "three.bin", like=tmp_path / "two")
    torch.save(
        theirs.state_dict() | {"vit.layers.0.attention.q_proj.lora_A.weight": torch.ones(4, 32)}, tmp_path / "a.bin"
    )
    with refuses(ValueError, "no place", "lora_A", "an adapter"):
        vt.load(tmp_path / "a.bin", like=tmp_path / "two")
    (tmp_path / "two" / "adapter_config.json").write_text("{}")
    with refuses(ValueError, "holds an adapter", "merge_and_unload"):
        vt.load(tmp_path / "two")


def test_a_file_is_not_like_a_folder_of_ours_or_timm_s(tmp_path, refuses):
    vt.save(vt.load("digits"), tmp_path / "ours")
    timm_folder(tmp_path / "timm")
    for folder in (tmp_path / "ours", tmp_path / "timm"):
        with refuses(ValueError, f"like='{folder}'", "by its own name"):
            vt.load(folder / "model.safetensors", like=folder)


def test_revision_and_token_are_for_the_hub(tmp_path, refuses):
    torch.save({}, tmp_path / "a.pth")
    for name in ("digits", "torchvision/vit_b_16", tmp_path):
        with refuses(ValueError, "revision= is for a repository on the Hugging Face hub"):
            vt.load(name, revision="v2")
        with refuses(ValueError, "token= is for a repository on the Hugging Face hub"):
            vt.load(name, token="hf_x")
    for like in ("torchvision/vit_b_16", "timm/vit_tiny_patch16_224"):
        with refuses(ValueError, "revision= is for", like):
            vt.load(tmp_path / "a.pth", like=like, revision="v2")


def test_like_what_nobody_knows(tmp_path, refuses):
    torch.save({}, tmp_path / "a.pth")
    wrong = {
        "vit": "nor timm/NAME",
        "digits": "is no model of",
        "timm/no_such": "no_such",
        "torchvision/vit_x": "vit_b_16",
    }
    for like, words in wrong.items():
        with refuses(ValueError, words):
            vt.load(tmp_path / "a.pth", like=like)


# ---------------------------------------------------------------------------------------------- other heads and sizes


def test_another_number_of_classes(tmp_path):
    theirs = transformers_folder(tmp_path, num_labels=3)
    model, classes, _ = vt.load(tmp_path, num_classes=2)
    assert classes == ("class 0", "class 1")
    assert not model.head.weight.any()
    assert model.head.weight.requires_grad
    features = vt.load(tmp_path, num_classes=0).model
    assert same_answers(features, lambda images: theirs.vit(images).last_hidden_state[:, 0], torch.randn(2, 3, 32, 32))
    assert vt.load("digits", num_classes=10).classes == tuple("0123456789")  # the same number keeps the head


@pytest.mark.parametrize("name", PROCESSORS)
def test_another_size_is_transformers_own(name, tmp_path, refuses):
    theirs = transformers_folder(tmp_path, name)
    if name == "BeitForImageClassification":
        with refuses(ValueError, "position biases", "image_size=(32, 32)"):
            vt.load(tmp_path, image_size=(48, 64))
        return
    model, _, preprocess = vt.load(tmp_path, image_size=(48, 64))
    assert preprocess.image_size == (48, 64)
    flag = {} if name in ("Dinov2Model", "DINOv3ViTModel") else {"interpolate_pos_encoding": True}

    def expected(images):
        found = theirs(images, **flag)
        return next(found[key] for key in ("logits", "image_embeds", "pooler_output") if key in found)

    assert same_answers(model, expected, torch.randn(2, 3, 48, 64))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "beit_base_patch16_224", "vit_small_patch16_rope_224"])
def test_another_size_is_timm_s_own(name, tmp_path):
    theirs = timm_folder(tmp_path, name)
    model = vt.load(tmp_path, image_size=(48, 64)).model
    theirs.set_input_size((48, 64))
    assert same_answers(model, theirs, torch.randn(2, 3, 48, 64))


def test_another_size_of_our_own():
    model, _, preprocess = vt.load("digits", image_size=(16, 8))
    assert preprocess.image_size == (16, 8)
    assert model.embed.position.shape == (1, 9, 64)
    expected = resize_position_embedding(vt.load("digits").model.embed.position, (2, 2), (4, 2))
    assert torch.equal(model.embed.position, expected)


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        ({"image_size": 0}, ValueError, "image_size must be at least 1"),
        ({"image_size": 9}, ValueError, "not divisible by patch"),
        ({"num_classes": -1}, ValueError, "num_classes must be at least 0"),
        ({"num_classes": 2.0}, TypeError, "num_classes must be an int"),
        ({"num_classes": True}, TypeError, "num_classes must be an int"),
    ],
)
def test_sizes_and_classes_that_do_not_fit(asked, kind, words, refuses):
    with refuses(kind, words):
        vt.load("digits", **asked)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dogs", ["'dogs'", "digits", "timm/NAME", "--out FOLDER"]),
        ("", ["is empty", "OWNER/NAME"]),
        ("timm/", ["'timm/'"]),
        ("one/two/three", ["'one/two/three'"]),
        ("torchvision/vit_x_16", ["vit_b_16", "vit_h_14", "'vit_x_16'"]),
        ("torchvision/vit_b_16.V7", ["IMAGENET1K_SWAG_E2E_V1", "'V7'"]),
    ],
)
def test_unknown_names(name, words, refuses):
    with refuses(ValueError, *words):
        vt.load(name)


def test_a_path_of_the_user_s_home(tmp_path, monkeypatch, refuses):
    monkeypatch.setenv("HOME", str(tmp_path))
    vt.save(vt.load("digits"), "~/mine")
    assert (tmp_path / "mine" / "config.json").exists()
    assert vt.load("~/mine").classes == tuple("0123456789")
    with refuses(FileNotFoundError, f"there is no folder {tmp_path / 'other'}"):
        vt.load("~/other")
    with refuses(FileNotFoundError, "there is no folder"):
        vt.load("./other")


def test_a_published_number_that_is_not_finite_is_named(tmp_path, refuses):
    theirs = transformers_folder(tmp_path)
    theirs.vit.layers[1].layernorm_before.bias.data[3] = torch.nan
    theirs.save_pretrained(tmp_path)
    with refuses(ValueError, str(tmp_path), "aren't finite: blocks.1.norm1.bias"):
        vt.load(tmp_path)


def test_folders_that_nobody_wrote(tmp_path, refuses):
    with refuses(FileNotFoundError, "has no config.json", "nothing"):
        vt.load(tmp_path)
    (tmp_path / "state.pt").write_bytes(b"")
    with refuses(FileNotFoundError, "unfinished run", "--resume"):
        vt.load(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1}')
    with refuses(ValueError, "config.json", "model_type"):
        vt.load(tmp_path)


def test_a_folder_of_transformers_without_its_processor(tmp_path, refuses):
    transformers_folder(tmp_path, processor=False)
    with refuses(ValueError, "preprocessor_config.json", "save_pretrained"):
        vt.load(tmp_path)


def test_a_processor_of_no_fixed_size(tmp_path, refuses):
    transformers_folder(tmp_path)
    transformers.BitImageProcessor(size={"shortest_edge": 32}, do_center_crop=False).save_pretrained(tmp_path)
    with refuses(ValueError, "no fixed size"):
        vt.load(tmp_path)


def test_a_head_for_several_labels(tmp_path, refuses):
    transformers_folder(tmp_path, problem_type="multi_label_classification")
    with refuses(ValueError, "multi_label_classification"):
        vt.load(tmp_path)


def test_a_model_that_is_not_ours_is_refused_by_its_name(tmp_path, refuses):
    timm_folder(tmp_path, "vit_relpos_small_patch16_224")
    with refuses(ValueError, str(tmp_path), "VisionTransformerRelPos", "after block 0"):
        vt.load(tmp_path)


# --------------------------------------------------------------------------------------------------- files are no code


class Code:
    def __reduce__(self):
        return print, ("run",)


def test_no_code_is_run(tmp_path, refuses, capsys):
    torch.save({"head.weight": Code()}, tmp_path / "a.pth")
    np.savez(tmp_path / "a.npz", x=np.array([Code()], dtype=object))
    (tmp_path / "a.bin").write_bytes(pickle.dumps({"a": Code()}))
    for name, words in {"a.pth": "asks for", "a.npz": "a.npz", "a.bin": "a.bin"}.items():
        with refuses(ValueError, words):
            weights.read(tmp_path / name)
        with refuses(ValueError, name):
            vt.load(tmp_path / name, like="timm/vit_tiny_patch16_224")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["a.pth", "a.npz", "a.safetensors"])
def test_a_damaged_file(name, tmp_path, refuses):
    state = {"head.weight": torch.ones(300)}
    torch.save(state, tmp_path / "a.pth")
    np.savez(tmp_path / "a.npz", x=np.ones(300))
    save_file(state, tmp_path / "a.safetensors")
    whole = (tmp_path / name).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"<html>Please log in</html>"):
        (tmp_path / name).write_bytes(content)
        with refuses(ValueError, name, "get it again"):
            weights.read(tmp_path / name)


def test_what_is_no_file(tmp_path, refuses):
    with refuses(FileNotFoundError, "there is no file", "gone.pth"):
        vt.load(tmp_path / "gone.pth", like="timm/vit_tiny_patch16_224")
    (tmp_path / "folder.pth").mkdir()
    with refuses(FileNotFoundError, "there is no file", "folder.pth"):
        weights.read(tmp_path / "folder.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with refuses(ValueError, "a list, no dictionary"):
        weights.read(tmp_path / "list.pth")


def test_single_precision_and_gradients(tmp_path):
    ours, theirs = pair(
        "transformers", vt.ViTConfig(image_size=32, patch_size=8, dim=32, depth=2, num_heads=2, mlp_dim=48)
    )
    theirs.bfloat16().save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size=SQUARE).save_pretrained(tmp_path)
    model = vt.load(tmp_path).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not model.training
    assert torch.allclose(model.head.weight, ours.head.weight, atol=0.01)
