import { createHash } from "node:crypto";
import { resolve } from "node:path";
import { defineConfig, type Plugin } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/** Allows the page's own script and style, by their hashes, and nothing else but `others`: no request leaves a report. */
function contentSecurityPolicy(others: string): Plugin {
  return {
    name: "content-security-policy",
    enforce: "post",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        for (const asset of Object.values(bundle)) {
          if (asset.type === "asset" && asset.fileName.endsWith(".html")) {
            asset.source = withPolicy(String(asset.source), others);
          }
        }
      },
    },
  };
}

function withPolicy(html: string, others: string): string {
  const scripts = hashes(html, /<script type="module"[^>]*>([\s\S]*?)<\/script>/g);
  const styles = hashes(html, /<style[^>]*>([\s\S]*?)<\/style>/g);
  const policy = `default-src 'none'; script-src ${scripts}; style-src ${styles};${others} base-uri 'none'; form-action 'none'`;
  const charset = '<meta charset="utf-8" />';
  if (!html.includes(charset)) throw new Error(`The page lacks ${charset}, which its policy comes after.`);
  return html.replace(charset, () => {
    return `${charset}\n    <meta http-equiv="Content-Security-Policy" content="${policy}" />`;
  });
}

function hashes(html: string, pattern: RegExp): string {
  const found = [...html.matchAll(pattern)].map(([, text = ""]) => {
    return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  });
  return found.join(" ") || "'none'";
}

/** A report, and with `--mode runs` the list of runs, which asks its own server for what is new. */
export default defineConfig(({ mode }) => ({
  plugins: [viteSingleFile(), contentSecurityPolicy(mode === "runs" ? " connect-src 'self'; img-src data:;" : "")],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    outDir: resolve(import.meta.dirname, "../src/kinetoscope/pages"),
    emptyOutDir: false,
    rollupOptions: { input: resolve(import.meta.dirname, mode === "runs" ? "runs.html" : "page.html") },
  },
}));
