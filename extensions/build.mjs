// Builds lab/labextension: what the wheel installs in share/jupyter/labextensions/marlnb.
import { execFileSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const builder = require.resolve('@jupyter/builder/lib/build-labextension.js');
const core = path.join(here, 'node_modules', '@jupyterlab', 'core-meta', 'core.package.json');
execFileSync(process.execPath, [builder, '--core-package-file', core, path.join(here, 'lab')], { stdio: 'inherit' });
copyFileSync(path.join(here, 'lab', 'install.json'), path.join(here, 'lab', 'labextension', 'install.json'));
