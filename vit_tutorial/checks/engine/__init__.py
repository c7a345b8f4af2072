"""The engine of the checks: it knows nothing of Vision Transformers.

A check runs a work on an exercise's cases beside the reference (``run``), compares the results (``compare``), looks for
the mistake whose small wrong implementation gives the same numbers (``mistakes``) or for a plain relation to the right
numbers (``symptoms``), and writes it down (``report``). A lesson declares exercises (``exercise``, ``questions``) and
how their works are observed (``functions``, ``layers``, ``models``, ``randomness``, ``torch_calls``).
"""

from vit_tutorial.checks.engine.check import Grade, check_of, grade
from vit_tutorial.checks.engine.compare import as_number, as_tensor, difference, differs, equal, kind, off, shape
from vit_tutorial.checks.engine.exercise import (
    Case,
    Exercise,
    Fault,
    Forbidden,
    Mistake,
    Result,
    Row,
    Words,
    exercises_of,
    section,
)
from vit_tutorial.checks.engine.functions import (
    ARGUMENTS,
    SECOND,
    call,
    changed_arguments,
    copied,
    is_float,
    normal,
    tensors,
    unchanged,
)
from vit_tutorial.checks.engine.layers import (
    adopt,
    built,
    layer,
    random_weights,
    same_shape,
    share_no_parameter,
    variant,
    with_defaults,
)
from vit_tutorial.checks.engine.models import AS_IT_WAS, ModelSnapshot, by_parameter
from vit_tutorial.checks.engine.questions import Question, pencil
from vit_tutorial.checks.engine.randomness import far, staleness, values
from vit_tutorial.checks.engine.torch_calls import TorchCalls

__all__ = [
    "ARGUMENTS", "AS_IT_WAS", "SECOND", "Case", "Exercise", "Fault", "Forbidden", "Grade", "Mistake",
    "ModelSnapshot", "Question", "Result", "Row", "TorchCalls", "Words", "adopt", "as_number", "as_tensor", "built",
    "by_parameter", "call", "changed_arguments", "check_of", "copied", "difference", "differs", "equal",
    "exercises_of", "far", "grade", "is_float", "kind", "layer", "normal", "off", "pencil", "random_weights",
    "same_shape", "section", "shape", "share_no_parameter", "staleness", "tensors", "unchanged", "values",
    "variant", "with_defaults",
]  # fmt: skip
