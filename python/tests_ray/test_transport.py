"""References of Ray to tensors, carried by weightcast."""

import time

import pytest
import ray
import torch
from ray.experimental import set_target_for_ref

import weightcast as wc
import weightcast.adapters.ray as wcr

from .actors import status

pytestmark = pytest.mark.usefixtures("one_node")


class Source:
    def __init__(self) -> None:
        self.kept = torch.arange(5000, dtype=torch.float32)

    def several(self) -> list[torch.Tensor]:
        torch.manual_seed(0)
        odd = torch.randn(7, 3, dtype=torch.float64)[:, 1]  # not contiguous
        return [
            torch.randn(50, 20),
            odd,
            torch.tensor(7),
            torch.empty(0, 4),
            torch.tensor([True, False]),
            torch.randn(9).bfloat16(),
        ]

    def of_mine(self) -> torch.Tensor:
        return self.kept

    def change(self) -> None:
        self.kept += 1

    def none(self) -> list[torch.Tensor]:
        return []


class Sink:
    def sums(self, tensors: list[torch.Tensor]) -> list[tuple]:
        return [(tuple(each.shape), str(each.dtype), each.double().sum().item()) for each in tensors]

    def metrics(self) -> dict:
        return wc.metrics()


@pytest.fixture(scope="module")
def actors(one_node):
    wcr.register_transport()
    wcr.register_transport()  # again does nothing
    carried = ray.method(tensor_transport="weightcast")
    for name in ("several", "of_mine", "none"):
        setattr(Source, name, carried(getattr(Source, name)))
    kind = {"num_cpus": 0, "enable_tensor_transport": True}
    return ray.remote(**kind)(Source).remote(), ray.remote(**kind)(Sink).remote()


def objects() -> int:
    return sum(model["name"].startswith("ray/") for model in status()["models"])


def test_an_actor_gets_what_another_returned(actors):
    source, sink = actors
    here = Source().several()
    expected = [(tuple(each.shape), str(each.dtype), each.double().sum().item()) for each in here]
    before = ray.get(sink.metrics.remote())
    ref = source.several.remote()
    assert ray.get(sink.sums.remote(ref)) == expected
    # The bytes went through weightcast: its figures count them.
    after = ray.get(sink.metrics.remote())
    moved = sum(
        after.get(name, 0) - before.get(name, 0)
        for name in ("weightcast/bytes_direct", "weightcast/bytes_tcp")
    )
    assert moved == sum(each.nbytes for each in here)


def test_tensors_are_published_as_long_as_there_is_a_reference(actors):
    source, sink = actors
    one, other = source.of_mine.remote(), source.of_mine.remote()  # one tensor, two objects
    expected = torch.arange(5000, dtype=torch.float32)
    buffer = torch.zeros(5000)
    set_target_for_ref(one, [buffer])
    assert ray.get(one).data_ptr() == buffer.data_ptr() and torch.equal(buffer, expected)
    assert torch.equal(ray.get(other), expected)
    assert ray.get(sink.sums.remote([])) == ray.get(sink.sums.remote(source.none.remote())) == []
    assert objects() == 2
    del one, other
    end = time.monotonic() + 30.0
    while objects():
        assert time.monotonic() < end, "they are still published"


def test_a_source_that_changes_what_is_published_is_told_of(actors):
    source, _ = actors
    ref = source.of_mine.remote()
    ray.get(ref)
    ray.get(source.change.remote())
    with pytest.raises(Exception, match="DigestMismatch|digest"):
        ray.get(ref)


def test_a_source_that_is_lost_is_told_of(actors):
    source = ray.remote(num_cpus=0, enable_tensor_transport=True)(Source).remote()
    ref = source.of_mine.remote()
    ray.get(ref)
    ray.kill(source)
    with pytest.raises(Exception, match="lost|not available|died"):
        ray.get(ref)
