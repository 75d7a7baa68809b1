"""Hosts on one machine: each a network namespace with a veth to a bridge, and a `tbf` in each direction.

As in `crates/weightcast-bench/src/emulated/network.rs`, which says why the numbers are what they are.
Loopback where there are none.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "wcrl"
"""Of namespaces: then the process id of whoever made them."""
SUBNET = "10.78.0.0/16"
BURST, QUEUE = "128kb", "50ms"
GOODPUT = 0.956
"""Share of a set rate that TCP delivers."""


class NoLinks(Exception):
    """This machine cannot emulate hosts."""


class Loopback:
    """All processes on the machine as it is."""

    rate: str | None = None
    server_address = "127.0.0.1"

    def address(self, host: int) -> str:
        """Of a host."""
        return "127.0.0.1"

    def inside(self, host: int | None) -> list[str]:
        """What a command begins with that is to run on a host; None: the server's."""
        return []

    def interface(self) -> str:
        """What peers are reached by."""
        return "lo"


class Emulated(Loopback):
    """So many hosts, and one for the server, whose link has no limit."""

    server_address = "10.78.255.1"

    def __init__(self, hosts: int, rate: str) -> None:
        self.rate, self.prefix = rate, f"{PREFIX}{os.getpid()}"
        hub, server = f"{self.prefix}-hub", f"{self.prefix}-server"
        _batch("ip", f"netns add {hub}\nnetns add {server}\n")
        _batch("ip", f"link add br0 type bridge\nlink set br0 up\n{_plug('vs', server)}", hub)
        self._furnish(server, self.server_address, None)
        for host in range(hosts):
            name = self._name(host)
            _batch("ip", f"netns add {name}\n")
            _batch("ip", _plug(f"v{host}", name), hub)
            _batch("tc", _limit(f"v{host}", rate), hub)
            self._furnish(name, self.address(host), rate)

    def address(self, host: int) -> str:
        """Of a host."""
        return f"10.78.{host // 200}.{host % 200 + 1}"

    def inside(self, host: int | None) -> list[str]:
        """What a command begins with that is to run on a host; None: the server's."""
        return ["ip", "netns", "exec", f"{self.prefix}-server" if host is None else self._name(host)]

    def interface(self) -> str:
        """What peers are reached by."""
        return "eth0"

    def _name(self, host: int) -> str:
        return f"{self.prefix}-h{host}"

    def _furnish(self, namespace: str, address: str, rate: str | None) -> None:
        # The route names cubic: the machine's default may pace itself by estimates of its own.
        route = f"route change {SUBNET} dev eth0 proto kernel scope link src {address} congctl cubic\n"
        up = "link set eth0 up\nlink set lo up\n"
        _batch("ip", f"addr add {address}/16 dev eth0\n{up}{route}", namespace)
        if rate:
            _batch("tc", _limit("eth0", rate), namespace)


@contextmanager
def hosts(links: str, count: int, rate: str) -> Iterator[Loopback]:
    """So many hosts, as `--links` asks for them. Gone afterwards; those of killed runs, before."""
    why = None if links == "loopback" else lacking()
    if links == "emulated" and why:
        raise NoLinks(f"--links emulated: {why}")
    if links == "loopback" or why:
        if why:
            print(f"no emulated links: {why}; everything goes over loopback", file=sys.stderr)
        yield Loopback()
        return
    sweep(_abandoned)
    try:
        yield Emulated(count, rate)
    finally:
        sweep(lambda name: name.startswith(f"{PREFIX}{os.getpid()}-"))


def lacking() -> str | None:
    """Why this machine cannot emulate hosts; None if it can."""
    if os.geteuid() != 0:
        return "that needs root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 not found"
    name = f"{PREFIX}{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces are not allowed here (a container needs --privileged)"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


def sweep(ours: Callable[[str], bool]) -> None:
    """Removes namespaces of these names, and ends the processes in them."""
    for name in [line.split()[0] for line in _said("list").splitlines() if line.strip()]:
        if ours(name):
            for pid in _said("pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _said("del", name)


def _said(*words: str) -> str:
    return subprocess.run(["ip", "netns", *words], capture_output=True, text=True).stdout


def _abandoned(name: str) -> bool:
    """Whether the process that made a namespace of ours is gone."""
    maker = name.removeprefix(PREFIX).partition("-")[0]
    return name.startswith(PREFIX) and maker.isdigit() and not Path("/proc", maker).exists()


def _plug(port: str, namespace: str) -> str:
    return (
        f"link add {port} type veth peer name eth0 netns {namespace}\n"
        f"link set {port} master br0\nlink set {port} up\n"
    )


def _limit(device: str, rate: str) -> str:
    return f"qdisc add dev {device} root tbf rate {rate} burst {BURST} latency {QUEUE}\n"


def _batch(tool: str, commands: str, namespace: str | None = None) -> None:
    """Runs many commands of `ip` or `tc` in one process."""
    command = [tool, *(["-n", namespace] if namespace else []), "-batch", "-"]
    done = subprocess.run(command, input=commands, capture_output=True, text=True)
    if done.returncode:
        raise NoLinks(f"{' '.join(command)} failed: {done.stderr.strip()}")
