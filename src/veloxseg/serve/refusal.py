"""`Refusal`: why a request is not served, as a status and one line."""

__all__ = ["Refusal"]


class Refusal(Exception):
    """Ends a request with a status and a reason; `retry_after` tells when to come again, in seconds."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after
