"""The native half of the package. Users call what `weightcast` exports, not this."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform, final

import numpy as np
import numpy.typing as npt

from .condition import Condition
from .replica import Replica
from .selector import Selector

__version__: str

class WeightcastError(Exception): ...

class VersionUnavailable(WeightcastError):
    model: str
    selector: str
    latest: int | None

class SourceLost(WeightcastError):
    version: int
    source_replica: str
    reason: str

class DigestMismatch(WeightcastError):
    version: int
    source_replica: str
    detail: str
    #: Where the bytes differ, as far as this shard has found out: the tensor, the smallest known
    #: box of it as (start, stop) by dimension, and the source's shard.
    tensor: str | None
    slice: list[tuple[int, int]] | None
    source_shard: int | None
    #: Who changed them: "source", "transfer" (the way, or the memory here), "reader".
    cause: str | None

class ContentMismatch(WeightcastError):
    version: int
    replica: str
    detail: str

class LayoutMismatch(WeightcastError):
    replica: str
    detail: str

class ServerUnreachable(WeightcastError):
    server: str
    reason: str

class GroupDiverged(WeightcastError):
    replica: str
    seq: int
    shards: tuple[int, int]
    calls: tuple[str, str]

class GroupBroken(WeightcastError):
    replica: str
    reason: str

class Timeout(WeightcastError):
    call: str
    waiting_for: str
    detail: str

class InDoubt(WeightcastError):
    version: int

class NoRoom(WeightcastError):
    bytes: int
    limit: int

class Unverified(WeightcastError):
    replica: str
    reason: str

class NoView(WeightcastError):
    version: int
    host: str
    reasons: list[str]

class ViewEnded(WeightcastError): ...

class Misuse(WeightcastError):
    #: Only where a limit was passed: of what, the limit, and what was asked for.
    what: str
    limit: int
    got: int

@final
class SharedMemory:
    """So many bytes that other processes of this host can map, zeros at first; of one NUMA node, if named."""

    def __init__(self, nbytes: int, numa_node: int | None = None) -> None: ...
    #: Where it begins, as long as this value is there.
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def is_shared(address: int, nbytes: int) -> bool: ...

@final
class View:
    """A version in the memory of another replica of this host. `weightcast.View` wraps it."""

    @property
    def version(self) -> _Version: ...
    @property
    def replica(self) -> str: ...
    @property
    def shards(self) -> list[int]: ...
    @property
    def whole(self) -> bool: ...
    #: Name, dtype, shape, start, size, strides in bytes, address.
    def pieces(
        self, shard: int
    ) -> list[tuple[str, str, list[int], list[int], list[int], list[int], int]]: ...

@final
class Part:
    def __init__(self, name: str, shape: Sequence[int] | None = None) -> None: ...
    def chunk(self, dim: int, index: int, of: int) -> Part: ...
    def range(self, dim: int, start: int, length: int) -> Part: ...

@final
class Layout:
    def __init__(self) -> None: ...
    def add(
        self,
        name: str,
        memory: npt.NDArray[np.uint8] | None,
        dtype: str,
        shape: Sequence[int],
        parts: Sequence[Part],
        along: int = 0,
        pad: bool = False,
    ) -> None: ...
    def also(self, parts: Sequence[Part], along: int = 0) -> None: ...
    def keep(self, names: str) -> None: ...
    def cast(self, names: str, dtype: str) -> None: ...
    def quantise(
        self, names: str, block: tuple[int, int], formula: str, scales: str, suffix: str
    ) -> None: ...
    def describe(self) -> str: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

_Class = TypeVar("_Class")
#: Number, epoch.
_Version = tuple[int, int]

@dataclass_transform(frozen_default=True)
def _record(_: type[_Class]) -> type[_Class]:
    """Marks classes of the binary that are built, compared, hashed and printed as frozen dataclasses
    are. `dataclasses.fields` does not know them. Not a function of the binary."""

@final
@_record
class Updated:
    """What `replicate` or `update` came to; true if the memory holds another version now."""

    changed: bool
    #: The version held now, and the training run that the version belongs to.
    version: int | None
    epoch: int | None
    #: The replica that the version was read from.
    source: str | None
    #: Bytes of this shard, moved or unchanged, and those covered by a digest that matched.
    bytes: int
    verified: int
    #: Seconds from the choice of a source until all was there and digested; of those, planning.
    seconds: float
    plan_seconds: float
    #: How bytes moved: `shared`, `direct` or `tcp`; `push`: they were written by others.
    way: str
    #: Of a staged update: bytes that were copied into place at the end, and the seconds it took.
    staged: int = 0
    install_seconds: float = 0.0
    #: Replicas that bytes were drawn from beside `source`.
    helpers: tuple[str, ...] = ()
    #: Where the plan came from: `planner`, `memory` or `file` (of `open(plan_cache=)`).
    plan_from: str = ""
    #: Why bytes moved that way: another host, user or pid namespace, computed bytes, or as demanded.
    way_reason: str = ""
    #: Bytes that were read directly, from whichever source, and bytes that came over TCP.
    bytes_direct: int = 0
    bytes_tcp: int = 0
    #: Bytes that were not moved: the memory held them already, by digests of both sides.
    unchanged: int = 0
    #: Bytes that the source gave, and then each helper.
    given: tuple[int, ...] = ()
    #: Bytes that came out of shared memory, from whichever source.
    bytes_shared: int = 0
    #: Bytes that came from other shards of the group on this host, which had brought them there.
    bytes_siblings: int = 0
    def __bool__(self) -> bool: ...
    def as_dict(self) -> dict[str, float]:
        """The numbers under keys such as `weightcast/update/seconds`, for a trainer's logger: of this
        call alone, while `weightcast.metrics()` sums up. A key is missing where there is no number."""

@final
@_record
class PushedShard:
    """What became of one shard that was pushed to."""

    replica: str
    shard: int
    #: How the push ended there. The shard has the version: `new`, or `held` before. It has not: `declined`
    #: (it did not accept), `absent`, `left`, `lost`, `asleep`, `silent`, `gave_up`, `deadline`, `superseded`
    #: (by a later push), `no_holder`, `differs`, `cancelled`.
    end: str
    #: Bytes that were written into its memory, and seconds from its consent on.
    bytes: int
    seconds: float
    #: How often a part of the bytes moved from one sender to another.
    moved: int = 0
    #: For people, where there is more to say.
    detail: str = ""

@final
@_record
class Pushed:
    """What a push came to; true if every shard that was to have the version has it, and there was one."""

    #: The version that was pushed, and the training run that it belongs to.
    version: int
    epoch: int
    #: What became of each shard, by replica and number.
    shards: tuple[PushedShard, ...]
    def __bool__(self) -> bool: ...

@final
@_record
class PushOutlook:
    """How a shard would get a version now, and why."""

    replica: str
    shard: int
    #: `push`: those that hold the version would write it; `pull`: the shard would have to read it; `neither`:
    #: it needs nothing, or is not there, or cannot be filled.
    way: str
    #: Bytes that a push would write into its memory.
    bytes: int
    #: For people.
    why: str

@final
@_record
class Listing:
    """Which replicas hold which versions, at one moment."""

    #: The server's term, and a number that every change makes larger.
    revision: tuple[int, int]
    #: Versions in ascending order, each with the replicas that hold it.
    versions: tuple[tuple[_Version, tuple[str, ...]], ...]

@final
@_record
class Check:
    """What `doctor` found of one thing; true unless it is a problem."""

    #: Which check it is: the same in every release.
    id: str
    #: Which one of several things it is about, such as a server of the list, or a variable.
    of: str | None
    #: "ok", "warning", "problem" or "not applicable".
    verdict: str
    #: What was found.
    found: str
    #: What to do next, if it is not good.
    advice: str | None

    def __bool__(self) -> bool: ...

@final
@_record
class Verified:
    """One of the replicas that were compared."""

    name: str
    shards: int
    #: That the shards hold.
    bytes: int
    #: All copies of what several of the shards hold are the same.
    copies_agree: bool
    #: The content has the digest that the version was sealed with; `None` while it is not sealed.
    as_published: bool | None

@final
@_record
class HeldBy:
    """A shard that holds a place."""

    replica: str
    shard: int
    #: The shard's data port.
    address: str
    #: Whether the shard's slice around the place is what was sealed, or verified when it was read;
    #: `None` where that is not known.
    as_published: bool | None

@final
@_record
class Why:
    """Why a replica waits, or that it does not."""

    #: One sentence: what is waited for, who holds it up, what ends the wait.
    sentence: str
    #: Whether a call of the replica, or its opening, waits.
    waits: bool
    #: The replicas that hold it up, the nearest first: each waits for the next.
    held_up_by: tuple[str, ...]
    #: The replicas that wait for each other in a circle, if they do.
    cycle: tuple[str, ...]

@final
@_record
class RoutingLease:
    """One engine of a fleet: whether a router may send requests there."""

    #: The engine, as it calls itself: its address.
    engine: str
    #: Another number whenever the engine starts.
    life: int
    #: `admitted`, `behind`, `standing` or `joining`.
    state: str
    #: The version that all of its workers serve, if they do.
    version: int | None
    #: The version's training run.
    epoch: int | None
    #: Seconds for which this is so without another word of the engine.
    left_s: float

    @property
    def admitted(self) -> bool:
        """Whether requests may be sent there."""

@final
@_record
class DifferentRange:
    """A place of a tensor that is not the same everywhere."""

    #: (start, stop) by dimension.
    slice: tuple[tuple[int, int], ...]
    #: Every row of the place differs, and all that differs in these rows is in the place; else some
    #: rows do.
    exact: bool
    #: The place differed and then did not any more: somebody writes to it.
    moving: bool
    #: Who holds the place, those together that hold the same.
    readings: tuple[tuple[HeldBy, ...], ...]

@final
@_record
class Difference:
    """A tensor that is not the same everywhere."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    #: The first 16 places.
    ranges: tuple[DifferentRange, ...]
    #: How many there are beyond these.
    more_ranges: int

@final
@_record
class Verdict:
    """What `verify` found; true if all is equal."""

    #: The replicas hold the same, all copies within each are the same, and nothing is known to
    #: differ from what was published.
    equal: bool
    model: str
    epoch: int
    version: int
    #: Two, or one that was compared with what it was sealed as.
    replicas: tuple[Verified, ...]
    #: How many tensors were compared.
    tensors: int
    #: The names of all that differ.
    different: tuple[str, ...]
    #: Where, for the first 16 of them.
    differences: tuple[Difference, ...]
    #: Bytes that shards digested, and bytes that were sent for the comparison.
    digested: int
    moved: int
    seconds: float
    def __bool__(self) -> bool: ...

@final
class Options:
    """What the job wants of a handle: the arguments of `weightcast.open`."""

    def __init__(
        self,
        *,
        role: str,
        new_epoch: bool,
        retain: int,
        offload_seeding: bool,
        offload_bytes: int | None,
        staging_bytes: int | None,
        plan_cache: str | PathLike[str] | None,
        trace: str | PathLike[str] | None,
        otlp: str | None,
        record_dir: str | PathLike[str] | None,
        server: str | None,
        token_file: str | PathLike[str] | None,
        data_bind: str | None,
        data_advertise: str | None,
        data_networks: str | None,
        insecure: bool,
        job: str | None,
        lazy_server: Sequence[str],
        way: str,
        deadline: float,
        reconnect: float,
    ) -> None: ...

@final
class Handle:
    @staticmethod
    def open(model: str, replica: Replica, options: Options) -> Handle: ...
    def register(
        self,
        layout: Layout,
        deadline: float,
        exchange: Callable[[bytearray], None] | None = None,
    ) -> None: ...
    def catalog(self, deadline: float) -> list[tuple[str, str, list[int]]]: ...
    def refuse(self, reason: str, deadline: float) -> None: ...
    def unregister(self, deadline: float) -> None: ...
    def publish(self, version: int, deadline: float, seal: bool) -> _Version: ...
    def wait_sealed(self, deadline: float) -> None: ...
    def unpublish(self, deadline: float) -> None: ...
    def replicate(
        self,
        selector: Selector,
        deadline: float,
        progress: Callable[[int, int], object] | None = None,
    ) -> Updated: ...
    def update(
        self,
        selector: Selector,
        allow_rollback: bool,
        staged: bool,
        deadline: float,
        progress: Callable[[int, int], object] | None = None,
    ) -> Updated: ...
    def push(
        self, version: int | None, to: Sequence[str] | None, deadline: float, patience: float
    ) -> Pushed: ...
    def explain_push(
        self, version: int | None, to: Sequence[str] | None, deadline: float
    ) -> list[PushOutlook]: ...
    def accept(self, before: Callable[[int], object] | None, deadline: float) -> Updated: ...
    def retain(self, selector: Selector, deadline: float) -> _Version: ...
    def let_go(self, version: int, deadline: float) -> None: ...
    def view(self, selector: Selector, shard: int | None, deadline: float) -> View: ...
    def list(self, deadline: float) -> Listing: ...
    def wait(self, until: Condition, deadline: float) -> Listing: ...
    def wait_changed(self, after: tuple[int, int], deadline: float) -> Listing: ...
    @property
    def version(self) -> _Version | None: ...
    @property
    def progress(self) -> int: ...
    @property
    def progress_total(self) -> int: ...
    def record(self) -> Path: ...
    def ask_fleet(self, question_json: str, deadline: float = 10.0) -> str:
        """Asks the register of the model's fleet: a `FleetQuestion` as JSON, such as `"State"` or
        `{"Number": {"key": 5, "heard": null}}`; the answer is a `FleetAnswer`."""

    def ask_routing(self, question_json: str, deadline: float = 10.0) -> str:
        """Tells or asks the table of the fleet's routing leases: a `RoutingQuestion` as JSON, `"Engines"` or
        `{"Serves": {...}}`, a `ServingNotice`; the answer is a `RoutingAnswer`."""

    def close(self, deadline: float) -> None: ...

@final
class FleetDriver:
    """What drives engines: asks them what they are, ends what a lost driver has left, and brings them to a
    version. Pure: it does nothing by itself. Structures are JSON, as the Rust types are written by serde;
    times are nanoseconds of any clock that goes on."""

    def __init__(self, config_json: str) -> None:
        """A `DriverConfig`."""

    def bring(self, now: int, version: str | None, engines: dict[int, int]) -> bool:
        """Brings engines, by number with their workers, to a `Version`; None: to the fleet's own. False:
        the driver is still at its former work."""

    def handle(self, now: int, input_json: str) -> None:
        """A `DriverInput`."""

    def handle_timeout(self, now: int) -> None: ...
    def poll_output(self) -> str | None:
        """The next `DriverOutput`."""

    def next_timeout(self) -> int | None:
        """When to call `handle_timeout`."""

    def is_idle(self) -> bool: ...

@final
class EngineGate:
    """The gate in a worker of an engine: which orders it obeys, and whether it may serve. Pure: it does
    nothing by itself. Arguments and results that are structures are JSON, as the Rust types are written
    by serde.

    Steps are taken by one thread. Any thread may ask."""

    def __init__(self, life: int, holds: str | None, driver: int, serving: bool = False) -> None:
        """`life`: another one whenever the engine starts, the same at all of its workers. `holds`: the
        `Version` that was loaded. `driver`: the newest one that the register has numbered; earlier ones
        have no say. `serving`: it serves what it has loaded, and no driver has to admit it."""

    def handle_order(self, order_json: str) -> None:
        """A `StepOrder` came in; `poll_output` has what to do."""

    def handle_performed(self, attempt_json: str, failure: str | None = None) -> None:
        """The step with this `UpdateAttempt` was taken, or failed: "layouts", "source", "digest",
        "engine", ..."""

    def handle_slept(self) -> None: ...
    def handle_woken(self) -> None: ...
    def poll_output(self) -> str | None:
        """The next `GateOutput`: `{"Perform": StepOrder}`, or
        `{"Answer": {"attempt": ..., "answer": ...}}`."""

    def may_act(self, attempt_json: str) -> bool:
        """Whether the step with this number may make its next change."""

    def may_serve(self) -> bool:
        """Whether the worker may run a forward pass."""

    def report(self) -> str:
        """What the worker is: an `EngineReport`."""

    def busy(self) -> float:
        """Seconds that a driver waits for the step that is being taken; 0.0 if none is."""

    def stamp(self) -> str | None:
        """The `Version` that tokens are stamped with."""

@final
class Server:
    @property
    def address(self) -> str: ...
    @property
    def metrics_address(self) -> str | None: ...
    @property
    def token_file(self) -> Path | None: ...
    def stop(self) -> None: ...

def serve(
    address: str,
    *,
    token_file: str | PathLike[str] | None,
    insecure: bool,
    lease: float,
    drain_deadline: float,
    fanout: int,
    host_fanout: int,
    stripes: int,
    index: int,
    metrics: str | None,
    trace: str | PathLike[str] | None,
    otlp: str | None,
    record_dir: str | PathLike[str] | None,
) -> Server: ...
def status(
    server: str | None = None, token_file: str | PathLike[str] | None = None, job: str | None = None
) -> dict[str, Any]: ...
def engines(
    model: str,
    server: str | None = None,
    token_file: str | PathLike[str] | None = None,
    job: str | None = None,
) -> list[RoutingLease]: ...
def why(
    replica: str,
    model: str | None = None,
    server: str | None = None,
    token_file: str | PathLike[str] | None = None,
    job: str | None = None,
) -> Why: ...
def verify(
    model: str,
    replica: str,
    *,
    other: str | None,
    sealed: bool,
    version: Selector | None,
    server: str | None,
    token_file: str | PathLike[str] | None,
    job: str | None,
    deadline: float,
) -> Verdict: ...
def doctor(
    *,
    server: str | None,
    token_file: str | PathLike[str] | None,
    job: str | None,
    source: str | None,
    reader: str | None,
    model: str | None,
    program: Sequence[str],
) -> list[Check]: ...
def metrics(model: str | None = None) -> dict[str, float]:
    """What the handles of this process have done since it started, and hold now: numbers under keys
    such as `weightcast/update_seconds`, for a trainer's logger. Handles that are closed count too. A
    key is missing while there is nothing to tell, such as the version of a process that holds none;
    without handles, the dict is empty.

    With `model`, those of its handles alone. Beyond 64 models the others are one, named `other`."""

def metrics_text() -> str:
    """The same by model, as text for Prometheus: for a process that serves it on a port of its own.
    The names begin with `weightcast_client_`."""

def command_line(arguments: Sequence[str], program: Sequence[str]) -> int: ...
def join_layouts(texts: Sequence[str]) -> str: ...
def plan(
    source: str,
    target: str,
    config: str | PathLike[str] | None,
    replicas: int,
    gpus_per_host: int,
    machine: str,
    nic_gbps: float | None,
    budget: int,
) -> str: ...
def explain(
    source: str, target: str, config: str | PathLike[str] | None, tensor: str | None, rank: int | None
) -> str: ...
def local_slices(
    shape: Sequence[int],
    axes: Sequence[tuple[str, int]],
    placements: Sequence[tuple[str, int, int]],
    rank: int,
) -> list[tuple[list[int], list[int]]]: ...

def log_to_queue() -> None: ...
def set_log_level(level: int) -> None: ...
def log_lines(limit: float) -> list[tuple[int, str, str, float, int]]: ...
