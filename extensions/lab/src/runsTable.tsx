import type { TranslationBundle } from '@jupyterlab/translation';
import { printable, VirtualList } from '@marlnb/views';
import type { ComponentChild, JSX, TargetedKeyboardEvent } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { GroupSelect } from './groupSelect';
import { Notice } from './notice';
import { PreactWidget } from './preactWidget';
import { SearchField } from './searchField';
import { rowTitle } from './runRows';
import { type Column, columns } from './tableColumns';
import { DEFAULT_VIEW, tableRows, type TableRow, type TableView } from './tableRows';
import { useSignal } from './useSignal';

const ROW_PX = 28;
const height = (): number => ROW_PX;

/** The table of all runs: search, sort, group, select, compare. */
export class RunsTable extends PreactWidget {
  constructor(
    private readonly context: Context,
    private readonly saved: TableView,
    private readonly save: (view: TableView) => void
  ) {
    super();
    this.addClass('marlnb-lab');
    this.addClass('marlnb-table');
  }

  protected content(): ComponentChild {
    return <Table context={this.context} saved={this.saved} save={this.save} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.context.model.setViewer(this, isVisible);
  }
}

interface TableProps {
  context: Context;
  saved: TableView;
  save: (view: TableView) => void;
}

function Table({ context, saved, save }: TableProps): JSX.Element {
  const { model, commands, trans } = context;
  useSignal(model.changed);
  const [view, setView] = useState<TableView>({ ...DEFAULT_VIEW, ...saved });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [active, setActive] = useState(-1);
  const shownColumns = useMemo(() => columns(trans, view.group), [trans, view.group]);
  const rows = useMemo(() => tableRows(model.runs, view, shownColumns, trans), [model.runs, view, shownColumns, trans]);
  const shownPaths = rows.flatMap(row => (row.kind === 'run' ? [row.run.path] : []));
  const change = (changes: Partial<TableView>): void => {
    const next = { ...view, ...changes };
    setView(next);
    save(next);
  };
  const toggle = (paths: readonly string[]): void => {
    const next = new Set(selected);
    const isOn = paths.every(path => next.has(path));
    paths.forEach(path => (isOn ? next.delete(path) : next.add(path)));
    setSelected(next);
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    const [move, row] = [moves[event.key], rows[active]];
    if (move !== undefined) {
      setActive(Math.max(0, Math.min(rows.length - 1, active + move)));
    } else if (event.key === 'Enter' && row?.kind === 'run') {
      void commands.execute(CommandIDs.openRun, { path: row.run.path });
    } else if (event.key === ' ' && row) {
      toggle(row.kind === 'run' ? [row.run.path] : row.runs.map(run => run.path));
    } else {
      return;
    }
    event.preventDefault();
  };
  const chosen = model.runs.filter(run => selected.has(run.path)).map(run => run.path);
  return (
    <>
      <Bar context={context} view={view} change={change} chosen={chosen} clear={() => setSelected(new Set())} />
      <Notice model={model} isSearching={view.search !== ''} shown={rows.length} trans={trans} />
      <div
        class="marlnb-grid"
        role="grid"
        tabIndex={0}
        aria-label={trans.__('Runs')}
        aria-rowcount={rows.length}
        aria-activedescendant={active >= 0 ? `marlnb-row-${active}` : undefined}
        onKeyDown={onKeyDown}
        style={{ '--marlnb-columns': `28px ${shownColumns.map(column => column.width).join(' ')}` }}
      >
        <VirtualList
          rows={rows}
          height={height}
          {...(active >= 0 ? { reveal: active } : {})}
          header={
            <Header
              columns={shownColumns}
              isAllSelected={shownPaths.length > 0 && shownPaths.every(path => selected.has(path))}
              selectAll={() => toggle(shownPaths)}
              view={view}
              change={change}
              trans={trans}
            />
          }
          render={(row, index) => (
            <Row
              key={row.kind === 'run' ? row.run.path : `group:${row.title}`}
              row={row}
              index={index}
              isActive={index === active}
              columns={shownColumns}
              trans={trans}
              selected={selected}
              toggle={toggle}
              open={path => {
                setActive(index);
                void commands.execute(CommandIDs.openRun, { path });
              }}
            />
          )}
        />
      </div>
    </>
  );
}

function Bar(props: {
  context: Context;
  view: TableView;
  change: (changes: Partial<TableView>) => void;
  chosen: string[];
  clear: () => void;
}): JSX.Element {
  const { context, view, change, chosen, clear } = props;
  const { commands, trans } = context;
  return (
    <div class="marlnb-bar">
      <SearchField
        value={view.search}
        onInput={search => change({ search })}
        label={trans.__('Search runs')}
        placeholder={trans.__('Search names, states, tags…')}
      />
      <GroupSelect value={view.group} onChange={group => change({ group })} trans={trans} />
      <button
        class="marlnb-primary"
        disabled={chosen.length < 2}
        onClick={() => void commands.execute(CommandIDs.compare, { paths: chosen })}
      >
        {trans.__('Compare %1', chosen.length || '')}
      </button>
      <button
        disabled={chosen.length === 0}
        onClick={() => void commands.execute(CommandIDs.deleteRuns, { paths: chosen }).then((isDeleted: boolean) => isDeleted && clear())}
      >
        {trans.__('Delete…')}
      </button>
    </div>
  );
}

function Header(props: {
  columns: Column[];
  isAllSelected: boolean;
  selectAll: () => void;
  view: TableView;
  change: (changes: Partial<TableView>) => void;
  trans: TranslationBundle;
}): JSX.Element {
  const { view, change } = props;
  return (
    <div class="marlnb-grid-row marlnb-grid-header" role="row">
      <span role="columnheader">
        <input
          type="checkbox"
          aria-label={props.trans.__('select all')}
          checked={props.isAllSelected}
          onChange={props.selectAll}
        />
      </span>
      {props.columns.map(({ key, title, compare }) => {
        const isSorted = view.sort === key;
        const order = !isSorted ? 'none' : view.descending ? 'descending' : 'ascending';
        return (
          <span key={key} data-column={key} role="columnheader" aria-sort={order}>
            {compare ? (
              <button onClick={() => change({ sort: key, descending: isSorted && !view.descending })}>
                {title} {isSorted ? (view.descending ? '▾' : '▴') : ''}
              </button>
            ) : (
              title
            )}
          </span>
        );
      })}
    </div>
  );
}

function Row(props: {
  row: TableRow;
  index: number;
  isActive: boolean;
  columns: Column[];
  trans: TranslationBundle;
  selected: ReadonlySet<string>;
  toggle: (paths: readonly string[]) => void;
  open: (path: string) => void;
}): JSX.Element {
  const { row, index, isActive, trans, selected, toggle, open } = props;
  const paths = row.kind === 'run' ? [row.run.path] : row.runs.map(run => run.path);
  const title = row.kind === 'run' ? row.run.name : row.title;
  const box = (
    <span role="gridcell">
      <input
        type="checkbox"
        tabIndex={-1}
        aria-label={title}
        checked={paths.every(path => selected.has(path))}
        onClick={event => event.stopPropagation()}
        onChange={() => toggle(paths)}
      />
    </span>
  );
  const common = { id: `marlnb-row-${index}`, role: 'row' as const, 'aria-selected': isActive };
  if (row.kind === 'group') {
    return (
      <div {...common} class="marlnb-grid-row marlnb-grid-group">
        {box}
        <span role="gridcell" class="marlnb-grid-title">
          {printable(row.title)} <span class="marlnb-count">{row.runs.length}</span>
        </span>
      </div>
    );
  }
  const { run } = row;
  return (
    <div
      {...common}
      class="marlnb-grid-row"
      data-state={run.state}
      title={rowTitle(run, trans)}
      onClick={() => open(run.path)}
    >
      {box}
      {props.columns.map(column => (
        <span key={column.key} role="gridcell" data-column={column.key}>
          {column.cell(run)}
        </span>
      ))}
    </div>
  );
}
