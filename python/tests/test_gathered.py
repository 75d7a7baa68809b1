"""Modules of which some tensors are made of others: plain ones in this process, sharded ones in real gloo jobs."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast import spans  # noqa: E402
from weightcast.adapters.engine import copied as copied_module  # noqa: E402
from weightcast.adapters.engine.copied import Copied  # noqa: E402
from weightcast.adapters.engine.sources import Made, source_of  # noqa: E402
from weightcast.adapters.engine.trainer import Publisher, TrainerSettings  # noqa: E402
from weightcast.pipeline.sharing import once_is_cheaper  # noqa: E402

from .conftest import SOON  # noqa: E402
from .programs import gathering  # noqa: E402


@pytest.fixture
def server(patient_server):
    return patient_server


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def launch(world: int, server: str, directory: Path) -> list[subprocess.Popen]:
    command = [sys.executable, "-m", f"{__package__}.programs.gathering"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [*command, str(rank), str(world), server, str(directory)],
            cwd=Path(__file__).parent.parent, env=environment, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [2, 4])
def test_sharded_modules_are_made_whole_to_the_bit(group, server, tmp_path, world):
    """Against full_tensor and the plain function, under an allocator hook; then published to a plain rollout."""
    ranks = launch(world, server.address, tmp_path)
    try:
        for name in ("rows", "copies") if world == 4 else ("rows",):
            receive(group, name)
        for rank in ranks:
            _, errors = rank.communicate(timeout=15 * SOON)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=SOON)


def receive(group, name: str) -> None:
    """Two versions, of which the second has every parameter one higher."""
    model = gathering.Model()
    memory = {key: torch.empty_like(t.contiguous()) for key, t in expected(model).items()}
    layout = wc.Layout()
    for key, tensor in memory.items():
        layout.add(tensor, key)
    rollout = group("rollout", [layout], model=name)[0]
    for version in (1, 2):
        rollout.wait(lambda held, v=version: v in held, deadline=9 * SOON)
        rollout.update(version, deadline=SOON)
        for key, tensor in expected(model).items():
            assert bits(memory[key]) == bits(tensor), (name, version, key)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)


def expected(model: nn.Module) -> dict[str, torch.Tensor]:
    """What recipes make, and of the rest what no recipe takes."""
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    taken = [".q.", ".k.", ".a.", ".b.", ".low.weight", ".one.weight", "head.weight", "scale"]
    rest = {name: t for name, t in state.items() if not any(part in name for part in taken)}
    rest |= {name: t.to(torch.bfloat16) for name, t in rest.items() if name.endswith("one.bias")}
    return rest | gathering.expected(state)


# Modules that a rank has whole


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.ModuleDict({x: nn.Linear(6, 4, bias=False) for x in "qkv"}) for _ in range(4))
        self.norm = nn.Parameter(torch.randn(6))


def join(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts)


QKV = wct.recipe("layers.*.qkv.weight", [f"layers.*.{x}.weight" for x in "qkv"], join)


def joined(model: Layers, n: int) -> torch.Tensor:
    return torch.cat([model.layers[n][x].weight for x in "qkv"]).detach()


def rollout_for(group, source: wct.Gathered, name: str = "rollout") -> tuple[wc.Handle, dict[str, torch.Tensor]]:
    memory = {key: torch.zeros(entry.shape) for key, entry in source.catalog().items()}
    layout = wc.Layout()
    for key, tensor in memory.items():
        layout.add(tensor, key)
    return group(name, [layout])[0], memory


def test_what_is_made_is_made_anew_for_each_version_and_the_rest_lies_in_place(group):
    model = Layers()
    source = wct.gathered(model, [QKV])
    assert source.catalog().keys() == {"norm", *(f"layers.{n}.qkv.weight" for n in range(4))}
    layout = source.layout()
    assert source.replica("t", spot=True) == wc.Replica("t", spot=True) and source.publishes
    trainer = group("trainer", [layout], role="trainer")[0]
    rollout, memory = rollout_for(group, source)
    for version in (1, 2):
        with torch.no_grad():
            for p in model.parameters():
                p += version
        if version == 2:
            source.refresh()  # publishing would do it
        with trainer.published(version, deadline=SOON):
            rollout.update(version, deadline=SOON)
            assert all(torch.equal(memory[f"layers.{n}.qkv.weight"], joined(model, n)) for n in range(4))
            assert torch.equal(memory["norm"], model.norm)
            # Readers read the host memory: it is not filled again before they are done.
            with pytest.raises(wc.Misuse, match=f"holds version {version}: unpublish it first"):
                source.refresh()
    assert source.nbytes == 4 * 12 * 6 * 4
    with pytest.raises(wc.Misuse, match="layers.*read-only"):
        trainer.update("latest", deadline=SOON)


def test_a_refresh_serves_one_publication(group):
    """Weights that change after it are in the next version, whoever calls refresh or does not."""
    model = Layers()
    source = wct.gathered(model, [QKV])
    trainer = group("trainer", [source.layout()], role="trainer")[0]
    rollout, memory = rollout_for(group, source)
    source.refresh()
    for version in (1, 2, 3):
        with trainer.published(version, deadline=SOON):
            rollout.update(version, deadline=SOON)
            assert torch.equal(memory["layers.0.qkv.weight"], joined(model, 0)), version
        with torch.no_grad():
            model.layers[0]["k"].weight += 1


def test_a_failure_publishes_nothing_and_the_next_publication_does(group):
    model, broken = Layers(), [True]

    def make(*parts: torch.Tensor) -> torch.Tensor:
        if broken[0] and not parts[0].is_meta and torch.equal(parts[0], model.layers[2]["q"].weight):
            raise ArithmeticError("planted")
        return torch.cat(parts)

    source = wct.gathered(model, [wct.recipe(QKV.outputs, QKV.inputs, make)])
    trainer = group("trainer", [source.layout()], role="trainer")[0]
    rollout, memory = rollout_for(group, source)
    with pytest.raises(wc.StageFailed, match=r"transform of layers.2.qkv.weight failed: ArithmeticError: planted") as failed:
        trainer.publish(1, deadline=SOON)
    assert (failed.value.tensor, failed.value.stage) == ("layers.2.qkv.weight", "transform")
    assert isinstance(failed.value.__cause__, ArithmeticError) and isinstance(failed.value, wc.WeightcastError)
    assert trainer.version is None
    broken[0] = False
    with trainer.published(1, deadline=SOON):
        rollout.update(1, deadline=SOON)
    assert torch.equal(memory["layers.2.qkv.weight"], joined(model, 2))


def test_what_was_made_before_a_failure_is_not_published_as_whole():
    """A refresh by hand, then one that breaks off: the host memory has tensors of both."""
    model, broken = Layers(), [False]

    def make(q: torch.Tensor) -> torch.Tensor:
        if broken[0] and not q.is_meta:
            raise ArithmeticError("planted")
        return q * 2

    source = wct.gathered(model, [wct.recipe("layers.*.q.made", "layers.*.q.weight", make)])
    source.refresh()
    assert source.fresh
    broken[0] = True
    with pytest.raises(wc.StageFailed, match="planted"):
        source.refresh()
    assert not source.fresh, "the next publication makes it anew"


def test_shards_that_gather_nothing_together_learn_of_a_failure_by_publishing(group):
    """Pipeline stages agree on nothing: the other one's call would wait for this one until its deadline."""

    def make(q: torch.Tensor) -> torch.Tensor:
        if not q.is_meta:
            raise ArithmeticError("planted")
        return q

    first = wct.gathered(Layers(), [wct.recipe("layers.*.q.made", "layers.*.q.weight", make)]).layout()
    other = wc.Layout().add(torch.ones(3), "other")
    trainer = group("trainer", [first, other], role="trainer")
    mine, theirs = trainer.each(lambda handle: handle.publish(1, deadline=SOON))
    assert isinstance(mine, wc.StageFailed) and mine.tensor == "layers.0.q.made"
    assert isinstance(theirs, wc.LayoutMismatch) and "transform of layers.0.q.made failed" in str(theirs)


def test_a_function_that_returns_something_else_than_when_it_was_asked():
    model = Layers()

    def make(q: torch.Tensor) -> torch.Tensor:
        return q if q.is_meta else q[:2]

    with pytest.raises(wc.StageFailed, match=r"layers.0.q.weight: its function returned \(2, 6\).*\(4, 6\)"):
        wct.gathered(model, [wct.recipe("layers.*.q.weight", "layers.*.q.weight", make)]).refresh()


def test_parameters_on_the_host_are_read_where_they_are():
    """No whole copy is made of what lies here whole: what is allocated is what is made of it."""
    model = Layers()
    source = wct.gathered(model, [QKV], budget=0)
    assert gathering.peak_of(source) == source.peak == 12 * 6 * 4
    # A view takes nothing at all, and the function is given the parameters themselves.
    seen: list[int] = []

    def turned(q: torch.Tensor) -> torch.Tensor:
        seen.append(0 if q.is_meta else q.data_ptr())
        return q.t()

    source = wct.gathered(model, [wct.recipe("layers.*.q.turned", "layers.*.q.weight", turned)], budget=0)
    assert gathering.peak_of(source) == source.peak == 0
    assert seen[4:] == [layer["q"].weight.data_ptr() for layer in model.layers]
    assert all(torch.equal(p.host[0], model.layers[n]["q"].weight.t()) for n, p in enumerate(source._planned))


@pytest.mark.parametrize("tensors", [1, 2, 3, 4])
def test_the_budget_is_kept_from_one_tensor_up(tensors):
    model, one = Layers(), 12 * 6 * 4
    source = wct.gathered(model, [QKV], budget=tensors * one)
    assert one <= gathering.peak_of(source) <= source.peak <= tensors * one
    # Sends that wait until nothing more is made fill it to the last byte.
    made, send = threading.Semaphore(0), source._send
    make, left = source._make, [tensors]

    def counted(*arguments):
        returned = make(*arguments)
        made.release()
        return returned

    def waits(*arguments):
        while left[0]:
            assert made.acquire(timeout=SOON), "the budget has room for more"
            left[0] -= 1
        send(*arguments)

    source._make, source._send = counted, waits
    assert gathering.peak_of(source) == source.peak == tensors * one


def test_temporaries_of_a_function_count():
    def make(q: torch.Tensor) -> torch.Tensor:
        return (q * 2 + q * 3).sum(0)

    model = Layers()
    source = wct.gathered(model, [wct.recipe("layers.*.q.sum", "layers.*.q.weight", make)], budget=0)
    assert gathering.peak_of(source) == source.peak == 3 * 4 * 6 * 4
    # What is said of a function that cannot be asked counts in its place.
    asked = wct.recipe("layers.*.q.sum", "layers.*.q.weight", make, like=lambda q: torch.empty(6), making=500)
    assert wct.gathered(model, [asked])._planned[0].item([model.layers[0]["q"].weight]).peak == 500


def test_a_function_that_needs_values_is_described_by_another():
    def make(q: torch.Tensor) -> torch.Tensor:
        return q[q > 0][:2].clone() if float(q.sum()) < 1e9 else q

    with pytest.raises(wc.Misuse, match="layers.0.q.some: its function could not be asked.*like="):
        wct.gathered(Layers(), [wct.recipe("layers.*.q.some", "layers.*.q.weight", make)])
    source = wct.gathered(Layers(), [wct.recipe("layers.*.q.some", "layers.*.q.weight", make, like=lambda q: torch.empty(2))])
    source.refresh()
    assert all((planned.host[0] > 0).all() for planned in source._planned)


@pytest.mark.parametrize(
    ("recipes", "error"),
    [
        ([("a", "no.such.weight")], "fits nothing: the module has no no.such.weight, only"),
        ([("*.both", ["layers.*.q.weight", "layers.*.z.weight"], join)], "0.both is made of layers.0.z.weight too"),
        ([("one", "layers.*.q.weight")], "two recipes make one"),
        ([("norm", "layers.0.q.weight")], "norm is made by a recipe, and the module publishes one of that name"),
        ([("*.*.a", "layers.*.q.weight")], "has more stars than the first input"),
        ([(["a", "b"], "norm")], "1 inputs for 2 outputs"),
        ([([], "norm")], "one output and one input at least"),
        ([(["a", "b"], "norm", lambda n: n)], "a: its function returns 1 tensors for 2 names"),
        ([("c", "norm", lambda n: n.to(torch.complex64))], "c: its function returns torch.complex64, which is none of the types"),
    ],
)
def test_recipes_that_cannot_be_followed_say_why(recipes, error):
    with pytest.raises(wc.WeightcastError, match=re.escape(error)):
        wct.gathered(Layers(), [wct.recipe(*one) for one in recipes]).layout()


def test_parameters_of_other_libraries_are_refused_where_a_recipe_takes_them():
    model = Layers()
    model.norm.ds_id = 3
    with pytest.raises(wc.Misuse, match="DeepSpeed ZeRO-3"):
        wct.gathered(model, [wct.recipe("n", "norm")])


def test_types_of_one_byte_and_of_half_and_none(group):
    """Codes and scales, a scalar, an empty tensor: to the bit, through registered memory."""
    model = nn.Module()
    model.norm, model.q = nn.Parameter(torch.randn(6)), nn.Linear(6, 4, bias=False)
    recipes = [
        wct.recipe(["q.codes", "q.scale"], "q.weight", gathering.quantise),
        wct.recipe(["mean", "none", "half"], "norm", lambda n: (n.mean(), n[:0], n.to(torch.bfloat16))),
    ]
    source = wct.gathered(model, recipes)
    trainer = group("trainer", [source.layout()], role="trainer")[0]
    codes, scale = gathering.quantise(model.q.weight.detach())
    norm = model.norm.detach()
    expected = {"q.codes": codes, "q.scale": scale, "mean": norm.mean(), "none": norm[:0], "half": norm.to(torch.bfloat16)}
    memory = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    layout = wc.Layout()
    for name, tensor in memory.items():
        layout.add(tensor, name)
    with trainer.published(1, deadline=SOON):
        group("rollout", [layout])[0].update(1, deadline=SOON)
    assert all(bits(memory[name]) == bits(tensor) for name, tensor in expected.items())
    assert source.catalog()["none"].shape == (0,) and source.catalog()["q.codes"].dtype == "F8_E4M3"


@pytest.mark.parametrize(("readers", "once"), [(1, False), (2, True), (9, True)])
def test_a_conversion_is_made_once_where_several_read_it(group, readers, once):
    model = Layers()
    casts = [wct.cast("layers.0.*", torch.float32), wct.cast("*", torch.bfloat16, readers=readers)]
    source = wct.gathered(model, [wct.recipe("k", "layers.0.k.weight"), *casts])
    kept = {name: p for name, p in model.named_parameters() if name != "layers.0.k.weight"}
    halves = {name for name in kept if not name.startswith("layers.0.")}
    assert {name for name, entry in source.catalog().items() if entry.dtype == "BF16"} == halves
    assert source.nbytes == 4 * 24 + once * sum(kept[name].numel() * 2 for name in halves)
    trainer = group("trainer", [source.layout()], role="trainer")[0]
    memory = {name: torch.zeros(p.shape, dtype=torch.bfloat16 if name in halves else p.dtype) for name, p in kept.items()}
    memory["k"] = torch.zeros(4, 6)
    layout = wc.Layout()
    for name, tensor in memory.items():
        layout.add(tensor, name)
    rollout = group("rollout", [layout])[0]
    for version in (1, 2):
        with trainer.published(version, deadline=SOON):
            rollout.update(version, deadline=SOON)
        for name, p in kept.items():
            assert torch.equal(memory[name], p.detach().to(memory[name].dtype)), name
        with torch.no_grad():
            for p in model.parameters():
                p *= 1.7
    if once:
        with pytest.raises(wc.Misuse, match="read-only"):
            trainer.update("latest", deadline=SOON)


def test_a_conversion_is_made_once_by_the_bytes_that_pass():
    """Reading 4 bytes and writing 2 for each of two readers is more than doing so once and reading 2 twice."""
    assert [once_is_cheaper(readers, 4, 2) for readers in (1, 2, 3)] == [False, True, True]
    assert [once_is_cheaper(readers, 2, 4) for readers in (1, 2, 3, 4)] == [False, False, False, True]
    assert not once_is_cheaper(100, 0, 0)


def test_casts_that_make_no_sense_say_why():
    for dtype, readers, error in [(torch.int8, 2, "a cast is to F32, BF16, F16, not torch.int8"), (torch.float16, 0, "0 readers")]:
        with pytest.raises(wc.Misuse, match=error):
            wct.cast("*", dtype, readers=readers)


def test_progress_and_traces_of_a_refresh(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIGHTCAST_TRACE", str(tmp_path / "job.json"))
    monkeypatch.setattr(spans, "_named", None)
    told = []
    source = wct.gathered(Layers(), [QKV], progress=lambda sent, total: told.append((sent, total)))
    source.refresh()
    assert told[-1] == (source.nbytes, source.nbytes)
    lines = (tmp_path / "job.json").read_text().splitlines()[1:]
    events = [json.loads(line.rstrip(",")) for line in lines]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"gather", "transform", "send"}
    assert {e["args"]["tensor"] for e in events if e["ph"] == "X"} == {f"layers.{n}.qkv.weight" for n in range(4)}


def test_a_trainer_takes_it_as_its_source():
    source = wct.gathered(Layers(), [QKV])
    made = source_of(source, 0)
    assert isinstance(made, Made) and made.publishes and made.catalog() == source.catalog()
    assert len(made.layout()) == 5 and made.replica("t") == wc.Replica("t")
    made.refresh()
    assert not source.fresh, "publishing makes it"


class FetchingEngine:
    """An engine whose `update_weights` fetches into plain tensors; of the other calls it notes the names."""

    def __init__(self, server: str, catalog) -> None:
        self.memory = {name: torch.zeros(entry.shape) for name, entry in catalog.items()}
        self._rollout = wc.open("policy", wc.Replica("engine"), server=server)
        layout = wc.Layout()
        for name, tensor in self.memory.items():
            layout.add(tensor, name)
        self._rollout.register(layout, deadline=SOON)

    def update_weights(self, info: dict) -> None:
        if not info.get("abandon"):
            self._rollout.update(info["version"], deadline=SOON)

    def close(self) -> None:
        self._rollout.close()

    def __getattr__(self, name: str):
        if name.startswith("_") or name in ("states", "pause", "resume", "take", "give_back", "order", "slot"):
            raise AttributeError(name)
        return lambda *_: None


@pytest.mark.parametrize("kind", ["gathered", "yielded"])
def test_a_publisher_brings_engines_what_is_made_or_yielded(server, kind):
    model = Layers()
    source = wct.gathered(model, [QKV]) if kind == "gathered" else yields()
    taken = source if kind == "gathered" else Copied(source, 0)
    engine = FetchingEngine(server.address, taken.catalog())
    publisher = Publisher(TrainerSettings(server=server.address, budget=150), rank=0, clients=engine, source=source)
    try:
        for version in (1, 2):
            assert publisher.send() == version
            if kind == "yielded":
                assert all(torch.equal(engine.memory[name], value) for name, value in source.values.items())
                source.values["w3"] += 1
                continue
            assert all(torch.equal(engine.memory[f"layers.{n}.qkv.weight"], joined(model, n)) for n in range(4))
            assert torch.equal(engine.memory["norm"], model.norm)
            with torch.no_grad():
                for p in model.parameters():
                    p += 1
    finally:
        publisher.close()
        engine.close()
    if kind == "yielded":
        assert publisher._weights._pipeline.peak <= 150


# What a WeightSource yields


class Yields:
    """A `WeightSource` whose tensors are made one by one."""

    def __init__(self, values: dict[str, torch.Tensor]) -> None:
        self.values, self.ended = values, 0
        self.order = list(values)

    @property
    def metadata(self) -> list:
        return [type("ParamMeta", (), {"name": n, "dtype": t.dtype, "shape": t.shape})() for n, t in self.values.items()]

    def __iter__(self):
        for name in self.order:
            yield name, self.values[name].clone()
        self.ended += 1


def yields(count: int = 6) -> Yields:
    return Yields({f"w{n}": torch.full((n + 1, 5), float(n)) for n in range(count)})


@pytest.mark.parametrize("budget", [0, 1, 200, 1 << 30])
def test_what_a_source_yields_is_copied_under_a_budget(budget):
    source = yields()
    copied = Copied(source, 0, budget)
    for _ in range(2):
        for value in source.values.values():
            value += 1
        assert peak_of_copying(copied) <= max(budget, 6 * 5 * 4)
        assert all(torch.equal(copied._tensors[name], value) for name, value in source.values.items())
        assert copied._pipeline.peak <= max(budget, 6 * 5 * 4)
    assert copied._pipeline._most > 1
    source.order.reverse()
    copied.refresh()
    assert copied._pipeline._most == 1, "sizes are not those that the budget went by"
    assert all(torch.equal(copied._tensors[name], value) for name, value in source.values.items())
    assert source.ended == 3


def peak_of_copying(copied: Copied) -> int:
    ledger = gathering.Ledger()
    with gathering.Allocations(ledger):
        copied.refresh()
    return ledger.peak


def test_a_source_goes_on_while_a_tensor_is_copied(monkeypatch):
    """The first copy ends when the last tensor has been yielded; with a budget of 0 it would wait for ever."""
    source, reached = yields(3), threading.Event()
    copy = copied_module._Pass._copy

    def slow(self, noted, tensors):
        assert reached.wait(SOON), "nothing is yielded while a tensor is copied"
        copy(self, noted, tensors)

    monkeypatch.setattr(copied_module._Pass, "_copy", slow)

    class Told(Yields):
        def __iter__(self):
            for name, tensor in super().__iter__():
                if name == "w2":
                    reached.set()
                yield name, tensor

    copied = Copied(Told(source.values), 0)
    copied.refresh()
    assert all(torch.equal(copied._tensors[name], value) for name, value in source.values.items())


def test_a_source_that_overwrites_what_it_yielded_is_noticed(monkeypatch):
    buffer, values = torch.zeros(4), {f"w{n}": torch.full((4,), float(n)) for n in range(3)}
    overwritten = threading.Event()

    class Reuses(Yields):
        def __iter__(self):
            for name, value in self.values.items():
                buffer.copy_(value)
                if name == "w1":
                    overwritten.set()
                yield name, buffer

    copy = copied_module._Pass._copy

    def late(self, noted, tensors):
        assert overwritten.wait(SOON)
        copy(self, noted, tensors)

    one_by_one = Copied(Reuses(values), 0, budget=0)
    one_by_one.refresh()
    assert all(torch.equal(one_by_one._tensors[name], value) for name, value in values.items())
    overwritten.clear()
    monkeypatch.setattr(copied_module._Pass, "_copy", late)
    with pytest.raises(wc.LayoutMismatch, match="has changed w0 after it yielded that.*budget=0"):
        Copied(Reuses(values), 0).refresh()


def test_other_ranks_are_not_left_waiting_when_copying_fails(monkeypatch):
    """Yielding is a collective: the source is iterated to its end all the same."""
    source = yields()
    copied = Copied(source, 0)
    source.values["w1"] = torch.zeros(3)
    with pytest.raises(wc.LayoutMismatch, match=r"yields w1 as \(3,\)"):
        copied.refresh()
    assert source.ended == 1
    source.values["w1"] = torch.zeros(2, 5)
    monkeypatch.setattr(copied_module._Pass, "_copy", lambda *_: 1 / 0)
    with pytest.raises(wc.StageFailed, match="send of w0 failed: ZeroDivisionError"):
        copied.refresh()
    assert source.ended == 2
    monkeypatch.undo()
    source.order.append("w0")
    with pytest.raises(wc.LayoutMismatch, match="yields w0, which its metadata does not list"):
        copied.refresh()
    source.order[1] = "w0"
    with pytest.raises(wc.LayoutMismatch, match="yields w0 twice"):
        copied.refresh()
