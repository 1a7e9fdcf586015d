import { Clipboard } from '@jupyterlab/apputils';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { outsideOfRuns } from './folders';

/** Commands that put code into notebooks, and onto the clipboard. */
export function addNotebookCommands(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  browser: IDefaultFileBrowser | null,
  context: Context
): void {
  const { trans } = context;
  const newNotebook = async (cells: readonly string[]): Promise<NotebookPanel> => {
    const cwd = await outsideOfRuns(browser?.model.path ?? '', folder => isRun(app, folder));
    const options = { activate: true, cwd: cwd || '/', kernelName: context.backend.kernel };
    const panel = (await app.commands.execute('notebook:create-new', options)) as NotebookPanel;
    await panel.context.ready;
    await panel.revealed;
    cells.forEach(source => insert(panel, source));
    return panel;
  };
  app.commands.addCommand(CommandIDs.insertCell, {
    label: trans.__('Insert a cell'),
    execute: async args => {
      const current = notebooks?.currentWidget;
      if (!current) {
        await newNotebook([args['source'] as string]);
        return;
      }
      insert(current, (args['source'] as string));
      app.shell.activateById(current.id);
    }
  });
  app.commands.addCommand(CommandIDs.newNotebook, {
    label: trans.__('New notebook'),
    execute: async args => {
      const panel = await newNotebook(args['cells'] as string[]);
      if (args['run']) {
        await panel.sessionContext.ready; // before that, JupyterLab runs nothing
        await app.commands.execute('notebook:run-all-cells');
      }
    }
  });
  app.commands.addCommand(CommandIDs.copy, {
    label: trans.__('Copy'),
    execute: args => Clipboard.copyToSystem((args['text'] as string))
  });
}

/** Adds a cell below the current one, which may be empty. */
function insert(panel: NotebookPanel, source: string): void {
  const notebook = panel.content;
  if (notebook.activeCell?.model.type !== 'code' || notebook.activeCell.model.sharedModel.source.trim() !== '') {
    NotebookActions.insertBelow(notebook);
  }
  notebook.activeCell?.model.sharedModel.setSource(source);
}

function isRun(app: JupyterFrontEnd, folder: string): Promise<boolean> {
  return app.serviceManager.contents.get(`${folder}/experiment.json`, { content: false }).then(
    () => true,
    () => false
  );
}
