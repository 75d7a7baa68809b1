"""Which storages stand for what, as a loader's steps change that."""

import pytest

torch = pytest.importorskip("torch")

from weightcast.adapters.recording.marked import Marked  # noqa: E402 needs torch
from weightcast.adapters.recording.marks import Mark  # noqa: E402
from weightcast.adapters.recording.owners import view  # noqa: E402


@pytest.mark.parametrize("again", ["put", "same", "uniform"])
def test_a_joined_tensor_that_is_made_anew_is_joined_no_more(again: str) -> None:
    marked = Marked()
    parts = [torch.zeros(2), torch.ones(3)]
    marks = [Mark(name, view(part), (part.dtype,)) for name, part in zip("ab", parts, strict=True)]
    for part, mark in zip(parts, marks, strict=True):
        marked.put(part, mark)
    made, other = torch.cat(parts), torch.full((5,), 2.0)
    whole = Mark("c", view(other), (other.dtype,))
    marked.put(other, whole)
    marked.put(made, marks[0])
    marked.join(made, parts, 0)
    assert [mark.tensor for mark, _, _ in marked.sources(made, marks[0], view(made))] == ["a", "b"]
    match again:
        case "put":
            marked.put(made, whole)
        case "same":
            marked.same(made, other, whole)
        case "uniform":
            marked.changed([made])
            marked.uniform(made)
    assert [mark.tensor for mark, _, _ in marked.sources(made, whole, view(made))] == ["c"]
    assert (marked.constant(made) is None) == (again != "uniform")
