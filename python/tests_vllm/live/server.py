"""A vLLM server as a user starts it, in processes of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm.version import __version_tuple__

from weightcast.adapters.vllm import HTTPEngine

from .held import SOON

HERE = Path(__file__).parent

#: Whether this vLLM stamps tokens; it opens the route for tokens by an option then.
STAMPS = __version_tuple__[:2] >= (0, 27)

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE / "site"), str(HERE.parents[1])]),
}


class VllmServer:
    """`python -m vllm.entrypoints.openai.api_server`, in a process group of its own."""

    def __init__(
        self, model: Path, log: Path, *options: str, stops: Path | None = None, unpacked: bool = False
    ) -> None:
        """See `stops` and `unpacked`."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "m", "--skip-tokenizer-init", "--enforce-eager", "--dtype", "bfloat16",
            "--max-model-len", "64", "--host", "127.0.0.1", "--port", str(port),
            *(["--enable-scale-out"] if STAMPS else []), *options,
        ]  # fmt: skip
        extra = {} if stops is None else {"WEIGHTCAST_TEST_STOPS": str(stops)}
        extra |= {"WEIGHTCAST_TEST_UNPACKED": "1"} if unpacked else {}
        with log.open("w") as said:
            self._child = subprocess.Popen(
                command, env=os.environ | ENVIRONMENT | extra, stdout=said, stderr=said, start_new_session=True
            )

    def up(self) -> "VllmServer":
        """Waits until it answers."""
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            assert self._child.poll() is None, self.log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.2)
        raise AssertionError(f"not up: {self.log.read_text()[-4000:]}")

    def ask(self, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=SOON) as answer:
            return json.load(answer)

    def post(self, path: str) -> None:
        request = urllib.request.Request(f"{self.url}/{path}", b"", method="POST")
        urllib.request.urlopen(request, timeout=SOON).close()

    def accepted(self, requests: int) -> None:
        """Waits until it has taken so many requests and not answered them; it was started with
        `--enable-server-load-tracking`. (A paused engine makes no steps, and `/metrics` tells of steps.)"""
        end = time.monotonic() + SOON
        while True:
            with urllib.request.urlopen(f"{self.url}/load", timeout=SOON) as answer:
                if json.load(answer)["server_load"] == requests:
                    return
            assert time.monotonic() < end, f"{requests} requests have not come"
            time.sleep(0.01)

    def generate(
        self, tokens: int = 12, model: str = "m", prompt: Sequence[int] = (1, 2, 3)
    ) -> tuple[list[int], list[dict[str, Any]]]:
        """Tokens, and the versions that they are stamped with, if they are; of the base model, or of an
        adapter."""
        (said,) = self.answer(tokens, model, prompt)["choices"]
        return said["token_ids"], said["weight_versions"] if STAMPS else []

    def answer(self, tokens: int = 12, model: str = "m", prompt: Sequence[int] = (1, 2, 3)) -> dict[str, Any]:
        """All that the server says to a request."""
        sampling = {"max_tokens": tokens, "temperature": 0, "detokenize": False, "ignore_eos": True}
        body = {"model": model, "token_ids": list(prompt), "sampling_params": sampling}
        stamped = {"return_weight_versions": True} if STAMPS else {}
        return self.ask("inference/v1/generate", body | stamped)

    def client(self) -> HTTPEngine:
        """As its trainer sees it."""
        return HTTPEngine(self.url, timeout=SOON)

    def is_gone(self) -> bool:
        """Whether it has ended, or answers that it is not well."""
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
        except OSError:
            self.kill()
        return self._child.poll() is not None

    def kill(self) -> None:
        """Kills all of its processes."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._child.wait()
