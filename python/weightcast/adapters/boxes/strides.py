"""Strided views as boxes: where a copy between two views takes from, and where it puts."""

from collections.abc import Iterator
from dataclasses import dataclass

#: Boxes that one copy may come to. A loader that needs more takes elements one by one.
BOXES = 1 << 16


class NotBoxes(ValueError):
    """The view cannot be written as boxes of its base."""


@dataclass(frozen=True)
class View:
    """A view of memory: sizes and strides in elements, and the first element's index."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Box:
    """Where a box of a tensor starts, and its lengths."""

    start: tuple[int, ...]
    len: tuple[int, ...]


@dataclass(frozen=True)
class BoxCopy:
    """One box of the source that fills one box of the target."""

    source: Box
    target: Box
    #: Which dimension of the source runs along which of the target, in the order of the source,
    #: for those longer than 1.
    axes: tuple[tuple[int, int], ...]

    @property
    def ordered(self) -> bool:
        """Whether elements that follow one another in the source do so in the target; else it is a
        transposition."""
        targets = [target for _, target in self.axes]
        return targets == sorted(targets)


@dataclass(frozen=True)
class _Dim:
    """A dimension of a copy: its size, and the strides at both ends."""

    size: int
    source: int
    target: int


def boxes(source: View, source_base: View, target: View, target_base: View) -> list[BoxCopy]:
    """The copies of boxes that a copy of a view of one tensor into a view of another makes.

    `source.shape` may broadcast to `target.shape`, as in `target.copy_(source)`. Raises `NotBoxes`.
    """
    if 0 in target.shape:
        return []
    missing = len(target.shape) - len(source.shape)
    strides = (0,) * missing + tuple(
        0 if n == 1 else stride for n, stride in zip(source.shape, source.strides, strict=True)
    )
    dims = [
        _Dim(size, s, t)
        for size, s, t in zip(target.shape, strides, target.strides, strict=True)
        if size != 1
    ]
    if any(dim.source == 0 for dim in dims):
        raise NotBoxes("repeats elements of it")
    found = []
    for walked, source_at, target_at in _unrolled(dims, source, source_base, target, target_base):
        found.append(_copy(walked, source_at, source_base, target_at, target_base))
        if len(found) > BOXES:
            raise NotBoxes(f"takes more than {BOXES} pieces of it")
    return found


def compose(inner: View, base: View, outer: View) -> View:
    """A view of a copy, as a view of what was copied: `base` is the whole copy, and `outer` the view
    that it is a copy of. Raises `NotBoxes`."""
    if 0 in inner.shape:
        return View(inner.shape, inner.strides, outer.offset)
    start, strides = coordinates(base, inner.offset), []
    for size, stride in zip(inner.shape, inner.strides, strict=True):
        if size == 1 or stride == 0:
            strides.append(0)
            continue
        axis = _axis(base, stride)
        if axis is None or start[axis] + (size - 1) * (stride // base.strides[axis]) >= (
            base.shape[axis]
        ):
            raise NotBoxes("takes parts of several rows of it at once")
        strides.append(stride // base.strides[axis] * outer.strides[axis])
    at = sum(s * stride for s, stride in zip(start, outer.strides, strict=True))
    return View(inner.shape, tuple(strides), outer.offset + at)


def _unrolled(
    dims: list[_Dim], source: View, source_base: View, target: View, target_base: View
) -> Iterator[tuple[list[_Dim], int, int]]:
    """Dimensions that walk along one dimension of either base each, and where they start.
    A dimension that jumps (a head out of every group, say) becomes one copy for each step."""
    pending = [(dims, source.offset, target.offset)]
    while pending:
        dims, source_at, target_at = pending.pop()
        dims = _split(dims, source_base, [d.source for d in dims], source_at)
        dims = _split(dims, target_base, [d.target for d in dims], target_at)
        jump = _jump(dims, source_base, target_base)
        if jump is None:
            yield dims, source_at, target_at
            continue
        rest, dim = dims[:jump] + dims[jump + 1 :], dims[jump]
        if dim.size > BOXES:
            raise NotBoxes(f"takes more than {BOXES} pieces of it")
        for i in reversed(range(dim.size)):
            pending.append((rest, source_at + i * dim.source, target_at + i * dim.target))


def _split(dims: list[_Dim], base: View, strides: list[int], at: int) -> list[_Dim]:
    """Cuts dimensions that run through several dimensions of the base, as flattened ones do."""
    listed = []
    for dim, stride in zip(dims, strides, strict=True):
        size, inner = dim.size, []
        source, target = dim.source, dim.target
        while (axis := _axis(base, stride)) is not None and base.strides[axis] == stride:
            length = base.shape[axis]
            whole = coordinates(base, at)[axis] == 0 and size % length == 0
            if size <= length or not whole:
                break
            inner.append(_Dim(length, source, target))
            size, stride = size // length, stride * length
            source, target = source * length, target * length
        listed += [_Dim(size, source, target), *reversed(inner)]
    return listed


def _jump(dims: list[_Dim], source_base: View, target_base: View) -> int | None:
    """The first dimension that takes every k-th index, or shares an axis with another one."""
    for base, of in ((source_base, "source"), (target_base, "target")):
        taken: set[int] = set()
        # The finest step first: it is the one that can stay a range.
        for index in sorted(range(len(dims)), key=lambda i: getattr(dims[i], of)):
            stride = getattr(dims[index], of)
            axis = _axis(base, stride)
            if axis is None:
                raise NotBoxes("walks through it aslant")
            if base.strides[axis] != stride or axis in taken:
                return index
            taken.add(axis)
    return None


def _axis(base: View, stride: int) -> int | None:
    """The dimension of the base that a step of `stride` walks along."""
    fitting = [
        (base.strides[axis], axis)
        for axis in range(len(base.shape))
        if base.shape[axis] > 1 and base.strides[axis] <= stride and stride % base.strides[axis] == 0
    ]
    return max(fitting)[1] if fitting else None


def coordinates(base: View, at: int) -> list[int]:
    """The index of the element at `at`, by dimension of the base."""
    rest, coordinates = at - base.offset, [0] * len(base.shape)
    for axis in sorted(range(len(base.shape)), key=lambda a: -base.strides[a]):
        if base.shape[axis] > 1:
            coordinates[axis], rest = divmod(rest, base.strides[axis])
    if rest or any(c >= n for c, n in zip(coordinates, base.shape, strict=True) if n):
        raise NotBoxes("starts outside of it")
    return coordinates


def _copy(
    dims: list[_Dim], source_at: int, source_base: View, target_at: int, target_base: View
) -> BoxCopy:
    source, source_axes = _box(source_base, source_at, [(d.size, d.source) for d in dims])
    target, target_axes = _box(target_base, target_at, [(d.size, d.target) for d in dims])
    return BoxCopy(source, target, tuple(sorted(zip(source_axes, target_axes, strict=True))))


def _box(base: View, at: int, dims: list[tuple[int, int]]) -> tuple[Box, list[int]]:
    start, length, axes = coordinates(base, at), [1] * len(base.shape), []
    for size, stride in dims:
        axis = _axis(base, stride)
        if axis is None or start[axis] + size > base.shape[axis]:
            raise NotBoxes("takes parts of several rows of it at once")
        length[axis] = size
        axes.append(axis)
    return Box(tuple(start), tuple(length)), axes
