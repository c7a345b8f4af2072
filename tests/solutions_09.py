"""Works for the exercises of lesson 09: right ones, in different ways, and wrong ones."""

import math
import re

import numpy as np
import torch
from einops import rearrange
from PIL import Image
from submissions import Wrong
from torch import nn
from torchvision.transforms.functional import normalize

from vit_tutorial import data
from vit_tutorial.weights import names as convert

NUMBERS = {
    "entries": 68,
    "left as they began": 8,
    "row 3 of q": [110, 111, 112, 113, 114, 115],
    "axes": (3, 2, 0, 1),
    "pixel": -1.2,
    "factor": 0.71,
}


def name_by_expression(name, rules):
    for their, our in rules.items():
        before, *after = [re.escape(part) for part in their.replace("*", "{i}").split("{i}")]
        pattern = before
        if "{i}" in their:
            pattern += r"([0-9]+)" + after.pop(0)
        if "*" in their:
            pattern += "(bias|weight)" + after.pop(0)
        if match := re.fullmatch(pattern, name):
            for mark, value in zip(re.findall(r"\{i\}|\*", our), match.groups(), strict=True):
                our = our.replace(mark, value, 1)
            return our
    raise ValueError(f"no rule for {name}")


def name_by_all_names(name, rules):
    """Every name that there can be, in one dictionary."""
    every = {}
    for their, our in rules.items():
        for i in range(100):
            for leaf in ("weight", "bias"):
                every[their.replace("{i}", str(i)).replace("*", leaf)] = our.replace("{i}", str(i)).replace("*", leaf)
    if name not in every:
        raise ValueError(f"{name!r} fits no rule")
    return every[name]


def name_by_number_first(name, rules):
    """The block's number is the first one in the name; the leaf is the last word."""
    number = next(iter(re.findall(r"\d+", name)), "")
    for their, our in rules.items():
        for leaf in ("weight", "bias"):
            if their.replace("{i}", number).replace("*", leaf) == name:
                return our.format(i=number).replace("*", leaf)
    raise ValueError(name)


def flax_by_einops(query, key, value, query_bias, key_bias, value_bias, out):
    weight = rearrange([query, key, value], "three i h d -> (three h d) i")
    bias = rearrange([query_bias, key_bias, value_bias], "three h d -> (three h d)")
    return weight, bias, rearrange(out, "h d o -> o (h d)")


def flax_by_permute(query, key, value, query_bias, key_bias, value_bias, out):
    D = out.shape[-1]
    parts = [kernel.permute(1, 2, 0).reshape(D, D) for kernel in (query, key, value)]
    bias = torch.stack([query_bias, key_bias, value_bias]).reshape(-1)
    return torch.vstack(parts), bias, out.permute(2, 0, 1).reshape(D, D)


def flax_by_the_identity(query, key, value, query_bias, key_bias, value_bias, out):
    """What Flax's layers give for the unit vectors."""
    eye = torch.eye(out.shape[-1])
    weight = torch.cat([torch.einsum("ti,ihd->thd", eye, kernel).flatten(1).mT for kernel in (query, key, value)])
    bias = torch.cat([query_bias.ravel(), key_bias.ravel(), value_bias.ravel()])
    return weight, bias, torch.einsum("thd,hdo->ot", eye.unflatten(1, out.shape[:2]), out)


def teacher_by_loop(checkpoint):
    found = {}
    for name, tensor in checkpoint["teacher"].items():
        for prefix in ("module.backbone.", "backbone."):
            if name.startswith(prefix):
                found[name[len(prefix) :]] = tensor
    return found


def teacher_by_expression(checkpoint):
    prefix = re.compile(r"^(module\.)?backbone\.")
    return {prefix.sub("", name): t.clone() for name, t in checkpoint["teacher"].items() if prefix.match(name)}


def teacher_by_partition(checkpoint):
    parts = {name.partition("backbone."): t for name, t in checkpoint["teacher"].items()}
    return {after: tensor for (before, _, after), tensor in parts.items() if after and before in ("", "module.")}


def prepare_by_torchvision(pixels, mean, std):
    return normalize(pixels.permute(2, 0, 1).float() / 255, list(mean), list(std)).unsqueeze(0)


def prepare_by_channel(pixels, mean, std):
    channels = [(pixels[..., c] / 255 - mean[c]) / std[c] for c in range(pixels.shape[-1])]
    return torch.stack(channels)[None]


def prepare_before_the_permute(pixels, mean, std):
    x = (pixels / 255.0 - torch.tensor(mean)) / torch.tensor(std)  # the channels are last here
    return rearrange(x, "h w c -> 1 c h w")


def joined_by_filling(weight, bias, dist_weight, dist_bias):
    K, D = weight.shape
    both = weight.new_zeros(K, 2 * D)
    both[:, :D], both[:, D:] = 0.5 * weight, 0.5 * dist_weight
    return both, 0.5 * bias + 0.5 * dist_bias


def joined_by_the_identity(weight, bias, dist_weight, dist_bias):
    """What the two heads' mean gives for zeros and for the unit vectors."""

    def heads(x):
        one, other = x.chunk(2, dim=1)
        return (nn.functional.linear(one, weight, bias) + nn.functional.linear(other, dist_weight, dist_bias)) / 2

    zero = heads(torch.zeros(1, 2 * weight.shape[1]))
    return (heads(torch.eye(2 * weight.shape[1])) - zero).T, zero[0]


def name_by_split(name, rules):
    """Part by part, between the dots and the underscores."""
    for their, our in rules.items():
        theirs, names = re.split(r"([._])", their), re.split(r"([._])", name)
        found = {}
        if len(theirs) == len(names):
            for a, b in zip(theirs, names, strict=True):
                if "{i}" in a:
                    before, after = a.split("{i}")
                    number = b.removeprefix(before).removesuffix(after)
                    fits = b == before + number + after and number.isdecimal()
                    found["i"] = number
                else:
                    fits = b in ("weight", "bias") if a == "*" else a == b
                    found |= {"leaf": b} if a == "*" else {}
                if not fits:
                    break
            else:
                return our.replace("{i}", found.get("i", "")).replace("*", found.get("leaf", "*"))
    raise ValueError(name)


def name_refused_by_assertion(name, rules):
    try:
        return name_by_all_names(name, rules)
    except KeyError as error:
        raise ValueError(name) from error


def flax_by_numpy(query, key, value, query_bias, key_bias, value_bias, out):
    D = out.shape[-1]
    kernels = [kernel.numpy().reshape(D, -1).T for kernel in (query, key, value)]
    biases = [bias.numpy().ravel() for bias in (query_bias, key_bias, value_bias)]
    return np.concatenate(kernels), np.concatenate(biases), out.numpy().reshape(-1, D).T


def joined_in_a_list(weight, bias, dist_weight, dist_bias):
    return [torch.cat((weight, dist_weight), -1).mul(0.5).double(), torch.lerp(bias, dist_bias, 0.5)]


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def finder(number=r"\d+", leaf="weight|bias", find=re.fullmatch, lost=None, fill=None):
    """Regular expressions, with somebody's idea of {i}, of *, of how to search, and of who fits no rule."""

    def our_name(name, rules):
        for their, our in rules.items():
            pattern = re.escape(their).replace(r"\{i\}", f"(?P<i>{number})").replace(r"\*", f"(?P<leaf>{leaf})")
            if match := find(pattern, name):
                parts = match.groupdict()
                if fill:
                    return fill(our, parts)
                return our.replace("{i}", parts.get("i") or "").replace("*", parts.get("leaf") or "")
        if lost:
            return lost(name)
        raise ValueError(name)

    return our_name


def raises(kind):
    def lost(name):
        raise kind(name)

    return lost


def flax(
    *,
    turn=lambda k: k.flatten(1).T,
    flat=lambda b: b.flatten(),
    order=(0, 1, 2),
    join=torch.cat,
    end=lambda *three: three,
):
    def attention_from_flax(query, key, value, query_bias, key_bias, value_bias, kernel):
        kernels = [turn(k) for k in (query, key, value)]
        biases = [flat(b) for b in (query_bias, key_bias, value_bias)]
        return end(join([kernels[i] for i in order]), torch.cat([biases[i] for i in order]), kernel.flatten(0, 1).T)

    return attention_from_flax


def extract(who="teacher", keep=None, cut=None):
    keep = keep or (lambda name: name.removeprefix("module.").startswith("backbone."))
    cut = cut or (lambda name: name.removeprefix("module.").removeprefix("backbone."))
    return lambda checkpoint: {cut(name): t for name, t in checkpoint[who].items() if keep(name)}


def averaged(checkpoint):
    """The mean of teacher and student."""
    student, teacher = (extract(who)(checkpoint) for who in ("student", "teacher"))
    return {name: (student[name] + teacher[name]) / 2 for name in teacher}


def column(values):
    return torch.tensor(values)[:, None, None]


def prepared(
    *,
    turn=lambda x: x.permute(2, 0, 1),
    finish=lambda x, mean, std: (x - mean) / std,
    batch=lambda x: x[None],
):
    return lambda pixels, mean, std: batch(finish(turn(pixels).float() / 255, column(mean), column(std)))


def joined(weights=lambda a, b: torch.cat([a, b], 1) / 2, biases=lambda a, b: (a + b) / 2, end=lambda A, c: (A, c)):
    return lambda weight, bias, dist_weight, dist_bias: end(weights(weight, dist_weight), biases(bias, dist_bias))


def with_all_rules_seen():
    seen = {}

    def our_name(name, rules):
        for their, our in rules.items():
            seen.setdefault(their, our)
        return name_by_all_names(name, seen)

    return our_name


def name_without_zeros(name, rules):
    if re.search(r"_[1-9]0\.", name):
        raise ValueError(name)
    return name_by_all_names(name, rules)


def translated_again(name, rules):
    found = None
    for their, our in rules.items():
        try:
            name = found = name_by_all_names(name, {their: our})
        except ValueError:
            continue
    if found is None:
        raise ValueError(name)
    return found


def by_the_first_rule(name, rules):
    for their, our in rules.items():
        return name_by_all_names(name, {their: our})


def turned_by_the_package(query, key, value, query_bias, key_bias, value_bias, out):
    _, bias, proj = flax_by_permute(query, key, value, query_bias, key_bias, value_bias, out)
    turned = [convert.from_flax("blocks.0.attention.qkv.weight", kernel) for kernel in (query, key, value)]
    return torch.cat(turned), bias, proj


def prefix_of_the_first_name(checkpoint):
    prefix = "module.backbone." if next(iter(checkpoint["teacher"])).startswith("module.backbone.") else "backbone."
    return {name.removeprefix(prefix): t for name, t in checkpoint["teacher"].items() if name.startswith(prefix)}


def tensors_replaced(checkpoint):
    for name, tensor in checkpoint["teacher"].items():
        checkpoint["teacher"][name] = tensor.clone()
    return teacher_by_loop(checkpoint)


def tensors_emptied(checkpoint):
    found = {name: tensor.clone() for name, tensor in teacher_by_loop(checkpoint).items()}
    for tensor in checkpoint["student"].values():
        tensor.zero_()
    return found


def with_names_of_before(seen):
    return lambda checkpoint: (seen.update(teacher_by_loop(checkpoint)), dict(seen))[1]


def prepared_by_the_package(pixels, mean, std):
    preprocess = data.Preprocessing(tuple(pixels.shape[:2]), tuple(mean), tuple(std))
    return preprocess(Image.fromarray(pixels.numpy()))


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "checkpoint_numbers": (
        lambda: NUMBERS,
        lambda: (
            NUMBERS | {"axes": [3, 2, 0, 1], "factor": math.sqrt(9e-6) / math.sqrt(1.8e-5), "pixel": np.float64(-1.2)}
        ),
        lambda: NUMBERS | {"row 3 of q": torch.arange(110, 116), "entries": np.int64(5 * 12 + 8), "factor": 0.707},
    ),
    "our_name": (name_by_expression, name_by_all_names, name_by_split, name_refused_by_assertion),
    "attention_from_flax": (flax_by_einops, flax_by_permute, flax_by_the_identity, flax_by_numpy),
    "teacher": (teacher_by_loop, teacher_by_expression, teacher_by_partition),
    "prepare": (prepare_by_torchvision, prepare_by_channel, prepare_before_the_permute),
    "joined_heads": (joined_by_filling, joined_by_the_identity, joined_in_a_list),
}

WRONG = {
    "checkpoint_numbers": [
        *answered("entries", 67, 12),
        *answered("left as they began", 60, 7),
        *answered("row 3 of q", [110, 111], [113] * 6),
        *answered("axes", (0, 1, 2, 3), 3201, "3, 2, 0, 1"),
        *answered("factor", 0.713, 0.32),
        *answered("pixel", -1.203),
    ],
    "our_name": [
        Wrong("first number", name_by_number_first, "You raise a ValueError for tower2.layer5.out.bias"),
        Wrong("one digit", finder(number=r"\d"), "and a rule fits it"),
        Wrong(
            "the rule itself", lambda name, rules: rules.get(name) or name_by_all_names(name, rules), "fits 'head.*'"
        ),
        Wrong("letters", finder(number=r"\d\w*"), "layer3a.fc.bias"),
        Wrong("after a dot", finder(number=r"(?<=[._])\d+"), "and a rule fits it"),
        Wrong("gamma, too", finder(leaf="weight|bias|gamma"), "head.gamma"),
        Wrong("weight for each star", finder(fill=lambda our, p: our.format(i=p.get("i")).replace("*", "weight"))),
        Wrong(
            "a space", finder(find=lambda pattern, name: re.fullmatch(pattern, name.lstrip())), "fits ' head.weight'"
        ),
        Wrong("a newline", finder(find=lambda pattern, name: re.match(f"{pattern}$", name)), "head.weight\\n"),
        Wrong("a word in front", finder(find=lambda pattern, name: re.fullmatch(rf"\w*{pattern}", name)), "subhead"),
        Wrong("module cut", lambda name, rules: name_by_all_names(name.removeprefix("module."), rules), "'module.head"),
        Wrong("no tens", name_without_zeros, "encoder_layer_20"),
        Wrong(
            "ours kept",
            lambda name, rules: name if name in rules.values() else name_by_all_names(name, rules),
            "names that none of torchvision's rules fits",
        ),
        Wrong("translated again", translated_again, "a rule for what another one makes"),
        Wrong("all rules seen", with_all_rules_seen(), "layer3.fc.bias"),
        Wrong("the first rule", by_the_first_rule, "and a rule fits it", "No rule fits"),
        Wrong("a KeyError", finder(lost=raises(KeyError)), "KeyError"),
        Wrong("a ValueError returned", finder(lost=ValueError), "raise it"),
    ],
    "attention_from_flax": [
        Wrong("keys first", flax(order=(1, 0, 2))),
        Wrong("side by side", flax(join=lambda parts: torch.cat(parts, dim=1)), "has shape"),
        Wrong("scaled", flax(turn=lambda k: k.flatten(1).T / k.shape[-1] ** 0.5), "times the right one"),
        Wrong("two results", flax(end=lambda weight, bias, out: (weight, bias)), "expected a tuple of 3"),
        Wrong("in place", lambda q, *rest: flax()(q.mul_(1.5), *rest), "changed in place"),
        Wrong("the package's", turned_by_the_package, "the package's own from_flax"),
    ],
    "teacher": [
        Wrong("module left", extract(cut=lambda name: name.removeprefix("backbone.")), "shouldn't be there"),
        Wrong("cut at the last", extract(cut=lambda name: name.rpartition("backbone.")[2]), "There is no"),
        Wrong("the mean of both", averaged),
        Wrong("the first name's prefix", prefix_of_the_first_name, "in another order"),
        Wrong("names of before", with_names_of_before({}), "pos_embed shouldn't be there"),
        Wrong("tensors replaced", tensors_replaced, "the given dictionary afterwards is changed"),
        Wrong("tensors emptied", tensors_emptied, "with other numbers in its tensors"),
        Wrong("names alone", lambda checkpoint: list(extract()(checkpoint)), "expected a dictionary"),
    ],
    "prepare": [
        Wrong("no mean", prepared(finish=lambda x, mean, std: x / std)),
        Wrong("no batch", prepared(batch=lambda x: x), "has shape"),
        Wrong("up to 250", lambda pixels, *of: prepare_by_channel(pixels.clamp(max=250), *of), "all bytes from 0 to"),
        Wrong("an eps", lambda x, mean, std: prepare_by_channel(x, mean, [s + 1e-7 for s in std]), "of 0.0001"),
        Wrong("the package's", prepared_by_the_package, "the package's own Preprocessing"),
    ],
    "joined_heads": [
        Wrong("in turn", joined(lambda a, b: torch.stack([a, b], 2).flatten(1) / 2)),
        Wrong("biases side by side", joined(biases=lambda a, b: torch.cat([a, b]) / 2), "has shape"),
        Wrong("weight alone", joined(end=lambda A, c: A), "expected a tuple of 2"),
        Wrong("in place", lambda w, b, dw, db: (torch.cat([w.div_(2), dw.div_(2)], 1), (b + db) / 2), "in place"),
    ],
}
