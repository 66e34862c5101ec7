// Builds dist from src: once as ESM, once as CommonJS. `npm pack` and `npm install ../sdks/typescript` run it.

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
// `npm install FOLDER` runs this without the compiler having been installed in FOLDER.
if (!existsSync("node_modules/typescript")) {
  execFileSync("npm", ["ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"], { stdio: "inherit" });
}
const TSC = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const compile = (...words) => execFileSync(process.execPath, [TSC, ...words], { stdio: "inherit" });

rmSync("dist", { recursive: true, force: true }); // what src no longer has is not packed
// Editors read comments from the types, so that the code is packed without them.
const CODE = ["--removeComments", "--declaration", "false"];
const CJS = ["--noCheck", "--module", "commonjs", "--moduleResolution", "node10", "--outDir", "dist/cjs"];
compile("--outDir", "dist/esm", "--emitDeclarationOnly");
compile("--outDir", "dist/esm", "--noCheck", ...CODE);
compile(...CJS, "--emitDeclarationOnly");
compile(...CJS, ...CODE);
writeFileSync("dist/cjs/package.json", '{"type":"commonjs"}\n');
// Nobody edits what is packed, so that it needs no indentation. No text in src spans lines.
for (const folder of ["dist/esm", "dist/cjs"]) {
  for (const file of readdirSync(folder).filter((name) => /\.[jt]s$/.test(name))) {
    const lines = readFileSync(`${folder}/${file}`, "utf8");
    writeFileSync(`${folder}/${file}`, lines.replace(/^ +/gm, ""));
  }
}
// Types that no exported type names are not packed.
for (const name of ["double", "double-tools", "double-responses", "sha256"]) rmSync(`dist/cjs/${name}.d.ts`);
// Types mean the same from both sides, so they are packed once. ESM may name those of CommonJS; the other way round it
// would need attributes that older compilers do not know. Adapters keep theirs: their frameworks have two of each.
const OWN = ["ai.d.ts", "openai-agents.d.ts"];
const NAMED = ["index.d.ts", "testing.d.ts", "tools.d.ts"];
for (const file of readdirSync("dist/esm").filter((name) => name.endsWith(".d.ts") && !OWN.includes(name))) {
  rmSync(`dist/esm/${file}`);
  const there = `../cjs/${file.replace("d.ts", "js")}`;
  if (NAMED.includes(file)) writeFileSync(`dist/esm/${file}`, `export * from "${there}";\n`);
}
