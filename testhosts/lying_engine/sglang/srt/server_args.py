"""Part of a stand-in for SGLang: what it makes of its arguments, as far as the project speaks of it.

Up to 0.5.18 the fields hold what was resolved; from 0.5.19 what was given, and `resolved_dict()` what was resolved.
"""

import argparse
import copy
import json
import os
from dataclasses import field, make_dataclass
from pathlib import Path

from sglang.recording import FIELDS, FORK, since

from .arg_groups.options import add_options

ALGORITHMS = ("DFLASH", "EAGLE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE")
STEPS = ("EAGLE", "EAGLE3", "STANDALONE")
said = []  # what the resolver warned of, in order; the launcher prints it


def prepare_server_args(argv):
    """ServerArgs of a command line. Raises SystemExit and ValueError as the real one does."""
    if "--config" in argv:  # not --config=FILE, which the real one never reads either
        at = argv.index("--config")
        argv = [*_from_file(argv[at + 1]), *argv[:at], *argv[at + 2 :]]
    parser = argparse.ArgumentParser(prog="sglang serve")
    add_options(parser)
    given = vars(parser.parse_args(argv))
    given.pop("config", None)
    server_args = ServerArgs(**given)
    if not since(0, 5, 19):
        vars(server_args).update(resolve(vars(server_args)))
    return server_args


def _from_file(path):
    """The arguments of a YAML file of plain `key: value` lines."""
    for line in Path(path).read_text().splitlines():
        key, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            yield from ("--" + key.strip().replace("_", "-"), value.strip().strip("\"'"))


def resolve_once(self):
    self.resolved = self.resolved or resolve(self.given())


def given(self):
    return {name: value for name, value in vars(self).items() if name != "resolved"}


def resolved_dict(self):
    return self.resolved


ServerArgs = make_dataclass(
    "ServerArgs",
    [(name, object, field(default_factory=lambda value=value: copy.copy(value))) for name, value in FIELDS.items()],
    namespace={"resolve_once": resolve_once, "resolved_dict": resolved_dict, "given": given, "resolved": None}
    if since(0, 5, 19)
    else {},
)


def resolve(given):
    """Field → value as the engine uses it. Raises ValueError and OSError for what it refuses."""
    args = dict(given)
    target = model_config(args["model_path"])
    args["tokenizer_path"] = args["tokenizer_path"] or args["model_path"]
    args["served_model_name"] = str(args["served_model_name"] or args["model_path"])
    args["device"] = args["device"] or "cuda"
    if args["disable_cuda_graph"] and since(0, 5, 14):
        said.append(
            "\033[1;33m'--disable-cuda-graph' is deprecated and will be removed in a future release. "
            "Use '--cuda-graph-backend-{decode,prefill}=disabled' instead.\033[0m"
        )
    if not args["attention_backend"]:
        said.append("Attention backend not specified. Use triton backend by default.")
        args["attention_backend"] = "triton"
    if args["dp_size"] == 1 and "attn_dp_size" in args:
        args["attn_dp_size"] = 1
    _speculative(args, target)
    args["random_seed"] = args["random_seed"] or int.from_bytes(os.urandom(4), "little") >> 2
    return args


def model_config(path):
    """config.json of a model. Raises OSError in the words of the real one."""
    try:
        return json.loads(Path(path or "", "config.json").read_text())
    except PermissionError:
        raise
    except OSError:
        raise OSError(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed."
        ) from None


def _speculative(args, target):
    algorithm = str(args["speculative_algorithm"] or "").upper()
    if not algorithm:
        return
    if algorithm not in ALGORITHMS and not (FORK and algorithm == "DDTREE"):
        raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
    args["speculative_algorithm"] = "EAGLE" if algorithm == "NEXTN" else algorithm
    if args["speculative_draft_model_path"] and args["speculative_draft_model_revision"] is None:
        args["speculative_draft_model_revision"] = "main"
    if args["max_running_requests"] is None:
        args["max_running_requests"] = 48
        said.append(
            "Max running requests is reset to 48 for speculative decoding. "
            "You can override this by explicitly setting --max-running-requests."
        )
    if algorithm in ("DFLASH", "DDTREE"):
        _block_drafting(args, algorithm)
    elif algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        _step_drafting(args)
    elif algorithm == "NGRAM":
        args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or 12
        args["speculative_eagle_topk"] = args["speculative_ngram_max_bfs_breadth"]
    window = _window(args)
    if window is not None and algorithm != "DFLASH" and since(0, 5, 13):
        honoured = (
            "DFLASH, Llama EAGLE-3, and the EAGLE/MTP/NEXTN draft-decode path on the Triton/FlashInfer draft backends"
            if since(0, 5, 21)
            else "Llama EAGLE-3 and DFLASH only"
        )
        said.append(
            f"--speculative-draft-window-size has no effect with speculative_algorithm={algorithm} (honored by {honoured})."
        )


def _window(args):
    return args.get("speculative_draft_window_size", args.get("speculative_dflash_draft_window_size"))


def _block_drafting(args, algorithm):
    if not args["speculative_draft_model_path"]:
        raise ValueError(f"{algorithm} speculative decoding requires setting --speculative-draft-model-path.")
    if args["pp_size"] != 1:
        raise ValueError("Currently DFLASH speculative decoding only supports pp_size == 1.")
    drafter = model_config(args["speculative_draft_model_path"])
    for name in ("speculative_num_steps", "speculative_eagle_topk"):
        if args[name] not in (None, 1):
            said.append(f"DFLASH only supports {name} == 1; overriding {name}={args[name]} to 1.")
        args[name] = 1
    if args["speculative_dflash_block_size"]:
        if args["speculative_num_draft_tokens"] not in (None, args["speculative_dflash_block_size"]):
            raise ValueError(
                "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
                "For DFLASH they must match."
            )
        args["speculative_num_draft_tokens"] = args["speculative_dflash_block_size"]
    block = args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or drafter.get("block_size", 16)
    window, flag = _window(args), "--speculative-draft-window-size"
    if not since(0, 5, 12):
        flag = "DFLASH --speculative-dflash-draft-window-size"
    if window is not None and window <= 0:
        raise ValueError(f"{flag} must be positive, got {window}.")
    if window is not None and window < block:
        raise ValueError(
            f"{flag} must be >= --speculative-num-draft-tokens (block_size). window_size={window}, block_size={block}."
        )
    if not since(0, 5, 14):
        said.append("Overlap scheduler is disabled when using DFLASH speculative decoding (spec v2 is not supported yet).")
        args["disable_overlap_schedule"] = True
    if args["enable_mixed_chunk"] and not since(0, 5, 19):
        said.append("Mixed chunked prefill is disabled because of using dflash speculative decoding.")
        args["enable_mixed_chunk"] = False
    if since(0, 5, 15):
        args["speculative_draft_attention_backend"] = (
            args["speculative_draft_attention_backend"] or args["attention_backend"]
        )
    if algorithm == "DDTREE":
        _tree(args, block)


def _tree(args, block):
    args["disable_overlap_schedule"] = True
    budget = args["speculative_ddtree_budget"]
    if budget is None:
        budget = args["speculative_ddtree_budget"] = block
        said.append(f"Inferred speculative_ddtree_budget={budget} from speculative_num_draft_tokens={block} for DDTREE.")
    if budget < 1:
        raise ValueError(f"speculative_ddtree_budget must be positive, got {budget}.")
    if budget >= block and args["attention_backend"] != "triton":
        raise ValueError(
            "DDTREE full-tree mode currently supports only the triton attention backend. "
            f"Got attention_backend={args['attention_backend']}."
        )


def _step_drafting(args):
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if all(args[name] is None for name in names):
        args.update(zip(names, (3, 1, 4), strict=True))
    steps, topk, tokens = (args[name] for name in names)
    if topk == 1 and tokens != steps + 1:
        said.append("speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1")
        args["speculative_num_draft_tokens"] = steps + 1
