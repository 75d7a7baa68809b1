"""LoRA adapters without vLLM: what their trainer publishes, and what it asks of engines."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import weightcast as wc
from weightcast.adapters.engine import EngineState

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.engine.adapter import BASE, CONFIG, Adapter, carried, memory_for  # noqa: E402
from weightcast.adapters.engine.http import Refused  # noqa: E402
from weightcast.adapters.engine.sources import source_of  # noqa: E402
from weightcast.adapters.engine.trainer import Publisher, TrainerSettings  # noqa: E402
from weightcast.adapters.vllm import HTTPEngine, LocalEngine  # noqa: E402
from weightcast.adapters.vllm.local import number_of  # noqa: E402
from weightcast.adapters.vllm.lora.client import Slot  # noqa: E402
from weightcast.adapters.vllm.lora.paths import AdapterPath, parsed  # noqa: E402
from weightcast.adapters.vllm.turns import Turn  # noqa: E402

SAVED = "base_model.model.model.layers.0.q_proj.lora_{}.weight"


class Config:
    """As peft's: sets, and enums that are strings."""

    def to_dict(self) -> dict:
        return {"r": 2, "lora_alpha": 4, "target_modules": {"v_proj", "q_proj"}, "peft_type": "LORA"}


class Layer(nn.Module):
    """A linear layer with the adapters `default` and `other`, as peft wraps it."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(4, 4, bias=False).requires_grad_(False)
        self.lora_A = nn.ModuleDict({name: nn.Linear(4, 2, bias=False) for name in ("default", "other")})
        self.lora_B = nn.ModuleDict({name: nn.Linear(2, 4, bias=False) for name in ("default", "other")})


class Peft(nn.Module):
    """With the names that peft gives."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Module()
        layer.q_proj = Layer()
        inner, outer, base = nn.Module(), nn.Module(), nn.Module()
        inner.layers = nn.ModuleList([layer])
        outer.model, base.model = inner, outer
        self.base_model = base
        self.peft_config = {"default": Config(), "other": Config()}


def names() -> set[str]:
    return {SAVED.format("A"), SAVED.format("B")}


def test_an_adapter_has_the_names_under_which_peft_saves_it() -> None:
    adapter = Adapter(Peft(), base=3)
    assert set(adapter.tensors()) == names()
    assert adapter.config()["target_modules"] == ["q_proj", "v_proj"]
    other = Adapter(adapter.model, name="other").tensors()
    assert set(other) == names()
    assert other[SAVED.format("A")] is adapter.model.base_model.model.model.layers[0].q_proj.lora_A["other"].weight
    # A name that is a module's too.
    named = "base_model.model.model.layers.0.q_proj.lora_A.model.weight"
    assert Adapter(adapter.model, name="model").saved_name(named) == SAVED.format("A")
    assert Adapter(adapter.model, name="model").saved_name(named.replace("lora_A.model", "lora_A.other")) is None


def test_what_is_trained_beside_the_adapter_is_an_error() -> None:
    model = Peft()
    model.base_model.model.head = nn.Linear(4, 4)
    with pytest.raises(wc.Misuse, match="head.weight is trained, and is no part"):
        source_of(Adapter(model), 0).catalog()
    with pytest.raises(wc.Misuse, match="no adapter 'third'"):
        Adapter(Peft(), name="third").config()


def test_what_arrives_is_what_was_published() -> None:
    adapter = Adapter(Peft(), base=3)
    source = source_of(adapter, 0)
    memory = memory_for(source.catalog())
    with wc.serve() as server:
        trainer = wc.open("one", wc.Replica("t"), role="trainer", epoch="new", server=server.address)
        rollout = wc.open("one", wc.Replica("r"), server=server.address)
        with trainer, rollout:
            trainer.register(source.layout())
            landing = wc.Layout()
            for name, tensor in memory.items():
                landing.add(tensor, name)
            rollout.register(landing)
            for version, base in enumerate((3, None, 4), 1):
                adapter.base = base
                source.refresh()
                with trainer.published(version):
                    assert rollout.update().changed
                found = carried(memory)
                assert found.base == base and found.config["r"] == 2
                assert set(found.tensors) == names()
                for name, tensor in adapter.tensors().items():
                    assert torch.equal(found.tensors[name], tensor)


def test_another_model_is_no_adapter() -> None:
    catalog = source_of(Adapter(Peft()), 0).catalog()
    del catalog[CONFIG]
    with pytest.raises(wc.LayoutMismatch, match="no LoRA adapter: it has no weightcast.adapter_config"):
        memory_for(catalog)
    assert BASE in catalog


def test_paths() -> None:
    for name in ("policy-lora", "a/b", "a b"):
        path = AdapterPath(name, "0a1b", 12)
        assert parsed(str(path)) == path
    assert parsed("/a/directory") is None and parsed("org/model") is None
    for wrong in ("weightcast://", "weightcast://one", "weightcast://one/run/x", "weightcast:///run/1"):
        with pytest.raises(ValueError, match="names no version of an adapter"):
            parsed(wrong)


def test_numbers_fit_where_vllm_keeps_them() -> None:
    numbers = {number_of(f"adapter-{at}") for at in range(1000)}
    assert len(numbers) == 1000
    assert all(1 << 30 <= number < 1 << 31 for number in numbers)


def test_an_engine_of_this_program_forgets_what_it_computed() -> None:
    """A program may have kept the `lora_request` of a former version, by whose path vLLM would find that."""
    calls: list[str] = []
    inner = SimpleNamespace(add_lora=lambda request: calls.append("add"))
    engine = LocalEngine(SimpleNamespace(llm_engine=inner, reset_prefix_cache=lambda: calls.append("reset")))
    engine.lora_request = lambda name: None
    engine.load_lora("one", "weightcast://one/run/1")
    engine.unload_lora("one")
    assert calls == ["add", "reset", "reset"]


class Engine:
    """Takes adapters, and notes the calls."""

    def __init__(self, *, fails: str | None = None) -> None:
        self.calls: list[str] = []
        self.paths: list[str] = []
        self.fails = fails
        self.state, self.base = EngineState(None, None, None), EngineState(None, None, None)
        self.is_paused = False
        self.turn = Turn()

    def on_workers(self, method: str, step: str = "", name: str = "", info: dict | None = None) -> list:
        if method == "weightcast_state":
            return [None, vars(self.base)]
        assert method == "weightcast_adapter"
        if step != "state":
            self.calls.append(step)
        if step == self.fails:
            raise RuntimeError(f"{step} fails")
        if step == "fetch":
            self.state = EngineState(self.state.installed, info["version"], None)
        return [vars(self.state)] * 2

    def load_lora(self, name: str, path: str) -> None:
        self.calls.append("load")
        if self.fails == "load":
            raise RuntimeError("load fails")
        self.paths.append(path)
        self.state = EngineState(self.state.fetched, None, None)

    def unload_lora(self, name: str) -> None:
        self.calls.append("unload")

    def pause(self, mode: str = "abort") -> None:
        self.calls.append("pause")
        self.is_paused = True

    def resume(self) -> None:
        self.calls.append("resume")
        self.is_paused = False

    def paused(self) -> bool:
        return self.is_paused

    def take(self, holder: str, seconds: float) -> None:
        self.turn.take(holder, seconds)

    def give_back(self, holder: str) -> None:
        self.turn.give_back(holder)

    def slot(self, name: str) -> Slot:
        return Slot(self, name)


@pytest.fixture
def server() -> Iterator[str]:
    with wc.serve() as serving:
        yield serving.address


def publisher(server: str, engine: object, name: str = "one") -> Publisher:
    settings = TrainerSettings(server=server, model=name, name=f"trainer-of-{name}")
    return Publisher(settings, rank=0, clients=engine, source=Adapter(Peft()))


def test_an_engine_is_paused_for_the_exchange_alone(server: str) -> None:
    engine = Engine()
    sender = publisher(server, engine)
    sender.send()
    assert engine.calls == ["join", "begin", "fetch", "pause", "load", "resume"]
    sender.send()
    first, second = map(parsed, engine.paths)
    assert (first.version, second.version) == (1, 2) and first.run == second.run
    # Another trainer's version 1 is another one: vLLM would find what it computed with the first.
    sender.close()
    publisher(server, engine).send()
    assert parsed(engine.paths[-1]).version == 1 and engine.paths[-1] != engine.paths[0]


@pytest.mark.parametrize(("step", "calls"), [("fetch", ["begin", "fetch"]), ("load", None)])
def test_a_failure_leaves_the_engine_resumed(server: str, step: str, calls: list | None) -> None:
    engine = Engine(fails=step)
    sender = publisher(server, engine)
    with pytest.raises((RuntimeError, wc.WeightcastError), match=f"{step} fails"):
        sender.send()
    assert engine.calls[1:] == (calls or ["begin", "fetch", "pause", "load", "load", "resume"])


def test_unloading_refuses_new_requests_first() -> None:
    engine = Engine()
    engine.slot("one").unload()
    assert engine.calls == ["unload", "pause", "drop", "resume"]


def test_unloading_leaves_a_paused_engine_paused() -> None:
    engine = Engine()
    engine.is_paused = True
    engine.slot("one").unload()
    assert engine.calls == ["unload", "drop"]


def test_an_engine_whose_base_is_incomplete_is_not_resumed(server: str) -> None:
    engine = Engine()
    sender = publisher(server, engine)
    engine.base = EngineState(1, None, "half of two versions")
    sender.send()
    assert engine.calls[-1] == "load"


def test_trainers_of_one_engine_take_turns(server: str) -> None:
    engine = Engine()
    one, two = publisher(server, engine, "one"), publisher(server, engine, "two")

    def meanwhile(name: str, path: str) -> None:
        with pytest.raises(wc.WeightcastError, match="another update of this engine is under way .trainer of one.; try again"):
            two.send()
        assert engine.is_paused, "by one"
        Engine.load_lora(engine, name, path)

    engine.load_lora = meanwhile
    one.send()
    assert not engine.is_paused
    del engine.load_lora
    two.send()


def test_a_turn_ends_with_its_trainer() -> None:
    turn = Turn()
    turn.take("one", 30)
    turn.take("one", 0.0)  # started again
    turn.take("two", 30)
    turn.give_back("one")
    with pytest.raises(wc.Misuse, match="under way .two."):
        turn.take("one", 30)
    turn.give_back("two")
    turn.take("one", 30)


def test_unloading_goes_on_where_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HTTPEngine("http://127.0.0.1:1")
    asked: list[str] = []

    def answers(method: str, path: str, body: dict | None = None) -> dict:
        asked.append(path)
        if path.startswith("v1/unload"):
            raise Refused(path, 404, "The lora adapter 'one' cannot be found.")
        return {"results": [], "is_paused": False}

    monkeypatch.setattr(engine, "ask", answers)
    engine.slot("one").unload()
    assert "collective_rpc" in asked and "resume" in asked


def test_a_client_without_slots_is_refused(server: str) -> None:
    with pytest.raises(wc.Misuse, match="takes no adapters; use HTTPEngine"):
        publisher(server, object())
