"""What reading a GPU host costs it: CPU seconds of gpu_host_facts, with the start of Python and all programs that it calls.

    sudo python3 bench/gpu_facts.py

Prints seconds; nothing of it is a test. On a test host with eight fake cards and an installed driver. nvidia-smi is a
stand-in in Python there and is shown by itself: the real one costs what the real driver takes.
"""

from __future__ import annotations

from project import give, on_host, python

HOST = "bench2"
AIM = 0.3
# Runs on the host: the least of five, because other things move on a busy machine.
MEASURE = """
import resource, subprocess, sys
def cpu():
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
def cost(*command):
    costs = []
    for _ in range(5):
        before = cpu()
        subprocess.run(command, cwd="/root/bench", check=True, stdout=subprocess.DEVNULL)
        costs.append(cpu() - before)
    return min(costs)
smi = cost("nvidia-smi", "-q", "-x")
facts = cost(sys.executable, "-c", "from module_utils import gpu_host_reading; gpu_host_reading.read()")
print(f"{facts - smi:.3f} {smi:.3f}")
"""


def main():
    layer = python("testhosts.fake_gpu", "--driver", "580.95.05").strip()
    python("testhosts", "up", "--layer", layer, HOST)
    try:
        give(HOST)
        facts, smi = on_host(HOST, "python3", "-c", MEASURE).split()
    finally:
        python("testhosts", "down", HOST)
    print(f"facts of a host with eight cards: {facts} CPU s (aim {AIM}), beside {smi} of the stand-in for nvidia-smi")


if __name__ == "__main__":
    main()
