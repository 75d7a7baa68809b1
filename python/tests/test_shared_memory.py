"""Shared memory: arrays and modules in it, and how they are read."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import weightcast as wc
import weightcast.torch as wct
from weightcast import _core


def shared(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    return _core.is_shared(storage.data_ptr(), storage.nbytes())


class Model(nn.Module):
    """A tied weight, two parameters that are views of one memory, buffers of either kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7)
        self.head.weight = self.embed.weight
        whole = torch.arange(24.0).reshape(4, 6)
        self.upper = nn.Parameter(whole[:2])
        self.lower = nn.Parameter(whole[2:].t(), requires_grad=False)
        self.register_buffer("kept", torch.ones(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(x)) * self.upper.sum()


@pytest.fixture
def model() -> Model:
    torch.manual_seed(1)
    return Model()


def test_arrays_and_tensors_of_all_forms_come_in_one_piece() -> None:
    like = {
        "a": np.ones((3, 2), "f4"), "b": [torch.ones(5, dtype=torch.bfloat16), np.ones(0, "i8")],
        "c": (torch.ones(2, 3, 4), torch.ones((), dtype=torch.int64)),
    }
    made = wc.empty_like(like)
    assert made["a"].shape == (3, 2) and made["a"].dtype == np.float32 and not made["a"].any()
    assert made["b"][0].dtype is torch.bfloat16 and made["b"][0].shape == (5,) and made["b"][1].shape == (0,)
    assert type(made["c"]) is tuple and made["c"][0].shape == (2, 3, 4) and made["c"][1].shape == ()
    for tensor in (made["b"][0], *made["c"]):
        assert shared(tensor) and not tensor.any()
        tensor.fill_(3)
        assert (tensor == 3).all()
    made["a"][:] = 4
    first, last = made["a"].ctypes.data, made["c"][1].data_ptr() + 8
    assert _core.is_shared(first, last - first), "in one piece"


def test_memory_is_there_as_long_as_what_lies_in_it() -> None:
    tensor = wc.empty_like([torch.ones(1000), torch.ones(1000)])[1]
    address = tensor.data_ptr()
    part = tensor[10:20]
    del tensor
    assert part.fill_(2).sum() == 20 and _core.is_shared(address, 4000)
    del part
    assert not _core.is_shared(address, 4000)


@pytest.mark.parametrize("nonsense", [3, "abc", None, {"a": 1}])
def test_nonsense_is_told(nonsense: object) -> None:
    with pytest.raises(TypeError, match="empty_like"):
        wc.empty_like(nonsense)
    with pytest.raises(wc.Misuse, match="objects"):
        wc.empty_like(np.array([object()]))


class Pair(NamedTuple):
    first: object
    second: object


def test_a_namedtuple_stays_of_its_type() -> None:
    made = wc.empty_like(Pair(torch.ones(3), [np.ones(2, "i4")]))
    assert type(made) is Pair and made.first.shape == (3,) and made.second[0].dtype == np.int32
    assert shared(made.first)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:Sparse CSR")
def test_tensors_that_are_more_than_their_bytes_are_refused() -> None:
    with pytest.raises(wc.Misuse, match=r"empty_like: .*sparse_coo.*to_dense"):
        wc.empty_like({"w": torch.eye(3).to_sparse()})
    with pytest.raises(wc.Misuse, match=r"empty_like: .*sparse_csr.*to_dense"):
        wc.empty_like(torch.eye(3).to_sparse_csr())
    quantised = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    with pytest.raises(wc.Misuse, match=r"empty_like: .*quantised.*qint8.*int_repr"):
        wc.empty_like(quantised)


def policy_of(address: int) -> str:
    """What `numa_maps` says of the mapping that an address is in."""
    lines = [line.split() for line in Path("/proc/self/numa_maps").read_text().splitlines()]
    return max((int(words[0], 16), words[1]) for words in lines if int(words[0], 16) <= address)[1]


def test_memory_comes_from_the_numa_node_that_is_named(model: Model) -> None:
    assert policy_of(wc.empty_like(np.ones(5)).ctypes.data) == "default"
    array = wc.empty_like(np.ones(5), numa_node=0)
    assert policy_of(array.ctypes.data) == "bind:0" and not array.any()
    assert policy_of(wc.empty_like(np.ones(1 << 20), numa_node=0).ctypes.data) == "bind:0"
    wct.share_(model, numa_node=0)
    assert all(policy_of(p.data_ptr()) == "bind:0" for p in model.parameters())


def test_a_numa_node_that_is_not_there_is_named_beside_those_that_are(model: Model) -> None:
    there = Path("/sys/devices/system/node/has_memory").read_text().strip()
    addresses = [p.data_ptr() for p in model.parameters()]
    for ask in (lambda: wc.empty_like(np.ones(5), numa_node=63), lambda: wct.share_(model, numa_node=63)):
        with pytest.raises(wc.Misuse, match=rf"NUMA node 63: nodes with memory are {there};"):
            ask()
    assert addresses == [p.data_ptr() for p in model.parameters()]
    with pytest.raises(ValueError, match="numa_node is an integer from 0"):
        wc.empty_like(np.ones(5), numa_node=-1)


def test_a_module_is_moved_and_stays_what_it_was(model: Model) -> None:
    x = torch.tensor([1, 2, 3])
    model(x).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    optimizer.step()
    before, parameters = {n: t.clone() for n, t in model.state_dict().items()}, dict(model.named_parameters())
    grads = {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()}
    steps = [state["exp_avg"] for state in optimizer.state.values()]

    assert wct.share_(model) is model

    assert all(parameters[name] is parameter for name, parameter in model.named_parameters())
    assert model.head.weight is model.embed.weight
    assert all(shared(p) for p in model.parameters()) and not shared(model.kept) and not shared(model.scratch)
    assert model.upper.requires_grad and not model.lower.requires_grad and model.lower.stride() == (1, 6)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    for name, parameter in parameters.items():
        assert (parameter.grad is None) == (grads[name] is None)
        assert grads[name] is None or torch.equal(parameter.grad, grads[name])
    # Views go on sharing their memory.
    assert model.upper.untyped_storage().data_ptr() == model.lower.untyped_storage().data_ptr()
    assert steps == [] or all(a is b["exp_avg"] for a, b in zip(steps, optimizer.state.values(), strict=True))
    # And the optimizer goes on with the same parameters.
    address = model.head.weight.data_ptr()
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model.head.weight, before["head.weight"]) and model.head.weight.data_ptr() == address


def test_persistent_buffers_are_moved_if_asked_for(model: Model) -> None:
    wct.share_(model, buffers=True)
    assert shared(model.kept) and not shared(model.scratch)
    assert model.kept.tolist() == [1, 1, 1]


def test_a_second_time_moves_nothing(model: Model) -> None:
    wct.share_(model)
    addresses = [p.data_ptr() for p in model.parameters()]
    wct.share_(model, buffers=True)
    assert addresses == [p.data_ptr() for p in model.parameters()] and shared(model.kept)


@pytest.mark.parametrize("buffers", [False, True])
def test_a_buffer_that_is_a_view_of_a_parameter_moves_along(buffers: bool) -> None:
    module = nn.Module()
    module.w = nn.Parameter(torch.arange(12.0).reshape(4, 3))
    module.register_buffer("v", module.w.detach()[:2])
    module.register_buffer("whole", module.w.detach(), persistent=False)
    module.register_buffer("other", torch.ones(5)[1:3])
    wct.share_(module, buffers=buffers)
    assert shared(module.w) and shared(module.v) and shared(module.other) == buffers
    assert module.v.data_ptr() == module.whole.data_ptr() == module.w.data_ptr()
    with torch.no_grad():
        module.w[1, 2] = 50
    assert module.v[1, 2] == 50 and module.whole[1, 2] == 50
    module.w.sum().backward()
    assert module.w.grad.tolist() == [[1.0] * 3] * 4


VIEWS = {
    "part": (lambda: torch.ones(6)[:3], [1, 1, 1]),
    "more dimensions": (lambda: torch.ones(2)[None, :], [[1, 1]]),
    "expanded": (lambda: torch.arange(3).expand(1, -1), [[0, 1, 2]]),
    "repeated": (lambda: torch.ones(1).expand(3), [1, 1, 1]),
    "of a view": (lambda: torch.arange(8).view(2, 4)[1].flip(0)[1:][:2], [6, 5]),
    "other type": (lambda: torch.ones(2).view(torch.int32), [0x3F800000] * 2),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_buffers_that_are_views_are_moved_if_asked_for(kind: str) -> None:
    make, values = VIEWS[kind]
    module = nn.Module()
    module.register_buffer("view", make())
    buffer, stride = module.view, module.view.stride()
    wct.share_(module, buffers=True)
    assert module.view is buffer and shared(buffer) and buffer.tolist() == values and buffer.stride() == stride


def test_what_a_buffer_is_a_view_of_moves_with_it(model: Model) -> None:
    table = torch.zeros(6)
    model.register_buffer("rows", table[:3])
    wct.share_(model, buffers=True)
    assert shared(table) and model.rows._base is table
    table += 2
    model.rows[0] = 9
    assert model.rows.tolist() == [9, 2, 2] and table.tolist() == [9, 2, 2, 2, 2, 2]
    assert model.rows._version == table._version


def test_another_view_outside_of_the_module_is_named(model: Model) -> None:
    table = torch.zeros(6)
    model.register_buffer("rows", table[:3])
    others = table[3:]
    with pytest.raises(wct.NotShareable, match="rows: something else refers") as failed:
        wct.share_(model, buffers=True)
    assert list(failed.value.tensors) == ["rows"] and not shared(others)


def with_weight(weight: torch.Tensor) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(weight, requires_grad=False)
    return module


FOREIGN = {
    "numpy": lambda: torch.from_numpy(np.ones(5, "f4")),
    "a part of numpy": lambda: torch.from_numpy(np.ones((5, 2), "f4"))[1:, 0],
    "dlpack": lambda: torch.from_dlpack(np.ones(5, "f4")),
    "buffer": lambda: torch.frombuffer(bytearray(20), dtype=torch.float32),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_memory_that_torch_did_not_make_is_named(kind: str) -> None:
    module = with_weight(FOREIGN[kind]())
    with pytest.raises(wct.NotShareable, match="weight: its memory was not made by torch.*clone"):
        wct.share_(module)
    assert not shared(module.weight)
    module.weight.data = module.weight.data.clone()
    wct.share_(module)
    assert shared(module.weight)


def test_memory_that_torch_shares_already_is_named(tmp_path: Path) -> None:
    file = torch.from_file(str(tmp_path / "weights"), shared=True, size=6)
    for module in (nn.Linear(3, 2).share_memory(), with_weight(file)):
        names = [name for name, _ in module.named_parameters()]
        with pytest.raises(wct.NotShareable, match="weight: its memory is shared with other processes") as failed:
            wct.share_(module)
        assert list(failed.value.tensors) == names
        assert all(p.is_shared() for p in module.parameters())


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_weights_that_were_loaded_from_a_file_are_moved(tmp_path: Path, mmap: bool) -> None:
    torch.save({"weight": torch.arange(6.0)}, tmp_path / "weights")
    module = with_weight(torch.load(tmp_path / "weights", mmap=mmap, weights_only=True)["weight"])
    wct.share_(module)
    assert shared(module.weight) and module.weight.tolist() == [0, 1, 2, 3, 4, 5]


def test_looking_at_memory_that_is_then_not_moved_leaves_it_as_it_is(tmp_path: Path) -> None:
    torch.save({"weight": torch.arange(6.0)}, tmp_path / "weights")
    module = with_weight(torch.load(tmp_path / "weights", weights_only=True)["weight"])
    module.other = nn.Parameter(torch.from_numpy(np.ones(3, "f4")))
    address = module.weight.data_ptr()
    with pytest.raises(wct.NotShareable) as failed:
        wct.share_(module)
    assert list(failed.value.tensors) == ["other"] and module.weight.data_ptr() == address
    assert not torch._C._is_cow_tensor(module.weight)


def test_what_is_no_module_is_told() -> None:
    for thing in (torch.ones(3), [nn.Linear(2, 2)], {}):
        with pytest.raises(TypeError, match=rf"share_ takes a torch.nn.Module, not a {type(thing).__name__}: .*empty_like"):
            wct.share_(thing)


class Wrapped(torch.Tensor):
    """Any subclass."""


def spoilt(model: Model, how: str) -> tuple[str, object]:
    if how == "meta":
        model.upper = nn.Parameter(torch.empty(3, device="meta"))
    elif how == "sparse":
        model.upper = nn.Parameter(torch.eye(3).to_sparse())
    elif how == "Wrapped":
        model.upper = nn.Parameter(torch.ones(3).as_subclass(Wrapped))
    elif how == "inference":
        with torch.inference_mode():
            model.upper = nn.Parameter(torch.ones(3), requires_grad=False)
    elif how == "conjugate":
        model.upper = nn.Parameter(torch.ones(3, dtype=torch.cfloat).conj(), requires_grad=False)
    elif how == "refers":
        return "embed.weight", model.embed.weight.detach()[:2]
    return "upper", None


@pytest.mark.parametrize("how", ["meta", "sparse", "Wrapped", "inference", "conjugate", "refers"])
def test_what_cannot_be_moved_is_named_and_nothing_is_moved(model: Model, how: str) -> None:
    name, _held = spoilt(model, how)
    with pytest.raises(wct.NotShareable, match=rf"{name}: .*{how}") as failed:
        wct.share_(model)
    assert list(failed.value.tensors) == [name]
    assert isinstance(failed.value, wc.Misuse)
    assert not any(p.device.type == "cpu" and p.layout is torch.strided and shared(p) for p in model.parameters())


def test_a_graph_that_still_needs_the_memory_is_named(model: Model) -> None:
    loss = model(torch.tensor([1, 2])).sum()
    with pytest.raises(wct.NotShareable, match="refers to its memory"):
        wct.share_(model)
    loss.backward()


TRAINER = """
    import sys, torch, weightcast as wc, weightcast.torch as wct
    torch.manual_seed(3)
    model = torch.nn.Linear(300, 200)
    if sys.argv[2] == "shared":
        wct.share_(model)
    handle = wc.open("policy", wc.Replica("trainer"), role="trainer", server=sys.argv[1])
    handle.register(wct.layout(model))
    for version in (1, 2):
        handle.publish(version, deadline=60, seal=True)
        print("published", flush=True)
        sys.stdin.readline()
        handle.unpublish(deadline=60)
        with torch.no_grad():
            model.weight.add_(1)
    handle.close()
"""


@pytest.mark.parametrize(("memory", "way", "why"), [
    ("shared", "shared", "a process of this host shares"), ("private", "direct", "not in shared memory"),
])
def test_another_process_reads_by_the_way_that_the_memory_allows(
    server: wc.Server, memory: str, way: str, why: str
) -> None:
    torch.manual_seed(3)
    expected, model = torch.nn.Linear(300, 200), torch.nn.Linear(300, 200)
    command = [sys.executable, "-c", textwrap.dedent(TRAINER), server.address, memory]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer,
        wc.open("policy", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        rollout.register(wct.layout(model))
        for version in (1, 2):
            assert trainer.stdout.readline() == "published\n"
            moved = rollout.update(wc.exact(version), deadline=60)
            assert moved.way == way and why in moved.way_reason, moved
            assert (moved.bytes_shared if way == "shared" else moved.bytes_direct) == moved.bytes - moved.unchanged
            assert torch.equal(model.weight, expected.weight + (version - 1)) and torch.equal(model.bias, expected.bias)
            print(file=trainer.stdin, flush=True)
        assert trainer.wait(60) == 0


