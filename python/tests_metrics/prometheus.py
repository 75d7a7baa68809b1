"""A real Prometheus, asked over its own API."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

#: Seconds in which everything here must have happened.
SOON = 60.0
RULES = Path(__file__).parents[2] / "docs/metrics/weightcast.rules.yml"


def until(there: Callable[[], Any]) -> Any:
    """Asks again until there is an answer. The last one says what there was instead."""
    end = time.monotonic() + SOON
    while not (found := there()):
        assert time.monotonic() < end, f"still {found!r} after {SOON} s"
        time.sleep(0.1)  # another process, whose news nobody brings
    return found


def promtool(*arguments: str, told: str = "") -> str:
    """What it finds wrong; nothing if all is right."""
    done = subprocess.run(
        ["promtool", *arguments], input=told, capture_output=True, text=True, timeout=SOON, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


class Prometheus:
    """One that scrapes these jobs each second; killed when the test ends."""

    def __init__(self, place: Path, jobs: list[dict[str, Any]]) -> None:
        rules = shutil.copy(RULES, place)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": jobs,
        }
        # YAML has JSON within.
        (place / "prometheus.yml").write_text(json.dumps(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = place / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={place / 'prometheus.yml'}",
                 f"--storage.tsdb.path={place / 'data'}", f"--web.listen-address={self.address}"],
                stdout=log, stderr=log,
            )

    def ask(self, path: str, **asked: str) -> Any:
        """The answer's data; none while it does not answer."""
        assert self.process.poll() is None, self.log.read_text()
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=SOON) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def value(self, query: str) -> float | None:
        """The one sample that a query finds."""
        found = (self.ask("query", query=query) or {}).get("result", [])
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def targets(self) -> dict[str, tuple[str, str]]:
        """Health and last error by job."""
        active = (self.ask("targets") or {}).get("activeTargets", [])
        return {target["labels"]["job"]: (target["health"], target["lastError"]) for target in active}

    def rules(self) -> dict[str, dict[str, Any]]:
        """Each rule by its name."""
        groups = (self.ask("rules") or {}).get("groups", [])
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
