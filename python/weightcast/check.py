"""What of this host and its job is as it should be, and what to do about the rest."""

import os
import sys
from collections.abc import Sequence

from . import _core
from ._core import Check

#: The command that starts the second process of the self-test.
READER = [sys.executable, "-m", "weightcast", "doctor-reader"]


def doctor(
    server: str | Sequence[str] | None = None,
    *,
    token_file: str | os.PathLike[str] | None = None,
    job: str | None = None,
    source: str | None = None,
    reader: str | None = None,
    model: str | None = None,
) -> list[Check]:
    """Examines this host and its job, and says of each thing whether it is as it should be: what
    `weightcast doctor` prints.

    Bytes are moved to a second process by each way, each server is asked, and one of them connects
    back to the data port that a worker here would have. Starts no server, and changes nothing. With
    `source` and `reader`, two replicas of a live job (of `model`, where several have such replicas),
    it also says what would be chosen if the reader read from the source. Each check has an `id` that
    stays the same, a `verdict` ("ok", "warning", "problem" or "not applicable"), and `advice` if there
    is something to do. The server and the job are found as in `status`.
    """
    if (source is None) != (reader is None):
        raise ValueError("source and reader are two replicas: give both, or none")
    servers = server if server is None or isinstance(server, str) else ",".join(server)
    return _core.doctor(
        server=servers,
        token_file=None if token_file is None else os.fspath(token_file),
        job=job,
        source=source,
        reader=reader,
        model=model,
        program=READER,
    )
