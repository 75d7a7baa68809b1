"""What trainers say to engines over HTTP, word by word, and what becomes of every kind of answer."""

import json
import pickle
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from weightcast.adapters.engine import EngineState, http  # noqa: E402
from weightcast.adapters.engine.http import Gone, Refused, Routes  # noqa: E402
from weightcast.adapters.sglang.http import Declined, SGLangEngine, StartedAgain  # noqa: E402
from weightcast.adapters.vllm import HTTPEngine  # noqa: E402
from weightcast.adapters.vllm.lora.client import Slot  # noqa: E402

Answer = tuple[int, str, bytes]
JSON = "application/json"


class Server(ThreadingHTTPServer):
    """Notes requests, and answers as a test says: by path, or `{}`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        self.over = Event()
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def wait(self) -> Answer:
        """An answer that does not come."""
        self.over.wait()
        return 200, JSON, b"{}"

    def handle_error(self, *_: Any) -> None: ...


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append((self.command, self.path, json.loads(body) if body else None))
        self.server.headers.append(dict(self.headers.items()))
        found = self.server.answers.get(self.path, (200, JSON, b"{}"))
        code, kind, said = found() if callable(found) else found
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.over.set()
    made.shutdown()
    made.server_close()


def routes(url: str, **more: Any) -> Routes:
    given = {"engine": "an X", "health": "well", "hint": "is it up?", "headers": None, "timeout": 10.0, "insecure": False}
    return Routes(url, **(given | more))


def test_a_request_has_its_method_its_body_and_its_headers(server: Server) -> None:
    ask = routes(server.url + "/", headers={"Authorization": "Bearer key"}).ask
    server.answers = {"/a": (200, JSON, b'{"b": [1]}'), "/text": (200, "text/plain", b"well\xff"), "/none": (200, "text/plain", b"")}
    assert ask("POST", "a", {"c": None}) == {"b": [1]}
    assert ask("GET", "a?d=e") == {}
    assert ask("POST", "text", []) == "well\N{REPLACEMENT CHARACTER}" and ask("POST", "none") is None
    assert server.heard == [("POST", "/a", {"c": None}), ("GET", "/a?d=e", None), ("POST", "/text", []), ("POST", "/none", None)]
    assert {h["Authorization"] for h in server.headers} == {"Bearer key"}
    assert {h["Content-Type"] for h in server.headers} == {JSON}
    routes(server.url).ask("GET", "a")
    assert "Authorization" not in server.headers[-1]


def test_an_answer_is_read_up_to_a_mebibyte(server: Server) -> None:
    server.answers = {"/fits": (200, "text/plain", b"a" * (1 << 20)), "/long": (200, "text/plain", b"a" * ((1 << 20) + 1))}
    assert routes(server.url).ask("GET", "fits") == "a" * (1 << 20)
    with pytest.raises(wc.WeightcastError) as caught:
        routes(server.url).ask("GET", "long")
    assert str(caught.value) == f"{server.url}/long: an answer of more than 1048576 bytes; is this the engine?"


def test_a_server_that_says_no_is_quoted(server: Server) -> None:
    server.answers = {"/a": (409, "text/plain", b"no\xff" + b"a" * 5000)}
    with pytest.raises(Refused) as caught:
        routes(server.url).ask("POST", "a")
    said = "no\N{REPLACEMENT CHARACTER}" + "a" * 5000
    assert str(caught.value) == f"{server.url}/a: 409: {said[:4096]}" and caught.value.said == said


def test_nothing_that_listens_is_told_from_an_answer_that_breaks_off(server: Server) -> None:
    with pytest.raises(Gone, match=r"^http://127.0.0.1:1/a: .*refused.*; is it up\?$"):
        routes("http://127.0.0.1:1").ask("GET", "a")

    def breaks_off() -> Answer:
        raise ConnectionAbortedError

    server.answers = {"/a": breaks_off}
    with pytest.raises(Exception) as caught:
        routes(server.url).ask("GET", "a")
    assert not isinstance(caught.value, Gone)


def slow(server: Server, health: Answer | Callable[[], Answer] | None) -> None:
    """A request to `/slow` is answered once a look at the server's health was taken."""
    looked = Event()

    def look() -> Answer:
        looked.set()
        return health() if callable(health) else health or (200, JSON, b"{}")

    def answer() -> Answer:
        looked.wait(20)
        return 200, JSON, b'"late"'

    server.answers = {"/slow": answer, "/well": look}


@pytest.mark.parametrize("health", [None, (404, JSON, b""), (500, JSON, b"")])
def test_a_server_that_is_busy_is_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch, health: Any) -> None:
    monkeypatch.setattr(http, "LOOK", 0.05)
    slow(server, health)
    assert routes(server.url, headers={"Authorization": "Bearer key"}).ask("POST", "slow") == "late"
    assert ("GET", "/well", None) in server.heard
    assert {h["Authorization"] for h in server.headers} == {"Bearer key"}


def test_a_server_that_does_not_say_how_it_is_is_busy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LOOK", 0.05)
    slow(server, server.wait)
    assert routes(server.url).ask("POST", "slow") == "late"


def test_a_server_whose_engine_has_died_is_gone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LOOK", 0.05)
    server.answers = {"/slow": server.wait, "/well": (503, JSON, b"")}
    with pytest.raises(Gone) as caught:
        routes(server.url).ask("POST", "slow")
    assert str(caught.value) == f"{server.url}/slow: the engine has died (/well: 503); restart it"


def test_a_server_that_has_gone_meanwhile_may_serve(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may be there: its fleet does not go on without it."""
    monkeypatch.setattr(http, "LOOK", 0.05)
    asked = Event()

    def stops() -> Answer:
        server.socket.close()
        asked.set()
        return server.wait()

    server.answers = {"/slow": stops}
    with pytest.raises(wc.WeightcastError, match=f"^{server.url}/slow: the server has gone .*; restart it$") as caught:
        routes(server.url).ask("POST", "slow")
    assert asked.is_set() and not isinstance(caught.value, Gone)


def test_hosts_that_are_this_one() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]"):
        routes(f"http://{host}:1")
    for host in ("10.0.0.1", "host", "localhost.example", "[::2]"):
        with pytest.raises(wc.Misuse) as caught:
            routes(f"http://{host}:1")
        assert str(caught.value).startswith(f"http://{host}:1: the weight routes of an X server have no authentication, ")
        assert routes(f"http://{host}:1/", insecure=True).base_url == f"http://{host}:1"
        routes(f"https://{host}:1")
    for wrong in ("ftp://localhost", "http:///a", "localhost:1", ""):
        with pytest.raises(wc.Misuse) as caught:
            routes(wrong)
        assert str(caught.value) == f"{wrong!r} is no http or https address of an X server"


# What each method asks. `said` answers questions by their path.

URL = "http://127.0.0.1:1"


def talk(engine: Any, said: dict[str, Any]) -> list[tuple[Any, ...]]:
    asked: list[tuple[Any, ...]] = []

    def ask(method: str, path: str, body: Any = None) -> Any:
        asked.append((method, path, body) if body is not None else (method, path))
        found = said.get(path.partition("?")[0], {})
        if callable(found):
            found = found(body)
        if isinstance(found, Exception):
            raise found
        return found

    engine.ask = ask
    return asked


def rpc(method: str, *arguments: Any) -> tuple[Any, ...]:
    return ("POST", "collective_rpc", {"method": method, "args": list(arguments)})


RESULTS = {"collective_rpc": {"results": [{"installed": 3, "fetched": None, "incomplete": None, "failed": "why"}, None]}}
STATE = EngineState(3, None, None, "why")
INVALID = ("POST", "reset_prefix_cache?reset_running_requests=true&reset_external=true")
VLLM = {
    "join": (lambda e: e.init_weight_transfer_engine({"model": "m"}), None,
             [("POST", "init_weight_transfer_engine", {"init_info": {"model": "m", "address": URL}})]),
    "join under another address": (lambda e: e.init_weight_transfer_engine({"address": "b"}), None,
                                   [("POST", "init_weight_transfer_engine", {"init_info": {"address": "b"}})]),
    "begin": (lambda e: e.start_weight_update(), None, [("POST", "start_weight_update", {})]),
    "fetch": (lambda e: e.update_weights({"version": 2}), None, [("POST", "update_weights", {"update_info": {"version": 2}})]),
    "install": (lambda e: e.finish_weight_update("2"), None, [("POST", "finish_weight_update", {"weight_version": "2"})]),
    "install without": (lambda e: e.finish_weight_update(), None, [("POST", "finish_weight_update", {"weight_version": None})]),
    "stamp": (lambda e: e.stamp("2"), None, [("POST", "update_weight_version", {"new_version": "2"})]),
    "workers": (lambda e: e.workers(), 2, [rpc("weightcast_state")]),
    "states": (lambda e: e.states(), [STATE], [rpc("weightcast_state")]),
    "order": (lambda e: e.order({"step": "Pause"}), RESULTS["collective_rpc"]["results"], [rpc("weightcast_order", {"step": "Pause"})]),
    "performed": (lambda e: e.performed({"n": 1}, "why"), RESULTS["collective_rpc"]["results"],
                  [rpc("weightcast_performed", {"n": 1}, "why")]),
    "invalidate": (lambda e: e.invalidate(), None, [INVALID]),
    "release": (lambda e: e.release(), None, [rpc("weightcast_release"), ("POST", "resume")]),
    "take": (lambda e: e.take("me", 3.0), None, [rpc("weightcast_turn", "take", "me", 3.0)]),
    "give back": (lambda e: e.give_back("me"), None, [rpc("weightcast_turn", "give_back", "me")]),
    "pause": (lambda e: e.pause(), None, [("POST", "pause?mode=abort")]),
    "pause otherwise": (lambda e: e.pause("a b"), None, [("POST", "pause?mode=a%20b")]),
    "resume": (lambda e: e.resume(), None, [("POST", "resume")]),
    "version": (lambda e: e.weight_version(), "7", [("GET", "weight_info")]),
    "paused": (lambda e: e.paused(), True, [("GET", "is_paused")]),
    "load": (lambda e: e.load_lora("n", "p"), None,
             [("POST", "v1/load_lora_adapter", {"lora_name": "n", "lora_path": "p", "load_inplace": True})]),
    "unload": (lambda e: e.unload_lora("n"), None, [("POST", "v1/unload_lora_adapter", {"lora_name": "n"})]),
}
EXTENSION = {
    "join": (lambda e: e.init_weight_transfer_engine({"model": "m"}), None, [rpc("weightcast_join", {"model": "m", "address": URL})]),
    "begin": (lambda e: e.start_weight_update(), None, [rpc("weightcast_begin")]),
    "fetch": (lambda e: e.update_weights({"version": 2}), None, [rpc("weightcast_fetch", {"version": 2})]),
    "install": (lambda e: e.finish_weight_update("2"), None,
                [rpc("weightcast_install"), ("POST", "update_weight_version", {"new_version": "2"})]),
    "install without": (lambda e: e.finish_weight_update(), None, [rpc("weightcast_install")]),
}
CASES = [(False, *one) for one in VLLM.values()] + [(True, *one) for one in EXTENSION.values()]


@pytest.mark.parametrize(("extension", "call", "result", "asks"), CASES, ids=[*VLLM, *(f"extension {n}" for n in EXTENSION)])
def test_what_a_trainer_asks_of_vllm(extension: bool, call: Any, result: Any, asks: list[Any]) -> None:
    engine = HTTPEngine(URL, extension=extension)
    said = {"weight_info": {"weight_version": 7}, "is_paused": {"is_paused": 1}, "reset_prefix_cache": {"success": True}}
    asked = talk(engine, RESULTS | said)
    assert call(engine) == result
    assert asked == asks


def test_what_vllm_does_not_do_is_an_error() -> None:
    engine = HTTPEngine(URL)
    no = Refused("r", 404, "The lora adapter 'n' cannot be found.")
    talk(engine, {"reset_prefix_cache": {"success": False}, "v1/unload_lora_adapter": no, "v1/load_lora_adapter": no,
                  "is_paused": {"is_paused": False}, "collective_rpc": None})
    with pytest.raises(wc.WeightcastError) as caught:
        engine.invalidate()
    assert str(caught.value) == f"{URL}: the caches of keys and values were not dropped"
    engine.unload_lora("n")
    with pytest.raises(Refused, match="cannot be found"):
        engine.load_lora("n", "p")
    assert engine.paused() is False and engine.on_workers("weightcast_state") == []
    talk(engine, {"v1/unload_lora_adapter": Refused("r", 404, '{"detail":"Not Found"}')})
    with pytest.raises(wc.Misuse) as caught:
        engine.unload_lora("n")
    assert str(caught.value) == (f"{URL} has no route for adapters; start the server with --enable-lora and "
                                 "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")
    talk(engine, {"v1/unload_lora_adapter": Refused("r", 500, "broken")})
    with pytest.raises(Refused, match="broken"):
        engine.unload_lora("n")
    assert isinstance(engine.slot("n"), Slot) and engine.slot("n").base_url == f"{URL}, adapter n"


def test_older_vllm_neither_stamps_nor_says_that_caches_were_dropped() -> None:
    engine = HTTPEngine(URL)
    asked = talk(engine, {"update_weight_version": Refused("r", 404, '{"detail":"Not Found"}'), "reset_prefix_cache": None})
    engine.stamp("2")
    engine.invalidate()
    assert asked == [VLLM["stamp"][2][0], INVALID]
    talk(engine, {"update_weight_version": Refused("r", 500, "broken")})
    with pytest.raises(Refused, match="broken"):
        engine.stamp("2")


# SGLang: everything about weights is asked in a session, and in a pause.

LOADER = "weightcast.adapters.sglang.load"
PAUSE, GO_ON = ("POST", "pause_generation", {"mode": "in_place"}), ("POST", "continue_generation", {"torch_empty_cache": False})
BEGIN, END = ("POST", "begin_weight_update", {"selector": "target"}), ("POST", "end_weight_update", {})


def rank(serves: bool = True, error: str | None = None, said: Any = None, state: Any = None) -> dict[str, Any]:
    return {"error": error, "state": state, "serves": serves, "said": said}


def ranks(*reports: dict[str, Any]) -> dict[str, Any]:
    return {"message": json.dumps({"ranks": list(reports)})}


def told(asked: tuple[Any, ...]) -> Any:
    """What the loaders of all ranks are asked for, and the number of ranks."""
    body = asked[2]
    assert asked[:2] == ("POST", "update_weights_from_tensor")
    assert {k: v for k, v in body.items() if k != "serialized_named_tensors"} == {
        "load_format": LOADER, "flush_cache": False, "selector": "target"
    }
    (payload,) = set(body["serialized_named_tensors"])
    ((text, tensor),) = pickle.loads(b64decode(payload))
    assert type(tensor) is torch.Tensor and tensor.numel() == 0
    return len(body["serialized_named_tensors"]), json.loads(text)


def simply(asked: list[tuple[Any, ...]]) -> list[Any]:
    """With what loaders are asked in the place of the request."""
    return [told(one) if one[1] == "update_weights_from_tensor" else one for one in asked]


def joined(said: Any = None) -> tuple[SGLangEngine, list[tuple[Any, ...]]]:
    engine = SGLangEngine(URL)
    engine._ranks = 2
    return engine, talk(engine, {"update_weights_from_tensor": said or ranks(rank(), rank())})


def session(do: str, **named: Any) -> list[Any]:
    return [BEGIN, (2, {"do": do, **named}), END]


def test_joining_an_engine_of_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: bits)
    engine, said = SGLangEngine(f"{URL}/"), iter([{"message": "Success"}, ranks(rank(), rank())])
    asked = talk(engine, {"server_info": {"custom_weight_loader": ["other", LOADER], "tp_size": 2},
                          "update_weights_from_tensor": lambda body: next(said)})
    engine.init_weight_transfer_engine({"model": "m", "address": None})
    told = simply(asked)
    assert told[:6] == [("GET", "server_info"), PAUSE, *session("watch"), GO_ON]
    assert told[6:8] == [PAUSE, BEGIN] and told[9:] == [END, GO_ON]
    count, joins = told[8]
    assert count == 2 and joins.pop("instance").startswith("127.0.0.1:1-")
    assert joins == {"do": "join", "settings": {"model": "m", "address": URL}, "life": 62}
    assert engine.workers() == 2
    talk(engine, {"server_info": {"tp_size": 2}})
    with pytest.raises(wc.Misuse) as caught:
        engine.init_weight_transfer_engine({})
    assert str(caught.value) == f"{URL}: start the server with --custom-weight-loader {LOADER}"
    for call in (SGLangEngine(URL).workers, SGLangEngine(URL).states):
        with pytest.raises(wc.Misuse) as caught:
            call()
        assert str(caught.value) == f"{URL}: call init_weight_transfer_engine first"


def test_routers_know_an_engine_of_sglang_by_the_address_that_it_is_given() -> None:
    engine, _ = joined()
    asked = talk(engine, {"server_info": {"custom_weight_loader": [LOADER], "tp_size": 1},
                          "update_weights_from_tensor": ranks(rank())})
    engine.init_weight_transfer_engine({"address": "a"})
    assert simply(asked)[8][1]["settings"] == {"address": "a"}


SGLANG = {
    "begin": (lambda e: e.start_weight_update(), "begin", {}, None),
    "fetch": (lambda e: e.update_weights({"version": 2, "wait": False}), "fetch", {"version": 2, "wait": False}, None),
    "install": (lambda e: e.finish_weight_update(), "install", {}, None),
    "order": (lambda e: e.order({"step": "Fetch"}), "order", {"order": {"step": "Fetch"}}, [None, "b"]),
    "performed": (lambda e: e.performed({"n": 1}, None), "performed", {"attempt": {"n": 1}, "failure": None}, [None, "b"]),
    "states": (lambda e: e.states(), "state", {}, [STATE]),
    "leave": (lambda e: e.leave(), "leave", {}, None),
}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("serves", [False, True])
@pytest.mark.parametrize(("call", "do", "named", "result"), SGLANG.values(), ids=[*SGLANG])
def test_what_a_trainer_asks_of_sglang(call: Any, do: str, named: Any, result: Any, serves: bool, paused: bool) -> None:
    """In a pause of its own, which ends if all ranks may serve; or in the trainer's pause, which goes on."""
    engine, asked = joined(ranks(rank(state=vars(STATE)), rank(serves, said="b")))
    if paused:
        engine.pause("in_place")
        asked.clear()
    assert call(engine) == result
    asks = session(do, **named)
    assert simply(asked) == (asks if paused else [PAUSE, *asks, GO_ON] if serves else [PAUSE, *asks])
    assert engine.paused() is paused


@pytest.mark.parametrize(("mode", "flush"), [("abort", "flush_cache?timeout=30"), ("retract", "flush_cache"), ("in_place", None)])
def test_an_install_on_sglang_drops_the_cache_that_nothing_goes_on_with(mode: str, flush: str | None) -> None:
    engine, asked = joined()
    engine.pause(mode)
    engine.finish_weight_update("7")
    engine.resume()
    pauses = [{"mode": "retract"}, {"mode": "abort"}] if mode == "abort" else [{"mode": mode}]
    stamp = ("POST", "update_weight_version", {"new_version": "7", "abort_all_requests": False})
    assert simply(asked) == [
        *(("POST", "pause_generation", one) for one in pauses), *session("install"),
        *([("POST", flush)] if flush else []), stamp, GO_ON,
    ]
    assert not engine.paused()


def test_questions_to_sglang_without_a_session() -> None:
    engine, asked = joined()
    talk(engine, {"model_info": {"weight_version": 4}})
    assert engine.weight_version() == "4"
    engine, asked = joined()
    engine.update_weights({"abandon": True})
    engine.take("me", 1.0)
    engine.give_back("me")
    assert asked == []
    engine.release()
    assert simply(asked) == [PAUSE, *session("release"), GO_ON, GO_ON]
    engine = SGLangEngine(URL)
    asked = talk(engine, {"server_info": {"custom_weight_loader": [LOADER], "tp_size": 2},
                          "update_weights_from_tensor": ranks(rank(), rank())})
    engine.release()
    assert simply(asked) == [("GET", "server_info"), PAUSE, *session("release"), GO_ON, GO_ON]


def test_a_session_that_a_lost_trainer_left_open_is_ended_first() -> None:
    engine, _ = joined()
    begins = iter([Refused("r", 400, "open"), {}])
    asked = talk(engine, {"begin_weight_update": lambda _: next(begins), "update_weights_from_tensor": ranks(rank(), rank())})
    engine.start_weight_update()
    assert simply(asked) == [PAUSE, BEGIN, END, *session("begin"), GO_ON]


@pytest.mark.parametrize("serves", [False, True])
def test_ranks_of_sglang_that_decline_are_quoted(serves: bool) -> None:
    said = ranks(rank(serves, "a: b"), rank(), rank(error="c"))
    engine, asked = joined(Refused("r", 400, json.dumps(said)))
    with pytest.raises(Declined) as caught:
        engine.start_weight_update()
    assert str(caught.value) == f"{URL}: begin: rank 0: a: b; rank 2: c"
    assert caught.value.ranks == json.loads(said["message"])["ranks"]
    assert simply(asked) == [PAUSE, *session("begin"), *([GO_ON] if serves else [])]


@pytest.mark.parametrize("said", ["no JSON", "{}", '{"message": "no JSON"}', '{"message": "{}"}', "[]", '{"message": "[]"}'])
def test_an_answer_of_sglang_that_is_none_of_ours_leaves_it_paused(said: str) -> None:
    """Nobody knows what the engine holds."""
    engine, asked = joined(Refused("r", 400, said))
    with pytest.raises(Refused) as caught:
        engine.start_weight_update()
    assert caught.value.said == said and not isinstance(caught.value, Declined)
    assert simply(asked) == [PAUSE, *session("begin")]


def test_an_engine_of_sglang_that_was_started_again_is_noticed() -> None:
    engine, asked = joined({"message": "Success"})
    engine.pause("retract")
    asked.clear()
    with pytest.raises(StartedAgain) as caught:
        engine.start_weight_update()
    assert str(caught.value) == f"{URL}: the engine was started again; have it join the job" and caught.value.ranks == []
    assert simply(asked) == session("begin") and not engine.paused(), "its pause has gone with it"
    asked.clear()
    assert engine.order({"step": "Fetch"}) == [None, None], "its ranks have not joined"
    assert simply(asked) == [PAUSE, *session("order", order={"step": "Fetch"}), GO_ON]
