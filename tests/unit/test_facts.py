"""What is read from an engine's source: small engines, written here in the two ways that SGLang has used."""

from __future__ import annotations

import json
import os

import pytest
from ansible.module_utils.sglang_proof.facts import (
    EngineFacts,
    NotAnEngine,
    Option,
    installation_key,
    read_engine,
    source_key,
)

CALLS = '''
import argparse
from x import DeprecatedStoreTrueAction, DeprecatedAliasStoreAction

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        """Not an option: parser.add_argument("--in-a-docstring")"""
        parser.add_argument("--model-path", "--model", type=str)
        parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", dest="tp_size", type=int)
        parser.add_argument("--speculative-draft-window-size", type=int, default=ServerArgs.window)
        parser.add_argument(
            "--old-window",
            dest="speculative_draft_window_size",
            action=DeprecatedAliasStoreAction,
            help=argparse.SUPPRESS,
        )
        parser.add_argument("--disable-radix", action="store_true")
        parser.add_argument("--old-switch", action=DeprecatedStoreTrueAction)
        parser.add_argument("--lora", nargs="*", action=LoRAPathAction)
        parser.add_argument("--level", nargs="?", const=1)
        parser.add_argument("--graph", action=argparse.BooleanOptionalAction)
'''
ACTIONS = """
class DeprecatedStoreTrueAction(argparse.Action):
    def __init__(self, option_strings, dest, new_flag=None, nargs=0, const=True, **kwargs):
        pass

class DeprecatedAliasStoreAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=None, **kwargs):
        pass
"""
RECORD_CLASS = """
class Spec:
    plain: int = 3
    port: A[int, "The port."] = 30000
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp"]), NS("parallel")] = 1
    skip: A[bool, "A switch."] = False
    maybe: A[bool | None, "A switch."] = None
    urls: A[Optional[List[str]], "Many."] = None
    table: A[Optional[List[int]], Arg(help="One JSON text.", type_parser=json_list_type)] = None
    hidden: A[bool, Arg(no_cli=True)] = False
    unregistered: A[int, NS("spec")] = 0
    lora: A[Optional[list], Arg(action=LoRAPathAction, action_kwargs={"type": str, "nargs": "*"})] = None
    graph: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True
"""
LOGS = """
import logging
logger = logging.getLogger(__name__)

def f(self, x):
    # logger.info("in a comment")
    logger.info(
        "Initialized DFLASH draft runner. attention_backend=%s, "
        "draft_window_size=%s, ratio=%.2f, done=100%%",
        x, x, x,
    )
    logger.info(f"{server_args=}")
    logger.warning_once("no values: 100%")
    self.logger.error(f"a {x!r:>4} b" + str(x) + " c")
    logger.debug("never printed by default")
    log_info_on_rank0(logger, f"on rank {x}")
    message = f"Decode batch, {x}"
    message += f", queue {x}"
    logger.info(message)
    logger.info("old %s style" % x)
    logger.info("{} format".format(x))
    logger.exception(x)
    match x:
        case 1:
            logger.info("newer syntax than this Python's is around")
"""


@pytest.fixture
def engine(tmp_path):
    """Writes an engine from {path in the package: content}; returns its package and metadata directories."""

    def write(files, metadata="Name: sglang\nVersion: 0.5.13\n"):
        package = tmp_path / "sglang"
        for name, content in {"srt/server_args.py": CALLS, **files}.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        if metadata is None:
            return package, None
        info = tmp_path / "sglang.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(metadata)
        return package, info

    return write


def test_options_of_add_argument_calls(engine):
    facts = read_engine(*engine({"srt/arg_groups/argparse_actions.py": ACTIONS}))
    assert {option.flag: (option.field, option.values) for option in facts.options} == {
        "--model-path": ("model_path", "one"),
        "--model": ("model_path", "one"),
        "--tensor-parallel-size": ("tp_size", "one"),
        "--tp-size": ("tp_size", "one"),
        "--tp": ("tp_size", "one"),
        "--speculative-draft-window-size": ("speculative_draft_window_size", "one"),
        "--old-window": ("speculative_draft_window_size", "one"),
        "--disable-radix": ("disable_radix", "none"),
        "--old-switch": ("old_switch", "none"),
        "--lora": ("lora", "many"),
        "--level": ("level", "optional"),
        "--graph": ("graph", "none"),
        "--no-graph": ("graph", "none"),
    }


def test_options_of_annotated_fields(engine):
    package = engine({"srt/server_args.py": "", "srt/arg_groups/fields/spec.py": RECORD_CLASS})
    assert {option.flag: (option.field, option.values) for option in read_engine(*package).options} == {
        "--port": ("port", "one"),
        "--tensor-parallel-size": ("tp_size", "one"),
        "--tp": ("tp_size", "one"),
        "--skip": ("skip", "none"),
        "--maybe": ("maybe", "none"),
        "--urls": ("urls", "many"),
        "--table": ("table", "one"),
        "--lora": ("lora", "many"),
        "--graph": ("graph", "none"),
        "--no-graph": ("graph", "none"),
    }


def test_a_field_that_the_engine_renames_has_its_new_name(engine):
    renames = (
        CALLS
        + """
parser.add_argument("--data-parallel-size", "--dp-size", type=int)

def from_cli_args(cls, args):
    args.dp_size = args.data_parallel_size
"""
    )
    facts = read_engine(*engine({"srt/server_args.py": renames}))
    assert facts.option("--dp-size").field == facts.option("--data-parallel-size").field == "dp_size"


def test_an_option_is_known_by_its_exact_spelling_only(engine):
    facts = read_engine(*engine({}))
    assert facts.option("--old-window") == Option(
        "--old-window", "speculative_draft_window_size", "DeprecatedAliasStoreAction", "one"
    )
    assert facts.option("--speculative-draft-window") is None
    assert facts.abbreviates("--speculative-draft-window") == ("--speculative-draft-window-size",)
    assert facts.abbreviates("--tp") == ("--tp-size",)
    assert facts.abbreviates("--tp-size") == ()


def test_log_templates_have_placeholders_for_values(engine):
    facts = read_engine(*engine({"srt/speculative/worker.py": LOGS}))
    assert set(facts.templates) == {
        "Decode batch, {}",
        ", queue {}",
        "Initialized DFLASH draft runner. attention_backend={}, draft_window_size={}, ratio={}, done=100%",
        "a {} b{} c",
        "newer syntax than this Python's is around",
        "no values: 100%",
        "old {} style",
        "on rank {}",
        "server_args={}",
        "{} format",
    }


def test_a_template_is_found_by_its_beginning(engine):
    facts = read_engine(*engine({"srt/speculative/worker.py": LOGS}))
    assert facts.has_template("Initialized DFLASH draft runner.")
    assert not facts.has_template("DFLASH draft runner")


@pytest.mark.parametrize(
    "change",
    [
        {"srt/speculative/worker.py": LOGS.replace("DFLASH", "DDTREE")},
        {"srt/server_args.py": CALLS.replace("--old-window", "--older-window")},
    ],
)
def test_a_fork_of_the_same_release_has_another_fingerprint(engine, change):
    base = read_engine(*engine({"srt/speculative/worker.py": LOGS}))
    fork = read_engine(*engine(change))
    assert fork.release == base.release
    assert fork.fingerprint != base.fingerprint


@pytest.mark.parametrize(
    ("version_file", "content"),
    [
        ("_version.py", "__version__ = version = '0.5.14.dev3+gabc'\n"),
        ("version.py", '__version__ = "0.5.14.dev3+gabc"\n'),
    ],
)
def test_a_checkout_without_metadata_tells_its_release(engine, version_file, content):
    assert read_engine(*engine({version_file: content}, metadata=None)).release == "0.5.14.dev3+gabc"


def test_facts_survive_json(engine):
    facts = read_engine(*engine({"srt/speculative/worker.py": LOGS}))
    assert EngineFacts.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts


def test_a_directory_without_an_engine_is_refused(engine):
    with pytest.raises(NotAnEngine, match="declare no option"):
        read_engine(*engine({"srt/server_args.py": ""}))
    with pytest.raises(NotAnEngine, match=r"METADATA.*_version\.py"):
        read_engine(*engine({}, metadata="Name: sglang\n"))


def test_a_file_patched_in_place_changes_the_key_of_the_cache(engine):
    package, info = engine({"srt/speculative/worker.py": LOGS})
    before = source_key(package, info)
    worker = package / "srt/speculative/worker.py"
    os.utime(worker, ns=(0, 0))
    assert source_key(package, info) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda site: (site / "sglang" / "a.py").write_text("patched = 1"),
        lambda site: (site / "torch-2.dist-info" / "RECORD").write_text("torch/x.so,sha256=other,1"),
        lambda site: (site / "sitecustomize.py").write_text("import os; os.environ['SGLANG_SIMULATE_ACC_LEN'] = '6'"),
        lambda site: (site / "hook.pth").write_text("import hook"),
    ],
    ids=["engine patched", "dependency replaced", "sitecustomize", "start-up hook"],
)
def test_another_installation_has_another_key_whatever_its_version(tmp_path, change):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "a.py").write_text("")
    (tmp_path / "torch-2.dist-info").mkdir()
    (tmp_path / "torch-2.dist-info" / "RECORD").write_text("torch/x.so,sha256=one,1")
    before = installation_key(tmp_path / "sglang")
    assert installation_key(tmp_path / "sglang") == before
    change(tmp_path)
    assert installation_key(tmp_path / "sglang") != before


@pytest.mark.parametrize(
    "templates, last",
    [
        (["Worker. a={}, window={}"], "window"),
        (["Worker. a={}, window={} tokens"], None),
        (["Worker. a={}, window={}", "Worker. a={}"], None),  # nobody knows which of them it is
        (["Another. a={}"], None),
    ],
)
def test_the_last_field_of_a_message_is_known_where_it_ends_the_line(templates, last):
    assert EngineFacts("0.5.13", (), tuple(templates), "f").last_field("Worker.") == last
