import a11y from "eslint-plugin-jsx-a11y";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

/** What is shown of a report was worked out in Python: there it is the same for a terminal, a page and a notebook. */
const NO_ARITHMETIC = [
  "BinaryExpression[operator=/^([*\\/%]|\\*\\*)$/]",
  "AssignmentExpression[operator=/^[-+*\\/]=$/]",
  "CallExpression[callee.property.name=/^reduce/]",
  "MemberExpression[object.name='Math']",
  "BinaryExpression[operator=/^[-+]$/]:not(ArrowFunctionExpression > *, ArrowFunctionExpression > LogicalExpression > *):has(> MemberExpression[property.name=/_(ns|bytes|s)$|^num_|share/])",
].map((selector) => ({ selector, message: "A view shows the numbers of the data: work them out in report/." }));

export default defineConfig(
  { ignores: ["src/page_data.ts", "src/runs/list_data.ts"] },
  tseslint.configs.strict,
  a11y.flatConfigs.recommended,
  {
    rules: { "@typescript-eslint/no-non-null-assertion": "off", "no-console": "error", eqeqeq: ["error", "smart"] },
  },
  {
    // What draws (parts/, charts, timeline/, flame/), where a link leads (places.ts) and how numbers are written
    // (format.ts, evidence.ts) has arithmetic of its own, and so has what a reader selects in a drawing.
    files: [
      "src/*.{ts,tsx}",
      "src/{views,overview,ranks,communication,compare,runs}/*.{ts,tsx}",
      "src/memory/memory.tsx",
      "src/parts/legend.tsx",
    ],
    ignores: ["src/{colours,format,evidence,payload,places}.ts", "src/compare/change_bar.tsx"],
    rules: { "no-restricted-syntax": ["error", ...NO_ARITHMETIC] },
  },
);
