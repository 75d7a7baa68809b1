"""What a process says of its handles, for a trainer's logger and for Prometheus."""

import os
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON

PAGE = (Path(__file__).parents[2] / "docs/guides/metrics.md").read_text()


def moved(group, model: str) -> wc.Updated:
    """A rollout of the model has taken a version."""
    weight, copy = np.ones(1 << 16, "f4"), np.zeros(1 << 16, "f4")
    [trainer] = group("trainer", [wc.Layout().add(weight, "w")], model=model, role="trainer").handles
    trainer.publish(4, deadline=SOON, seal=True)
    [rollout] = group("rollout", [wc.Layout().add(copy, "w")], model=model).handles
    return rollout.update(deadline=SOON)


def test_figures_are_flat_numbers_under_keys_of_one_form(group) -> None:
    assert wc.metrics("flat") == {}
    updated = moved(group, "flat")
    mine, all_models = wc.metrics("flat"), wc.metrics()
    for figures in (mine, all_models, updated.as_dict()):
        assert all(re.fullmatch(r"weightcast/(update/)?[a-z_]+", key) for key in figures), figures
        assert all(type(value) is float for value in figures.values()), figures
    assert mine.keys() <= all_models.keys() and not mine.keys() & updated.as_dict().keys()
    assert (mine["weightcast/version"], mine["weightcast/version_lag"], mine["weightcast/updates"]) == (4.0, 0.0, 1.0)
    assert mine["weightcast/handles"] == 2.0
    assert mine["weightcast/bytes_direct"] + mine["weightcast/bytes_tcp"] == updated.bytes == 4 << 16


def test_an_update_tells_its_own_numbers(group) -> None:
    update = moved(group, "own")
    figures = update.as_dict()
    keys = re.findall(r"^\| `(weightcast/update/\w+)`", PAGE, re.M)
    assert sorted(keys) == sorted(figures), "the page lists each"
    assert figures["weightcast/update/seconds"] == update.seconds
    assert update.bytes_direct + update.bytes_tcp + update.unchanged == update.bytes
    whole = wc.Updated(True, 7, 2, "t", 6_000_000_000, 5, 3.5, 0.5, "tcp", 8, 0.25, (), "memory", "", 9, 10, 2_000_000_000,
                       bytes_shared=11, bytes_siblings=12)
    assert whole.as_dict() == {
        "weightcast/update/changed": 1.0, "weightcast/update/version": 7.0, "weightcast/update/epoch": 2.0,
        "weightcast/update/bytes": 6e9, "weightcast/update/bytes_verified": 5.0,
        "weightcast/update/bytes_shared": 11.0, "weightcast/update/bytes_direct": 9.0, "weightcast/update/bytes_tcp": 10.0,
        "weightcast/update/bytes_siblings": 12.0,
        "weightcast/update/bytes_unchanged": 2e9, "weightcast/update/bytes_staged": 8.0, "weightcast/update/seconds": 3.5,
        "weightcast/update/plan_seconds": 0.5, "weightcast/update/install_seconds": 0.25,
        "weightcast/update/gb_per_s": 4 / 3,
    }
    nothing = wc.Updated(False, None, None, None, 0, 0, 0.0, 0.0, "").as_dict()
    assert nothing["weightcast/update/changed"] == 0.0
    assert not {"weightcast/update/version", "weightcast/update/epoch", "weightcast/update/gb_per_s"} & nothing.keys()


def test_the_text_is_by_model(server: wc.Server, group) -> None:
    moved(group, "org/policy:lora-1")
    with pytest.raises(wc.Misuse):
        wc.open('say "hi"', wc.Replica("r"), server=server.address)
    lines = wc.metrics_text().splitlines()
    assert 'weightcast_client_version{model="org/policy:lora-1"} 4' in lines
    assert 'weightcast_client_handles{model="say \\"hi\\""} 0' in lines
    assert all(line.startswith(("# ", "weightcast_client_")) for line in lines)


def test_a_fork_begins_with_nothing(group) -> None:
    moved(group, "forked")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr((wc.metrics(), "forked" in wc.metrics_text())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 4096).decode() == "({}, False)"
    assert wc.metrics("forked")["weightcast/updates"] == 1.0


def test_a_server_says_where_it_is_scraped() -> None:
    with wc.serve() as server:
        assert server.metrics_address is None
    with wc.serve(metrics="127.0.0.1:0") as server:
        assert server.metrics_address is not None
        with urllib.request.urlopen(server.metrics_address, timeout=SOON) as answer:
            assert b"\nweightcast_acting 0\n" in answer.read(), "nobody has come yet"
    with pytest.raises(wc.Misuse, match="metrics address"):
        wc.serve(insecure=True, metrics="0.0.0.0:0")
