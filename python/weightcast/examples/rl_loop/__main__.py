"""The parent: starts the reference server, the sample hub and the children; shows the report."""

import signal
import sys

import weightcast as wc

from .report import Report
from .samples import SampleHub
from .settings import Settings, parse

INTERRUPTED = 128 + signal.SIGINT
"""The exit code shells expect after Ctrl-C."""


def run(settings: Settings) -> int:
    """Runs the loop to its end. The exit code."""
    from .processes import Children, new_token  # with torch

    report, token = Report(settings), new_token()
    with (
        wc.serve() as server,
        SampleHub(settings.trainers, token, report.on_report) as hub,
        Children(settings, server.address, hub.port, token) as children,
    ):
        print(f"{settings.trainers} FSDP2 ranks, rollouts of TP size {settings.rollouts}")
        children.start("trainer", "trainer", settings.trainers)
        for i, size in enumerate(settings.rollout_sizes):
            children.start("rollout", f"rollout-{i}", size)
        children.wait("trainer")
        hub.finish()
        children.wait("rollout")
    report.show(hub.dropped)
    if settings.json:
        report.write_json(settings.json)
    if why := report.failure():
        print(f"failed: {why}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """The program."""
    settings = parse()
    from .processes import ChildFailed

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as Ctrl-C does
    try:
        return run(settings)
    except ChildFailed as error:
        print(f"\nended, because {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; all processes ended", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
