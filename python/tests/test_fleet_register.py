"""The register of a fleet: asked over handles of real servers, and the gate in a worker that orders come to."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import weightcast as wc
from weightcast import _core

from .programs.driver import Cluster

VERSION = {"epoch": 0, "number": 4}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.close()


def ask(handle: wc.Handle, question: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(handle._core.ask_fleet(json.dumps(question), 20.0))
    return answer


def number(key: int, heard: int | None = None) -> dict[str, Any]:
    return {"Number": {"key": key, "heard": heard}}


def verdict(driver: int, wanted: str) -> dict[str, Any]:
    return {"Verdict": {"transaction": {"driver": driver, "number": 1}, "wanted": wanted, "version": VERSION}}


def test_the_first_write_counts_for_all_handles_and_a_restarted_server_knows_nothing_of_it(cluster: Cluster) -> None:
    one, two = (wc.open("policy", wc.Replica(name), server=cluster.servers) for name in ("a", "b"))
    with one, two:
        nothing = {"driver": 0, "superseded": False, "version": None, "verdict": None}
        assert ask(one, "State") == nothing
        driver = ask(one, number(1))["driver"]
        assert driver > 0 and ask(one, number(1))["driver"] == driver
        told = {"driver": driver, "superseded": False, "version": VERSION, "verdict": "Commit"}
        assert ask(one, verdict(driver, "Commit")) == told
        assert ask(two, verdict(driver, "Abort")) == told
        later = ask(two, number(2))["driver"]
        assert later > driver
        assert ask(one, number(3, heard=later))["superseded"]
        cluster.server.kill()
        cluster.restart_server()
        assert ask(two, verdict(driver, "Abort")) == nothing
        assert ask(one, number(4, heard=later))["driver"] > later


def test_a_question_that_makes_no_sense_is_misuse(server: wc.Server) -> None:
    with wc.open("policy", wc.Replica("a"), server=server.address) as handle:
        for question in ("", "{", '"Stat"', '{"Number": {"key": -1, "heard": null}}', '{"Number": {}}', "[" * 9_999):
            with pytest.raises(wc.Misuse, match="question_json is no FleetQuestion as JSON"):
                handle._core.ask_fleet(question)
        with pytest.raises(ValueError):
            handle._core.ask_fleet('"State"', -1.0)
    with pytest.raises(wc.Misuse, match="closed"):
        handle._core.ask_fleet('"State"')


ATTEMPT = {"driver": 5, "round": 1, "by_itself": False, "number": 1}


def order(step: str, number: int, **other: Any) -> dict[str, Any]:
    return {
        "attempt": {**ATTEMPT, "number": number},
        "life": 7,
        "step": step,
        "version": VERSION,
        "old": None,
        "means": "Staged",
        "keep_caches": False,
        "deadline": 2_500_000_000,
        "transaction": None,
    } | other


def outputs(gate: _core.EngineGate) -> list[Any]:
    found = []
    while (output := gate.poll_output()) is not None:
        found.append(json.loads(output))
    return found


def take(gate: _core.EngineGate, given: dict[str, Any]) -> Any:
    """The gate's answer to an order whose step goes well, if it lets it be taken."""
    gate.handle_order(json.dumps(given))
    (output,) = outputs(gate)
    if "Perform" in output:
        assert output["Perform"] == given
        assert gate.busy() == 2.5 and gate.may_act(json.dumps(given["attempt"]))
        gate.handle_performed(json.dumps(given["attempt"]))
        (output,) = outputs(gate)
    assert output["Answer"]["attempt"] == given["attempt"]
    return output["Answer"]["answer"]


def test_a_gate_obeys_the_newest_driver_and_serves_what_was_resumed() -> None:
    gate = _core.EngineGate(7, json.dumps(VERSION), 4)
    assert not gate.may_serve() and gate.busy() == 0.0
    assert json.loads(gate.report())["held"] == VERSION
    for step, at in (("Verify", 1), ("Resume", 2)):
        assert take(gate, order(step, at)) == "Done"
    assert gate.may_serve() and json.loads(gate.stamp() or "") == VERSION
    assert not gate.may_act(json.dumps(ATTEMPT)), "it is over"
    early = order("Pause", 1, attempt={**ATTEMPT, "driver": 3})
    assert take(gate, early) == {"Failed": "Fenced"}
    assert take(gate, order("Pause", 3, life=8)) == {"Failed": "OtherLife"}
    gate.handle_slept()
    assert not gate.may_serve()
    gate.handle_woken()
    assert not gate.may_serve(), "nobody has compared what it holds"
    report = json.loads(take(gate, order("Inspect", 4)) and gate.report())
    assert (report["paused"], report["ready"], report["life"]) == (True, None, 7)


def test_a_step_that_failed_is_answered_by_the_failures_name() -> None:
    gate = _core.EngineGate(7, None, 4)
    assert gate.stamp() is None and json.loads(gate.report())["held"] is None
    given = order("Negotiate", 1)
    gate.handle_order(json.dumps(given))
    assert outputs(gate) == [{"Perform": given}]
    with pytest.raises(wc.Misuse, match=r"'?\"?bad\"?'? is no failure of a step; there are layouts, "):
        gate.handle_performed(json.dumps(given["attempt"]), "bad")
    assert gate.busy() == 2.5, "it still runs"
    gate.handle_performed(json.dumps(given["attempt"]), "layouts")
    (answer,) = outputs(gate)
    assert answer["Answer"]["answer"] == {"Failed": "Layouts"}


@pytest.mark.parametrize("json_of_another", ["", "null", "{}", "7", '{"driver": 1}', "[]"])
def test_what_is_no_json_of_that_kind_is_misuse(json_of_another: str) -> None:
    gate = _core.EngineGate(1, None, 0)
    with pytest.raises(wc.Misuse, match="order_json is no StepOrder as JSON"):
        gate.handle_order(json_of_another)
    with pytest.raises(wc.Misuse, match="attempt_json is no UpdateAttempt as JSON"):
        gate.handle_performed(json_of_another)
    with pytest.raises(wc.Misuse, match="attempt_json is no UpdateAttempt as JSON"):
        gate.may_act(json_of_another)
    with pytest.raises(wc.Misuse, match="holds is no Version as JSON"):
        _core.EngineGate(1, json_of_another, 0)
    for life in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            _core.EngineGate(life, None, 0)
    assert outputs(gate) == []
