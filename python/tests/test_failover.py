"""The reference server is killed: everybody goes on at its backup with what they hold."""

import pytest

import weightcast as wc

from .programs.driver import Cluster, together

BYTES = 96 << 20
#: What has passed when a transfer is in its middle.
SOME = 8 << 20


@pytest.fixture
def cluster():
    running = Cluster(backups=1)
    yield running
    running.close()


@pytest.fixture
def trainer(cluster):
    return cluster.gated_trainer(BYTES)


def test_a_list_of_servers_is_taken():
    with wc.serve(index=0) as first, wc.serve(index=1) as second:
        servers = [first.address, second.address]
        for given in (servers, ",".join(servers)):
            wc.open("policy", wc.Replica("trainer"), role="trainer", server=given).close()
        with pytest.raises(wc.Misuse, match="at most 1024"):
            wc.serve(index=1024)


def test_a_server_killed_in_the_middle_of_an_update_and_a_publish(cluster, trainer):
    late = cluster.group("late", bytes=BYTES)
    cluster.hold_after(SOME)
    late[0].start("replicate", version="latest")
    cluster.wait_held()
    cluster.server.kill()
    cluster.open_gates()
    # The read that ran starts anew at the backup, from the trainer, which has brought its copy.
    read = late[0].value("replicate")
    assert (read["version"], read["source"], read["right"]) == (1, "trainer", True)
    early = cluster.group("early", 2, bytes=BYTES)
    together(early, "replicate", version=1)
    assert late[0].do("list") == {"1": ["early", "late", "trainer"]}
    # One rank has called when the server dies, the other calls afterwards.
    together(trainer, "unpublish")
    cluster.restart_server()
    trainer[0].start("publish", version=2)
    cluster.backups[0].kill()
    trainer[1].start("publish", version=2)
    for rank in trainer:
        rank.value("publish")
    together(early, "unpublish")
    for reader in together(early, "replicate", version=2):
        assert reader["version"] == 2 and reader["right"]
    assert late[0].do("list") == {"1": ["late"], "2": ["early", "trainer"]}


def test_a_server_that_nobody_replaces_is_missed_when_the_time_is_up():
    cluster = Cluster(reconnect=2.0)
    try:
        (trainer,) = cluster.group("trainer", role="trainer", bytes=1 << 20)
        trainer.do("publish", version=1)
        cluster.server.kill()
        trainer.start("list")
        missed = trainer.outcome("list")
        assert missed["error"] == "ServerUnreachable", missed
        assert cluster.server.address in missed["message"]
    finally:
        cluster.close()
