"""Puts PDD into the two clusters the way a user does: Helm, `pdd link create`, kubectl. Idempotent.

Used by the tests' fixture and by `make kind-demo`, which shows each command as it runs. PDD_E2E_OPERATOR_ARGS: more
arguments of `helm upgrade` for the operator's chart.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e import loading, paths
from e2e.clusters import Clusters
from e2e.kind import ClusterRef
from e2e.shell import run

OPERATOR_NAMESPACE = "pdd-system"
OPERATOR = "pdd-operator"
MEMBER = "pdd-member"
IMAGES = ("operator", "router", "link", "engine")


@dataclass(frozen=True, slots=True)
class Installer:
    """Runs the commands. `show` prints each one before it runs, as a user would type it."""

    clusters: Clusters
    show: bool = False

    def kubectl(self, site: ClusterRef, *words: str, timeout_s: float = 60) -> str:
        self.say("kubectl", "--kubeconfig", str(site.kubeconfig), *words)
        return site.kubectl(*words, timeout_s=timeout_s)

    def helm(self, site: ClusterRef, *words: str, timeout_s: float = 180) -> str:
        self.say("helm", "--kubeconfig", str(site.kubeconfig), *words)
        return site.helm(*words, timeout_s=timeout_s)

    def pdd(self, *words: str, timeout_s: float = 60) -> str:
        self.say("pdd", *words)
        return run(Path(sys.executable).parent / "pdd", *words, timeout_s=timeout_s)

    def say(self, *words: str) -> None:
        if self.show:
            print("\n$ " + shlex.join(short(word) for word in words), flush=True)

    def namespace(self, site: ClusterRef, name: str) -> None:
        if not site.kubectl("get", "namespace", name, "--ignore-not-found", "-o", "name").strip():
            self.kubectl(site, "create", "namespace", name)

    def member(self, namespace: str) -> None:
        """pdd-member in B: the namespace, the ServiceAccount and the Role that the operator in A works with."""
        chart = str(paths.REPOSITORY / "charts" / MEMBER)
        words = ("upgrade", "--install", MEMBER, chart, "--namespace", namespace, "--create-namespace", "--wait")
        self.helm(self.clusters.b, *words)

    def operator(self, tag: str = "dev") -> None:
        """pdd-operator in A, with the images of this working tree."""
        chart = str(paths.REPOSITORY / "charts" / OPERATOR)
        words = ["upgrade", "--install", OPERATOR, chart, "--namespace", OPERATOR_NAMESPACE, "--create-namespace"]
        for image in IMAGES:
            words += ["--set", f"images.{image}.repository=pdd/{image}", "--set", f"images.{image}.tag={tag}"]
        # A plan is made anew each minute; a test does not wait that long.
        words += ["--set", "extraEnv[0].name=PDD_ADVICE_POLL_S", "--set-string", "extraEnv[0].value=2"]
        words += shlex.split(os.environ.get("PDD_E2E_OPERATOR_ARGS", ""))
        self.helm(self.clusters.a, *words, "--wait", "--timeout", "120s")

    def link_secret(self, name: str, namespace: str, member_namespace: str) -> None:
        """The Secret in A with B's credentials. B's API server is named by an address that pods of A reach."""
        b = self.clusters.b
        words = ["link", "create", name, "--namespace", namespace, "--kubeconfig", str(self.clusters.a.kubeconfig)]
        words += ["--member-kubeconfig", str(b.kubeconfig), "--member-namespace", member_namespace]
        self.pdd(*words, "--server", f"https://{b.node_ip}:6443")

    def apply(self, site: ClusterRef, namespace: str, file: Path) -> None:
        self.kubectl(site, "--namespace", namespace, "apply", "-f", str(file))


def short(word: str) -> str:
    """Paths inside the repository as a reader who stands in its root would type them."""
    return word.replace(f"{paths.REPOSITORY}/", "").replace(str(Path.home()), "~")


def pin_images(clusters: Clusters) -> str:
    """Gives the images that both nodes have a tag of their content, and returns it: a tag that does not change with the
    content would leave pods of an earlier build running."""
    identities = {name: run("docker", "inspect", "-f", "{{.Id}}", f"pdd/{name}:dev").strip() for name in IMAGES}
    tag = paths.content_hash(salt=" ".join(identities[name] for name in IMAGES))
    for cluster in (clusters.a, clusters.b):
        for name in IMAGES:
            source, target = (loading.full_name(f"pdd/{name}:{word}") for word in ("dev", tag))
            cluster.on_node(*loading.CTR, "images", "tag", "--force", source, target)
    return tag
