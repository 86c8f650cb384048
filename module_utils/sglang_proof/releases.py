"""Release numbers of the engine, and ranges of them: `>=0.5.12,<0.5.20`."""

from __future__ import annotations

import operator
import re

_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?(?:\+.*)?")


def key(release):
    """A release as something that sorts: `0.5.13.post1` > `0.5.13`. ValueError for what is no final release."""
    match = _RELEASE.fullmatch(str(release).strip())
    if not match:
        raise ValueError(f"{release!r} is not a release number like 0.5.13 or 0.5.13.post1")
    numbers = [int(part) for part in match.group(1).split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (numbers, int(match.group(2) or 0))


def within(release, span):
    """Is the release in the span? A post release belongs to its base: 0.5.12.post1 is `==0.5.12`. "" is all releases."""
    if not span:
        return True
    numbers, _post = key(release)
    for clause in span.split(","):
        match = re.fullmatch(r"\s*(==|!=|>=|<=|>|<)\s*(\S+)\s*", clause)
        if not match:
            raise ValueError(f"{clause!r} is not a comparison like >=0.5.12")
        if not _COMPARE[match.group(1)](numbers, key(match.group(2))[0]):
            return False
    return True
