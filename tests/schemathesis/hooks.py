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
    if case.operation.label != "POST /v1/sessions" or not isinstance(case.body, dict):
        return
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    case.body["agent"] = AGENT
    if case.body.get("stream"):
        case.body.pop("background", None)
    for names in ("allow", "deny"):
        if names in case.body.get("tools", {}):
            case.body["tools"][names] = TOOLS[: len(case.body["tools"][names])]
