"""One rank of an SGLang engine, without SGLang: what each call of its loader does, and what SGLang is answered."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState, Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

OURS = [f"weightcast.adapters.sglang.{name}" for name in ("loader", "worker", "report", "watching", "identity")]


class WeightUpdater:
    """SGLang's: calls loaders, and takes their return for success."""

    def update_weights_from_tensor(self, named_tensors: Any, load_format: str | None = None) -> Any:
        assert named_tensors == ["tensors"] and load_format in (None, "another", "weightcast.adapters.sglang.load")
        return self.answer


class Scheduler:
    """SGLang's, as far as ours watches it."""

    def __init__(self) -> None:
        self._engine_paused = False


class Noting:
    """Notes each method that is called. `fails` says what a call raises."""

    def __init__(self, log: list[Any], name: str, **values: Any) -> None:
        self._log, self._name, self.fails = log, name, {}
        vars(self).update(values)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def called(*arguments: Any, **named: Any) -> Any:
            self._log.append((f"{self._name} {method}", *arguments, *([named] if named else [])))
            if method in self.fails:
                raise self.fails[method]

        return called


class Shard(Noting):
    """`EngineShard`."""

    def __init__(self, log: list[Any], settings: Settings, replica: Any, read: Any) -> None:
        super().__init__(log, "shard", settings=settings, replica=replica, read=read, known=True)
        self.state = EngineState(3, None, None)
        log.append(("shard joins", settings.model, replica))

    def answers(self) -> bool:
        return self.known


class Gate(Noting):
    """`Orders`."""

    def __init__(self, log: list[Any], host: Any, life: int) -> None:
        super().__init__(log, "gate", host=host, life=life, serves=True)

    def may_serve(self) -> bool:
        return self.serves

    def renew(self, life: int | None = None) -> None:
        self._log.append(("gate renew", life))

    def order(self, order: Any) -> Any:
        return {"answers": [order]}

    def performed(self, *told: Any) -> Any:
        return {"performed": told}


class Rig:
    """A rank of an engine of two, and what the other one says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.updater, self.scheduler = type("Updater", (WeightUpdater,), {}), type("Own", (Scheduler,), {})
        self.parallel = SimpleNamespace(tp_rank=1, tp_size=2, pp_size=1, tp_group=SimpleNamespace(cpu_group="cpu"))
        self.exec = SimpleNamespace(moe=SimpleNamespace(enable_eplb=False))
        self.spec = SimpleNamespace(speculative_algorithm=None)
        context = {"get_parallel": lambda: self.parallel, "get_exec": lambda: self.exec, "get_spec": lambda: self.spec}
        stand_in(monkeypatch, "sglang", {
            "sglang.srt.runtime_context": context,
            "sglang.srt.managers.scheduler": {"Scheduler": self.scheduler},
            "sglang.srt.model_executor.model_runner_components.weight_updater": {"WeightUpdater": self.updater},
        }, OURS)
        from weightcast.adapters.sglang import loader, report, worker

        self.loader, self.report = loader, report
        #: What the other rank says when it is asked next; by default what this one says.
        self.other: list[Any] = []
        #: How often ranks have told each other anything.
        self.exchanged = 0
        for module in (report, worker):
            monkeypatch.setattr(module, "exchange", self.exchange)
        monkeypatch.setattr(worker, "EngineShard", lambda *told: Shard(self.log, *told))
        monkeypatch.setattr(worker, "Orders", lambda host, life: Gate(self.log, host, life))
        monkeypatch.setattr(worker, "read", lambda *told, **named: self.log.append(("read", *told, named)))
        monkeypatch.setattr(worker, "_synchronise", lambda: self.log.append("synchronise"))
        self.model = torch.nn.Linear(1, 1)

    def exchange(self, text: str, group: Any) -> list[str]:
        assert group == "cpu"
        self.exchanged += 1
        return [text, json.dumps(self.other.pop(0)) if self.other else text]

    @property
    def worker(self) -> Any:
        return self.loader._workers[id(self.model)]

    def load(self, do: str, **named: Any) -> Any:
        """What SGLang is answered: whether all did it, and this rank's report."""
        self.loader.load(self.model, [(json.dumps({"do": do, **named}), torch.empty(0))])
        well, said = self.report._answer
        ranks = json.loads(said)["ranks"]
        assert len(ranks) == 2
        return well, ranks[0]

    def join(self, life: int = 70, **settings: Any) -> Any:
        return self.load("join", settings=settings, instance="i", life=life)

    def did(self) -> list[Any]:
        found = list(self.log)
        self.log.clear()
        return found


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


@pytest.fixture
def joined(rig: Rig) -> Rig:
    rig.join()
    rig.did()
    return rig


HELD = EngineState(3, None, None)


def report(said: Any = None, error: str | None = None, serves: bool = True, state: Any = HELD) -> Any:
    return {"error": error, "state": state and vars(state), "serves": serves, "said": said}


def test_joining(rig: Rig) -> None:
    assert rig.load("watch") == (True, report(state=None)) and rig.did() == []
    assert rig.join(datacentre="d", spot=True) == (True, report())
    assert rig.did() == [("shard joins", "policy", wc.Replica("i", 1, 2, datacentre="d", spot=True))]
    gate = rig.worker.orders
    assert gate.life == 70 and gate.host is rig.worker
    assert rig.join(datacentre="d", spot=True, life=80) == (True, report()) and rig.did() == []
    assert rig.worker.orders is gate and rig.worker.shard().settings == Settings(datacentre="d", spot=True)
    rig.worker.shard().read("catalog")
    named = {"unused": {}, "unsourced": {}, "rename": None}
    assert rig.did() == [("read", rig.model, "catalog", named)]
    for settings in ({"datacentre": "d", "spot": True}, {"model": "m", "replica": "r"}):
        rig.worker.shard().known = False
        rig.join(**settings)
        assert [one[0] for one in rig.did()] == ["gate close", "shard close", "shard joins"]
        assert rig.worker.orders is not gate
    assert rig.worker.shard().replica == wc.Replica("r", 1, 2)


def test_ranks_of_one_engine_have_one_life(rig: Rig) -> None:
    rig.other = [71]
    rig.join(life=70)
    assert rig.did()[1:] == [("gate renew", 71)], "the other one had another"
    rig.other = [rig.worker.orders.life]
    rig.join(life=90)
    assert rig.did() == []
    rig.exec.moe.enable_eplb = True
    rig.other = [70]
    well, said = rig.join(model="other")
    assert not well and said["error"].startswith("Misuse: this engine moves experts between its ranks while it runs (enable_eplb), ")
    assert rig.did() == [("gate close",), ("shard close",)] and said["state"] is None and said["serves"]


def test_a_rank_that_cannot_join_exchanges_as_often_as_one_that_does(rig: Rig) -> None:
    """Else the ranks that joined would take its next word for the one that they wait for."""
    assert rig.join()[0] and rig.exchanged == 2
    rig.exec.moe.enable_eplb = True
    assert not rig.join(model="other")[0] and rig.exchanged == 4


@pytest.mark.parametrize(("part", "name", "value", "settings", "said"), [
    ("parallel", "pp_size", 2, {}, "this engine is pipeline-parallel, which the layout is not read for yet"),
    ("spec", "speculative_algorithm", "EAGLE", {}, "this engine guesses tokens with a draft model (EAGLE), which updates would leave as it "
     "was loaded; accept that with draft='stale' in the engine's settings, or start the engine without it"),
    ("spec", "speculative_algorithm", "EAGLE", {"draft": "stale"}, None),
    ("spec", "speculative_algorithm", "NGRAM", {}, None),
])
def test_engines_that_updates_would_leave_partly_old(rig: Rig, part: str, name: str, value: Any, settings: Any, said: str | None) -> None:
    setattr(getattr(rig, part), name, value)
    assert rig.join(**settings) == ((True, report()) if said is None else (False, report(error=f"Misuse: {said}", state=None)))


CALLS = {
    "begin": ({}, [("shard begin",)]),
    "fetch": ({"version": 3, "wait": False}, [("shard fetch", {"version": 3, "wait": False}), ("gate renew", None)]),
    "install": ({}, ["synchronise", ("shard install",), "synchronise", ("gate renew", None)]),
    "release": ({}, [("gate renew", None)]),
    "state": ({}, []),
    "leave": ({}, [("gate close",), ("shard close",)]),
}


@pytest.mark.parametrize("do", CALLS)
def test_what_a_rank_does(joined: Rig, do: str) -> None:
    named, did = CALLS[do]
    assert joined.load(do, **named) == (True, report(state=None if do == "leave" else EngineState(3, None, None)))
    assert joined.did() == did


@pytest.mark.parametrize("do", ["begin", "fetch", "install"])
def test_a_step_that_fails_on_a_rank(joined: Rig, do: str) -> None:
    """The gate looks anew at what may have changed."""
    named, did = CALLS[do]
    joined.worker.shard().fails = {do: wc.Misuse("no")}
    assert joined.load(do, **named) == (False, report(error="Misuse: no"))
    assert joined.did() == did[:2] + did[3:]


@pytest.mark.parametrize("do", ["begin", "fetch", "install", "release"])
def test_a_rank_that_has_not_joined(rig: Rig, do: str) -> None:
    said = "Misuse: this engine has not joined a job: it was started again, or never asked to join"
    assert rig.load(do) == (False, report(error=said, state=None))
    assert rig.load("order", order={}) == rig.load("performed", attempt={}, failure=None) == (True, report(state=None))


def test_a_call_that_nobody_knows_does_not_end_the_engine(joined: Rig) -> None:
    assert joined.load("dance") == (
        False, report(error="Misuse: 'dance' is not known to the weightcast of this engine; versions differ")
    )


def test_orders_of_a_fleet(joined: Rig) -> None:
    assert joined.load("order", order={"step": "Fetch"}) == (True, report({"answers": [{"step": "Fetch"}]}))
    assert joined.load("performed", attempt={"n": 1}, failure="why") == (True, report({"performed": [{"n": 1}, "why"]}))
    worker = joined.worker
    worker.before_fetch()
    worker.before_install()
    worker.after_install()
    assert joined.did() == ["synchronise"] * 2


def test_an_engine_whose_rank_may_not_serve_counts_as_paused(joined: Rig) -> None:
    scheduler = joined.scheduler()
    assert scheduler._engine_paused is False
    scheduler._engine_paused = True
    assert scheduler._engine_paused is True
    scheduler._engine_paused = False
    joined.worker.orders.serves = False
    assert scheduler._engine_paused is True and joined.load("state") == (True, report(serves=False))
    joined.worker.orders = None
    assert scheduler._engine_paused is False and joined.loader.serves()
    joined.worker.shard().state = EngineState(3, None, "half")
    assert scheduler._engine_paused is True and not joined.loader.serves()
    joined.worker.orders = Gate([], None, 1)
    assert joined.loader.serves(), "its gate knows"


def test_sglang_is_answered_what_all_ranks_said(rig: Rig) -> None:
    updater = rig.updater()
    updater.answer = (True, "Success")
    assert updater.update_weights_from_tensor(["tensors"], "weightcast.adapters.sglang.load") == (True, "Success")
    rig.other = [None, {"error": "no", "state": None, "serves": True, "said": None}]
    rig.join()
    well, said = updater.update_weights_from_tensor(["tensors"], "weightcast.adapters.sglang.load")
    assert well is False and [one["error"] for one in json.loads(said)["ranks"]] == [None, "no"]
    assert updater.update_weights_from_tensor(["tensors"], "another") == updater.update_weights_from_tensor(["tensors"]) == (True, "Success")
    updater.answer = (False, "no")
    assert updater.update_weights_from_tensor(["tensors"], "weightcast.adapters.sglang.load") == (False, "no")
    rig.load("state")
    updater.answer = (True, "Success")
    assert updater.update_weights_from_tensor(["tensors"], load_format="weightcast.adapters.sglang.load")[0] is True
    assert rig.updater.update_weights_from_tensor.__name__ == "update_weights_from_tensor"


def test_a_report_that_is_too_long_is_cut_where_it_is_long(rig: Rig) -> None:
    fitting, kind = rig.report._fitting, rig.report.Report
    short = kind("e" * 7000, {"a": 1}, True, {"b": ["c"]})
    assert json.loads(fitting(short)) == {"error": "e" * 7000, "state": {"a": 1}, "serves": True, "said": {"b": ["c"]}}
    long = json.loads(fitting(kind("e" * 9000, {"a": "f" * 10}, False, {"b": ["g" * 5000]})))
    assert long == {"error": "e" * 2048, "state": {"a": "f" * 10}, "serves": False, "said": {"b": ["g" * 2048]}}
    tight = kind(None, None, True, ["ab"] * 1200)
    assert json.loads(fitting(tight))["said"] == ["ab"] * 1200
    many = kind(None, None, True, ["ab"] * 1400)
    assert json.loads(fitting(many))["said"] == ["a"] * 1400 and len(fitting(many)) <= 8192, "down to one character each"
    assert json.loads(fitting(kind(None, None, True, ["ab"] * 1700)))["said"] == [""] * 1700
    assert json.loads(fitting(kind(None, None, True, list(range(9000))))) == {
        "error": "a rank's report has more than 8192 characters", "state": None, "serves": False, "said": None,
    }
