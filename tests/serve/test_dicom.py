"""The DICOM node with real slices: what is sent in whatever way ends in its named state, and results come out once."""

import gc
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.certificates import make_certificate
from veloxseg.image import read_label
from veloxseg.predict.predictor import segment
from veloxseg.serve import Client

pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")
pynetdicom = pytest.importorskip("pynetdicom", reason="needs the extra serve; `make test-serve` has it")
pytestmark = [
    pytest.mark.shared,
    # pynetdicom leaves sockets of refused associations to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
COMMITMENT = "1.2.840.10008.1.20.1"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def study(shared: Path) -> dict[str, list[Path]]:
    """The slices of one patient, CT and PET."""
    root = shared / "data" / "sts_dicom" / "STS_002"
    return {name: sorted((root / folder / "image").iterdir()) for name, folder in (("ct", "CT"), ("pet", "PET"))}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def node(serve) -> Callable[..., tuple[Client, int, Any]]:
    """A server with a DICOM node that takes slices from TESTER on this machine."""

    def start(*more: str, quiet: float = 0.5, patience: float = 4.0) -> tuple[Client, int, Any]:
        port = free_port()
        options = ("--dicom", f"VELOXSEG:{port}", "--allow", "TESTER@127.0.0.1", "--allow", "PACS@127.0.0.1")
        options += ("--allow", "ELSEWHERE@127.0.0.9")
        timing = ("--study-quiet", str(quiet), "--study-patience", str(patience))
        running = serve(*options, *timing, *more)
        return Client(running.url), port, running

    return start


def associate(port: int, *, called: str = "VELOXSEG", calling: str = "TESTER", more: tuple[str, ...] = ()) -> Any:
    entity = pynetdicom.AE(ae_title=calling)
    entity.acse_timeout = entity.dimse_timeout = 30
    for uid in ("1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.128", "1.2.840.10008.1.1", *more):
        entity.add_requested_context(uid, ["1.2.840.10008.1.2.1", "1.2.840.10008.1.2"])
    return entity.associate("127.0.0.1", port, ae_title=called)


def send(port: int, files: list[Path], **how: Any) -> list[int]:
    association = associate(port, **how)
    assert association.is_established
    statuses = [association.send_c_store(str(path)).Status for path in files]
    association.release()
    return statuses


def only(client: Client) -> dict[str, Any]:
    (case,) = client.cases()
    return case


def becomes(client: Client, state: str, wait_until: Callable[..., Any]) -> dict[str, Any]:
    wait_until(lambda: [case["state"] for case in client.cases()] == [state], 90)
    return client.wait(only(client)["id"]) if state == "done" else only(client)


def test_a_study_over_two_associations_one_of_them_aborted_is_one_case(
    node, study, quick_model, wait_until, tmp_path: Path
) -> None:
    client, port, running = node()
    first, second = associate(port), associate(port)
    for path in study["ct"]:
        assert first.send_c_store(str(path)).Status == 0
    for path in study["pet"][:20]:
        assert second.send_c_store(str(path)).Status == 0
    first.release()
    time.sleep(2)  # quiet, but an association that feeds the study is open
    assert only(client)["state"] == "receiving"
    second.abort()
    time.sleep(1)
    assert send(port, study["pet"]) == [0] * len(study["pet"])  # some of them for the second time
    case = becomes(client, "done", wait_until)
    client.download(case["id"], "mask.nii.gz", tmp_path / "mask.nii.gz")
    expected = segment({name: files[0].parent for name, files in study.items()}, quick_model, threads=1)
    assert np.array_equal(read_label(tmp_path / "mask.nii.gz").array, expected.array)
    log = running.stop()
    assert "STS_002" not in log
    assert "internal error" not in log


def test_ct_alone_is_incomplete_in_the_end_and_pet_completes_it(node, study, wait_until) -> None:
    client, port, _ = node(patience=2.0)
    send(port, study["ct"])
    case = becomes(client, "incomplete", wait_until)
    assert "pet is missing" in case["message"]
    send(port, study["pet"])
    becomes(client, "done", wait_until)


def test_a_missing_slice_is_waited_for(node, study, wait_until) -> None:
    client, port, _ = node(patience=60.0)
    late = study["ct"][10]
    send(port, [path for path in (*study["ct"], *study["pet"]) if path != late])
    wait_until(lambda: only(client)["found"])
    assert only(client)["state"] == "receiving"
    send(port, [late])
    becomes(client, "done", wait_until)


def test_a_slice_that_comes_again_changes_nothing(node, study, wait_until) -> None:
    client, port, _ = node()
    send(port, [*study["ct"], *study["pet"]])
    before = becomes(client, "done", wait_until)
    send(port, study["ct"][:3])
    time.sleep(2)
    after = only(client)
    assert (after["state"], after["revision"]) == ("done", before["revision"])


def test_a_slice_that_comes_late_makes_a_new_revision(node, study, wait_until) -> None:
    """The PET was one slice short at its end, which no gap tells; the whole study is done once more."""
    client, port, _ = node()
    last = lowest(study["pet"])
    send(port, [path for path in (*study["ct"], *study["pet"]) if path != last])
    before = becomes(client, "done", wait_until)
    send(port, [last])
    wait_until(lambda: (only(client)["state"], only(client)["revision"]) == ("done", before["revision"] + 1), 90)
    (pet,) = (one for one in only(client)["found"] if one["role"] == "pet")
    assert pet["text"].endswith(f"{len(study['pet'])} files")


def lowest(files: list[Path]) -> Path:
    """The slice at one end of a series."""
    from pydicom import dcmread

    return min(files, key=lambda path: dcmread(path, stop_before_pixels=True).ImagePositionPatient[2])


def test_two_pets_are_for_the_user_to_choose(node, study, wait_until, tmp_path: Path) -> None:
    from pydicom import dcmread
    from pydicom.uid import generate_uid

    client, port, _ = node()
    copies, series = [], generate_uid()
    for path in study["pet"]:
        slice_ = dcmread(path)
        slice_.SeriesInstanceUID, slice_.SOPInstanceUID = series, generate_uid()
        slice_.file_meta.MediaStorageSOPInstanceUID = slice_.SOPInstanceUID
        copies.append(tmp_path / path.name)
        slice_.save_as(copies[-1])
    send(port, [*study["ct"], *study["pet"], *copies])
    case = becomes(client, "choose", wait_until)
    assert "2 scans could be the pet" in case["message"]
    pet = next(one["key"] for one in case["found"] if one["role"] == "pet")
    ct = next(one["key"] for one in case["found"] if one["role"] == "ct")
    client.choose(case["id"], {"ct": ct, "pet": pet})
    becomes(client, "done", wait_until)


def test_strangers_are_turned_away_and_the_log_says_why(node, log_lines) -> None:
    client, port, running = node()
    assert not associate(port, called="OTHER").is_established
    assert not associate(port, calling="STRANGER").is_established
    assert not associate(port, calling="ELSEWHERE").is_established
    echo = associate(port)
    assert echo.send_c_echo().Status == 0
    echo.release()
    for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x01\x00\xff\xff\xff\xff" + bytes(100)):
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(noise)
    assert associate(port).is_established
    assert client.cases() == []
    wrong = [line["wrong"] for line in log_lines(running.stop()) if line["event"] == "DICOM association refused"]
    assert wrong == ["called AE title", "calling AE title", "address"]


@pytest.fixture
def pacs() -> Iterator[Any]:
    """Another node that keeps what it is sent, and promises so over an association of its own."""
    kept: dict[str, Any] = {"port": free_port(), "received": [], "promise_to": None, "refuse": 0}

    def store(event: Any) -> int:
        if kept["refuse"]:
            kept["refuse"] -= 1
            return 0xA700
        kept["received"].append(event.dataset)
        return 0

    def promise(event: Any) -> tuple[int, None]:
        asked = event.action_information
        kept["asked"] = asked
        return 0, None

    entity = pynetdicom.AE(ae_title="PACS")
    entity.supported_contexts = pynetdicom.StoragePresentationContexts
    entity.add_supported_context(COMMITMENT)
    handlers = [(pynetdicom.evt.EVT_C_STORE, store), (pynetdicom.evt.EVT_N_ACTION, promise)]
    listener = entity.start_server(("127.0.0.1", kept["port"]), block=False, evt_handlers=handlers)
    yield kept
    listener.shutdown()


def report(port: int, asked: Any) -> None:
    """The PACS connects to us and reports what it keeps."""
    entity = pynetdicom.AE(ae_title="PACS")
    entity.add_requested_context(COMMITMENT)
    role = pynetdicom.build_role(COMMITMENT, scp_role=True)
    association = entity.associate("127.0.0.1", port, ae_title="VELOXSEG", ext_neg=[role])
    assert association.is_established
    status, _ = association.send_n_event_report(asked, 1, COMMITMENT, "1.2.840.10008.1.20.1.1")
    assert status.Status == 0
    association.release()


def test_results_are_sent_once_and_committed(node, study, pacs, wait_until) -> None:
    """The PACS refuses at first, then keeps; its promise ends the way of an object. Our own SEG is never input."""
    pacs["refuse"] = 1
    client, port, _ = node("--send", f"PACS@127.0.0.1:{pacs['port']}", "--objects", "seg,sr,capture")
    send(port, [*study["ct"], *study["pet"]])
    case = becomes(client, "done", wait_until)
    wait_until(lambda: {one["state"] for one in only(client)["outbox"]} == {"sent"} and len(pacs["received"]) == 3)
    assert [str(one.Modality) for one in pacs["received"]].count("SEG") == 1
    seg = next(one for one in pacs["received"] if one.Modality == "SEG")
    assert seg.SeriesDescription == "VeloxSeg segmentation, research use only"
    report(port, pacs["asked"])
    committed = [one["state"] for one in only(client)["outbox"]]
    assert "committed" in committed
    before = {str(one.SOPInstanceUID) for one in pacs["received"]}
    client.request("POST", f"/api/cases/{case['id']}/send")
    wait_until(lambda: len(pacs["received"]) == 6)
    assert {str(one.SOPInstanceUID) for one in pacs["received"]} == before
    revision = only(client)["revision"]
    seg.file_meta = pynetdicom.dsutils.create_file_meta(
        sop_class_uid=seg.SOPClassUID, sop_instance_uid=seg.SOPInstanceUID, transfer_syntax="1.2.840.10008.1.2.1"
    )
    association = associate(port, more=(str(seg.SOPClassUID),))
    assert association.send_c_store(seg).Status == 0
    association.release()
    time.sleep(2)
    assert (only(client)["state"], only(client)["revision"]) == ("done", revision)


def test_the_outbox_outlives_the_server(node, study, wait_until, serve) -> None:
    """Nobody listens at the target; the server is killed; a PACS comes up; the next server delivers."""
    import signal

    target = free_port()
    client, port, running = node("--send", f"PACS@127.0.0.1:{target}")
    send(port, [*study["ct"], *study["pet"]])
    becomes(client, "done", wait_until)
    wait_until(lambda: any(one["attempts"] for one in only(client)["outbox"]))
    running.stop(signal.SIGKILL)
    received: list[str] = []

    def store(event: Any) -> int:
        received.append(str(event.dataset.SOPInstanceUID))
        return 0

    entity = pynetdicom.AE(ae_title="PACS")
    entity.supported_contexts = pynetdicom.StoragePresentationContexts
    handlers = [(pynetdicom.evt.EVT_C_STORE, store)]
    listener = entity.start_server(("127.0.0.1", target), block=False, evt_handlers=handlers)
    try:
        client, _, _ = node("--send", f"PACS@127.0.0.1:{target}")
        wait_until(lambda: [one["state"] for one in only(client)["outbox"]] == ["sent"], 60)
        assert len(received) == 1
        assert "no storage commitment" in only(client)["outbox"][0]["message"]
    finally:
        listener.shutdown()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_mutual_tls(node, tmp_path: Path) -> None:
    """A node that shows a certificate of our authority is heard, one without is not."""
    import ssl

    certificate, key = make_certificate(tmp_path, "node")
    _, port, _ = node("--dicom-tls", str(certificate), str(key), str(certificate))
    assert not associate(port).is_established
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificate)
    entity = pynetdicom.AE(ae_title="TESTER")
    entity.add_requested_context("1.2.840.10008.1.1")
    stranger = entity.associate("127.0.0.1", port, ae_title="VELOXSEG", tls_args=(context, None))
    assert not stranger.is_established
    context.load_cert_chain(certificate, key)
    known = entity.associate("127.0.0.1", port, ae_title="VELOXSEG", tls_args=(context, None))
    assert known.is_established
    assert known.send_c_echo().Status == 0
    known.release()
