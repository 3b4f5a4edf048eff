"""What MONAI Label's module for 3D Slicer asks for, over cases of ours: info, images and sessions in, inference.

    GET  /auth/                   "enabled": the module then asks for a name and a password; the password is our token
    POST /auth/token              password → the token as bearer
    GET  /info/                   the models
    PUT  /datastore/?image=NAME   a volume; where a model takes several, NAME tells the modality (anna_ct, anna_pet)
    PUT  /session/                one or more volumes for a while; GET and DELETE /session/ID
    POST /infer/MODEL?image=NAME  (or session_id=ID) the mask, as a part of the answer

Volumes whose names differ by the modality alone are one case. A path of this machine is never taken as a name, and
training, active learning and scribbles are not offered.
"""

import asyncio
import hmac
import json
import re
import secrets
import time
from pathlib import Path
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from veloxseg import __version__
from veloxseg.image.formats import without_suffix
from veloxseg.machine import NOTICE
from veloxseg.modality import canonical_name, kind_of
from veloxseg.serve import cases
from veloxseg.serve.multipart import boundary_of, parts_of
from veloxseg.serve.refusal import Refusal
from veloxseg.serve.server import Server
from veloxseg.serve.states import set_state
from veloxseg.serve.uploads import check_disk, check_length, pieces, room_in_line, store_pieces

SOURCE = "slicer"
MOST_FIELD = 64 << 10
SECONDS = 3600.0  # for a mask
ENDED = ("done", "failed", "incomplete", "choose")


def server_of(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


async def auth(request: Request) -> Response:
    return JSONResponse({"enabled": True})


async def auth_token(request: Request) -> Response:
    body = bytearray()
    async for piece in pieces(request):
        body += piece
        if len(body) > MOST_FIELD:
            raise Refusal(413, "the request is too large")
    given = parse_qs(body.decode("latin-1")).get("password", [""])[0]
    token = server_of(request).token
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise Refusal(401, "the password is not the token of this server")
    return JSONResponse({"access_token": token, "token_type": "bearer"})


async def auth_valid(request: Request) -> Response:
    return JSONResponse({})  # whoever gets here was let in


async def info(request: Request) -> Response:
    models = server_of(request).models
    return JSONResponse(
        {
            "name": "VeloxSeg",
            "description": NOTICE,
            "version": __version__,
            "labels": sorted({name for model in models.values() for name, value in model.labels.items() if value}),
            "models": {
                model.name: {
                    "type": "segmentation",
                    "labels": model.labels,
                    "dimension": 3,
                    "description": f"takes {', '.join(model.kinds)}",
                    "config": {},
                }
                for model in models.values()
            },
            "trainers": {},
            "strategies": {},
            "scoring": {},
            "train_stats": {},
            "datastore": {},
        }
    )


async def put_image(request: Request) -> Response:
    name = request.query_params.get("image", "")
    if not name or len(name) > 200 or not name.isprintable():
        raise Refusal(400, "image=NAME is missing; name the volume")
    server = server_of(request)
    case = await asyncio.to_thread(_case_of, server, _stem(name))
    if await _receive(request, case, name) == 0:
        raise Refusal(400, "there is no file in the request")
    return JSONResponse({"image": name})


async def put_session(request: Request) -> Response:
    case = await asyncio.to_thread(_case_of, server_of(request), f"session {secrets.token_hex(8)}")
    if await _receive(request, case, "") == 0:
        raise Refusal(400, "there is no file in the request")
    return JSONResponse({"session_id": case})


def get_session(request: Request) -> Response:
    row = cases.case_row(server_of(request).store, request.path_params["session"])
    return JSONResponse({"session_id": row["id"], "state": row["state"]})


def delete_session(request: Request) -> Response:
    cases.remove(server_of(request).store, request.path_params["session"])
    return JSONResponse({})


async def infer(request: Request) -> Response:
    """Waits for the mask; the module itself waits as long."""
    server, name = server_of(request), request.path_params["model"]
    if name not in server.models:
        raise Refusal(404, f"there is no model {name[:60]!r}; offered are {', '.join(server.models)}")
    asked = request.query_params
    case = asked.get("session_id") or await asyncio.to_thread(_find, server, _stem(asked.get("image", "")))
    await asyncio.to_thread(_begin, server, case, name)
    give_up = time.monotonic() + SECONDS
    while True:
        row = await asyncio.to_thread(cases.case_row, server.store, case)
        if row["state"] in ENDED:
            break
        if time.monotonic() > give_up or await request.is_disconnected():
            raise Refusal(503, "the mask is not there yet; ask again", retry_after=30)
        await asyncio.sleep(0.2)
    if row["state"] != "done":
        raise Refusal(409, f"the case is {row['state']}: {row['message']}")
    folder = await asyncio.to_thread(cases.folder_of_revision, server.store, row)
    return await asyncio.to_thread(_answer, folder / "mask.nii.gz", server.models[name].labels)


def _answer(mask: Path, labels: dict[str, int]) -> Response:
    """Two parts, with a length: the module reads the stream below HTTP and knows no chunks."""
    mark = secrets.token_hex(16)
    lines = [
        f"--{mark}",
        'Content-Disposition: form-data; name="params"',
        "Content-Type: application/json",
        "",
        json.dumps({"label_names": labels, "notice": NOTICE}),
        f"--{mark}",
        f'Content-Disposition: form-data; name="file"; filename="{secrets.token_hex(8)}.nii.gz"',
        "Content-Type: application/octet-stream",
        "",
    ]
    body = "\r\n".join(lines).encode() + b"\r\n" + mask.read_bytes() + f"\r\n--{mark}--\r\n".encode()
    return Response(body, media_type=f"multipart/form-data; boundary={mark}")


async def _receive(request: Request, case: str, name: str) -> int:
    """Stores the files among the parts; other parts are settings that mean nothing here."""
    server = server_of(request)
    limit = int(server.settings.max_upload_gb * 1e9)
    check_length(request, limit)
    folder, count = server.store.case_folder(case) / "in", 0
    boundary = boundary_of(request.headers.get("content-type", ""))
    async for _, filename, content in parts_of(pieces(request), boundary):
        if not filename:
            async for _ in content:
                pass
            continue
        sent = re.split(r"[\\/]", filename)[-1]
        suffix = sent[len(without_suffix(sent)) :]
        shown_as = f"{without_suffix(name)}{suffix}" if name else sent
        stored, size, digest = await store_pieces(content, folder, sent, server.settings)
        await asyncio.to_thread(
            cases.add_file, server.store, case, name=shown_as, stored=stored, size=size, digest=digest
        )
        server.received_bytes += size
        count += 1
    return count


def _stem(name: str) -> str:
    """The name of a volume without its modality: what a patient's volumes have in common."""
    words = re.split(r"[ _.-]+", without_suffix(Path(name).name))
    return " ".join(word for word in words if kind_of(canonical_name(word.lower())) == "other") or "unnamed"


def _find(server: Server, stem: str) -> str:
    known = server.store.read(
        "SELECT id FROM cases WHERE source = ? AND title = ? ORDER BY created DESC LIMIT 1", SOURCE, stem
    )
    if not known:
        raise cases.Missing("there is no such image; upload the volume first")
    return str(known[0]["id"])


def _case_of(server: Server, stem: str) -> str:
    try:
        return _find(server, stem)
    except cases.Missing:
        check_disk(server.settings)
        room_in_line(server.store, server.settings)
        return cases.create(server.store, stem, model=None, confirm=False, source=SOURCE)


def _begin(server: Server, case: str, model: str) -> None:
    """Starts a case that is not at work, unless this model's mask is there already."""
    row = cases.case_row(server.store, case)
    if row["source"] != SOURCE:
        raise cases.Missing("there is no such session")
    if row["state"] in ("reading", "waiting", "running") or (row["state"] == "done" and row["model"] == model):
        return
    with server.store.write() as connection:
        set_state(connection, case, "receiving", model=model)
    cases.start_reading(server.store, case)
