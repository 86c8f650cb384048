"""A lock on a host that expires: held by one run at a time, renewed while it works.

The file is JSON: {"token", "holder", "purpose", "since", "until"}; times are Unix seconds. A token names the run, so that
the same one may ask again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from .sglang_host import read_json, write_json

SECONDS = 900  # valid without being renewed: longer than any single step of a run


def take(path, token, holder, purpose, seconds=SECONDS, instead_of=None, now=time.time):
    """Take the lease, or renew it. None, or the lease of another that is in force. Raises CannotKeep.

    instead_of: a token whose run is known to be gone.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with _alone(path):
        lease = in_force(path, now)
        if lease and lease["token"] not in (token, instead_of):
            return lease
        since = now()
        if lease and lease["token"] == token:  # renewed: since when, and what for, stay
            since, purpose = lease["since"], lease["purpose"]
        write_json(path, {"token": token, "holder": holder, "purpose": purpose, "since": since, "until": now() + seconds})
    return None


def renew(path, token, now=time.time):
    """Hold it for another while. None, or the lease of another who has it now. Raises CannotKeep."""
    lease = read_json(path)
    if isinstance(lease, dict) and lease.get("token") == token:
        return take(path, token, lease["holder"], lease["purpose"], now=now)
    return in_force(path, now)


def give_back(path, token):
    with _alone(path):
        lease = read_json(path)
        if isinstance(lease, dict) and lease.get("token") == token:
            os.unlink(path)


def in_force(path, now=time.time):
    """The lease that is held now, or None. What cannot be read is none: it was never complete."""
    lease = read_json(path)
    if not isinstance(lease, dict) or not {"token", "holder", "purpose", "since", "until"} <= set(lease):
        return None
    return lease if lease["until"] > now() else None


def refusal(lease, host, retry):
    """Who holds it, since when and until when at the latest, as a sentence."""
    since, until = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease[key])) for key in ("since", "until"))
    return (
        f"{host} is being changed by {lease['holder']} ({lease['purpose']}) since {since}. Nothing was changed.\n"
        f"  next     {retry} when that is done; if its run is gone, the lease ends by itself at {until}"
    )


@contextlib.contextmanager
def _alone(path):
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
