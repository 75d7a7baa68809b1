"""What the two commands of checkpoints ask for, and in which order files get their names."""

import argparse
import importlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weightcast as wc
from weightcast.adapters.catalog import Entry
from weightcast.checkpoint import __main__ as commands
from weightcast.checkpoint import files

pulling = importlib.import_module("weightcast.checkpoint.pull")
publishing = importlib.import_module("weightcast.checkpoint.publish")

GIB = 1 << 30
DEFAULTS = {"server": None, "token_file": None, "job": None, "deadline": 600.0}
PULLED = {"version": "latest", "shard_bytes": 5 * GIB, "overwrite": False, "progress": None}
PUSHED = {"replica": "checkpoint", "epoch": "current", "retain": 0}


@pytest.mark.parametrize(
    ("said", "model", "asked"),
    [
        ([], "m", {}),
        (["--overwrite", "--shard-bytes", "2G"], "m", {"overwrite": True, "shard_bytes": 2 * GIB}),
        (["--shard-bytes", "500m"], "m@40", {"version": "40", "shard_bytes": 500 << 20}),
        (["--deadline", "5"], "m@latest-1", {"version": "latest-1", "deadline": 5.0}),
        (["--server", "http://h:1", "--token-file", "t", "--job", "j"], "m@", {"server": "http://h:1", "token_file": "t", "job": "j"}),
    ],
)
def test_a_pull_asks_for_what_its_options_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: list[str], model: str, asked: dict[str, Any]
) -> None:
    asks: list[Any] = []

    def pull(*given: Any, **named: Any) -> Any:
        asks.append((given, named))
        return pulling.Pulled("m", 40, 7, 3_000_000, (Path("d/one"), Path("d/two")))

    monkeypatch.setattr(commands, "pull", pull)
    assert commands.main(["pull", model, "d", "--json", *said]) == 0
    assert asks == [(("m", "d"), DEFAULTS | PULLED | asked)]
    told = json.loads(capsys.readouterr().out)
    assert told == {"model": "m", "version": 40, "epoch": 7, "nbytes": 3_000_000, "files": ["d/one", "d/two"]}
    assert commands.main(["pull", model, "d", *said]) == 0
    assert capsys.readouterr().out == "m@40: 3.0 MB in 2 file(s) in d\n"
    assert asks[1][1]["progress"] is not None


@pytest.mark.parametrize(
    ("said", "asked", "until"),
    [
        ([], {}, None),
        (["--model", "other", "--version", "9", "--replica", "r"], {"model": "other", "version": 9, "replica": "r"}, None),
        (["--new-epoch", "--retain", "3"], {"epoch": "new", "retain": 3}, None),
        (["--until", "2", "--deadline", "4", "--job", "j", "--server", "s", "--token-file", "t"],
         {"deadline": 4.0, "job": "j", "server": "s", "token_file": "t"}, 2),
    ],
)
def test_a_push_publishes_what_its_options_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: list[str], asked: dict[str, Any], until: int | None
) -> None:
    asks: list[Any] = []
    folder = tmp_path / "policy"
    folder.mkdir()

    @contextmanager
    def publish(directory: str, model: str, version: int, **named: Any) -> Any:
        asks.append({"model": model, "version": version} | named)
        assert directory == str(folder)
        yield SimpleNamespace(version=version, tensors=3, nbytes=1_500_000, handle="handle")
        asks.append("left")

    monkeypatch.setattr(commands, "publish", publish)
    monkeypatch.setattr(commands.signal, "signal", lambda *_: None)
    monkeypatch.setattr(commands, "_stay", lambda handle, version, until: asks.append(("stays", handle, version, until)))
    wanted = DEFAULTS | PUSHED | {"model": "policy", "version": 0} | asked
    assert commands.main(["push", str(folder), "--json", *said]) == 0
    assert asks == [wanted, ("stays", "handle", wanted["version"], until), "left"]
    assert json.loads(capsys.readouterr().out) == {"model": wanted["model"], "version": wanted["version"], "tensors": 3, "nbytes": 1_500_000}
    commands.main(["push", str(folder), *said])
    ends = "until 2 rollouts hold it" if until else "until it is interrupted"
    assert capsys.readouterr().out == f"{wanted['model']}@{wanted['version']}: 3 tensors, 1.5 MB; {ends}\n"


def test_a_push_that_is_interrupted_has_not_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = []

    @contextmanager
    def publish(*_: Any, **__: Any) -> Any:
        try:
            yield SimpleNamespace(version=1, tensors=0, nbytes=0, handle=None)
        finally:
            left.append("unpublished")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "publish", publish)
    monkeypatch.setattr(commands.signal, "signal", lambda *_: None)
    monkeypatch.setattr(commands, "_stay", interrupted)
    assert commands.main(["push", str(tmp_path)]) == 0 and left == ["unpublished"]
    for error in (wc.Misuse("why"), OSError("why"), ValueError("why")):
        def fails(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(commands, "_stay", fails)
        capsys.readouterr()
        assert commands.main(["push", str(tmp_path)]) == 1
        assert capsys.readouterr().err == "weightcast: why\n"


def test_a_push_stays_until_rollouts_hold_the_version_however_long_that_takes() -> None:
    asked = []

    class Handle:
        def wait(self, condition: Any, *, deadline: float) -> None:
            asked.append((repr(condition), deadline))
            if len(asked) < 3:
                raise wc.Timeout("not yet")

    commands._stay(Handle(), 7, 2)  # type: ignore[arg-type]
    assert asked == [(repr(wc.held(7, by=2)), commands.LOOK)] * 3

    class Lost:
        def wait(self, *_: Any, **__: Any) -> None:
            raise wc.SourceLost("gone")

    with pytest.raises(wc.SourceLost):
        commands._stay(Lost(), 7, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("10K", 10 << 10), ("3m", 3 << 20), ("5G", 5 * GIB), ("2T", 2 << 40)])
def test_sizes(text: str, size: int) -> None:
    assert commands._size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0G", "G", "1.5G", "-1", "5X", "5GB", " 5"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        commands._size(text)


def test_a_checkpoint_is_named_by_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "x.safetensors").touch()
    (tmp_path / "link").symlink_to(folder)
    assert commands._name(folder) == commands._name(folder / "x.safetensors") == commands._name(tmp_path / "link") == "policy"


def test_files_get_their_names_when_all_bytes_are_on_disk_and_no_other_checkpoint_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalog = {"a": Entry((4,), "F32"), "b": Entry((4,), "F32"), "c": Entry((2,), "F32")}
    target, log = tmp_path / "out", []

    class Handle:
        epoch = 5

        def __enter__(self) -> "Handle":
            return self

        def __exit__(self, *_: Any) -> None:
            log.append("closed")

        def retain(self, version: Any, *, deadline: float) -> int:
            log.append(("retain", version, deadline))
            return 12 if version == "latest-1" else 13

        def catalog(self, *, deadline: float) -> dict[str, Entry]:
            log.append(("catalog", deadline))
            return catalog

        def register(self, layout: Any, *, deadline: float) -> None:
            self.layout = layout
            assert layout.mapped, "memory in files on purpose"
            log.append(("register", len(layout), deadline))

        def replicate(self, version: int, *, progress: Any, deadline: float) -> None:
            log.append(("replicate", version, progress, deadline))
            named = {one.name for one in target.glob("*.safetensors")}
            assert named <= {"old.safetensors"} or version == 13, "no file of the new version has its name"

    opened: list[Any] = []

    def open_(model: str, replica: Any, **options: Any) -> Handle:
        opened.append((model, replica, options))
        return Handle()

    monkeypatch.setattr(pulling, "open", open_)
    fsync, rename = os.fsync, Path.rename
    synced: list[str] = []

    def syncs(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def renames(path: Path, to: Path) -> Any:
        if path.parent != target:
            return rename(path, to)
        log.append(("named", to.name))
        there = {one.name for one in target.glob("*.safetensors*")}
        assert "old.safetensors" not in there and not any(name.endswith(".json") for name in there)
        if path.name != f".{pulling.INDEX}.partial":
            assert len([one for one in synced if one.endswith(".partial")]) == 2, "all bytes are on disk"
        return rename(path, to)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "rename", renames)
    target.mkdir()
    (target / "old.safetensors").touch()
    (target / pulling.INDEX).write_text("old")
    (target / "config.json").write_text("{}")
    with pytest.raises(wc.Misuse, match="old.safetensors is there already"):
        pulling.pull("m", target)
    assert opened == []
    done = pulling.pull("m", target, version="latest-1", shard_bytes=32, overwrite=True, progress=print, deadline=9.0, server="s", job="j")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert log == [
        ("retain", "latest-1", 9.0), ("catalog", 9.0), ("register", 3, 9.0), ("replicate", 12, print, 9.0),
        *(("named", name) for name in names), ("named", pulling.INDEX), "closed",
    ]
    assert done == pulling.Pulled("m", 12, 5, 40, tuple(target / name for name in names))
    assert synced[-1] == str(target), "names are on disk too"
    assert sorted(os.listdir(target)) == sorted(["config.json", *names, pulling.INDEX])
    [(model, replica, options)] = opened
    assert (model, options) == ("m", {"server": "s", "job": "j"}) and replica.num_shards == 1
    index = json.loads((target / pulling.INDEX).read_text())
    assert index["weight_map"] == {"a": names[0], "b": names[0], "c": names[1]}
    again = pulling.pull("m", tmp_path / "deep" / "er")
    assert [file.name for file in again.files] == ["model.safetensors"]
    assert opened[1][1].name != replica.name, "two pulls are two replicas"


def test_a_replica_of_files_is_theirs_and_is_sealed_before_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: list[Any] = []

    class Handle:
        def __enter__(self) -> "Handle":
            return self

        def __exit__(self, *_: Any) -> None:
            log.append("closed")

        def register(self, layout: Any, *, deadline: float) -> None:
            assert layout.mapped and layout.nbytes == 16
            log.append(("register", deadline))

        @contextmanager
        def published(self, version: int, *, deadline: float) -> Any:
            log.append(("published", version, deadline))
            yield
            log.append("unpublished")

        def wait_sealed(self, *, deadline: float) -> None:
            log.append(("sealed", deadline))

    def open_(*given: Any, **named: Any) -> Handle:
        log.append((given, named))
        return Handle()

    monkeypatch.setattr(publishing, "open", open_)
    [file] = files.planned({"w": Entry((4,), "F32")}, {})
    path = tmp_path / "model.safetensors"
    path.write_bytes(file.header + np.arange(4, dtype="f4").tobytes())
    (tmp_path / "other.bin").write_bytes(b"no weights")
    for where in (tmp_path, path):
        with publishing.publish(where, "m", 3, replica="r", epoch="new", retain=2, deadline=9.0, server="s") as there:
            assert (there.model, there.version, there.tensors, there.nbytes) == ("m", 3, 1, 16)
            log.append("inside")
        asked = {"role": "trainer", "epoch": "new", "retain": 2, "server": "s"}
        assert log == [
            (("m", wc.Replica("r")), asked), ("register", 9.0), ("published", 3, 9.0), ("sealed", 9.0), "inside", "unpublished", "closed",
        ]
        log.clear()
    (tmp_path / "none").mkdir()
    with pytest.raises(wc.Misuse, match="no safetensors files"), publishing.publish(tmp_path / "none", "m", 3):
        pass
    assert log == []


@pytest.mark.parametrize("dtype", sorted(files.BITS))
def test_tensors_of_every_type_lie_where_the_header_says(dtype: str) -> None:
    """Shapes of none, one and two dimensions, and without elements, one behind the other and aligned."""
    catalog = {"s": Entry((2,), dtype), "v": Entry((6,), dtype), "m": Entry((3, 2), dtype), "z": Entry((0, 4), dtype), "b": Entry((3,), "U8")}
    [file] = files.planned(catalog, {"k": "v"})
    length = int.from_bytes(file.header[:8], "little")
    header = json.loads(file.header[8:])
    assert len(file.header) == 8 + length and len(file.header) % 8 == 0 and header.pop("__metadata__") == {"k": "v"}
    memory = np.zeros(file.nbytes, np.uint8)
    ends = 0
    for placed in sorted(file.tensors, key=lambda one: (one.offset, one.nbytes)):
        said, entry = header.pop(placed.name), catalog[placed.name]
        assert said["shape"] == list(entry.shape) and said["dtype"] == entry.dtype
        first, end = said["data_offsets"]
        assert (first, end - first) == (ends, files.bytes_of(placed.name, entry)) and placed.offset == len(file.header) + first
        ends = end
        array = placed.within(memory)
        assert array.nbytes == placed.nbytes and array.ctypes.data % array.itemsize == 0
        assert tuple(array.shape[:-1]) == entry.shape[:-1] and np.shares_memory(array, memory) == bool(placed.nbytes)
    assert not header and file.nbytes == len(file.header) + ends
