
// Graphs: the history of counters, and drawings of it.

/** The longest time that a graph shows, in seconds. */
const SPAN = 600;

/** The layers of a graph of requests. */
const LAYERS = ['rejected', 'dry', 'passed'];

/** The time over which a current rate is averaged, in seconds. */
const RECENT = 10;

/** The growth of counters over the last minutes, from polled values. */
class History {
  constructor() {
    this.points = [];
  }

  /** Adds the values of counters at a time. A counter that has become smaller has started anew. */
  add(time, values) {
    const last = this.points.at(-1);
    if (last && time <= last.time) {
      if (time > last.time - 5) return;
      this.points = [];
    }
    const names = Object.keys(values);
    const isKnown = last && names.every(name => values[name] !== null && last.values[name] !== null && values[name] >= last.values[name]);
    const rates = isKnown ? Object.fromEntries(names.map(name => [name, (values[name] - last.values[name]) / (time - last.time)])) : null;
    this.points.push({ time, values, rates });
    while (this.points[0].time < time - SPAN) this.points.shift();
  }

  /** Returns how much a counter has grown per second lately; null if that is unknown. */
  recent(name) {
    const last = this.points.at(-1);
    const first = this.points.findLast((point, at) => at > 0 && point.rates === null) ?? this.points[0];
    const from = this.points.find(point => point.time >= Math.max(first?.time, last?.time - RECENT));
    if (!from || from === last) return null;
    return (last.values[name] - from.values[name]) / (last.time - from.time);
  }

  /** Returns how much a counter has grown in the history. */
  growth(name) {
    let sum = 0;
    this.points.forEach((point, at) => { if (at && point.rates) sum += point.values[name] - this.points[at - 1].values[name]; });
    return sum;
  }
}

/** Returns the sum of histories that have points at the same times. */
function summed(histories) {
  const byTime = new Map();
  for (const { points } of histories) {
    for (const { time, rates } of points) {
      const sum = byTime.get(time) ?? { time, rates: null };
      if (rates) {
        sum.rates ??= {};
        for (const name in rates) sum.rates[name] = (sum.rates[name] ?? 0) + rates[name];
      }
      byTime.set(time, sum);
    }
  }
  return [...byTime.values()].sort((a, b) => a.time - b.time);
}

/** Returns a number that four steps divide well, and that is not below another. */
function niceAbove(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(number, 1e-6)));
  return [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].map(factor => factor * power).find(nice => nice >= number * .9999);
}

/** Returns the parts of a line without gaps, as arrays of points with rates. */
function unbroken(points) {
  const parts = [[]];
  for (const point of points) {
    if (point.rates) parts.at(-1).push(point);
    else if (parts.at(-1).length) parts.push([]);
  }
  return parts.filter(part => part.length);
}

/** Draws layers as areas, the first one at the bottom. */
function stack(points, layers, x, y) {
  const line = (part, value) => part.map(point => `${x(point.time).toFixed(1)},${y(value(point)).toFixed(1)}`).join('L');
  const [areas, lines] = [[], []];
  for (const part of unbroken(points)) {
    const below = [() => 0];
    for (const layer of layers) {
      const low = below.at(-1);
      const high = point => low(point) + (point.rates[layer] ?? 0);
      below.push(high);
      if (!part.some(point => point.rates[layer])) continue;
      areas.push(draw('path', { class: layer, d: `M${line(part, high)}L${line([...part].reverse(), low)}Z` }));
      lines.push(draw('path', { class: `${layer}-line`, d: `M${line(part, high)}` }));
    }
  }
  return [...areas, ...lines];
}

/** Returns the largest stacked value of points. */
const highest = (points, ...names) => Math.max(0, ...points.map(({ rates }) => rates ? names.reduce((sum, name) => sum + (rates[name] ?? 0), 0) : 0));

/** Draws a graph without axes into a drawing that is kept. */
function sparkline(svg, points, layers, label) {
  const [width, height] = [132, 24];
  svg ??= draw('svg', { width, height, role: 'img' });
  const end = points.at(-1)?.time ?? 0;
  const start = end - shownSpan(points);
  const top = highest(points, ...layers) || 1;
  const drawn = stack(points, layers, time => (time - start) / (end - start) * width, rate => height - 1 - rate / top * (height - 3));
  svg.replaceChildren(draw('path', { class: 'grid', d: `M0,${height - .5}H${width}` }), ...drawn);
  setAttribute(svg, 'aria-label', label);
  return svg;
}

/** Returns the time that a graph of points shows, in seconds. */
const shownSpan = points => points.length ? Math.min(SPAN, Math.max(60, points.at(-1).time - points[0].time)) : 60;

/** Draws the requests of the last minutes with axes, and a line at the index `at` of the points if there is one. */
function drawTraffic(box, points, at, label) {
  const [width, height] = [Math.max(240, box.clientWidth), box.clientHeight];
  const [left, bottom, top] = [44, height - 20, 8];
  const end = points.at(-1)?.time ?? 0;
  const span = shownSpan(points);
  const most = niceAbove(highest(points, ...LAYERS) || 1);
  const x = time => left + (1 - (end - time) / span) * (width - left - 1);
  const y = rate => bottom - rate / most * (bottom - top);
  const svg = draw('svg', { width, height, role: 'img', 'aria-label': label });
  for (let tick = 0; tick <= 4; tick++) {
    const rate = most * tick / 4;
    svg.append(draw('path', { class: tick ? 'grid' : 'axis', d: `M${left},${y(rate)}H${width}` }));
    svg.append(draw('text', { x: left - 7, y: y(rate) + 4, 'text-anchor': 'end' }, perSecond(rate)));
  }
  const unit = [15, 30, 60, 120, 300].find(unit => span / unit <= (width < 420 ? 3 : 6));
  for (let back = 0; back <= span; back += unit) {
    const anchor = back === 0 ? 'end' : x(end - back) < left + 20 ? 'start' : 'middle';
    svg.append(draw('text', { x: x(end - back), y: height - 4, 'text-anchor': anchor }, back ? `−${duration(back)}` : 'now'));
  }
  svg.append(...stack(points, LAYERS, x, y));
  if (points[at]) svg.append(draw('path', { class: 'cursor', d: `M${x(points[at].time).toFixed(1)},${top}V${bottom}` }));
  box.replaceChildren(svg);
  return time => points.length ? points.reduce((best, point, index) => Math.abs(x(point.time) - time) < Math.abs(x(points[best].time) - time) ? index : best, 0) : 0;
}
