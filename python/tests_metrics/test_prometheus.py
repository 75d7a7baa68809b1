"""A real Prometheus scrapes a server, and loads the rules; `promtool` finds nothing wrong with either.

`make test-metrics` runs this: it needs both programs, which Debian's package `prometheus` has."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .prometheus import RULES, SOON, Prometheus, promtool, until

TOKEN = "a-token-of-this-test-alone" * 2


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    return file


@contextmanager
def serve(metrics: str, token: Path) -> Iterator[tuple[str, str]]:
    """The command, as a user runs it: where clients find it, and where scrapers do."""
    command = [sys.executable, "-m", "weightcast", "serve", "--address", "127.0.0.1:0", "--metrics", metrics]
    server = subprocess.Popen([*command, "--token-file", str(token)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        said = [server.stdout.readline().strip() for _ in range(3)]
        metrics = said[2].removeprefix("metrics: http://").replace("0.0.0.0", "127.0.0.1")
        yield said[0].rpartition(" ")[2], metrics.removesuffix("/metrics")
    finally:
        server.kill()
        server.wait()


@contextmanager
def one_update(server: str, token: Path) -> Iterator[None]:
    """A rollout takes version 3; the trainer publishes version 5."""
    weight, copy = np.ones(1 << 10, "f4"), np.zeros(1 << 10, "f4")
    options = {"server": server, "token_file": token}
    with (
        wc.open("policy", wc.Replica("trainer"), role="trainer", **options) as trainer,
        wc.open("policy", wc.Replica("rollout"), **options) as rollout,
    ):
        trainer.register(wc.Layout().add(weight, "w"), deadline=SOON)
        rollout.register(wc.Layout().add(copy, "w"), deadline=SOON)
        trainer.publish(3, deadline=SOON, seal=True)
        assert rollout.update(deadline=SOON)
        trainer.unpublish(deadline=SOON)
        trainer.publish(5, deadline=SOON, seal=True)
        yield


def test_the_rules_are_well_formed_and_alert_when_they_should() -> None:
    assert promtool("check", "rules", str(RULES)) == ""
    assert promtool("test", "rules", str(Path(__file__).parent / "alerts.yml")) == ""


def test_promtool_finds_nothing_wrong_with_what_is_told(token: Path) -> None:
    with serve("127.0.0.1:0", token) as (server, metrics), one_update(server, token):
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=SOON) as answer:
            told = answer.read().decode()
        for text in (told, wc.metrics_text()):
            assert "policy" in text
            assert promtool("check", "metrics", told=text) == ""


def test_prometheus_scrapes_a_server_and_loads_the_rules(tmp_path: Path, token: Path) -> None:
    """Over loopback without a token, and beyond it with one alone."""
    with serve("127.0.0.1:0", token) as (server, near), serve("0.0.0.0:0", token) as (_, far):
        jobs = [
            {"job_name": "near", "static_configs": [{"targets": [near]}]},
            {"job_name": "far", "static_configs": [{"targets": [far]}],
             "authorization": {"credentials_file": str(token)}},
            {"job_name": "stranger", "static_configs": [{"targets": [far]}]},
        ]
        with one_update(server, token), Prometheus(tmp_path, jobs) as prometheus:
            until(lambda: "unknown" not in {health for health, _ in prometheus.targets().values() or [("unknown", "")]})
            targets = prometheus.targets()
            assert targets["near"] == targets["far"] == ("up", ""), targets
            assert targets["stranger"][0] == "down" and "401" in targets["stranger"][1], targets

            for query, value in (
                ('weightcast_acting{job="near"}', 1),
                ('weightcast_sessions{job="near"}', 2),
                ('weightcast_sessions{job="far"}', 0),
                ('weightcast_version_lag_max{job="near", model="policy"}', 2),
                ('weightcast_publishes_total{job="near"}', 2),
                ('weightcast_call_seconds_count{job="near", call="update", outcome="ok"}', 1),
                ('weightcast_call_seconds_bucket{job="near", call="update", outcome="ok", le="+Inf"}', 1),
            ):
                until(lambda query=query, value=value: prometheus.value(query) == value)
            kinds = {name: said[0]["type"] for name, said in prometheus.ask("metadata").items()}
            assert kinds["weightcast_publishes_total"] == "counter"
            assert kinds["weightcast_call_seconds"] == "histogram"
            assert kinds["weightcast_version_lag_max"] == "gauge"

            until(lambda: {rule["health"] for rule in prometheus.rules().values()} == {"ok"})
            rules = prometheus.rules()
            assert "WeightcastRolloutsStale" in rules and len(rules) == RULES.read_text().count("expr:")
            # The second server has no clients, and says so.
            alerts = {name for name, rule in rules.items() if rule["type"] == "alerting" and rule["alerts"]}
            assert alerts <= {"WeightcastNoActingServer"}, alerts
