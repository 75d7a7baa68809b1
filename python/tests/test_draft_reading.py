"""The layouts of a model and of its draft, without vLLM: who takes which published tensor, and what both have once."""

from contextlib import nullcontext
from typing import Any

import pytest

import weightcast as wc

from .stand_ins import stand_in

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.catalog import catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live.read import examine  # noqa: E402
from weightcast.adapters.naming.decisions import DRAFT_LAYER  # noqa: E402
from weightcast.adapters.vllm.draft import reading  # noqa: E402
from weightcast.adapters.vllm.draft.which import Draft  # noqa: E402


class Model(nn.Module):
    """Loads parameters by their names, and leaves what it does not know."""

    def __init__(self, **shapes: Any) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, shape if isinstance(shape, nn.Parameter) else nn.Parameter(torch.zeros(shape), requires_grad=False))

    def load_weights(self, weights: Any) -> None:
        own = dict(self.named_parameters())
        for name, tensor in weights:
            if name in own:
                own[name].copy_(tensor)


def listed(*names: str) -> Any:
    return catalog_of(dict.fromkeys(names, ((4, 2), "F32")))


class Rig:
    """A model and a draft of the same embedding, and what `read` was told of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = Model(embed=(4, 2), head=(4, 2))
        self.draft = Model(embed=self.model.embed, fc=(4, 2))
        self.told: list[Any] = []
        monkeypatch.setattr(reading, "read", self.read)
        monkeypatch.setattr(reading, "_incomplete", nullcontext)

    def read(self, model: Any, catalog: Any, **named: Any) -> LiveLayout:
        self.told.append((model, set(catalog), named))
        examined = {name: named[name] for name in ("unused", "unsourced", "rename")}
        return LiveLayout(examine(dict(model.named_parameters()), model.load_weights, catalog, **examined))

    def both(self, prefix: str | None, catalog: Any, **more: Any) -> Any:
        given = {"vllm_config": "config", "unused": {}, "unsourced": {}, "rename": None} | more
        return reading.read_with(Draft(self.draft, "its config", prefix), self.model, catalog, **given)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def filled(live: LiveLayout) -> dict[str, Any]:
    """By parameter, what fills it, and as what else that is known."""
    return {record.name: [(p.tensor, [also.tensor for also in p.also]) for p in record.pieces] for record in live.records}


def test_a_draft_with_a_checkpoint_of_its_own(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    both = rig.both("draft.", listed("embed", "head", "draft.embed", "draft.fc", "draft.t2d"))
    assert filled(both.target) == {"embed": [("embed", ["draft.embed"])], "head": [("head", [])]}
    assert filled(both.draft) == {"fc": [("draft.fc", [])]}, "the embedding is laid out once"
    (draft, own, told), (model, left, more) = rig.told
    assert draft is rig.draft and own == {"draft.embed", "draft.fc", "draft.t2d"} and model is rig.model and left == {"embed", "head"}
    assert told.pop("rename")("draft.a") == "a" and more.pop("rename") is None
    assert told == {"vllm_config": "its config", "unused": reading.UNUSED, "unsourced": {"embed": "the model's own embed"}}
    assert more["vllm_config"] == "config" and more["unsourced"] == {} and set(more["unused"]) == {"draft.fc", "draft.embed", "draft.t2d"} - {"draft.t2d"}
    assert "the draft (Model): draft.embed lies in embed: a version is refused in which they differ" in caplog.text


def test_a_draft_whose_embedding_is_not_published(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    both = rig.both("draft.", listed("embed", "head", "draft.fc"))
    assert filled(both.target) == {"embed": [("embed", [])], "head": [("head", [])]} and filled(both.draft) == {"fc": [("draft.fc", [])]}
    assert "lies in" not in caplog.text


def test_heads_of_the_models_own_checkpoint(rig: Rig) -> None:
    both = rig.both(None, listed("embed", "head", "fc", "rest"), unused={"rest": "an extra"}, unsourced={"z": "why"})
    assert filled(both.target) == {"embed": [("embed", [])], "head": [("head", [])]} and filled(both.draft) == {"fc": [("fc", [])]}
    (_, own, told), (_, left, more) = rig.told
    assert own == left == {"embed", "head", "fc", "rest"}
    assert told["unused"] == {"*": reading.OTHERS} and told["unsourced"] == {"z": "why", "embed": "the model's own embed"}
    assert more["unused"] == {"fc": reading.OTHERS, "embed": reading.OTHERS, "rest": "an extra"} and more["unsourced"] == {"z": "why"}


def test_what_a_draft_does_not_take_is_an_error(rig: Rig) -> None:
    with pytest.raises(wc.LayoutMismatch, match=r"published tensors that the draft \(Model\) does not take"):
        rig.both(None, listed("embed", "head", "fc", "mtp.norm"), unused={"mtp.*": DRAFT_LAYER})
    for prefix, where in (("draft.", "with 'draft.' before their names"), (None, "in the model's checkpoint")):
        with pytest.raises(wc.LayoutMismatch) as caught:
            rig.both(prefix, listed("embed", "head"))
        said = str(caught.value)
        assert said.startswith("the draft (Model): ") and "fc (0 of 8 elements are filled)" in said
        assert said.endswith(f"\npublish its tensors {where}, in the same version; or leave it as it was loaded, with draft='stale' in init_info")


def test_what_both_have_is_filled_alike(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Halves(Model):
        def load_weights(self, weights: Any) -> None:
            for name, tensor in weights:
                if name in ("up", "down"):
                    self.embed[:2].copy_(tensor[:2]) if name == "up" else self.embed[2:].copy_(tensor[2:])
                elif name == "fc":
                    self.fc.copy_(tensor)

    rig.draft = Halves(embed=rig.model.embed, fc=(4, 2))
    with pytest.raises(wc.Misuse) as caught:
        rig.both("draft.", listed("embed", "head", "draft.up", "draft.down", "draft.fc"))
    assert str(caught.value) == (
        "the draft (Model): embed is the model's own embed, which is filled otherwise; leave the draft as it was loaded, with draft='stale' "
        "in init_info"
    ).replace("(Model)", "(Halves)")


def test_names_are_mapped_before_a_draft_is_told_from_its_model(rig: Rig) -> None:
    renamed = {f"p.{name}": name for name in ("embed", "head", "draft.embed", "draft.fc")}
    both = rig.both("draft.", listed(*renamed), rename=renamed.get)
    assert filled(both.draft) == {"fc": [("p.draft.fc", [])]} and filled(both.target)["embed"] == [("p.embed", ["p.draft.embed"])]


def test_vllm_does_not_look_whether_heads_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "vllm.model_executor.model_loader.mtp_validation"
    stand_in(monkeypatch, "vllm", {path: {"disable_mtp_completeness_check": lambda: "its own"}}, [])
    assert reading._incomplete() == "its own"
    stand_in(monkeypatch, "vllm", {"vllm": {}}, [])
    assert isinstance(reading._incomplete(), nullcontext)
