#!/bin/bash
# Empties the one cache folder (node image, tools, wheels, our engine's data), after ending the engine that uses it.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PDD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pdd}
[ -d "$cache" ] || { echo "$cache: nothing there"; exit 0; }
hack/engine.sh stop || true
rm -rf --one-file-system "$cache"
echo "$cache: removed"
