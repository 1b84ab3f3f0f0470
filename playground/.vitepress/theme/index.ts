import DefaultTheme from "vitepress/theme";
import type { Theme } from "vitepress";
import { defineAsyncComponent } from "vue";
import "./site.css";
import "./playground.css";

export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component("Playground", defineAsyncComponent(() => import("./components/Playground.vue")));
  },
} satisfies Theme;
