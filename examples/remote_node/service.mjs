// The stage `score` as the service that Tidemill calls: reads what it is sent, and says what is to be saved.

import grpc from "@grpc/grpc-js";

import { READS, quality, rate, same, until } from "./score.mjs";

const STAGE = "score";
const JSON_STATE = "tidemill.v1.JsonState";

// The calls of tidemill.v1.Stage. `JsonState` reads and writes messages of that type.
export function score(JsonState) {
  // The last sequence of each entity. A real service keeps it where its effects are, in the same transaction.
  const saved = new Map();

  // What it would be rated by is another thing than what it was rated by; or when it will be.
  function shouldProcess({ entity, state }, now) {
    const offer = offerOf(entity);
    const before = stateOf(state);
    const rated = rate(offer, now);
    if (rated === null) return { wanted: before !== null };
    if (!same(rated, before)) return { wanted: true };
    const at = until(rated, offer);
    return at === null ? { wanted: false } : { at: timestamp(at) };
  }

  // Looks for itself: it may be called though nothing has changed, and again for any reason.
  function process({ entity, state }, now) {
    const offer = offerOf(entity);
    const before = stateOf(state);
    const rated = rate(offer, now);
    const response =
      same(rated, before) && offer.quality === quality(rated)
        ? { untouched: {} }
        : { patch: { json: JSON.stringify({ quality: quality(rated) }), reads: READS } };
    if (rated === null) return before === null ? response : { ...response, no_state: true };
    if (!same(rated, before)) response.state = packed(rated);
    const at = until(rated, offer);
    // Left out, it would not be armed any more.
    return at === null ? response : { ...response, at: timestamp(at) };
  }

  // Says it, once: a call may come again, and one of before after it.
  function said({ entity, sequence }) {
    const key = JSON.stringify([entity.kind, entity.id]);
    const number = BigInt(sequence);
    if (number > (saved.get(key) ?? 0n)) {
      saved.set(key, number);
      console.log(`saved ${entity.kind} ${entity.id} at ${sequence}: quality ${offerOf(entity).quality}`);
    }
    return {};
  }

  function stateOf(state) {
    if (state === null || state.version === "0") return null;
    const name = state.value.type_url.split("/").pop();
    if (name !== JSON_STATE) throw new Error(`a state of this service is a ${JSON_STATE}, not a ${name}`);
    return JSON.parse(JsonState.deserialize(state.value.value).json);
  }

  function packed(rated) {
    const value = JsonState.serialize({ model: "Rated", json: JSON.stringify(rated) });
    return { type_url: `type.googleapis.com/${JSON_STATE}`, value };
  }

  return {
    ShouldProcess: one(shouldProcess),
    ShouldProcessBatch: each(shouldProcess),
    Process: one(process),
    ProcessBatch: each(process),
    Saved: one(said),
  };
}

function offerOf(entity) {
  const { kind = "", id = "", body, json } = entity ?? {};
  if (body !== "json") throw new Error(`${kind} '${id}' comes without its columns as JSON`);
  const found = JSON.parse(json);
  const missing = [...READS, "quality"].filter((name) => !Object.hasOwn(found, name));
  if (missing.length > 0) throw new Error(`${kind} '${id}' has no column ${missing.join(", ")}`);
  return found;
}

function one(answer) {
  return ({ request }, reply) => {
    if (request.stage !== STAGE) return reply(noStage(request.stage));
    try {
      return reply(null, answer(request, request.now && milliseconds(request.now)));
    } catch (error) {
      return reply({ code: grpc.status.INVALID_ARGUMENT, details: String(error) });
    }
  };
}

// One bad entity fails no other. A batch of none is a question whether somebody is there.
function each(answer) {
  return ({ request }, reply) => {
    if (request.items.length > 0 && request.stage !== STAGE) return reply(noStage(request.stage));
    const answers = request.items.map((item) => {
      const id = item.entity?.id ?? "";
      try {
        return { id, answer: answer(item, milliseconds(request.now)) };
      } catch (error) {
        return { id, failure: { message: String(error) } };
      }
    });
    return reply(null, { answers });
  };
}

function noStage(name) {
  return { code: grpc.status.NOT_FOUND, details: `there is no stage '${name.slice(0, 100)}' here, but ${STAGE}` };
}

function milliseconds({ seconds, nanos }) {
  return Number(seconds) * 1000 + nanos / 1e6;
}

function timestamp(at) {
  const seconds = Math.floor(at / 1000);
  return { seconds, nanos: (at - seconds * 1000) * 1e6 };
}
