"""The contract: for each setting, under an algorithm and an engine family, what carries it and which words prove it.

This table is the only place that knows an option, a field or a log line of SGLang. When SGLang renames something,
one entry here changes. Sources are given as file:line of the released package that says so.

Words
  carried_by   the option (by release) or environment variable that takes the value to the engine; the field under which
               `server_args=` and `/server_info` echo an option is the installed engine's own (facts.py)
  witnesses    what the engine itself says about the effect, and how that relates to the declaration
  bounds, expectations and conditions are expressions (see expressions.py) over
    declared             the value of this setting, None if it is declared off
    NAME                 another setting, as declared or else its default
    drafter.K, target.K  a key of the model's config.json
"""

from __future__ import annotations

from dataclasses import dataclass

from . import releases
from .settings import Choice, Integer, Number, Switch, Text

CRITICAL, WARNING = "critical", "warning"

# Who says a line: tensor-parallel rank 0 of each data-parallel replica (0.5.11 dflash_worker.py:188, scheduler.py:690).
RANK_0_OF_EACH_REPLICA = "rank 0 of each replica"


@dataclass(frozen=True)
class Flag:
    """A command-line option."""

    option: str
    releases: str = ""


@dataclass(frozen=True)
class Environment:
    """An environment variable; the engine does not echo it."""

    name: str
    releases: str = ""


@dataclass(frozen=True)
class Line:
    """A line of the start-up log. Without `field` it is enough that the line is there ("present")."""

    head: str
    field: str | None = None
    relation: str = "eq"
    expect: str = "declared"
    speaker: str = RANK_0_OF_EACH_REPLICA
    hop = "effective"


@dataclass(frozen=True)
class Granted:
    """A field of `internal_states[]` of /server_info that holds what the scheduler granted, one entry per replica."""

    field: str
    relation: str = "eq"
    expect: str = "declared"
    hop = "effective"


@dataclass(frozen=True)
class Served:
    """A field of /model_info: what the process behind the port serves now."""

    field: str
    relation: str = "eq"
    expect: str = "declared"
    hop = "served"


@dataclass(frozen=True)
class Refuse:
    """What the engine would refuse or rewrite after the load, refused before. `because` may name {declared}."""

    when: str
    because: str


@dataclass(frozen=True)
class Setting:
    name: str
    meaning: str
    type: object
    carried_by: tuple
    source: str
    algorithms: tuple = ()  # () = whatever the algorithm, also without one
    family: str | None = None  # None = every family
    can_be_off: bool = False  # off = the option is left out, and the engine must say None
    default: str | None = None  # where the engine takes an undeclared value from
    refuse: tuple = ()
    witnesses: tuple = ()
    severity: str = CRITICAL

    def carrier(self, release):
        """What carries the setting in this release, or None."""
        return next((c for c in self.carried_by if releases.within(release, c.releases)), None)

    def applies(self, algorithm, family):
        """Does the entry speak of this algorithm on this family? A family of None is one that is not known yet."""
        return (family is None or self.family in (None, family)) and (not self.algorithms or algorithm in self.algorithms)


@dataclass(frozen=True)
class Family:
    """Builds that share one set of options and lines, recognised by what is installed, never by the version it bears."""

    name: str
    meaning: str
    options: tuple = ()
    algorithms: tuple = ()


FAMILIES = (  # the first whose options are all there
    Family(
        "ddtree",
        "the public DDTree pull request (sglang#29907) on top of a release",
        options=("--speculative-ddtree-budget",),
        algorithms=("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM"),
    ),
    Family(
        "upstream",
        "a released SGLang",
        algorithms=("DFLASH", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM"),
    ),
)

# The wording is the same from 0.5.11 to 0.5.23; the ranks of a replica print it once, rank 0.
DRAFT_RUNNER = "Initialized DFLASH draft runner."
DDTREE_WORKER = "Initialized DDTree worker."
# The pool line has no text in front of its first field (managers/scheduler.py, 0.5.11 … 0.5.23).
POOL = "max_total_num_tokens="
# How a whole line ends: one that a collector cut inside its last value would look whole.
ENDINGS = {
    DRAFT_RUNNER: r"compact_cache=(?:True|False)",
    DDTREE_WORKER: r"max_tree_nodes=\d+",
    POOL: r"available_\w+_mem=[\d.]+ GB",
}

BLOCK_DRAFTING = ("DFLASH", "DDTREE")  # DDTREE runs on the DFLASH worker and prints its line too

PATH = Text(r"/[^\s]*", "an absolute path without blanks")
# The chain of DFLASH has one candidate per step, so the engine rewrites both (arg_groups/speculative_hook.py).
ONLY_ONE = Refuse("declared != 1", "the engine rewrites it to 1 under {spec_algorithm} (one chain, one candidate per step)")

SETTINGS = (
    Setting(
        name="spec_algorithm",
        meaning="speculative decoding algorithm; none for plain decoding",
        type=Choice(("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM"), fold="upper"),
        carried_by=(Flag("--speculative-algorithm"),),
        can_be_off=True,
        source="sglang 0.5.23 srt/arg_groups/fields/spec.py; choices up to 0.5.11, free text later",
    ),
    Setting(
        name="spec_algorithm",
        meaning="DFLASH: a block-diffusion drafter proposes one chain of block_size tokens",
        type=Choice(("DFLASH",), fold="upper"),
        carried_by=(Flag("--speculative-algorithm", releases=">=0.5.11"),),
        algorithms=("DFLASH",),
        witnesses=(Line(DRAFT_RUNNER, relation="present"),),
        source="sglang 0.5.11 srt/server_args.py:5367",
    ),
    Setting(
        name="spec_algorithm",
        meaning="DDTREE: a tree of candidates over the DFLASH drafter",
        type=Choice(("DDTREE",), fold="upper"),
        carried_by=(Flag("--speculative-algorithm"),),
        algorithms=("DDTREE",),
        family="ddtree",
        # Only the first line under DDTREE means that DFLASH runs.
        witnesses=(Line(DRAFT_RUNNER, relation="present"), Line(DDTREE_WORKER, relation="present")),
        source="sglang#29907 ddtree_worker.py",
    ),
    Setting(
        name="model",
        meaning="directory of the target model",
        type=PATH,
        carried_by=(Flag("--model-path"),),
        witnesses=(Served("model_path"),),
        source="sglang 0.5.23 srt/entrypoints/http_server.py model_info",
    ),
    Setting(
        name="draft_model",
        meaning="directory of the drafter",
        type=PATH,
        carried_by=(Flag("--speculative-draft-model-path"),),
        algorithms=("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "STANDALONE"),
        source="sglang 0.5.23 srt/arg_groups/fields/spec.py",
    ),
    Setting(
        name="window",
        meaning="tokens of context that the drafter attends to; none for all of it",
        type=Integer(minimum="block_size", maximum="context_length"),
        carried_by=(
            Flag("--speculative-dflash-draft-window-size", releases="==0.5.11"),
            Flag("--speculative-draft-window-size", releases=">=0.5.12"),
        ),
        algorithms=BLOCK_DRAFTING,
        can_be_off=True,
        witnesses=(
            Line(DRAFT_RUNNER, field="draft_window_size"),
            Line(DRAFT_RUNNER, field="compact_cache", expect="declared != None"),
        ),
        source="sglang 0.5.11 srt/speculative/dflash_worker.py:76-81, 0.5.23 dflash_worker_v2.py:405-406, 546",
    ),
    Setting(
        name="block_size",
        meaning="tokens that the drafter proposes in one step, the seeded one included",
        type=Integer(minimum="2"),
        carried_by=(Flag("--speculative-num-draft-tokens"),),
        algorithms=BLOCK_DRAFTING,
        default="drafter.block_size",
        witnesses=(Line(DRAFT_RUNNER, field="block_size"),),
        source="sglang 0.5.23 srt/speculative/dflash_worker_v2.py:546; the drafter's config.json where it is not declared",
    ),
    Setting(
        name="steps",
        meaning="draft steps per verification",
        type=Integer(),
        carried_by=(Flag("--speculative-num-steps"),),
        algorithms=BLOCK_DRAFTING,
        refuse=(ONLY_ONE,),
        source="sglang 0.5.11 … 0.5.23: DFLASH only supports speculative_num_steps == 1",
    ),
    Setting(
        name="topk",
        meaning="candidates per step",
        type=Integer(),
        carried_by=(Flag("--speculative-eagle-topk"),),
        algorithms=("DFLASH",),
        refuse=(ONLY_ONE,),
        source="sglang 0.5.11 … 0.5.23: DFLASH only supports speculative_eagle_topk == 1",
    ),
    Setting(
        name="budget",
        meaning="nodes of the draft tree beside its root; up to block_size - 1 it is a plain chain",
        type=Integer(),
        carried_by=(Flag("--speculative-ddtree-budget"),),
        algorithms=("DDTREE",),
        family="ddtree",
        witnesses=(
            Line(DDTREE_WORKER, field="tree_budget"),
            Line(DDTREE_WORKER, field="max_tree_nodes", expect="declared + 1"),
        ),
        source="sglang#29907 ddtree_worker.py, ddtree_utils.py",
    ),
    Setting(
        name="topk",
        meaning="most candidates per node: a cap, the engine computes min(max(budget // (block_size - 1) + 1, 2), cap)",
        type=Integer(),
        carried_by=(Environment("SGLANG_DDTREE_MAX_TOPK"),),
        algorithms=("DDTREE",),
        family="ddtree",
        source="sglang#29907 ddtree_utils.py; the value in effect is printed nowhere",
    ),
    Setting(
        name="tp",
        meaning="GPUs that share one replica (tensor parallel)",
        type=Integer(),
        carried_by=(Flag("--tp-size"),),
        default="1",
        source="sglang 0.5.23 srt/server_args.py tp_size",
    ),
    Setting(
        name="dp",
        meaning="replicas of the engine in this service (data parallel)",
        type=Integer(),
        carried_by=(Flag("--dp-size"),),
        default="1",
        source="sglang 0.5.23 srt/server_args.py dp_size",
    ),
    Setting(
        name="context_length",
        meaning="tokens of context of one request",
        type=Integer(maximum="target.max_position_embeddings"),
        carried_by=(Flag("--context-length"),),
        default="target.max_position_embeddings",
        witnesses=(Line(POOL, field="context_len"),),
        source="sglang 0.5.23 srt/managers/scheduler.py:1268",
    ),
    Setting(
        name="max_running_requests",
        meaning="requests decoded at once, all replicas together",
        type=Integer(),
        carried_by=(Flag("--max-running-requests"),),
        # Asked is not granted: capped by the pool, silently up to 0.5.13, and divided under DP attention.
        witnesses=(Granted("effective_max_running_requests_per_dp"),),
        severity=WARNING,
        source="sglang 0.5.23 srt/model_executor/kv_cache_configurator.py:3128; internal_states since 0.5.10",
    ),
    Setting(
        name="max_total_tokens",
        meaning="tokens in the key-value pool, at most",
        type=Integer(),
        carried_by=(Flag("--max-total-tokens"),),
        witnesses=(Line(POOL, field="max_total_num_tokens", relation="le"),),
        severity=WARNING,
        source="sglang 0.5.23 srt/managers/scheduler.py:1268",
    ),
    Setting(
        name="mem_fraction",
        meaning="share of GPU memory for weights and pool",
        type=Number(0.01, 0.99),
        carried_by=(Flag("--mem-fraction-static"),),
        severity=WARNING,  # lowered by the engine for multimodal models (sglang#5576)
        source="sglang 0.5.23 srt/server_args.py mem_fraction_static",
    ),
    Setting(
        name="kv_cache_dtype",
        meaning="number format of the key-value pool",
        type=Text(r"[a-z0-9_]+", "a format like auto, bfloat16 or fp8_e4m3"),
        carried_by=(Flag("--kv-cache-dtype"),),
        source="sglang 0.5.23 srt/server_args.py kv_cache_dtype",
    ),
    Setting(
        name="attention_backend",
        meaning="attention kernels of the target",
        type=Text(r"[a-z0-9_]+", "a backend like triton or flashinfer"),
        carried_by=(Flag("--attention-backend"),),
        source="sglang 0.5.23 srt/server_args.py attention_backend",
    ),
    Setting(
        name="draft_attention_backend",
        meaning="attention kernels of the drafter; the target's where it is not declared",
        type=Text(r"[a-z0-9_]+", "a backend like triton or flashinfer"),
        carried_by=(Flag("--speculative-draft-attention-backend"),),
        algorithms=BLOCK_DRAFTING,
        witnesses=(Line(DRAFT_RUNNER, field="attention_backend"),),
        source="sglang 0.5.23 srt/speculative/dflash_worker_v2.py:546",
    ),
    Setting(
        name="device",
        meaning="cuda, or cpu for the demo",
        type=Choice(("cuda", "cpu")),
        carried_by=(Flag("--device"),),
        source="sglang 0.5.23 srt/server_args.py device",
    ),
    Setting(
        name="served_name",
        meaning="name of the model in the API",
        type=Text(r"[^\s]+", "a name without blanks"),
        carried_by=(Flag("--served-model-name"),),
        source="sglang 0.5.23 srt/server_args.py served_model_name",
    ),
    Setting(
        name="trust_remote_code",
        meaning="run Python code that the model's directory brings",
        type=Switch(),
        carried_by=(Flag("--trust-remote-code"),),
        can_be_off=True,
        source="sglang 0.5.23 srt/server_args.py trust_remote_code",
    ),
    Setting(
        name="host",
        meaning="address to listen on",
        type=Text(r"[0-9A-Fa-f.:]+|localhost", "an IP address"),
        carried_by=(Flag("--host"),),
        source="sglang 0.5.23 srt/server_args.py host",
    ),
    Setting(
        name="port",
        meaning="TCP port to listen on",
        type=Integer(minimum="1", maximum="65535"),
        carried_by=(Flag("--port"),),
        source="sglang 0.5.23 srt/server_args.py port",
    ),
)


def family_of(facts):
    """The family of an installed engine (facts.EngineFacts)."""
    return next(family for family in FAMILIES if all(facts.option(option) for option in family.options))


def names():
    """All names of settings, in the order of the contract."""
    return list(dict.fromkeys(setting.name for setting in SETTINGS))


def find(name, algorithm, family):
    """The entry for a setting here: the one that names the algorithm before the one for all. None if there is none."""
    fitting = [s for s in SETTINGS if s.name == name and s.applies(algorithm, family)]
    return max(fitting, key=lambda s: (bool(s.algorithms), s.family is not None), default=None)


def elsewhere(name):
    """The entries of a name that may apply under another algorithm or on another build."""
    return [s for s in SETTINGS if s.name == name]
