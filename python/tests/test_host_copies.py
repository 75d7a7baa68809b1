"""Host memory beside tensors, which is what is registered. Here the tensors are of the host; `tests_gpu` has
those of a GPU."""

import gc

import numpy as np
import pytest

import weightcast as wc
from weightcast import pinned
from weightcast.host_copies import HostCopies
from weightcast.pinned import ALIGNMENT, SLAB_BYTES, PinnedMemory

from .conftest import SOON

torch = pytest.importorskip("torch")


def laid_out(tensors):
    listed = wc.Layout(beside=True)
    for name, tensor in tensors.items():
        listed.add(tensor, name)
    return listed


@pytest.fixture
def pair(server):
    """A trainer's and a rollout's handles, with their tensors."""
    ours = {"a": torch.zeros(300, 7), "b": torch.zeros(5, dtype=torch.bfloat16)}
    theirs = {name: torch.full_like(tensor, -1) for name, tensor in ours.items()}
    options = {"server": server.address}
    with (
        wc.open("m", wc.Replica("trainer"), role="trainer", epoch="new", **options) as trainer,
        wc.open("m", wc.Replica("rollout"), **options) as rollout,
    ):
        trainer.register(laid_out(ours))
        rollout.register(laid_out(theirs))
        yield trainer, ours, rollout, theirs


def fill(tensors, value):
    for tensor in tensors.values():
        tensor.fill_(value)


def holds(tensors, value):
    return all(bool((tensor == value).all()) for tensor in tensors.values())


def test_publish_copies_out_and_update_copies_in(pair):
    trainer, ours, rollout, theirs = pair
    for version in (1, 2, 3):
        fill(ours, version)
        trainer.publish(version)
        # The copy is what is published: the optimizer may go on.
        fill(ours, -5)
        moved = rollout.update(version, staged=version == 3, deadline=SOON)
        assert moved.verified == moved.bytes > 0
        assert holds(theirs, version)
        trainer.unpublish()


def test_replicate_copies_in(pair):
    trainer, ours, rollout, theirs = pair
    fill(ours, 4)
    with trainer.published(4):
        rollout.replicate(4, deadline=SOON)
    assert holds(theirs, 4)


def test_what_is_read_is_not_copied_over(pair):
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    trainer.publish(1)
    fill(ours, 2)
    with pytest.raises(wc.Misuse, match="hold version 1: unpublish it first"):
        trainer.publish(2)
    rollout.update(deadline=SOON)
    assert holds(theirs, 1) and rollout.version == 1


def test_an_update_that_changes_nothing_copies_nothing(pair):
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    with trainer.published(1):
        rollout.update(deadline=SOON)
        fill(theirs, 9)
        assert not rollout.update(deadline=SOON).changed
        assert holds(theirs, 9)


def test_a_copy_that_broke_off_is_made_again(pair, monkeypatch):
    """The version has arrived, so the next update changes nothing; the device's tensors are of two."""
    trainer, ours, rollout, theirs = pair
    broken = [True]
    complete = HostCopies._complete

    def fail_once(self):
        if broken.pop() if broken else False:
            self._pairs[1][0].fill_(-7)
            raise RuntimeError("CUDA error: planted")
        complete(self)

    fill(ours, 1)
    with trainer.published(1):
        monkeypatch.setattr(HostCopies, "_complete", fail_once)
        with pytest.raises(RuntimeError, match="planted"):
            rollout.update(deadline=SOON)
        assert not holds(theirs, 1)
        assert not rollout.update(deadline=SOON).changed
        assert holds(theirs, 1)


def test_a_shard_that_cannot_copy_out_fails_the_call_for_all(pair, monkeypatch):
    trainer, _, _, _ = pair

    def fail(self):
        raise RuntimeError("CUDA error: planted")

    with monkeypatch.context() as patch:
        patch.setattr(HostCopies, "out", fail)
        with pytest.raises(wc.Misuse, match="could not be copied to host memory: CUDA error: planted"):
            trainer.publish(1)
    trainer.publish(1)


def test_fetch_leaves_tensors_alone_until_install(pair):
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    with trainer.published(1):
        assert rollout.fetch(deadline=SOON).changed
        assert rollout.version == 1 and holds(theirs, -1)
        assert rollout.install() and holds(theirs, 1)
        assert not rollout.install(), "nothing new has come"
        assert not rollout.fetch(deadline=SOON).changed


def test_a_fetch_that_fails_leaves_nothing_to_install(pair):
    """What the copies held was given up for a version that did not come."""
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    with trainer.published(1):
        rollout.fetch(deadline=SOON)

    def torn(*arguments):
        rollout._core.unpublish(SOON)
        rollout._layout.copies._pairs[0][1].fill_(99)
        raise wc.SourceLost("planted")

    class Core:
        update = staticmethod(torn)

        def __getattr__(self, name):
            return getattr(core, name)

    core, rollout._core = rollout._core, Core()
    with pytest.raises(wc.SourceLost):
        rollout.fetch(deadline=SOON)
    rollout._core = core
    assert not rollout.install() and holds(theirs, -1)


def test_a_version_whose_progress_raised_is_installed_by_the_next_call(pair):
    """It has arrived, so the next update changes nothing of what is registered."""
    trainer, ours, rollout, theirs = pair

    def stumble(arrived, total):
        raise ZeroDivisionError

    fill(ours, 1)
    with trainer.published(1):
        with pytest.raises(ZeroDivisionError):
            rollout.update(deadline=SOON, progress=stumble)
        assert rollout.version == 1
        assert not rollout.update(deadline=SOON).changed
        assert holds(theirs, 1)


def test_a_version_that_was_given_up_is_installed_again(pair):
    """The tensors have been trained on in between."""
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    with trainer.published(1):
        for _ in range(2):
            assert rollout.update(1, deadline=SOON).changed and holds(theirs, 1)
            rollout.unpublish()
            fill(theirs, 8)


def test_a_publisher_that_goes_over_to_another_version(pair):
    """Its own publication is what its tensors hold or are ahead of: nothing of that is copied back."""
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    trainer.publish(1)
    rollout.update(deadline=SOON)
    fill(ours, 2)
    assert not trainer.install() and holds(ours, 2)
    rollout.unpublish()
    fill(theirs, 3)
    trainer.unpublish()
    trainer.publish(4)
    rollout.update(deadline=SOON)
    assert holds(theirs, 2), "what the trainer held when it published"


def test_a_publisher_that_goes_over_to_the_same_number_of_a_new_run(pair, server):
    trainer, ours, _, _ = pair
    trainer.publish(1)
    tensors = {name: torch.full_like(tensor, 6) for name, tensor in ours.items()}
    with wc.open("m", wc.Replica("next"), role="trainer", epoch="new", server=server.address) as other:
        other.register(laid_out(tensors))
        with other.published(1):
            assert trainer.update(deadline=SOON).changed and holds(ours, 6)


def test_an_install_that_broke_off_is_neither_installed_nor_published(pair, monkeypatch):
    trainer, ours, rollout, theirs = pair

    def fail(self):
        raise RuntimeError("CUDA error: planted")

    fill(ours, 1)
    with trainer.published(1):
        with monkeypatch.context() as patch:
            patch.setattr(HostCopies, "_complete", fail)
            with pytest.raises(RuntimeError, match="planted"):
                rollout.update(deadline=SOON)
        rollout.unpublish()
        with pytest.raises(wc.Misuse, match="an install broke off"):
            rollout.install()
        with pytest.raises(wc.Misuse, match="an install broke off"):
            rollout.publish(2)
        rollout.update(deadline=SOON)
    assert holds(theirs, 1)


def test_what_is_not_added_is_not_copied_into(server):
    """An error of `add` leaves nothing behind."""
    strange = torch.ones(4, dtype=torch.complex64)
    listed = wc.Layout(beside=True)
    with pytest.raises(wc.Misuse, match="dtype"):
        listed.add(strange, "strange")
    listed.add(torch.ones(4), "a")
    assert len(listed) == len(listed.copies) == 1 and listed.all_beside


def test_padding_is_left_alone(pair, server):
    trainer, ours, _, _ = pair
    padded = torch.full((8,), 7, dtype=torch.bfloat16)
    with wc.open("m", wc.Replica("padded"), server=server.address) as handle:
        listed = laid_out({"a": torch.empty(300, 7)})
        handle.register(listed.add(padded, wc.part("b", dim=0, start=0, length=5, shape=[5]), pad=True))
        fill(ours, 1)
        with trainer.published(1):
            handle.update(deadline=SOON)
    assert padded.tolist() == [1] * 5 + [7] * 3


def test_memory_that_two_names_share_is_refused():
    """Each copy would be copied over the other; on the host `register` refuses the same."""
    memory = torch.zeros(10)
    listed = wc.Layout(beside=True).add(memory[:4], "a").add(memory[6:], "c").add(memory[4:6], "b")
    for twice in (memory, memory[3:5], memory[5:7]):
        with pytest.raises(wc.Misuse, match="x and [abc] lie in the same memory"):
            listed.add(twice, "x")
    assert len(listed.copies) == 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_memory_that_overlaps_is_refused_in_whatever_order_and_neighbours_are_not(order):
    memory = torch.zeros(30)
    ranges = [(0, 10), (10, 20), (20, 30)]
    copies = HostCopies()
    for number in order:
        first, end = ranges[number]
        copies.pair(f"t{number}", memory[first:end], torch.zeros(10))
    for first, end in [(0, 1), (5, 15), (9, 10), (10, 11), (19, 21), (29, 30), (0, 30), (2, 8)]:
        with pytest.raises(wc.Misuse, match="lie in the same memory"):
            copies.pair("more", memory[first:end], torch.zeros(end - first))
    alone = HostCopies()
    alone.pair("behind", memory[10:20], torch.zeros(10))
    for first, end in [(5, 11), (0, 30), (10, 12)]:
        with pytest.raises(wc.Misuse, match="more and behind lie in the same memory"):
            alone.pair("more", memory[first:end], torch.zeros(end - first))
    alone.pair("before", memory[:10], torch.zeros(10))
    alone.pair("none", memory[12:12], torch.zeros(0))


def test_an_install_into_storage_that_was_replaced_is_refused(pair):
    trainer, ours, rollout, theirs = pair
    fill(ours, 1)
    with trainer.published(1):
        rollout.fetch(deadline=SOON)
        theirs["a"].data = torch.ones(300, 7)
        with pytest.raises(wc.Misuse, match="a: the storage has been replaced"):
            rollout.install()


def test_memory_that_is_in_use_is_not_fetched_into(server):
    with wc.open("m", wc.Replica("r"), server=server.address) as handle:
        with pytest.raises(wc.Misuse, match="beside=True"):
            handle.fetch()
        handle.register(wc.Layout().add(torch.zeros(3), "a"))
        for call in (handle.fetch, handle.follow):
            with pytest.raises(wc.Misuse, match="beside=True"):
                call()
        assert not handle.install()


def test_storage_that_is_replaced_is_noticed(pair):
    trainer, ours, _, _ = pair
    ours["a"].data = torch.ones(300, 7)
    with pytest.raises(wc.Misuse, match="a: the storage has been replaced"):
        trainer.publish(1)


def test_only_what_is_contiguous_has_a_copy():
    strange = torch.empty(4, 6, device="meta")
    with pytest.raises(wc.Misuse, match="a meta tensor"):
        wc.Layout(beside=True).add(strange, "x")
    with pytest.raises(wc.Misuse, match="x: not contiguous"):
        wc.Layout(beside=True).add(torch.empty(4, 6).t(), "x")
    with pytest.raises(wc.Misuse, match=r"x: a numpy array, .*torch.from_numpy"):
        wc.Layout(beside=True).add(np.empty(4), "x")


def test_memory_is_apart_and_aligned():
    memory = PinnedMemory()
    like = [torch.empty(shape) for shape in ((3,), (), (0, 4), (1000, 2))]
    like.append(torch.empty(SLAB_BYTES // 8 + 1, dtype=torch.float64))
    given = [memory.empty(tensor) for tensor in like]
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in given if t.numel())
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    for tensor, mine in zip(like, given, strict=True):
        assert (mine.shape, mine.dtype) == (tensor.shape, tensor.dtype) and mine.is_contiguous()
    # Small ones share a slab, and large ones have one of their own that is no larger than they are.
    assert given[3].data_ptr() - given[0].data_ptr() < SLAB_BYTES
    assert memory.empty(torch.empty(7)).data_ptr() - given[0].data_ptr() < SLAB_BYTES
    assert given[4].untyped_storage().nbytes() == given[4].nbytes


def test_what_has_no_elements_takes_no_memory_also_as_the_first():
    """A rank may hold nothing of its first tensor: of five rows on four ranks, the last has none."""
    memory = PinnedMemory()
    for _ in range(2):
        none = memory.sized((2, 0), torch.bfloat16, "cpu")
        assert none.shape == (2, 0) and none.dtype == torch.bfloat16 and none.is_contiguous()
        assert memory.empty(torch.empty(0, 4)).shape == (0, 4)
        memory.empty(torch.empty(3))


class Runtime:
    """Stands in for the CUDA runtime."""

    def __init__(self, error=0):
        self.error, self.locked = error, {}

    def cudaHostRegister(self, address, nbytes, flags):
        if not self.error:
            self.locked[address] = nbytes
        return self.error

    def cudaHostUnregister(self, address):
        del self.locked[address]


def test_pages_are_locked_for_as_long_as_they_are_used(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    slab = pinned._slab(10_000, "cuda")
    assert runtime.locked == {slab.ctypes.data: 12_288}
    assert slab.ctypes.data % 4096 == 0 and len(slab) == 12_288
    part = torch.from_numpy(slab[:100])
    del slab
    gc.collect()
    assert runtime.locked, "a tensor in it is still there"
    as_bytes = np.asarray(part)
    del part
    gc.collect()
    assert runtime.locked, "its bytes are still there"
    del as_bytes
    gc.collect()
    assert not runtime.locked


def test_memory_that_cannot_be_locked_is_used_and_said(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "cudart", lambda: Runtime(error=2))
    assert len(pinned._slab(10_000, "cuda")) == 12_288
    assert "12288 bytes of host memory could not be page-locked (CUDA error 2)" in caplog.text
