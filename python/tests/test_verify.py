"""`weightcast verify`: two live replicas of other layouts, compared where they are."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON, Group, token_file

HEADS, COLUMNS = 512, 96
#: Rows of q, k and v. A rollout has half of q, and all of k and v, in one array.
ROWS = {"q": HEADS, "k": 64, "v": 64}


@dataclass
class Pair:
    """A trainer by rows in two shards, a rollout of two with fused q, k and v."""

    server: str
    trainer: Group
    rollout: Group
    fused: list[np.ndarray]

    def at(self, name: str, row: int) -> tuple[int, int]:
        """Shard and row of the fused array where a row lies first."""
        half = HEADS // 2
        if name == "q":
            return row // half, row % half
        return 0, half + {"k": 0, "v": ROWS["k"]}[name] + row

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """The command in a process of its own: its status and what it says."""
        command = [sys.executable, "-m", "weightcast", "verify", "--model", "policy", *arguments]
        done = subprocess.run(
            command, env=os.environ | {"WEIGHTCAST_SERVER": self.server}, capture_output=True,
            text=True, timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    def verify(self, replica: str = "rollout", other: str | None = "trainer", **how) -> wc.Verdict:
        return wc.verify("policy", replica, other, server=self.server, **how)


@pytest.fixture
def pair(server, group) -> Pair:
    random = np.random.default_rng(7)
    whole = {name: random.standard_normal((rows, COLUMNS), "f4") for name, rows in ROWS.items()}
    sharded = [wc.Layout() for _ in range(2)]
    for name, tensor in whole.items():
        for shard, half in enumerate(np.split(tensor, 2)):
            part = wc.part(name, shape=tensor.shape, dim=0, index=shard, of=2)
            sharded[shard].add(np.ascontiguousarray(half), part)
    for layout in sharded:
        layout.add(np.ones(COLUMNS, "f4"), "norm")
    trainer = group("trainer", sharded, role="trainer")
    trainer.all(lambda h: h.publish(3, deadline=SOON, seal=True))
    fused = [np.zeros((HEADS // 2 + 128, COLUMNS), "f4") for _ in range(2)]
    layouts = []
    for shard, array in enumerate(fused):
        q = wc.part("q", shape=whole["q"].shape, dim=0, index=shard, of=2)
        kv = [wc.part(name, shape=whole[name].shape) for name in "kv"]
        layouts.append(wc.Layout().add(array, [q, *kv]).add(np.zeros(COLUMNS, "f4"), "norm"))
    rollout = group("rollout", layouts)
    rollout.all(lambda h: h.replicate(3, deadline=SOON))
    return Pair(server.address, trainer, rollout, fused)


def places(verdict: wc.Verdict) -> dict[str, list[tuple[tuple[int, int], ...]]]:
    return {d.tensor: [place.slice for place in d.ranges] for d in verdict.differences}


def holders(place: wc.DifferentRange) -> list[list[tuple[str, int, bool | None]]]:
    return sorted(
        sorted((held.replica, held.shard, held.as_published) for held in same)
        for same in place.readings
    )


def test_equal_replicas(pair):
    status, out, err = pair.run("rollout", "trainer", "--version", "3")
    assert (status, err) == (0, "") and "equal: 4 tensors" in out, (out, err)
    # Whoever is not named is found.
    for arguments in (["rollout"], ["trainer", "--version", "latest"], ["rollout", "--sealed"]):
        assert pair.run(*arguments)[0] == 0
    verdict = pair.verify()
    assert verdict and verdict.different == () and verdict.version == 3
    memory = sum(replica.bytes for replica in verdict.replicas)
    # Each byte is digested once, and next to nothing is sent.
    assert verdict.digested == memory and verdict.moved < 8_000 < memory // 50
    assert all(r.as_published and r.copies_agree for r in verdict.replicas)


def test_a_flipped_bit_in_the_rollout(pair):
    shard, row = pair.at("q", 300)
    pair.fused[shard].view("u4")[row, 17] ^= 1 << 9
    status, out, _ = pair.run("rollout", "trainer")
    assert status == 1 and "DIFFERENT: 1 of 4 tensors" in out, out
    assert "q F32 [512, 96]" in out and "[300:301, 17:18]" in out
    changed, kept = (line for line in out.splitlines() if line.startswith("    "))
    if "trainer" in changed:
        changed, kept = kept, changed
    assert "rollout shard 1" in changed and "CHANGED since it was published" in changed
    assert "trainer shard 1" in kept and "as published" in kept
    status, out, _ = pair.run("rollout", "trainer", "--json")
    said = json.loads(out)
    assert status == 1 and said["different"] == ["q"] and not said["equal"]
    verdict = pair.verify()
    assert places(verdict) == {"q": [((300, 301), (17, 18))]}
    (place,) = verdict.differences[0].ranges
    assert place.exact and not place.moving
    assert holders(place) == [[("rollout", 1, False)], [("trainer", 1, True)]]
    assert verdict.moved < 20_000
    # The rollout alone knows which slice it was.
    alone = pair.verify(other=None, sealed=True)
    assert not alone and places(alone) == {"q": [((256, 512), (0, 96))]}


def test_two_rows_swapped(pair):
    (one, first), (other, second) = pair.at("q", 3), pair.at("q", 490)
    kept = pair.fused[one][first].copy()
    pair.fused[one][first] = pair.fused[other][second]
    pair.fused[other][second] = kept
    verdict = pair.verify()
    assert places(verdict) == {"q": [((3, 4), (0, 96)), ((490, 491), (0, 96))]}
    by = [[held[0][:2] for held in holders(place)] for place in verdict.differences[0].ranges]
    assert by == [[("rollout", 0), ("trainer", 0)], [("rollout", 1), ("trainer", 1)]]


def test_one_of_two_copies(pair):
    """k lies on both shards of the rollout, and the second one's copy is wrong."""
    pair.fused[1].view("u4")[HEADS // 2 + 40, 5] ^= 1
    verdict = pair.verify()
    assert places(verdict) == {"k": [((40, 41), (5, 6))]}
    (place,) = verdict.differences[0].ranges
    good = [("rollout", 0, True), ("trainer", 1, True)]
    assert holders(place) == [good, [("rollout", 1, False)]]
    assert not verdict.replicas[0].copies_agree and verdict.replicas[1].copies_agree
    # Two other replicas are not concerned.
    assert pair.verify("trainer", None, sealed=True)


def as_json(of: object) -> object:
    """A verdict as the command prints it."""
    if isinstance(of, tuple):
        return [as_json(item) for item in of]
    fields = getattr(type(of), "__match_args__", None)
    return of if fields is None else {name: as_json(getattr(of, name)) for name in fields}


def test_the_function_and_the_command_say_the_same(pair):
    """Field by field: the binding converts what the command prints."""
    pair.fused[1].view("u4")[HEADS // 2 + 40, 5] ^= 1
    pair.fused[0][3] += 1
    said, verdict = json.loads(pair.run("rollout", "trainer", "--json")[1]), as_json(pair.verify())
    assert said.pop("seconds") > 0 and verdict.pop("seconds") > 0
    assert verdict == said and len(said["differences"]) == 2


def test_all_is_different(pair):
    for array in pair.fused:
        array += 1
    verdict = pair.verify()
    assert verdict.different == ("k", "q", "v")
    # What differs throughout is one place for each pair of shards, not a thousand rows.
    assert all(len(d.ranges) <= 16 and d.more_ranges == 0 for d in verdict.differences)
    rows = {d.tensor: sum(p.slice[0][1] - p.slice[0][0] for p in d.ranges) for d in verdict.differences}
    assert rows == ROWS
    assert verdict.moved < 600_000


def test_nothing_can_be_said(pair):
    pair.rollout.all(lambda h: h.unpublish(deadline=SOON))
    for arguments, reason in [
        (["rollout", "trainer"], "holds nothing that may be read now"),
        (["trainer", "rollout"], "holds nothing that may be read now"),
        (["trainer", "nobody"], "none of that name; it has rollout, trainer"),
        (["trainer", "--version", "4"], "version 4"),
    ]:
        status, out, err = pair.run(*arguments)
        assert (status, out) == (2, "") and reason in err, (status, out, err)
    with pytest.raises(wc.Unverified) as error:
        pair.verify()
    assert error.value.replica == "rollout"
    with pytest.raises(wc.Misuse, match="no model nobody"):
        wc.verify("nobody", "rollout", server=pair.server)
    # It holds the version, but nobody else does: what was sealed is left to compare with.
    assert len(pair.verify("trainer", None).replicas) == 1


def test_a_silent_shard_and_no_server(pair):
    pair.rollout[1].close(deadline=SOON)
    status, _, err = pair.run("rollout", "trainer")
    assert status == 2 and err, err
    assert pair.run("trainer", "--server", "http://127.0.0.1:9")[0] == 2
    assert pair.run("trainer", "rollout", "--sealed")[0] == 2  # not both


def test_the_token_is_asked_for(tmp_path):
    good, bad = (token_file(tmp_path / name, name * 10) for name in ("good", "badd"))
    with wc.serve(token_file=good) as server:
        me = wc.Replica("trainer")
        with wc.open("policy", me, role="trainer", server=server.address, token_file=good) as h:
            h.register(wc.Layout().add(np.ones(8, "f4"), "w"), deadline=SOON)
            h.publish(1, deadline=SOON, seal=True)
            assert wc.verify("policy", "trainer", server=server.address, token_file=good)
            for token in (None, bad):
                with pytest.raises(wc.ServerUnreachable, match="token"):
                    wc.verify("policy", "trainer", server=server.address, token_file=token)


def test_a_trainer_that_publishes_in_fp8(group, server):
    """What is made when it is read is digested as it would be sent."""
    torch = pytest.importorskip("torch")
    weight = torch.randn((300, 257), generator=torch.manual_seed(1)).to(torch.bfloat16)
    layout = wc.Layout().add(weight, "w").quantise("w", block=(128, 128))
    trainer = group("trainer", [layout], role="trainer")
    trainer[0].publish(1, deadline=SOON, seal=True)
    codes, scales = torch.zeros((300, 257), dtype=torch.float8_e4m3fn), torch.zeros(3, 3)
    rollout = group("rollout", [wc.Layout().add(codes, "w").add(scales, "w_scale_inv")])
    rollout[0].replicate(1, deadline=SOON)
    assert wc.verify("policy", "rollout", "trainer", server=server.address)
    codes.view(torch.uint8)[211, 5] ^= 1
    verdict = wc.verify("policy", "rollout", "trainer", server=server.address)
    assert places(verdict) == {"w": [((211, 212), (5, 6))]}
    codes.view(torch.uint8)[211, 5] ^= 1
    weight[10, 20] += 8.0
    verdict = wc.verify("policy", "rollout", "trainer", server=server.address)
    assert places(verdict) == {"w": [((10, 11), (20, 21))]}
    (place,) = verdict.differences[0].ranges
    assert holders(place) == [[("rollout", 0, True)], [("trainer", 0, False)]]
