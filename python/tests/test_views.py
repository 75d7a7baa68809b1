"""Versions that are viewed where another process of the host holds them."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import weightcast as wc
import weightcast.torch as wct

from .conftest import SOON

HOLDER = """
    import os, sys, threading, torch, weightcast as wc
    address, memory, shards = sys.argv[1], sys.argv[2], int(sys.argv[3])
    like = {
        "weight": torch.zeros(6, 4), "half": torch.zeros(3, dtype=torch.bfloat16), "none": torch.zeros(0),
        "scalar": torch.zeros((), dtype=torch.int64),
    }

    def hold(shard, ready, go):
        tensors = wc.empty_like(like) if memory == "shared" else {n: t.clone() for n, t in like.items()}
        with wc.open("policy", wc.Replica("holder", shard, shards), role="trainer", server=address) as handle:
            layout = wc.Layout()
            for name, tensor in tensors.items():
                cut = wc.part(name, dim=0, start=6 * shard, length=6, shape=(6 * shards, 4))
                layout.add(tensor, cut if name == "weight" else name)
            handle.register(layout)
            for version in (1, 2):
                for tensor in tensors.values():
                    tensor.fill_(version)
                tensors["weight"][:] += torch.arange(24.0).reshape(6, 4) + 100 * shard
                handle.publish(version, deadline=60)
                ready.wait()
                go.wait()
                handle.unpublish(deadline=60)

    threading.excepthook = lambda failed: (sys.__excepthook__(*failed[:3]), os._exit(1))
    ready, go = threading.Barrier(shards + 1), threading.Barrier(shards + 1)
    for shard in range(shards):
        threading.Thread(target=hold, args=(shard, ready, go), daemon=True).start()
    for _ in range(2):
        ready.wait()
        print("published", flush=True)
        if not sys.stdin.readline():
            break
        go.wait()
"""


@contextmanager
def holder(server: wc.Server, memory: str = "shared", shards: int = 1) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), server.address, memory, str(shards)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            published(process)
            yield process
        finally:
            process.kill()


def published(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None and process.stdout.readline() == "published\n"


def goes_on(process: "subprocess.Popen[str]") -> None:
    print(file=process.stdin, flush=True)


@pytest.fixture
def viewer(server: wc.Server) -> Iterator[wc.Handle]:
    with wc.open("policy", wc.Replica("viewer"), server=server.address) as handle:
        yield handle


def weight(version: int, shard: int = 0) -> np.ndarray:
    return np.arange(24.0, dtype="f4").reshape(6, 4) + 100 * shard + version


def test_a_version_is_read_where_it_lies_until_its_holder_gives_it_up(
    server: wc.Server, viewer: wc.Handle
) -> None:
    with holder(server) as process:
        with viewer.view() as view:
            ((listed, _),) = viewer._core.list(SOON).versions
            assert (view.version, view.epoch) == listed and (view.replica, view.shards) == ("holder", [0])
            arrays = view.arrays()
            assert np.array_equal(arrays["weight"], weight(1)) and arrays["weight"].dtype == np.float32
            assert arrays["half"].dtype == np.uint16 and arrays["none"].shape == (0,)
            assert arrays["scalar"] == 1 and arrays["scalar"].shape == ()
            with pytest.raises(ValueError, match="read-only"):
                arrays["weight"][0] = 1
            assert viewer.version is None and viewer.list()[1] == {"holder"}, "who views is no replica"
        assert "whole" in repr(view)
        with pytest.raises(ZeroDivisionError), view:
            1 / 0  # noqa: B018
        goes_on(process)  # waits for nobody who views
        published(process)
        assert not view.whole and "ended" in repr(view)
        with pytest.raises(wc.ViewEnded, match="holder has given version 1 up"):
            view.check()
        with pytest.raises(wc.ViewEnded), view:
            pass
        assert np.array_equal(arrays["weight"], weight(2)), (
            "it is the holder's memory, whatever it does there"
        )
        later = viewer.view(2)
        assert later.whole and np.array_equal(later.arrays()["weight"], weight(2))
        with pytest.raises(wc.VersionUnavailable):
            viewer.view(1)
        process.kill()
        process.wait()
        assert later.whole and np.array_equal(arrays["weight"], weight(2)), "who has died changes nothing"


def test_a_module_computes_with_tensors_that_are_viewed(server: wc.Server, viewer: wc.Handle) -> None:
    with holder(server), viewer.view("latest") as view:
        tensors = wct.viewed(view)
        assert tensors["half"].dtype is torch.bfloat16 and tensors["half"].tolist() == [1, 1, 1]
        assert tensors["none"].shape == (0,) and tensors["scalar"].item() == 1
        module = torch.nn.Linear(4, 6, bias=False, device="meta")
        module.load_state_dict({"weight": tensors["weight"]}, assign=True)
        assert module.weight.data_ptr() == view.by_name()["weight"].address, "nothing is copied"
        x = torch.tensor([1.0, 0, 0, 2])
        assert torch.equal(module(x), torch.from_numpy(weight(1)) @ x)


def test_one_shard_is_viewed_or_all_of_them(server: wc.Server, viewer: wc.Handle) -> None:
    with holder(server, shards=2):
        view = viewer.view()
        assert view.shards == [0, 1]
        for shard in (0, 1):
            (piece,) = [piece for piece in view.pieces(shard) if piece.name == "weight"]
            assert (piece.shape, piece.start, piece.size, piece.whole) == (
                (12, 4),
                (6 * shard, 0),
                (6, 4),
                False,
            )
            assert np.array_equal(view.arrays(shard)["weight"], weight(1, shard))
        for ask in (view.pieces, view.arrays, lambda: wct.viewed(view)):
            with pytest.raises(wc.Misuse, match="2 shards are mapped: say which"):
                ask()
        one = viewer.view(shard=1)
        assert one.shards == [1] and np.array_equal(one.arrays()["weight"], weight(1, 1))
        with pytest.raises(wc.Misuse, match=r"shard 0 is not mapped, only \[1\]"):
            one.arrays(0)
        with pytest.raises(wc.NoView, match="holder: has 2 shards, and no shard 2"):
            viewer.view(shard=2)


def test_a_shard_that_nobody_can_have_is_told_by_its_range(viewer: wc.Handle) -> None:
    for shard in (-1, 2**32):
        with pytest.raises(ValueError, match=rf"shard is an integer from 0 to 2\*\*32 - 1, not {shard}"):
            viewer.view(shard=shard)
    with pytest.raises(TypeError, match="shard is an integer, not 'last'"):
        viewer.view(shard="last")


def test_memory_stays_mapped_as_long_as_an_array_of_it_is_there(server: wc.Server, viewer: wc.Handle) -> None:
    with holder(server) as process:
        array = viewer.view().arrays()["weight"][2:4]
        tensor = wct.viewed(viewer.view())["weight"][4]
        viewer.close()
        process.kill()
        process.wait()
        assert np.array_equal(array, weight(1)[2:4]) and tensor.tolist() == weight(1)[4].tolist()


def test_what_is_not_shared_is_not_viewed_and_the_error_says_why(
    server: wc.Server, viewer: wc.Handle
) -> None:
    with pytest.raises(wc.VersionUnavailable, match="latest is none"):
        viewer.view()
    with holder(server, memory="private"):
        with pytest.raises(
            wc.NoView, match="holder: .*not in shared memory.*empty_like.*replicate"
        ) as refused:
            viewer.view(deadline=20)
        assert refused.value.version == 1 and len(refused.value.reasons) == 1
    with wc.open("policy", wc.Replica("here"), role="trainer", server=server.address) as handle:
        mine = wc.empty_like({"weight": np.zeros(3, "f4")})
        layout = wc.Layout()
        layout.add(mine["weight"], "weight")
        handle.register(layout)
        handle.publish(7, deadline=20)
        with pytest.raises(wc.NoView, match="here: .*this very process"):
            viewer.view(7)
        with pytest.raises(wc.NoView, match="no other replica there holds it"):
            handle.view(7)


ROLLOUT = """
    import sys, torch, weightcast as wc
    address, ends = sys.argv[1:]
    weight = wc.empty_like(torch.zeros(6, 4))
    handle = wc.open("policy", wc.Replica("holder"), server=address)
    layout = wc.Layout()
    layout.add(weight, "weight")
    handle.register(layout)
    handle.update(1, deadline=60)
    print("published", flush=True)
    sys.stdin.readline()
    getattr(handle, ends)(deadline=60)
    print("published", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", ["update", "unpublish", "close"])
def test_a_view_of_a_rollout_ends_when_that_goes_on(server: wc.Server, viewer: wc.Handle, ends: str) -> None:
    tensor = torch.from_numpy(weight(1).copy())
    with wc.open("policy", wc.Replica("trainer"), role="trainer", server=server.address) as trainer:
        layout = wc.Layout()
        layout.add(tensor, "weight")
        trainer.register(layout)
        trainer.publish(1)
        command = [sys.executable, "-c", textwrap.dedent(ROLLOUT), server.address, ends]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                published(process)
                trainer.unpublish(deadline=60)
                tensor.add_(1)
                trainer.publish(2)
                view = viewer.view(1)
                assert view.replica == "holder" and np.array_equal(view.arrays()["weight"], weight(1))
                goes_on(process)
                published(process)
                assert not view.whole
                with pytest.raises(wc.ViewEnded, match="holder has given version 1 up"):
                    view.check()
            finally:
                process.kill()
