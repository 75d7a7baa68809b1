"""The handle: what a worker does with its shard."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

import numpy as np

from . import _core, logs, mappings, selector, spans
from ._core import Pushed, PushOutlook, Updated
from .adapters.catalog import Catalog, Entry
from .arguments import counted
from .condition import Condition
from .follow import Follower, SafePoint
from .layout import Exchange, Layout
from .pipeline.failure import StageFailed
from .progress import Progress, ProgressBar
from .replica import Replica
from .view import View

#: Seconds that a call may take when no deadline is given.
DEADLINE = 60.0
#: Seconds that leaving may take when an exception is under way.
HURRY = 2.0

#: Of tensors that nobody may use or publish.
BROKEN = "an install broke off: tensors may be of two versions; fetch a version again, then install it"

Versions = dict[int, set[str]]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Handle:
    """One worker's part in a model. Made by `open`; use it in a `with` block.

    All shards of a replica make the same calls in the same order: each call is one transaction of
    the group, with one answer for all. Calls block without holding the GIL, end by their deadline
    (seconds), and raise a `WeightcastError` if they fail.

    A handle belongs to the process that opened it. In a child that `os.fork` made (a DataLoader's
    worker, say), closing it does nothing and all else raises `Misuse`.
    """

    def __init__(self, core: _core.Handle, model: str, replica: Replica) -> None:
        self._core = core
        #: What is registered.
        self._layout: Layout | None = None
        #: The number of the publication whose copies were made from the tensors.
        self._own: int | None = None
        #: The model's name.
        self.model = model
        #: Who this is.
        self.replica = replica

    def register(self, layout: Layout, *, deadline: float = DEADLINE) -> None:
        """Declares this worker's memory, and keeps it alive. Lists whatever is unmatched.

        A layout with parts of unknown global shape waits for a published version to look them up.
        If it fails on one shard it fails on all: the others raise `LayoutMismatch`, which names the
        shard and its reason. Nothing is registered then, and all may call it again.

        A layout with FP8 blocks of which several shards hold parts (`Layout.quantise` of rows that
        FSDP has cut) needs `layout.exchange`: called with an int32 numpy array on all shards in each
        `publish`, it replaces every number by the largest over all of them. Layouts that
        `weightcast.torch` made of DTensors have one, over their device mesh.
        """
        self._refuse_moved(layout, deadline)
        if not layout.memory:
            reason = "a layout without memory (Layout(memory=False)) can be planned, not registered"
            self.refuse(reason, deadline=deadline)
        if not layout.mapped:
            mappings.warn(layout._places, level=2)
        self._core.register(layout._core, deadline, _over_arrays(layout.exchange))
        self._layout = layout
        layout.copies.held = lambda: self._core.version

    def _refuse_moved(self, layout: Layout | None, deadline: float) -> None:
        """Fails, on all shards, the call that is to be made with memory that is nobody's any more."""
        if layout is not None and (moved := layout.origins.moved()):
            self._core.refuse(moved, deadline)

    def refuse(self, reason: str, *, deadline: float = DEADLINE) -> None:
        """Takes this shard's part in `register`, and fails it for all: the other shards raise
        `LayoutMismatch`, which names this shard and the reason. Here it raises `Misuse`, with the reason."""
        self._core.refuse(reason, deadline)

    def catalog(self, *, deadline: float = DEADLINE) -> Catalog:
        """What the newest version holds: an `Entry` (global shape, dtype) for each name. Waits until
        there is a version. All shards of the replica call it; before `register`, say, to read an
        engine's layout by it: `vllm.layout(model, handle.catalog())`.
        """
        listed = self._core.catalog(deadline)
        return {name: Entry(tuple(shape), dtype) for name, dtype, shape in listed}

    def unregister(self, *, deadline: float = DEADLINE) -> None:
        """Takes that back and lets go of the memory."""
        self._core.unregister(deadline)
        self._layout = None

    def publish(self, version: int, *, deadline: float = DEADLINE, seal: bool = False) -> None:
        """Makes the memory visible as `version`; a promise not to change it until `unpublish`.

        A new version has a higher number than those before it: one that rollouts would never take
        for the latest is refused. `epoch="new"` of `open` starts a run that counts anew.

        Takes the same time for any number of bytes: they are digested in the background. A change
        before that is done cannot be noticed by anyone; with `seal`, it is waited for, and for the
        server's word that all shards agree, as in `wait_sealed`. With FP8, the
        weights are looked at once for their scales before that: neither that look nor the exchange
        of block maxima between ranks heeds the deadline (the process group's timeout does).

        Tensors of a GPU are copied to host memory first, behind the work on the current stream, and may be
        changed as soon as the call returns.
        """
        self._refuse_moved(self._layout, deadline)
        if self._layout is not None and (reason := self._layout.origins.unready()):
            self._core.refuse(reason, deadline)
        self._copy_out(version, deadline)
        self._core.publish(version, deadline, seal)
        if self._layout is not None:
            self._layout.origins.publish()

    def _copy_out(self, version: int, deadline: float) -> None:
        """Brings host memory to what the tensors on devices hold."""
        if self._layout is None or not self._layout.copies:
            return
        if (held := self._core.version) is not None:
            reason = f"the host copies of what is to be published hold version {held[0]}: unpublish it first"
            self._core.refuse(reason, deadline)
        if self._layout.copies.broken:
            self._core.refuse(BROKEN, deadline)
        try:
            self._layout.copies.out()
        except StageFailed as error:
            # Ranks that gather nothing with this one learn of it here.
            with suppress(_core.WeightcastError):
                self._core.refuse(str(error), deadline)
            raise
        except RuntimeError as error:  # CUDA's own; other shards must not wait for this one
            self._core.refuse(f"tensors could not be copied to host memory: {error}", deadline)
        self._own = version

    def _noted(self, brought: Updated) -> Updated:
        if brought.changed:
            self._forget()
        return brought

    def _forget(self) -> None:
        """What tensors hold that have copies is not what the registered memory will hold, or not for sure."""
        self._own = None
        if self._layout is not None:
            self._layout.copies.installed = None

    def _here(self, call: Callable[_P, _R]) -> Callable[_P, _R]:
        """The call as another thread is to make it for this one."""
        copies = None if self._layout is None else self._layout.copies
        return copies.on_current_streams(call) if copies else call

    def wait_sealed(self, *, deadline: float = DEADLINE) -> None:
        """Waits until the published memory is digested, by all shards, and accepted.

        Raises `ContentMismatch` if it was refused, because nobody can ever read it: the shards hold
        different copies of a slice, or the version was published before with other bytes. The error
        names the tensor, and shards or replica. Every other call raises it as well, until `unpublish`,
        which raises it a last time and frees the memory."""
        self._core.wait_sealed(deadline)

    def unpublish(self, *, deadline: float = DEADLINE) -> None:
        """Revokes the publication. When it returns, the memory may be changed.

        Raises `ContentMismatch` if what was published had been refused, so that no rollout could
        read it. It is revoked all the same: the memory may be changed, and published anew."""
        try:
            self._core.unpublish(deadline)
        finally:
            if self._layout is not None and self._layout.copies and self._core.version is None:
                self._forget()

    @contextmanager
    def published(self, version: int, *, deadline: float = DEADLINE) -> Iterator["Handle"]:
        """Published inside, immutable; leaving waits until nobody reads any more."""
        self.publish(version, deadline=deadline)
        try:
            yield self
        except BaseException:
            self._leave_in_a_hurry()
            raise
        self.unpublish(deadline=deadline)

    def _leave_in_a_hurry(self) -> None:
        # The caller's own error matters more than one of leaving.
        try:
            self.close(deadline=HURRY)
        except _core.WeightcastError:
            pass

    def replicate(
        self,
        version: selector.Selector | int | str,
        *,
        deadline: float = DEADLINE,
        progress: Progress | None = None,
    ) -> Updated:
        """Fills the memory with a version; waits until there is one. Memory that is read-only can
        be published, not filled. `progress` is as in `update`."""
        asked = selector.parse(version)
        self._refuse_moved(self._layout, deadline)
        with _ending(progress):
            brought = self._noted(self._core.replicate(asked, deadline, progress))
        self.install()
        return brought

    def update(
        self,
        version: selector.Selector | int | str = "latest",
        *,
        deadline: float = DEADLINE,
        allow_rollback: bool = False,
        staged: bool = False,
        progress: Progress | None = None,
    ) -> Updated:
        """Goes over to a version if it is available and newer than the one held; else returns at
        once. While the memory holds nothing it waits for one, as `replicate` does: when it returns,
        there are weights to work with, or it has raised (`VersionUnavailable` if none came). The copy
        held is given up in the same step: if the new one is lost on the way, the memory holds nothing,
        and the error says so.

        Slices that are the same in both versions are not moved, by digests of the source's slices and
        of this memory: `Updated.unchanged` says how many bytes.

        With `staged`, the old version stays until the new one is here on all shards and verified:
        it may be used meanwhile, and others go on reading it. The new one is read into CPU memory
        of the same size, at most `staging_bytes` of `open` (else `NoRoom`), then copied into place;
        `Updated.staged` and `install_seconds` say what that cost. If the new one is lost on the way,
        the old version is still held and served. The memory changes from the moment when `version`
        is `None` until the call returns; nobody may use it then. That copying is not broken off for
        the deadline, only after a minute; then the memory holds nothing.

        Tensors of a GPU keep what they have until the version is in host memory, whole and verified; then
        they are copied into, on the current stream, and the call returns when that is done. Work on
        other streams must not use them meanwhile.

        `progress` is called in this thread as `progress(arrived, total)`, in bytes of this shard, a
        few times a second while a read is under way; the last time, if the memory has changed, with
        `arrived == total`. `progress_bar()` makes one. What it raises is raised when the update has
        ended, and it is not called again; an update that fails raises its own error. What is no
        `Exception`, such as `KeyboardInterrupt`, ends the update at once, as Ctrl-C does."""
        asked = selector.parse(version)
        self._refuse_moved(self._layout, deadline)
        with _ending(progress):
            brought = self._noted(self._core.update(asked, allow_rollback, staged, deadline, progress))
        self.install()
        return brought

    def push(
        self,
        version: int | None = None,
        *,
        to: str | Sequence[str] | None = None,
        deadline: float = DEADLINE,
        patience: float = 5.0,
    ) -> Pushed:
        """Writes the version that this replica has published into the memory of replicas that `accept` it.

        `to` names replicas, each of which is waited for; without it all rollouts of the model take part that
        accept while the push runs, and one is waited for. One shard calls; the other shards of the replica,
        and other replicas that hold the version in the same layouts, write in the background. A sender that
        brings a target nothing for `patience` seconds, or is lost, is replaced by another holder.

        Returns what became of each shard once all have ended, at the latest by the deadline. That a shard has
        not got the version is no error: `Pushed` is false then, and says why. The memory must stay published
        meanwhile, as for readers."""
        names = [to] if isinstance(to, str) else to
        return self._core.push(version, None if names is None else list(names), deadline, patience)

    def explain(
        self,
        version: int | None = None,
        *,
        to: str | Sequence[str] | None = None,
        deadline: float = 5.0,
    ) -> tuple[PushOutlook, ...]:
        """Says of each shard whether `push` would write the version into it now, or it would have to
        `update`, and why. Nothing is written; shards are asked whether they accept."""
        names = [to] if isinstance(to, str) else to
        listed = None if names is None else list(names)
        return tuple(self._core.explain_push(version, listed, deadline))

    def accept(
        self, *, before: Callable[[int], object] | None = None, deadline: float = DEADLINE
    ) -> Updated:
        """Waits for a push, and takes it in: nobody writes into the memory but during this call.

        All shards of the replica call it. `before` is called with the version before the memory changes, for
        what has to stop first; what it raises refuses the push, and is raised here. When this returns, the
        memory holds the version, verified as in `update`. It raises `Timeout` if no push came, with the
        memory as it was. What a push leaves undone, because its driver or its senders were lost, this call
        reads as `update` does; if that fails too it raises, and the memory holds nothing."""
        self._refuse_moved(self._layout, deadline)
        brought = self._noted(self._core.accept(before, deadline))
        self.install()
        return brought

    def fetch(
        self,
        version: selector.Selector | int | str = "latest",
        *,
        deadline: float = DEADLINE,
        allow_rollback: bool = False,
        progress: Progress | None = None,
    ) -> Updated:
        """The first half of `update`: brings a version into the host copies, verified, and leaves the tensors
        as they are until `install`. All tensors of the layout need a copy: they lie on a GPU, or the
        layout was made with `beside=True` (that of a live engine as well, whose `finish()` installs).
        `Handle.version` is then the version that the copies hold, and that other replicas read."""
        self._refuse_in_place()
        return self._fetch(version, deadline, allow_rollback, progress)

    def _fetch(
        self,
        version: selector.Selector | int | str,
        deadline: float,
        allow_rollback: bool = False,
        progress: Progress | None = None,
    ) -> Updated:
        """Fills what is registered; tensors that have copies stay as they are."""
        asked = selector.parse(version)
        self._refuse_moved(self._layout, deadline)
        with _ending(progress):
            return self._noted(self._core.update(asked, allow_rollback, False, deadline, progress))

    def install(self) -> bool:
        """The second half of `update`: copies what was fetched into the tensors. False if they have that
        already. No call of the group: shards agree among themselves when they install. After an error
        some tensors may have changed: call it again."""
        if self._layout is None or not self._layout.copies:
            return False
        copies, held = self._layout.copies, self._core.version
        if held is None and copies.broken:
            raise _core.Misuse(BROKEN)
        if held is None or held == copies.installed or held[0] == self._own:
            return False
        if moved := self._layout.origins.moved():
            raise _core.Misuse(moved)
        copies.into(held)
        return True

    def follow(
        self,
        at: SafePoint | None = None,
        *,
        install: Callable[[], object] | None = None,
        agree: Callable[[int], int] | None = None,
    ) -> Follower:
        """Has a thread fetch each new version as trainers publish them, and install it at safe points, so
        that the code of an engine calls nothing.

        `at` names the safe points: a torch module, each of whose forward passes begins with one; or a
        function that is given the follower's `step`, and calls that, or has it called, wherever weights may
        change; without it, call `Follower.step` yourself. The layout has all tensors beside it, as for
        `fetch`. `install` is what has to follow, such as `LiveLayout.finish` of a layout whose memory lies
        beside the engine's parameters (`layout(beside=True)`). Shards of one engine install at the same
        step: with several of them, `agree` takes a number on all shards at every safe point, and returns
        the smallest (an all-reduce).

        Until `Follower.stop`, the thread makes the calls of this handle; make no others."""
        if self.replica.num_shards > 1 and agree is None:
            raise _core.Misuse(
                f"{self.replica.num_shards} shards would install at different steps: pass agree=, which "
                "returns the smallest of all shards' numbers"
            )
        self._refuse_in_place()
        return Follower(self, at, install, agree)

    def _refuse_in_place(self) -> None:
        if self._layout is None or not self._layout.all_beside:
            raise _core.Misuse(
                "bytes would land in tensors that are in use: register a layout made with beside=True"
            )

    def retain(
        self, version: selector.Selector | int | str = "latest", *, deadline: float = DEADLINE
    ) -> int:
        """Waits for a version, and has it kept until `let_go` or the end of this replica, whatever newer
        versions come. Returns its number.

        Any role may retain, on all shards: an evaluation, a reference policy. Whoever would give up the last
        copy of the version copies it to CPU memory first. This handle's own memory has no part in this: it
        may hold another version, or none. Raises `VersionUnavailable` if the version is gone, `Misuse` beyond
        64 versions."""
        return self._core.retain(selector.parse(version), deadline)[0]

    def let_go(self, version: int, *, deadline: float = DEADLINE) -> None:
        """Ends `retain` of a version, on all shards. No error if the version is not retained."""
        self._core.let_go(version, deadline)

    def view(
        self,
        version: selector.Selector | int | str = "latest",
        *,
        shard: int | None = None,
        deadline: float = DEADLINE,
    ) -> View:
        """Maps a version that another replica of this host holds in shared memory: one shard of the
        replica, or all.

        Nothing is copied, no memory is taken, and nobody waits for whoever views: see `View` for how long
        it counts. The version has to be there: `wait` for it first. The memory of this handle has no part
        in this, and each shard may call it by itself. Raises `NoView`, with the reason of each replica of
        the host, if none shares its memory; `VersionUnavailable` if nobody anywhere holds the version."""
        wanted = None if shard is None else counted("shard", shard)
        return View(self._core.view(selector.parse(version), wanted, deadline))

    def list(self, *, deadline: float = DEADLINE) -> Versions:
        """Which replicas hold which versions."""
        return _versions(self._core.list(deadline))

    def wait(
        self, until: Condition | Callable[[Versions], bool], *, deadline: float = DEADLINE
    ) -> Versions:
        """Waits until a condition holds; returns the listing at which it did.

        The server looks at a `held`, `fresh` or `available` at every change and wakes the group
        once. A function of the listing is called here, at every change.
        """
        if isinstance(until, Condition):
            return _versions(self._core.wait(until, deadline))
        end = time.monotonic() + deadline
        listing = self._core.list(deadline)
        while not until(_versions(listing)):
            listing = self._core.wait_changed(listing.revision, max(0.0, end - time.monotonic()))
        return _versions(listing)

    @property
    def version(self) -> int | None:
        """The version that the memory holds, if it holds one."""
        held = self._core.version
        return None if held is None else held[0]

    @property
    def epoch(self) -> int | None:
        """The training run that it belongs to: a number that no other run of the model has, also where the
        server was lost and the next one knew nothing. Of two runs of one server the later one is higher."""
        held = self._core.version
        return None if held is None else held[1]

    @property
    def progress(self) -> int:
        """Bytes of the running or last read that have arrived, on this shard."""
        return self._core.progress

    @property
    def progress_total(self) -> int:
        """Bytes of the running or last read that have arrived or are still to come; 0 before its bytes
        move."""
        return self._core.progress_total

    def record(self) -> Path:
        """Writes what the session of this handle did in the last minutes into a file on this host, and
        returns the path; `weightcast replay PATH` tells the story. The file has no weights and no secrets,
        and only this user can read the file. Its directory is `record_dir` of `open`, by default one of
        this user."""
        return self._core.record()

    def close(self, *, deadline: float = DEADLINE) -> None:
        """Unpublishes, waits until nobody reads, unregisters, leaves. Again: does nothing."""
        self._core.close(deadline)
        self._layout = None  # it holds views of all tensors

    def __enter__(self) -> "Handle":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._leave_in_a_hurry()

    def __repr__(self) -> str:
        me = self.replica
        try:
            state = f"at {self.version}"
        except _core.Misuse:
            state = "of another process"
        return f"<Handle {self.model}/{me.name}[{me.shard}/{me.num_shards}] {state}>"


def open(
    model: str,
    replica: Replica,
    *,
    role: str = "rollout",
    epoch: str = "current",
    retain: int = 0,
    offload_seeding: bool = False,
    offload_bytes: int | None = None,
    staging_bytes: int | None = None,
    plan_cache: str | os.PathLike[str] | None = None,
    trace: str | os.PathLike[str] | None = None,
    otlp: str | None = None,
    record_dir: str | os.PathLike[str] | None = None,
    server: str | Sequence[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    data_bind: str | None = None,
    data_advertise: str | None = None,
    data_networks: str | Sequence[str] | None = None,
    insecure: bool = False,
    job: str | None = None,
    way: str = "auto",
    deadline: float = 30.0,
    reconnect: float = 60.0,
) -> Handle:
    """Opens a handle for one shard of a replica of a model.

    A `role="trainer"` publishes new versions; with `epoch="new"` it starts a new training run, whose
    versions are newer than all before. The replicas of a data-parallel trainer all open before the
    first of them publishes: one that opens with `epoch="new"` after that starts yet another run, and
    those of the run before are refused at their next `publish`. With `retain=n` the newest n versions
    are retained: whoever would give up the last copy of one copies it to CPU memory first, which
    takes at most `offload_bytes` for this handle (any number by default) and is freed when another
    replica holds the version or it is not retained any more. The copy lives in the process that made
    it. `staging_bytes` bounds the memory that `update(staged=True)` may take beside the registered
    one.

    `plan_cache` is a directory in which plans stay, so that a worker that is started again with the
    same layouts need not plan. It is made if it is not there, for this user alone; any number of
    workers may share it, and its newest 128 plans are kept. A file in it that is damaged or of
    another version is planned again and replaced.

    `trace` (`WEIGHTCAST_TRACE`) is a file to which this process adds the spans of its calls, for
    Perfetto, Chrome and `weightcast trace`. Processes of one host may share the file; a process has one.
    `otlp` (`WEIGHTCAST_OTLP`) is an OpenTelemetry collector, `http://HOST:PORT`, to which this process sends
    the same spans over OTLP/gRPC. A collector that is not there costs spans, and delays no call.

    `record_dir` (`WEIGHTCAST_RECORD_DIR`) is a directory into which each call that fails writes what
    the session did in the last minutes, as `Handle.record` does; the newest 16 of them are kept.

    With `offload_seeding=True`, the same on all shards of a replica, `update` never waits for another
    datacentre while the replica holds a version: it returns at once with `changed=False`, one
    replica of the datacentre fetches the version into CPU memory in the background, and a later
    `update` of any replica there reads it from that. The memory counts towards `offload_bytes`, and
    is freed when no replica of the datacentre lacks the version. Without room for it, or if it does
    not come, the next `update` crosses by itself.

    `server` and `token_file` come from `WEIGHTCAST_SERVER` and `WEIGHTCAST_TOKEN_FILE` if they are
    not given. Several servers, in a list or with commas between them, are the first and its backups,
    in the same order for all processes: when the one that acts is lost, the handle brings what it
    holds to the next, or to the same one started again, and its calls go on there. It looks for one
    for `reconnect` seconds; with 0 it ends with its server. Without any server, the processes of one
    `job` on one host share a server that the first of them starts, and that ends a minute after the
    last. A job is named by `job` or `WEIGHTCAST_JOB`; else it is the Slurm job, or else the directory
    in which the process was started: programs that are started in one directory find each other,
    those of another do not. The data port binds loopback unless `data_bind` (`WEIGHTCAST_DATA_BIND`)
    says otherwise; `data_advertise` is the address that peers use for it. Of sources, only ports in
    `data_networks` (`WEIGHTCAST_DATA_NETWORKS`, such as `10.0.0.0/8`) are connected to; by default
    those of any host but link-local ones, and loopback if the server or the own data port is there.
    `way` forces how bytes move: `shared`, `direct` or `tcp`. `deadline` is for reaching the server, and
    for a shard whose last process still has its lease.
    """
    if epoch not in ("current", "new"):
        raise ValueError(f"epoch is current or new, not {epoch!r}")
    if not isinstance(replica, Replica):
        raise TypeError(
            f"replica is a weightcast.Replica, not {replica!r}: Replica(name, shard=rank, num_shards=ranks), "
            "or weightcast.torch.replica(name, model)"
        )
    logs.receive()
    spans.to_file(trace)
    options = _core.Options(
        role=role,
        new_epoch=epoch == "new",
        retain=retain,
        offload_seeding=offload_seeding,
        offload_bytes=offload_bytes,
        staging_bytes=staging_bytes,
        plan_cache=None if plan_cache is None else os.fspath(plan_cache),
        trace=None if trace is None else os.fspath(trace),
        otlp=otlp,
        record_dir=None if record_dir is None else os.fspath(record_dir),
        server=_joined(server),
        token_file=None if token_file is None else os.fspath(token_file),
        data_bind=data_bind,
        data_advertise=data_advertise,
        data_networks=_joined(data_networks),
        insecure=insecure,
        job=job,
        lazy_server=[sys.executable, "-m", "weightcast"],
        way=way,
        deadline=deadline,
        reconnect=reconnect,
    )
    return Handle(_core.Handle.open(model, replica, options), model, replica)


@contextmanager
def _ending(progress: Progress | None) -> Iterator[None]:
    """A bar ends with its call."""
    try:
        yield
    finally:
        if isinstance(progress, ProgressBar):
            progress.close()


def _joined(one_or_more: str | Sequence[str] | None) -> str | None:
    if one_or_more is None or isinstance(one_or_more, str):
        return one_or_more
    return ",".join(one_or_more)


def _over_arrays(exchange: Exchange | None) -> Callable[[bytearray], None] | None:
    if exchange is None:
        return None
    return lambda numbers: exchange(np.frombuffer(numbers, dtype=np.int32))


def _versions(listing: _core.Listing) -> Versions:
    """The versions of the newest training run, with those of older ones that it does not have."""
    versions: Versions = {}
    for (number, _epoch), replicas in listing.versions:
        versions[number] = set(replicas)
    return versions
