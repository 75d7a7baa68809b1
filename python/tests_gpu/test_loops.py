"""Loops of Transformers, Accelerate and Lightning whose model lies on a GPU, sharded by themselves too, and arrays of
JAX that lie there: engines have each step to the bit."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch is on the same GPU

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weightcast as wc
import weightcast.jax as wcj
from tests.conftest import SOON, group, patient_server
from tests.jobs import ranks
from tests_jobs.follow import follow
from tests_jobs.models import STEPS
from tests_jobs.programs import loops
from tests_jobs.test_loops import free_port

__all__ = ["group", "patient_server"]


@pytest.fixture
def server(patient_server):
    return patient_server


@pytest.mark.parametrize("loop", loops.GPU_LOOPS)
def test_engines_follow_a_loop_on_the_gpu(group, server, tmp_path, loop):
    with ranks(loops, 1, loop, server.address, str(tmp_path), str(free_port()), DEVICE="cuda"):
        follow(group, tmp_path, loop, list(range(STEPS + 1)), {"trainer"})


def test_arrays_of_jax_on_the_gpu_are_published_and_then_donated(group, server):
    gpu = jax.devices("gpu")[0]
    params = {"w": jax.device_put(jnp.arange(6.0).reshape(2, 3), gpu), "b": jax.device_put(jnp.ones(4, jnp.bfloat16), gpu)}
    advance = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    trainer = group("trainer", [wcj.layout(lambda: params)], role="trainer")[0]
    memory = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.uint16)}
    layout = wc.Layout().add(memory["w"], "w").add(memory["b"], "b", dtype="BF16")
    rollout = group("rollout", [layout])[0]
    for version in (1, 2):
        params = advance(params)
        wanted = {name: np.asarray(array) for name, array in params.items()}
        trainer.publish(version, deadline=SOON)
        params = advance(params)  # what was published is gone on the GPU
        rollout.update(version, deadline=SOON)
        assert (memory["w"] == wanted["w"]).all() and (memory["b"] == wanted["b"].view(np.uint16)).all()
        trainer.unpublish(deadline=SOON)
