"""The table of faults is whole."""

from __future__ import annotations

from collections import Counter

import faults


def test_each_fault_says_once_what_must_be_said_of_it():
    everything = [*faults.FAULTS, *faults.HONEST]
    assert [name for name, count in Counter(fault.name for fault in everything).items() if count > 1] == []
    assert all(fault.verdict != "proved" and fault.words for fault in faults.FAULTS)
    assert all(fault.verdict in ("proved", "warned") for fault in faults.HONEST)  # what is warned of passes


def test_there_are_as_many_as_were_promised():
    assert len(faults.FAULTS) >= 50
