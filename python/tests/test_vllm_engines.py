"""Engines updated together, without vLLM: clients that fail where a test says, and what they serve in the end."""

import itertools
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState

torch = pytest.importorskip("torch")

from weightcast.adapters.engine.engines import TRIES, Engines  # noqa: E402
from weightcast.adapters.engine.http import Gone  # noqa: E402
from weightcast.adapters.engine.sources import Copied, InPlace, source_of  # noqa: E402
from weightcast.adapters.vllm import HTTPEngine  # noqa: E402

STEPS = ("start_weight_update", "update_weights", "pause", "finish_weight_update", "resume")


class Client:
    """An engine that holds version 1, and fails its next `failures[step]` calls of a step."""

    def __init__(
        self, failures: dict[str, int], *, halfway: bool = False, dead: bool = False, lost: bool = False
    ) -> None:
        """`lost`: the answer of its next install is lost."""
        self.failures, self.halfway, self.dead, self.lost = dict(failures), halfway, dead, lost
        self.stamped = 1
        self.held, self.fetched, self.failed = 1, None, None
        self.incomplete = None
        self.serving = True
        self.active = False

    def _come(self, step: str) -> None:
        if self.dead or self.failures.get(step, 0) > 0:
            if step in self.failures:
                self.failures[step] -= 1
            raise RuntimeError(f"{step} fails")

    def start_weight_update(self) -> None:
        self._come("start_weight_update")
        if self.active:
            raise RuntimeError("an update is active")
        self.active = True

    def update_weights(self, info: dict) -> None:
        if info.get("abandon"):
            self.active = False
            raise RuntimeError("abandoned")
        self._come("update_weights")
        self.fetched = info["version"]

    def finish_weight_update(self, version: str) -> None:
        if not self.active:
            raise RuntimeError("finish without a start")
        try:
            self._come("finish_weight_update")
        except RuntimeError:
            self.incomplete = "halfway" if self.halfway else None
            raise
        self.held, self.fetched, self.incomplete, self.active = self.fetched, None, None, False
        if self.lost:
            self.lost = False
            raise RuntimeError("no answer")
        self.stamped = int(version)

    def stamp(self, version: str) -> None:
        self._come("stamp")
        self.stamped = int(version)

    def pause(self, mode: str) -> None:
        self._come("pause")
        self.serving = False

    def resume(self) -> None:
        self._come("resume")
        self.serving = True

    def states(self) -> list[EngineState]:
        if self.dead:
            raise RuntimeError("dead")
        return [EngineState(self.held, self.fetched, self.incomplete, self.failed)]


def update(clients: list[Client], version: int) -> None:
    """As the trainer does."""
    engines = Engines(clients)
    engines.begin()
    try:
        engines.fetch(version, deadline=1.0)
    except BaseException:
        engines.abandon()
        raise
    try:
        engines.pause("abort")
    except BaseException:
        engines.abandon()
        engines.resume()
        raise
    engines.install(version)


def test_all_go_on_with_the_new_version() -> None:
    clients = [Client({}) for _ in range(3)]
    update(clients, 2)
    assert all(c.serving and c.held == 2 for c in clients)


def test_a_fetch_that_fails_leaves_all_as_they_were() -> None:
    clients = [Client({}), Client({"update_weights": 1}), Client({})]
    with pytest.raises(RuntimeError, match="update_weights"):
        update(clients, 2)
    assert all(c.serving and c.held == 1 and not c.active for c in clients)
    update(clients, 3)
    assert all(c.serving and c.held == 3 for c in clients)


def test_an_update_that_a_lost_trainer_left_open_is_abandoned() -> None:
    client = Client({})
    client.active = True
    update([client], 2)
    assert client.held == 2


def test_whole_engines_go_on_with_the_old_version_if_nobody_has_the_new_one() -> None:
    clients = [Client({"finish_weight_update": TRIES}) for _ in range(2)]
    with pytest.raises(wc.WeightcastError, match="2 of 2 engines"):
        update(clients, 2)
    assert all(c.serving and c.held == 1 for c in clients)


def test_whole_engines_of_different_versions_do_not_go_on_side_by_side() -> None:
    clients = [Client({"finish_weight_update": TRIES}) for _ in range(2)]
    clients[1].held = clients[1].stamped = 0
    with pytest.raises(wc.WeightcastError, match="2 of 2 engines"):
        update(clients, 2)
    assert not any(c.serving for c in clients)


def test_an_incomplete_engine_stays_paused() -> None:
    clients = [Client({}), Client({"finish_weight_update": TRIES}, halfway=True)]
    with pytest.raises(wc.WeightcastError, match="1 of 2 engines"):
        update(clients, 2)
    assert [c.serving for c in clients] == [True, False]
    update([*clients[1:]], 3)
    assert clients[1].serving and clients[1].held == 3


def test_an_install_whose_answer_was_lost_counts() -> None:
    clients = [Client({}, lost=True), Client({})]
    update(clients, 2)
    assert all(c.serving and c.held == c.stamped == 2 for c in clients)


def test_an_engine_that_is_not_paused_stops_no_other() -> None:
    clients = [Client({}), Client({"pause": 1}), Client({})]
    with pytest.raises(RuntimeError, match="pause"):
        update(clients, 2)
    assert all(c.serving and c.held == 1 for c in clients)


def test_an_engine_that_is_not_resumed_stops_no_other() -> None:
    clients = [Client({"resume": 1}), Client({})]
    with pytest.raises(wc.WeightcastError, match="1 of 2 engines"):
        update(clients, 2)
    assert [c.serving for c in clients] == [False, True]


@pytest.mark.parametrize("seed", range(300))
def test_no_engine_serves_beside_one_of_another_version(seed: int) -> None:
    draw = random.Random(seed)
    clients = [
        Client(
            {step: draw.choice((0, 0, 0, 0, 1, TRIES)) for step in STEPS},
            halfway=draw.random() < 0.5,
            dead=draw.random() < 0.1,
            lost=draw.random() < 0.2,
        )
        for _ in range(draw.randint(1, 4))
    ]
    for version in (2, 3):
        try:
            update(clients, version)
        except (RuntimeError, wc.WeightcastError):
            pass
        alive = [c for c in clients if not c.dead and c.serving]
        assert all(c.incomplete is None and c.stamped == c.held for c in alive)
        held = {c.held for c in alive}
        assert len(held) <= 1, held


def test_routes_without_authentication_are_for_loopback() -> None:
    for url in ("http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:1", "https://engine.example"):
        assert HTTPEngine(url).base_url == url
    with pytest.raises(wc.Misuse, match="no authentication"):
        HTTPEngine("http://10.0.0.1:8000")
    HTTPEngine("http://10.0.0.1:8000", insecure=True)
    for url in ("10.0.0.1:8000", "ftp://x", "http://"):
        with pytest.raises(wc.Misuse, match="no http or https address"):
            HTTPEngine(url)


def test_a_server_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(wc.WeightcastError, match="VLLM_SERVER_DEV_MODE"):
        HTTPEngine("http://127.0.0.1:1", timeout=5.0).weight_version()


def test_a_module_is_published_where_it_lies() -> None:
    module = torch.nn.Linear(4, 4)
    source = source_of(module, 0)
    assert isinstance(source, InPlace) and source.publishes
    assert set(source.catalog()) == {"weight", "bias"} and len(source.layout()) == 2
    assert not source_of(module, 1).publishes, "rank 0 has all of it"


class Yielding:
    """A `WeightSource`, in the form whose metadata is a property, or a method."""

    def __init__(self, values: dict[str, torch.Tensor]) -> None:
        self.values = values
        self.extra: dict[str, torch.Tensor] = {}

    @property
    def metadata(self) -> list:
        made = itertools.starmap(_meta, self.values.items())
        return list(made)

    def __iter__(self):
        yield from {**self.values, **self.extra}.items()


def _meta(name: str, tensor: torch.Tensor):
    return type("ParamMeta", (), {"name": name, "dtype": tensor.dtype, "shape": tensor.shape})()


def test_another_source_is_copied_on_rank_0() -> None:
    values = {"a": torch.ones(3), "b": torch.ones(2, 2)}
    source = source_of(Yielding(values), 0)
    assert isinstance(source, Copied) and source.catalog()["b"].shape == (2, 2)
    layout = source.layout()
    assert len(layout) == 2
    values["a"] += 1
    source.refresh()
    assert torch.equal(source._tensors["a"], values["a"])
    source_of(Yielding(values), 1).refresh()
    source._source.extra["c"] = torch.ones(1)
    with pytest.raises(wc.LayoutMismatch, match="yields c"):
        source.refresh()
    del source._source.extra["c"]
    values["a"] = torch.ones(1)
    with pytest.raises(wc.LayoutMismatch, match=r"yields a as \(1,\)"):
        source.refresh()
    del values["a"]
    with pytest.raises(wc.LayoutMismatch, match="has not yielded a"):
        source.refresh()
    with pytest.raises(wc.Misuse, match="not int"):
        source_of(3, 0)


class Answering(BaseHTTPRequestHandler):
    """A server whose answer has no end, and whose `/health` says that the engine has died. It drops no caches."""

    def do_GET(self) -> None:
        well = self.path != "/health"
        self.send_response(200 if well else 503)
        self.end_headers()
        try:
            while well:
                self.wfile.write(b" " * 65536)
        except OSError:
            pass

    def do_POST(self) -> None:
        if self.path == "/resume":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            return
        if self.path.startswith("/reset_prefix_cache"):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"success": false}')
            return
        asked.wait()

    def log_message(self, *_: object) -> None: ...


asked = Event()


@pytest.fixture
def answering():
    asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    asked.set()
    server.shutdown()
    server.server_close()


def test_an_answer_without_end_is_not_read_to_its_end(answering: str) -> None:
    with pytest.raises(wc.WeightcastError, match="more than 1048576 bytes"):
        HTTPEngine(answering).weight_version()


def test_an_engine_that_died_is_noticed_while_a_request_waits(answering: str) -> None:
    with pytest.raises(wc.WeightcastError, match="the engine has died .*503.*; restart it"):
        HTTPEngine(answering).pause()


def test_only_an_address_where_nothing_listens_is_that_of_a_dead_engine(answering: str) -> None:
    """Whoever is busy may serve, and its fleet must not go on without it."""
    with pytest.raises(wc.WeightcastError, match="timed out") as caught:
        HTTPEngine(answering, timeout=0.1).pause()
    assert not isinstance(caught.value, Gone)
    with pytest.raises(Gone):
        HTTPEngine("http://127.0.0.1:1").pause()


def test_caches_that_are_not_dropped_are_an_error(answering: str) -> None:
    with pytest.raises(wc.WeightcastError, match="caches of keys and values were not dropped"):
        HTTPEngine(answering).invalidate()


def test_no_redirect_is_followed_and_no_proxy_used(answering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(wc.WeightcastError, match="302"):
        HTTPEngine(answering, headers={"Authorization": "Bearer key"}).resume()
