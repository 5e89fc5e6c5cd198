// Does with the official OpenAI client for Node what it is told on stdin, and tells what came of it.
//
// Usage: node client.mjs BASE_URL < jobs.json. Each job is an object with `do`, `body` (arguments of the call), and what
// else it needs; each answer is one line of JSON. Nothing of the client is changed but its address; retries are its own.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "anything", timeout: 100_000 });
// Between two looks at a response in the background, milliseconds; the number of looks is bounded by the job's deadline.
const LOOK_AGAIN = 100;
const LOOKS_MAX = 600;

const told = (response) => ({
    id: response.id,
    status: response.status,
    text: response.output_text,
    items: response.output.map((item) => [item.status, item.phase]),
    tokens: response.usage && response.usage.total_tokens,
    cut: response.incomplete_details && response.incomplete_details.reason,
    failure: response.error && response.error.code,
    metadata: response.metadata,
    reason: response.ambit.reason,
});

const chatTold = (completion) => ({
    text: completion.choices[0].message.content,
    finish: completion.choices[0].finish_reason,
    tokens: completion.usage ? completion.usage.total_tokens : null,
});

async function events(stream) {
    const seen = [];
    let text = "";
    let last;
    for await (const event of stream) {
        seen.push([event.type, event.sequence_number]);
        if (event.type === "response.output_text.delta") text += event.delta;
        last = event;
    }
    // Objects inside events have no `output_text`: the client adds it to whole answers only.
    const response = last.response;
    response.output_text = response.output.flatMap((item) => item.content.map((part) => part.text)).join("");
    return { events: seen, text, last: told(response) };
}

const jobs = {
    async create({ body }) {
        const response = await client.responses.create(body);
        return { ...told(response), request_id: response._request_id };
    },
    async headers({ body }) {
        const { headers } = await client.responses.create(body).asResponse();
        return Object.fromEntries(["ambit-ignored-params", "ambit-session-id"].map((name) => [name, headers.get(name)]));
    },
    async stream({ body }) {
        return events(await client.responses.create({ ...body, stream: true }));
    },
    async resume({ id, after }) {
        return events(await client.responses.retrieve(id, { stream: true, starting_after: after }));
    },
    async helper({ body }) {
        let streamed = "";
        const stream = client.responses.stream(body).on("response.output_text.delta", ({ delta }) => (streamed += delta));
        return { ...told(await stream.finalResponse()), streamed };
    },
    async background({ body }) {
        let response = await client.responses.create({ ...body, background: true });
        const first = response.status;
        for (let look = 0; look < LOOKS_MAX && ["queued", "in_progress"].includes(response.status); look++) {
            await sleep(LOOK_AGAIN);
            response = await client.responses.retrieve(response.id);
        }
        return { ...told(response), first };
    },
    async cancel({ body }) {
        const { id } = await client.responses.create({ ...body, background: true });
        return [(await client.responses.cancel(id)).status, (await client.responses.cancel(id)).status];
    },
    async delete({ id }) {
        await client.responses.delete(id);
        return told(await client.responses.retrieve(id));
    },
    async input_items({ id }) {
        const items = [];
        for await (const item of client.responses.inputItems.list(id, { order: "asc", limit: 2 })) {
            items.push([item.role, item.content[0].text]);
        }
        return items;
    },
    async chat({ body }) {
        const completion = await client.chat.completions.create(body);
        return { ...chatTold(completion), reason: completion.ambit.reason, request_id: completion._request_id };
    },
    async chat_stream({ body }) {
        let [text, finish, tokens, reason] = ["", null, null, null];
        for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
            tokens = chunk.usage ? chunk.usage.total_tokens : tokens;
            for (const choice of chunk.choices) {
                text += choice.delta.content ?? "";
                finish = choice.finish_reason ?? finish;
            }
            reason = chunk.ambit ? chunk.ambit.reason : reason;
        }
        return { text, finish, tokens, reason };
    },
    async chat_helper({ body }) {
        return chatTold(await client.chat.completions.stream(body).finalChatCompletion());
    },
    async models() {
        const models = [];
        for await (const { id } of client.models.list()) {
            const model = await client.models.retrieve(id);
            models.push([model.id, model.owned_by]);
        }
        return models;
    },
    async model({ id }) {
        return (await client.models.retrieve(id)).id;
    },
};

for (const job of JSON.parse(readFileSync(0, "utf8"))) {
    let answer;
    try {
        answer = await jobs[job.do](job);
    } catch (error) {
        if (!(error instanceof OpenAI.APIError)) throw error;
        const { status, code, param, requestID, message } = error;
        answer = { error: error.constructor.name, code, message };
        if (status !== undefined) answer = { ...answer, status_code: status, param, request_id: requestID };
    }
    console.log(JSON.stringify(answer ?? null));
}
