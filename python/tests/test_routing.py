"""What workers say of themselves, and what routers are told."""

import json
import queue
import threading

import pytest

import weightcast as wc
from weightcast.adapters.engine.routing import Notices

#: Seconds after which a test fails that waits for a notice.
LONG = 30.0
VERSION = {"epoch": 1, "number": 7}


class Table:
    """Takes notices down; says how long they count, or what it was told to."""

    def __init__(self, lease: float) -> None:
        self.notices: queue.Queue = queue.Queue()
        self.lease, self.errors = lease, []

    def ask(self, question: str, deadline: float) -> str:
        self.notices.put(json.loads(question)["Serves"])
        if self.errors:
            raise self.errors.pop()
        return json.dumps({"lease": int(self.lease * 1e9), "engines": []})

    def next(self) -> dict:
        return self.notices.get(timeout=LONG)


@pytest.fixture
def told():
    """Makes tables and the notices of their worker, whose threads end with the test."""
    made = []

    def told(lease: float):
        table = Table(lease)
        made.append(Notices(table.ask, "http://host:8000", 1, 2))
        return table, made[-1]

    yield told
    for notices in made:
        notices.close()


def test_a_worker_says_at_once_what_it_serves(told) -> None:
    table, notices = told(lease=1000.0)
    for life, serves in ((5, None), (5, VERSION), (6, VERSION), (6, None)):
        notices.say(life, serves)
        said = table.next()
        assert (said["life"], said["serves"]) == (life, serves)
    notices.say(6, None)
    notices.close()
    assert table.notices.empty(), "it has said so"
    notice = {"engine": "http://host:8000", "worker": 1, "workers": 2, "count": 4, "life": 6, "serves": None}
    assert said == notice


def test_a_worker_says_so_again_within_the_lease(told) -> None:
    table, notices = told(lease=0.03)
    notices.say(5, VERSION)
    said = [table.next() for _ in range(4)]
    assert [notice["count"] for notice in said] == [1, 2, 3, 4]
    assert all(notice["serves"] == VERSION for notice in said)


def test_a_table_that_does_not_answer_is_told_again_and_the_log_says_so_once(told, caplog) -> None:
    table, notices = told(lease=0.0)
    table.errors = [wc.ServerUnreachable("it has gone"), wc.ServerUnreachable("it has gone")]
    notices.say(5, VERSION)
    assert [table.next()["count"] for _ in range(4)] == [1, 2, 3, 4]
    warned = [r for r in caplog.records if "it has gone" in r.getMessage()]
    assert len(warned) == 1 and "http://host:8000" in warned[0].getMessage()


def test_what_was_said_last_is_told_before_the_thread_ends(told) -> None:
    table, notices = told(lease=1000.0)
    entered, go = threading.Event(), threading.Event()
    ask = table.ask

    def slow(question: str, deadline: float) -> str:
        entered.set()
        assert go.wait(LONG)
        return ask(question, deadline)

    notices._ask = slow
    notices.say(5, VERSION)
    assert entered.wait(LONG)
    notices.say(5, None)
    threading.Timer(0.0, go.set).start()
    notices.close()
    assert [table.next()["serves"] for _ in range(2)] == [VERSION, None]


def test_engines_of_a_job_are_listed_for_routers() -> None:
    with wc.serve() as server:
        with pytest.raises(wc.ServerUnreachable, match="passive"):
            wc.engines("m", server=server.address)
        with (
            wc.open("other", wc.Replica("r"), server=server.address),
            pytest.raises(wc.Misuse, match="no handle of model m is open"),
        ):
            wc.engines("m", server=server.address)
        with wc.open("m", wc.Replica("r"), server=server.address) as handle:
            assert wc.engines("m", server=server.address) == []
            for engine, serves in (("a", VERSION), ("b", None)):
                notice = {"engine": engine, "life": 2**63, "worker": 0, "workers": 1, "count": 1}
                said = handle._core.ask_routing(json.dumps({"Serves": notice | {"serves": serves}}))
                assert json.loads(said)["engines"] == []
            first, second = wc.engines("m", server=server.address)
            assert (first.engine, first.state, first.version, first.epoch) == ("a", "admitted", 7, 1)
            assert first.admitted and 0 < first.left_s <= 5 and first.life == 2**63
            assert (second.state, second.version, second.admitted) == ("standing", None, False)
            with pytest.raises(wc.Misuse, match="worker 3 of 2 does not exist"):
                notice |= {"worker": 3, "workers": 2, "serves": None}
                handle._core.ask_routing(json.dumps({"Serves": notice}))
            with pytest.raises(wc.Misuse, match="question_json"):
                handle._core.ask_routing(json.dumps("Nonsense"))
