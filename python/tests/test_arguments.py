"""What the package is told arrives at the native half under the name that it has there, and what the
native half answers comes back under the right one: every value here differs from every other."""

import asyncio
import dataclasses
import inspect
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import weightcast as wc
from weightcast import _core, aio, handle, server, verdict
from weightcast.adapters.catalog import Entry


class Called:
    """Stands for something native: notes how it is called, by the names of the real thing."""

    def __init__(self, real: Any, answer: Any = None, method: bool = False) -> None:
        self.real, self.answer, self.method = real, answer, method
        self.arguments: dict[str, Any] = {}

    def __call__(self, *positional: Any, **named: Any) -> Any:
        me = (None,) if self.method else ()
        bound = inspect.signature(self.real).bind(*me, *positional, **named)
        self.arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
        return self.answer


class Native:
    """A module, or an object, of such."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


ME = wc.Replica("rollout-3", shard=5, num_shards=8, datacentre="west", host="node-7", spot=True)
OPTIONS: dict[str, Any] = {
    "role": "trainer", "epoch": "new", "retain": 11, "offload_seeding": True, "offload_bytes": 12,
    "staging_bytes": 13, "plan_cache": Path("/plans"), "trace": Path("/trace"), "otlp": "http://c:1", "record_dir": Path("/records"),
    "server": ["one:1", "two:2"], "token_file": Path("/token"),
    "data_bind": "10.0.0.1:14", "data_advertise": "10.0.0.2:15", "data_networks": ["10.1.0.0/16", "10.2.0.0/16"],
    "insecure": True, "job": "night", "way": "tcp", "deadline": 16.5, "reconnect": 17.5,
}
OPENED = {
    "model": "policy", "name": "rollout-3", "shard": 5, "num_shards": 8, "datacentre": "west", "host": "node-7",
    "spot": True, **OPTIONS, "new_epoch": True, "plan_cache": "/plans", "trace": "/trace", "otlp": "http://c:1", "record_dir": "/records",
    "server": "one:1,two:2", "token_file": "/token",
    "data_networks": "10.1.0.0/16,10.2.0.0/16", "lazy_server": [sys.executable, "-m", "weightcast"],
}
del OPENED["epoch"]


def opened(monkeypatch: pytest.MonkeyPatch, me: wc.Replica, **options: Any) -> dict[str, Any]:
    told, called = Called(_core.Options, "the options"), Called(_core.Handle.open)
    monkeypatch.setattr(handle, "_core", Native(Options=told, Handle=Native(open=called)))
    made = wc.open("policy", me, **options)
    assert (made.model, made.replica) == ("policy", me)
    assert called.arguments.pop("options") == "the options"
    return {**dataclasses.asdict(called.arguments.pop("replica")), **told.arguments, **called.arguments}


def test_open_passes_all_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(monkeypatch, ME, **OPTIONS) == OPENED


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_an_option_alone_changes_what_it_names_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    plain = opened(monkeypatch, ME)
    name = "new_epoch" if option == "epoch" else option
    assert plain[name] != OPENED[name]
    assert opened(monkeypatch, ME, **{option: OPTIONS[option]}) == {**plain, name: OPENED[name]}


def test_one_text_is_passed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    got = opened(monkeypatch, wc.Replica("r"), server="one:1,two:2", data_networks="10.0.0.0/8", epoch="current")
    assert (got["server"], got["data_networks"], got["new_epoch"]) == ("one:1,two:2", "10.0.0.0/8", False)
    assert (got["shard"], got["num_shards"], got["datacentre"], got["host"], got["spot"]) == (0, 1, "", None, False)


def test_looks_at_a_function_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes two seconds of the ten; the last has none left, and the server says so."""
    now, left = [100.0], []

    def changed(after: tuple[int, int], deadline: float) -> _core.Listing:
        left.append((after, deadline))
        assert len(left) < 10, "it looks for ever"
        now[0] += 2
        if deadline == 0:
            raise wc.Timeout("the deadline passed")
        return _core.Listing((1, after[1] + 1), ())

    monkeypatch.setattr(handle.time, "monotonic", lambda: now[0])
    core = Native(list=lambda deadline: _core.Listing((1, 1), ()), wait_changed=changed)
    with pytest.raises(wc.Timeout):
        wc.Handle(core, "policy", ME).wait(lambda versions: False, deadline=10.0)
    assert left == [((1, 1 + look), 10.0 - 2 * look) for look in range(6)]


HELD = wc.Updated(True, 21, 22, "trainer-1", 23, 24, 25.5, 26.5, "tcp", 27, 28.5, ("relay-1", "relay-2"), "file", "other host", 29, 30, 31, (32, 33), 34, 35)
LISTED = _core.Listing((31, 32), (((7, 1), ("a",)), ((8, 1), ("a", "b"))))
CALLS = [
    ("publish", (9,), {"seal": True, "deadline": 1.5}, {"version": 9, "seal": True, "deadline": 1.5}),
    ("wait_sealed", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("unpublish", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("replicate", (9,), {"deadline": 1.5, "progress": print},
     {"selector": wc.exact(9), "deadline": 1.5, "progress": print}),
    ("update", ("latest-3",), {"allow_rollback": True, "staged": False, "deadline": 1.5},
     {"selector": wc.Selector("latest_minus", 3), "allow_rollback": True, "staged": False, "deadline": 1.5,
      "progress": None}),
    ("update", (wc.at_least(4),), {"staged": True, "deadline": 1.5, "progress": print},
     {"selector": wc.at_least(4), "allow_rollback": False, "staged": True, "deadline": 1.5, "progress": print}),
    ("list", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("wait", (wc.held(5, by=6),), {"deadline": 1.5}, {"until": wc.held(5, by=6), "deadline": 1.5}),
    ("wait", (wc.fresh(5),), {"deadline": 1.5}, {"until": wc.fresh(5), "deadline": 1.5}),
    ("catalog", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("unregister", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("close", (), {"deadline": 1.5}, {"deadline": 1.5}),
    ("push", (9,), {"to": "r", "deadline": 1.5, "patience": 2.5}, {"version": 9, "to": ["r"], "deadline": 1.5, "patience": 2.5}),
    ("push", (), {"to": ("r", "s"), "deadline": 1.5}, {"version": None, "to": ["r", "s"], "deadline": 1.5, "patience": 5.0}),
    ("push", (9,), {"deadline": 1.5}, {"version": 9, "to": None, "deadline": 1.5, "patience": 5.0}),
    ("accept", (), {"before": print, "deadline": 1.5}, {"before": print, "deadline": 1.5}),
    ("retain", ("latest-3",), {"deadline": 1.5}, {"selector": wc.Selector("latest_minus", 3), "deadline": 1.5}),
    ("let_go", (9,), {"deadline": 1.5}, {"version": 9, "deadline": 1.5}),
    ("refuse", ("why",), {"deadline": 1.5}, {"reason": "why", "deadline": 1.5}),
]
ANSWERS: dict[str, Any] = {"update": HELD, "replicate": HELD, "list": LISTED, "wait": LISTED, "catalog": [("w", "bf16", [2, 3])],
                           "accept": HELD, "retain": (9, 1), "push": "pushed"}
#: What the caller gets of these, where that is no record of the native half.
MADE = {"retain": 9, "list": {7: {"a"}, 8: {"a", "b"}}, "wait": {7: {"a"}, 8: {"a", "b"}}, "catalog": {"w": Entry((2, 3), "bf16")}}


@pytest.mark.parametrize("name, positional, named, passed", CALLS)
def test_a_call_passes_what_it_is_given(
    name: str, positional: tuple, named: dict[str, Any], passed: dict[str, Any]
) -> None:
    called = Called(getattr(_core.Handle, name), ANSWERS.get(name), method=True)
    got = getattr(wc.Handle(Native(**{name: called}), "policy", ME), name)(*positional, **named)
    assert called.arguments == passed and got == MADE.get(name, ANSWERS.get(name))


@pytest.mark.parametrize(("to", "passed"), [(None, None), ("r", ["r"]), (("r", "s"), ["r", "s"])])
def test_an_outlook_is_asked_for_the_same_replicas_as_a_push(to: Any, passed: Any) -> None:
    called = Called(_core.Handle.explain_push, iter(["one", "two"]), method=True)
    assert wc.Handle(Native(explain_push=called), "policy", ME).explain(9, to=to) == ("one", "two")
    assert called.arguments == {"version": 9, "to": passed, "deadline": 5.0}


#: Of the awaited forms: the call, and what it is given. Each goes to the blocking call of its name as it is.
AWAITED = [
    ("register", ("layout",)), ("push", (9,)), ("accept", ()), ("unregister", ()), ("catalog", ()), ("publish", (9,)), ("wait_sealed", ()),
    ("retain", ("latest",)), ("let_go", (9,)), ("unpublish", ()), ("replicate", ("latest",)), ("update", ("latest-1",)), ("fetch", (9,)),
    ("list", ()), ("wait", ("until",)), ("close", ()),
]


class Noted:
    """A blocking handle: notes its calls, and in which thread."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def _here(self, call: Any) -> Any:
        return lambda *told, **named: ("here", call(*told, **named))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def called(*told: Any, **named: Any) -> str:
            self.calls.append((name, told, named, threading.current_thread().name))
            return name

        return called


class Exits(Noted):
    """Notes how its block ended."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __exit__(self, *told: Any) -> None:
        self.log.append(told)


@pytest.mark.parametrize(("name", "told"), AWAITED)
def test_an_awaited_call_is_the_blocking_one_in_the_handles_thread(name: str, told: Any) -> None:
    blocking = Noted()
    awaited = aio.Handle(blocking)
    got = asyncio.run(getattr(awaited, name)(*told, deadline=1.5, more=2))
    assert blocking.calls == [(name, told, {"deadline": 1.5, "more": 2}, "weightcast-aio_0")]
    nothing = name in ("register", "unregister", "publish", "wait_sealed", "let_go", "unpublish", "close")
    assert got == (None if nothing else ("here", name))
    assert awaited.blocking is blocking


def test_awaited_calls_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = Noted()
    awaited = aio.Handle(blocking)

    async def job() -> None:
        assert await awaited.update() == ("here", "update") and await awaited.fetch() == ("here", "fetch")
        assert await awaited.install() == ("here", "install")
        await awaited.close()
        await awaited.close()
        async with awaited as same:
            assert same is awaited

    asyncio.run(job())
    assert [call[:3] for call in blocking.calls] == [("update", ("latest",), {}), ("fetch", ("latest",), {}), ("install", (), {}), ("close", (), {})]
    assert awaited._thread._shutdown, "its thread has ended"
    error = KeyError()

    async def block(raises: Any) -> None:
        async with aio.Handle(Exits(log)):
            if raises is not None:
                raise raises

    log: list[Any] = []
    asyncio.run(block(None))
    with pytest.raises(KeyError):
        asyncio.run(block(error))
    assert log == [(None, None, None), (KeyError, error, log[1][2])] and log[1][2] is not None
    assert repr(awaited).startswith("<aio <") and awaited.version() == "version"
    made, threads = aio._thread, []
    monkeypatch.setattr(aio, "_thread", lambda: threads.append(made()) or threads[-1])
    with pytest.raises(TypeError):
        asyncio.run(aio.open("m", "no replica"))
    assert threads[0]._shutdown, "nor is it left where opening fails"


def test_a_call_without_a_deadline_has_a_minute() -> None:
    for name, positional, _, _ in CALLS:
        called = Called(getattr(_core.Handle, name), ANSWERS.get(name), method=True)
        getattr(wc.Handle(Native(**{name: called}), "policy", ME), name)(*positional)
        assert called.arguments["deadline"] == 60.0


def vars_of(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__match_args__}


@pytest.mark.parametrize("name", ["replicate", "update"])
def test_what_a_transfer_came_to_has_its_names(name: str) -> None:
    called = Called(getattr(_core.Handle, name), HELD, method=True)
    got = getattr(wc.Handle(Native(**{name: called}), "policy", ME), name)("latest")
    assert vars_of(got) == {
        "changed": True, "version": 21, "epoch": 22, "source": "trainer-1", "bytes": 23, "verified": 24,
        "seconds": 25.5, "plan_seconds": 26.5, "way": "tcp", "way_reason": "other host", "staged": 27,
        "install_seconds": 28.5, "helpers": ("relay-1", "relay-2"), "plan_from": "file",
        "bytes_direct": 29, "bytes_tcp": 30, "unchanged": 31, "given": (32, 33),
        "bytes_shared": 34, "bytes_siblings": 35,
    }


def test_a_transfer_that_changed_nothing_holds_nothing() -> None:
    nothing = {"changed": False, "version": None, "epoch": None}
    called = Called(_core.Handle.update, wc.Updated(**{**vars_of(HELD), **nothing}), method=True)
    got = wc.Handle(Native(update=called), "policy", ME).update()
    assert (got.changed, got.version, got.epoch, bool(got)) == (False, None, None, False)
    assert called.arguments["selector"] == wc.latest()


def test_serve_passes_all_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(_core.serve)
    monkeypatch.setattr(server, "_core", Native(serve=called))
    given = {"insecure": True, "lease": 41.0, "drain_deadline": 42.0, "fanout": 43, "host_fanout": 46, "stripes": 44,
             "index": 45, "metrics": "unix:/metrics", "trace": "/spans", "otlp": "http://c:1", "record_dir": "/records"}
    wc.serve("unix:/socket", token_file=Path("/token"), **given)
    assert called.arguments == {"address": "unix:/socket", "token_file": "/token", **given}


def test_status_passes_all_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(_core.status, {"models": []})
    monkeypatch.setattr(server, "_core", Native(status=called))
    assert wc.status("one:1", token_file=Path("/token"), job="night") == {"models": []}
    assert called.arguments == {"server": "one:1", "token_file": "/token", "job": "night"}


VERDICT = wc.Verdict(
    equal=False, model="policy", epoch=1, version=2, replicas=(), tensors=3, different=(), differences=(),
    digested=4, moved=5, seconds=6.5,
)


@pytest.mark.parametrize("other, sealed", [("rollout-4", False), (None, True)])
def test_verify_passes_all_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, other: str | None, sealed: bool
) -> None:
    called = Called(_core.verify, VERDICT)
    monkeypatch.setattr(verdict, "_core", Native(verify=called))
    got = wc.verify("policy", "rollout-3", other, sealed=sealed, version=8, server=["one:1", "two:2"],
                    token_file=Path("/token"), job="night", deadline=51.0)
    assert called.arguments == {
        "model": "policy", "replica": "rollout-3", "other": other, "sealed": sealed, "version": wc.exact(8),
        "server": "one:1,two:2", "token_file": "/token", "job": "night", "deadline": 51.0,
    }
    assert (got.epoch, got.version, got.tensors, got.digested, got.moved, got.seconds) == (1, 2, 3, 4, 5, 6.5)


HOLDER = wc.HeldBy("rollout-4", 1, "node:2", None)
PLACE = wc.DifferentRange(((3, 4),), True, False, ((HOLDER,),))
RECORDS = [HELD, LISTED, VERDICT, HOLDER, PLACE, wc.Difference("w", "BF16", (5, 6), (PLACE,), 7), wc.Verified("a", 8, 9, True, False)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_comes_back_behaves_as_a_frozen_dataclass(record: Any) -> None:
    kind, fields = type(record), vars_of(record)
    like = dataclasses.make_dataclass(kind.__name__, fields, frozen=True)(**fields)
    assert repr(record) == repr(like) and hash(record) == hash(like)
    again = pickle.loads(pickle.dumps(record))
    assert again == record == kind(**fields) and type(again) is kind
    name, *_ = fields
    assert kind(**{**fields, name: fields[name]}) == record != like
    with pytest.raises(AttributeError):
        setattr(record, name, fields[name])


def test_results_are_true_if_something_changed_or_all_is_equal() -> None:
    assert HELD and not VERDICT and wc.Verdict(**{**vars_of(VERDICT), "equal": True})
    assert not wc.Updated(**{**vars_of(HELD), "changed": False})


def test_every_field_counts_when_results_are_compared() -> None:
    others: dict[type, Any] = {
        bool: lambda value: not value, type(None): lambda _: True, str: lambda value: value + "x",
        int: lambda value: value + 1, float: lambda value: value + 1, tuple: lambda value: value[::-1] + (1,) * (not value),
    }
    for record in RECORDS:
        fields = vars_of(record)
        for name, value in fields.items():
            other = others[type(value)](value)
            if other != value:  # one place alone reads the same backwards
                assert type(record)(**{**fields, name: other}) != record, name
