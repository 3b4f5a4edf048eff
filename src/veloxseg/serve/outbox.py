"""The outbox: DICOM objects on their way to other nodes. It lies in the store, so nothing is forgotten by a restart.

    waiting → sent → committed        the other node has promised to keep it
        ↑______|                      it says that it has not: sent again
    failed                            after many attempts, each later than the one before

An object has one UID and one place in the outbox for each target, so it is never filed twice.
"""

import sqlite3
import threading
import time
from collections import defaultdict
from typing import Any

from veloxseg.serve.logs import log
from veloxseg.serve.nodes import Node, client_context
from veloxseg.serve.settings import Settings
from veloxseg.serve.states import touch
from veloxseg.serve.store import Store
from veloxseg.serve.stow import Unstored, store_object

__all__ = ["Sender", "post", "take_report"]

LOOK_SECONDS = 0.3
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0  # seconds between attempts: each time twice as long
MOST_ATTEMPTS = 40
REPORT_SECONDS = 600.0  # then commitment is asked for once more
TIMEOUT = 60.0
INSTANCE = "1.2.840.10008.1.20.1.1"  # the well-known instance of storage commitment


def post(connection: sqlite3.Connection, case: str, target: str, path: str, sop_class: str, sop: str) -> None:
    """Puts an object into the outbox, within a transaction; one that is there already is sent once more."""
    connection.execute(
        "INSERT INTO outbox (case_id, target, path, sop_class, sop, state, attempts, next, transaction_uid, message,"
        " changed) VALUES (?, ?, ?, ?, ?, 'waiting', 0, 0, '', '', ?)"
        " ON CONFLICT (target, sop) DO UPDATE SET state = 'waiting', attempts = 0, next = 0, message = ''",
        (case, target, path, sop_class, sop, time.time()),
    )


class Sender:
    """A thread that empties the outbox."""

    def __init__(self, store: Store, settings: Settings, title: str) -> None:
        self.store, self.settings, self.title = store, settings, title
        self.targets = {str(node): node for node in settings.send}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.round()
            except Exception as error:  # the next round must come, whatever happened to this one
                log("internal error", kind=type(error).__name__, part="outbox")
        self.store.close()

    def round(self) -> None:
        """One look: what is due goes out, target by target."""
        due: dict[str, list[sqlite3.Row]] = defaultdict(list)
        for row in self.store.read(
            "SELECT * FROM outbox WHERE state IN ('waiting', 'sent') AND next <= ? ORDER BY id", time.time()
        ):
            due[row["target"]].append(row)
        for target, rows in due.items():
            if target in self.targets:
                deliver = self._deliver_by_web if self.targets[target].is_web else self._deliver
                deliver(self.targets[target], rows)

    def _deliver_by_web(self, node: Node, rows: list[sqlite3.Row]) -> None:
        """STOW-RS: the answer itself says that the object is kept."""
        for row in rows:
            path = self.store.case_folder(row["case_id"]) / row["path"]
            try:
                store_object(node.host, path, row["sop"], client_context(self.settings.dicom_tls))
            except (Unstored, OSError) as error:
                self._later(row, str(error) if isinstance(error, Unstored) else "cannot be read")
                continue
            self._set(row, "committed", attempts=row["attempts"] + 1, message="")
            log("DICOM object sent", case=row["case_id"], attempts=row["attempts"] + 1)

    def _deliver(self, node: Node, rows: list[sqlite3.Row]) -> None:
        from pynetdicom import AE
        from pynetdicom.sop_class import StorageCommitmentPushModel

        entity = AE(ae_title=self.title)
        entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = entity.connection_timeout = TIMEOUT
        for sop_class in sorted({row["sop_class"] for row in rows}):
            entity.add_requested_context(sop_class, ["1.2.840.10008.1.2.1", "1.2.840.10008.1.2"])
        entity.add_requested_context(StorageCommitmentPushModel)
        context = client_context(self.settings.dicom_tls)
        tls = None if context is None else (context, None)
        association = entity.associate(node.host, node.port, ae_title=node.title, tls_args=tls)
        if not association.is_established:
            for row in rows:
                self._later(row, "no association")
            return
        try:
            sent = [row for row in rows if row["state"] == "sent" or self._send(association, row)]
            if sent:
                self._ask_to_keep(association, StorageCommitmentPushModel, sent)
        finally:
            association.release()

    def _send(self, association: Any, row: sqlite3.Row) -> bool:
        path = self.store.case_folder(row["case_id"]) / row["path"]
        try:
            status = association.send_c_store(str(path)).get("Status")
        except (AttributeError, OSError, RuntimeError, ValueError) as error:
            self._later(row, f"cannot be sent ({type(error).__name__})")
            return False
        if status is None or not (status == 0 or 0xB000 <= status <= 0xBFFF):
            self._later(row, "no answer" if status is None else f"refused with status {status:#06x}")
            return False
        self._set(row, "sent", next=time.time() + REPORT_SECONDS, attempts=row["attempts"] + 1, message="")
        log("DICOM object sent", case=row["case_id"], attempts=row["attempts"] + 1)
        return True

    def _ask_to_keep(self, association: Any, model: Any, rows: list[sqlite3.Row]) -> None:
        """Storage commitment: the answer comes by itself, mostly over an association of the other side's."""
        from pydicom.dataset import Dataset
        from pydicom.uid import generate_uid

        if not any(context.abstract_syntax == model for context in association.accepted_contexts):
            for row in rows:
                self._set(row, "sent", next=float("inf"), message="the node offers no storage commitment")
            return
        asked, transaction = Dataset(), generate_uid(prefix=None)
        asked.TransactionUID = transaction
        asked.ReferencedSOPSequence = []
        for row in rows:
            item = Dataset()
            item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = row["sop_class"], row["sop"]
            asked.ReferencedSOPSequence.append(item)
            self._set(row, "sent", next=time.time() + REPORT_SECONDS, transaction_uid=str(transaction))
        status, _ = association.send_n_action(asked, 1, model, INSTANCE)
        if status.get("Status") != 0:
            log("storage commitment refused", status=str(status.get("Status")))

    def _later(self, row: sqlite3.Row, message: str) -> None:
        attempts = row["attempts"] + 1
        pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE)
        state = "failed" if attempts >= MOST_ATTEMPTS else "waiting"
        self._set(row, state, next=time.time() + pause, attempts=attempts, message=message)
        log("DICOM object not sent", case=row["case_id"], attempts=attempts, why=message)

    def _set(self, row: sqlite3.Row, state: str, **columns: Any) -> None:
        values = {"state": state, "changed": time.time(), **columns}
        names = ", ".join(f"{name} = ?" for name in values)
        with self.store.write() as connection:
            connection.execute(f"UPDATE outbox SET {names} WHERE id = ?", (*values.values(), row["id"]))
            touch(connection, row["case_id"])


def take_report(store: Store, information: Any) -> None:
    """A report of storage commitment: what is kept is done with, what is not is sent again."""
    transaction = str(information.get("TransactionUID") or "")
    kept = [str(item.ReferencedSOPInstanceUID) for item in information.get("ReferencedSOPSequence") or []]
    lost = [str(item.ReferencedSOPInstanceUID) for item in information.get("FailedSOPSequence") or []]
    with store.write() as connection:
        rows = connection.execute("SELECT * FROM outbox WHERE transaction_uid = ?", (transaction,)).fetchall()
        for row in rows if transaction else ():
            if row["sop"] in kept:
                connection.execute("UPDATE outbox SET state = 'committed', message = '' WHERE id = ?", (row["id"],))
            elif row["sop"] in lost:
                connection.execute(
                    "UPDATE outbox SET state = 'waiting', next = ?, message = 'not kept by the node' WHERE id = ?",
                    (time.time() + FIRST_PAUSE, row["id"]),
                )
            touch(connection, row["case_id"])
    log("storage commitment", kept=len(kept), lost=len(lost))
