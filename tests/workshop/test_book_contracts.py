# Tangled from book/workshop/proof.md
"""The contracts say in words what a builder must know."""

import ast
import re

import pytest

from ol.registry import ROOT, chapters

CHAPTERS = {name: chapter.facts for name, chapter in chapters().items()}
ARRAYS = {"Array", "ArrayLike", "NDArray", "Tensor"}
SHAPES = re.compile(
    r"\[[^\]]*\]|shape|scalar|element|dimension|\bax[ei]s\b|same (?:array|numbers|object)"
    r"|\b(?:each|every|single|one|the) (?:number|entry|row)"
)


def definitions(tree, prefix=""):
    """The public classes, functions and methods of a contract, by dotted name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{node.name}.")


def contract(chapter):
    return ast.parse((ROOT / CHAPTERS[chapter]["contract"]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_contract_has_the_names_of_its_chapter(chapter):
    tree = contract(chapter)
    there = {name for name, _ in definitions(tree)}
    for node in tree.body:  # constants, and names that are passed on
        if isinstance(node, ast.AnnAssign):
            there.add(node.target.id)
        elif isinstance(node, ast.Assign):
            there |= {target.id for target in node.targets}
        elif isinstance(node, ast.ImportFrom):
            there |= {alias.asname for alias in node.names if alias.asname == alias.name}
    absent = set(CHAPTERS[chapter]["names"]) - there
    assert not absent, f"{CHAPTERS[chapter]['contract']} lacks {', '.join(sorted(absent))}"


def names_in(annotation):
    """The types that a value may have, or that a tuple of values has; not those within containers."""
    if isinstance(annotation, ast.BinOp):
        return names_in(annotation.left) | names_in(annotation.right)
    if isinstance(annotation, ast.Subscript):
        if getattr(annotation.value, "id", "") in {"tuple", "Optional", "Union"}:
            parts = getattr(annotation.slice, "elts", [annotation.slice])
            return set().union(*map(names_in, parts))
        return names_in(annotation.value)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return names_in(ast.parse(annotation.value, mode="eval").body)
    return {annotation.id} if isinstance(annotation, ast.Name) else set()


def silent(tree):
    """Line and name of what a contract does not explain, with what is missing."""
    for name, node in definitions(tree):
        said = ast.get_docstring(node)
        marks = {getattr(d, "attr", getattr(d, "id", "")) for d in node.decorator_list}
        if said is None:
            if not marks & {"setter", "overload"}:
                yield f"{node.lineno}: {name} has no docstring"
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            annotations = [node.returns, *(argument.annotation for argument in arguments)]
            if set().union(*map(names_in, annotations)) & ARRAYS and not SHAPES.search(said):
                yield f"{node.lineno}: {name} takes or gives arrays and says no shape"


@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_docstrings_of_contracts(chapter):
    path = CHAPTERS[chapter]["contract"]
    faults = [f"{path}:{text}" for text in silent(contract(chapter))]
    assert not faults, "\n" + "\n".join(faults)
    assert ast.get_docstring(contract(chapter)), f"{path} does not say what the module is for"


ERROR = re.compile(r"\b\w+Error\b")


def docstrings(tree, prefix=""):
    """The docstring of each class, function and method that has one, by dotted name."""
    said = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                said[prefix + node.name] = text
            if isinstance(node, ast.ClassDef):
                said |= docstrings(node, f"{node.name}.")
    return said


def untold(contract, code):
    """Names with the errors that the contract says they raise and the code does not."""
    said = docstrings(code)
    for name, text in docstrings(contract).items():
        if name in said:
            told = said[name] + said.get(name.rpartition(".")[0], "")
            if lacking := set(ERROR.findall(text)) - set(ERROR.findall(told)):
                yield f"{name}: {', '.join(sorted(lacking))}"


@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_docstrings_name_the_errors_of_contracts(chapter):
    path = CHAPTERS[chapter]["builds"]
    code = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    faults = [f"{path}: {text}" for text in untold(contract(chapter), code)]
    assert not faults, "\n" + "\n".join(faults)


def aliases(tree):
    """What the module-level names for types stand for, also those imported from the package."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and getattr(node.annotation, "id", "") == "TypeAlias":
            found[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinyllm."):
            path = ROOT / f"{node.module.replace('.', '/')}.py"
            theirs = aliases(ast.parse(path.read_text(encoding="utf-8")))
            found |= {a.name: theirs[a.name] for a in node.names if a.name in theirs}
    return found


class Plain(ast.NodeTransformer):
    """Writes types out: aliases, quoted types, and what is reached through `np`."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        return self.visit(self.names[node.id]) if node.id in self.names else node

    def visit_Attribute(self, node):
        return ast.Name(node.attr) if getattr(node.value, "id", "") == "np" else node

    def visit_Constant(self, node):
        text = isinstance(node.value, str)
        return self.visit(ast.parse(node.value, mode="eval").body) if text else node


def signatures(tree):
    """Dotted name of each function -> its parameters and result with their types."""
    plain, found = Plain(aliases(tree)), {}
    for prefix, body in [("", tree.body)] + [
        (f"{c.name}.", c.body) for c in tree.body if isinstance(c, ast.ClassDef)
    ]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                marks = {getattr(d, "attr", getattr(d, "id", "")) for d in node.decorator_list}
                if "contextmanager" in marks:  # what calls of it give
                    node.returns.value = ast.Name("AbstractContextManager")
                arguments = [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]
                types = [(a.arg, a.annotation) for a in arguments] + [("->", node.returns)]
                name = f"{prefix}{node.name}" + (" =" if "setter" in marks else "")
                found[name] = [(n, ast.unparse(plain.visit(t)) if t else "") for n, t in types]
    return found


@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_types_of_contracts_are_those_of_the_code(chapter):
    code = (ROOT / CHAPTERS[chapter]["builds"]).read_text(encoding="utf-8")
    promised, kept = signatures(contract(chapter)), signatures(ast.parse(code))
    differ = {
        name: (promised[name], kept[name])
        for name in promised.keys() & kept.keys()
        if promised[name] != kept[name]
    }
    assert not differ, "\n".join(
        f"{name}: contract {a}, code {b}" for name, (a, b) in differ.items()
    )


def test_other_types_are_found():
    code = """
Mask: TypeAlias = NDArray[np.bool_]
class A:
    def f(self, m: "Mask | None" = None, *, n: int) -> Mask: ...
"""
    written_out = code.replace("-> Mask", "-> NDArray[bool_]").replace(
        '"Mask | None"', "Mask | None"
    )
    assert signatures(ast.parse(code)) == signatures(ast.parse(written_out))
    for wrong in ("int | None", "Mask"):
        other = code.replace('"Mask | None"', wrong)
        assert signatures(ast.parse(code)) != signatures(ast.parse(other))


def test_silence_is_found():
    stub = """
class Tensor:
    '''A tensor.'''
    def a(self) -> Tensor: ...
    def b(self, x: Tensor | None) -> int:
        '''Says nothing.'''
    def c(self, x: Tensor) -> tuple[int, NDArray[Any]]:
        '''[B, T] -> [B].'''
    def d(self) -> dict[str, Tensor]:
        '''By name.'''
    def __add__(self, other: Tensor) -> Tensor: ...
    def _e(self): ...
def f(x: "ArrayLike") -> None:
    '''Prints.'''
"""
    assert [text.partition(": ")[2] for text in silent(ast.parse(stub))] == [
        "Tensor.a has no docstring",
        "Tensor.b takes or gives arrays and says no shape",
        "f takes or gives arrays and says no shape",
    ]


def test_an_untold_error_is_found():
    stub = """
class A:
    def f(self):
        '''ValueError or TypeError.'''
    def g(self):
        '''ValueError.'''
def h():
    '''OSError.'''
def i():
    '''OSError.'''
"""
    code = """
class A:
    '''ValueError.'''
    def f(self):
        '''F.'''
    def g(self):
        '''G.'''
def h():
    '''H.'''
def i(): ...
"""
    assert list(untold(ast.parse(stub), ast.parse(code))) == ["A.f: TypeError", "h: OSError"]
