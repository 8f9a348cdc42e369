import a11y from "eslint-plugin-jsx-a11y";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

/** Numbers of a report are computed in Python, so that terminal, page and notebook show the same ones. */
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
    // Code that draws (parts/, charts, timeline/, flame/), that builds links (view_links.ts) and that formats numbers
    // (format.ts, evidence.ts) may compute, as may selections in a drawing.
    files: [
      "src/*.{ts,tsx}",
      "src/{views,overview,ranks,communication,compare,runs}/*.{ts,tsx}",
      "src/memory/memory.tsx",
      "src/parts/legend.tsx",
    ],
    ignores: ["src/{colours,format,evidence,kernel_names,payload,view_links}.ts", "src/compare/change_bar.tsx"],
    rules: { "no-restricted-syntax": ["error", ...NO_ARITHMETIC] },
  },
);
