"""Lesson 16: what frozen patch tokens know of a scene, layer by layer, beside what else could give the same masks.

    python benchmarks/dense.py heads 0        linear heads on 600 scenes, seed 0 of 5: a CPU minute
    python benchmarks/dense.py again 0 1      some of them on model 1, trained again
    python benchmarks/dense.py labels 0       heads with 5 to 600 scenes: a quarter of a minute
    python benchmarks/dense.py rates          which rate a U-Net wants, on seed 0
    python benchmarks/dense.py unets 0 600    a small U-Net on 600 of seed 0's scenes, its masks in four ways
    python benchmarks/dense.py table          prints the tables

The frozen model 0 is ``vt.load("shapes")``, which learned one label for each of 20,000 scenes and no mask. Model 1
learned the same from other first weights, in 5 epochs, with 95.9 % of its test scenes right:

    python -m vit_tutorial.train --data shapes --epochs 5 --seed 1 --precision bf16 --out runs/shapes-1

Each seed draws 600 scenes with masks, 200 to choose on and 400 to test on, all new to the model, and another untrained
ViT. The weight of the ground's pixels is chosen on the 200 from WEIGHTS, for each head and seed; the rate was the same
for all. A row a run goes to benchmarks/dense.csv as soon as it is done; rows that are there are not run again.
"""

from __future__ import annotations

import copy
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import sheet
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import vit_tutorial as vt
from vit_tutorial.analysis import dense, explain

CSV = Path(__file__).with_suffix(".csv")
COLUMNS = ["part", "input", "scenes", "model", "seed", "chosen", "validation", "miou", "figure_iou", "cpu_seconds"]
WEIGHTS = {  # of the ground, for heads that know the class (or need none), and for the others
    "class": (0.5, 0.25, 0.12, 0.06),
    "no class": (0.25, 0.12, 0.06, 0.03, 0.015),
}
K, GRID = 9, (8, 8)
STEPS, RATE = 300, 6e-2  # of dense.fit_head
NUMBERS = (5, 10, 30, 100, 300, 600)
PATCHES = ("pixels", "untrained", "embedding", "block 1", "block 2", "block 3", "block 4", "last norm")
BESIDE = ("another scene's class token", "the answer")
AGAIN = ("pixels + class token", "block 2 + class token")  # masks by model 1
UNET_RATES, UNET_RATE = (1e-3, 3e-3, 1e-2, 3e-2), 1e-2
UNETS = ("U-Net", "U-Net + the answer", "U-Net, 8 x 8", "U-Net, 8 x 8 + the answer")
UNET_EVERY, UNET_PATIENCE, UNET_MOST = 250, 1000, 8000  # steps
Row = tuple[float, float, float, float]  # what was chosen, its validation, then mIoU and the figure's IoU on the test
TRAIN, CHOOSE, TEST = slice(600), slice(600, 800), slice(800, None)


class Draw:
    """The scenes of one seed, and all tokens of a trained model and of an untrained one."""

    def __init__(self, seed: int, model: int) -> None:
        self.model, _, prepare = vt.load("shapes")
        if model:
            self.model.load_state_dict(torch.load(f"runs/shapes-{model}/state.pt")["model"])
        data = vt.data.shapes(seed=100 + seed, train=800, test=400)
        images, labels, masks = (torch.cat(parts) for parts in zip(*map(_parts, (data.train, data.test)), strict=True))
        self.images, self.labels = prepare(images), labels  # (1200, 3, 64, 64), (1200,)
        self.targets = dense.class_masks(masks, labels)  # (1200, 64, 64)
        torch.manual_seed(seed)
        self.tokens = dense.layer_tokens(self.model, self.images)
        self.untrained = dense.layer_tokens(vt.ViT(self.model.config).eval(), self.images)
        self.order = torch.randperm(600, generator=torch.Generator().manual_seed(seed))  # which get a mask first

    def answers(self) -> Tensor:
        """The model's class of each scene: (1200, 1, 1)."""
        return self.model(self.images).argmax(dim=1)[:, None, None]

    def features(self, name: str) -> Tensor:
        """What a head reads, by its name, of all scenes."""
        first, _, more = name.partition(" + ")
        layers = {"pixels": vt.patchify(self.images, 8), "untrained": self.untrained[2][:, 1:]}
        layers |= {f"block {number}": self.tokens[number][:, 1:] for number in range(1, 5)}
        layers["embedding"] = self.tokens[0][:, 1:]
        layers["last norm"] = self.tokens[-1][:, 1:]
        patches = layers[first].mT.unflatten(2, GRID)
        token = self.tokens[-1][:, 0]
        beside: dict[str, Callable[[], Tensor]] = {
            "class token": lambda: token,
            "another scene's class token": lambda: token.roll(1, dims=0),
            "the answer": lambda: F.one_hot(self.answers()[:, 0, 0], 8).float(),
        }
        return dense.beside(patches, beside[more]()) if more else patches


def _parts(images: vt.data.Images) -> tuple[Tensor, Tensor, Tensor]:
    pixels, labels = images.batch()
    assert images.masks is not None
    return pixels, labels, images.masks


@functools.cache
def draw(seed: int, model: int = 0) -> Draw:
    return Draw(seed, model)


@torch.no_grad()
def score(net: Callable[[Tensor], Tensor], features: Tensor, targets: Tensor, classes: int = K) -> Tensor:
    """The confusion matrix at the pictures' full size."""
    counts = torch.zeros(classes, classes, dtype=torch.long)
    for some, wanted in zip(features.split(100), targets.split(100), strict=True):
        counts += dense.confusion(dense.upsample(net(some), 64).argmax(dim=1), wanted, classes)
    return counts


def best_of(
    nets: Iterable[tuple[float, Callable[[Tensor], Tensor]]], features: Tensor, targets: Tensor, classes: int = K
) -> Row:
    """The net that the validation scenes like best, of (what it was made with, net), and its numbers on the test."""
    tried = []
    for made_with, net in nets:
        counts = score(net, features[CHOOSE], targets[CHOOSE], classes)
        tried.append((dense.mean_iou(counts) if classes == K else dense.figure_iou(counts), made_with, net))
    value, made_with, net = max(tried, key=lambda one: one[0])
    counts = score(net, features[TEST], targets[TEST], classes)
    return made_with, value, dense.mean_iou(counts), dense.figure_iou(counts)


def linear(seed: int, name: str, *, model: int = 0, where: bool = False, number: int = 600, weight: float = 0.0) -> Row:
    """A linear head on ``number`` scenes; ``where``: of two classes, figure and ground. 0: the best of WEIGHTS."""
    d = draw(seed, model)
    targets, classes = ((d.targets > 0).long(), 2) if where else (d.targets, K)
    features, rows = d.features(name), d.order[:number]
    weights = (weight,) if weight else WEIGHTS["class" if where or " + " in name else "no class"]
    nets = zip(weights, by_weight(features[rows], targets[rows], classes, weights, seed), strict=True)
    return best_of(nets, features, targets, classes)


def by_weight(features: Tensor, targets: Tensor, classes: int, weights: Sequence[float], seed: int) -> list[nn.Module]:
    """What ``dense.fit_head`` gives for each weight of the ground, trained side by side in a third of the time.

    The heads share their batches and nothing else: AdamW treats each number by itself.
    """
    mean, std = features.mean(dim=(0, 2, 3)), features.std(dim=(0, 2, 3)) + 1e-5
    x = (features - mean[:, None, None]) / std[:, None, None]
    wanted = dense.class_shares(targets, classes, GRID)  # (B, K, 8, 8)
    scale = torch.ones(len(weights), classes, 1, 1)
    scale[:, 0, 0, 0] = torch.tensor(weights)
    all_heads = dense.LinearHead(mean, std, len(weights) * classes).linear
    optimiser = torch.optim.AdamW(all_heads.parameters(), lr=RATE, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        rows = torch.randint(len(x), (32,), generator=generator)
        logits = all_heads(x[rows]).reshape(32, len(weights), classes, *GRID)
        losses = -(scale * wanted[rows, None] * logits.log_softmax(dim=2)).sum(dim=2).mean(dim=(0, 2, 3))  # (W,)
        optimiser.zero_grad()
        losses.sum().backward()
        optimiser.step()
    heads: list[nn.Module] = []
    state = all_heads.state_dict()
    for weight, bias in zip(*(state[name].split(classes) for name in ("weight", "bias")), strict=True):
        one = dense.LinearHead(mean, std, classes)
        one.linear.load_state_dict({"weight": weight, "bias": bias})
        heads.append(one)
    return heads


def named(found: Tensor, answers: Tensor) -> Tensor:
    """A figure (B, 64, 64) bool, in the class of (B, 1, 1), as a net's logits: (B, K, 64, 64)."""
    return F.one_hot(found * (1 + answers), K).movedim(3, 1).float()


def named_head(seed: int, number: int) -> Row:
    """A linear head on block 2 says where, learned from masks of figure and ground; the model's answer says what."""
    d = draw(seed)
    targets, rows = (d.targets > 0).long(), d.order[:number]
    weights, block = WEIGHTS["class"], d.features("block 2")
    heads = by_weight(block[rows], targets[rows], 2, weights, seed)

    def painted(head: nn.Module, x: Tensor) -> Tensor:  # x: block 2, and the answer as eight numbers
        found = dense.upsample(head(x[:, :-8]), 64).argmax(dim=1) > 0
        return named(found, x[:, -8:, :1, :1].argmax(dim=1))

    nets = [(weight, functools.partial(painted, head)) for weight, head in zip(weights, heads, strict=True)]
    return best_of(nets, d.features("block 2 + the answer"), d.targets)


def threshold(maps: Tensor, answers: Tensor, targets: Tensor) -> Row:
    """A map (B, 64, 64), cut where the validation scenes like it best; inside, the class of (B, 1 or 64, 1 or 64)."""
    cuts = torch.linspace(0.05, 0.95, 19).tolist()

    def counts(cut: float, part: slice) -> Tensor:
        found = torch.where(maps[part] > cut, answers[part] + 1, 0)
        return dense.confusion(found, targets[part], K)

    best = max(cuts, key=lambda cut: dense.mean_iou(counts(cut, CHOOSE)))
    test = counts(best, TEST)
    return best, dense.mean_iou(counts(best, CHOOSE)), dense.mean_iou(test), dense.figure_iou(test)


def by_relevance(seed: int) -> Row:
    """Lesson 08's map of the class that the model chooses, cut by a threshold."""
    d = draw(seed)
    maps = torch.cat([explain.relevance(d.model, some) for some in d.images.split(100)])  # (B, 8, 8)
    maps = dense.upsample((maps / maps.amax(dim=(1, 2), keepdim=True))[:, None], 64)[:, 0]
    return threshold(maps, d.answers(), d.targets)


def by_truth(seed: int) -> Row:
    """The true mask, averaged over each patch and upsampled: what a grid of 8 x 8 keeps of it."""
    d = draw(seed)
    share = 1 - dense.class_shares(d.targets, K, GRID)[:, :1]  # (B, 1, 8, 8)
    return threshold(dense.upsample(share, 64)[:, 0], d.labels[:, None, None], d.targets)


def what(seed: int, name: str, *, model: int = 0, elsewhere: bool = False) -> Row:
    """How often a logistic regression on one patch names the scene's class (in the column miou).

    The patches are those that the target covers by half or more; ``elsewhere``: as many without a pixel of it.
    """
    d = draw(seed, model)
    features = d.features(name).movedim(1, -1)  # (B, 8, 8, D)
    ground = dense.class_shares(d.targets, K, GRID)[:, 0]  # (B, 8, 8)
    where, labels = ground <= 0.5, d.labels[:, None, None].expand(-1, *GRID)
    generator = torch.Generator().manual_seed(seed)
    if elsewhere:
        share = where.sum() / (ground == 1).sum()
        where = (ground == 1) & (torch.rand(ground.shape, generator=generator) < share)
    picked = [(features[part][where[part]], labels[part][where[part]]) for part in (TRAIN, CHOOSE, TEST)]
    mean, std = picked[0][0].mean(dim=0), picked[0][0].std(dim=0) + 1e-5
    (x, y), (v, vy), (t, ty) = [((x - mean) / std, y) for x, y in picked]
    models = {C: LogisticRegression(C=C, max_iter=400, tol=1e-3).fit(x, y) for C in (1e-3, 1e-2, 1e-1, 1.0, 10.0)}
    best = max(models, key=lambda C: models[C].score(v, vy))
    return best, models[best].score(v, vy), models[best].score(t, ty), math.nan


class UNet(nn.Module):
    """A small U-Net (arXiv 1505.04597) with norms: images (B, 3, 64, 64) -> logits (B, K, 64, 64).

    Its first convolution has a stride of 2, and its logits are upsampled by 2: a quarter of the operations.
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        w = [width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.down = nn.ModuleList([_twice(a, b) for a, b in zip([width, *w[:3]], w, strict=True)])
        self.up = nn.ModuleList([_twice(w[level] + w[level + 1], w[level]) for level in range(3)])
        self.head = nn.Conv2d(width, K, 1)

    def forward(self, images: Tensor) -> Tensor:
        x, kept = self.stem(images), []
        for level, block in enumerate(self.down):
            x = block(x)
            if level < 3:
                kept.append(x)
                x = F.max_pool2d(x, 2)
        for level in (2, 1, 0):
            x = self.up[level](torch.cat([F.interpolate(x, scale_factor=2), kept[level]], dim=1))
        return dense.upsample(self.head(x), (images.shape[2], images.shape[3]))


def _twice(inner: int, outer: int) -> nn.Sequential:
    layers = []
    for channels in (inner, outer):
        layers += [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers)


@functools.cache
def train_unet(seed: int, number: int, rate: float, most: int) -> tuple[float, nn.Module]:
    """A U-Net from scratch on the same scenes and masks, some mirrored: its step, and the best average of its weights.

    It stops when UNET_PATIENCE steps bring less than a point more of mIoU on the validation scenes.
    """
    d = draw(seed)
    images, targets, rows = d.images.to(memory_format=torch.channels_last), d.targets, d.order[:number]
    torch.manual_seed(seed)
    net = UNet().to(memory_format=torch.channels_last)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True).eval()
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-2)
    weight = torch.tensor([0.25] + [1.0] * 8)
    chosen: tuple[float, nn.Module] = (0.0, average)
    best, grown, since = 0.0, 0.0, 0  # the best mIoU, the last that was a point better, and its step
    for step in range(1, most + 1):
        optimiser.param_groups[0]["lr"] = rate * min(1.0, step / 50)
        some = rows[torch.randint(number, (8,))]
        x, y = images[some], targets[some]
        if torch.rand(()) < 0.5:
            x, y = x.flip(3), y.flip(2)
        with torch.autocast("cpu", torch.bfloat16):
            logits = net(x)  # (8, K, 64, 64)
        loss = F.cross_entropy(logits.float(), y, weight=weight)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(net)
        if step % UNET_EVERY == 0:
            value = dense.mean_iou(score(average, images[CHOOSE], targets[CHOOSE]))
            print(f"  step {step}: {100 * value:.1f}", flush=True)
            if value > best:
                best, chosen = value, (step, copy.deepcopy(average))
            if value > grown + 0.01:
                grown, since = value, step
            if step - since >= UNET_PATIENCE:
                break
    return chosen


def unet(seed: int, number: int, rate: float = UNET_RATE, most: int = UNET_MOST, *, answer: bool = False) -> Row:
    """A U-Net's own masks; ``answer``: it says where the figure is, and the frozen model's answer says what it is."""
    d = draw(seed)
    step, net = train_unet(seed, number, rate, most)

    def painted(images: Tensor) -> Tensor:
        return named(net(images).argmax(dim=1) > 0, d.model(images).argmax(dim=1)[:, None, None])

    images = d.images.to(memory_format=torch.channels_last)
    return best_of([(step, painted if answer else net)], images, d.targets)


def coarse_unet(seed: int, number: int, *, answer: bool = False) -> Row:
    """A U-Net's probabilities, averaged over each patch of 8 x 8 pixels, enlarged and cut like the true mask."""
    d = draw(seed)
    _, net = train_unet(seed, number, UNET_RATE, UNET_MOST)
    parts = d.images.to(memory_format=torch.channels_last).split(100)
    with torch.no_grad():
        shares = torch.cat([F.avg_pool2d(net(some).softmax(dim=1), 8) for some in parts])  # (1200, K, 8, 8)
    shares = dense.upsample(shares, 64)  # (1200, K, 64, 64)
    return threshold(1 - shares[:, 0], d.answers() if answer else shares[:, 1:].argmax(dim=1), d.targets)


def ground(seed: int) -> Row:
    """All ground."""
    found = dense.confusion(torch.zeros_like(draw(seed).targets[TEST]), draw(seed).targets[TEST], K)
    return 0.0, math.nan, dense.mean_iou(found), dense.figure_iou(found)


Run = tuple[str, str, int, int, Callable[[], Row]]  # part, input, scenes, seed, what gives its row


def heads(seed: int) -> Iterator[Run]:
    """A seed's runs on 600 scenes."""
    for name, way in (("all ground", ground), ("relevance", by_relevance), ("true mask, 8 x 8", by_truth)):
        yield "mask", name, 600, seed, functools.partial(way, seed)
    tokens = [*PATCHES, *(f"{name} + class token" for name in PATCHES), *(f"block 2 + {name}" for name in BESIDE)]
    for name in tokens:
        yield "mask", name, 600, seed, functools.partial(linear, seed, name)
    for name in PATCHES:
        yield "where", name, 600, seed, functools.partial(linear, seed, name, where=True)
        yield "what", name, 600, seed, functools.partial(what, seed, name)
        yield "elsewhere", name, 600, seed, functools.partial(what, seed, name, elsewhere=True)


def labels(seed: int) -> Iterator[Run]:
    """A seed's heads by the number of scenes; with the class token at the weight that 600 scenes chose mostly."""
    name = "block 2 + class token"
    for number in NUMBERS:
        yield "labels", name, number, seed, functools.partial(linear, seed, name, number=number, weight=0.25)
        yield "labels", "where + the answer", number, seed, functools.partial(named_head, seed, number)


def again(seed: int, model: int) -> Iterator[Run]:
    """Some of a seed's runs on a model that was trained again."""
    for name in AGAIN:
        yield "mask", name, 600, seed, functools.partial(linear, seed, name, model=model)
    for name in PATCHES[2:-1]:
        yield "where", name, 600, seed, functools.partial(linear, seed, name, model=model, where=True)
        yield "what", name, 600, seed, functools.partial(what, seed, name, model=model)
        yield "elsewhere", name, 600, seed, functools.partial(what, seed, name, model=model, elsewhere=True)


def rates() -> Iterator[Run]:
    """A U-Net's first 500 steps at each rate."""
    for rate in UNET_RATES:
        yield "rates", f"U-Net, {rate:g}", 600, 0, functools.partial(unet, 0, 600, rate, 500)


def unets(seed: int, number: int) -> Iterator[Run]:
    """A seed's U-Net on so many scenes: its masks at its own size and on the heads' grid, named by itself or not."""
    for name, way in (("U-Net", unet), ("U-Net, 8 x 8", coarse_unet)):
        yield "labels", name, number, seed, functools.partial(way, seed, number)
        yield "labels", f"{name} + the answer", number, seed, functools.partial(way, seed, number, answer=True)


def values(part: str, name: str, number: int = 600, column: str = "miou", model: int = 0) -> list[float]:
    """A column of all seeds' rows, in percent, in the order of the seeds."""
    rows = sheet.read(CSV, part=part, input=name, scenes=number, model=model)
    return [100 * float(row[column]) for row in sorted(rows, key=lambda row: int(row["seed"]))]


def tables() -> str:
    """Masks by what the head reads; where and what by layer; masks by the number of scenes."""
    names = list(dict.fromkeys(row["input"] for row in sheet.read(CSV, part="mask")))
    reference = values("mask", "block 2 + class token")
    lines = ["| the head reads | mIoU | minus block 2 + class token, paired | IoU of the figure |", "|---|---|---|---|"]
    for name in sorted(names, key=lambda name: statistics.mean(values("mask", name))):
        own = values("mask", name)
        paired = [a - b for a, b in zip(own, reference, strict=True)]
        difference = sheet.interval(paired) if any(paired) else ""
        figure = sheet.interval(values("mask", name, column="figure_iou"))
        lines.append(f"| {name} | {sheet.interval(own)} | {difference} | {figure} |")
    lines += ["", "| model | patches | where: IoU of the figure | class from a patch of it | from a patch elsewhere |"]
    lines += ["|---|---|---|---|---|"]
    for model in range(2):
        for name in PATCHES:
            if own := values("where", name, column="figure_iou", model=model):
                what, elsewhere = (sheet.interval(values(part, name, model=model)) for part in ("what", "elsewhere"))
                lines.append(f"| {model} | {name} | {sheet.interval(own)} | {what} | {elsewhere} |")
    lines += [
        "",
        f"| mIoU by scenes with a mask | {' | '.join(map(str, NUMBERS))} |",
        "|---" * (len(NUMBERS) + 1) + "|",
    ]
    for name in ("block 2 + class token", "where + the answer", *UNETS):
        cells = [sheet.interval(found) if (found := values("labels", name, n)) else "" for n in NUMBERS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["table"]:
        print(tables())
        return
    parts: dict[str, Callable[..., Iterator[Run]]] = {"heads": heads, "again": again, "labels": labels, "rates": rates}
    parts |= {"unets": unets}
    runs, numbers = parts[sys.argv[1]], list(map(int, sys.argv[2:]))
    model = numbers[1] if runs is again else 0
    for part, name, number, seed, run in runs(*numbers):
        if sheet.read(CSV, part=part, input=name, scenes=number, model=model, seed=seed):
            continue
        begin = time.process_time()
        row = [f"{value:.4g}" for value in run()]
        sheet.add(CSV, COLUMNS, [part, name, number, model, seed, *row, f"{time.process_time() - begin:.1f}"])


if __name__ == "__main__":
    main()
