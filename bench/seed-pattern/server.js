// The idempotent send as articles teach it, to measure mailonce against: hash the canonical body, look for a stored
// result in Redis, take a lock there, insert one row in PostgreSQL under a unique key, store hash and result, drop the
// lock. It is written the way a careful reader of those articles would write it, neither slowed down nor tuned beyond
// them: a pool as it comes, statements as they are written, no cluster. (It also shows their gap: after a crash
// between the insert and the stored result every later try fails on the unique key, and nobody learns the result.)
//
// Environment: PORT, REDIS_URL, DATABASE_URL.

import { createHash, randomUUID } from "node:crypto";
import Fastify from "fastify";
import { Redis } from "ioredis";
import pg from "pg";

const LOCK_SECONDS = 60;
const RESULT_SECONDS = 86_400;

const redis = new Redis(process.env.REDIS_URL);
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

await pool.query(`CREATE TABLE IF NOT EXISTS sends (
  id uuid PRIMARY KEY,
  key text UNIQUE NOT NULL,
  payload jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)`);

// Keys sorted at every depth and what is absent left out, so that equal wishes have equal hashes.
const canonical = (value) => {
  if (Array.isArray(value)) return value.map(canonical);
  if (value === null || typeof value !== "object") return value;
  const present = Object.keys(value).filter((name) => value[name] !== null && value[name] !== undefined);
  return Object.fromEntries(present.sort().map((name) => [name, canonical(value[name])]));
};

const hashOf = (body) => createHash("sha256").update(JSON.stringify(canonical(body))).digest("hex");

const app = Fastify({ logger: false });

app.get("/readyz", async () => ({ ready: true }));

app.post("/send", async (request, reply) => {
  const key = request.headers["idempotency-key"];
  if (!key || key.length > 256) return reply.code(400).send({ error: "Idempotency-Key must have 1 to 256 characters" });
  const bodyHash = hashOf(request.body);

  const known = await redis.get(`result:${key}`);
  if (known) {
    const stored = JSON.parse(known);
    if (stored.bodyHash !== bodyHash) return reply.code(409).send({ error: "the key was used with another body" });
    return reply.code(200).send(stored.result);
  }

  const claimed = await redis.set(`lock:${key}`, "claimed", "EX", LOCK_SECONDS, "NX");
  if (!claimed) return reply.code(409).send({ error: "in progress" });

  const result = { id: randomUUID(), state: "queued" };
  try {
    await pool.query("INSERT INTO sends (id, key, payload) VALUES ($1, $2, $3)", [result.id, key, request.body]);
    await redis.setex(`result:${key}`, RESULT_SECONDS, JSON.stringify({ bodyHash, result }));
  } finally {
    await redis.del(`lock:${key}`);
  }
  return reply.code(202).send(result);
});

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(0));

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) });
