"""`_core.pyi` says what the native half is: type checkers and editors read it, nothing else does.

Every class, method, property, argument and default of the binary is in the stub, and the stub has no
others. Types are not compared: the binary has none.
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from weightcast import _core

#: Where exceptions are made.
BINDING = (Path(__file__).parents[2] / "crates/weightcast-py/src/errors.rs").read_text()
STUB = ast.parse((Path(_core.__file__).parent / "_core.pyi").read_text())
CLASSES = {item.name: item for item in STUB.body if isinstance(item, ast.ClassDef)}
FUNCTIONS = {
    item.name: item
    for item in STUB.body
    if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
}
#: What a stub need not say of a class: the constructor is compared by itself.
IMPLIED = {"__new__", "__match_args__", "__module__", "__weakref__"}


def decorators(item: ast.ClassDef | ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator) for decorator in item.decorator_list}


def methods(of: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in of.body if isinstance(item, ast.FunctionDef)}


def fields(of: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Annotated names, and their defaults."""
    return {ast.unparse(item.target): item.value for item in of.body if isinstance(item, ast.AnnAssign)}


def attributes(error: str) -> set[str]:
    """What the binding sets of an exception; the binary's classes have no fields."""
    found: set[str] = set()
    for call in re.finditer(rf"(?:raise!\(|made!\(py, message,)\s*{error}\b", BINDING):
        end, depth = call.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(BINDING[end], 0)
            end += 1
        found |= set(re.findall(r"(\w+) = ", BINDING[call.end() : end]))
    return found


def is_error(real: Any) -> bool:
    return issubclass(real, Exception)


def parameters(of: ast.FunctionDef) -> dict[str, tuple[Any, Any]]:
    """Kind and default of each argument; those of a method without `self`."""
    said, kinds = of.args, inspect.Parameter
    assert said.vararg is None and said.kwarg is None and not said.posonlyargs
    positional = [argument.arg for argument in said.args]
    defaults: list[Any] = [kinds.empty] * (len(positional) - len(said.defaults))
    defaults += [ast.literal_eval(default) for default in said.defaults]
    found = {n: (kinds.POSITIONAL_OR_KEYWORD, d) for n, d in zip(positional, defaults, strict=True)}
    for argument, default in zip(said.kwonlyargs, said.kw_defaults, strict=True):
        value = kinds.empty if default is None else ast.literal_eval(default)
        found[argument.arg] = (kinds.KEYWORD_ONLY, value)
    found.pop("self", None)
    return found


def taken(real: Any) -> dict[str, tuple[Any, Any]]:
    """The same of the binary."""
    listed = inspect.signature(real).parameters.values()
    return {p.name: (p.kind, p.default) for p in listed if p.name != "self"}


def test_the_stub_has_every_name_of_the_binary_and_no_other() -> None:
    variables = {ast.unparse(i.target) for i in STUB.body if isinstance(i, ast.AnnAssign)}
    there = {name for name in vars(_core) if not name.startswith("_")} | {"__version__"}
    assert CLASSES.keys() | FUNCTIONS.keys() | variables == there
    assert {name for name, real in vars(_core).items() if isinstance(real, type)} == CLASSES.keys()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_takes_what_the_stub_says(name: str) -> None:
    assert parameters(FUNCTIONS[name]) == taken(getattr(_core, name))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_has_the_members_that_the_stub_says(name: str) -> None:
    said, real = CLASSES[name], getattr(_core, name)
    assert [ast.unparse(base) for base in said.bases] == [
        base.__name__ for base in real.__bases__ if base is not object
    ]
    if is_error(real):
        located = set(re.findall(r'setattr\("(\w+)"', BINDING)) if name == "DigestMismatch" else set()
        assert set(fields(said)) == attributes(name) | located
        return
    assert "final" in decorators(said)
    known = methods(said).keys() - {"__init__"} | fields(said).keys()
    assert known == {
        member for member in vars(real) if member not in IMPLIED and not hasattr(object, member)
    }
    for member, function in methods(said).items():
        if member == "__init__":
            continue
        there = inspect.getattr_static(real, member)
        assert inspect.isgetsetdescriptor(there) == ("property" in decorators(function)), member
        assert isinstance(there, staticmethod) == ("staticmethod" in decorators(function)), member
        if "property" not in decorators(function):
            assert parameters(function) == taken(getattr(real, member)), member


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_is_made_of_what_the_stub_says(name: str) -> None:
    said, real = CLASSES[name], getattr(_core, name)
    init = methods(said).get("__init__")
    if "_record" in decorators(said):
        assert init is None
        assert real.__match_args__ == tuple(fields(said))
        made = taken(real)
        assert list(made) == list(fields(said))
        required = [field for field, value in fields(said).items() if value is None]
        assert [field for field, (_, default) in made.items() if default is inspect.Parameter.empty] == required
        # The signature does not spell every default: an object has them.
        values = {"str": "", "int": 0, "float": 0.0, "bool": False}
        types = {ast.unparse(i.target): ast.unparse(i.annotation) for i in said.body if isinstance(i, ast.AnnAssign)}
        if len(required) < len(made):
            least = real(**{field: values.get(types[field]) for field in required})
            for field, value in fields(said).items():
                assert value is None or getattr(least, field) == ast.literal_eval(value), field
    elif init is not None:
        assert parameters(init) == taken(real)
    elif not is_error(real):
        with pytest.raises(TypeError, match="cannot create|[Nn]o constructor"):
            real()
