"""Publishing after steps of an optimizer: when a version is there, and when memory may change."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.adapters.engine.adapter import Adapter  # noqa: E402
from weightcast.adapters.trainers.accelerate import publish_steps  # noqa: E402
from weightcast.adapters.trainers.steps import Steps  # noqa: E402
from weightcast.adapters.vllm.lora.paths import parsed  # noqa: E402

from .conftest import SOON  # noqa: E402
from .test_lora import Engine, Peft  # noqa: E402


def change(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)


def test_a_version_is_there_until_the_next_step(server) -> None:
    model = nn.Linear(3, 2)
    steps = Steps("policy", every=2, server=server.address)
    steps.begin(model, 4)
    assert steps.handle.version == 4 and steps.handle.replica == wc.Replica("trainer")
    steps.before()
    assert steps.handle.version is None
    change(model)
    steps.after(5)
    assert steps.handle.version is None, "every second one is published"
    steps.before()
    steps.after(6)
    assert steps.handle.version == 6
    steps.end()
    assert steps.handle is None
    steps.end()


def test_a_copy_stays_published_while_weights_change(group, server) -> None:
    model, copy = nn.Linear(3, 2), nn.Linear(3, 2)
    steps = Steps("policy", name="mine", layout={"beside": True}, server=server.address)
    steps.begin(model)
    first = model.weight.detach().clone()
    steps.before()
    change(model)
    rollout = group("rollout", [wct.layout(copy)])[0]
    assert rollout.update(deadline=SOON).source == "mine" and torch.equal(copy.weight, first)
    steps.after(1)
    assert rollout.update(deadline=SOON).changed and torch.equal(copy.weight, model.weight)
    steps.end()


def test_another_round_begins_anew(server) -> None:
    """As where a loop begins again with a smaller batch."""
    steps = Steps("policy", server=server.address)
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    for model in (one, other):
        steps.begin(model)
        assert steps.handle.version == 0
        steps.before()
        steps.after(1)
        assert steps.handle.version == 1
    steps.end()


def test_rules_and_parts_of_what_is_trained(server) -> None:
    model = nn.ModuleDict({"policy": nn.Linear(3, 2), "value": nn.Linear(3, 1)})
    steps = Steps(
        "policy", of=lambda module: module["policy"], rules=lambda layout: layout.cast("*", "BF16"), server=server.address
    )
    steps.begin(model)
    listed = wc.open("policy", wc.Replica("other"), server=server.address).catalog(deadline=SOON)
    assert {name: entry.dtype for name, entry in listed.items()} == {"weight": "BF16", "bias": "BF16"}
    steps.end()


def test_live_engines_are_brought_to_each_version(server) -> None:
    """An adapter alone, into an engine's slot."""
    engine = Engine()
    steps = Steps("one", of=Adapter, every=2, clients=engine, server=server.address)
    steps.begin(Peft())
    for step in (1, 2):
        steps.before()
        steps.after(step)
    assert engine.calls == ["join"] + ["begin", "fetch", "pause", "load", "resume"] * 2
    assert [parsed(path).version for path in engine.paths] == [0, 2]
    assert steps.handle is None
    steps.end()
    with pytest.raises(wc.Misuse, match="with clients=, give of="):
        Steps("one", layout={"beside": True}, clients=engine, server=server.address).begin(Peft())


def test_a_registration_that_fails_leaves_nothing_open(server) -> None:
    model = nn.Linear(3, 2)
    model.weight = nn.Parameter(torch.randn(3, 2).t())
    steps = Steps("policy", server=server.address)
    for _ in range(2):
        with pytest.raises(wc.Misuse, match="not contiguous"):
            steps.begin(model)
        assert steps.handle is None
    steps.begin(nn.Linear(3, 2))
    steps.end()


def test_loops_of_torch_alone(server) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with publish_steps(model, optimizer, server=server.address) as steps:
        for step in range(3):
            assert steps.handle.version == step
            seen = []
            during = optimizer.register_step_pre_hook(lambda *_, s=seen: s.append(steps.handle.version))
            model(torch.ones(3)).sum().backward()
            optimizer.step()
            during.remove()
            assert seen == [None], "nobody reads while the optimizer writes"
        assert steps.handle.version == 3
    assert steps.handle is None
    # Its hooks are gone: nobody publishes what this step makes.
    steps.begin(model)
    optimizer.step()
    assert steps.handle.version == 0
    steps.end()


def test_loops_that_tell_nothing_are_refused(server) -> None:
    for optimizer, said in [
        (type("DeepSpeedOptimizerWrapper", (), {})(), "steps by itself"),
        (SimpleNamespace(optimizer=object()), "object is no optimizer of torch"),
    ]:
        with pytest.raises(wc.Misuse, match=said), publish_steps(nn.Linear(2, 2), optimizer, server=server.address):
            pass
    with pytest.raises(wc.Misuse, match="every=0"):
        Steps(every=0)


def test_a_trainer_that_loads_its_best_weights(server) -> None:
    """They are of a former step, and written before training ends."""
    pytest.importorskip("transformers")
    from weightcast.adapters.trainers.transformers import PublishSteps

    publish = PublishSteps(server=server.address)
    publish.on_train_begin(None, SimpleNamespace(global_step=0), None, model=nn.Linear(2, 2))
    for best, stop, version in [(False, True, 0), (True, False, 0), (True, True, None)]:
        arguments = SimpleNamespace(load_best_model_at_end=best)
        publish.on_epoch_end(arguments, None, SimpleNamespace(should_training_stop=stop))
        assert publish.steps.handle.version == version
    publish.on_train_end(None, None, None)
    assert publish.steps.handle is None
