"""The adapters that one vLLM worker holds, by name.

A version goes from the memory in which it arrived (`Landing`) into a `WorkerSlot`, whence vLLM's LoRA manager
loads it: at once, and again whenever it has put the adapter out to make room for others.
"""

import logging
from collections.abc import Callable
from copy import copy
from typing import Any

import torch

from .... import _core
from ....layout import Layout
from ...catalog import Catalog
from ...engine import EngineShard, Settings
from ...engine.adapter import Carried, carried, memory_for
from .build import base_alone, lora_model
from .paths import AdapterPath, parsed

log = logging.getLogger("weightcast")

#: The number that an adapter has while it is only looked at.
_NO_NUMBER = 1


class Landing:
    """The memory in which versions of one adapter arrive. The engine never reads from it."""

    always_beside = True

    def __init__(self, catalog: Catalog, check: Callable[[], None]) -> None:
        self._check = check
        self._memory: dict[str, torch.Tensor] = memory_for(catalog)

    def layout(self, *, stage: bool = False, beside: bool = False) -> Layout:
        """All of it, whole on every worker: vLLM cuts adapters itself."""
        listed = Layout()
        for name, tensor in self._memory.items():
            listed.add(tensor, name)
        return listed

    def stale(self) -> bool:
        """Never: where an adapter goes is vLLM's own affair."""
        return False

    def check(self) -> None:
        """Raises if what has arrived does not fit this engine."""
        self._check()

    def finish(self) -> None:
        """Nothing: `Slots.put` has installed it."""

    def taken(self) -> Carried:
        """A copy of what has arrived."""
        return carried(self._memory)


class WorkerSlot:
    """One adapter of this worker."""

    def __init__(self) -> None:
        self.landing: Landing | None = None
        self.shard: EngineShard | None = None
        #: What has arrived, and vLLM's form of it, which vLLM changes when it loads it: good for one load.
        self.arrived: Carried | None = None
        self.made: Any = None
        #: What vLLM's manager loads, and which version that is.
        self.adapter: Carried | None = None
        self.path: AdapterPath | None = None
        #: vLLM's number of the adapter, once it has one.
        self.number: int | None = None
        #: Why this worker cannot serve the adapter, if it cannot.
        self.broken: str | None = None

    def form(self, adapter: Carried, manager: Any, number: int) -> Any:
        """vLLM's form of an adapter, to be loaded under a number."""
        if self.made is None or adapter is not self.arrived:
            return lora_model(manager, number, adapter)
        made, self.made = self.made, None
        made.id = number
        return made


class Slots:
    """All adapters of this worker. `base` says which version of the base model the worker holds."""

    def __init__(self, manager: Any, base: Callable[[], int | None]) -> None:
        self._manager, self._base = manager, base
        self._slots: dict[str, WorkerSlot] = {}
        self._add, self._load = manager.add_adapter, manager._load_adapter
        manager.add_adapter, manager._load_adapter = self._added, self._loaded

    def join(self, settings: Settings, replica: Any) -> None:
        """Joins the job of an adapter, as `WeightcastEngine.init_transfer_engine` does."""
        slot = self._slots.get(settings.model) or WorkerSlot()
        if slot.shard is not None:
            if slot.shard.settings == settings and slot.shard.answers():
                return
            slot.shard.close()

        def read(catalog: Any) -> Landing:
            slot.landing = Landing(catalog, lambda: self._check(settings.model))
            return slot.landing

        installed = None if slot.path is None else slot.path.version
        slot.shard = EngineShard(settings, replica, read, installed=installed, incomplete=slot.broken)
        self._slots[settings.model] = slot

    def shard(self, name: str) -> EngineShard:
        """What fetches versions of an adapter."""
        slot = self._slots.get(name)
        if slot is None or slot.shard is None:
            raise _core.Misuse(f"this engine has not joined the job of the adapter {name}; join first")
        return slot.shard

    def held(self) -> dict[str, int | None]:
        """The base version of each adapter that the engine can generate with."""
        return {name: slot.adapter.base for name, slot in self._slots.items() if slot.adapter}

    def put(self, path: AdapterPath, request: Any) -> Callable[[], None]:
        """Has vLLM's manager load the fetched version, and returns what takes that back. Again, with a
        version that is installed: does nothing."""
        shard, slot = self.shard(path.name), self._slots[path.name]
        former = (slot.adapter, slot.path)
        slot.number = request.lora_int_id
        if path == slot.path:
            self._added(request)
            return lambda: None
        if shard.state.fetched != path.version or slot.landing is None:
            raise _core.Misuse(f"version {path.version} of {path.name} has not been fetched; fetch it first")
        self._check(path.name)

        def take_back() -> None:
            try:
                self._remove(slot)
                slot.adapter, slot.path = former
                if slot.adapter is not None:
                    self._added(request)
            except Exception as error:
                slot.path, slot.broken = None, f"{path.name} was not taken back ({error}); send it again"
                shard.spoil(slot.broken)  # has the trainer leave the engine paused
                raise _core.WeightcastError(slot.broken) from error

        slot.adapter, slot.path, slot.broken = slot.arrived, path, None
        try:
            self._added(request)
        except Exception as error:
            _also(error, take_back)
            raise
        return take_back

    def installed(self, path: AdapterPath) -> None:
        """All workers have put this version."""
        shard = self.shard(path.name)
        if shard.state.fetched == path.version:
            shard.install()

    def drop(self, name: str) -> None:
        """Lets go of an adapter; its trainer may send another version. Does nothing if there is none of this
        name."""
        slot = self._slots.get(name)
        if slot is None:
            return
        self._remove(slot)
        slot.adapter = slot.path = slot.number = slot.broken = None
        if slot.shard is not None:
            slot.shard.forget()

    def close(self) -> None:
        """Lets go of all, and leaves their jobs."""
        for name, slot in self._slots.items():
            self.drop(name)
            if slot.shard is not None:
                slot.shard.close()
        self._slots.clear()

    def _remove(self, slot: WorkerSlot) -> None:
        if slot.number is not None:
            self._manager.remove_adapter(slot.number)

    def _check(self, name: str) -> None:
        """Raises if this engine cannot take the adapter that has arrived."""
        shard, slot = self.shard(name), self._slots[name]
        if shard.state.fetched is None and slot.landing is not None:  # it has arrived just now
            slot.arrived = slot.made = None
            arrived = slot.landing.taken()
            slot.made = lora_model(self._manager, _NO_NUMBER, arrived)
            slot.arrived = arrived
        if slot.arrived is not None:
            self._check_base(name, slot.arrived)

    def _check_base(self, name: str, adapter: Carried) -> None:
        base = self._base()
        if adapter.base != base:
            raise _core.Misuse(
                f"the adapter {name} was trained on {_said(adapter.base)}, and this engine holds "
                f"{_said(base)}; bring the engine to the adapter's base, or train the adapter on the "
                "engine's and say so with Adapter.base"
            )

    def _added(self, request: Any) -> bool:
        """In the place of the manager's `add_adapter`, which vLLM calls for each step of a request too,
        and which would load an adapter anew in each if the server has ever been asked to replace it."""
        path = parsed(request.lora_path)
        if path is None:
            return bool(self._add(request))
        request = copy(request)
        slot = self._slots.get(path.name)
        if slot is not None and slot.broken is not None:
            raise _core.WeightcastError(slot.broken)
        request.load_inplace = self._in_manager(request.lora_int_id) != (None if slot is None else slot.path)
        return bool(self._add(request))

    def _in_manager(self, number: int) -> AdapterPath | None:
        """What vLLM's manager has loaded under a number."""
        made = self._manager._adapter_manager.list_adapters().get(number)
        return getattr(made, "weightcast_path", None)

    def _loaded(self, request: Any) -> Any:
        """In the place of the manager's `_load_adapter`. Requests that began with a former version go on
        with the one that there is: vLLM has computed them anew."""
        path = parsed(request.lora_path)
        if path is None:
            return self._load(request)
        slot = self._slots.get(path.name)
        if slot is None or slot.adapter is None:
            # An error here would end the engine.
            log.warning("a request to %s came after that was taken out: the base answers", path.name)
            return base_alone(self._manager, request.lora_int_id)
        self._check_base(path.name, slot.adapter)
        made = slot.form(slot.adapter, self._manager, request.lora_int_id)
        made.weightcast_path = slot.path
        return made


def _also(error: Exception, call: Callable[[], None]) -> None:
    """Makes a call because of an error; if that fails too, both are told."""
    try:
        call()
    except Exception as another:
        raise _core.WeightcastError(f"{error}; {another}") from error


def _said(base: int | None) -> str:
    return "the weights that engines load by themselves" if base is None else f"version {base} of its base"
