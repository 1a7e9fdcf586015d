import { defineConfig } from 'vitest/config';

export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  test: { environment: 'happy-dom', alias: { '@marlnb/views': new URL('./views/src/index.ts', import.meta.url).pathname }, include: ['*/tests/**/*.test.{ts,tsx}'] }
});
