import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Backend } from './backend';
import { CommandIDs } from './commandIds';
import { RunsModel } from './runsModel';
import { RunsPanel } from './runsPanel';

const PLUGIN = 'marlnb:plugin';

const runs: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'A side panel of runs, and pages of them.',
  autoStart: true,
  optional: [ITranslator, ISettingRegistry, ILayoutRestorer, ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null
  ) => {
    const trans = (translator ?? nullTranslator).load('marlnb');
    let chosenKernel = '';
    const backend = new Backend(
      app.serviceManager,
      () => chosenKernel || (notebooks?.currentWidget?.sessionContext.session?.kernel?.name ?? '')
    );
    const model = new RunsModel(backend);
    const panel = new RunsPanel(model, app.commands, trans);
    app.shell.add(panel, 'left', { rank: 320, type: 'marlnb' });
    restorer?.add(panel, 'marlnb-runs');

    app.commands.addCommand(CommandIDs.openRuns, {
      label: trans.__('Show runs'),
      execute: () => app.shell.activateById(panel.id)
    });
    palette?.addItem({ command: CommandIDs.openRuns, category: 'marlnb' });

    const read = (chosen: ISettingRegistry.ISettings): void => {
      chosenKernel = chosen.composite['kernel'] as string;
      model.configure(chosen.composite['folders'] as string[], 1000 * (chosen.composite['interval'] as number));
    };
    void settings?.load(PLUGIN).then(
      chosen => {
        chosen.changed.connect(read);
        read(chosen);
      },
      (error: unknown) => console.error(`the settings of ${PLUGIN} cannot be read`, error)
    );
  }
};

export default [runs];
