import { Widget } from '@lumino/widgets';
import { printable } from '@marlnb/views';

/** The body of a dialog, one paragraph for each text. */
export function paragraphs(texts: readonly string[]): Widget {
  const body = new Widget();
  body.addClass('marlnb-dialog-body');
  for (const text of texts) {
    const paragraph = document.createElement('p');
    paragraph.textContent = printable(text);
    body.node.append(paragraph);
  }
  return body;
}
