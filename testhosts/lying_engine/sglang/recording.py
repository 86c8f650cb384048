"""Part of a stand-in for SGLang: the start that it follows, as recorded of the real engine."""

import json
from pathlib import Path

SCRIPT = json.loads(Path(__file__).with_name("recording.json").read_text())
RELEASE = SCRIPT["release"]
NUMBERS = tuple(map(int, RELEASE.split(".")))
FORK = SCRIPT["fork"]


def since(*numbers):
    """Is this release the one of these numbers, or a later one?"""
    return numbers <= NUMBERS


def filled(text, values):
    """A recorded line with values in the place of its ⟨names⟩."""
    for name, value in values.items():
        text = text.replace(f"⟨{name}⟩", str(value))
    return text


class Verbatim:
    """A value that was printed and is no literal: it is printed again as it was."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


FIELDS = {n: Verbatim(v["verbatim"]) if isinstance(v, dict) and "verbatim" in v else v for n, v in SCRIPT["fields"]}
