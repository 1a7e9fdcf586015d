/** What a notebook's widget knows of its Python object: an anywidget model. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(message: object): void;
  on(event: string, callback: (message: never) => void): void;
  off(event: string, callback: (message: never) => void): void;
}
