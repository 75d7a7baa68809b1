"""What an actor holds of a model: a handle that is configured for its place in the cluster, and opened again
when all servers that it knew are lost."""

import atexit
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, TypeVar

import ray

from ... import _core
from ..._core import Updated
from ...condition import Condition
from ...handle import HURRY, Handle, Versions
from ...handle import open as open_handle
from ...layout import Layout
from ...replica import Replica
from ...selector import Selector
from .servers import NAME, Servers
from .servers import servers as servers_of
from .where import Where, where

log = logging.getLogger("weightcast")

_R = TypeVar("_R")

#: Seconds that a call may take.
DEADLINE = 300.0
#: Seconds of its notice that a worker takes to leave: less than the least that a cloud gives, which is 30.
NOTICE = 25.0
#: Errors of a handle that ends, while another one of the same worker would do.
OPEN_AGAIN = (_core.ServerUnreachable, _core.GroupBroken)

#: What this process holds, by the model's name and the role.
_held: dict[tuple[str, str], "Weights"] = {}


def open(
    model: str,
    replica: Replica | str,
    *,
    shards: int = 1,
    shard: int | None = None,
    servers: str = NAME,
    **options: Any,
) -> Handle:
    """As `weightcast.open`, with the servers of this job, their token, and this node's address for data.

    A replica's name stands for the replica that `Where.replica` makes of this place. `servers` is the name
    that `serve` was given."""
    here = where()
    if isinstance(replica, str):
        replica = here.replica(replica, shards=shards, shard=shard)
    return open_handle(model, replica, **(_options(here, servers_of(servers)) | options))


def _options(here: Where, servers: Servers) -> dict[str, Any]:
    shown = f"[{here.address}]" if ":" in here.address else here.address
    return {
        "server": list(servers.addresses),
        "token_file": servers.token_file,
        "data_bind": f"{shown}:0",
    }


def trainer(
    source: Any,
    model: str = "policy",
    *,
    name: str = "trainer",
    layout: Mapping[str, Any] | None = None,
    **options: Any,
) -> "Weights":
    """Joins the job with what this actor trains: a torch module, any other source that `Steps` takes, or a
    `Layout`.

    Ranks of a process group of torch are shards or copies, as the module is sharded; without one, each
    trainer actor is a replica, or as `shards` and `shard` of `Where.replica` say. `layout` are arguments of
    `weightcast.torch.layout`: of `{"beside": True}` a copy is published, and the module may be trained on
    meanwhile. A trainer that Ray has restarted goes on in the run that it began. `options` go to `open`."""
    return Weights(model, "trainer", name, _source(source, layout), options)


def _source(source: Any, layout: Mapping[str, Any] | None) -> Any:
    if isinstance(source, Layout):
        return _Ready(source)
    # Workers without torch need not import it.
    from ..engine.sources import InPlace, source_of

    rank = _ranks().get_rank() if _ranks() else 0
    return InPlace(source, rank, layout) if layout else source_of(source, rank)


def _ranks() -> Any:
    """`torch.distributed`, in a rank of a process group."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


class _Ready:
    """A layout that somebody else has made."""

    publishes = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def layout(self) -> Layout:
        """The layout."""
        return self._layout

    def refresh(self) -> None:
        """Nothing: it is the tensors' own memory."""


def rollout(source: Any, model: str = "policy", *, name: str = "rollout", **options: Any) -> "Weights":
    """Joins the job with what this actor generates with: a torch module, a `Layout`, or a function that makes
    the layout of a handle, such as `lambda handle: vllm.layout(engine_model, handle.catalog())`.

    Which replica it is follows from its place, by `shards` and `shard` of `Where.replica`. `options` go to
    `open`."""
    return Weights(model, "rollout", name, source, options)


def held(model: str, role: str) -> "Weights":
    """What this process holds of a model in a role."""
    try:
        return _held[model, role]
    except KeyError:
        there = ", ".join(f"{of} as {role}" for of, role in _held) or "nothing"
        raise _core.Misuse(
            f"this actor holds no {model} as {role}, but {there}: call weightcast.adapters.ray.{role}() in "
            "its __init__"
        ) from None


class Weights:
    """One actor's part in a model. Made by `trainer` or `rollout`; the actor keeps it.

    A call that fails because all servers that the handle knew are lost, while Ray has started others, opens
    the handle again, registers the same memory, and is made once more. When the process ends by SIGTERM, as
    on a node that is taken away, it leaves: readers finish, others go on without it."""

    def __init__(self, model: str, role: str, name: str, source: Any, options: dict[str, Any]) -> None:
        self.model, self.role = model, role
        self._name, self._source, self._options = name, source, dict(options)
        self._notice = float(self._options.pop("notice", NOTICE))
        self._layout: Layout | None = None
        #: Whether Ray has started this actor in the place of one that was lost.
        self.restarted = _restarted()
        again = self.restarted or role != "trainer"
        self._epoch = self._options.pop("epoch", "current" if again else "new")
        #: The handle; None of a rank that has no part in publishing, and once it has left.
        self.handle: Handle | None = self._opened() if self._takes_part else None
        _held[model, role] = self
        atexit.register(self.leave)
        _leave_on_sigterm()

    @property
    def _takes_part(self) -> bool:
        return self.role == "rollout" or bool(self._source.publishes)

    @property
    def version(self) -> int | None:
        """The version that the memory holds, if it holds one."""
        return None if self.handle is None else self.handle.version

    # Opening

    def _opened(self) -> Handle:
        handle = open(self.model, self._replica(), role=self.role, epoch=self._epoch, **self._rest())
        try:
            if self._layout is None:
                self._layout = self._made(handle)
            handle.register(self._layout, deadline=DEADLINE)
        except BaseException:
            handle.close(deadline=HURRY)
            raise
        # It is the run of this trainer from now on, whoever is the server.
        self._epoch = "current"
        return handle

    def _rest(self) -> dict[str, Any]:
        return {name: given for name, given in self._options.items() if name not in ("shards", "shard")}

    def _replica(self) -> Replica:
        here = where()
        if self.role == "trainer" and _ranks() and not isinstance(self._source, _Ready):
            read: Replica = self._source.replica(self._name)
            return replace(read, datacentre=here.datacentre, host=here.node, spot=here.spot)
        given = {name: self._options[name] for name in ("shards", "shard") if name in self._options}
        return here.replica(self._name, **given)

    def _made(self, handle: Handle) -> Layout:
        if self.role == "trainer":
            read: Layout = self._source.layout()
            return read
        if isinstance(self._source, Layout):
            return self._source
        if hasattr(self._source, "state_dict"):
            from ... import torch as wct

            return wct.layout(self._source)
        made: Layout = self._source(handle)
        return made

    def _call(self, call: Callable[[Handle], _R]) -> _R:
        if self.handle is None:
            raise _core.Misuse(f"this actor has left {self.model}")
        try:
            return call(self.handle)
        except OPEN_AGAIN as error:
            log.warning("%s: %s; opening again", self.model, error)
        self.handle.close(deadline=HURRY)
        self.handle = self._opened()
        return call(self.handle)

    # What trainers call

    def publish(self, version: int, *, deadline: float = DEADLINE) -> None:
        """Publishes what the source holds now, in the place of what was published before."""
        self.take_back(deadline=deadline)
        self._source.refresh()
        if self._takes_part:
            self._call(lambda handle: handle.publish(version, deadline=deadline))

    def take_back(self, *, deadline: float = DEADLINE) -> None:
        """Before weights that are published in place change: nobody reads them any more when this returns."""
        if self.handle is None or self.handle.version is None:
            return
        try:
            self.handle.unpublish(deadline=deadline)
        except OPEN_AGAIN as error:
            # Nothing is published by a handle that has ended; the next call opens another.
            log.warning("%s: %s; nothing is published any more", self.model, error)

    def resume(self, *, deadline: float = DEADLINE) -> int | None:
        """Of a trainer that Ray has started again: fills its weights with the newest version that is left,
        with rollouts say, and returns the number. None in a trainer's first life, and where nobody holds one.
        The weights may be changed afterwards; what else training needs (the optimizer's state) is not there.
        Of a module that each rank has whole, rank 0 alone is filled: broadcast it."""
        if not self.restarted or self.handle is None or not self._call(lambda handle: handle.list()):
            return None
        version = self.update(deadline=deadline).version
        self.take_back(deadline=deadline)
        return version

    # What rollouts call

    def update(
        self, version: Selector | int | str = "latest", *, deadline: float = DEADLINE, **options: Any
    ) -> Updated:
        """As `Handle.update`."""
        return self._call(lambda handle: handle.update(version, deadline=deadline, **options))

    def wait(self, until: Condition | Callable[[Versions], bool], *, deadline: float = DEADLINE) -> Versions:
        """As `Handle.wait`."""
        return self._call(lambda handle: handle.wait(until, deadline=deadline))

    # Leaving

    def leave(self, *, deadline: float | None = None) -> None:
        """Leaves the job: takes back what is held once its readers are done, at the latest by the deadline,
        which is the time of a notice by default."""
        atexit.unregister(self.leave)
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close(deadline=self._notice if deadline is None else deadline)
        if _held.get((self.model, self.role)) is self:
            del _held[self.model, self.role]

    def __repr__(self) -> str:
        return f"<Weights {self.role} {self.handle!r}>"


def _leave_on_sigterm() -> None:
    """Has the process leave before Ray's own handler ends it: Ray kills workers a moment after that."""
    if threading.current_thread() is not threading.main_thread():
        return  # of an actor with an event loop; what it holds is given up at exit, in a hurry
    before = signal.getsignal(signal.SIGTERM)
    if getattr(before, "leaves", False):
        return

    def leave(number: int, frame: FrameType | None) -> None:
        for weights in list(_held.values()):
            weights.leave()
        if callable(before):
            before(number, frame)

    leave.leaves = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, leave)


def _restarted() -> bool:
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return False
    with warnings.catch_warnings():
        # Ray's own use of a name that it has deprecated.
        warnings.simplefilter("ignore")
        return bool(context.was_current_actor_reconstructed)
