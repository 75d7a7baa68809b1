"""Honest mistakes in the flow of a program: right, or told by what names the way out."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

ROWS, COLUMNS = 8, 4


def whole(value: float = 1.0, name: str = "w") -> wc.Layout:
    return wc.Layout().add(np.full((ROWS, COLUMNS), value, "f4"), name)


def half(shard: int, shape: tuple[int, ...] | None = (ROWS, COLUMNS)) -> wc.Layout:
    rows = wc.part("w", shape=shape, dim=0, index=shard, of=2)
    return wc.Layout().add(np.zeros((ROWS // 2, COLUMNS), "f4"), rows)


def says(error: BaseException, *parts: str) -> bool:
    missing = [part for part in parts if part not in str(error)]
    assert not missing, f"{missing} not in: {error}"
    return True


def test_a_name_where_a_replica_is_wanted():
    with pytest.raises(TypeError, match=r"weightcast\.Replica, not 'rollout-0'.*shard=rank"):
        wc.open("policy", "rollout-0")


@pytest.mark.parametrize("name", ["fanout", "host_fanout", "stripes", "index"])
def test_a_number_of_the_server_out_of_range(name):
    for number in (-1, 2**32):
        with pytest.raises(ValueError, match=rf"^{name} is an integer from 0 to 2\*\*32 - 1, not {number}$"):
            wc.serve(**{name: number})
    with pytest.raises(TypeError, match=f"^{name} is an integer, not 1.5$"):
        wc.serve(**{name: 1.5})


# What would be no update, silently.


def test_a_lower_version_number(group):
    trainer = group("trainer", [whole()], role="trainer")[0]
    rollout = group("rollout", [whole(0.0)])[0]
    trainer.publish(10, deadline=SOON, seal=True)
    rollout.replicate("latest", deadline=SOON)
    trainer.unpublish(deadline=SOON)
    with pytest.raises(wc.Misuse) as told:
        trainer.publish(3, deadline=SOON)
    assert says(told.value, "version 3", "10", 'epoch="new"')
    # What it says helps: rollouts go over to the lower number of a new run.
    again = group("restarted", [whole(2.0)], role="trainer", epoch="new")[0]
    again.publish(3, deadline=SOON, seal=True)
    assert rollout.update("latest", deadline=SOON).version == 3


def test_two_trainers_that_each_start_a_run(group):
    first = group("first", [whole(1.0)], role="trainer", epoch="new")[0]
    first.publish(0, deadline=SOON, seal=True)
    second = group("second", [whole(2.0)], role="trainer", epoch="new")[0]
    second.publish(0, deadline=SOON, seal=True)
    run = first.epoch
    first.unpublish(deadline=SOON)
    with pytest.raises(wc.Misuse) as told:
        first.publish(1, deadline=SOON)
    assert says(told.value, "first", f"run {run}", f"run {second.epoch}", 'epoch="new"')
    rollout = group("rollout", [whole(0.0)])[0]
    assert rollout.update("latest", deadline=SOON).epoch == second.epoch


def test_an_update_before_the_first_version(group):
    memory = np.full((ROWS, COLUMNS), 7.0, "f4")
    rollout = group("rollout", [wc.Layout().add(memory, "w")])[0]
    with pytest.raises(wc.VersionUnavailable) as told:
        rollout.update("latest", deadline=0.3)
    assert told.value.latest is None and rollout.version is None
    assert (memory == 7.0).all()

    def publish() -> None:
        group("trainer", [whole(3.0)], role="trainer")[0].publish(0, deadline=SOON, seal=True)

    later = threading.Timer(0.2, publish)
    later.start()
    assert rollout.update("latest", deadline=SOON).changed, "it waits for the first"
    later.join()
    assert (memory == 3.0).all() and rollout.version == 0
    assert not rollout.update("latest", deadline=SOON).changed, "it waits for nothing any more"


# Errors that name the mistake.


@pytest.mark.parametrize("lacks", [0, 1])
def test_only_some_shards_leave_shapes_out(group, lacks):
    trainer = group("trainer", [whole(5.0)], role="trainer")[0]
    trainer.publish(1, deadline=SOON, seal=True)
    arrays = [np.zeros((ROWS // 2, COLUMNS), "f4") for _ in range(2)]
    layouts = []
    for shard, array in enumerate(arrays):
        shape = None if shard == lacks else (ROWS, COLUMNS)
        layouts.append(wc.Layout().add(array, wc.part("w", shape=shape, dim=0, index=shard, of=2)))
    rollout = group("rollout", layouts)
    rollout.all(lambda h: h.update("latest", deadline=SOON))
    assert all((array == 5.0).all() for array in arrays)


@pytest.mark.parametrize("shape", [None, (ROWS, COLUMNS)], ids=["looked-up", "given"])
def test_each_rank_says_that_it_is_a_replica_of_its_own(group, shape):
    group("trainer", [whole()], role="trainer")[0].publish(1, deadline=SOON)
    for rank in range(2):
        with pytest.raises(wc.LayoutMismatch) as told:
            group(f"rollout-{rank}", [half(rank, shape)])
        assert says(told.value, f"rollout-{rank}", "w F32 [8, 4]", "num_shards")


def test_what_no_shard_holds_is_refused_on_all(group):
    layouts = [half(0), half(0)]
    replica = group("rollout", layouts, register=False)
    for error in replica.each(lambda h: h.register(layouts[h.replica.shard], deadline=SOON)):
        assert isinstance(error, wc.LayoutMismatch), error
        assert says(error, "[4:8, 0:4]", "2 shards", "num_shards")
    layouts[1] = half(1)
    replica.all(lambda h: h.register(layouts[h.replica.shard], deadline=SOON))


def test_more_shards_than_there_are_ranks(server):
    me = wc.Replica("rollout", 0, num_shards=3)
    with wc.open("policy", me, server=server.address) as handle:
        with pytest.raises(wc.Timeout) as told:
            handle.register(half(0), deadline=0.3)
        assert says(told.value, "shards 1, 2", "rollout", "num_shards is 3")


def test_a_data_port_of_this_host_beside_a_server_for_others(server):
    servers = [server.address, "http://10.255.255.1:7700"]
    given = {"server": servers, "token_file": server.token_file}
    with pytest.warns(RuntimeWarning, match="WEIGHTCAST_DATA_BIND") as told:
        wc.open("policy", wc.Replica("one"), **given).close()
    assert told[0].filename == __file__, "it is said of the caller's line"


def test_a_source_that_said_loopback(group):
    lost = {"role": "trainer", "data_advertise": "127.0.0.1:1"}
    trainer = group("trainer", [whole()], **lost)[0]
    trainer.publish(1, deadline=SOON)
    rollout = group("rollout", [whole(0.0)])[0]
    with pytest.raises(wc.SourceLost) as told:
        rollout.replicate("latest", deadline=SOON)
    assert says(told.value, "127.0.0.1:1", "WEIGHTCAST_DATA_BIND")


def test_waiting_for_a_holder_that_has_left(group):
    trainer = group("trainer", [whole()], role="trainer")[0]
    trainer.publish(1, deadline=SOON, seal=True)
    rollout = group("rollout-7", [whole(0.0)])[0]
    rollout.replicate("latest", deadline=SOON)
    rollout.close(deadline=SOON)
    with pytest.raises(wc.Timeout) as told:
        trainer.wait(wc.held(1, by=1), deadline=0.3)
    assert says(told.value, "no rollout is registered", "rollout-7", "left")
    trainer.unpublish(deadline=SOON)
    with pytest.raises(wc.Timeout) as told:
        trainer.wait(wc.held(1, by=1), deadline=0.3)
    assert says(told.value, "nothing is available", "rollout-7", "left")


def refused(group, layout: wc.Layout) -> wc.LayoutMismatch:
    """What a rollout with this layout is told: at `register`, or when it reads."""
    with pytest.raises(wc.LayoutMismatch) as told:
        group("rollout", [layout])[0].update("latest", deadline=SOON)
    return told.value


def published(group, *names: str) -> None:
    layout = wc.Layout()
    for name in names:
        layout.add(np.ones((ROWS, COLUMNS), "f4"), name)
    group("trainer", [layout], role="trainer")[0].publish(1, deadline=SOON)


def engine(*names: str, given: bool) -> wc.Layout:
    layout = wc.Layout()
    for name in names:
        shape = (ROWS, COLUMNS) if given else None
        layout.add(np.zeros((ROWS, COLUMNS), "f4"), wc.part(name, shape=shape))
    return layout


@pytest.mark.parametrize("given", [True, False])
def test_a_master_copy_in_another_type(group, given):
    published(group, "w")
    half_precision = np.zeros((ROWS, COLUMNS), "u2")
    part = wc.part("w", shape=(ROWS, COLUMNS) if given else None)
    error = refused(group, wc.Layout().add(half_precision, part, dtype="BF16"))
    assert says(error, "w", "F32", "BF16", "cast")


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize("given", [True, False])
def test_tied_here_and_not_there(group, given):
    published(group, EMBEDDING)
    error = refused(group, engine(EMBEDDING, HEAD, given=given))
    assert says(error, HEAD, "also")


def test_tied_there_and_not_here(group):
    published(group, EMBEDDING, HEAD)
    error = refused(group, engine(EMBEDDING, given=True))
    assert says(error, HEAD, EMBEDDING, f'also(weightcast.part("{HEAD}"))')


@pytest.mark.parametrize("given", [True, False])
def test_names_of_an_adapter(group, given):
    name = "model.layers.0.self_attn.q_proj"
    published(group, f"base_model.model.{name}.base_layer.weight")
    error = refused(group, engine(f"{name}.weight", given=given))
    assert says(error, f"{name}.weight", *(["rename="] if given else []))


# Programs.


@pytest.fixture
def without_torch(tmp_path) -> dict[str, str]:
    """An environment in which there is no torch."""
    lacks = "import sys\nsys.modules['torch'] = sys.modules['transformers'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(lacks)
    path = [str(tmp_path), str(Path(wc.__file__).parent.parent), *sys.path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


@pytest.mark.parametrize("command", [["weightcast", "demo"], ["weightcast.examples.rl_loop"]])
def test_the_demo_without_torch(without_torch, command):
    def run(*options: str) -> subprocess.CompletedProcess:
        full = [sys.executable, "-m", *command, *options]
        return subprocess.run(full, env=without_torch, capture_output=True, text=True, timeout=60)

    shown = run("--help")
    assert shown.returncode == 0 and "--rollouts" in shown.stdout, shown.stderr
    started = run()
    assert started.returncode == 1
    assert "torch" in started.stderr and "weightcast[examples]" in started.stderr
    assert "Traceback" not in started.stderr


#: Ends while a daemon thread is in a call.
ENDS = """
import sys, threading
import numpy as np
import weightcast as wc

kind, address = sys.argv[1:]
handle = wc.open("policy", wc.Replica("one"), server=address)
handle.register(wc.Layout().add(np.zeros(8, "f4"), "w"))
began = threading.Event()

def wait():
    began.set()
    handle.wait(wc.held(1), deadline=600)

def update():
    began.set()
    handle.update("latest", deadline=600)

def open():
    began.set()
    wc.open("policy", wc.Replica("one"), server=address, deadline=600)

def ask():
    while True:
        handle.list()
        began.set()

def status():
    while True:
        wc.status(address)
        began.set()

threading.Thread(target=globals()[kind], daemon=True).start()
began.wait()
"""


@pytest.mark.parametrize("kind", ["wait", "update", "open", "ask", "status"])
def test_a_program_that_ends_while_a_daemon_thread_is_in_a_call(server, kind):
    for _ in range(4):
        command = [sys.executable, "-c", ENDS, kind, server.address]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_handle_that_was_left_open_is_closed_when_its_program_ends(server):
    """And at once: others need not wait for its lease to run out."""
    program = f"import weightcast as wc; h = wc.open('policy', wc.Replica('one'), server={server.address!r})"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    names = [r["name"] for model in wc.status(server.address)["models"] for r in model["replicas"]]
    assert names == []
