
// The views of a node: its numbers at a glance, the graph, namespaces, zones, stores and syncs.

const histories = { namespaces: new Map(), stores: new Map(), zones: new Map() };
const sparklines = new Map();
const tables = {
  namespaces: new Table('namespaces', 880, 'There is no namespace.', ['Namespace'], ['Last minutes', 'whole'], ['Requests/s', 'number'],
    ['Rejected/s', 'number'], ['Share', 'number'], ['Passed', 'number'], ['Rejected', 'number'], ['Dry run', 'number'],
    ['on_error', 'number'], ['Hits', 'number'], ['Keys', 'number'], ['Zone'], ['Store']),
  zones: new Table('zones', 560, 'There is no zone.', ['Zone'], ['Fill', 'whole'], ['Keys', 'number'], ['Size', 'number'],
    ['Evicted: ended', 'number'], ['sent', 'number'], ['unsent', 'number']),
  stores: new Table('stores', 560, 'There is no store: this node counts by itself.', ['Store'], ['State'], ['Latency', 'number'],
    ['Last minutes', 'whole'], ['Exchanges/s', 'number'], ['Connects', 'number'], ['Clock', 'number']),
  syncs: new Table('syncs', 880, 'No namespace is synced.', ['Namespace'], ['Store'], ['Every', 'number'], ['Result'], ['Lag', 'number'],
    ['Took', 'number'], ['Nodes', 'number'], ['Pushed', 'number'], ['Fetched', 'number'], ['Pending', 'number'],
    ['Dropped hits', 'number'], ['Excess hits', 'number'], ['']),
};

/** Adds the counters of a poll to the histories, and forgets what is no longer configured. */
function remember(node) {
  const add = (kind, items, values) => {
    const names = new Set(items.map(item => item.name));
    for (const name of histories[kind].keys()) if (!names.has(name)) histories[kind].delete(name);
    for (const item of items) {
      if (!histories[kind].has(item.name)) histories[kind].set(item.name, new History());
      histories[kind].get(item.name).add(node.time, values(item));
    }
  };
  add('namespaces', node.namespaces, ({ passed, rejected, rejected_dry_run }) => ({ passed, rejected, dry: rejected_dry_run }));
  add('stores', node.stores, ({ exchanges, exchange_seconds }) => ({ exchanges, exchange_seconds }));
  add('zones', node.zones, ({ sent, unsent }) => ({ sent, unsent }));
}

/** Returns the drawing of a history that is kept by this name. */
function kept(name, points, layers, label) {
  sparklines.set(name, sparkline(sparklines.get(name), points, layers, label));
  return sparklines.get(name);
}

/** Returns the age of a namespace's last successful sync in seconds, and how grave it is. */
function lagOf(node, space) {
  if (!(space.sync_rate > 0)) return { lag: null, kind: null };
  const lag = space.last_success === null || node.time === null ? null : Math.max(0, node.time - space.last_success);
  const isLate = lag === null ? space.last_result !== null : lag > Math.max(3 * space.sync_rate, space.sync_rate + 2);
  return { lag, kind: space.last_result === 'error' ? 'bad' : isLate ? 'warn' : lag === null ? null : 'ok' };
}

/** Returns the mean duration of a store's exchanges lately, in seconds. */
function latencyOf(store) {
  const history = histories.stores.get(store.name);
  const [rate, seconds] = [history.recent('exchanges'), history.recent('exchange_seconds')];
  return rate > 0 ? seconds / rate : null;
}

/** Returns the fill of a zone, from 0 to 1; null if it is unknown. */
const fillOf = zone => zone.capacity ? Math.min(1, zone.keys / zone.capacity) : null;

const gravest = kinds => ['bad', 'warn', 'ok'].find(kind => kinds.includes(kind));

function showTiles(node, limited) {
  const recent = name => node.namespaces.map(space => histories.namespaces.get(space.name).recent(name)).filter(rate => rate !== null);
  const sum = rates => rates.length ? rates.reduce((sum, rate) => sum + rate, 0) : null;
  const [passed, rejected, dry] = ['passed', 'rejected', 'dry'].map(name => sum(recent(name)));
  const all = passed === null ? null : passed + rejected + dry;
  const synced = node.namespaces.filter(space => space.sync_rate > 0).map(space => ({ ...lagOf(node, space), name: space.name }));
  const worst = synced.reduce((worst, sync) => !worst || sync.lag === null || worst.lag !== null && sync.lag > worst.lag ? sync : worst, null);
  const fullest = node.zones.reduce((full, zone) => !full || fillOf(zone) > fillOf(full) ? zone : full, null);
  const evicted = node.zones.reduce((sum, zone) => sum + histories.zones.get(zone.name).growth('unsent') + histories.zones.get(zone.name).growth('sent'), 0);
  const down = node.stores.filter(store => store.up === false);
  const up = node.stores.filter(store => store.up).length;
  const tiles = [
    ['Requests/s', perSecond(all), `${amount(node.namespaces.reduce((sum, space) => sum + space.passed + space.rejected + space.rejected_dry_run, 0))} in all`],
    ['Rejected/s', perSecond(rejected), all ? `${percent(rejected / all)} of them${dry ? `; ${perSecond(dry)} in dry runs` : ''}` : 'of none', rejected > 0 ? 'bad' : null],
    ['Limited keys', limited === null ? '–' : amount(limited), limited ? 'now, on this node' : 'nobody waits', limited ? 'warn' : null],
    ['Stores', node.stores.length ? `${up} of ${node.stores.length} up` : 'none',
      down.length ? `down: ${down.map(store => store.name).join(', ')}` : node.stores.length ? 'all that were asked answer' : 'this node counts by itself',
      down.length ? 'bad' : up ? 'ok' : null],
    ['Sync lag', worst ? duration(worst.lag) : 'none', worst ? `worst: ${worst.name}` : 'nothing is synced periodically',
      gravest(synced.map(sync => sync.kind))],
    ['Fullest zone', percent(fullest && fillOf(fullest)), evicted ? `${amount(evicted)} live keys evicted` : fullest ? 'no live key evicted' : 'no zone',
      evicted ? 'bad' : null],
  ];
  const list = byId('tiles');
  tiles.forEach(([name, value, note, kind], at) => {
    const tile = list.children[at] ?? list.appendChild(make('div', null, make('dt', null, name), make('dd'), make('dd')));
    setText(tile.children[1], value, kind);
    setText(tile.children[2], note);
  });
}

/** Shows the graph of the chosen namespace, or of all. */
function showTraffic() {
  const chosen = byId('namespace').value;
  const of = [...histories.namespaces].filter(([name]) => !chosen || name === chosen).map(([, history]) => history);
  const points = summed(of);
  const slider = byId('moment');
  // The slider stays at its moment, and at the last one if it was there.
  const wanted = showTraffic.time === undefined ? -1 : points.findIndex(point => point.time >= showTraffic.time);
  const at = wanted < 0 ? points.length - 1 : wanted;
  slider.max = Math.max(0, points.length - 1);
  slider.value = at;
  const text = point => !point ? 'No counters yet.' : !point.rates ? `${clock(point.time)}: the first counters` :
    `${clock(point.time)}: ${perSecond(point.rates.passed)} passed/s, ${perSecond(point.rates.rejected)} rejected/s${point.rates.dry ? `, ${perSecond(point.rates.dry)} rejected/s in dry runs` : ''}`;
  const label = `Requests per second${chosen ? ` in ${chosen}` : ''} in the last ${duration(shownSpan(points))}: at most ${perSecond(highest(points, ...LAYERS))}, of these rejected at most ${perSecond(highest(points, 'rejected'))}`;
  const nearest = drawTraffic(byId('traffic'), points, showTraffic.time === undefined ? -1 : at, label);
  setText(byId('reading'), text(points[at]));
  slider.setAttribute('aria-valuetext', text(points[at]));
  const choose = index => {
    showTraffic.time = index >= points.length - 1 ? undefined : points[index]?.time;
    showTraffic();
  };
  slider.oninput = () => choose(Number(slider.value));
  byId('traffic').onpointermove = event => choose(nearest(event.clientX - byId('traffic').getBoundingClientRect().left));
  byId('traffic').onpointerleave = () => choose(points.length);
}

function showNamespaces(node, choose) {
  const chosen = byId('namespace').value;
  tables.namespaces.show(node.namespaces, space => {
    const history = histories.namespaces.get(space.name);
    const [passed, rejected, dry] = ['passed', 'rejected', 'dry'].map(name => history.recent(name));
    const all = passed === null ? null : passed + rejected + dry;
    const label = `${space.name}: ${perSecond(all)} requests and ${perSecond(rejected)} rejections per second`;
    return [space.name,
      { text: space.name, press: () => choose(chosen === space.name ? '' : space.name), pressed: chosen === space.name, style: 'link' },
      { node: kept(`namespace ${space.name}`, history.points, LAYERS, label) },
      perSecond(all), { text: perSecond(rejected), kind: rejected > 0 ? 'bad' : null }, percent(all ? rejected / all : null),
      amount(space.passed), amount(space.rejected), amount(space.rejected_dry_run),
      { text: amount(space.error), kind: space.error ? 'warn' : null }, amount(space.hits), amount(space.keys), space.zone ?? '–',
      space.store ?? (space.sync_rate === 'off' ? 'none' : '–')];
  });
}

function showZones(node) {
  tables.zones.show(node.zones, zone => {
    const fill = fillOf(zone);
    const history = histories.zones.get(zone.name);
    const evicted = name => {
      const growth = history.growth(name);
      return { text: amount(zone[name]) + (growth ? ` (+${amount(growth)})` : ''), kind: growth ? 'bad' : zone[name] ? 'warn' : null };
    };
    return [zone.name, zone.name, { node: meter(zone.name, fill) }, `${amount(zone.keys)} of ${amount(zone.capacity)}`, bytes(zone.size),
      amount(zone.ended), evicted('sent'), evicted('unsent')];
  });
}

/** Returns the bar of a zone's fill, which is kept. */
function meter(name, fill) {
  const id = `zone ${name}`;
  if (!sparklines.has(id)) {
    sparklines.set(id, make('div', { class: 'meter' }, make('span', { 'aria-hidden': 'true' }, make('i')), make('span')));
  }
  const [bar, text] = sparklines.get(id).children;
  setAttribute(bar, 'data-kind', fill > .95 ? 'bad' : fill > .8 ? 'warn' : null);
  bar.firstChild.style.width = `${(fill ?? 0) * 100}%`;
  setText(text, percent(fill));
  return sparklines.get(id);
}

function showStores(node) {
  tables.stores.show(node.stores, store => {
    const history = histories.stores.get(store.name);
    const points = history.points.map(({ time, rates }) => ({ time, rates: rates && { passed: rates.exchanges > 0 ? rates.exchange_seconds / rates.exchanges : 0 } }));
    const latency = latencyOf(store);
    const label = `Latency of ${store.name}: now ${duration(latency)}, at most ${duration(highest(points, 'passed'))}`;
    return [store.name, `${store.name} (${store.strategy ?? '–'})`,
      { text: { true: 'up', false: 'down' }[store.up] ?? 'not asked yet', kind: { true: 'ok', false: 'bad' }[store.up] ?? 'muted' },
      duration(latency), { node: kept(`store ${store.name}`, points, ['passed'], label) }, perSecond(history.recent('exchanges')),
      amount(store.connects), store.clock_offset === null ? '–' : `${store.clock_offset > 0 ? '+' : ''}${duration(store.clock_offset)}`];
  });
}

function showSyncs(node) {
  const synced = node.namespaces.filter(space => space.sync_rate !== 'off' && space.store !== null);
  tables.syncs.show(synced, space => {
    const { lag, kind } = lagOf(node, space);
    const isPeriodic = space.sync_rate > 0;
    const result = { ok: 'ok', error: 'error' }[space.last_result];
    return [space.name, space.name, space.store, isPeriodic ? duration(space.sync_rate) : 'request',
      { text: result ?? 'none yet', kind: { ok: 'ok', error: 'bad' }[result] ?? 'muted' },
      { text: isPeriodic ? duration(lag) : '–', kind: kind === 'ok' ? null : kind }, duration(space.duration), amount(space.nodes),
      amount(space.pushed_keys), amount(space.fetched_keys), amount(space.pending_keys),
      { text: amount(space.dropped_hits), kind: space.dropped_hits ? 'warn' : null },
      { text: amount(space.excess_hits), kind: space.excess_hits ? 'warn' : null },
      node.write ? { text: 'Sync now', label: `Sync ${space.name} now`, press: event => syncNow(space.name, event.currentTarget) } : ''];
  });
}

/** Syncs a namespace, and tells the result. */
async function syncNow(name, button) {
  if (button.getAttribute('aria-busy')) return;
  button.setAttribute('aria-busy', 'true');
  try {
    const report = await ask(inNamespace(name, '/sync'), 'POST');
    if (report.status !== 'ok') throw foreign();
    say(`${name} is synced: ${amount(numberOf(report.pushed_keys))} keys pushed, ${amount(numberOf(report.fetched_keys))} fetched.`, 'ok');
  } catch (error) {
    say(`${name} is not synced. ${error.message}`, 'bad');
  }
  button.removeAttribute('aria-busy');
}
