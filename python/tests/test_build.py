"""What is in the file that users install."""

from pathlib import Path

from weightcast import _core

# Of `crates/weightcast-protocol/src/safeguards.rs`; `weightcast-mutants` is tested to contain them.
SWITCHABLE = b"weightcast: safeguards can be switched off"
# Of the crate weightcast-bench, whose test looks for them in its program.
BENCHES = [b"emulated hosts need root and iproute2", b"without faults some rollout still fails"]


def test_no_safeguard_can_be_switched_off() -> None:
    built = Path(_core.__file__).read_bytes()
    assert b"weightcast" in built
    assert SWITCHABLE not in built


def test_benches_and_the_nemesis_are_not_built_in() -> None:
    built = Path(_core.__file__).read_bytes()
    assert b"weightcast-bench" in built  # what `weightcast bench` looks for
    assert [words for words in BENCHES if words in built] == []
