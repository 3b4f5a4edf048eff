"""An input that cannot be a path is refused in one line."""

import pytest

from veloxseg.errors import ConfigError, DatasetError
from veloxseg.predict.inputs import find_cases


@pytest.mark.parametrize("path", ["x" * 5000, "ct=" + "x" * 5000, "x/" * 3000, "a\0b", "ct=a\0b"])
def test_a_path_that_no_file_can_have_is_one_line(path: str) -> None:
    with pytest.raises((ConfigError, DatasetError)) as caught:
        find_cases([path, "pet=x"] if "=" in path else [path], ("ct", "pet"))
    assert len(str(caught.value)) < 400
