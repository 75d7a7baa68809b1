"""A program in a terminal: a pseudo-terminal with an emulator behind it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

from .driver import SOON


class Terminal:
    """`weightcast` with these arguments, on a screen of so many columns and lines."""

    def __init__(self, *arguments, columns=120, lines=48):
        self.screen = pyte.Screen(columns, lines)
        self.emulator = pyte.ByteStream(self.screen)
        #: What the program wrote last.
        self.last = b""
        self.own, programs = pty.openpty()
        fcntl.ioctl(programs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.child = subprocess.Popen(
            [sys.executable, "-m", "weightcast", *arguments],
            stdin=programs, stdout=programs, stderr=programs, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color"},
            # The terminal is the session's: Ctrl-C reaches the program.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(programs)

    def lines(self):
        """What a person sees, without the blanks at the ends of lines."""
        return [line.rstrip() for line in self.screen.display]

    def wait_for(self, seen):
        """Waits until `seen` is true of the lines; returns them."""
        until = time.monotonic() + SOON
        while not seen(self.lines()):
            assert self.hear(until - time.monotonic()), "\n".join(self.lines())
        return self.lines()

    def hear(self, seconds):
        """Takes in what the program writes next; whether anything came."""
        ready, _, _ = select.select([self.own], [], [], max(seconds, 0.0))
        try:
            written = os.read(self.own, 1 << 16) if ready else b""
        except OSError:  # the program is gone
            written = b""
        self.emulator.feed(written)
        self.last = (self.last + written)[-(1 << 10) :]
        return bool(written)

    def left(self):
        """Whether the program has given the screen before it back, with its cursor; the emulator has one screen."""
        return b"\x1b[?1049l" in self.last and b"\x1b[?25h" in self.last

    def press(self, keys):
        os.write(self.own, keys.encode())

    def ended(self):
        """Waits until the program has ended; returns its status."""
        until = time.monotonic() + SOON
        while self.hear(until - time.monotonic()):
            pass
        return self.child.wait(SOON)

    def close(self):
        self.child.kill()
        self.child.wait(SOON)
        os.close(self.own)
