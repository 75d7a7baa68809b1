"""The machines of a driver and of workers, driven from Python: engines whose steps all go well."""

import json

import pytest

from weightcast import Misuse, _core

SECOND = 10**9
LOADED = {"epoch": 0, "number": 0}


def config():
    spans = {"bytes": SECOND, "pause": SECOND, "parameters": SECOND, "word": SECOND}
    return {
        "key": 1,
        "fleet": True,
        "means": "Staged",
        "mode": "Abort",
        "prefetch": True,
        "deadlines": spans,
        "retries": 1,
        **dict.fromkeys(("prepare", "decide", "reach", "ask_every"), SECOND),
        "safeguards": 0,
    }


def answer(question, verdicts):
    """What a register says that has numbered this driver alone."""
    verdict = None
    if isinstance(question, dict) and "Verdict" in question:
        asked = question["Verdict"]
        verdict = verdicts.setdefault(json.dumps(asked["transaction"]), asked["wanted"])
    return {"driver": 1 << 32 | 7, "superseded": False, "version": None, "verdict": verdict}


def obey(driver, gate, engine, order):
    gate.handle_order(json.dumps(order))
    while (said := gate.poll_output()) is not None:
        output = json.loads(said)
        if "Perform" in output:
            gate.handle_performed(json.dumps(output["Perform"]["attempt"]))
        else:
            told = {"Answered": {"worker": 0, **output["Answer"]}}
            driver.handle(0, json.dumps({"Engine": {"engine": engine, "input": told}}))


def bring(driver, gates, version):
    """Everything that the driver had to say at the end."""
    assert driver.bring(0, json.dumps(version), dict.fromkeys(gates, 1))
    verdicts, fleets = {}, []
    while (said := driver.poll_output()) is not None:
        output = json.loads(said)
        if "Run" in output:
            engine = output["Run"]["engine"]
            obey(driver, gates[engine], engine, output["Run"]["order"])
        elif "Ask" in output:
            asked = output["Ask"]
            told = {"asked": asked, "answer": answer(asked, verdicts)}
            driver.handle(0, json.dumps({"Register": told}))
        elif "Fleet" in output:
            fleets.append(output["Fleet"]["result"]["end"])
        elif "Ended" in output:
            return output["Ended"], fleets
    raise AssertionError("the driver waits for something")


def test_a_driver_brings_a_fleet_to_a_version():
    driver = _core.FleetDriver(json.dumps(config()))
    gates = {n: _core.EngineGate(n, json.dumps(LOADED), 0, True) for n in range(3)}
    assert all(gate.may_serve() for gate in gates.values())
    version = {"epoch": 1, "number": 5}
    assert bring(driver, gates, version) == ("Done", ["Committed"])
    assert driver.is_idle() and driver.next_timeout() is None
    for gate in gates.values():
        assert gate.may_serve() and json.loads(gate.report())["ready"] == version


def test_a_driver_at_work_takes_no_other_work_and_ends_by_its_timeout():
    driver = _core.FleetDriver(json.dumps(config()))
    assert driver.bring(0, None, {0: 1})
    assert not driver.bring(0, None, {0: 1})
    driver.handle_timeout(driver.next_timeout())
    outputs = []
    while (said := driver.poll_output()) is not None:
        outputs.append(json.loads(said))
    assert outputs[-1] == {"Ended": "RegisterAway"} and driver.is_idle()


@pytest.mark.parametrize("text", ["", "{}", "[1]", json.dumps({**config(), "means": "Elsewhere"})])
def test_what_is_no_config_is_refused(text):
    with pytest.raises(Misuse, match="config_json is no DriverConfig"):
        _core.FleetDriver(text)
