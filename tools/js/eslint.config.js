import js from "@eslint/js";
import { defineConfig } from "eslint/config";
import globals from "globals";

export default defineConfig({
  plugins: { js },
  extends: ["js/recommended"],
  languageOptions: { globals: globals.browser },
  linterOptions: { reportUnusedDisableDirectives: "error" },
  rules: { "one-var": ["error", "never"], "prefer-const": "error", eqeqeq: "error" },
});
