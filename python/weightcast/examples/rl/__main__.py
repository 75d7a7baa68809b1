"""The parent: starts the reference server, the sample hub and the children; shows what came of it."""

import signal
import sys

import weightcast as wc

from ..rl_loop.picture import draw, write_runs
from ..rl_loop.samples import SampleHub
from .account import Account
from .settings import LoopSettings, parse

INTERRUPTED = 128 + signal.SIGINT
"""The exit code shells expect after Ctrl-C."""


def run(settings: LoopSettings) -> int:
    """Runs the loop to its end, and shows what it came to. The exit code."""
    from ..rl_loop.processes import new_token  # with torch
    from .supervisor import Supervisor

    account, token = Account(settings), new_token()
    with (
        wc.serve() as server,
        SampleHub(settings.backlog, token, account.on_report, settings.patience) as hub,
        Supervisor(settings, server.address, hub.port, token, account.on_loss) as children,
    ):
        print(f"{settings.algorithm} of {settings.model}: {settings.trainers} {settings.trainer} ranks, "
              f"{settings.rollouts} rollouts ({settings.engine})")
        print(f"to watch this: weightcast top --server {server.address}", flush=True)
        children.start()
        children.run()
        hub.finish()
        children.dismiss()
    account.show(hub.backlog)
    write_runs(settings.json, [account.as_json(hub.backlog)])
    failures = [account.failure(), None if draw(settings.json) else f"no picture of {settings.json}"]
    told = [why for why in failures if why]
    for why in told:
        print(f"failed: {why}", file=sys.stderr)
    return 1 if told else 0


def main() -> int:
    """The program."""
    settings = parse()
    from ..rl_loop.processes import ChildFailed

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
