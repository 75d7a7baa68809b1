"""The loop that is compared, as a user runs it: rollouts that are killed or stand still, what is reported."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

COMMAND = [sys.executable, "-m", "weightcast.examples.rl", "--timeout", "300"]
SMALL = ["--hidden", "16", "--heads", "2", "--layers", "1", "--rollouts-per-gpu", "16"]


@pytest.fixture
def start(tmp_path):
    """Starts loops, and leaves none behind."""
    loops = []

    def start(*options):
        loop = subprocess.Popen(
            [*COMMAND, "--json", str(tmp_path / "run.json"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        loops.append(loop)
        return loop

    yield start
    for loop in loops:
        loop.send_signal(signal.SIGTERM)
        try:
            loop.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            loop.kill()
            loop.communicate()


def until(loop, pattern):
    """Reads its output until a line fits; that line."""
    for line in loop.stdout:
        if re.search(pattern, line):
            return line
    pytest.fail(f"no line with {pattern}: {loop.stderr.read()}")


def children(loop):
    """The process ids of its children by name."""
    found = {}
    for pid in Path(f"/proc/{loop.pid}/task/{loop.pid}/children").read_text().split():
        told = dict(
            pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in pair
        )
        post = json.loads(told.get("RL_POST", "{}"))
        found[f"{post.get('name')}/{post.get('rank')}"] = int(pid)
    return found


@pytest.mark.full
def test_a_killed_rollout_is_replaced_and_one_that_stands_still_stops_nobody(start):
    loop = start(*SMALL, "--rollouts", "3", "--iterations", "1000000")
    until(loop, r"^step .*rollout-0@.*rollout-1@")
    before = children(loop)
    os.kill(before["rollout-1/0"], signal.SIGSTOP)
    os.kill(before["rollout-0/0"], signal.SIGKILL)
    assert "rollout-0 rank 0 was killed by SIGKILL" in until(loop, "^lost: ")
    until(loop, r"^step .*rollout-0@")
    after = children(loop)
    assert set(after) == set(before) and after["rollout-0/0"] != before["rollout-0/0"]
    stays = re.search(r"rollout-1@(\d+)", until(loop, "^step "))[1]
    for _ in range(5):
        assert f"rollout-1@{stays}" in until(loop, "^step ")
    loop.send_signal(signal.SIGINT)
    _, err = loop.communicate(timeout=300)
    assert loop.returncode == 130, err
    assert not [pid for pid in {**before, **after}.values() if os.path.exists(f"/proc/{pid}")]


def test_a_run_of_other_dtypes_and_layouts_tells_all_of_it(start, tmp_path):
    """FSDP2 ranks of FP32, published in place and cast; one of two tensor-parallel rollouts is killed."""
    options = "--iterations", "6", "--dtype", "bfloat16", "--in-place", "--rollout-tp", "2", "--rollouts", "1"
    loop = start(*SMALL, "--algorithm", "ppo", "--minibatches", "2", *options)
    out, err = loop.communicate(timeout=900)
    assert loop.returncode == 0, out + err
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["weightcast"] == "demo/1" and (tmp_path / "run.svg").exists()
    (run,) = written["runs"]
    assert [step["step"] for step in run["steps"]] == list(range(6))
    assert len(set(run["digests"].values())) == 6, "each version has a digest of its own"
    assert run["digests"]["0"] == digest_of_the_first_weights(), "two ranks' shares add up"
    assert sum(run["staleness"].values()) == run["samples"]["learnt"] == 6 * 2 * 16
    assert set(run["staleness"]) <= {"0", "1"} and run["samples"]["foreign"] == 0
    assert run["steps"][0]["drift"] < 0.05, "rounded weights, and no others"
    assert run["total"]["verified"] == run["total"]["bytes"] > 0
    shard = run["versions"][0]["bytes"]
    assert run["versions"][0]["shards"] == 2 and shard < 2 * 4 * 6000, "two bytes for an element"
    assert run["lost"] == [] and run["gb_per_s"] > 0
    assert set(run["stall"]) == {"rollouts_s", "trainers_s"}


def digest_of_the_first_weights() -> str:
    from weightcast.examples.rl.models import build
    from weightcast.examples.rl.settings import LoopSettings
    from weightcast.examples.rl.stamp import Piece, Stamp, digest_of

    model, stamp = build(LoopSettings(hidden=16, heads=2, layers=1)), Stamp()
    stamp.write(digest_of(Piece(name, parameter) for name, parameter in model.named_parameters()))
    return stamp.text


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("model", ["qwen2", "gpt2"])
@pytest.mark.parametrize("trainer", ["ddp", "fsdp2"])
def test_all_of_them_learn(start, tmp_path, algorithm, model, trainer):
    steps = {"grpo": "100", "ppo": "50"}[algorithm]
    loop = start(
        "--algorithm", algorithm, "--model", model, "--trainer", trainer, "--iterations", steps, "--min-rise", "0.3"
    )
    out, err = loop.communicate(timeout=900)
    assert loop.returncode == 0, out + err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rollouts-per-gpu", "12"], "must be a multiple of --answers 8"),
        (["--trainer-tp", "2"], "--trainer-tp is for --trainer megatron"),
        (["--engine", "vllm", "--rollout-tp", "2"], "leave out --rollout-tp"),
        (["--model", "/nowhere"], "or a directory with a config.json"),
        (["--vocab", "8"], "--vocab 8 must be above --base 8"),
        (["--max-staleness", "-1"], "cannot be negative"),
        (["--minibatches", "1000"], "there are 192 answers"),
        (["--algorithm", "dpo"], "invalid choice"),
        (["--rollouts", "0"], "--rollouts must be at least 1"),
        (["--json", "run.svg"], "'run.svg' must end in .json"),
    ],
)
def test_options_that_cannot_work_are_refused(capsys, options, message):
    from weightcast.examples.rl.settings import parse

    with pytest.raises(SystemExit) as ended:
        parse(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("option", "name", "package"), [("--engine", "vllm", "vllm"), ("--trainer", "megatron", "megatron-core")])
def test_a_library_that_is_not_here_is_named(capsys, monkeypatch, option, name, package):
    from weightcast.examples.rl import settings

    find = settings.importlib.util.find_spec
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda each: None if each == name else find(each))
    with pytest.raises(SystemExit) as ended:
        settings.parse([option, name, "--hidden", "128"])
    assert ended.value.code == 1
    assert f"{name} is not installed here: pip install {package}" in capsys.readouterr().err
