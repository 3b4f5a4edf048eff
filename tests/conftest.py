"""What all tests share: the real data's folder, and threads that do not fight over two cores."""

import os
from pathlib import Path

import pytest

# before torch and numpy are imported: tests run in two processes, one thread each
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(os.environ.get("VELOXSEG_SHARED", Path(__file__).parents[1] / ".." / "shared")).resolve()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not SHARED.is_dir():
        skip = pytest.mark.skip(reason="the real data (VELOXSEG_SHARED, default ../shared) is not here")
        for item in items:
            if "shared" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data, golden tensors and the specification."""
    return SHARED
