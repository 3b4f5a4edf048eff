"""STOW-RS: a DICOM object per request to a DICOMweb service, POST ADDRESS/studies, as DICOM PS3.18 section 10.5 has it.

Success is believed only where the answer lists the object as stored; a service that keeps it says so at once, so there
is no storage commitment to wait for. With --dicom-tls the same certificate, key and authority serve for https.
"""

import http.client
import json
import secrets
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Unstored", "store_object"]

TIMEOUT = 60.0
STORED = "00081199"  # ReferencedSOPSequence
INSTANCE = "00081155"  # ReferencedSOPInstanceUID


class Unstored(Exception):
    """The service did not take the object; the text says why, in words of ours."""


def store_object(address: str, path: Path, sop: str, context: ssl.SSLContext | None) -> None:
    """Sends a file, and returns when the service says that it has it."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    line: http.client.HTTPConnection
    if parts.scheme == "https":
        line = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT, context=context)
    else:
        line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
    mark = secrets.token_hex(16)
    body = b"\r\n".join(
        [f"--{mark}".encode(), b"Content-Type: application/dicom", b"", path.read_bytes(), f"--{mark}--".encode(), b""]
    )
    headers = {
        "Content-Type": f'multipart/related; type="application/dicom"; boundary={mark}',
        "Accept": "application/dicom+json",
    }
    try:
        line.request("POST", f"{parts.path}/studies", body, headers)
        response = line.getresponse()
        answer = response.read(1 << 20)
    except (OSError, http.client.HTTPException) as error:
        raise Unstored(f"no answer ({type(error).__name__})") from error
    finally:
        line.close()
    if response.status not in (200, 202) or sop not in _listed(answer, STORED):
        raise Unstored(f"refused with status {response.status}")


def _listed(answer: bytes, sequence: str) -> set[str]:
    """The instances that a sequence of the answer names."""
    try:
        told: Any = json.loads(answer)
        told = told[0] if isinstance(told, list) else told
        return {str(item[INSTANCE]["Value"][0]) for item in told.get(sequence, {}).get("Value", [])}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return set()
