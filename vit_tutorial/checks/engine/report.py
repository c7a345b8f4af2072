"""What a check prints: a verdict, the mistake by its name or what the numbers show, and the first difference."""

from __future__ import annotations

import textwrap

from vit_tutorial.checks.engine.exercise import Exercise, Mistake
from vit_tutorial.checks.engine.mistakes import NamedMistake, matching_mistakes
from vit_tutorial.checks.engine.run import Attempt, Trial
from vit_tutorial.checks.engine.symptoms import symptom

WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
PRINTED_LINES = 5  # of what the student's code printed


def report(trial: Trial) -> str:
    """What a check prints, whole."""
    name = trial.exercise.name
    if trial.not_written:
        return f"{name}: not written yet"
    if not trial.wrong:
        lines = [f"{name}: right. Tried:", *_table([(attempt.case.label, "right") for attempt in trial.attempts])]
    elif trial.exercise.asks_questions:
        lines = [f"{name}: not yet", *map(wrap, _on_answers(trial))]
    else:
        lines = [f"{name}: not yet", *map(wrap, _on_work(trial)), *_wrong_inputs(trial)]
    return "\n".join([*lines, *_printed(trial.printed)])


# ---- A work ------------------------------------------------------------------------------------------------------


def _on_work(trial: Trial) -> list[str]:
    """The mistake by its name, else what the numbers show; then the first difference."""
    first = trial.wrong[0]
    if matches := matching_mistakes(trial):
        lines = _on_mistake(matches[0], trial.exercise)
    else:
        lines = [f"What your numbers show: {sentence}"] if (sentence := symptom(trial)) else []
    return [*lines, *f"First seen with {first.case.label}: {first.difference}".split("\n")]


def _on_mistake(match: NamedMistake, exercise: Exercise) -> list[str]:
    """What it is, and what to reread."""
    mistake, many = match.mistake, match.cases
    some = f" (on {many} inputs, but not on all: there may be another)" if many else ""
    place = f'Reread in lesson {mistake.lesson or exercise.lesson}: "{mistake.reread}".'
    return [f"It looks like {mistake.name}{some}. {mistake.says}", place]


def _wrong_inputs(trial: Trial) -> list[str]:
    """How many inputs go wrong; and which, where that tells more than the first one has told."""
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
    return "raises" if attempt.difference.startswith("raised") else "wrong"


# ---- Answers -----------------------------------------------------------------------------------------------------


def _on_answers(trial: Trial) -> list[str]:
    """Each question that is answered wrongly, with its mistake, or a piece of advice."""
    lines: list[str] = []
    matches = matching_mistakes(trial)
    explained: set[Mistake] = set()
    for attempt in trial.wrong:
        question, sentence = attempt.case.args[0], attempt.difference
        lines.append(sentence if sentence.startswith(str(question)) else f"{question}: {sentence}")
        match = next((one for one in matches if question in one.mistake.wrong), None)
        if match is None and "no answer" not in sentence and question in trial.exercise.advice:
            lines.append(trial.exercise.advice[question])
        elif match is not None and match.mistake not in explained:  # one mistake may show in several answers
            lines += _on_mistake(match, trial.exercise)
            explained.add(match.mistake)
    return lines


# ---- Lines -------------------------------------------------------------------------------------------------------


def wrap(text: str) -> str:
    """A paragraph of the report; a student's own line, which is indented, stays as it is."""
    if text.startswith(" "):
        return text
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _table(rows: list[tuple[str, str]]) -> list[str]:
    wide = max(len(label) for label, _ in rows)
    return [f"    {label:<{wide}}  {word}" for label, word in rows]


def _printed(text: str) -> list[str]:
    """The beginning of what the student's code printed."""
    lines = text.strip().splitlines()
    if not lines:
        return []
    many = "" if len(lines) <= PRINTED_LINES else f" {len(lines)} lines, at first"
    beginning = "\n".join(line[: WIDTH - 6] for line in lines[:PRINTED_LINES])
    return [f"  Your code printed{many}:", textwrap.indent(beginning, "    | ")]
