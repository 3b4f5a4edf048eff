"""What each address of the server does. Handlers are plain functions of the request; routes.py lists them all.

A handler that writes to the store is a plain `def`, which runs in a thread; those that stream are `async def`.
"""

import asyncio
import json
import sqlite3
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from veloxseg import __version__
from veloxseg.errors import VeloxSegError
from veloxseg.machine import NOTICE
from veloxseg.serve import cases
from veloxseg.serve.edits import check_edits
from veloxseg.serve.guard import cookie_name, session_of
from veloxseg.serve.jobs import enqueue
from veloxseg.serve.metrics import metrics_text
from veloxseg.serve.refusal import Refusal
from veloxseg.serve.server import Server
from veloxseg.serve.states import set_state, touch
from veloxseg.serve.uploads import check_disk, receive_file, receive_json, room_in_line

PAGE = Path(__file__).parent / "page"
MOST_NAME = 400
LAYER_BYTES = 1 << 20  # of a layer at a time: each piece is a trip to a thread and back
WAIT_SECONDS = 120.0  # for a file that is made when it is asked for
MADE_AT_ONCE = {
    "mask.nii.gz": "application/gzip",
    "lesions.csv": "text/csv; charset=utf-8",
    "statistics.json": "application/json",
    "record.json": "application/json",
    "compare.json": "application/json",
}
MADE_WHEN_ASKED = {
    "seg.dcm": "application/dicom",
    "sr.dcm": "application/dicom",
    "capture.dcm": "application/dicom",
    "report.html": "text/html; charset=utf-8",
    "preview.png": "image/png",
}
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def server_of(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


def row_of(request: Request) -> sqlite3.Row:
    return cases.case_row(server_of(request).store, request.path_params["case"])


# -- the server itself ---------------------------------------------------------------------------------------------


async def page(request: Request) -> Response:
    return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})


async def page_part(request: Request) -> Response:
    name = request.path_params["name"]
    known = {path.name: path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".svg")}
    if name not in known:
        raise Refusal(404, "there is no such part of the page")
    return FileResponse(known[name], headers={"cache-control": "no-cache"})


async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    server = server_of(request)
    ready = server.supervisor.ready
    check_disk(server.settings)
    return JSONResponse(
        {"ready": all(ready.values()), "workers": ready}, status_code=200 if all(ready.values()) else 503
    )


def metrics(request: Request) -> Response:
    server = server_of(request)
    return PlainTextResponse(metrics_text(server.store, server.numbers()), media_type="text/plain; version=0.0.4")


async def openapi(request: Request) -> Response:
    from veloxseg.serve.routes import document

    return JSONResponse(document())


async def open_session(request: Request) -> Response:
    server = server_of(request)
    response = JSONResponse({"notice": NOTICE, "version": __version__})
    secure = server.settings.certificate is not None or server.settings.behind_proxy
    response.set_cookie(
        cookie_name(server.settings),
        session_of(server.token),
        httponly=True,
        samesite="strict",
        path="/",
        secure=secure,
    )
    return response


async def close_session(request: Request) -> Response:
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(server_of(request).settings), path="/", httponly=True, samesite="strict")
    return response


async def list_models(request: Request) -> Response:
    server = server_of(request)
    return JSONResponse(
        {
            "notice": NOTICE,
            "version": __version__,
            "models": [model.to_json() for model in server.models.values()],
            "keep_days": server.settings.keep_days,
            "send_to": server.send_to(),
        }
    )


async def events(request: Request) -> Response:
    return StreamingResponse(server_of(request).watch.events(), media_type="text/event-stream")


# -- cases ---------------------------------------------------------------------------------------------------------


def list_cases(request: Request) -> Response:
    store = server_of(request).store
    rows = store.read("SELECT * FROM cases ORDER BY created DESC")
    return JSONResponse({"cases": [cases.describe(store, row) for row in rows]})


async def create_case(request: Request) -> Response:
    body = await receive_json(request)
    if not isinstance(body, dict) or body.keys() - {"title", "model", "confirm"}:
        raise Refusal(400, 'expected {"title": "…", "model": "…", "confirm": false}, all of them optional')
    title, model, confirm = str(body.get("title") or "")[:200], body.get("model"), body.get("confirm", False)
    server = server_of(request)
    if model is not None and model not in server.models:
        raise Refusal(400, f"there is no model {str(model)[:60]!r}; offered are {', '.join(server.models)}")
    return await asyncio.to_thread(_create, server, title, model, confirm is True)


def _create(server: Server, title: str, model: str | None, confirm: bool) -> Response:
    check_disk(server.settings)
    room_in_line(server.store, server.settings)
    case = cases.create(server.store, title, model=model, confirm=confirm, source="web")
    row = cases.case_row(server.store, case)
    return JSONResponse(cases.describe(server.store, row), status_code=201, headers={"location": f"/api/cases/{case}"})


def get_case(request: Request) -> Response:
    row = row_of(request)
    tag = f'"{row["id"]}-{row["version"]}"'
    if request.headers.get("if-none-match") == tag and row["state"] != "waiting":
        return Response(status_code=304, headers={"etag": tag})
    return JSONResponse(cases.describe(server_of(request).store, row), headers={"etag": tag})


def delete_case(request: Request) -> Response:
    cases.remove(server_of(request).store, request.path_params["case"])
    return Response(status_code=204)


async def put_file(request: Request) -> Response:
    server, name = server_of(request), request.path_params["name"]
    row = await asyncio.to_thread(row_of, request)
    _check_name(name)
    if row["state"] in ("reading", "waiting", "running"):
        raise Refusal(409, f"the case is {row['state']}; make a new one for other files")
    folder = server.store.case_folder(row["id"]) / "in"
    stored, size, digest = await receive_file(request, folder, name, server.settings)
    server.received_bytes += size
    await asyncio.to_thread(cases.add_file, server.store, row["id"], name=name, stored=stored, size=size, digest=digest)
    return JSONResponse({"name": name, "bytes": size, "sha256": digest}, status_code=201)


def _check_name(name: str) -> None:
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise Refusal(400, f"a name of a file has 1 to {MOST_NAME} printable characters")


def start(request: Request) -> Response:
    server, row = server_of(request), row_of(request)
    files = server.store.read("SELECT COUNT(*) AS n FROM files WHERE case_id = ?", row["id"])[0]["n"]
    if row["state"] in ("reading", "waiting", "running"):
        raise Refusal(409, f"the case is {row['state']} already")
    if not files:
        raise Refusal(409, "the case has no files; send them first")
    cases.start_reading(server.store, row["id"])
    return JSONResponse(cases.describe(server.store, row_of(request)), status_code=202)


async def put_choice(request: Request) -> Response:
    body = await receive_json(request)
    return await asyncio.to_thread(_choose, request, body)


def _choose(request: Request, body: Any) -> Response:
    server, row = server_of(request), row_of(request)
    if row["state"] not in ("choose", "incomplete", "done", "failed"):
        raise Refusal(409, f"the case is {row['state']}; there is nothing to choose")
    chosen = body.get("scans") if isinstance(body, dict) else None
    model = server.models.get(body.get("model") or row["model"] or "") if isinstance(body, dict) else None
    if model is None or not isinstance(chosen, dict):
        raise Refusal(400, 'expected {"model": "…", "scans": {"ct": "KEY", "pet": "KEY"}} with keys of what was found')
    known = {one["key"] for one in json.loads(row["found"]) if one["role"] != "mask" and not one["problem"]}
    keys = list(chosen.values())
    missing = [name for name in model.kinds if name not in chosen and name not in model.may_miss]
    if not set(chosen) <= set(model.kinds) or missing or not set(keys) <= known or len(set(keys)) < len(keys):
        raise Refusal(400, f"model {model.name} takes {', '.join(model.kinds)}, each another scan of those found")
    ordered = {name: chosen[name] for name in model.kinds if name in chosen}
    with server.store.write() as connection:
        set_state(connection, row["id"], "waiting", model=model.name, chosen=json.dumps(ordered))
        enqueue(connection, row["id"], "predict")
    return JSONResponse(cases.describe(server.store, row_of(request)), status_code=202)


# -- results -------------------------------------------------------------------------------------------------------


def get_view(request: Request) -> Response:
    """All that the page needs at once, but voxels."""
    server, row = server_of(request), row_of(request)
    folder = cases.folder_of_revision(server.store, row)
    reference = (server.store.case_folder(row["id"]) / "reference" / "reference.view.gz").is_file()
    edits = server.store.read(
        "SELECT edits FROM revisions WHERE case_id = ? AND number = ?", row["id"], row["revision"]
    )[0]["edits"]
    compared = folder / "compare.json"
    return JSONResponse(
        {
            **json.loads((folder.parent / "view" / "view.json").read_text(encoding="utf-8")),
            "revision": row["revision"],
            "edits": json.loads(edits),
            "statistics": json.loads((folder / "statistics.json").read_text(encoding="utf-8")),
            "reference": reference,
            "compare": json.loads(compared.read_text(encoding="utf-8")) if compared.is_file() else None,
        }
    )


def get_layer(request: Request) -> Response:
    server, row = server_of(request), row_of(request)
    folder, name = cases.folder_of_revision(server.store, row), request.path_params["name"]
    places = {path.name.removesuffix(".view.gz"): path for path in (folder.parent / "view").glob("*.view.gz")}
    places["mask"] = folder / "mask.view.gz"
    places["reference"] = server.store.case_folder(row["id"]) / "reference" / "reference.view.gz"
    if name not in places or not places[name].is_file():
        raise Refusal(404, "the case has no such layer")
    response = FileResponse(places[name], media_type="application/octet-stream", headers={"content-encoding": "gzip"})
    response.chunk_size = LAYER_BYTES
    return response


def get_edits(request: Request) -> Response:
    server, row = server_of(request), row_of(request)
    found = server.store.read("SELECT * FROM revisions WHERE case_id = ? ORDER BY number", row["id"])
    if not found:
        raise Refusal(409, "the case has no mask yet")
    edits = next(one["edits"] for one in found if one["number"] == row["revision"])
    return JSONResponse(
        {"revision": row["revision"], "edits": json.loads(edits)}, headers={"etag": f'"{row["revision"]}"'}
    )


async def put_edits(request: Request) -> Response:
    body = await receive_json(request)
    return await asyncio.to_thread(_revise, request, body)


def _revise(request: Request, body: Any) -> Response:
    server, row = server_of(request), row_of(request)
    cases.folder_of_revision(server.store, row)
    expected = request.headers.get("if-match")
    if expected is not None and expected != f'"{row["revision"]}"':
        raise Refusal(412, f"the mask has revision {row['revision']} meanwhile; look at it first")
    edits = check_edits(body.get("edits") if isinstance(body, dict) else None)
    with server.store.write() as connection:
        connection.execute(
            "DELETE FROM jobs WHERE case_id = ? AND kind = 'revise' AND state = 'waiting'", (row["id"],)
        )  # the list is always the whole list: an older one that still waits is of no use
        enqueue(connection, row["id"], "revise", edits=[asdict(edit) for edit in edits])
        touch(connection, row["id"])
    return JSONResponse(cases.describe(server.store, row_of(request)), status_code=202)


async def put_reference(request: Request) -> Response:
    server, row = server_of(request), await asyncio.to_thread(row_of, request)
    name = request.path_params["name"]
    _check_name(name)
    if row["state"] != "done":
        raise Refusal(409, f"the case is {row['state']}; a mask is compared when there is one")
    folder = server.store.case_folder(row["id"]) / "in"
    stored, size, digest = await receive_file(request, folder, name, server.settings)
    await asyncio.to_thread(_compare, server, row["id"], f"in/{stored}")
    return JSONResponse({"name": name, "bytes": size, "sha256": digest}, status_code=202)


def _compare(server: Server, case: str, key: str) -> None:
    with server.store.write() as connection:
        enqueue(connection, case, "compare", key=key)
        touch(connection, case)


async def get_result(request: Request) -> Response:
    server, row = server_of(request), await asyncio.to_thread(row_of, request)
    name = request.path_params["name"]
    types = {**MADE_AT_ONCE, **MADE_WHEN_ASKED}
    if name not in types:
        raise Refusal(404, f"there is no result {name[:60]!r}; there are {', '.join(types)}")
    path = cases.folder_of_revision(server.store, row) / name
    if not path.is_file() and name in MADE_WHEN_ASKED:
        await _make(server, row["id"], name)
    if not path.is_file():
        raise Refusal(404, f"the case has no {name}")
    headers = {"content-disposition": f'attachment; filename="{row["id"]}-r{row["revision"]}-{name}"'}
    if name == "report.html":
        headers = {"content-security-policy": REPORT_POLICY}
    return FileResponse(path, media_type=types[name], headers=headers)


async def _make(server: Server, case: str, name: str) -> None:
    """Has a worker make a file, and waits for it."""

    def ask() -> int:
        with server.store.write() as connection:
            return enqueue(connection, case, "write", name=name)

    job, give_up = await asyncio.to_thread(ask), time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up:
        rows = await asyncio.to_thread(server.store.read, "SELECT state, message FROM jobs WHERE id = ?", job)
        if not rows:
            raise cases.Missing("the case was deleted")
        if rows[0]["state"] == "failed":
            raise Refusal(409, rows[0]["message"])
        if rows[0]["state"] == "done":
            return
        await asyncio.sleep(0.1)
    raise Refusal(503, "the file is still being made; ask again", retry_after=30)


def send(request: Request) -> Response:
    server, row = server_of(request), row_of(request)
    cases.folder_of_revision(server.store, row)
    if not server.send_to():
        raise Refusal(409, "no DICOM node to send to; start the server with --send AE@HOST:PORT")
    with server.store.write() as connection:
        enqueue(connection, row["id"], "send", targets=server.send_to(), objects=list(server.settings.objects))
        touch(connection, row["id"])
    return JSONResponse(cases.describe(server.store, row_of(request)), status_code=202)


# -- errors --------------------------------------------------------------------------------------------------------


async def refused(request: Request, error: Exception) -> Response:
    """Every error that is not a bug, as a status and one line."""
    if isinstance(error, Refusal):
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        return JSONResponse({"error": error.reason}, status_code=error.status, headers=headers)
    if isinstance(error, cases.Missing):
        return JSONResponse({"error": str(error)}, status_code=404)
    assert isinstance(error, VeloxSegError)
    return JSONResponse({"error": str(error)}, status_code=400)
