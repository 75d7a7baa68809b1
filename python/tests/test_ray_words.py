"""Jobs on Ray without Ray: what the manager asks of which actor, what an actor does when its servers are lost, where
servers are started, and what is left behind."""

import signal
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

from .stand_ins import stand_in

OURS = [f"weightcast.adapters.ray{rest}" for rest in ("", ".book", ".notices", ".scaling", ".servers", ".sync", ".weights", ".where", ".transport")]


class Context:
    """What Ray says of this process."""

    def __init__(self) -> None:
        self.actor: str | None = "a" * 32
        self.was_current_actor_reconstructed = False

    def get_actor_id(self) -> str | None:
        return self.actor

    def get_node_id(self) -> str:
        return "node"

    def get_node_labels(self) -> dict[str, str]:
        return {"ray.io/region": "north"}

    def get_placement_group_id(self) -> None:
        return None

    def get_job_id(self) -> str:
        return "job"

    def get_worker_id(self) -> str:
        return "w" * 40


class Ref:
    """The answer to a call: here at once, an error, or not yet."""

    def __init__(self, value: Any = None, late: bool = False) -> None:
        self.value, self.late = value, late


class Cluster:
    """Ray, as far as it is asked: actors answer as `answers` says, and all that is asked is noted."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.context, self.draining = Context(), dict[str, int]()
        self.answers: dict[tuple[str, str], Any] = {}
        self.waited: list[float | None] = []

    def actor(self, name: str) -> Any:
        def remote(do: Callable[..., Any], *given: Any) -> Ref:
            self.log.append((name, do.__name__.strip("_"), *given))
            answer = self.answers.get((name, do.__name__.strip("_")))
            return answer if isinstance(answer, Ref) else Ref(answer)

        return Actor(name, remote)

    def get(self, refs: Any, timeout: float | None = None) -> Any:
        listed = refs if isinstance(refs, list) else [refs]
        for ref in listed:
            if ref.late:
                raise TimeoutError("late")
            if isinstance(ref.value, BaseException):
                raise ref.value
        return [ref.value for ref in listed] if isinstance(refs, list) else refs.value

    def wait(self, refs: list[Ref], num_returns: int = 1, timeout: float | None = None) -> tuple[list[Ref], list[Ref]]:
        self.waited.append(timeout)
        assert num_returns <= len(refs)
        return [ref for ref in refs if not ref.late], [ref for ref in refs if ref.late]

    def did(self, what: str | None = None) -> list[Any]:
        found = [one for one in self.log if what is None or one[1] == what]
        self.log.clear()
        return found


class Actor:
    def __init__(self, name: str, remote: Any) -> None:
        self.name, self.__ray_call__ = name, SimpleNamespace(remote=remote)

    def __repr__(self) -> str:
        return self.name


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    rig = Cluster()
    stand_in(monkeypatch, "ray", {
        "ray": {"get": rig.get, "wait": rig.wait, "get_runtime_context": lambda: rig.context, "nodes": lambda: []},
        "ray.util": {"get_node_ip_address": lambda: "10.0.0.7"},
        "ray._private.state": {"state": SimpleNamespace(get_draining_nodes=lambda: rig.draining)},
        "ray.experimental": {},
        "ray.experimental.internal_kv": {},
    }, OURS)
    return rig


def manager(rig: Cluster, rollouts: int = 2, **options: Any) -> Any:
    from weightcast.adapters.ray import WeightSync

    for n in range(rollouts):
        rig.answers[f"r{n}", "update"] = (99, f"node {n}")
    return WeightSync([rig.actor("t0"), rig.actor("t1")], [rig.actor(f"r{n}") for n in range(rollouts)], **options)


def test_trainers_publish_before_rollouts_update_and_take_back_after(cluster: Cluster) -> None:
    sync = manager(cluster, model="m", staged=True, deadline=9.0)
    sent = sync.send()
    assert sent and sent.version == sync.version == 1 and [one.name for one in sent.updated] == ["r0", "r1"] and sent.missed == {}
    first = cluster.did()
    assert first == [
        *[(t, "joined", "m", "trainer") for t in ("t0", "t1")], *[(r, "joined", "m", "rollout") for r in ("r0", "r1")],
        *[(t, "publish", "m", 1, 9.0) for t in ("t0", "t1")], *[(r, "update", "m", 1, True, 9.0) for r in ("r0", "r1")],
        *[(t, "take_back", "m", 9.0) for t in ("t0", "t1")],
    ]
    sync.send()
    assert cluster.did() == [one[:3] + (2,) + one[4:] if one[1] in ("publish", "update") else one for one in first if one[1] != "joined"]
    assert sync.send(7).version == sync.version == 7
    for again in (7, 3):
        with pytest.raises(wc.Misuse, match=f"version {again} does not come after 7"):
            sync.send(again)
    assert sync.version == 7
    with pytest.raises(wc.Misuse, match="give all trainer actors"):
        manager(cluster).__class__([])


def test_a_version_is_kept_until_the_next_if_that_is_asked_for(cluster: Cluster) -> None:
    sync = manager(cluster, keep=True)
    sync.send()
    assert [one[1] for one in cluster.did()] == ["joined"] * 4 + ["publish"] * 2 + ["update"] * 2


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_trainer_raises_is_raised_and_its_number_is_spent(cluster: Cluster, keep: bool) -> None:
    sync = manager(cluster, keep=keep)
    cluster.answers["t1", "publish"] = Ref(RuntimeError("no"))
    with pytest.raises(RuntimeError, match="no"):
        sync.send()
    assert [one[:2] for one in cluster.did()][-4:] == [("t0", "publish"), ("t1", "publish"), ("t0", "take_back"), ("t1", "take_back")]
    del cluster.answers["t1", "publish"]
    assert sync.send().version == 2
    cluster.answers["t0", "take_back"] = Ref(wc.ContentMismatch("nobody could read it"))
    if keep:
        sync.send()
    else:
        with pytest.raises(wc.ContentMismatch):
            sync.send()
    assert sync.version == 3


def test_a_rollout_that_fails_stops_no_other_and_is_asked_again(cluster: Cluster) -> None:
    sync = manager(cluster, rollouts=4, deadline=9.0)
    failing, late, behind, well = sync.rollouts
    cluster.answers["r0", "update"] = Ref(RuntimeError("first line\n  trace\nValueError: why\n"))
    cluster.answers["r1", "update"] = Ref(late=True)
    cluster.answers["r2", "update"] = (None, "node 2")
    sent = sync.send()
    assert not sent and sent.updated == (well,)
    assert sent.missed == {failing: "ValueError: why", late: "has not answered within 9.0 s", behind: "holds version None"}
    cluster.did()
    cluster.answers["r0", "update"], cluster.answers["r2", "update"] = (2, "node 0"), (1, "node 2")
    sent = sync.send()
    assert sent.updated == (failing, well)
    assert sent.missed == {late: "has not joined yet, or is still busy with a former version", behind: "holds version 1"}
    assert [one[0] for one in cluster.did("update")] == ["r0", "r2", "r3"], "who is busy is not asked"
    cluster.answers["r1", "update"].late = False
    for name in ("r0", "r1", "r2"):
        cluster.answers[name, "update"] = (3, "node")
    assert sync.send() and [one[0] for one in cluster.did("update")] == ["r0", "r1", "r2", "r3"]


def test_a_rollout_that_is_new_is_waited_for_at_the_first_version_and_a_moment_later(cluster: Cluster) -> None:
    sync = manager(cluster, deadline=9.0)
    cluster.answers["r1", "joined"] = Ref(late=True)
    sent = sync.send()
    assert [one.name for one in sent.updated] == ["r0"] and "has not joined yet" in sent.missed[sync.rollouts[1]]
    assert cluster.waited[0] == 9.0
    cluster.waited.clear()
    cluster.log.clear()
    sync.rollouts.append(cluster.actor("new"))
    cluster.answers["new", "update"] = (5, "node")
    sync.send()
    assert cluster.waited[0] == 1.0 and [one[0] for one in cluster.did("joined")] == ["new"], "each is asked once"


def test_rollouts_leave_a_node_that_is_taken_away_once(cluster: Cluster) -> None:
    from weightcast.adapters.ray.weights import NOTICE

    sync = manager(cluster)
    sync.send()
    cluster.did()
    cluster.draining["node 1"] = 0
    for _ in range(2):
        sent = sync.send()
        assert sent.missed == {sync.rollouts[1]: "leaves node node 1, which is taken away"}
    assert [one for one in cluster.did() if one[0] == "r1"] == [("r1", "leave", "policy", NOTICE)]
    cluster.draining.clear()
    assert sync.send()
    cluster.draining["node 1"] = 0
    sync.send()
    assert [one[1] for one in cluster.did() if one[0] == "r1"] == ["update", "leave"], "it is told anew when its node goes anew"


def test_an_update_of_a_rollout_asks_twice_where_the_server_does_not_know_yet(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from weightcast.adapters.ray import sync

    for holds, then, wanted in ((3, 3, ["update"]), (4, 4, ["update"]), (2, 3, ["update", "wait", "update"]), (None, 3, ["update", "wait", "update"])):
        log: list[Any] = []

        class Weights:
            version = None

            def update(self, holds: Any = holds, then: Any = then, log: list[Any] = log, **options: Any) -> None:
                self.version = holds if not log else then
                log.append(("update", options))

            def wait(self, condition: Any, log: list[Any] = log, **options: Any) -> None:
                assert repr(condition) == repr(wc.available(wc.at_least(3)))
                log.append(("wait", options))

        there = {("m", "rollout"): Weights()}
        monkeypatch.setattr(sync, "held", lambda model, role, there=there: there[model, role])
        assert sync._update(object(), "m", 3, True, 9.0) == (then, "node")
        assert [one[0] for one in log] == wanted
        assert all(options == ({"staged": True, "deadline": 9.0} if name == "update" else {"deadline": 9.0}) for name, options in log)


# What an actor holds


class Handles:
    """Handles that are opened one after the other; `fails` says which call of which of them raises what."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.fails: dict[tuple[int, str], BaseException] = {}
        self.opened: list[Any] = []
        self.versions: dict[int, int | None] = {}

    def open(self, model: str, replica: Any, **options: Any) -> Any:
        self.opened.append((model, replica, options))
        return Handle(self, len(self.opened) - 1)


class Handle:
    def __init__(self, rig: Handles, number: int) -> None:
        self.rig, self.number = rig, number

    @property
    def version(self) -> int | None:
        return self.rig.versions.get(self.number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def called(*given: Any, **named: Any) -> Any:
            self.rig.log.append((self.number, name, *given))
            if (self.number, name) in self.rig.fails:
                raise self.rig.fails.pop((self.number, name))
            if name in ("publish", "update"):
                self.rig.versions[self.number] = given[0] if isinstance(given[0], int) else 8
            if name in ("unpublish", "close"):
                self.rig.versions[self.number] = None
            return SimpleNamespace(version=8) if name == "update" else {8: {"r"}}

        return called


@pytest.fixture
def handles(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Handles:
    from weightcast.adapters.ray import weights

    rig = Handles()
    monkeypatch.setattr(weights, "open_handle", rig.open)
    monkeypatch.setattr(weights, "servers_of", lambda name: SimpleNamespace(addresses=(f"http://{name}",), token_file="file"))
    monkeypatch.setattr(weights, "_held", {})
    monkeypatch.setattr(weights.signal, "signal", lambda *_: None)
    monkeypatch.setattr(weights.atexit, "register", lambda call: rig.log.append("at exit"))
    monkeypatch.setattr(weights.atexit, "unregister", lambda call: None)
    return rig


def test_a_handle_knows_its_place_and_its_servers(cluster: Cluster, handles: Handles) -> None:
    from weightcast.adapters.ray import weights

    layout = wc.Layout()
    held = weights.rollout(layout, "m", name="r", servers="other", way="tcp", notice=3)
    [(model, replica, options)] = handles.opened
    assert model == "m" and replica == wc.Replica("r-aaaaaaaa", datacentre="north", host="node")
    assert options == {
        "role": "rollout", "epoch": "current", "way": "tcp", "server": ["http://other"], "token_file": "file", "data_bind": "10.0.0.7:0",
    }
    assert weights.held("m", "rollout") is held and handles.log == [(0, "register", layout), "at exit"]
    with pytest.raises(wc.Misuse, match="this actor holds no m as trainer, but m as rollout"):
        weights.held("m", "trainer")
    handles.log.clear()
    held.leave()
    assert handles.log == [(0, "close")] and held.version is None
    with pytest.raises(wc.Misuse, match="this actor holds no m as rollout, but nothing"):
        weights.held("m", "rollout")
    with pytest.raises(wc.Misuse, match="this actor has left m"):
        held.update()
    held.leave()


@pytest.mark.parametrize(("restarted", "options", "epochs"), [
    (False, {}, ["new", "current"]), (True, {}, ["current", "current"]), (True, {"epoch": "new"}, ["new", "current"]),
])
def test_a_trainer_begins_one_run_in_all_its_lives(cluster: Cluster, handles: Handles, restarted: bool, options: dict[str, str], epochs: list[str]) -> None:
    from weightcast.adapters.ray import weights

    cluster.context.was_current_actor_reconstructed = restarted
    held = weights.trainer(wc.Layout(), "m", **options)
    handles.fails[0, "publish"] = wc.ServerUnreachable("gone")
    held.publish(4)
    assert [told["epoch"] for _, _, told in handles.opened] == epochs
    assert [one[:2] for one in handles.log if one != "at exit"] == [
        (0, "register"), (0, "publish"), (0, "close"), (1, "register"), (1, "publish"),
    ]
    assert held.handle.number == 1 and held.version == 4


def test_a_handle_that_ends_is_replaced_once_and_other_errors_are_raised(cluster: Cluster, handles: Handles) -> None:
    from weightcast.adapters.ray import weights

    made: list[Any] = []
    layout = wc.Layout()
    held = weights.rollout(lambda handle: made.append(handle.number) or layout, "m")
    handles.log.clear()
    handles.fails |= {(0, "update"): wc.GroupBroken("gone"), (1, "update"): wc.ServerUnreachable("again")}
    with pytest.raises(wc.ServerUnreachable):
        held.update(3)
    assert made == [0], "the same memory is registered again"
    assert handles.log == [(0, "update", 3), (0, "close"), (1, "register", layout), (1, "update", 3)]
    handles.fails[1, "wait"] = wc.Timeout("late")
    with pytest.raises(wc.Timeout):
        held.wait(lambda listing: True)
    assert len(handles.opened) == 2
    handles.fails |= {(1, "update"): wc.GroupBroken("gone"), (2, "register"): wc.LayoutMismatch("other")}
    handles.log.clear()
    with pytest.raises(wc.LayoutMismatch):
        held.update(3)
    assert [one[:2] for one in handles.log] == [(1, "update"), (1, "close"), (2, "register"), (2, "close")], "what was opened is closed"


def test_what_is_published_is_taken_back_before_the_source_is_asked(cluster: Cluster, handles: Handles) -> None:
    from weightcast.adapters.ray import weights

    class Source:
        publishes = True

        def layout(self) -> wc.Layout:
            return wc.Layout()

        def refresh(self) -> None:
            handles.log.append("refresh")

    held = weights.Weights("m", "trainer", "t", Source(), {})
    handles.log.clear()
    held.publish(1)
    held.publish(2)
    assert handles.log == ["refresh", (0, "publish", 1), (0, "unpublish"), "refresh", (0, "publish", 2)]
    handles.fails[0, "unpublish"] = wc.GroupBroken("gone")
    handles.log.clear()
    held.take_back()
    assert handles.log == [(0, "unpublish")], "nothing is published by a handle that has ended"
    handles.fails[0, "unpublish"] = wc.ContentMismatch("refused")
    with pytest.raises(wc.ContentMismatch):
        held.take_back()
    other = Source()
    other.publishes = False
    handles.log.clear()
    idle = weights.Weights("n", "trainer", "t", other, {})
    idle.publish(1)
    assert idle.handle is None and handles.log == ["at exit", "refresh"], "a rank that serves nothing still gathers"


def test_only_a_trainer_that_was_restarted_resumes(cluster: Cluster, handles: Handles) -> None:
    from weightcast.adapters.ray import weights

    first = weights.trainer(wc.Layout(), "m")
    assert first.resume() is None
    cluster.context.was_current_actor_reconstructed = True
    again = weights.trainer(wc.Layout(), "m")
    handles.log.clear()
    assert again.resume() == 8
    assert [one[1] for one in handles.log] == ["list", "update", "unpublish"] and again.version is None


def test_a_worker_that_is_ended_leaves_first_and_then_does_what_it_would_have_done(cluster: Cluster, handles: Handles, monkeypatch: pytest.MonkeyPatch) -> None:
    from weightcast.adapters.ray import weights

    installed: list[Any] = [lambda number, frame: handles.log.append(("before", number))]
    monkeypatch.setattr(weights.signal, "getsignal", lambda number: installed[-1])
    monkeypatch.setattr(weights.signal, "signal", lambda number, handler: installed.append(handler))
    for model in ("m", "n"):
        weights.rollout(wc.Layout(), model)
    assert len(installed) == 2, "once for a process"
    handles.log.clear()
    installed[-1](signal.SIGTERM, None)
    assert handles.log == [(0, "close"), (1, "close"), ("before", signal.SIGTERM)]
    thread = threading.Thread(target=weights._leave_on_sigterm)
    installed[:] = [None]
    thread.start()
    thread.join()
    assert installed == [None], "only a main thread gets signals"


# Servers


def test_books_of_servers_agree_whenever_they_are_read(cluster: Cluster) -> None:
    from weightcast.adapters.ray.book import Entry, entered, in_order

    books: dict[int, Entry] = {}
    for index, address in ((1, "b"), (0, "a"), (2, "c")):
        books[index] = entered(books, index, address)
    assert in_order(books) == ("a", "b", "c")
    books[0] = entered(books, 0, "a")
    assert in_order(books) == ("a", "b", "c"), "at its former address it keeps its place"
    books[0] = entered(books, 0, "d")
    assert in_order(books) == ("b", "c", "d"), "one that has moved comes behind all that are there"
    books[1] = entered(books, 1, "e")
    assert in_order(books) == ("c", "d", "e")
    assert all(Entry.decoded(entry.encoded()) == entry for entry in books.values())


def test_a_server_takes_the_first_port_that_is_free(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import weightcast.adapters.ray.servers  # noqa: F401 - the package has a function of this name

    servers = sys.modules["weightcast.adapters.ray.servers"]
    tried: list[Any] = []

    def serve(address: str, **options: Any) -> str:
        tried.append((address, options))
        if len(tried) < 3:
            raise wc.Misuse(f"{address} is taken")
        return "server"

    monkeypatch.setattr(servers, "serve_here", serve)
    assert servers._started("10.0.0.7", iter([1, 2, 3, 4]), {"lease": 5}) == "server"
    assert tried == [(f"10.0.0.7:{port}", {"lease": 5}) for port in (1, 2, 3)]
    tried.clear()
    with pytest.raises(wc.Misuse, match="no reference server could be started at fe80::1: .fe80::1.:2 is taken"):
        servers._started("fe80::1", iter([1, 2]), {})
    ports = list(servers._ports("seed"))
    assert ports == list(servers._ports("seed")) != list(servers._ports("other"))
    assert len(ports) == servers.TRIES and all(port in servers.PORTS for port in ports) and len(set(ports)) > 10


def test_servers_that_are_missing_are_started_and_share_the_token_of_those_there(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import weightcast.adapters.ray.servers  # noqa: F401

    servers = sys.modules["weightcast.adapters.ray.servers"]
    started: list[Any] = []
    there: dict[int, Any] = {}

    def start(name: str, index: int, nodes: list[str], token: str, options: dict[str, Any]) -> Any:
        started.append((name, index, list(nodes), token, options))
        there[index] = SimpleNamespace(token=SimpleNamespace(remote=lambda: Ref(token)))
        return there[index]

    monkeypatch.setattr(servers, "_actors", lambda name: dict(there))
    monkeypatch.setattr(servers, "_start", start)
    monkeypatch.setattr(servers, "_books", lambda name: {i: servers.Entry(0, f"address {i}") for i in there})
    monkeypatch.setattr(servers, "_kept", [])
    first = servers.serve(2, nodes=["a"], lease=5)
    [(_, index, nodes, token, options)] = started
    assert (index, nodes, options) == (0, ["a"], {"lease": 5}) and len(token) == 64 and first.token == token
    assert servers._kept == [there[0]], "Ray ends an actor to which nobody has a handle"
    more = servers.serve(3, nodes=["a", "b", "c", "d"])
    assert [one[1:4] for one in started[1:]] == [(1, ["a", "b", "c"], token), (2, ["a", "b", "c"], token)]
    assert more.addresses == ("address 0", "address 1", "address 2") and token not in repr(more)
    with open(more.token_file) as file:
        assert file.read() == token
    del there[1]
    servers.serve(3, nodes=["a", "b", "c"])
    assert started[-1][1] == 1 and len(started) == 4
    with pytest.raises(wc.Misuse, match="count=0"):
        servers.serve(0)


@pytest.mark.parametrize(("rollouts", "waiting", "missed", "wanted"), [
    (2, 0, 0, 1), (2, 8, 0, 2), (2, 9, 0, 3), (2, 9, 1, 2), (1, 900, 0, 5), (5, 0, 2, 4), (1, 0, 0, 1), (0, 0, 3, 1), (0, 9, 0, 3),
])
def test_rollouts_follow_the_backlog(cluster: Cluster, rollouts: int, waiting: int, missed: int, wanted: int) -> None:
    from weightcast.adapters.ray.scaling import Scale

    assert Scale(1, 5, 4).wanted(rollouts, waiting, missed) == wanted


@pytest.mark.parametrize(("at", "left"), [(0, 25.0), (100_000, 25.0), (22_000, 10.0), (12_000, 0.0), (1, 0.0)])
def test_a_worker_leaves_before_its_node_goes(cluster: Cluster, at: int, left: float) -> None:
    from weightcast.adapters.ray.notices import left_by

    assert left_by(at, 25.0, now_ms=10_000) == left
