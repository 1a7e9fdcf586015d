import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IStateDB } from '@jupyterlab/statedb';
import { type LabIcon, Toolbar } from '@jupyterlab/ui-components';
import { printable } from '@marlnb/views';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { SplitPanel, type Widget } from '@lumino/widgets';
import { CommandIDs } from './commandIds';
import { ComparePage } from './comparePage';
import type { Context } from './context';
import { queueIcon, runsIcon, submitIcon, tableIcon } from './icons';
import { JobPage } from './queue/jobPage';
import { RunPage } from './runPage';
import { RunsTable } from './runsTable';
import { SubmitPage } from './submitPage';
import type { TableView } from './tableRows';

const VIEW = 'marlnb-table:view';

interface Kind {
  command: string;
  label: string;
  /** Of its tab; by default that of runs. */
  icon?: LabIcon;
  /** Of a button without text. */
  caption?: string;
  /** Arguments that the caller left out. */
  complete?: (args: ReadonlyPartialJSONObject) => ReadonlyPartialJSONObject;
  /** The id of the tab that shows this. */
  id: (args: ReadonlyPartialJSONObject) => string;
  title: (args: ReadonlyPartialJSONObject) => string;
  make: (args: ReadonlyPartialJSONObject) => Promise<Widget>;
}

/** Commands that open the main area's pages, each of which is opened again when JupyterLab is loaded again. */
export function addPages(
  app: JupyterFrontEnd,
  context: Context,
  restorer: ILayoutRestorer | null,
  state: IStateDB | null,
  notebooks: INotebookTracker | null
): void {
  const { trans } = context;
  const kinds: Kind[] = [
    {
      command: CommandIDs.openRun,
      label: trans.__('Open a run'),
      id: args => (args['path'] as string),
      title: args => (args['path'] as string).split('/').pop() ?? '',
      make: args => Promise.resolve(new RunPage(context, (args['path'] as string)))
    },
    {
      command: CommandIDs.openTable,
      label: trans.__('Table of runs'),
      icon: tableIcon,
      id: () => 'table',
      title: () => trans.__('Runs'),
      make: async () => {
        const saved = (await state?.fetch(VIEW)) as TableView | undefined;
        return new RunsTable(context, (saved ?? {}) as TableView, view => void state?.save(VIEW, { ...view }));
      }
    },
    {
      command: CommandIDs.compare,
      label: trans.__('Compare runs'),
      id: args => JSON.stringify(args['paths']),
      title: args => trans.__('Compare %1', (args['paths'] as string[]).length),
      make: args => Promise.resolve(new ComparePage(context, args['paths'] as string[]))
    }
  ];
  kinds.push({
    command: CommandIDs.openJob,
    label: trans.__('Open a job'),
    icon: queueIcon,
    id: args => `${args['batch'] as string}/${args['name'] as string}`,
    title: args => args['name'] as string,
    make: args => Promise.resolve(new JobPage(context, args['batch'] as string, args['name'] as string))
  });
  kinds.push({
    command: CommandIDs.submit,
    label: trans.__('Submit'),
    icon: submitIcon,
    caption: trans.__('Submit this notebook for one or many parameters, here or on a cluster'),
    // the toolbar's button means the notebook it belongs to
    complete: args => ({ path: (args['path']) ?? notebooks?.currentWidget?.context.path ?? '' }),
    id: args => args['path'] as string,
    title: args => trans.__('Submit %1', (args['path'] as string).split('/').pop() ?? ''),
    make: args => {
      const path = args['path'] as string;
      const save = async (): Promise<void> => {
        const open = notebooks?.find(panel => panel.context.path === path);
        if (open?.context.model.dirty) {
          await open.context.save();
        }
      };
      return Promise.resolve(new SubmitPage(context, path, save));
    }
  });
  for (const kind of kinds) {
    addPage(app, kind, restorer);
  }
}

function addPage(app: JupyterFrontEnd, kind: Kind, restorer: ILayoutRestorer | null): void {
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: kind.command.replace(':', '-') });
  const argsOf = new WeakMap<Widget, ReadonlyPartialJSONObject>();
  app.commands.addCommand(kind.command, {
    label: kind.label,
    ...(kind.caption ? { caption: kind.caption, icon: kind.icon } : {}),
    execute: async given => {
      const args = kind.complete ? kind.complete(given) : given;
      const id = `${kind.command}:${kind.id(args)}`;
      let shown = tracker.find(widget => widget.id === id);
      if (!shown) {
        // the default toolbar's menu of hidden buttons would stay in memory after the page is closed
        const toolbar = new Toolbar();
        toolbar.hide();
        shown = new MainAreaWidget({ content: await kind.make(args), toolbar });
        shown.id = id;
        shown.title.label = printable(kind.title(args));
        shown.title.icon = kind.icon ?? runsIcon;
        shown.title.caption = kind.id(args);
        shown.title.closable = true;
        argsOf.set(shown, args);
        app.shell.add(shown, 'main');
        if (!shown.isAttached) {
          addBelow(app, shown);
        }
        await tracker.add(shown);
      }
      app.shell.activateById(shown.id);
    }
  });
  void restorer?.restore(tracker, {
    command: kind.command,
    args: widget => argsOf.get(widget) ?? {},
    name: widget => widget.id
  });
}

/** In Notebook 7, where the notebook alone is in the main area, a page is below it; the border can be dragged. */
function addBelow(app: JupyterFrontEnd, page: Widget): void {
  app.shell.add(page, 'down');
  for (let part = page.parent; part; part = part.parent) {
    if (part instanceof SplitPanel && part.orientation === 'vertical') {
      part.setRelativeSizes([1, 1]);
    }
  }
}
