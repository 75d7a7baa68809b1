"""A publication that nobody can ever read is told to whoever published it, by name."""

from collections.abc import Callable

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON


def whole(value: float) -> wc.Layout:
    """A shard that holds `w` whole, beside a tensor that is the same everywhere."""
    return wc.Layout().add(np.arange(12, dtype="f4"), "a").add(np.full((8, 4), value, "f4"), "w")


def steps(h: wc.Handle, calls: list[Callable[[wc.Handle], object]]) -> Exception | None:
    """Makes the calls in order, as a user's program does; what stopped it."""
    for call in calls:
        try:
            call(h)
        except wc.WeightcastError as error:
            return error
    return None


PROGRAMS = {
    "sealed": [lambda h: h.publish(1, deadline=SOON, seal=True)],
    "waited for": [
        lambda h: h.publish(1, deadline=SOON),
        lambda h: h.wait_sealed(deadline=SOON),
    ],
    "not waited for": [
        lambda h: h.publish(1, deadline=SOON),
        lambda h: h.unpublish(deadline=SOON),
    ],
    "waiting for a rollout": [
        lambda h: h.publish(1, deadline=SOON),
        lambda h: h.wait(wc.held(1, by=1), deadline=SOON),
    ],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_shards_that_hold_different_copies(group, program):
    trainer = group("trainer", [whole(0.0), whole(1.0)], role="trainer")
    told = trainer.each(lambda h: steps(h, PROGRAMS[program]))
    for error in told:
        assert isinstance(error, wc.ContentMismatch), error
        assert (error.version, error.replica) == (1, "trainer")
        assert "w[0:8, 0:4]" in str(error) and "shards 0 and 1" in str(error), error
        assert "a[" not in str(error), error
        assert "unpublish it" in str(error), error


def test_leaving_the_block_says_so(group):
    trainer = group("trainer", [whole(0.0), whole(1.0)], role="trainer")

    def step(h: wc.Handle) -> None:
        with h.published(1, deadline=SOON):
            pass

    for error in trainer.each(step):
        assert isinstance(error, wc.ContentMismatch) and "shards 0 and 1" in str(error), error


def test_after_the_error_the_memory_is_free_and_the_number_too(group):
    weights = [np.full((8, 4), float(shard), "f4") for shard in range(2)]
    trainer = group("trainer", [wc.Layout().add(w, "w") for w in weights], role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON))
    for error in trainer.each(lambda h: h.unpublish(deadline=SOON)):
        assert isinstance(error, wc.ContentMismatch), error
    weights[1][:] = weights[0]
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    copy = np.ones((8, 4), "f4")
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    assert rollout[0].update("latest", deadline=SOON)
    assert not copy.any()
    trainer.all(lambda h: h.unpublish(deadline=SOON))


def test_the_error_of_other_bytes_under_a_number_names_the_way_out(group):
    weights = np.ones((8, 4), "f4")
    trainer = group("trainer", [wc.Layout().add(weights, "w")], role="trainer")
    copy = np.zeros((8, 4), "f4")
    rollout = group("rollout", [wc.Layout().add(copy, "w")])
    trainer[0].publish(1, deadline=SOON, seal=True)
    rollout[0].update("latest", deadline=SOON)
    trainer[0].unpublish(deadline=SOON)
    weights += 1
    for attempt in (1, 2):  # another number is no way out of what is refused already
        with pytest.raises(wc.ContentMismatch, match="unpublish it, then publish them under a higher"):
            trainer[0].publish(attempt, deadline=SOON, seal=True)
    with pytest.raises(wc.ContentMismatch):
        trainer[0].unpublish(deadline=SOON)
    trainer[0].publish(2, deadline=SOON, seal=True)
    assert rollout[0].update("latest", deadline=SOON).changed
    assert (copy == 2).all()
    trainer[0].unpublish(deadline=SOON)


def test_replicas_that_hold_different_weights(group):
    """Data-parallel trainers: the second one's `w` is another, in another layout."""
    one = group("one", [whole(0.0)], role="trainer")
    rows = [
        wc.Layout()
        .add(np.arange(6, dtype="f4") + 6 * i, [wc.part("a", shape=(12,), dim=0, index=i, of=2)])
        .add(np.full((4, 4), 0.5 * i, "f4"), [wc.part("w", shape=(8, 4), dim=0, index=i, of=2)])
        for i in range(2)
    ]
    two = group("two", rows, role="trainer")
    one[0].publish(1, deadline=SOON, seal=True)
    for error in two.each(lambda h: h.publish(1, deadline=SOON, seal=True)):
        assert isinstance(error, wc.ContentMismatch), error
        assert error.replica == "two" and "w" in str(error) and "one" in str(error), error
        assert "a[" not in str(error) and ": a" not in str(error), error
    for error in two.each(lambda h: h.unpublish(deadline=SOON)):
        assert isinstance(error, wc.ContentMismatch), error
    # The first is as good as before.
    one[0].wait_sealed(deadline=SOON)
    assert one[0].list() == {1: {"one"}}
    one[0].unpublish(deadline=SOON)


def test_a_good_publication_is_sealed_for_all(group):
    trainer = group("trainer", [whole(1.0), whole(1.0)], role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    trainer.all(lambda h: h.wait_sealed(deadline=SOON))
    trainer.all(lambda h: h.unpublish(deadline=SOON))
