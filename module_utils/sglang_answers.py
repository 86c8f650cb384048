"""Scores what an engine answers to fixed prompts against what a good one answered. Pure, no I/O.

Answers of a healthy engine differ in words between releases, batches and kernels; those of a broken one have nothing in
common with the recorded ones. So words are counted, and equality is not asked for.
"""

from __future__ import annotations

import re
from collections import Counter

WORD = re.compile(r"\w+")


def score(answer, recorded):
    """0 to 1: twice the words that both have, over the words of both (F1). Order counts for nothing.

    Where neither has a word, they must be the same.
    """
    said, wanted = (Counter(WORD.findall(text.lower())) for text in (answer, recorded))
    total = sum(said.values()) + sum(wanted.values())
    return 2 * sum((said & wanted).values()) / total if total else float(answer == recorded)


def judge(scored, floor):
    """None, or a sentence that says why these [(prompt, recorded, answer, score)] are below the floor in the mean."""
    mean = sum(entry[3] for entry in scored) / len(scored)
    if mean >= floor:
        return None
    prompt, recorded, answer, worst = min(scored, key=lambda entry: entry[3])
    return (
        f"prompts: declared a score of {floor:g}, found {mean:.2f} in the mean of {len(scored)}.\n"
        f"  worst    {worst:.2f} for {_short(prompt)}\n"
        f"  recorded {_short(recorded)}\n"
        f"  answered {_short(answer)}"
    )


def _short(text):
    return repr(text if len(text) <= 100 else text[:99] + "…")
