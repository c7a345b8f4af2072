"""The engine of the checks: it knows nothing of Vision Transformers.

A wrong work goes through four files. ``check.grade`` is the way from a work to a grade; ``run`` runs the work on an
exercise's cases beside the reference, and ``compare`` finds the first difference; ``report`` writes it down, with the
mistake whose small wrong implementation gives the same numbers (``mistakes``), or else with a plain relation to the
right numbers (``symptoms``).

A lesson declares exercises (``exercise``, ``questions``), and how their works are observed (``functions``, ``layers``,
``models``, ``randomness``, ``tensor_sizes``).
"""

from vit_tutorial.checks.engine.check import Grade, check_of, grade
from vit_tutorial.checks.engine.compare import as_tensor, describe
from vit_tutorial.checks.engine.exercise import (
    Case,
    Exercise,
    Fault,
    Forbidden,
    Mistake,
    Observation,
    Value,
    Work,
    exercises_of,
)
from vit_tutorial.checks.engine.functions import call, changed_argument, copy_arguments, entries, normal, tensors
from vit_tutorial.checks.engine.layers import (
    build_layer,
    layer,
    random_weights,
    share_no_parameter,
    variant,
)
from vit_tutorial.checks.engine.models import by_parameter, call_with_model
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.checks.engine.randomness import layer_with_dropout
from vit_tutorial.checks.engine.tensor_sizes import call_with_small_tensors

__all__ = [
    "Case", "Exercise", "Fault", "Forbidden", "Grade", "Mistake", "Observation", "Question", "Slip", "Value", "Work",
    "as_tensor", "build_layer", "by_parameter", "call", "call_with_model", "call_with_small_tensors",
    "changed_argument", "check_of", "copy_arguments", "describe", "entries", "exercises_of", "grade", "layer",
    "layer_with_dropout", "normal", "pencil", "random_weights", "share_no_parameter", "tensors", "variant",
]  # fmt: skip
