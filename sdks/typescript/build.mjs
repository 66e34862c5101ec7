// Builds dist from src: once as ESM, once as CommonJS. `npm pack` runs it.

import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const TSC = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const compile = (...words) => execFileSync(process.execPath, [TSC, ...words], { stdio: "inherit" });

process.chdir(new URL(".", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true }); // what src no longer has is not packed
compile("--outDir", "dist/esm");
compile("--noCheck", "--module", "commonjs", "--moduleResolution", "node10", "--outDir", "dist/cjs");
writeFileSync("dist/cjs/package.json", '{"type":"commonjs"}\n');
// The shapes of the wire are a fifth of the package and mean the same from both sides, so they are packed once. ESM may
// name the types of CommonJS; the other way round they would need attributes that older compilers do not know.
writeFileSync("dist/esm/wire.d.ts", 'export type * from "../cjs/wire.js";\n');
