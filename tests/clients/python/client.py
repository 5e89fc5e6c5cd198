"""Does with the official OpenAI client for Python what it is told on stdin, and tells what came of it.

Usage: client.py BASE_URL < jobs.json. Each job is an object with `do`, `body` (arguments of the call), and what else it
needs; each answer is one line of JSON. Nothing of the client is changed but its address; retries are its own.
"""

import json
import sys
import time

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="anything", timeout=100.0)
# Between two looks at a response in the background, seconds; the number of looks is bounded by the job's deadline.
LOOK_AGAIN = 0.1
LOOKS_MAX = 600


def arguments(job):
    """Members that the client does not know go into `extra_body`, as its users do it."""
    body = dict(job["body"])
    ambit = body.pop("ambit", None)
    return body | {"extra_body": {"ambit": ambit}} if ambit is not None else body


def told(response):
    return {
        "id": response.id,
        "status": response.status,
        "text": response.output_text,
        "items": [[item.status, item.phase] for item in response.output],
        "tokens": response.usage and response.usage.total_tokens,
        "cut": response.incomplete_details and response.incomplete_details.reason,
        "failure": response.error and response.error.code,
        "metadata": response.metadata,
        "reason": response.ambit["reason"],
    }


def create(job):
    response = client.responses.create(**arguments(job))
    return told(response) | {"request_id": response._request_id}


def headers(job):
    raw = client.responses.with_raw_response.create(**arguments(job))
    return {name: raw.headers.get(name) for name in ("ambit-ignored-params", "ambit-session-id")}


def events(stream):
    seen, text, last = [], "", None
    for event in stream:
        seen.append([event.type, event.sequence_number])
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    return {"events": seen, "text": text, "last": told(last.response)}


def stream(job):
    return events(client.responses.create(stream=True, **arguments(job)))


def resume(job):
    return events(client.responses.retrieve(job["id"], stream=True, starting_after=job["after"]))


def helper(job):
    with client.responses.stream(**arguments(job)) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        return told(stream.get_final_response()) | {"streamed": text}


def background(job):
    response = client.responses.create(background=True, **arguments(job))
    first = response.status
    for _ in range(LOOKS_MAX):
        if response.status not in ("queued", "in_progress"):
            break
        time.sleep(LOOK_AGAIN)
        response = client.responses.retrieve(response.id)
    return told(response) | {"first": first}


def cancel(job):
    response = client.responses.create(background=True, **arguments(job))
    return [told(client.responses.cancel(response.id))["status"] for _ in range(2)]


def delete(job):
    client.responses.delete(job["id"])
    return told(client.responses.retrieve(job["id"]))


def input_items(job):
    page = client.responses.input_items.list(job["id"], order="asc", limit=2)
    return [[item.role, item.content[0].text] for item in page]


def chat_told(completion):
    choice = completion.choices[0]
    return {"text": choice.message.content, "finish": choice.finish_reason, "tokens": completion.usage and completion.usage.total_tokens}


def chat(job):
    completion = client.chat.completions.create(**arguments(job))
    return chat_told(completion) | {"reason": completion.ambit["reason"], "request_id": completion._request_id}


def chat_stream(job):
    text, finish, usage, reason = "", None, None, None
    for chunk in client.chat.completions.create(stream=True, **arguments(job)):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
        reason = chunk.model_extra["ambit"]["reason"] if "ambit" in chunk.model_extra else reason
    return {"text": text, "finish": finish, "tokens": usage and usage.total_tokens, "reason": reason}


def chat_helper(job):
    with client.chat.completions.stream(**arguments(job)) as stream:
        return chat_told(stream.get_final_completion())


def models(job):
    names = [model.id for model in client.models.list()]
    return [[model.id, model.owned_by] for model in map(client.models.retrieve, names)]


def model(job):
    return client.models.retrieve(job["id"]).id


JOBS = [create, headers, stream, resume, helper, background, cancel, delete, input_items, chat, chat_stream, chat_helper, models, model]


def answer(job):
    try:
        return {job_.__name__: job_ for job_ in JOBS}[job["do"]](job)
    except openai.APIStatusError as error:
        told = {name: getattr(error, name) for name in ("status_code", "code", "param", "request_id", "message")}
        return {"error": type(error).__name__} | told
    except openai.APIError as error:
        return {"error": type(error).__name__, "code": error.code, "message": error.message}


for job in json.load(sys.stdin):
    print(json.dumps(answer(job)), flush=True)
