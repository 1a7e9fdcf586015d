import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { paragraphs } from './dialogBody';
import { below } from './folders';
import { messageOf } from './live';

const MAX_NAMED = 10;

/** Commands that act on runs: requests to a training run, deletion, the file browser. */
export function addRunCommands(app: JupyterFrontEnd, context: Context): void {
  const { backend, model, trans } = context;
  app.commands.addCommand(CommandIDs.act, {
    label: trans.__('Pause, continue, stop or resume a run'),
    execute: async args => {
      try {
        Notification.info(await backend.request<string>('act', args as object), { autoClose: 5000 });
      } catch (error) {
        await showErrorMessage(trans.__('The run does not answer'), messageOf(error));
      }
      model.refresh();
    }
  });
  app.commands.addCommand(CommandIDs.deleteRuns, {
    label: trans.__('Delete runs'),
    /** Returns whether the deletion was confirmed. */
    execute: async args => {
      const paths = args['paths'] as string[];
      const { button } = await showDialog({
        title: trans._n('Delete %1 run?', 'Delete %1 runs?', paths.length),
        body: paragraphs([
          ...paths.slice(0, MAX_NAMED),
          ...(paths.length > MAX_NAMED ? ['…'] : []),
          trans._n(
            'All files in this folder are deleted for good: checkpoints, recordings and your own.',
            'All files in these folders are deleted for good: checkpoints, recordings and your own.',
            paths.length
          )
        ]),
        buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Delete') })],
        defaultButton: 0
      });
      if (!button.accept) {
        return false;
      }
      const errors: string[] = [];
      for (const path of paths) {
        await backend.request('delete', { path }).then(
          () => closePage(app, path),
          (error: unknown) => errors.push(messageOf(error))
        );
      }
      model.refresh();
      if (errors.length > 0) {
        await showErrorMessage(trans.__('Not deleted'), errors.join('\n'));
      }
      return true;
    }
  });
  app.commands.addCommand(CommandIDs.showFolder, {
    label: trans.__('Show in the file browser'),
    execute: async args => {
      const path = (args['path'] as string);
      const relative = below(backend.folder, path);
      if (relative === null) {
        await showErrorMessage(trans.__('Outside of the file browser'), trans.__('%1 is not below %2', path, backend.folder));
        return;
      }
      await app.commands.execute('filebrowser:open-path', { path: relative });
    }
  });
}

/** Closes a run's page, which has nothing to show any more. */
function closePage(app: JupyterFrontEnd, path: string): void {
  for (const area of ['main', 'down']) {
    [...app.shell.widgets(area)].filter(({ id }) => id === `${CommandIDs.openRun}:${path}`).forEach(page => page.close());
  }
}
