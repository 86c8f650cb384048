"""Every release from 0.5.11 to 0.5.23: what the contract says of it is what the released wheel has.

releases.json (read_releases.py) holds what was read from the wheels: the options and log templates that the contract speaks
of, with the first and the last release that has them.
"""

import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.sglang_proof import contract, plan, releases
from ansible.module_utils.sglang_proof.facts import EngineFacts, Option
from stage import CONFIGS, PYTHON, SETTINGS

FACTS = json.loads((Path(__file__).parent / "releases.json").read_text())
RELEASES = [f"0.5.{number}" for number in range(11, 24)]
EAGLE = {
    "spec_algorithm": "EAGLE3",
    "model": "/srv/models/target",
    "draft_model": "/srv/models/eagle",
    "steps": 3,
    "topk": 1,
    "draft_tokens": 4,
}
EVERYDAY = {  # whatever the algorithm
    "served_name": "kimi-k2.6", "trust_remote_code": True, "tp": 8, "dp": 1, "pp": 1, "nnodes": 1,
    "disaggregation_mode": None, "max_running_requests": 32, "max_total_tokens": 100000, "mem_fraction": 0.8,
    "kv_cache_dtype": "fp8_e4m3",
    "attention_backend": "triton", "moe_backend": "triton", "moe_a2a_backend": "none", "quantization": "compressed-tensors",
    "device": "cuda", "metrics": True, "log_level": "info", "host": "127.0.0.1", "least_context": 4096, "revision": "v1",
    "draft_revision": "main", "draft_quantization": "unquant",
}  # fmt: skip


def released(release):
    def has(first, last):
        return releases.within(release, f">={first},<={last}")

    options = tuple(Option(*option) for *option, first, last in FACTS["options"] if has(first, last))
    templates = tuple(text for text, first, last in FACTS["templates"] if has(first, last))
    return EngineFacts(release, options, templates, f"fingerprint of {release}")


def planned(release, settings):
    declaration = plan.declared(settings, "upstream", CONFIGS, release)
    return plan.make("k26", PYTHON, declaration, released(release))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("settings", [SETTINGS, EAGLE], ids=["DFLASH", "EAGLE3"])
def test_every_release_takes_the_whole_declaration(release, settings):
    made = planned(release, {**EVERYDAY, **settings})
    flags = [argument for argument in made.argv if argument.startswith("--")]
    assert made.family == "upstream"
    assert all(released(release).option(flag) for flag in flags)
    assert len(flags) == len(set(flags)) == len({**EVERYDAY, **settings}) - 3  # two are off, one is not told


@pytest.mark.parametrize("release", RELEASES)
def test_the_window_has_the_flag_and_the_echo_of_its_release(release):
    (window,) = [e for e in planned(release, SETTINGS).expectations if e.setting == "window"]
    name = "speculative_dflash_draft_window_size" if release == "0.5.11" else "speculative_draft_window_size"
    assert (window.carrier, window.echoed_as) == ("--" + name.replace("_", "-"), name)


@pytest.mark.parametrize("release", RELEASES)
def test_parallel_sizes_are_echoed_under_their_short_names(release):
    fields = {e.setting: e.echoed_as for e in planned(release, {**EVERYDAY, **SETTINGS}).expectations}
    assert (fields["tp"], fields["dp"], fields["pp"]) == ("tp_size", "dp_size", "pp_size")


def test_dflash_is_not_in_releases_before_0_5_11():
    with pytest.raises(plan.Refused) as refused:
        planned("0.5.10", SETTINGS)
    assert [problem for problem in refused.value.problems if "has no option for it" in problem] == [
        "spec_algorithm: SGLang 0.5.10 has no option for it; >=0.5.11 has; change sglang_version",
        "window: SGLang 0.5.10 has no option for it; ==0.5.11 or >=0.5.12 has; change sglang_version",
    ]


UPSTREAM_TEXTS = [
    *(text for entry in contract.SETTINGS if entry.family is None for text in entry.contradict),
    *(line.text for line in contract.FORBIDDEN),
]


@pytest.mark.parametrize("text", UPSTREAM_TEXTS)
def test_a_text_that_contradicts_is_one_that_the_newest_release_can_print(text):
    templates = released("0.5.23").templates
    assert any(text in re.sub(r"algorithm=\{\}", "algorithm=DFLASH", template) for template in templates)


def test_what_is_healthy_on_quantised_drafters_is_not_forbidden():
    line = "DFLASH fused KV materialization disabled: quantized draft qkv"
    assert not any(forbidden.text in line for forbidden in contract.FORBIDDEN)
