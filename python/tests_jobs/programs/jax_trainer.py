"""One process of a JAX job with four devices: trains a tree of arrays with donation, and publishes each step.

Arguments: process, number of processes, the server, and a port at which the processes find each other.
"""

import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import weightcast as wc
import weightcast.jax as wcj

DEADLINE = 60.0
STEPS = 2
NAMES = wc.NameMap(
    {
        "layers.mlp.kernel": ("layers.{expert}.gate.weight", "layers.{expert}.up.weight"),
        "norm.scale": "norm.weight",
        "out.kernel": "out.weight",
    }
)
TRANSPOSED = ("out.weight",)


def host_tree(steps: int) -> dict[str, Any]:
    """The arrays after so many steps, whole."""
    drawn = np.random.default_rng(5)

    def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
        made = drawn.standard_normal(shape).astype(dtype)
        for step in range(steps):
            made = (made + np.asarray(step + 1, dtype)).astype(dtype)
        return made

    return {
        "embed": array(8, 16, dtype=ml_dtypes.bfloat16),
        "layers": {"mlp": {"kernel": array(4, 8, 12)}},
        "norm": {"scale": array(12)},
        "out": {"kernel": array(8, 16)},
        "steps": np.asarray(steps, np.int32),
    }


def expected(steps: int) -> dict[str, np.ndarray]:
    """What engines are to hold."""
    tree = host_tree(steps)
    found = {"embed": tree["embed"], "norm.weight": tree["norm"]["scale"], "steps": tree["steps"]}
    found["out.weight"] = np.ascontiguousarray(tree["out"]["kernel"].T)
    for layer, kernel in enumerate(tree["layers"]["mlp"]["kernel"]):
        found[f"layers.{layer}.gate.weight"], found[f"layers.{layer}.up.weight"] = kernel[:4], kernel[4:]
    return found


#: How each array of the tree is cut, for each way of sharding, over dimensions of the mesh.
SHARDINGS = {
    "tensor": {"embed": P("model"), "layers": P(None, None, "model"), "norm": P(), "out": P(None, "model"), "steps": P()},
    "fsdp": {"embed": P("data"), "layers": P(None, "data", "model"), "norm": P("data"), "out": P("data", "model"), "steps": P()},
    "experts": {"embed": P(), "layers": P(("data", "model")), "norm": P(), "out": P(("model", "data")), "steps": P()},
}

#: How many copies of each there are by the number of processes: the mesh's first dimension goes over processes.
COPIES = {"tensor": {1: 1, 2: 2}, "fsdp": {1: 1, 2: 1}, "experts": {1: 1}}


def place(mesh: Mesh, specs: dict[str, P]) -> Any:
    """The tree on the devices of all processes."""

    def put(path: Any, array: np.ndarray) -> Any:
        sharding = NamedSharding(mesh, specs[path[0].key])
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree_util.tree_map_with_path(put, host_tree(0))


def train(job: str, mesh: Mesh, copies: int, server: str) -> None:
    """Publishes each step; the arrays are gone before engines have come."""
    params = place(mesh, SHARDINGS[job])
    advance = jax.jit(
        lambda tree, by: jax.tree.map(lambda x: x + by.astype(x.dtype), tree), donate_argnums=0,
        out_shardings=jax.tree.map(lambda x: x.sharding, params),
    )  # fmt: skip
    me = wcj.replica("trainer", params, spot=True)
    assert me.num_shards == jax.process_count() // copies and (me.name == "trainer") == (copies == 1) and me.spot
    layout = wcj.layout(lambda: params, names=NAMES, transpose=TRANSPOSED, expect={n: (a.shape, a.dtype) for n, a in expected(0).items()})
    with wc.open(job, me, role="trainer", server=server, deadline=DEADLINE) as handle:
        handle.register(layout, deadline=DEADLINE)
        for version in range(1, STEPS + 1):
            params = advance(params, jnp.asarray(version))
            params["steps"] = place(mesh, SHARDINGS[job])["steps"] + version
            handle.publish(version, seal=True, deadline=DEADLINE)
            kept, params = params, jax.tree.map(lambda x: x + 0, params)
            advance(kept, jnp.asarray(100))
            handle.wait(lambda held, v=version: f"done-{v}" in held.get(v, ()), deadline=DEADLINE)
            handle.unpublish(deadline=DEADLINE)


def main(process: str, processes: str, server: str, port: str) -> None:
    if int(processes) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    shape = (2, 2) if int(processes) == 1 else (int(processes), 4)
    mesh = jax.make_mesh(shape, ("data", "model"))
    for job, copies in COPIES.items():
        if int(processes) in copies:
            train(job, mesh, copies[int(processes)], server)


if __name__ == "__main__":
    main(*sys.argv[1:])
