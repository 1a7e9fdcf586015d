import type { ServiceManager } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it, vi } from 'vitest';
import { Backend } from '../src/backend';

interface FakeSession {
  kernel: { name: string };
  statusChanged: Signal<object, string>;
  /** Its kernel sends no message, as after another client restarted it. */
  isSilent: boolean;
}

/** A server whose kernels answer each request with the kernel's name; it has one session of each path. */
class Server {
  readonly sessions = new Map<string, FakeSession>();
  readonly services = {
    sessions: {
      ready: Promise.resolve(),
      running: () => [...this.sessions].map(([path, { kernel }]) => ({ path, name: 'marlnb panel', type: 'marlnb', kernel })),
      startNew: ({ path, kernel }: { path: string; kernel: { name: string } }) => Promise.resolve(this.session(path, kernel.name)),
      connectTo: ({ model }: { model: { path: string } }) => Promise.resolve(this.sessions.get(model.path)),
      shutdown: (id: string) => Promise.resolve(this.sessions.delete(id))
    },
    kernelspecs: { ready: Promise.resolve(), specs: { default: 'python3', kernelspecs: {} } }
  } as unknown as ServiceManager.IManager;
  isSilent = false;

  get only(): FakeSession {
    return [...this.sessions.values()][0] as FakeSession;
  }

  private session(path: string, name: string): FakeSession {
    const known = this.sessions.get(path);
    if (known) {
      return known;
    }
    const session: Record<string, unknown> = { id: path, isSilent: this.isSilent };
    const kernel = {
      name,
      requestExecute: () => ({ done: Promise.resolve({ content: { status: 'ok' } }) }),
      createComm: () => {
        const answer = (reply: object): void => {
          if (!session['isSilent']) {
            comm.onMsg({ content: { data: { text: JSON.stringify(reply) } } });
          }
        };
        const comm = {
          onMsg: (_message: object): void => undefined,
          open: () => queueMicrotask(() => answer({ protocol: 1, version: '', folder: '/' })),
          send: ({ text }: { text: string }) => queueMicrotask(() => answer({ id: (JSON.parse(text) as { id: number }).id, answer: name }))
        };
        return comm;
      }
    };
    const disposed = new Signal<object, void>(session);
    const signals = { statusChanged: new Signal<object, string>(session), kernelChanged: new Signal(session), disposed };
    Object.assign(session, { kernel, ...signals, dispose: () => disposed.emit() });
    this.sessions.set(path, session as unknown as FakeSession);
    return session as unknown as FakeSession;
  }
}

function backendOf(server: Server, chosen = ''): Backend {
  return new Backend(
    server.services,
    () => chosen,
    () => ''
  );
}

describe('the kernel of the panel', () => {
  it('fails a request if it ends before its first message', async () => {
    const server = new Server();
    server.isSilent = true;
    const failure = expect(backendOf(server).request('runs')).rejects.toThrow('the kernel of the panel has ended');
    await new Promise(resolve => setTimeout(resolve, 50));
    server.only.statusChanged.emit('dead');
    await failure;
  });
  it('answers again after another client has restarted it', async () => {
    const server = new Server();
    const backend = backendOf(server);
    await backend.request('runs');
    server.only.isSilent = true;
    const failure = expect(backend.request('runs')).rejects.toThrow('the kernel of the panel restarts');
    await new Promise(resolve => setTimeout(resolve, 10));
    server.only.isSilent = false;
    server.only.statusChanged.emit('starting');
    await failure;
    expect(await backend.request('runs')).toBe('python3');
  });
  it('is connected to again after it did not answer', async () => {
    vi.useFakeTimers();
    const server = new Server();
    const backend = backendOf(server);
    await backend.request('runs');
    const reset = vi.fn();
    backend.onReset = reset;
    server.only.isSilent = true;
    const failure = expect(backend.request('runs')).rejects.toThrow('did not answer');
    await vi.advanceTimersByTimeAsync(300_000);
    await failure;
    server.only.isSilent = false;
    expect(await backend.request('runs')).toBe('python3');
    expect(reset).toHaveBeenCalledTimes(1); // the restarted kernel knows no runs
    vi.useRealTimers();
  });
  it('is the chosen one, even if another runs; if none is chosen, it is the one that runs', async () => {
    const server = new Server();
    expect(await backendOf(server).request('runs')).toBe('python3');
    expect(await backendOf(server, 'other').request('runs')).toBe('other');
    server.sessions.delete('marlnb panel python3');
    expect(await backendOf(server).request('runs')).toBe('other');
  });
  it('is ended when another is chosen', async () => {
    const server = new Server();
    let chosen = '';
    const backend = new Backend(
      server.services,
      () => chosen,
      () => ''
    );
    await backend.request('runs');
    chosen = 'other';
    backend.shutDown();
    expect(await backend.request('runs')).toBe('other');
    expect([...server.sessions.keys()]).toEqual(['marlnb panel other']);
  });
});
