// A stage that lives in a service of its own, in JavaScript: it rates offers of the classifieds site by gRPC.
//
//     npm ci && node server.mjs --listen 127.0.0.1:8432 --token-file token
//
// It says its address as soon as it can be called, and serves until it is asked to end.

import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

import { score } from "./service.mjs";

const GRACE_MILLISECONDS = 10_000;
const SERVING = "SERVING";

const { values: options } = parseArgs({
  options: {
    listen: { type: "string", default: "127.0.0.1:8432" },
    "token-file": { type: "string" },
    "tls-certificate": { type: "string" },
    "tls-key": { type: "string" },
    "tls-clients": { type: "string" },
    "most-bytes": { type: "string", default: String(64 * 1024 * 1024) },
    // Where tidemill/v1/stage.proto is.
    protos: { type: "string", default: fileURLToPath(new URL("../../app/proto", import.meta.url)) },
  },
});

function fail(message) {
  console.error(message);
  process.exit(2);
}

function token() {
  if (!options["token-file"]) fail("--token-file is missing: the token that callers must send");
  const found = readFileSync(options["token-file"], "utf8").trim();
  return found || fail(`${options["token-file"]} is empty: write a token into it`);
}

function credentials() {
  const [certificate, key, clients] = ["certificate", "key", "clients"].map((name) => options[`tls-${name}`]);
  if (!certificate !== !key || (clients && !key)) {
    fail("--tls-certificate and --tls-key belong together, and --tls-clients needs both");
  }
  if (!key) return grpc.ServerCredentials.createInsecure();
  const pair = { private_key: readFileSync(key), cert_chain: readFileSync(certificate) };
  return grpc.ServerCredentials.createSsl(clients ? readFileSync(clients) : null, [pair], Boolean(clients));
}

// Lets in whoever sends `authorization: Bearer <token>`.
function withToken(methods, wanted) {
  const digest = (text) => createHash("sha256").update(text).digest();
  const right = digest(`Bearer ${wanted}`);
  const details = "send authorization: Bearer and the token of this service";
  const guarded = (method) => (call, reply) => {
    const [given = ""] = call.metadata.get("authorization");
    if (timingSafeEqual(digest(given), right)) return method(call, reply);
    return reply({ code: grpc.status.UNAUTHENTICATED, details });
  };
  return Object.fromEntries(Object.entries(methods).map(([name, method]) => [name, guarded(method)]));
}

const definitions = protoLoader.loadSync(["tidemill/v1/stage.proto", "health.proto"], {
  includeDirs: [options.protos, fileURLToPath(new URL(".", import.meta.url))],
  keepCase: true,
  // They may be larger than a number of JavaScript can be.
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const most = Number(options["most-bytes"]);
const server = new grpc.Server({
  // A batch may be larger than the 4 MiB that gRPC would take.
  "grpc.max_receive_message_length": most,
  "grpc.max_send_message_length": most,
  // A second one on this port shall fail, not take half of the calls.
  "grpc.so_reuseport": 0,
});
server.addService(
  definitions["tidemill.v1.Stage"],
  withToken(score(definitions["tidemill.v1.JsonState"]), token()),
);
// Whoever watches over the service asks without a token.
const known = new Set(["", "tidemill.v1.Stage"]);
server.addService(definitions["grpc.health.v1.Health"], {
  Check: ({ request }, reply) =>
    known.has(request.service)
      ? reply(null, { status: SERVING })
      : reply({ code: grpc.status.NOT_FOUND, details: "there is no such service here" }),
});
server.bindAsync(options.listen, credentials(), (error, port) => {
  if (error) fail(`${options.listen} cannot be listened on: ${error.message}`);
  console.log(`listening on ${options.listen.replace(/:\d+$/, "")}:${port}`);
});

// New calls are refused; those at work may end.
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    setTimeout(() => server.forceShutdown(), GRACE_MILLISECONDS).unref();
    server.tryShutdown(() => {
      console.log("ended");
      process.exit(0);
    });
  });
}
