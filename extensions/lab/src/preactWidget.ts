import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { type ComponentChild, render } from 'preact';

/** A Lumino widget whose content Preact draws while it is attached. */
export abstract class PreactWidget extends Widget {
  protected abstract content(): ComponentChild;

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    render(this.content(), this.node);
  }

  protected override onBeforeDetach(message: Message): void {
    render(null, this.node);
    super.onBeforeDetach(message);
  }
}
