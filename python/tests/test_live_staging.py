"""Published bytes that a live engine holds in another form."""

import pytest

torch = pytest.importorskip("torch")

from weightcast.adapters.boxes.pieces import ParameterPiece  # noqa: E402
from weightcast.adapters.boxes.strides import Box  # noqa: E402
from weightcast.adapters.live.staging import Staged  # noqa: E402


def test_each_type_of_the_loader_is_gone_through() -> None:
    """The engine's own loader casts twice, and a value that the type between cannot hold does not come back."""
    parameter = torch.zeros(4)
    piece = ParameterPiece("w", (3,), Box((0,), (3,)), Box((1,), (3,)))
    staged = Staged(piece, parameter, (torch.float32, torch.float16, torch.float32), ((0, 0),))
    staged.allocate().copy_(torch.tensor([1.0, 2049.0, 1e6]))
    staged.convert()
    assert parameter.tolist() == [0.0, 1.0, 2048.0, float("inf")]


def test_a_transposed_piece_lies_where_the_loader_puts_it() -> None:
    parameter = torch.zeros(3, 3)
    piece = ParameterPiece("w", (2, 3), Box((0, 0), (2, 3)), Box((0, 1), (3, 2)))
    staged = Staged(piece, parameter, (torch.float32,), ((0, 1), (1, 0)))
    source = torch.arange(6.0).reshape(2, 3)
    staged.allocate().copy_(source)
    staged.convert()
    assert torch.equal(parameter[:, 1:], source.T)
    assert not parameter[:, 0].any()


def test_memory_of_a_piece_stays_where_it_is_and_is_not_needed_before() -> None:
    """A layout that is made again is of the memory that was registered; what has none yet has nothing to convert."""
    parameter = torch.zeros(3)
    piece = ParameterPiece("w", (3,), Box((0,), (3,)), Box((0,), (3,)))
    staged = Staged(piece, parameter, (torch.float16, torch.float32), ((0, 0),))
    staged.convert()
    assert not parameter.any()
    memory = staged.allocate()
    assert staged.allocate() is memory is staged.allocate(on_host=True) and memory.dtype == torch.float16
    device = Staged(piece, torch.empty(3, device="meta"), (torch.float32,), ((0, 0),))
    assert device.allocate().device.type == "meta", "where the parameter is"
    device.memory = None
    assert device.allocate(on_host=True).device.type == "cpu"
