"""One node: the manager, the servers, what an actor holds."""

import os
import signal
import socket
from pathlib import Path

import pytest
import ray

import weightcast as wc
import weightcast.adapters.ray as wcr
from tests.programs.driver import Gate

from .actors import SIZE, Rollout, Trainer, gone, replicas

pytestmark = pytest.mark.usefixtures("one_node")


def test_trainers_publish_and_rollouts_update():
    trainer, rollouts = Trainer.remote(model="simple"), [Rollout.remote(model="simple") for _ in range(2)]
    sync = wcr.WeightSync([trainer], rollouts, model="simple")
    for version in (1, 2):
        ray.get(trainer.train.remote(version))
        sent = sync.send()
        assert sent and sent.version == version and set(sent.updated) == set(rollouts)
        assert ray.get([each.holds.remote() for each in rollouts]) == [(version, {version})] * 2
        # The trainer may change its weights now.
        assert ray.get(trainer.holds.remote()) is None
    with pytest.raises(wc.Misuse, match="does not come after 2"):
        sync.send(2)
    assert sync.send(7).version == 7
    there = replicas("simple")
    assert len(there) == 3 and {shard["host"] for each in there.values() for shard in each["shards"]} == {
        ray.nodes()[0]["NodeID"]
    }


def test_a_version_that_is_kept_is_there_for_who_comes_later():
    trainer = Trainer.remote(model="kept")
    sync = wcr.WeightSync([trainer], model="kept", keep=True)
    sync.send()
    assert ray.get(trainer.holds.remote()) == 1
    late = Rollout.remote(model="kept")
    brought = ray.get(late.update.remote())
    assert brought["version"] == 1 and brought["verified"] == brought["bytes"] == SIZE * 4
    # What is kept gives way to the next version.
    sync.rollouts.append(late)
    assert sync.send() and ray.get(trainer.holds.remote()) == 2


def test_a_rollout_that_is_lost_stops_no_other_and_comes_back():
    trainer = Trainer.remote(model="lost")
    lost = Rollout.options(max_restarts=-1).remote(model="lost")
    other = Rollout.remote(model="lost")
    sync = wcr.WeightSync([trainer], [lost, other], model="lost", keep=True)
    assert sync.send()
    name = ray.get(lost.replica.remote()).name
    os.kill(ray.get(lost.pid.remote()), signal.SIGKILL)
    sent = sync.send()
    assert not sent and sent.updated == (other,) and list(sent.missed) == [lost]
    assert ray.get(other.holds.remote())[0] == 2
    # Ray has started it again; it is the same replica, and has joined by itself.
    again = ray.get(lost.replica.options(max_task_retries=-1).remote())
    assert again.name == name
    assert sync.send() and ray.get(lost.holds.remote())[0] == 3


def test_a_trainer_that_fails_is_told_of_and_numbers_go_on():
    one, other = Trainer.remote(model="failed", name="one"), Trainer.remote(model="failed", name="other")
    rollout = Rollout.remote(model="failed")
    sync = wcr.WeightSync([one, other], [rollout], model="failed")
    assert sync.send()
    ray.get(other.leave.remote())
    with pytest.raises(wc.Misuse, match="no failed as trainer, but nothing"):
        sync.send()
    assert ray.get(one.holds.remote()) is None, "the version of the other trainer was not taken back"
    sync.trainers = (one,)
    assert sync.send().version == 3
    # Who is no trainer is told of before anything is published.
    with pytest.raises(wc.Misuse, match="no failed as trainer, but failed as rollout"):
        wcr.WeightSync([one, rollout], model="failed").send()
    with pytest.raises(wc.Misuse, match="without a trainer"):
        wcr.WeightSync([])


def test_a_version_that_nobody_could_read_is_told_of():
    trainer, copy = Trainer.remote(model="refused", name="one"), Trainer.remote(model="refused", name="other")
    sync = wcr.WeightSync([trainer, copy], model="refused")
    assert sync.send()
    ray.get(copy.train.remote(3))  # the copies of a trainer have to be the same
    with pytest.raises(wc.ContentMismatch):
        sync.send()
    ray.get(trainer.train.remote(3))
    assert sync.send().version == 3


def test_a_rollout_that_stays_behind_is_told_of():
    trainer = Trainer.remote(model="behind")
    behind, other = Rollout.remote(model="behind"), Rollout.remote(model="behind")
    sync = wcr.WeightSync([trainer], [behind, other], model="behind")
    assert sync.send()
    ray.get(behind.ignore_updates.remote())
    sent = sync.send()
    assert sent.updated == (other,) and sent.missed == {behind: "holds version 1"}


def test_a_late_rollout_is_asked_once(tmp_path: Path):
    trainer = Trainer.remote(model="late")
    late, other = Rollout.remote(model="late"), Rollout.remote(model="late")
    sync = wcr.WeightSync([trainer], [late, other], model="late", deadline=30.0)
    assert sync.send()
    os.mkfifo(tmp_path / "hold")
    held = late.read.remote(str(tmp_path / "hold"))
    sync._deadline = 3.0
    sent = sync.send()
    assert sent.updated == (other,) and "has not answered within 3.0 s" in sent.missed[late]
    sent = sync.send()
    assert sent.updated == (other,) and "busy" in sent.missed[late]
    sync._deadline = 30.0
    (tmp_path / "hold").write_text("go on")
    ray.get(held)
    # The call of version 2 comes first, and takes what is the newest by now.
    ray.get(late.holds.remote())
    assert sync.send() and ray.get(late.holds.remote())[0] == 4


def test_a_rollout_whose_node_has_still_to_come_stops_nobody():
    trainer, rollout = Trainer.remote(model="pending"), Rollout.remote(model="pending")
    sync = wcr.WeightSync([trainer], [rollout], model="pending", deadline=60.0)
    assert sync.send()
    pending = Rollout.options(resources={"not here": 1}).remote(model="pending")
    sync.rollouts.append(pending)
    for version in (2, 3):
        sent = sync.send()
        assert sent.version == version and sent.updated == (rollout,) and "not joined" in sent.missed[pending]
    ray.kill(pending)
    sync.rollouts.remove(pending)
    assert sync.send()


def test_a_server_that_is_killed_is_started_again_at_its_address():
    trainer, rollout = Trainer.remote(model="killed"), Rollout.remote(model="killed")
    sync = wcr.WeightSync([trainer], [rollout], model="killed")
    assert sync.send()
    before = wcr.servers()
    ray.kill(ray.get_actor("weightcast-server-0"), no_restart=False)
    assert sync.send() and ray.get(rollout.holds.remote())[0] == 2
    assert wcr.servers() == before


def test_handles_are_opened_again_where_no_server_is_left_of_those_they_knew():
    wcr.serve(name="moving", lease=2.0)
    before = wcr.servers("moving")
    options = {"model": "moved", "servers": "moving", "reconnect": 1.0}
    trainer, rollout = Trainer.remote(**options), Rollout.remote(**options)
    sync = wcr.WeightSync([trainer], [rollout], model="moved")
    assert sync.send()
    server = ray.get_actor("moving-server-0")
    pid = ray.get(server.__ray_call__.remote(lambda _: os.getpid()))
    ray.kill(server)
    assert gone(pid, 30.0)
    address, port = before.addresses[0].removeprefix("http://").rsplit(":", 1)
    with socket.create_server((address, int(port))):
        wcr.serve(name="moving", lease=2.0)
        assert wcr.servers("moving").addresses != before.addresses
        assert sync.send() and ray.get(rollout.holds.remote())[0] == 2


def test_servers_are_found_by_name_and_show_no_secret():
    with pytest.raises(wc.Misuse, match="no reference server 'absent': call weightcast.adapters.ray.serve"):
        wcr.servers("absent")
    with pytest.raises(wc.Misuse, match="one reference server at least"):
        wcr.serve(0)
    known = wcr.servers()
    assert known == wcr.serve() and known.token not in repr(known)
    assert Path(known.token_file).read_text() == known.token
    assert not Path(os.readlink(known.token_file)).exists(), "the token is on a disk"
    with pytest.raises(wc.WeightcastError):
        wc.status(known.addresses[0])


@pytest.mark.parametrize("ends", ["readers finish", "the notice ends"])
def test_a_worker_that_is_told_to_go_leaves_within_its_notice(ends: str):
    """A rollout reads from the worker when the notice comes. The server would miss a dead worker after a
    minute."""
    wcr.serve(name="patient", lease=60.0, drain_deadline=60.0)
    model = "told-" + ends.replace(" ", "-")
    common = {"model": model, "servers": "patient", "way": "tcp"}
    gate = Gate()
    try:
        notice = 60.0 if ends == "readers finish" else 1.0
        leaving = Trainer.remote(**common, **gate.options, notice=notice, name="leaving")
        pid = ray.get(leaving.pid.remote())
        reader = Rollout.remote(**common, data_networks="127.0.0.0/8")
        ray.get(leaving.publish.remote(1))
        gate.hold_after(SIZE)
        reading = reader.update.remote(deadline=60.0)
        gate.wait_held()
        if ends == "the notice ends":  # the reader goes on elsewhere
            spare = Trainer.remote(**common, epoch="current", name="spare", data_bind="127.0.0.3:0")
            ray.get(spare.publish.remote(1))
        os.kill(pid, signal.SIGTERM)
        if ends == "readers finish":
            # Without a notice, a process that ends gives readers two seconds; a reader gives a source five.
            assert not gone(pid, 3.0), "it has left while it was read"
            gate.open()
        assert gone(pid, 30.0)
        assert ray.get(reading)["version"] == 1 and ray.get(reader.holds.remote()) == (1, {0.0})
        assert not any(name.startswith("leaving") for name in replicas(model, "patient"))
    finally:
        gate.close()
