import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { type ComponentChild, render } from 'preact';

/** A Lumino widget whose content Preact draws while it is attached. */
export abstract class PreactWidget extends Widget {
  /** Called whenever the widget appears or disappears. */
  protected onVisible(_isVisible: boolean): void {
    // a view that is always the same needs nothing
  }

  protected abstract content(): ComponentChild;

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    render(this.content(), this.node);
    this.onVisible(this.isVisible);
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.onVisible(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.onVisible(false);
  }

  protected override onBeforeDetach(message: Message): void {
    this.onVisible(false);
    render(null, this.node);
    super.onBeforeDetach(message);
  }
}
