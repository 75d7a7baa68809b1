"""The digest of the weights: the same in every layout, another for any other weights."""

import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.examples.rl import stamp  # noqa: E402
from weightcast.examples.rl.stamp import STAMP, Piece, Stamp, digest_of  # noqa: E402

SOON = 20.0


def weights():
    draw = torch.Generator().manual_seed(3)
    return {"a": torch.randn(7, 4, generator=draw), "b": torch.randn(5, generator=draw)}


def whole(tensors):
    return [Piece(name, tensor) for name, tensor in tensors.items()]


def test_pieces_add_up_however_a_tensor_is_cut():
    tensors = weights()
    want = digest_of(whole(tensors))
    cut = [Piece("a", tensors["a"][:3]), Piece("a", tensors["a"][3:], start=12), Piece("b", tensors["b"])]
    assert digest_of(cut) == want
    assert digest_of(reversed(cut)) == want
    assert digest_of([*cut, Piece("a", tensors["a"][7:], start=28)]) == want, "a rank may hold no row"


def test_blocks_add_up(monkeypatch):
    want = digest_of(whole(weights()))
    monkeypatch.setattr(stamp, "BLOCK", 3)
    assert digest_of(whole(weights())) == want


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_any_other_weights_have_another_digest(dtype):
    tensors = {name: tensor.to(getattr(torch, dtype)) for name, tensor in weights().items()}
    found = {digest_of(whole(tensors))}
    swapped = dict(tensors, a=tensors["a"].flip(0))
    renamed = {"c": tensors["a"], "b": tensors["b"]}
    negated = dict(tensors, b=tensors["b"] * torch.tensor([1, 1, 1, 1, -1]))
    moved = dict(tensors, b=tensors["b"].roll(1))
    for other in swapped, renamed, negated, moved:
        found.add(digest_of(whole(other)))
    assert len(found) == 5


def test_the_digest_arrives_with_the_version(server):
    ours, theirs = Stamp(), Stamp()
    with (
        wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address) as trainer,
        wc.open("policy", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        trainer.register(ours.add_to(wc.Layout()), deadline=SOON)
        rollout.register(theirs.add_to(wc.Layout()), deadline=SOON)
        for version, digest in enumerate((-1, 2**62)):
            ours.write(digest)
            with trainer.published(version, deadline=SOON):
                rollout.update(deadline=SOON)
            assert theirs.text == ours.text
    assert theirs.text == "4000000000000000" and STAMP
