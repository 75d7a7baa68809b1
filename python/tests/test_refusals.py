"""Bad input: a clear typed error that names what and where; others are unharmed."""

import stat
from functools import partial

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON, token_file


@pytest.fixture
def trainer(group):
    made = group("trainer", [wc.Layout().add(np.ones((8, 4), "f4"), "w")], role="trainer")
    made[0].publish(1, deadline=SOON)
    return made


def refused(group, layout: wc.Layout) -> Exception:
    rollout = group("rollout", [layout])
    (error,) = rollout.each(lambda h: h.replicate("latest", deadline=SOON))
    assert isinstance(error, wc.WeightcastError), error
    return error


@pytest.mark.parametrize(
    ("array", "name", "said"),
    [
        (np.zeros((8, 5), "f4"), "w", "[8, 5]"),
        (np.zeros((8, 4), "f8"), "w", "F64"),
        (np.zeros((8, 4), "f4"), "v", "w"),
    ],
)
def test_wrong_shape_dtype_or_name(group, trainer, array, name, said):
    error = refused(group, wc.Layout().add(array, name))
    assert isinstance(error, wc.LayoutMismatch) and said in str(error), error
    good = group("good", [wc.Layout().add(np.zeros((8, 4), "f4"), "w")])
    assert good[0].replicate(1, deadline=SOON)


def test_unmatched_parts_list_the_nearest_names(group, trainer):
    layout = wc.Layout().add(np.zeros((4, 4), "f4"), [wc.part("ww", dim=0, index=0, of=2)])
    with pytest.raises(wc.LayoutMismatch, match="ww.*\n?.*w"):
        group("rollout", [layout])


def test_parts_that_do_not_add_up(group, trainer):
    layout = wc.Layout().add(np.zeros((5, 4), "f4"), [wc.part("w", dim=0, index=0, of=2)])
    with pytest.raises(wc.LayoutMismatch, match="buffer 0"):
        group("rollout", [layout])


def test_uncovered_rows_are_named(group, trainer):
    half = wc.Layout().add(np.zeros((4, 4), "f4"), [wc.part("w", shape=(8, 4), dim=0, index=0, of=2)])
    with pytest.raises(wc.LayoutMismatch, match=r"\[4:8, 0:4\] of w.*num_shards"):
        group("half", [half])


@pytest.mark.parametrize("array", [np.zeros((4, 6), "f4").T, np.zeros((4, 6), "f4")[:, ::2]])
def test_not_contiguous(array):
    with pytest.raises(wc.Misuse, match="bias.*not contiguous"):
        wc.Layout().add(array, "bias")


def test_unknown_version(group, trainer):
    rollout = group("rollout", [wc.Layout().add(np.zeros((8, 4), "f4"), "w")])
    with pytest.raises(wc.VersionUnavailable) as missing:
        rollout[0].replicate(7, deadline=0.3)
    assert missing.value.selector == "7" and missing.value.latest == 1


def test_calls_out_of_order(group, trainer):
    with pytest.raises(wc.Misuse, match="unpublish"):
        trainer[0].publish(2, deadline=SOON)
    rollout = group("rollout", [wc.Layout().add(np.zeros((8, 4), "f4"), "w")])
    with pytest.raises(wc.Misuse):
        rollout[0].unpublish(deadline=SOON)
    rollout[0].replicate(1, deadline=SOON)
    with pytest.raises(wc.Misuse):
        rollout[0].replicate(1, deadline=SOON)
    assert rollout[0].version == 1


def test_wrong_shard_count(group, trainer, server):
    with pytest.raises(wc.Misuse, match="trainer"):
        wc.open("policy", wc.Replica("trainer", 0, 3), role="trainer", server=server.address)


def test_diverged_calls(group):
    layouts = [wc.Layout().add(np.zeros(4, "f4"), [wc.part("w", shape=(8,), dim=0, index=i, of=2)])
               for i in range(2)]
    rollout = group("rollout", layouts)
    errors = rollout.each(
        lambda h: h.list(deadline=SOON) if h.replica.shard else h.update("latest", deadline=SOON)
    )
    for error in errors:
        assert isinstance(error, wc.GroupDiverged), error
        assert set(error.shards) == {0, 1} and error.replica == "rollout"


def test_a_shard_that_never_calls(group):
    layouts = [wc.Layout().add(np.zeros(4, "f4"), [wc.part("w", shape=(8,), dim=0, index=i, of=2)])
               for i in range(2)]
    trainer = group("trainer", layouts, role="trainer")
    with pytest.raises(wc.Timeout, match="shard 1"):
        trainer[0].publish(1, deadline=0.3)


def test_changed_while_published(group):
    weight = np.ones((64, 64), "f4")
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    trainer[0].publish(1, deadline=SOON, seal=True)
    weight[[3, 9]] = weight[[9, 3]]
    weight[5, 5] += 1
    copy = np.zeros_like(weight)
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    with pytest.raises(wc.DigestMismatch) as found:
        rollout[0].replicate("latest", deadline=SOON)
    assert found.value.version == 1 and found.value.source_replica == "trainer"
    assert rollout[0].version is None


def test_swapped_rows_are_found(group):
    weight = np.arange(64 * 64, dtype="f4").reshape(64, 64)
    trainer = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    trainer[0].publish(1, deadline=SOON, seal=True)
    weight[[3, 9]] = weight[[9, 3]]
    rollout = group("rollout", [wc.Layout().add(np.zeros_like(weight), "w")])
    with pytest.raises(wc.DigestMismatch):
        rollout[0].replicate("latest", deadline=SOON)


def test_other_content_under_one_version(group):
    one = group("one", [wc.Layout().add(np.ones(100, "f4"), "w")], role="trainer")
    two = group("two", [wc.Layout().add(np.zeros(100, "f4"), "w")], role="trainer")
    one[0].publish(1, deadline=SOON, seal=True)
    one[0].list()  # the seal was handled before this
    with pytest.raises(wc.ContentMismatch):
        two[0].publish(1, deadline=SOON, seal=True)
    with pytest.raises(wc.ContentMismatch) as refused:
        two[0].list()
    assert refused.value.version == 1
    assert one[0].list() == {1: {"one"}}


def test_a_shard_of_a_group_that_holds_another_copy(group):
    """Two shards hold the same replicated slice with different bits."""
    def layout(bias: float, shard: int) -> wc.Layout:
        rows = wc.part("w", shape=(8, 4), dim=0, index=shard, of=2)
        return wc.Layout().add(np.ones((4, 4), "f4"), [rows]).add(np.full(4, bias, "f4"), "bias")

    trainer = group("trainer", [layout(0.0, 0), layout(1.0, 1)], role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON))
    for error in trainer.each(lambda h: h.wait_sealed(deadline=SOON)):
        assert isinstance(error, wc.ContentMismatch) and "bias" in str(error), error
    for error in trainer.each(lambda h: h.list(deadline=SOON)):
        assert isinstance(error, wc.ContentMismatch), error


def test_wrong_token(tmp_path):
    good, bad = (token_file(tmp_path / name, name * 10) for name in ("good", "badd"))
    with wc.serve(token_file=good) as server:
        with pytest.raises(wc.ServerUnreachable, match="token"):
            wc.open("policy", wc.Replica("r"), server=server.address, token_file=bad)
        with pytest.raises(wc.ServerUnreachable, match="token"):
            wc.open("policy", wc.Replica("r"), server=server.address)
        with pytest.raises(wc.ServerUnreachable, match="token"):
            wc.status(server.address)
        with wc.open("policy", wc.Replica("r"), server=server.address, token_file=good):
            assert wc.status(server.address, token_file=good)["models"]


@pytest.mark.parametrize("token", ["", "short", "with space " * 9])
def test_bad_token_files(tmp_path, token):
    path = token_file(tmp_path / "token", token)
    with pytest.raises(wc.Misuse, match="token"):
        wc.serve(token_file=path)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o666])
def test_a_token_that_others_can_read_or_write(tmp_path, mode):
    path = token_file(tmp_path / "token", "t" * 40)
    path.chmod(mode)
    for use in (wc.serve, partial(wc.open, "policy", wc.Replica("r"), server="http://127.0.0.1:9")):
        with pytest.raises(wc.Misuse, match=f"{path}.*{mode:04o}.*chmod"):
            use(token_file=path)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix"])
def test_other_users_of_the_host_are_not_served(tmp_path, address):
    """They cannot read the token that a server makes by itself."""
    address = f"unix:{tmp_path / 'socket'}" if address == "unix" else address
    with wc.serve(address) as server:
        assert stat.S_IMODE(server.token_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(server.token_file.parent.stat().st_mode) == 0o700
        with pytest.raises(wc.ServerUnreachable, match="token"):
            wc.open("policy", wc.Replica("r"), server=server.address, insecure=True)
        with wc.open("policy", wc.Replica("r"), server=server.address):
            assert wc.status(server.address)["sessions"] == 1
        assert str(server.token_file) in repr(server) and server.address in repr(server)
        assert server.token_file.read_text() not in repr(server)


def test_no_token_is_asked_for_by_name():
    with wc.serve(insecure=True) as server:
        assert server.token_file is None
        for insecure in (False, True):
            wc.open("policy", wc.Replica("r"), server=server.address, insecure=insecure).close()


def test_no_token_for_a_server_elsewhere():
    with pytest.raises(wc.Misuse, match="http://192.0.2.1:7700.*WEIGHTCAST_TOKEN_FILE"):
        wc.open("policy", wc.Replica("r"), server="http://192.0.2.1:7700")


def test_beyond_loopback_needs_a_token():
    with pytest.raises(wc.Misuse, match="token"):
        wc.serve("0.0.0.0:0")
    with pytest.raises(wc.Misuse, match="token"):
        wc.open(
            "policy", wc.Replica("r"), server="http://192.0.2.1:7700", data_bind="0.0.0.0:0"
        )


def test_no_server():
    with pytest.raises(wc.ServerUnreachable, match="127.0.0.1:9"):
        wc.open("policy", wc.Replica("r"), server="http://127.0.0.1:9", deadline=0.5)


@pytest.mark.parametrize("selector", [-1, "newest", "latest-x", 2**64, True, None])
def test_bad_selectors(group, selector):
    rollout = group("rollout", [wc.Layout().add(np.zeros(4, "f4"), "w")])
    with pytest.raises((ValueError, TypeError)):
        rollout[0].replicate(selector, deadline=1)


@pytest.mark.parametrize("deadline", [-1.0, float("nan"), float("inf")])
def test_bad_deadlines(group, deadline):
    rollout = group("rollout", [wc.Layout().add(np.zeros(4, "f4"), "w")])
    with pytest.raises(ValueError, match="deadline"):
        rollout[0].list(deadline=deadline)


def test_a_socket_path_that_no_server_can_have():
    with pytest.raises(wc.Misuse, match="at most 107 bytes"):
        wc.open("policy", wc.Replica("r"), server=f"unix:/{'d' * 200}/server.sock", deadline=SOON)
