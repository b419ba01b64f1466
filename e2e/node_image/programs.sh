#!/bin/bash
# Builds the programs of the node image and the tools beside it from Go modules.
#
# usage: programs.sh all|tools OUT GOWORK
#   all      everything; tools: only kind, kubectl and helm, for a node image that was pulled
#   OUT      gets bin/{kube-apiserver,...,kind,kubectl,helm,etcd,coredns,crictl,pause} and files/ (kind's own node files)
#   GOWORK   throw-away folder for modules and Go's caches; safe to delete afterwards
# Every program comes from its own small module, so that one project's version choices never touch another's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=versions.env
. "$here/versions.env"
what=$1
out=$(mkdir -p "$2" && cd "$2" && pwd)
gowork=$(mkdir -p "$3" && cd "$3" && pwd)
mkdir -p "$out/bin" "$gowork/modules"
export CGO_ENABLED=0 GOFLAGS="-modcacherw ${GOFLAGS:-}" GOWORK=off
export GOTOOLCHAIN=auto # a Go older than a program asks for fetches the newer toolchain through the module proxy
export GOCACHE="${PDD_GOCACHE:-$gowork/build}" GOMODCACHE="${PDD_GOMODCACHE:-$gowork/mod}"

say() { printf '%s node-image: %s\n' "$(date +%T)" "$*" >&2; }

require() { # require MODULE PACKAGE@VERSION...: a small module that has the packages as tools
  local dir=$gowork/modules/$1
  mkdir -p "$dir"
  cd "$dir"
  [ -f go.mod ] || printf 'module %s\n\ngo 1.24.0\n' "$1" >go.mod
  go get -tool "${@:2}" 2>"$dir/get.log" || { tail -n 20 "$dir/get.log" >&2; return 1; }
}

build() { # build MODULE PACKAGES LDFLAGS NAME: one program (NAME set) or several (NAME empty)
  local started=$SECONDS
  cd "$gowork/modules/$1"
  # shellcheck disable=SC2086
  go build -trimpath -ldflags "-s -w $3" -o "$out/bin/$4" $2
  say "$1 built in $((SECONDS - started)) s"
}

# k8s.io/kubernetes pins its k8s.io/* to v0.0.0 and replaces them by folders of its own repository: the released modules do the same.
kubernetes_module() {
  local dir=$gowork/modules/kubernetes upstream
  mkdir -p "$dir"
  cd "$dir"
  [ -f go.mod ] && return
  upstream=$(cd "$gowork" && go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  {
    printf 'module kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$KUBERNETES"
    sed -nE "s#^\s+(k8s.io/[a-z0-9-]+) => \./staging.*#  \1 => \1 v0.${KUBERNETES#v1.}#p" "$upstream"
    echo ')'
  } >go.mod.new
  mv go.mod.new go.mod
}

case "$what" in
  all)
    programs="kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm kubectl"
    say "building Kubernetes $KUBERNETES, kind $KIND, helm $HELM from Go modules (10 to 15 minutes on two cores, once)"
    ;;
  tools) programs=kubectl ;;
  *) echo "programs.sh: '$what': use all or tools" >&2; exit 2 ;;
esac
kubernetes_module
packages=$(for p in $programs; do echo "k8s.io/kubernetes/cmd/$p"; done)
# shellcheck disable=SC2046
require kubernetes $(for p in $packages; do echo "$p@$KUBERNETES"; done)
version=k8s.io/component-base/version
minor=${KUBERNETES#v1.}
build kubernetes "$packages" \
  "-X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} -X $version.gitTreeState=clean" ""
require kind "sigs.k8s.io/kind@$KIND"
build kind sigs.k8s.io/kind "" ""
require helm "helm.sh/helm/v3/cmd/helm@$HELM"
build helm helm.sh/helm/v3/cmd/helm "" ""
[ "$what" = all ] || exit 0

require etcd "go.etcd.io/etcd/server/v3@$ETCD"
build etcd go.etcd.io/etcd/server/v3 "" etcd
require coredns "github.com/coredns/coredns@$COREDNS"
build coredns github.com/coredns/coredns "" ""
# kind asks the node's crictl which images it has.
require cri-tools "sigs.k8s.io/cri-tools/cmd/crictl@$CRI_TOOLS"
build cri-tools sigs.k8s.io/cri-tools/cmd/crictl "" ""

kind_dir=$(cd "$gowork/modules/kind" && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)
rm -rf "$out/files"
cp -r "$kind_dir/images/base/files" "$out/files"

# The pod sandbox's first process: sleeps, and reaps the orphans that land on pid 1.
cat >"$gowork/pause.c" <<'C'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
C
gcc -static -Os -o "$out/bin/pause" "$gowork/pause.c"
