"""The three kernels that DFLASH of SGLang 0.5.23 can't do without on a CPU, in a few lines of Python.

`req_to_token[request, position]` is where in the KV cache the token at a position of a request lies; offsets are
positions, a start and an end for each request; `out_cache_loc` holds the locations of all requests, one request
after the other. The Triton kernels that do the same on a GPU are in SGLang's srt/mem_cache/allocation.py,
kernels/ops/speculative/cache_locs.py and kernels/ops/kvcache/cache_move.py.
"""

import ctypes


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """Write the locations into the rows of their requests."""
    for row, start, end, taken in _spans(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """Read the locations from the rows of their requests."""
    for row, start, end, taken in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[taken : taken + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)


def _spans(rows, starts, ends):
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield row, start, end, taken
        taken += end - start


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    """Copy entries from `src_loc` to `tgt_loc` in every buffer; a stride is the size of an entry in bytes."""
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        entries = [ctypes.string_at(address + source * stride, stride) for source in src_loc.tolist()]
        for target, entry in zip(tgt_loc.tolist(), entries, strict=True):
            ctypes.memmove(address + target * stride, entry, stride)
