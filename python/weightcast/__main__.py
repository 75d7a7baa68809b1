"""The `weightcast` command."""

import signal
import subprocess
import sys

from ._core import command_line

#: The demo is a Python program: the native command line does not know it.
DEMO = "weightcast.examples.rl_loop"
#: So are these.
CHECKPOINTS = ("pull", "push")


def main() -> None:
    """Runs the command line and exits with its status."""
    if sys.argv[1:2] == ["demo"]:
        raise SystemExit(subprocess.call([sys.executable, "-m", DEMO, *sys.argv[2:]]))
    if sys.argv[1:2] and sys.argv[1] in CHECKPOINTS:
        from .checkpoint.__main__ import main as checkpoints

        raise SystemExit(checkpoints(sys.argv[1:]))
    # Native code does not look for Python's signals: let Ctrl-C end it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = [sys.executable, "-m", "weightcast"]
    raise SystemExit(command_line(["weightcast", *sys.argv[1:]], program))


if __name__ == "__main__":
    main()
