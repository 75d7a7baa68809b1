"""A server that is lost with all that it knew of a run, and who remembers versions of that run."""

from types import SimpleNamespace

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON


def test_a_server_that_knows_of_no_run_counts_others_than_the_one_before() -> None:
    runs = set()
    for policy in ("current", "new", "current", "new"):
        with (
            wc.serve() as server,
            wc.open("policy", wc.Replica("t"), role="trainer", epoch=policy, server=server.address) as trainer,
        ):
            trainer.register(wc.Layout().add(np.ones(4, "f4"), "w"))
            trainer.publish(1, deadline=SOON)
            runs.add(trainer.epoch)
    assert len(runs) == 4 and min(runs) > 0


def test_an_engine_that_holds_version_1_takes_version_1_of_the_next_server() -> None:
    pytest.importorskip("torch")
    from weightcast.adapters.engine import EngineShard, Settings
    from weightcast.adapters.engine.fleet import Fleet
    from weightcast.adapters.engine.orders import Orders

    from .test_engine_shard import Engine, Job

    class Client:
        """An engine of one worker, which stops and goes on as it is told."""

        base_url = "engine"
        init_weight_transfer_engine = invalidate = stamp = take = give_back = lambda *_: None

        def __init__(self, shard: EngineShard) -> None:
            nothing = dict.fromkeys(("before_fetch", "before_install", "after_install"), lambda: None)
            self._orders = Orders(SimpleNamespace(shard=lambda: shard, **nothing), 0)
            self._stopped = False

        def workers(self) -> int:
            return 1

        def order(self, order):
            return [self._orders.order(order)]

        def performed(self, attempt, failure):
            return [self._orders.performed(attempt, failure)]

        def pause(self, mode: str) -> None:
            self._stopped = True

        def paused(self) -> bool:
            return self._stopped

        def resume(self) -> None:
            self._stopped = False

        def close(self) -> None:
            self._orders.close()

    def bring(job: Job, client: Client, value: int) -> None:
        """As version 1."""
        for tensor in job.tensors.values():
            tensor.fill_(value)
        job.trainer.publish(1)
        fleet = Fleet([client], job.trainer._core.ask_fleet, {}, holder="t", pause="abort", deadline=SOON)
        fleet.update({"epoch": job.trainer.epoch, "number": 1})
        fleet.close()

    engine = Engine()
    with wc.serve() as server:
        address = server.address
        job = Job(address, retain=0)  # retained, version 1 would outlive the server
        shard = EngineShard(Settings(server=address, deadline=SOON), wc.Replica("engine"), engine.read)
        client = Client(shard)
        bring(job, client, 7)
        assert engine.holds(7)
        job.trainer.close()
        shard.handle.close()  # as after a minute without a server
    with wc.serve(address.removeprefix("http://")):
        job = Job(address)
        bring(job, client, 8)
        assert engine.holds(8)
        client.close()
        shard.close()
        job.trainer.close()
