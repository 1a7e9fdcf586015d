import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ICompletionProviderManager } from '@jupyterlab/completer';
import { ILauncher } from '@jupyterlab/launcher';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { setTexts } from '@marlnb/views';
import { Backend } from './backend';
import { CommandIDs } from './commandIds';
import { OverrideCompletions } from './completion';
import { addLauncherItems } from './launcherItems';
import { StatusItem } from './statusItem';
import type { Context } from './context';
import { addNotebookCommands } from './notebooks';
import { addPages } from './pages';
import { addQueueCommands } from './queue/commands';
import { QueuePanel } from './queue/panel';
import { addRunCommands } from './runCommands';
import { RunsModel } from './runsModel';
import { type PanelView, RunsPanel } from './runsPanel';

const PLUGIN = 'marlnb:plugin';
const PANEL_VIEW = 'marlnb-runs:view';

const runs: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Side panels of runs and of the queue, and pages of them.',
  autoStart: true,
  optional: [
    ITranslator,
    ISettingRegistry,
    ILayoutRestorer,
    ICommandPalette,
    INotebookTracker,
    IStateDB,
    ILauncher,
    IStatusBar,
    ICompletionProviderManager,
    IDefaultFileBrowser
  ],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null,
    state: IStateDB | null,
    launcher: ILauncher | null,
    statusBar: IStatusBar | null,
    completions: ICompletionProviderManager | null,
    browser: IDefaultFileBrowser | null
  ) => {
    const trans = (translator ?? nullTranslator).load('marlnb');
    setTexts({
      noPoints: trans.__('no points yet'),
      curves: trans.__('curves'),
      hide: trans.__('hide'),
      show: trans.__('show'),
      at: trans.__('at'),
      to: trans.__('to'),
      marked: trans.__('marked'),
      keys: trans.__('Arrow keys read values.')
    });
    let chosenKernel = '';
    const backend = new Backend(
      app.serviceManager,
      () => chosenKernel,
      () => notebooks?.currentWidget?.sessionContext.session?.kernel?.name ?? ''
    );
    const model = new RunsModel(backend);
    const context: Context = { backend, model, commands: app.commands, trans };
    const saved = (state?.fetch(PANEL_VIEW) ?? Promise.resolve()) as Promise<PanelView | undefined>;
    const panel = new RunsPanel(context, saved, view => void state?.save(PANEL_VIEW, { ...view }));
    app.shell.add(panel, 'left', { rank: 320, type: 'marlnb' });
    restorer?.add(panel, 'marlnb-runs');
    const queue = new QueuePanel(context);
    app.shell.add(queue, 'left', { rank: 321, type: 'marlnb' });
    restorer?.add(queue, 'marlnb-queue');

    app.commands.addCommand(CommandIDs.openRuns, {
      label: trans.__('Show runs'),
      execute: () => app.shell.activateById(panel.id)
    });
    app.commands.addCommand(CommandIDs.showQueue, {
      label: trans.__('Show the queue'),
      execute: () => app.shell.activateById(queue.id)
    });
    addPages(app, context, restorer, state, notebooks);
    addRunCommands(app, context);
    addQueueCommands(app, context);
    addNotebookCommands(app, notebooks, browser, context);
    if (launcher) {
      addLauncherItems(app, launcher, notebooks, context);
    }
    statusBar?.registerStatusItem('marlnb:training-runs', { item: new StatusItem(context), align: 'left', rank: 20 });
    completions?.registerProvider(new OverrideCompletions(backend));
    for (const command of [CommandIDs.openRuns, CommandIDs.openTable, CommandIDs.showQueue]) {
      palette?.addItem({ command, category: 'marlnb' });
    }

    const read = (chosen: ISettingRegistry.ISettings): void => {
      const kernel = chosen.composite['kernel'] as string;
      if (kernel !== chosenKernel) {
        chosenKernel = kernel;
        backend.shutDown();
      }
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
