import type { CompletionHandler, ICompletionContext, ICompletionProvider } from '@jupyterlab/completer';
import type { Backend } from './backend';

/** By part, the names that an experiment can choose: marlnb.lab.verbs.Session.names. */
export type Names = Record<string, string[]>;

export interface OverrideAtCursor {
  part: string;
  start: number;
}

/** The part whose name is written at the cursor, inside a text of `compose(...)`, as in `compose("env=mpe/si`. */
export function overrideAt(text: string, offset: number): OverrideAtCursor | null {
  const before = text.slice(Math.max(0, offset - 5000), offset);
  const call = before.lastIndexOf('compose(');
  if (call < 0) {
    return null;
  }
  const match = /(["'])(env|algorithm|model|critic|league|algorithms\.\w+|models\.\w+)=([\w/.-]*)$/.exec(before.slice(call));
  if (!match || /\)\s*$/m.test(before.slice(call, call + match.index))) {
    return null;
  }
  const part = (match[2] ?? '').replace(/s\.\w+$/, '').replace('critic', 'model');
  return { part, start: offset - (match[3] ?? '').length };
}

/** Completes names of environments, algorithms, models and leagues inside `Experiment.compose("env=…")`. */
export class OverrideCompletions implements ICompletionProvider {
  constructor(private readonly backend: Backend) {}

  readonly identifier = 'marlnb:overrides';
  readonly rank = 900;
  readonly renderer = null;

  isApplicable(context: ICompletionContext): Promise<boolean> {
    const language = context.editor?.model.mimeType ?? '';
    return Promise.resolve(language.includes('python'));
  }

  async fetch(request: CompletionHandler.IRequest): Promise<CompletionHandler.ICompletionItemsReply> {
    const override = overrideAt(request.text, request.offset);
    if (!override) {
      return { start: request.offset, end: request.offset, items: [] };
    }
    this.names ??= this.backend.request<Names>('names').catch((error: unknown) => {
      this.names = null;
      throw error;
    });
    const typed = request.text.slice(override.start, request.offset);
    const names = (await this.names)[override.part] ?? [];
    const items = names.filter(name => name.startsWith(typed)).map(label => ({ label, type: override.part }));
    return { start: override.start, end: request.offset, items };
  }

  private names: Promise<Names> | null = null;
}
