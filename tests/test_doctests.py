"""The examples in the docstrings are run, with torch at hand."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import manyheads

MODULES = [module.name for module in pkgutil.walk_packages(manyheads.__path__, "manyheads.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(
        module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
