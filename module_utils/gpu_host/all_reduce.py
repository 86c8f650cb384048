"""An all-reduce among the cards of a host, timed and its sum checked: what one rank does.

A topology matrix that says OK is no proof that two cards reach each other: hosts whose matrix was OK hung in their first
all-reduce (NVIDIA/nccl#1999). The engine's interpreter runs this file once for each rank, so it imports nothing of this
package. The ranks find each other through a file.

    RANK=0 WORLD_SIZE=2 all_reduce.py BACKEND RENDEZVOUS SECONDS      (nccl: rank N on card N; gloo: on the CPU)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

MARKER = "gpu-host-all-reduce: "
SMALL, LARGE = 32 * 2**10, 64 * 2**20  # bytes: a decode step's, and one that fills the links
REPEATS = {SMALL: 50, LARGE: 3}


def parse(printed: str) -> dict | None:
    """What rank 0 measured: {latency_us, bus_gb_per_s}, or None if it has not come so far."""
    for line in printed.splitlines():
        if line.startswith(MARKER):
            return json.loads(line[len(MARKER) :])
    return None


def main(backend: str, rendezvous: str, seconds: str) -> None:
    # Whoever started the ranks ends them in time. Should it die itself, they must not hold the cards for ever.
    signal.alarm(int(seconds) + 10)
    import torch  # in the engine's Python
    import torch.distributed  # in the engine's Python

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(f"cuda:{rank}" if backend == "nccl" else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)

    def finished() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic()

    took = {}
    for size in (SMALL, LARGE):
        # whole numbers, so that the sum is exact in float32, and another at each place
        pattern = torch.arange(size // 4, device=device, dtype=torch.float32).remainder_(251)
        tensor = pattern * (rank + 1)
        torch.distributed.all_reduce(tensor)
        if not torch.equal(tensor, pattern * (ranks * (ranks + 1) // 2)):
            sys.exit(f"rank {rank}: wrong sum in an all-reduce of {size} bytes among {ranks} ranks")
        begin = finished()
        for _ in range(REPEATS[size]):
            torch.distributed.all_reduce(tensor)
        took[size] = (finished() - begin) / REPEATS[size]
    if rank == 0:
        moved = 2 * (ranks - 1) / ranks * LARGE  # bytes through each link of a ring
        measured = {"latency_us": round(took[SMALL] * 1e6, 1), "bus_gb_per_s": round(moved / took[LARGE] / 1e9, 2)}
        print("\n" + MARKER + json.dumps(measured), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
