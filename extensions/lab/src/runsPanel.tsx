import type { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';
import { printable, Sparkline } from '@marlnb/views';
import type { ComponentChild, JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { GroupSelect } from './groupSelect';
import { IconButton } from './iconButton';
import { runsIcon, tableIcon } from './icons';
import { ListBox, type RowAttributes } from './listBox';
import type { RunSummary } from './messages';
import { Notice } from './notice';
import { PreactWidget } from './preactWidget';
import { Progress } from './progress';
import { byActivity, type GroupBy, grouped, groupTitle, isAlive, matches, rowTitle, scoreNumbers, scoreText, shortName, stateLine, subject } from './runRows';
import { SearchField } from './searchField';
import { useSignal } from './useSignal';

/** What a person has chosen to see; kept when the page is loaded again. */
export interface PanelView {
  group: GroupBy;
}

type Row = { kind: 'group'; group: string; count: number; isOpen: boolean } | { kind: 'run'; run: RunSummary };
const height = (row: Row): number => (row.kind === 'group' ? 28 : 58);
const rowKey = (row: Row): string => (row.kind === 'group' ? `group:${row.group}` : row.run.path);

/** The side panel: the runs under the chosen folders, live. */
export class RunsPanel extends PreactWidget {
  constructor(
    private readonly context: Context,
    private readonly saved: Promise<PanelView | undefined>,
    private readonly save: (view: PanelView) => void
  ) {
    super();
    this.id = 'marlnb-runs';
    this.title.icon = runsIcon;
    this.title.caption = context.trans.__('Runs');
    this.addClass('marlnb-lab');
    this.addClass('marlnb-runs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', context.trans.__('Runs'));
  }

  protected content(): ComponentChild {
    return <Runs context={this.context} saved={this.saved} save={this.save} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.context.model.setViewer(this, isVisible);
  }
}

interface RunsProps {
  context: Context;
  saved: Promise<PanelView | undefined>;
  save: (view: PanelView) => void;
}

function Runs({ context, saved, save }: RunsProps): JSX.Element {
  const { model, commands, trans } = context;
  useSignal(model.changed);
  const [search, setSearch] = useState('');
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [group, setGroup] = useState<GroupBy>('folder');
  const [activeKey, setActiveKey] = useState('');
  useEffect(() => void saved.then(view => view && setGroup(view.group)), [saved]);
  const rows = useMemo(() => panelRows(model.runs, search, group, closed, trans), [model.runs, search, group, closed, trans]);
  const active = rows.findIndex(row => rowKey(row) === activeKey);
  const toggle = (title: string): void => {
    const next = new Set(closed);
    if (!next.delete(title)) {
      next.add(title);
    }
    setClosed(next);
  };
  const groupBy = (next: GroupBy): void => {
    setGroup(next);
    setClosed(new Set());
    save({ group: next });
  };
  const open = (row: Row): void => {
    if (row.kind === 'group') {
      toggle(row.group);
    } else {
      void commands.execute(CommandIDs.openRun, { path: row.run.path });
    }
  };
  return (
    <>
      <div class="marlnb-runs-header">
        <h2>{trans.__('Runs')}</h2>
        <IconButton
          icon={refreshIcon}
          name={trans.__('Refresh')}
          hint={trans.__('Read the folders again')}
          onClick={() => model.refresh()}
        />
        <IconButton
          icon={tableIcon}
          name={trans.__('Table')}
          hint={trans.__('All runs in a table')}
          onClick={() => void commands.execute(CommandIDs.openTable)}
        />
      </div>
      <SearchField
        value={search}
        onInput={setSearch}
        label={trans.__('Search runs')}
        placeholder={trans.__('Search names, states, tags…')}
      />
      <GroupSelect value={group} onChange={groupBy} trans={trans} />
      <Notice model={model} isSearching={search !== ''} shown={rows.length} trans={trans} />
      <ListBox
        rows={rows}
        height={height}
        label={trans.__('Runs')}
        prefix="marlnb-run"
        active={active}
        onMove={index => setActiveKey(rows[index] ? rowKey(rows[index]) : '')}
        onOpen={open}
        render={(row, attributes) => (
          <PanelRow
            key={rowKey(row)}
            row={row}
            group={group}
            trans={trans}
            attributes={attributes}
          />
        )}
      />
    </>
  );
}

function panelRows(runs: readonly RunSummary[], search: string, by: GroupBy, closed: ReadonlySet<string>, trans: TranslationBundle): Row[] {
  const shown = runs.filter(run => matches(run, search, trans)).sort(byActivity);
  const rows: Row[] = [];
  const groups = grouped(shown, by);
  for (const { group, runs: members } of groups) {
    const isOpen = !closed.has(group);
    if (group || groups.length > 1 || (by !== '' && by !== 'folder')) {
      rows.push({ kind: 'group', group, count: members.length, isOpen });
    }
    if (isOpen) {
      rows.push(...members.map(run => ({ kind: 'run' as const, run })));
    }
  }
  return rows;
}

function PanelRow(props: {
  row: Row;
  group: GroupBy;
  trans: TranslationBundle;
  attributes: RowAttributes;
}): JSX.Element {
  const { row, group, trans, attributes } = props;
  if (row.kind === 'group') {
    const title = groupTitle(row.group, group, trans);
    return (
      <div {...attributes} class="marlnb-group" aria-expanded={row.isOpen} title={title}>
        <span aria-hidden="true">{row.isOpen ? '▾' : '▸'}</span>
        <span class="marlnb-name">{printable(title) || trans.__('none')}</span>
        <span class="marlnb-count">{row.count}</span>
      </div>
    );
  }
  const { run } = row;
  return (
    <div {...attributes} class="marlnb-run-row" data-state={run.state} title={rowTitle(run, trans)}>
      <span class="marlnb-dot" aria-hidden="true" />
      <span class="marlnb-name marlnb-keep-end">
        <bdi>{shortName(run, group)}</bdi>
      </span>
      <span class="marlnb-score" title={scoreText(run)}>
        {scoreNumbers(run)}
      </span>
      <span class="marlnb-facts">{stateLine(run, trans)}</span>
      <Sparkline values={run.curve} label={trans.__('return, now %1', scoreText(run) || trans.__('unknown'))} width={50} />
      <span class="marlnb-facts marlnb-subject">{run.problem || subject(run, trans)}</span>
      {isAlive(run) && <Progress run={run} trans={trans} />}
    </div>
  );
}
