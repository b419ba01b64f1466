"""The operator's running state: client and objects of A, one entry per link, and who must look again when something
moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.clock import Clock, monotonic_s
from pdd.common.errors import InvalidInput, PDDError
from pdd.common.tasks import cancel, spawn
from pdd.controller import metrics
from pdd.controller.advisor import AdviceInputs, Advisor
from pdd.controller.autoscaler import Autoscaler
from pdd.controller.gateway_watch import GatewayReport, GatewayWatch
from pdd.controller.kube.access import ClusterAccess
from pdd.controller.kube.client import KubeClient, Observer
from pdd.controller.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    NODES,
    PDDDEPLOYMENTS,
    PDDLINKS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    Object,
    labels_of,
    uid_of,
)
from pdd.controller.kube.store import ObjectStore, Source
from pdd.controller.labels import LINK_UID, OWNER_UID, SELECTOR
from pdd.controller.member import Member, MemberView
from pdd.controller.settings import Settings

_log = logging.getLogger("pdd.controller")

SITE_A_SOURCES = (
    Source(PDDDEPLOYMENTS),
    Source(PDDLINKS),
    *(Source(r, SELECTOR) for r in (STATEFULSETS, DEPLOYMENTS, SERVICES, CONFIGMAPS, SECRETS, PODS)),
)
SITE_B_SOURCES = tuple(Source(r, SELECTOR) for r in (STATEFULSETS, CONFIGMAPS, SECRETS, PODS))
SITE_B_KINDS = (STATEFULSETS, CONFIGMAPS, SECRETS)
SITE_A_KINDS = (STATEFULSETS, DEPLOYMENTS, SERVICES, CONFIGMAPS, SECRETS)
NODES_REREAD_S = 60.0


@dataclass(slots=True)
class LinkState:
    """What deployments need of their link, kept by the link's reconcile. Nothing in it survives a restart, nor must
    it."""

    uid: str
    namespace: str
    name: str
    member: Member
    gateway_watch: GatewayWatch
    gateway_address: str = ""
    capture_cidrs: tuple[str, ...] = ()
    endpoint_certificate: bool = False
    """The endpoints' certificate is in B."""
    reconciled: bool = False

    @property
    def report(self) -> GatewayReport:
        return self.gateway_watch.report

    @property
    def view(self) -> MemberView:
        return self.member.view


@dataclass(slots=True)
class Seat:
    """One custom resource's daemon: what wakes it, and the lock that it shares with its clean-up."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Runtime:
    """Built inside the running loop. `start`, use, `stop`."""

    def __init__(
        self, access: ClusterAccess, settings: Settings, heartbeat: metrics.Heartbeat, *, clock: Clock = monotonic_s
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.client = KubeClient(access, observer=cast(Observer, metrics.observe_call("a")))
        self.store = ObjectStore(
            self.client,
            SITE_A_SOURCES,
            namespaces=settings.namespaces,
            index_label=OWNER_UID,
            on_change=self._on_object_a,
            on_synced=self.wake_all,
        )
        self.links: dict[str, LinkState] = {}
        self.seats: dict[str, Seat] = {}
        self.scalers: dict[str, Autoscaler] = {}
        self.advisors: dict[str, Advisor] = {}
        self.gate = asyncio.Semaphore(settings.concurrency)
        self.heartbeat = heartbeat
        self._nodes: tuple[float, list[Object] | None] = (float("-inf"), None)
        self._beat: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.store.start()
        self._beat = spawn(self._pulse(), name="heartbeat")

    async def stop(self) -> None:
        if self._beat is not None:
            await cancel(self._beat)
        await asyncio.gather(*(self.drop_scaler(uid) for uid in list(self.scalers)))
        await asyncio.gather(*(self.drop_advisor(uid) for uid in list(self.advisors)))
        await asyncio.gather(*(self.drop_link(uid) for uid in list(self.links)))
        await self.store.stop()
        await self.client.aclose()

    # -- waking ------------------------------------------------------------------------------------------------------

    def seat(self, uid: str) -> Seat:
        return self.seats.setdefault(uid, Seat())

    def wake(self, uid: str) -> None:
        if uid in self.seats:
            self.seats[uid].wake.set()

    def wake_all(self) -> None:
        for seat in self.seats.values():
            seat.wake.set()

    def wake_deployments_of(self, namespace: str, name: str) -> None:
        for obj in self.store.of("PDDDeployment"):
            ref = obj.get("spec", {}).get("linkRef") or {}
            if ref.get("name") == name and (ref.get("namespace") or obj["metadata"]["namespace"]) == namespace:
                self.wake(uid_of(obj))

    def _on_object_a(self, event: str, obj: Object) -> None:
        if obj["kind"] == "PDDLink":
            self.wake(uid_of(obj))
            self.wake_deployments_of(obj["metadata"]["namespace"], obj["metadata"]["name"])
        elif obj["kind"] == "PDDDeployment":
            self.wake(uid_of(obj))
            ref = obj.get("spec", {}).get("linkRef") or {}
            link = self.find_link(ref.get("namespace") or obj["metadata"]["namespace"], ref.get("name", ""))
            if link is not None and (event != "MODIFIED" or obj["metadata"].get("deletionTimestamp")):
                self.wake(uid_of(link))
        else:
            self.wake(labels_of(obj).get(OWNER_UID, ""))

    def _on_object_b(self, event: str, obj: Object) -> None:
        labels = labels_of(obj)
        owner = labels.get(OWNER_UID, "")
        if owner in self.seats:
            self.wake(owner)
        else:
            self.wake(labels.get(LINK_UID, ""))  # an orphan: the link sweeps it

    # -- links -------------------------------------------------------------------------------------------------------

    def find_link(self, namespace: str, name: str) -> Object | None:
        return self.store.get("PDDLink", namespace, name) if name and self._watched(namespace) else None

    def _watched(self, namespace: str) -> bool:
        return not self.settings.namespaces or namespace in self.settings.namespaces

    def link_state(self, link: PDDLink) -> LinkState:
        """The entry of a link, with its member connection; made and started on the first call."""
        state = self.links.get(link.uid)
        if state is None:
            uid, namespace, name = link.uid, link.namespace, link.name

            def moved() -> None:
                metrics.MEMBER_CONNECTED.labels(f"{namespace}/{name}").set(state_connected())
                self.wake(uid)
                self.wake_deployments_of(namespace, name)

            def state_connected() -> float:
                entry = self.links.get(uid)
                return 1.0 if entry is not None and entry.view.health.usable else 0.0

            member = Member(
                f"{namespace}/{name}",
                self.client,
                SITE_B_SOURCES,
                index_label=OWNER_UID,
                on_change=moved,
                on_object=self._on_object_b,
                observer=cast(Observer, metrics.observe_call("b")),
                clock=self.clock,
            )
            watch = GatewayWatch(self.settings.gateway_poll_s, on_change=moved)
            state = LinkState(uid, namespace, name, member, watch)
            self.links[uid] = state
            member.start()
            watch.start()
        return state

    async def drop_link(self, uid: str) -> None:
        state = self.links.pop(uid, None)
        if state is not None:
            await state.gateway_watch.stop()
            await state.member.stop()

    # -- scaling -----------------------------------------------------------------------------------------------------

    async def scaler(self, deployment: PDDDeployment) -> Autoscaler | None:
        """The deployment's autoscaler, made and started on the first call; None (and stopped) if it wants none."""
        if deployment.spec.roles.relay_decode.autoscaling is None:
            await self.drop_scaler(deployment.uid)
            return None
        scaler = self.scalers.get(deployment.uid)
        if scaler is None:
            uid = deployment.uid
            scaler = Autoscaler(
                deployment,
                self.store,
                period_s=self.settings.scaling_poll_s,
                clock=self.clock,
                on_change=lambda: self.wake(uid),
            )
            self.scalers[uid] = scaler
            scaler.start()
        scaler.configure(deployment)
        return scaler

    async def drop_scaler(self, uid: str) -> None:
        scaler = self.scalers.pop(uid, None)
        if scaler is not None:
            await scaler.stop()

    async def advisor(self, uid: str, inputs: AdviceInputs | None) -> Advisor | None:
        """The deployment's advisor, made and started on the first call; None (and stopped) without inputs."""
        if inputs is None:
            await self.drop_advisor(uid)
            return None
        advisor = self.advisors.get(uid)
        if advisor is None:
            period_s = self.settings.advice_poll_s
            advisor = Advisor(inputs, self.store, period_s=period_s, on_change=lambda: self.wake(uid))
            self.advisors[uid] = advisor
            advisor.start()
        advisor.configure(inputs)
        return advisor

    async def drop_advisor(self, uid: str) -> None:
        advisor = self.advisors.pop(uid, None)
        if advisor is not None:
            await advisor.stop()

    def deployments_of(self, link: PDDLink) -> list[PDDDeployment]:
        """The PDDDeployments that name this link, being deleted or not. Those whose spec cannot be read are left
        out."""
        found = []
        for obj in self.store.of("PDDDeployment"):
            try:
                deployment = PDDDeployment.from_cluster(obj)
            except InvalidInput:
                continue
            if deployment.link_key == (link.namespace, link.name):
                found.append(deployment)
        return sorted(found, key=lambda d: (d.namespace, d.name))

    # -- others ------------------------------------------------------------------------------------------------------

    async def nodes(self) -> list[Object] | None:
        """A's nodes, at most a minute old; None if they may not be read."""
        at_s, nodes = self._nodes
        if self.clock() - at_s > NODES_REREAD_S:
            try:
                nodes, _ = await self.client.list(NODES)
            except PDDError as error:
                _log.info("nodes cannot be listed", extra={"fields": {"error": error.message}})
                if error.retryable:
                    return nodes
                nodes = None
            self._nodes = (self.clock(), nodes)
        return nodes

    async def _pulse(self) -> None:
        while True:
            self.heartbeat.beat()
            await asyncio.sleep(1.0)


Emit = Callable[[str, str, str], None]
"""Posts a Kubernetes Event on the object at hand: (type, reason, message)."""


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
