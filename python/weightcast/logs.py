"""The core's events in Python's `logging`.

A logger for each module of the core, below `weightcast`: `weightcast.client.open` warns of an address
that no other host reaches, say. Events come by a thread of this package, which starts with the first
handle or server: the core never waits for Python to say something. Levels of loggers are looked at
once a second.

`WEIGHTCAST_LOG` (`warn`, `info`, `weightcast=debug`) writes lines to standard error as well, in every
process of weightcast.
"""

import atexit
import logging
import os
import threading

from . import _core

#: Seconds between two looks at the levels of loggers.
LOOK = 1.0
#: All of the core's loggers are below this one.
LOGGER = logging.getLogger("weightcast")

_lock = threading.Lock()
_receiver: threading.Thread | None = None


def receive() -> None:
    """Has the core's events come to `logging` from now on. Doing so again does nothing."""
    global _receiver
    with _lock:
        if _receiver is None:
            _core.log_to_queue()
            _look()
            _receiver = threading.Thread(target=_pass_on, name="weightcast-logs", daemon=True)
            _receiver.start()


def _look() -> None:
    """Tells the core which events a logger wants."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("weightcast.")]
    loggers = [LOGGER, *map(logging.getLogger, names)]
    _core.set_log_level(min(logger.getEffectiveLevel() for logger in loggers))


def _pass_on() -> None:
    while True:
        _say(LOOK)
        _look()


def _say(limit: float) -> None:
    for level, target, message, at, dropped in _core.log_lines(limit):
        logger = logging.getLogger(target)
        if dropped:
            logger.warning("%d lines before this one were dropped: they came too fast", dropped)
        if logger.isEnabledFor(level) and _is_heard():
            record = logger.makeRecord(logger.name, level, "weightcast", 0, message, (), None)
            record.created, record.msecs = at, at % 1 * 1000
            logger.handle(record)


def _is_heard() -> bool:
    """Whether `logging` was set up, or lines do not go to standard error anyway: by itself, `logging`
    writes warnings there, which would be there twice."""
    return LOGGER.hasHandlers() or not os.environ.get("WEIGHTCAST_LOG")


def _forked() -> None:
    """A child has no thread of its parent's."""
    global _receiver, _lock
    _receiver, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
# What was said until the end is said.
atexit.register(lambda: _say(0.0) if _receiver else None)
