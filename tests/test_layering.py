"""Lines that hold: what is light stays light, and imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import veloxseg
from veloxseg.cli import VERBS

SOURCE = Path(veloxseg.__file__).parent
# each may import what stands before it
ORDER = (
    *("errors", "extras", "types", "files", "schema", "console", "machine", "modality", "tasks", "workers"),
    *("image", "dataset", "kernels", "model", "peers", "prepare", "shipped", "model_folder"),
    *("runtimes", "predict", "evaluate", "train"),
    *("phantom", "reference", "nnunet", "benchmark", "study", "inspect", "serve", "cli"),
)


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has imported after running `code`."""
    program = f"import sys\n{code}\nprint('MODULES', *{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("MODULES"))
    return set(line.split()[1:])


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_after("import veloxseg").isdisjoint({"torch", "numpy", "scipy", "SimpleITK", "monai", "rich"})


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_does_not_import_torch(verb: str) -> None:
    arguments = [verb, "--help"] if verb else ["--help"]
    code = f"from veloxseg.cli import main\ntry: main({arguments})\nexcept SystemExit: pass"
    assert modules_after(code).isdisjoint({"torch", "monai", "SimpleITK", "openvino", "matplotlib", "scipy"})


def test_presets_need_no_torch() -> None:
    assert "torch" not in modules_after("import veloxseg; veloxseg.preset('b')")


@pytest.mark.parametrize("package", ["image", "dataset", "prepare", "runtimes", "predict", "evaluate", "serve"])
def test_packages_import_without_torch(package: str) -> None:
    assert "torch" not in modules_after(f"import veloxseg.{package}")


def imported(path: Path) -> set[str]:
    """Sub-packages and root modules of ours that a file imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "veloxseg":
            names.update(alias.name for alias in node.names if alias.name in ORDER)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("veloxseg."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("veloxseg."))
    return names


def files_of(name: str) -> list[Path]:
    return sorted((SOURCE / name).rglob("*.py")) or [SOURCE / f"{name}.py"]


def test_the_order_names_every_folder_and_root_module() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(ORDER) == found - {"__init__", "__main__"}


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_one_way(name: str) -> None:
    later = set(ORDER[ORDER.index(name) + 1 :])
    found = {str(path.relative_to(SOURCE)): imported(path) & later for path in files_of(name)}
    assert {file: names for file, names in found.items() if names} == {}


def test_the_model_knows_nothing_of_files() -> None:
    for path in (SOURCE / "model").glob("*.py"):
        assert imported(path) <= {"model", "kernels", "errors", "types", "schema"}, path.name
