import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

const SOURCE = join(import.meta.dirname, "..", "src");

/** The imports of each module, types included. */
function readImports(): Map<string, string[]> {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((path) => /\.tsx?$/.test(path));
  return new Map(
    files.map((file) => {
      const named = readFileSync(join(SOURCE, file), "utf8").matchAll(/ from "(\.[^"]+)"/g);
      const paths = [...named].map(([, path]) => normalize(join(dirname(file), path)));
      return [
        file,
        paths.flatMap((path) => [`${path}.ts`, `${path}.tsx`]).filter((path) => existsSync(join(SOURCE, path))),
      ];
    }),
  );
}

/** A cyclic chain of imports; null without one. */
function findCycle(imports: Map<string, string[]>): string[] | null {
  const done = new Set<string>();
  function visit(file: string, chain: string[]): string[] | null {
    if (chain.includes(file)) return [...chain.slice(chain.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const imported of imports.get(file) ?? []) {
      const cycle = visit(imported, [...chain, file]);
      if (cycle) return cycle;
    }
    done.add(file);
    return null;
  }
  for (const file of imports.keys()) {
    const cycle = visit(file, []);
    if (cycle) return cycle;
  }
  return null;
}

test("no module imports itself through others", () => {
  const imports = readImports();
  expect(imports.get("app.tsx")).toContain("views.tsx");
  expect(findCycle(imports)).toBeNull();
});
