"""Keeping a server running: docs/deploy.md as it stands, a stop in the middle of a case, age, back-up, TLS."""

import os
import re
import shlex
import shutil
import socket
import sqlite3
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.certificates import make_certificate
from veloxseg.cli import build_parser
from veloxseg.files import sha256
from veloxseg.image import write
from veloxseg.serve import Client
from veloxseg.serve.housekeeping import DAY, delete_old
from veloxseg.serve.settings import Settings
from veloxseg.serve.store import Store

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


def block(start: str) -> str:
    """The block of the page that begins so."""
    return next(text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if text.startswith(start))


@pytest.fixture
def long_case(tmp_path: Path, make_scans: Callable[..., Any]) -> list[Path]:
    """A case of a few hundred windows."""
    files = []
    for name, volume in make_scans((200, 180, 140)).items():
        files.append(tmp_path / f"long_{name}.nii.gz")
        write(volume, files[-1])
    return files


def test_a_stop_ends_a_window_and_puts_the_case_back(
    serve, long_case: list[Path], wait_until, log_lines, tmp_path: Path
) -> None:
    """Asked to stop in the middle of a case, the server is gone within seconds, and the next one makes the mask."""
    running = serve()
    client = Client(running.url)
    case = client.create()
    for path in long_case:
        client.upload(case, path)
    client.start(case)
    wait_until(lambda: client.case(case).get("queue", {}).get("done"))
    began = time.monotonic()
    log = log_lines(running.stop())
    assert time.monotonic() - began < 15
    assert running.process.returncode == 0
    assert [line["kind"] for line in log if line["event"] == "job put back"] == ["predict"]
    assert not [line for line in log if line["event"] == "worker ended"]
    store = Store(running.folder)
    (job,) = store.read("SELECT * FROM jobs WHERE kind = 'predict'")
    assert (job["state"], job["attempts"]) == ("waiting", 0)
    store.close()
    client = Client(serve().url)
    assert client.wait(case)["state"] == "done"


def test_old_cases_are_deleted_and_others_stay(store: Store, tmp_path: Path, add_case, scans) -> None:
    class Holder:
        settings = Settings(folder=tmp_path, models=(), keep_days=3)

    Holder.store = store  # type: ignore[attr-defined]
    old, waiting, fresh = (add_case({path.name: path for path in scans.values()}) for _ in range(3))
    with store.write() as connection:
        for case, state in ((old, "done"), (waiting, "waiting")):
            values = (time.time() - 3.1 * DAY, state, case)
            connection.execute("UPDATE cases SET changed = ?, state = ? WHERE id = ?", values)
    assert delete_old(Holder()) == 1  # type: ignore[arg-type]
    assert {row["id"] for row in store.read("SELECT id FROM cases")} == {waiting, fresh}
    assert not store.case_folder(old).exists()
    Holder.settings = Settings(folder=tmp_path, models=(), keep_days=0)
    assert delete_old(Holder()) == 0  # type: ignore[arg-type]


def test_a_backup_of_the_running_store_is_a_store(serve, scans, tmp_path: Path) -> None:
    """As the page tells: the store by SQLite's back-up, the cases by any tool; the copy is served and has the mask."""
    running = serve()
    client = Client(running.url)
    case = client.segment(scans.values())
    client.download(case, "mask.nii.gz", tmp_path / "before.nii.gz")
    copy = tmp_path / "copy" / "served"
    copy.mkdir(parents=True, mode=0o700)
    source, target = sqlite3.connect(running.folder / "store.sqlite"), sqlite3.connect(copy / "store.sqlite")
    with target:
        source.backup(target)
    source.close()
    target.close()
    shutil.copytree(running.folder / "cases", copy / "cases")
    running.stop()
    shutil.rmtree(running.folder)
    shutil.move(copy, running.folder)
    client = Client(serve().url)
    assert client.case(case)["state"] == "done"
    client.download(case, "mask.nii.gz", tmp_path / "after.nii.gz")
    assert sha256(tmp_path / "before.nii.gz") == sha256(tmp_path / "after.nii.gz")


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = block("# /etc/systemd/system/veloxseg.service")
    command = re.search(r"ExecStart=(.*?[^\\])\n", unit, re.DOTALL)[1].replace("\\\n", " ")
    arguments = build_parser().parse_args(shlex.split(command)[1:])
    assert (arguments.verb, arguments.behind_proxy) == ("serve", True)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    path = tmp_path / "veloxseg.service"
    path.write_text(unit.replace("/opt/veloxseg/bin/veloxseg", "/bin/true"))
    said = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert [line for line in (said.stdout + said.stderr).splitlines() if "veloxseg.service" in line] == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(address: str, certificate: Path, **headers: str) -> tuple[int, dict[str, str], bytes]:
    trusting = ssl.create_default_context(cafile=str(certificate))
    request = urllib.request.Request(address, headers={n.replace("_", "-"): v for n, v in headers.items()})
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=30) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {}, error.read()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_of_our_own(serve, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "localhost")
    running = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    address = f"https://localhost:{running.port}"
    assert ask(f"{address}/healthz", certificate)[0] == 200
    assert ask(f"{address}/api/cases", certificate)[0] == 401
    assert ask(f"{address}/api/cases", certificate, authorization=f"Bearer {running.token}")[0] == 200
    with pytest.raises(OSError, match=r"reset|closed|disconnected|without response"):  # plain HTTP is not spoken
        urllib.request.urlopen(f"http://localhost:{running.port}/healthz", timeout=30)


@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl")
def test_behind_nginx_as_the_page_says(serve, scans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own block, with a port and a certificate of this test: a case goes through, events come at once."""
    name = "seg.hospital.example"
    certificate, key = make_certificate(tmp_path, name)
    running, port = serve("--behind-proxy", "--name", name), free_port()
    block_ = block("server {")
    for before, after in (
        ("443 ssl", f"127.0.0.1:{port} ssl"),
        ("/etc/ssl/seg.pem", str(certificate)),
        ("/etc/ssl/seg.key", str(key)),
        ("127.0.0.1:8760", f"127.0.0.1:{running.port}"),
    ):
        assert before in block_
        block_ = block_.replace(before, after)
    folder = tmp_path / "nginx"
    folder.mkdir()
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{paths}{block_}}}\n"
    (folder / "nginx.conf").write_text(whole)
    assert NGINX is not None
    proxy = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    known = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: known("127.0.0.1" if host == name else host, *rest, **more)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    try:
        give_up = time.monotonic() + 20
        while True:
            try:
                status, _, _ = ask(f"https://{name}:{port}/healthz", certificate)
                break
            except OSError:
                assert time.monotonic() < give_up
                time.sleep(0.1)
        assert status == 200
        client = Client(f"https://{name}:{port}/#token={running.token}")
        case = client.segment(scans.values())
        assert client.case(case)["state"] == "done"
        trusting = ssl.create_default_context(cafile=str(certificate))
        bearer = {"Authorization": f"Bearer {running.token}"}
        request = urllib.request.Request(f"https://{name}:{port}/api/events", headers=bearer)
        with urllib.request.urlopen(request, context=trusting, timeout=5) as stream:
            assert stream.readline() == b"event: case\n"  # not kept back by the proxy
    finally:
        proxy.terminate()
        proxy.wait(30)
