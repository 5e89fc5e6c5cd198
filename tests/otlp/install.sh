#!/bin/sh
# Installs the OTLP receiver that the end-to-end tests start, exactly as locked, into a virtual environment of its own.
# Does nothing when that has been done for this lock file. Needs python 3.9 or later with its module `venv`.
set -eu
cd "$(dirname "$0")"
stamp=.venv/.installed
wanted=$(cksum <requirements.txt)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
rm -rf .venv
python3 -m venv .venv || { echo "install.sh: python3 with venv is missing; hint: Debian package \`python3-venv\`" >&2; exit 69; }
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.txt
agent=$(echo .venv/lib/python3*/site-packages/rotel/rotel-agent)
# The wheel has no script of its own; one path for every version of python.
ln -s "../../$agent" .venv/bin/rotel-agent
printf '%s\n' "$wanted" >"$stamp"
