"""Lesson 07: training, from one laptop to many machines; ``python -m vit_tutorial.train --help`` is its command line.

Nothing random is carried from epoch to epoch: the order of the images is a function of (seed, epoch), an augmentation
of (seed, epoch, image), dropout of (seed, epoch, process). So a run that was killed goes on from the last epoch's
state to the very weights of a run that was not, whatever the number of loader workers.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, Sampler
from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial import data as data_sets
from vit_tutorial import files
from vit_tutorial.data import Data, normalise
from vit_tutorial.files import History
from vit_tutorial.vit import ViT, ViTConfig, count_parameters

Batch = tuple[Tensor, Tensor]  # images (B, C, H, W), labels (B,) or, mixed, (B, K)
PRECISIONS = ("fp32", "bf16")

# ------------------------------------------------------------------------------------------------------ the loop


def fit(
    model: nn.Module, data: Data, *, epochs: int, batch_size: int = 64, learning_rate: float = 1e-3,
    weight_decay: float = 0.05, warmup_epochs: float = 1, label_smoothing: float = 0.1, clip: float = 1.0,
    ema: float = 0.0, augment: Callable[[Tensor], Tensor] | None = None,
    mix: Callable[[Tensor, Tensor], Batch] | None = None, seed: int = 0, precision: str = "fp32",
    compile: bool = False, workers: int = 0, out: str | os.PathLike[str] | None = None, resume: bool = False,
    progress: bool = True,
) -> History:  # fmt: skip
    """Train ``model`` on ``data.train`` and test it after every epoch; it ends with the averaged weights, if any.

    The recipe is DeiT's (arXiv 2012.12877, table 9) made small: AdamW, linear warm-up, cosine, label smoothing 0.1,
    weight decay 0.05 (but see :func:`parameter_groups`). Gradients are clipped at a norm of 1 as in the ViT paper's
    training on ImageNet (table 3).

    Args:
        model: images (B, C, H, W), normalised -> logits (B, K). Seed torch before you make it.
        data: train and test splits, and what they are normalised by.
        epochs: passes over the training split; each leaves out the last, smaller batch.
        batch_size: images a step, over all processes together.
        learning_rate: at the peak, after the warm-up.
        weight_decay: of AdamW, on matrices and kernels.
        warmup_epochs: in which the rate grows linearly.
        label_smoothing: share in [0, 1) of a label's mass spread over all classes (arXiv 1512.00567).
        clip: largest norm of the gradient; ``math.inf`` for none.
        ema: decay a step in [0, 1) of the weights' moving average, which is what is tested and kept; 0 for none.
        augment: image (C, H, W) in [0, 1] -> another one, with torch's generator as its only source of chance.
        mix: a batch -> a batch, as torchvision's MixUp and CutMix do; each process mixes its own share.
        seed: of the order, the augmentation and dropout.
        precision: "fp32", or "bf16" for autocast to bfloat16.
        compile: whether torch.compile makes the forward and backward pass.
        workers: processes that load images; 0 loads in this one.
        out: folder of the state, written after every epoch; None keeps nothing.
        resume: go on from the state in ``out``; without one there, begin.
        progress: show a bar.

    Returns:
        A row an epoch: epoch, rate, loss and accuracy in training, test_loss, test_accuracy, seconds.

    Raises:
        ValueError: a setting out of its range, or a state of other settings. FileExistsError: a run is in ``out``.
        FloatingPointError: the loss or its gradient is no number any more. OSError: ``out`` can't be written.
    """
    accelerator = Accelerator(mixed_precision="no")  # the device, the processes; autocast below does the rest
    settings = _checked(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay,
        warmup_epochs=warmup_epochs, label_smoothing=label_smoothing, clip=clip, ema=ema, augment=_name(augment),
        mix=_name(mix), seed=seed, precision=precision, compile=compile, data=data.name, model=_name(model),
    )  # fmt: skip
    loader, order = _loader(data.train, batch_size, augment, seed, workers, accelerator)
    device, steps, warmup = accelerator.device, epochs * len(loader), round(warmup_epochs * len(loader))
    average = AveragedModel(model.to(device), multi_avg_fn=get_ema_multi_avg_fn(ema))  # type: ignore[no-untyped-call]
    fused = device.type in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay), lr=learning_rate, fused=fused)
    store = _Store(out, settings, {"model": model, "average": average, "optimizer": optimizer}, accelerator)
    history = store.open(resume)
    forward = accelerator.prepare(model)  # averages the gradients over the processes, if there are several
    forward = torch.compile(forward) if compile else forward

    with _bar(steps, len(history) * len(loader), progress and accelerator.is_main_process) as show:
        for epoch in range(len(history), epochs):
            order.epoch, start, totals = epoch, time.perf_counter(), torch.zeros(3, device=device)
            set_seed(_seed(seed, epoch) % 2**31, device_specific=True)
            model.train()
            for step, batch in enumerate(loader, start=epoch * len(loader)):
                images, labels = (tensor.to(device, non_blocking=True) for tensor in (mix(*batch) if mix else batch))
                rate = set_rate(optimizer, learning_rate * schedule(step, steps=steps, warmup=warmup))
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                    logits = forward(normalise(images, data))  # (B, K)
                loss = F.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
                optimizer.zero_grad()
                accelerator.backward(loss)
                norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
                check_finite(loss, norm, step, rate)
                optimizer.step()
                average.update_parameters(model)
                totals += torch.stack([loss.detach() * len(images), _right(logits, labels), _count(images)])
                show(totals, history)
            history.append({"epoch": epoch + 1, "rate": rate} | _means(totals, accelerator)
                | evaluate(average, data, workers=workers, accelerator=accelerator)
                | {"seconds": time.perf_counter() - start})  # fmt: skip
            store.save(history)
    model.load_state_dict(average.module.state_dict())
    return history


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's two groups: matrices and kernels decay; biases, norms, the class token and positions do not.

    Decay pulls towards zero what has no reason to be near it. So do DeiT and timm (``no_weight_decay``) and, by the
    rule "kernels alone", Google's big_vision.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        kernel = name.endswith("weight") and parameter.ndim > 1
        (decayed if kernel else free).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def schedule(step: int, *, steps: int, warmup: int) -> float:
    """The share of the peak rate at ``step`` of ``steps``: up linearly to 1, then down a half cosine to 0.

    ``(step + 1) / warmup``, then ``(1 + cos(pi (step - warmup) / (steps - warmup))) / 2`` (arXiv 1608.03983), as in the
    ViT paper's training on ImageNet (table 3) and in big_vision.
    """
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Give every group of ``optimizer`` this rate; returns it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def check_finite(loss: Tensor, norm: Tensor, step: int, rate: float) -> None:
    """Raise FloatingPointError, with what to try, if the loss or the gradient's norm is infinite or no number."""
    if not torch.isfinite(norm + loss.detach()):  # the norm is the same in every process, so all of them stop
        raise FloatingPointError(
            f"at step {step}, with a rate of {rate:.3g}, the loss is {loss.item():.3g} and its gradient's norm "
            f"{norm.item():.3g}: try a smaller learning rate, a longer warm-up, a smaller clip or fp32, and look for "
            "images that are not finite; the output folder, if there is one, still has the last whole epoch"
        )


# --------------------------------------------------------------------------------------------------- evaluation


@torch.inference_mode()
def predict(
    model: nn.Module, data: Data, *, split: str = "test", part: slice = slice(None), batch_size: int = 256,
    workers: int = 0, device: torch.device | str | None = None,
) -> Batch:  # fmt: skip
    """The logits (n, K) and labels (n,) of a split, in its order, without augmentation; ``part`` of it if asked for.

    ``model`` stays where it is and in the mode that it was in; ``device`` is that of its parameters.
    """
    images, training = _Images(getattr(data, split)), model.training
    indices = [(0, index) for index in range(len(images))[part]]
    loader = DataLoader(images, batch_size, sampler=indices, num_workers=workers)
    device = device or next(model.parameters()).device
    model.eval()
    logits, labels = zip(*((model(normalise(x.to(device), data)), y) for x, y in loader), strict=True)
    model.train(training)
    return torch.cat(logits).cpu(), torch.cat(labels)


def evaluate(
    model: nn.Module, data: Data, *, workers: int = 0, accelerator: Accelerator | None = None
) -> dict[str, float]:
    """test_loss (in nats, no smoothing) and test_accuracy (0 to 1); with an accelerator, each process takes a share."""
    rank, processes = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    logits, labels = predict(model, data, part=slice(rank, None, processes), workers=workers)
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    totals = torch.stack([loss, _right(logits, labels), _count(labels)])
    return {f"test_{name}": value for name, value in _means(totals, accelerator).items()}


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(dim=1) == (labels.argmax(dim=1) if labels.ndim == 2 else labels)).sum()


def _count(batch: Tensor) -> Tensor:
    return torch.tensor(len(batch), device=batch.device)


def _means(totals: Tensor, accelerator: Accelerator | None) -> dict[str, float]:
    """From (sum of the losses, right answers, images), over all processes."""
    if accelerator:
        totals = accelerator.reduce(totals.to(accelerator.device), "sum")
    loss, right, count = totals.tolist()
    return {"loss": loss / count, "accuracy": right / count}


# -------------------------------------------------------------------------------------------- order and chance


class _Images(Dataset[tuple[Tensor, int]]):
    """What (epoch, index) stands for: image and label, augmented by chance of its own, in whatever process loads it."""

    def __init__(self, data: Any, augment: Callable[[Tensor], Tensor] | None = None, seed: int = 0) -> None:
        self.data, self.augment, self.seed = data, augment, seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = key
        image, label = self.data[index][:2]
        if self.augment:
            with _chance(self.seed, epoch, index):
                image = self.augment(image)
        return image, label


class _Order(Sampler[list[tuple[int, int]]]):
    """Each epoch's batches in an order of its own: this process's share of every global batch, all shares equal."""

    def __init__(self, images: int, batch_size: int, seed: int, rank: int, processes: int) -> None:
        self.images, self.batch_size, self.seed, self.rank, self.processes = images, batch_size, seed, rank, processes
        self.epoch = 0

    def __len__(self) -> int:
        return self.images // self.batch_size

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = torch.randperm(self.images, generator=torch.Generator().manual_seed(_seed(self.seed, self.epoch)))
        for batch in order[: len(self) * self.batch_size].view(-1, self.batch_size):
            yield [(self.epoch, index) for index in batch[self.rank :: self.processes].tolist()]


class Affine(nn.Module):
    """Turn, stretch, shear and shift an image (C, H, W) a little, by chance: what leaves a digit the digit that it is.

    Every entry of the 2 x 3 matrix, in units of half an image, is normal about the identity's; what comes in is zero.

    Args:
        strength: standard deviation; 0.1 moves a corner of an 8 x 8 image by some two thirds of a pixel each way.
    """

    def __init__(self, strength: float = 0.1) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, image: Tensor) -> Tensor:
        theta = torch.eye(2, 3) + self.strength * torch.randn(2, 3)
        grid = F.affine_grid(theta[None], [1, *image.shape], align_corners=False)  # (1, H, W, 2)
        return F.grid_sample(image[None], grid, align_corners=False)[0]

    def extra_repr(self) -> str:
        return f"strength={self.strength}"


def _loader(
    images: Any, batch_size: int, augment: Callable[[Tensor], Tensor] | None, seed: int, workers: int,
    accelerator: Accelerator,
) -> tuple[DataLoader[Any], _Order]:  # fmt: skip
    processes = accelerator.num_processes
    if batch_size > len(images):
        raise ValueError(f"batch_size {batch_size} is more than the {len(images)} training images: make it smaller")
    if batch_size % processes:
        raise ValueError(f"batch_size {batch_size} is not divisible by the {processes} processes: change one of them")
    order = _Order(len(images), batch_size, seed, accelerator.process_index, processes)
    loader = DataLoader(
        _Images(images, augment, seed), batch_sampler=order, num_workers=workers, persistent_workers=workers > 0,
        pin_memory=accelerator.device.type == "cuda",
        generator=torch.Generator(),  # else the workers' seeds come from dropout's generator
    )  # fmt: skip
    return loader, order


def _seed(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


@contextmanager
def _chance(*words: int) -> Iterator[None]:
    """Seed torch's generator for the block, and put it back afterwards: dropout must not notice."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(_seed(*words))
    try:
        yield
    finally:
        torch.set_rng_state(before)


@contextmanager
def _bar(steps: int, done: int, shown: bool) -> Iterator[Callable[[Tensor, History], None]]:
    # A log file gets a line every half minute, a person ten a second.
    interval = 0.1 if sys.stderr.isatty() else 30
    with tqdm(total=steps, initial=done, disable=not shown, unit=" steps", mininterval=interval) as bar:

        def show(totals: Tensor, history: History) -> None:
            if bar.update():  # True when it was drawn: reading a loss off a GPU costs time
                loss, right, count = totals.tolist()
                values = {"loss": f"{loss / count:.3f}", "accuracy": f"{right / count:.1%}"}
                if history:
                    values["test"] = f"{history[-1]['test_accuracy']:.1%}"
                bar.set_postfix(values, refresh=False)

        yield show


# ------------------------------------------------------------------------------------------------------ settings


def _checked(**settings: Any) -> dict[str, Any]:
    """The settings that decide the weights, or ValueError."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "epochs": (lambda n: isinstance(n, int) and n >= 1, "a whole number from 1"),
        "batch_size": (lambda n: isinstance(n, int) and n >= 1, "a whole number from 1"),
        "learning_rate": (lambda x: 0 < x < math.inf, "above 0; 1e-3 is a good start"),
        "weight_decay": (lambda x: 0 <= x < math.inf, "0 or more"),
        "warmup_epochs": (lambda x: 0 <= x <= settings["epochs"], "from 0 to the number of epochs"),
        "label_smoothing": (lambda x: 0 <= x < 1, "in [0, 1); 0 switches it off"),
        "clip": (lambda x: x > 0, "above 0; infinity switches it off"),
        "ema": (lambda x: 0 <= x < 1, "in [0, 1); 0 switches it off"),
        "seed": (lambda n: isinstance(n, int) and n >= 0, "a whole number from 0"),
        "precision": (lambda name: name in PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
    }
    for name, (good, rule) in rules.items():
        if not good(settings[name]):
            raise ValueError(f"{name} must be {rule}, got {settings[name]!r}")
    return settings


def _name(thing: object) -> str:
    """What a state remembers of a model or an augmentation: no address, which would differ in the next process."""
    if isinstance(thing, nn.Module):
        return repr(getattr(thing, "config", thing))
    return str(getattr(thing, "__qualname__", None if thing is None else type(thing).__qualname__))


# ------------------------------------------------------------------------------------------------------ the state


class _Store:
    """The state in ``out``: written whole after every epoch, read once."""

    def __init__(
        self, out: str | os.PathLike[str] | None, settings: dict[str, Any], parts: Mapping[str, Any],
        accelerator: Accelerator,
    ) -> None:  # fmt: skip
        self.path = Path(out) / "state.pt" if out is not None else None
        self.settings, self.parts, self.accelerator = settings, parts, accelerator

    def open(self, resume: bool) -> History:
        """The rows of the epochs that are done, their state loaded; a new run proves that the folder can be written."""
        if resume and self.path is None:
            raise ValueError("resume needs the output folder of the run to go on with")
        history: History = []
        if self.path and self.path.exists():
            if not resume:
                raise FileExistsError(f"a run is in {self.path.parent}: resume it, or choose another folder")
            history = self._load(self.path)
        done = self.accelerator.gather(torch.tensor([len(history)], device=self.accelerator.device))
        if len(set(done.tolist())) > 1:
            raise ValueError(f"the machines see different states in {self.path}: the folder must be one they share")
        if not history:
            self.save(history)
        return history

    def save(self, history: History) -> None:
        if self.path and self.accelerator.is_main_process:
            state = {name: part.state_dict() for name, part in self.parts.items()}
            buffer = io.BytesIO()
            torch.save(state | {"settings": self.settings, "history": history}, buffer)
            files.write(self.path, buffer.getbuffer())

    def _load(self, path: Path) -> History:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            settings, history = state["settings"], state["history"]
        except Exception as error:
            raise ValueError(f"{path} is no state of a run, or damaged: move it away to begin anew") from error
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise ValueError(
                    f"the run in {path.parent} has {name}={settings.get(name)}, not {value}: "
                    "resume with the same settings, or choose another folder"
                )
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        return list(history)


# -------------------------------------------------------------------------------------------------- command line

# What each data set starts from; every value can be changed on the command line. The last is for a folder of pictures.
DEFAULTS: dict[str, dict[str, Any]] = {
    "digits": {
        "patch": 4, "dim": 64, "depth": 4, "heads": 4, "mlp": 128, "epochs": 60, "batch": 64, "rate": 3e-3, "warmup": 5,
        "augment": "affine", "ema": 0.0,
    },
    "shapes": {
        "patch": 8, "dim": 64, "depth": 4, "heads": 4, "mlp": 128, "epochs": 15, "batch": 64, "rate": 2e-3, "warmup": 1,
        "augment": "default", "ema": 0.0,
    },
    "fashion_mnist": {
        "patch": 4, "dim": 96, "depth": 6, "heads": 4, "mlp": 192, "epochs": 30, "batch": 128, "rate": 1e-3,
        "warmup": 3, "augment": "default", "ema": 0.0,
    },
    "cifar10": {
        "patch": 4, "dim": 192, "depth": 9, "heads": 6, "mlp": 384, "epochs": 300, "batch": 256, "rate": 1e-3,
        "warmup": 10, "augment": "default", "ema": 0.0, "drop_path": 0.1,
    },
    "": {
        "patch": 8, "dim": 192, "depth": 6, "heads": 3, "mlp": 384, "epochs": 60, "batch": 64, "rate": 5e-4,
        "warmup": 5, "augment": "default", "ema": 0.0,
    },
}  # fmt: skip


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None or action.default is False else super()._get_help_string(action)


def parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line; its defaults are those of the --data and the --size that ``arguments`` name."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--data", default="digits")
    first.add_argument("--size")
    chosen = first.parse_known_args(arguments)[0]
    p = argparse.ArgumentParser(
        prog="python -m vit_tutorial.train", formatter_class=_Help,
        description="Train a Vision Transformer. The defaults shown are those of the data set named by --data.",
        epilog="Several processes: accelerate launch -m vit_tutorial.train ... (the same arguments).",
    )  # fmt: skip
    group = p.add_argument_group("data")
    group.add_argument(
        "--data",
        default="digits",
        metavar="NAME",
        help="digits, shapes, cifar10, fashion_mnist, or a folder with train/ and test/, a folder a class in each",
    )
    group.add_argument("--root", default="data", metavar="FOLDER", help="where downloads go")
    group.add_argument("--image-size", type=int, metavar="PIXELS", help="of a folder's pictures")
    group.add_argument(
        "--augment",
        metavar="PARTS",
        help="none, default (the data set's own), or parts joined by +: affine, crop, flip, randaugment, mixup, cutmix",
    )
    group.add_argument("--workers", type=int, default=0, help="processes that load images; 0: none beside this one")
    group = p.add_argument_group("model")
    group.add_argument(
        "--size", metavar="PRESET", help="Ti, S, B, L or H and a patch size, as in Ti/4; sets the next five"
    )
    group.add_argument("--patch", type=int, metavar="P", help="height and width of a patch in pixels")
    group.add_argument("--dim", type=int, metavar="D", help="width")
    group.add_argument("--depth", type=int, metavar="L", help="blocks")
    group.add_argument("--heads", type=int, metavar="h", help="attention heads, a divisor of the width")
    group.add_argument("--mlp", type=int, metavar="M", help="hidden width of the MLP")
    group.add_argument(
        "--drop-path", type=float, default=0.0, help="stochastic depth: share of the last block's samples"
    )
    group = p.add_argument_group("recipe")
    group.add_argument("--epochs", type=int, help="passes over the training images")
    group.add_argument("--batch", type=int, help="images a step, over all processes together")
    group.add_argument("--rate", type=float, help="learning rate of AdamW at its peak")
    group.add_argument("--decay", type=float, default=0.05, help="weight decay")
    group.add_argument(
        "--warmup",
        type=float,
        metavar="EPOCHS",
        help="epochs in which the rate grows, at most half of all; a cosine follows",
    )
    group.add_argument("--label-smoothing", type=float, default=0.1, metavar="SHARE", help="0: none")
    group.add_argument("--clip", type=float, default=1.0, metavar="NORM", help="largest gradient; inf: no limit")
    group.add_argument("--ema", type=float, metavar="DECAY", help="moving average of the weights, a step; 0: none")
    group.add_argument("--seed", type=int, default=0, help="of the weights, the order, the augmentation")
    group = p.add_argument_group("run")
    group.add_argument("--out", required=True, metavar="FOLDER", help="where the state and the results go")
    group.add_argument("--resume", action="store_true", help="go on from the last epoch in --out, or begin")
    group.add_argument("--precision", choices=PRECISIONS, default="fp32", help="bf16: half the memory, less exact")
    group.add_argument("--compile", action="store_true", help="torch.compile: minutes of waiting, then faster")
    defaults = DEFAULTS.get(chosen.data, DEFAULTS[""])
    if chosen.size:
        try:
            preset = ViTConfig.preset(chosen.size, image_size=10_000)
        except ValueError as error:
            p.error(str(error))
        defaults = defaults | {
            "patch": preset.patch_size, "dim": preset.dim, "depth": preset.depth, "heads": preset.num_heads,
            "mlp": preset.mlp_dim,
        }  # fmt: skip
    p.set_defaults(**defaults)
    return p


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as the command line says, save, and print one line with the test accuracy."""
    arguments = sys.argv[1:] if arguments is None else arguments
    args = parser(arguments).parse_args(arguments)
    try:
        _run(args, "python -m vit_tutorial.train " + shlex.join(arguments))
    except (ValueError, FloatingPointError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped: the same command with --resume goes on") from None


def _augmentation(name: str, data: Data) -> tuple[nn.Module | None, Callable[[Tensor, Tensor], Batch] | None]:
    """For one image and for a batch: the parts that ``vit_tutorial.data`` has, after ours."""
    parts = name.split("+")
    theirs = data_sets.augmentation("+".join(part for part in parts if part != "affine") or "none", data)
    image: list[Any] = [Affine()] if "affine" in parts else []
    image += [theirs.image] if theirs.image else []
    return (nn.Sequential(*image) if image else None), theirs.batch


def _run(args: argparse.Namespace, command: str) -> None:
    data = data_sets.load(args.data, args.root, args.image_size)
    augment, mix = _augmentation(args.augment, data)
    config = ViTConfig(
        image_size=data.image_size, patch_size=args.patch, in_channels=data.in_channels,
        num_classes=len(data.classes), dim=args.dim, depth=args.depth, num_heads=args.heads, mlp_dim=args.mlp,
        drop_path=args.drop_path,
    )  # fmt: skip
    torch.manual_seed(args.seed)
    model = ViT(config)
    history = fit(
        model, data, epochs=args.epochs, batch_size=args.batch, learning_rate=args.rate, weight_decay=args.decay,
        warmup_epochs=min(args.warmup, args.epochs / 2), label_smoothing=args.label_smoothing, clip=args.clip,
        ema=args.ema,
        augment=augment, mix=mix, seed=args.seed, precision=args.precision,
        compile=args.compile, workers=args.workers, out=args.out, resume=args.resume,
    )  # fmt: skip
    accelerator = Accelerator(mixed_precision="no")
    if accelerator.is_main_process:
        files.save(args.out, model, data, history, command=command)
        seconds, accuracy = sum(row["seconds"] for row in history), history[-1]["test_accuracy"]
        print(
            f"test accuracy {accuracy:.2%} ({round(accuracy * len(data.test))} of {len(data.test)} images), "
            f"{count_parameters(config):,} parameters, {seconds:.0f} s on {accelerator.num_processes} x "
            f"{accelerator.device.type}, saved in {args.out}"
        )
    accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():  # gloo's threads must be joined: a process that just ends may abort instead
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
