import { Clipboard } from '@jupyterlab/apputils';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import { CommandIDs } from './commandIds';
import type { Context } from './context';

/** Commands that put code into notebooks, and onto the clipboard. */
export function addNotebookCommands(app: JupyterFrontEnd, notebooks: INotebookTracker | null, context: Context): void {
  const { trans } = context;
  app.commands.addCommand(CommandIDs.insertCell, {
    label: trans.__('Insert a cell'),
    execute: async args => {
      const current = notebooks?.currentWidget;
      if (!current) {
        await newNotebook(app, context.backend.kernel, [args['source'] as string]);
        return;
      }
      insert(current, (args['source'] as string));
      app.shell.activateById(current.id);
    }
  });
  app.commands.addCommand(CommandIDs.newNotebook, {
    label: trans.__('New notebook'),
    execute: async args => {
      const panel = await newNotebook(app, context.backend.kernel, args['cells'] as string[]);
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

async function newNotebook(app: JupyterFrontEnd, kernel: string, cells: readonly string[]): Promise<NotebookPanel> {
  const panel = (await app.commands.execute('notebook:create-new', { activate: true, kernelName: kernel })) as NotebookPanel;
  await panel.context.ready;
  await panel.revealed;
  cells.forEach(source => insert(panel, source));
  return panel;
}
