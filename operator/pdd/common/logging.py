"""One log format for every process: key=value fields behind a level, a time and a logger's name."""

from __future__ import annotations

import json
import logging
import os
import sys
import time


class JsonFormatter(logging.Formatter):
    """One JSON object a line; fields given as `extra={"fields": {...}}` stand beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            entry.update(fields)
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """The same for people: `HH:MM:SS.mmm level logger message key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}"
        fields = getattr(record, "fields", None)
        tail = "".join(f" {k}={v}" for k, v in fields.items()) if isinstance(fields, dict) else ""
        text = f"{at} {record.levelname.lower():7} {record.name} {record.getMessage()}{tail}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def setup_logging(level: str | None = None) -> None:
    """Log to standard error. PDD_LOG_LEVEL (info) and PDD_LOG_FORMAT (json|text) choose; text on a terminal."""
    style = os.environ.get("PDD_LOG_FORMAT") or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if style == "text" else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel((level or os.environ.get("PDD_LOG_LEVEL") or "info").upper())
