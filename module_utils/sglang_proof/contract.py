"""The contract: for each setting, under an algorithm and an engine family, what carries it and which words prove it.

This table is the only place that knows an option, a field or a log line of SGLang. When SGLang renames something,
one entry here changes. Sources are given as file:line of the released package that says so.

Words
  carried_by   the option (by release) or environment variable that takes the value to the engine; the field under which
               `server_args=` and `/server_info` echo an option is the installed engine's own (facts.py)
  witnesses    what the engine itself says about the effect, and how that relates to the declaration
  contradict   texts; a line of the start that has one says that the setting is not in effect
  benign       texts; a line that has one looks like it, and says nothing against the setting
  claims       what of its host it takes, so that no other instance there may declare the same
  bounds, expectations and conditions are expressions (see expressions.py) over
    declared             the value of this setting, None if it is declared off
    NAME                 another setting, as declared or else its default
    drafter.K, target.K  a key of the model's config.json
  and what is said to people may hold any of these in braces.

A fork's contract (fork.py) brings entries of the same form, which win over these on its builds.
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
    """A line of the start-up log. Without `field` it is enough that the line is there ("present").

    relation: "eq", "le" or "ge": the found value is equal to, at most, or at least what `expect` says.
    """

    head: str
    field: str | None = None
    relation: str = "eq"
    expect: str = "declared"
    speaker: str = RANK_0_OF_EACH_REPLICA
    hop = "effective"


@dataclass(frozen=True)
class Granted:
    """A field (`a.b` is b in a) of `internal_states[]` of /server_info: what the scheduler granted, one per replica."""

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
    """What the engine would refuse, rewrite or ignore after the load, refused before."""

    when: str
    because: str


@dataclass(frozen=True)
class Note:
    """What the operator should know beside the table; {value} in the text is what `value` computes."""

    text: str
    when: str = "True"
    value: str = "None"


@dataclass(frozen=True)
class Claim:
    """What of a host one instance has alone; a value may name several with commas, and none declared takes all.

    within: a setting; what is claimed under another value of it is another thing. `when` as in Forbidden.
    """

    what: str
    within: str | None = None
    when: str = "True"


@dataclass(frozen=True)
class Forbidden:
    """A text that no line of a start may have, whatever is declared: what runs then is not what it looks like.

    when: only where this holds; it is taken to hold as long as it is not known.
    """

    text: str
    reason: str
    severity: str = CRITICAL
    algorithms: tuple = ()  # () = whatever the algorithm
    when: str = "True"


@dataclass(frozen=True)
class ForbiddenVariable:
    """The beginning of a variable's name that the engine's environment may not have. `when` as in Forbidden."""

    name: str
    reason: str
    when: str = "True"


@dataclass(frozen=True)
class Setting:
    name: str
    meaning: str
    type: object
    carried_by: tuple  # () = nothing is told to the engine: a demand on what it says, or on the plan
    source: str
    algorithms: tuple = ()  # () = whatever the algorithm, also without one
    family: str | None = None  # None = every family
    can_be_off: bool = False  # off = the option is left out, and the engine must say `off_echo`
    off_echo: object = None
    echo: str = "declared"  # what the engine echoes, where it rewrites what it is told
    default: str | None = None  # where the engine takes an undeclared value from
    needs: tuple = ()  # names that must be declared too
    refuse: tuple = ()
    witnesses: tuple = ()
    contradict: tuple = ()
    benign: tuple = ()
    claims: Claim | None = None
    notes: tuple = ()
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
        algorithms=("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"),
    ),
    Family(
        "upstream",
        "a released SGLang",
        algorithms=("DFLASH", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"),
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
# The EAGLE workers print no line of their own: what they run is proved by the echo, which comes after all rewrites.
STEP_DRAFTING = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")

ON_A_GPU = "device != 'cpu'"
PATH = Text(r"/[^\s]*", "an absolute path without blanks")
WORD = r"[A-Za-z0-9_.-]+"
# The chain of DFLASH has one candidate per step, so the engine rewrites both (arg_groups/speculative_hook.py).
ONLY_ONE = Refuse("declared != 1", "the engine rewrites it to 1 under {spec_algorithm} (one chain, one candidate per step)")
ADAPTIVE = Note("{name}: adaptive speculation changes it at run time; proved is what it starts with", "adaptive == True")
LOCAL = Note("{name}: the model is a directory, which has no revision: the engine is told, and it changes nothing")
# sglang#29907 ddtree_utils.py
TREE_WIDTH = "min(max(budget // (block_size - 1) + 1, 2), topk)"
# The drafter works on the target's hidden states, between the target's own embeddings and head (srt/models/dflash.py).
OF_ANOTHER_TARGET = (
    Refuse(
        "drafter.hidden_size != target.hidden_size",
        "its hidden_size is {drafter.hidden_size} and the target's {target.hidden_size}: a drafter of another target",
    ),
    Refuse(
        "drafter.vocab_size != target.vocab_size",
        "its vocab_size is {drafter.vocab_size} and the target's {target.vocab_size}: a drafter of another target",
    ),
    Refuse(
        "drafter.num_target_layers != target.num_hidden_layers",
        "it was made for {drafter.num_target_layers} layers and the target has {target.num_hidden_layers}",
    ),
    # Captured is the input of the layer after; after the last there is none, and the verification crashes.
    Refuse(
        "min(drafter.target_layer_ids) < 0 or max(drafter.target_layer_ids) > target.num_hidden_layers - 2",
        "it reads the target's layers {drafter.target_layer_ids}, of which 0 … {target.num_hidden_layers} - 2 can be read",
    ),
)

SETTINGS = (
    Setting(
        name="spec_algorithm",
        meaning="speculative decoding algorithm; none for plain decoding",
        type=Choice(("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"), fold="upper"),
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
        needs=("draft_model",),
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
        needs=("draft_model",),
        # Only the first line under DDTREE means that DFLASH runs.
        witnesses=(Line(DRAFT_RUNNER, relation="present"), Line(DDTREE_WORKER, relation="present")),
        source="sglang#29907 ddtree_worker.py",
    ),
    Setting(
        name="spec_algorithm",
        meaning="NEXTN: the draft layers that the target brings itself; another name of EAGLE",
        type=Choice(("NEXTN",), fold="upper"),
        carried_by=(Flag("--speculative-algorithm"),),
        algorithms=("NEXTN",),
        echo="'EAGLE'",
        source="sglang 0.5.23 srt/arg_groups/speculative_hook.py _resolve_speculative_algorithm_alias",
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
        algorithms=STEP_DRAFTING,
        source="sglang 0.5.23 srt/arg_groups/fields/spec.py",
    ),
    Setting(
        name="draft_model",
        meaning="directory of the drafter, made for this target",
        type=PATH,
        carried_by=(Flag("--speculative-draft-model-path"),),
        algorithms=BLOCK_DRAFTING,
        refuse=OF_ANOTHER_TARGET,
        benign=("DFLASH fused KV materialization disabled:",),  # said of every quantised drafter
        source="sglang 0.5.23 srt/speculative/dflash_utils.py DFlashDraftConfig, srt/models/qwen3.py layers_to_capture",
    ),
    Setting(
        name="revision",
        meaning="revision of the target model",
        type=Text(WORD, "a tag or a commit"),
        carried_by=(Flag("--revision"),),
        notes=(LOCAL,),
        source="sglang 0.5.23 srt/server_args.py revision",
    ),
    Setting(
        name="draft_revision",
        meaning="revision of the drafter",
        type=Text(WORD, "a tag or a commit"),
        carried_by=(Flag("--speculative-draft-model-revision"),),
        algorithms=(*BLOCK_DRAFTING, *STEP_DRAFTING),
        notes=(LOCAL,),
        source="sglang 0.5.23 srt/arg_groups/fields/spec.py; echoed as main where it is not declared",
    ),
    Setting(
        name="draft_quantization",
        meaning="quantisation of the drafter; the target's where it is not declared",
        type=Text(WORD, "a method like fp8 or unquant"),
        carried_by=(Flag("--speculative-draft-model-quantization"),),
        algorithms=(*BLOCK_DRAFTING, *STEP_DRAFTING),
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
        contradict=("--speculative-draft-window-size has no effect with speculative_algorithm=DFLASH",),
        # Wrong: the worker of DDTREE is DFLASH's, and the draft runner's line shows the window (sglang#29907).
        benign=("--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE",),
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
        notes=(
            Note(
                "{name}: the drafter was trained for blocks of {drafter.block_size}, declared are {declared}",
                "declared != drafter.block_size",
            ),
        ),
        source="sglang 0.5.23 srt/speculative/dflash_worker_v2.py:546; the drafter's config.json where it is not declared",
    ),
    Setting(
        name="steps",
        meaning="draft steps per verification",
        type=Integer(),
        carried_by=(Flag("--speculative-num-steps"),),
        algorithms=BLOCK_DRAFTING,
        refuse=(ONLY_ONE,),
        contradict=("DFLASH only supports speculative_num_steps == 1; overriding",),
        source="sglang 0.5.11 … 0.5.23: DFLASH only supports speculative_num_steps == 1",
    ),
    Setting(
        name="topk",
        meaning="candidates per step",
        type=Integer(),
        carried_by=(Flag("--speculative-eagle-topk"),),
        algorithms=("DFLASH",),
        refuse=(ONLY_ONE,),
        contradict=("DFLASH only supports speculative_eagle_topk == 1; overriding",),
        source="sglang 0.5.11 … 0.5.23: DFLASH only supports speculative_eagle_topk == 1",
    ),
    Setting(
        name="steps",
        meaning="draft steps per verification; chosen by the engine, with topk and draft_tokens, where none is declared",
        type=Integer(),
        carried_by=(Flag("--speculative-num-steps"),),
        algorithms=STEP_DRAFTING,
        needs=("topk", "draft_tokens"),
        notes=(ADAPTIVE,),
        source="sglang 0.5.23 srt/arg_groups/speculative_hook.py _handle_eagle_family: all three or none",
    ),
    Setting(
        name="topk",
        meaning="candidates per step",
        type=Integer(),
        carried_by=(Flag("--speculative-eagle-topk"),),
        algorithms=STEP_DRAFTING,
        needs=("steps", "draft_tokens"),
        refuse=(Refuse("adaptive == True and declared != 1", "adaptive speculation has one candidate per step"),),
        source="sglang 0.5.23 srt/arg_groups/speculative_hook.py _handle_eagle_family",
    ),
    Setting(
        name="draft_tokens",
        meaning="tokens that the target verifies at once",
        type=Integer(minimum="2"),
        carried_by=(Flag("--speculative-num-draft-tokens"),),
        algorithms=STEP_DRAFTING,
        needs=("steps", "topk"),
        refuse=(
            Refuse("topk == 1 and declared != steps + 1", "the engine rewrites it to steps + 1 at topk 1, steps is {steps}"),
        ),
        contradict=("speculative_num_draft_tokens is adjusted to speculative_num_steps + 1",),
        notes=(ADAPTIVE,),
        source="sglang 0.5.10 … 0.5.23: speculative_num_draft_tokens is adjusted to speculative_num_steps + 1",
    ),
    Setting(
        name="draft_tokens",
        meaning="tokens that the target verifies at once",
        type=Integer(minimum="2"),
        carried_by=(Flag("--speculative-num-draft-tokens"),),
        algorithms=("NGRAM",),
        default="12",
        source="sglang 0.5.23 srt/arg_groups/speculative_hook.py _handle_ngram",
    ),
    Setting(
        name="adaptive",
        meaning="the engine varies steps and draft_tokens with the acceptance it sees",
        type=Switch(),
        carried_by=(Flag("--speculative-adaptive"),),
        algorithms=("EAGLE", "EAGLE3", "NEXTN"),
        can_be_off=True,
        contradict=("speculative_adaptive disabled:",),
        source="sglang 0.5.23 srt/speculative/adaptive_spec_params.py adaptive_unsupported_reason",
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
        refuse=(
            Refuse(
                "declared >= block_size and attention_backend != 'triton'",
                "a tree (a budget of block_size = {block_size} or more) needs attention_backend triton",
            ),
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
        notes=(
            Note(
                "topk: {declared} is a cap; budget {budget} at block size {block_size} gives {value} candidates per node",
                "budget >= block_size",
                TREE_WIDTH,
            ),
            Note("topk: inert, budget {budget} at block size {block_size} is a plain chain", "budget < block_size"),
        ),
        source="sglang#29907 ddtree_utils.py; the value in effect is printed nowhere",
    ),
    Setting(
        name="topk_exact",
        meaning="refuse a topk that the budget does not reach",
        type=Switch(),
        carried_by=(),
        algorithms=("DDTREE",),
        family="ddtree",
        can_be_off=True,
        refuse=(
            Refuse(
                f"budget < block_size or topk != {TREE_WIDTH}",
                "topk {topk} is not reached by budget {budget} at block size {block_size}; "
                "it takes a budget of (topk - 1) * (block_size - 1)",
            ),
        ),
        source="sglang#29907 ddtree_utils.py",
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
        name="pp",
        meaning="stages that share one replica (pipeline parallel)",
        type=Integer(),
        carried_by=(Flag("--pp-size"),),
        source="sglang 0.5.23 srt/server_args.py pp_size",
    ),
    Setting(
        name="pp",
        meaning="stages that share one replica (pipeline parallel)",
        type=Integer(),
        carried_by=(Flag("--pp-size"),),
        algorithms=BLOCK_DRAFTING,
        refuse=(Refuse("declared != 1", "{spec_algorithm} runs in one stage only"),),
        source="sglang 0.5.11 … 0.5.23: Currently DFLASH speculative decoding only supports pp_size == 1",
    ),
    Setting(
        name="nnodes",
        meaning="hosts that share one engine",
        type=Integer(),
        carried_by=(Flag("--nnodes"),),
        refuse=(
            Refuse("declared != 1", "the followers of an engine over several hosts print none of the lines that prove it"),
        ),
        source="sglang 0.5.23 srt/entrypoints/engine.py:1234",
    ),
    Setting(
        name="disaggregation_mode",
        meaning="prefill and decode in engines of their own",
        type=Choice(("prefill", "decode")),
        carried_by=(Flag("--disaggregation-mode"),),
        can_be_off=True,
        off_echo="null",
        refuse=(
            Refuse("declared != None", "a split engine says ready also where its warm-up failed, so nothing proves it"),
        ),
        source="sglang 0.5.23 srt/entrypoints/http_server.py",
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
        name="least_context",
        meaning="tokens that the key-value pool must hold at least, so that a request of that length is served",
        type=Integer(maximum="context_length"),
        carried_by=(),
        witnesses=(Granted("memory_usage.token_capacity", relation="ge"),),
        source="sglang 0.5.23 srt/managers/scheduler.py:2719; a context_length above the pool is accepted (sglang#4048)",
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
        name="moe_backend",
        meaning="kernels of the mixture of experts",
        type=Text(WORD, "a backend like triton or flashinfer_cutlass"),
        carried_by=(Flag("--moe-runner-backend"),),
        source="sglang 0.5.23 srt/server_args.py moe_runner_backend",
    ),
    Setting(
        name="moe_a2a_backend",
        meaning="exchange of tokens between the experts of several GPUs",
        type=Text(WORD, "a backend like deepep"),
        carried_by=(Flag("--moe-a2a-backend"),),
        can_be_off=True,
        off_echo="none",
        source="sglang 0.5.23 srt/server_args.py moe_a2a_backend",
    ),
    Setting(
        name="quantization",
        meaning="quantisation of the target; what its config.json says where it is not declared",
        type=Text(WORD, "a method like fp8 or compressed-tensors"),
        carried_by=(Flag("--quantization"),),
        source="sglang 0.5.23 srt/server_args.py quantization",
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
        name="gpus",
        meaning="GPUs that the engine sees, by number or UUID; all of the host where it is not declared",
        type=Text(r"(\d+|GPU-[0-9a-f-]+)(,(\d+|GPU-[0-9a-f-]+))*", "numbers or UUIDs with commas, quoted: '0,1'"),
        carried_by=(Environment("CUDA_VISIBLE_DEVICES"),),
        claims=Claim("GPU", when=ON_A_GPU),
        source="CUDA; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it count as nvidia-smi does",
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
        name="metrics",
        meaning="serve /metrics",
        type=Switch(),
        carried_by=(Flag("--enable-metrics"),),
        can_be_off=True,
        source="sglang 0.5.23 srt/server_args.py enable_metrics",
    ),
    Setting(
        name="log_level",
        meaning="level of the log",
        type=Text("debug|info", "debug or info: at any other level the engine prints none of the lines that prove it"),
        carried_by=(Flag("--log-level"),),
        source="sglang 0.5.23 srt/utils/common.py:2618 configure_logger",
    ),
    Setting(
        name="host",
        meaning="address to listen on",
        type=Text(r"[0-9A-Fa-f.:]+|localhost", "an IP address"),
        carried_by=(Flag("--host"),),
        default="'127.0.0.1'",
        source="sglang 0.5.23 srt/server_args.py host",
    ),
    Setting(
        name="port",
        meaning="TCP port to listen on",
        type=Integer(minimum="1", maximum="65535"),
        carried_by=(Flag("--port"),),
        default="30000",
        claims=Claim("port", within="host"),
        source="sglang 0.5.23 srt/server_args.py port",
    ),
)

FORBIDDEN = (
    Forbidden(
        "DFLASH non-greedy verification is unavailable",
        "the temperature of requests is ignored: every reply is the greedy one",
        algorithms=BLOCK_DRAFTING,
        when=ON_A_GPU,
    ),
    Forbidden("Simulated acceptance", "the acceptance is made up (SGLANG_SIMULATE_ACC_LEN)"),
    Forbidden(
        "DFLASH fused KV initialization failed",
        "the drafter fills its cache layer by layer: right, and slower",
        severity=WARNING,
        algorithms=BLOCK_DRAFTING,
        when=ON_A_GPU,
    ),
    Forbidden(
        "DFLASH fused KV append",  # "… failed" up to 0.5.13, "…-by-loc failed" later
        "the drafter fills its cache layer by layer: right, and slower",
        severity=WARNING,
        algorithms=BLOCK_DRAFTING,
        when=ON_A_GPU,
    ),
    Forbidden(
        "Disable DFLASH draft cuda graph",
        "each draft step is launched kernel by kernel: right, and slower",
        severity=WARNING,
        algorithms=BLOCK_DRAFTING,
        when=ON_A_GPU,
    ),
)

FORBIDDEN_VARIABLES = (
    ForbiddenVariable("SGLANG_SIMULATE_", "it makes acceptance up, so nothing measured would mean anything"),
    ForbiddenVariable("SGLANG_LOGGING_CONFIG_PATH", "it replaces the log format in which the engine proves what it runs"),
    ForbiddenVariable(
        "SGLANG_USE_CPU_ENGINE", "CPU code takes the place of the GPU's, which only device: cpu may say", ON_A_GPU
    ),
    ForbiddenVariable("TRITON_INTERPRET", "GPU kernels run in Python, which only device: cpu may say", ON_A_GPU),
)


@dataclass(frozen=True)
class Contract:
    """Families, settings and forbidden lines that are asked together: the built-in ones, or a fork's over them."""

    families: tuple = FAMILIES
    settings: tuple = SETTINGS
    forbidden: tuple = FORBIDDEN

    def family_of(self, facts):
        """The family of an installed engine (facts.EngineFacts)."""
        return next(family for family in self.families if all(facts.option(option) for option in family.options))

    def names(self):
        """All names of settings, in the order of the contract."""
        return list(dict.fromkeys(setting.name for setting in self.settings))

    def find(self, name, algorithm, family):
        """The entry for a setting here: of the family, or the algorithm, before the one for all. None if there is none."""
        fitting = [s for s in self.settings if s.name == name and s.applies(algorithm, family)]
        return max(fitting, key=lambda s: (s.family is not None, bool(s.algorithms)), default=None)

    def benign(self, algorithm, family):
        """The texts of lines that only look like a contradiction here."""
        return [text for setting in self.settings if setting.applies(algorithm, family) for text in setting.benign]

    def elsewhere(self, name):
        """The entries of a name that may apply under another algorithm or on another build."""
        return [s for s in self.settings if s.name == name]


BUILT_IN = Contract()
family_of, names, find, elsewhere = BUILT_IN.family_of, BUILT_IN.names, BUILT_IN.find, BUILT_IN.elsewhere
