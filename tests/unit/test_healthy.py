"""Starts of the real engine, young and old, that nobody should be woken for: each is proved, on every release.

`corpus/server_info.json` holds the fields of /server_info that are looked at, of the same runs as the logs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import contract, hearing, plan, startup, verdict
from ansible.module_utils.sglang_proof.startup_log import READY
from stage import PYTHON, UNIT_PATH, FakeHost, engine

CORPUS = Path(__file__).with_name("corpus")
SERVER_INFO = json.loads((CORPUS / "server_info.json").read_text())
DFLASH = {
    "spec_algorithm": "DFLASH",
    "model": "/srv/models/tiny-qwen3",
    "draft_model": "/srv/models/tiny-dflash-swa",
    "block_size": 8,
    "steps": 1,
    "topk": 1,
    "window": 64,
    "attention_backend": "triton",
    "kv_cache_dtype": "auto",
    "mem_fraction": 0.05,
    "max_running_requests": 4,
    "max_total_tokens": 4096,
    "least_context": 1024,
    "device": "cpu",
    "host": "127.0.0.1",
    "tp": 1,
    "served_name": "/srv/models/tiny-qwen3",
    "trust_remote_code": "none",
}
ALL = {"window": "none"}  # the drafter attends to all of the context
PLAIN = dict.fromkeys(("draft_model", "block_size", "steps", "topk", "window", "max_running_requests"), "unset")
STARTS = {  # log → what was declared otherwise than DFLASH
    "0.5.11-window": {},
    "0.5.11-nowindow": ALL,
    "0.5.11-window-logms": {},
    "0.5.11-tp2-window": {"tp": 2},
    "0.5.11-maxreq5000": {**ALL, "max_running_requests": 5000},
    "0.5.11-plain": {**PLAIN, "spec_algorithm": "none", "attention_backend": "torch_native"},
    "0.5.12-window": {},
    "0.5.13-nowindow": ALL,
    "0.5.14-window": {},
    "0.5.15-window": {"draft_attention_backend": "triton"},
    "0.5.16-window": {},
    "0.5.17-maxreq5000": {**ALL, "max_running_requests": 5000},
    "0.5.18-window": {},
    "0.5.19-nowindow": ALL,
    "0.5.20-nowindow": ALL,
    "0.5.21-window": {},
    "0.5.22-nowindow": ALL,
    "0.5.23-window": {},
    "0.5.23-context-larger-than-pool": {"context_length": 2048, "max_total_tokens": 1024},
    "0.5.23-dp2-window": {"dp": 2},
}
CONFIGS = {"target": {"max_position_embeddings": 2048}, "drafter": {"block_size": 8}}


def made(name, **changes):
    """The plan that the start of this log was declared with."""
    release = name.split("-")[0]
    settings = {**DFLASH, "port": SERVER_INFO[name]["port"], **STARTS[name], **changes}
    facts = engine(release)
    declaration = plan.declared(settings, contract.family_of(facts).name, CONFIGS, release)
    return plan.make("k26", PYTHON, declaration, facts)


def lines(name):
    """As journald keeps them: it drops empty lines."""
    return [line for line in (CORPUS / f"{name}.log").read_text().splitlines() if line.strip()]


def on_a_host(name, planned=None, said=None):
    """The host on which this start became ready half a minute ago."""
    host = FakeHost(planned or made(name), said or lines(name))
    host.answers["/server_info"] = SERVER_INFO[name]
    return later(host)


def later(host):
    host.journal(host.running.invocation_id)  # written now
    host.sleep(30)
    return host


def proved(host, **kwargs):
    return startup.prove(host, host.made, UNIT_PATH, host.clock(), startup.Demands(hold=5, stall=60), **kwargs)


def young(name):
    return proved(on_a_host(name))


def as_bytes(name):
    """Colour and carriage returns make journald give arrays of bytes."""
    return proved(on_a_host(name, said=[line.encode() for line in lines(name)]))


def aged(name):
    """Days later the journal has rotated all lines of the start away."""
    host = on_a_host(name)
    kept = json.loads(json.dumps(hearing.keep(host.made, proved(host))))
    host.invocations["i1"] = ["[2026-12-06 09:00:00] Decode batch, #running-req: 1"]
    host.written.clear()
    host.sleep(7 * 86400)
    return proved(host, kept=kept)


def half_rotated(name):
    """The ready line is still there, the evidence is not."""
    host = on_a_host(name)
    kept = json.loads(json.dumps(hearing.keep(host.made, proved(host))))
    ready = next(n for n, line in enumerate(lines(name)) if READY in line)
    host.invocations["i1"] = lines(name)[ready:]
    return proved(host, kept=kept)


def after_our_own_stop(name):
    """Up to 0.5.18 a stopped engine ends by SIGKILL, and systemd calls the stopped unit failed."""
    host = on_a_host(name)
    host.invocations["i0"] = [
        *lines(name),
        "[2026-11-29 15:00:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...",
    ]
    host.running = replace(host.running, invocation_id="i0", main_pid=0, active_state="failed", result="signal")
    with pytest.raises(startup.NotProved):
        proved(host)
    host.running = replace(host.running, invocation_id="i1", main_pid=7, active_state="active", result="success")
    return proved(later(host))


@pytest.mark.parametrize("life", [young, as_bytes, aged, half_rotated, after_our_own_stop])
@pytest.mark.parametrize("name", STARTS)
def test_a_healthy_start_is_proved(name, life):
    outcome = life(name)
    said = [(v.setting, v.verdict) for v in outcome.verdicts if v.verdict not in (verdict.MATCH, verdict.UNSTATED)]
    capped = "maxreq5000" in name  # asked is not granted: a warning
    assert said == ([("max_running_requests", "differs")] if capped else [])
    assert {e.setting for e in made(name).expectations} >= {"spec_algorithm", "model", "port", "max_total_tokens"}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("setting, value", [("tp", 4), ("kv_cache_dtype", "bfloat16"), ("attention_backend", "flashinfer")])
def test_the_same_start_proves_no_other_declaration(name, setting, value):
    with pytest.raises(startup.NotProved, match=f"{setting}: declared {value}, found"):
        proved(on_a_host(name, made(name, **{setting: value})))


def test_a_model_behind_a_symlink_is_echoed_by_the_name_that_was_declared():
    name, link = "0.5.23-window", {"model": "/srv/models/current", "served_name": "/srv/models/current"}
    host = on_a_host(
        name, made(name, **link), [line.replace("/srv/models/tiny-qwen3", link["model"]) for line in lines(name)]
    )
    linked = json.dumps(SERVER_INFO[name]).replace("/srv/models/tiny-qwen3", link["model"])
    host.answers["/server_info"] = json.loads(linked)
    assert proved(host)
