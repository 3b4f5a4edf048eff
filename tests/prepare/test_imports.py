"""Preparing, which prediction uses too, works without torch."""

import subprocess
import sys


def test_prepare_imports_without_torch() -> None:
    code = (
        "import importlib, pkgutil, sys, veloxseg.prepare as p\n"
        "for m in pkgutil.walk_packages(p.__path__, 'veloxseg.prepare.'):\n"
        "    importlib.import_module(m.name)\n"
        "heavy = {'torch', 'SimpleITK', 'matplotlib', 'scipy', 'pydicom', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
