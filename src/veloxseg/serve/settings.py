"""What `veloxseg serve` was asked for, checked, and handed to server and workers."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.serve.nodes import Node, TlsFiles

__all__ = ["Settings", "is_loopback"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the server listens, what it offers, and its limits."""

    folder: Path
    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8760
    token_file: Path | None = None
    names: tuple[str, ...] = ()  # further names under which the server is known, for the Host header
    behind_proxy: bool = False  # TLS ends at a proxy
    certificate: Path | None = None
    key: Path | None = None
    runtime: str = "auto"
    threads: int | None = None
    max_ram: float | None = None
    ray: str | None = None  # address of a cluster that predicts
    queue: int = 100  # unfinished cases; beyond, 429
    keep_days: float = 3.0
    max_upload_gb: float = 4.0  # of one file
    min_free_gb: float = 2.0  # of the disk; below, 507
    dicom: Node | None = None  # our own DICOM node
    allow: tuple[Node, ...] = ()  # who may send
    send: tuple[Node, ...] = ()  # where results go
    objects: tuple[str, ...] = ("seg",)  # what is sent
    dicom_tls: TlsFiles | None = None
    quiet: float = 10.0  # seconds without a slice, before a study is looked at
    patience: float = 600.0  # seconds for what is missing
    options: dict[str, Any] = field(default_factory=dict)  # of prediction

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--tls-cert and --tls-key belong together; give both or none")
        for file in (self.certificate, self.key, self.token_file):
            if file is not None and not file.is_file():
                raise ConfigError(f"{file} does not exist; check the path")
        if self.ray is not None and self.ray.startswith("ray://"):
            raise ConfigError(f"--ray {self.ray} is for Ray's client; start the server on a node, with --ray auto")
        if self.dicom is None and (self.allow or self.send or self.dicom_tls):
            raise ConfigError("--allow, --send and --dicom-tls are for a DICOM node; give --dicom AE:PORT too")
        if self.dicom is not None and not self.allow:
            raise ConfigError("--dicom without --allow takes nothing from anybody; name senders with --allow AE@HOST")
        if not is_loopback(self.host) and not (self.certificate or self.behind_proxy):
            raise ConfigError(
                f"--host {self.host} can be reached by others, and the token would travel unprotected; give "
                "--tls-cert and --tls-key, or --behind-proxy if a proxy does TLS"
            )

    @property
    def address(self) -> str:
        """The start of the server's own URLs."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{name}:{self.port}"

    def for_worker(self, lane: str, name: str) -> dict[str, Any]:
        """What a worker has to know, as JSON."""
        return {
            "folder": str(self.folder),
            "models": [str(Path(model).absolute()) for model in self.models],
            "runtime": self.runtime,
            "threads": self.threads,
            "ray": self.ray,
            "options": {**self.options, "max_ram": self.max_ram},
            "send": [str(node) for node in self.send],
            "objects": list(self.objects),
            "patience": self.patience,
            "lane": lane,
            "name": name,
        }


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
