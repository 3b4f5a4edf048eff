"""`Server`: what the handlers share: store, models, workers, watchers, counters."""

import time
from typing import Any

from veloxseg.serve.models import Model
from veloxseg.serve.settings import Settings
from veloxseg.serve.store import Store
from veloxseg.serve.supervise import Supervisor
from veloxseg.serve.watch import Watch

__all__ = ["Server"]


class Server:
    """The state of a running server."""

    def __init__(self, settings: Settings, store: Store, models: dict[str, Model], token: str) -> None:
        self.settings, self.store, self.models, self.token = settings, store, models, token
        self.supervisor = Supervisor(store, settings)
        self.watch = Watch(store)
        self.began = time.time()
        self._beside: list[Any] = []
        self.requests = 0
        self.received_bytes = 0

    def send_to(self) -> list[str]:
        """The DICOM nodes to which results can be sent."""
        return [str(node) for node in self.settings.send]

    def start(self) -> None:
        """Starts what runs beside the web server: workers, and the DICOM node if there is one."""
        if self.settings.dicom is not None:
            from veloxseg.serve.dicom_node import DicomNode
            from veloxseg.serve.outbox import Sender

            self._beside.append(DicomNode(self.store, self.settings))
            if self.settings.send:
                self._beside.append(Sender(self.store, self.settings, self.settings.dicom.title))
        self.supervisor.start()

    def numbers(self) -> dict[str, float]:
        """What the server counts itself, for /metrics."""
        return {
            "requests_total": self.requests,
            "received_bytes_total": self.received_bytes,
            "worker_restarts_total": self.supervisor.restarts,
            "up_seconds": time.time() - self.began,
        }

    def close(self) -> None:
        for part in self._beside:
            part.close()
        self.supervisor.stop()
        self.store.close()
