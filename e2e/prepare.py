"""Makes what the cluster tests need but no test measures: the node image, the tools and the project's images.

usage: python -m e2e.prepare
Idempotent: with everything in the cache it takes seconds. `hack/test.sh` runs it beside the other tests.
"""

from __future__ import annotations

import subprocess
import sys

from e2e import engine, paths
from e2e.node_image import build
from e2e.shell import say


def main() -> int:
    try:
        engine.ensure()
    except engine.NoEngine as error:
        say(f"prepare: {error}")
        return 1
    say(f"node image: {build.ensure()}")
    script = paths.REPOSITORY / "images" / "build.py"
    return subprocess.run([sys.executable, str(script)], timeout=1800, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
