"""The examples in the docstrings are right."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["labels", "report.html", "metrics", "report.sections"])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"veloxseg.evaluate.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
