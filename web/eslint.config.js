import a11y from "eslint-plugin-jsx-a11y";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig({ ignores: ["src/page_data.ts"] }, tseslint.configs.strict, a11y.flatConfigs.recommended, {
  rules: { "@typescript-eslint/no-non-null-assertion": "off", "no-console": "error", eqeqeq: ["error", "smart"] },
});
