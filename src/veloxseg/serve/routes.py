"""Every address of the server in one table: the application is made from it, and so is its OpenAPI document."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from veloxseg import __version__
from veloxseg.machine import NOTICE
from veloxseg.serve import api, monailabel

__all__ = ["OPERATIONS", "Operation", "document"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A method of an address, what it does, and what it answers."""

    method: str
    path: str  # as OpenAPI writes it; {name} may hold slashes where `rest` says so
    handler: Callable[..., Any]
    summary: str
    answers: dict[int, str]
    body: str | None = None  # media type of the request's body
    gives: str = "application/json"
    open: bool = False  # needs no token
    rest: bool = False  # the last part of the path may hold slashes

    @property
    def route(self) -> str:
        """The path as Starlette writes it."""
        return f"{self.path[:-1]}:path}}" if self.rest else self.path


JSON, RAW, PARTS = "application/json", "application/octet-stream", "multipart/form-data"
CASE = "/api/cases/{case}"
OPERATIONS = (
    Operation(
        method="GET",
        path="/",
        handler=api.page,
        summary="The page",
        answers={200: "HTML"},
        gives="text/html",
        open=True,
    ),
    Operation(
        method="GET",
        path="/page/{name}",
        handler=api.page_part,
        summary="Style and code of the page",
        answers={200: "the file", 404: "no such part"},
        gives="*/*",
        open=True,
    ),
    Operation(
        method="GET",
        path="/healthz",
        handler=api.healthz,
        summary="Whether the server lives",
        answers={200: "yes"},
        open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        handler=api.readyz,
        summary="Whether cases are taken and computed",
        answers={200: "yes", 503: "workers are starting", 507: "the disk is nearly full"},
        open=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=api.metrics,
        summary="Numbers for Prometheus",
        answers={200: "text"},
        gives="text/plain",
    ),
    Operation(
        method="GET", path="/openapi.json", handler=api.openapi, summary="This document", answers={200: "OpenAPI 3.1"}
    ),
    Operation(
        method="POST",
        path="/api/session",
        handler=api.open_session,
        summary="Exchange the token for a cookie",
        answers={200: "the cookie is set"},
    ),
    Operation(
        method="DELETE",
        path="/api/session",
        handler=api.close_session,
        summary="Forget the cookie",
        answers={204: "forgotten"},
    ),
    Operation(
        method="GET",
        path="/api/models",
        handler=api.list_models,
        summary="The models that are offered",
        answers={200: "names, modalities, labels"},
    ),
    Operation(
        method="GET",
        path="/api/events",
        handler=api.events,
        gives="text/event-stream",
        summary="Server-sent events: `case` with a case that changed, `removed` with the id of one that is gone",
        answers={200: "a stream without end"},
    ),
    Operation(
        method="GET",
        path="/api/cases",
        handler=api.list_cases,
        summary="All cases, newest first",
        answers={200: "cases"},
    ),
    Operation(
        method="POST",
        path="/api/cases",
        handler=api.create_case,
        body=JSON,
        summary="A new case: optional title, model, and confirm (ask before predicting)",
        answers={
            201: "the case",
            400: "wrong body",
            429: "the queue is full: see Retry-After",
            507: "the disk is nearly full",
        },
    ),
    Operation(
        method="GET",
        path=CASE,
        handler=api.get_case,
        summary="A case: state, place in line, progress, warnings",
        answers={200: "the case, with an ETag", 304: "as If-None-Match knows it", 404: "no such case"},
    ),
    Operation(
        method="DELETE",
        path=CASE,
        handler=api.delete_case,
        summary="Delete a case and all its files",
        answers={204: "deleted", 404: "no such case"},
    ),
    Operation(
        method="PUT",
        path=CASE + "/files/{name}",
        handler=api.put_file,
        body=RAW,
        rest=True,
        summary="A file of the case, raw: a scan, a DICOM slice, a mask to compare with, or a zip of these",
        answers={
            201: "stored",
            404: "no such case",
            408: "too slow",
            409: "not now",
            413: "too large",
            507: "disk nearly full",
        },
    ),
    Operation(
        method="POST",
        path=CASE + "/start",
        handler=api.start,
        summary="All files are there: recognise and predict",
        answers={202: "the case", 404: "no such case", 409: "no files, or at work already"},
    ),
    Operation(
        method="PUT",
        path=CASE + "/choice",
        handler=api.put_choice,
        body=JSON,
        summary="Which model takes which scan, by keys of what was found",
        answers={202: "the case", 400: "does not fit", 404: "no such case", 409: "nothing to choose"},
    ),
    Operation(
        method="GET",
        path=CASE + "/view",
        handler=api.get_view,
        summary="Grid, layers, lesions, edits and comparison of the present revision",
        answers={200: "the view", 404: "no result yet"},
    ),
    Operation(
        method="GET",
        path=CASE + "/layers/{name}",
        handler=api.get_layer,
        gives=RAW,
        summary="Voxels as the page shows them: a modality, mask, reference or projection; little endian, x fastest",
        answers={200: "numbers, compressed", 404: "no such layer"},
    ),
    Operation(
        method="GET",
        path=CASE + "/edits",
        handler=api.get_edits,
        summary="The list of edits of the present revision",
        answers={200: "edits, with the revision as ETag", 404: "no such case", 409: "no mask yet"},
    ),
    Operation(
        method="PUT",
        path=CASE + "/edits",
        handler=api.put_edits,
        body=JSON,
        summary="A new revision by a whole list of edits; If-Match guards against somebody else's",
        answers={202: "the case", 400: "a wrong edit", 404: "no mask", 412: "another revision meanwhile"},
    ),
    Operation(
        method="PUT",
        path=CASE + "/reference/{name}",
        handler=api.put_reference,
        body=RAW,
        rest=True,
        summary="A mask to compare with, raw, on the grid of the result",
        answers={202: "stored, and being compared", 404: "no such case", 409: "no result yet", 413: "too large"},
    ),
    Operation(
        method="GET",
        path=CASE + "/results/{name}",
        handler=api.get_result,
        gives="*/*",
        summary="A file of the present revision: " + ", ".join({**api.MADE_AT_ONCE, **api.MADE_WHEN_ASKED}),
        answers={200: "the file", 404: "no such file", 409: "cannot be made", 503: "still being made"},
    ),
    Operation(
        method="POST",
        path=CASE + "/send",
        handler=api.send,
        summary="Send the DICOM objects of the present revision to the nodes of --send",
        answers={202: "the case, with its outbox", 404: "no result yet", 409: "nowhere to send to"},
    ),
    # what MONAI Label's module for 3D Slicer asks for
    Operation(
        method="GET",
        path="/auth/",
        handler=monailabel.auth,
        summary="MONAI Label: whether a token is needed",
        answers={200: "yes"},
        open=True,
    ),
    Operation(
        method="POST",
        path="/auth/token",
        handler=monailabel.auth_token,
        body="application/x-www-form-urlencoded",
        summary="MONAI Label: the token for a password, which is the token",
        answers={200: "the token", 401: "another password", 413: "too large"},
        open=True,
    ),
    Operation(
        method="GET",
        path="/auth/token/valid",
        handler=monailabel.auth_valid,
        summary="MONAI Label: whether the token is right",
        answers={200: "yes"},
    ),
    Operation(
        method="GET",
        path="/info/",
        handler=monailabel.info,
        summary="MONAI Label: the models that are offered",
        answers={200: "models and labels"},
    ),
    Operation(
        method="PUT",
        path="/datastore/",
        handler=monailabel.put_image,
        body=PARTS,
        summary="MONAI Label: a volume under the name `image`",
        answers={200: "stored", 400: "no name or no file", 413: "too large", 429: "the queue is full"},
    ),
    Operation(
        method="PUT",
        path="/session/",
        handler=monailabel.put_session,
        body=PARTS,
        summary="MONAI Label: volumes of one patient, as a session",
        answers={200: "the session's id", 400: "no file", 413: "too large", 429: "the queue is full"},
    ),
    Operation(
        method="GET",
        path="/session/{session}",
        handler=monailabel.get_session,
        summary="MONAI Label: whether a session is there",
        answers={200: "it is", 404: "it is not"},
    ),
    Operation(
        method="DELETE",
        path="/session/{session}",
        handler=monailabel.delete_session,
        summary="MONAI Label: delete a session and its files",
        answers={200: "deleted", 404: "no such session"},
    ),
    Operation(
        method="POST",
        path="/infer/{model}",
        handler=monailabel.infer,
        body=PARTS,
        gives=PARTS,
        summary="MONAI Label: the mask of `image` or of `session_id`, when it is there",
        answers={200: "settings and mask in two parts", 404: "no such model or image", 409: "no mask, and why"},
    ),
)


def document() -> dict[str, Any]:
    """The OpenAPI document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _describe(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "VeloxSeg", "version": __version__, "description": f"Segmentation of scans; {NOTICE}."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _describe(one: Operation) -> dict[str, Any]:
    names = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
    answers = one.answers if one.open else {**one.answers, 401: "no token"}
    described: dict[str, Any] = {
        "operationId": one.handler.__name__,
        "summary": one.summary,
        "parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names],
        "responses": {
            str(status): {"description": text, **({"content": {one.gives: {}}} if status == 200 else {})}
            for status, text in answers.items()
        },
        "security": [] if one.open else [{"token": []}],
    }
    if one.body:
        described["requestBody"] = {"content": {one.body: {}}}
    return described
