"""One rank of a gloo job: makes tensors of sharded modules, whole, and compares with what torch gathers.

Arguments: rank, world size, the server, and a directory through which the ranks find each other.
"""

import gc
import sys
import threading
import weakref
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import weightcast as wc
import weightcast.torch as wct
from weightcast.pipeline import run as pipeline_run
from weightcast.torch.planned import Planned

DEADLINE = 60.0


class Attention(nn.Module):
    """Rows and columns that no mesh divides, of two types, a LoRA adapter, and a head of fewer rows than ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(10, 13, bias=False)
        self.k = nn.Linear(10, 7, bias=False)
        self.a = nn.Linear(10, 2, bias=False)
        self.b = nn.Linear(2, 13, bias=False)
        self.low = nn.Linear(5, 6, dtype=torch.bfloat16)
        self.one = nn.Linear(3, 1)


class Model(nn.Module):
    """Three layers, and a buffer that every rank has whole."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.head = nn.Linear(10, 1, bias=False)
        self.register_buffer("scale", torch.randn(10))


def merge(w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return w + 0.5 * (b @ a)


def quantise(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = w.abs().amax().float().reshape(1) / 448
    return (w.float() / scale).to(torch.float8_e4m3fn), scale


RECIPES = [
    wct.recipe("layers.*.q.weight", ["layers.*.q.weight", "layers.*.a.weight", "layers.*.b.weight"], merge),
    wct.recipe("layers.*.k.transposed", "layers.*.k.weight", lambda k: k.t()),
    wct.recipe(["layers.*.low.weight", "layers.*.low.scale"], "layers.*.low.weight", quantise),
    wct.recipe("head.scaled", ["head.weight", "scale"], torch.mul),
    wct.recipe("layers.*.one.weight", "layers.*.one.weight"),
]


def expected(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same, plainly."""
    made = {"head.scaled": tensors["head.weight"] * tensors["scale"]}
    for n in range(3):
        at = f"layers.{n}"
        made[f"{at}.q.weight"] = merge(*(tensors[f"{at}.{x}.weight"] for x in "qab"))
        made[f"{at}.k.transposed"] = tensors[f"{at}.k.weight"].t()
        made[f"{at}.low.weight"], made[f"{at}.low.scale"] = quantise(tensors[f"{at}.low.weight"])
        made[f"{at}.one.weight"] = tensors[f"{at}.one.weight"]
    return made


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """As torch gathers it."""
    held = {name: t.detach() for name, t in [*model.named_parameters(), *model.named_buffers()]}
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in held.items()}


def rows(world: int) -> nn.Module:
    model, mesh = Model(), init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def columns(world: int) -> nn.Module:
    """Every matrix cut along its columns, evenly or not."""
    model, mesh = Model(), init_device_mesh("cpu", (world,))
    for owner in model.modules():
        for name, p in list(owner._parameters.items()):
            if p is not None:
                sharded = distribute_tensor(p.detach(), mesh, [Shard(p.ndim - 1)])
                owner.register_parameter(name, nn.Parameter(sharded, requires_grad=False))
    return model


def copies(world: int) -> nn.Module:
    model = Model()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copy", "shard"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def over_tensor_parallel(world: int) -> nn.Module:
    model = Model()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    for layer in model.layers:
        ways = {"q": ColwiseParallel(), "k": RowwiseParallel(), "low": ColwiseParallel(), "b": ColwiseParallel()}
        parallelize_module(layer, mesh["tensor"], ways)
        fully_shard(layer, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def experts(world: int) -> nn.Module:
    """The second layer on pairs of ranks: 0 and 2, 1 and 3; each pair has another one."""
    model, mesh = Model(), init_device_mesh("cpu", (world,))
    pairs = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("edp", "ep"))
    with torch.no_grad():
        for p in model.layers[1].parameters():
            p += dist.get_rank() % 2
    fully_shard(model.layers[1], mesh=pairs["edp"])
    for layer in (model.layers[0], model.layers[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh, ignored_params=set(model.layers[1].parameters()))


CASES = {
    "rows": (rows, [2, 4]),
    "columns": (columns, [2, 4]),
    "copies": (copies, [4]),
    "over-tensor-parallel": (over_tensor_parallel, [4]),
    "experts": (experts, [4]),
}


class Ledger:
    """Bytes of each storage that an operation has made, as long as each lives."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.now = self.peak = 0
        self.seen: dict[int, object] = {}

    def see(self, storage, known: set[int]) -> None:
        with self.lock:
            if id(storage) in self.seen or id(storage) in known:
                return
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            self.seen[id(storage)] = weakref.finalize(storage, self.gone, id(storage), storage.nbytes())

    def gone(self, which: int, nbytes: int) -> None:
        with self.lock:
            del self.seen[which]
            self.now -= nbytes


class Allocations(TorchDispatchMode):
    """The hook: sees what every operation of a thread returns."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        known = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if _plain(t)}
        for tensor in tree_leaves(returned):
            if _plain(tensor):
                self.ledger.see(tensor.untyped_storage(), known)
        return returned


def _plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, DTensor) and not value.is_meta


def peak_of(source: wct.Gathered) -> int:
    """The most bytes that a refresh allocates at one time, over all threads of its pipeline."""
    ledger, entered, run = Ledger(), pipeline_run.entered, source._pipeline.run

    def counted(target) -> None:
        with Allocations(ledger):
            entered(target)

    def hooked(*arguments, **options) -> None:
        with Allocations(ledger):
            run(*arguments, **options)

    pipeline_run.entered, source._pipeline.run = counted, hooked
    gc.collect()
    try:
        source.refresh()
    finally:
        pipeline_run.entered, source._pipeline.run = entered, run
    return ledger.peak


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def served(source: wct.Gathered, beside: tuple[int, ...] | None = None) -> dict[str, bytes]:
    """What the ranks of this replica, or those `beside` this one, have in host memory."""
    mine = {n: bits(h) for p in source._planned for n, h in zip(p.product.outputs, p.host, strict=False)}
    heard: list[dict[str, bytes]] = [{}] * dist.get_world_size()
    dist.all_gather_object(heard, mine)
    ranks = source._ranks.peers if beside is None else beside
    found: dict[str, bytes] = {}
    for rank in ranks:
        found |= heard[rank]
    return found


def check_case(name: str, model: nn.Module) -> None:
    """To the bit what torch makes, at every budget, with no more memory than that."""
    shapes = {type(p).__name__ for p in model.parameters()}
    assert "DTensor" in shapes, shapes
    for budget in (0, 1500, 1 << 30):
        source = wct.gathered(model, RECIPES, budget=budget)
        with torch.no_grad():
            for p in model.parameters():
                (p.to_local() if isinstance(p, DTensor) else p).add_(0.25)
        peak = peak_of(source)
        one = max(work.item.peak for work in source._works())
        assert peak <= max(budget, one), f"{name}: {peak} bytes, {budget} allowed, {one} for one tensor"
        assert source.peak <= max(budget, one)
        # Pairs of ranks have experts of their own.
        made = [product.name for product in source._products]
        if name in ("rows", "columns", "copies"):
            owners = {planned.product.name: planned.owner for planned in source._planned}
            assert set(owners.values()) <= set(source._ranks.peers) and len(owners) == len(made)
            assert len(set(owners.values())) == min(len(made), len(source._ranks.peers)), "all ranks make some"
        pair = (dist.get_rank(), (dist.get_rank() + 2) % 4) if name == "experts" else None
        ours, theirs = served(source), served(source, pair) if pair else {}
        for tensor, plainly in expected(whole(model)).items():
            found = theirs if pair and ".1." in tensor else ours
            assert found[tensor] == bits(plainly), f"{name}: {tensor} at {budget}"


def the_hook_would_notice(world: int) -> None:
    """With a budget for all, more lies about at one time than with one for a tensor, by the same hook."""
    source = wct.gathered(rows(world), RECIPES)
    one = max(work.item.peak for work in source._works())
    held = held_up(source)
    assert held <= source.peak
    noticed: list[bool] = [False] * world
    dist.all_gather_object(noticed, held > one)
    assert any(noticed), f"{held} bytes at one time, {one} for one tensor"


def held_up(source: wct.Gathered) -> int:
    """Its peak where nothing is transformed before all gathers have begun."""
    make, begin, begun = source._make, Planned.begin, threading.Semaphore(0)
    left = len(source._works())

    def counted(planned, tensors):
        gathering = begin(planned, tensors)
        begun.release()
        return gathering

    def waits(planned, lying, wholes):
        nonlocal left
        while left:
            assert begun.acquire(timeout=DEADLINE), "the budget has room for all"
            left -= 1
        return make(planned, lying, wholes)

    Planned.begin, source._make = counted, waits
    try:
        return peak_of(source)
    finally:
        Planned.begin = begin


def fails_on_one_rank(world: int) -> None:
    """All ranks raise, and name the tensor; the next refresh is as any other."""
    model = rows(world)
    broken = {"on": True}

    def make(k: torch.Tensor) -> torch.Tensor:
        if not k.is_meta and broken["on"]:
            raise ZeroDivisionError("planted")
        return k.t()

    recipes = [RECIPES[0], wct.recipe("k.transposed", "layers.1.k.weight", make), *RECIPES[2:]]
    source = wct.gathered(model, recipes, budget=500)
    for _ in range(2):
        try:
            source.refresh()
        except wc.StageFailed as error:
            assert (error.tensor, error.stage) == ("k.transposed", "transform"), error
            assert "ZeroDivisionError: planted" in error.reason and f"on rank {error.rank}" in str(error)
            assert (error.__cause__ is not None) == (error.rank == dist.get_rank())
        else:
            raise AssertionError("a failure that nobody told")
    broken["on"] = False
    source.refresh()
    assert served(source)["k.transposed"] == bits(whole(model)["layers.1.k.weight"].t())


def other_plans(world: int) -> None:
    """Ranks that would wait for different gathers are told so."""
    recipes = RECIPES if dist.get_rank() == 0 else RECIPES[1:]
    try:
        wct.gathered(rows(world), recipes).refresh()
    except wc.Misuse as error:
        assert "the same module and recipes on all ranks" in str(error)
    else:
        raise AssertionError("ranks with different recipes agreed")


def stages_do_not_wait_for_each_other(directory: Path) -> None:
    """Pipeline stages lie on disjoint meshes: the second has sent all before the first transforms anything."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage, model = mesh.get_coordinate()[0], Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    told = dist.FileStore(str(directory / "told"), 4)

    def slow(k: torch.Tensor) -> torch.Tensor:
        if stage == 0 and not k.is_meta:
            told.wait(["sent 2", "sent 3"], timedelta(seconds=DEADLINE))
        return k.t()

    source = wct.gathered(model, [wct.recipe("layers.*.k.transposed", "layers.*.k.weight", slow)], budget=0)
    source.refresh()
    told.set(f"sent {dist.get_rank()}", "")


def pieces_of_a_rank_go_to_their_places(world: int) -> None:
    """A rank that holds a piece of each half, one behind the other."""
    mesh, plainly = init_device_mesh("cpu", (world,)), torch.arange(world * 4 * 3.0).reshape(world * 4, 3)
    local = torch.cat([half.chunk(world)[dist.get_rank()] for half in plainly.chunk(2)])
    module = nn.Module()
    module.register_buffer("w", DTensor.from_local(local, mesh, [_StridedShard(0, split_factor=2)]))
    assert module.w.shape == plainly.shape
    source = wct.gathered(module, [wct.recipe("made", "w")], budget=0)
    peak, planned = peak_of(source), source._planned[0]
    assert peak <= planned.item([module.w]).peak
    assert served(source)["made"] == bits(plainly)
    assert max(len(boxes) for boxes in planned.gathers[0].boxes.values()) == 2


def partial_is_refused(world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    module = nn.Module()
    sums = DTensor.from_local(torch.ones(2, 2), mesh, [Partial()])
    module.register_buffer("sums", sums)
    try:
        wct.gathered(module, [wct.recipe("made", "sums")])
    except wc.LayoutMismatch as error:
        assert "sums: placement" in str(error)
    else:
        raise AssertionError("a partial sum was taken for a slice")


def publish(world: int, server: str) -> None:
    """A rollout without ranks gets what recipes make, and the rest in place, twice."""
    for name in ("rows", "copies") if world == 4 else ("rows",):
        model = CASES[name][0](world)
        source = wct.gathered(model, [*RECIPES, wct.cast("*.one.bias", torch.bfloat16)], budget=700)
        with wc.open(name, source.replica("trainer"), role="trainer", server=server, deadline=DEADLINE) as handle:
            handle.register(source.layout(), deadline=DEADLINE)
            for version in (1, 2):
                handle.publish(version, deadline=DEADLINE)
                handle.wait(lambda held, v=version: "rollout" in held.get(v, ()), deadline=DEADLINE)
                handle.unpublish(deadline=DEADLINE)
                with torch.no_grad():
                    for p in model.parameters():
                        p.to_local().add_(1)


def main(rank: str, world_size: str, server: str, directory: str) -> None:
    world = int(world_size)
    dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=int(rank), world_size=world)
    if server:
        publish(world, server)
    for name, (shard, worlds) in CASES.items():
        if world in worlds:
            check_case(name, shard(world))
    the_hook_would_notice(world)
    fails_on_one_rank(world)
    other_plans(world)
    pieces_of_a_rank_go_to_their_places(world)
    partial_is_refused(world)
    if world == 4:
        stages_do_not_wait_for_each_other(Path(directory))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
