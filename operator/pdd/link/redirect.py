"""Rules that send the pod's connections to A to the endpoint: iptables, table nat, chain OUTPUT, REDIRECT.

`plan_rules` is pure; `apply_rules` runs iptables in the present network namespace. The chain of our own is made anew
each time and swapped in by one `iptables-restore` transaction, so running it twice leaves the same rules.
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess

from pdd.api.config import EndpointConfig, EndpointMode
from pdd.common.errors import Forbidden, InvalidInput, PDDError

CHAIN = "PDD_LINK"
TIMEOUT_S = 20


def plan_rules(config: EndpointConfig) -> str:
    """Input of `iptables-restore --noflush`. Raises InvalidInput that names the field.

    Connections of the endpoint's own user pass: it dials the gateway. All else that is TCP and goes to one of
    redirect_cidrs arrives at kv_port.
    """
    if config.mode is not EndpointMode.REDIRECT:
        raise InvalidInput("mode", str(config.mode), "init-redirect is for mode Redirect")
    if not config.redirect_cidrs:
        raise InvalidInput("redirectCidrs", [], "name at least one CIDR of site A whose connections the link carries")
    lines = ["*nat", f":{CHAIN} - [0:0]", f"-A {CHAIN} -m owner --uid-owner {config.run_as_uid} -j RETURN"]
    for index, text in enumerate(config.redirect_cidrs):
        field = f"redirectCidrs.{index}"
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            raise InvalidInput(field, text, "write it as a CIDR, e.g. 10.244.0.0/16") from error
        if network.version != 4:
            raise InvalidInput(field, text, "transparent redirect is for IPv4; use mode Connect for IPv6")
        if network.overlaps(ipaddress.ip_network("127.0.0.0/8")):
            raise InvalidInput(field, text, "must not contain loopback addresses: the engine is reached there")
        lines.append(f"-A {CHAIN} -p tcp -d {network} -j REDIRECT --to-ports {config.kv_port}")
    lines.append("COMMIT")
    return "\n".join(lines) + "\n"


def apply_rules(config: EndpointConfig) -> None:
    """Make the rules. Raises Forbidden without NET_ADMIN, InvalidInput, or PDDError with iptables' own words."""
    rules = plan_rules(config)
    iptables, restore = _find("iptables"), _find("iptables-restore")
    _run([restore, "--noflush", "-w", "5"], rules)
    jump = ["OUTPUT", "-p", "tcp", "-j", CHAIN]
    if _run([iptables, "-w", "5", "-t", "nat", "-C", *jump], "", may_fail=True) != 0:
        _run([iptables, "-w", "5", "-t", "nat", "-A", *jump], "")


def _find(name: str) -> str:
    path = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin")
    if path is None:
        raise PDDError(f"{name} is not in the image; install the package iptables", reason="IptablesMissing")
    return path


def _run(command: list[str], text: str, *, may_fail: bool = False) -> int:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PDDError(f"{command[0]}: {error}") from error
    if done.returncode and not may_fail:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        if "ermission denied" in said or "not permitted" in said or "must be root" in said:
            raise Forbidden(
                f"iptables: {said}: run this container as root with the capability NET_ADMIN, or use mode Connect",
                reason="NetAdminMissing",
            )
        raise PDDError(f"iptables: {said}")
    return done.returncode
