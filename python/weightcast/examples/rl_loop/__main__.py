"""The parent: starts the reference server, the sample hub and the children; shows reports and picture."""

import signal
import sys

import weightcast as wc

from .backlog import Backlog
from .picture import draw, write_runs
from .report import Report
from .samples import SampleHub
from .settings import Settings, parse

INTERRUPTED = 128 + signal.SIGINT
"""The exit code shells expect after Ctrl-C."""


def run(settings: Settings) -> Report:
    """Runs the loop to its end, and shows what it came to."""
    from .processes import Children, new_token  # with torch

    report, token = Report(settings), new_token()
    with (
        wc.serve() as server,
        SampleHub(Backlog(settings.trainers), token, report.on_report) as hub,
        Children(settings, server.address, hub.port, token) as children,
    ):
        sync = ", without sync" if settings.no_sync else ""
        print(f"{settings.trainers} FSDP2 ranks, rollouts of TP size {settings.rollouts}{sync}")
        print(f"to watch this: weightcast top --server {server.address}", flush=True)
        children.start("trainer", "trainer", settings.trainers)
        for i, size in enumerate(settings.rollout_sizes):
            children.start("rollout", f"rollout-{i}", size)
        children.wait("trainer")
        hub.finish()
        children.wait("rollout")
    report.show(hub.backlog.dropped)
    return report


def run_all(settings: Settings) -> int:
    """All runs, until one fails, and their picture. The exit code."""
    reports: list[Report] = []
    failures: list[str] = []
    for each in settings.runs:
        reports.append(run(each))
        write_runs(settings.json, [report.as_json() for report in reports])
        if why := reports[-1].failure():
            failures.append(why)
            break
    if not draw(settings.json):
        failures.append(f"no picture of {settings.json}")
    for why in failures:
        print(f"failed: {why}", file=sys.stderr)
    return 1 if failures else 0


def main() -> int:
    """The program."""
    settings = parse()
    from .processes import ChildFailed

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as Ctrl-C does
    try:
        return run_all(settings)
    except ChildFailed as error:
        print(f"\nended, because {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; all processes ended", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
