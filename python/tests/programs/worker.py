"""One shard as a process: reads calls from stdin and prints what each came to, as JSON lines.

The first line opens the handle: arguments of `weightcast.open`, `bytes`, the size of the tensor `w` whose
rows the shards share, and `table`, that of a tensor which each shard holds whole. A call runs on a thread of its own, so that `progress` can
be asked for meanwhile.
"""

import json
import sys
import threading
import time
import zlib

import numpy as np

import weightcast as wc

COLUMNS = 1 << 10


def pattern(version: int, start: int, length: int) -> np.ndarray:
    """Elements `start` to `start + length` of the version's tensor."""
    with np.errstate(over="ignore"):
        return np.arange(start, start + length, dtype="u4") * np.uint32(2654435761) + np.uint32(version % (1 << 32))


class Shard:
    """The handle, its memory, and the calls that the test may make."""

    def __init__(self, name, shard=0, of=1, bytes=1 << 20, table=0, **options):
        rows = bytes // 4 // COLUMNS
        each = -(-rows // of)
        mine = min(rows, (shard + 1) * each) - min(rows, shard * each)
        self.first = shard * each * COLUMNS
        self.memory = np.zeros((mine, COLUMNS), "u4")
        self.handle = wc.open("policy", wc.Replica(name, shard, of), **options)
        part = wc.part("w", shape=(rows, COLUMNS), dim=0, index=shard, of=of)
        self.layout = wc.Layout().add(self.memory, part)
        #: What each shard holds whole.
        self.table = np.zeros(table // 4, "u4")
        if table:
            self.layout.add(self.table, "table")

    def register(self, deadline):
        self.handle.register(self.layout, deadline=deadline)

    def publish(self, version, deadline):
        self.memory[...] = pattern(version, self.first, self.memory.size).reshape(-1, COLUMNS)
        self.table[...] = pattern(-version, 0, self.table.size)
        self.handle.publish(version, deadline=deadline, seal=True)

    def replicate(self, version, deadline):
        return self.came(self.handle.replicate(version, deadline=deadline))

    def update(self, version, deadline, staged=False):
        return self.came(self.handle.update(version, staged=staged, deadline=deadline))

    def push(self, deadline, version=None, to=None, patience=5.0):
        pushed = self.handle.push(version, to=to, deadline=deadline, patience=patience)
        shards = [
            {
                "shard": f"{s.replica}.{s.shard}", "end": s.end, "bytes": s.bytes, "moved": s.moved,
                "detail": s.detail,
            }
            for s in pushed.shards
        ]
        return {"whole": bool(pushed), "version": pushed.version, "shards": shards}

    def willing(self, to, deadline):
        """Waits until all of these would be pushed to."""
        until = time.monotonic() + deadline
        while any(outlook.way != "push" for outlook in self.handle.explain(to=to)):
            assert time.monotonic() < until, "they do not accept"

    def accept(self, deadline):
        told = []
        came = self.came(self.handle.accept(before=told.append, deadline=deadline))
        return came | {"told": told}

    def content(self, deadline):
        """A number that changes with any byte of the memory."""
        return zlib.crc32(self.memory)

    def spoil(self, deadline):
        """Changes what is published, which nobody may do."""
        self.memory += np.uint32(1)

    def came(self, updated):
        return {
            "version": updated.version,
            "source": updated.source,
            "helpers": updated.helpers,
            "given": updated.given,
            "way": updated.way,
            "staged": updated.staged,
            "siblings": updated.bytes_siblings,
            "plan_from": updated.plan_from,
            "right": self.right(updated.version),
        }

    def right(self, version):
        expected = pattern(version, self.first, self.memory.size)
        same = np.array_equal(self.table, pattern(-version, 0, self.table.size))
        return bool(np.array_equal(self.memory.reshape(-1), expected) and same)

    def holds(self, version, deadline):
        """Whether the memory is that version's now, bit for bit."""
        return self.right(version)

    def wait_held(self, version, deadline):
        """Waits until every rollout holds a version as new as this one."""
        self.handle.wait(wc.held(version), deadline=deadline)

    def unpublish(self, deadline):
        self.handle.unpublish(deadline=deadline)

    def list(self, deadline):
        return {str(v): sorted(names) for v, names in self.handle.list(deadline=deadline).items()}

    def close(self, deadline):
        self.handle.close(deadline=deadline)


def outcome(call, **arguments):
    """What a call came to: a value, or the type of its error."""
    try:
        return {"value": call(**arguments)}
    except wc.WeightcastError as error:
        return {"error": type(error).__name__, "message": str(error)}


#: Calls end in threads of their own; a line is said in one piece.
_saying = threading.Lock()


def say(**line):
    with _saying:
        print(json.dumps(line), flush=True)


def moving(handle: wc.Handle, deadline: float) -> int:
    """Waits until bytes of the running read have arrived."""
    until = time.monotonic() + deadline
    while not handle.progress and time.monotonic() < until:
        time.sleep(0.001)
    return handle.progress


def main() -> None:
    made: list[Shard] = []
    opened = outcome(lambda **o: made.append(Shard(**o)), **json.loads(sys.stdin.readline()))
    say(call="open", **opened)
    if not made:
        return
    shard = made[0]

    def run(call, arguments):
        came = outcome(getattr(shard, call), **arguments)
        say(call=call, held=shard.handle.version, **came)

    for line in sys.stdin:
        order = json.loads(line)
        call = order.pop("call")
        if call == "moving":
            say(call=call, value=moving(shard.handle, **order))
        else:
            threading.Thread(target=run, args=(call, order), daemon=True).start()


if __name__ == "__main__":
    main()
