"""Optional parts: the extras of `pip install 'veloxseg[…]'`, and the one line where something of them is missing.

The core reads, checks, prepares, predicts, evaluates and reports. Whatever needs more asks `require` before it imports,
so that a missing package is an error of one line that names the extra, on the command line and in a program alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from veloxseg.errors import MissingDependencyError, shown

__all__ = ["EXTRAS", "Extra", "installed", "missing_package", "require", "without"]


@dataclass(frozen=True)
class Extra:
    """One line of the table."""

    modules: tuple[str, ...]  # what is imported
    purpose: str


EXTRAS = {
    "train": Extra(("torch", "lightning_fabric", "rich"), "training, benchmark, runtime torch, export to graphs"),
    "openvino": Extra(("openvino",), "runtime openvino"),
    "onnx": Extra(("onnxruntime", "onnx", "onnxscript"), "runtime onnx"),
    "itk": Extra(("SimpleITK",), "registration, DICOM with JPEG pixels"),
    "serve": Extra(("starlette", "uvicorn", "pynetdicom"), "veloxseg serve"),
    "monai": Extra(("monai",), "the peers that come from MONAI"),
    "tensorboard": Extra(("tensorboardX",), "curves of a training in TensorBoard"),
    "inspect": Extra(("sklearn",), "inspect features: t-SNE"),
    "ray": Extra(("ray",), "predict --ray"),
    "nnunet": Extra(("nnunetv2",), "training inside nnU-Net"),
}
# module → what pip calls it, where that differs
PACKAGES = {"PIL": "Pillow", "lightning_fabric": "lightning-fabric", "sklearn": "scikit-learn"}


def without(*modules: str) -> list[str]:
    """Those of the modules that are not installed."""
    return [module for module in modules if not _is_there(module)]


def installed() -> dict[str, bool]:
    """Whether all packages of each extra are there; nothing is imported."""
    return {name: not without(*extra.modules) for name, extra in EXTRAS.items()}


def require(extra: str, what: str, modules: Sequence[str] = ()) -> None:
    """Raises the one line unless the packages of an extra, or those `modules` of it, are there.

    >>> require("itk", "registration")  # doctest: +SKIP
    MissingDependencyError: registration needs SimpleITK, which is not installed; pip install 'veloxseg[itk]'
    """
    if missing := without(*(modules or EXTRAS[extra].modules)):
        raise _line(what, missing, extra)


def missing_package(error: ImportError, what: str = "this") -> MissingDependencyError | None:
    """The line for a package that cannot be imported, wherever that is met; None for a fault of our own."""
    module = (error.name or "").partition(".")[0]
    if module in ("", "veloxseg"):
        return None
    extra = next((name for name, extra in EXTRAS.items() if module in extra.modules), None)
    if isinstance(error, ModuleNotFoundError):
        return _line(what, [module], extra)
    return MissingDependencyError(f"{module} cannot be imported ({shown(error, 200)}); install it again")


def _line(what: str, modules: list[str], extra: str | None) -> MissingDependencyError:
    packages = [PACKAGES.get(module, module) for module in modules]
    remedy = f"'veloxseg[{extra}]'" if extra else " ".join(packages)
    verb = "is" if len(packages) == 1 else "are"
    return MissingDependencyError(f"{what} needs {_listed(packages)}, which {verb} not installed; pip install {remedy}")


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a module that was put into sys.modules by hand
        return False
