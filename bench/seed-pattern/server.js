// The idempotent send as articles teach it, to measure mailonce against: look for a stored result in Redis, take a
// lock there, insert one row in PostgreSQL, store the result, drop the lock. It is written the way a careful reader
// of those articles would write it, neither slowed down nor tuned beyond them. (It also shows their gap: a crash
// between the insert and the stored result makes the next try insert again.)
//
// Environment: PORT, REDIS_URL, DATABASE_URL.

import { randomUUID } from "node:crypto";
import Fastify from "fastify";
import { Redis } from "ioredis";
import pg from "pg";

const LOCK_SECONDS = 60;
const RESULT_SECONDS = 86_400;

const redis = new Redis(process.env.REDIS_URL);
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 20 });

await pool.query(`CREATE TABLE IF NOT EXISTS sends (
  id uuid PRIMARY KEY,
  key text NOT NULL,
  payload jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)`);

// A named statement, so that PostgreSQL plans it once per connection.
const insert = (id, key, body) => ({
  name: "insert-send",
  text: "INSERT INTO sends (id, key, payload) VALUES ($1, $2, $3)",
  values: [id, key, JSON.stringify(body)],
});

const app = Fastify({ logger: false });

app.get("/readyz", async () => ({ ready: true }));

app.post("/send", async (request, reply) => {
  const key = request.headers["idempotency-key"];
  if (!key) return reply.code(400).send({ error: "Idempotency-Key is missing" });

  const known = await redis.get(`result:${key}`);
  if (known) return reply.code(200).type("application/json").send(known);

  const claimed = await redis.set(`lock:${key}`, "claimed", "EX", LOCK_SECONDS, "NX");
  if (!claimed) return reply.code(409).send({ error: "in progress" });

  const result = { id: randomUUID(), state: "queued" };
  try {
    await pool.query(insert(result.id, key, request.body));
    await redis.setex(`result:${key}`, RESULT_SECONDS, JSON.stringify(result));
  } finally {
    await redis.del(`lock:${key}`);
  }
  return reply.code(202).send(result);
});

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(0));

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) });
