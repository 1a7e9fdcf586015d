import type { TranslationBundle } from '@jupyterlab/translation';
import { folderIcon, redoIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import { formatAge } from '@marlnb/views';
import type { ComponentChild, JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { CommandIDs } from '../commandIds';
import type { Context } from '../context';
import { IconButton } from '../iconButton';
import { queueIcon } from '../icons';
import { ListBox, type RowAttributes } from '../listBox';
import { Live } from '../live';
import type { QueueAnswer } from '../messages';
import { NoticeLines } from '../notice';
import { PreactWidget } from '../preactWidget';
import { SearchField } from '../searchField';
import { useSignal } from '../useSignal';
import { canCancel, canRunAgain, INTERVAL_MS, isActive, jobLine, type QueueRow, queueRows, rowKey } from './rows';

const NONE: QueueAnswer = { batches: [], problems: [], asked_s: {} };
const ROW_PX = 46;
const height = (): number => ROW_PX;

/** The side panel of batches and their jobs, read while it is visible. */
export class QueuePanel extends PreactWidget {
  constructor(private readonly context: Context) {
    super();
    this.id = 'marlnb-queue';
    this.title.icon = queueIcon;
    this.title.caption = context.trans.__('Queue');
    this.addClass('marlnb-lab');
    this.addClass('marlnb-runs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', context.trans.__('Queue'));
    this.live = new Live(
      'marlnb:queue',
      () => {
        const fresh = this.isFresh;
        this.isFresh = false;
        return context.backend.request<QueueAnswer>('queue', { folders: context.model.folders, fresh });
      },
      INTERVAL_MS
    );
  }

  override dispose(): void {
    this.live.dispose();
    super.dispose();
  }

  protected content(): ComponentChild {
    return <Queue context={this.context} live={this.live} refresh={() => this.refresh()} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.live.setVisible(isVisible);
  }

  private refresh(): void {
    this.isFresh = true;
    this.live.refresh();
  }

  private isFresh = false;
  private readonly live: Live<QueueAnswer>;
}

function Queue(props: { context: Context; live: Live<QueueAnswer>; refresh: () => void }): JSX.Element {
  const { context, live, refresh } = props;
  const { commands, trans } = context;
  useSignal(live.changed);
  const [search, setSearch] = useState('');
  const [isChosenOpen, setChosenOpen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [activeKey, setActiveKey] = useState('');
  const answer = live.answer ?? NONE;
  const wasActive = useRef(new Set<string>()); // a batch does not close by itself when its last job ends
  answer.batches.filter(({ jobs }) => jobs.some(isActive)).forEach(({ path }) => wasActive.current.add(path));
  const rows = useMemo(() => queueRows(answer.batches, search, isChosenOpen, wasActive.current), [answer, search, isChosenOpen]);
  const active = rows.findIndex(row => rowKey(row) === activeKey);
  const open = (row: QueueRow): void => {
    if (row.kind === 'job') {
      void commands.execute(CommandIDs.openJob, { batch: row.batch.path, name: row.job.name });
    } else {
      setChosenOpen(new Map(isChosenOpen).set(row.batch.path, !row.isOpen));
    }
  };
  return (
    <>
      <div class="marlnb-runs-header">
        <h2>{trans.__('Queue')}</h2>
        <QueueActions context={context} row={rows[active]} refresh={refresh} />
        <IconButton
          icon={refreshIcon}
          name={trans.__('Refresh')}
          hint={trans.__('Search the folders again')}
          onClick={refresh}
        />
      </div>
      <SearchField
        value={search}
        onInput={setSearch}
        label={trans.__('Search jobs')}
        placeholder={trans.__('Search jobs, states, nodes…')}
      />
      <QueueNotice context={context} live={live} isSearching={search !== ''} shown={rows.length} />
      <ListBox
        rows={rows}
        height={height}
        label={trans.__('Jobs')}
        prefix="marlnb-job"
        active={active}
        onMove={index => setActiveKey(rows[index] ? rowKey(rows[index]) : '')}
        onOpen={open}
        render={(row, attributes) => <Row key={rowKey(row)} row={row} trans={trans} attributes={attributes} />}
      />
    </>
  );
}

/** What can be done with the chosen job, or with all jobs of the chosen batch. */
function QueueActions(props: { context: Context; row: QueueRow | undefined; refresh: () => void }): JSX.Element {
  const { context, row, refresh } = props;
  const { commands, trans } = context;
  const jobs = row?.kind === 'job' ? [row.job] : (row?.batch.jobs ?? []);
  const act = (command: string): void => {
    const args = { batch: row?.batch.path ?? '', jobs: row?.kind === 'job' ? [row.job.name] : [] };
    void commands.execute(command, args).then(refresh);
  };
  return (
    <div role="toolbar" aria-label={trans.__('Actions on the chosen job or batch')}>
      <IconButton
        icon={stopIcon}
        name={trans.__('Cancel…')}
        hint={trans.__('Cancel the chosen job or batch…')}
        disabled={!canCancel(jobs)}
        onClick={() => act(CommandIDs.cancelJobs)}
      />
      <IconButton
        icon={redoIcon}
        name={trans.__('Run again')}
        hint={trans.__('Run the chosen job, or all of the batch that are not complete, again')}
        disabled={!canRunAgain(jobs)}
        onClick={() => act(CommandIDs.requeueJobs)}
      />
      <IconButton
        icon={folderIcon}
        name={trans.__('Show folder')}
        disabled={!row}
        onClick={() => void commands.execute(CommandIDs.showFolder, { path: row?.batch.path ?? '' })}
      />
    </div>
  );
}

/** What a person must know beyond the rows: errors, an empty list, how old a scheduler's answer is. */
function QueueNotice(props: {
  context: Context;
  live: Live<QueueAnswer>;
  isSearching: boolean;
  shown: number;
}): JSX.Element | null {
  const { live, isSearching, shown } = props;
  const { trans } = props.context;
  if (live.error) {
    return (
      <p class="marlnb-notice marlnb-error" role="alert">
        {live.error}
      </p>
    );
  }
  if (!live.answer) {
    return (
      <p class="marlnb-notice" role="status">
        {trans.__('Starting a kernel that reads the batches…')}
      </p>
    );
  }
  const texts = [...live.answer.problems];
  if (shown === 0) {
    texts.push(
      isSearching
        ? trans.__('No job matches.')
        : trans.__('No batches here yet. Submit a notebook with the button in its toolbar, or with `marlnb batch`.')
    );
  }
  for (const [executor, seconds] of Object.entries(live.answer.asked_s)) {
    texts.push(trans.__('%1 answered %2 ago.', executor, formatAge(seconds)));
  }
  return <NoticeLines texts={texts} />;
}

function Row(props: { row: QueueRow; trans: TranslationBundle; attributes: RowAttributes }): JSX.Element {
  const { row, trans, attributes } = props;
  if (row.kind === 'batch') {
    return (
      <div {...attributes} class="marlnb-run-row marlnb-batch-row" aria-expanded={row.isOpen} title={row.batch.path}>
        <span aria-hidden="true">{row.isOpen ? '▾' : '▸'}</span>
        <span class="marlnb-name">{row.batch.name}</span>
        <span class="marlnb-score">{row.batch.executor}</span>
        <span class="marlnb-facts">{row.batch.summary}</span>
      </div>
    );
  }
  const { job } = row;
  return (
    <div {...attributes} class="marlnb-run-row marlnb-job-row" data-state={job.state} title={`${job.name}\n${jobLine(job, trans)}`}>
      <span class="marlnb-dot" aria-hidden="true" />
      <span class="marlnb-name">{job.name}</span>
      <span class="marlnb-score">{job.id}</span>
      <span class="marlnb-facts">{jobLine(job, trans)}</span>
    </div>
  );
}
