import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Backend } from './backend';
import type { RunsModel } from './runsModel';

/** What every view needs. */
export interface Context {
  backend: Backend;
  model: RunsModel;
  commands: CommandRegistry;
  trans: TranslationBundle;
}
