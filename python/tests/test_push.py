"""Pushes: senders write a version into the memory of replicas that accept it, in processes of their own."""

import signal
import threading
import time

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON
from .programs.driver import Cluster, Corrupting, WriteGate, together
from .programs.worker import pattern

BYTES = 48 << 20


#: What has passed when a push is in its middle.
SOME = 4 << 20


@pytest.fixture
def cluster():
    # Everything here takes a few processes at once: a lease that a busy machine keeps.
    running = Cluster(lease=4.0, fanout=8)
    yield running
    running.close()


def pushing(cluster, **options):
    """Two ranks of a trainer, a replica of the same layout that holds the version too, and one of another layout that
    is being pushed to: its gate holds what senders write."""
    trainer = cluster.group("trainer", 2, role="trainer", bytes=BYTES)
    together(trainer, "publish", version=1)
    standby = cluster.group("standby", 2, bytes=BYTES)
    together(standby, "replicate", version=1)
    gate = cluster.gate(WriteGate)
    (target,) = cluster.group("target", bytes=BYTES, gates=[gate])
    gate.hold_after(SOME)
    target.start("accept")
    trainer[0].start("push", to=["target"], **options)
    gate.wait_held()
    return trainer, target, gate


def ends(pushed):
    return {shard["shard"]: shard["end"] for shard in pushed["shards"]}


def accepts(workers):
    for worker in workers:
        worker.start("accept")


def took(workers):
    """What the accepting shards came to; all must hold what was pushed, written by senders."""
    came = [worker.value("accept") for worker in workers]
    for each in came:
        assert each["right"] and each["way"] == "push" and each["told"] == [each["version"]], each
    return came


def columns(handle_of, name, of=2, width=64, rows=48):
    """Handles of a replica whose shards hold columns, and their memory."""
    memory = [np.zeros((rows, width // of), "u4") for _ in range(of)]
    layouts = [
        wc.Layout().add(memory[i], wc.part("w", shape=(rows, width), dim=1, index=i, of=of))
        for i in range(of)
    ]
    return handle_of(name, layouts), memory


def test_all_shards_of_a_trainer_write_into_a_rollout_of_another_layout(group):
    rows, width = 48, 64
    expected = pattern(1, 0, rows * width).reshape(rows, width)
    shares = [expected[i * 12 : (i + 1) * 12].copy() for i in range(4)]
    layouts = [
        wc.Layout().add(shares[i], wc.part("w", shape=(rows, width), dim=0, index=i, of=4)) for i in range(4)
    ]
    trainer = group("trainer", layouts, role="trainer")
    rollout, memory = columns(group, "rollout")
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    told = []
    came = []
    thread = threading.Thread(
        target=lambda: came.extend(rollout.each(lambda h: h.accept(before=told.append, deadline=SOON)))
    )
    thread.start()
    pushed = trainer[2].push(to="rollout", deadline=SOON)
    thread.join()
    assert pushed and pushed.version == 1, pushed
    assert [(s.replica, s.shard, s.end, s.bytes) for s in pushed.shards] == [
        ("rollout", shard, "new", rows * width * 2) for shard in range(2)
    ]
    for shard, updated in enumerate(came):
        assert (updated.changed, updated.version, updated.way) == (True, 1, "push"), updated
        assert updated.verified == updated.bytes == rows * width * 2
        assert "4 senders" in updated.way_reason
        assert np.array_equal(memory[shard], expected[:, shard * 32 : (shard + 1) * 32])
    assert told == [1, 1]
    # The server knows, and others read from the rollout.
    assert rollout.all(lambda h: h.list(deadline=SOON))[0] == {1: {"trainer", "rollout"}}
    assert {outlook.way for outlook in trainer[0].explain()} == {"neither"}
    again = trainer[0].push(to=["rollout", "nobody"], deadline=1.0)
    assert not again
    assert [(s.replica, s.end) for s in again.shards] == [
        ("nobody", "absent"), ("rollout", "held"), ("rollout", "held"),
    ]
    # What was written is served, and replaced by what is pushed next.
    trainer.all(lambda h: h.unpublish(deadline=SOON))
    expected += 1
    for share in shares:
        share += 1
    trainer.all(lambda h: h.publish(2, deadline=SOON, seal=True))
    thread = threading.Thread(target=lambda: came.extend(rollout.each(lambda h: h.accept(deadline=SOON))))
    thread.start()
    assert trainer[0].push(deadline=SOON)
    thread.join()
    assert [updated.version for updated in came[2:]] == [2, 2]
    assert np.array_equal(np.concatenate(memory, axis=1), expected)


def test_a_push_and_a_read_of_the_same_layouts_execute_one_plan(group):
    held = pattern(1, 0, 32).reshape(8, 4)
    share = [held[:4].copy(), held[4:].copy()]
    layouts = [wc.Layout().add(share[i], wc.part("w", shape=(8, 4), dim=0, index=i, of=2)) for i in range(2)]
    trainer = group("trainer", layouts, role="trainer")
    rollout, memory = columns(group, "rollout", of=1, width=4, rows=8)
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    first = rollout[0].replicate(1, deadline=SOON)
    assert (first.way != "push", first.plan_from) == (True, "planner")
    trainer.all(lambda h: h.unpublish(deadline=SOON))
    rollout[0].unpublish(deadline=SOON)
    trainer.all(lambda h: h.publish(2, deadline=SOON, seal=True))
    memory[0][...] = 0
    came = []
    thread = threading.Thread(target=lambda: came.append(rollout[0].accept(deadline=SOON)))
    thread.start()
    assert trainer[0].push(deadline=SOON)
    thread.join()
    assert (came[0].way, came[0].plan_from, came[0].version) == ("push", "memory", 2)
    assert np.array_equal(memory[0], held)


def test_who_does_not_accept_keeps_its_memory(group):
    held = np.arange(8, dtype="u4")
    trainer = group("trainer", [wc.Layout().add(held, wc.part("w", shape=(8,)))], role="trainer")
    memory = np.zeros(8, "u4")
    rollout = group("rollout", [wc.Layout().add(memory, wc.part("w", shape=(8,)))])
    with pytest.raises(wc.Misuse, match="published"):
        trainer[0].push(deadline=1.0)
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    with pytest.raises(wc.Misuse, match="version 3"):
        trainer[0].push(3, deadline=1.0)
    for to in ("rollout", None):
        (outlook,) = trainer[0].explain(to=to)
        assert (outlook.replica, outlook.shard, outlook.way) == ("rollout", 0, "pull"), outlook
        assert "does not accept" in outlook.why
    (absent,) = trainer[0].explain(to="nobody", deadline=0.2)
    assert absent.way == "neither" and "registered" in absent.why
    declined = trainer[0].push(to="rollout", deadline=1.0)
    assert not declined and [s.end for s in declined.shards] == ["declined"]
    assert not trainer[0].push(deadline=1.0).shards, "nobody accepts"
    with pytest.raises(wc.Timeout, match="accept"):
        rollout[0].accept(deadline=0.2)
    assert rollout[0].version is None and not memory.any()


def test_what_is_told_before_may_refuse(group):
    held = np.arange(8, dtype="u4")
    trainer = group("trainer", [wc.Layout().add(held, wc.part("w", shape=(8,)))], role="trainer")
    memory = np.zeros(8, "u4")
    rollout = group("rollout", [wc.Layout().add(memory, wc.part("w", shape=(8,)))])
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    came = []

    def busy(version):
        raise RuntimeError(f"no room for {version}")

    def accept():
        with pytest.raises(RuntimeError, match="no room for 1"):
            rollout[0].accept(before=busy, deadline=SOON)
        came.append(memory.any())

    thread = threading.Thread(target=accept)
    thread.start()
    refused = trainer[0].push(to="rollout", deadline=SOON)
    thread.join()
    assert [s.end for s in refused.shards] == ["left"] and came == [False]
    # It accepts the next one.
    thread = threading.Thread(target=lambda: came.append(rollout[0].accept(deadline=SOON)))
    thread.start()
    until = time.monotonic() + SOON
    while (outlook := trainer[0].explain()[0]).way != "push":
        assert time.monotonic() < until, outlook
    assert outlook.bytes == 32 and "accepts" in outlook.why
    assert trainer[0].push(to="rollout", deadline=SOON)
    thread.join()
    assert np.array_equal(memory, held)


def test_processes_are_pushed_to(cluster):
    trainer = cluster.group("trainer", 2, role="trainer", bytes=BYTES)
    rollout = cluster.group("rollout", 3, bytes=BYTES)
    together(trainer, "publish", version=1)
    accepts(rollout)
    pushed = trainer[1].do("push", to=["rollout"])
    assert pushed["whole"], pushed
    assert ends(pushed) == {f"rollout.{shard}": "new" for shard in range(3)}
    assert sum(shard["bytes"] for shard in pushed["shards"]) == BYTES
    took(rollout)


def test_the_parcels_of_a_sender_that_is_killed_move_to_another_holder(cluster):
    # It is not its silence that is noticed.
    trainer, target, gate = pushing(cluster, patience=60.0)
    trainer[1].kill()
    gate.open()
    pushed = trainer[0].value("push")
    assert pushed["whole"] and ends(pushed) == {"target.0": "new"}, pushed
    assert pushed["shards"][0]["moved"] > 0
    took([target])


def test_senders_stop_before_their_memory_changes(cluster):
    trainer, target, gate = pushing(cluster)
    # The server has assigned the other replica, by name: nobody reads from the trainer.
    together(trainer, "unpublish")
    together(trainer, "spoil")
    gate.open()
    pushed = trainer[0].value("push")
    assert pushed["whole"] and pushed["shards"][0]["moved"] > 0, pushed
    took([target])


def test_a_sender_that_goes_on_after_its_grant_was_closed_writes_nothing(cluster):
    trainer, target, gate = pushing(cluster, patience=0.5)
    # What it has not sent yet is not the version.
    trainer[1].do("spoil")
    trainer[1].signal(signal.SIGSTOP)
    gate.open()
    pushed = trainer[0].value("push")
    assert pushed["whole"] and pushed["shards"][0]["moved"] > 0, pushed
    took([target])
    before = gate.answered
    trainer[1].signal(signal.SIGCONT)
    gate.wait_answered(before)
    assert target.do("holds", version=1)


def test_a_parcel_that_is_changed_on_its_way_is_written_again(cluster):
    (trainer,) = cluster.group("trainer", role="trainer", bytes=BYTES)
    trainer.do("publish", version=1)
    proxy = Corrupting()
    cluster.gates.append(proxy)
    (target,) = cluster.group("target", bytes=BYTES, gates=[proxy])
    target.start("accept")
    pushed = trainer.do("push", to=["target"])
    assert pushed["whole"] and proxy.changed == 1, pushed
    took([target])


def test_a_call_that_has_ended_lets_nobody_write(cluster):
    (trainer,) = cluster.group("trainer", role="trainer", bytes=BYTES)
    trainer.do("publish", version=1)
    gates = [cluster.gate(WriteGate) for _ in range(2)]
    pair = cluster.group("pair", 2, bytes=BYTES, gates=gates)
    cluster.hold_after(SOME)
    accepts(pair)
    trainer.start("push", to=["pair"])
    cluster.wait_held()
    # Without one shard there is no group, and no call.
    pair[1].kill()
    gates[1].close()
    broken = pair[0].outcome("accept")
    assert (broken["error"], broken["held"]) == ("GroupBroken", None), broken
    before = pair[0].do("content")
    answered = gates[0].answered
    gates[0].open()
    gates[0].wait_answered(answered)
    pushed = trainer.value("push")
    assert ends(pushed) == {"pair.0": "left", "pair.1": "lost"}, pushed
    assert pair[0].do("content") == before


def test_what_is_not_the_version_is_found_out(cluster):
    (trainer,) = cluster.group("trainer", role="trainer", bytes=1 << 20)
    (target,) = cluster.group("target", 1, bytes=1 << 20)
    trainer.do("publish", version=1)
    trainer.do("spoil")
    target.start("accept")
    pushed = trainer.do("push", to=["target"])
    assert ends(pushed) == {"target.0": "differs"}, pushed
    assert "w" in pushed["shards"][0]["detail"]
    came = target.outcome("accept")
    assert (came["error"], came["held"]) == ("DigestMismatch", None), came


def test_wrong_bytes_of_one_holder_are_written_again_by_another(cluster):
    """One of two targets gets them at first: who writes the one parcel of a target goes round the holders."""
    (trainer,) = cluster.group("trainer", role="trainer", bytes=1 << 20)
    trainer.do("publish", version=1)
    (standby,) = cluster.group("standby", bytes=1 << 20)
    standby.do("replicate", version=1)
    trainer.do("spoil")
    targets = [cluster.group(name, bytes=1 << 20)[0] for name in ("first", "second")]
    accepts(targets)
    standby.do("willing", to=["first", "second"])
    pushed = standby.do("push", to=["first", "second"])
    assert pushed["whole"], pushed
    assert sorted(shard["moved"] for shard in pushed["shards"]) == [0, 1], pushed
    took(targets)


def test_targets_join_and_leave_while_others_are_pushed_to(cluster):
    trainer = cluster.group("trainer", 2, role="trainer", bytes=BYTES)
    together(trainer, "publish", version=1)
    gates = {name: cluster.gate(WriteGate) for name in ("slow", "leaves", "dies")}
    behind = {name: cluster.group(name, bytes=BYTES, gates=[gate])[0] for name, gate in gates.items()}
    pair = cluster.group("pair", 2, bytes=BYTES)
    for gate in gates.values():
        gate.hold_after(SOME)
    accepts([*behind.values(), *pair])
    trainer[0].start("push", to=["slow", "leaves", "dies", "pair", "late"])
    cluster.wait_held()
    took(pair)
    late = cluster.group("late", 3, bytes=BYTES)
    accepts(late)
    took(late)
    behind["leaves"].start("close")
    behind["dies"].kill()
    gates["dies"].close()
    gates["slow"].open()
    pushed = trainer[0].value("push")
    assert ends(pushed) == {
        "dies.0": "lost", "late.0": "new", "late.1": "new", "late.2": "new", "leaves.0": "left",
        "pair.0": "new", "pair.1": "new", "slow.0": "new",
    }, pushed
    took([behind["slow"]])
