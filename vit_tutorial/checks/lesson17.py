"""Checks of lesson 17: CLIP's loss and its floor, a classifier out of captions, SigLIP's loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Mistake,
    Question,
    call,
    normal,
    pencil,
)
from vit_tutorial.variants import words as lesson

_LOSS = "2 · The loss, with a pencil"
_FLOOR = "Where it starts, and where it must stop"
_PROMPTS = "Several prompts"
_SIGLIP = "SigLIP: every pair its own question"
_SLIPS = "Four mistakes that raise no error"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# A batch of 128 pictures and captions; captions name 4 animals, 32 times each; E = 32.
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
            {2: "two classes, right and wrong. That is SigLIP's question; CLIP's softmax chooses among all captions."},
        ),
        "guessing": Question(
            4.852,
            "Every caption gets the same probability: minus its logarithm.",
            _FLOOR,
            {7: "a logarithm to the base 2. 7 bits is right, but the loss uses the natural logarithm: ln 128."},
        ),
        "floor": Question(
            3.466,
            "How many captions of the batch mean the same, and the logarithm of that.",
            _FLOOR,
            {
                1.386: "the logarithm of the number of meanings. What counts is how many captions share one: ln 32.",
                0: "a floor of 0. Captions that mean the same can't be told apart, so a picture pays ln m.",
            },
        ),
        "gained": Question(
            1.3863, "From guessing down to the floor: a difference of two logarithms is the logarithm of a quotient."
        ),
        "scale": Question(
            2.659,
            "The scale is stored as its logarithm.",
            _LOSS,
            {14.286: "the scale itself. What is stored and learned is its logarithm, ln(1 / 0.07)."},
        ),
        "most": Question(
            200,
            "The scale is clipped at 100, and cosines go from -1 to 1.",
            _LOSS,
            {100: "the largest logit. From the smallest, -100, to the largest, 100, it is twice as far."},
        ),
        "new": Question(12, "All combinations, without those that were shown."),
        "sigmoid": Question(
            16256,
            "Of all pairs of the batch, those that don't stand on the diagonal.",
            _SIGLIP,
            {16384: "all pairs. Those on the diagonal do belong together: take them off."},
        ),
    },
)


# ---- CLIP's loss -------------------------------------------------------------------------------------------------


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def _clipped(log_scale: Tensor) -> Tensor:
    return log_scale.exp().clamp(max=100)


def _both(logits: Tensor) -> Tensor:
    own = torch.arange(len(logits))
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def _rows(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(len(logits)))


def _make_loss(
    unit: Callable[[Tensor], Tensor] = _unit,
    scale: Callable[[Tensor], Tensor] = _clipped,
    loss: Callable[[Tensor], Tensor] = _both,
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """CLIP's loss with other vectors, another scale, or other questions."""

    def clip_loss(images: Tensor, captions: Tensor, log_scale: Tensor) -> Tensor:
        return loss(scale(log_scale) * unit(images) @ unit(captions).T)

    return clip_loss


def _loss_cases() -> list[Case]:
    cases = []
    for seed, (B, E, scale) in enumerate(((3, 5, 14.3), (4, 4, 2.0), (7, 3, 30.0), (2, 6, 1.0), (1, 4, 5.0))):
        args = (2 * normal(B, E, seed=seed), normal(B, E, seed=seed + 10), torch.tensor(math.log(scale)))
        cases.append(Case(f"images and captions ({B}, {E}), a scale of {scale:g}", args))
    above = (normal(5, 6, seed=20), normal(5, 6, seed=21), torch.tensor(math.log(150.0)))
    large = (1000 * normal(4, 3, seed=23), 1e-3 * normal(4, 3, seed=24), torch.tensor(1.0))
    twice = (normal(4, 3, seed=25), normal(4, 3, seed=26)[[0, 1, 0, 2]], torch.tensor(1.5))
    return [
        *cases,
        Case("a scale of 150, which is clipped", above),
        Case("long and short vectors", large),
        Case("two equal captions", twice),
    ]


CLIP_LOSS = Exercise(
    name="clip_loss",
    lesson="17",
    points=5,
    takes="fn(images, captions, log_scale): (B, E), (B, E), () -> the loss, one number",
    right=_make_loss(),
    cases=_loss_cases,
    observe=functools.partial(call, differentiable=True),
    tolerance=1e-4,
    forbidden=(lesson.contrastive_loss,),
    mistakes=(
        Mistake(
            name="vectors that aren't normalised",
            says="Divide each vector by its length first, of pictures and of captions: dot products are then cosines.",
            reread=_SLIPS,
            wrong=_make_loss(unit=lambda x: x),
        ),
        Mistake(
            name="one direction only",
            says="Ask which caption belongs to a picture, and also which picture belongs to a caption, with the logits "
            "transposed, and take half of each.",
            reread=_SLIPS,
            wrong=_make_loss(loss=_rows),
        ),
        Mistake(
            name="the other direction only",
            says="Your loss asks which picture belongs to a caption. Ask also which caption belongs to a picture, and "
            "take half of each.",
            reread=_SLIPS,
            wrong=_make_loss(loss=lambda logits: _rows(logits.T)),
        ),
        Mistake(
            name="labels in another order",
            says="Picture i belongs to caption i: label i is i.",
            reread=_SLIPS,
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


def _counts(meanings: Tensor) -> Tensor:
    return (meanings[:, None] == meanings).sum(dim=1).double()


def _make_floor(of: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A number from the counts of each caption's meaning."""
    return lambda meanings: of(_counts(meanings))


def _per_meaning(meanings: Tensor) -> Tensor:
    return meanings.unique(return_counts=True)[1].double().log().mean()


def _floor_cases() -> list[Case]:
    cases = [Case("meanings 3, 1, 3, 3, 1, 2", (torch.tensor([3, 1, 3, 3, 1, 2]),))]
    for seed, (B, K) in enumerate(((8, 3), (12, 30), (5, 1), (64, 10))):
        drawn = torch.randint(K, (B,), generator=torch.Generator().manual_seed(seed))
        cases.append(Case(f"{B} captions, up to {K} meanings", (drawn,)))
    return [*cases, Case("numbers that aren't from 0 on", (torch.tensor([700, -3, 700, 41]),))]


FLOOR_OF = Exercise(
    name="floor_of",
    lesson="17",
    points=3,
    takes="fn(meanings): (B,) whole numbers -> the floor of CLIP's loss, one number",
    right=_make_floor(lambda m: m.log().mean()),
    cases=_floor_cases,
    observe=call,
    forbidden=(lesson.loss_floor,),
    mistakes=(
        Mistake(
            name="the logarithm of a mean",
            says="Each picture pays ln m of its own: first the logarithms, then their mean.",
            reread=_FLOOR,
            wrong=_make_floor(lambda m: m.mean().log()),
        ),
        Mistake(
            name="a mean over meanings",
            says="The loss is a mean over pictures, so a meaning with many captions counts as often as it has "
            "captions.",
            reread=_FLOOR,
            wrong=_per_meaning,
        ),
        Mistake(
            name="the logarithm of the number of meanings",
            says="What counts is how many captions share a meaning, not how many meanings there are.",
            reread=_FLOOR,
            wrong=lambda meanings: torch.tensor(float(len(meanings.unique()))).log(),
        ),
        Mistake(
            name="guessing among the whole batch",
            says="ln B is where guessing stands. At the floor only captions of the same meaning are left to choose "
            "from.",
            reread=_FLOOR,
            wrong=lambda meanings: torch.tensor(float(len(meanings))).log(),
        ),
    ),
)


# ---- A classifier out of captions --------------------------------------------------------------------------------


def _zero_shot(images: Tensor, captions: Tensor) -> Tensor:
    return _lengths_kept(images, _unit(captions))


def _lengths_kept(images: Tensor, captions: Tensor) -> Tensor:
    return _unit(images) @ _unit(captions.mean(dim=0)).T


def _zero_shot_cases() -> list[Case]:
    cases = []
    for seed, (B, P, K, E) in enumerate(((2, 3, 4, 5), (5, 2, 3, 4), (3, 4, 2, 6), (1, 2, 5, 3), (4, 1, 3, 2))):
        lengths = 0.3 + 3 * torch.rand(P, K, 1, generator=torch.Generator().manual_seed(seed))
        args = (2 * normal(B, E, seed=seed), lengths * normal(P, K, E, seed=seed + 10))
        cases.append(Case(f"images ({B}, {E}), captions ({P}, {K}, {E})", args))
    return [*cases, Case("long images, short captions", (1000 * args[0], 1e-3 * args[1]))]


ZERO_SHOT = Exercise(
    name="zero_shot",
    lesson="17",
    points=3,
    takes="fn(images, captions): (B, E), (prompts, K, E) -> (B, K) cosines with each name's averaged vector",
    right=_zero_shot,
    cases=_zero_shot_cases,
    observe=call,
    forbidden=(lesson.average_prompts,),
    mistakes=(
        Mistake(
            name="captions averaged before they are unit vectors",
            says="A long vector would count more than a short one: make each caption's vector a unit vector first.",
            reread=_PROMPTS,
            wrong=_lengths_kept,
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


def _signs(logits: Tensor) -> Tensor:
    return 2 * torch.eye(len(logits)) - 1


def _sum(losses: Tensor) -> Tensor:
    return losses.sum() / len(losses)


def _make_sigmoid(
    biased: Callable[[Tensor, Tensor], Tensor] = torch.add,
    signs: Callable[[Tensor], Tensor] = _signs,
    mean: Callable[[Tensor], Tensor] = _sum,
) -> Callable[[Tensor, Tensor], Tensor]:
    """SigLIP's loss with another bias, other answers, or another mean."""

    def sigmoid_pairs(logits: Tensor, bias: Tensor) -> Tensor:
        return mean(-F.logsigmoid(signs(logits) * biased(logits, bias)))

    return sigmoid_pairs


def _sigmoid_cases() -> list[Case]:
    cases = []
    for seed, (B, size, bias) in enumerate(
        ((3, 2.0, -1.5), (4, 1.0, 0.7), (7, 4.0, -4.0), (2, 1.0, -10.0), (1, 1, 0.5))
    ):
        args = (size * normal(B, B, seed=seed), torch.tensor(float(bias)))
        cases.append(Case(f"logits ({B}, {B}), a bias of {bias:g}", args))
    return [*cases, Case("logits of hundreds", (300 * normal(4, 4, seed=30), torch.tensor(-10.0)))]


SIGMOID_PAIRS = Exercise(
    name="sigmoid_pairs",
    lesson="17",
    points=2,
    takes="fn(logits, bias): (B, B), () -> SigLIP's loss, one number",
    right=_make_sigmoid(),
    cases=_sigmoid_cases,
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
            name="only the pairs that belong together",
            says="The pairs off the diagonal are questions, too: their answer is no, with a sign of -1.",
            reread=_SIGLIP,
            wrong=_make_sigmoid(signs=lambda logits: torch.eye(len(logits)), mean=lambda x: x.diagonal().mean()),
        ),
        Mistake(
            name="the bias added to the pairs on the diagonal alone",
            says="Every logit gets the same bias.",
            reread=_SIGLIP,
            wrong=_make_sigmoid(biased=lambda logits, bias: logits + bias * torch.eye(len(logits))),
        ),
    ),
)
