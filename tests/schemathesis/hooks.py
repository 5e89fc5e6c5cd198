"""What a schema cannot say of a request that will be taken: the names that are configured, and which fields go together."""

import schemathesis
from schemathesis.generation import GenerationMode

AGENT = "clerk"
TOOLS = ["look"]
# Requests that begin a session, and how each names its agent.
BEGINS = {"POST /v1/sessions": "agent", "POST /v1/responses": "model", "POST /v1/chat/completions": "model"}


@schemathesis.hook
def before_call(context, case, kwargs):
    names_agent = BEGINS.get(case.operation.label)
    if names_agent is None or not isinstance(case.body, dict):
        return
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    body = case.body
    body[names_agent] = AGENT
    if body.get("background"):
        # A session in the background is followed and fetched later.
        body.pop("stream", None)
        body.pop("store", None)
    # OpenAI's items have more forms than the document tells.
    if isinstance(body.get("input"), list) and names_agent == "model":
        body["input"] = [{"role": "user", "content": "hi"}]
    # A session to go on from is named once.
    if body.get("previous_response_id") and isinstance(body.get("ambit"), dict):
        body["ambit"].pop("previous_session_id", None)
    # At least one message says something.
    if isinstance(body.get("messages"), list) and body["messages"]:
        body["messages"][-1] = {"role": "user", "content": "hi"}
    if isinstance(body.get("tools"), list):
        for tool in body["tools"]:
            tool.get("function", tool)["name"] = TOOLS[0]
    for own in (body, body.get("ambit")):
        tools = own.get("tools") if isinstance(own, dict) else None
        for names in ("allow", "deny"):
            if isinstance(tools, dict) and names in tools:
                tools[names] = TOOLS[: len(tools[names])]
