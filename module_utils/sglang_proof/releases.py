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
_RELEASE = re.compile(r"(\d+(?:\.\d+)*?)(?:\.0+)*(?:\.post\d+)?(?:\+.*)?")


def _numbers(release):
    """A release as something that sorts: [0, 5, 13] of 0.5.13, 0.5.13.0 and 0.5.13.post1. ValueError for what is none."""
    match = _RELEASE.fullmatch(str(release).strip())
    if not match:
        raise ValueError(f"{release!r} is not a release number like 0.5.13 or 0.5.13.post1")
    return [int(part) for part in match[1].split(".")]


def within(release, span):
    """Is the release in the span? A post release belongs to its base: 0.5.12.post1 is `==0.5.12`. "" is all releases."""
    if not span:
        return True
    numbers = _numbers(release)
    for clause in span.split(","):
        match = re.fullmatch(r"\s*(==|!=|>=|<=|>|<)\s*(\S+)\s*", clause)
        if not match:
            raise ValueError(f"{clause!r} is not a comparison like >=0.5.12")
        if not _COMPARE[match[1]](numbers, _numbers(match[2])):
            return False
    return True
