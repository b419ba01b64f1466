"""What an API server can answer instead of what we asked, as errors of the one tree.

PDDError
├── ApiError            any answer >= 400; `status` (HTTP) and `api_reason` (Kubernetes) tell which
│   ├── NotFound        404
│   ├── ApiConflict     409: other field owner, stale resourceVersion or UID precondition
│   ├── Unauthorized    401: the credentials are not valid (any more)
│   ├── AccessDenied    403: valid credentials, missing right
│   ├── Invalid         400, 422: the object that we sent is refused
│   ├── Expired         410: the resourceVersion is too old, list again
│   └── Throttled       429 and 5xx with Retry-After: come back later
└── Unreachable, TimedOut   (pdd.common.errors) no answer at all
"""

from __future__ import annotations

from typing import Any

from pdd.common.errors import PDDError


class ApiError(PDDError):
    """An API server answered with an error. `status` is the HTTP status, `api_reason` Kubernetes' own reason."""

    reason = "ApiError"
    retryable = True

    def __init__(self, message: str, *, status: int, api_reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.api_reason = api_reason
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    reason = "NotFound"
    retryable = False


class ApiConflict(ApiError):
    reason = "Conflict"


class Unauthorized(ApiError):
    reason = "CredentialsInvalid"
    retryable = False


class AccessDenied(ApiError):
    reason = "Forbidden"
    retryable = False


class Invalid(ApiError):
    reason = "ApplyFailed"
    retryable = False


class Expired(ApiError):
    reason = "Expired"


class Throttled(ApiError):
    reason = "Throttled"


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: AccessDenied,
    404: NotFound,
    409: ApiConflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}


def error_of(status: int, body: Any, what: str, retry_after: str | None = None) -> ApiError:
    """The typed error for an answer. `body` is the decoded `Status` object or text; `what` names the call."""
    message, reason = "", ""
    if isinstance(body, dict):
        message, reason = str(body.get("message", "")), str(body.get("reason", ""))
    elif isinstance(body, str):
        message = body[:300]
    kind = _BY_STATUS.get(status, ApiError)
    wait: float | None = None
    if retry_after and retry_after.isdigit():
        wait = float(retry_after)
        if status >= 500:
            kind = Throttled
    return kind(f"{what}: {status} {message or reason}".strip(), status=status, api_reason=reason, retry_after_s=wait)
