import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ILauncher } from '@jupyterlab/launcher';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { runsIcon } from './icons';

const TRAIN = ['from marlnb.widgets import TrainingPanel\n\npanel = TrainingPanel()\npanel'];
const GALLERY = ['import marlnb as mnb\n\nmnb.gallery()'];
const FIRST_HOUR = 'notebooks/README.md';

/** What a person can begin with, in the launcher. */
export function addLauncherItems(app: JupyterFrontEnd, launcher: ILauncher, context: Context): void {
  const { trans } = context;
  const items: [string, string, string, () => Promise<unknown>][] = [
    [
      'marlnb:train',
      trans.__('Train agents'),
      trans.__('A notebook with a training cell'),
      () => app.commands.execute(CommandIDs.newNotebook, { cells: TRAIN })
    ],
    [
      'marlnb:gallery',
      trans.__('Gallery'),
      trans.__('Trained agents and recordings that open at once'),
      () => app.commands.execute(CommandIDs.newNotebook, { cells: GALLERY })
    ],
    ['marlnb:all-runs', trans.__('Runs'), trans.__('A table of all runs'), () => app.commands.execute(CommandIDs.openTable)]
  ];
  items.forEach(([command, label, caption, execute], rank) => {
    app.commands.addCommand(command, { label, caption, icon: runsIcon, execute });
    launcher.add({ command, category: 'marlnb', rank });
  });
  void addFirstHour(app, launcher, context);
}

/** The first hour is in a clone's folder of notebooks, not in the wheel: it is offered where it is. */
async function addFirstHour(app: JupyterFrontEnd, launcher: ILauncher, { trans }: Context): Promise<void> {
  const file = await app.serviceManager.contents.get(FIRST_HOUR, { content: false }).catch(() => null);
  if (!file) {
    return;
  }
  app.commands.addCommand('marlnb:first-hour', {
    label: trans.__('First hour'),
    caption: trans.__('Five notebooks of some minutes each'),
    icon: runsIcon,
    execute: () => app.commands.execute('docmanager:open', { path: FIRST_HOUR, factory: 'Markdown Preview' })
  });
  launcher.add({ command: 'marlnb:first-hour', category: 'marlnb', rank: 3 });
}
