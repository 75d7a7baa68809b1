"""Versions move between layouts, to the bit."""

import contextlib
import socket

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

SHAPES = {"a.weight": (12, 8), "b.weight": (5, 3), "c": (7,), "d": (), "e": (0, 4)}


def tensors(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(shape).astype("f4") for name, shape in SHAPES.items()}


def whole(values: dict[str, np.ndarray]) -> wc.Layout:
    layout = wc.Layout()
    for name, value in values.items():
        layout.add(value, name)
    return layout


def rows(values: dict[str, np.ndarray], shard: int, of: int) -> dict[str, np.ndarray]:
    """Torch's chunks along the first dimension; scalars on every shard."""
    cut = {}
    for name, value in values.items():
        if value.ndim == 0:
            cut[name] = value.copy()
            continue
        each = -(-value.shape[0] // of)
        cut[name] = value[shard * each : (shard + 1) * each].copy()
    return cut


def rows_layout(local: dict[str, np.ndarray], shard: int, of: int) -> wc.Layout:
    layout = wc.Layout()
    for name, value in local.items():
        whole_or_cut = {} if value.ndim == 0 else {"dim": 0, "index": shard, "of": of}
        layout.add(value, [wc.part(name, shape=SHAPES[name], **whole_or_cut)])
    return layout


@pytest.mark.parametrize("way", ["direct", "tcp"])
@pytest.mark.parametrize(("sources", "targets"), [(1, 1), (3, 2), (2, 5), (8, 1)])
def test_any_rows_to_any_rows(group, way, sources, targets):
    values = tensors(1)
    held = [rows(values, shard, sources) for shard in range(sources)]
    trainer = group(
        "trainer",
        [rows_layout(local, shard, sources) for shard, local in enumerate(held)],
        role="trainer",
    )
    trainer.all(lambda h: h.publish(4, deadline=SOON))
    empty = {name: np.zeros_like(value) for name, value in values.items()}
    local = [rows(empty, shard, targets) for shard in range(targets)]
    rollout = group(
        "rollout", [rows_layout(mine, shard, targets) for shard, mine in enumerate(local)], way=way
    )
    for moved in rollout.all(lambda h: h.replicate(wc.latest(), deadline=SOON)):
        assert moved and moved.version == 4 and moved.source == "trainer"
        assert moved.verified == moved.bytes
        assert moved.way == way or moved.bytes == 0
    for shard in range(targets):
        for name, expected in rows(values, shard, targets).items():
            assert np.array_equal(local[shard][name], expected), (shard, name)


def test_fused_parts_with_looked_up_shapes(group):
    draw = np.random.default_rng(2)
    q, k, v = (draw.integers(0, 100, (n, 6)).astype("f2") for n in (8, 4, 4))
    trainer = group("trainer", [whole({"q": q, "k": k, "v": v})], role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON))
    fused = [np.zeros((8, 6), "f2") for _ in range(2)]
    layouts = [
        wc.Layout().add(f, [wc.part(x, dim=0, index=i, of=2) for x in "qkv"])
        for i, f in enumerate(fused)
    ]
    rollout = group("rollout", layouts)
    rollout.all(lambda h: h.replicate("latest", deadline=SOON))
    for i, f in enumerate(fused):
        expected = np.concatenate([q[4 * i : 4 * i + 4], k[2 * i : 2 * i + 2], v[2 * i : 2 * i + 2]])
        assert np.array_equal(f, expected)


def test_tied_names_lie_in_memory_once(group):
    embed = np.arange(12, dtype="f4").reshape(4, 3)
    source = wc.Layout().add(embed, "embed").also(wc.part("head", shape=(4, 3)))
    trainer = group("trainer", [source], role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON))
    tied, embed_only, head_only = (np.zeros((4, 3), "f4") for _ in range(3))
    rollout = group(
        "tied", [wc.Layout().add(tied, "embed").also(wc.part("head", shape=(4, 3)))]
    )
    rollout.all(lambda h: h.replicate("latest", deadline=SOON))
    apart = group("apart", [wc.Layout().add(embed_only, "embed").add(head_only, "head")])
    apart.all(lambda h: h.replicate("latest", deadline=SOON))
    for copy in (tied, embed_only, head_only):
        assert np.array_equal(copy, embed)


def test_update_says_whether_it_changed(group):
    weight = np.zeros(1000, "f4")
    copy = np.empty_like(weight)
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    for version in range(4):
        weight[:] = version
        with trainer[0].published(version, deadline=SOON):
            first = rollout[0].update("latest", deadline=SOON)
            again = rollout[0].update("latest", deadline=SOON)
        assert first.changed and not again.changed and again.version == version
        assert (copy == version).all() and rollout[0].version == version
    with pytest.raises(wc.VersionUnavailable) as gone:
        rollout[0].unpublish(deadline=SOON)
        rollout[0].replicate(1, deadline=SOON)
    assert gone.value.selector == "1"


def test_list_and_wait(group):
    weight = np.ones(10, "f4")
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    rollout = group("rollout", [wc.Layout().add(np.zeros(10, "f4"), "w")])
    assert rollout[0].list() == {}
    trainer[0].publish(3, deadline=SOON)
    assert rollout[0].wait(lambda versions: 3 in versions, deadline=SOON) == {3: {"trainer"}}
    rollout[0].replicate(3, deadline=SOON)
    assert trainer[0].list() == {3: {"trainer", "rollout"}}
    with pytest.raises(wc.Timeout):
        trainer[0].wait(lambda versions: 4 in versions, deadline=0.2)


def test_the_server_looks_at_what_is_waited_for(group):
    weight = np.ones(10, "f4")
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    quick = group("quick", [wc.Layout().add(np.zeros(10, "f4"), "w")])
    slow = group("slow", [wc.Layout().add(np.zeros(10, "f4"), "w")])
    with pytest.raises(wc.VersionUnavailable):
        quick[0].wait(wc.available(wc.at_least(7)), deadline=0.2)
    trainer[0].publish(7, deadline=SOON)
    assert quick[0].wait(wc.available(wc.at_least(7)), deadline=SOON) == {7: {"trainer"}}
    quick[0].replicate(7, deadline=SOON)
    assert trainer[0].wait(wc.held(7, by=1), deadline=SOON) == {7: {"trainer", "quick"}}
    with pytest.raises(wc.Timeout, match="slow holds nothing"):
        trainer[0].wait(wc.fresh(2), deadline=0.2)
    slow[0].replicate(wc.nth_latest(0), deadline=SOON)
    assert trainer[0].wait(wc.held(7), deadline=SOON) == {7: {"trainer", "quick", "slow"}}
    with pytest.raises(wc.Timeout, match="quick holds"):
        trainer[0].wait(wc.held(8), deadline=0.2)


def test_a_condition_needs_numbers_that_can_be():
    with pytest.raises(ValueError, match="2\\*\\*64"):
        wc.held(-1)
    with pytest.raises(ValueError, match="counted"):
        wc.fresh(1, by=-1)


def test_a_rollout_serves_after_the_trainer_left(group):
    weight = np.arange(5000, dtype="i4")
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    trainer[0].publish(1, deadline=SOON)
    one = group("one", [wc.Layout().add(first, "w")])
    one[0].replicate(1, deadline=SOON)
    trainer[0].unpublish(deadline=SOON)
    weight[:] = -1
    two = group("two", [wc.Layout().add(second, "w")])
    assert two[0].replicate(1, deadline=SOON).source == "one"
    assert np.array_equal(second, np.arange(5000))


def test_publish_again_after_a_new_epoch(group, server):
    weight = np.zeros(100, "f4")
    first = group("trainer", [wc.Layout().add(weight, "w")], role="trainer", epoch="new")
    copy = np.zeros(100, "f4")
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    first[0].publish(9, deadline=SOON, seal=True)
    rollout[0].update("latest", deadline=SOON)
    first[0].close(deadline=SOON)
    weight[:] = 2  # restarted from a checkpoint: the number goes back
    second = group("again", [wc.Layout().add(weight, "w")], role="trainer", epoch="new")
    second[0].publish(5, deadline=SOON)
    assert rollout[0].update("latest", deadline=SOON).version == 5
    assert (copy == 2).all()


@pytest.fixture
def hole():
    """An address that takes connections and never answers: a host that swallows packets."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # one waits to be accepted, the others' requests go unanswered
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_source_that_swallows_packets_is_passed_over(group, hole):
    weight, copy = np.arange(1000, dtype="f4"), np.zeros(1000, "f4")
    # Of two equal sources the first by name is chosen.
    lost = group("a", [wc.Layout().add(weight, "w")], role="trainer", data_advertise=hole)
    lost[0].publish(1, deadline=SOON, seal=True)
    good = group("b", [wc.Layout().add(weight.copy(), "w")], role="trainer")
    good[0].publish(1, deadline=SOON, seal=True)
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    moved = rollout[0].update("latest", deadline=SOON)
    assert moved.source == "b" and np.array_equal(copy, weight)
    assert rollout[0].list(), "its session is alive: heartbeats went on meanwhile"


def test_a_source_at_an_address_outside_the_job_is_passed_over(group):
    """Nobody is asked there, so it is told at once, and another source is found."""
    weight, copy = np.arange(1000, dtype="f4"), np.zeros(1000, "f4")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for name, address in [("a", "169.254.169.254:80"), ("b", f"0.0.0.0:{port}")]:
            lost = group(name, [wc.Layout().add(weight, "w")], role="trainer", data_advertise=address)
            lost[0].publish(1, deadline=SOON, seal=True)
        good = group("c", [wc.Layout().add(weight.copy(), "w")], role="trainer")
        good[0].publish(1, deadline=SOON, seal=True)
        rollout = group("rollout", [wc.Layout().add(copy, "w")])
        moved = rollout[0].update("latest", deadline=SOON)
        assert moved.source == "c" and np.array_equal(copy, weight)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nonsense_for_networks_is_told(server):
    with pytest.raises(wc.WeightcastError, match="10.0.0.0/8"):
        wc.open("policy", wc.Replica("a"), server=server.address, data_networks=["10.0.0.0/99"])


def test_the_way_says_why(group):
    weight = np.arange(1000, dtype="f4")
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    trainer[0].publish(1, deadline=SOON, seal=True)
    for way, came, why in [
        ("auto", "tcp", "this very process"),
        ("tcp", "tcp", "demanded"),
        ("direct", "direct", "this host"),
    ]:
        copy = [wc.Layout().add(np.zeros(1000, "f4"), "w")]
        reader = group(f"by-{way}", copy, way=way)
        moved = reader[0].replicate("latest", deadline=SOON)
        assert moved.way == came and why in moved.way_reason
