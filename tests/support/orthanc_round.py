"""Orthanc → our node → SEG and SR back: `python orthanc_round.py MODEL STUDY FOLDER TARGET`, in a network of its own.

Debian's Orthanc listens at all addresses, so this is run by `unshare -n`, with the loopback device up. Prints what
came out as JSON.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ORTHANC = "http://127.0.0.1:8042"
SETTINGS = {
    "Name": "test",
    "HttpPort": 8042,
    "DicomPort": 4242,
    "DicomAet": "ORTHANC",
    "DicomAlwaysAllowStore": True,
    "DicomModalities": {"veloxseg": ["VELOXSEG", "127.0.0.1", 11112]},
    "Plugins": [],
}
PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")


def ask(path: str, data: Any = None) -> Any:
    body = data if isinstance(data, bytes) or data is None else json.dumps(data).encode()
    with urllib.request.urlopen(ORTHANC + path, data=body, timeout=120) as answer:
        return json.loads(answer.read())


def until(condition: Any, seconds: float = 120) -> Any:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.3)
    raise SystemExit("it did not happen in time")


def main() -> None:
    from veloxseg.serve import Client

    model, study, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    storage = folder / "orthanc"
    storage.mkdir()
    target = sys.argv[4]
    settings = {**SETTINGS, "StorageDirectory": str(storage), "IndexDirectory": str(storage)}
    if target.startswith("http"):
        settings |= {"Plugins": [str(PLUGIN)], "DicomWeb": {"Enable": True, "Root": "/dicom-web/"}}
    (folder / "orthanc.json").write_text(json.dumps(settings))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    orthanc = subprocess.Popen(["Orthanc", str(folder / "orthanc.json")], **quiet)
    command = [sys.executable, "-m", "veloxseg", "serve", "-m", model, "-o", str(folder / "served"), "--port", "0"]
    command += ["--dicom", "VELOXSEG:11112", "--allow", "ORTHANC@127.0.0.1", "--send", target]
    command += ["--objects", "seg,sr", "--study-quiet", "2", "--min-free", "0", "--threads", "1"]
    log = open(folder / "server.log", "w")  # noqa: SIM115
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        url = next(line.strip() for line in server.stdout if line.startswith("http"))
        client = Client(url)
        until(lambda: ask("/system"))
        for path in sorted(study.rglob("*")):
            if path.is_file() and path.parent.name == "image" and path.parent.parent.name in ("CT", "PET"):
                ask("/instances", path.read_bytes())
        before = len(ask("/instances"))
        ask("/modalities/veloxseg/store", ask("/studies"))
        until(lambda: client.cases() and client.cases()[0]["outbox"])
        until(lambda: {one["state"] for one in client.cases()[0]["outbox"]} == {"committed"})
        case = client.cases()[0]
        client.request("POST", f"/api/cases/{case['id']}/send")  # once more: nothing is filed twice
        time.sleep(3)
        until(lambda: {one["state"] for one in client.cases()[0]["outbox"]} == {"committed"})
        found = {}
        for instance in ask("/instances"):
            modality = ask(f"/instances/{instance}/simplified-tags")["Modality"]
            if modality in ("SEG", "SR"):
                found.setdefault(modality, []).append(instance)
                with urllib.request.urlopen(f"{ORTHANC}/instances/{instance}/file") as answer:
                    (folder / f"{modality}.dcm").write_bytes(answer.read())
        after = len(ask("/instances"))
        print(json.dumps({"before": before, "after": after, "cases": len(client.cases()), "found": found}))
    finally:
        for process in (server, orthanc):
            process.terminate()
            process.wait(60)
        log.close()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
