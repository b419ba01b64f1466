#!/bin/bash
# Installs what images, node image and e2e need on a bare Debian 12 (or later) machine, as root. Safe to run again.
#
# usage: machine.sh [--check]     --check only says what is missing; exit 1 if something is
set -euo pipefail
go_wanted=1.21 # from here on Go fetches, as a module, the newer toolchain that a program asks for
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin
# command -> package
declare -A needs=(
  [dockerd]=docker.io [docker]=docker.io [debootstrap]=debootstrap [jq]=jq [conntrack]=conntrack [iptables]=iptables
  [nft]=nftables [ip]=iproute2 [gcc]=gcc [git]=git [curl]=curl [nsenter]=util-linux [ps]=procps
  [chromium]=chromium
)
packages=()
for command in "${!needs[@]}"; do
  command -v "$command" >/dev/null || packages+=("${needs[$command]}")
done
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)

# An engine that answers makes a dockerd of our own, and so its package, needless.
if command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; then
  packages=($(printf '%s\n' "${packages[@]}" | grep -vx docker.io || true))
fi

go_fits() {
  local found
  found=$(go env GOVERSION 2>/dev/null | sed 's/^go//') || return 1
  [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$go_wanted" "$found" | sort -V | head -n 1)" = "$go_wanted" ]
}

if [ "${1:-}" = --check ]; then
  missing=$(printf '%s\n' "${packages[@]}" | sort -u | tr '\n' ' ')
  go_fits || missing="$missing go>=$go_wanted"
  [ -z "${missing// /}" ] && { echo "machine: ready"; exit 0; }
  echo "machine: missing: $missing(hack/machine.sh installs them as root)"
  exit 1
fi
if [ ${#packages[@]} -eq 0 ] && go_fits; then echo "machine: ready"; exit 0; fi
[ "$(id -u)" = 0 ] || { echo "machine.sh: installing packages needs root; missing: ${packages[*]:-} (or Go >= $go_wanted)" >&2; exit 3; }
command -v apt-get >/dev/null || { echo "machine.sh: this machine has no apt-get; install by hand: ${packages[*]:-}, Go >= $go_wanted" >&2; exit 3; }

export DEBIAN_FRONTEND=noninteractive
# A third-party source that cannot be reached must not stop the installation from Debian's own.
apt-get -qq update || echo "machine.sh: apt-get update reported errors; going on with what it has" >&2
if [ ${#packages[@]} -gt 0 ]; then
  apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
fi
if ! go_fits; then
  # Debian 12's own Go is 1.19; its backports have a newer one.
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } | grep -oE 'https?://[^ ]+/debian/?( |$)' | grep -v snapshot | head -n 1 | tr -d ' ')
  if [ -n "$mirror" ] && ! grep -rqs "$codename-backports" /etc/apt/sources.list /etc/apt/sources.list.d; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $codename-backports main" >/etc/apt/sources.list.d/pdd-backports.list
    apt-get -qq update || true
  fi
  version=$(apt-cache search --names-only '^golang-1\.[0-9]+-go$' | grep -oE '1\.[0-9]+' | sort -uV | tail -n 1)
  if [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$go_wanted" "$version" | sort -V | head -n 1)" = "$go_wanted" ]; then
    apt-get -qq install -y --no-install-recommends "golang-$version-go" >/dev/null
    ln -sf "/usr/lib/go-$version/bin/go" /usr/local/bin/go
  fi
fi
go_fits || { echo "machine.sh: Go >= $go_wanted is missing and Debian's backports gave none; install it and put it in PATH (needed once, to build the node image)" >&2; exit 3; }
echo "machine: ready"
