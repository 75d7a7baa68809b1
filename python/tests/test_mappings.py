"""Memory that somebody else can take away: told when it is registered."""

import multiprocessing.shared_memory
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import weightcast as wc

from .conftest import SOON


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "weights.bin"
    np.arange(5_000, dtype="f4").tofile(path)
    return path, np.memmap(path, dtype="f4", mode="r+")


def test_a_mapped_file_is_told_with_what_to_do(group, mapped):
    path, array = mapped
    layout = wc.Layout().add(array[:4_000], "w").add(array[4_000:], "b").add(np.zeros(3, "f4"), "c")
    trainer = group("trainer", [layout], role="trainer", register=False)
    with pytest.warns(UserWarning, match="truncated") as told:
        trainer[0].register(layout, deadline=SOON)
    (warning,) = told
    message = str(warning.message)
    assert f"w, b: mapped from the file {path}" in message and "clone()" in message
    assert warning.filename == __file__, "where register was called"
    trainer[0].publish(1, deadline=SOON, seal=True)


def test_memory_that_nobody_can_open_by_name_is_not(group):
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    try:
        memfd = os.memfd_create("weights")
        os.ftruncate(memfd, 4096)
        layout = (
            wc.Layout()
            .add(np.zeros(1_000_000, "f4"), "fresh")
            .add(np.zeros(0, "f4"), "empty")
            .add(torch.zeros(70_000).share_memory_(), "torch")
            .add(np.memmap(os.fdopen(memfd, "r+b"), dtype="u1"), "memfd")
            .add(np.frombuffer(shared.buf, "u1"), "shm")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            group("trainer", [layout], role="trainer")
    finally:
        shared.unlink()


def test_every_name_is_found_wherever_its_file_is_mapped(tmp_path):
    from weightcast.mappings import in_files

    arrays = []
    for number in range(40):
        path = tmp_path / f"{number}.bin"
        np.full(2_000, number, "f4").tofile(path)
        arrays.append((path, np.memmap(path, dtype="f4", mode="c" if number % 2 else "r")))
    places = [(path.name, a.ctypes.data, a.nbytes) for path, a in arrays]
    heap = np.zeros(1_000_000, "f4")
    places.append(("heap", heap.ctypes.data, heap.nbytes))
    found = in_files(places)
    assert {path: [os.path.basename(path)] for path in found} == found
    assert len(found) == 40


TRAINER = """
import sys
import torch
import weightcast as wc

server, path = sys.argv[1:]
w = torch.from_file(path, shared=True, size=1 << 18, dtype=torch.float32)
with wc.open("m", wc.Replica("trainer"), role="trainer", server=server) as handle:
    handle.register(wc.Layout().add(w, "w"), deadline=30)
    handle.publish(1, deadline=30, seal=True)
    print("published", flush=True)
    input()
    handle.unpublish(deadline=30)
    print("unpublished", flush=True)
"""


def test_a_file_that_is_truncated_costs_the_reader_and_not_the_owner(server, tmp_path):
    path = tmp_path / "weights.bin"
    weights = np.arange(1 << 18, dtype="f4")
    weights.tofile(path)
    program = [sys.executable, "-W", "ignore", "-c", TRAINER, server.address, str(path)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        try:
            assert trainer.stdout.readline() == "published\n"
            os.truncate(path, 4096)
            array = np.zeros(1 << 18, "f4")
            with wc.open("m", wc.Replica("rollout"), server=server.address) as rollout:
                rollout.register(wc.Layout().add(array, "w"), deadline=SOON)
                with pytest.raises(wc.WeightcastError):
                    rollout.replicate(1, deadline=SOON)
                assert rollout.version is None
            assert trainer.poll() is None, "it lives"
            trainer.stdin.write("\n")
            trainer.stdin.flush()
            assert trainer.stdout.readline() == "unpublished\n"
            assert trainer.wait(SOON) == 0
        finally:
            trainer.kill()
