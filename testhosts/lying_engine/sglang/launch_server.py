"""A stand-in for SGLang's launcher: python -m sglang.launch_server OPTION …"""

import os
import signal
import sys
import threading
from multiprocessing import get_context
from multiprocessing.connection import wait

from sglang.recording import SCRIPT, since


def main(argv):
    from sglang.srt import http_server, mouth, server_args

    preamble = [line for line in SCRIPT["launcher"] if not line[0] and not line[1].startswith("\x1b")]
    for _, text, _ in preamble:
        os.write(2, (text + "\n").encode())
    given = server_args.prepare_server_args(argv)
    launcher = Launcher(mouth.Mouth({}), given)
    try:
        resolved = launcher.resolve()
    except Exception:
        if since(0, 5, 19):
            launcher.say_of_the_tree(False)
        raise
    scenario = mouth.scenario(resolved["port"])
    resolved.update(scenario.get("echo", {}))
    launcher.mouth = mouth.Mouth(scenario)
    launcher.echo(resolved)
    run = {**resolved, **scenario.get("run", {})}
    facts = launcher.start_workers(run, scenario)
    return http_server.serve(launcher, resolved, run, facts, scenario)


class Launcher:
    """The main process: starts the workers, and ends with them."""

    def __init__(self, mouth, given):
        self.mouth, self.given = mouth, given
        self.children, self.serving, self.stopping = [], False, False
        self.active = 0  # requests that are being answered

    def resolve(self):
        from sglang.srt import server_args

        try:
            if since(0, 5, 19):
                self.given.resolve_once()
                return self.given.resolved_dict()
            return dict(vars(self.given))
        finally:
            for text in server_args.said:
                self.mouth.say(text, stamped=since(0, 5, 19) or not text.startswith("\x1b"))

    def echo(self, resolved):
        form = repr(resolved)
        if not since(0, 5, 19):
            form = f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in resolved.items())})"
        lines = [line[1] for line in SCRIPT["launcher"] if line[0]]
        for text in lines:
            if text.startswith("server_args="):
                self.mouth.say(f"server_args={form}")
            elif "Overlap scheduler" not in text and "deprecated" not in text:  # its own resolver says those
                self.mouth.say(text.replace("⟨model⟩", str(resolved["model_path"])))

    def start_workers(self, run, scenario):
        """Start every rank and wait for all; what each replica was granted. Ends the process if one does."""
        from sglang.srt import scheduler

        signal.signal(signal.SIGQUIT, self.child_failed)
        spawn = get_context("spawn")
        connections = []
        for rank in range(run["dp_size"] * run["tp_size"]):
            ours, theirs = spawn.Pipe()
            dp, tp = divmod(rank, run["tp_size"])
            child = spawn.Process(
                target=scheduler.run_scheduler,
                args=(run, scenario, dp, tp, os.getpid(), theirs),
                name=f"scheduler_{rank}",
                daemon=True,
            )
            child.start()
            theirs.close()
            self.children.append(child)
            connections.append(ours)
        detokenizer = spawn.Process(target=scheduler.run_detokenizer, args=(os.getpid(),), name="detokenizer", daemon=True)
        detokenizer.start()
        facts = {}
        while len(facts) < len(connections):
            pending = [c for n, c in enumerate(connections) if n not in facts]
            for connection in wait(pending):
                rank = connections.index(connection)
                try:
                    facts[rank] = connection.recv()
                except EOFError:
                    self.died_at_init(rank)
        self.children.append(detokenizer)
        threading.Thread(target=self.watch, daemon=True).start()
        return [facts[rank] for rank in range(0, len(connections), run["tp_size"])]

    def died_at_init(self, rank):
        child = self.children[rank]
        child.join()
        code = child.exitcode
        raise RuntimeError(
            f"Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), a common "
            "cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        )

    def watch(self):
        """The real one's SubprocessWatchdog."""
        ended = wait([child.sentinel for child in self.children])
        dead = next(child for child in self.children if child.sentinel in ended)
        dead.join()
        if not self.stopping:
            self.mouth.say(
                f"Subprocess {dead.name} (pid={dead.pid}) crashed with exit code {dead.exitcode}. "
                "Triggering SIGQUIT for cleanup..."
            )
            os.kill(os.getpid(), signal.SIGQUIT)

    def child_failed(self, _signum=None, _frame=None):
        if self.serving:
            self.mouth.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        else:
            self.mouth.say("Received sigquit from a child process. It usually means the child failed.")
        self.kill_tree()

    def say_of_the_tree(self, with_us):
        pid = os.getpid()
        self.mouth.say(f"kill_process_tree called: parent_pid={pid}, include_parent={with_us}, pid={pid}")

    def kill_tree(self, with_us=True):
        """The children by SIGKILL, and this process too: that is how systemd comes to see 9/KILL."""
        self.stopping = True
        if with_us and since(0, 5, 13):
            self.say_of_the_tree(True)
        for child in self.children:
            child.kill()
        if with_us:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
