"""The connection to one member cluster (site B of one PDDLink): credentials, client, watches, health, identity.

Exactly one `Member` per link, shared by all deployments that name it. Its supervisor is the only code that probes;
others
ask `client()` and get the client or the reason why there is none, at once and without a call. New credentials are taken
over by build - check - sync - swap - stop, so that neither a reconcile nor a watch falls into a gap.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import PDDError
from pdd.common.tasks import cancel, spawn
from pdd.controller.health import (
    Failure,
    Health,
    HealthLaw,
    MemberState,
    after_failure,
    after_success,
    next_probe_s,
)
from pdd.controller.kube.access import ClusterAccess, ExecPlugin, parse_kubeconfig
from pdd.controller.kube.client import KubeClient, Observer
from pdd.controller.kube.credentials import allowed_plugin
from pdd.controller.kube.errors import AccessDenied, NotFound, Unauthorized
from pdd.controller.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS
from pdd.controller.kube.store import Changed, ObjectStore, Source

_log = logging.getLogger("pdd.controller.member")

EXPIRE_ANNOTATION = "pdd.dev/credentials-expire"
"""On the Secret: when its token ends."""
CREDENTIALS_REREAD_S = 10.0
PROBE_TIMEOUT_S = 4.0
SYNC_TIMEOUT_S = 15.0
IDENTITY_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """Where the member is, as the PDDLink says. Either a Secret with a kubeconfig, or server + CA + credential
    plugin."""

    namespace: str
    secret_namespace: str = ""
    secret_name: str = ""
    secret_key: str = "kubeconfig"
    server: str = ""
    ca_pem: str = ""
    plugin: ExecPlugin | None = None
    pinned_identity: str = ""


@dataclass(frozen=True, slots=True)
class MemberView:
    """What others may know of a member at this moment. `identity` is the UID of its kube-system namespace, if
    readable."""

    health: Health
    identity: str = ""
    identity_note: str = ""
    credentials_failure: Failure | None = None
    """The newest credentials do not work while older ones still do."""
    server: str = ""
    credentials_expire: str = ""
    """When the token of the Secret ends, RFC 3339, as `pdd link create` noted it; empty: not known, or never."""


class Member:
    """Supervises one member cluster. `start`, `configure` on each reconcile, `stop`."""

    def __init__(
        self,
        name: str,
        home: KubeClient,
        sources: Sequence[Source],
        *,
        index_label: str,
        on_change: Callable[[], None],
        on_object: Changed,
        law: HealthLaw | None = None,
        observer: Observer | None = None,
        clock: Clock = monotonic_s,
    ) -> None:
        self.name = name
        self._home = home
        self._sources = sources
        self._index_label = index_label
        self._on_change = on_change
        self._on_object = on_object
        self._law = law or HealthLaw()
        self._observer = observer
        self._clock = clock
        self._health = Health(since_s=clock())
        self._target: MemberTarget | None = None
        self._client: KubeClient | None = None
        self._store: ObjectStore | None = None
        self._identity = ""
        self._identity_note = ""
        self._credentials_failure: Failure | None = None
        self._read_at_s = float("-inf")
        self._rejected = ""
        self._expire = ""
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = spawn(self._supervise(), name=f"member-{self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            await cancel(self._task)
        await self._retire(self._client, self._store)
        self._client = self._store = None

    def configure(self, target: MemberTarget) -> None:
        """Take over what the link says now. A change is acted on at once."""
        if target == self._target:
            return
        pin_only = self._target is not None and replace(self._target, pinned_identity=target.pinned_identity) == target
        self._target = target
        if not pin_only:
            self._read_at_s, self._rejected = float("-inf"), ""
        self._kick.set()

    def recheck(self) -> None:
        """Read the credentials again soon, for instance since the Secret has changed."""
        self._read_at_s = float("-inf")
        self._kick.set()

    @property
    def view(self) -> MemberView:
        server = self._client.access.server if self._client else ""
        return MemberView(
            self._health, self._identity, self._identity_note, self._credentials_failure, server, self._expire
        )

    @property
    def client(self) -> KubeClient | None:
        """The client while calls may be made, else None: `view.health.failure` says why."""
        return self._client if self._health.usable else None

    @property
    def store(self) -> ObjectStore | None:
        """The last known objects of the member; None before the first connection."""
        return self._store

    def failed(self, error: PDDError) -> None:
        """A call of somebody else's failed. Silence and refused credentials count against the member, other answers
        do not."""
        if error.reason in ("Unreachable", "TimedOut", "CredentialsInvalid"):
            self._kick.set()

    # -- supervisor -------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while True:
            self._kick.clear()
            if self._target is not None:
                await self._round(self._target)
            wait_s = next_probe_s(self._health, self._law)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._kick.wait()
                # A kick is a hint, not a reason to hammer the cluster: many failing callers make one probe.
                await asyncio.sleep(min(0.2, wait_s))

    async def _round(self, target: MemberTarget) -> None:
        before = self.view
        try:
            due = self._clock() - self._read_at_s >= CREDENTIALS_REREAD_S
            if due or self._client is None or self._definite:
                await self._take_credentials(target)
            if self._client is not None:
                await self._probe(self._client, target)
                self._health = after_success(self._health, self._clock(), self._law)
        except PDDError as error:
            self._health = after_failure(self._health, failure_of(error, target), self._clock(), self._law)
        except Exception as error:
            _log.exception("probe of member %s broke", self.name)
            self._health = after_failure(self._health, Failure("InternalError", repr(error)), self._clock(), self._law)
        after = self.view
        if _news(before) != _news(after):
            _log.info(
                "member changed",
                extra={
                    "fields": {
                        "link": self.name,
                        "state": after.health.state.value,
                        "error": after.health.failure.message if after.health.failure else "",
                    }
                },
            )
            self._on_change()

    @property
    def _definite(self) -> bool:
        return self._health.failure is not None and self._health.failure.definite

    async def _take_credentials(self, target: MemberTarget) -> None:
        """Read the credentials; if they differ from those in use, connect with them and only then give up the old
        ones."""
        try:
            access = await self._read_access(target)
        except PDDError:
            # The Secret is gone or broken: a working client goes on working, a missing one stays missing.
            if self._client is not None and not self._definite:
                return
            raise
        self._read_at_s = self._clock()
        if self._client is not None and access.fingerprint == self._client.access.fingerprint:
            self._credentials_failure, self._rejected = None, ""
            return
        if access.fingerprint == self._rejected and self._client is not None and not self._definite:
            return
        fresh = KubeClient(access, timeout_s=10.0, observer=self._observer)
        store = ObjectStore(
            fresh,
            self._sources,
            namespaces=(target.namespace,),
            index_label=self._index_label,
            on_change=self._on_object,
            on_error=self.failed,
        )
        try:
            await self._probe(fresh, target)
            store.start()
            await store.wait_synced(SYNC_TIMEOUT_S)
        except BaseException as error:
            await self._retire(fresh, store)
            if isinstance(error, PDDError) and self._client is not None and self._health.usable:
                self._rejected = access.fingerprint
                self._credentials_failure = failure_of(error, target)
                return
            raise
        old_client, old_store = self._client, self._store
        self._client, self._store = fresh, store
        self._credentials_failure, self._rejected = None, ""
        if self._health.state is MemberState.LOST:
            self._health = Health(since_s=self._clock())
        await self._retire(old_client, old_store)

    async def _read_access(self, target: MemberTarget) -> ClusterAccess:
        if target.plugin is not None:
            plugin = replace(target.plugin, command=allowed_plugin(target.plugin.command))
            return ClusterAccess(server=target.server.rstrip("/"), ca_pem=target.ca_pem, plugin=plugin)
        where = f"Secret {target.secret_namespace}/{target.secret_name} key {target.secret_key}"
        try:
            secret = await self._home.get(SECRETS, target.secret_namespace, target.secret_name)
        except NotFound as error:
            raise CredentialsMissing(
                f"{where} does not exist; make it with: pdd link create, or kubectl create secret generic "
                f"{target.secret_name} -n {target.secret_namespace} --from-file={target.secret_key}=<kubeconfig of B>"
            ) from error
        self._expire = str((secret["metadata"].get("annotations") or {}).get(EXPIRE_ANNOTATION, ""))
        encoded = (secret.get("data") or {}).get(target.secret_key)
        if not encoded:
            keys = ", ".join(sorted(secret.get("data") or {})) or "none"
            raise CredentialsMissing(f"{where} is missing; the Secret has the keys: {keys}")
        return parse_kubeconfig(base64.b64decode(encoded).decode(errors="replace"), where=where, allow_files=False)

    async def _probe(self, client: KubeClient, target: MemberTarget) -> None:
        """Prove on this very client: the server answers, takes our credentials, lets us read, and is the cluster we
        know."""
        await client.list_some(CONFIGMAPS, target.namespace, timeout_s=PROBE_TIMEOUT_S)
        try:
            namespace = await client.get(NAMESPACES, None, IDENTITY_NAMESPACE, timeout_s=PROBE_TIMEOUT_S)
        except AccessDenied:
            self._identity_note = (
                f"the member credentials may not get the namespace {IDENTITY_NAMESPACE}: the cluster's identity "
                f"is not checked; "
                "upgrade the chart pdd-member in B"
            )
            return
        identity = str(namespace["metadata"]["uid"])
        if target.pinned_identity and identity != target.pinned_identity:
            raise IdentityChanged(
                f"{client.access.server} is now cluster {identity}, not {target.pinned_identity}: nothing is "
                f"written there. If B was "
                f"rebuilt on purpose, annotate the PDDLink: pdd.dev/accept-identity={identity}"
            )
        self._identity, self._identity_note = identity, ""

    async def _retire(self, client: KubeClient | None, store: ObjectStore | None) -> None:
        """Whole even if it is cancelled: the operator may be told to stop while it changes credentials."""
        try:
            if store is not None:
                await store.stop()
        finally:
            if client is not None:
                await client.aclose()


def _news(view: MemberView) -> tuple[object, ...]:
    """What makes a status worth writing again."""
    return (
        view.health.state,
        view.health.failure,
        view.identity,
        view.credentials_failure,
        view.credentials_expire,
    )


class CredentialsMissing(PDDError):
    """The Secret with the member's kubeconfig, or its key, is not there."""

    reason = "SecretNotFound"


class IdentityChanged(PDDError):
    """Behind the address is another cluster than the one that the link was made for."""

    reason = "IdentityChanged"


def failure_of(error: PDDError, target: MemberTarget) -> Failure:
    """What a failed probe means, with a message that says what to do."""
    source = (
        f"Secret {target.secret_namespace}/{target.secret_name}" if target.plugin is None else "the credential plugin"
    )
    if isinstance(error, Unauthorized):
        return Failure(
            error.reason,
            f"cluster B refuses the credentials of {source} ({error.message}); renew them: pdd link create",
            definite=True,
        )
    if isinstance(error, AccessDenied):
        return Failure(
            error.reason,
            f"cluster B knows us but lacks a right: {error.message}; install or upgrade the chart pdd-member in "
            f"namespace "
            f"{target.namespace} of B",
            definite=True,
        )
    if isinstance(error, CredentialsMissing | IdentityChanged):
        return Failure(error.reason, error.message, definite=True)
    if not error.retryable:
        return Failure(error.reason, error.message, definite=True)
    return Failure(
        "Unreachable", f"{error.message}; check the address in {source} and the network from A to B's API server"
    )
