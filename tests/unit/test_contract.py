"""The contract is data: what it says must be well formed, and must agree with what SGLang's releases have."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.sglang_proof import contract, expressions, releases
from ansible.module_utils.sglang_proof.settings import Integer

NAMES = {*contract.names(), "declared"}


def expressions_of(entry):
    if isinstance(entry.type, Integer):
        yield from filter(None, (entry.type.minimum, entry.type.maximum))
    yield from filter(None, (entry.default, entry.echo, *(refusal.when for refusal in entry.refuse)))
    yield from (witness.expect for witness in entry.witnesses)
    yield from (text for note in entry.notes for text in (note.when, note.value))


def known(name):
    return name in NAMES or name.startswith(("drafter.", "target."))


@pytest.mark.parametrize("entry", contract.SETTINGS, ids=lambda e: f"{e.name}-{'-'.join(e.algorithms)}")
def test_an_entry_is_well_formed(entry):
    for text in expressions_of(entry):
        assert all(map(known, expressions.names_in(text))), text
    for said in (*(refusal.because for refusal in entry.refuse), *(note.text for note in entry.notes)):
        assert all(known(name) or name in ("name", "value") for name in re.findall(r"\{(.*?)\}", said)), said
    assert set(entry.needs) <= NAMES
    assert entry.carried_by or entry.witnesses or entry.refuse
    assert entry.source and entry.severity in (contract.CRITICAL, contract.WARNING)
    assert all(witness.relation in ("eq", "le", "ge", "present") for witness in entry.witnesses)
    assert all(witness.field or witness.relation == "present" for witness in entry.witnesses)
    for carrier in entry.carried_by:
        releases.within("0.5.13", carrier.releases)


@pytest.mark.parametrize("line", [*contract.FORBIDDEN, *contract.FORBIDDEN_VARIABLES], ids=lambda line: line.reason[:20])
def test_the_condition_of_what_is_forbidden_speaks_of_settings(line):
    assert expressions.names_in(line.when) <= NAMES


@pytest.mark.parametrize(
    "release, option",
    [
        ("0.5.11", "--speculative-dflash-draft-window-size"),
        ("0.5.12", "--speculative-draft-window-size"),
        ("0.5.12.post1", "--speculative-draft-window-size"),
        ("0.5.23", "--speculative-draft-window-size"),
    ],
)
def test_the_window_has_the_name_of_its_release(release, option):
    assert contract.find("window", "DFLASH", "upstream").carrier(release).option == option


def test_topk_is_another_setting_under_another_algorithm():
    assert isinstance(contract.find("topk", "DFLASH", "upstream").carrier("0.5.23"), contract.Flag)
    assert isinstance(contract.find("topk", "DDTREE", "ddtree").carrier("0.5.23"), contract.Environment)
    assert contract.find("topk", "DDTREE", "upstream") is None


def test_an_entry_of_a_family_goes_before_one_of_an_algorithm():
    general = contract.find("window", "DFLASH", "upstream")
    own = replace(general, family="house", algorithms=())
    for settings in ((own, general), (general, own)):
        assert contract.Contract(settings=settings).find("window", "DFLASH", "house") is own
        assert contract.Contract(settings=settings).find("window", "DFLASH", "upstream") is general


@pytest.mark.parametrize(
    "span, release, inside",
    [
        ("", "0.5.9", True), ("==0.5.12", "0.5.12.post1", True), (">=0.5.12", "0.5.9", False), (">=0.5.9", "0.5.12", True),
        (">=0.5.12,<0.5.20", "0.5.19", True), (">=0.5.12,<0.5.20", "0.5.20", False), ("!=0.5.3", "0.5.30", True),
        ("<=0.5.12", "0.5.12.post1", True), (">0.5.12", "0.5.12.post1", False), ("==0.5", "0.5.0.0", True),
        ("==0.0", "0", True), ("==0.5.12", "0.5.12+cu129", True), (">=0.5.12, <0.5.20", " 0.5.13", True),
    ],
)  # fmt: skip
def test_ranges_of_releases(span, release, inside):
    assert releases.within(release, span) is inside


@pytest.mark.parametrize(
    "span, release, said",
    [
        ("0.5.12", "0.5.13", "'0.5.12' is not a comparison like >=0.5.12"),
        (">=0.5.12,", "0.5.13", "'' is not a comparison"),
        (">=v0.5.12", "0.5.13", "'v0.5.12' is not a release number like 0.5.13"),
        (">=0.5.12", "0.5.13rc1", "'0.5.13rc1' is not a release number"),
    ],
)
def test_a_range_or_a_release_that_means_nothing_is_refused(span, release, said):
    with pytest.raises(ValueError, match=said):
        releases.within(release, span)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "a.b.c", "[1]", "lambda: 1", "a if b else c", "a < b < c", "open(1)", "1 +", "f'{a}'", "2**9",
        "min(1, 2, key=a)", "a.min(1, 2)", "1.5", "b'a'", "not a", "a is None", "a[0]", "",
    ],
)  # fmt: skip
def test_the_grammar_is_closed(text):
    with pytest.raises(expressions.Malformed):
        expressions.parse(text)


@pytest.mark.parametrize(
    "text, value",
    [
        ("declared", 16), ("drafter.block_size", 8), ("min(declared, 4)", 4),
        ("declared // (drafter.block_size - 1) + 1", 3), ("declared != None", True), ("max(min(2, 3), 1)", 2),
        ("declared == 16 and drafter.block_size != 8", False), ("declared == 1 or drafter.block_size == 8", True),
        ("max(drafter.layers) > 3", True), ("'cpu' == 'cuda'", False),
    ],
)  # fmt: skip
def test_expressions(text, value):
    assert expressions.evaluate(text, {"declared": 16, "drafter.block_size": 8, "drafter.layers": [1, 4]}) == value


def test_the_names_of_an_expression_are_what_it_needs_to_know():
    assert expressions.names_in("min(declared, drafter.block_size) != 'dp'") == {"declared", "drafter.block_size"}
    assert expressions.names_in("drafter.k == drafter") == {"drafter.k", "drafter"}


def test_a_name_without_a_value_is_unknown_and_no_default():
    with pytest.raises(expressions.Unknown, match=r"target\.max"):
        expressions.evaluate("min(4, target.max)", {})


@pytest.mark.parametrize("text", ["off < 4", "min(4, off)", "4 // zero", "max(zero)"])
def test_what_cannot_be_computed_is_unknown(text):
    with pytest.raises(expressions.Unknown):
        expressions.evaluate(text, {"off": None, "zero": 0})


def test_the_page_of_the_settings_is_up_to_date():
    root = Path(__file__).resolve().parents[2]
    page = subprocess.run([sys.executable, root / "docs/settings.py"], capture_output=True, text=True, check=True).stdout
    assert (root / "docs/settings.md").read_text() == page, "python3 docs/settings.py > docs/settings.md"


def test_the_short_names_of_the_role_are_settings():
    root = Path(__file__).resolve().parents[2]
    variables = yaml.safe_load((root / "roles/sglang_service/vars/main.yml").read_text())
    assert set(variables["__sglang_service_short"]) <= set(contract.names())
