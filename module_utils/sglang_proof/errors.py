"""What the code that looks at hosts and the code that judges them both know. By itself: most modules need no more of it."""

from __future__ import annotations


class CannotRead(Exception):
    """Something that must be readable is not: an error of its own, never an empty answer. Raised by hosts."""
