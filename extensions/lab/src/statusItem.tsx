import type { ComponentChild, JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { PreactWidget } from './preactWidget';
import { isAlive } from './runRows';
import { useSignal } from './useSignal';

/** In the status bar: how many trainings are alive. While there are some, the runs are read though no panel shows them. */
export class StatusItem extends PreactWidget {
  constructor(private readonly context: Context) {
    super();
    this.addClass('marlnb-status');
  }

  protected content(): ComponentChild {
    return <Active context={this.context} />;
  }
}

function Active({ context }: { context: Context }): JSX.Element | null {
  const { model, commands, trans } = context;
  useSignal(model.changed);
  const alive = model.runs.filter(isAlive);
  const isAny = alive.length > 0;
  useEffect(() => {
    const viewer = {};
    model.setViewer(viewer, isAny);
    return () => model.setViewer(viewer, false);
  }, [isAny]);
  return isAny ? (
    <button
      class="jp-StatusBar-TextItem"
      title={alive.map(run => run.name).join('\n')}
      onClick={() => void commands.execute(CommandIDs.openRuns)}
    >
      {trans._n('%1 training', '%1 trainings', alive.length)}
    </button>
  ) : null;
}
