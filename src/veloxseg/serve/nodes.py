"""DICOM nodes as users write them: AE@HOST:PORT or http(s)://… to send to, AE@HOST to allow, AE:PORT for our own."""

import re
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from veloxseg.errors import ConfigError, shown

__all__ = [
    "Node",
    "TlsFiles",
    "addresses_of",
    "allowed_node",
    "client_context",
    "own_node",
    "server_context",
    "target_node",
]

WEB = ("http://", "https://")
TITLE = r"[ -~]{1,16}?"  # an application entity title, as DICOM writes it


@dataclass(frozen=True)
class Node:
    """An application entity; a port of 0 means that it is not known."""

    title: str
    host: str
    port: int = 0

    @property
    def is_web(self) -> bool:
        """Whether it is reached by DICOMweb; its host is then the whole address."""
        return self.host.startswith(WEB)

    def __str__(self) -> str:
        if self.is_web:
            return self.host
        return f"{self.title}@{self.host}" + (f":{self.port}" if self.port else "")


@dataclass(frozen=True)
class TlsFiles:
    """What mutual TLS needs: our certificate and key, and the authority that signs the other side's."""

    certificate: Path
    key: Path
    authority: Path


def own_node(text: str, host: str) -> Node:
    """`AE:PORT`, which listens where the web server does, or `AE@HOST:PORT`."""
    found = re.fullmatch(rf"(?P<title>{TITLE})(@(?P<host>[^@\s]+))?:(?P<port>\d{{1,5}})", text)
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(f"--dicom {shown(text)!r} is not AE:PORT; write it as --dicom VELOXSEG:11112")
    return Node(found["title"].strip(), found["host"] or host, int(found["port"]))


def target_node(text: str) -> Node:
    """`AE@HOST:PORT` for C-STORE, or the http(s) address of a DICOMweb service for STOW-RS."""
    if text.startswith(WEB):
        parts = urlsplit(text)
        if not parts.hostname or parts.username or parts.fragment or parts.query:
            raise ConfigError(
                f"--send {shown(text)!r} is no address of a DICOMweb service; write it as "
                "--send https://pacs.example/dicom-web"
            )
        return Node("", text.rstrip("/"))
    found = re.fullmatch(rf"({TITLE})@([^@\s]+):(\d{{1,5}})", text)
    if found is None or not 0 < int(found[3]) <= 65535:
        raise ConfigError(
            f"--send {shown(text)!r} is not AE@HOST:PORT or an http(s) address; write it as --send PACS@192.168.1.5:104"
        )
    return Node(found[1].strip(), found[2], int(found[3]))


def allowed_node(text: str) -> Node:
    found = re.fullmatch(rf"({TITLE})@([^@\s]+)", text)
    if found is None:
        raise ConfigError(f"--allow {shown(text)!r} is not AE@HOST; write it as --allow PACS@192.168.1.5")
    return Node(found[1].strip(), found[2])


def addresses_of(host: str) -> set[str]:
    """All addresses of a name."""
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"{shown(host)} has no address ({error}); check the name") from error


def server_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """Mutual TLS: whoever connects shows a certificate of the authority."""
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """Mutual TLS for what we send; certificates of DICOM nodes seldom bear a host's name, so the authority decides."""
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    return context
