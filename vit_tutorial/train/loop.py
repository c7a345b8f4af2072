"""Lesson 07: the loop. :func:`fit` puts a run together, :func:`train_epoch` goes through the training images once."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.tracking import GeneralTracker  # type: ignore[import-untyped]
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vit_tutorial.data import Data, normalise
from vit_tutorial.data import augmentation as augmentation_of
from vit_tutorial.data.augment import Augmentation, ImageChange
from vit_tutorial.options.recipe import Recipe, Tracker
from vit_tutorial.options.train import MAX_WORKERS
from vit_tutorial.train.batches import Batches, seed_of
from vit_tutorial.train.checkpoints import BestWeights, Checkpoint, History, settings
from vit_tutorial.train.evaluation import Totals, check_test_images, evaluate
from vit_tutorial.train.layers import (
    LayerRate,
    activation_checkpointing,
    check_classes,
    check_preprocess,
    frozen_body,
    layer_groups,
    set_layer_factors,
)
from vit_tutorial.train.progress import progress_bar
from vit_tutorial.train.results import named_by_split, save_run
from vit_tutorial.weights import check_savable

SHARDED = ("FSDP", "DEEPSPEED", "MEGATRON_LM")  # engines that cut the model into pieces


@dataclass(frozen=True)
class Run:
    """What the loop needs; :func:`fit` puts it together."""

    model: nn.Module
    forward: Callable[[Tensor], Tensor]  # the model, compiled and distributed over the processes if asked for
    class_weights: Tensor | None  # (K,), of each class's loss
    average: AveragedModel | None  # of the weights, if the recipe has an ema
    optimizer: torch.optim.Optimizer
    rates: list[LayerRate]  # of the optimizer's groups
    batches: Batches  # of training images
    data: Data
    recipe: Recipe
    accelerator: Accelerator  # the device, the processes

    @property
    def final_model(self) -> nn.Module:
        """The model that is tested and kept: the average if there is one."""
        return self.model if self.average is None else self.average.module

    @property
    def steps(self) -> int:
        """Steps from the first epoch to the last."""
        return self.recipe.epochs * len(self.batches)

    @property
    def warmup(self) -> int:
        """Steps in which the learning rate grows."""
        return round(self.recipe.warmup_epochs * len(self.batches))


def train_epoch(run: Run, epoch: int, show: Callable[[Totals], None]) -> dict[str, float]:
    """One pass over the training images: the last learning rate, the mean loss, the accuracy; ``show`` each step."""
    recipe, totals = run.recipe, Totals(run.accelerator)
    training_mode(run.model, recipe.freeze)
    for step, (images, labels) in enumerate(run.batches.of_epoch(epoch), start=epoch * len(run.batches)):
        rate = set_rate(run.optimizer, recipe.learning_rate * schedule(step, steps=run.steps, warmup=run.warmup))
        run.optimizer.zero_grad()
        batch_weight = loss_weight(labels, run.class_weights)
        for x, y in zip(images.chunk(recipe.accumulate), labels.chunk(recipe.accumulate), strict=True):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
                logits = run.forward(normalise(x, run.data))  # (b, K)
            loss = F.cross_entropy(logits.float(), y, run.class_weights, label_smoothing=recipe.label_smoothing)
            part = loss_weight(y, run.class_weights) / batch_weight
            run.accelerator.backward(loss * part)  # the gradients of all parts add up to the batch's
            totals.add(loss.detach() * part * len(images), logits, y)
        norm = nn.utils.clip_grad_norm_(run.model.parameters(), recipe.clip)
        check_finite(loss, norm, step, rate)
        run.optimizer.step()
        if run.average is not None:
            run.average.update_parameters(run.model)
        show(totals)
    return {"rate": rate} | totals.means()


def fit(
    model: nn.Module,
    data: Data,
    recipe: Recipe | None = None,
    *,
    augmentation: Augmentation | ImageChange | None = None,
    workers: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    log_with: Tracker | GeneralTracker | None = None,
    **changes: Any,
) -> History:
    """Train ``model`` on ``data.train`` and test it after every epoch.

    It ends with the weights after the last epoch, or with ``keep="best"`` after the best one, averaged if ``ema`` is.
    The model is in training mode then: ``model.eval()`` before you use it.

    Each epoch seeds torch, NumPy and ``random`` for the whole process, whatever you seeded before: random numbers after
    ``fit`` follow from ``seed`` too, and a model made then begins with the same weights each time. Runs differ if
    ``seed`` does, and the seed that the model was made with.

    Args:
        model: images (B, C, H, W), normalised -> logits (B, K). Seed torch before you make it. One from ``vt.load``
            must get the pixels that it was trained on: ``image_folder(path, preprocess=...)``.
        data: train and test splits, and what they are normalised by.
        recipe: how it is trained: see :class:`Recipe`.
        augmentation: your own, instead of the one that ``recipe.augment`` names: an :class:`.Augmentation`, or a
            function from an image (C, H, W) in [0, 1] to another one, random only through torch's generator.
        workers: processes that load images; 0 loads in this one.
        out: a folder for the state, written after every epoch, and at the end for the model (``vt.load`` reads it),
            its history and curves; None writes nothing.
        resume: go on from the state in ``out``; without one there, begin.
        progress: show a bar.
        log_with: "tensorboard" (into ``out``) or "wandb", or a tracker of Accelerate's: it gets each epoch's row.
        **changes: fields that replace the recipe's: ``fit(model, data, epochs=5, learning_rate=3e-3)``.

    Returns:
        A row per epoch: epoch, rate, loss and accuracy in training, test_loss, test_accuracy, seconds.

    Raises:
        ValueError: a setting out of its range, a state of other settings or data, a model with another number of
            classes or, from ``vt.load``, another preprocessing than ``data``, or ``keep="best"`` on a test split.
        TypeError: an unknown setting, or with ``out`` a model that can't be saved.
        FileExistsError: a run is in ``out``, or a model without its run.
        OSError: ``out`` can't be written, or another run writes to it.
        FloatingPointError: the loss or its gradient became infinite or not a number.
    """
    recipe = _changed_recipe(recipe, changes)
    _check_arguments(model, data, recipe, workers)
    if out is not None:
        check_savable(model)
    accelerator = Accelerator(mixed_precision="no", log_with=log_with, project_dir=out)  # autocast: see train_epoch
    random_changes = augmentation_of(recipe.augment if augmentation is None else augmentation, data)
    batches = Batches(data.train, recipe, random_changes, accelerator, workers)
    checkpoint = Checkpoint(out, accelerator)
    with checkpoint.lock():
        state = checkpoint.read(resume)
        run = _prepare_run(model, data, recipe, batches, accelerator)
        best = BestWeights()
        parts = {"model": run.model, "optimizer": run.optimizer, "best": best}
        if run.average is not None:
            parts["average"] = run.average
        chosen = settings(recipe, random_changes, data, model) if out is not None else {}
        history = checkpoint.restore(state, chosen, parts)
        with tracking(accelerator, recipe, log_with):
            for row in _epochs(run, history, progress):
                is_best = all(row["test_accuracy"] > earlier["test_accuracy"] for earlier in history)
                history.append(row)
                if recipe.keep == "best" and is_best:
                    best.load_state_dict(run.final_model.state_dict())
                checkpoint.save(chosen, parts, history)
                accelerator.log(named_by_split(row, data), step=len(history))
        model.load_state_dict(best.state_dict() or run.final_model.state_dict())
        if out is not None and accelerator.is_main_process:
            save_run(out, model, data, history, chosen)
    return history


def _prepare_run(model: nn.Module, data: Data, recipe: Recipe, batches: Batches, accelerator: Accelerator) -> Run:
    """The model on its device, with its average and its optimizer."""
    model.to(accelerator.device)
    groups, rates = layer_groups(model, parameter_groups(model, recipe.weight_decay), recipe)
    fused = accelerator.device.type in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=fused)
    weights = class_weights(data.train.labels, len(data.classes)) if recipe.class_weights else None
    weights = None if weights is None else weights.to(accelerator.device)
    return Run(
        model=model,
        forward=model,  # _epochs replaces it: DistributedDataParallel has to see which parameters are frozen
        class_weights=weights,
        average=ema_of(model, recipe.ema) if recipe.ema else None,
        optimizer=optimizer,
        rates=rates,
        batches=batches,
        data=data,
        recipe=recipe,
        accelerator=accelerator,
    )


def ema_of(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential moving average of a model's weights, which begins with those after the first step."""
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]


def _epochs(run: Run, history: History, progress: bool) -> Iterator[dict[str, float]]:
    """Train from the end of ``history`` to the last epoch; the row of each."""
    recipe, steps = run.recipe, len(run.batches)
    visible = progress and run.accelerator.is_main_process
    with (
        frozen_body(run.model) if recipe.freeze else nullcontext(),
        activation_checkpointing(run.model) if recipe.recompute else nullcontext(),
        progress_bar(recipe.epochs * steps, len(history) * steps, visible) as show,
    ):
        forward = run.accelerator.prepare(run.model)  # averages the gradients over the processes, if there are several
        run = replace(run, forward=torch.compile(forward) if recipe.compile else forward)
        for epoch in range(len(history), recipe.epochs):
            start = time.perf_counter()
            set_layer_factors(run.optimizer, run.rates, epoch)
            set_seed(seed_of(recipe.seed, epoch) % 2**31, device_specific=True)  # of dropout, and of mixing
            row = {"epoch": epoch + 1} | train_epoch(run, epoch, partial(show, history))
            row |= evaluate(run.final_model, run.data, accelerator=run.accelerator)
            yield row | {"seconds": time.perf_counter() - start}


@contextmanager
def tracking(accelerator: Accelerator, recipe: Recipe, log_with: Tracker | GeneralTracker | None) -> Iterator[None]:
    """Inside, ``accelerator.log`` reaches the tracker.

    Raises:
        ImportError: its package isn't installed.
    """
    if log_with is not None:
        accelerator.init_trackers("vit_tutorial", asdict(recipe))
        if not accelerator.trackers:
            name = log_with if isinstance(log_with, str) else log_with.name
            raise ImportError(f"{name} is not installed: pip install {name}")
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()


def training_mode(model: nn.Module, freeze: bool) -> None:
    """Training mode; with ``freeze`` for the head alone.

    Otherwise the batch norms of a stem would go on to measure the images, and drop path would disturb the features.
    """
    model.train(not freeze)
    for name, part in model.named_children():
        if name == "head":
            part.train()


def _check_arguments(model: nn.Module, data: Data, recipe: Recipe, workers: int) -> None:
    if not isinstance(model, nn.Module) or not isinstance(data, Data):
        raise TypeError(
            f"fit takes a model and its data, as in fit(vt.load(...).model, vt.data.image_folder(...)), got "
            f"{type(model).__name__} and {type(data).__name__}"
        )
    if not isinstance(workers, int) or not 0 <= workers <= MAX_WORKERS:
        raise ValueError(f"workers must be a whole number from 0 to {MAX_WORKERS}, got {workers!r}")
    if recipe.keep == "best" and data.test_split == "test":
        raise ValueError('keep="best" must not choose by the test images: fit(model, vt.data.hold_out(data, 0.1), ...)')
    check_test_images(data)
    check_classes(model, data)
    check_preprocess(model, data)
    _check_engine()


def _check_engine() -> None:
    """Raise a ValueError for an engine that cuts the model into pieces."""
    # Accelerate sets this for each process; on the CPU it ignores the first engine silently.
    if engines := [kind for kind in SHARDED if os.environ.get(f"ACCELERATE_USE_{kind}", "").lower() == "true"]:
        raise ValueError(
            f"fit keeps the whole model in every process, which {engines[0]} doesn't: leave it out, or take the recipe "
            '"A model over several GPUs" in the book'
        )


def _changed_recipe(recipe: Recipe | None, changes: dict[str, Any]) -> Recipe:
    names = [field.name for field in fields(Recipe)]
    if unknown := [name for name in changes if name not in names]:
        raise TypeError(f"fit has no setting {unknown[0]!r}: a recipe has {', '.join(names)}")
    if (recipe is None and "epochs" not in changes) or not isinstance(recipe, Recipe | None):
        raise TypeError(f"fit needs a Recipe, such as vt.data.FINE_TUNING, or epochs=, got recipe={recipe!r:.100}")
    return replace(recipe, **changes) if recipe else Recipe(**changes)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's two groups: matrices and kernels decay; biases, norms, the class token and positions do not.

    Weight decay would pull biases, norms, class token and positions towards zero without reason: DeiT and timm
    (``no_weight_decay``) leave them out as well, and big_vision decays kernels alone. What has no gradient is in
    neither group.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        kernel = name.endswith("weight") and parameter.ndim > 1
        (decayed if kernel else free).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def class_weights(labels: Tensor, K: int) -> Tensor:
    """The weight of each class in the loss, N / (K n) for n of N images, so that all classes count the same: (K,)."""
    counts = torch.bincount(labels, minlength=K)  # (K,)
    return len(labels) / (K * counts.clamp(min=1))


def loss_weight(labels: Tensor, weights: Tensor | None) -> float | Tensor:
    """What the mean of ``F.cross_entropy`` divides by: the weights of the labels (B,), or else the number of images."""
    if weights is None or labels.is_floating_point():
        return len(labels)
    return weights[labels].sum()


def schedule(step: int, *, steps: int, warmup: int) -> float:
    """The fraction of the peak learning rate at ``step`` of ``steps``: up linearly to 1, then down a half cosine to 0.

    ``(step + 1) / warmup``, then ``(1 + cos(pi (step - warmup) / (steps - warmup))) / 2`` (arXiv 1608.03983), as in the
    ViT paper's training on ImageNet (table 3) and in big_vision. After the last step it is 0.
    """
    if step >= steps:
        return 0.0
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Set the learning rate of every group of ``optimizer``, or its "factor" of it; returns the rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)
    return rate


def check_finite(loss: Tensor, norm: Tensor, step: int, rate: float) -> None:
    """Raise FloatingPointError, with what to try, if the loss or the gradient's norm is infinite or not a number."""
    if not torch.isfinite(norm + loss.detach()):  # the norm is the same in every process, so all of them stop
        raise FloatingPointError(
            f"at step {step}, with a learning rate of {rate:.3g}, the loss is {loss.item():.3g} and the gradient norm "
            f"{norm.item():.3g}: try a smaller learning rate, a longer warm-up, a smaller clip or fp32, and check for "
            "images that are not finite; the output folder, if there is one, still has the last whole epoch"
        )
