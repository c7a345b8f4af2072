"""Lesson 17: both towers of CLIP and SigLIP, against transformers; texts that photographs are given."""

import json
import warnings

import numpy as np
import pytest
import torch
import transformers
from peers import randomise
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial.variants.text import TextConfig, TextTower

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


def pair_folder(folder, kind="CLIP", end=11, image_size=32, **options):
    """What transformers saves of a small model, with a tokenizer of twelve words; the model."""
    siglip = kind == "Siglip"
    text = TEXT | {"eos_token_id": end} | ({"projection_size": 24} if siglip else {})
    vision = VISION | {"image_size": image_size}
    config = getattr(transformers, f"{kind}Config")(
        text_config=text,
        vision_config=vision,
        **({} if siglip else {"projection_dim": 16}),
        **options,
    )
    theirs = randomise(getattr(transformers, f"{kind}Model")(config)).eval()
    theirs.logit_scale.data.fill_(1.3)
    theirs.save_pretrained(folder)
    size = {"height": image_size, "width": image_size} if siglip else {"shortest_edge": 32}
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


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_tower_has_heads(refuses):
    with refuses(ValueError, "num_heads must be at least 1, got 0"):
        TextConfig(num_heads=0)


def change_text(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


WITHOUT = {
    "a norm": "text_model.final_layer_norm.bias",
    "half of a block": "text_model.encoder.layers.0.self_attn.q_proj.weight",
    "the scale": "logit_scale",
}


@pytest.mark.parametrize("case", WITHOUT)
def test_a_file_that_is_not_whole(case, tmp_path, refuses):
    pair_folder(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state.pop(WITHOUT[case])
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refuses(ValueError, "isn't whole", WITHOUT[case].rpartition(".")[2]):
        vt.load_pair(tmp_path)


def test_numbers_that_are_not_finite(tmp_path, refuses):
    pair_folder(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["text_model.final_layer_norm.weight"][0] = torch.nan
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refuses(ValueError, "aren't finite: norm.weight"):
        vt.load_pair(tmp_path)


def test_another_activation_function(tmp_path, refuses):
    pair_folder(tmp_path)
    change_text(tmp_path, hidden_act="relu")
    with refuses(ValueError, "none of the activation functions"):
        vt.load_pair(tmp_path)


def test_a_tokenizer_of_another_model(tmp_path, refuses):
    pair_folder(tmp_path)
    change_text(tmp_path, eos_token_id=7)
    with refuses(ValueError, "don't belong together"):
        vt.load_pair(tmp_path).tokenize(TEXTS)


def test_without_a_text_tower_or_a_tokenizer(tmp_path, refuses):
    with refuses(ValueError, "'nonsense' is neither", "OWNER/NAME"):
        vt.load_pair("nonsense")
    with refuses(ValueError, "digits has no text tower"):
        vt.load_pair("digits")
    pair_folder(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).unlink()
    with refuses(ValueError, "no tokenizer with its weights"):
        vt.load_pair(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with refuses(ValueError, "transformers can't read its tokenizer"):
        vt.load_pair(tmp_path)
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(tmp_path)
    with refuses(ValueError, "ViTModel isn't a pair of towers"):
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


def test_predict_without_a_text_tower(tmp_path, capsys):
    Image.new("RGB", (9, 9)).save(tmp_path / "photo.png")
    with pytest.raises(SystemExit):
        cli.main(["predict", str(tmp_path / "photo.png"), "--weights", "digits", "--labels", "a cat"])
    assert "digits has no text tower" in capsys.readouterr().err


def test_pixels_that_the_patches_leave_out_are_left_out(tmp_path):
    pair_folder(tmp_path, "Siglip", image_size=35)
    pair = vt.load_pair(str(tmp_path))
    assert (pair.preprocess.image_size, pair.preprocess.cropped_edge) == ((32, 32), (3, 3))
