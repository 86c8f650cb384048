"""Tiny models for the CPU engine: a Qwen3 target and a DFlash drafter, written with the standard library only.

The weights are random, the same on every machine, and in the shapes that SGLang's loaders expect
(sglang 0.5.13 srt/models/qwen3.py and srt/models/dflash.py). They generate noise, quickly.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

HIDDEN = 32
INTERMEDIATE = 64
HEADS = 2
KV_HEADS = 1
HEAD_DIM = 16
TARGET_LAYERS = 3
CONTEXT_LENGTH = 4096  # tokens; above the window of 2048 that the demonstrations declare
BLOCK_SIZE = 8  # tokens that the drafter proposes at once
DRAFTER_WINDOW = 1024  # tokens; the checkpoint's own sliding window, not the flag
CAPTURED_LAYERS = [0, 1]  # target layers whose hidden states feed the drafter

SPECIAL_TOKENS = ["<pad>", "<s>", "</s>", "<mask>"]
PAD, BOS, EOS, MASK = range(4)
VOCABULARY = len(SPECIAL_TOKENS) + 256  # a token for each byte; no merges

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": TARGET_LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT_LENGTH,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
DFLASH = {
    **QWEN3,
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 2,
    "num_target_layers": TARGET_LAYERS,
    "block_size": BLOCK_SIZE,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": CAPTURED_LAYERS},
    "layer_types": ["sliding_attention", "full_attention"],
    "use_sliding_window": True,
    "sliding_window": DRAFTER_WINDOW,
    "max_window_layers": 0,
}


def write_models(directory: Path) -> None:
    """Write the target `tiny-qwen3` and its drafter `tiny-dflash` under `directory`."""
    _write(directory / "tiny-qwen3", QWEN3, _target_shapes(), seed=0)
    _write_tokenizer(directory / "tiny-qwen3")
    _write(directory / "tiny-dflash", DFLASH, _drafter_shapes(), seed=1)


def _target_shapes() -> dict[str, tuple[int, ...]]:
    return {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        **_layer_shapes("model.", TARGET_LAYERS),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }


def _drafter_shapes() -> dict[str, tuple[int, ...]]:
    """The drafter borrows embeddings and head of its target."""
    return {
        "fc.weight": (HIDDEN, len(CAPTURED_LAYERS) * HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        **_layer_shapes("", DFLASH["num_hidden_layers"]),
        "norm.weight": (HIDDEN,),
    }


def _layer_shapes(prefix: str, layers: int) -> dict[str, tuple[int, ...]]:
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = {
        "input_layernorm": (HIDDEN,),
        "self_attn.q_proj": (queries, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, queries),
        "self_attn.q_norm": (HEAD_DIM,),
        "self_attn.k_norm": (HEAD_DIM,),
        "post_attention_layernorm": (HIDDEN,),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    return {f"{prefix}layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in layer.items()}


def _write(directory: Path, config: dict, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
    directory.mkdir(parents=True)
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    (directory / "model.safetensors").write_bytes(safetensors(shapes, random.Random(seed)))


def safetensors(shapes: dict[str, tuple[int, ...]], rng: random.Random) -> bytes:
    """A safetensors file of bfloat16 tensors: norms (one dimension) are ones, the rest is Gaussian noise.

    The format: length of the header as a little-endian u64, the header in JSON, the raw values of all tensors.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes.items():
        begin = len(data)
        if len(shape) == 1:
            data += bfloat16(1.0) * shape[0]
        else:
            for _ in range(shape[0] * shape[1]):
                data += bfloat16(rng.gauss(0, 0.05))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, len(data)]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + bytes(data)


def bfloat16(value: float) -> bytes:
    """The upper two bytes of the little-endian float32, that is: rounded towards zero."""
    return struct.pack("<f", value)[2:]


def _write_tokenizer(directory: Path) -> None:
    """A byte-level BPE tokenizer without merges: every byte is one token."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *byte_level_alphabet()])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, **special} for i, token in enumerate(SPECIAL_TOKENS)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    _write_json(directory / "tokenizer.json", tokenizer)
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "model_max_length": CONTEXT_LENGTH,
        "chat_template": template,
    }
    _write_json(directory / "tokenizer_config.json", config)


def byte_level_alphabet() -> list[str]:
    """The printable character that byte-level BPE writes for each byte, in the order of the bytes 0 … 255.

    Printable bytes stand for themselves; the others take the characters from U+0100 on (GPT-2's `bytes_to_unicode`).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
