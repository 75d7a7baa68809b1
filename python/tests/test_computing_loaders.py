"""Loaders that do more than copy: what they compute is left to them, and what cannot be is refused."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
from weightcast.adapters.catalog import Entry, catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live.read import read  # noqa: E402
from weightcast.adapters.recording.kept import keeping  # noqa: E402
from weightcast.testing import Checkpoint, conform  # noqa: E402

#: What a loader does with a published tensor, by name.
Loads = dict[str, Callable[[nn.Module, torch.Tensor], object]]


class Toy(nn.Module):
    """Parameters of these shapes and types, and a loader."""

    def __init__(self, loads: Loads, **parameters: torch.Tensor) -> None:
        super().__init__()
        self.loads = loads
        for name, like in parameters.items():
            memory = torch.full(like.shape, 7, dtype=like.dtype)
            setattr(self, name, nn.Parameter(memory, requires_grad=False))

    def load_weights(self, weights) -> None:
        for name, tensor in weights:
            self.loads[name](self, tensor)


class Engine:
    """One rank of a toy, under the kit's protocol."""

    ranks = 1

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self._make = make

    def build(self, rank: int) -> nn.Module:
        return self._make()

    def read(self, rank: int, model: nn.Module, catalog) -> LiveLayout:
        return live(model, catalog)

    def load(self, rank: int, model: nn.Module, tensors) -> None:
        model.load_weights(tensors)

    def state(self, rank: int, model: nn.Module) -> dict[str, torch.Tensor]:
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def live(model: nn.Module, catalog) -> LiveLayout:
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    return read(parameters, model.load_weights, catalog, memory=buffers, unused={}, unsourced={})


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def conforms(make: Callable[[], nn.Module], **published: torch.Tensor) -> LiveLayout:
    """Passes the kit; returns what was read."""
    conform(Engine(make), Checkpoint(published), seed=1)
    return live(make(), catalog_of({n: (t.shape, t.dtype) for n, t in published.items()}))


def negative_exponential(model: nn.Module, tensor: torch.Tensor) -> None:
    """As vLLM's loaders of state-space models do: in two steps, the second out of the parameter."""
    model.a.data.copy_(tensor[2:6])
    model.a.data.copy_(-torch.exp(model.a.float()))


def in_place(model: nn.Module, tensor: torch.Tensor) -> None:
    own = tensor.clone()
    own.mul_(2)
    model.a.data.copy_(own[2:6])


def through_a_temporary(model: nn.Module, tensor: torch.Tensor) -> None:
    padded = torch.zeros(4)
    padded[:3] = tensor[:3]
    model.a.data.copy_(padded)


@pytest.mark.parametrize(
    "how",
    [
        negative_exponential,
        in_place,
        through_a_temporary,
        lambda m, t: m.a.data.copy_(-torch.exp(t.float())[2:6]),
        lambda m, t: m.a.data.copy_(t[2:6].float() * torch.arange(4)),
        lambda m, t: m.a.data.fill_(t.float().max()),
        lambda m, t: m.a.data.copy_(torch.cat([t[:2], 2 * t[2:4]])),
    ],
)
def test_what_a_loader_computes_it_computes_after_an_update(how: Callable) -> None:
    made = conforms(lambda: Toy({"a_log": how}, a=torch.zeros(4)), a_log=bf16(8))
    assert list(made.whole) == ["a_log"]
    with pytest.raises(wc.Misuse, match=r"a: a copy, which computes other values \(aten::\w+"):
        made.layout()


def test_all_that_is_computed_with_goes_to_the_loader() -> None:
    class Sum(Toy):
        def load_weights(self, weights) -> None:
            given = dict(weights)
            if "left" in given:
                self.both.data.copy_(given["left"] + given["right"])
                self.left.data.copy_(given["left"])
            if "other" in given:
                self.other.data.copy_(given["other"])

    published = {"left": bf16(4), "right": bf16(4), "other": bf16(4)}
    made = conforms(lambda: Sum({}, both=bf16(4), left=bf16(4), other=bf16(4)), **published)
    assert list(made.whole) == ["left", "right"]
    assert [p.tensor for record in made.records for p in record.pieces] == ["other"]


def test_a_loader_that_needs_more_than_arrives_whole_is_refused() -> None:
    class Biased(Toy):
        def load_weights(self, weights) -> None:
            given = dict(weights)
            self.weight.data.copy_(given["weight"].exp())
            if "bias" in given:
                self.bias.data.copy_(given["bias"])
            else:
                self.bias.data.zero_()

    model = Biased({}, weight=bf16(4), bias=bf16(4))
    with pytest.raises(wc.Misuse, match="bias: its loader does not fill it as it did .* only weight"):
        live(model, {"weight": Entry((4,), "BF16"), "bias": Entry((4,), "BF16")})


def partly(model: nn.Module, tensor: torch.Tensor) -> None:
    model.a.data[:2].copy_(tensor[:2])
    model.a.data.copy_(torch.exp(model.a))


def filled_first(model: nn.Module, tensor: torch.Tensor) -> None:
    model.a.data.zero_()
    if not model.a.any():
        model.a.data.copy_(tensor[:4])


@pytest.mark.parametrize("how", [partly, filled_first])
def test_what_was_there_before_is_not_computed_with(how: Callable) -> None:
    with pytest.raises(wc.Misuse, match=r"a: its loader reads it \(aten::\w+\) before it has filled"):
        live(Toy({"a": how}, a=torch.zeros(4)), {"a": Entry((8,), "F32")})


def test_a_loader_that_makes_parameters_is_refused_and_undone() -> None:
    def loads(model: nn.Module, tensor: torch.Tensor) -> None:
        model.a.data.copy_(tensor)
        model.bias = nn.Parameter(tensor[:2], requires_grad=False)

    model = Toy({"a": loads}, a=torch.zeros(4))
    with pytest.raises(wc.Misuse, match="bias: the loader makes or replaces this part of the model"):
        read(
            dict(model.named_parameters()), keeping(model), {"a": Entry((4,), "F32")},
            unused={}, unsourced={},
        )
    assert [name for name, _ in model.named_parameters()] == ["a"]


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3"])
def test_types_that_torch_has_no_elements_of_are_refused(dtype: str) -> None:
    model = Toy({"a": lambda m, t: m.a.data.copy_(t)}, a=torch.zeros(4))
    with pytest.raises(wc.Misuse, match=f"a: torch has no tensors whose elements are {dtype}"):
        live(model, {"a": Entry((4,), dtype)})


def test_parameters_of_types_that_nobody_publishes_are_refused() -> None:
    model = Toy({"a": lambda m, t: m.a.data.copy_(t)}, a=torch.zeros(4, dtype=torch.complex64))
    with pytest.raises(wc.Misuse, match="a: torch.complex64 is no type that can be published"):
        live(model, {"a": Entry((4,), "F32")})


def test_constants_are_put_in_place_once() -> None:
    def loads(model: nn.Module, tensor: torch.Tensor) -> None:
        model.bias.data[:2].copy_(tensor)
        model.bias.data[2:].copy_(torch.full((4,), 3.0).to(torch.bfloat16)[1:3])

    made = conforms(lambda: Toy({"bias": loads}, bias=bf16(4)), bias=bf16(2))
    assert not made.whole


def test_a_constant_that_was_changed_is_none() -> None:
    def loads(model: nn.Module, tensor: torch.Tensor) -> None:
        model.bias.data[:2].copy_(tensor)
        changed = torch.zeros(2, dtype=torch.bfloat16)
        changed[0] = 1
        model.bias.data[2:].copy_(changed)

    with pytest.raises(wc.Misuse, match="bias: its loader writes something"):
        live(Toy({"bias": loads}, bias=bf16(4)), {"bias": Entry((2,), "BF16")})


@pytest.mark.parametrize("numbers", [[2, 3], [1, 3], [3, 0, 1], [-1, 0], [False, True, False, True]])
def test_slices_are_picked_by_their_numbers(numbers: list) -> None:
    def loads(model: nn.Module, tensor: torch.Tensor) -> None:
        chosen = torch.tensor(numbers).to(tensor.device)
        assert int(chosen[0].item()) == numbers[0]
        picked = tensor.transpose(1, 2)[chosen]
        model.experts.data[:, :2].copy_(picked.narrow(1, 0, 2))
        model.experts.data[:, 2:].copy_(picked.narrow(1, 2, 3))
        model.others.data.copy_(tensor.index_select(0, torch.tensor(others)))

    others = [n for n in range(4) if n not in torch.arange(4)[torch.tensor(numbers)]]
    rows = 4 - len(others)

    def make() -> Toy:
        return Toy({"experts": loads}, experts=bf16(rows, 5, 3), others=bf16(len(others), 3, 5))

    made = conforms(make, experts=bf16(4, 3, 5))
    assert not made.whole and {c.how for c in made.conversions} == {"transpose"}


def test_parameters_without_dimensions() -> None:
    def loads(model: nn.Module, tensor: torch.Tensor) -> None:
        model.scale.data.copy_(tensor.view(()))

    for shape in ((), (1,)):
        made = conforms(lambda: Toy({"scale": loads}, scale=bf16()), scale=bf16(*shape))
        assert not made.conversions


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 4, 1)])
def test_dimensions_of_length_one_do_not_count(shape: tuple[int, ...]) -> None:
    made = conforms(lambda: Toy({"a": lambda m, t: m.a.data.copy_(t.squeeze())}, a=bf16(4)), a=bf16(*shape))
    assert not made.conversions


def test_a_buffer_may_be_a_view_of_a_parameter() -> None:
    class Viewing(Toy):
        def __init__(self) -> None:
            super().__init__({"conv": lambda m, t: m.conv.data.copy_(t)}, conv=bf16(4, 1, 3))
            self.register_buffer("flat", self.conv.data.view(4, 3), persistent=False)

    made = conforms(Viewing, conv=bf16(4, 1, 3))
    assert [record.name for record in made.records] == ["conv"]
    assert made.unsourced == {"flat": "a view of conv"}
