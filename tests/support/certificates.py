"""A certificate that is its own authority, made by openssl for one test."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """The certificate of a host, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(["openssl", *kind, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
