#!/bin/bash
# Makes a Debian root file system and writes it as a tar file.
#
# usage: rootfs.sh base|node OUT.tar
#   base   python3 with venv, iptables, nftables, conntrack, CA certificates: parent of the project's images and of kube-proxy's
#   node   systemd, containerd, runc, CNI plugins and what kubelet needs: what a kind node is made from
# Works from Debian packages alone: no image registry is asked. The mirror is this machine's own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=versions.env
. "$here/versions.env"
kind=$1
out=$2

case "$kind" in
  base) include=ca-certificates,iptables,nftables,conntrack,iproute2,python3,python3-venv ;;
  node) include=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,libseccomp2,jq,procps,ca-certificates,containerd,runc,containernetworking-plugins,socat,curl ;;
  *) echo "rootfs.sh: unknown root '$kind': use base or node" >&2; exit 2 ;;
esac

mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
  grep -oE 'https?://[^ ]+/debian/?( |$)' | grep -v snapshot | head -n 1 || true)
root=$(mktemp -d "$(dirname "$out")/rootfs.XXXXXX")
trap 'rm -rf "$root"' EXIT
# shellcheck disable=SC2086
debootstrap --variant=minbase --include="$include" "$DEBIAN" "$root" $mirror >"$out.log" 2>&1 || { tail -n 20 "$out.log" >&2; exit 1; }
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log \
  "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
tar -C "$root" --sort=name -cf "$out.part" .
mv "$out.part" "$out"
rm -f "$out.log"
