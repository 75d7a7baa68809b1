"""Which version a call means."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Selector:
    """Names a version, absolutely or relative to those available. Made by the functions below."""

    kind: str
    number: int = 0


def latest() -> Selector:
    """The newest available version."""
    return Selector("latest")


def exact(version: int) -> Selector:
    """This version and no other."""
    return Selector("exact", version)


def nth_latest(k: int) -> Selector:
    """The k-th newest available version; 0 is the newest."""
    return Selector("nth_latest", k)


def at_least(version: int) -> Selector:
    """The newest available version, once its number is at least this."""
    return Selector("at_least", version)


def parse(selector: Selector | int | str) -> Selector:
    """A selector, a version, or one of the paper's strings: `"latest"`, `"latest-3"`."""
    match selector:
        case Selector():
            parsed = selector
        case bool():
            raise TypeError("a version is an integer, a string or a selector, not a bool")
        case int(number):
            parsed = exact(number)
        case "latest":
            parsed = latest()
        case str() if selector.startswith("latest-") and selector[7:].isdecimal():
            parsed = Selector("latest_minus", int(selector[7:]))
        case str() if selector.isdecimal():
            parsed = exact(int(selector))
        case _:
            raise ValueError(f"{selector!r} names no version: try 7, 'latest' or 'latest-1'")
    if not 0 <= parsed.number < 2**64:
        raise ValueError(f"a version is at least 0 and below 2**64, not {parsed.number}")
    return parsed
