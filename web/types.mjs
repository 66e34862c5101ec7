// Writes src/api/schema.ts: the types of all request and response bodies in openapi.json. Paths are left out because
// each of them repeats all error responses, which would make the file ten times as large. An argument names another file.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const api = JSON.parse(await readFile(new URL("../openapi.json", import.meta.url), "utf8"));
const schemas = { openapi: api.openapi, info: api.info, paths: {}, components: { schemas: api.components.schemas } };
const header = "// Generated from openapi.json by `npm run types`. Do not edit.\n\n";
await writeFile(process.argv[2] ?? new URL("src/api/schema.ts", import.meta.url), header + astToString(await openapiTS(schemas)));
