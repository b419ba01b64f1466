#!/bin/bash
# Builds the images with the project's own Python. Arguments: see build.py.
cd "$(dirname "$0")/.." || exit
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" images/build.py "$@"
