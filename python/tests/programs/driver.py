"""What a test holds of other processes: workers, a server, and a gate in front of a data port."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import weightcast as wc

HERE = Path(__file__).parent
#: Seconds in which everything must have happened, on a busy machine too.
SOON = 30.0


class Process:
    """A child that is killed with its test, and whose lines are read with a deadline."""

    def __init__(self, *command):
        self.child = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self):
        said = self.lines.get(timeout=SOON)
        assert said is not None, f"process ended with {self.child.wait(SOON)}"
        return said

    def signal(self, number):
        """Send a signal; after SIGSTOP, the process no longer runs.

        `kill` returns before threads on other processors have stopped: one of them could still
        answer. The kernel tells a parent of a stop once the last thread has stopped.
        """
        os.kill(self.child.pid, number)
        if number == signal.SIGSTOP:
            told = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            os.waitid(os.P_PID, self.child.pid, told)

    def kill(self):
        """SIGKILL; afterwards the process is gone for good."""
        self.child.kill()
        self.child.wait(SOON)
        self.child.stdin.close()


class Worker(Process):
    """One shard in a process of its own."""

    def __init__(self, server, name, shard=0, of=1, **options):
        super().__init__(HERE / "worker.py")
        self.name = name
        self.tell(server=server, name=name, shard=shard, of=of, **options)

    def tell(self, **order):
        self.child.stdin.write(json.dumps(order) + "\n")
        self.child.stdin.flush()

    def start(self, call, deadline=SOON, **arguments):
        """Begins a call; `outcome` says what it came to."""
        self.tell(call=call, deadline=deadline, **arguments)

    def outcome(self, call):
        said = json.loads(self.line())
        assert said.pop("call") == call, said
        return said

    def do(self, call, **arguments):
        """A call that must succeed; returns its value."""
        self.start(call, **arguments)
        return self.value(call)

    def value(self, call):
        said = self.outcome(call)
        assert "error" not in said, said
        return said["value"]

    def moving(self):
        """Waits until the running read is under way; returns the bytes that have arrived."""
        self.tell(call="moving", deadline=SOON)
        moved = self.value("moving")
        assert moved > 0, "nothing has arrived"
        return moved


def together(workers, call, **arguments):
    """The shards of a group call; all must succeed."""
    for worker in workers:
        worker.start(call, **arguments)
    return [worker.value(call) for worker in workers]


class ServerProcess(Process):
    """`weightcast serve` in a process of its own."""

    def __init__(self, lease, address="127.0.0.1:0", index=0, stripes=1, fanout=1):
        options = ["--lease", str(lease), "--index", str(index), "--stripes", str(stripes)]
        options += ["--fanout", str(fanout)]
        options.append("--paranoid")
        super().__init__("-m", "weightcast", "serve", "--address", address, *options)
        self.address = re.search(r"http://\S+", self.line())[0]


class Proxy:
    """Stands in front of a data port. Subclasses change or hold what passes.

    The port behind has the same number on another loopback address.
    """

    BEHIND = "127.0.0.2"

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        #: Options for the worker behind the proxy.
        self.options = {"data_bind": f"{self.BEHIND}:{port}", "data_advertise": f"127.0.0.1:{port}"}
        self.sockets = []
        threading.Thread(target=self.accept, args=(port,), daemon=True).start()

    def request(self, at, data):
        """What the source gets for these bytes of a reader, of which `at` came before."""
        return data

    def answer(self, at, data):
        """What the reader gets for these bytes of the source."""
        return data

    def close(self):
        for each in [self.listener, *self.sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept(self, port):
        with suppress(OSError):
            while True:
                reader, _ = self.listener.accept()
                self.sockets.append(reader)
                try:
                    source = socket.create_connection((self.BEHIND, port))
                except OSError:
                    reader.close()
                    continue
                self.sockets.append(source)
                for ends in [(reader, source, self.request), (source, reader, self.answer)]:
                    threading.Thread(target=self.pump, args=ends, daemon=True).start()

    @staticmethod
    def pump(one, other, change):
        at = 0
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(change(at, data))
                at += len(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


class Gate(Proxy):
    """Lets so many bytes of the source through, then holds the rest.

    So a transfer is in its middle for as long as a test wants, whatever the machine does.
    """

    def __init__(self):
        self.changed = threading.Condition()
        self.left = float("inf")
        #: Bytes of the source that have passed.
        self.passed = 0
        super().__init__()

    def hold_after(self, count):
        """From now on, so many bytes pass."""
        with self.changed:
            self.left = count

    def open(self):
        """Lets everything through."""
        with self.changed:
            self.left = float("inf")
            self.changed.notify_all()

    def wait_held(self):
        """Waits until the gate holds bytes back."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.left <= 0, SOON), "nobody came to the gate"

    def answer(self, at, data):
        with self.changed:
            self.changed.wait_for(lambda: self.left > 0)
            self.left -= len(data)
            self.passed += len(data)
            self.changed.notify_all()
        return data

    def close(self):
        self.open()
        super().close()


class WriteGate(Gate):
    """Lets so many bytes through to a target that is pushed to, then holds the rest: a push is in its middle."""

    def request(self, at, data):
        return super().answer(at, data)

    def __init__(self):
        #: Bytes that the target has answered.
        self.answered = 0
        super().__init__()

    def answer(self, at, data):
        with self.changed:
            self.answered += len(data)
            self.changed.notify_all()
        return data

    def wait_answered(self, before):
        """Waits until the target has answered more than so much."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.answered > before, SOON), "nothing is written"


class Corrupting(Proxy):
    """Changes one byte of what senders write."""

    def __init__(self):
        self.changed = 0
        super().__init__()

    def request(self, at, data):
        # No frame begins in this piece, nor soon before: all of its end is bytes of weights.
        if self.changed or at < 1 << 20 or len(data) < 1 << 12 or b"WCD1" in data:
            return data
        self.changed += 1
        return data[:-1] + bytes([data[-1] ^ 1])


class Cluster:
    """Everything that a test starts; ends with it."""

    def __init__(self, lease=1.0, backups=0, reconnect=60.0, stripes=1, fanout=1):
        self.lease = lease
        self.reconnect = reconnect
        self.server = ServerProcess(lease, stripes=stripes, fanout=fanout)
        self.backups = [ServerProcess(lease, index=1 + n) for n in range(backups)]
        self.started = [self.server, *self.backups]
        #: The list that workers are given.
        self.servers = ",".join(server.address for server in self.started)
        self.gates = []

    def restart_server(self):
        """A new server where the old one was."""
        self.server = ServerProcess(self.lease, self.server.address.removeprefix("http://"))
        self.started.append(self.server)

    def gate(self, kind=Gate):
        self.gates.append(kind())
        return self.gates[-1]

    def hold_after(self, count):
        """Every gate lets this much more pass, then nothing."""
        for gate in self.gates:
            gate.hold_after(count)

    def wait_held(self):
        """Waits until every gate holds something back."""
        for gate in self.gates:
            gate.wait_held()

    def open_gates(self):
        for gate in self.gates:
            gate.open()

    def gated_trainer(self, size):
        """Two ranks that published version 1 of so many bytes, each behind a gate."""
        gates = [self.gate(), self.gate()]
        ranks = self.group("trainer", 2, role="trainer", bytes=size, gates=gates)
        together(ranks, "publish", version=1)
        return ranks

    def begin(self, name, of=1, gates=(), **options):
        """Starts the workers of a replica, which open; `ready` waits for them."""
        options = {"way": "tcp", "reconnect": self.reconnect} | options
        workers = []
        for shard in range(of):
            own = gates[shard].options if gates else {}
            workers.append(Worker(self.servers, name, shard, of, **options, **own))
        self.started += workers
        return workers

    def ready(self, workers):
        for worker in workers:
            worker.value("open")
        together(workers, "register")
        return workers

    def group(self, name, of=1, **options):
        """The workers of a replica, registered."""
        return self.ready(self.begin(name, of, **options))

    def readers(self, name):
        """Who reads from a replica, as the server says."""
        models = wc.status(self.server.address)["models"]
        return [r["reader"] for m in models for r in m["readers"] if r["source"] == name]

    def close(self):
        for gate in self.gates:
            gate.close()
        for process in self.started:
            if process.child.poll() is None:
                process.signal(signal.SIGCONT)
                process.kill()
