
// The views of keys: those that are limited, one key with its windows, and the rules.

/** The key that is shown: its namespace, and the key as it is in a query; null if none is. */
let shownKey = null;

/** The rules by namespace, of the configuration that was loaded at `rules.loaded_at`. */
const rules = { loaded_at: undefined, of: new Map() };

tables.limited = new Table('limited', 560, 'Nobody is limited now.', ['Key'], ['Until', 'time whole'], ['Rule', 'whole'], ['Rejected', 'number'], ['Namespace']);
tables.others = new Table('others', 300, '', ['Window'], ['Type'], ['Counter'], ['Rate', 'number']);
tables.rules = new Table('rules', 680, 'There is no rule.', ['Place'], ['Limits', 'whole'], ['Key'], ['Counter'], ['Cost', 'number'], ['Phase'], ['Dry run']);

/** Asks whom the namespaces limit or ban. Returns the keys, those that are limited first. */
async function askLimited(names, now, loaded_at) {
  const read = (name, answer, list) => objects(answer, list).filter(entry => textOf(entry.key) !== null).map(entry => ({
    namespace: name, key: inQuery(entry.key), counter: textOf(entry.counter), rejected: numberOf(entry.rejected), error: numberOf(entry.error),
    rule: textOf(entry.rule), name: textOf(entry.name), until: numberOf(entry.until), isDry: entry.dry_run === true, isBanned: list === 'bans',
  }));
  const answers = await Promise.all(names.map(async name => {
    const top = read(name, await ask(inNamespace(name, '/top?limit=100')), 'keys');
    if (!(await rulesOf(name, loaded_at)).some(rule => rule.ban)) return top;
    const bans = read(name, await ask(inNamespace(name, '/bans?limit=100')), 'bans');
    const of = (entries, it) => entries.find(entry => entry.key === it.key && entry.counter === it.counter);
    for (const ban of bans) Object.assign(ban, { rejected: of(top, ban)?.rejected ?? null, error: of(top, ban)?.error ?? null });
    return [...bans, ...top.filter(entry => !of(bans, entry))];
  }));
  const entries = answers.flat();
  // A rule without a time never admits the key.
  for (const entry of entries) entry.isLimited = entry.rule !== null && (entry.until === null || entry.until > now);
  entries.sort((a, b) => b.isLimited - a.isLimited || b.isBanned - a.isBanned || b.rejected - a.rejected);
  return entries;
}

function showLimited(entries, now, show) {
  const hasRecent = byId('recent').checked;
  const shown = entries.filter(entry => entry.isLimited || hasRecent);
  const limited = entries.filter(entry => entry.isLimited).length;
  const until = entry => !entry.isLimited ? { text: 'no longer', kind: 'muted' } : entry.until === null ? { text: 'never admitted', kind: 'bad' } :
    { text: `${clock(entry.until)}, in ${duration(Math.max(.1, entry.until - now))}${entry.isBanned ? ', banned' : ''}${entry.isDry ? ', dry run' : ''}`, kind: entry.isBanned ? 'bad' : 'warn' };
  tables.limited.show(shown, entry => {
    const text = decoded(entry.key);
    // A digest is in no path.
    const isDigest = /^sha256:/.test(entry.key);
    return [JSON.stringify([entry.namespace, entry.key, entry.counter]),
      isDigest ? text : { text, press: () => show({ namespace: entry.namespace, key: entry.key }), style: 'link', label: `Show ${text}` },
      until(entry), entry.rule === null ? '–' : `${entry.name ?? ''} ${entry.rule}`.trim(),
      amount(entry.rejected) + (entry.error ? ` ± ${amount(entry.error)}` : ''),
      entry.namespace + (entry.counter === null ? '' : `, counter ${entry.counter}`)];
  });
  setText(byId('limited-note'), `${amount(limited)} limited now; ${amount(entries.length)} rejected in the last minutes, on this node.`);
}

/** Asks for the rules of a namespace, once for each configuration. */
async function rulesOf(name, loaded_at) {
  if (rules.loaded_at !== loaded_at) Object.assign(rules, { loaded_at, of: new Map() });
  if (!rules.of.has(name)) {
    const read = objects(await ask(inNamespace(name, '/rules')), 'rules');
    rules.of.set(name, read.map(rule => ({ ...rule, limits: objects(rule, 'limits') })));
  }
  return rules.of.get(name);
}

async function showRules(names, loaded_at) {
  const rows = [];
  for (const name of names) {
    (await rulesOf(name, loaded_at)).forEach((rule, at) => rows.push([`${name} ${at}`, textOf(rule.place) ?? '–',
      rule.limits.map(limit => `${textOf(limit.name) ?? '–'}: ${limitText(limit)}`).join('; '), textOf(rule.key) ?? '–', textOf(rule.counter) ?? '–',
      amount(numberOf(rule.cost)), textOf(rule.phase) ?? '–', rule.dry_run === true ? { text: 'yes', kind: 'warn' } : 'no']));
  }
  tables.rules.show(rows, row => row);
}

/** Shows what the API says about the shown key. Throws a Failure. */
async function showKey(loaded_at, now) {
  const asked = shownKey;
  if (!asked) return;
  const query = `key=${asked.key}`;
  const [known, explained, counted] = await Promise.all([
    rulesOf(asked.namespace, loaded_at), ask(inNamespace(asked.namespace, `/keys/explain?${query}`)),
    ask(inNamespace(asked.namespace, `/keys?${query}&all=1`)),
  ]);
  const counters = objects(counted, 'counters').map(counter => ({
    window: windowOf(counter.window), type: textOf(counter.window_type), counter: textOf(counter.counter),
    rate: numberOf(counter.rate), leak: textOf(counter.leak),
  }));
  const limits = objects(explained, 'rules').flatMap(rule => objects(rule, 'limits').map(limit => {
    const of = known.find(one => one.place === rule.place && one.counter === rule.counter && one.limits.some(it => it.name === limit.name));
    const setting = of?.limits.find(it => it.name === limit.name);
    return {
      place: textOf(rule.place), counter: textOf(rule.counter), isDry: rule.dry_run === true, name: textOf(limit.name),
      ...Object.fromEntries(['limit', 'rate', 'remaining', 'reset', 'until'].map(name => [name, numberOf(limit[name])])),
      isRefused: limit.admitted === false, isBanned: rule.banned_until > now, window: windowOf(setting?.window), type: textOf(setting?.window_type),
      text: setting ? limitText({ ...setting, limit: setting.limit ?? limit.limit }) : '',
    };
  }));
  // Windows at fixed times have a history that can be drawn.
  await Promise.all(limits.slice(0, 12).filter(limit => ['sliding', 'fixed'].includes(limit.type)).map(async limit => {
    const at = `window=${encodeURIComponent(limit.window)}&window_type=${limit.type}&counter=${encodeURIComponent(limit.counter ?? 'default')}`;
    // A store that is down may not know them. The limit has its count anyway.
    const read = await ask(inNamespace(asked.namespace, `/keys?${query}&${at}`)).catch(() => null);
    limit.counts = read && Object.fromEntries(['current', 'previous', 'diff', 'window_start'].map(name => [name, numberOf(read[name])]));
  }));
  if (asked !== shownKey) return;
  asked.isBanned = objects(explained, 'rules').some(rule => rule.banned_until > now);
  showCounts(asked, limits, counters, now);
}

/** Shows the verdict about a key, its windows, and its counters that no rule reads. */
function showCounts(asked, limits, counters, now) {
  const refused = limits.filter(limit => limit.isRefused && !limit.isDry);
  const last = refused.find(limit => limit.until === null) ?? refused.reduce((last, limit) => !last || limit.until > last.until ? limit : last, null);
  const text = decoded(asked.key);
  if (last) {
    // Without the time that is left, so that screen readers hear it once.
    const when = last.until === null ? 'and never admitted' : `until ${clock(last.until)}`;
    setText(byId('verdict'), `${text} is ${last.isBanned ? 'banned' : 'limited'} by ${last.name} (${last.place}) ${when}.`, 'bad');
  } else if (limits.length) {
    setText(byId('verdict'), `${text} is admitted: no rule refuses its next request.`, 'ok');
  } else {
    setText(byId('verdict'), counters.length ? `${text} has hits under no rule of ${asked.namespace}.` : `This node knows no hits of ${text} in ${asked.namespace}.`);
  }
  byId('windows').replaceChildren(...limits.map(limit => drawLimit(limit, now)));
  // A fixed window is the same counter as a sliding one.
  const kind = type => type === 'fixed' ? 'sliding' : type;
  const others = counters.filter(one => !limits.some(limit => limit.window === one.window && kind(limit.type) === kind(one.type) && limit.counter === one.counter));
  byId('others-part').hidden = !others.length;
  tables.others.show(others, one => [JSON.stringify(one), one.leak ?? windowText(one.window), one.type ?? '–', one.counter ?? 'shared', amount(one.rate)]);
}

/** Draws a limit with the counts of the key. */
function drawLimit(limit, now) {
  const state = limit.limit === null ? 'its limit is a variable' : !limit.isRefused ? `admits: ${amount(limit.remaining)} left` : limit.until === null ? 'never admits' :
    `refuses for ${duration(Math.max(.1, limit.until - now))}${limit.isDry ? ' (dry run)' : ''}`;
  const reset = limit.reset ? `; resets in ${duration(limit.reset)}` : '';
  const counts = limit.counts;
  const share = counts && limit.type === 'sliding' ? Math.max(0, Math.min(1, 1 - (now - counts.window_start) / secondsOf(limit.window))) : 0;
  const sum = counts && limit.type === 'sliding' ? ` = ${amount(counts.current)} + ${percent(share)} of ${amount(counts.previous)}` : '';
  const notes = [`${amount(limit.rate)} of ${limit.limit === null ? 'a variable limit' : amount(limit.limit)}${sum}`];
  if (counts?.diff) notes.push(`${amount(counts.diff)} not in the store`);
  const label = `${limit.name}: ${notes.join(', ')}`;
  return make('article', { class: 'window', 'aria-label': limit.name },
    make('h3', null, make('span', null, limit.name ?? '–'), make('span', { class: 'muted' }, limit.place ?? '–')),
    make('p', null, limit.text + (limit.counter === null ? '' : `, counter ${limit.counter}`)),
    counts?.window_start == null ? drawLevel(limit, label) : drawWindows(limit, share, now, label),
    make('p', null, notes.join('; ')), make('p', { 'data-kind': limit.isRefused ? 'bad' : limit.limit === null ? 'muted' : 'ok' }, state + reset));
}

/** Draws the previous and the current window, the time that a sliding window looks at, and the limit. */
function drawWindows({ counts, limit, window, type }, share, now, label) {
  const [width, bottom, top] = [300, 75, 12];
  const most = Math.max(limit ?? 0, counts.current, counts.previous, 1) * 1.1;
  const y = hits => bottom - hits / most * (bottom - top);
  const at = Math.max(0, Math.min(1, (now - counts.window_start) / secondsOf(window)));
  const [middle, x] = [width / 2, width / 2 * (1 + at)];
  const box = (kind, left, right, hits) => right > left && hits > 0 ?
    [draw('rect', { class: kind, x: left, y: y(hits), width: right - left, height: bottom - y(hits) })] : [];
  const tail = type === 'sliding' ? middle * (1 - share) : middle;
  const svg = draw('svg', { viewBox: `0 0 ${width} 76`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    ...box('ended', 0, tail, counts.previous), ...box('past', tail, middle, counts.previous),
    ...box(limit !== null && counts.current > limit ? 'over' : 'fresh', middle, x, counts.current),
    draw('path', { class: 'axis', d: `M0,${bottom}H${width}` }), draw('path', { class: 'axis', d: `M${middle},${top}V${bottom}` }),
    ...limit === null ? [] : [draw('path', { class: 'limit', d: `M0,${y(limit)}H${width}` })],
    draw('path', { class: 'now', d: `M${x},${top - 4}V${bottom}` }),
    draw('path', { class: 'span', d: `M${type === 'sliding' ? tail : middle},8V2H${type === 'sliding' ? x : width}V8` }));
  return withScale(svg, ...[-1, 0, 1].map(one => one * secondsOf(window)).map(after => clock(counts.window_start + after)));
}

/** Returns a drawing with texts below it. */
const withScale = (svg, ...texts) => make('div', null, svg, make('div', { class: 'scale' }, ...texts.map(text => make('span', null, text))));

/** Draws a count as a level below its limit. */
function drawLevel({ rate, limit, isRefused }, label) {
  const width = 300;
  const most = Math.max(limit ?? 0, rate ?? 0, 1) * 1.1;
  const x = hits => hits / most * width;
  const svg = draw('svg', { class: 'level', viewBox: `0 0 ${width} 22`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    draw('rect', { class: 'ended', x: 0, y: 4, width: limit === null ? width : x(limit), height: 14 }),
    draw('rect', { class: isRefused ? 'over' : 'fresh', x: 0, y: 4, width: x(rate ?? 0), height: 14 }),
    ...limit === null ? [] : [draw('path', { class: 'limit', d: `M${x(limit)},0V22` })]);
  return withScale(svg, '0', limit === null ? '' : `limit ${amount(limit)}`);
}

/** Lifts the bans of the shown key, and tells the result. */
async function liftBans({ namespace, key }) {
  const text = decoded(key);
  try {
    const lifted = objects(await ask(inNamespace(namespace, `/bans?key=${key}`), 'DELETE'), 'lifted');
    say(lifted.length ? `${text} is not banned any more.` : `${text} was not banned.`, 'ok');
  } catch (error) {
    say(`The ban of ${text} is not lifted. ${error.message}`, 'bad');
  }
}

/** Sets the shown key to zero, and tells the result. */
async function resetKey({ namespace, key }) {
  const text = decoded(key);
  try {
    const reset = objects(await ask(inNamespace(namespace, `/keys?key=${key}`), 'DELETE'), 'reset');
    const counters = reset.map(one => `${textOf(one.leak) ?? windowText(numberOf(one.window))} ${textOf(one.window_type) ?? ''} was ${amount(numberOf(one.rate))}`);
    say(counters.length ? `${text} is reset: ${counters.join('; ')}.` : `${text} had no hits.`, 'ok');
  } catch (error) {
    say(`${text} is not reset. ${error.message}`, 'bad');
  }
}
