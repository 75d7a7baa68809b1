"""The ways that are compared. `way.Way` is what each of them does."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch, which the program itself does without
    from .way import Way

ROOT = Path(__file__).parents[3]
PEERS, UCX = ".venv-peers", ".venv-peers-ucx"
DEBIAN = ROOT / PEERS / "debian"
"""Debian's libraries that Mooncake needs, where the system does not have them."""


@dataclass(frozen=True)
class Entry:
    """One way."""

    #: Its class.
    where: str
    #: Over TCP, as between hosts; else it may use what one host shares.
    tcp: bool
    #: What it does, and with which settings.
    about: str
    #: The environment that has its library; empty: that of weightcast.
    venv: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def python(self) -> str:
        """The interpreter; this one, where the environment is not there."""
        there = ROOT / self.venv / "bin" / "python"
        return str(there) if self.venv and there.exists() else sys.executable


def _debian() -> str:
    found = sorted({str(file.parent) for file in DEBIAN.rglob("*.so*")}) if DEBIAN.exists() else []
    return os.pathsep.join([*found, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


WAYS = {
    "weightcast": Entry(
        "weightcast:Direct",
        False,
        "`publish`, `update`; everything as it is by default, digests too, but for a lease of 30 s",
    ),
    "weightcast-shared": Entry(
        "weightcast:Shared",
        False,
        "the same, and the sender's tensors were moved to shared memory by `weightcast.torch.share_` before",
    ),
    "weightcast-tcp": Entry("weightcast:Tcp", True, 'as `weightcast`, with `way="tcp"`'),
    "sockets": Entry(
        "sockets:Tcp",
        True,
        "TCP over loopback from Python: `sendmsg` from the tensors, `recvmsg_into` them with `MSG_WAITALL`; "
        "4 MiB buffers; two streams to one reader, one to each of several",
    ),
    "sockets-unix": Entry("sockets:Unix", False, "the same over Unix sockets"),
    "gloo": Entry(
        "gloo:Tensors",
        True,
        "`torch.distributed.broadcast` of each tensor in place, eight on their way at once",
    ),
    "gloo-packed": Entry(
        "gloo:Packed",
        True,
        "the same of flat buckets of 4 MiB, large tensors cut, in kept memory, two on their way at once",
    ),
    "ray": Entry(
        "ray:RayObjects",
        False,
        "`ray.put` of one list of NumPy arrays, which `ray.get` maps without a copy (Ray's page on "
        "serialization); tensors below 1 MiB packed into one array; readers copy into their tensors; the "
        "store's memory touched before (`RAY_preallocate_plasma_memory`)",
        PEERS,
        {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_preallocate_plasma_memory": "1",
            # One of this run alone, so that its drivers know each other.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        },
    ),
    "nixl": Entry(
        "nixl:Read",
        False,
        "UCX backend as it is by default; readers read: one prepared transfer of all tensors, posted for "
        "each version, as NIXL's examples do for repeated transfers; no progress thread, which takes a core",
        PEERS,
    ),
    "nixl-tcp": Entry(
        "nixl:Write",
        True,
        "`UCX_TLS=tcp`; the sender writes, since a read over TCP is four times slower; progress threads, "
        "without which a passive side does nothing",
        PEERS,
        {"UCX_TLS": "tcp"},
    ),
    "mooncake": Entry(
        "mooncake:Mooncake",
        True,
        "transfer engine, protocol `tcp`, `P2PHANDSHAKE`; `batch_transfer_sync_write` of at most 2,048 "
        "tensors (5,000 fail), one thread for each reader; the rest as its Python API has it by default",
        PEERS,
        {"MC_LOG_LEVEL": "ERROR", "LD_LIBRARY_PATH": _debian()},
    ),
    "ucx": Entry(
        "ucx:Ucx",
        False,
        "`ucxx`'s core interface: a tagged message for each tensor, all posted at once; blocking progress, "
        "as in ucxx's own benchmark; UCX's own choice of transports",
        UCX,
    ),
    "ucx-tcp": Entry("ucx:Ucx", True, "the same with `UCX_TLS=tcp`", UCX, {"UCX_TLS": "tcp"}),
    "disk": Entry(
        "disk:Disk",
        False,
        "`safetensors`: `save_file` without a sync, `safe_open` and a copy into the tensors, so from the "
        "page cache",
    ),
}
"""Their names."""


class UnknownWay(ValueError):
    """There is no such way."""


def entry(name: str) -> Entry:
    """A name of `WAYS`, or MODULE:CLASS."""
    if name not in WAYS and ":" not in name:
        raise UnknownWay(f"there is no way {name!r}, only {', '.join(WAYS)} and MODULE:CLASS")
    return WAYS.get(name) or Entry(name, False, "a way of your own")


def find(name: str) -> "type[Way]":
    """The class of a way."""
    module, _, attribute = entry(name).where.partition(":")
    try:
        way: type[Way] = getattr(import_module(f"{__name__}.{module}" if name in WAYS else module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownWay(f"{name}: {error}") from error
    return way
