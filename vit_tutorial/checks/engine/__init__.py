"""The engine of the checks: it knows nothing of Vision Transformers.

``check.grade`` is the way of a submission: it runs the submission on an exercise's cases next to the reference,
``compare`` finds the first difference, and a mistake whose small wrong implementation gives the same numbers is named,
or else a plain relation to the right numbers (``symptoms``); ``report`` writes it down.

A lesson declares exercises (``exercise``, ``questions``), and how submissions are observed (``functions``, ``layers``,
``dropout``, ``models``, ``forbidden``).
"""

from vit_tutorial.checks.engine.check import Grade, Verdict, grade
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Submission

__all__ = ["Case", "Exercise", "Grade", "Mistake", "Submission", "Verdict", "grade"]
