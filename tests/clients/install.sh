#!/bin/sh
# Installs the official OpenAI clients that the end-to-end tests and the documents' examples run, exactly as locked.
# Does nothing for a client that has been installed from its lock file. Needs python3 with venv, node 20 and npm.
set -eu
cd "$(dirname "$0")"

# With a stamp inside, so that another lock file, or a folder removed, installs again.
is_installed() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }
missing() {
    echo "install.sh: $1 is missing; hint: Debian package \`$2\`" >&2
    exit 69
}

stamp=python/.venv/.installed
wanted=$(cksum <python/requirements.txt)
if ! is_installed "$stamp" "$wanted"; then
    command -v python3 >/dev/null || missing python3 python3-venv
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing "the module venv of python3" python3-venv
    rm -rf python/.venv
    python3 -m venv python/.venv
    python/.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r python/requirements.txt
    printf '%s\n' "$wanted" >"$stamp"
fi

stamp=node/node_modules/.installed
wanted=$(cat node/package.json node/package-lock.json | cksum)
if ! is_installed "$stamp" "$wanted"; then
    command -v npm >/dev/null || missing npm npm
    (cd node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    printf '%s\n' "$wanted" >"$stamp"
fi
