// Bundles the notebook's widgets into marlnb/widgets/bundles, from where the Python package loads them.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
await build({
  entryPoints: {
    curves: path.join(here, 'src', 'notebook', 'liveCurves.tsx'),
    curves_style: path.join(here, 'style', 'notebook.css')
  },
  outdir: path.join(here, '..', '..', 'marlnb', 'widgets', 'bundles'),
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'inline',
  tsconfigRaw: '{}',
  logLevel: 'warning'
});
