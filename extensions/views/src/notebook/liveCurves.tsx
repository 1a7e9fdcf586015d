// The notebook's widget of marlnb.widgets.core.curves.LiveCurves. New points are drawn at most twice a second, and only
// while the chart is visible: the page may share its cores with the training.
import { render as draw, type JSX } from 'preact';
import { useState } from 'preact/hooks';
import { SmoothingSlider } from '../controls';
import type { Curve } from '../curveData';
import { Curves } from '../curves';
import type { Marker } from '../plot';
import { type Addition, LinePoints, type Points } from './linePoints';
import type { Model } from './model';

const DRAW_MS = 500;

function LiveCurves(props: { model: Model; curves: readonly Curve[]; markers: readonly Marker[] }): JSX.Element {
  const { model } = props;
  const [smoothing, setSmoothing] = useState(0);
  const hide = (names: string[]): void => {
    model.set('hidden', names);
    model.save_changes();
  };
  return (
    <>
      <Curves
        curves={props.curves}
        markers={props.markers}
        smoothing={smoothing}
        title={model.get('title') as string}
        xLabel={model.get('x_label') as string}
        yLabel={model.get('y_label') as string}
        height={model.get('height') as number}
        references={model.get('references') as Record<string, number>}
        hidden={model.get('hidden') as string[]}
        onHide={hide}
      />
      <div class="marlnb-controls">
        <SmoothingSlider value={smoothing} onChange={setSmoothing} label="smoothing" />
      </div>
    </>
  );
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const root = document.createElement('div');
  root.className = 'marlnb-live-curves';
  el.append(root);
  const points = new LinePoints();
  let curves: Curve[] = [];
  let markers: Marker[] = [];
  let timer = 0; // after which new points are drawn; 0: none
  let drawnAt = -Infinity;
  let isVisible = true;
  let isRequested = false; // all points, because some did not reach this page

  const redraw = (): void => {
    clearTimeout(timer);
    timer = 0;
    root.dataset['points'] = String(points.count);
    if (isVisible) {
      drawnAt = performance.now();
      draw(<LiveCurves model={model} curves={curves} markers={markers} />, root);
    }
  };
  const redrawPoints = (): void => {
    curves = points.curves();
    redraw();
  };
  const reset = (): void => {
    isRequested = false;
    points.reset(model.get('lines') as Record<string, Points>);
    redrawPoints();
  };
  const onMessage = (message: Partial<Addition>): void => {
    if (message.add && points.add({ add: message.add, after: message.after ?? {} }) && !isRequested) {
      isRequested = true;
      model.send({ request: 'lines' });
    }
    timer ||= window.setTimeout(redrawPoints, Math.max(0, drawnAt + DRAW_MS - performance.now()));
  };
  const readMarkers = (): void => {
    markers = (model.get('markers') as [number, string, boolean][]).map(([x, label, isStrong]) => ({ x, label, isStrong }));
    redraw();
  };
  const observer = new IntersectionObserver(entries => {
    isVisible = entries[entries.length - 1]?.isIntersecting ?? true;
    if (isVisible) {
      redraw();
    }
  });
  observer.observe(root);
  const others = 'change:hidden change:title change:x_label change:y_label change:references change:height';
  model.on('change:lines', reset);
  model.on('change:markers', readMarkers);
  model.on(others, redraw);
  model.on('msg:custom', onMessage);
  readMarkers();
  reset();
  model.send({ seen: true });
  return () => {
    observer.disconnect();
    clearTimeout(timer);
    model.off('change:lines', reset);
    model.off('change:markers', readMarkers);
    model.off(others, redraw);
    model.off('msg:custom', onMessage);
    draw(null, root);
  };
}

export default { render };
