"""Checkpoints on disk: `weightcast.checkpoint`, `weightcast pull`, `weightcast push`."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weightcast as wc
from weightcast.adapters.catalog import Entry
from weightcast.checkpoint import files, publish, pull

from .conftest import SOON


def tensors() -> dict[str, torch.Tensor]:
    """Elements of every size, dimensions from none to three, one tensor without elements."""
    drawn = torch.Generator().manual_seed(7)
    noise = torch.randn(6, 40, generator=drawn)
    return {
        "embed.weight": noise.bfloat16(),
        "norm.weight": noise[0].double(),
        "codes": noise.to(torch.float8_e4m3fn),
        "mask": noise[0] > 0,
        "steps": torch.tensor(9),
        "experts": torch.arange(24, dtype=torch.int32).reshape(2, 3, 4),
        "none": torch.zeros(0, 4),
    }


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    def equal(name: str) -> bool:
        a, b = found[name], wanted[name]
        raw = (a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)

    return found.keys() == wanted.keys() and all(map(equal, wanted))


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """Two files, as a library for checkpoints writes them."""
    folder, whole = tmp_path / "policy", tensors()
    folder.mkdir()
    names = sorted(whole)
    save_file({name: whole[name] for name in names[:3]}, folder / "model-00001-of-00002.safetensors")
    save_file({name: whole[name] for name in names[3:]}, folder / "model-00002-of-00002.safetensors")
    return folder


def test_what_is_published_from_disk_is_what_is_pulled(server, checkpoint, tmp_path):
    with publish(checkpoint, "policy", 40, server=server.address, deadline=SOON) as there:
        assert (there.version, there.tensors) == (40, len(tensors()))
        done = pull("policy", tmp_path / "out", server=server.address, deadline=SOON)
    assert (done.version, done.nbytes, len(done.files)) == (40, there.nbytes, 1)
    assert same(load_file(done.files[0]), tensors())
    assert sorted(os.listdir(tmp_path / "out")) == ["model.safetensors"], "nothing else is left"
    with done.files[0].open("rb") as file:
        header = json.loads(file.read(8 + int.from_bytes(file.read(8), "little") - 8))
    assert header["__metadata__"]["weightcast.version"] == "40"


def test_shards_and_their_index_are_those_of_the_hub(server, checkpoint, tmp_path):
    with publish(checkpoint, "policy", 1, server=server.address, deadline=SOON):
        done = pull("policy", tmp_path / "out", server=server.address, shard_bytes=500, deadline=SOON)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == done.nbytes
    assert {file.name for file in done.files} == set(index["weight_map"].values())
    assert done.files[0].name == f"model-00001-of-{len(done.files):05}.safetensors"
    whole = {}
    for file in done.files:
        part = load_file(file)
        assert {name for name, of in index["weight_map"].items() if of == file.name} == part.keys()
        assert len(part) == 1 or sum(t.nbytes for t in part.values()) <= 500
        whole |= part
    assert same(whole, tensors())


def test_a_version_that_is_kept_by_name_is_pulled_by_its_number(server, tmp_path):
    weights = np.arange(1000, dtype="f4")
    with wc.open("policy", wc.Replica("t"), role="trainer", retain=3, server=server.address) as trainer:
        trainer.register(wc.Layout().add(weights, "w"))
        for version in range(3):
            with trainer.published(version, deadline=SOON):
                pass
            weights += 1
        for asked, added in (("latest-1", 1), (0, 0), ("latest", 2)):
            done = pull("policy", tmp_path / str(asked), version=asked, server=server.address, deadline=SOON)
            assert done.version == added
            assert load_file(done.files[0])["w"].tolist() == [n + added for n in range(1000)]


def test_shards_of_a_replica_become_whole_tensors(server, tmp_path):
    whole = np.arange(60, dtype="f4").reshape(10, 6)
    handles = [
        wc.open("policy", wc.Replica("t", shard=at, num_shards=2), role="trainer", server=server.address)
        for at in range(2)
    ]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:

        def publishes(at: int) -> None:
            mine = np.ascontiguousarray(np.array_split(whole, 2)[at])
            cut = wc.part("w", dim=0, index=at, of=2, shape=[10, 6])
            handles[at].register(wc.Layout().add(mine, [cut]), deadline=SOON)
            handles[at].publish(1, deadline=SOON)

        list(pool.map(publishes, range(2)))
        done = pull("policy", tmp_path, server=server.address, deadline=SOON)
        list(pool.map(lambda handle: handle.close(), handles))
    assert load_file(done.files[0])["w"].tolist() == whole.tolist()


def test_a_checkpoint_is_not_overwritten_unasked_and_then_not_mixed(server, checkpoint, tmp_path):
    with publish(checkpoint, "policy", 1, server=server.address, deadline=SOON):
        pull("policy", tmp_path / "out", server=server.address, shard_bytes=500, deadline=SOON)
        with pytest.raises(wc.Misuse, match="is there already"):
            pull("policy", tmp_path / "out", server=server.address, deadline=SOON)
        pull("policy", tmp_path / "out", server=server.address, overwrite=True, deadline=SOON)
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]


def test_a_pull_that_fails_leaves_what_was_there(server, checkpoint, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with publish(checkpoint, "policy", 1, server=server.address, deadline=SOON):
        done = pull("policy", tmp_path / "out", server=server.address, deadline=SOON)
        before = done.files[0].read_bytes()
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            pull("policy", tmp_path / "out", server=server.address, overwrite=True, deadline=SOON)
        monkeypatch.undo()
        monkeypatch.setattr(wc.Handle, "replicate", full)
        with pytest.raises(OSError, match="No space"):
            pull("policy", tmp_path / "out", server=server.address, overwrite=True, deadline=SOON)
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]
    assert done.files[0].read_bytes() == before


def test_a_version_that_is_gone_is_said_to_be(server, checkpoint, tmp_path):
    with publish(checkpoint, "policy", 5, server=server.address, deadline=SOON):
        with pytest.raises(wc.VersionUnavailable, match="3"):
            pull("policy", tmp_path / "out", version=3, server=server.address, deadline=SOON)
    assert not (tmp_path / "out").exists()


def spoiled(folder: Path, change) -> Path:
    file = folder / "model.safetensors"
    save_file({"w": torch.zeros(4, 4), "x": torch.ones(3)}, file)
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h["w"].pop("shape"), "does not say where w lies"),
        (lambda h: h["w"].update(data_offsets=[0, 60]), r"not 64 of them"),
        (lambda h: h["w"].update(data_offsets=[-4, 60]), "not 64 of them"),
        (lambda h: h["w"].update(shape=[-4, -4]), "not 64 of them"),
        (lambda h: h["w"].update(data_offsets=[40, 104]), "ends at byte .* the file is not whole"),
        (lambda h: h["w"].update(dtype="F7"), "dtype F7 is not known"),
        (lambda h: h["w"].update(dtype="F4", shape=[3]), "ends within a byte"),
        (lambda h: h.update(w=3), "does not say where w lies"),
    ],
)
def test_a_file_that_lies_is_refused_before_anything_is_published(server, tmp_path, change, said):
    with pytest.raises(wc.Misuse, match=said):
        with publish(spoiled(tmp_path, change), "policy", 1, server=server.address):
            pass
    assert wc.status(server.address)["models"] == []


def test_a_tensor_that_two_files_have_is_refused(server, checkpoint):
    save_file({"steps": torch.tensor(3)}, checkpoint / "more.safetensors")
    with pytest.raises(wc.Misuse, match="steps is in .* and in .*"):
        with publish(checkpoint, "policy", 1, server=server.address):
            pass


def test_files_are_planned_by_name_and_hold_as_many_bytes_as_they_may():
    catalog = {f"t{n}": Entry((10,), "F32") for n in range(5)}
    assert [len(file.tensors) for file in files.planned(catalog, {}, 80)] == [2, 2, 1]
    assert [len(file.tensors) for file in files.planned(catalog, {}, 79)] == [1] * 5
    assert [len(file.tensors) for file in files.planned(catalog, {}, 1)] == [1] * 5
    assert [file.name for file in files.planned({}, {}, 1)] == ["model.safetensors"]
    for file in files.planned({"a": Entry((3,), "U8"), "b": Entry((2,), "F64"), "c": Entry((4,), "F4")}, {}):
        assert [placed.name for placed in file.tensors] == ["b", "a", "c"]
        assert all(placed.offset % (files.BITS[placed.entry.dtype] // 8 or 1) == 0 for placed in file.tensors)
        assert file.tensors[0].offset == len(file.header) and len(file.header) % 8 == 0
        assert file.nbytes == len(file.header) + 16 + 3 + 2


def command(*arguments: str, **options) -> subprocess.Popen:
    program = [sys.executable, "-m", "weightcast", *arguments]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_the_two_commands_hand_a_checkpoint_over(server, checkpoint, tmp_path):
    where = ["--server", server.address, "--json"]
    pushing = command("push", str(checkpoint), "--version", "3", *where)
    told = json.loads(pushing.stdout.readline())
    assert (told["model"], told["version"], told["tensors"]) == ("policy", 3, len(tensors()))
    pulling = command("pull", "policy@3", str(tmp_path / "out"), *where)
    said, wrong = pulling.communicate()
    assert pulling.returncode == 0, wrong
    assert json.loads(said)["version"] == 3
    assert same(load_file(tmp_path / "out" / "model.safetensors"), tensors())
    again = command("pull", "policy@3", str(tmp_path / "out"), *where)
    assert "--overwrite" in again.communicate()[1] and again.returncode == 1
    pushing.send_signal(signal.SIGTERM)
    assert pushing.communicate()[1] == "" and pushing.returncode == 0
    # The number is spent: whoever pulls it now is told so.
    assert wc.status(server.address)["models"] == []


def test_a_push_ends_once_so_many_rollouts_hold_it(server, checkpoint):
    pushing = command("push", str(checkpoint), "--model", "m", "--until", "1", "--server", server.address)
    assert "until 1 rollouts hold it" in pushing.stdout.readline()
    with wc.open("m", wc.Replica("rollout"), server=server.address) as rollout:
        target = torch.zeros(6, 40, dtype=torch.bfloat16)
        rest = {name: torch.empty_like(tensor) for name, tensor in tensors().items()}
        layout = wc.Layout()
        for name, tensor in (rest | {"embed.weight": target}).items():
            layout.add(tensor, name)
        rollout.register(layout, deadline=SOON)
        rollout.replicate("latest", deadline=SOON)
        assert pushing.wait() == 0
        assert torch.equal(target, tensors()["embed.weight"])
