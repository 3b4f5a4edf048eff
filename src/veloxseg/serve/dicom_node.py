"""The DICOM node: C-ECHO, C-STORE, and reports of storage commitment, from those who are allowed.

A study is a case. It is looked at when no association that feeds it is open and nothing has come for a while, so that
a study that is sent over two associations, or in two halves, is one case. A slice is on disk and in the store before
its sender is told so. What is there already is not stored again, and our own objects are never input.
"""

import hashlib
import logging
import os
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, StoragePresentationContexts, evt
from pynetdicom.sop_class import StorageCommitmentPushModel, Verification

from veloxseg.errors import OutputError
from veloxseg.serve import cases
from veloxseg.serve.intake import MANUFACTURER
from veloxseg.serve.logs import log
from veloxseg.serve.nodes import addresses_of, server_context
from veloxseg.serve.outbox import take_report
from veloxseg.serve.refusal import Refusal
from veloxseg.serve.settings import Settings
from veloxseg.serve.store import Store
from veloxseg.serve.uploads import check_disk, room_in_line

__all__ = ["DicomNode"]

LOOK_SECONDS = 0.25
MOST_ASSOCIATIONS = 32
TIMEOUT = 60.0
SUCCESS, NO_ROOM, NOT_ALLOWED, NO_STUDY, NOT_UNDERSTOOD = 0x0000, 0xA700, 0x0124, 0xA900, 0xC000


class DicomNode:
    """Listens in threads of its own; `close` ends it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        assert settings.dicom is not None
        logging.getLogger("pynetdicom").disabled = True  # its lines quote what senders say
        for name in ("acse", "ae", "assoc", "dimse", "dsutils", "dul", "events", "sm", "transport"):
            logging.getLogger(f"pynetdicom.{name}").disabled = True
        self.store, self.settings, self.own = store, settings, settings.dicom
        self.allowed = {(node.title, address) for node in settings.allow for address in addresses_of(node.host)}
        self.feeding: dict[Any, set[str]] = {}  # association -> the studies that it has sent slices of
        self.lock = threading.Lock()
        self._stopping = threading.Event()
        self._listener = self._listen(server_context(settings.dicom_tls))
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()

    def _listen(self, context: ssl.SSLContext | None) -> Any:
        entity = AE(ae_title=self.own.title)
        entity.require_called_aet = True
        entity.maximum_associations = MOST_ASSOCIATIONS
        entity.network_timeout = entity.dimse_timeout = entity.acse_timeout = TIMEOUT
        entity.supported_contexts = StoragePresentationContexts[:120]
        for one in entity.supported_contexts:
            one.transfer_syntax = [syntax for syntax in ALL_TRANSFER_SYNTAXES if syntax != "1.2.840.10008.1.2.1.99"]
        entity.add_supported_context(Verification)
        entity.add_supported_context(StorageCommitmentPushModel, scu_role=True, scp_role=True)
        handlers: list[tuple[Any, Callable[[Any], Any]]] = [
            (evt.EVT_REQUESTED, self.check),
            (evt.EVT_C_ECHO, self.echo),
            (evt.EVT_C_STORE, self.receive),
            (evt.EVT_N_EVENT_REPORT, self.report),
            (evt.EVT_CONN_CLOSE, self.closed),
        ]
        try:
            place = (self.own.host, self.own.port)
            return entity.start_server(place, block=False, evt_handlers=handlers, ssl_context=context)
        except OSError as error:
            raise OutputError(
                f"cannot listen for DICOM at {self.own.host} port {self.own.port} ({error.strerror}); choose another"
            ) from error

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def close(self) -> None:
        self._stopping.set()
        for association in self._listener.active_associations:
            association.abort()  # its thread would keep the process alive until it times out
        self._listener.shutdown()
        self._looker.join(TIMEOUT)

    # -- who may ------------------------------------------------------------------------------------------------

    def check(self, event: Any) -> None:
        """Rejects an association of a stranger, and says in the log which part of it was wrong."""
        primitive = event.assoc.requestor.primitive
        called, calling = primitive.called_ae_title.strip(), primitive.calling_ae_title.strip()
        if called != self.own.title:
            log("DICOM association refused", wrong="called AE title")
            return  # pynetdicom rejects it by itself
        if (calling, event.assoc.requestor.address) in self.allowed:
            return
        known = calling in {title for title, _ in self.allowed}
        log("DICOM association refused", wrong="address" if known else "calling AE title")
        event.assoc.acse.send_reject(0x01, 0x01, 0x03)  # permanent, by the user, calling title not recognised
        event.assoc.kill()

    def may(self, event: Any) -> bool:
        requestor = event.assoc.requestor
        return (requestor.ae_title.strip(), requestor.address) in self.allowed

    def echo(self, event: Any) -> int:
        return SUCCESS if self.may(event) else NOT_ALLOWED

    # -- what comes ---------------------------------------------------------------------------------------------

    def receive(self, event: Any) -> int:
        """Stores one instance; the status is the answer to the sender."""
        if not self.may(event):
            return NOT_ALLOWED
        try:
            tags = event.dataset
            study, instance = str(tags.get("StudyInstanceUID") or ""), str(tags.get("SOPInstanceUID") or "")
            own = str(tags.get("Manufacturer") or "") == MANUFACTURER
            title = f"{tags.get('PatientID') or 'no id'} {tags.get('StudyDate') or ''}".strip()[:200]
        except Exception:  # damaged in one of the many ways that pydicom tells apart
            return NOT_UNDERSTOOD
        if not study or not instance or instance != str(event.request.AffectedSOPInstanceUID):
            return NO_STUDY
        if own:
            log("own DICOM object ignored")
            return SUCCESS
        try:
            with self.lock:
                self.feeding.setdefault(event.assoc, set()).add(study)
                case = self._case_of(study, title)
            self._store(case, instance, event.encoded_dataset())
        except (Refusal, cases.Missing, OSError) as error:
            log("DICOM instance refused", reason=type(error).__name__)
            return NO_ROOM
        finally:
            self.store.close()  # the connection belongs to this thread, which ends with the association
        return SUCCESS

    def _case_of(self, study: str, title: str) -> str:
        check_disk(self.settings)
        known = self.store.read("SELECT id FROM cases WHERE study = ?", study)
        if known:
            return str(known[0]["id"])
        room_in_line(self.store, self.settings)
        return cases.create(self.store, title, model=None, confirm=False, source="dicom", study=study)

    def _store(self, case: str, instance: str, data: bytes) -> None:
        found = hashlib.sha256(data).hexdigest()
        if self.store.read("SELECT 1 FROM files WHERE case_id = ? AND sop = ? AND sha256 = ?", case, instance, found):
            return
        own = f"{secrets.token_hex(8)}.dcm"
        folder = self.store.case_folder(case) / "in"
        part = folder / f".part-{own}"
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, folder / own)
        finally:
            part.unlink(missing_ok=True)
        cases.add_file(self.store, case, name=own, stored=own, size=len(data), digest=found, sop=instance)

    def report(self, event: Any) -> tuple[int, None]:
        """What another node says about objects that it was asked to keep."""
        if self.may(event):
            take_report(self.store, event.event_information)
            self.store.close()
        return SUCCESS, None

    def closed(self, event: Any) -> None:
        with self.lock:
            self.feeding.pop(event.assoc, None)

    # -- when a study is complete -----------------------------------------------------------------------------------

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # the next look must come, whatever happened to this one
                log("internal error", kind=type(error).__name__, part="DICOM node")
        self.store.close()

    def look(self) -> None:
        """Has workers look at studies that have gone quiet, and once more when patience with an incomplete one ends."""
        with self.lock:
            fed = set().union(*self.feeding.values())
        now = time.time()
        receiving = self.store.read("SELECT * FROM cases WHERE source = 'dicom' AND state = 'receiving'")
        for row in receiving:
            news = row["looked"] is None or row["looked"] < row["arrived"]
            late = now - row["arrived"] > self.settings.patience
            if row["study"] not in fed and now - row["arrived"] > self.settings.quiet and (news or late):
                cases.start_reading(self.store, row["id"])
