#!/bin/bash
# Makes the node image from the programs and the two roots.
#
# usage: assemble.sh PROGRAMS BASE.tar NODE.tar TAG     (DOCKER_HOST names the engine)
#   PROGRAMS   folder that programs.sh made
#   TAG        name of the resulting image, e.g. pdd/kind-node:0123456789ab
# Intermediate images and the builder container are removed again, whatever happens.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=versions.env
. "$here/versions.env"
programs=$(cd "$1" && pwd)
base=$2
root=$3
tag=$4
work=$(mktemp -d "$(dirname "$base")/assemble.XXXXXX")
suffix=${tag##*:}
builder=
temporary=()
cleanup() {
  [ -z "$builder" ] || docker rm -f -v "$builder" >/dev/null 2>&1 || true
  [ ${#temporary[@]} -eq 0 ] || docker rmi -f "${temporary[@]}" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
export DOCKER_BUILDKIT=0
say() { printf '%s node-image: %s\n' "$(date +%T)" "$*" >&2; }

image() { # image TAG PARENT PROGRAM: PARENT with one program of ours as its entry point
  local context
  context=$(mktemp -d "$work/context.XXXXXX")
  mkdir "$context/files"
  ln "$programs/bin/$3" "$context/files/$3" 2>/dev/null || cp "$programs/bin/$3" "$context/files/$3"
  {
    echo "FROM $2"
    echo 'COPY files/ /usr/local/bin/'
    echo 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
    echo "ENTRYPOINT [\"/usr/local/bin/$3\"]"
  } >"$context/Dockerfile"
  docker build -q -t "$1" "$context" >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
  temporary+=("$1")
}

say "images of the control plane"
parent=pdd/node-base:$suffix
docker import "$base" "$parent" >/dev/null
registry=registry.k8s.io
for p in kube-apiserver kube-controller-manager kube-scheduler; do image "$registry/$p:$KUBERNETES" scratch "$p"; done
image "$registry/kube-proxy:$KUBERNETES" "$parent" kube-proxy
image "$registry/etcd:$ETCD_TAG" scratch etcd
image "$registry/coredns/coredns:$COREDNS_TAG" scratch coredns
image "$registry/pause:$PAUSE_TAG" scratch pause
docker save -o "$work/images.tar" "${temporary[@]}"
temporary+=("$parent")

say "root of the node"
mkdir "$work/node"
tar -C "$work/node" -xf "$root"
node=$work/node
files=$programs/files
mkdir -p "$node"/kind/bin "$node"/etc/{containerd,default,sysctl.d,kubernetes/manifests,systemd/system/kubelet.service.d} "$node"/opt/cni/bin "$node"/usr/local/sbin
install -m755 "$files"/usr/local/bin/* "$node/usr/local/bin/"
install -m755 "$files"/kind/bin/* "$node/kind/bin/"
for d in etc/containerd etc/default etc/sysctl.d etc/systemd/system etc/systemd/system/kubelet.service.d; do
  find "$files/$d" -maxdepth 1 -type f -exec install -m644 -t "$node/$d" {} +
done
install -m644 "$files/etc/crictl.yaml" "$node/etc/"
# Some hosts' root may not lower an OOM score (no CAP_SYS_RESOURCE); containerd then takes the nearest it may.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
cp -a "$node"/usr/lib/cni/* "$node/opt/cni/bin/"
for b in containerd ctr containerd-shim-runc-v2; do ln -sf "/usr/bin/$b" "$node/usr/local/bin/$b"; done
ln -sf /usr/sbin/runc "$node/usr/local/sbin/runc"
install -m755 "$programs"/bin/{kubelet,kubeadm,kubectl,crictl} "$node/usr/bin/"
printf %s "$KUBERNETES" >"$node/kind/version"
# A container's systemd starts only what a node needs; kind's own Dockerfile removes the same units.
chroot "$node" sh -c '
  rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* /lib/systemd/system/local-fs.target.wants/* \
    /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/*
  rm -f /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
  grep -q ReadKMsg=no /etc/systemd/journald.conf || echo ReadKMsg=no >>/etc/systemd/journald.conf
  ln -sf /usr/lib/systemd/systemd /sbin/init
  systemctl -q enable kubelet containerd undo-mount-hacks
  systemctl -q mask systemd-binfmt' 2>"$work/chroot.log" || { cat "$work/chroot.log" >&2; exit 1; }
# Raising resource limits needs CAP_SYS_RESOURCE too: containers keep the node's own.
chroot "$node" ctr oci spec |
  jq '.hooks.createContainer += [{"path":"/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' >"$work/cri-base.json"
install -m644 "$work/cri-base.json" "$node/etc/containerd/cri-base.json"

say "loading the control plane's images into the node"
tar -C "$node" -c . | docker import -c 'ENV container=docker' - "pdd/node-root:$suffix" >/dev/null
rm -rf "$node"
# `docker import` and `docker commit` take no STOPSIGNAL.
mkdir "$work/signal"
printf 'FROM pdd/node-root:%s\nSTOPSIGNAL SIGRTMIN+3\n' "$suffix" >"$work/signal/Dockerfile"
docker build -q -t "pdd/node-stop:$suffix" "$work/signal" >/dev/null 2>&1
temporary+=("pdd/node-stop:$suffix" "pdd/node-root:$suffix")
builder=$(docker run -d --privileged --entrypoint sleep -v "$work/images.tar:/images.tar:ro" "pdd/node-stop:$suffix" infinity)
docker exec -d "$builder" containerd
for _ in $(seq 60); do docker exec "$builder" ctr version >/dev/null 2>&1 && break; sleep 0.5; done
docker exec "$builder" ctr -n k8s.io images import --snapshotter overlayfs /images.tar >/dev/null
docker exec "$builder" sh -c 'kill $(pidof containerd); while pidof containerd >/dev/null; do sleep 0.2; done'
docker commit --change 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' "$builder" "$tag" >/dev/null
say "made $tag"
