"""Weights that lie on a real GPU: published from it, and brought into it."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import weightcast as wc
import weightcast.torch as wct
from weightcast import aio
from weightcast.adapters.live.read import read

from .rollout import digest, laid_out, made

#: Seconds in which everything must have happened.
SOON = 60.0


@pytest.fixture
def server():
    with wc.serve(lease=5.0, drain_deadline=5.0) as running:
        yield running


@pytest.fixture
def opened(server):
    """Opens handles that are closed with the test."""
    handles = []

    def opened(name, **options):
        handles.append(wc.open("m", wc.Replica(name), server=server.address, **options))
        return handles[-1]

    yield opened
    for handle in reversed(handles):
        handle.close()


def trainer_of(opened, layout):
    trainer = opened("trainer", role="trainer", epoch="new")
    trainer.register(layout)
    return trainer


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]


def test_every_dtype_arrives_to_the_bit(opened):
    torch.manual_seed(0)
    ours = {}
    for dtype in DTYPES:
        random = torch.randint(0, 2 if dtype == torch.bool else 120, (33, 48 * dtype.itemsize), dtype=torch.uint8)
        ours[f"t.{dtype}"] = random.cuda().view(dtype)
    ours["scalar"] = torch.tensor(2.5, device="cuda")
    theirs = {name: torch.zeros_like(tensor) for name, tensor in ours.items()}
    trainer, rollout = trainer_of(opened, laid_out(ours)), opened("rollout")
    layout = laid_out(theirs)
    assert all(copy.is_pinned() for _, copy in layout.copies._pairs)
    rollout.register(layout)
    trainer.publish(1)
    rollout.update(deadline=SOON)
    for name, tensor in ours.items():
        assert torch.equal(theirs[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name


def test_publish_waits_for_what_is_queued(opened):
    """The optimizer's kernels have been launched, not awaited, on a stream of their own."""
    weight = torch.zeros(1024, 1024, device="cuda")
    theirs = torch.empty_like(weight)
    trainer, rollout = trainer_of(opened, laid_out({"w": weight})), opened("rollout")
    rollout.register(laid_out({"w": theirs}))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for version in (1, 2, 3):
            torch.cuda._sleep(200_000_000)
            weight.fill_(version)
            trainer.publish(version)
            weight.fill_(-1)
            rollout.update(version, deadline=SOON)
            assert bool((theirs == version).all())
            trainer.unpublish()


def test_a_captured_graph_runs_with_the_new_weights(opened):
    """Memory stays where it is, so an engine's CUDA graphs need no new capture."""
    torch.manual_seed(0)
    ours, engine = (nn.Linear(64, 64, device="cuda").requires_grad_(False) for _ in range(2))
    trainer, rollout = trainer_of(opened, wct.layout(ours)), opened("rollout")
    rollout.register(wct.layout(engine))
    inputs = torch.randn(8, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        engine(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = engine(inputs)
    graph.replay()
    assert not torch.equal(outputs, ours(inputs))
    with trainer.published(1):
        rollout.update(deadline=SOON)
    graph.replay()
    assert torch.equal(outputs, ours(inputs))


def test_fp8_of_a_gpu_has_the_bits_of_the_host(opened):
    torch.manual_seed(0)
    weight = torch.randn(200, 300)
    codes, scales = {}, {}
    for epoch, where in enumerate(("cpu", "cuda")):
        ours = weight.to(where)
        layout = laid_out({"w": ours}).quantise("w")
        trainer = opened(f"trainer-{where}", role="trainer", epoch="new")
        trainer.register(layout)
        codes[where] = torch.empty(200, 300, dtype=torch.float8_e4m3fn, device=where)
        scales[where] = torch.empty(2, 3, device=where)
        rollout = opened(f"rollout-{where}")
        rollout.register(laid_out({"w": codes[where], "w_scale_inv": scales[where]}))
        trainer.publish(epoch + 1)
        rollout.update(epoch + 1, deadline=SOON)
        trainer.unpublish()
    assert torch.equal(codes["cuda"].cpu().view(torch.uint8), codes["cpu"].view(torch.uint8))
    assert torch.equal(scales["cuda"].cpu(), scales["cpu"])


def test_halves_of_an_update_change_the_weights_at_the_install(opened):
    weight = torch.zeros(512, 512, device="cuda")
    theirs = torch.full_like(weight, -1)
    trainer, rollout = trainer_of(opened, laid_out({"w": weight})), opened("rollout")
    rollout.register(laid_out({"w": theirs}))
    for version in (1, 2):
        weight.fill_(version)
        trainer.publish(version)
        before = theirs.clone()
        assert rollout.fetch(version, deadline=SOON).changed
        trainer.unpublish()
        assert torch.equal(theirs, before), "the engine uses these weights until the install"
        assert rollout.install()
        assert bool((theirs == version).all())
        assert not rollout.install()


def test_an_install_waits_for_what_the_engine_has_queued(opened):
    """A decoding step that was launched before the install has the old weights, on whichever stream."""
    weight = torch.full((1024, 1024), 2.0, device="cuda")
    theirs = torch.ones_like(weight)
    trainer, rollout = trainer_of(opened, laid_out({"w": weight})), opened("rollout")
    rollout.register(laid_out({"w": theirs}))
    trainer.publish(1)
    rollout.fetch(1, deadline=SOON)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        computed = theirs * 10
        rollout.install()
        after = theirs * 10
    torch.cuda.synchronize()
    assert bool((computed == 10).all()) and bool((after == 20).all())


def test_forward_passes_on_the_gpu_follow(opened):
    ours, engine = (nn.Linear(64, 64, bias=False, device="cuda").requires_grad_(False) for _ in range(2))
    trainer, rollout = trainer_of(opened, wct.layout(ours)), opened("rollout")
    rollout.register(wct.layout(engine))
    inputs = torch.ones(1, 64, device="cuda")
    with rollout.follow(at=engine) as follower:
        for version in (1, 2, 3):
            ours.weight.fill_(version)
            with trainer.published(version):
                end = time.monotonic() + SOON
                while follower.version != version and time.monotonic() < end:
                    told = engine(inputs)
            assert follower.version == version
            assert torch.equal(told, ours(inputs)), "the pass that installs has the new weights"


def test_awaited_calls_copy_on_the_stream_of_who_awaits(opened, server):
    weight = torch.zeros(1024, 1024, device="cuda")
    theirs = torch.empty_like(weight)
    trainer = trainer_of(opened, laid_out({"w": weight}))

    async def update_all():
        me = wc.Replica("rollout")
        async with await aio.open("m", me, server=server.address) as rollout:
            await rollout.register(laid_out({"w": theirs}))
            with torch.cuda.stream(torch.cuda.Stream()):
                for version in (1, 2):
                    torch.cuda._sleep(100_000_000)
                    weight.fill_(version)
                    trainer.publish(version)
                    theirs.fill_(-1)
                    await rollout.update(version, deadline=SOON)
                    assert bool((theirs == version).all())
                    trainer.unpublish()

    asyncio.run(update_all())


class Engine(nn.Module):
    """Fuses two published matrices, casts and turns a third."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.zeros(128, 64, dtype=torch.bfloat16, device="cuda"), requires_grad=False)
        self.turned = nn.Parameter(torch.zeros(64, 32, device="cuda"), requires_grad=False)

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            if name == "c":
                self.turned.data.copy_(tensor.t())
            else:
                self.fused.data.chunk(2)["ab".index(name)].copy_(tensor)


@pytest.mark.parametrize("beside", [False, True])
def test_a_live_engine_on_the_gpu_takes_a_version(opened, beside):
    torch.manual_seed(0)
    ours = {name: torch.randn(64, 64, dtype=torch.bfloat16, device="cuda") for name in "ab"}
    ours["c"] = torch.randn(32, 64, dtype=torch.bfloat16, device="cuda")
    trainer, rollout, engine = trainer_of(opened, laid_out(ours)), opened("rollout"), Engine()
    trainer.publish(1)
    live = read(dict(engine.named_parameters()), engine.load_weights, rollout.catalog(), unused={}, unsourced={})
    rollout.register(live.layout(stage=True, beside=beside))
    rollout.update(deadline=SOON)
    if beside:
        assert not engine.fused.any(), "the engine generates until finish"
    live.finish()
    torch.cuda.synchronize()
    loaded = Engine()
    loaded.load_weights(ours.items())
    assert all(map(torch.equal, engine.parameters(), loaded.parameters()))


def test_fsdp2_on_a_gpu(opened, tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)).cuda()
        fully_shard(model, mesh=init_device_mesh("cuda", (1,)))
        optimizer = torch.optim.AdamW(model.parameters())
        rollout, engine = opened("rollout"), nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)).cuda()
        trainer = trainer_of(opened, wct.layout(model))
        rollout.register(wct.layout(engine))
        for version in (1, 2):
            model(torch.randn(8, 16, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with trainer.published(version):
                rollout.update(deadline=SOON)
            for mine, theirs in zip(model.parameters(), engine.parameters(), strict=True):
                assert torch.equal(mine.full_tensor(), theirs)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("way", ["direct", "tcp"])
def test_another_process_on_the_same_gpu(opened, server, tmp_path, way):
    shapes = {f"layer.{i}": [512, 256 + i] for i in range(40)}
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(shapes))
    ours = made(shapes, 0.0)
    trainer = trainer_of(opened, laid_out(ours))
    command = [sys.executable, "-m", "tests_gpu.rollout", server.address, way, str(path)]
    where = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=where) as child:
        assert json.loads(child.stdout.readline()) == "ready"
        for version in (1, 2):
            for tensor in ours.values():
                tensor.uniform_()
            trainer.publish(version)
            child.stdin.write(f"{version}\n")
            child.stdin.flush()
            answer = json.loads(child.stdout.readline())
            assert answer["digest"] == digest(ours) and answer["way"] == way
            assert answer["verified"] == answer["bytes"] == sum(t.nbytes for t in ours.values())
            trainer.unpublish()
        child.stdin.close()
        assert child.wait(SOON) == 0


# Tensors that are made of whole ones before they are published


class Projections(nn.Module):
    """Two layers of a base, with a LoRA adapter of the first projection."""

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        torch.manual_seed(2)
        names = {"q": (hidden, hidden), "k": (hidden, hidden), "a": (8, hidden), "b": (hidden, 8)}
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: nn.Parameter(torch.randn(shape)) for name, shape in names.items()})
            for _ in range(6)
        )
        self.norm = nn.Parameter(torch.randn(hidden))


def merged(q: torch.Tensor, k: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cat([q + b @ a, k]).to(torch.bfloat16)


MERGED = wct.recipe("layers.*.qk", [f"layers.*.{name}" for name in "qkab"], merged)


def plainly(model: Projections, n: int) -> torch.Tensor:
    layer = model.layers[n]
    return merged(*(layer[name].detach() for name in "qkab")).cpu()


def test_what_recipes_make_on_a_gpu_is_published_when_it_is_there(opened):
    """Weights that a kernel of another stream changes until the last moment, two versions."""
    model = Projections().cuda()
    source = wct.gathered(model, [MERGED])
    layout = source.layout()
    assert all(host.is_pinned() for planned in source._planned for host in planned.host)
    trainer, rollout = trainer_of(opened, layout), opened("rollout")
    theirs = {f"layers.{n}.qk": torch.zeros(512, 256, dtype=torch.bfloat16) for n in range(6)}
    theirs["norm"] = torch.zeros(256)
    rollout.register(laid_out(theirs))
    stream = torch.cuda.Stream()
    for version in (1, 2):
        with torch.cuda.stream(stream), torch.no_grad():
            torch.cuda._sleep(200_000_000)
            for p in model.parameters():
                p += version
            trainer.publish(version)
        rollout.update(version, deadline=SOON)
        torch.cuda.synchronize()
        for n in range(6):
            assert torch.equal(theirs[f"layers.{n}.qk"], plainly(model, n)), (version, n)
        assert torch.equal(theirs["norm"], model.norm.detach().cpu())
        trainer.unpublish()


def test_a_transform_ends_when_its_kernels_do():
    """What has been queued behind a long kernel is not there yet, and is not copied yet."""
    model = Projections().cuda()

    def late(q: torch.Tensor) -> torch.Tensor:
        made = torch.zeros_like(q)
        if q.is_cuda:
            torch.cuda._sleep(200_000_000)
        return made.copy_(q)

    source = wct.gathered(model, [wct.recipe("layers.*.late", "layers.*.q", late)])
    source.refresh()
    for n, planned in enumerate(source._planned):
        assert torch.equal(planned.host[0], model.layers[n]["q"].detach().cpu())


@pytest.mark.parametrize("tensors", [1, 2, 4])
def test_memory_of_the_gpu_stays_within_the_budget(tensors):
    """By the CUDA allocator's own count; the last budget is used, so that it is what holds the first ones back."""
    model = Projections(1024).cuda()
    one = wct.gathered(model, [MERGED])._planned[0].item(list(map(model.layers[0].__getitem__, "qkab"))).peak
    source = wct.gathered(model, [MERGED], budget=tensors * one)
    source.refresh()  # cuBLAS takes its workspace once
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    source.refresh()
    taken = torch.cuda.max_memory_allocated() - before
    # The allocator counts in blocks of 512 bytes.
    assert 0 < taken <= tensors * one + 64 * 512, f"{taken} bytes, {tensors} tensors of {one} allowed"
    assert source.peak <= tensors * one
