"""An apt source in one file, its signing key inside: the two cannot disagree, and no other source gains the key's trust."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import re


class Refused(Exception):
    """The key or the repository is not what was declared: a sentence."""


def fingerprints(armoured):
    """Fingerprints of all primary keys in a file of ASCII-armoured OpenPGP blocks, version 4 (RFC 4880 12.2)."""
    pattern = r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:.+\n)*?\n([A-Za-z0-9+/=\n]*?)(?:\n=[A-Za-z0-9+/]{4})?\n-----END PGP"
    blocks = re.findall(pattern, armoured.replace("\r", ""))
    if not blocks or len(blocks) != armoured.count("-----BEGIN "):
        raise Refused("it is no ASCII-armoured OpenPGP public key")
    try:
        keys = [key for block in blocks for key in _primary_keys(base64.b64decode(block))]
    except (ValueError, IndexError) as error:
        raise Refused(f"it is no OpenPGP public key that can be read ({error})") from error
    return [hashlib.sha1(b"\x99" + len(key).to_bytes(2, "big") + key).hexdigest().upper() for key in keys]


def _primary_keys(data):
    while data:
        kind, content, data = _packet(data)
        if kind == 6:  # public key; its subkeys are 14
            yield content


def _packet(data):
    """(type, content, rest) of the first packet, in the old or the new format (RFC 4880 4.2)."""
    head = data[0]
    if not head & 0x80:
        raise ValueError("not a packet")
    if head & 0x40:
        kind, first = head & 0x3F, data[1]
        if first < 192:
            start, size = 2, first
        elif first < 224:
            start, size = 3, ((first - 192) << 8) + data[2] + 192
        else:
            start, size = 6, int.from_bytes(data[2:6], "big")
    else:
        kind, width = (head >> 2) & 0x0F, 1 << (head & 3)
        start = 1 + width
        size = int.from_bytes(data[1:start], "big")
    return kind, data[start : start + size], data[start + size :]


def check_key(armoured, fingerprint):
    """Raises Refused unless this is exactly the declared key, and nothing beside it."""
    found = fingerprints(armoured)
    if found != [plain(fingerprint)]:
        raise Refused(f"it bears {', '.join(found) or 'no key'}, declared is {plain(fingerprint)}")


def plain(fingerprint):
    return re.sub(r"[\s:]|^0x", "", fingerprint).upper()


def render(uri, armoured):
    """The text of the .sources file of a flat repository; a line of the key that is empty is a dot there (deb822)."""
    key = "".join(f" {line or '.'}\n" for line in armoured.strip().replace("\r", "").split("\n"))
    return f"Types: deb\nURIs: {uri.rstrip('/')}/\nSuites: /\nSigned-By:\n{key}"


def key_of(text):
    """The key inside such a file, or an empty text."""
    _, _, lines = text.partition("Signed-By:\n")
    return "\n".join("" if line == " ." else line[1:] for line in lines.splitlines())


def uri_of(text):
    """The repository of such a file, or an empty text."""
    found = re.search(r"^URIs: (\S+)$", text, re.M)
    return found[1] if found else ""


def is_as_declared(text, uri, fingerprint):
    """Whether this file is what render() makes of the declared repository, with the declared key."""
    key = key_of(text)
    try:
        check_key(key, fingerprint)
    except Refused:
        return False
    return text == render(uri, key)


def names_source(text, uri):
    """Whether a file of apt sources, of either format, has this repository in force."""
    stanzas = re.split(r"\n\s*\n", text)
    enabled = (
        stanza
        for stanza in stanzas
        if not re.search(r"^Enabled: *(no|false|without|off|disable|0)\s*$", stanza, re.M | re.I)
    )
    lines = (line for stanza in enabled for line in stanza.splitlines() if not line.lstrip().startswith("#"))
    return any(re.search(rf"(^|\s){re.escape(uri.rstrip('/'))}/?(\s|$)", line) for line in lines)


def versions(index, patterns):
    """{name: [version, …]} of the packages in a Packages file whose name matches one of the globs."""
    found = {}
    for stanza in re.split(r"\n\s*\n", index):
        fields = dict(re.findall(r"^(Package|Version): *(.*)$", stanza, re.M))
        name = fields.get("Package")
        if name and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            found.setdefault(name, []).append(fields["Version"])
    return found
