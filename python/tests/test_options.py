"""What a worker says of itself when it opens, and what it asks for, reaches the server as it was said. The
package's own half of the way is looked at in `test_arguments.py`."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON, token_file
from .programs.driver import Gate


def replicas(server: wc.Server) -> dict[str, dict]:
    [model] = wc.status(server.address)["models"]
    return {replica["name"]: replica for replica in model["replicas"]}


def test_a_status_is_what_the_command_prints(server: wc.Server) -> None:
    """Field by field: the binding makes dicts of what the command prints as JSON."""
    command = [sys.executable, "-m", "weightcast", "status", "--json", "--server", server.address]
    with (
        wc.open("policy", wc.Replica("t", num_shards=1), role="trainer", retain=3, server=server.address) as trainer,
        wc.open("policy", wc.Replica("r", shard=1, num_shards=2), server=server.address),
    ):
        trainer.register(wc.Layout().add(np.ones(8, "f4"), "w"), deadline=SOON)
        trainer.publish(7, deadline=SOON, seal=True)
        here = wc.status(server.address)
        printed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    for status in (here, printed):
        shards = [s for model in status["models"] for r in model["replicas"] for s in r["shards"]]
        assert [shard.pop("lease_left_s") > 0 for shard in shards] == [True, True]
    assert here == printed and [v["version"] for v in here["models"][0]["versions"]] == [7]


def test_a_server_lists_what_workers_say_of_themselves(server: wc.Server) -> None:
    far = wc.Replica("far", shard=0, num_shards=1, datacentre="west", host="node-7", spot=True)
    near = wc.Replica("near", shard=1, num_shards=3, datacentre="east", host="node-8")
    with (
        wc.open("policy", far, role="trainer", server=server.address, data_advertise="127.0.0.9:4711"),
        wc.open("policy", near, server=server.address, data_bind="127.0.0.8:0"),
    ):
        listed = replicas(server)
    told = {
        name: (listed[name]["role"], listed[name]["num_shards"],
               [(s["shard"], s["datacentre"], s["host"], s["spot"]) for s in listed[name]["shards"]])
        for name in listed
    }
    assert told == {
        "far": ("trainer", 1, [(0, "west", "node-7", True)]),
        "near": ("rollout", 3, [(1, "east", "node-8", False)]),
    }
    [[far_port], [near_port]] = [[s["data_address"] for s in listed[name]["shards"]] for name in ("far", "near")]
    assert far_port == "127.0.0.9:4711" and near_port.startswith("127.0.0.8:")


def test_a_copy_on_a_spot_instance_is_not_enough_for_a_retained_version(server: wc.Server, group) -> None:
    """The trainer makes an offload copy before it leaves; beside another one it makes none."""
    for spot, holders in ((True, 2), (False, 1)):
        model = f"policy-{spot}"
        weight, copy = np.ones(64, "f4"), np.zeros(64, "f4")
        [trainer] = group("trainer", [wc.Layout().add(weight, "w")], model=model, role="trainer", retain=1).handles
        trainer.publish(1, deadline=SOON, seal=True)
        me = wc.Replica(f"rollout-{spot}", spot=spot)
        with wc.open(model, me, server=server.address) as rollout:
            rollout.register(wc.Layout().add(copy, "w"), deadline=SOON)
            rollout.replicate(1, deadline=SOON)
            trainer.unpublish(deadline=SOON)
            listed = rollout.list(deadline=SOON)[1]
            assert me.name in listed and len(listed) == holders, listed


def test_what_is_said_of_a_version_that_is_gone_is_a_number_not_a_run(server: wc.Server, group) -> None:
    for run in range(3):
        [trainer] = group(f"trainer-{run}", [wc.Layout().add(np.ones(4, "f4"), "w")], role="trainer", epoch="new").handles
        trainer.publish(7, deadline=SOON)
    [rollout] = group("rollout", [wc.Layout().add(np.zeros(4, "f4"), "w")]).handles
    with pytest.raises(wc.VersionUnavailable) as gone:
        rollout.replicate(5, deadline=SOON)
    assert (gone.value.model, gone.value.latest, gone.value.selector) == ("policy", 7, "5")


def test_each_shard_of_a_diverged_group_is_named_with_its_own_call(group) -> None:
    layouts = [wc.Layout().add(np.zeros(4, "f4"), [wc.part("w", shape=(8,), dim=0, index=i, of=2)]) for i in range(2)]
    rollout = group("rollout", layouts)
    calls = {0: "update", 1: "list"}
    for error in rollout.each(lambda h: getattr(h, calls[h.replica.shard])()):
        assert isinstance(error, wc.GroupDiverged), error
        for shard, call in zip(error.shards, error.calls, strict=True):
            assert call.startswith(calls[shard]), (error.shards, error.calls)


def test_a_rollout_may_be_as_far_behind_as_was_said_and_no_further(group) -> None:
    weight, copies = np.zeros(4, "f4"), [np.zeros(4, "f4") for _ in range(2)]
    [trainer] = group("trainer", [wc.Layout().add(weight, "w")], role="trainer").handles
    [stale, other] = (group(f"rollout-{i}", [wc.Layout().add(copies[i], "w")]).handles[0] for i in range(2))
    trainer.publish(5, deadline=SOON)
    stale.replicate(5, deadline=SOON)
    trainer.unpublish(deadline=SOON)
    trainer.publish(8, deadline=SOON)
    held = {5: {"rollout-0"}, 8: {"trainer"}}
    assert trainer.wait(wc.fresh(3, by=1), deadline=SOON) == held
    for behind, by in ((2, 1), (3, 2), (3, None)):
        with pytest.raises(wc.Timeout):
            trainer.wait(wc.fresh(behind, by=by), deadline=0.1)
    other.replicate(8, deadline=SOON)
    assert trainer.wait(wc.fresh(3), deadline=SOON)[8] == {"trainer", "rollout-1"}
    assert trainer.wait(wc.fresh(0, by=1), deadline=SOON)[8] == {"trainer", "rollout-1"}


def test_verify_of_a_version_that_is_not_held_any_more(server: wc.Server, group) -> None:
    weight, copy = np.ones(4, "f4"), np.zeros(4, "f4")
    [trainer] = group("trainer", [wc.Layout().add(weight, "w")], role="trainer").handles
    trainer.publish(2, deadline=SOON, seal=True)
    [rollout] = group("rollout", [wc.Layout().add(copy, "w")]).handles
    rollout.replicate(2, deadline=SOON)
    assert wc.verify("policy", "rollout", version=2, server=server.address, deadline=SOON)
    with pytest.raises(wc.WeightcastError):
        wc.verify("policy", "rollout", version=1, server=server.address, deadline=SOON)


@pytest.mark.parametrize("fanout, stripes, helpers", [(2, 1, ()), (1, 2, ("second",))])
def test_readers_of_a_source_and_sources_of_a_reader_are_two_numbers(
    group, fanout: int, stripes: int, helpers: tuple[str, ...]
) -> None:
    weight, copy, target = (np.ones(1 << 20, "f4") for _ in range(3))
    with wc.serve(fanout=fanout, stripes=stripes) as server:
        [first] = group("first", [wc.Layout().add(weight, "w")], role="trainer", server=server.address).handles
        [second] = group("second", [wc.Layout().add(copy, "w")], role="trainer", server=server.address).handles
        for trainer in (first, second):
            trainer.publish(1, deadline=SOON, seal=True)
        [third] = group("third", [wc.Layout().add(target, "w")], server=server.address).handles
        assert third.replicate(1, deadline=SOON).helpers == helpers
        for handle in (third, second, first):
            handle.close(deadline=SOON)


def test_a_drain_ends_when_the_server_was_told(group) -> None:
    """The lease would let it last five times as long as the trainer waits."""
    weight, copy = np.ones(8 << 20, "f4"), np.zeros(8 << 20, "f4")
    gate = Gate()
    with wc.serve(lease=5 * SOON, drain_deadline=0.2) as server:
        [trainer] = group("trainer", [wc.Layout().add(weight, "w")], role="trainer", server=server.address,
                          way="tcp", **gate.options).handles
        trainer.publish(1, deadline=SOON, seal=True)
        [rollout] = group("rollout", [wc.Layout().add(copy, "w")], server=server.address, way="tcp").handles
        gate.hold_after(1 << 20)
        ends: list[Exception] = []

        def read() -> None:
            try:
                rollout.replicate(1, deadline=2 * SOON)
            except wc.WeightcastError as error:
                ends.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        gate.wait_held()
        trainer.unpublish(deadline=SOON)
        gate.close()
        reader.join(2 * SOON)
        assert [type(error) for error in ends] == [wc.SourceLost], ends


def test_a_token_file_that_was_given_is_the_server_s(tmp_path: Path) -> None:
    file = token_file(tmp_path / "token", "a-token-of-this-test-alone" * 2)
    with wc.serve(token_file=file) as server:
        assert server.token_file == file
        assert wc.status(server.address, token_file=file)["models"] == []


def test_seconds_of_planning_are_not_those_of_installing(group) -> None:
    weight, copy = np.ones(64, "f4"), np.zeros(64, "f4")
    [trainer] = group("trainer", [wc.Layout().add(weight, "w")], role="trainer").handles
    trainer.publish(1, deadline=SOON)
    [rollout] = group("rollout", [wc.Layout().add(copy, "w")]).handles
    moved = rollout.replicate(1, deadline=SOON)
    assert moved.plan_seconds > 0 and moved.install_seconds == 0 and moved.staged == 0
    assert moved.seconds >= moved.plan_seconds


def test_tied_weights_lie_along_the_dimension_that_was_said(group) -> None:
    """One array is `a` beside `b`, and `c` beside `d` as well: left and right, not above and below."""
    weight = np.arange(24, dtype="f4").reshape(4, 6)
    parts = {name: wc.part(name, shape=(4, 3)) for name in "abcd"}
    tied = wc.Layout().add(weight, [parts["a"], parts["b"]], along=1).also([parts["c"], parts["d"]], along=1)
    [trainer] = group("trainer", [tied], role="trainer").handles
    trainer.publish(1, deadline=SOON)
    copies = {name: np.zeros((4, 3), "f4") for name in parts}
    layout = wc.Layout()
    for name, copy in copies.items():
        layout.add(copy, name)
    [rollout] = group("rollout", [layout]).handles
    rollout.replicate(1, deadline=SOON)
    for left, right in ("ab", "cd"):
        assert np.array_equal(np.hstack([copies[left], copies[right]]), weight)


def test_a_program_that_ends_leaves_with_all_its_handles() -> None:
    """Nobody closes them; the lease would keep their places for minutes."""
    with wc.serve(lease=10 * SOON) as server:
        program = """
import sys, weightcast as wc
kept = [wc.open("policy", wc.Replica(name), server=sys.argv[1]) for name in ("one", "two", "three")]
print(len(wc.status(sys.argv[1])["models"][0]["replicas"]))
"""
        done = subprocess.run([sys.executable, "-c", program, server.address], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
        assert [r["name"] for model in wc.status(server.address)["models"] for r in model["replicas"]] == []
