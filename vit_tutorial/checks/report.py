"""Step 4 of a check, report: a verdict, the diagnosis, the first difference, and the inputs that go wrong, in words."""

from __future__ import annotations

import textwrap

from vit_tutorial.checks.capture import Kept
from vit_tutorial.checks.compare import changed_arguments
from vit_tutorial.checks.declare import Exercise, Mistake
from vit_tutorial.checks.diagnose import diagnose, named
from vit_tutorial.checks.observe import SECOND, TRAINING, agreed
from vit_tutorial.checks.run import UNWRITTEN, Tried
from vit_tutorial.checks.watch import unseen

WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
MOST = 8  # wrong inputs, or wrong answers, that are shown
LINES = 5  # of what the student's code printed


def report(tried: Tried) -> str:
    """What a check prints, whole."""
    name = tried.exercise.name
    if all(verdict == UNWRITTEN for verdict in tried.verdicts):
        return f"{name}: not written yet"
    if not tried.wrong:
        labels = [case.label for case in tried.cases]
        lines = [f"{name}: right. Tried:", *_table(labels, ["right"] * len(labels))]
    elif tried.exercise.asks_questions:
        lines = [f"{name}: not yet", *map(wrapped, _on_answers(tried))]
    else:
        lines = [f"{name}: not yet", *map(wrapped, _on_work(tried)), *_wrong_inputs(tried)]
    if said := unseen(tried.exercise):
        lines.append(wrapped(said))
    return "\n".join([*lines, *_printed(tried.printed)])


# ---- A work ------------------------------------------------------------------------------------------------------


def _on_work(tried: Tried) -> list[str]:
    """The mistake by its name, else what the numbers show; and the first difference."""
    first = tried.wrong[0]
    found = diagnose(tried)
    if found.mistake:
        lines = _on_mistake(found.mistake, found.inputs, tried.exercise)
    else:
        lines = [f"What your numbers show: {found.seen}"] if found.seen else []
    lines += f"First seen with {tried.cases[first].label}: {tried.verdicts[first]}".split("\n")
    if not found.mistake:
        lines += _on_missing_parameters(tried) + _on_training_mode(tried)
    return lines + _on_changed_arguments(tried)


def _on_mistake(one: Mistake, inputs: int, exercise: Exercise) -> list[str]:
    """What it is, and what to reread."""
    some = f" (on {inputs} inputs, but not on all: there may be another)" if inputs else ""
    place = f'Reread in lesson {one.lesson or exercise.lesson}: "{one.reread}".'
    return [f"It looks like {one.name}{some}. {one.says}", place]


def _on_missing_parameters(tried: Tried) -> list[str]:
    outcome = tried.outcomes[tried.wrong[0]]
    if isinstance(outcome, dict) and (missing := outcome.get("missing")):
        names = agreed(tried.cases[tried.wrong[0]].weights)
        return [f"The class has no parameter of its own for {', '.join(missing)}; {names}."]
    return []


def _on_training_mode(tried: Tried) -> list[str]:
    """That all which was said is about evaluation mode, where the other mode gives another result."""
    outcome = tried.outcomes[tried.wrong[0]]
    if (
        isinstance(outcome, dict)
        and outcome.get(TRAINING) == "another one"
        and TRAINING not in tried.verdicts[tried.wrong[0]]
    ):
        return ["This is in evaluation mode; in training mode the result is another one."]
    return []


def _on_changed_arguments(tried: Tried) -> list[str]:
    """Arguments that were changed in place, where the numbers are wrong besides."""
    outcome, verdict = tried.outcomes[tried.wrong[0]], tried.verdicts[tried.wrong[0]]
    right = tried.right[tried.wrong[0]]
    if not isinstance(outcome, dict) or "arguments" not in outcome:  # some faults are seen before any call
        return []
    changed = changed_arguments(right, outcome)
    if not changed or "changed in place" in verdict:
        return []
    return [f"Besides, argument {changed[0]} was changed in place: make a new one, the caller needs the old."]


def _wrong_inputs(tried: Tried) -> list[str]:
    """How many inputs go wrong; and which, where that tells more than the first one has told."""
    many, tried_cases = len(tried.wrong), len(tried.verdicts)
    if len(tried.cases) == 1:
        return []
    words = [_word(tried.verdicts[i]) for i in tried.wrong]
    left = len(tried.cases) - tried_cases
    rest = f" {left} more were not tried." if left else ""
    if many == 1:
        others = f"Nothing wrong was found with the other inputs ({tried_cases - 1})." if tried_cases > 1 else ""
        return [wrapped(f"{others}{rest}".strip())] if others or rest else []
    if many == tried_cases and len(set(words[:MOST])) == 1:
        return [wrapped(f"Found wrong with all {tried_cases} inputs.{rest}")]
    rows = _table([tried.cases[i].label for i in tried.wrong[:MOST]], words[:MOST])
    more = [f"    and {many - MOST} more"] if many > MOST else []
    return [wrapped(f"Found wrong with {many} of {tried_cases} inputs.{rest}"), *rows, *more]


def _word(verdict: str) -> str:
    for start, word in (("raised", "raises"), ("took", "takes too long")):
        if verdict.startswith(start):
            return word
    return "wrong in a second call" if SECOND in verdict else "wrong"


# ---- Answers -----------------------------------------------------------------------------------------------------


def _on_answers(tried: Tried) -> list[str]:
    """Each question that is answered wrongly, with its mistake, or a piece of advice."""
    lines: list[str] = []
    exercise, questions = tried.exercise, [tried.cases[i].args[0] for i in tried.wrong]
    mistakes = [found for found, _ in named(exercise, tried.right, tried.outcomes)]
    for i, question in list(zip(tried.wrong, questions, strict=True))[:MOST]:
        verdict = tried.verdicts[i]
        lines.append(verdict if verdict.startswith(str(question)) else f"{question}: {verdict}")
        mistake = next((found for found in mistakes if question in found.wrong), None)
        if mistake is None and "no answer" not in verdict and question in exercise.advice:
            lines.append(exercise.advice[question])
        elif mistake is not None and question == next(one for one in questions if one in mistake.wrong):
            lines += _on_mistake(mistake, 0, exercise)
    return lines + ([f"And {len(questions) - MOST} more are wrong."] if len(questions) > MOST else [])


# ---- Lines -------------------------------------------------------------------------------------------------------


def wrapped(text: str) -> str:
    """A paragraph of the report; a student's own line, which is indented, stays as it is."""
    if text.startswith(" "):
        return text
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _table(labels: list[str], words: list[str]) -> list[str]:
    wide = max(map(len, labels))
    return [f"    {label:<{wide}}  {word}" for label, word in zip(labels, words, strict=True)]


def _printed(kept: Kept) -> list[str]:
    """The beginning of what the student's code printed."""
    if not (text := kept.text.strip()):
        return []
    lines = [line[: WIDTH - 6] for line in text.splitlines()[:LINES]]
    many = "" if kept.lines <= LINES else f" {kept.lines} lines, at first"
    return [f"  Your code printed{many}:", textwrap.indent("\n".join(lines), "    | ")]
