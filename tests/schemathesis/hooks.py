"""What a schema cannot say about a request that will be taken: the names that are configured, and which fields go together."""

import schemathesis
from schemathesis.generation import GenerationMode

AGENT = "clerk"
TOOLS = ["look"]


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE and case.headers:
        # The same key for another body is refused, and cases share their keys.
        case.headers.pop("idempotency-key", None)
    if not isinstance(case.body, dict) or case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if case.operation.label in ("POST /v1/responses", "POST /v1/chat/completions"):
        openai(case.body)
    if case.operation.label != "POST /v1/sessions":
        return
    case.body["agent"] = AGENT
    if case.body.get("stream"):
        case.body.pop("background", None)
    for names in ("allow", "deny"):
        if names in case.body.get("tools", {}):
            case.body["tools"][names] = TOOLS[: len(case.body["tools"][names])]


def openai(body):
    """What each role and each kind of item needs is told in words only; so are the rules that join several members."""
    body["model"] = AGENT
    for conversation in ("input", "messages"):
        if isinstance(body.get(conversation), list):
            body[conversation] = [{"role": "user", "content": "hi"}]
    if body.get("tools"):
        body["tools"] = [{"type": "function", "name": name} for name in TOOLS]
    if body.get("background"):
        body.pop("store", None)
    ambit = body.get("ambit") or {}
    ambit.pop("metadata", None)
    allowed = ambit.get("tools", {}).get("allow")
    if allowed:
        ambit["tools"]["allow"] = TOOLS[: len(allowed)]
    if ambit.get("tools", {}).get("deny"):
        ambit["tools"]["deny"] = TOOLS
