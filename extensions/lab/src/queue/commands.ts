import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { CommandIDs } from '../commandIds';
import type { Context } from '../context';
import { paragraphs } from '../dialogBody';
import { below } from '../folders';
import { messageOf } from '../live';

/** Commands that act on jobs. Their arguments are `batch`, its folder, and `jobs`, names; none: all of the batch. */
export function addQueueCommands(app: JupyterFrontEnd, context: Context): void {
  const { backend, trans } = context;
  const ask = async (verb: string, args: object): Promise<void> => {
    try {
      Notification.info(await backend.request<string>(verb, args), { autoClose: 5000 });
    } catch (error) {
      await showErrorMessage(trans.__('This was not done'), messageOf(error));
    }
  };
  app.commands.addCommand(CommandIDs.cancelJobs, {
    label: trans.__('Cancel jobs'),
    execute: async args => {
      const jobs = args['jobs'] as string[];
      const { button } = await showDialog({
        title: jobs.length > 0 ? trans.__('Cancel %1?', jobs.join(', ')) : trans.__('Cancel all jobs of the batch?'),
        body: paragraphs([args['batch'] as string, trans.__('Running jobs save first. Run again continues them.')]),
        buttons: [
          Dialog.cancelButton({ label: trans.__('Keep') }),
          Dialog.warnButton({ label: jobs.length > 0 ? trans.__('Cancel the job') : trans.__('Cancel the jobs') })
        ],
        defaultButton: 0
      });
      if (button.accept) {
        await ask('cancel', args);
      }
    }
  });
  app.commands.addCommand(CommandIDs.requeueJobs, {
    label: trans.__('Run jobs again'),
    execute: args => ask('requeue', args)
  });
  app.commands.addCommand(CommandIDs.openFile, {
    label: trans.__('Open a file'),
    execute: async args => {
      const path = args['path'] as string;
      const relative = below(backend.folder, path);
      if (relative === null) {
        await showErrorMessage(trans.__('Outside of the file browser'), trans.__('%1 is not below %2', path, backend.folder));
        return;
      }
      await app.commands.execute('docmanager:open', { path: relative });
    }
  });
}
