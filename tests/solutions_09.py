"""Submissions to the exercises of lesson 09: right ones, in different ways, and wrong ones by their mistake."""

import math
import re

import numpy as np
import torch
from einops import rearrange
from torch import nn
from torchvision.transforms.functional import normalize

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


def flax_by_loops(query, key, value, query_bias, key_bias, value_bias, out):
    rows = [kernel[:, i, j] for kernel in (query, key, value) for i in range(key.shape[1]) for j in range(key.shape[2])]
    bias = [b[i, j] for b in (query_bias, key_bias, value_bias) for i in range(b.shape[0]) for j in range(b.shape[1])]
    columns = [out[i, j] for i in range(out.shape[0]) for j in range(out.shape[1])]
    return torch.stack(rows), torch.stack(bias), torch.stack(columns, dim=1)


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


def prepare_in_one_step(pixels, mean, std):
    """Mean and deviation of pixels up to 255."""
    mean, std = (255 * torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    return (pixels.unsqueeze(0).movedim(-1, 1).to(torch.float32) - mean) / std


def joined_by_filling(weight, bias, dist_weight, dist_bias):
    K, D = weight.shape
    both = weight.new_zeros(K, 2 * D)
    both[:, :D], both[:, D:] = 0.5 * weight, 0.5 * dist_weight
    return both, 0.5 * bias + 0.5 * dist_bias


def joined_by_hstack(weight, bias, dist_weight, dist_bias):
    return torch.hstack([weight / 2, dist_weight / 2]), torch.stack([bias, dist_bias]).mean(0)


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
                    fits = a == b or (a == "*" and b in ("weight", "bias"))
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


def flax_in_doubles(*given):
    return [part.detach().double() for part in flax_by_einops(*given)]


def teacher_by_numpy(checkpoint):
    return {name: tensor.numpy() for name, tensor in teacher_by_loop(checkpoint).items()}


def teacher_by_find(checkpoint):
    found = {}
    for name in checkpoint["teacher"]:
        short = name[len("module.") :] if name.startswith("module.") else name
        if short[: len("backbone.")] == "backbone.":
            found[short[len("backbone.") :]] = checkpoint["teacher"][name].double()
    return found


def prepare_by_numpy(pixels, mean, std):
    x = (pixels.numpy() / 255 - np.array(mean)) / np.array(std)
    return np.transpose(x, (2, 0, 1))[np.newaxis]


def prepare_by_loops(pixels, mean, std):
    H, W, C = pixels.shape
    x = torch.empty(1, C, H, W)
    for c in range(C):
        for i in range(H):
            for j in range(W):
                x[0, c, i, j] = (pixels[i, j, c].item() / 255 - mean[c]) / std[c]
    return x


def joined_by_numpy(weight, bias, dist_weight, dist_bias):
    return np.hstack([weight.numpy(), dist_weight.numpy()]) / 2, np.mean([bias.numpy(), dist_bias.numpy()], axis=0)


def joined_in_a_list(weight, bias, dist_weight, dist_bias):
    return [torch.cat((weight, dist_weight), -1).mul(0.5).double(), torch.lerp(bias, dist_bias, 0.5)]


SOLUTIONS = {
    "checkpoint_numbers": (
        lambda: NUMBERS,
        lambda: (
            NUMBERS | {"axes": [3, 2, 0, 1], "factor": math.sqrt(9e-6) / math.sqrt(1.8e-5), "pixel": np.float64(-1.2)}
        ),
        lambda: NUMBERS | {"row 3 of q": torch.arange(110, 116), "entries": np.int64(5 * 12 + 8), "factor": 0.707},
        lambda: {name: np.array(value) for name, value in NUMBERS.items()},
    ),
    "our_name": (name_by_expression, name_by_all_names, name_by_number_first, name_by_split, name_refused_by_assertion),
    "attention_from_flax": (
        flax_by_einops,
        flax_by_loops,
        flax_by_permute,
        flax_by_the_identity,
        flax_by_numpy,
        flax_in_doubles,
    ),
    "teacher": (teacher_by_loop, teacher_by_expression, teacher_by_partition, teacher_by_numpy, teacher_by_find),
    "prepare": (
        prepare_by_torchvision,
        prepare_by_channel,
        prepare_before_the_permute,
        prepare_in_one_step,
        prepare_by_numpy,
        prepare_by_loops,
    ),
    "joined_heads": (joined_by_filling, joined_by_hstack, joined_by_the_identity, joined_by_numpy, joined_in_a_list),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def finder(number=r"\d+", leaf="weight|bias", find=re.fullmatch, lost=None, escape=re.escape, fill=None):
    """Regular expressions, with somebody's idea of {i}, of *, of how to search, and of who fits no rule."""

    def our_name(name, rules):
        for their, our in rules.items():
            pattern = escape(their).replace(r"\{i\}", f"(?P<i>{number})").replace(r"\*", f"(?P<leaf>{leaf})")
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


def chained(name, rules):
    for their, our in rules.items():
        for old, new in zip(re.split(r"\{i\}|\*", their), re.split(r"\{i\}|\*", our), strict=True):
            name = name.replace(old, new) if old else name
    return name


def chained_and_checked(name, rules):
    found = chained(name, rules)
    if found == name:
        raise ValueError(name)
    return found


def exact_names_alone(name, rules):
    if name not in rules:
        raise ValueError(name)
    return rules[name]


def up_to(count):
    def our_name(name, rules):
        for their, our in rules.items():
            for i in range(count):
                for leaf in ("weight", "bias"):
                    if their.replace("{i}", str(i)).replace("*", leaf) == name:
                        return our.replace("{i}", str(i)).replace("*", leaf)
        raise ValueError(name)

    return our_name


def contained(name, rules):
    """The number found as a piece of text."""
    for their, our in rules.items():
        for i in range(12):
            for leaf in ("weight", "bias"):
                if their.replace("{i}", str(i)).replace("*", "") in name:
                    return our.replace("{i}", str(i)).replace("*", leaf)
    raise ValueError(name)


def begins(name, rules):
    for their, our in rules.items():
        before = their.split("{i}")[0].rstrip("*")
        if name.startswith(before):
            number = re.search(r"\d+", name)
            leaf = name.rsplit(".", 1)[-1]
            return our.replace("{i}", number[0] if number else "").replace("*", leaf)
    raise ValueError(name)


def ends(name, rules):
    for their, our in rules.items():
        if name.endswith(their.split("{i}")[-1].replace("*", "weight")) or name.endswith(
            their.split("{i}")[-1].replace("*", "bias")
        ):
            number, leaf = re.search(r"\d+", name), name.rsplit(".", 1)[-1]
            return our.replace("{i}", number[0] if number else "").replace("*", leaf)
    raise ValueError(name)


def only_the_last_rule(name, rules):
    return finder()(name, dict(list(rules.items())[-1:]))


WRONG_NAMES = {
    "one digit": finder(number=r"\d"),
    "blocks 0 to 9": up_to(10),
    "blocks 0 to 10": up_to(11),
    "block 1 in 11": lambda name, rules: finder()(re.sub(r"(\d)\d+", r"\1", name), rules),
    "the last digit": lambda name, rules: finder()(re.sub(r"\d+(\d)", r"\1", name), rules),
    "contained": contained,
    "begins": begins,
    "ends": ends,
    "chain": chained,
    "chain, checked": chained_and_checked,
    "any number": finder(number=r".+"),
    "any number, lazily": finder(number=r".+?"),
    "any word": finder(number=r"\w+"),
    "any leaf": finder(leaf=r".+"),
    "any word as leaf": finder(leaf=r"\w+"),
    "weight alone": finder(leaf="weight"),
    "bias alone": finder(leaf="bias"),
    "search": finder(find=re.search),
    "match": finder(find=re.match),
    "end alone": finder(find=lambda pattern, name: re.search(pattern + "$", name)),
    "kept": finder(lost=lambda name: name),
    "None": finder(lost=lambda name: None),
    "nothing for a stranger": finder(lost=lambda name: ""),
    "a KeyError": finder(lost=raises(KeyError)),
    "a RuntimeError": finder(lost=raises(RuntimeError)),
    "a bare Exception": finder(lost=raises(Exception)),
    "a ValueError returned": finder(lost=ValueError),
    "the rule": finder(fill=lambda our, parts: our),
    "number not filled": finder(fill=lambda our, parts: our.replace("*", parts.get("leaf") or "")),
    "leaf not filled": finder(fill=lambda our, parts: our.replace("{i}", parts.get("i") or "")),
    "always weight": finder(fill=lambda our, parts: our.replace("{i}", parts.get("i") or "").replace("*", "weight")),
    "always bias": finder(fill=lambda our, parts: our.replace("{i}", parts.get("i") or "").replace("*", "bias")),
    "always block 0": finder(fill=lambda our, parts: our.replace("{i}", "0").replace("*", parts.get("leaf") or "")),
    "counted from 1": finder(
        fill=lambda our, p: our.replace("{i}", str(int(p.get("i") or 0) + 1)).replace("*", p.get("leaf") or "")
    ),
    "two digits": finder(
        fill=lambda our, p: our.replace("{i}", f"{int(p.get('i') or 0):02d}").replace("*", p.get("leaf") or "")
    ),
    "leaf first": finder(fill=lambda our, p: our.replace("*", p.get("i") or "").replace("{i}", p.get("leaf") or "")),
    "not escaped": finder(escape=lambda rule: rule.replace("*", r"\*").replace("{i}", r"\{i\}")),
    "exact names alone": exact_names_alone,
    "the rules the other way round": lambda name, rules: finder()(name, {our: their for their, our in rules.items()}),
    "the last rule": only_the_last_rule,
    "the first rule": lambda name, rules: finder()(name, dict(list(rules.items())[:1])),
    "the rule's number": lambda name, rules: (finder()(name, rules), 0),
    "upper case": lambda name, rules: finder()(name, rules).upper(),
    "refuses all": lambda name, rules: raises(ValueError)(name),
    "the name": lambda name, rules: name,
    "prints": lambda name, rules: print(finder()(name, rules)),
    "a list of all that fit": lambda name, rules: [finder()(name, rules)],
}


def flax(
    *,
    turn=lambda k: k.flatten(1).T,
    flat=lambda b: b.flatten(),
    out=lambda o: o.flatten(0, 1).T,
    order=(0, 1, 2),
    join=torch.cat,
    end=lambda *three: three,
):
    def attention_from_flax(query, key, value, query_bias, key_bias, value_bias, kernel):
        kernels = [turn(k) for k in (query, key, value)]
        biases = [flat(b) for b in (query_bias, key_bias, value_bias)]
        return end(join([kernels[i] for i in order]), torch.cat([biases[i] for i in order]), out(kernel))

    return attention_from_flax


def for_each_head(query, key, value, *others):
    weight, bias, out = flax_by_permute(query, key, value, *others)
    h = query.shape[1]
    mixed = [t.unflatten(0, (3, h, -1)).transpose(0, 1).flatten(0, 2) for t in (weight, bias)]
    return *mixed, out


def interleaved(*given):
    """q, k, v number by number."""
    weight, bias, out = flax_by_permute(*given)
    mixed = [t.unflatten(0, (3, -1)).transpose(0, 1).flatten(0, 1) for t in (weight, bias)]
    return *mixed, out


WRONG_FLAX = {
    "not turned": flax(turn=lambda k: k.flatten(1)),
    "nothing turned": flax(turn=lambda k: k.flatten(1), out=lambda o: o.flatten(0, 1)),
    "projection not turned": flax(out=lambda o: o.flatten(0, 1)),
    "reshape alone": flax(turn=lambda k: k.reshape(k.shape[0], -1)),
    "reshape to (D, D), no transpose": flax(turn=lambda k: k.reshape(-1, k.shape[0])),
    "numbers before heads": flax(turn=lambda k: k.permute(2, 1, 0).flatten(0, 1), flat=lambda b: b.T.flatten()),
    "numbers before heads, weights": flax(turn=lambda k: k.permute(2, 1, 0).flatten(0, 1)),
    "numbers before heads, biases": flax(flat=lambda b: b.T.flatten()),
    "numbers before heads, projection": flax(out=lambda o: o.permute(2, 1, 0).flatten(1)),
    "numbers before heads, everywhere": flax(
        turn=lambda k: k.permute(2, 1, 0).flatten(0, 1),
        flat=lambda b: b.T.flatten(),
        out=lambda o: o.permute(2, 1, 0).flatten(1),
    ),
    "inputs between": flax(turn=lambda k: k.transpose(0, 1).reshape(k.shape[0], -1)),
    "inputs between, turned": flax(turn=lambda k: k.transpose(0, 1).reshape(k.shape[0], -1).T),
    "outputs between": flax(out=lambda o: o.transpose(1, 2).reshape(o.shape[2], -1)),
    "outputs in front": flax(out=lambda o: o.permute(2, 0, 1).reshape(-1, o.shape[2])[: o.shape[2]].T),
    "projection by flatten(1)": flax(out=lambda o: o.flatten(1)),
    "k, q, v": flax(order=(1, 0, 2)),
    "q, v, k": flax(order=(0, 2, 1)),
    "v, k, q": flax(order=(2, 1, 0)),
    "k, v, q": flax(order=(1, 2, 0)),
    "v, q, k": flax(order=(2, 0, 1)),
    "q thrice": flax(order=(0, 0, 0)),
    "q, k": flax(order=(0, 1)),
    "for each head": for_each_head,
    "number by number": interleaved,
    "side by side": flax(join=lambda parts: torch.cat(parts, dim=1)),
    "stacked": flax(join=torch.stack),
    "side by side, turned": flax(join=lambda parts: torch.cat(parts, dim=1).T),
    "biases in another order": lambda q, k, v, qb, kb, vb, out: flax()(q, k, v, vb, kb, qb, out),
    "key's bias for query's": lambda q, k, v, qb, kb, vb, out: flax()(q, k, v, kb, kb, vb, out),
    "no biases": lambda q, k, v, qb, kb, vb, out: flax()(q, k, v, 0 * qb, 0 * kb, 0 * vb, out),
    "biases (3h, d)": flax(flat=lambda b: b),
    "biases (3, D)": lambda *given: (flax()(*given)[0], flax()(*given)[1].unflatten(0, (3, -1)), flax()(*given)[2]),
    "weight and bias": flax(end=lambda weight, bias, out: (weight, bias)),
    "exchanged results": flax(end=lambda weight, bias, out: (out, bias, weight)),
    "projection second": flax(end=lambda weight, bias, out: (weight, out, bias)),
    "a dictionary": flax(end=lambda weight, bias, out: {"qkv.weight": weight, "qkv.bias": bias, "proj.weight": out}),
    "one tensor": flax(end=lambda weight, bias, out: weight),
    "scaled": flax(turn=lambda k: k.flatten(1).T / k.shape[-1] ** 0.5),
    "heads reversed": flax(turn=lambda k: k.flip(1).flatten(1).T),
    "weight turned at the end": flax(end=lambda weight, bias, out: (weight.T, bias, out)),
    "k.T": flax(turn=lambda k: k.permute(2, 1, 0).reshape(k.shape[0], -1)),
    "out.T": flax(out=lambda o: o.permute(2, 1, 0).reshape(o.shape[2], -1)),
    "permute(1, 0, 2)": flax(turn=lambda k: k.permute(1, 0, 2).flatten(1)),
    "no return": lambda *given: None,
    "in place": lambda q, *rest: flax()(q.mul_(2).div_(2).add_(1).sub_(1).mul_(1.5), *rest),
}


def extract(who="teacher", keep=None, cut=None, end=lambda found: found):
    keep = keep or (lambda name: name.removeprefix("module.").startswith("backbone."))
    cut = cut or (lambda name: name.removeprefix("module.").removeprefix("backbone."))
    return lambda checkpoint: end({cut(name): t for name, t in checkpoint[who].items() if keep(name)})


def averaged(checkpoint):
    """The mean of teacher and student."""
    student, teacher = (extract(who)(checkpoint) for who in ("student", "teacher"))
    return {name: (student[name] + teacher[name]) / 2 for name in teacher}


WRONG_TEACHER = {
    "student": extract("student"),
    "replace": extract(cut=lambda name: name.replace("module.", "").replace("backbone.", "")),
    "replace, module too": extract(cut=lambda name: name.replace("backbone.", "").removeprefix("module.")),
    "replaced once": extract(cut=lambda name: name.replace("backbone.", "", 1)),
    "split at the last": extract(cut=lambda name: name.split("backbone.")[-1]),
    "split at the first, second piece": extract(cut=lambda name: name.split("backbone.")[1]),
    "lstrip": extract(cut=lambda name: name.removeprefix("module.").lstrip("backbone.")),  # noqa: B005
    "lstrip of both": extract(cut=lambda name: name.lstrip("module.").lstrip("backbone.")),  # noqa: B005
    "rpartition": extract(cut=lambda name: name.rpartition("backbone.")[2]),
    "fixed length": extract(cut=lambda name: name[len("backbone.") :]),
    "head too": extract(keep=lambda name: True),
    "all but the head": extract(keep=lambda name: not name.removeprefix("module.").startswith("head.")),
    "all that begins like it": extract(keep=lambda name: name.removeprefix("module.").startswith("backbone")),
    "module replaced": extract(cut=lambda name: name.replace("module.", "").removeprefix("backbone.")),
    "cut again and again": extract(cut=lambda name: re.sub(r"^(module\.|backbone\.)+", "", name)),
    "head further inside left out": extract(keep=lambda name: "backbone." in name and "head." not in name),
    "head named away": extract(keep=lambda name: "head" in name),
    "module left": extract(cut=lambda name: name.removeprefix("backbone.")),
    "module cut, backbone left": extract(cut=lambda name: name.removeprefix("module.")),
    "names as they were": extract(cut=lambda name: name),
    "without module alone": extract(keep=lambda name: name.startswith("backbone.")),
    "with module alone": extract(
        keep=lambda name: name.startswith("module.backbone."), cut=lambda name: name.removeprefix("module.backbone.")
    ),
    "everything": lambda checkpoint: {**extract("student")(checkpoint), "epoch": checkpoint["epoch"]},
    "the teacher as it is": lambda checkpoint: checkpoint["teacher"],
    "the checkpoint": lambda checkpoint: checkpoint,
    "averaged": averaged,
    "both": lambda checkpoint: extract("teacher")(checkpoint) | extract("student")(checkpoint),
    "both under their names": lambda checkpoint: {
        **{f"teacher.{n}": t for n, t in extract()(checkpoint).items()},
        **{f"student.{n}": t for n, t in extract("student")(checkpoint).items()},
    },
    "a pair": lambda checkpoint: (extract()(checkpoint), checkpoint["epoch"]),
    "names alone": lambda checkpoint: list(extract()(checkpoint)),
    "pairs": lambda checkpoint: list(extract()(checkpoint).items()),
    "no biases": extract(keep=lambda name: "backbone." in name and not name.endswith("bias")),
    "blocks alone": extract(keep=lambda name: "blocks." in name),
    "class token lost": extract(keep=lambda name: "backbone." in name and "cls_token" not in name),
    "backbone in front": extract(cut=lambda name: "backbone." + name.removeprefix("module.").removeprefix("backbone.")),
    "our names": extract(
        cut=lambda name: name.removeprefix("module.").removeprefix("backbone.").replace("cls_token", "embed.cls_token")
    ),
    "halved": extract(end=lambda found: {name: t / 2 for name, t in found.items()}),
    "lists": extract(end=lambda found: {name: t.tolist() for name, t in found.items()}),
    "shapes": extract(end=lambda found: {name: t.shape for name, t in found.items()}),
    "empty": lambda checkpoint: {},
    "no return": lambda checkpoint: None,
    "popped": lambda checkpoint: {
        name.removeprefix("module.").removeprefix("backbone."): checkpoint["teacher"].pop(name)
        for name in list(checkpoint["teacher"])
        if name.removeprefix("module.").startswith("backbone.")
    },
    "student's head cut off": lambda checkpoint: {
        name: t for name, t in checkpoint["student"].items() if "head" not in name
    },
    "upper levels joined": lambda checkpoint: {f"teacher.{n}": t for n, t in extract()(checkpoint).items()},
    "underscores": extract(end=lambda found: {name.replace(".", "_"): t for name, t in found.items()}),
}


def prepared(
    *,
    turn=lambda x: x.permute(2, 0, 1),
    scale=lambda x: x / 255,
    shape=lambda values: torch.tensor(values)[:, None, None],
    finish=lambda x, mean, std: (x - mean) / std,
    batch=lambda x: x[None],
):
    return lambda pixels, mean, std: batch(finish(scale(turn(pixels).float()), shape(mean), shape(std)))


def integer_pixels(pixels, mean, std):
    x = (pixels // 255).permute(2, 0, 1)
    return ((x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None])[None]


def truncated(pixels, mean, std):
    return prepare_by_channel(pixels, mean, std).byte()


def imagenet_always(pixels, mean, std):
    return prepare_by_channel(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


WRONG_PREPARE = {
    "0 to 255": prepared(scale=lambda x: x),
    "divided by 256": prepared(scale=lambda x: x / 256),
    "divided by 128": prepared(scale=lambda x: x / 128),
    "divided by the largest": prepared(scale=lambda x: x / x.max()),
    "-1 to 1": prepared(scale=lambda x: x / 127.5 - 1),
    "divided twice": prepared(scale=lambda x: x / 255 / 255),
    "scaled afterwards": prepared(scale=lambda x: x, finish=lambda x, mean, std: (x - mean) / std / 255),
    "the mean alone scaled": prepared(scale=lambda x: x, finish=lambda x, mean, std: (x - 255 * mean) / std),
    "whole division": integer_pixels,
    "bytes": truncated,
    "reshape": prepared(turn=lambda x: x.reshape(x.shape[2], *x.shape[:2])),
    "transpose(0, 2)": prepared(turn=lambda x: x.transpose(0, 2)),
    "permute(2, 1, 0)": prepared(turn=lambda x: x.permute(2, 1, 0)),
    "permute(1, 0, 2)": prepared(turn=lambda x: x.permute(1, 0, 2)),
    "not permuted": prepared(turn=lambda x: x, shape=torch.tensor),
    "blue first": prepared(turn=lambda x: x.permute(2, 0, 1).flip(0)),
    "grey": prepared(turn=lambda x: x.permute(2, 0, 1).float().mean(0, keepdim=True).expand(3, -1, -1)),
    "mirrored": prepared(turn=lambda x: x.permute(2, 0, 1).flip(2)),
    "upside down": prepared(turn=lambda x: x.permute(2, 0, 1).flip(1)),
    "mean and std exchanged": prepared(finish=lambda x, mean, std: (x - std) / mean),
    "times std": prepared(finish=lambda x, mean, std: (x - mean) * std),
    "brackets": prepared(finish=lambda x, mean, std: x - mean / std),
    "mean last": prepared(finish=lambda x, mean, std: x / std - mean),
    "plus mean": prepared(finish=lambda x, mean, std: (x + mean) / std),
    "std squared": prepared(finish=lambda x, mean, std: (x - mean) / std**2),
    "root of std": prepared(finish=lambda x, mean, std: (x - mean) / std.sqrt()),
    "std + eps": prepared(finish=lambda x, mean, std: (x - mean) / (std + 1e-2)),
    "no mean": prepared(finish=lambda x, mean, std: x / std),
    "no std": prepared(finish=lambda x, mean, std: x - mean),
    "no normalisation": prepared(finish=lambda x, mean, std: x),
    "backwards": prepared(finish=lambda x, mean, std: x * std + mean),
    "mean - x": prepared(finish=lambda x, mean, std: (mean - x) / std),
    "own statistics": prepared(
        finish=lambda x, mean, std: (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)
    ),
    "own statistics of all": prepared(finish=lambda x, mean, std: (x - x.mean()) / x.std()),
    "own range": prepared(finish=lambda x, mean, std: (x - x.min()) / (x.max() - x.min())),
    "one mean for all": prepared(shape=lambda values: torch.tensor(values).mean()),
    "the first mean for all": prepared(shape=lambda values: torch.tensor(values)[0]),
    "means reversed": prepared(shape=lambda values: torch.tensor(values).flip(0)[:, None, None]),
    "means along the width": prepared(shape=torch.tensor),
    "means along the height": prepared(shape=lambda values: torch.tensor(values)[:, None]),
    "imagenet always": imagenet_always,
    "no batch": prepared(batch=lambda x: x),
    "batch last": prepared(batch=lambda x: x[..., None]),
    "batch second": prepared(batch=lambda x: x[:, None]),
    "clamped": prepared(batch=lambda x: x.clamp(-1, 1)[None]),
    "rounded": prepared(batch=lambda x: x.round(decimals=1)[None]),
    "a list": prepared(batch=lambda x: [x]),
    "no return": lambda *a: None,
}


def joined(weights=lambda a, b: torch.cat([a, b], 1) / 2, biases=lambda a, b: (a + b) / 2, end=lambda A, c: (A, c)):
    return lambda weight, bias, dist_weight, dist_bias: end(weights(weight, dist_weight), biases(bias, dist_bias))


WRONG_JOINED = {
    "summed": joined(lambda a, b: torch.cat([a, b], 1), lambda a, b: a + b),
    "biases summed": joined(biases=lambda a, b: a + b),
    "weights not halved": joined(lambda a, b: torch.cat([a, b], 1)),
    "first half alone halved": joined(lambda a, b: torch.cat([a / 2, b], 1)),
    "second half alone halved": joined(lambda a, b: torch.cat([a, b / 2], 1)),
    "quartered": joined(lambda a, b: torch.cat([a, b], 1) / 4, lambda a, b: (a + b) / 4),
    "biases quartered": joined(biases=lambda a, b: (a + b) / 4),
    "by √2": joined(lambda a, b: torch.cat([a, b], 1) / 2**0.5, lambda a, b: (a + b) / 2**0.5),
    "by 2D": joined(lambda a, b: torch.cat([a, b], 1) / (2 * a.shape[1])),
    "mean of matrices": joined(lambda a, b: (a + b) / 2),
    "sum of matrices": joined(lambda a, b: a + b),
    "mean of matrices, twice": joined(lambda a, b: ((a + b) / 2).repeat(1, 2)),
    "below each other": joined(lambda a, b: torch.cat([a, b]) / 2),
    "below each other, biases too": joined(lambda a, b: torch.cat([a, b]) / 2, lambda a, b: torch.cat([a, b]) / 2),
    "stacked": joined(lambda a, b: torch.stack([a, b]) / 2),
    "turned": joined(lambda a, b: torch.cat([a, b], 1).T / 2),
    "distillation first": joined(lambda a, b: torch.cat([b, a], 1) / 2),
    "in turn": joined(lambda a, b: torch.stack([a, b], 2).flatten(1) / 2),
    "reshaped": joined(lambda a, b: torch.cat([a, b]).reshape(a.shape[0], -1) / 2),
    "one head twice": joined(lambda a, b: torch.cat([a, a], 1) / 2),
    "the other twice": joined(lambda a, b: torch.cat([b, b], 1) / 2),
    "zeros for the other": joined(lambda a, b: torch.cat([a, 0 * b], 1) / 2),
    "class bias": joined(biases=lambda a, b: a),
    "class bias halved": joined(biases=lambda a, b: a / 2),
    "distillation bias": joined(biases=lambda a, b: b),
    "distillation bias halved": joined(biases=lambda a, b: b / 2),
    "no bias": joined(biases=lambda a, b: 0 * a),
    "biases side by side": joined(biases=lambda a, b: torch.cat([a, b])),
    "biases side by side, halved": joined(biases=lambda a, b: torch.cat([a, b]) / 2),
    "difference": joined(lambda a, b: torch.cat([a, -b], 1) / 2, lambda a, b: (a - b) / 2),
    "biases differ": joined(biases=lambda a, b: (a - b) / 2),
    "block diagonal": joined(lambda a, b: torch.block_diag(a, b) / 2, lambda a, b: torch.cat([a, b]) / 2),
    "weight alone": joined(end=lambda A, c: A),
    "bias first": joined(end=lambda A, c: (c, A)),
    "a layer": joined(end=lambda A, c: nn.Linear(A.shape[1], A.shape[0])),
    "a dictionary": joined(end=lambda A, c: {"weight": A, "bias": c}),
    "bias as a column": joined(end=lambda A, c: (A, c[:, None])),
    "bias in the weight": joined(end=lambda A, c: (torch.cat([A, c[:, None]], 1), c)),
    "product": joined(lambda a, b: torch.cat([a, b], 1) * 2, lambda a, b: (a + b) * 2),
    "brackets": joined(biases=lambda a, b: a + b / 2),
    "larger": joined(lambda a, b: torch.cat([a, b], 1) / 2, torch.maximum),
    "flipped": joined(lambda a, b: torch.cat([a, b.flip(1)], 1) / 2),
    "mean of all": joined(biases=lambda a, b: torch.cat([a, b]).mean().expand_as(a)),
    "in place": lambda w, b, dw, db: (torch.cat([w.div_(2), dw.div_(2)], 1), (b + db) / 2),
    "no return": lambda *a: None,
}

BY_LABEL = {
    "checkpoint_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "entries": [60, 35, 67, 66, 64, 12, 20, 69, 65, 63, 40, 38],
            "left as they began": [0, 60, 68, 7, 6, 4, 3, 5, 12],
            "row 3 of q": [
                [3, 13, 103, 113, 203, 213],
                [10, 11, 12, 13, 14, 15],
                [110, 111],
                [113] * 6,
                [200, 201, 202, 203, 204, 205],
                [100, 101, 102, 103, 104, 105],
                [210, 211, 212, 213, 214, 215],
                [10, 110, 210, 11, 111, 211],
                110,
                [30, 31, 32, 33, 34, 35],
                [20, 21, 22, 23, 24, 25],
            ],
            "axes": [
                (3, 2, 1, 0),
                (2, 3, 0, 1),
                (3, 0, 1, 2),
                (0, 1, 2, 3),
                (2, 3, 1, 0),
                (1, 2, 3, 0),
                (2, 0, 1, 3),
                (3, 1, 0, 2),
                (0, 1, 3, 2),
                (4, 3, 1, 2),
                (3, 2),
                3201,
                "3, 2, 0, 1",
                (2, 1, 3, 0),
                (1, 0, 2, 3),
            ],
            "pixel": [202, -0.2, 0.2, 1.2, -0.3, 50.5, -0.1, 0.8, 0, -1.8, 2.8, -0.6, -5.1],
            "factor": [1.41, 0.5, 0.316, 2, 0.1, 0.9, 1, 0.32, 10, 3.16, 0.3, 0.84],
        }.items()
        for value in values
    },
    "our_name": WRONG_NAMES,
    "attention_from_flax": WRONG_FLAX,
    "teacher": WRONG_TEACHER,
    "prepare": WRONG_PREPARE,
    "joined_heads": WRONG_JOINED,
}


# What the check calls the mistake of a wrong submission; one that isn't listed must not be given a name.
NAMES = {
    "checkpoint_numbers": {
        "entries: 60": "the blocks alone",
        "entries: 35": "the biases forgotten",
        "left as they began: 0": "an error that never comes",
        "left as they began: 60": "the tensors that were filled",
        "row 3 of q: [3, 13, 103, 113, 203, 213]": "a kernel that isn't turned",
        "row 3 of q: [10, 11, 12, 13, 14, 15]": "numbers before heads",
        "axes: (3, 2, 1, 0)": "all axes in the reverse order",
        "axes: (2, 3, 0, 1)": "inputs before outputs",
        "axes: (3, 0, 1, 2)": "channels last",
        "pixel: 202": "a pixel between 0 and 255",
        "pixel: -0.1": "mean and deviation exchanged",
        "factor: 1.41": "a factor upside down",
        "factor: 0.5": "a missing square root",
        "factor: 0.316": "the variance forgotten",
        "factor: 0.32": "the variance forgotten",
    },
    "our_name": {
        "one digit": "a number of one digit",
        "blocks 0 to 9": "a number of one digit",
        "blocks 0 to 10": "a number of one digit",
        "block 1 in 11": "block 1 found in block 11",
        "chain": "a chain of replacements",
        "any number": "a block number that takes more than digits",
        "any number, lazily": "a block number that takes more than digits",
        "any word": "a block number that takes letters, too",
        "any leaf": "a star that takes anything",
        "any word as leaf": "a star that takes any word",
        "weight alone": "weights alone",
        "bias alone": "biases alone",
        "search": "a rule found in the middle of a name",
        "match": "the beginning of a name that is enough",
        "end alone": "the end of a name that is enough",
        "kept": "a stranger that is let through",
        "the rule": "the rule in place of the name",
        "number not filled": "a block's number that isn't filled in",
        "leaf not filled": "a star that isn't filled in",
        "always weight": "a weight in place of every star",
        "always bias": "a bias in place of every star",
        "always block 0": "block 0, whatever the number",
        "not escaped": "a dot that takes any sign",
    },
    "attention_from_flax": {
        "not turned": "a kernel that isn't turned",
        "nothing turned": "nothing turned at all",
        "projection not turned": "a projection that isn't turned",
        "reshape alone": "a kernel that isn't turned",
        "reshape to (D, D), no transpose": "a kernel that isn't turned",
        "numbers before heads": "numbers before heads",
        "numbers before heads, weights": "numbers before heads in the weights alone",
        "numbers before heads, biases": "heads mixed in the biases",
        "numbers before heads, projection": "numbers before heads in the projection",
        "numbers before heads, everywhere": "numbers before heads everywhere",
        "inputs between": "inputs that got between heads and numbers",
        "inputs between, turned": "inputs and heads in the wrong order",
        "outputs between": "outputs that got between heads and numbers",
        "outputs in front": "a projection that isn't turned",
        "k, q, v": "the order k, q, v",
        "q, v, k": "the order q, v, k",
        "v, k, q": "the order v, k, q",
        "k, v, q": "the order k, v, q",
        "v, q, k": "the order v, q, k",
        "q thrice": "the queries three times",
        "for each head": "q, k and v stacked for each head",
        "side by side": "q, k and v side by side",
        "side by side, turned": "a kernel that isn't turned",
        "k.T": "numbers before heads in the weights alone",
        "out.T": "numbers before heads in the projection",
    },
    "teacher": {
        "student": "the student's weights",
        "replace": "a prefix cut out everywhere",
        "replace, module too": "a prefix cut out everywhere",
        "split at the last": "the backbone's name cut at its last place",
        "lstrip": "lstrip in place of removeprefix",
        "lstrip of both": "lstrip in place of removeprefix",
        "rpartition": "the backbone's name cut at its last place",
        "head too": "a head that came along",
        "module left": "a prefix that was left",
        "module cut, backbone left": "'module.' cut off, and 'backbone.' left",
        "names as they were": "names as they were",
        "without module alone": "names with the prefix left out",
        "the teacher as it is": "the teacher as it is",
        "averaged": "a mean of teacher and student",
        "both": "the student's weights",
        "backbone in front": "'module.' cut off, and 'backbone.' left",
    },
    "prepare": {
        "0 to 255": "pixels between 0 and 255",
        "divided by 256": "a division by 256",
        "divided by the largest": "a division by the picture's largest number",
        "-1 to 1": "pixels from -1 to 1 before the normalisation",
        "divided twice": "a division by 255, twice",
        "scaled afterwards": "a normalisation before the scaling",
        "whole division": "a whole division",
        "reshape": "a reshape in place of a permute",
        "transpose(0, 2)": "height and width exchanged",
        "permute(2, 1, 0)": "height and width exchanged",
        "blue first": "blue first",
        "grey": "a picture without colours",
        "mirrored": "a mirrored picture",
        "upside down": "a picture that stands on its head",
        "mean and std exchanged": "mean and deviation exchanged",
        "times std": "a multiplication by the deviation",
        "brackets": "a missing bracket",
        "mean last": "a mean that is subtracted last",
        "plus mean": "a mean added in place of subtracted",
        "std squared": "a division by the variance",
        "no mean": "a missing mean",
        "no std": "a missing deviation",
        "no normalisation": "no normalisation",
        "backwards": "the way back",
        "mean - x": "the wrong sign",
        "own statistics": "the picture's own mean and deviation",
        "one mean for all": "one mean for all channels",
        "the first mean for all": "the first channel's numbers for all",
        "means reversed": "means in the reverse order",
        "means along the width": "means that run along the width",
        "imagenet always": "ImageNet's numbers, whatever comes",
    },
    "joined_heads": {
        "summed": "two heads summed",
        "biases summed": "biases summed",
        "weights not halved": "weights that are not halved",
        "first half alone halved": "the first head's half alone halved",
        "second half alone halved": "the second head's half alone halved",
        "quartered": "quarters",
        "mean of matrices": "a mean of the two matrices",
        "sum of matrices": "a sum of the two matrices",
        "mean of matrices, twice": "a mean of the two matrices, twice",
        "below each other": "heads one below the other",
        "distillation first": "the distillation token first",
        "in turn": "columns of the two heads in turn",
        "reshaped": "rows of the two heads in turn",
        "one head twice": "one head twice",
        "the other twice": "the distillation head twice",
        "zeros for the other": "a distillation head of zeros",
        "class bias": "the class token's bias alone",
        "class bias halved": "half of the class token's bias alone",
        "distillation bias": "the distillation head's bias alone",
        "distillation bias halved": "half of the distillation head's bias alone",
        "no bias": "no bias",
        "biases side by side, halved": "biases side by side",
        "difference": "a difference of the two heads",
        "brackets": "a missing bracket in the bias",
    },
}
