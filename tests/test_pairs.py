"""Lesson 17: both towers of CLIP and SigLIP, against transformers and open_clip; texts that photographs are given."""

import json
import warnings

import numpy as np
import pytest
import torch
import transformers
from peers import randomise, since_5
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial.variants.text import TextConfig, TextTower
from vit_tutorial.weights import names

WORDS = ["<pad>", "<unk>", "a", "cat", "dog", "photo", "of", "the", ".", "bird", "<bos>", "<eos>"]
TEXTS = ["a cat", "a photo of the dog .", "the bird"]
TEXT = {
    "vocab_size": 12, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 9, "bos_token_id": 10, "pad_token_id": 0,
}  # fmt: skip
VISION = {
    "image_size": 32, "patch_size": 8, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 3,
}  # fmt: skip
KINDS = {
    "CLIP": ("CLIP", 11),
    "CLIP of OpenAI's": ("CLIP", 2),
    "MetaCLIP 2": ("MetaClip2", 11),
    "SigLIP": ("Siglip", 11),
}


def tokenizer(folder):
    whole = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<bos>", 10), ("<eos>", 11)]
    whole.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=ends)
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=whole, **special)
    fast.save_pretrained(folder)
    return fast


def pair_folder(folder, kind="CLIP", end=11, **options):
    """What transformers saves of a small model, with a tokenizer of twelve words; the model."""
    siglip = kind == "Siglip"
    text = TEXT | {"eos_token_id": end} | ({"projection_size": 24} if siglip else {})
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=VISION, **({} if siglip else {"projection_dim": 16}), **options
    )
    theirs = randomise(getattr(transformers, f"{kind}Model")(config)).eval()
    theirs.logit_scale.data.fill_(1.3)
    theirs.save_pretrained(folder)
    size = {"height": 32, "width": 32} if siglip else {"shortest_edge": 32}
    processor = "SiglipImageProcessor" if siglip else "CLIPImageProcessor"
    processor = getattr(transformers, f"{processor}Pil", getattr(transformers, processor))
    processor(size=size, **({} if siglip else {"crop_size": 32})).save_pretrained(folder)
    tokenizer(folder)
    return theirs


def load_pair(folder):
    """vt.load_pair, which must have nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vt.load_pair(folder)


@pytest.mark.parametrize("case", KINDS)
def test_logits_are_transformers(case, tmp_path):
    theirs = pair_folder(tmp_path, *KINDS[case])
    pair = load_pair(tmp_path)
    images = torch.randn(4, 3, 32, 32)
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        TEXTS, padding="max_length", max_length=9, return_tensors="pt"
    )["input_ids"]
    with torch.inference_mode():
        expected = theirs(input_ids=ids, pixel_values=images).logits_per_image
        assert expected.std() > 0.05
        assert_close(pair.logits(images, TEXTS), expected, rtol=0, atol=1e-5)
    wanted = expected.sigmoid() if case == "SigLIP" else expected.softmax(dim=-1)
    assert_close(pair.probabilities(images, pair.embed(TEXTS)), wanted, rtol=0, atol=1e-5)


def test_a_causal_tower_does_not_see_later_words():
    tower = TextTower(TextConfig(vocab_size=12, context=9, dim=16, depth=2, num_heads=2, mlp_dim=24, out_dim=8)).eval()
    ids = torch.randint(0, 10, (2, 9))
    other = ids.clone()
    other[:, 5:] = 3
    with torch.inference_mode():
        assert_close(tower.features(ids)[:, :5], tower.features(other)[:, :5])
        assert not torch.allclose(tower.features(ids)[:, 5:], tower.features(other)[:, 5:])
    with pytest.raises(ValueError, match="T at most 9, got \\(2, 10\\)"):
        tower(torch.zeros(2, 10, dtype=torch.int64))


def open_clip_folder(folder, theirs, custom=False, **text):
    """A model of transformers' under the names of open_clip, with its config."""
    vision = {
        name.removeprefix("vision_model."): tensor
        for name, tensor in theirs.state_dict().items()
        if name.startswith(("vision_model.", "visual_projection."))
    }
    renamed = names.rename(names.read([names.HF_CLIP], vision).ours, names.OPENAI)
    tower = {name: tensor for name, tensor in theirs.state_dict().items() if name.startswith("text")}
    table = names.OPEN_CLIP_TEXT if custom else names.OPENAI_TEXT
    renamed |= names.rename(names.read([names.HF_CLIP_TEXT], tower).ours, table)
    state = {name: tensor.clone().contiguous() for name, tensor in renamed.items()}
    save_file(state | {"logit_scale": theirs.logit_scale.data}, folder / "open_clip_model.safetensors")
    text = {"context_length": 9, "vocab_size": 12, "width": 32, "heads": 4, "layers": 2, "mlp_ratio": 1.5} | text
    vision = {"image_size": 32, "patch_size": 8, "width": 24, "layers": 2, "head_width": 8, "mlp_ratio": 40 / 24}
    model = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text, "quick_gelu": True}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": {}}))
    tokenizer(folder)


@pytest.mark.parametrize("custom", [False, True])
def test_a_repository_of_open_clip(custom, tmp_path):
    for folder in ("theirs", "open_clip"):
        (tmp_path / folder).mkdir()
    theirs = pair_folder(tmp_path / "theirs")
    open_clip_folder(tmp_path / "open_clip", theirs, custom, **({"pool_type": "eos", "eos_id": 11} if custom else {}))
    one, other = load_pair(tmp_path / "theirs"), load_pair(tmp_path / "open_clip")
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert_close(other.logits(images, TEXTS), one.logits(images, TEXTS), rtol=0, atol=1e-5)
    assert_close(other.tokenize(["A  Cat"]), other.tokenize(["a cat"]))  # open_clip's own tokenizer has no capitals


@pytest.mark.parametrize("custom", [False, True])
def test_logits_are_open_clip_s(custom, tmp_path):
    open_clip = pytest.importorskip("open_clip", reason="none of our requirements; pip install open_clip_torch")
    (tmp_path / "theirs").mkdir()
    theirs = pair_folder(tmp_path / "theirs")
    open_clip_folder(tmp_path, theirs, custom, **({"pool_type": "eos", "eos_id": 11} if custom else {}))
    config = json.loads((tmp_path / "open_clip_config.json").read_text())["model_cfg"]
    model = (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**config).eval()
    model.load_state_dict(load_file(tmp_path / "open_clip_model.safetensors"))
    pair, images = load_pair(tmp_path), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        expected = model.get_logits(images, pair.tokenize(TEXTS))[0]
        assert expected.std() > 0.05
        assert_close(pair.logits(images, TEXTS), expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------- everything, or a reason


def change_state(folder, change):
    state = load_file(folder / "model.safetensors")
    save_file(change(dict(state)), folder / "model.safetensors", metadata={"format": "pt"})


def change_text(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


WRONG_TENSORS = {
    "one too many": (lambda s: s | {"text_model.adapter.weight": torch.ones(2)}, ["text_model.adapter.weight"]),
    "a block too many": (
        lambda s: s | {k.replace("layers.1", "layers.2"): v.clone() for k, v in s.items() if "text" in k},
        ["3 blocks", "2"],
    ),
    "one missing": (lambda s: {k: v for k, v in s.items() if not k.endswith("final_layer_norm.bias")}, ["norm.bias"]),
    "half of one": (
        lambda s: {k: v for k, v in s.items() if k != "text_model.encoder.layers.0.self_attn.q_proj.weight"},
        ["q_proj.weight"],
    ),
    "another shape": (
        lambda s: s | {"text_projection.weight": torch.ones(15, 32)}, ["head.weight", "(15, 32)", "(16, 32)"]
    ),
    "no scale": (lambda s: {k: v for k, v in s.items() if k != "logit_scale"}, ["logit_scale"]),
    "a scale that is no number": (lambda s: s | {"logit_scale": torch.ones(2)}, ["logit_scale", "(2,)"]),
    "no number": (lambda s: s | {"text_model.final_layer_norm.weight": torch.full((32,), torch.nan)}, ["NaN"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_tensors_that_do_not_fit_are_refused(case, tmp_path, refuses):
    pair_folder(tmp_path)
    edit, words = WRONG_TENSORS[case]
    change_state(tmp_path, edit)
    with refuses(ValueError, *words):
        vt.load_pair(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new_field": 1}, ["text_config", "new_field"]),
        ({"hidden_act": "relu"}, ["hidden_act='relu'"]),
        ({"num_attention_heads": 5}, ["32", "num_heads 5"]),
        ({"vocab_size": 10**9}, ["vocab_size", "2,000,000"]),
        ({"num_hidden_layers": 900_000}, ["2 blocks", "900000"]),
        ({"eos_token_id": 7}, ["tokenizer", "don't belong together"]),
        ({"max_position_embeddings": 8}, ["position", "(1, 8, 32)"]),
    ],
)
def test_a_text_config_that_does_not_fit_is_refused(changes, words, tmp_path, refuses):
    pair_folder(tmp_path)
    change_text(tmp_path, **changes)
    with refuses(ValueError, *words):
        vt.load_pair(tmp_path).tokenize(TEXTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"ls_init_value": 0.1}, ["ls_init_value=0.1"]),
        ({"no_causal_mask": True}, ["pool_type='argmax'", "without a causal mask"]),
        ({"pool_type": "last"}, ["pool_type='last'", "with a causal mask"]),
        ({"hf_model_name": "roberta-base"}, ["hf_model_name='roberta-base'"]),
        ({"tokenizer_kwargs": {"strip_sep_token": True}}, ["tokenizer_kwargs", "strip_sep_token"]),
        ({"act_kwargs": {"approximate": "cubic"}}, ["approximate='cubic'"]),
    ],
)
def test_what_open_clip_says_of_texts_and_we_cannot_express_is_refused(text, words, tmp_path, refuses):
    theirs = pair_folder(tmp_path)
    open_clip_folder(tmp_path, theirs, **text)
    (tmp_path / "config.json").unlink()
    with refuses(ValueError, *words):
        vt.load_pair(tmp_path)


@since_5
def test_without_a_text_tower_or_a_tokenizer(tmp_path, refuses):
    with refuses(ValueError, "'nonsense' is neither a folder nor OWNER/NAME"):
        vt.load_pair("nonsense")
    pair_folder(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).unlink()
    with refuses(ValueError, "no tokenizer lies beside its weights", "tokenizer.json"):
        vt.load_pair(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with refuses(ValueError, "transformers can't read its tokenizer"):
        vt.load_pair(tmp_path)
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(tmp_path)
    with refuses(ValueError, "text tower", "'vit'", "clip"):
        vt.load_pair(tmp_path)


def test_texts_are_taken_as_they_are_or_not_at_all(tmp_path, refuses):
    pair_folder(tmp_path)
    pair = load_pair(tmp_path)
    with refuses(ValueError, "'a a a a a a a a a'", "11 tokens", "takes 9"):
        pair.tokenize(["a " * 8 + "a"])
    for nothing in ("a cat", [], [3]):
        with pytest.raises(TypeError, match="a list of texts"):
            pair.tokenize(nothing)


# ---------------------------------------------------------------------------------------------------------- predict


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_predict_with_labels(kind, tmp_path, capsys, monkeypatch):
    pair_folder(tmp_path, kind)
    photo, out = tmp_path / "photo.png", tmp_path / "answers.csv"
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8))
    picture.save(photo)
    options = [str(photo), "--weights", str(tmp_path), "--labels", *TEXTS]
    cli.main(["predict", *options])
    printed = capsys.readouterr().out
    pair = load_pair(tmp_path)
    chances = pair.probabilities(pair.preprocess(picture), TEXTS)[0].tolist()
    best, text = max(zip(chances, TEXTS, strict=True))
    assert printed.splitlines()[1].split() == [f"{100 * best:.1f}%", *text.split()]
    monkeypatch.setattr("vit_tutorial.options.predict.CLIP", str(tmp_path))  # of whom --labels ask, if of nobody else
    cli.main(["predict", str(photo), "--labels", *TEXTS])
    assert capsys.readouterr().out == printed
    cli.main(["predict", *options, "--out", str(out)])
    rows = out.read_text().splitlines()[1:]
    assert sorted(float(row.split(",")[2]) for row in rows) == pytest.approx(sorted(chances), abs=1e-4)
    assert (sum(chances) == pytest.approx(1, abs=1e-5)) == (kind == "CLIP")


def test_predict_without_labels_says_that_there_may_be_some(tmp_path, capsys):
    pair_folder(tmp_path)
    Image.new("RGB", (9, 9)).save(tmp_path / "photo.png")
    with pytest.warns(UserWarning, match="the text tower"), pytest.raises(SystemExit):
        cli.main(["predict", str(tmp_path / "photo.png"), "--weights", str(tmp_path)])
    assert "give --labels" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["predict", str(tmp_path / "photo.png"), "--weights", "digits", "--labels", "a cat"])
    assert "digits has no text tower" in capsys.readouterr().err
