"""Part of a stand-in for SGLang: its HTTP API, its warm-up and its end."""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sglang.recording import RELEASE, SCRIPT, filled, since

READY = "The server is fired up and ready to roll!"
WORDS = ("the", "fox", "river", "of", "quiet", "light", "over", "old", "stones", "where", "nobody", "goes", "but", "rain")
OPEN = ("/health", "/ready", "/metrics")  # without a key (srt/utils/auth.py)
DRAIN_TICK = 0.05


def serve(launcher, resolved, run, facts, scenario):
    """Say the last lines of the start, serve until SIGTERM, and return the status of the process."""
    say = launcher.mouth.say
    server = None
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_stop, args=(launcher,)).start())
    warm = not resolved["skip_server_warmup"] and scenario.get("listen", True)
    here = {"pid": os.getpid(), "port": resolved["port"], "address": f"{resolved['host']}:{resolved['port']}"}
    skipping = False
    for stamped, text, _ in SCRIPT["serving"]:
        skipping = (text.startswith("post-warmup freeze_gc") or (skipping and not stamped)) and warm
        if skipping or (warm and text == READY):
            continue
        if "Uvicorn running on" in text:
            server = _listen(resolved, scenario, say)
            if server is None and scenario.get("listen", True):
                return _port_is_taken(resolved, say, warm)
            if server:
                server.bind_state(launcher, resolved, run, facts, scenario)
                threading.Thread(target=server.serve_forever, daemon=True).start()
        say(filled(text, here), stamped)
    if warm:
        _warm_up(resolved, say, launcher)
        say(READY)
    launcher.serving = True
    while True:  # signal.pause() would miss one that came just before
        time.sleep(0.2)


def _listen(resolved, scenario, say):
    if not scenario.get("listen", True):
        return None
    try:
        return Server((resolved["host"], resolved["port"]), Handler)
    except OSError as error:
        say(
            f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
            f"('{resolved['host']}', {resolved['port']}): address already in use"
        )
        return None


def _port_is_taken(resolved, say, warm):
    """The real one's warm-up reaches whoever holds the port, and is content."""
    say("INFO:     Waiting for application shutdown.")
    if not warm or _answers(resolved):
        say(READY)
    say("INFO:     Application shutdown complete.")
    os._exit(3)


def _answers(resolved):
    try:
        with _opener().open(f"http://127.0.0.1:{resolved['port']}/model_info", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _opener():
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _warm_up(resolved, say, launcher):
    """One request to itself, through the socket, as the real one does."""
    host = resolved["host"] if resolved["host"] not in ("0.0.0.0", "::") else "127.0.0.1"
    headers = {"Content-Type": "application/json"}
    if resolved["api_key"]:
        headers["Authorization"] = f"Bearer {resolved['api_key']}"
    body = {"text": "The capital city of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    for path, data in (("/model_info", None), ("/generate", body)):
        url = f"http://{host}:{resolved['port']}{path}"
        request = urllib.request.Request(url, data=data and json.dumps(data).encode(), headers=headers)
        try:
            with urllib.request.build_opener().open(request, timeout=120) as answer:  # through a proxy, if one is set
                answer.read()
        except OSError as error:
            say(f"Initialization failed. warmup error: {error}")
            launcher.kill_tree()


def _stop(launcher):
    """SIGTERM: drains, and ends as the release does, up to 0.5.18 by its own SIGKILL."""
    if launcher.stopping:
        return
    launcher.stopping = True
    for _, text, _ in SCRIPT["stopping"]:
        if text.startswith("Gracefully exiting"):
            while launcher.active:
                time.sleep(DRAIN_TICK)
        if "ERROR:" not in text:
            launcher.mouth.say(filled(text, {"pid": os.getpid()}))
    for child in launcher.children:
        child.kill()
    if since(0, 5, 19):
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def bind_state(self, launcher, resolved, run, facts, scenario):
        self.launcher, self.resolved, self.run, self.facts, self.scenario = launcher, resolved, run, facts, scenario
        self.model = {"model_path": resolved["model_path"], "weight_version": resolved.get("weight_version", "default")}
        self.thresholds = {}
        self.served, self.tokens, self.generating = 0, 0, 0
        self.lock = threading.Lock()

    def handle_error(self, _request, _address):
        """A client that goes away is no event."""

    def server_info(self):
        states = [
            {
                **self.run,
                **self.thresholds,
                "effective_max_running_requests_per_dp": facts["granted"],
                "memory_usage": {"weight": 0.01, "kvcache": 0.1, "token_capacity": facts["tokens"], "graph": 0.0},
                "last_gen_throughput": 0.0,
                **({"avg_spec_accept_length": self.accepted()} if self.accepted() and self.served else {}),
            }
            for facts in self.facts
        ]
        info = {
            **self.resolved,
            **self.model,
            "max_total_num_tokens": self.facts[0]["tokens"],
            "internal_states": states,
            "version": RELEASE,
        }
        if since(0, 5, 20):
            info["launch_command"] = " ".join(["python", "-m", "sglang.launch_server", *sys.argv[1:]])
        return info

    def accepted(self):
        """Tokens per verification step of the drafter that is not there; None without speculation."""
        return 3.2 if self.run["speculative_algorithm"] else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """The engine's own access log: see `answer`."""

    def do_GET(self):
        self.handled(self.path.partition("?")[0], None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.handled(self.path, json.loads(body or b"{}"))
        except ValueError:
            self.answer(400, {"error": {"message": "the body is no JSON"}})

    def handled(self, path, body):
        server = self.server
        with server.lock:
            server.launcher.active += 1
        try:
            key = server.resolved["api_key"]
            if key and not path.startswith(OPEN) and self.headers.get("Authorization") != f"Bearer {key}":
                return self.answer(401, {"error": "Unauthorized"})
            lies = server.scenario.get("answers", {}) if server.launcher.serving else {}
            return self.told(path, body, lies.get(path, {}))
        finally:
            with server.lock:
                server.launcher.active -= 1

    def told(self, path, body, lie):
        """Answer as the scenario wants it."""
        if "do" in lie:
            self.server.launcher.mouth.do(lie)
        if "status" in lie:
            return self.answer(lie["status"], lie.get("body", {"error": "told to"}))
        if path in ("/generate", "/v1/completions", "/v1/chat/completions") and body is not None:
            with self.counted():
                return self.generate(path, body, lie.get("patch", {}))
        answer = self.facts(path, body)
        if answer is None:
            return self.answer(404, {"detail": "Not Found"})
        return self.answer(200, merged(answer, lie.get("patch", {})))

    @contextlib.contextmanager
    def counted(self):
        """A request that the scheduler has."""
        with self.server.lock:
            self.server.generating += 1
        try:
            yield
        finally:
            with self.server.lock:
                self.server.generating -= 1

    def facts(self, path, body):
        server = self.server
        name = str(server.resolved["served_model_name"])
        if body is not None:
            return self.change(path, body)
        if path in ("/health", "/health_generate"):
            return ""
        if path in ("/server_info", "/get_server_info"):
            return server.server_info()
        if path in ("/model_info", "/get_model_info"):
            return {
                **server.model, "tokenizer_path": server.resolved["tokenizer_path"], "is_generation": True,
                "preferred_sampling_params": None,
            }  # fmt: skip
        if path == "/v1/models":
            model = {"id": name, "object": "model", "created": 0, "owned_by": "sglang", "root": name}
            return {"object": "list", "data": [{**model, "max_model_len": server.facts[0]["context"]}]}
        if path == "/v1/loads":
            busy = server.generating
            load = {"num_running_reqs": busy, "num_waiting_reqs": 0, "num_used_tokens": 64 * busy}
            return {"version": RELEASE, "loads": [{"dp_rank": rank, **load} for rank in range(len(server.facts))]}
        if path == "/metrics" and server.resolved["enable_metrics"]:
            return metrics(server, name)
        return None

    def change(self, path, body):
        """What the API changes while the engine runs."""
        if path == "/update_weights_from_disk":
            self.server.model["model_path"] = body["model_path"]
            self.server.model["weight_version"] = body.get("weight_version", self.server.model["weight_version"])
            return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
        if path == "/set_internal_state":
            self.server.thresholds.update(body.get("server_args", {}))
            return {"updated": True}
        if path == "/flush_cache":
            return "Cache flushed.\n"
        return None

    def generate(self, path, body, patch):
        server = self.server
        sampling = body.get("sampling_params", body)
        count = sampling.get("max_new_tokens") or sampling.get("max_tokens") or sampling.get("max_completion_tokens") or 16
        prompt = json.dumps(body.get("messages") or body.get("prompt") or body.get("text"))
        seed = prompt if not sampling.get("temperature") else uuid.uuid4().hex
        words = [" " + word for word in random.Random(seed).choices(WORDS, k=count)]
        launcher = server.launcher
        if server.resolved["log_requests"]:
            launcher.mouth.say(f"Receive: obj=GenerateReqInput(rid={body.get('rid')!r})")
        launcher.mouth.say(
            "Prefill batch, #new-seq: 1, #new-token: 5, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
        )
        with server.lock:
            server.served += 1
            server.tokens += count
        answer = self.whole(path, body, words, patch)
        pause = server.scenario.get("token_seconds", 0)
        if not body.get("stream"):
            time.sleep(pause * count)
            return self.answer(200, answer)
        return self.stream(path, answer, words, pause)

    def whole(self, path, body, words, patch):
        text, name = "".join(words), body.get("model") or str(self.server.resolved["served_model_name"])
        usage = {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}
        if path == "/generate":
            accepted = self.server.accepted()
            meta = {
                "id": uuid.uuid4().hex, "finish_reason": {"type": "length", "length": len(words)}, "prompt_tokens": 5,
                "completion_tokens": len(words), "cached_tokens": 0, "e2e_latency": 0.01,
                **({"spec_accept_length": accepted, "spec_verify_ct": int(len(words) / accepted)} if accepted else {}),
            }  # fmt: skip
            return merged({"text": text, "meta_info": meta}, patch)
        chat = path.startswith("/v1/chat")
        choice = {"index": 0, "finish_reason": "length", "logprobs": None}
        choice.update({"message": {"role": "assistant", "content": text}} if chat else {"text": text})
        kind = "chat.completion" if chat else "text_completion"
        answer = {"id": uuid.uuid4().hex, "object": kind, "created": int(time.time()), "model": name}
        return merged({**answer, "choices": [choice], "usage": usage}, patch)

    def stream(self, path, answer, words, pause):
        """Server-sent events, one a token; chunked, so that the connection lives on."""
        self.access(200)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        so_far = ""
        for number, word in enumerate(words, 1):
            time.sleep(pause)
            so_far += word
            if path == "/generate":
                event = {**answer, "text": so_far}
            else:
                end = "length" if number == len(words) else None
                delta = {"delta": {"content": word}} if path.startswith("/v1/chat") else {"text": word}
                kind = answer["object"] + (".chunk" if path.startswith("/v1/chat") else "")
                event = {**answer, "object": kind, "choices": [{"index": 0, "finish_reason": end, **delta}]}
            self.chunk(f"data: {json.dumps(event)}\n\n")
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def answer(self, status, content):
        plain = isinstance(content, str)
        data = (content if plain else json.dumps(content, default=repr)).encode()
        self.access(status)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4" if plain else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def access(self, status):
        host, port = self.client_address[:2]
        reason = self.responses[status][0]
        self.server.launcher.mouth.say(f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status} {reason}')


def metrics(server, name):
    lines = {
        "num_running_reqs": server.launcher.active,
        "num_queue_reqs": 0,
        "token_usage": 0.0,
        "gen_throughput": 0.0,
        "generation_tokens_total": server.tokens,
        "num_requests_total": server.served,
    }
    if server.accepted():
        lines["spec_accept_length"] = server.accepted()
        if since(0, 5, 13):
            lines["spec_num_draft_tokens"] = server.run["speculative_num_draft_tokens"]
    labels = f'{{engine_type="unified",model_name="{name}",pp_rank="0",tp_rank="0"}}'
    return "".join(f"# TYPE sglang:{key} gauge\nsglang:{key}{labels} {value}\n" for key, value in lines.items())


def merged(answer, patch):
    """The answer with the patch in it, at any depth; a list is patched by number."""
    if isinstance(answer, list) and isinstance(patch, dict):
        return [merged(item, patch.get(str(number), {})) for number, item in enumerate(answer)]
    if not isinstance(answer, dict) or not isinstance(patch, dict):
        return answer if patch == {} else patch
    return {**answer, **{key: merged(answer.get(key), value) for key, value in patch.items()}}
