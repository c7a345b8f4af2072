"""What a check prints: a verdict, the mistake by its name or what the numbers show, and the first difference."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from vit_tutorial.checks.engine.exercise import Attempt, Exercise, Fault, Mistake, Trial

WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
PRINTED_LINES = 5  # of what the student's code printed


def report(trial: Trial, mistakes: Sequence[Mistake] = (), hint: str = "") -> str:
    """What a check prints, whole.

    Args:
        trial: what was run.
        mistakes: those that explain it.
        hint: what else the numbers show, for a submission that no mistake explains.
    """
    name = trial.exercise.name
    if not trial.wrong:
        lines = [f"{name}: right. Tried:", *_table([(attempt.case.label, "right") for attempt in trial.attempts])]
    elif trial.exercise.asks_questions:
        lines = [f"{name}: not yet", *map(wrap, _on_answers(trial, mistakes))]
    else:
        lines = [f"{name}: not yet", *map(wrap, _on_code(trial, mistakes, hint)), *_wrong_inputs(trial)]
    return "\n".join([*lines, *_printed(trial.printed)])


# ---- A function or a class ---------------------------------------------------------------------------------------


def _on_code(trial: Trial, mistakes: Sequence[Mistake], hint: str) -> list[str]:
    """The mistake by its name, else what the numbers show; then the first difference."""
    first = trial.wrong[0]
    lines = [f"What your numbers show: {hint}"] if hint else []
    if mistakes:
        lines = _on_mistake(mistakes[0], trial.exercise)
    return [*lines, *f"First seen with {first.case.label}: {first.difference}".split("\n")]


def _on_mistake(mistake: Mistake, exercise: Exercise) -> list[str]:
    """What it is, and what to reread."""
    place = f'Reread in lesson {mistake.lesson or exercise.lesson}: "{mistake.reread}".'
    return [f"It looks like {mistake.name}. {mistake.says}", place]


def _wrong_inputs(trial: Trial) -> list[str]:
    """How many inputs go wrong; and which, unless it is all of them."""
    many, every = len(trial.wrong), len(trial.attempts)
    if every == 1:
        return []
    if many == 1:
        return [wrap(f"The other {every - 1} inputs are right." if every > 2 else "The other input is right.")]
    rows = [(attempt.case.label, _word(attempt)) for attempt in trial.wrong]
    if many == every and len({word for _, word in rows}) == 1:
        return [wrap(f"Found wrong with all {every} inputs.")]
    return [wrap(f"Found wrong with {many} of {every} inputs."), *_table(rows)]


def _word(attempt: Attempt) -> str:
    return "raises" if attempt.is_fault("raised") else "wrong"


# ---- Answers -----------------------------------------------------------------------------------------------------


def _on_answers(trial: Trial, mistakes: Sequence[Mistake]) -> list[str]:
    """Each question that is answered wrongly, with its mistake, or a piece of advice."""
    lines: list[str] = []
    explained: set[Mistake] = set()
    for attempt in trial.wrong:
        question, sentence = attempt.case.args[0], attempt.difference
        lines.append(f"{question}: {sentence}" if isinstance(attempt.outcome, Fault) else sentence)
        mistake = next((one for one in mistakes if question in one.wrong), None)
        if mistake is None and not attempt.is_fault("unanswered") and question in trial.exercise.advice:
            lines.append(trial.exercise.advice[question])
        elif mistake is not None and mistake not in explained:  # one mistake may show in several answers
            lines += _on_mistake(mistake, trial.exercise)
            explained.add(mistake)
    return lines


# ---- Lines -------------------------------------------------------------------------------------------------------


def wrap(text: str) -> str:
    """A paragraph of the report; a student's own line, which is indented, stays as it is."""
    if text.startswith(" "):
        return text
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in rows)
    return [f"    {label:<{width}}  {word}" for label, word in rows]


def _printed(text: str) -> list[str]:
    """The beginning of what the student's code printed."""
    lines = text.strip().splitlines()
    if not lines:
        return []
    count = "" if len(lines) <= PRINTED_LINES else f" {len(lines)} lines, at first"
    beginning = "\n".join(line[: WIDTH - 6] for line in lines[:PRINTED_LINES])
    return [f"  Your code printed{count}:", textwrap.indent(beginning, "    | ")]
