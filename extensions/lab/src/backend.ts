import type { Kernel, ServiceManager, Session } from '@jupyterlab/services';
import { PromiseDelegate } from '@lumino/coreutils';

export const SESSION = 'marlnb panel';
const TYPE = 'marlnb';
const TARGET = 'marlnb';
const PROTOCOL = 1;
const TIMEOUT_MS = 300_000;
const GREETING = 0; // the id under which the kernel's first message is awaited; requests count from 1
const START = 'import marlnb.lab.service; marlnb.lab.service.serve()';

interface Reply {
  id?: number;
  answer?: unknown;
  error?: string;
  protocol?: number;
  version?: string;
  folder?: string;
}

/** The hidden kernel: requests go to marlnb.lab in the user's own environment, on the machine of the server. */
export class Backend {
  constructor(
    private readonly services: ServiceManager.IManager,
    /** Name of the kernel that a person has chosen; empty: none. */
    private readonly chosenKernel: () => string,
    /** Name of the current notebook's kernel; empty: none. */
    private readonly notebookKernel: () => string
  ) {}

  /** Whether answers come from another process than before, so that nothing it remembered is known any more. */
  onReset: (() => void) | null = null;

  /** The absolute path of the folder that JupyterLab shows, as the kernel knows it; empty before the first answer. */
  folder = '';

  /** The name of its kernel, whose environment has marlnb; empty before it has started. */
  get kernel(): string {
    return this.session?.kernel?.name ?? '';
  }

  /** Raises an Error with a sentence for the user. */
  async request<Answer>(verb: string, args: object = {}): Promise<Answer> {
    const comm = await this.start();
    const id = ++this.lastId;
    const pending = new PromiseDelegate<unknown>();
    this.pending.set(id, pending);
    const timer = window.setTimeout(() => this.reset('the kernel of the panel did not answer'), TIMEOUT_MS);
    void comm.send({ text: JSON.stringify({ id, verb, arguments: args }) });
    try {
      return (await pending.promise) as Answer;
    } finally {
      window.clearTimeout(timer);
    }
  }

  /** Starts the kernel, unless it answers already. */
  async start(): Promise<Kernel.IComm> {
    const opened = (this.comm ??= this.open());
    try {
      return await opened;
    } catch (error) {
      if (this.comm === opened) {
        this.comm = null;
      }
      throw error;
    }
  }

  /** Whether a kernel of the panel runs already, as after the page was loaded again. */
  async isRunning(): Promise<boolean> {
    const { sessions } = this.services;
    await sessions.ready;
    return [...sessions.running()].some(isPanel);
  }

  /** Ends the kernel; the next request starts another. */
  shutDown(): void {
    const session = this.session;
    if (session) {
      void this.services.sessions.shutdown(session.id).catch(() => undefined); // it has ended already
      session.dispose();
    }
  }

  private async open(): Promise<Kernel.IComm> {
    if (this.chosenKernel() && this.kernel && this.kernel !== this.chosenKernel()) {
      this.shutDown();
    }
    const session = (this.session ??= this.follow(await this.findSession()));
    const kernel = session.kernel;
    if (!kernel) {
      this.session = null;
      throw new Error('the kernel of the panel has ended');
    }
    const problem = await load(kernel);
    if (problem) {
      throw new Error(problem);
    }
    const comm = kernel.createComm(TARGET);
    const greeted = new PromiseDelegate<unknown>();
    this.pending.set(GREETING, greeted); // rejected if the kernel ends before
    comm.onMsg = message => {
      const reply = JSON.parse(message.content.data['text'] as string) as Reply;
      if (reply.protocol !== undefined) {
        this.settle(GREETING, null, reply);
      } else if (reply.id !== undefined) {
        this.settle(reply.id, reply.error ?? null, reply.answer);
      }
    };
    comm.onClose = () => this.reset('the kernel of the panel closed the connection');
    comm.open();
    const { protocol, version, folder } = (await greeted.promise) as Reply;
    this.folder = folder ?? '';
    if (protocol !== PROTOCOL) {
      throw new Error(
        `the kernel has marlnb ${version ?? ''}, which speaks protocol ${protocol ?? '?'}; this extension speaks ${PROTOCOL}. Install the same version in both.`
      );
    }
    return comm;
  }

  /** A session whose kernel can import marlnb: the chosen one, or else the first of those that may have it. */
  private async findSession(): Promise<Session.ISessionConnection> {
    const { sessions, kernelspecs } = this.services;
    await Promise.all([sessions.ready, kernelspecs.ready]);
    const specs = Object.values(kernelspecs.specs?.kernelspecs ?? {});
    const marked = specs.flatMap(spec => (spec?.metadata?.['marlnb'] ? [spec.name] : []));
    const running = [...sessions.running()].flatMap(model => (isPanel(model) && model.kernel ? [model.kernel.name] : []));
    const likely = [...running, this.notebookKernel(), ...marked, kernelspecs.specs?.default ?? ''].filter(Boolean);
    const problems: string[] = [];
    for (const name of this.chosenKernel() ? [this.chosenKernel()] : new Set(likely)) {
      const session = await this.startSession(name);
      const problem = session.kernel ? await load(session.kernel) : 'it did not start';
      if (!problem) {
        return session;
      }
      problems.push(problem);
      await session.shutdown();
      session.dispose();
    }
    throw new Error(
      `${problems.join('; ')}. Choose a kernel of an environment with marlnb in the settings, or add one with \`marlnb hub install\`.`
    );
  }

  private async startSession(name: string): Promise<Session.ISessionConnection> {
    const { sessions } = this.services;
    for (const model of sessions.running()) {
      if (isPanel(model) && model.kernel?.name === name) {
        return sessions.connectTo({ model });
      }
    }
    // the server has one session of a path, whichever kernel is asked for
    return sessions.startNew({ name: SESSION, path: `${SESSION} ${name}`, type: TYPE, kernel: { name } });
  }

  private follow(session: Session.ISessionConnection): Session.ISessionConnection {
    session.statusChanged.connect((_, status) => {
      if (status === 'restarting' || status === 'autorestarting' || status === 'starting') {
        this.reset('the kernel of the panel restarts');
      } else if (status === 'dead' || status === 'terminating') {
        this.session = null;
        this.reset('the kernel of the panel has ended');
      }
    });
    session.kernelChanged.connect(() => this.reset('the kernel of the panel was changed'));
    session.disposed.connect(() => {
      this.session = null;
      this.reset('the kernel of the panel was shut down');
    });
    return session;
  }

  private reset(reason: string): void {
    this.comm = null;
    for (const id of [...this.pending.keys()]) {
      this.settle(id, reason);
    }
    this.onReset?.();
  }

  private settle(id: number, error: string | null, answer?: unknown): void {
    const pending = this.pending.get(id);
    this.pending.delete(id);
    if (error === null) {
      pending?.resolve(answer);
    } else {
      pending?.reject(new Error(error));
    }
  }

  private session: Session.ISessionConnection | null = null;
  private comm: Promise<Kernel.IComm> | null = null;
  private readonly pending = new Map<number, PromiseDelegate<unknown>>();
  private lastId = 0;
}

function isPanel({ type, name }: Session.IModel): boolean {
  return type === TYPE && name === SESSION;
}

/** Makes a kernel answer requests; returns why it cannot, or nothing. */
async function load(kernel: Kernel.IKernelConnection): Promise<string> {
  const { content } = await kernel.requestExecute({ code: START, silent: true, store_history: false }).done;
  const reason = content.status === 'error' ? `: ${content.evalue}` : '';
  return content.status === 'ok' ? '' : `the kernel "${kernel.name}" cannot import marlnb${reason}`;
}
