#!/bin/bash
# The container engine that the images and the e2e clusters use.
#
# usage: engine.sh start|stop|status|host
#   start   uses the engine that answers already, else starts a dockerd of our own (root only); prints its DOCKER_HOST
#   stop    ends the dockerd that `start` started, and nothing else
#   status  one line; exit 0 when an engine answers
#   host    prints the DOCKER_HOST to use ("" for the client's default); exit 1 when no engine answers
#
# Our own engine keeps its data in the cache folder, and socket and pid file in a run folder: PDD_CACHE, PDD_RUN.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PDD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pdd}
run=${PDD_RUN:-/run/pdd}
own=unix://$run/docker.sock
pidfile=$run/docker.pid
PATH=$PATH:/usr/sbin:/sbin

answers() { # answers DOCKER_HOST
  local out
  if [ -n "$1" ]; then out=$(DOCKER_HOST=$1 timeout 10 docker version -f '{{.Server.Version}}' 2>/dev/null)
  else out=$(timeout 10 docker version -f '{{.Server.Version}}' 2>/dev/null); fi
  [ -n "$out" ]
}

ours() { # the pid of the dockerd that we started, if it runs
  local pid
  pid=$(cat "$pidfile" 2>/dev/null) && [ -n "$pid" ] && grep -q '^dockerd' "/proc/$pid/comm" 2>/dev/null &&
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "--pidfile $pidfile" && echo "$pid"
}

host() {
  command -v docker >/dev/null || return 1
  if ours >/dev/null && answers "$own"; then echo "$own"
  elif answers ""; then echo "${DOCKER_HOST:-}"
  else return 1; fi
}

fits() { # does this machine's root hold every capability that the kernel knows?
  local last bounding
  last=$(cat /proc/sys/kernel/cap_last_cap)
  bounding=$(sed -n 's/^CapBnd:\s*//p' /proc/self/status)
  [ $((16#$bounding)) -eq $(((1 << (last + 1)) - 1)) ]
}

start() {
  local runtime=() log pid
  if host; then return; fi
  [ "$(id -u)" = 0 ] || { echo "engine.sh: no container engine answers and starting one needs root: run as root, or start Docker" >&2; exit 3; }
  command -v dockerd >/dev/null || { echo "engine.sh: dockerd is not installed: run hack/machine.sh" >&2; exit 3; }
  mkdir -p "$run" "$cache/docker"
  log=$run/docker.log
  fits || runtime=(--add-runtime "fit=$here/runc-fit" --default-runtime fit)
  # Two kind nodes hold more inotify instances than the default allows.
  [ "$(cat /proc/sys/fs/inotify/max_user_instances)" -ge 1024 ] || { echo 1024 >/proc/sys/fs/inotify/max_user_instances; } 2>/dev/null || true
  rm -f "$pidfile" "$run/docker.sock"
  setsid nohup dockerd --data-root "$cache/docker" --exec-root "$run/exec" --pidfile "$pidfile" -H "$own" \
    --log-level warn "${runtime[@]}" >"$log" 2>&1 </dev/null &
  pid=$!
  for _ in $(seq 120); do
    if answers "$own"; then echo "$own"; return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.5
  done
  echo "engine.sh: dockerd did not come up; its last lines ($log):" >&2
  tail -n 15 "$log" >&2
  kill "$pid" 2>/dev/null || true
  exit 3
}

stop() {
  local pid
  pid=$(ours) || { echo "engine.sh: no engine of ours runs"; return; }
  kill "$pid"
  for _ in $(seq 60); do
    [ -d "/proc/$pid" ] || { echo "engine.sh: stopped $pid"; return; }
    sleep 0.5
  done
  kill -9 "$pid"
  echo "engine.sh: $pid did not stop in 30 s and was killed" >&2
}

status() {
  local at
  at=$(host) || { echo "no container engine answers"; return 1; }
  echo "docker $(DOCKER_HOST=${at:-${DOCKER_HOST:-}} docker version -f '{{.Server.Version}}') at ${at:-the default socket}$(ours >/dev/null && echo " (ours)" || true)"
}

case "${1:-}" in
  start | stop | status | host) "$1" ;;
  *) sed -n '2,10p' "$0" >&2; exit 2 ;;
esac
