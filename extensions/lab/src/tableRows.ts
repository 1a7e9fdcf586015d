import type { TranslationBundle } from '@jupyterlab/translation';
import type { RunSummary } from './messages';
import { type GroupBy, grouped, groupTitle, matches } from './runRows';
import type { Column } from './tableColumns';

/** What a person has chosen to see; kept when the page is loaded again. */
export interface TableView {
  search: string;
  sort: string;
  descending: boolean;
  group: GroupBy;
}

export const DEFAULT_VIEW: TableView = { search: '', sort: 'updated', descending: true, group: 'folder' };

export type TableRow = { kind: 'group'; title: string; runs: RunSummary[] } | { kind: 'run'; run: RunSummary };

/** The rows of the table in order: of each group its title and its runs. */
export function tableRows(runs: readonly RunSummary[], view: TableView, columns: readonly Column[], trans: TranslationBundle): TableRow[] {
  const compare = columns.find(column => column.key === view.sort)?.compare;
  const shown = runs.filter(run => matches(run, view.search, trans));
  if (compare) {
    shown.sort((a, b) => (view.descending ? compare(b, a) : compare(a, b)));
  }
  const rows = (members: RunSummary[]): TableRow[] => members.map(run => ({ kind: 'run', run }));
  const key = view.group;
  if (key === '') {
    return rows(shown);
  }
  return grouped(shown, key).flatMap(({ group, runs: members }) => [
    { kind: 'group' as const, title: groupTitle(group, key, trans) || '—', runs: members },
    ...rows(members)
  ]);
}
