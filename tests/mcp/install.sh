#!/bin/sh
# Installs the real MCP servers that the end-to-end tests start, exactly as locked, without running any install script.
# Does nothing when that has been done for this lock file. Needs node 20 and npm.
set -eu
cd "$(dirname "$0")"
stamp=node_modules/.installed
wanted=$(cat package.json package-lock.json | cksum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
command -v npm >/dev/null || { echo "install.sh: npm is missing; hint: Debian package \`npm\`, or https://nodejs.org" >&2; exit 69; }
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
printf '%s\n' "$wanted" >"$stamp"
