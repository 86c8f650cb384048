"""What is kept of an instance besides its verified states: how long its loads took."""

from __future__ import annotations

from ansible.module_utils.sglang_state import LOADS, State


def test_the_newest_loads_come_first_and_few_are_kept(tmp_path):
    state = State(tmp_path)
    assert state.loads() == []
    for seconds in range(LOADS + 2):
        state.add_load(seconds + 0.4, cold=seconds == 0)
    assert [load["seconds"] for load in state.loads()] == list(range(LOADS + 1, 1, -1))


def test_a_file_that_is_no_list_is_made_anew(tmp_path):
    (tmp_path / "loads.json").write_text("{")
    state = State(tmp_path)
    assert state.loads() == []
    state.add_load(270, cold=True)
    assert state.loads() == [{"seconds": 270, "cold": True}]
