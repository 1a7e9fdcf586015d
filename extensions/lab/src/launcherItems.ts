import type { JupyterFrontEnd } from '@jupyterlab/application';
import { InputDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { LabIcon } from '@jupyterlab/ui-components';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { below } from './folders';
import { galleryIcon, hourIcon, runsIcon, submitIcon, tableIcon } from './icons';
import { messageOf } from './live';

const TRAIN = ['from marlnb.widgets import TrainingPanel\n\npanel = TrainingPanel()\npanel'];
const GALLERY = ['import marlnb as mnb\n\nmnb.gallery()'];
const FIRST_HOUR = 'notebooks/README.md';

/** What a person can begin with, in the launcher. */
export function addLauncherItems(
  app: JupyterFrontEnd,
  launcher: ILauncher,
  notebooks: INotebookTracker | null,
  context: Context
): void {
  const { trans } = context;
  const items: [string, LabIcon, string, string, () => Promise<unknown>][] = [
    [
      'marlnb:train',
      runsIcon,
      trans.__('Train agents'),
      trans.__('A notebook with a training cell'),
      () => app.commands.execute(CommandIDs.newNotebook, { cells: TRAIN })
    ],
    [
      'marlnb:gallery',
      galleryIcon,
      trans.__('Gallery'),
      trans.__('Trained agents and recordings that open immediately'),
      () => app.commands.execute(CommandIDs.newNotebook, { cells: GALLERY })
    ],
    [
      'marlnb:first-hour',
      hourIcon,
      trans.__('First hour'),
      trans.__('Five notebooks of some minutes each'),
      () => openFirstHour(app, context)
    ],
    ['marlnb:all-runs', tableIcon, trans.__('Runs'), trans.__('A table of all runs'), () => app.commands.execute(CommandIDs.openTable)],
    [
      CommandIDs.submitBatch,
      submitIcon,
      trans.__('Submit a batch'),
      trans.__('Run a notebook for one or many parameters, here or on a cluster'),
      async () => {
        const path = await chooseNotebook(app, notebooks, context);
        if (path) {
          await app.commands.execute(CommandIDs.submit, { path });
        }
      }
    ]
  ];
  items.forEach(([command, icon, label, caption, execute], rank) => {
    app.commands.addCommand(command, { label, caption, icon, execute });
    launcher.add({ command, category: 'marlnb', rank });
  });
}

/** Asks which notebook is meant: one that is open, one of the first folder, or any other by its path. */
async function chooseNotebook(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  { trans }: Context
): Promise<string> {
  const paths = new Set<string>();
  notebooks?.forEach(panel => paths.add(panel.context.path));
  const listed = await app.serviceManager.contents.get('').catch(() => null);
  for (const { path, type } of (listed?.content ?? []) as { path: string; type: string }[]) {
    if (type === 'notebook') {
      paths.add(path);
    }
  }
  const { value } = await InputDialog.getItem({
    title: trans.__('Submit a batch'),
    label: trans.__('Notebook (choose one, or write its path)'),
    items: [...paths],
    editable: true,
    okLabel: trans.__('Continue')
  });
  return value?.trim() ?? '';
}

/** Opens the first hour's start page: a clone has it, and from a wheel the kernel copies it next to the user's files. */
async function openFirstHour(app: JupyterFrontEnd, { backend, trans }: Context): Promise<void> {
  let path = FIRST_HOUR;
  const { contents } = app.serviceManager;
  const files = [FIRST_HOUR, 'notebooks/quickstart.ipynb'].map(file => contents.get(file, { content: false }));
  const isClone = await Promise.all(files).then(
    () => true,
    () => false
  );
  if (!isClone) {
    try {
      await backend.start();
      const folder = backend.folder;
      const page = await backend.request<string>('first_hour', { folder });
      path = below(folder, page) ?? page;
    } catch (error) {
      await showErrorMessage(trans.__('The first hour cannot be opened'), messageOf(error));
      return;
    }
  }
  await app.commands.execute('docmanager:open', { path, factory: 'Markdown Preview' });
}
