"""How many lines of the compared loop name weightcast: what a user adds to a trainer and an engine."""

import ast
from pathlib import Path

import weightcast.examples

ROOT = Path(weightcast.examples.__file__).parent
#: What is weightcast's: the package, its torch half, a handle, a layout, and what publishes over a handle.
NAMES = {"wc", "wct", "handle", "publication", "layout"}
TRAINER = ("rl/trainer.py", "rl/publication.py", "rl/ddp.py", "rl/fsdp2.py")
ENGINE = ("rl/rollout.py", "rl/small.py", "rl_loop/engine.py")


def lines_of(file: str) -> set[int]:
    """Lines with an expression or import that names it; signatures alone do not count."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import) and any(name.asname in NAMES for name in node.names):
            found.add(node.lineno)
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                found |= {at for each in ast.walk(statement) if (at := _named(each))}
    return found


def _named(node: ast.AST) -> int | None:
    if isinstance(node, ast.Name) and node.id in NAMES or isinstance(node, ast.Attribute) and node.attr in NAMES:
        return node.lineno
    return None


def count(files: tuple[str, ...]) -> int:
    return sum(len(lines_of(file)) for file in files)


def test_a_trainer_and_an_engine_add_no_more_than_forty():
    assert count(TRAINER) >= 8 and count(ENGINE) >= 8, "the count counts"
    assert count(TRAINER) + count(ENGINE) <= 40


def test_the_page_says_how_many():
    page = (Path(__file__).parents[2] / "docs/guides/rl.md").read_text()
    assert f"{count(TRAINER)} lines of the trainer and {count(ENGINE)} of the rollout" in page
