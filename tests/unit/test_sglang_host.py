"""What a host is asked, and what is kept on it."""

from __future__ import annotations

import ipaddress

import pytest
from ansible.module_utils import sglang_host
from ansible.module_utils.sglang_host import CannotKeep, read_json, write_json


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1"),
    ],
)
def test_addresses_of_proc_net_tcp(text, address):
    assert sglang_host._address(text) == ipaddress.ip_address(address)


@pytest.mark.parametrize(
    ("held", "wanted", "collide"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("10.0.0.5", "0.0.0.0", True),
        ("::", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
    ],
)
def test_only_sockets_in_each_others_way_are_a_conflict(held, wanted, collide):
    assert sglang_host._collide(ipaddress.ip_address(held), ipaddress.ip_address(wanted)) is collide


def test_what_is_kept_is_whole_and_for_root_alone(tmp_path):
    path = tmp_path / "kept.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.json"]


def test_what_cannot_be_kept_leaves_the_old_and_nothing_half_written(tmp_path):
    path = tmp_path / "kept.json"
    write_json(path, {"a": 1})
    (tmp_path / "kept.json.new").mkdir()  # nobody can write there
    with pytest.raises(CannotKeep, match="cannot be written"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}


@pytest.mark.parametrize("content", ["", "{", "\x00"])
def test_a_file_cut_by_a_power_failure_is_made_anew(tmp_path, content):
    path = tmp_path / "kept.json"
    path.write_text(content)
    assert read_json(path) is None
