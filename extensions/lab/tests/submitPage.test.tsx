import { nullTranslator } from '@jupyterlab/translation';
import { PromiseDelegate } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import { describe, expect, it, vi } from 'vitest';
import type { Context } from '../src/context';
import { SubmitPage } from '../src/submitPage';

/** A page whose kernel answers only what a test resolves; the notebook has the parameters that are asked for next. */
function opened(): { page: SubmitPage; plans: PromiseDelegate<object>[]; sent: string[][]; parameters: string[] } {
  const plans: PromiseDelegate<object>[] = [];
  const sent: string[][] = [];
  const parameters = ['seed', 'lr'];
  const request = (verb: string, args: { parameters: string[] }): Promise<object> => {
    if (verb === 'batch_form') {
      const fields = parameters.map(name => ({ name, takes: '', code: '0', help: '', required: false }));
      return Promise.resolve({ parameters: fields, resources: [], profiles: { local: {} }, unsupported: {} });
    }
    const plan = new PromiseDelegate<object>();
    plans.push(plan);
    sent.push(args.parameters);
    return plan.promise;
  };
  const backend = { folder: '/', start: () => Promise.resolve(), request };
  const context = { backend, trans: nullTranslator.load('marlnb') } as unknown as Context;
  const page = new SubmitPage(context, 'a.ipynb', () => Promise.resolve());
  Widget.attach(page, document.body);
  return { page, plans, sent, parameters };
}

/** Waits as long as a loaded machine needs. */
function until<Value>(value: () => Value): Promise<Value> {
  return vi.waitUntil(value, { timeout: 4000 }) as Promise<Value>;
}

async function field(page: SubmitPage, name: string): Promise<HTMLInputElement> {
  const label = (): Element | undefined => [...page.node.querySelectorAll('label')].find(each => each.textContent === name);
  return (await until(() => label()?.querySelector('input'))) as HTMLInputElement;
}

async function fill(page: SubmitPage, name: string, text: string): Promise<void> {
  const input = await field(page, name);
  input.value = text;
  input.dispatchEvent(new Event('input', { bubbles: true }));
}

async function button(page: SubmitPage, name: string): Promise<HTMLButtonElement> {
  const buttons = (): HTMLButtonElement[] => [...page.node.querySelectorAll('button')];
  await until(() => !(page.node.querySelector('[role=status]')?.textContent));
  return buttons().find(each => each.textContent === name) as HTMLButtonElement;
}

describe('the page that submits a notebook', () => {
  const plan = { command: 'marlnb batch', output: '1 new', ok: true, batch: '' };

  it('submits only what was planned', async () => {
    const { page, plans } = opened();
    await fill(page, 'seed', '1');
    (await button(page, 'Show plan and script')).click();
    await until(() => plans.length === 1);
    await fill(page, 'seed', '0..49');
    plans[0]?.resolve(plan);
    expect((await button(page, 'Submit')).disabled).toBe(true);
    (await button(page, 'Show plan and script')).click();
    await until(() => plans.length === 2);
    plans[1]?.resolve(plan);
    await until(() => page.node.querySelector('.marlnb-plan'));
    expect((await button(page, 'Submit')).disabled).toBe(false);
    page.dispose();
  });
  it('sends no values of parameters that the notebook no longer has, and plans again', async () => {
    const { page, plans, sent, parameters } = opened();
    await fill(page, 'seed', '1');
    await fill(page, 'lr', '0.1');
    (await button(page, 'Show plan and script')).click();
    await until(() => plans.length === 1);
    plans[0]?.resolve(plan);
    await until(() => page.node.querySelector('.marlnb-plan'));
    parameters.splice(1, 1, 'rate');
    (await button(page, 'Read the parameters again')).click();
    await field(page, 'rate');
    expect((await button(page, 'Submit')).disabled).toBe(true);
    (await button(page, 'Show plan and script')).click();
    await until(() => plans.length === 2);
    expect(sent).toEqual([['seed=1', 'lr=0.1'], ['seed=1']]);
    page.dispose();
  });
});
