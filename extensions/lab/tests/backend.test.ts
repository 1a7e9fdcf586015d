import type { ServiceManager } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it } from 'vitest';
import { Backend } from '../src/backend';

/** A server whose kernel executes code and opens comms, but never sends a message. */
function silentServer(): { services: ServiceManager.IManager; end: () => void } {
  const session: Record<string, unknown> = {};
  const statusChanged = new Signal<object, string>(session);
  const comm = { open: () => undefined };
  const kernel = {
    name: 'python3',
    requestExecute: () => ({ done: Promise.resolve({ content: { status: 'ok' } }) }),
    createComm: () => comm
  };
  Object.assign(session, {
    kernel,
    statusChanged,
    kernelChanged: new Signal(session),
    disposed: new Signal(session)
  });
  const sessions = { ready: Promise.resolve(), running: () => [], startNew: () => Promise.resolve(session) };
  const services = { sessions, kernelspecs: { ready: Promise.resolve(), specs: { default: 'python3', kernelspecs: {} } } };
  return { services: services as unknown as ServiceManager.IManager, end: () => statusChanged.emit('dead') };
}

describe('the kernel of the panel', () => {
  it('fails a request if it ends before its first message', async () => {
    const { services, end } = silentServer();
    const backend = new Backend(
      services,
      () => '',
      () => ''
    );
    const failure = expect(backend.request('runs')).rejects.toThrow('the kernel of the panel has ended');
    await new Promise(resolve => setTimeout(resolve, 50));
    end();
    await failure;
  });
});
