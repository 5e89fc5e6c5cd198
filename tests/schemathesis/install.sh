#!/bin/sh
# Installs schemathesis as locked, every file by its hash, into a virtual environment that git does not see.
# Does nothing when that has been done for this lock file. Needs Python 3.11 or later with its `venv` module.
set -eu
cd "$(dirname "$0")"
stamp=.venv/.installed
wanted=$(cksum <requirements.txt)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "install.sh: Python 3.11 with \`venv\` is missing; hint: Debian packages \`python3\` and \`python3-venv\`" >&2
    exit 69
}
rm -rf .venv
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r requirements.txt
printf '%s\n' "$wanted" >"$stamp"
