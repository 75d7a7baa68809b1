"""The watch finds every full projection, and nothing that is not one."""

import pytest

torch = pytest.importorskip("torch")

from weightcast.examples.rl_loop.allocation import (  # noqa: E402
    AllocationWatch,
    FullTensor,
    full_shapes,
)
from weightcast.examples.rl_loop.engine import TPEngine  # noqa: E402
from weightcast.examples.rl_loop.settings import Settings  # noqa: E402

CONFIG = Settings().model


def watched(rank=0, size=2):
    watch = AllocationWatch(CONFIG)
    with watch:
        engine = TPEngine(CONFIG, rank, size)
        watch.settle(engine)
    return watch, engine


@pytest.mark.parametrize("size", [2, 4])
def test_an_engine_of_shards_passes(size):
    watch, engine = watched(size=size)
    with watch:
        for tensor, _ in engine.parts():
            tensor.t() if tensor.dim() == 2 else tensor + 1
    assert watch.tensors_seen > 0
    assert watch.largest_shard == (2 * CONFIG.intermediate_size // size, CONFIG.hidden_size)


@pytest.mark.parametrize("shape", full_shapes(CONFIG))
def test_each_full_projection_is_found(shape):
    watch, _ = watched()
    with watch, pytest.raises(FullTensor, match="full shape of"):
        torch.empty(shape)


def test_a_flat_staging_buffer_is_found():
    watch, _ = watched()
    with watch, pytest.raises(FullTensor):
        torch.empty(2 * CONFIG.intermediate_size * CONFIG.hidden_size)


def test_a_gathered_projection_is_found():
    watch, engine = watched()
    shard = engine.layers[0].mlp.down_proj
    with watch, pytest.raises(FullTensor, match="down_proj"):
        torch.cat([shard, shard], dim=1)


def test_a_full_tensor_made_before_the_engine_is_found():
    watch = AllocationWatch(CONFIG)
    with watch:
        torch.zeros(CONFIG.intermediate_size, CONFIG.hidden_size)
        with pytest.raises(FullTensor, match="gate_proj"):
            watch.settle(TPEngine(CONFIG, 0, 2))


def test_a_whole_engine_is_refused():
    watch = AllocationWatch(CONFIG)
    with watch, pytest.raises(FullTensor, match="is whole on rank 0"):
        watch.settle(TPEngine(CONFIG))


def test_a_parameter_outside_the_layout_is_refused():
    watch, engine = watched()
    engine.extra = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(FullTensor, match="extra is registered, but no shard"):
        watch.settle(engine)
