"""Words never stop the work."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, time
from veloxseg.console import progress, say, warn
say("first")
time.sleep(0.5)
for number in progress(range(3), "counting"):
    say(f"line {number}")
    warn(f"warning {number}")
open(sys.argv[1], "w").write("done")
"""


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_pipe_that_nobody_reads_any_more_is_no_error(closed: str, tmp_path: object) -> None:
    target = f"{tmp_path}/done"
    command = [sys.executable, "-c", SCRIPT, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        (process.stdout if closed == "stdout" else process.stderr).close()
        other = (process.stderr if closed == "stdout" else process.stdout).read()
        assert process.wait(timeout=60) == 0
    with open(target, encoding="utf-8") as file:
        assert file.read() == "done"
    assert (b"warning 2" if closed == "stdout" else b"line 2") in other  # the other one still works
    assert b"Traceback" not in other
