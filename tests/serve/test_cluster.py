"""Workers on other machines: two nodes of a Ray cluster predict for one server, and a lost node loses no case."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veloxseg.files import sha256
from veloxseg.predict.predictor import segment
from veloxseg.serve import Client


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


def send(client: Client, scans: dict[str, Path], count: int) -> list[str]:
    sent = []
    for _ in range(count):
        sent.append(client.create())
        for path in scans.values():
            client.upload(sent[-1], path)
        client.start(sent[-1])
    return sent


def masks(client: Client, cases: list[str], folder: Path) -> set[str]:
    for case in cases:
        client.download(case, "mask.nii.gz", folder / f"{case}.nii.gz")
    return {sha256(folder / f"{case}.nii.gz") for case in cases}


def test_two_nodes_predict_for_one_server(nodes, serve, scans, quick_model, wait_until, log_lines, tmp_path) -> None:
    """All masks are those of one machine, also after a node was lost in the middle."""
    segment(scans, quick_model, threads=1).save(tmp_path / "known.nii.gz")
    lost = nodes.add_node(num_cpus=1)
    running = serve("--ray", nodes.address)
    client = Client(running.url)
    wait_until(lambda: client.request("GET", "/readyz")["ready"] if ready(client) else False)
    sent = send(client, scans, 9)
    wait_until(lambda: sum(case["state"] == "done" for case in client.cases()) >= 2)
    nodes.remove_node(lost, allow_graceful=False)
    wait_until(lambda: all(case["state"] == "done" for case in client.cases()), 200)
    assert {case["id"] for case in client.cases()} == set(sent)
    assert masks(client, sent, tmp_path) == {sha256(tmp_path / "known.nii.gz")}
    log = log_lines(running.stop())
    assert next(line["places"] for line in log if line["event"] == "cluster") == 3
    assert log[-1]["event"] == "server stopped"


def ready(client: Client) -> bool:
    try:
        client.request("GET", "/readyz")
    except Exception:
        return False
    return True


def test_a_cluster_that_is_not_there_ends_the_server_with_one_line(serve) -> None:
    pytest.importorskip("ray", reason="needs the extra ray; `make test-ray` has it")
    running = serve("--ray", "127.0.0.1:1")
    assert running.process.wait(60) == 2
    assert "error: no Ray cluster to be had" in running.stop()
