"""Scripts under benchmarks/ and experiments/ use only what the package has; they run for hours, so they are only read.

Every name that a script imports from veloxseg exists, as does every attribute that it asks of a module of veloxseg, and
every call of a function or class of veloxseg fits its parameters.
"""

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / "benchmarks").glob("*.py")), *sorted((ROOT / "experiments").glob("*.py"))]


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a module, or the module of that name within a package."""
    if isinstance(owner, ModuleType) and not hasattr(owner, name):
        return importlib.import_module(f"{owner.__name__}.{name}")
    return getattr(owner, name)


def imported_names(tree: ast.AST) -> dict[str, Any]:
    """What each name that a script takes from veloxseg stands for; raises if there is no such thing."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "veloxseg":
                    module = importlib.import_module(alias.name)
                    names[alias.asname or "veloxseg"] = module if alias.asname else importlib.import_module("veloxseg")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "veloxseg":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                names[alias.asname or alias.name] = attribute(module, alias.name)
    return names


def resolved(node: ast.AST, names: dict[str, Any]) -> Any:
    """The thing that `name` or `module.name` stands for, or None if it is none of ours."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolved(node.value, names)
        if isinstance(owner, ModuleType | type):
            return attribute(owner, node.attr)
    return None


def check_call(call: ast.Call, target: Any) -> None:
    """Positional and named arguments find their parameters; a call with * or ** is known only in part."""
    spread = any(isinstance(value, ast.Starred) for value in call.args)
    positional = [value for value in call.args if not isinstance(value, ast.Starred)]
    named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    whole = not spread and all(keyword.arg is not None for keyword in call.keywords)
    signature = inspect.signature(target)
    (signature.bind if whole else signature.bind_partial)(*positional, **named)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_uses_what_there_is(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    names = imported_names(tree)
    for node in ast.walk(tree):
        try:
            if isinstance(node, ast.Attribute):
                resolved(node, names)
            elif isinstance(node, ast.Call) and callable(target := resolved(node.func, names)):
                check_call(node, target)
        except (AttributeError, ImportError, TypeError) as error:
            pytest.fail(f"{script.name}, line {node.lineno}: {error}")
