"""The bench beside other libraries: its arithmetic, and small runs in processes."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from math import prod
from pathlib import Path

import pytest

pytest.importorskip("torch")
import numpy as np

from bench_peers import cases, content, figures, meter, page, picture, settings, table
from bench_peers.ways import WAYS, UnknownWay, entry, find
from bench_peers.ways.sockets import BATCH_BYTES, BATCH_PARTS, after, stretches

PYTHON = Path(__file__).parents[1]
STAND_INS = "tests.programs.peers"


def measure(way, *times, case="qwen2.5-0.5b", readers=8, **more):
    transfers = [{"seconds": t, "sender_s": t / 2, "cpu_s": 2 * t} for t in times]
    some = {"way": way, "case": case, "readers": readers, "bytes": 10**9, "transfers": transfers}
    return some | {"set_up_s": 1.0, "first_s": 9.0, "extra_mib": 5.0} | more


def bench(tmp_path, *arguments, timeout=40):
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench_peers", "--case", "small", "--json", str(file), "--disk", str(tmp_path)]
    return [*command, "--timeout", str(timeout), *arguments], file


def run(tmp_path, *arguments, **more):
    command, file = bench(tmp_path, *arguments)
    came = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=500)
    return came, json.loads(file.read_text())


def environment(**more):
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(PYTHON), *sys.path])} | more


def test_a_time_is_the_median_and_speed_counts_all_readers():
    some = measure("ray", 4.0, 1.0, 2.0)
    assert (figures.middle(some), figures.middle(some, "cpu_s"), figures.spread(some)) == (2.0, 4.0, (1.0, 4.0))
    assert figures.speed(some) == 4.0


def test_measures_of_another_case_or_number_of_readers_are_not_compared():
    ours = measure("weightcast", 1.0)
    others = [measure("ray", 3.0), measure("ray", 3.0, readers=4), measure("ray", 3.0, case="tiny")]
    assert [figures.times_ours(each, [ours, *others]) for each in others] == [3.0, None, None]


def test_whoever_is_faster_is_told_and_ways_over_tcp_are_held_beside_ours_over_tcp():
    ours = [measure("weightcast", 1.0), measure("weightcast-tcp", 2.0), measure("weightcast-shared", 0.4)]
    others = [measure("ray", 0.5), measure("sockets", 1.5), measure("gloo", 3.0), measure("nixl", 1.5)]
    found = figures.ahead([*ours, *others], ["sockets", "gloo"])
    assert [(each["way"], each["ours"], each["times"]) for each in found] == [
        ("ray", "weightcast", 0.5), ("sockets", "weightcast-tcp", 0.75),
    ]  # fmt: skip


def test_a_promise_is_missed_by_a_little_too_much():
    ours, ray = measure("weightcast", 0.81), measure("ray", 1.0)
    (missed,) = figures.promises([ours, ray])
    assert (missed["ratio"], missed["kept"]) == (pytest.approx(0.81), False)
    (kept,) = figures.promises([measure("weightcast", 0.79), ray])
    assert kept["kept"]
    assert figures.promises([ours, measure("ray", 1.0, readers=4)]) == [], "it is of eight readers"


def test_qwen_has_its_published_number_of_parameters():
    shapes = cases.qwen()
    assert (len(shapes), sum(map(prod, shapes.values()))) == (290, 494_032_768)
    assert cases.size(shapes) == 988_065_536
    assert [cases.size(cases.CASES[name].shapes()) for name in ("few", "tiny")] == [2 << 30, 5000 * 4096]


def test_any_single_wrong_byte_is_found():
    made, memory = content.Content(), np.zeros(2 * content.PERIOD + 5, dtype=np.uint8)
    made.fill(memory, "a", 1)
    assert made.wrong(memory, "a", 1) is None
    for at in (0, 1, content.PERIOD - 1, content.PERIOD, 2 * content.PERIOD, memory.size - 1):
        memory[at] ^= 1
        assert made.wrong(memory, "a", 1) == at
        memory[at] ^= 1


def test_no_two_versions_tensors_or_pages_are_alike():
    made = content.Content()
    kinds = [np.empty(1 << 16, dtype=np.uint8) for _ in range(3)]
    for memory, (name, version) in zip(kinds, [("a", 1), ("a", 2), ("b", 1)], strict=True):
        made.fill(memory, name, version)
        pages = memory.reshape(-1, 4096)
        assert len({page.tobytes() for page in pages}) == len(pages)
    assert made.wrong(kinds[0], "a", 2) is not None and made.wrong(kinds[0], "b", 1) is not None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_stretches_carry_each_byte_once_in_calls_that_the_kernel_takes(count):
    made = [bytearray(os.urandom(size)) for size in (5, BATCH_BYTES * 2 + 3, *[2] * (BATCH_PARTS + 9), 7)]
    cut = stretches([memoryview(part) for part in made], count)
    assert b"".join(part for stretch in cut for batch in stretch for part in batch) == b"".join(made)
    sizes = [sum(part.nbytes for batch in stretch for part in batch) for stretch in cut]
    assert len(cut) == count and max(sizes) - min(sizes) <= 1
    for stretch in cut:
        assert all(len(batch) <= BATCH_PARTS and sum(p.nbytes for p in batch) <= BATCH_BYTES for batch in stretch)


def test_what_is_left_of_a_batch_begins_where_the_last_call_ended():
    parts = [memoryview(b"abc"), memoryview(b"de")]
    assert [[bytes(part) for part in after(parts, done)] for done in (0, 2, 3, 5)] == [
        [b"abc", b"de"], [b"c", b"de"], [b"de"], [],
    ]  # fmt: skip


def test_processor_seconds_and_memory_of_another_process_are_counted():
    busy = "import time\nheld = b'x' * (64 << 20)\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=-1, stdout=-1) as other:
        assert other.stdout.readline() == b"\n"
        assert 0.25 < meter.cpu_seconds([other.pid]) < 2 and 64 < meter.memory_mib([other.pid]) < 200
        peak = meter.Peak(lambda: [other.pid])
        with peak.looking():
            pass
        assert peak.mib > 64
        other.communicate(b"\n")
    assert meter.cpu_seconds([other.pid]) == 0 == meter.memory_mib([other.pid])


def alive(pids):
    listed = pids.read_text().split() if pids.exists() else []
    return [pid for pid in listed if Path(f"/proc/{pid}").exists()]


def test_all_below_a_process_are_ended_those_of_ended_parents_too():
    tree = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nos.fork()\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(600)"
    program = f"""
import os, subprocess, sys
from bench_peers import processes
processes.adopt()
other = subprocess.Popen([sys.executable, "-c", {tree!r}], stdout=-1, stderr=subprocess.DEVNULL, text=True)
pids = [int(other.stdout.readline()) for _ in range(2)]
other.wait()
print(sorted(pids) == sorted(processes.descendants(os.getpid())), flush=True)
processes.end_below()
print(processes.descendants(os.getpid()), *pids)
"""
    came = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert came.returncode == 0, came.stderr
    below, left = came.stdout.splitlines()
    assert below == "True" and left.startswith("[] "), came
    assert not any(Path(f"/proc/{pid}").exists() for pid in left.split()[1:])


def test_measures_are_those_of_the_page_unless_options_say_otherwise(capsys):
    plan = settings.parse([]).measures
    assert plan == [(case, n) for case, readers in settings.PLAN.items() for n in readers]
    assert settings.parse(["--case", "few", "--readers", "1,2"]).measures == [("few", 1), ("few", 2)]
    assert settings.parse(["--only", "ray"]).ways == ["ray"]
    for wrong in (["--only", "pigeon"], ["--readers", "0"], ["--json", "a.svg"], ["--disk", "/nowhere"], ["--repeats", "0"]):
        with pytest.raises(SystemExit):
            settings.parse(wrong)
        assert wrong[0] in capsys.readouterr().err


def test_each_way_has_a_class_and_those_of_others_are_named():
    assert all(find(name).send for name in WAYS)
    with pytest.raises(UnknownWay, match="Pigeon"):
        find("bench_peers.ways.way:Pigeon")
    assert entry("my:Way").where == "my:Way"


def test_a_run_measures_sockets_and_weightcast(tmp_path):
    ways = ("sockets", "weightcast", "weightcast-shared")
    only = [each for way in ways for each in ("--only", way)]
    came, report = run(tmp_path, *only, "--readers", "1,2", "--repeats", "2")
    assert came.returncode == 0, came.stderr
    seen = [(m["way"], m["readers"], len(m["transfers"])) for m in report["measures"]]
    assert sorted(seen) == [(way, readers, 2) for way in ways for readers in (1, 2)]
    for each in report["measures"]:
        assert all(t["seconds"] > 0 and t["sender_s"] > 0 and t["cpu_s"] > 0 for t in each["transfers"])
        assert each["set_up_s"] > 0 and each["first_s"] > 0 and each["extra_mib"] > 0
    assert "each byte was compared" in came.stdout
    drawn = tmp_path.joinpath("report.svg").read_text()
    assert drawn == picture.draw(report) and ElementTree.fromstring(drawn) is not None
    assert "| sockets | 2 |" in page.page(report)


def test_one_wrong_byte_of_one_reader_fails_the_run(tmp_path):
    came, report = run(tmp_path, "--only", f"{STAND_INS}:Stale", "--only", "sockets", "--readers", "2")
    assert came.returncode == 1
    assert "reader 1 does not hold byte 14 of 8192 of tensor.3" in came.stderr
    assert [m["way"] for m in report["measures"]] == [f"{STAND_INS}:Stale"], "nothing is measured after that"


def test_what_cannot_run_is_a_row_with_its_reason_and_others_go_on(tmp_path):
    ways = [f"{STAND_INS}:Absent", f"{STAND_INS}:Ending", "sockets"]
    pids = tmp_path / "pids"
    only = [word for way in ways for word in ("--only", way)]
    came, report = run(tmp_path, *only, "--repeats", "1", BENCH_PEERS_TEST_PIDS=str(pids))
    assert came.returncode == 0, came.stderr
    reasons = [each.get("not_run") for each in report["measures"]]
    assert reasons == ["no such library", "reader 0 ended in move | last words", None]
    assert f"| {STAND_INS}:Absent | small to 1 | no such library |" in page.page(report)
    assert alive(pids) == []


def test_a_way_that_fails_again_and_again_is_not_tried_for_ever(tmp_path):
    came, report = run(tmp_path, "--only", f"{STAND_INS}:Absent", "--readers", "1,2,3")
    assert came.returncode == 0, came.stderr
    reasons = [each["not_run"] for each in report["measures"]]
    assert reasons == ["no such library"] * 2 + ["not tried: 2 measures before it failed"]


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_behind_by_a_run_that_is_stopped(tmp_path, signalled):
    pids = tmp_path / "pids"
    command, _ = bench(tmp_path, "--only", f"{STAND_INS}:Silent", timeout=300)
    with subprocess.Popen(command, env=environment(BENCH_PEERS_TEST_PIDS=str(pids)), stderr=-1) as running:
        while len(alive(pids)) < 2:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signalled)
        running.communicate(timeout=300)
    assert running.returncode == 128 + signalled
    assert alive(pids) == []


def test_the_page_says_where_weightcast_is_behind_and_what_was_not_run():
    measures = [measure("weightcast", 1.0), measure("ray", 0.5), {"way": "ucx", "case": "few", "readers": 1, "not_run": "no"}]
    report = {"measures": measures, "versions": {"ray": "1"}, "took_s": 60.0}
    report["machine"] = {"processor": "a", "cpus": 2, "kernel": "6.1-x", "load": 0.1}
    told = page.page(report)
    assert "| qwen2.5-0.5b | 8 | ray | 0.50 | weightcast |" in told and "| ucx | few to 1 | no |" in told
    assert "| weightcast by ray | 2.00 | 0.8 at most | missed |" in told
    assert "Nowhere in this run." in page.page(report | {"measures": measures[:1]})


def test_rows_are_by_readers_and_then_by_time():
    some = [measure("gloo", 3.0), measure("ray", 1.0), measure("ray", 9.0, readers=1), measure("nixl", 1.0, case="few")]
    got = table.rows(some, "qwen2.5-0.5b")
    assert [(row[0], row[1]) for row in got[1:]] == [("ray", "1"), ("ray", "8"), ("gloo", "8")]
    assert all(len(row) == len(table.HEADINGS) for row in got)


def test_the_page_of_results_has_no_way_that_is_not_there():
    shown = (PYTHON.parent / "docs/results/bench-peers.md").read_text()
    assert all(f"`{way}`" in shown for way in WAYS)
