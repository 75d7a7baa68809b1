"""Layouts without memory: as texts, in files, and planned before anything moves."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weightcast as wc
from weightcast import plans
from weightcast._core import command_line
from weightcast.adapters.catalog import Entry, catalog_of

from .conftest import SOON
from .test_transfer import SHAPES, rows, rows_layout, tensors


def trainer(ranks: int) -> list[wc.Layout]:
    return [rows_layout(rows(tensors(1), rank, ranks), rank, ranks) for rank in range(ranks)]


def fused(rank: int) -> wc.Layout:
    """Half of the columns of one tensor over half of those of another, a vocabulary that is padded, the rest whole."""
    layout = wc.Layout()
    parts = [wc.part(name, shape=SHAPES[name], dim=0, index=rank, of=2) for name in ("a.weight", "b.weight")]
    layout.add(np.zeros((6, 4), "f4"), [_columns(parts[0], rank)], name="cut")
    layout.add(np.zeros((4, 3), "f4"), [parts[1]], pad=True, name="padded")
    for name in "cde":
        layout.add(np.zeros(SHAPES[name], "f4"), name)
    return layout


def _columns(part: wc.Part, rank: int) -> wc.Part:
    """A box that is cut along both dimensions."""
    return wc.Part(part._core.range(1, 4 * rank, 4))


def halves(rank: int) -> wc.Layout:
    layout = wc.Layout()
    for name, shape in SHAPES.items():
        if len(shape) == 2 and shape[0]:
            part = wc.part(name, shape=shape, dim=1, index=rank, of=2)
            columns = -(-shape[1] // 2)
            width = min(columns, shape[1] - columns * rank)
            layout.add(np.zeros((shape[0], width), "f4"), [part], along=1, name=f"half of {name}")
        else:
            layout.add(np.zeros(shape, "f4"), name)
    return layout


def test_a_plan_has_the_bytes_that_an_update_then_moves(group) -> None:
    sources, targets = trainer(3), [halves(0), halves(1)]
    planned = plans.plan(sources, targets)
    assert planned["coverage"] == "exact"
    publisher = group("trainer", sources, role="trainer")
    publisher.all(lambda h: h.publish(4, deadline=SOON))
    moved = group("rollout", targets).all(lambda h: h.update("latest", deadline=SOON))
    assert planned["per_target_bytes"] == [one.bytes for one in moved]
    assert planned["broadcast_bytes"] == sum(4 * int(np.prod(shape)) for shape in SHAPES.values())
    assert sum(planned["per_source_bytes"]) == sum(planned["per_target_bytes"])
    assert planned["lower_bound_s"] > 0


def test_every_box_is_explained_with_its_source() -> None:
    sources, targets = trainer(3), [halves(0), halves(1)]
    routes = plans.explain(sources, targets, tensor="a.weight")
    # Three thirds of the rows, of each half of the columns.
    assert [(r["source"], r["target"], r["slice"], r["bytes"]) for r in routes] == [
        (source, target, f"[{4 * source}:{4 * source + 4}, {4 * target}:{4 * target + 4}]", 64)
        for target in range(2)
        for source in range(3)
    ]
    assert {route["parameter"] for route in routes} == {"half of a.weight"}
    of_one = plans.explain(sources, targets, rank=1)
    assert {route["tensor"] for route in of_one} == {"a.weight", "b.weight", "c", "d"}
    assert sum(route["bytes"] for route in of_one) == plans.plan(sources, targets)["per_target_bytes"][1]
    with pytest.raises(wc.Misuse, match=r"no such rank holds a\.wieght; nearest names: a\.weight"):
        plans.explain(sources, targets, tensor="a.wieght")


def said(command: list[str], capfd) -> tuple[int, str, str]:
    status = command_line(["weightcast", *command], [])
    out, err = capfd.readouterr()
    return status, out, err


def test_commands_read_what_is_written(tmp_path: Path, capfd) -> None:
    source, target = tmp_path / "trainer.json", tmp_path / "engine.json"
    plans.write(source, [layout.describe() for layout in trainer(3)])
    plans.write(target, [halves(0), halves(1)])
    sides = ["--source", str(source), "--target", str(target)]
    status, out, err = said(["plan", *sides, "--json"], capfd)
    assert status == 0, err
    by_command = json.loads(out)
    by_call = plans.plan(source, [halves(0), halves(1)])
    for key in ("per_target_bytes", "per_source_bytes", "copies", "coverage", "lower_bound_s", "predicted_s"):
        assert by_command[key] == by_call[key], key
    status, out, err = said(["plan", "explain", *sides, "--tensor", "c", "--json"], capfd)
    assert json.loads(out) == plans.explain(source, target, tensor="c")
    status, out, err = said(["layout", "--spec", str(target), "--rank", "1", "--json"], capfd)
    assert status == 0, err
    held = json.loads(out)
    assert held["transfer_bytes"] == by_command["per_target_bytes"][1]
    (first,) = [one for one in held["params"] if one["name"] == "half of a.weight"]
    assert (first["shape"], first["offset"]) == ([12, 4], [0, 4])
    status, out, err = said(["layout", "--spec", str(target), "--rank", "2"], capfd)
    assert status == 1 and "rank 2 is outside of the 2 ranks" in err
    lock = str(tmp_path / "lock")
    assert said(["plan", *sides, "--lock", lock], capfd)[0] == 0
    plans.write(target, [halves(0), halves(1).add(np.zeros(3, "f4"), "more")])
    status, out, err = said(["plan", *sides, "--lock", lock], capfd)
    assert status == 1 and "target_layout" in err


def test_boxes_cut_twice_and_padding_are_read_back(tmp_path: Path) -> None:
    text = fused(0).describe()
    rank = json.loads(text)["ranks"][0]
    names = [name for name, _, _ in json.loads(text)["tensors"]]
    held = {names[number]: (start, length, where) for number, start, length, where, _ in rank["holds"]}
    assert held["a.weight"] == ([0, 0], [6, 4], "cut")
    assert held["b.weight"] == ([0, 0], [3, 3], "padded")
    assert rank["bytes"] == fused(0).nbytes == 4 * (24 + 12 + 7 + 1)
    # Each has another half of the columns for its half of the rows.
    planned = plans.plan(trainer(2), [fused(0), fused(1)])
    assert planned["coverage"] == "a.weight [6:12, 0:4] reaches no target rank"


def test_a_file_is_a_catalog(tmp_path: Path) -> None:
    plans.write(tmp_path / "t.json", trainer(2))
    assert catalog_of(tmp_path / "t.json") == {name: Entry(shape, "F32") for name, shape in SHAPES.items()}


def test_what_a_trainer_converts_is_published_as_it_arrives() -> None:
    layout = wc.Layout().add(np.zeros((256, 128), "f4"), "w").add(np.zeros(8, "f4"), "norm")
    layout.quantise("w").cast("norm", "BF16")
    listed = {name: (dtype, shape) for name, dtype, shape in json.loads(layout.describe())["tensors"]}
    assert listed == {
        "norm": ("BF16", [8]),
        "w": ("F8_E4M3", [256, 128]),
        "w_scale_inv": ("F32", [2, 1]),
    }
    engine = wc.Layout().add(np.zeros((256, 128), "u1"), "w", dtype="F8_E4M3")
    engine.add(np.zeros((2, 1), "f4"), "w_scale_inv").add(np.zeros(8, "u2"), "norm", dtype="BF16")
    planned = plans.plan([layout], [engine])
    assert planned["coverage"] == "exact" and planned["per_target_bytes"] == [256 * 128 + 8 + 16]


def test_tied_weights_are_given_under_both_names_and_taken_once() -> None:
    shared = np.zeros((6, 4), "f4")
    tied = wc.Layout().add(shared, "embed").also(wc.part("head", shape=(6, 4)))
    apart = wc.Layout().add(shared, "embed").add(shared.copy(), "head")
    for source, target, bytes in ((tied, tied, 96), (tied, apart, 192), (apart, tied, 96)):
        planned = plans.plan([source], [target])
        assert (planned["coverage"], planned["per_target_bytes"]) == ("exact", [bytes])
    alone = wc.Layout().add(shared, "embed")
    assert plans.plan([alone], [tied])["coverage"] == "head is held by no source"
    assert "head" in plans.plan([tied], [alone])["coverage"]


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (lambda: wc.Layout(), "x is held by the source and taken by no target"),
        (lambda: wc.Layout().add(np.zeros(3, "f4"), "other"), r"other \[0:3\] is held by no source"),
        (lambda: wc.Layout().add(np.zeros(4, "f4"), "x"), r"x is published as \[3\] and taken as \[4\]"),
        (lambda: wc.Layout().add(np.zeros(3, "f2"), "x"), "x is published as F32 and taken as F16; have the trainer"),
        (
            lambda: wc.Layout().add(np.zeros(2, "f4"), [wc.part("x", shape=[3], dim=0, start=0, length=2)]),
            r"x \[2:3\] reaches no target rank",
        ),
    ],
)
def test_what_would_not_arrive_is_said(target: Callable[[], wc.Layout], wrong: str) -> None:
    planned = plans.plan([wc.Layout().add(np.zeros(3, "f4"), "x")], [target()])
    assert re.search(wrong, planned["coverage"])


CONFIG = {
    "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 65, "hidden_size": 8, "intermediate_size": 8,
    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
    "tie_word_embeddings": False,
}  # fmt: skip


def by_rule(spec: str, rank: int, config: Path, capfd) -> wc.Layout:
    """The layout of a rank by rule, as one that was read."""
    status, out, err = said(["layout", "--config", str(config), "--spec", spec, "--rank", str(rank), "--json"], capfd)
    assert status == 0, err
    shapes = _shapes(config, capfd)
    layout = wc.Layout(memory=False)
    for record in json.loads(out)["params"]:
        first, last = record.get("L", (0, 0))
        for layer in range(first, last + 1):
            for name, dim, start, length, *_ in record["pieces"]:
                name = name.replace("{L}", str(layer))
                part = wc.part(name, shape=shapes[name], dim=dim, start=start, length=length)
                local = [length if d == dim else n for d, n in enumerate(shapes[name])]
                layout.add(_Form(local), [part], dtype=record["dtype"])
    return layout


class _Form:
    """A tensor of which there is only the shape."""

    def __init__(self, shape: list[int]) -> None:
        self.shape = shape


def _shapes(config: Path, capfd) -> dict[str, list[int]]:
    out = said(["layout", "--config", str(config), "--spec", "ddp:dp=1", "--json"], capfd)[1]
    return {
        record["name"].replace("{L}", str(layer)): record["shape"]
        for record in json.loads(out)["params"]
        for layer in range(record.get("L", (0, 0))[0], record.get("L", (0, 0))[1] + 1)
    }


def test_layouts_and_rules_plan_alike(tmp_path: Path, capfd) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    source = [by_rule("fsdp2:dp=3", rank, config, capfd) for rank in range(3)]
    target = [by_rule("vllm:tp=2", rank, config, capfd) for rank in range(2)]
    want = plans.plan("fsdp2:dp=3", "vllm:tp=2", config=config, replicas=2, gpus_per_host=2)
    assert want["coverage"] == "exact"
    for one, other in ((source, target), (source, "vllm:tp=2"), ("fsdp2:dp=3", target)):
        got = plans.plan(one, other, config=config, replicas=2, gpus_per_host=2)
        for key in ("per_target_bytes", "host_bytes_in", "coverage", "lower_bound_s", "lower_bound_direct_s", "copies"):
            assert got[key] == want[key], key
    with pytest.raises(wc.Misuse, match=r"vllm:tp=2 is a rule: give the model's config\.json"):
        plans.plan(source, "vllm:tp=2")


def test_a_layout_without_memory_is_not_registered(server: wc.Server) -> None:
    layout = wc.Layout(memory=False).add(np.zeros(3, "f4"), "x")
    assert (len(layout), layout.nbytes) == (1, 12)
    with (
        wc.open("m", wc.Replica("r"), role="trainer", epoch="new", server=server.address) as handle,
        pytest.raises(wc.Misuse, match="can be planned, not registered"),
    ):
        handle.register(layout, deadline=SOON)


def test_a_part_without_a_shape_is_named() -> None:
    with pytest.raises(wc.LayoutMismatch, match=r"q\.weight"):
        wc.Layout().add(np.zeros(3, "f4"), [wc.part("q.weight", dim=0, index=0, of=2)]).describe()


def test_ranks_that_mean_other_tensors_by_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(wc.Misuse, match="different tensors of one name"):
        plans.text_of([wc.Layout().add(np.zeros(n, "f4"), "x") for n in (3, 4)])
    with pytest.raises(wc.Misuse, match=r"\.json at the end"):
        plans.write(tmp_path / "layouts", trainer(1))


GOOD = json.loads(wc.Layout().add(np.zeros((4, 2), "f4"), "x").describe())


def changed(change: Callable[[Any], Any]) -> str:
    file = copy.deepcopy(GOOD)
    change(file)
    return json.dumps(file)


def box(*held: Any) -> Callable[[Any], Any]:
    return lambda file: file["ranks"][0].update(holds=[list(one) for one in held])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no layouts in the form"),
        ("{", "no layouts in the form"),
        ("[]", "no layouts in the form"),
        ("null", "no layouts in the form"),
        (json.dumps(CONFIG), "no layouts in the form weightcast-layouts/1: unknown field"),
        (changed(lambda f: f.update(format="weightcast-layouts/2", more=1)), "its format is .*/2"),
        (changed(lambda f: f.update(format="weightcast-layouts/2")), "its format is .*/2"),
        (changed(lambda f: f.pop("format")), "missing field `format`"),
        (changed(lambda f: f.update(more=1)), "unknown field `more`"),
        (changed(lambda f: f.update(ranks=[])), "0 ranks; a file has 1 to"),
        (changed(lambda f: f["tensors"].append(f["tensors"][0])), "x is listed twice"),
        (changed(lambda f: f["tensors"].__setitem__(0, ["x", "F33", [4, 2]])), 'unknown dtype "F33"'),
        (changed(lambda f: f["tensors"].__setitem__(0, ["../x", "F32", [4, 2]])), "is not usable"),
        (changed(lambda f: f["tensors"].__setitem__(0, ["x", "F32", [2**63, 2**63]])), "is larger than"),
        (changed(lambda f: f["tensors"].__setitem__(0, ["x", "F32", [4, -2]])), "no layouts in the form"),
        (changed(box([1, [0, 0], [4, 2], "x", 0])), "number 0 of what it holds is of no tensor"),
        (changed(box([0, [0, 0], [5, 2], "x", 0])), "is no box of its tensor"),
        (changed(box([0, [0], [4], "x", 0])), "is no box of its tensor"),
        (changed(box([0, [0, 0], [4], "x", 0])), "is no box of its tensor"),
        (changed(box([0, [2**64 - 1, 0], [1, 2], "x", 0])), "is no box of its tensor"),
        (changed(box([0, [0, 0], [0, 2], "x", 0])), "is empty"),
        (changed(box([0, [0, 0], [4, 2], "x", 1])), "outside of the rank's memory"),
        (changed(box([0, [0, 0], [4, 2], "x", 2**64 - 1])), "outside of the rank's memory"),
        (changed(box([0, [0, 0], [2, 2], "x", 0], [0, [1, 0], [1, 2], "x", 16])), "x is held twice"),
        (
            changed(lambda f: (f["tensors"].append(["y", "F32", [8]]), f["ranks"][0]["holds"].append([1, [0], [8], "y", 0]))),
            "holds 64 bytes, and says that it has 32",
        ),
    ],
)
def test_what_is_no_file_of_layouts_is_refused(text: str, why: str, tmp_path: Path, capfd) -> None:
    file = tmp_path / "engine.json"
    file.write_text(text)
    with pytest.raises(wc.Misuse, match=why):
        plans.text_of([text])
    with pytest.raises(wc.Misuse, match=why):
        plans.plan([wc.Layout().add(np.zeros((4, 2), "f4"), "x")], file)
    status, out, err = said(["layout", "--spec", str(file)], capfd)
    assert status == 1 and not out and str(file) in err


def test_neither_a_rule_nor_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(wc.Misuse, match=r"unknown spec .*or give a file FILE\.json"):
        plans.plan("nonsense:tp=2", trainer(1))
    with pytest.raises(wc.Misuse, match="No such file"):
        plans.plan(tmp_path / "absent.json", trainer(1))
    with pytest.raises(wc.Misuse, match="replicas is 0"):
        plans.plan(trainer(1), trainer(1), replicas=0)
    with pytest.raises(wc.Misuse, match="known machines are host-tcp"):
        plans.plan(trainer(1), trainer(1), machine="a100")
    with pytest.raises(wc.Misuse, match="give a rate above 0"):
        plans.plan(trainer(1), trainer(1), nic_gbps=-1.0)


#: Says what a rank of FSDP2 holds of a module on the meta device. torch keeps meshes for as long as a process lives, with
#: the rank that it was, so that every rank is a process.
FSDP2 = """
import sys, torch, torch.distributed as dist, weightcast.torch as wct
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=int(sys.argv[1]), world_size=int(sys.argv[2]))
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 5, bias=False))
fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
print(wct.layout(model, memory=False).describe())
"""


def test_a_trainer_on_the_meta_device_is_planned() -> None:
    pytest.importorskip("torch")
    commands = [[sys.executable, "-c", FSDP2, str(rank), "3"] for rank in range(3)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    sources = [rank.communicate()[0] for rank in started]
    target = wc.Layout(memory=False)
    for name, shape in {"0.weight": (10, 6), "0.bias": (10,), "1.weight": (5, 10)}.items():
        target.add(np.zeros(shape, "f4"), name)
    planned = plans.plan(sources, [target])
    assert planned["coverage"] == "exact"
    # torch's chunks: 4, 4 and 2 of ten rows, 2, 2 and 1 of five.
    assert planned["per_source_bytes"] == [4 * (4 * 6 + 4 + 2 * 10)] * 2 + [4 * (2 * 6 + 2 + 10)]
