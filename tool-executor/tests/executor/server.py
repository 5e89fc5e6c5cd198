"""A small MCP server over stdio for tests. What it does wrong is told by its arguments."""

import json
import os
import subprocess
import sys
import threading
import time

MODES = sys.argv[1:]


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tool(name, **more):
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "number"}}}
    return {"name": name, "description": name + " tool", "inputSchema": schema, **more}


TOOLS = [
    tool("echo", annotations={"readOnlyHint": True}),
    tool("env"),
    tool("fail"),
    tool("refuse"),
    tool("block"),
    tool("silent"),
    tool("late"),
    tool("die"),
    tool("noise"),
    tool("delete", annotations={"destructiveHint": True}),
    tool("structured", outputSchema={"type": "object", "required": ["x"]}),
    tool("strange name!", title="strange"),
    tool("bad", inputSchema={"$ref": "https://example.com/s.json"}),
]


def call(id, name, arguments):
    def done(text, **more):
        say({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], **more}})

    if name in ("echo", "strange name!"):
        done(arguments.get("text", ""))
    elif name == "env":
        done(json.dumps(dict(os.environ)))
    elif name == "fail":
        done("it did not work", isError=True)
    elif name == "refuse":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no such thing"}})
    elif name == "block":
        # A child of the child, and a reader that reads no more.
        subprocess.Popen(["sleep", "300"])
        time.sleep(300)
    elif name == "silent":
        pass
    elif name == "late":
        threading.Timer(arguments.get("n", 0.6), done, ["late"]).start()
    elif name == "die":
        os._exit(3)
    elif name == "noise":
        sys.stdout.write("plain words\n{\"half\": \n\x00\xff\n[1, 2]\n")
        done("after the noise")
    elif name == "delete":
        done("deleted")
    elif name == "structured":
        done("{}", structuredContent={"y": 1})


if "no-start" in MODES:
    time.sleep(300)
if "exit" in MODES:
    sys.exit(1)
sys.stderr.write("x" * 200000 + "\n")
with open(os.environ.get("PIDS", os.devnull), "a") as pids:
    pids.write(str(os.getpid()) + "\n")

for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
        say({"jsonrpc": "2.0", "id": id, "result": result})
    elif method == "tools/list":
        if "endless" in MODES:
            say({"jsonrpc": "2.0", "id": id, "result": {"tools": TOOLS[:1], "nextCursor": "again"}})
            continue
        cursor = (message.get("params") or {}).get("cursor")
        if cursor:
            say({"jsonrpc": "2.0", "id": id, "result": {"tools": TOOLS[3:]}})
        else:
            say({"jsonrpc": "2.0", "id": id, "result": {"tools": TOOLS[:3], "nextCursor": "rest"}})
    elif method == "tools/call":
        call(id, message["params"]["name"], message["params"].get("arguments") or {})
    elif method == "ping":
        say({"jsonrpc": "2.0", "id": id, "result": {}})
