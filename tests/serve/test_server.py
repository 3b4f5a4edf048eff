"""The server as a process: the API, its limits, and what it survives."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from veloxseg.errors import ImageError
from veloxseg.files import sha256
from veloxseg.serve import Client
from veloxseg.serve.client import Refused

pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")


def raw(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(line):
        line.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = line.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def test_a_case_by_the_client(serve, scans, model, tmp_path: Path, log_lines) -> None:
    """Upload, mask, edit, comparison and all files; then the logs are searched for what they must not hold."""
    running = serve()
    client = Client(running.url)
    secret = scans["ct"].rename(tmp_path / "Mustermann_Erika_CT.nii.gz")
    case = client.segment([secret, scans["pet"]], title="Erika Mustermann")
    told = client.case(case)
    assert (told["state"], told["title"]) == ("done", "Erika Mustermann")
    client.download(case, "mask.nii.gz", tmp_path / "mask.nii.gz")
    lesion = client.statistics(case)["labels"]["label1"]["lesions"][0]
    before = client.statistics(case)["labels"]["label1"]["volume_ml"]
    assert client.edit(case, [{"op": "erase", "voxel": lesion["voxel"]}])["revision"] == 1
    after = client.statistics(case)["labels"]["label1"]["volume_ml"]
    assert after == pytest.approx(before - lesion["volume_ml"], abs=1e-3)
    for name in ("report.html", "preview.png", "lesions.csv", "record.json"):
        client.download(case, name, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 50
    with pytest.raises(Refused, match="belongs to a DICOM series"):
        client.download(case, "seg.dcm", tmp_path / "seg.dcm")
    client.request("PUT", f"/api/cases/{case}/reference/truth.nii.gz", (tmp_path / "mask.nii.gz").read_bytes())
    client.wait(case)
    assert client.request("GET", f"/api/cases/{case}/view")["compare"]["labels"]["label1"]["dice"] < 1
    client.delete(case)
    with pytest.raises(Refused, match="there is no case"):
        client.case(case)
    log = running.stop()
    assert running.process.returncode == 0
    assert log_lines(log)[-1]["event"] == "server stopped"
    assert "internal error" not in log
    for word in ("Mustermann", "Erika", str(tmp_path), "_CT"):
        assert word not in log


def test_scans_can_be_opened_from_the_command_line_and_are_one_case(serve, scans, wait_until) -> None:
    opened = [word for path in scans.values() for word in ("--open", str(path))]
    for _ in range(2):  # the second time the case is there already
        running = serve(*opened)
        client = Client(running.url)
        wait_until(lambda client=client: [case["state"] for case in client.cases()] == ["done"])
        running.stop()


def test_health_needs_no_token_and_everything_else_does(serve, wait_until) -> None:
    port = serve().port
    assert raw(port, "GET", "/healthz")[0] == 200
    assert raw(port, "GET", "/api/cases")[0] == 401
    assert raw(port, "GET", "/healthz", host="evil.example")[0] == 403
    assert raw(port, "GET", "/page/../../store.sqlite")[0] in (401, 404)
    assert raw(port, "GET", "/page/..%2f..%2fstore.sqlite")[0] == 404
    wait_until(lambda: raw(port, "GET", "/readyz")[0] == 200)


def test_names_of_files_lead_nowhere_and_stay_out_of_the_log(serve, tmp_path: Path, wait_until) -> None:
    """Names that climb, are absolute, or are a patient's: stored under names of ours, and never logged."""
    running = serve()
    bearer = {"authorization": f"Bearer {running.token}"}
    client = Client(running.url)
    case = client.create(title="Doe^Jane")
    names = [
        "..%2f..%2f..%2fDoe_Jane.nii.gz",
        "%2fetc%2fDoe.nii",
        "....//Doe.dcm",
        "a%2f..%2f..%2fDoe.zip",
        "..%5cDoe.nrrd",
    ]
    for name in names:
        status, headers, _ = raw(running.port, "PUT", f"/api/cases/{case}/files/{name}", b"Doe" * 100, **bearer)
        assert status == 201, name
        assert not [header for header in headers if header.startswith("access-control")]  # there is no CORS
    assert raw(running.port, "PUT", f"/api/cases/{case}/files/a%00b", b"x", **bearer)[0] == 400
    stored = list((running.folder / "cases" / case / "in").iterdir())
    assert len(stored) == len(names)
    assert all(path.name.split(".")[0].isalnum() for path in stored)
    assert [path for path in tmp_path.rglob("*") if "doe" in path.name.lower()] == []
    client.start(case)
    wait_until(lambda: client.case(case)["state"] in ("failed", "incomplete"))
    for attack in ("", "Doe", "Basic Doe"):
        assert raw(running.port, "GET", "/api/cases/Doe", authorization=attack)[0] == 401
    assert raw(running.port, "GET", "/api/cases/Doe", **bearer)[0] == 404
    assert raw(running.port, "POST", "/api/cases", "{}", origin="http://doe.example", **bearer)[0] == 403
    log = running.stop()
    assert '"event": "request"' in log
    for word in ("doe", "jane", "/etc", str(tmp_path)):
        assert word not in log.lower()


def test_a_cookie_is_given_for_the_token(serve) -> None:
    running = serve()
    status, headers, _ = raw(running.port, "POST", "/api/session", authorization=f"Bearer {running.token}")
    cookie = headers["set-cookie"]
    assert status == 200
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert running.token not in cookie
    assert raw(running.port, "GET", "/api/cases", cookie=cookie.partition(";")[0])[0] == 200
    assert headers["content-security-policy"].startswith("default-src 'self'")


def test_etags_and_the_document(serve) -> None:
    running = serve()
    client, bearer = Client(running.url), {"authorization": f"Bearer {running.token}"}
    case = client.create()
    _, headers, _ = raw(running.port, "GET", f"/api/cases/{case}", **bearer)
    assert raw(running.port, "GET", f"/api/cases/{case}", if_none_match=headers["etag"], **bearer)[0] == 304
    assert client.request("GET", "/openapi.json")["openapi"] == "3.1.0"
    _, _, text = raw(running.port, "GET", "/metrics", **bearer)
    assert b'veloxseg_cases{state="receiving"} 1' in text


def test_a_full_queue_says_when_to_come_again(serve) -> None:
    running = serve("--queue", "2")
    client = Client(running.url)
    client.create()
    client.create()
    status, headers, body = raw(running.port, "POST", "/api/cases", "{}", authorization=f"Bearer {running.token}")
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert "2 cases are in line" in json.loads(body)["error"]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(serve) -> None:
    running = serve("--max-upload", "0.001")
    case = Client(running.url).create()
    bearer = {"authorization": f"Bearer {running.token}"}
    path = f"/api/cases/{case}/files/big.nii"
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as line:
        head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nAuthorization: {bearer['authorization']}\r\n"
        line.sendall(head.encode() + b"Content-Length: 10000000000\r\n\r\n")
        assert b" 413 " in line.recv(100)
    assert raw(running.port, "PUT", path, iter([b"x" * 100_000] * 20), **bearer)[0] == 413
    assert list((running.folder / "cases" / case / "in").iterdir()) == []


def test_a_full_disk_is_told_politely(serve) -> None:
    running = serve("--min-free", "1000000")
    with pytest.raises(Refused, match="nearly full") as refusal:
        Client(running.url).create()
    assert refusal.value.status == 507


def test_two_hundred_idle_connections_do_not_stop_it(serve) -> None:
    running = serve()
    lines = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(200)]
    try:
        for line in lines:
            line.sendall(b"GET /api/")  # and no more
        assert raw(running.port, "GET", "/healthz")[0] == 200
    finally:
        for line in lines:
            line.close()


@pytest.mark.slow
def test_clients_that_stall_are_let_go(serve) -> None:
    """One never ends its head, one never begins its body, one sends a byte now and then: all are closed in the end."""
    running = serve()
    case = Client(running.url).create()
    head = (
        f"PUT /api/cases/{case}/files/a.nii HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n"
        f"Authorization: Bearer {running.token}\r\nContent-Length: 1000\r\n\r\n"
    ).encode()
    began = time.monotonic()
    lines = [socket.create_connection(("127.0.0.1", running.port), timeout=60) for _ in range(3)]
    lines[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
    lines[1].sendall(head + b"x" * 10)
    dripping = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not dripping.wait(2):
                lines[2].sendall(b"X")  # a head that grows by a byte, for ever

    lines[2].sendall(b"GET /healthz HTTP/1.1\r\nX-")
    dripper = threading.Thread(target=drip, daemon=True)
    dripper.start()
    assert raw(running.port, "GET", "/healthz")[0] == 200
    assert lines[0].recv(100) == b""
    with contextlib.suppress(ConnectionError):
        assert lines[2].recv(100) == b""
    assert time.monotonic() - began < 35
    assert b" 408 " in lines[1].recv(100)
    assert time.monotonic() - began < 50
    dripping.set()
    dripper.join()
    for line in lines:
        line.close()
    assert list((running.folder / "cases" / case / "in").iterdir()) == []


@pytest.mark.slow
def test_a_hundred_cases_in_line_are_all_done(serve, scans, wait_until: Callable[..., Any]) -> None:
    client = Client(serve().url)
    sent = []
    for _ in range(100):
        sent.append(client.create())
        for path in scans.values():
            client.upload(sent[-1], path)
        client.start(sent[-1])
    wait_until(lambda: all(case["state"] == "done" for case in client.cases()), 300)
    assert sorted(case["id"] for case in client.cases()) == sorted(sent)
    assert {case["revision"] for case in client.cases()} == {0}


def test_a_broken_model_ends_the_server_with_one_line(serve, model: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    running = serve("--runtime", "torch", model=broken)
    assert running.process.wait(60) == 2
    assert "error: " in running.stop()


def test_a_folder_is_served_once(serve) -> None:
    serve()
    with pytest.raises(AssertionError, match="another process is at work"):
        serve()


def test_zip_bombs_and_random_bytes_fail_with_a_line(serve, tmp_path: Path) -> None:
    client = Client(serve().url)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("a.nii", "w") as member:
        for _ in range(400):
            member.write(bytes(1 << 20))
    with pytest.raises(ImageError, match="grows beyond"):
        client.segment([bomb])
    noise = tmp_path / "noise.nii.gz"
    noise.write_bytes(random.Random(0).randbytes(5000))
    with pytest.raises(ImageError, match=r"noise\.nii\.gz"):
        client.segment([noise])


def test_events_follow_a_case(serve, scans, wait_until) -> None:
    running = serve()
    client = Client(running.url)
    line = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    line.request("GET", "/api/events", headers={"Authorization": f"Bearer {running.token}"})
    stream = line.getresponse()
    states: list[str] = []

    def follow() -> None:
        for text in stream:
            if text.startswith(b"data: "):
                states.append(json.loads(text[6:])["state"])
                if states[-1] == "done":
                    return

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    case = client.create()
    wait_until(lambda: states == ["receiving"])
    for path in scans.values():
        client.upload(case, path)
    client.start(case)
    watcher.join(30)
    line.close()
    stream.close()
    assert states[-1] == "done"


@pytest.mark.slow
def test_kills_lose_nothing(serve, scans, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    """Server and workers are killed at 50 random points; in the end every one of 20 cases has the same mask, once."""
    chance, number = random.Random(5), 20
    running = serve()
    client = Client(running.url)
    known = client.segment(scans.values())
    client.download(known, "mask.nii.gz", tmp_path / "known.nii.gz")
    sent = []
    for _ in range(number):
        sent.append(client.create())
        for path in scans.values():
            client.upload(sent[-1], path)
        client.start(sent[-1])
    killed = 0
    for kill in range(50):
        time.sleep(chance.random() * 1.2)
        workers = running.workers()
        if kill % 2:
            if workers:  # none where both were killed a moment ago
                killed += 1
                os.kill(chance.choice(workers), signal.SIGKILL)
        else:
            running.stop(signal.SIGKILL)
            running = serve()
    assert killed > 10
    client = Client(running.url)
    wait_until(lambda: all(case["state"] == "done" for case in client.cases()), 300)
    assert {case["id"] for case in client.cases()} == {known, *sent}
    for case in sent:
        client.download(case, "mask.nii.gz", tmp_path / "mask.nii.gz")
        assert sha256(tmp_path / "mask.nii.gz") == sha256(tmp_path / "known.nii.gz")
        assert client.case(case)["revision"] == 0


def test_the_document_lists_the_routes(tmp_path: Path) -> None:
    """OpenAPI and the application are made from one table, and nothing else is served."""
    from starlette.routing import Route

    from veloxseg.serve.app import build_app
    from veloxseg.serve.routes import document
    from veloxseg.serve.server import Server
    from veloxseg.serve.settings import Settings
    from veloxseg.serve.store import Store

    store = Store(tmp_path / "store")
    app = build_app(Server(Settings(folder=tmp_path, models=()), store, {}, "t" * 43))
    served = set()
    for route in app.app.app.routes:
        assert isinstance(route, Route)
        served |= {(method, route.path.replace(":path", "")) for method in (route.methods or set()) - {"HEAD"}}
    written = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    assert served == written
    store.close()
