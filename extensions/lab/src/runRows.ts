import type { TranslationBundle } from '@jupyterlab/translation';
import { formatClock, formatCount, formatNumber, printable } from '@marlnb/views';
import type { RunState, RunSummary } from './messages';
import { endWords } from './stateWords';

export function stateWord(state: RunState, trans: TranslationBundle): string {
  const words: Record<RunState, string> = {
    ...endWords(trans),
    created: trans.__('not started'),
    running: trans.__('training'),
    paused: trans.__('paused'),
    unreadable: trans.__('unreadable')
  };
  return words[state];
}

export function isAlive(run: RunSummary): boolean {
  return run.state === 'running' || run.state === 'paused';
}

/** Share of the training that is done, from 0 to 1; null if its length is not known. */
export function progress(run: RunSummary): number | null {
  return run.frames_total ? Math.min(1, run.frames / run.frames_total) : null;
}

/** State, progress and time left in words. */
export function stateLine(run: RunSummary, trans: TranslationBundle): string {
  const share = progress(run);
  const parts = [stateWord(run.state, trans)];
  if (!['complete', 'created', 'unreadable'].includes(run.state) && share !== null) {
    parts.push(`${Math.floor(100 * share)}%`);
  } else if (run.state === 'complete') {
    parts.push(trans.__('%1 frames', formatCount(run.frames)));
  }
  if (isAlive(run) && run.eta_s !== null) {
    parts.push(trans.__('%1 left', formatClock(run.eta_s)));
  }
  return parts.join(' · ');
}

/** What is trained: environment, algorithm, league or evolution, seed. */
export function subject(run: RunSummary, trans: TranslationBundle): string {
  const parts = [run.env, run.algorithm, run.league && trans.__('league %1', run.league), run.evolution && trans.__('evolution %1', run.evolution)];
  return [...parts, run.seed === null ? '' : trans.__('seed %1', run.seed)].filter(Boolean).join(' · ');
}

/** The mean return; where groups are rewarded differently, that of each with its name, so that no two are compared. */
export function scoreText(run: RunSummary): string {
  const ofGroups = Object.entries(run.returns).map(([group, value]) => `${group} ${formatNumber(value)}`);
  return ofGroups.length > 0 ? ofGroups.join(', ') : run.score === null ? '' : formatNumber(run.score);
}

/** The same without names, for a narrow row. */
export function scoreNumbers(run: RunSummary): string {
  const values = Object.values(run.returns);
  return values.length > 0 ? values.map(formatNumber).join(' / ') : scoreText(run);
}

/** What a row has no room for, one fact per line. */
export function rowTitle(run: RunSummary, trans: TranslationBundle): string {
  return [run.problem, run.path, subject(run, trans), run.host, run.note].filter(Boolean).join('\n');
}

/** Whether every word of a search is in a run's texts; a number after `=` is compared whole. */
export function matches(run: RunSummary, search: string, trans: TranslationBundle): boolean {
  if (search.trim() === '') {
    return true;
  }
  const text = [run.name, run.state, stateWord(run.state, trans), run.env, run.algorithm, run.league, run.evolution, run.host, run.note]
    .concat(run.tags, run.seed === null ? [] : [`seed=${run.seed}`])
    .join(' ')
    .toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every(word => (/=\S*\d$/.test(word) ? hasSetting(text, word) : text.includes(word)));
}

function hasSetting(text: string, setting: string): boolean {
  const rests = text.split(setting).slice(1);
  return rests.some(rest => !/^[\w.]/.test(rest));
}

/** When a run ended or was last written; all living runs count as now, so that their rows stay where they are. */
export function lastActive(run: RunSummary): number {
  return isAlive(run) ? Number.MAX_VALUE : (run.updated ?? 0);
}

/** Living runs first, then the latest. */
export function byActivity(a: RunSummary, b: RunSummary): number {
  return lastActive(b) - lastActive(a) || compareNames(a.name, b.name);
}

const NAMES = new Intl.Collator(undefined, { numeric: true });

export function compareNames(a: string, b: string): number {
  return NAMES.compare(a, b);
}

/** A run's name where its group is known: in groups of folders, its last part. */
export function shortName(run: RunSummary, by: GroupBy): string {
  return printable(run.group && by === 'folder' ? run.name.slice(run.group.length + 1) : run.name);
}

/** What runs are grouped by. */
export type GroupBy = 'folder' | 'env' | 'algorithm' | 'league' | 'evolution' | 'state' | 'tags' | '';

/** The group of a run; empty where it has none. */
export function groupOf(run: RunSummary, by: GroupBy): string {
  return by === '' ? '' : by === 'folder' ? run.group.replace(/\/jobs$/, '') : by === 'tags' ? run.tags.join(', ') : run[by];
}

/** The title of a group; a state is written as in its runs' rows. Empty for runs without a group. */
export function groupTitle(group: string, by: GroupBy, trans: TranslationBundle): string {
  return by === 'state' ? stateWord(group as RunState, trans) : group;
}

export interface Group {
  group: string;
  runs: RunSummary[];
}

/** Runs by group, in the order of their first run; those without a league, population, or whatever it is, last. */
export function grouped(runs: readonly RunSummary[], by: GroupBy): Group[] {
  const groups = new Map<string, RunSummary[]>();
  for (const run of runs) {
    const group = groupOf(run, by);
    const members = groups.get(group);
    if (members) {
      members.push(run);
    } else {
      groups.set(group, [run]);
    }
  }
  const ordered = [...groups].map(([group, members]) => ({ group, runs: members }));
  return by === 'folder' ? ordered : ordered.sort((a, b) => Number(a.group === '') - Number(b.group === ''));
}
