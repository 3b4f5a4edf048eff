"""`Client`: the server's API from Python, by the standard library alone.

>>> client = Client("http://127.0.0.1:8760/#token=…")
>>> case = client.segment(["ct.nii.gz", "pet.nii.gz"])
>>> client.download(case, "mask.nii.gz", "mask.nii.gz")
"""

import http.client
import json
import shutil
import ssl
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from veloxseg.errors import ClusterError, ConfigError, ImageError, shown
from veloxseg.files import atomic_path

__all__ = ["Client"]

ENDED = ("done", "failed", "incomplete", "choose")
TIMEOUT = 300.0  # seconds for one answer


class Client:
    """One server. The address may hold the token after `#token=`, as the server prints it."""

    def __init__(self, address: str, token: str | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(address)
        token = token or parts.fragment.removeprefix("token=")
        if parts.scheme not in ("http", "https") or not parts.hostname or not token:
            raise ConfigError(
                "expected an address such as http://127.0.0.1:8760/#token=…; copy the one that serve prints"
            )
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._token, self._tls = token, tls

    def segment(
        self, files: Iterable[str | Path], *, title: str = "", model: str | None = None, seconds: float = 3600
    ) -> str:
        """Sends the files of one case, waits for its mask, and returns the case's id; what fails is raised."""
        case = self.create(title=title, model=model)
        for file in files:
            self.upload(case, file)
        self.start(case)
        found = self.wait(case, seconds)
        if found["state"] != "done":
            raise ImageError(f"case {case} is {found['state']}: {found['message']}")
        return case

    def create(self, *, title: str = "", model: str | None = None, confirm: bool = False) -> str:
        return str(self.request("POST", "/api/cases", {"title": title, "model": model, "confirm": confirm})["id"])

    def upload(self, case: str, path: str | Path, name: str | None = None) -> None:
        """Sends one file as it is; a zip stands for its members."""
        with open(path, "rb") as file:
            self.request("PUT", f"/api/cases/{case}/files/{quote(name or Path(path).name)}", file)

    def start(self, case: str) -> None:
        self.request("POST", f"/api/cases/{case}/start")

    def choose(self, case: str, scans: Mapping[str, str], model: str | None = None) -> None:
        """Which scan is which, by the keys of `case(id)["found"]`."""
        self.request("PUT", f"/api/cases/{case}/choice", {"scans": dict(scans), "model": model})

    def cases(self) -> list[dict[str, Any]]:
        return list(self.request("GET", "/api/cases")["cases"])

    def case(self, case: str) -> dict[str, Any]:
        return dict(self.request("GET", f"/api/cases/{case}"))

    def wait(self, case: str, seconds: float = 3600) -> dict[str, Any]:
        """The case when it is done, has failed or needs somebody, and nothing of it is being made."""
        give_up = time.monotonic() + seconds
        while True:
            found = self.case(case)
            if found["state"] in ENDED and not found["working"]:
                return found
            if time.monotonic() > give_up:
                raise ClusterError(f"case {case} is still {found['state']} after {seconds:.0f} s; ask again later")
            time.sleep(0.2)

    def edit(self, case: str, edits: list[dict[str, Any]]) -> dict[str, Any]:
        """Gives the mask this list of edits, and waits until it and its numbers are there."""
        self.request("PUT", f"/api/cases/{case}/edits", {"edits": edits})
        return self.wait(case)

    def statistics(self, case: str) -> dict[str, Any]:
        return dict(self.request("GET", f"/api/cases/{case}/results/statistics.json"))

    def download(self, case: str, result: str, path: str | Path) -> None:
        """Saves mask.nii.gz, seg.dcm, lesions.csv or another result, whole or not at all."""
        place = f"/api/cases/{case}/results/{quote(result)}"
        with self._ask("GET", place, None) as response, atomic_path(path) as temporary, open(temporary, "wb") as file:
            shutil.copyfileobj(response, file)

    def delete(self, case: str) -> None:
        self.request("DELETE", f"/api/cases/{case}")

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request; JSON as a value. What the server refuses is raised with its own words."""
        with self._ask(method, path, body) as response:
            data = response.read()
        return json.loads(data) if data else None

    def _ask(self, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        if self._secure:
            line: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT, context=self._tls
            )
        else:
            line = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        try:
            line.request(method, path, data, {"Authorization": f"Bearer {self._token}", "Connection": "close"})
            response = line.getresponse()
        except OSError as error:
            raise ClusterError(f"the server at {self._host} does not answer ({error}); is it running?") from error
        if response.status >= 400:
            raise Refused(response.status, _reason(response.read()))
        return response


class Refused(ClusterError):
    """The server refused a request; `status` is the HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (status {status})")
        self.status = status


def _reason(body: bytes) -> str:
    try:
        return shown(json.loads(body)["error"], 1000)
    except (ValueError, KeyError, TypeError):
        return "the server refused"
