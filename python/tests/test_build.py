"""What is in the file that users install."""

from pathlib import Path

from weightcast import _core

# Of `crates/weightcast-protocol/src/safeguards.rs`; `weightcast-mutants` is tested to contain them.
SWITCHABLE = b"weightcast: safeguards can be switched off"


def test_no_safeguard_can_be_switched_off() -> None:
    built = Path(_core.__file__).read_bytes()
    assert b"weightcast" in built
    assert SWITCHABLE not in built
