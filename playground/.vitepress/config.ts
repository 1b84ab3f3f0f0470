import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";
import { defineConfig, type MarkdownRenderer } from "vitepress";
import type { Plugin } from "vite";
import { parse } from "yaml";

const repository = "https://github.com/stateful-failover/stateful-failover";
/** Where the site is served from; a project page has a folder of its own. */
const base = process.env.SITE_BASE ?? "/";

export default defineConfig({
  title: "stateful-failover",
  description: "Applications that Karmada moves resume where they left off: one admission policy carries their state.",
  lang: "en",
  base,
  srcDir: "../docs",
  cleanUrls: false,
  lastUpdated: false,
  head: [["link", { rel: "icon", type: "image/svg+xml", href: `${base}icon.svg` }]],
  themeConfig: {
    nav: [
      { text: "Guide", link: "/guide" },
      { text: "Reference", link: "/reference" },
      { text: "Playground", link: "/playground" },
    ],
    sidebar: [
      {
        text: "Use it",
        items: [
          { text: "Guide", link: "/guide" },
          { text: "Rehearse", link: "/rehearse" },
          { text: "Operations", link: "/operations" },
          { text: "Playground", link: "/playground" },
        ],
      },
      {
        text: "Look it up",
        items: [
          { text: "Reference", link: "/reference" },
          { text: "Beside Kyverno policies", link: "/comparison" },
          { text: "With Kyverno", link: "/kyverno" },
        ],
      },
    ],
    outline: { level: [2, 3] },
    search: { provider: "local" },
    socialLinks: [{ icon: "github", link: repository }],
    footer: { message: "Apache-2.0" },
  },
  markdown: {
    // One theme of sufficient contrast for each side.
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    config(markdown) {
      linkOutside(markdown);
      reachIndentedBlocks(markdown);
      openInPlayground(markdown);
    },
  },
  vite: {
    publicDir: "../playground/public",
    server: { fs: { allow: [".."] } },
    plugins: [resolveForPages()],
    build: { chunkSizeWarningLimit: 1024 },
  },
  transformHtml: withPolicy,
});

/** The pages are in docs/, where no dependencies are installed: what they import is looked for here. */
function resolveForPages(): Plugin {
  const here = fileURLToPath(import.meta.url);
  return {
    name: "resolve-for-pages",
    enforce: "pre",
    resolveId(id, importer, options) {
      if (!importer?.includes("/docs/") || !/^vue(\/|$)/.test(id)) return null;
      return this.resolve(id, here, { ...options, skipSelf: true });
    },
  };
}

/** Pages link to files of the repository as a code host resolves them; outside of docs/ there is nothing to render. */
function linkOutside(markdown: MarkdownRenderer) {
  markdown.core.ruler.push("link-outside", (state) => {
    for (const token of state.tokens.flatMap((block) => block.children ?? [])) {
      const href = token.type === "link_open" ? token.attrGet("href") : null;
      if (href?.startsWith("../")) token.attrSet("href", `${repository}/blob/main/${href.slice("../".length)}`);
    }
  });
}

/** Indented blocks scroll like the others, so the keyboard must reach them too. */
function reachIndentedBlocks(markdown: MarkdownRenderer) {
  const block = markdown.renderer.rules.code_block!;
  markdown.renderer.rules.code_block = (...parameters) => block(...parameters).replace("<pre", '<pre tabindex="0"');
}

/** Which example goes with restore rules for a kind. */
const examples: Record<string, string> = {
  Cluster: "cnpg-cluster",
  CronJob: "cronjob",
  Elasticsearch: "elasticsearch",
  FlinkSessionJob: "flinksessionjob",
  KafkaConnector: "kafkaconnect",
  PersistentVolumeClaim: "persistentvolumeclaim",
  StatefulSet: "statefulset",
};
const settingsKeys = ["lint", "lintKinds", "guard", "preserve", "feed", "restore"];

/** A block of settings, or a PropagationPolicy, gets a link that opens the playground with it. */
function openInPlayground(markdown: MarkdownRenderer) {
  const fence = markdown.renderer.rules.fence!;
  markdown.renderer.rules.fence = (tokens, at, options, env, self) => {
    const html = fence(tokens, at, options, env, self);
    const { info, content } = tokens[at]!;
    const state = info.trim().startsWith("yaml") ? stateFor(content) : undefined;
    if (!state) return html;
    const fragment = deflateRawSync(JSON.stringify(state)).toString("base64url");
    return `${html}<p class="open-in-playground"><a href="${base}playground.html#play=${fragment}">Open in the playground</a></p>\n`;
  };
}

interface Settings {
  restore?: { rules?: { match?: { kinds?: string[] } }[] };
}

/** What the playground shows for a block; `undefined` for one that is nothing for it. */
function stateFor(text: string): object | undefined {
  let value: unknown;
  try {
    value = parse(text);
  } catch {
    return undefined;
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
  if ("kind" in value && value.kind === "PropagationPolicy") {
    return { example: "examples/flinkdeployment", inputs: { propagationPolicy: text }, step: "policy" };
  }
  const keys = Object.keys(value);
  const isSettings = keys.length > 0 && keys.every((key) => settingsKeys.includes(key));
  return isSettings ? { example: `examples/${exampleFor(value)}`, inputs: { settings: text }, step: "work" } : undefined;
}

function exampleFor(settings: Settings): string {
  const kinds = settings.restore?.rules?.flatMap((rule) => rule.match?.kinds ?? []) ?? [];
  return kinds.map((kind) => examples[kind]).find((name) => name !== undefined) ?? "flinkdeployment";
}

/** A page may load from its own origin, and nothing else. Scripts that stand in the page are named by their digests. */
function withPolicy(html: string): string {
  const scripts = [...html.matchAll(/<script(?![^>]*\ssrc=)[^>]*>([\s\S]*?)<\/script>/g)];
  const digests = scripts.map(([, script]) => `'sha256-${createHash("sha256").update(script!).digest("base64")}'`);
  const policy = [
    "default-src 'self'",
    `script-src 'self' 'wasm-unsafe-eval' ${[...new Set(digests)].join(" ")}`,
    // CodeMirror and Shiki write styles into the page.
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  return html.replace("<head>", `<head>\n    <meta http-equiv="Content-Security-Policy" content="${policy}">`);
}
