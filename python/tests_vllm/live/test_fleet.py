"""Three engines of one trainer: all serve the new version, or all the old one."""

import os
import signal
import time
import urllib.error

import pytest

import weightcast as wc

from .rig import Rig, Stops
from .server import SOON

pytestmark = pytest.mark.full


class Fleet:
    """Three engines that serve weights 1, and their trainer."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        model = rig.checkpoint(1)
        self.stops = [Stops(rig.directory / f"stops-{at}") for at in range(3)]
        self.engines = [rig.engine(model, stops=stops) for stops in self.stops]
        self.old = [engine.up().generate()[0] for engine in self.engines]
        self.trainer = rig.trainer("first", *self.engines)

    def said(self) -> list:
        return [engine.generate()[0] for engine in self.engines]

    def await_admitted(self, *engines: int, dead: int = 0) -> None:
        """Waits until a router is sent to these engines, and to no others, and has forgotten as many as are dead."""
        wanted, end = {self.engines[at].url for at in engines}, time.monotonic() + SOON
        while True:
            leases = self.leases()
            if {e.engine for e in leases if e.admitted} == wanted and len(leases) == 3 - dead:
                return
            assert time.monotonic() < end, f"routers are told {leases}, not to go to {wanted}"
            time.sleep(0.05)

    def leases(self) -> list:
        return wc.engines("policy", server=self.rig.server.address)

    def await_installed(self, *engines: int) -> None:
        """Waits until these engines have put a version in place."""
        clients = [self.engines[at].client() for at in engines]
        end = time.monotonic() + SOON
        while any(state.installed is None for client in clients for state in client.states()):
            assert time.monotonic() < end, "engines do not install"
            time.sleep(0.05)


@pytest.fixture
def fleet(tmp_path):
    rig = Rig(tmp_path)
    yield Fleet(rig)
    rig.end()


def test_all_or_none(fleet: Fleet) -> None:
    # One that does not fetch: all serve the old version.
    fleet.stops[1].fail("before-fetch")
    assert fleet.trainer.update(2).startswith("failed")
    assert fleet.said() == fleet.old
    fleet.stops[1].clear()
    fleet.await_admitted(0, 1, 2)

    # The trainer dies while two have installed and one has not: that one serves nothing. The others may have been resumed.
    fleet.stops[2].hold("before-install")
    fleet.trainer.send(2)
    fleet.stops[2].reached("before-install")
    fleet.await_installed(0, 1)
    fleet.trainer.kill()
    fleet.stops[2].clear()
    assert fleet.engines[2].client().paused()
    assert not [lease for lease in fleet.leases() if lease.admitted and lease.engine == fleet.engines[2].url]

    # Its successor ends that update, and brings all to the next version.
    second = fleet.rig.trainer("second", *fleet.engines)
    said = fleet.said()
    assert said[0] == said[1] == said[2] != fleet.old[0]
    fleet.await_admitted(0, 1, 2)
    assert len({lease.version for lease in fleet.leases()}) == 1
    assert second.update(3).startswith("sent")
    former, said = said[0], fleet.said()
    assert said[0] == said[1] == said[2] != former

    # One dies while it installs: the others serve the new version, and the error names it.
    fleet.stops[0].hold("within-install")
    second.send(2)
    os.kill(fleet.stops[0].reached("within-install"), signal.SIGKILL)
    told = second.hears()
    assert told.startswith("failed") and fleet.engines[0].url in told and fleet.engines[1].url not in told
    with pytest.raises((urllib.error.URLError, OSError)):
        fleet.engines[0].generate()
    one, other = (engine.generate()[0] for engine in fleet.engines[1:])
    assert one == other == former
    fleet.await_admitted(1, 2, dead=1)

    # It is left out from then on.
    assert second.update(3).startswith("sent")
    assert [engine.generate()[0] for engine in fleet.engines[1:]] == said[1:]


def test_the_server_is_lost_in_between(fleet: Fleet) -> None:
    # Two engines are prepared, and the third has not fetched: nothing is decided, and all serve the old version.
    hasty = fleet.rig.trainer("hasty", *fleet.engines, deadline=15.0)
    fleet.stops[1].hold("before-fetch")
    hasty.send(2)
    fleet.stops[1].reached("before-fetch")
    fleet.rig.server.lose()
    fleet.stops[1].clear()
    assert hasty.hears().startswith("failed")
    assert fleet.said() == fleet.old

    # The new version is decided, and one engine has not installed: all come to serve the new version.
    fleet.rig.server.start()
    third = fleet.rig.trainer("third", *fleet.engines)
    fleet.stops[2].hold("before-install")
    third.send(2)
    fleet.stops[2].reached("before-install")
    fleet.rig.server.lose()
    fleet.stops[2].clear()
    third.hears()
    said = fleet.said()
    assert said[0] == said[1] == said[2] != fleet.old[0]

    fleet.rig.server.start()
    assert fleet.rig.trainer("fourth", *fleet.engines).update(3).startswith("sent")
    former, said = said[0], fleet.said()
    assert said[0] == said[1] == said[2] != former
