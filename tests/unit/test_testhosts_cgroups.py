"""Where a host's cgroups go, for the ways a machine can have them mounted."""

from __future__ import annotations

from pathlib import Path

from testhosts.cgroups import Hierarchy, hierarchies

SYSTEMD = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
CPUSET = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
ROOT = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"


def test_v1_with_a_v2_tree_beside_it_uses_both_below_the_callers_own_cgroups():
    own = "9:name=systemd:/\n4:memory:/session/7\n0::/\n"
    assert hierarchies(ROOT + SYSTEMD + MEMORY + V2, own) == [
        Hierarchy(Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/systemd"), 1),
        Hierarchy(Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/memory/session/7"), 1),
        Hierarchy(Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/unified"), 2),
    ]


def test_a_controller_that_systemd_leaves_alone_is_left_alone():
    assert hierarchies(CPUSET, "3:cpuset:/\n") == []


def test_v2_alone_is_used_from_its_root_where_controllers_can_be_handed_on():
    mountinfo = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    own = "0::/user.slice/session-3.scope\n"
    assert [hierarchy.parent for hierarchy in hierarchies(mountinfo, own)] == [Path("/sys/fs/cgroup")]


def test_in_a_container_the_callers_cgroup_is_the_root_of_the_mount():
    mountinfo = "35 31 0:32 /box/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert [hierarchy.parent for hierarchy in hierarchies(mountinfo, "4:memory:/box/1/app\n")] == [
        Path("/sys/fs/cgroup/memory/app")
    ]
