#!/bin/bash
# Everything that `make test` runs: lint, unit, integration and chart tests, then the tests on two kind clusters.
#
# usage: test.sh [all|e2e]
#   PDD_E2E=auto      (default) the cluster tests run where root and a container engine can be had; one line says when not
#   PDD_E2E=required  as above, but not being able to is a failure
#   PDD_E2E=off       leaves them out
#
# While the other tests run, the node image and the images are made in the background (the cold build takes its time).
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
wanted=${PDD_E2E:-auto}
logs=$(mktemp -d)
failed=()
started_engine=
preparing=

finish() {
  [ -z "$preparing" ] || { kill -- "-$preparing" 2>/dev/null && wait "$preparing" 2>/dev/null; }
  if [ -n "$started_engine" ] && [ "${PDD_KEEP_CLUSTERS:-}" != 1 ]; then hack/engine.sh stop >/dev/null || true; fi
  rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' INT TERM

step() { # step NAME COMMAND...: run, time, remember a failure
  local name=$1 began=$SECONDS
  shift
  echo "== $name"
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - began)) s"
}

cannot() { # why the cluster tests cannot run here; empty if they can
  [ "$(uname -s)" = Linux ] || { echo "the clusters need Linux"; return; }
  hack/engine.sh host >/dev/null 2>&1 && return
  [ "$(id -u)" = 0 ] || { echo "no container engine answers, and starting one needs root"; return; }
  command -v dockerd >/dev/null || command -v apt-get >/dev/null || echo "no container engine, and no apt-get to install one"
}

clusters=yes
if [ "$wanted" = off ]; then
  clusters=
elif reason=$(cannot) && [ -n "$reason" ]; then
  echo "e2e: not run: $reason"
  [ "$wanted" = required ] && { echo "e2e: PDD_E2E=required, so this is a failure" >&2; exit 1; }
  clusters=
fi

if [ -n "$clusters" ]; then
  if hack/machine.sh; then
    hack/engine.sh host >/dev/null 2>&1 || started_engine=yes
    if ! hack/engine.sh start >/dev/null; then
      echo "e2e: the container engine did not start" >&2
      [ "$wanted" = required ] && exit 1
      clusters=
    fi
  elif [ "$wanted" = required ]; then
    exit 1
  else
    echo "e2e: not run: hack/machine.sh failed"
    clusters=
  fi
fi
if [ -n "$clusters" ]; then
  set -m
  nice -n 5 .venv/bin/python -m e2e.prepare >"$logs/prepare" 2>&1 &
  preparing=$!
  set +m
fi

if [ "$what" = all ]; then
  step "lint" make --no-print-directory lint
  step "generated files" .venv/bin/python hack/gen_crds.py --check
  step "unit tests" .venv/bin/pytest -q -n 2 --junitxml="$logs/1-unit.xml" tests/unit
fi
if [ -n "$preparing" ]; then
  echo "== waiting for node image and images"
  if wait "$preparing"; then tail -n 3 "$logs/prepare"; else
    cat "$logs/prepare"
    failed+=("preparing node image and images")
  fi
  preparing=
fi
if [ "$what" = all ]; then
  step "integration and chart tests" .venv/bin/pytest -q --durations=15 --junitxml="$logs/2-integration.xml" tests/integration tests/chart
fi
if [ -n "$clusters" ]; then
  step "cluster tests" env PDD_E2E=required .venv/bin/pytest -v --durations=15 --junitxml="$logs/3-e2e.xml" e2e
fi

if [ ${#failed[@]} -gt 0 ]; then
  .venv/bin/python hack/failures.py "$logs"/*.xml
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all steps passed"
