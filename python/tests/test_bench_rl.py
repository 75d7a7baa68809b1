"""The bench that moves weights in every way: its arithmetic, and small runs in processes."""

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from bench_rl import figures, forecast, hosts, meter, model, picture, settings, table
from bench_rl.__main__ import main
from bench_rl.ways import WAYS, UnknownWay, find
from bench_rl.ways.packed import buckets
from bench_rl.ways.two_level import groups

from .programs.forgetful import FORGOTTEN

SHAPES = model.qwen(2, 128, 200)
TINY = [
    *("--links", "loopback", "--rollouts", "2", "--layers", "2", "--hidden", "128", "--vocab", "512"),
    *("--updates", "2", "--sweep", "", "--no-small", "--no-search", "--timeout", "60"),
]


def spell(trains, began, ended, sent=None):
    return figures.Spell(trains, began, ended, 0.5, sent, None)


def of(**changes):
    return figures.UpdateFigures(**{
        "rollout_stall_s": 4.0, "trainer_stall_s": 1.0, "longest_stall_s": 1.5, "together_stall_s": 6.0, "seconds": 2.0, "cpu_s": 0.5,
        "server_cpu_s": 0.25, "trainers_sent": [100, 300], "rollouts_sent": [0, 50],
    } | changes)  # fmt: skip


def test_an_update_ends_with_its_last_rollout_and_trainers_go_on_together():
    trainers = [spell(True, 10.0, 13.0, 7), spell(True, 10.5, 10.6, 0)]
    spells = [*trainers, spell(False, 10.0, 11.0, 1), spell(False, 11.5, 12.0, 2)]
    got = figures.update_figures(10.0, spells, 0.25)
    assert got.trainer_stall_s == 3.0 + 2.5, "trainers go on together"
    assert (got.rollout_stall_s, got.longest_stall_s) == (1.5, 3.0)
    assert got.together_stall_s == 3.0 + 2.5 + 3.0 + 1.5, "under a driver that resumes all at once"
    assert (got.seconds, got.cpu_s, got.trainers_sent, got.rollouts_sent) == (2.0, 2.0, [7, 0], [1, 2])


def test_the_first_update_does_not_count():
    got = figures.mean_of([of(seconds=100.0, rollout_stall_s=900.0), of(), of(seconds=4.0)], 8, 1_500_000_000)
    assert got["updates"] == 2
    assert (got["seconds"], got["rollout_stall_s"], got["total_stall_s"]) == (3.0, 4.0, 5.0)
    assert (got["gb_per_s"], got["cpu_s"]) == (4.0, 0.75)


def test_imbalance_is_of_those_that_send_and_unknown_on_loopback():
    got = figures.mean_of([of(), of(trainers_sent=[100, 300, 1])], 1, 1_000)
    assert got["imbalance"] == pytest.approx(0.5), "the third trainer only answers calls"
    assert (got["trainers_sent"][:2], got["bytes_sent"]) == ([100, 300], 451)
    silent = figures.mean_of([of(trainers_sent=[], rollouts_sent=[])] * 2, 1, 1_000)
    assert (silent["imbalance"], silent["bytes_sent"]) == (None, None)


def test_staged_steps_overlap_and_steps_in_place_do_not():
    assert figures.steps_a_minute(2.0, 1.0, of(), staged=False) == 12.0
    assert figures.steps_a_minute(2.0, 1.0, of(seconds=3.5), staged=True) == 12.0
    assert figures.steps_a_minute(8.5, 1.0, of(), staged=True) == 6.0


def test_ratios_are_of_one_setting():
    base = {"way": "ours", "mode": "staged", "busy_s": 0.0, "trainers": 4, "rollouts": 8, "model_bytes": 9}
    base |= {"total_stall_s": 2.0, "rollout_stall_s": 1.0, "seconds": 1.0, "together_stall_s": 3.0}
    other = base | {"way": "theirs", "total_stall_s": 5.0}
    alone = other | {"trainers": 2}
    (got,) = figures.ratios([base, other, alone], "ours")
    assert (got["way"], got["beside"], got["total_stall_s"], got["seconds"]) == ("theirs", "ours", 2.5, 1.0)
    assert got["together"] == 1.5


@pytest.mark.parametrize(("of", "vectors"), [(1, True), (3, True), (3, False), (7, True)])
def test_shares_hold_every_row_once_and_vectors_whole_where_they_are_not_cut(of, vectors):
    shares = [model.share(SHAPES, index, of, vectors) for index in range(of)]
    for pieces in zip(*shares, strict=True):
        name, shape = pieces[0].name, SHAPES[pieces[0].name]
        whole = torch.cat([model.content(piece, 5) for piece in pieces])
        cut = vectors or len(shape) > 1
        assert sum(piece.rows for piece in pieces) == shape[0] * (1 if cut else of), name
        if cut:
            assert torch.equal(whole, model.content(model.Piece(name, shape, 0, shape[0]), 5)), name


def test_no_two_versions_or_tensors_are_alike():
    (one, other) = (model.Piece(name, (64, 64), 0, 64) for name in "ab")
    contents = [model.content(one, 1), model.content(one, 2), model.content(other, 1)]
    for number, left in enumerate(contents):
        for right in contents[number + 1 :]:
            assert (left == right).float().mean() < 0.01


def test_memory_holds_what_is_expected_of_its_version_alone():
    memory = model.Memory(model.share(SHAPES, 1, 2, vectors=True))
    memory.fill(3)
    assert memory.digests() == model.expected(memory.pieces, 3)
    assert all(digest != model.expected(memory.pieces, 4)[name] for name, digest in memory.digests().items())


def test_buckets_keep_the_order_and_their_size():
    sizes = {"a": 3, "b": 4, "c": 9, "d": 1, "e": 1}
    assert buckets(sizes, 8) == [["a", "b"], ["c"], ["d", "e"]]


def test_groups_are_of_a_host_or_of_the_square_root():
    assert groups([4, 5, 6, 7, 8, 9, 10, 11], 1) == [[4, 5], [6, 7], [8, 9], [10, 11]]
    assert groups([3, 4, 5, 6, 7], 4) == [[3], [4, 5, 6, 7]]


def test_the_kernels_table_says_what_a_link_has_carried():
    head = "Inter-| Receive | Transmit\n face |bytes |bytes\n"
    rows = "    lo: 11 1 0 0 0 0 0 0 12 1 0 0 0 0 0 0\n  eth0:21 1 0 0 0 0 0 0 22 1 0 0 0 0 0 0\n"
    assert meter.link(head + rows, "eth0") == (21, 22)
    with pytest.raises(ValueError, match="eth1"):
        meter.link(head + rows, "eth1")


def test_only_namespaces_whose_maker_is_gone_are_abandoned():
    assert not hosts._abandoned(f"{hosts.PREFIX}1-h0"), "process 1 lives"
    assert hosts._abandoned(f"{hosts.PREFIX}{2**31 - 2}-h0")
    assert not hosts._abandoned("wc99999999-h0"), "another program's"


@pytest.mark.skipif(hosts.lacking() is not None, reason=f"no emulated hosts: {hosts.lacking()}")
def test_emulated_hosts_are_gone_afterwards():
    def namespaces():
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return [line for line in listed.splitlines() if line.startswith(running.prefix + "-")]

    with pytest.raises(RuntimeError, match="midway"), hosts.hosts("emulated", 2, "100mbit") as running:
        assert len(namespaces()) == 4
        address = (running.address(1), 7000)
        listening = f"import socket; s = socket.create_server({address}); print(flush=True); s.accept()[0].send(b'x')"
        command = [*running.inside(1), sys.executable, "-c", listening]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as listener:
            assert listener.stdout.readline() == b"\n"
            asking = f"import socket; print(socket.create_connection({address}, 20).recv(1))"
            asked = subprocess.run([*running.inside(0), sys.executable, "-c", asking], capture_output=True, text=True)
            assert asked.stdout == "b'x'\n", asked.stderr
        raise RuntimeError("midway")
    assert namespaces() == []


def test_rates_are_those_of_tc():
    assert [forecast.gb_per_s(rate) for rate in ("400mbit", "1gbit", "8kbit")] == [0.05, 0.125, 1e-6]
    with pytest.raises(ValueError, match="400 Mbps"):
        forecast.gb_per_s("400 Mbps")


def test_a_forecast_needs_every_rollout():
    stalls = [{"version": 2, "stall_s": 1.0, "ended_s": 21.5}, {"version": 2, "stall_s": 1.5, "ended_s": 22.0}]
    stalls.append({"version": 1, "stall_s": 9.0, "ended_s": 3.0})
    played = {"cases": [{"case": "16", "outcome": {"stalls": stalls}}]}
    (got,) = forecast.outcomes(played, 2, 10**9)
    assert got == {"trainers": 16, "rollout_stall_s": 2.5, "seconds": 2.0, "gb_per_s": 1.0}
    with pytest.raises(ValueError, match="2 of 3"):
        forecast.outcomes(played, 3, 10**9)


def test_the_simulator_takes_the_scenario_and_more_trainers_cost_nothing():
    got = forecast.forecast([1, 8, 32], 8, 20_000_000, "400mbit")
    ideal = 0.02 / 0.05 / hosts.GOODPUT
    assert [each["trainers"] for each in got] == [1, 8, 32]
    assert all(ideal < each["seconds"] < 1.15 * ideal for each in got), got
    assert got[0]["seconds"] > got[1]["seconds"] == got[2]["seconds"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--modes", "nowhere"], "nowhere"), (["--updates", "1"], "--updates must be at least 2"),
        (["--hidden", "100"], "multiple of 64"), (["--json", "a.svg"], "must end in .json"),
        (["--rate", "fast"], "fast"), (["--trainers", "0"], "--trainers must be at least 1"),
        (["--disk", "/nowhere"], "/nowhere"), (["--sweep", "0"], "from 1 on"),
    ],
)  # fmt: skip
def test_wrong_options_are_told(wrong, says, capsys):
    with pytest.raises(SystemExit):
        settings.parse(wrong)
    assert says in capsys.readouterr().err


def test_an_unknown_way_is_told_before_anything_starts(capsys):
    before = signal.getsignal(signal.SIGTERM)
    assert main([*TINY, "--ways", "pigeon"]) == 1
    assert signal.getsignal(signal.SIGTERM) == before, "the caller's process is not the bench's"
    assert "no way 'pigeon', only broadcast, packed" in capsys.readouterr().err
    with pytest.raises(UnknownWay, match="Pigeon"):
        find("bench_rl.ways.way:Pigeon")


def test_a_run_measures_each_way_in_place_staged_and_beside_a_busy_rollout(tmp_path, capsys):
    ways = "broadcast,packed,weightcast-pull,weightcast-push"
    file = tmp_path / "report.json"
    assert main([*TINY, "--trainers", "1", "--ways", ways, "--busy-updates", "2", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["weightcast"] == "bench-rl/1" and report["not_run"] == {} and report["simulated"] == []
    seen = [(m["way"], m["part"], m["mode"]) for m in report["measures"]]
    assert seen == [
        (way, part, mode)
        for part, mode in (("main", "in-place"), ("main", "staged"), ("busy", "in-place"))
        for way in ways.split(",")
    ]
    shapes = model.qwen(2, 128, 512)
    for measure in report["measures"]:
        assert measure["model_bytes"] == model.size(shapes)
        assert measure["tensors_verified"] == 2 * 2 * len(shapes), measure
        assert (measure["trainers"], measure["rollouts"], measure["updates"]) == (1, 2, 1)
        assert measure["seconds"] > 0 and measure["steps_a_minute"] > 0 and measure["bytes_sent"] is None
        assert measure["total_stall_s"] == measure["rollout_stall_s"] + measure["trainer_stall_s"]
    assert {ratio["way"] for ratio in report["ratios"]} == set(ways.split(",")) - {"weightcast-pull"}
    shown = capsys.readouterr().out
    assert all(way in shown for way in ways.split(",")) and "bytes are compared" in shown and "failed" not in shown
    drawn = file.with_suffix(".svg").read_text()
    assert drawn == picture.draw(report) and ElementTree.fromstring(drawn) is not None


@pytest.mark.full
def test_sharded_trainers_reach_sharded_rollouts_in_every_way(tmp_path):
    ways = ",".join(way for way in WAYS if way != "ray")
    file = tmp_path / "report.json"
    options = ["--trainers", "3", "--trainer", "fsdp2", "--rollout-tp", "2", "--busy", "0", "--modes", "in-place"]
    assert main([*TINY, *options, "--ways", ways, "--json", str(file)]) == 0
    assert [m["way"] for m in json.loads(file.read_text())["measures"]] == ways.split(",")


def test_a_way_that_forgets_a_tensor_fails_the_run(tmp_path, capsys):
    way = "tests.programs.forgetful:Forgetful"
    options = ["--trainers", "1", "--busy", "0", "--ways", f"{way},broadcast", "--modes", "in-place,staged"]
    file = tmp_path / "report.json"
    assert main([*TINY, *options, "--json", str(file)]) == 1
    shown, report = capsys.readouterr(), json.loads(file.read_text())
    why = f"rollout-0 does not hold version 1: {FORGOTTEN}"
    assert shown.err.endswith(f"failed: {way}: {why}\n") and f"\nfailed: {way}: {why}\n" in shown.out
    assert report["failed"] == {way: why}, "tried once"
    assert [(m["way"], m["mode"]) for m in report["measures"]] == [("broadcast", "in-place"), ("broadcast", "staged")]


def test_a_picture_of_several_numbers_of_trainers_has_curves():
    measure = {
        "way": "packed", "mode": "in-place", "part": "main", "trainers": 4, "rollouts": 8, "rate": "400mbit",
        "model_bytes": 10**7, "total_stall_s": 2.0, "rollout_stall_s": 1.5, "gb_per_s": 0.1,
    }  # fmt: skip
    some = [measure, measure | {"trainers": 8, "part": "sweep", "gb_per_s": 0.2}]
    simulated = [{"trainers": count, "gb_per_s": 0.4} for count in (8, 32)]
    drawn = picture.draw({"measures": some, "simulated": simulated})
    assert drawn.count("<polyline") == 2 and "stroke-dasharray" in drawn and "10.0 MB from 4 trainers" in drawn
    assert ElementTree.fromstring(picture.draw({"measures": []})) is not None


def test_tables_align_and_say_seconds_as_people_read_them():
    assert table.aligned([["a", "bb"], ["ccc", "d"]]) == "a    bb\nccc  d"
    assert [table.seconds(value) for value in (0.0123, 2.0)] == ["12.3 ms", "2.00 s"]
    assert table.markdown([["a", "b"], ["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_the_page_of_results_has_no_way_that_is_not_there():
    page = Path(__file__).parents[2] / "docs/results/bench-rl.md"
    assert all(f"`{way}`" in page.read_text() for way in WAYS)
