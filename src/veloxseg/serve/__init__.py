"""`veloxseg serve`: a web page, an API and a DICOM node around prediction, without a GPU, a container or the internet.

    browser, curl, PACS → server (never computes) → store (SQLite and files) ← workers (compute, never listen)

Either side may be killed at any moment: what was accepted is in the store, and is done when both are there again.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Client"]

if TYPE_CHECKING:
    from veloxseg.serve.client import Client as Client


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module 'veloxseg.serve' has no attribute {name!r}")
    from veloxseg.serve.client import Client

    return Client
