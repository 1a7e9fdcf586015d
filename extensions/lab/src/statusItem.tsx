import type { ComponentChild, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { PreactWidget } from './preactWidget';
import { isAlive } from './runRows';
import { useSignal } from './useSignal';

/**
 * In the status bar: how many training runs are alive. While there are some, the runs are read though no panel shows them; so
 * are they once where a kernel of the panel runs already.
 */
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
  const { backend, model, commands, trans } = context;
  useSignal(model.changed);
  const alive = model.runs.filter(isAlive);
  const isAny = alive.length > 0;
  const [hasKernel, setHasKernel] = useState(false);
  useEffect(() => void backend.isRunning().then(setHasKernel, () => undefined), [backend]);
  const isNeeded = isAny || (hasKernel && !model.isComplete);
  useEffect(() => {
    const viewer = {};
    model.setViewer(viewer, isNeeded);
    return () => model.setViewer(viewer, false);
  }, [isNeeded]);
  return isAny ? (
    <button
      class="jp-StatusBar-TextItem"
      title={alive.map(run => run.name).join('\n')}
      onClick={() => void commands.execute(CommandIDs.openRuns)}
    >
      {trans._n('%1 training run', '%1 training runs', alive.length)}
    </button>
  ) : null;
}
