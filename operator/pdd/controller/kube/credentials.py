"""The bearer token of each request: fixed, from a file that the kubelet rotates, or from a credential plugin."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path

import orjson

from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import Forbidden, InvalidInput, TimedOut
from pdd.controller.kube.access import ClusterAccess, ExecPlugin

FILE_REREAD_S = 60.0
PLUGIN_TIMEOUT_S = 20.0
PLUGIN_DEFAULT_LIFE_S = 300.0
MAX_PLUGIN_OUTPUT_BYTES = 1 << 20


class TokenSource:
    """Gives the current token (empty: none needed). A 401 makes the next call read or run again: call `invalidate`."""

    def __init__(self, access: ClusterAccess, *, clock: Clock = monotonic_s) -> None:
        self._access = access
        self._clock = clock
        self._token = access.token
        self._good_until_s = float("inf") if not (access.token_file or access.plugin) else 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        if self._clock() < self._good_until_s:
            return self._token
        async with self._lock:
            if self._clock() >= self._good_until_s:
                await self._refresh()
        return self._token

    def invalidate(self) -> bool:
        """Forget the token. False when there is no other source to ask, so that a retry is useless."""
        if not (self._access.token_file or self._access.plugin):
            return False
        self._good_until_s = 0.0
        return True

    async def _refresh(self) -> None:
        if self._access.plugin is not None:
            self._token, life_s = await run_plugin(self._access.plugin, self._access)
            self._good_until_s = self._clock() + max(1.0, life_s * 0.8)
            return
        path = Path(self._access.token_file)
        self._token = (await asyncio.to_thread(path.read_text)).strip()
        self._good_until_s = self._clock() + FILE_REREAD_S


def allowed_plugin(command: str, folder: str | None = None) -> str:
    """Full path of a credential plugin, only from the operator's own plugin folder (PDD_EXEC_PLUGIN_DIR).

    Whoever may write a PDDLink must not be able to run an arbitrary program with the operator's rights.
    """
    base = Path(folder or os.environ.get("PDD_EXEC_PLUGIN_DIR", "/opt/pdd/plugins"))
    if "/" in command or command in ("", ".", ".."):
        raise InvalidInput(
            "spec.member.exec.command",
            command,
            f"must be the bare name of a program in {base}",
            reason="CredentialsInvalid",
        )
    path = base / command
    if not os.access(path, os.X_OK):
        raise InvalidInput(
            "spec.member.exec.command",
            command,
            f"is not an executable in {base}; add it to the operator image",
            reason="CredentialsInvalid",
        )
    return str(path)


async def run_plugin(plugin: ExecPlugin, access: ClusterAccess) -> tuple[str, float]:
    """Run the plugin; returns the token and how many seconds it lives. Raises Forbidden or TimedOut with its last
    words."""
    info = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": access.server, "certificate-authority-data": None}},
    }
    env = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/tmp"), **dict(plugin.env)}
    env["KUBERNETES_EXEC_INFO"] = orjson.dumps(info).decode()
    process = await asyncio.create_subprocess_exec(
        plugin.command,
        *plugin.args,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise TimedOut(
            f"credential plugin {plugin.command} gave no answer within {PLUGIN_TIMEOUT_S:g} s",
            reason="CredentialsInvalid",
        ) from error
    if process.returncode != 0 or len(out) > MAX_PLUGIN_OUTPUT_BYTES:
        raise Forbidden(
            f"credential plugin {plugin.command} ended with {process.returncode}: "
            f"{err.decode(errors='replace')[-200:].strip()}",
            reason="CredentialsInvalid",
        )
    return parse_exec_credential(out, plugin.command)


def parse_exec_credential(out: bytes, command: str, now: datetime | None = None) -> tuple[str, float]:
    """(token, seconds it lives) of an ExecCredential document."""
    try:
        status = orjson.loads(out)["status"]
        token = str(status["token"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Forbidden(
            f"credential plugin {command} printed no ExecCredential with status.token", reason="CredentialsInvalid"
        ) from error
    expires = status.get("expirationTimestamp")
    if not expires:
        return token, PLUGIN_DEFAULT_LIFE_S
    at = datetime.fromisoformat(str(expires).replace("Z", "+00:00"))
    return token, (at - (now or datetime.now(at.tzinfo))).total_seconds()
