"""LoRA adapters of one vLLM worker, without vLLM: what its manager loads after each step, each failure, and each taking back."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc
from weightcast.adapters.catalog import catalog_of
from weightcast.adapters.engine import EngineState, Settings

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

from weightcast.adapters.engine.adapter import BASE, CONFIG, Carried, memory_for  # noqa: E402
from weightcast.adapters.vllm.local import LocalEngine, number_of  # noqa: E402
from weightcast.adapters.vllm.lora import build, slots  # noqa: E402
from weightcast.adapters.vllm.lora.client import Slot  # noqa: E402
from weightcast.adapters.vllm.lora.paths import AdapterPath  # noqa: E402
from weightcast.adapters.vllm.lora.slots import Landing, Slots  # noqa: E402

CATALOG = catalog_of({"a.lora_A.weight": ((2, 2), "F32"), CONFIG: ((13,), "U8"), BASE: ((1,), "I64")})


class Manager:
    """vLLM's manager of a worker: adapters by number."""

    def __init__(self) -> None:
        self.loaded: dict[int, Any] = {}
        self.log: list[Any] = []
        self._adapter_manager = SimpleNamespace(list_adapters=lambda: self.loaded)

    def add_adapter(self, request: Any) -> bool:
        if request.lora_int_id in self.loaded and not getattr(request, "load_inplace", False):
            return False
        self.loaded[request.lora_int_id] = self._load_adapter(request)
        return True

    def _load_adapter(self, request: Any) -> Any:
        self.log.append(("vLLM loads", request.lora_path))
        return SimpleNamespace(path=request.lora_path)

    def remove_adapter(self, number: int) -> None:
        self.log.append(("remove", number))
        self.loaded.pop(number, None)


class Shard:
    """`EngineShard`, which has fetched what a test says."""

    def __init__(self, settings: Any, replica: Any, read: Any, **held: Any) -> None:
        self.settings, self.replica, self.held, self.log = settings, replica, held, []
        self.known, self.state = True, EngineState(held["installed"], None, held["incomplete"])
        self.landing = read(CATALOG)

    def answers(self) -> bool:
        return self.known

    def fetched(self, version: int, base: int | None = 4, value: float = 0.0) -> None:
        """A version arrives: it is looked at before it counts as fetched."""
        memory = self.landing._memory
        memory["a.lora_A.weight"].fill_(value or version)
        memory[CONFIG].copy_(torch.tensor(list(b'{"r":   8   }')))
        memory[BASE].fill_(-1 if base is None else base)
        self.state = EngineState(self.state.installed, None, None)
        self.landing.check()
        self.state = EngineState(self.state.installed, version, None)

    def install(self) -> None:
        self.log.append("install")
        self.landing.check()
        self.state = EngineState(self.state.fetched, None, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *told: self.log.append((name, *told) if told else name)


class Made(SimpleNamespace):
    """vLLM's form of an adapter, good for one load."""


class Rig:
    """A worker's slots, and what each step has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manager, self.base, self.made, self.refused = Manager(), 4, [], None
        monkeypatch.setattr(slots, "EngineShard", Shard)
        monkeypatch.setattr(slots, "lora_model", self.form)
        monkeypatch.setattr(slots, "base_alone", lambda manager, number: Made(base=number))
        self.slots = Slots(self.manager, lambda: self.base)

    def form(self, manager: Any, number: int, adapter: Carried) -> Made:
        assert manager is self.manager
        if self.refused is not None:
            raise self.refused
        self.made.append(number)
        return Made(id=number, value=float(adapter.tensors["a.lora_A.weight"][0, 0]), of=adapter)

    def join(self, name: str = "one", **settings: Any) -> Shard:
        self.slots.join(Settings(model=name, **settings), wc.Replica("r"))
        return self.slots.shard(name)

    def put(self, version: int, name: str = "one", number: int = 9) -> Any:
        return self.slots.put(path(version, name), request(version, name, number))

    def loaded(self, number: int = 9) -> Any:
        """The version and its values, as the manager has them; None for none."""
        made = self.manager.loaded.get(number)
        return made and (str(made.weightcast_path), made.value)


def path(version: int, name: str = "one") -> AdapterPath:
    return AdapterPath(name, "run", version)


def request(version: int, name: str = "one", number: int = 9) -> Any:
    return SimpleNamespace(lora_path=str(path(version, name)), lora_int_id=number, load_inplace=False)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_versions_replace_each_other_whole(rig: Rig) -> None:
    shard = rig.join()
    for version in (1, 2, 3):
        shard.fetched(version)
        assert rig.loaded() == ((str(path(version - 1)), version - 1.0) if version > 1 else None), "what is fetched is beside it"
        take_back = rig.put(version)
        assert rig.loaded() == (str(path(version)), float(version)) and callable(take_back)
        rig.slots.installed(path(version))
        assert shard.log == ["install"] * version and rig.slots.held() == {"one": 4}
        rig.slots.installed(path(version))
        assert len(shard.log) == version, "once"
    assert rig.made == [1, 1, 1], "vLLM's form is made once, when it is looked at"
    assert rig.manager.loaded[9].id == 9, "and loaded under vLLM's number"


def test_a_version_that_is_put_again_is_loaded_once(rig: Rig) -> None:
    shard = rig.join()
    shard.fetched(1)
    rig.put(1)
    first = rig.manager.loaded[9]
    rig.put(1)()
    assert rig.manager.loaded[9] is first, "taking that back takes nothing back"
    assert rig.manager.add_adapter(request(1)) is False and rig.manager.loaded[9] is first, "of each step of a request"
    del rig.manager.loaded[9]  # vLLM makes room for others
    assert rig.manager.add_adapter(request(1)) is True
    assert rig.loaded() == (str(path(1)), 1.0) and rig.made == [1, 9], "it is made anew from what has arrived"
    assert rig.manager.add_adapter(request(7)) is False, "a request that began with another version goes on with this one"
    rig.put(1, number=8)
    assert rig.loaded(8) == (str(path(1)), 1.0)


def test_what_was_put_is_taken_back(rig: Rig) -> None:
    shard = rig.join()
    shard.fetched(1)
    rig.put(1)()
    assert rig.loaded() is None and rig.slots.held() == {} and rig.manager.log == [("remove", 9)]
    rig.put(1)
    rig.slots.installed(path(1))
    shard.fetched(2)
    take_back = rig.put(2)
    assert rig.loaded() == (str(path(2)), 2.0)
    take_back()
    assert rig.loaded() == (str(path(1)), 1.0) and rig.slots.held() == {"one": 4}
    rig.put(2)
    assert rig.loaded() == (str(path(2)), 2.0), "it is still there"


def test_a_version_that_vllm_does_not_load_is_taken_back(rig: Rig) -> None:
    shard = rig.join()
    shard.fetched(1)
    rig.put(1)
    shard.fetched(2)
    add = rig.slots._add
    tries = iter([lambda request: 1 / 0, add])
    rig.slots._add = lambda request: next(tries)(request)
    with pytest.raises(ZeroDivisionError):
        rig.put(2)
    assert rig.loaded() == (str(path(1)), 1.0) and shard.log == []
    rig.slots._add = lambda request: 1 / 0
    with pytest.raises(wc.WeightcastError) as caught:
        rig.put(2)
    broken = "one was not taken back (division by zero); send it again"
    assert str(caught.value) == f"division by zero; {broken}" and shard.log == [("spoil", broken)]
    rig.slots._add = add
    with pytest.raises(wc.WeightcastError) as caught:
        rig.manager.add_adapter(request(1))
    assert str(caught.value) == broken
    shard.known = False
    assert rig.join().held == {"installed": None, "incomplete": broken}, "who joins again knows that"
    rig.slots.shard("one").fetched(2)
    rig.put(2)
    assert rig.loaded() == (str(path(2)), 2.0)
    rig.manager.add_adapter(request(2))


def test_what_was_not_fetched_is_not_put(rig: Rig) -> None:
    with pytest.raises(wc.Misuse) as caught:
        rig.put(1)
    assert str(caught.value) == "this engine has not joined the job of the adapter one; join first"
    shard = rig.join()
    with pytest.raises(wc.Misuse, match="^version 1 of one has not been fetched; fetch it first$"):
        rig.put(1)
    shard.fetched(2)
    with pytest.raises(wc.Misuse, match="^version 1 of one has not been fetched; fetch it first$"):
        rig.put(1)
    rig.slots.installed(path(1))
    assert shard.log == [] and rig.manager.loaded == {}


@pytest.mark.parametrize(("trained", "holds", "said"), [
    (4, 5, "the adapter one was trained on version 4 of its base, and this engine holds version 5 of its base; "),
    (None, 5, "the adapter one was trained on the weights that engines load by themselves, and this engine holds version 5"),
    (4, None, "the adapter one was trained on version 4 of its base, and this engine holds the weights that engines load by themselves; "
     "bring the engine to the adapter's base, or train the adapter on the engine's and say so with Adapter.base"),
])
def test_an_adapter_of_another_base_is_refused_wherever_it_would_be_used(rig: Rig, trained: Any, holds: Any, said: str) -> None:
    shard = rig.join()
    rig.base = holds
    with pytest.raises(wc.Misuse) as caught:
        shard.fetched(1, trained)
    assert str(caught.value).startswith(said)
    rig.base = trained
    shard.fetched(1, trained)
    rig.base = holds
    with pytest.raises(wc.Misuse, match="was trained on"):
        rig.put(1)
    assert rig.manager.loaded == {} and rig.slots.held() == {}
    rig.base = trained
    rig.put(1)
    del rig.manager.loaded[9]
    rig.base = holds
    with pytest.raises(wc.Misuse, match="was trained on"):
        rig.manager.add_adapter(request(1))


def test_an_adapter_that_does_not_fit_is_none_that_arrived(rig: Rig) -> None:
    shard = rig.join()
    shard.fetched(1)
    rig.put(1)
    rig.slots.installed(path(1))
    rig.refused = wc.LayoutMismatch("too large")
    with pytest.raises(wc.LayoutMismatch, match="too large"):
        shard.fetched(2)
    assert rig.slots._slots["one"].arrived is rig.slots._slots["one"].made is None
    assert rig.loaded() == (str(path(1)), 1.0)


def test_an_adapter_that_was_dropped(rig: Rig) -> None:
    rig.slots.drop("one")
    shard = rig.join()
    rig.slots.drop("one")
    assert rig.manager.log == [] and shard.log == ["forget"]
    shard.fetched(1)
    rig.put(1)
    rig.slots.drop("one")
    assert rig.manager.log == [("remove", 9)] and shard.log == ["forget"] * 2 and rig.slots.held() == {}
    rig.manager.add_adapter(request(1))
    assert rig.manager.loaded[9].base == 9, "the base answers what is left of its requests"
    rig.slots.drop("one")
    assert rig.manager.log == [("remove", 9)], "it has no number any more"
    rig.manager.loaded.clear()
    shard.fetched(1)
    rig.put(1)
    assert rig.loaded() == (str(path(1)), 1.0)


def test_adapters_of_others_are_vllms_own(rig: Rig) -> None:
    other = SimpleNamespace(lora_path="/a/directory", lora_int_id=1, load_inplace=False)
    assert rig.manager.add_adapter(other) is True
    assert rig.manager.log == [("vLLM loads", "/a/directory")] and rig.manager.loaded[1].path == "/a/directory"
    assert rig.manager.add_adapter(other) is False
    shard = rig.join()
    shard.fetched(1)
    asked = request(1)
    rig.slots.put(path(1), asked)
    assert asked.load_inplace is False, "vLLM's request stays as it is"


def test_joining_again(rig: Rig) -> None:
    first = rig.join()
    assert (first.settings, first.replica) == (Settings(model="one"), wc.Replica("r"))
    assert first.held == {"installed": None, "incomplete": None}
    assert rig.join() is first and first.log == []
    first.fetched(3)
    rig.put(3)
    first.known = False
    second = rig.join()
    assert second is not first and first.log == ["close"] and second.held == {"installed": 3, "incomplete": None}
    assert rig.join(deadline=7.0) is not second, "with other settings"
    assert rig.slots.held() == {"one": 4} and rig.loaded() == (str(path(3)), 3.0)
    two = rig.join("two")
    two.fetched(1)
    rig.put(1, "two", 10)
    assert rig.slots.held() == {"one": 4, "two": 4}
    third = rig.slots.shard("one")
    rig.slots.close()
    assert third.log == two.log == ["forget", "close"] and rig.manager.loaded == {}
    with pytest.raises(wc.Misuse):
        rig.slots.shard("one")


def test_memory_in_which_adapters_arrive() -> None:
    landing = Landing(CATALOG, lambda: None)
    assert len(landing.layout()) == 3 and landing.always_beside and landing.stale() is False and landing.finish() is None


# vLLM's own form.


class Lora:
    """What vLLM's classes are given."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *told, **named: self.log.append((name, *told))


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(told={}, legal=[], loras={"q": SimpleNamespace(lora_a=1, lora_b=2)})

    class PEFTHelper:
        @staticmethod
        def from_dict(known: Any) -> Any:
            made.told["known"] = known
            return SimpleNamespace(validate_legal=made.legal.append)

    class LoRAModel:
        @staticmethod
        def from_lora_tensors(**told: Any) -> Any:
            made.told.update(told)
            return SimpleNamespace(loras=made.loras)

    stand_in(monkeypatch, "vllm", {"vllm.lora.lora_model": {"LoRAModel": LoRAModel}, "vllm.lora.peft_helper": {"PEFTHelper": PEFTHelper}}, [])
    made.adapters = Lora()
    made.adapters.model = SimpleNamespace(hf_to_vllm_mapper=SimpleNamespace(get_rename_mapper=lambda: "mapper"), lora_skip_prefixes=["mtp."])
    made.adapters.modules, made.adapters.packed_modules = {"o": 1}, {"qkv": ["q", "k"]}
    made.manager = SimpleNamespace(
        _adapter_manager=made.adapters, max_position_embeddings=128, lora_config=SimpleNamespace(lora_dtype="bf16"), vocab_size=99,
        embedding_modules="embedding", get_dummy_lora_warmup_rank=lambda rank: rank + 7,
    )
    return made


CARRIED = Carried(4, {"r": 8}, {"q.lora_A.weight": torch.ones(2), "q.lora_B.weight": torch.zeros(2)})


def test_vllms_form_of_an_adapter(forms: Any) -> None:
    made = build.lora_model(forms.manager, 3, CARRIED)
    assert made.loras is forms.loras
    told = forms.told
    assert told["known"] == {"r": 8, "vllm_max_position_embeddings": 128} and forms.legal == [forms.manager.lora_config]
    given = told.pop("tensors")
    assert {name: tensor.tolist() for name, tensor in given.items()} == {n: t.tolist() for n, t in CARRIED.tensors.items()}
    assert all(given[name] is not CARRIED.tensors[name] and given[name].data_ptr() != CARRIED.tensors[name].data_ptr() for name in given)
    assert {name: told[name] for name in ("lora_model_id", "device", "dtype", "model_vocab_size", "weights_mapper", "skip_prefixes")} == {
        "lora_model_id": 3, "device": "cpu", "dtype": "bf16", "model_vocab_size": 99, "weights_mapper": "mapper", "skip_prefixes": ["mtp."],
    }
    assert forms.adapters.log == [
        ("_validate_moe_lora_format", made), ("_validate_modules_to_save", made), ("_validate_token_classification_lora", made),
    ]
    forms.adapters.model = object()
    build.lora_model(forms.manager, 3, CARRIED)
    assert told["weights_mapper"] is told["skip_prefixes"] is None
    build.base_alone(forms.manager, 5)
    assert forms.adapters.log[-1] == ("create_dummy_lora", 5, 8, "embedding")


def test_adapters_that_vllm_would_leave_out_in_part_are_refused(forms: Any) -> None:
    forms.loras.update({name: SimpleNamespace(lora_a=1, lora_b=1) for name in ("o", "k", "up", "gate")})
    with pytest.raises(wc.LayoutMismatch) as caught:
        build.lora_model(forms.manager, 3, CARRIED)
    assert str(caught.value).startswith("the engine has no place for 2 of the adapter's 5 modules, gate for one; ")
    forms.loras.pop("up"), forms.loras.pop("gate")
    for one in ("lora_a", "lora_b"):
        setattr(forms.loras["o"], one, None)
        with pytest.raises(wc.LayoutMismatch, match="^o: the adapter has one of lora_A and lora_B without the other$"):
            build.lora_model(forms.manager, 3, CARRIED)
        setattr(forms.loras["o"], one, 1)
    build.lora_model(forms.manager, 3, CARRIED)
    experts = Carried(4, {}, {name: torch.ones(1) for name in ("q", "m.experts.1.up", "m.experts.0.up")})
    with pytest.raises(wc.LayoutMismatch, match=r"^m.experts.0.up belongs to experts, "):
        build.lora_model(forms.manager, 3, experts)


# An engine of this program.


class LLM(Lora):
    """vLLM's `LLM`."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.llm_engine = SimpleNamespace(add_lora=self.add)

    def add(self, request: Any) -> None:
        self.log.append(("add", *request))
        if self.fails:
            raise RuntimeError("no")

    def collective_rpc(self, method: str, args: Any) -> Any:
        self.log.append((method, *args))
        return iter([1, 2])


LOCAL = {
    "join": (lambda e: e.init_weight_transfer_engine({"a": 1}), None, [("init_weight_transfer_engine", {"init_info": {"a": 1}})]),
    "begin": (lambda e: e.start_weight_update(), None, [("start_weight_update",)]),
    "fetch": (lambda e: e.update_weights({"a": 1}), None, [("update_weights", {"update_info": {"a": 1}})]),
    "install": (lambda e: e.finish_weight_update("3"), None,
                [("finish_weight_update",), ("update_weight_version", "3"), ("reset_prefix_cache",)]),
    "install without": (lambda e: e.finish_weight_update(), None, [("finish_weight_update",), ("reset_prefix_cache",)]),
    "workers": (lambda e: e.workers(), 2, [("weightcast_state",)]),
    "order": (lambda e: e.order({"a": 1}), [1, 2], [("weightcast_order", {"a": 1})]),
    "performed": (lambda e: e.performed({"a": 1}, "why"), [1, 2], [("weightcast_performed", {"a": 1}, "why")]),
    "invalidate": (lambda e: e.invalidate(), None, [("reset_prefix_cache",)]),
    "stamp": (lambda e: e.stamp("3"), None, [("update_weight_version", "3")]),
    "release": (lambda e: e.release(), None, [("weightcast_release",)]),
    "nothing": (lambda e: (e.take("me", 1.0), e.give_back("me"), e.pause(), e.resume(), e.paused()), (None,) * 4 + (False,), []),
}


@pytest.mark.parametrize(("call", "result", "asks"), LOCAL.values(), ids=[*LOCAL])
def test_what_a_trainer_asks_of_an_engine_of_its_program(call: Any, result: Any, asks: list[Any]) -> None:
    llm = LLM()
    assert call(LocalEngine(llm)) == result and llm.log == asks


def test_an_engine_of_an_older_vllm_has_no_stamp() -> None:
    log: list[str] = []
    llm = SimpleNamespace(finish_weight_update=lambda: log.append("finish"), reset_prefix_cache=lambda: log.append("reset"))
    LocalEngine(llm).finish_weight_update("3")
    assert log == ["finish", "reset"]


def test_the_adapter_of_a_name_is_the_one_that_was_sent_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "vllm", {"vllm.lora.request": {"LoRARequest": lambda *told: told}}, [])
    llm = LLM()
    engine, number = LocalEngine(llm), number_of("a")
    llm.fails = True
    with pytest.raises(RuntimeError, match="no"):
        engine.load_lora("a", "p1")
    with pytest.raises(KeyError):
        engine.lora_request("a")
    llm.fails = False
    engine.load_lora("a", "p1")
    assert engine.lora_request("a") == ("a", number, "p1")
    llm.fails = True
    with pytest.raises(RuntimeError, match="no"):
        engine.load_lora("a", "p2")
    assert engine.lora_request("a") == ("a", number, "p1"), "the former one stays"
    add = [("add", "a", number, one) for one in ("p1", "p1", "p2")]
    assert llm.log == [*add[:2], ("reset_prefix_cache",), add[2]]
    engine.unload_lora("a")
    engine.unload_lora("a")
    assert llm.log[4:] == [("reset_prefix_cache",)] * 2
    with pytest.raises(KeyError):
        engine.lora_request("a")
    slot = engine.slot("a")
    assert slot._engine is engine and slot._name == "a" and slot.base_url == "LocalEngine, adapter a"


def test_numbers_of_names_stay() -> None:
    """vLLM keeps an adapter under its number, whichever process has given it."""
    assert (number_of("a"), number_of("policy"), number_of("")) == (1756872259, 1887241494, 1073741824)


# A slot as its trainer sees it.


class Taking:
    """An engine that takes adapters: notes what it is asked."""

    base_url = "http://e"

    def __init__(self, base: Any = (), paused: bool = False) -> None:
        self.log: list[Any] = []
        self.base, self.is_paused, self.fails = list(base), paused, None

    def on_workers(self, method: str, *told: Any) -> Any:
        self.log.append((method, *told))
        if told and told[0] == self.fails:
            raise RuntimeError("no")
        return self.base if method == "weightcast_state" else [vars(EngineState(1, 2, None, "why"))] * 2

    def paused(self) -> bool:
        return self.is_paused

    def __getattr__(self, name: str) -> Any:
        return lambda *told: self.log.append((name, *told))


def asks(step: str, info: Any = None) -> Any:
    return ("weightcast_adapter", step, "a", info or {})


WHOLE, HALF = {"incomplete": None}, {"incomplete": "half"}
STATE = ("weightcast_state",)
SLOT: dict[str, Any] = {
    "join": (lambda s: s.init_weight_transfer_engine({"model": "m"}), None, [asks("join", {"model": "m"})]),
    "begin": (lambda s: s.start_weight_update(), None, [asks("begin")]),
    "fetch": (lambda s: s.update_weights({"version": 3}), None, [asks("fetch", {"version": 3})]),
    "abandon": (lambda s: s.update_weights({"abandon": True}), None, []),
    "states": (lambda s: s.states(), [EngineState(1, 2, None, "why")] * 2, [asks("state")]),
    "pause": (lambda s: s.pause("keep"), None, [("pause", "keep")]),
    "pause as usual": (lambda s: s.pause(), None, [("pause", "abort")]),
    "take": (lambda s: s.take("me", 3.0), None, [("take", "me", 3.0)]),
    "give back": (lambda s: s.give_back("me"), None, [("give_back", "me")]),
}


@pytest.mark.parametrize(("call", "result", "log"), SLOT.values(), ids=[*SLOT])
def test_what_a_slot_asks_of_its_engine(call: Any, result: Any, log: list[Any]) -> None:
    engine = Taking()
    slot = Slot(engine, "a")
    assert call(slot) == result and engine.log == log and slot.base_url == "http://e, adapter a"


def test_a_slot_loads_the_version_by_its_path() -> None:
    engine = Taking()
    slot, other = Slot(engine, "a"), Slot(engine, "a")
    slot.finish_weight_update("3")
    assert engine.log == [("load_lora", "a", f"weightcast://a/{slot._run}/3")] and slot._run != other._run and len(slot._run) == 8


@pytest.mark.parametrize(("base", "resumes"), [([None, WHOLE], True), ([WHOLE, HALF], False), ([HALF, None], False), ([], True)])
def test_an_engine_goes_on_if_its_base_is_whole(base: Any, resumes: bool) -> None:
    engine = Taking(base)
    Slot(engine, "a").resume()
    assert engine.log == [STATE, *([("resume",)] if resumes else [])]


@pytest.mark.parametrize("fails", [None, "drop"])
def test_an_adapter_is_unloaded_in_a_pause_of_its_own(fails: Any) -> None:
    engine = Taking()
    engine.fails = fails
    if fails:
        with pytest.raises(RuntimeError, match="no"):
            Slot(engine, "a").unload()
    else:
        Slot(engine, "a").unload()
    holder = "unload of a"
    assert engine.log == [("unload_lora", "a"), ("take", holder, 60.0), ("pause", "abort"), asks("drop"), STATE, ("resume",), ("give_back", holder)]
    engine = Taking(paused=True)
    Slot(engine, "a").unload()
    assert engine.log == [("unload_lora", "a"), asks("drop")]


def test_memory_for_an_adapter_has_its_types() -> None:
    made = memory_for(catalog_of({"x": ((2,), "F32"), "y": ((2,), "F16"), "z": ((2, 3), "BF16"), CONFIG: ((9,), "U8"), BASE: ((1,), "I64")}))
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in made.items()} == {
        "x": ((2,), torch.float32), "y": ((2,), torch.float16), "z": ((2, 3), torch.bfloat16), CONFIG: ((9,), torch.uint8), BASE: ((1,), torch.int64),
    }
    with pytest.raises(wc.LayoutMismatch, match="^x: adapters are F32, F16 or BF16, not F8_E4M3$"):
        memory_for(catalog_of({"x": ((2,), "F8_E4M3"), CONFIG: ((9,), "U8"), BASE: ((1,), "I64")}))
    for lacks in (CONFIG, BASE):
        with pytest.raises(wc.LayoutMismatch, match=f"^this model is no LoRA adapter: it has no {lacks}. "):
            memory_for({name: entry for name, entry in CATALOG.items() if name != lacks})
