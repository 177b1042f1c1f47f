# Tangled from book/workshop/ol-tests.md
"""A stub has all of its contract, and can be imported."""

import ast
import sys
import types

import pytest

from ol import stubs
from ol.registry import Chapter, chapters, find


def functions(text):
    """Name -> signature and docstring of each function of a text."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.Module):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    marks = [ast.unparse(mark) for mark in inner.decorator_list]
                    key = getattr(node, "name", ""), inner.name, *marks
                    returns = inner.returns and ast.unparse(inner.returns)
                    found[key] = ast.unparse(inner.args), returns, ast.get_docstring(inner)
    return found


@pytest.mark.parametrize("name", chapters())
def test_stub_has_all_of_the_contract(name, monkeypatch):
    chapter = find(name)
    text, contract = stubs.stub(chapter), chapter.contract.read_text(encoding="utf-8")
    assert functions(text) == functions(contract)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert ast.unparse(node.body[-1]).startswith(f"raise NotImplementedError('{name}: ")
    assert ast.get_docstring(ast.parse(text)) == ast.get_docstring(ast.parse(contract))
    module = types.ModuleType("stub")
    monkeypatch.setitem(sys.modules, "stub", module)
    exec(compile(text, "stub.py", "exec"), module.__dict__)
    assert set(chapter.facts["names"]) <= set(vars(module))


def test_stub_handles_every_shape_of_function(tmp_path):
    contract = tmp_path / "a.pyi"
    contract.write_text(
        '# Tangled from x\n"""Doc."""\nN: int = ...\nclass A:\n    x: int\n'
        "    def a(self) -> 'ä': ...\n    @property\n    def b(self) -> int:\n"
        "        '''Doc.'''\n    def c(self):\n        '''Doc.'''\n        ...\ndef d(): ...\n"
    )
    chapter = Chapter("X1", {"title": "Toy", "contract": str(contract)})
    text = stubs.stub(chapter)
    assert functions(text) == functions(contract.read_text())
    for name in ("A.a", "A.b", "A.c", "d"):
        assert text.count(f'raise NotImplementedError("X1: {name} is not written yet")') == 1
    assert "\n\n    @property\n    def b" in text
    assert "\n\n\ndef d" in text
    space = {"__name__": "x1"}
    exec(text, space)
    with pytest.raises(NotImplementedError, match=r"X1: A\.a is not written yet"):
        space["A"]().a()
