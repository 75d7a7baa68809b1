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
    for name in ("SERVER", "TOKEN_FILE", "DATA_BIND"):
        monkeypatch.delenv(f"WEIGHTCAST_{name}", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
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


def files_of(process: int) -> set[str]:
    """What a process has open, by what it is."""
    return {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()}


def test_it_keeps_nothing_of_the_process_that_starts_it(job):
    end, other = os.pipe()
    os.set_inheritable(other, True)
    mine = os.readlink(f"/proc/self/fd/{other}")
    with wc.open("policy", wc.Replica("one"), deadline=SOON):
        (server,) = servers_of(job)
        kept = mine in files_of(server)
        os.close(other)
        assert not kept
        assert os.read(end, 1) == b"", "nobody else has the pipe's other end"
        assert os.getsid(server) == server
        assert os.readlink(f"/proc/{server}/cwd") == "/"
        standard = [os.readlink(f"/proc/{server}/fd/{n}") for n in range(3)]
        assert standard == ["/dev/null", "/dev/null", str(job / "server.log")]
    os.close(end)


#: Its ranks open the lazy server and end; so does it, once they have.
RANKS = """
import multiprocessing, sys, weightcast as wc

def rank(index):
    with wc.open("policy", wc.Replica(f"rank-{index}")):
        pass

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ranks = [context.Process(target=rank, args=(index,)) for index in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    print("joined", [process.exitcode for process in ranks])
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_ranks_that_start_it_can_be_joined_while_it_lives(job, tmp_path, method):
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    command = [sys.executable, str(program), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert done.stdout == "joined [0, 0]\n", done.stderr
    assert len(servers_of(job)) == 1, "it lives on"


def test_its_status_is_found_without_an_address(job):
    with wc.open("policy", wc.Replica("one"), role="trainer", deadline=SOON) as trainer:
        trainer.register(wc.Layout().add(np.ones(4, "f4"), "w"), deadline=SOON)
        trainer.publish(1, deadline=SOON, seal=True)
        (model,) = wc.status()["models"]
        assert [replica["name"] for replica in model["replicas"]] == ["one"]
        assert wc.status(job="lazy-test")["models"][0]["name"] == "policy"
        assert wc.verify("policy", "one", sealed=True)
        command = [sys.executable, "-m", "weightcast", "status"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
        assert "replica one" in shown.stdout, shown.stderr
        # One that has none is told which have.
        with pytest.raises(wc.Misuse, match="job other.*lazy-test.*WEIGHTCAST_JOB"):
            wc.status(job="other")
    assert not (job.parent / "other").exists()


def test_without_any_server_status_says_so(job, home):
    with pytest.raises(wc.Misuse, match="lazy-test.*WEIGHTCAST_SERVER"):
        wc.status()
    assert list(home.iterdir()) == []


def test_a_job_without_a_name_is_a_directory(job, home, tmp_path, monkeypatch):
    monkeypatch.delenv("WEIGHTCAST_JOB")
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
    monkeypatch.chdir(here)
    trainer, rollout = start("trainer"), start("rollout")
    monkeypatch.chdir(there)
    elsewhere = start("trainer")
    for program in (trainer, rollout, elsewhere):
        assert program.stdout.readline() == "open\n"
    assert len(servers_of(home)) == 2

    def replicas() -> set[str]:
        return {r["name"] for model in wc.status()["models"] for r in model["replicas"]}

    assert replicas() == {"trainer"}
    monkeypatch.chdir(here)
    assert replicas() == {"trainer", "rollout"}
    # Who waits for a trainer of another directory in vain is told that it is one.
    with wc.open("policy", wc.Replica("alone"), deadline=SOON) as alone:
        alone.register(wc.Layout().add(np.zeros(4, "f4"), "w"), deadline=SOON)
        with pytest.raises(wc.VersionUnavailable, match="job in-here-.*WEIGHTCAST_JOB"):
            alone.update("latest", deadline=0.2)
    for program in (trainer, rollout, elsewhere):
        finish(program)


def test_a_batch_job_is_one_job_in_every_directory(job, home, tmp_path, monkeypatch):
    monkeypatch.delenv("WEIGHTCAST_JOB")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    one = start("one")
    monkeypatch.chdir(tmp_path)
    two = start("two")
    for program in (one, two):
        assert program.stdout.readline() == "open\n"
    assert len(servers_of(home)) == 1
    for program in (one, two):
        finish(program)


@pytest.mark.parametrize("name", [" ", "../up", "a/b", ".hidden", "ü", "a" * 65])
def test_bad_job_names(job, home, name):
    with pytest.raises(wc.Misuse, match="job name"):
        wc.open("policy", wc.Replica("one"), job=name)
    assert servers_of(home) == []


def test_the_doctor_finds_the_server_of_the_job_and_starts_none(job):
    alone = {check.id: check for check in wc.doctor()}
    assert alone["server"].verdict == "not applicable" and "lazy-test" in alone["server"].found
    assert servers_of(job) == [] and "token" not in alone
    with wc.open("policy", wc.Replica("trainer"), role="trainer"):
        found = {check.id: check for check in wc.doctor()}
    assert found["server"].verdict == "ok" and "job lazy-test" in found["server"].found
    assert found["server.role"].found.startswith("acts in term")
    assert found["token"].verdict == found["token.accepted"].verdict == "ok"
    assert found["data-port.reached"].verdict == "not applicable"
