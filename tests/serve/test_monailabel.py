"""What MONAI Label's module for 3D Slicer sends, byte for byte in its way, and what it does with the answer."""

import email
import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode

import numpy as np
import pytest

from veloxseg.image import read_label
from veloxseg.predict.predictor import segment

pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")
LIMIT = "----------a_boundary_as_long_as_theirs_$"


def ask(running: Any, method: str, path: str, body: bytes = b"", kind: str = "", token: bool = True) -> tuple[int, Any]:
    """One request as the module makes it: `http.client`, headers in lower case, the token as bearer."""
    headers = {"content-type": kind, "content-length": str(len(body))} if body else {}
    if token:
        headers["Authorization"] = f"bearer {running.token}"
    with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)) as line:
        line.request(method, path, body or None, headers)
        response = line.getresponse()
        assert response.getheader("transfer-encoding") is None  # it reads below HTTP
        return response.status, (response.getheader("content-type"), response.read())


def form(fields: dict[str, str], files: dict[str, Path]) -> tuple[bytes, str]:
    body = bytearray()
    for name, value in fields.items():
        body += f'--{LIMIT}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    for name, path in files.items():
        head = f'--{LIMIT}\r\nContent-Disposition: form-data; name="{name}"; filename="{path}"\r\n'
        body += head.encode() + b"Content-Type: application/octet-stream\r\n\r\n" + path.read_bytes() + b"\r\n"
    body += f"--{LIMIT}--\r\n\r\n".encode()
    return bytes(body), f"multipart/form-data; boundary={LIMIT}"


def mask_in(answer: tuple[str, bytes], folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """The parts of an answer, as a parser of mail reads them."""
    kind, body = answer
    message = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
    path = folder / str(parts["file"].get_filename())
    assert path.name.endswith(".nii.gz")
    path.write_bytes(parts["file"].get_payload(decode=True))
    return json.loads(parts["params"].get_payload(decode=True)), read_label(path).array


def test_the_token_is_the_password(serve) -> None:
    running = serve()
    assert json.loads(ask(running, "GET", "/auth/", token=False)[1][1]) == {"enabled": True}
    kind = "application/x-www-form-urlencoded"
    right = urlencode({"username": "x", "password": running.token, "grant_type": "password"}).encode()
    status, (_, body) = ask(running, "POST", "/auth/token", right, kind, token=False)
    assert (status, json.loads(body)["access_token"]) == (200, running.token)
    wrong = urlencode({"username": "x", "password": "x", "grant_type": "password"}).encode()
    assert ask(running, "POST", "/auth/token", wrong, kind, token=False)[0] == 401
    assert ask(running, "GET", "/auth/token/valid")[0] == 200
    for path in ("/auth/token/valid", "/info/"):
        assert ask(running, "GET", path, token=False)[0] == 401


def test_two_volumes_of_the_datastore_are_one_case(serve, scans, quick_model, tmp_path: Path) -> None:
    running = serve()
    told = json.loads(ask(running, "GET", "/info/")[1][1])
    (model,) = told["models"]
    assert not told.get("config")
    assert told["models"][model]["type"] == "segmentation"
    assert ask(running, "POST", f"/infer/{model}?image=anna_ct", *form({"params": "{}"}, {}))[0] == 404
    for name, path in scans.items():
        body = form({"params": "{}"}, {"file": path})
        assert ask(running, "PUT", f"/datastore/?image={quote_plus(f'anna_{name}')}", *body)[0] == 200
    status, answer = ask(running, "POST", f"/infer/{model}?image=anna_ct", *form({"params": "{}"}, {}))
    assert status == 200, answer
    params, mask = mask_in(answer, tmp_path)
    assert params["label_names"] == {"background": 0, "label1": 1}
    assert np.array_equal(mask, segment(scans, quick_model, threads=1).array)
    assert ask(running, "POST", "/infer/other?image=anna_ct", *form({"params": "{}"}, {}))[0] == 404
    assert "anna" not in running.stop()


def test_a_session_holds_volumes_for_a_while(serve, scans, tmp_path: Path) -> None:
    running = serve()
    status, (_, body) = ask(running, "PUT", "/session/", *form({"client_id": "user"}, dict(scans)))
    session = json.loads(body)["session_id"]
    assert (status, ask(running, "GET", f"/session/{session}")[0]) == (200, 200)
    (model,) = json.loads(ask(running, "GET", "/info/")[1][1])["models"]
    status, answer = ask(running, "POST", f"/infer/{model}?image=x&session_id={session}", *form({"params": "{}"}, {}))
    assert status == 200, answer
    assert mask_in(answer, tmp_path)[1].any()
    assert ask(running, "DELETE", f"/session/{session}")[0] == 200
    assert ask(running, "GET", f"/session/{session}")[0] == 404


def test_what_cannot_be_is_refused(serve, scans) -> None:
    running = serve()
    (model,) = json.loads(ask(running, "GET", "/info/")[1][1])["models"]
    body, kind = form({"params": "{}"}, {"file": scans["ct"]})
    assert ask(running, "PUT", "/datastore/?image=ct", body[:-40], kind)[0] == 400  # cut short
    assert ask(running, "PUT", "/datastore/?image=ct", b"plain", "text/plain")[0] == 400
    assert ask(running, "PUT", "/datastore/?image=ct", *form({"params": "{}"}, {}))[0] == 400
    for path in ("/etc/passwd", "../../store.sqlite"):
        asked = f"/infer/{model}?image={quote_plus(path)}"
        assert ask(running, "POST", asked, *form({"params": "{}"}, {}))[0] in (404, 409)
    assert ask(running, "PUT", "/datastore/?image=ben_ct", body, kind)[0] == 200
    status, (_, told) = ask(running, "POST", f"/infer/{model}?image=ben_ct", *form({"params": "{}"}, {}))
    assert status == 409
    assert b"pet is missing" in told
