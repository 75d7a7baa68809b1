"""The awaited forms of the blocking calls: the event loop turns meanwhile, calls keep their order."""

import asyncio

import numpy as np
import pytest

import weightcast as wc
from weightcast import aio


def layout(array: np.ndarray) -> wc.Layout:
    return wc.Layout().add(array, "w")


def run(job) -> None:
    with wc.serve() as server:
        asyncio.run(job(server.address))


def test_a_version_moves() -> None:
    async def job(server: str) -> None:
        source, target = np.arange(1024, dtype=np.float32), np.zeros(1024, dtype=np.float32)
        trainer = await aio.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        async with trainer, await aio.open("m", wc.Replica("rollout"), server=server) as rollout:
            await trainer.register(layout(source))
            await rollout.register(layout(target))
            async with trainer.published(7):
                updated = await rollout.update()
                assert updated.changed and rollout.version == 7
                assert (await rollout.catalog())["w"].shape == (1024,)
                assert await rollout.list() == {7: {"trainer", "rollout"}}
        assert np.array_equal(source, target)

    run(job)


def test_the_loop_turns_while_a_call_waits() -> None:
    async def job(server: str) -> None:
        array = np.zeros(16, dtype=np.float32)
        trainer = await aio.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        async with trainer, await aio.open("m", wc.Replica("rollout"), server=server) as rollout:
            await rollout.register(layout(np.zeros_like(array)))
            waiting = asyncio.create_task(rollout.replicate(1))
            # Without the loop turning, nobody would publish what the other call waits for.
            await trainer.register(layout(array))
            await trainer.publish(1)
            assert (await waiting).version == 1
            await trainer.unpublish()

    run(job)


def test_errors_come_to_whoever_awaits() -> None:
    async def job(server: str) -> None:
        async with await aio.open("m", wc.Replica("rollout"), server=server) as rollout:
            with pytest.raises(wc.Misuse):
                await rollout.update()
        with pytest.raises(TypeError):
            await aio.open("m", "no replica", server=server)

    run(job)


def test_a_cancelled_call_is_made_all_the_same() -> None:
    async def job(server: str) -> None:
        array = np.arange(16, dtype=np.float32)
        trainer = await aio.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        async with trainer:
            await trainer.register(layout(array))
            first = asyncio.create_task(trainer.list())
            publishing = asyncio.create_task(trainer.publish(1))
            await asyncio.sleep(0)
            publishing.cancel()  # while it waits for the other call
            with pytest.raises(asyncio.CancelledError):
                await publishing
            assert await first == {}
            assert await trainer.list() == {1: {"trainer"}}

    run(job)


def test_a_publication_that_is_cancelled_on_its_way_is_taken_back() -> None:
    async def job(server: str) -> None:
        async def publish() -> None:
            async with trainer.published(1):
                raise AssertionError("cancelled before")

        array = np.arange(16, dtype=np.float32)
        trainer = await aio.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        other = await aio.open("m", wc.Replica("rollout"), server=server)
        async with other:
            await other.register(layout(np.zeros_like(array)))
            await trainer.register(layout(array))
            task = asyncio.create_task(publish())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # Behind whatever the handle's thread still has to do.
            with pytest.raises(wc.Misuse):
                await trainer.publish(2)
            assert await other.list() == {}

    run(job)


def test_closing_again_does_nothing() -> None:
    async def job(server: str) -> None:
        async with await aio.open("m", wc.Replica("rollout"), server=server) as rollout:
            await rollout.close()
            await rollout.close()

    run(job)


def test_a_block_that_fails_takes_its_publication_back() -> None:
    async def job(server: str) -> None:
        array = np.zeros(16, dtype=np.float32)
        trainer = await aio.open("m", wc.Replica("trainer"), role="trainer", epoch="new", server=server)
        await trainer.register(layout(array))
        with pytest.raises(KeyError):
            async with trainer.published(1):
                raise KeyError("the step failed")
        with pytest.raises(wc.Misuse):
            await trainer.publish(2)

    run(job)
