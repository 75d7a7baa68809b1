"""`weightcast pull` and `weightcast push`: `python -m weightcast.checkpoint pull|push ...`."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from .. import _core
from ..condition import held
from ..handle import Handle
from ..progress import progress_bar
from .files import SHARD_BYTES
from .publish import publish
from .pull import pull

#: Seconds after which a wait looks for signals.
LOOK = 1.0


def main(arguments: Sequence[str]) -> int:
    """Runs one of the two commands; the exit status is 0, or 1 for a failure, which is printed."""
    parsed = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = parsed.run
    try:
        run(parsed)
    except (_core.WeightcastError, OSError, ValueError) as error:
        print(f"weightcast: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weightcast")
    commands = parser.add_subparsers(required=True)
    from_job = commands.add_parser(
        "pull",
        help="write a version as safetensors files",
        description="Writes a version as safetensors files, from whichever replicas hold it, verified. "
        "The files have their names once all are complete.",
    )
    from_job.add_argument(
        "what", metavar="MODEL[@VERSION]", help="VERSION: 40, latest (the default), latest-1"
    )
    from_job.add_argument("directory", metavar="DIR")
    from_job.add_argument(
        "--shard-bytes",
        type=_size,
        default=SHARD_BYTES,
        help="most bytes of tensors in a file (5 GiB); 500M, 2G",
    )
    from_job.add_argument("--overwrite", action="store_true", help="replace the checkpoint that is there")
    from_job.set_defaults(run=_pull)
    to_job = commands.add_parser(
        "push",
        help="publish a checkpoint",
        description="Publishes a checkpoint of safetensors files, read where they lie: they must not change. "
        "Goes on until it is interrupted, or until so many rollouts hold the version.",
    )
    to_job.add_argument("directory", metavar="DIR", help="directory of safetensors files, or one of them")
    to_job.add_argument("--model", help="its name; the directory's by default")
    to_job.add_argument("--version", type=int, default=0, help="the version's number (0)")
    to_job.add_argument("--replica", default="checkpoint", help="name of this replica (checkpoint)")
    to_job.add_argument(
        "--new-epoch", action="store_true", help="begin a run whose versions are newer than all before"
    )
    to_job.add_argument(
        "--retain", type=int, default=0, help="how many of the newest versions are to survive (0)"
    )
    to_job.add_argument(
        "--until", type=int, metavar="ROLLOUTS", help="end once so many rollouts hold the version"
    )
    to_job.set_defaults(run=_push)
    for command in (from_job, to_job):
        command.add_argument(
            "--server", help="http://HOST:PORT or unix:/PATH; several with commas (WEIGHTCAST_SERVER)"
        )
        command.add_argument("--token-file", help="file with the token (WEIGHTCAST_TOKEN_FILE)")
        command.add_argument(
            "--job", help="without a server: the job whose processes have started one on this host"
        )
        command.add_argument(
            "--deadline", type=float, default=600.0, help="seconds for the version and its bytes (600)"
        )
        command.add_argument("--json", action="store_true", help="print JSON, and no progress")
    return parser


def _size(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 0)
    if not number.isdecimal() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: try 500M or 5G")
    return int(number) << unit


def _where(parsed: argparse.Namespace) -> dict[str, Any]:
    return {"server": parsed.server, "token_file": parsed.token_file, "job": parsed.job}


def _pull(parsed: argparse.Namespace) -> None:
    model, _, version = parsed.what.partition("@")
    done = pull(
        model,
        parsed.directory,
        version=version or "latest",
        shard_bytes=parsed.shard_bytes,
        overwrite=parsed.overwrite,
        progress=None if parsed.json else progress_bar(parsed.what),
        deadline=parsed.deadline,
        **_where(parsed),
    )
    if parsed.json:
        print(json.dumps(asdict(done) | {"files": [str(file) for file in done.files]}))
    else:
        size = f"{done.nbytes / 1e6:.1f} MB in {len(done.files)} file(s)"
        print(f"{model}@{done.version}: {size} in {parsed.directory}")


def _push(parsed: argparse.Namespace) -> None:
    model = parsed.model or _name(Path(parsed.directory))
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        with publish(
            parsed.directory,
            model,
            parsed.version,
            replica=parsed.replica,
            epoch="new" if parsed.new_epoch else "current",
            retain=parsed.retain,
            deadline=parsed.deadline,
            **_where(parsed),
        ) as there:
            told = {
                "model": model,
                "version": there.version,
                "tensors": there.tensors,
                "nbytes": there.nbytes,
            }
            if parsed.json:
                print(json.dumps(told), flush=True)
            else:
                ends = f"until {parsed.until} rollouts hold it" if parsed.until else "until it is interrupted"
                size = f"{there.tensors} tensors, {there.nbytes / 1e6:.1f} MB"
                print(f"{model}@{there.version}: {size}; {ends}", flush=True)
            _stay(there.handle, there.version, parsed.until)
    except KeyboardInterrupt:
        pass


def _stay(handle: Handle, version: int, until: int | None) -> None:
    """Returns once so many rollouts hold the version; without a number, never. Signals are looked at in
    between."""
    if until is None:
        threading.Event().wait()
    while True:
        try:
            handle.wait(held(version, by=until), deadline=LOOK)
            return
        except _core.Timeout:
            continue


def _name(path: Path) -> str:
    return (path.resolve() if path.is_dir() else path.resolve().parent).name


def _interrupted(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
