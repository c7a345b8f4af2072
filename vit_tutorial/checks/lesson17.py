"""Checks of lesson 17: CLIP's loss and its floor, a classifier out of captions, SigLIP's loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.variants import words as lesson

_LOSS = "The loss, with a pencil"
_FLOOR = "Where it starts, and where it must stop"
_PROMPTS = "Several prompts"
_SIGLIP = "SigLIP"
_VECTORS = "A caption becomes a vector"
_PAIRS = "Pairs that don't match"

# ---- With a pencil -----------------------------------------------------------------------------------------------

TWO_TOWERS_NUMBERS = pencil(
    "two_towers_numbers",
    lesson="17",
    points=4,
    tolerance=0.001,
    questions={
        "cosines": Question(16384, "Every picture is compared with every caption."),
        "classes": Question(
            128,
            "How many captions a picture chooses from.",
            _LOSS,
            {
                2: Slip(
                    "two classes, right and wrong",
                    "That is SigLIP's question; CLIP's softmax chooses among all captions.",
                )
            },
        ),
        "guessing": Question(
            4.852,
            "Every caption gets the same probability: minus its logarithm.",
            _FLOOR,
            {7: Slip("a logarithm to the base 2", "7 bits is right, but the loss uses the natural logarithm: ln 128.")},
        ),
        "floor": Question(
            3.466,
            "How many captions of the batch mean the same, and the logarithm of that.",
            _FLOOR,
            {
                1.386: Slip(
                    "the logarithm of the number of meanings", "What counts is how many captions share one: ln 32."
                )
            },
        ),
        "gained": Question(
            1.3863, "From guessing down to the floor: a difference of two logarithms is the logarithm of a quotient."
        ),
        "scale": Question(2.659, "What is stored and learned is the scale's logarithm, ln(1 / 0.07)."),
        "most": Question(
            200,
            "The scale is clipped at 100, and cosines go from -1 to 1.",
            _LOSS,
            {100: Slip("the largest logit", "From the smallest, -100, to the largest, 100, it is twice as far.")},
        ),
        "new": Question(12, "All combinations, minus those that were shown."),
        "sigmoid": Question(16256, "Of all pairs of the batch, those that aren't on the diagonal."),
    },
)


# ---- CLIP's loss -------------------------------------------------------------------------------------------------


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def _both(logits: Tensor) -> Tensor:
    own = torch.arange(len(logits))
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def _rows(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)))


def _make_loss(
    unit: Callable[[Tensor], Tensor] = _unit,
    scale: Callable[[Tensor], Tensor] = lambda log_scale: log_scale.exp().clamp(max=100),
    loss: Callable[[Tensor], Tensor] = _both,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """CLIP's loss with other vectors, another scale, or other questions."""

    def clip_loss(images: Tensor, captions: Tensor, log_scale: Tensor) -> Tensor:
        return loss(scale(log_scale) * unit(images) @ unit(captions).T)

    return clip_loss


def _loss_cases() -> list[Case]:
    return [
        Case(f"images and captions ({B}, {E}), a scale of {scale:g}",
             (2 * normal(B, E), normal(B, E, seed=1), torch.tensor(math.log(scale))))
        for B, E, scale in [(3, 5, 14.3), (4, 4, 2.0), (7, 3, 30.0), (5, 6, 150.0)]
    ]  # fmt: skip


CLIP_LOSS = Exercise(
    name="clip_loss",
    lesson="17",
    points=5,
    right=_make_loss(),
    cases=_loss_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-4,
    forbidden=(lesson.contrastive_loss,),
    mistakes=(
        Mistake(
            name="vectors that aren't normalised",
            says="Divide each vector by its length first, of pictures and of captions: dot products are then cosines.",
            reread=_VECTORS,
            wrong=_make_loss(unit=lambda x: x),
        ),
        Mistake(
            name="one direction only",
            says="Ask which caption belongs to a picture, and also which picture belongs to a caption, with the "
            "logits transposed, and average the two.",
            reread=_LOSS,
            wrong=_make_loss(loss=_rows),
        ),
        Mistake(
            name="the other direction only",
            says="Your loss asks which picture belongs to a caption. Ask also which caption belongs to a picture, "
            "and average the two.",
            reread=_LOSS,
            wrong=_make_loss(loss=lambda logits: _rows(logits.T)),
        ),
        Mistake(
            name="labels in another order",
            says="Picture i belongs to caption i: label i is i.",
            reread=_PAIRS,
            wrong=_make_loss(loss=lambda logits: _both(logits.flip(0))),
        ),
        Mistake(
            name="cosines without a scale",
            says="Multiply the cosines by log_scale's exp before the softmax.",
            reread=_LOSS,
            wrong=_make_loss(scale=torch.ones_like),
        ),
        Mistake(
            name="the logarithm of the scale as the scale",
            says="log_scale is stored as a logarithm: multiply the cosines by its exp.",
            reread=_LOSS,
            wrong=_make_loss(scale=lambda log_scale: log_scale),
        ),
        Mistake(
            name="a scale that isn't clipped",
            says="The scale is at most 100: clamp it after exp.",
            reread=_LOSS,
            wrong=_make_loss(scale=torch.exp),
        ),
    ),
)


# ---- Its floor ---------------------------------------------------------------------------------------------------


def _floor(meanings: Tensor, of: Callable[[Tensor], Tensor] = lambda counts: counts.log().mean()) -> Tensor:
    """The floor, or another number from the counts of each caption's meaning."""
    return of((meanings[:, None] == meanings).sum(dim=1).double())


def _floor_cases() -> list[Case]:
    cases = [Case("meanings 3, 1, 3, 3, 1, 2", (torch.tensor([3, 1, 3, 3, 1, 2]),))]
    for B, K in [(8, 3), (12, 30), (5, 1)]:
        meanings = torch.randint(-K, K, (B,), generator=torch.Generator().manual_seed(B))
        cases.append(Case(f"{B} captions, up to {2 * K} meanings", (meanings,)))
    return cases


FLOOR_OF = Exercise(
    name="floor_of",
    lesson="17",
    points=3,
    right=_floor,
    cases=_floor_cases,
    forbidden=(lesson.loss_floor,),
    mistakes=(
        Mistake(
            name="the logarithm of a mean",
            says="Each picture pays ln m of its own: first the logarithms, then their mean.",
            reread=_FLOOR,
            wrong=functools.partial(_floor, of=lambda counts: counts.mean().log()),
        ),
        Mistake(
            name="a mean over meanings",
            says="The loss is a mean over pictures, so a meaning counts as often as it has captions.",
            reread=_FLOOR,
            wrong=lambda meanings: meanings.unique(return_counts=True)[1].double().log().mean(),
        ),
        Mistake(
            name="the logarithm of the number of meanings",
            says="What counts is how many captions share a meaning, not how many meanings there are.",
            reread=_FLOOR,
            wrong=lambda meanings: torch.tensor(float(len(meanings.unique()))).log(),
        ),
    ),
)


# ---- A classifier out of captions --------------------------------------------------------------------------------


def _with_averages(images: Tensor, captions: Tensor) -> Tensor:
    return _unit(images) @ _unit(captions.mean(dim=0)).T


def _zero_shot_cases() -> list[Case]:
    return [
        Case(f"images ({B}, {E}), captions ({P}, {K}, {E})",
             (2 * normal(B, E), normal(P, K, 1, seed=1).exp() * normal(P, K, E, seed=2)))
        for B, P, K, E in [(2, 3, 4, 5), (5, 2, 3, 4), (1, 4, 2, 6)]
    ]  # fmt: skip


ZERO_SHOT = Exercise(
    name="zero_shot",
    lesson="17",
    points=3,
    right=lambda images, captions: _with_averages(images, _unit(captions)),
    cases=_zero_shot_cases,
    forbidden=(lesson.average_prompts,),
    mistakes=(
        Mistake(
            name="captions averaged before they are unit vectors",
            says="A long vector would count more than a short one: make each caption's vector a unit vector first.",
            reread=_PROMPTS,
            wrong=_with_averages,
        ),
        Mistake(
            name="the largest cosine in place of the average",
            says="Average the vectors of a name's prompts first, then compare the pictures with one vector per name.",
            reread=_PROMPTS,
            wrong=lambda images, captions: (_unit(images) @ _unit(captions).mT).amax(dim=0),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _make_sigmoid(
    signs: Callable[[Tensor], Tensor] = lambda logits: 2 * torch.eye(len(logits)) - 1,
    mean: Callable[[Tensor], Tensor] = lambda losses: losses.sum() / len(losses),
) -> Callable[[Tensor, Tensor], Tensor]:
    """SigLIP's loss with other answers, or another mean."""

    def sigmoid_pairs(logits: Tensor, bias: Tensor) -> Tensor:
        return mean(-F.logsigmoid(signs(logits) * (logits + bias)))

    return sigmoid_pairs


SIGMOID_PAIRS = Exercise(
    name="sigmoid_pairs",
    lesson="17",
    points=2,
    right=_make_sigmoid(),
    cases=lambda: [
        Case(f"logits ({B}, {B}) up to {3 * size:g}, a bias of {bias:g}", (size * normal(B, B), torch.tensor(bias)))
        for B, size, bias in [(3, 2.0, -1.5), (4, 1.0, 0.7), (7, 4.0, -4.0), (5, 300.0, -10.0)]
    ],
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-4,
    forbidden=(lesson.sigmoid_loss,),
    mistakes=(
        Mistake(
            name="a mean over all pairs",
            says="Sum over all pairs and divide by B, the number of pictures, not by B times B.",
            reread=_SIGLIP,
            wrong=_make_sigmoid(mean=torch.mean),
        ),
        Mistake(
            name="a softmax among all captions",
            says="That is CLIP's question. SigLIP asks of each pair by itself whether it belongs together: -ln σ(z) on "
            "the diagonal, -ln σ(-z) elsewhere.",
            reread=_SIGLIP,
            wrong=lambda logits, bias: _both(logits + bias),
        ),
        Mistake(
            name="only the pairs that belong together",
            says="The pairs off the diagonal are questions, too: their answer is no, with a sign of -1.",
            reread=_SIGLIP,
            wrong=_make_sigmoid(signs=lambda logits: torch.eye(len(logits)), mean=lambda x: x.diagonal().mean()),
        ),
    ),
)
