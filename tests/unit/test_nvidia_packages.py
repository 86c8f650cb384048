"""Which packages make the declared driver, on each supported system."""

from __future__ import annotations

import pytest

from module_utils.gpu_host import packages
from module_utils.gpu_host.packages import Refused

KERNEL = "6.1.0-28-amd64"
HEADERS = {f"linux-headers-{KERNEL}": "6.1.1", "linux-headers-amd64": "6.1.1"}
DEBIAN = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-modprobe", "nvidia-persistenced")


def debian(version, **others):
    """A Debian host with the whole driver."""
    return {**HEADERS, **dict.fromkeys(DEBIAN, f"{version}-1"), **others}


def offers(*versions, names=DEBIAN, revision="1"):
    return {name: [f"{version}-{revision}" for version in versions] for name in names}


OFFERED = offers("580.82.07", "580.95.05", "590.44.01")


def plan(declared, installed, offered=OFFERED, held=(), distribution="debian"):
    return packages.plan(distribution, declared, [KERNEL, KERNEL], installed, held, offered)


@pytest.mark.parametrize(
    ("distribution", "branch", "names"),
    [
        ("debian", 580, {"nvidia-driver-cuda", "nvidia-kernel-open-dkms"}),
        ("debian", 590, {"nvidia-driver-cuda", "nvidia-kernel-open-dkms"}),
        ("ubuntu", 580, {"libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580"}),
        ("ubuntu", 590, {"libnvidia-compute", "nvidia-dkms-open"}),
        ("ubuntu", 610, {"libnvidia-compute", "nvidia-dkms-open"}),
    ],
)
def test_the_packages_are_the_open_module_and_the_user_space_for_computing(distribution, branch, names):
    assert set(packages.components(distribution, branch)) == names | {"nvidia-modprobe", "nvidia-persistenced"}


@pytest.mark.parametrize(
    ("system", "path", "key"),
    [
        (("debian", "12"), "debian12/x86_64", "3bf863cc.pub"),
        (("debian", "13"), "debian13/x86_64", "8793F200.pub"),
        (("ubuntu", "22.04"), "ubuntu2204/x86_64", "3bf863cc.pub"),
        (("ubuntu", "24.04"), "ubuntu2404/x86_64", "3bf863cc.pub"),
    ],
)
def test_each_supported_system_has_its_repository_and_key(system, path, key):
    repository = packages.repository(*system)
    assert repository[:2] == (path, key)
    assert repository.fingerprint.endswith(key.split(".")[0].upper())


@pytest.mark.parametrize(
    "system", [("debian", "11"), ("ubuntu", "20.04"), ("ubuntu", "24.10"), ("rocky", "9.4"), ("debian", "12", "aarch64")]
)
def test_other_systems_are_refused_by_name(system):
    with pytest.raises(Refused, match=rf"^{system[0]} {system[1]} on \S+ is not supported.*Debian 12.*Ubuntu 24.04"):
        packages.repository(*system)


def test_a_bare_host_gets_the_newest_version_of_the_branch_and_headers_exact_and_meta():
    made = plan("580", {})
    assert made.version == "580.95.05"
    assert made.install == (*(f"{name}=580.95.05-1" for name in DEBIAN), f"linux-headers-{KERNEL}", "linux-headers-amd64")
    assert "Pin: version 580.95.05-*\nPin-Priority: 1000" in made.pin
    assert not made.complete


def test_without_the_repository_the_version_of_a_bare_host_is_not_known():
    made = plan("580", {}, offered=None)
    assert (made.version, made.complete) == (None, False)


def test_a_branch_is_satisfied_by_any_of_its_versions_so_nothing_is_upgraded_unasked():
    made = plan("580", debian("580.82.07"))
    assert (made.version, made.complete) == ("580.82.07", True)
    assert plan("580", debian("580.82.07"), offered=None).complete


@pytest.mark.parametrize(
    ("before", "declared", "after"),
    [
        ("580.82.07", "580.95.05", "580.95.05"),
        ("580.95.05", "580.82.07", "580.82.07"),
        ("580.95.05", "590", "590.44.01"),
        ("590.44.01", "580", "580.95.05"),
    ],
)
def test_another_version_up_or_down_is_one_transaction_with_what_came_along(before, declared, after):
    offered = {**OFFERED, "libcuda1": ["590.44.01-1", "580.95.05-1", "580.82.07-1"]}
    made = plan(declared, debian(before, libcuda1=f"{before}-1", bash="5.2"), offered)
    assert made.version == after
    assert set(made.install) == {f"{name}={after}-1" for name in (*DEBIAN, "libcuda1")}
    assert made.remove == ()


def test_ubuntus_names_change_with_the_branch():
    old = dict.fromkeys(packages.components("ubuntu", 580), "580.95.05-0ubuntu1")
    offered = offers("590.44.01", names=packages.components("ubuntu", 590), revision="1ubuntu1")
    made = plan("590", {**HEADERS, "linux-headers-generic": "1", **old}, offered, distribution="ubuntu")
    assert set(made.install) == {f"{name}=590.44.01-1ubuntu1" for name in packages.components("ubuntu", 590)}


def test_a_half_upgraded_host_becomes_the_newer_of_what_it_has():
    half = {**debian("580.82.07"), "nvidia-driver-cuda": "580.95.05-1"}
    made = plan("580", half)
    assert made.version == "580.95.05"
    assert set(made.install) == {f"{name}=580.95.05-1" for name in DEBIAN[1:]}


def test_a_library_of_another_branch_is_brought_back_to_the_module():
    made = plan("580", {**debian("580.82.07"), "nvidia-driver-cuda": "590.44.01-1"})
    assert made.version == "580.82.07"
    assert made.install == ("nvidia-driver-cuda=580.82.07-1",)


def test_what_is_missing_of_a_driver_is_added_in_its_version():
    partial = debian("580.82.07")
    del partial["nvidia-persistenced"]
    assert plan("580", partial).install == ("nvidia-persistenced=580.82.07-1",)


def test_headers_are_those_of_both_kernels_and_of_each_kernel_metapackage():
    names = packages.headers(
        "ubuntu",
        ["6.8.0-50-generic", "6.8.0-51-generic"],
        ["linux-image-6.8.0-50-generic", "linux-image-unsigned-6.8.0-51-generic", "linux-image-generic-hwe-24.04"],
    )
    assert names == ["linux-headers-6.8.0-50-generic", "linux-headers-6.8.0-51-generic", "linux-headers-generic-hwe-24.04"]
    assert packages.headers("debian", [KERNEL, KERNEL], ["linux-image-cloud-amd64", "linux-image-amd64-dbg"]) == [
        f"linux-headers-{KERNEL}",
        "linux-headers-cloud-amd64",
    ]


def test_missing_headers_alone_make_a_host_incomplete():
    installed = debian("580.82.07")
    del installed["linux-headers-amd64"]
    made = plan("580", installed, offered=None)
    assert (made.version, made.install, made.complete) == ("580.82.07", ("linux-headers-amd64",), False)


@pytest.mark.parametrize(
    "name",
    ["nvidia-driver-pinning-590", "cuda-drivers", "cuda-drivers-580", "nvidia-fabricmanager", "nvidia-imex-580", "nvlsm"],
)
def test_what_contradicts_it_goes(name):
    made = plan("580", debian("580.82.07", **{name: "580.82.07-1"}))
    assert (made.remove, made.complete) == ((name,), False)


def test_what_is_not_a_part_of_the_driver_stays():
    made = plan(
        "590",
        debian("580.82.07", **{"nvidia-container-toolkit": "1.18.0-1"}),
        {**OFFERED, "nvidia-container-toolkit": ["1.19.0-1"]},
    )
    assert made.remove == ()
    assert not any("container" in package for package in made.install)


def test_held_packages_are_named_where_they_would_have_to_change():
    assert plan("590", debian("580.82.07"), held=["nvidia-modprobe", "bash"]).held == ("nvidia-modprobe",)
    assert plan("580", debian("580.82.07"), held=["nvidia-modprobe"]).held == ()


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("600", "offers 580.82.07, 580.95.05, 590.44.01"),
        ("580.65.06", "does not offer nvidia-driver-cuda"),
        ("570", "older than 580.65.06"),
        ("580.60.01", "older than 580.65.06"),
        ("latest", "neither a branch"),
        ("580.95", "neither a branch"),
        ("", "neither a branch"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(declared, said):
    with pytest.raises(Refused, match=said):
        plan(declared, {})


def test_a_version_that_is_not_offered_as_a_whole_is_not_offered():
    incomplete = {**OFFERED, "nvidia-persistenced": ["580.82.07-1"]}
    assert plan("580", {}, incomplete).version == "580.82.07"
    with pytest.raises(Refused):
        plan("580.95.05", {}, incomplete)


LISTING = """\
nvidia-modprobe | 580.95.05-1 | https://mirror.example.com/debian12/x86_64  Packages
nvidia-modprobe | 535.261.03-1~deb12u1 | http://deb.example.com/debian bookworm/non-free amd64 Packages
nvidia-smi | 535.261.03-1~deb12u1 | http://deb.example.com/debian bookworm/non-free amd64 Packages
nvidia-container-toolkit | 1.18.0-1 | https://containers.example.com stable/deb Packages
linux-modules-nvidia-580-server-open-generic | 6.8.0-50.51 | http://ubuntu.example.com noble/restricted amd64 Packages
"""


def test_a_package_that_another_source_provides_is_found_and_one_that_it_only_offers_is_not():
    def elsewhere(**installed):
        names = {name.replace("_", "-"): version for name, version in installed.items()}
        return packages.from_elsewhere(names, LISTING, ["https://mirror.example.com/debian12/x86_64/", ""])

    assert elsewhere(nvidia_modprobe="580.95.05-1") == {}
    assert elsewhere(nvidia_modprobe="580.65.06-1") == {}  # vanished from the repository: an older one of its own
    assert elsewhere(nvidia_container_toolkit="1.18.0-1") == {}
    assert elsewhere(linux_modules_nvidia_580_server_open_generic="6.8.0-50.51") != {}
    assert elsewhere(nvidia_smi="535.261.03-1~deb12u1") == {"nvidia-smi": "http://deb.example.com/debian"}


def test_a_package_of_the_mirror_that_was_declared_before_is_ours():
    installed = {"nvidia-modprobe": "580.95.05-1"}
    before, now = "https://mirror.example.com/debian12/x86_64/", "https://other.example.com/debian12/x86_64"
    assert packages.from_elsewhere(installed, LISTING, [now, before]) == {}
    assert packages.from_elsewhere(installed, LISTING, [now, ""]) != {}


def test_the_pin_keeps_other_sources_out_before_it_lets_a_version_in():
    stanzas = plan("580", {}).pin.split("\n\n")
    assert [stanza.splitlines()[2] for stanza in stanzas] == [*["Pin-Priority: -1"] * 4, "Pin-Priority: 1000"]
    assert {"Pin: release o=Debian", "Pin: release o=Ubuntu"} <= {stanza.splitlines()[1] for stanza in stanzas}
