"""Files are whole or not there, also after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from veloxseg import files
from veloxseg.errors import ModelError, OutputError
from veloxseg.files import atomic_path, claimed, read_json, writable_folder, write_json

KILLED = """
import os, sys
from veloxseg.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.name == "nt", reason="no signals")
def test_what_a_killed_process_left_is_gone_when_the_folder_is_used_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "mask.nii.gz")])
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".part-")
    os.utime(left, (0, 0))
    with atomic_path(tmp_path / "other.txt") as living:  # of a process that is at work
        os.utime(living, (0, 0))
        writable_folder(tmp_path)
        assert list(tmp_path.iterdir()) == [living]


def test_json_nested_beyond_reason_gives_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ModelError, match="not valid JSON"):
        read_json(path)


def test_a_claimed_folder_is_refused_until_its_owner_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CLAIM_SECONDS", 0.0)
    code = (
        "import sys, time\nfrom veloxseg.files import claimed\n"
        "with claimed(sys.argv[1]):\n    print('mine', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        with pytest.raises(OutputError, match="another process is at work"), claimed(tmp_path):
            pass
        owner.kill()
    with claimed(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_json_holds_names_that_are_no_unicode(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")  # a name in latin-1, as old archives have them
    write_json(tmp_path / "a.json", {"name": name, "é": 1})
    assert (tmp_path / "a.json").read_bytes().decode("utf-8")
    assert read_json(tmp_path / "a.json") == {"name": name, "é": 1}
