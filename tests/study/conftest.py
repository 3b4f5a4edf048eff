"""A phantom of few small cases, prepared, for studies and inspections."""

from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.console import set_quiet


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    set_quiet(False)
    for command in (
        "phantom data --cases 5 --size 40 32 40",
        "prepare data -o prepared --patch 32 32 32 --workers 0 --folds 2",
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert main(command.split()) == 0, command
    return folder / "prepared"
