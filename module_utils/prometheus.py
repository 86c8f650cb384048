"""Asks a Prometheus, and other HTTP servers that answer in text, from the host that this runs on. Without a proxy."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request

from . import rollout_analysis as analysis
from .sglang_proof.errors import CannotRead


def ask(url, query):
    """The one number of its answer. Raises analysis.NoNumber, CannotRead with what it says instead, as a predicate, and
    never with the URL, which may have a password in it."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise CannotRead("is no URL") from None
    user, _, place = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/") + "/api/v1/query"
    request = urllib.request.Request(f"{parts.scheme}://{place}{path}?" + urllib.parse.urlencode({"query": query}))
    if user:
        basic = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    text = fetch(request, 30)
    try:
        return analysis.number(json.loads(text))
    except (LookupError, TypeError, ValueError):
        raise CannotRead(f"is no Prometheus, its answer begins {text[:60]!r}") from None


def fetch(request, timeout):
    """The text behind a URL or request. Raises CannotRead with what happened, as a predicate."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
            return answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        raise CannotRead(
            f"answered {error.code} {error.reason}: {error.read(500).decode(errors='replace').strip()}"
        ) from None
    except http.client.HTTPException as error:
        raise CannotRead(f"did not answer in HTTP: {type(error).__name__}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CannotRead(f"did not answer: {getattr(reason, 'strerror', None) or reason}") from None
