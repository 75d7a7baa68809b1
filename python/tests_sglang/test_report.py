"""The reports of several ranks, each a process of its own: SGLang hears the first one alone."""

import json
from pathlib import Path
from typing import Any

import torch

from .serving import runtime_context

RANKS = 2
LONG = "ü" * 20_000


def rank(at: int, directory: str) -> None:
    """One tensor-parallel rank: the second one fails, with more to say than a report has room for."""
    from weightcast.adapters.sglang import report

    torch.distributed.init_process_group("gloo", f"file://{directory}/meeting", rank=at, world_size=RANKS)
    group: Any = type("Group", (), {"cpu_group": torch.distributed.group.WORLD})()
    runtime_context.get_parallel().override_permanently(tp_group=group)
    error = LONG if at == 1 else None
    report.gathered(report.Report(error, {"installed": at, "incomplete": error, "failed": error}, at == 0))
    (Path(directory) / str(at)).write_text(json.dumps(report._answer))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_an_error_of_any_rank_is_the_answer(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(rank, (str(tmp_path),), nprocs=RANKS)
    done, message = json.loads((tmp_path / "0").read_text())
    assert not done
    assert json.loads((tmp_path / "1").read_text()) == [done, message]
    first, second = json.loads(message)["ranks"]
    assert first == {"error": None, "state": {"installed": 0, "incomplete": None, "failed": None}, "serves": True, "said": None}
    assert second["state"]["installed"] == 1 and not second["serves"]
    assert len(second["error"]) > 100 and LONG.startswith(second["error"])


def test_a_report_always_has_room() -> None:
    from weightcast.adapters.engine.exchange import SIZE
    from weightcast.adapters.sglang.report import Report, _fitting

    said = {"answers": [], "perform": None, "error": LONG}
    fitting = _fitting(Report(None, None, True, [said, said]))
    assert len(fitting) <= SIZE
    assert [LONG.startswith(each["error"]) for each in json.loads(fitting)["said"]] == [True, True]
    none = json.loads(_fitting(Report(None, None, True, list(range(SIZE)))))
    assert (str(SIZE) in none["error"], none["serves"]) == (True, False)


class Gate:
    """A rank's orders, of which only the life counts."""

    def __init__(self, life: int) -> None:
        self.life = life

    def renew(self, life: int) -> None:
        self.life = life


def test_ranks_of_several_lives_begin_another_one(monkeypatch: Any) -> None:
    from weightcast.adapters.sglang import worker

    group = type("Group", (), {"tp_group": type("Ranks", (), {"cpu_group": None})})
    monkeypatch.setattr(worker, "get_parallel", lambda: group)
    for others, life in (([7, 7], 7), ([7, 8], 9), ([7, None], 9)):
        texts = [json.dumps(each) for each in others]
        monkeypatch.setattr(worker, "exchange", lambda own, _, texts=texts: texts)
        rank = worker.ModelWorker(torch.nn.Module())
        rank.orders = Gate(7)
        rank.agree(9)
        assert rank.orders.life == life, others


def test_an_engine_goes_on_only_if_all_of_its_ranks_may_serve() -> None:
    from weightcast.adapters.sglang.http import _serve

    assert _serve([{"serves": True}, {"serves": True}])
    assert not _serve([{"serves": True}, {"serves": False}])
