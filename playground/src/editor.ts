// The theme of CodeMirror, in the colours of the page, light and dark.
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const theme = EditorView.theme({
  "&": { backgroundColor: "transparent", color: "var(--vp-c-text-1)", fontSize: "13px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--vp-c-brand-1)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--vp-font-family-mono)", lineHeight: "1.6", overflow: "auto" },
  ".cm-content": { padding: "12px 0", caretColor: "var(--vp-c-text-1)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--pg-muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--pg-active-line)" },
  ".cm-cursor": { borderLeftColor: "var(--vp-c-text-1)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, ::selection": {
    backgroundColor: "var(--pg-selection) !important",
  },
  ".cm-lintRange-error": { backgroundImage: "none", borderBottom: "2px solid var(--pg-bad)" },
  ".cm-lintRange-warning": { backgroundImage: "none", borderBottom: "2px solid var(--pg-waiting)" },
  ".cm-tooltip": {
    backgroundColor: "var(--vp-c-bg-elv)",
    border: "1px solid var(--vp-c-divider)",
    borderRadius: "8px",
    color: "var(--vp-c-text-1)",
    maxWidth: "min(560px, 90vw)",
  },
  ".cm-diagnostic": { padding: "8px 12px", borderLeft: "none" },
  ".cm-insertedLine, .cm-changedLine": { backgroundColor: "var(--pg-inserted) !important" },
  ".cm-deletedChunk": { backgroundColor: "var(--pg-deleted) !important" },
  ".cm-changedText, .cm-insertedLine .cm-changedText": { background: "var(--pg-inserted-strong) !important" },
  ".cm-deletedChunk .cm-deletedText": { background: "var(--pg-deleted-strong) !important" },
  ".cm-deletedLine, .cm-deletedLine del": { textDecoration: "none" },
  ".cm-changeGutter": { width: "3px" },
  ".cm-changedLineGutter": { background: "var(--pg-good) !important" },
  ".cm-deletedLineGutter": { background: "var(--pg-bad) !important" },
  ".cm-collapsedLines": {
    background: "var(--vp-c-bg-soft) !important",
    color: "var(--vp-c-text-2)",
    padding: "4px 12px",
    fontFamily: "var(--vp-font-family-base)",
  },
  // Few fonts have the library's own character.
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: '"···" !important' },
});

const highlight = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--pg-key)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--pg-string)" },
  { tag: tags.comment, color: "var(--pg-muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.bracket], color: "var(--vp-c-text-2)" },
]);

export const colours = [theme, syntaxHighlighting(highlight)];
