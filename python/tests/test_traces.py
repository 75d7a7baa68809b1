"""Spans of several processes in one file, and the core's events in `logging`."""

import json
import logging
import subprocess
import sys
import time

import numpy as np
import pytest

import weightcast as wc
from weightcast import logs

from .conftest import SOON
from .programs.driver import Cluster

#: A warning and an update in one process. Standard error has what is logged.
UPDATE = """
import numpy as np, weightcast as wc, logging, sys
if sys.argv[1:]: logging.basicConfig(level=logging.INFO)
wc.serve(insecure=True).close()
with wc.serve() as server:
    with wc.open("m", wc.Replica("t"), role="trainer", server=server.address) as trainer:
        trainer.register(wc.Layout().add(np.ones(8, "f4"), "w"))
        trainer.publish(1)
        with wc.open("m", wc.Replica("r"), server=server.address) as rollout:
            rollout.register(wc.Layout().add(np.zeros(8, "f4"), "w"))
            rollout.update(deadline=20)
"""


def summary(file, *options):
    """What `weightcast trace` prints."""
    command = [sys.executable, "-m", "weightcast", "trace", str(file), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SOON).stdout


def test_calls_of_three_processes_are_joined(tmp_path, monkeypatch):
    file = tmp_path / "job.json"
    monkeypatch.setenv("WEIGHTCAST_TRACE", str(file))
    cluster = Cluster()
    try:
        trainer = cluster.group("trainer", 2, role="trainer")
        for rank in trainer:
            rank.start("publish", version=1)
        [rank.outcome("publish") for rank in trainer]
        [rollout] = cluster.group("single")
        rollout.do("update", version="latest")
    finally:
        cluster.close()
    told = json.loads(summary(file, "--json"))
    assert (told["schema"], told["processes"]) == ("trace/1", 4)
    # Each process was killed: calls that had their answers are there, of all processes.
    spans = {times["name"]: times["count"] for times in told["spans"]}
    assert spans["call publish"] == 2 and spans["group call publish"] == 1
    assert spans["call update"] == spans["group call update"] == spans["read"] == spans["shards read"] == 1
    assert told["joined"] == told["calls"]
    [update] = [call for call in told["slowest"] if call["call"].startswith("update")]
    assert (update["replica"], update["outcome"]) == ("single", "ok")
    assert {"read", "plan", "source", "shards read"} <= update["within"].keys()
    text = summary(file, "--output", str(tmp_path / "all.json"))
    assert "4 processes" in text and "call update" in text
    joined = json.loads((tmp_path / "all.json").read_text())
    assert {event["args"]["name"] for event in joined if event["name"] == "thread_name"} >= {
        "policy trainer/0", "policy trainer/1", "policy single/0", "policy single at the server",
    }


def test_a_process_has_one_trace_file(tmp_path):
    command = "import weightcast as wc; wc.serve(trace='a.json'); wc.serve(trace='a.json'); wc.serve(trace='b.json')"
    ended = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=SOON)
    assert "already, and has one trace file: name the same" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("collector:4317", "does not begin with http://"),
        ("https://collector:4317", "TLS is not spoken"),
        ("http://collector:4318/v1/traces", "has no path"),
        ("http://me:secret@collector:4317", "a password in a URL is not sent"),
    ],
)
def test_a_collector_has_an_address(url, problem, monkeypatch):
    with pytest.raises(wc.Misuse, match=problem) as said:
        wc.serve(otlp=url)
    assert "secret" not in str(said.value)
    with pytest.raises(wc.Misuse, match=problem):
        wc.open("m", wc.Replica("r"), otlp=url)
    monkeypatch.setenv("WEIGHTCAST_OTLP", url)
    with pytest.raises(wc.Misuse, match=problem):
        wc.serve()


def test_a_process_has_one_collector_and_needs_none():
    # Port 1 needs root, and nobody listens there.
    there, another = "http://127.0.0.1:1", "http://127.0.0.1:2"
    command = UPDATE.replace("wc.serve()", f"wc.serve(otlp='{there}')") + f"wc.serve(otlp='{another}')"
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=2 * SOON)
    assert "already, and has one collector: name the same" in ended.stderr
    assert ended.stderr.count("spans are missing at the collector") == 1, ended.stderr


def test_events_come_to_logging(group, caplog):
    with caplog.at_level(logging.INFO, logger="weightcast"):
        logs.receive()
        logs._look()
        [trainer] = group("trainer", [wc.Layout().add(np.ones(8, "u1"), "w")], role="trainer").handles
        trainer.publish(1, deadline=SOON)
        [rollout] = group("rollout", [wc.Layout().add(np.ones(8, "u1"), "w")]).handles
        rollout.update(deadline=SOON)
        until = time.monotonic() + SOON
        while not (said := [record for record in caplog.records if "connected to a data port" in record.message]):
            assert time.monotonic() < until, caplog.text
    [record] = said
    assert (record.name, record.levelno) == ("weightcast.transport.engine.peer", logging.INFO)
    assert abs(record.created - time.time()) < SOON


@pytest.mark.parametrize(
    ("variable", "configured", "news", "warnings"),
    # With both, a warning goes to both, as was asked for.
    [(None, False, 0, 1), ("info", False, 1, 1), (None, True, 1, 1), ("warn", True, 1, 2), ("off", False, 0, 0)],
)
def test_each_line_is_said_where_it_was_asked_for(variable, configured, news, warnings, monkeypatch):
    monkeypatch.delenv("WEIGHTCAST_LOG", raising=False)
    if variable:
        monkeypatch.setenv("WEIGHTCAST_LOG", variable)
    command = [sys.executable, "-c", UPDATE, *["configured"] * configured]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * SOON)
    assert ended.stderr.count("connected to a data port") == news, ended.stderr
    assert ended.stderr.count("INSECURE: anyone") == warnings, ended.stderr
