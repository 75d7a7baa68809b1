"""Where registered memory came from, and whether that still has it.

A registration is of memory, not of tensors: when a tensor or a module gets other storage, weightcast
goes on with the old one. Here is noted whose memory it was, by weak references, and asked again.
"""

import logging
import weakref
from collections.abc import Callable
from typing import Any

log = logging.getLogger("weightcast")

#: Names that an error lists; it counts the others.
LISTED = 4


class Origins:
    """The tensors that a layout was made of, and the modules whose attributes they were."""

    def __init__(self) -> None:
        #: Of each tensor that was noted by itself: name, weak reference, address.
        self._names: list[str] = []
        self._references: list[Any] = []
        self._addresses: list[int] = []
        self._slots: list[tuple[str, Any, str, str, tuple[str, ...], int]] = []
        self._elsewise: list[tuple[str, Any, Callable[[Any], int], int]] = []
        self._root: Any = None
        #: Says why what is registered is not to be published now, if it is not.
        self._unready: Callable[[Any], str | None] = lambda _: None
        #: Brings a module back into the state in which it was read, if it can be in another.
        self._settle: Callable[[Any], None] | None = None
        self._publications = 0

    def tensor(self, name: str, tensor: Any) -> None:
        """Notes a tensor of torch: as long as it lives, it shall keep its storage."""
        if hasattr(tensor, "data_ptr"):
            self._names.append(name)
            self._references.append(weakref.ref(tensor))
            self._addresses.append(tensor.data_ptr())

    def module(self, root: Any, settle: Callable[[Any], None] | None = None) -> None:
        """Notes the module that everything was read from, in place of the tensors noted so far."""
        self._names, self._references, self._addresses = [], [], []
        self._root, self._settle = weakref.ref(root), settle

    def slot(self, name: str, owner: Any, key: str) -> None:
        """Notes a parameter or buffer of a module: what is there later shall have the same storage."""
        table = next(t for t in ("_parameters", "_buffers") if key in getattr(owner, t))
        tensor = getattr(owner, table)[key]
        within: tuple[str, ...] = ()
        # Of DTensors, and of what torchao puts around weights that are gathered in FP8.
        for attribute in ("_local_tensor", "_tensor"):
            if hasattr(tensor, attribute):
                tensor, within = getattr(tensor, attribute), (*within, attribute)
        try:
            address = tensor.data_ptr()
        except RuntimeError:  # it has no memory of its own; nothing of it is registered
            return
        self._slots.append((name, weakref.ref(owner), table, key, within, address))

    def place(self, name: str, owner: Any, address: Callable[[Any], int]) -> None:
        """Notes memory that a module keeps where no attribute names it: `address` finds it again."""
        self._elsewise.append((name, weakref.ref(owner), address, address(owner)))

    def moved(self) -> str | None:
        """What is registered and has other storage now, and what to do about it."""
        names = self._elsewhere()
        if names and self._settle is not None and (root := self._root()) is not None:
            self._settle(root)
            names = self._elsewhere()
        if not names:
            return None
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        return (
            f"{', '.join(names[:LISTED])}{more}: the storage has been replaced since the layout was "
            "made (load_state_dict(assign=True), something that swaps .data, .to()), so the registered "
            "memory is not what the model uses any more; copy into tensors instead of replacing them, "
            "or unpublish, unregister, make the layout anew and register that"
        )

    def until(self, unready: Callable[[Any], str | None]) -> None:
        """Notes what has to be asked of the module before its memory is published."""
        self._unready = unready

    def unready(self) -> str | None:
        """Why what is registered is not to be published now, and what to do about it."""
        root = None if self._root is None else self._root()
        return None if root is None else self._unready(root)

    def publish(self) -> None:
        """Notes a publication; warns if nothing can have changed the memory since the last one."""
        self._publications += 1
        if self._publications == 2 and self._root is not None and self._root() is None:
            log.warning(
                "the module whose parameters are registered is gone, so each version that is "
                "published has the same weights; register the layout of the one that is trained"
            )

    def _elsewhere(self) -> list[str]:
        names = self._replaced()
        for name, reference, table, key, within, address in self._slots:
            owner = reference()
            if owner is None:
                continue
            try:  # one of the few lines that run for each of thousands of tensors in every publish
                tensor = owner.__dict__[table][key]
                for attribute in within:
                    tensor = getattr(tensor, attribute)
                here = tensor.data_ptr() == address
            except (AttributeError, KeyError, RuntimeError):  # none, of another kind, without memory
                here = False
            if not here:
                names.append(name)
        for name, reference, where, address in self._elsewise:
            owner = reference()
            if owner is not None and where(owner) != address:
                names.append(name)
        return names

    def _replaced(self) -> list[str]:
        # Every publish asks thousands of tensors: a list of addresses takes half the time of a loop.
        living = [reference() for reference in self._references]
        try:
            if [tensor.data_ptr() for tensor in living] == self._addresses:
                return []
        except AttributeError:  # one is gone
            pass
        of_all = zip(self._names, living, self._addresses, strict=True)
        return [name for name, one, at in of_all if one is not None and one.data_ptr() != at]
