"""The path that a reader follows: the functions that ARCHITECTURE.md's table names, each reached from one before.

A function is reached if the body of a function before it in the table calls it by name and may see it; or if its row
names what is handed over: a message, an event, an output that one function before puts and this one takes. The two
calls of users, in Python, are where the path begins.
"""

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PAGE, SECTION = "ARCHITECTURE.md", "The one path"
COLUMNS = ("File", "Symbols", "Handed over")
TESTS = re.compile(r"(pub\(super\) )?mod \w*tests? \{")
IMPL = re.compile(r"( *)(?:pub(?:\([\w: ]+\))? )?(?:unsafe )?(?:impl|trait)\b(.*)")
RUST = re.compile(
    r"( *)(pub(?:\([\w: ]+\))? )?(?:default |const |async |unsafe |extern \"C\" )*fn (\w+)"
)
PYTHON = re.compile(r"( *)(?:async )?(class|def) (\w+)")


@dataclass
class Function:
    """Where a function stands, from its signature to its last brace, and from where it may be called."""

    name: str
    file: str
    first: int
    last: int
    body: str
    #: The module in which it is visible; None if everywhere that knows its crate.
    visible: str | None = None
    #: The trait that it is a method of: called through it, also by a crate that does not know this one.
    of_trait: str = ""

    @property
    def lines(self) -> set[int]:
        return set(range(self.first, self.last + 1))

    @property
    def crate(self) -> str:
        return self.file.split("/")[1] if self.file.startswith("crates/") else "python"


def owner_of(header: str) -> str:
    """The type that an `impl` is of."""
    while (shorter := re.sub(r"<[^<>]*>", "", header)) != header:
        header = shorter
    found = re.search(r"\w+(?=\s*(\{|:|$))", header.rsplit(" for ", 1)[-1].split(" where ")[0].strip())
    return found[0] if found else ""


def module_of(file: str) -> str:
    """`src/a/b.rs` and `src/a/b/mod.rs` are the module `a/b`, below its crate."""
    return re.sub(r"(/mod|/lib|/main)?\.rs$", "", file.replace("/src/", "/", 1))


def trait_of(header: str) -> str:
    """The trait that an `impl` is of, or the one that is defined."""
    while (shorter := re.sub(r"<[^<>]*>", "", header)) != header:
        header = shorter
    found = re.search(r"(\w+) for ", header) or re.search(r"\btrait (\w+)", header)
    return found[1] if found else ""


def visible_in(visibility: str, file: str, of_trait: str) -> str | None:
    """The module in which an item of this visibility may be named."""
    module = module_of(file)
    crate = "/".join(file.split("/")[:2])
    if of_trait or visibility == "pub ":
        return None
    if not visibility:
        return module
    if visibility == "pub(super) ":
        return module.rsplit("/", 1)[0]
    if found := re.match(r"pub\(in crate::([\w:]+)\)", visibility):
        return f"{crate}/{found[1].replace('::', '/')}"
    return crate


def without_comments(lines: list[str], mark: str) -> str:
    """Code alone: a name in a comment calls nothing."""
    return "\n".join(re.sub(rf'^\s*{mark}.*|\s{mark} .*$', "", line) for line in lines)


def functions(file: str, text: str) -> list[Function]:
    """The functions of a file, in order; tests at its end are not of them."""
    return rust(file, text.split("\n")) if file.endswith(".rs") else python(file, text.split("\n"))


def rust(file: str, text: list[str]) -> list[Function]:
    """Relies on rustfmt: a block ends at a brace with the indentation of its first line."""
    found, owner, of_trait, indent = [], "", "", ""
    for at, line in enumerate(text, 1):
        if TESTS.match(line):
            break
        if (start := IMPL.match(line)) and not line.endswith((";", "{}")):
            header = " ".join(text[at - 1 : at + 5]).split("{")[0]
            owner, indent = owner_of(IMPL.match(header)[2] + "{"), start[1]
            of_trait = trait_of(header)
        elif owner and line == indent + "}":
            owner = ""
        elif start := RUST.match(line):
            ends = range(at, len(text) + 1)
            whole = line.endswith(("}", ";"))
            last = at if whole else next((end for end in ends if text[end - 1] in (f"{start[1]}}}", f"{start[1]}) -> ();")), at)
            method = bool(owner) and len(start[1]) > len(indent)
            name = f"{owner}::{start[3]}" if method else start[3]
            through = of_trait if method else ""
            body = without_comments(text[at - 1 : last], "//")
            found.append(Function(name, file, at, last, body, visible_in(start[2] or "", file, through), through))
    return found


def python(file: str, text: list[str]) -> list[Function]:
    """A body ends before the next line that is indented no deeper."""
    found, owner = [], ""
    for at, line in enumerate(text, 1):
        if line and line[0] not in " )":
            owner = ""
        if not (start := PYTHON.match(line)):
            continue
        if start[2] == "class":
            owner = start[3]
            continue
        last = at
        for end in range(at + 1, len(text) + 1):
            if text[end - 1].strip() and not text[end - 1].startswith((f"{start[1]} ", f"{start[1]})")):
                break
            last = end if text[end - 1].strip() else last
        name = f"{owner}.{start[3]}" if owner and start[1] else start[3]
        body = re.sub(r'""".*?"""', "", without_comments(text[at - 1 : last], "#"), flags=re.S)
        found.append(Function(name, file, at, last, body))
    return found


def within(function: Function) -> str:
    """A body without its signature's name, by which it does not call itself."""
    return re.sub(r"\b(fn|def) \w+", "", function.body, count=1)


def names(function: Function, word: str) -> bool:
    """Whether a function names a thing: in its body, or in its signature."""
    return bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", function.body))


class Code:
    """The functions of a repository: which of them may call which."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
        known = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\n")
        self.files = [name for name in known if name.endswith((".rs", ".py")) and (root / name).is_file()]
        self.read: dict[str, list[Function]] = {}
        self.needs = {
            file.parent.name: set(re.findall(r"^(weightcast[\w-]*)(?=[. ])", file.read_text(), re.M))
            for file in root.glob("crates/*/Cargo.toml")
        }
        #: Methods of each type, by its crate.
        self.methods: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name in self.files:
            if re.match(r"crates/[^/]+/src/", name):
                for function in self.of(name):
                    owner, _, method = function.name.rpartition("::")
                    self.methods[function.crate, owner].add(method)

    def find(self, path: str) -> list[str]:
        """The files that a path means: from the root, below `crates` or `python`, or by how their names end."""
        ends = [name for name in self.files if f"/{name}".endswith(f"/{path}")]
        return [name for name in ends if name in (path, f"crates/{path}", f"python/{path}")] or ends

    def of(self, file: str) -> list[Function]:
        """The functions of a file."""
        if file not in self.read:
            self.read[file] = functions(file, (self.root / file).read_text())
        return self.read[file]

    def calls(self, caller: Function, callee: Function) -> set[int]:
        """The lines in which a body calls a function by name, and may."""
        if not self.may_call(caller, callee):
            return set()
        body = within(caller)
        found = re.finditer(self.called(caller, callee, body), body)
        return {caller.first + body.count("\n", 0, match.start()) for match in found}

    def called(self, caller: Function, callee: Function, body: str) -> str:
        """How a call looks. What a type's method calls on `self` is of that type, if that has such a method. A
        function may be handed to another by its name, unless the body has a variable of that name."""
        owner, _, name = callee.name.replace(".", "::").rpartition("::")
        if not owner:
            call = rf"(?<![.\w:]){name}\s*\(|\b[a-z_]\w*::{name}\b"
            variable = re.search(rf"(?:\blet |\b(?:Some|Ok)\(|\|)\(?(?:mut )?{name}\b", body)
            return call if variable else rf"{call}|(?<![.\w]){name}(?=[,)])"
        own = caller.name.replace(".", "::").rpartition("::")[0]
        if own == owner:
            return rf"\.{name}\s*(::<[^;]*?>)?\(|\b(?:{owner}|Self)::{name}\b"
        other = r"(?<!\bself)" if name in self.methods[caller.crate, own] else ""
        return rf"{other}\.{name}\s*(::<[^;]*?>)?\(|\b{owner}::{name}\b"

    def may_call(self, caller: Function, callee: Function) -> bool:
        """Whether a function may name another: by their crates, and by what is private."""
        if caller.crate == "python":
            return callee.crate in ("python", "weightcast-py")
        if callee.crate != caller.crate and callee.crate not in self.needs.get(caller.crate, ()):
            return bool(callee.of_trait) and names(caller, callee.of_trait)
        inside = callee.visible
        return inside is None or f"{module_of(caller.file)}/".startswith(f"{inside}/")


@dataclass
class Row:
    """A row of the table."""

    step: str
    files: list[str]
    symbols: list[str]
    handed: list[tuple[str, str]]


@dataclass
class Link:
    """A function of the path, and how a reader comes to it."""

    step: str
    function: Function
    source: str
    #: The function that calls it, and the lines in which it does.
    caller: Function | None = None
    at: set[int] = field(default_factory=set)


@dataclass
class Chain:
    """The path, and what is wrong with the table."""

    links: list[Link] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def functions(self) -> list[Function]:
        return [link.function for link in self.links]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(function.file for function in self.functions))

    def of(self, file: str) -> set[int]:
        """Lines of a file that are on the path."""
        return set().union(*(function.lines for function in self.functions if function.file == file))

    @property
    def lines(self) -> int:
        return sum(len(self.of(file)) for file in self.files)


def rows(page: str) -> list[Row]:
    """The rows of the tables with these columns, in the section of the path."""
    section = re.search(rf"^## {SECTION}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    columns: list[str] = []
    found, step = [], ""
    for line in section[1].split("\n") if section else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if set(COLUMNS) <= set(cells):
            columns = cells
        elif not cells:
            columns = []
        elif columns and len(cells) == len(columns) and not cells[0].startswith("--"):
            of = dict(zip(columns, cells, strict=True))
            names = [re.findall(r"`([^`]+)`", of[column]) for column in COLUMNS[:2]]
            handed = re.findall(r"`([^`]+)`(?: to `([^`]+)`)?", of["Handed over"])
            step = of.get("Step", "") or step
            found.append(Row(step, *names, [(put, taken or put) for put, taken in handed]))
    return found


class Table:
    """The table, as the code stands."""

    def __init__(self, root: Path) -> None:
        self.code = Code(root)
        self.rows = rows((root / PAGE).read_text())
        self.chain = Chain()

    def follow(self) -> Chain:
        """The path, with everything that breaks it."""
        if not self.rows:
            self.says(f"there is no table with the columns {', '.join(COLUMNS)} below {SECTION}")
        for row in self.rows:
            before = len(self.chain.links)
            for symbol in row.symbols:
                self.add(symbol, row)
            self.check_handed(row, self.chain.links[before:])
        return self.chain

    def says(self, problem: str) -> None:
        self.chain.problems.append(f"{PAGE}: {problem}")

    def add(self, symbol: str, row: Row) -> None:
        here = [function for path in row.files for file in self.code.find(path) for function in self.code.of(file)]
        found = [function for function in here if function.name == symbol]
        if len(found) != 1:
            return self.says(f"`{symbol}` is {'several functions' if found else 'no function'} of {', '.join(row.files)}")
        if any(found[0] == known for known in self.chain.functions):
            return self.says(f"`{symbol}` stands twice in the table")
        link = self.link(found[0], row)
        if link is None:
            handed = f", nor hands {' or '.join(put for put, _ in row.handed)} over to it" if row.handed else ""
            self.says(f"a gap before `{symbol}`: no function above calls it by name{handed}")
        self.chain.links.append(link or Link(row.step, found[0], "?"))

    def link(self, function: Function, row: Row) -> Link | None:
        """How a reader comes to it: from the nearest function that calls it, or hands something over to it."""
        if function.crate == "python":
            return Link(row.step, function, "a user")
        for earlier in reversed(self.chain.functions):
            if lines := self.code.calls(earlier, function):
                return Link(row.step, function, f"`{earlier.name}`", earlier, lines)
        for put, taken in row.handed:
            giver = self.naming(put, but=function)
            if names(function, taken) and giver:
                return Link(row.step, function, f"`{put}` of `{giver.name}`")
        return None

    def naming(self, word: str, but: Function) -> Function | None:
        return next((f for f in reversed(self.chain.functions) if f != but and names(f, word)), None)

    def check_handed(self, row: Row, links: list[Link]) -> None:
        """What a row says is handed over is put by one function, and taken by one of the row or by its caller."""
        near = [function for link in links for function in (link.caller, link.function) if function]
        for put, taken in row.handed:
            if not any(names(taker, taken) and self.naming(put, but=taker) for taker in near):
                self.says(f"`{put}` is not handed over to {', '.join(row.symbols)}")
