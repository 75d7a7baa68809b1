"""A server keeps the blocks of prompts that it has seen, and forgets them with the weights that made them."""

from pathlib import Path

import pytest

from .rig import Rig
from .server import VllmServer

pytestmark = pytest.mark.full

#: Tokens of a block; the prompt has one whole block.
BLOCK = 32
PROMPT = [1 + at % 50 for at in range(40)]
OPTIONS = ["--block-size", str(BLOCK), "--enable-prefix-caching", "--enable-prompt-tokens-details"]


@pytest.fixture
def rig(tmp_path: Path):
    made = Rig(tmp_path)
    yield made
    made.end()


def said(engine: VllmServer) -> tuple[list[int], int]:
    """Tokens, and how many tokens of the prompt came from the cache."""
    answer = engine.answer(prompt=PROMPT)
    (choice,) = answer["choices"]
    return choice["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_no_block_of_the_old_weights_is_used(rig: Rig) -> None:
    expected = {}
    for weights in (2, 3):
        fresh = rig.engine(rig.checkpoint(weights), *OPTIONS).up()
        expected[weights] = said(fresh)[0]
        fresh.kill()
    engine = rig.engine(rig.checkpoint(1), *OPTIONS).up()
    assert said(engine)[0] not in expected.values()
    for mode in ("abort", "keep", "wait"):
        trainer = rig.trainer(mode, engine, pause=mode)
        for weights in (2, 3):
            assert said(engine)[1] == BLOCK, "the cache is in use"
            assert trainer.update(weights).startswith("sent")
            assert said(engine) == (expected[weights], 0)
        trainer.kill()
