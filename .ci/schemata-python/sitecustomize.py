"""Every mutant of weightcast's Python behind a number, as .ci/schemata does for Rust. Python imports this file by its
name when the folder is on PYTHONPATH, in a test's subprocesses too, and modules of the package are then planted while
they are imported: the files stay as they are, and lines keep their numbers.

WEIGHTCAST_SWEEP: the folder above the package. WEIGHTCAST_MUTANT: the number that is on. WEIGHTCAST_REACHED: a file for
the numbers that were passed. Code that runs at import, and defaults, are not changed."""

import ast
import builtins
import copy
import functools
import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path

SPAN = 10_000  # numbers of one file
NAME = "__weightcast_mutant__"
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
             ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "add": "discard"}


class State:
    """Which number is on, and which were passed."""

    on, note, seen = int(os.environ.get("WEIGHTCAST_MUTANT", 0)), os.environ.get("WEIGHTCAST_REACHED"), set()


def chosen(number):
    if State.note and number not in State.seen:
        State.seen.add(number)
        with open(State.note, "a") as out:
            out.write(f"{number}\n")
    return number == State.on


class Plant(ast.NodeTransformer):
    def __init__(self, first):
        self.next, self.listing, self.functions = first, [], []

    def number(self, rule, node, replacement):
        self.next += 1
        self.listing.append({"number": self.next, "line": node.lineno, "rule": rule, "original": ast.unparse(node),
                             "replacement": replacement if isinstance(replacement, str) else ast.unparse(replacement)})
        return ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(self.next)], [])

    def choose(self, original, changed, alternatives):
        for rule, other in reversed(alternatives):
            changed = ast.IfExp(self.number(rule, original, other), other, changed)
        return changed

    # Expressions

    def visit(self, node):
        if not self.functions and not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            return node
        if not isinstance(node, ast.expr) or not isinstance(getattr(node, "ctx", None), ast.Load | None):
            return super().visit(node)
        original = copy.deepcopy(node)
        return self.choose(original, super().visit(node), list(self.alternatives(original)))

    def alternatives(self, node):
        match node:
            case ast.Compare(ops=[op]):
                yield "operator", ast.Compare(node.left, [COMPARED[type(op)]()], node.comparators)
            case ast.BoolOp():
                yield "operator", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
                for i in range(len(node.values)):
                    left = node.values[:i] + node.values[i + 1:]
                    yield "operand", left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
            case ast.UnaryOp(op=ast.Not()):
                yield "operator", node.operand
            case ast.BinOp() if type(node.op) in OPERATORS and not texts(node.left) and not texts(node.right):
                yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
            case ast.Constant(value=bool(value)):
                yield "constant", ast.Constant(not value)
            case ast.Constant(value=int(value)):
                yield "constant", ast.Constant(value + 1)
                yield "constant", ast.Constant(value - 1)
            case ast.Constant(value=float(value)):
                yield "constant", ast.Constant(value * 2 + 1)
            case ast.Constant(value=str(value)) if value and not set(value) & set(" \n"):
                yield "constant", ast.Constant(value + "_")
            case ast.Name(id=name) if name in self.functions[-1]:
                for other, annotation in self.functions[-1].items():
                    if other != name and annotation == self.functions[-1][name]:
                        yield "name", ast.Name(other, ast.Load())
            case ast.Call():
                yield from self.calls(node)

    def calls(self, node):
        args, keywords = node.args, node.keywords
        for i in range(len(args) - 1):
            if ast.dump(args[i]) != ast.dump(args[i + 1]) and not any(isinstance(a, ast.Starred) for a in args):
                yield "arguments", ast.Call(node.func, [*args[:i], args[i + 1], args[i], *args[i + 2:]], keywords)
        for i, one in enumerate(keywords):
            if one.arg:
                yield "arguments", ast.Call(node.func, args, keywords[:i] + keywords[i + 1:])
        match node.func:
            case ast.Name(id=name) if name in CALLED:
                yield "called", ast.Call(ast.Name(CALLED[name], ast.Load()), args, [] if name == "sorted" else keywords)
            case ast.Attribute(attr=name) if name in CALLED:
                yield "called", ast.Call(ast.Attribute(node.func.value, CALLED[name], ast.Load()), args, keywords)

    def visit_JoinedStr(self, node):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
        return node

    def decided(self, node, outcomes=(True, False)):
        original = copy.deepcopy(node)
        return self.choose(original, self.visit(node), [("condition", ast.Constant(one)) for one in outcomes])

    def visit_IfExp(self, node):
        return ast.IfExp(self.decided(node.test), self.visit(node.body), self.visit(node.orelse))

    def each(self, node, lazy=False):
        """Nothing of what is gone through, or only the first."""
        original, islice = copy.deepcopy(node), ast.parse("__import__('itertools').islice(x, 1)", mode="eval").body
        islice.args[0] = copy.deepcopy(node)
        return self.choose(original, self.visit(node), [("loop", ast.Tuple([], ast.Load())), ("loop", islice)])

    def visit_comprehension(self, node):
        node.iter = self.visit(node.iter) if node.is_async else self.each(node.iter)
        node.ifs = [self.decided(test) for test in node.ifs]
        return node

    def visit_Lambda(self, node):
        node.body = self.visit(node.body)
        return node

    # Statements

    def left_out(self, node, instead=None):
        original = copy.deepcopy(node)
        changed = self.generic_visit(node)
        instead = instead or ast.Pass()
        return ast.If(self.number("statement", original, instead), [instead], [changed])

    visit_AugAssign = visit_Delete = visit_Raise = left_out

    def visit_Break(self, node):
        return self.left_out(node, ast.Continue())

    def visit_Continue(self, node):
        return self.left_out(node)

    def visit_Expr(self, node):
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        return self.left_out(node) if isinstance(called, ast.Call) else self.generic_visit(node) if not texts(called) else node

    def visit_Assign(self, node):
        again = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        kept = all(isinstance(t, ast.Name) and t.id not in again or isinstance(t, ast.Tuple) for t in node.targets)
        return self.generic_visit(node) if kept else self.left_out(node)

    def visit_AnnAssign(self, node):
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Return(self, node):
        if node.value is None:
            return self.left_out(node)
        whole = copy.deepcopy(node.value)
        others = [True, False] if isinstance(whole, ast.Compare | ast.BoolOp) else [None]
        node.value = self.visit(node.value)
        if not isinstance(whole, ast.Constant):
            node.value = self.choose(whole, node.value, [("result", ast.Constant(one)) for one in others])
        return node

    def visit_If(self, node):
        node.test = self.decided(node.test)
        node.body, node.orelse = ([self.visit(one) for one in part] for part in (node.body, node.orelse))
        return node

    def visit_While(self, node):
        node.test = self.decided(node.test, (False,))
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_For(self, node):
        node.iter = self.each(node.iter)
        node.body, node.orelse = ([self.visit(one) for one in part] for part in (node.body, node.orelse))
        return node

    def visit_ExceptHandler(self, node):
        if node.type:
            never = ast.Tuple([], ast.Load())
            node.type = ast.IfExp(self.number("handler", node.type, "()"), never, node.type)
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_match_case(self, node):
        node.guard = node.guard and self.decided(node.guard)
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_FunctionDef(self, node):
        args = node.args
        self.functions.append({a.arg: ast.unparse(a.annotation) for a in args.posonlyargs + args.args + args.kwonlyargs
                               if a.annotation})
        first = 1 if isinstance(node.body[0], ast.Expr) and texts(node.body[0].value) else 0
        body = [self.visit(one) for one in node.body[first:]]
        nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
        if nothing and len(body) > 1:
            body.insert(0, ast.If(self.number("result", ast.parse(node.name + "(...)").body[0], "nothing"), [ast.Return()], []))
            self.listing[-1]["line"] = node.lineno
        node.body = node.body[:first] + body
        self.functions.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef


def texts(node):
    return isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)


@functools.cache
def files(root):
    return sorted(Path(root, "weightcast").rglob("*.py"))


def planted(root, path):
    """The file's tree with every mutant in it, and what they are."""
    plant = Plant((files(root).index(path) + 1) * SPAN)
    tree = ast.fix_missing_locations(plant.visit(ast.parse(path.read_text())))
    if len(plant.listing) >= SPAN:
        raise ValueError(f"{path} has more than {SPAN} mutants")
    return tree, [{"file": str(path.relative_to(root)), **one} for one in plant.listing]


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root):
        self.root = Path(root)

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] != "weightcast":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec and type(spec.loader) is importlib.machinery.SourceFileLoader and self.root in Path(spec.origin).parents:
            spec.loader = Loader(fullname, spec.origin)
            spec.loader.root = self.root
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        path = Path(self.path)
        if State.on and not State.note and files(self.root)[State.on // SPAN - 1] != path:
            return super().get_code(fullname)
        return code_of(self.root, path)


@functools.cache
def code_of(root, path):
    return compile(planted(root, path)[0], str(path), "exec", dont_inherit=True)


if "WEIGHTCAST_SWEEP" in os.environ:
    setattr(builtins, NAME, chosen)
    sys.meta_path.insert(0, Finder(os.environ["WEIGHTCAST_SWEEP"]))
