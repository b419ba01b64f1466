"""The error tree.

    PDDError                 reason (CamelCase, becomes a condition's reason), retryable
    ├── InvalidInput         a person wrote something wrong: names field, value, remedy
    ├── Unreachable          a peer did not answer; a retry can help
    ├── Forbidden            a peer answered, and refuses us
    ├── TimedOut             a bounded wait ran out
    ├── Overloaded           a bounded queue is full; carries retry_after_s
    ├── EngineError          an engine answered with an error or broke off
    └── Conflict             the state changed under us; a fresh look can help
"""

from __future__ import annotations

from pdd.common.show import shown


class PDDError(Exception):
    """Base of every error that this project raises on purpose.

    `reason` is CamelCase and bounded in number: it goes into conditions and metric labels.
    `retryable` says whether the same call may succeed later without anybody changing anything.
    """

    reason: str = "InternalError"
    retryable: bool = False

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if reason is not None:
            self.reason = reason


class InvalidInput(PDDError):
    """A value that a person gave is wrong. The message names field, value and remedy."""

    reason = "InvalidInput"

    def __init__(self, field: str, value: object, remedy: str, *, reason: str | None = None) -> None:
        super().__init__(f"{field}: {shown(value, 120)}: {remedy}", reason=reason)
        self.field = field
        self.value = value
        self.remedy = remedy


class Unreachable(PDDError):
    """A peer could not be reached, or the connection broke."""

    reason = "Unreachable"
    retryable = True


class Forbidden(PDDError):
    """A peer refuses our credentials or our rights."""

    reason = "Forbidden"


class TimedOut(PDDError):
    """A wait with a bound ran out."""

    reason = "TimedOut"
    retryable = True


class Overloaded(PDDError):
    """A bounded queue is full. `retry_after_s` (seconds) is when to come back."""

    reason = "Overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float = 1.0, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_s = retry_after_s


class EngineError(PDDError):
    """An engine answered with an error, or broke off in mid-stream. `status` is the HTTP status, 0 if none."""

    reason = "EngineError"
    retryable = True

    def __init__(self, message: str, *, status: int = 0, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.status = status


class Conflict(PDDError):
    """The state changed under us; a fresh look can help."""

    reason = "Conflict"
    retryable = True
