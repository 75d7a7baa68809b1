"""Ways that `bench_peers` must notice: wrong bytes, no library, a process that ends, one that never answers."""

import os
import time

from bench_peers.ways.sockets import Tcp


class Stale(Tcp):
    """Its last reader has one byte of an older version."""

    def receive(self, version):
        super().receive(version)
        if version == 2 and self.place.rank == self.place.readers:
            list(self.tensors.values())[3].view(-1)[7] = 0


class Absent(Tcp):
    """Cannot run."""

    @staticmethod
    def lacking():
        return "no such library"


def start_one_that_stays():
    """Leaves a process behind, as Ray's daemons are; tells the test of both."""
    pid = os.fork()
    if not pid:
        os.setsid()
    with open(os.environ["BENCH_PEERS_TEST_PIDS"], "a") as file:
        print(os.getpid(), file=file)
    if not pid:
        time.sleep(600)


class Ending(Tcp):
    """A reader ends in the midst of a transfer."""

    def receive(self, version):
        start_one_that_stays()
        print("last words", flush=True)
        os._exit(3)


class Silent(Tcp):
    """A reader is never done."""

    def receive(self, version):
        start_one_that_stays()
        time.sleep(600)
