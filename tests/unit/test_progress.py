"""A slow load told from a hang, by what its processes read, hold and compute."""

import pytest
from ansible.module_utils.sglang_proof.progress import FRUITLESS, QUIET, Watch

IDLE = {"7": [0, 50_000_000, 3.0]}


def watch(*usages, every=10.0):
    """A watch that took these readings, one each `every` seconds from second 0 on."""
    watched = Watch("i1", 0.0)
    for number, usage in enumerate(usages):
        watched.look(number * every, usage)
    return watched, (len(usages) - 1) * every


@pytest.mark.parametrize(
    "moved, said",
    [
        ([312_000_000, 50_000_000, 3.0], "312 MB read in 10 s"),
        ([4_200_000_000, 50_000_000, 9.0], "4.2 GB read in 10 s"),
        ([0, 150_000_000, 3.0], "memory grew by 100 MB in 10 s"),
        ([0, 50_000_000, 23.0], "2.0 CPUs busy"),
    ],
)
def test_what_moves_is_said(moved, said):
    watched, now = watch(IDLE, {"7": moved})
    assert watched.describe(now) == said
    assert watched.quiet_for(now) == 0


def test_a_process_that_only_ticks_does_not_move():
    watched, now = watch(IDLE, {"7": [0, 50_100_000, 3.2]}, {"7": [0, 50_200_000, 3.4]})
    assert watched.quiet_for(now) == 20
    assert watched.describe(now) == ""


def test_a_long_silence_is_said():
    watched, _ = watch(IDLE, IDLE)
    assert watched.describe(QUIET + 5) == f"nothing has moved for {QUIET + 5} s"


def test_a_worker_that_ends_hides_nothing():
    watched, now = watch({"7": [0, 0, 0.0], "8": [900_000_000, 0, 0.0]}, {"7": [0, 0, 0.0], "9": [5_000_000, 0, 0.0]})
    assert watched.describe(now) == "5 MB read in 10 s"


def test_what_cannot_be_seen_is_no_hang():
    watched, now = watch({}, {}, {})
    assert watched.quiet_for(now) == 0


def test_a_line_of_the_log_is_a_movement():
    watched, now = watch(IDLE, IDLE, IDLE)
    watched.heard(15.0)
    assert watched.quiet_for(now) == 5
    watched.heard(2.0)
    assert watched.quiet_for(now) == 5


def test_the_next_slice_goes_on_where_the_last_ended():
    watched, now = watch(IDLE, IDLE)
    resumed = Watch("i1", now, watched.to_dict())
    assert not resumed.is_due(now)
    resumed.look(now + 10, {"7": [20_000_000, 50_000_000, 3.0]})
    assert resumed.describe(now + 10) == "20 MB read in 10 s"
    resumed.look(now + 20, {"7": [20_000_000, 50_000_000, 3.0]})
    assert resumed.quiet_for(now + 20) == 10


def test_another_start_begins_anew():
    watched, now = watch(IDLE, IDLE, IDLE)
    assert Watch("i2", now, watched.to_dict()).quiet_for(now) == 0


def test_computing_of_which_nothing_comes_is_suspected():
    watched, now = watch({"7": [0, 0, 0.0]}, {"7": [0, 0, 80.0]}, every=FRUITLESS)
    assert watched.quiet_for(now) == 0
    assert watched.fruitless_for(now) == FRUITLESS
    assert watched.describe(now) == f"0.4 CPUs busy, and nothing read, taken or said for {FRUITLESS} s: a hang?"
    watched.heard(now)
    assert watched.fruitless_for(now) == 0
    assert watched.describe(now) == "0.4 CPUs busy"


@pytest.mark.parametrize("moved", [[1, 0, 80.0], [0, 1_000_000, 80.0]])
def test_a_byte_read_or_a_megabyte_taken_comes_of_it(moved):
    watched, now = watch({"7": [0, 0, 0.0]}, {"7": moved}, every=FRUITLESS)
    assert watched.fruitless_for(now) == 0
