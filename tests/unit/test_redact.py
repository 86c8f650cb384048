"""No secret leaves the host: in mappings, command lines, and lines of text, whole or cut."""

from __future__ import annotations

import pytest
from ansible.module_utils.sglang_proof import redact
from hypothesis import given
from hypothesis import strategies as st

KEY = "sk-q7Zx!9 w"  # with a blank, as a quoted value may have
WORD = "sk-q7Zx!9"


SECRETS = """
    api_key admin_api_key --api-key --admin-api-key OPENAI_API_KEY X-API-Key apikey hf_token HF_TOKEN
    --hf-token HUGGING_FACE_HUB_TOKEN token ssl_keyfile_password PASSWORD client_secret AWS_SECRET_ACCESS_KEY
    watermark_key watermark_key_b Authorization
"""
NO_SECRETS = """
    tokenizer_path --tokenizer-path max_total_tokens num_draft_tokens --speculative-num-draft-tokens tokens
    mask_token mask_token_id eos_token_id speculative_token_map ssl_keyfile kt_max_deferred_experts_per_token
    new-token key PATH PWD forward_pass_metrics_worker_id disable_tokenizer_batch_decode model_path port
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_names_of_secrets(name):
    assert redact.is_secret(name)
    assert redact.mapping({name: WORD}) == {name: "[REDACTED]"}


@pytest.mark.parametrize("name", NO_SECRETS.split())
def test_names_of_no_secrets(name):
    assert not redact.is_secret(name)
    assert redact.mapping({name: WORD}) == {name: WORD}


def test_a_mapping_is_copied_at_any_depth_and_what_is_unset_stays_visible():
    given = {
        "api_key": None, "admin_api_key": KEY, "enable": True, "nested": [{"hf_token": KEY}],
        "launch_command": ["serve", "--api-key", KEY, "--port", "1"],
        "override": '{"api_key": "' + KEY + '", "a": 1}',
        "https_proxy": "http://user:" + WORD + "@proxy:3128",
    }  # fmt: skip
    shown = redact.mapping(given)
    assert shown == {
        "api_key": None, "admin_api_key": "[REDACTED]", "enable": True,
        "nested": [{"hf_token": "[REDACTED]"}],
        "launch_command": ["serve", "--api-key", "[REDACTED]", "--port", "1"],
        "override": '{"api_key": "[REDACTED]", "a": 1}',
        "https_proxy": "http://user:[REDACTED]@proxy:3128",
    }  # fmt: skip
    assert given["admin_api_key"] == KEY, "the original is left alone"
    assert redact.mapping(shown) == shown


def test_a_command_line_in_both_spellings():
    given = ["serve", "--api-key", KEY, f"--admin-api-key={KEY}", "--tokenizer-path", "/srv/t", "--api-key"]
    assert redact.argv(given) == [
        "serve", "--api-key", "[REDACTED]", "--admin-api-key=[REDACTED]",
        "--tokenizer-path", "/srv/t", "--api-key",
    ]  # fmt: skip


LINES = {
    "call": f"server_args=ServerArgs(port=1, api_key='{KEY}', tp_size=2)",
    "dict": f"server_args={{'port': 1, 'api_key': '{KEY}', 'tp_size': 2}}",
    "json": f'{{"port": 1, "api_key": "{KEY}", "tp_size": 2}}',
    "quoted json": f'args=\'{{\\"api_key\\": \\"{KEY}\\", \\"tp_size\\": 2}}\'',
    "object": f"SecretArgs(api_key=SecretStr('{KEY}'), tp_size=2)",
    "list": f"api_key=['{KEY}', '{KEY}'], tp_size=2",
    "printed argv": f"argv=['serve', '--api-key', '{KEY}', '--tp-size', '2']",
    "two words": f"sglang serve --api-key {WORD} --tp-size 2",
    "one word": f"sglang serve --api-key={WORD} --tp-size 2",
    "environment": f"Environment=HF_TOKEN={WORD} TP_SIZE=2",
    "whole assignment": f'Environment="HF_TOKEN={KEY}" "TP_SIZE=2"',
    "quoted after the name": f"'HF_TOKEN='{WORD}' TP_SIZE=2",
    "scheme of its own": f"Authorization: Token {WORD}, tp_size=2",
    "whole assignment in single quotes": f"Environment='HF_TOKEN={KEY}' TP_SIZE=2",
    "header": f"Authorization: Bearer {WORD} tp_size=2",
    "elided": f"server_args={{'port'...api_key': '{KEY}', 'tp_size': 2}}",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_a_line_loses_its_secret_and_nothing_else(line):
    shown = redact.text(line)
    assert WORD not in shown
    assert "[REDACTED]" in shown
    assert shown.lower().replace("-", "_").count("tp_size") == 1
    assert redact.text(shown) == shown


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_a_line_that_is_cut_shows_no_piece_of_its_secret(line):
    for end in range(len(line)):
        assert "sk-" not in redact.text(line[:end])


@pytest.mark.parametrize("value", ["None", "''", "[REDACTED]", "'[REDACTED]'"])
def test_what_hides_nothing_is_left(value):
    assert redact.text(f"ServerArgs(api_key={value}, b=1)") == f"ServerArgs(api_key={value}, b=1)"


@pytest.mark.parametrize(
    "line",
    [
        "Prefill batch, #new-seq: 1, #new-token: 27, #cached-token: 0, token usage: 0.01, #pending-token: 0",
        "DFLASH draft runner ready. mask_token=<|MASK|>, mask_token_id=3, mask_token_id_override=3",
        "max_total_num_tokens=4096, chunked_prefill_size=2048, input throughput (token/s): 6.07",
        "sglang serve --tokenizer-path /srv/t --speculative-num-draft-tokens 8",
        "GET http://127.0.0.1:30000/server_info",
    ],
)
def test_ordinary_lines_are_left(line):
    assert redact.text(line) == line


PIECES = ["api_key", "--api-key", "HF_TOKEN", "Bearer ", "None", "x", "é", *"=:,'\"\\()[]{} "]


@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
def test_twice_is_as_good_as_once(line):
    once = redact.text(line)
    assert redact.text(once) == once


PRINTABLE = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)


@given(PRINTABLE, st.sampled_from(["ServerArgs(a=1, api_key={!r}, b=2)", "{{'a': 1, 'api_key': {!r}, 'b': 2}}"]))
def test_any_secret_is_taken_out_of_a_printed_server_args(secret, form):
    marked = f"q7Zx{secret}q7Zx"
    shown = redact.text(form.format(marked))
    assert "q7Zx" not in shown
    assert shown.rstrip(")}").endswith("2")


@pytest.mark.parametrize("shape", ["a", "a.", "api_key=", "api_key='", " ", "\\", "://a", "--", "api_key=)", "-_"])
def test_long_lines_are_redacted_in_linear_time(shape):
    """200 kB of the worst: what is quadratic here hangs the suite."""
    redact.text(shape * (200_000 // len(shape)))
    redact.text("api_key=" + shape * (200_000 // len(shape)) + "x")
