"""Layouts read off loaders: views as boxes, what is recorded, what is refused, and by which words."""

import json
import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
from weightcast.adapters.boxes.strides import Box, NotBoxes, boxes, compose  # noqa: E402
from weightcast.adapters.catalog import Entry, catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live.read import read  # noqa: E402
from weightcast.adapters.recording.recorder import view  # noqa: E402

from .conftest import SOON  # noqa: E402


def slices(box) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(box.start, box.len, strict=True))


def reshaped(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """A random chain of views."""
    for _ in range(draw.randint(0, 4)):
        if tensor.ndim == 0:
            return tensor
        dim = draw.randrange(tensor.ndim)
        size = tensor.shape[dim]
        kind = draw.choice(("narrow", "chunk", "unsqueeze", "transpose", "split", "flatten", "step"))
        if kind == "narrow":
            start = draw.randrange(size)
            tensor = tensor.narrow(dim, start, draw.randint(1, size - start))
        elif kind == "chunk":
            tensor = draw.choice(tensor.chunk(draw.randint(1, 3), dim))
        elif kind == "unsqueeze":
            tensor = tensor.unsqueeze(dim)
        elif kind == "transpose":
            tensor = tensor.transpose(dim, draw.randrange(tensor.ndim))
        elif kind == "split" and size % 2 == 0:
            tensor = tensor.unflatten(dim, (2, size // 2))
        elif kind == "flatten" and tensor.is_contiguous() and tensor.ndim > 1:
            tensor = tensor.flatten(0, 1)
        elif kind == "step":
            tensor = tensor[:: draw.randint(1, 3)]
    return tensor


@pytest.mark.parametrize("seed", range(400))
def test_boxes_copy_what_the_views_copy(seed: int) -> None:
    draw = random.Random(seed)
    shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 3))]
    source = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    taken = reshaped(source, draw)
    # Into a part of a larger tensor, of the same shape.
    around = [n + draw.randint(0, 2) for n in taken.shape]
    target = torch.zeros(around, dtype=source.dtype)
    place = target
    for dim, (n, room) in enumerate(zip(taken.shape, around, strict=True)):
        place = place.narrow(dim, draw.randint(0, room - n), n)
    want = target.clone()
    torch.as_strided(want, place.shape, place.stride(), place.storage_offset()).copy_(taken)
    try:
        copies = boxes(view(taken), view(source), view(place), view(target))
    except NotBoxes:
        # Only a flattened tensor can be cut across its rows.
        assert taken.numel() > 1
        pytest.skip("not boxes")
    for copy in copies:
        value = source[slices(copy.source)].squeeze()
        targets = [target_axis for _, target_axis in copy.axes]
        value = value.permute([targets.index(axis) for axis in sorted(targets)])
        target[slices(copy.target)] = value.reshape(copy.target.len)
    assert torch.equal(target, want)


@pytest.mark.parametrize("seed", range(200))
def test_views_of_copies_are_views(seed: int) -> None:
    draw = random.Random(seed)
    shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 3))]
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    outer = reshaped(whole, draw)
    copy = outer.clone(memory_format=torch.contiguous_format)
    inner = reshaped(copy, draw)
    try:
        found = compose(view(inner), view(copy), view(outer))
    except NotBoxes:
        pytest.skip("flattened")
    assert torch.equal(whole.as_strided(found.shape, found.strides, found.offset), inner)


class Engine(nn.Module):
    """A rank of an engine: fused, sharded, stacked, padded, converted, and two that nobody fills."""

    def __init__(self, rank: int, of: int) -> None:
        super().__init__()
        self.rank, self.of = rank, of
        bf16 = torch.bfloat16
        self.qkv = nn.Parameter(torch.zeros(12 // of, 8, dtype=bf16), requires_grad=False)
        self.down = nn.Parameter(torch.zeros(8, 6 // of, dtype=bf16), requires_grad=False)
        self.w13 = nn.Parameter(torch.zeros(2, 6, 8, dtype=bf16), requires_grad=False)
        self.embed = nn.Parameter(torch.zeros(8, 8, dtype=bf16), requires_grad=False)
        self.gate = nn.Parameter(torch.zeros(2, 8), requires_grad=False)
        self.turned = nn.Parameter(torch.zeros(8, 4, dtype=bf16), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            self._load(name, tensor)

    def _load(self, name: str, tensor: torch.Tensor) -> None:
        if name in ("q", "k", "v"):
            part = tensor.chunk(self.of)[self.rank]
            self.qkv.chunk(3)["qkv".index(name)].copy_(part)
        elif name == "down":
            # As a loader does that wants its part contiguous.
            self.down.data.copy_(tensor.chunk(self.of, dim=1)[self.rank].contiguous())
        elif name.startswith("experts."):
            _, expert, which = name.split(".")
            half = {"gate": 0, "up": 1}[which]
            self.w13.data[int(expert)].narrow(0, 3 * half, 3).copy_(tensor)
        elif name == "embed":
            self.embed[: tensor.shape[0]].data.copy_(tensor)
            self.embed[tensor.shape[0] :].data.fill_(0)
        elif name == "gate":
            self.gate.data.copy_(tensor)
        elif name == "turned":
            self.turned.data.copy_(tensor.t())


PUBLISHED = {
    "q": (4, 8),
    "k": (4, 8),
    "v": (4, 8),
    "down": (8, 6),
    "experts.0.gate": (3, 8),
    "experts.0.up": (3, 8),
    "experts.1.gate": (3, 8),
    "experts.1.up": (3, 8),
    "embed": (7, 8),
    "gate": (2, 8),
    "turned": (4, 8),
}


def published(**changes: tuple[int, ...] | None) -> dict[str, Entry]:
    shapes = {n: s for n, s in (PUBLISHED | changes).items() if s is not None}
    return {name: Entry(shape, "BF16") for name, shape in shapes.items()}


def live(engine: Engine, load: Callable | None = None, catalog=None, **decisions) -> LiveLayout:
    decisions = {"unused": {}, "unsourced": {"scale": "set by the engine"}} | decisions
    parameters = dict(engine.named_parameters())
    return read(parameters, load or engine.load_weights, catalog or published(), **decisions)


def values(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: torch.randn(shape).bfloat16() for name, shape in PUBLISHED.items()}


@pytest.mark.parametrize("beside", [False, True])
def test_update_equals_the_loader(group, beside: bool) -> None:
    engines = [Engine(rank, 2) for rank in range(2)]
    read_off = [live(engine) for engine in engines]
    assert {c.how for c in read_off[0].conversions} == {"cast BF16 to F32", "transpose"}
    assert all(not p.any() for n, p in engines[0].named_parameters() if n != "scale")
    layout = wc.Layout()
    held = values(0)
    for name, tensor in held.items():
        layout.add(tensor, name)
    trainer = group("trainer", [layout], role="trainer", epoch="new")
    rollout = group("rollout", [each.layout(stage=True, beside=beside) for each in read_off])
    for version in (1, 2):
        for name, tensor in values(version).items():
            held[name].copy_(tensor)
        trainer.all(lambda h, v=version: h.publish(v, deadline=SOON))
        before = [[p.clone() for p in engine.parameters()] for engine in engines]
        assert all(rollout.all(lambda h: h.update(deadline=SOON).changed))
        if beside:
            for engine, kept in zip(engines, before, strict=True):
                assert all(torch.equal(p, old) for p, old in zip(engine.parameters(), kept, strict=True))
        for rank, engine in enumerate(engines):
            read_off[rank].finish()
            once = Engine(rank, 2)
            once.load_weights(values(version).items())
            for (name, got), want in zip(engine.named_parameters(), once.parameters(), strict=True):
                assert torch.equal(got, want), name
        trainer.all(lambda h: h.unpublish(deadline=SOON))


def test_conversions_are_listed_unless_staged() -> None:
    with pytest.raises(wc.Misuse, match="gate: cast BF16 to F32 of gate") as refused:
        live(Engine(0, 1)).layout()
    assert "turned: transpose of turned" in str(refused.value)


def test_left_over_names_are_errors_with_the_nearest() -> None:
    engine = Engine(0, 1)
    with pytest.raises(wc.LayoutMismatch, match=r"does not take:\n  embedding \(nearest: embed"):
        live(engine, catalog=published(embedding=(7, 8)))
    with pytest.raises(wc.LayoutMismatch, match=r"1 parameters .* fills:\n  down"):
        live(engine, catalog=published(down=None))
    with pytest.raises(wc.LayoutMismatch, match="scale"):
        live(engine, unsourced={})
    # One shard of a fused parameter is missing: the others are not all of it.
    partly = published(k=None)
    with pytest.raises(wc.LayoutMismatch, match=r"fills:\n  qkv \(64 of 96 elements are filled\)"):
        live(engine, catalog=partly)
    left = {"scale": "set by the engine", "qkv": "a test"}
    assert live(engine, catalog=partly, unsourced=left).unsourced == left
    made = live(
        engine,
        catalog=published(embedding=(7, 8), down=None),
        unused={"embedding": "an old name"},
        unsourced={"scale": "set by the engine", "down": "a test"},
    )
    assert made.unused == {"embedding": "an old name"}
    assert made.unsourced == {"scale": "set by the engine", "down": "a test"}


def computing(engine: Engine, name: str, how: Callable) -> Callable:
    """A loader that does something else with one tensor."""

    def load(weights) -> None:
        for given, tensor in weights:
            if given == name:
                how(tensor)
            else:
                engine._load(given, tensor)

    return load


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda e, t: t.sum().item(), "gate: its loader looks at values"),
        (lambda e, t: e.gate.data.mul_(2), r"otherwise than by copies:\n  gate: aten::mul_"),
        (lambda e, t: e.gate.data.copy_(torch.randn(2, 8)), "gate: its loader writes something"),
        (lambda e, t: e.gate.data.copy_(e.gate + t), r"gate: its loader reads it \(aten::add.Tensor\) before"),
        (lambda e, t: torch.mul(t, 2, out=e.gate.data), r"otherwise than by copies:\n  gate: aten::mul"),
        (lambda e, t: setattr(e.gate, "data", torch.zeros(2, 8)), "gate: replacing its data"),
        (lambda e, t: e.missing, "gate: the engine's loader failed on it: AttributeError"),
    ],
)
def test_loaders_that_cannot_be_followed_are_refused(how: Callable, message: str) -> None:
    engine = Engine(0, 1)
    before = {name: p.data_ptr() for name, p in engine.named_parameters()}
    with pytest.raises(wc.Misuse, match=message):
        live(engine, computing(engine, "gate", lambda t: how(engine, t)))
    assert before == {name: p.data_ptr() for name, p in engine.named_parameters()}
    assert not engine.gate.any()


def test_a_loader_that_runs_in_threads_of_its_own_is_refused_and_writes_nothing() -> None:
    engine = Engine(0, 1)
    devices = set()

    def load(weights) -> None:
        with ThreadPoolExecutor(1) as pool:
            for name, tensor in weights:
                devices.add(tensor.device.type)
                pool.submit(engine._load, name, tensor).result()

    with pytest.raises(wc.Misuse, match="q: the engine's loader failed on it"):
        live(engine, load)
    assert devices == {"meta"}
    assert all(not p.any() for n, p in engine.named_parameters() if n != "scale")


def test_a_loader_that_repeats_elements_gets_the_tensor_itself() -> None:
    engine = Engine(0, 1)
    derived: list[torch.Tensor] = []
    made = live(
        engine,
        computing(engine, "gate", lambda t: engine.gate.data.copy_(t[:1])),
        redo=lambda: derived.append(engine.gate.sum(0)),
    )
    assert [c for c in made.conversions if c.parameter == "gate"] and set(made.whole) == {"gate"}
    with pytest.raises(wc.Misuse, match="gate: a copy, which repeats elements of it, of gate"):
        made.layout()
    made.layout(stage=True)
    made._arrived["gate"].copy_(torch.arange(16.0).reshape(2, 8))  # what an update would do
    made.finish()
    assert engine.gate.equal(torch.arange(8.0).expand(2, 8).to(engine.gate.dtype))
    # What is derived, is derived of what has just arrived.
    assert len(derived) == 1 and derived[0].equal(engine.gate.sum(0))


def test_catalogs(tmp_path: Path) -> None:
    header = json.dumps(
        {"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {}}
    ).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    assert catalog_of(file) == catalog_of(tmp_path) == {"a": Entry((2, 3), "BF16")}
    assert catalog_of({"a": ((2, 3), torch.bfloat16)}) == catalog_of(file)
    with torch.device("meta"):
        module = nn.Linear(3, 2, bias=False, dtype=torch.bfloat16)
    assert catalog_of(module) == {"weight": Entry((2, 3), "BF16")}
    for bad in (b"", struct.pack("<Q", 1 << 40), struct.pack("<Q", 2) + b"[]"):
        file.write_bytes(bad)
        with pytest.raises(wc.Misuse, match="model.safetensors"):
            catalog_of(file)


def test_views_of_parameters_belong_to_them() -> None:
    engine = Engine(0, 1)
    # As engines do with what they derive, and with parameters that lie in one storage.
    engine.head = nn.Parameter(engine.embed.data[:2].t(), requires_grad=False)
    both = torch.zeros(28, dtype=torch.bfloat16)
    engine.down.data = both[4:].view(8, 3)
    engine.of, engine.rank = 2, 0
    engine.qkv.data = torch.zeros(6, 8, dtype=torch.bfloat16)
    made = live(engine)
    assert made.unsourced["head"] == "a view of embed"
    assert {r.name for r in made.records} >= {"down", "embed"}


def test_names_are_mapped() -> None:
    catalog = {f"module.{name}": entry for name, entry in published().items()}
    catalog["module.step"] = Entry((), "I64")

    def rename(name: str) -> str | None:
        return None if name == "module.step" else name.removeprefix("module.")

    made = live(Engine(0, 1), catalog=catalog, rename=rename)
    assert made.unused == {"module.step": "left out by rename"}
    assert {p.tensor for r in made.records if r.name == "qkv" for p in r.pieces} == {
        "module.q", "module.k", "module.v"
    }
    with pytest.raises(wc.Misuse, match="module.q and module.k are both renamed to x"):
        live(Engine(0, 1), catalog=catalog, rename=lambda name: "x")


def test_a_copy_of_a_copy_is_traced_back_from_the_last_to_the_first() -> None:
    weight = torch.zeros(2, 2)

    def loader(weights) -> None:
        [(_, tensor)] = weights
        columns = tensor[:, 3:6].contiguous()
        weight.copy_(columns[4:, 1:].clone()[1:])

    made = read({"w": weight}, loader, {"w": Entry((7, 8), "F32")}, unused={}, unsourced={})
    [[piece]] = [record.pieces for record in made.records]
    assert (piece.source, piece.target) == (Box((5, 4), (2, 2)), Box((0, 0), (2, 2)))


class Joining(nn.Module):
    """Loads two halves as one tensor, once both are there."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.full((5, 4), 7.0))
        self.turned = nn.Parameter(torch.full((4, 5), 7.0))

    def load_weights(self, weights) -> None:
        halves = dict(weights)
        joined = torch.cat([halves["a"], halves["b"]], dim=0)
        self.fused[0:4].data.copy_(joined[1:5])
        self.fused[4:5].data.copy_(joined[0:1])
        self.turned.data.copy_(torch.cat([halves["c"].narrow(1, 0, 2), halves["d"]], -1))


JOINED = {
    "a": Entry((2, 4), "F32"),
    "b": Entry((3, 4), "F32"),
    "c": Entry((4, 3), "F32"),
    "d": Entry((4, 3), "F32"),
}


def test_joined_tensors_are_cut_again() -> None:
    model = Joining()
    live = read(dict(model.named_parameters()), model.load_weights, JOINED, unused={}, unsourced={})
    pieces = {r.name: [(p.tensor, p.source, p.target) for p in r.pieces] for r in live.records}
    assert [(t, s.start, s.len, to.start) for t, s, to in pieces["fused"]] == [
        ("a", (1, 0), (1, 4), (0, 0)),
        ("b", (0, 0), (3, 4), (1, 0)),
        ("a", (0, 0), (1, 4), (4, 0)),
    ]
    assert [(t, s.start, s.len, to.start) for t, s, to in pieces["turned"]] == [
        ("c", (0, 0), (4, 2), (0, 0)),
        ("d", (0, 0), (4, 3), (0, 2)),
    ]
    assert torch.equal(model.fused, torch.full((5, 4), 7.0))
