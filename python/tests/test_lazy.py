"""No server is configured: the first process of a job starts one, the others find it."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

#: Opens a shard of the lazy server's job, says where it is, and stays until its stdin ends.
PROGRAM = """
import sys, weightcast as wc
with wc.open("policy", wc.Replica(sys.argv[1])) as handle:
    print("open", flush=True)
    sys.stdin.read()
"""


def servers_of(directory: Path) -> list[int]:
    """Process ids of the servers whose socket lies in the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has just ended
            if "serve" in command and any(str(directory) in word for word in command):
                found.append(int(entry.name))
    return found


def address_of(server: int) -> str:
    command = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    return command[command.index("--address") + 1]


def kill_all(directory: Path) -> None:
    """Kills them and waits until they are gone."""
    until = time.monotonic() + SOON
    while running := servers_of(directory):
        assert time.monotonic() < until, f"still there: {running}"
        for pid in running:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@pytest.fixture
def home(tmp_path_factory):
    """A directory with a short name: the socket lies in the job's directory."""
    return tmp_path_factory.mktemp("x")


@pytest.fixture
def job(home, monkeypatch):
    """The directory of a job that has no server yet."""
    for name in ("WEIGHTCAST_SERVER", "WEIGHTCAST_TOKEN_FILE", "WEIGHTCAST_DATA_BIND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    monkeypatch.setenv("WEIGHTCAST_JOB", "lazy-test")
    yield home / "weightcast" / "lazy-test"
    kill_all(home)


def start(name: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(program: subprocess.Popen) -> None:
    program.communicate(timeout=SOON)
    assert program.returncode == 0


def replicas(job: Path) -> set[str]:
    status = wc.status(f"unix:{job / 'server.sock'}", token_file=job / "token")
    return {replica["name"] for model in status["models"] for replica in model["replicas"]}


def test_the_first_starts_a_server_and_the_second_finds_it(job):
    weight, copy = np.arange(1000, dtype="f4"), np.zeros(1000, "f4")
    with wc.open("policy", wc.Replica("trainer"), role="trainer") as trainer:
        (server,) = servers_of(job)
        trainer.register(wc.Layout().add(weight, "w"), deadline=SOON)
        trainer.publish(1, deadline=SOON)
        other = start("other")
        assert other.stdout.readline() == "open\n"
        assert servers_of(job) == [server]
        assert replicas(job) == {"trainer", "other"}
        with wc.open("policy", wc.Replica("rollout")) as rollout:
            rollout.register(wc.Layout().add(copy, "w"), deadline=SOON)
            assert rollout.replicate("latest", deadline=SOON)
        assert np.array_equal(copy, weight)
        finish(other)
        assert replicas(job) == {"trainer"}
    assert servers_of(job) == [server], "it stays for the next process of the job"


def test_processes_that_race_start_one(job):
    programs = [start(f"rollout-{index}") for index in range(3)]
    for program in programs:
        assert program.stdout.readline() == "open\n"
    assert len(servers_of(job)) == 1
    assert replicas(job) == {"rollout-0", "rollout-1", "rollout-2"}
    for program in programs:
        finish(program)


def test_it_outlives_the_process_that_started_it(job):
    first = start("first")
    assert first.stdout.readline() == "open\n"
    second = start("second")
    assert second.stdout.readline() == "open\n"
    first.kill()
    first.communicate(timeout=SOON)
    assert len(servers_of(job)) == 1 and "second" in replicas(job)
    finish(second)


def test_a_killed_server_is_replaced(job):
    finish(start("first"))
    (killed,) = servers_of(job)
    kill_all(job)
    finish(start("second"))
    (server,) = servers_of(job)
    assert server != killed


def test_jobs_have_servers_of_their_own(job):
    with wc.open("policy", wc.Replica("one")), wc.open("policy", wc.Replica("one"), job="another"):
        assert len(servers_of(job)) == 1 == len(servers_of(job.parent / "another"))
        assert replicas(job) == {"one"} == replicas(job.parent / "another")


def test_nobody_else_can_enter(job):
    with wc.open("policy", wc.Replica("one")):
        for path in (job.parent, job):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        for name in ("server.sock", "token", "lock", "server.log"):
            assert stat.S_IMODE((job / name).stat().st_mode) == 0o600, name
        with pytest.raises(wc.ServerUnreachable, match="token"):
            wc.status(f"unix:{job / 'server.sock'}")


def test_a_socket_that_would_have_too_long_a_path_lies_elsewhere(job, home, monkeypatch):
    deep = home / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    job = deep / "weightcast" / "lazy-test"
    with wc.open("policy", wc.Replica("one"), deadline=SOON):
        other = start("other")
        assert other.stdout.readline() == "open\n"
        (server,) = servers_of(job)
        socket = Path(address_of(server).removeprefix("unix:"))
        assert not (job / "server.sock").exists()
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        models = wc.status(f"unix:{socket}", token_file=job / "token")["models"]
        assert {r["name"] for m in models for r in m["replicas"]} == {"one", "other"}
        finish(other)
    kill_all(home)
    socket.unlink()


def test_a_server_that_cannot_start_is_quoted_at_once(job):
    for path in (job.parent, job, job / "server.sock"):
        path.mkdir(mode=0o700)  # nothing can be bound where a directory is
    (job / "server.log").write_text("of another server\n")
    with pytest.raises(wc.ServerUnreachable) as caught:
        wc.open("policy", wc.Replica("one"), deadline=10 * SOON)
    assert caught.value.server == f"unix:{job / 'server.sock'}"
    log = (job / "server.log").read_text().splitlines()
    assert f"cannot listen on {job / 'server.sock'}" in log[-1]
    assert log[-1] in caught.value.reason
    assert str(job / "server.log") in caught.value.reason


def test_an_address_that_is_too_long_is_refused(tmp_path):
    path = tmp_path / ("s" * 107)
    with pytest.raises(wc.Misuse, match=f"{path}.*107.*{len(str(path))}"):
        wc.serve(f"unix:{path}")


@pytest.mark.parametrize("level", ["weightcast", "weightcast/lazy-test"])
def test_a_directory_that_others_can_enter_is_refused(job, home, level):
    for path in (job.parent, job):
        path.mkdir(mode=0o700)
    path = home / level
    path.chmod(0o755)
    with pytest.raises(wc.Misuse, match=f"{path}.*0700"):
        wc.open("policy", wc.Replica("one"))
    assert servers_of(home) == []


def test_a_link_instead_of_the_directory_is_refused(job, home):
    elsewhere = home / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    job.parent.symlink_to(elsewhere)
    with pytest.raises(wc.Misuse, match="0700"):
        wc.open("policy", wc.Replica("one"))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", [" ", "../up", "a/b", ".hidden", "ü", "a" * 65])
def test_bad_job_names(job, home, name):
    with pytest.raises(wc.Misuse, match="job name"):
        wc.open("policy", wc.Replica("one"), job=name)
    assert servers_of(home) == []
