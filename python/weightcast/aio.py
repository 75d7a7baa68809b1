"""`await`-able forms of the blocking calls, for engines that live in an event loop.

    async with await weightcast.aio.open("policy", me) as handle:
        await handle.register(layout)
        if (await handle.update(deadline=30)).changed:
            ...
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from . import handle as handles
from ._core import Pushed, Updated
from .adapters.catalog import Catalog
from .condition import Condition
from .handle import Versions
from .layout import Layout
from .replica import Replica
from .selector import Selector

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Handle:
    """A `weightcast.Handle` whose calls are awaited. They run one after another, in a thread of this
    handle; the options are those of the blocking calls.

    A call that is cancelled goes on in its thread until it ends or its deadline comes, also if it has not
    begun: other shards of the group make the same call. Calls after it wait for that.
    """

    def __init__(self, handle: handles.Handle, thread: ThreadPoolExecutor | None = None) -> None:
        self._handle = handle
        self._thread = thread or _thread()
        self._closed = False

    async def _run(self, call: Callable[_P, _R], *arguments: _P.args, **options: _P.kwargs) -> _R:
        return await _in(self._thread, self._handle._here(call), *arguments, **options)

    @property
    def blocking(self) -> handles.Handle:
        """The handle itself."""
        return self._handle

    @property
    def version(self) -> int | None:
        """The version that the memory holds, if it holds one."""
        return self._handle.version

    async def register(self, layout: Layout, **options: Any) -> None:
        """As `Handle.register`."""
        await self._run(self._handle.register, layout, **options)

    async def push(self, *arguments: Any, **options: Any) -> Pushed:
        """As `Handle.push`."""
        return await self._run(self._handle.push, *arguments, **options)

    async def accept(self, **options: Any) -> Updated:
        """As `Handle.accept`; `before` is called in this handle's thread."""
        return await self._run(self._handle.accept, **options)

    async def unregister(self, **options: Any) -> None:
        """As `Handle.unregister`."""
        await self._run(self._handle.unregister, **options)

    async def catalog(self, **options: Any) -> Catalog:
        """As `Handle.catalog`."""
        return await self._run(self._handle.catalog, **options)

    async def publish(self, version: int, **options: Any) -> None:
        """As `Handle.publish`."""
        await self._run(self._handle.publish, version, **options)

    async def wait_sealed(self, **options: Any) -> None:
        """As `Handle.wait_sealed`."""
        await self._run(self._handle.wait_sealed, **options)

    async def retain(self, *args: Any, **options: Any) -> int:
        """As `Handle.retain`."""
        return await self._run(self._handle.retain, *args, **options)

    async def let_go(self, version: int, **options: Any) -> None:
        """As `Handle.let_go`."""
        await self._run(self._handle.let_go, version, **options)

    async def unpublish(self, **options: Any) -> None:
        """As `Handle.unpublish`."""
        await self._run(self._handle.unpublish, **options)

    @asynccontextmanager
    async def published(self, version: int, **options: Any) -> AsyncIterator["Handle"]:
        """As `Handle.published`."""
        inside = self._handle.published(version, **options)
        try:
            await self._run(inside.__enter__)
        except asyncio.CancelledError as error:
            # The publication comes all the same, and is taken back behind it.
            self._thread.submit(inside.__exit__, type(error), error, error.__traceback__)
            raise
        try:
            yield self
        except BaseException as error:
            await self._run(inside.__exit__, type(error), error, error.__traceback__)
            raise
        await self._run(inside.__exit__, None, None, None)

    async def replicate(self, version: Selector | int | str, **options: Any) -> Updated:
        """As `Handle.replicate`. `progress` is called in the handle's thread."""
        return await self._run(self._handle.replicate, version, **options)

    async def update(self, version: Selector | int | str = "latest", **options: Any) -> Updated:
        """As `Handle.update`. `progress` is called in the handle's thread."""
        return await self._run(self._handle.update, version, **options)

    async def fetch(self, version: Selector | int | str = "latest", **options: Any) -> Updated:
        """As `Handle.fetch`. `progress` is called in the handle's thread."""
        return await self._run(self._handle.fetch, version, **options)

    async def install(self) -> bool:
        """As `Handle.install`. It runs in the handle's thread: nothing uses the tensors meanwhile."""
        return await self._run(self._handle.install)

    async def list(self, **options: Any) -> Versions:
        """As `Handle.list`."""
        return await self._run(self._handle.list, **options)

    async def wait(
        self, until: Condition | Callable[[Versions], bool], **options: Any
    ) -> Versions:
        """As `Handle.wait`. A function of the listing is called in the handle's thread."""
        return await self._run(self._handle.wait, until, **options)

    async def close(self, **options: Any) -> None:
        """As `Handle.close`."""
        if not self._closed:
            await self._run(self._handle.close, **options)
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> "Handle":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._closed:
            await self._run(self._handle.__exit__, kind, error, trace)
            self._end()

    def __repr__(self) -> str:
        return f"<aio {self._handle!r}>"


async def open(model: str, replica: Replica, **options: Any) -> Handle:
    """As `weightcast.open`, without blocking the event loop."""
    thread = _thread()
    try:
        return Handle(await _in(thread, handles.open, model, replica, **options), thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="weightcast-aio")


async def _in(
    thread: ThreadPoolExecutor, call: Callable[_P, _R], *arguments: _P.args, **options: _P.kwargs
) -> _R:
    future = thread.submit(call, *arguments, **options)
    # Whoever waits may give up; the call may not be dropped.
    return await asyncio.shield(asyncio.wrap_future(future))
