"""A Ray cluster gives what one machine gives: the same files, the same failures, and nothing lost with a node."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veloxseg.cli import main
from veloxseg.errors import ClusterError
from veloxseg.image import write
from veloxseg.predict import cluster
from veloxseg.predict.batch import Wanted
from veloxseg.predict.cluster import ATTEMPTS, Job, Worker
from veloxseg.predict.inputs import find_cases
from veloxseg.predict.outputs import Targets
from veloxseg.predict.predictor import Options

VARYING = ("seconds", "peak_memory_mb")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two nodes of one core, as processes of this machine."""
    pytest.importorskip("ray", reason="needs the extra ray; `make test-ray` has it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        made = Cluster()
        try:
            made.add_node(num_cpus=1, include_dashboard=False)
            made.add_node(num_cpus=1)
            yield made
        finally:
            made.shutdown()


@pytest.fixture
def folder(tmp_path: Path, make_scans) -> Path:
    """Five cases in nnU-Net naming, the second of which is broken."""
    target = tmp_path / "in put"
    target.mkdir()
    for number in range(5):
        for channel, volume in enumerate(make_scans((48, 40, 30), seed=number).values()):
            write(volume, target / f"case{number}_{channel:04d}.nii.gz")
    broken = target / "case1_0001.nii.gz"
    broken.write_bytes(broken.read_bytes()[:1000])
    return target


@pytest.fixture
def job(exported, tmp_path: Path) -> Job:
    (tmp_path / "out").mkdir()
    return Job(
        models=(exported["openvino"],),
        runtime="openvino",
        threads=1,
        options=Options(),
        output=tmp_path / "out",
        wanted=Wanted(),
    )


def command(model: Path, folder: Path, output: Path, *more: str) -> list[str]:
    arguments = ["predict", "-m", str(model), "-i", str(folder), "-o", str(output), "--threads", "1", *more]
    return [sys.executable, "-m", "veloxseg", *arguments]


def records(output: Path) -> dict[str, Any]:
    """What the JSON files say, but for times and memory."""
    found = {path.name: json.loads(path.read_text()) for path in output.glob("*.json")}
    return {name: {key: value for key, value in record.items() if key not in VARYING} for name, record in found.items()}


def test_two_nodes_give_the_files_of_one_machine(nodes, exported, folder, tmp_path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    local = subprocess.run(command(exported["openvino"], folder, here), capture_output=True, text=True)
    spread = subprocess.run(
        command(exported["openvino"], folder, there, "--ray", nodes.address), capture_output=True, text=True
    )
    assert local.returncode == spread.returncode == 2
    assert "2 workers on 2 nodes" in spread.stdout
    assert spread.stderr == local.stderr  # one failure, told as it happened and at the end, and no word of Ray's
    assert "1 of 5 cases failed" in spread.stderr
    assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}
    for mask in here.glob("*.nii.gz"):
        assert (there / mask.name).read_bytes() == mask.read_bytes()
    assert records(there) == records(here)

    # started again, only the failed case is tried
    again = subprocess.run(
        command(exported["openvino"], folder, there, "--ray", nodes.address), capture_output=True, text=True
    )
    assert again.returncode == 2
    assert "4 of 5 cases are done already" in again.stdout
    assert "1 workers" in again.stdout


# a job of another class travels to the workers whole; its predictor is a place to die in
FATAL = """
import json, os, time
from pathlib import Path
import ray
from veloxseg.predict.batch import Wanted
from veloxseg.predict.inputs import find_cases
from veloxseg.predict.cluster import Job, predict_on_cluster
from veloxseg.predict.predictor import Options, Predictor

held = Path({held!r})

class Fatal(Predictor):
    def __call__(self, scans, progress=None):
        if ray.get_runtime_context().get_node_id() == {lost!r}:
            held.touch()
            time.sleep(600)
        while not held.exists():
            time.sleep(0.05)
        if any("case3" in str(path) for path in scans.sources.values()):
            os._exit(1)
        return super().__call__(scans, progress)

class FatalJob(Job):
    def open(self):
        return Fatal(self.models, runtime=self.runtime, threads=self.threads, options=self.options)

job = FatalJob(models=(Path({model!r}),), runtime="openvino", threads=1, options=Options(), output=Path({output!r}),
               wanted=Wanted())
cases = find_cases([{folder!r}], ("ct", "pet"))
print(json.dumps(predict_on_cluster({address!r}, job, cases)))
"""


def test_a_lost_node_and_a_fatal_case_cost_nothing_else(nodes, exported, folder, tmp_path) -> None:
    """The case of a lost node is done by another; one that ends every process that reads it is given up."""
    lost = nodes.add_node(num_cpus=1)
    output, held = tmp_path / "out", tmp_path / "held"
    program = FATAL.format(
        model=str(exported["openvino"]),
        folder=str(folder),
        output=str(output),
        held=str(held),
        lost=lost.node_id,
        address=nodes.address,
    )
    process = start([sys.executable, "-c", program])
    wait_for(held.exists, process)
    nodes.remove_node(lost, allow_graceful=False)  # in the middle of a case
    said, warned = process.communicate(timeout=200)
    assert held.exists()
    assert json.loads(said.splitlines()[-1]).keys() == {"case1", "case3"}, warned
    assert f"case3: its worker died {ATTEMPTS} times" in warned
    assert {path.name for path in output.glob("*.nii.gz")} == {f"case{n}.nii.gz" for n in (0, 2, 4)}


def test_an_interrupt_ends_the_work_on_all_nodes(nodes, exported, make_scans, tmp_path) -> None:
    folder, output = tmp_path / "large", tmp_path / "out"
    folder.mkdir()
    for channel, volume in enumerate(make_scans((160, 140, 100)).values()):  # many windows: seconds for each case
        for number in range(6):
            write(volume, folder / f"case{number}_{channel:04d}.nii.gz")
    process = start(command(exported["openvino"], folder, output, "--ray", nodes.address))
    wait_for(lambda: bool(masks(output)), process)
    process.send_signal(signal.SIGINT)
    _, warned = process.communicate(timeout=60)
    assert process.returncode == 130
    assert warned == "stopped\n"
    done = masks(output)
    assert len(done) < 6
    time.sleep(3)  # longer than a case takes
    assert masks(output) == done


def start(arguments: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def masks(output: Path) -> list[Path]:
    return sorted(output.glob("[!.]*.nii.gz"))


def test_what_a_node_lacks_is_one_line(job, folder, tmp_path) -> None:
    seen = [*job.models, *find_cases([str(folder)], ("ct", "pet"))[0].images.values()]
    mark = job.output / "mark"
    mark.touch()
    assert cluster._trouble(job, "openvino", seen, mark, cluster.__version__) == ""
    assert "does not see what is written" in cluster._trouble(
        job, "openvino", seen, tmp_path / "elsewhere" / "mark", cluster.__version__
    )
    assert "0.0.1 is expected" in cluster._trouble(job, "openvino", seen, mark, "0.0.1")
    assert "onnx is expected" in cluster._trouble(job, "onnx", seen, mark, cluster.__version__)
    seen[1].unlink()
    assert "case0_0000.nii.gz; put models and scans" in cluster._trouble(
        job, "openvino", seen, mark, cluster.__version__
    )


def test_workers_fit_cores_and_memory() -> None:
    def node(cores: float, gib: float) -> dict[str, Any]:
        return {"Resources": {"CPU": cores, "memory": gib * (1 << 30)}}

    assert cluster.room([node(8, 64), node(4, 3)], threads=2, gib=1.5) == 4 + 2
    assert cluster.room([node(8, 64), {"Resources": {}}], threads=1, gib=0) == 8
    with pytest.raises(ClusterError, match=r"16 cores and 1\.0 GiB, and no node has both"):
        cluster.room([node(8, 64)], threads=16, gib=1)


def test_a_repeated_case_is_given_up(job, folder, monkeypatch) -> None:
    """A worker that finds its case begun too often before reports that instead of dying of it too."""

    class Ray:
        @staticmethod
        def get(value: int) -> int:
            return value

    class Begun:
        class begin:
            @staticmethod
            def remote(name: str) -> int:
                return ATTEMPTS + 1

    monkeypatch.setitem(sys.modules, "ray", Ray)
    target = Targets.of(job.output / "case0.nii.gz", (), ())
    report = Worker(job, Begun)({"case": find_cases([str(folder)], ("ct", "pet"))[0], "target": target})
    assert report["case"] == "case0"
    assert f"died {ATTEMPTS} times" in report["failure"]
    assert not list(job.output.iterdir())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--ray", "auto"], "pip install 'veloxseg[ray]'"),
        (["--ray", "ray://head:10001"], "--ray auto"),
        (["--ray", "auto", "--device", "cuda"], "leave --device out"),
        (["--ray", "auto", "-o", "mask.nii.gz"], "give a folder"),
    ],
)
def test_what_cannot_be_is_one_line(more, message, exported, folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    arguments = ["predict", "-m", str(exported["openvino"]), "-i", str(folder), "-o", str(tmp_path / "out")]
    assert main([*arguments, *more, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_cluster_that_does_not_answer(exported, folder, tmp_path) -> None:
    pytest.importorskip("ray")
    process = subprocess.run(
        command(exported["openvino"], folder, tmp_path / "out", "--ray", "127.0.0.1:1", "--quiet"),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2
    assert "no Ray cluster to be had at '127.0.0.1:1'" in process.stderr
    assert process.stderr.count("\n") == 1
