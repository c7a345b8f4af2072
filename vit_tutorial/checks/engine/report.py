"""What a check prints: a verdict, the mistake by its name or what the numbers show, and the first difference."""

from __future__ import annotations

import textwrap

import torch

from vit_tutorial.checks.engine.compare import HALF
from vit_tutorial.checks.engine.exercise import Exercise, Fault, Mistake
from vit_tutorial.checks.engine.functions import SECOND, tensors
from vit_tutorial.checks.engine.layers import MISSING, agreed
from vit_tutorial.checks.engine.mistakes import named
from vit_tutorial.checks.engine.run import UNWRITTEN, Outcome, Tried, changed_in_place, run_once
from vit_tutorial.checks.engine.symptoms import symptom

WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
MOST = 8  # wrong inputs, or wrong answers, that are shown
LINES = 5  # of what the student's code printed


def report(tried: Tried) -> str:
    """What a check prints, whole."""
    name = tried.exercise.name
    if unwritten(tried):
        return f"{name}: not written yet"
    if not tried.wrong:
        lines = [f"{name}: right. Tried:", *_table([(case.label, "right") for case in tried.cases])]
    elif tried.exercise.asks_questions:
        lines = [f"{name}: not yet", *map(wrapped, _on_answers(tried))]
    else:
        lines = [f"{name}: not yet", *map(wrapped, _on_work(tried)), *_wrong_inputs(tried)]
    return "\n".join([*lines, *_printed(tried.printed)])


def unwritten(tried: Tried) -> bool:
    """Whether the work is still the stub."""
    return all(verdict.startswith(UNWRITTEN) for verdict in tried.verdicts)


# ---- A work ------------------------------------------------------------------------------------------------------


def _on_work(tried: Tried) -> list[str]:
    """The mistake by its name, else what the numbers show; and the first difference."""
    first = tried.wrong[0]
    mistakes = named(tried.exercise, tried.right, tried.outcomes)
    if mistakes:
        lines = _on_mistake(*mistakes[0], tried.exercise)
    else:
        seen = _numbers_show(tried)
        lines = [f"What your numbers show: {seen}"] if seen else []
    lines += f"First seen with {tried.cases[first].label}: {tried.verdicts[first]}".split("\n")
    outcome = tried.outcomes[first]
    if isinstance(outcome, Fault):
        return lines
    if not mistakes and (missing := outcome.get(MISSING)):
        names = agreed(tried.cases[first].weights)
        lines.append(f"The class has no parameter of its own for {', '.join(missing)}; {names}.")
    changed = changed_in_place(tried.right[first], outcome)
    return lines + [f"Besides, {changed}."] * bool(changed and changed not in tried.verdicts[first])


def _on_mistake(one: Mistake, inputs: int, exercise: Exercise) -> list[str]:
    """What it is, and what to reread."""
    some = f" (on {inputs} inputs, but not on all: there may be another)" if inputs else ""
    place = f'Reread in lesson {one.lesson or exercise.lesson}: "{one.reread}".'
    return [f"It looks like {one.name}{some}. {one.says}", place]


def _numbers_show(tried: Tried) -> str:
    """What the results that are wrong have to do with the right ones, "" where nothing is seen."""
    rows = tried.rows()
    if not rows or any(str(dtype) in tried.verdicts[tried.wrong[0]] for dtype in HALF):
        return ""
    if tried.exercise.explain:
        try:
            said = tried.exercise.explain(rows)
        except Exception:  # a student's result may be anything: then there is nothing to say
            said = ""
        if said:
            return said
    return _by_chance(tried) or symptom(rows, tried.exercise, others=len(rows) < len(tried.cases))


def _by_chance(tried: Tried) -> str:
    """Whether the work gives other numbers with another seed, where the right work doesn't."""
    first, exercise = tried.wrong[0], tried.exercise
    if isinstance(tried.outcomes[first], Fault):
        return ""
    again = run_once(exercise, tried.work, exercise.cases()[first], seed=1)
    if _same_numbers(tried.outcomes[first], again):
        return ""
    right_again = run_once(exercise, exercise.right, exercise.cases()[first], seed=1)
    if not _same_numbers(tried.right[first], right_again):
        return ""
    return (
        "The same input gives other numbers in another call. Is something random, such as dropout, or kept from one "
        "call to the next, or never filled (torch.empty)?"
    )


def _same_numbers(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, Fault) or isinstance(other, Fault):
        return False
    pairs = [(a, b) for a, b in zip(tensors(one), tensors(other), strict=False) if not a.is_meta]
    return all(a.shape == b.shape and torch.allclose(a, b, 1e-5, 1e-6, equal_nan=True) for a, b in pairs)


def _wrong_inputs(tried: Tried) -> list[str]:
    """How many inputs go wrong; and which, where that tells more than the first one has told."""
    many, every = len(tried.wrong), len(tried.cases)
    if every == 1:
        return []
    if many == 1:
        return [wrapped(f"Nothing wrong was found with the other inputs ({every - 1}).")]
    words = [(tried.cases[i].label, _word(tried.verdicts[i])) for i in tried.wrong[:MOST]]
    if many == every and len({word for _, word in words}) == 1:
        return [wrapped(f"Found wrong with all {every} inputs.")]
    more = [f"    and {many - MOST} more"] if many > MOST else []
    return [wrapped(f"Found wrong with {many} of {every} inputs."), *_table(words), *more]


def _word(verdict: str) -> str:
    if verdict.startswith("raised"):
        return "raises"
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


def _table(rows: list[tuple[str, str]]) -> list[str]:
    wide = max(len(label) for label, _ in rows)
    return [f"    {label:<{wide}}  {word}" for label, word in rows]


def _printed(text: str) -> list[str]:
    """The beginning of what the student's code printed."""
    lines = text.strip().splitlines()
    if not lines:
        return []
    many = "" if len(lines) <= LINES else f" {len(lines)} lines, at first"
    shown = "\n".join(line[: WIDTH - 6] for line in lines[:LINES])
    return [f"  Your code printed{many}:", textwrap.indent(shown, "    | ")]
