#!/bin/bash
# Everything that `make test` runs: lint, unit, integration and chart tests, then the tests on two kind clusters.
#
# usage: test.sh [all|e2e]
#   PDD_E2E=auto      (default) the cluster tests run where root and a container engine can be had; one line says when not
#   PDD_E2E=required  as above, but not being able to is a failure
#   PDD_E2E=off       leaves them out
#
# While other tests run, the node image, the images and, where those are made already, the clusters are made in the
# background (the cold build takes its time). Tests that look at times run while nothing else does.
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
wanted=${PDD_E2E:-auto}
logs=$(mktemp -d)
failed=()
started_engine=
made_clusters=
preparing=

finish() {
  [ -z "$preparing" ] || { kill -- "-$preparing" 2>/dev/null && wait "$preparing" 2>/dev/null; }
  if [ -n "$made_clusters" ] && [ "${PDD_KEEP_CLUSTERS:-}" != 1 ]; then .venv/bin/python -m e2e.clusters down || true; fi
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

behind() { # behind COMMAND...: run it in the background, in a process group of its own; await looks at how it ended
  set -m
  "$@" >"$logs/prepare" 2>&1 &
  preparing=$!
  set +m
}

await() {
  [ -n "$preparing" ] || return 0
  echo "== waiting for what is made in the background"
  if wait "$preparing"; then tail -n 3 "$logs/prepare"; else
    cat "$logs/prepare"
    failed+=("preparing node image, images and clusters")
  fi
  preparing=
}

unit() { step "unit tests" .venv/bin/pytest -q -n 2 --junitxml="$logs/1-unit.xml" tests/unit; }

integration() { # tests of real processes; each file's share its fixtures
  step "integration and chart tests" .venv/bin/pytest -q -n 3 --dist loadfile --durations=10 -m "not alone" \
    --junitxml="$logs/2-integration.xml" tests/integration tests/chart
}

times() { # nothing else may run
  step "tests of times" .venv/bin/pytest -q --durations=5 -m alone --junitxml="$logs/3-times.xml" tests/integration
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
built=yes # the node image, which takes many minutes
if [ -n "$clusters" ]; then
  .venv/bin/python -m e2e.prepare --ready || built=
  behind nice -n 5 .venv/bin/python -m e2e.prepare
fi

if [ "$what" = all ]; then
  step "lint" make --no-print-directory lint
  step "generated files" .venv/bin/python hack/gen_crds.py --check
  if [ -n "$built" ]; then
    integration
    await
    times
    if [ -n "$clusters" ]; then
      .venv/bin/python -m e2e.clusters status >/dev/null 2>&1 || made_clusters=yes
      behind .venv/bin/python -m e2e.prepare --clusters
    fi
    unit
  else
    unit
    await
    integration
    times
  fi
fi
await
if [ -n "$clusters" ]; then
  step "cluster tests" env PDD_E2E=required .venv/bin/pytest -v --durations=15 --junitxml="$logs/4-e2e.xml" e2e
fi

if [ ${#failed[@]} -gt 0 ]; then
  .venv/bin/python hack/failures.py "$logs"/*.xml
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "all steps passed"
