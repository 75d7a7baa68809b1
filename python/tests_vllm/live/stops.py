"""Places in an engine's worker where a test may hold it, or have it fail.

A test names a directory in `WEIGHTCAST_TEST_STOPS`. A worker that comes by a place `p` looks for `p.hold` there
(it writes its number to `p.reached` and waits until `p.hold` is gone), `p.fail` (it raises), or `p.once` (it raises this one time).

Two places are of the engine's core, and nothing waits there: while `steps.hold` is there, with a number in it, the core makes no
step once a request has so many tokens, and goes on to answer calls; `pause.reached` says that it was told to pause.
"""

import importlib.abc
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Places: before and after these methods of `EngineShard`, once within the installing, before and after the bytes come
#: (where they are staged, beside the engine's own thread, which goes on), and before a LoRA adapter is put into its slot.
METHODS = ("fetch", "install")


def pass_by(place: str) -> None:
    """Holds or fails if the test asks for it."""
    directory = Path(os.environ["WEIGHTCAST_TEST_STOPS"])
    if (directory / f"{place}.fail").exists():
        raise RuntimeError(f"the test has {place} fail")
    with suppress(FileNotFoundError):
        # Of several workers, one finds the file.
        (directory / f"{place}.once").unlink()
        raise RuntimeError(f"the test has {place} fail once")
    hold = directory / f"{place}.hold"
    if hold.exists():
        note(place)
        while hold.exists():
            time.sleep(0.01)


def note(place: str) -> None:
    """Tells the test that this process has come there."""
    directory = Path(os.environ["WEIGHTCAST_TEST_STOPS"])
    draft = directory / f"{place}.draft"
    draft.write_text(str(os.getpid()))
    draft.rename(directory / f"{place}.reached")


def place() -> None:
    """Puts the places into our modules when they are imported, if a test asks for them."""
    if "WEIGHTCAST_TEST_STOPS" in os.environ:
        for name, put in MODULES.items():
            sys.meta_path.insert(0, Finder(name, put))


class Finder(importlib.abc.MetaPathFinder):
    """Wraps a module once it has been executed."""

    def __init__(self, module: str, put: Callable[[Any], None]) -> None:
        self._module, self._put = module, put

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def execute(module: Any) -> None:
            run(module)
            self._put(module)

        spec.loader.exec_module = execute
        return spec


def _shard(module: Any) -> None:
    for method in METHODS:
        _wrap(module.EngineShard, method)
    _within(module)


def _handle(module: Any) -> None:
    update = module.Handle.update

    def updating(self: Any, *arguments: Any, **named: Any) -> Any:
        pass_by("before-bytes")
        done = update(self, *arguments, **named)
        pass_by("after-bytes")
        return done

    module.Handle.update = updating


def _slots(module: Any) -> None:
    put = module.Slots.put

    def putting(self: Any, *arguments: Any) -> Any:
        pass_by("before-put")
        return put(self, *arguments)

    module.Slots.put = putting


def _core(module: Any) -> None:
    kind = module.EngineCoreProc
    step, pause = kind._process_engine_step, kind.pause_scheduler

    def stepping(self: Any) -> Any:
        if not _frozen(self.scheduler.requests.values()):
            return step(self)
        note("steps")
        time.sleep(0.01)
        return False

    def pausing(self: Any, *arguments: Any, **named: Any) -> Any:
        note("pause")
        return pause(self, *arguments, **named)

    kind._process_engine_step, kind.pause_scheduler = stepping, pausing


def _frozen(requests: Any) -> bool:
    try:
        tokens = int((Path(os.environ["WEIGHTCAST_TEST_STOPS"]) / "steps.hold").read_text())
    except FileNotFoundError:
        return False
    return any(request.num_output_tokens >= tokens for request in requests)


#: Where the places are.
MODULES = {
    "weightcast.handle": _handle,
    "weightcast.adapters.engine.shard": _shard,
    "weightcast.adapters.vllm.lora.slots": _slots,
    "vllm.v1.engine.core": _core,
}


def _wrap(kind: Any, method: str) -> None:
    call = getattr(kind, method)

    def stopping(self: Any, *arguments: Any, **named: Any) -> Any:
        pass_by(f"before-{method}")
        done = call(self, *arguments, **named)
        pass_by(f"after-{method}")
        return done

    setattr(kind, method, stopping)


def _within(module: Any) -> None:
    """One tensor has come, the others have not: of a fused layer where the engine's loader installs, as it does on
    CPUs for which vLLM packs its weights; of all where tensors are copied into place."""
    from weightcast.adapters.live.beside import Beside
    from weightcast.adapters.live.through_loader import ThroughLoader
    tensors, install = ThroughLoader._tensors, Beside.install

    def first(self: Any) -> None:
        for tensor, copy in self._copies._pairs[:1]:
            tensor.copy_(copy)
            pass_by("within-install")
        install(self)

    Beside.install = first

    def half(self: Any) -> Any:
        passed = False
        for name, tensor in tensors(self):
            yield name, tensor
            if not passed and ".q_proj." in name:
                passed = True
                pass_by("within-install")

    ThroughLoader._tensors = half
