"""A repository is declared with one key, and with no other."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from module_utils.gpu_host import apt_source

ONE = "9DFE69866B50696DA2B810DC468DBEDFC0E7B30A"
TWO = "A34B7C7BD5BE9BFB2940856532814FAAECB52C47"
KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawx7LhYJKwYBBAHaRw8BAQdAOsZQx47vqVCsgZHEgpkdfJSDpyMh24xffgHP
OmOO35i0E29uZUBleGFtcGxlLmludmFsaWSIkAQTFggAOBYhBJ3+aYZrUGltorgQ
3EaNvt/A57MKBQJrDHsuAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEEaN
vt/A57MK7J8BAN7kYYS2gV+tNedoYuqL4wv4+GcxXbo7v2FkyaVw8hhKAPwJQE6N
OHyy4fngVT9cEuoRMxBapNeMMJIJxQ8OTS9fCQ==
=y+Wq
-----END PGP PUBLIC KEY BLOCK-----
"""
BOTH = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawx7LhYJKwYBBAHaRw8BAQdAOsZQx47vqVCsgZHEgpkdfJSDpyMh24xffgHP
OmOO35i0E29uZUBleGFtcGxlLmludmFsaWSIkAQTFggAOBYhBJ3+aYZrUGltorgQ
3EaNvt/A57MKBQJrDHsuAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEEaN
vt/A57MK7J8BAN7kYYS2gV+tNedoYuqL4wv4+GcxXbo7v2FkyaVw8hhKAPwJQE6N
OHyy4fngVT9cEuoRMxBapNeMMJIJxQ8OTS9fCZgzBGsMey4WCSsGAQQB2kcPAQEH
QAsbQykc3dT3r++aXvNtLVVxHnXGOTuUNFoo62kYAyajtBN0d29AZXhhbXBsZS5p
bnZhbGlkiJAEExYIADgWIQSjS3x71b6b+ylAhWUygU+q7LUsRwUCawx7LgIbAwUL
CQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRAygU+q7LUsRxHHAP9f29cJAQ8B3cAl
w8z3Dq9EHe6f1ghaa9wHsscgC3QmsQEAhF1Ao6JqkjkAlH6yT4EmtpgOWONESwrY
Uns118lYIwE=
=zU7Q
-----END PGP PUBLIC KEY BLOCK-----
"""
URI = "https://mirror.example.com/cuda/debian12/x86_64"


def test_the_fingerprint_is_what_gpg_says():
    assert apt_source.fingerprints(KEY) == [ONE]
    assert apt_source.fingerprints(BOTH) == [ONE, TWO]
    assert apt_source.fingerprints(KEY.replace("\n", "\r\n")) == [ONE]
    assert apt_source.fingerprints(
        KEY.replace("BLOCK-----\n\n", "BLOCK-----\nVersion: GnuPG v2.0.22 (GNU/Linux)\n\n", 1)
    ) == [ONE]


def test_a_packet_of_the_new_format_has_the_same_fingerprint():
    old = base64.b64decode("".join(KEY.splitlines()[2:-2]))
    size = old[1]
    for header in ([0xC6, size], [0xC6, 0xFF, 0, 0, 0, size]):
        text = base64.b64encode(bytes(header) + old[2 : 2 + size]).decode()
        armoured = f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{text}\n-----END PGP PUBLIC KEY BLOCK-----\n"
        assert apt_source.fingerprints(armoured) == [ONE]


def test_the_declared_key_alone_is_accepted_however_its_fingerprint_is_written():
    for written in (ONE, ONE.lower(), f"0x{ONE}", "9DFE 6986 6B50 696D A2B8  10DC 468D BEDF C0E7 B30A"):
        apt_source.check_key(KEY, written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOTH, f"{ONE}, {TWO}"),
        (KEY + KEY, f"{ONE}, {ONE}"),
        (KEY.replace("mDMEawx7LhYJ", "mDMEawx7LhYK"), "declared is"),
        ("<html>404 Not Found</html>", "no ASCII-armoured"),
        ("", "no ASCII-armoured"),
        (KEY + "-----BEGIN PGP PRIVATE KEY BLOCK-----", "no ASCII-armoured"),
        (KEY.replace("mDME", "ADME"), "not a packet"),
    ],
    ids=["another beside it", "twice", "another", "a page", "nothing", "a secret beside it", "no packet"],
)
def test_anything_else_is_refused(text, said):
    with pytest.raises(apt_source.Refused) as refusal:
        apt_source.check_key(text, ONE)
    assert said in str(refusal.value)


def test_the_file_has_the_key_inside_and_is_recognised_again():
    text = apt_source.render(URI, KEY)
    assert text.startswith(
        f"Types: deb\nURIs: {URI}/\nSuites: /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDME"
    )
    assert apt_source.uri_of(text) == f"{URI}/"
    assert apt_source.is_as_declared(text, URI, ONE)
    assert apt_source.is_as_declared(apt_source.render(URI + "/", KEY), URI, ONE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Types: deb", "Types: deb\nTrusted: yes"),
        (URI, "https://elsewhere.example.com"),
        ("mDMEawx7LhYJ", "mDMEawx7LhYK"),
        ("Types: deb", "Enabled: no\nTypes: deb"),
    ],
)
def test_a_file_that_somebody_changed_is_not_as_declared(old, new):
    assert not apt_source.is_as_declared(apt_source.render(URI, KEY).replace(old, new), URI, ONE)
    assert not apt_source.is_as_declared(apt_source.render(URI, KEY), URI, TWO)
    assert not apt_source.is_as_declared(apt_source.render(URI, BOTH), URI, ONE)
    assert not apt_source.is_as_declared("", URI, ONE)


@given(st.text())
def test_no_file_on_the_host_ends_in_a_traceback(text):
    assert not apt_source.is_as_declared(text, URI, ONE)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {URI}/ /", True),
        (f"deb {URI} /", True),
        (f"Types: deb\nURIs: {URI}/\nSuites: /", True),
        (f"Types: deb\nURIs: {URI}/\nSuites: /\nEnabled: no", False),
        (f"Enabled: no\nURIs: https://other.example.com\n\nURIs: {URI}/", True),
        (f"# deb {URI}/ /", False),
        (f"deb {URI}/other /", False),
        ("deb http://deb.example.com/debian bookworm main", False),
    ],
)
def test_another_file_with_the_same_repository_is_found(line, names):
    assert apt_source.names_source(f"{line}\n", URI) is names


def test_versions_are_read_from_an_index():
    stanzas = ("nvidia-open", "590.44.01-1"), ("nvidia-open", "580.95.05-1"), ("bash", "5.2")
    index = "\n".join(f"Package: {name}\nArchitecture: all\nVersion: {version}\n" for name, version in stanzas)
    assert apt_source.versions(index, ["*nvidia*"]) == {"nvidia-open": ["590.44.01-1", "580.95.05-1"]}
    assert apt_source.versions("", ["*"]) == {}
