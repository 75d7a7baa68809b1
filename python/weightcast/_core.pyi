"""The native half of the package. Users call what `weightcast` exports, not this."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

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

class InDoubt(WeightcastError):
    version: int

class NoRoom(WeightcastError):
    bytes: int
    limit: int

class Unverified(WeightcastError):
    replica: str
    reason: str

class Misuse(WeightcastError): ...

class Part:
    def __init__(self, name: str, shape: Sequence[int] | None = None) -> None: ...
    def chunk(self, dim: int, index: int, of: int) -> Part: ...
    def range(self, dim: int, start: int, length: int) -> Part: ...

class Layout:
    def __init__(self) -> None: ...
    def add(
        self,
        name: str,
        memory: np.ndarray,
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
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

_Version = tuple[int, int]
_Updated = tuple[
    bool,
    _Version | None,
    str | None,
    int,
    int,
    float,
    float,
    tuple[str, str],
    int,
    float,
    list[str],
    str,
]
_Listing = tuple[tuple[int, int], list[tuple[_Version, list[str]]]]

class Handle:
    @staticmethod
    def open(
        model: str,
        name: str,
        shard: int,
        num_shards: int,
        datacentre: str,
        host: str | None,
        spot: bool,
        role: str,
        new_epoch: bool,
        retain: int,
        offload_seeding: bool,
        offload_bytes: int | None,
        staging_bytes: int | None,
        plan_cache: str | None,
        server: str | None,
        token_file: str | None,
        data_bind: str | None,
        data_advertise: str | None,
        data_networks: str | None,
        insecure: bool,
        job: str | None,
        lazy_server: list[str],
        way: str,
        deadline: float,
        reconnect: float,
    ) -> Handle: ...
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
    def replicate(self, selector: tuple[str, int], deadline: float) -> _Updated: ...
    def update(
        self, selector: tuple[str, int], allow_rollback: bool, staged: bool, deadline: float
    ) -> _Updated: ...
    def list(self, deadline: float) -> _Listing: ...
    def wait(self, until: tuple[str, int, int | None], deadline: float) -> _Listing: ...
    def wait_changed(self, after: tuple[int, int], deadline: float) -> _Listing: ...
    @property
    def version(self) -> _Version | None: ...
    @property
    def progress(self) -> int: ...
    def close(self, deadline: float) -> None: ...

class Server:
    @property
    def address(self) -> str: ...
    @property
    def token_file(self) -> Path | None: ...
    def stop(self) -> None: ...

def serve(
    address: str,
    token_file: str | None,
    insecure: bool,
    lease: float,
    drain_deadline: float,
    fanout: int,
    stripes: int,
    index: int,
) -> Server: ...
def status_json(
    server: str | None = None, token_file: str | None = None, job: str | None = None
) -> str: ...
def verify_json(
    model: str,
    replica: str,
    other: str | None,
    sealed: bool,
    version: tuple[str, int] | None,
    server: str | None,
    token_file: str | None,
    job: str | None,
    deadline: float,
) -> str: ...
def command_line(arguments: list[str]) -> int: ...
def local_slices(
    shape: Sequence[int],
    axes: Sequence[tuple[str, int]],
    placements: Sequence[tuple[str, int, int]],
    rank: int,
) -> list[tuple[list[int], list[int]]]: ...
