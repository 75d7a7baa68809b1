"""Trees of JAX arrays, on one process and several: engines have each step to the bit."""

import os
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import weightcast as wc
import weightcast.jax as wcj
from tests.conftest import SOON
from tests.jobs import empty_engine, engine_shards, ranks
from tests.test_torch import bits

from .programs import jax_trainer
from .test_loops import free_port

#: Engines by their shards: how tensor parallelism cuts, and how layers lie with one shard each.
CUTS = {"embed": 0, "out.weight": 1, **{f"layers.{layer}.{way}.weight": 1 for layer in range(4) for way in ("gate", "up")}}
ENGINES = {"tp1": (1, {}), "tp2": (2, CUTS), "tp4": (4, CUTS)}


def tensors(steps: int) -> dict[str, torch.Tensor]:
    """What engines are to hold, as tensors of torch."""
    return {name: as_tensor(array) for name, array in jax_trainer.expected(steps).items()}


def as_tensor(array: np.ndarray) -> torch.Tensor:
    kind = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int32": torch.int32}[array.dtype.name]
    return torch.frombuffer(bytearray(array.tobytes()), dtype=kind).reshape(array.shape)


@pytest.mark.parametrize("processes", [1, 2])
def test_each_step_arrives_whole(group, server, processes: int) -> None:
    with ranks(jax_trainer, processes, server.address, str(free_port())):
        for job, copies in jax_trainer.COPIES.items():
            if processes in copies:
                receive(group, job, copies[processes])


def receive(group: Any, job: str, copies: int) -> None:
    """Follows one job with engines of several layouts."""
    names = {f"trainer-{copy}" for copy in range(copies)} if copies > 1 else {"trainer"}
    engines = {}
    for engine, (shards, cuts) in ENGINES.items():
        memories, layouts = empty_engine(tensors(0), shards, cuts)
        engines[engine] = (memories, group(engine, layouts, model=job))
    for version in range(1, jax_trainer.STEPS + 1):
        wanted = tensors(version)
        waiting = engines["tp1"][1][0]
        waiting.wait(lambda held, v=version: names <= held.get(v, set()), deadline=3 * SOON)
        for engine, (memories, members) in engines.items():
            members.all(lambda handle, v=version: handle.update(v, deadline=SOON))
            for memory, shard in zip(memories, engine_shards(wanted, *ENGINES[engine]), strict=True):
                for name, (_, tensor) in shard.items():
                    assert bits(memory[name]) == bits(tensor), (job, engine, name, version)
        group(f"done-{version}", empty_engine(wanted, 1, {})[1], model=job)[0].update(version, deadline=SOON)


def tree() -> dict[str, Any]:
    return {"a": [jnp.arange(6.0).reshape(2, 3)], "b": jnp.ones((4,), jnp.bfloat16)}


def test_names_are_paths(group) -> None:
    params = tree()
    layout = wcj.layout(lambda: params, rename=lambda name: None if name == "b" else f"model.{name}")
    handle = group("trainer", [layout], role="trainer")[0]
    handle.publish(1, seal=True, deadline=SOON)
    assert {n: (e.shape, e.dtype) for n, e in handle.catalog().items()} == {"model.a.0": ((2, 3), "F32")}


def test_what_changes_shape_is_told(group) -> None:
    params = tree()
    handle = group("trainer", [wcj.layout(lambda: params)], role="trainer")[0]
    whole = params
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2]) if len(jax.devices()) > 1 else None
    changed = [("another shape", {**whole, "b": jnp.ones((5,), jnp.bfloat16)}), ("another shape", {**whole, "b": jnp.ones((4,))})]
    changed += [("is not in the tree", {"a": whole["a"]}), ("no array of JAX", {**whole, "b": np.ones(4)})]
    if mesh is not None:
        changed.append(("sharding", {**whole, "b": jax.device_put(whole["b"], NamedSharding(mesh, P("x")))}))
    for said, params in changed:  # noqa: B007  what is published is what the name means then
        with pytest.raises(wc.Misuse, match=said):
            handle.publish(1, deadline=SOON)
    params = whole
    handle.publish(1, seal=True, deadline=SOON)


def test_arrays_that_are_gone_are_told(group) -> None:
    params = tree()
    handle = group("trainer", [wcj.layout(lambda: params)], role="trainer")[0]
    params["b"].delete()
    with pytest.raises(wc.Misuse, match="could not be copied.*deleted"):
        handle.publish(1, deadline=SOON)


def test_what_cannot_be_published_is_named() -> None:
    with pytest.raises(wc.Misuse, match="a is a float and no array"):
        wcj.layout(lambda: {"a": 1.0})
    with pytest.raises(wc.Misuse, match="keys has dtype key<fry>"):
        wcj.layout(lambda: {"keys": jax.random.key(0)})
    with pytest.raises(wc.Misuse, match=r"b has shape \(4,\), and nothing to transpose"):
        wcj.layout(tree, transpose="b")
    with pytest.raises(wc.LayoutMismatch, match="a.0"):
        wcj.layout(tree, expect={"b": ((4,), "BF16")})


def test_it_is_published_and_not_filled(group, server) -> None:
    params = tree()
    trainer = group("trainer", [wcj.layout(lambda: params)], role="trainer")[0]
    trainer.publish(1, seal=True, deadline=SOON)
    rollout = group("rollout", [wcj.layout(tree)])[0]
    with pytest.raises(wc.WeightcastError, match="read-only"):
        rollout.update(deadline=SOON)
    assert wcj.replica("trainer", params) == wc.Replica("trainer")
