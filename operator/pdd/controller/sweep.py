"""Deletes what is left in B of deployments that are gone or have moved to another link. Looks first, and looks
twice."""

from __future__ import annotations

from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.common.errors import InvalidInput, PDDError
from pdd.controller import metrics
from pdd.controller.kube.client import KubeClient
from pdd.controller.kube.resources import PDDDEPLOYMENTS, Object, labels_of, ref_of, resource_of, uid_of
from pdd.controller.kube.store import ObjectStore
from pdd.controller.labels import LINK_UID, OWNER_ANNOTATION, OWNER_KIND, OWNER_UID
from pdd.controller.runtime import Runtime


def orphans(link: PDDLink, in_b: list[Object], owners: dict[str, Object]) -> list[Object]:
    """Objects in B of this link whose PDDDeployment is not in `owners` (by UID), or uses another link now. Pure."""
    found = []
    for obj in in_b:
        labels = labels_of(obj)
        if labels.get(LINK_UID) != link.uid or labels.get(OWNER_KIND) != "PDDDeployment" or obj["kind"] == "Pod":
            continue
        owner = owners.get(labels.get(OWNER_UID, ""))
        if owner is None or _moved(owner, link):
            found.append(obj)
    return found


async def sweep(rt: Runtime, link: PDDLink, client: KubeClient, store: ObjectStore) -> list[str]:
    """Delete orphans in B; returns what was deleted.

    A's own words are needed twice: a fresh, complete view of its PDDDeployments, and a direct read that confirms that
    the
    owner with that UID is gone. An operator that is restricted to some namespaces cannot judge others and leaves them.
    """
    if not rt.store.fresh or not store.fresh:
        return []
    owners = {uid_of(obj): obj for obj in rt.store.of("PDDDeployment")}
    in_b = [obj for kind in ("StatefulSet", "ConfigMap", "Secret") for obj in store.of(kind)]
    swept = []
    for obj in orphans(link, in_b, owners):
        namespace, _, name = (obj["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION, "").partition("/")
        if not name or (rt.settings.namespaces and namespace not in rt.settings.namespaces):
            continue
        try:
            owner = await rt.client.get_or_none(PDDDEPLOYMENTS, namespace, name)
            if owner is not None and uid_of(owner) == labels_of(obj).get(OWNER_UID) and not _moved(owner, link):
                continue
            ref = ref_of(obj)
            await client.delete(resource_of(obj), ref.namespace, ref.name, uid=uid_of(obj))
        except PDDError:
            continue  # the next pass looks again
        metrics.SWEPT.labels(ref.kind).inc()
        swept.append(str(ref))
    return swept


def _moved(owner: Object, link: PDDLink) -> bool:
    try:
        return PDDDeployment.from_cluster(owner).link_key != (link.namespace, link.name)
    except InvalidInput:
        return False
