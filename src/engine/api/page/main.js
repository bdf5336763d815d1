
// The poll of the API, and the controls of the page.

/** The number of namespaces whose limited keys are asked for in a poll: those that rejected most lately. */
const ASKED = 16;

let node = null;
let limited = [];
let received = 0;
let isPaused = false;
let timer, polling;

/** Returns the node's time now, in Unix seconds. */
const nodeTime = () => node?.time == null ? Date.now() / 1000 : node.time + (performance.now() - received) / 1000;

/** Polls everything that is shown. Each part that fails says so, and the others go on. */
async function poll() {
  try {
    const answer = readNode(await ask('?all=1'));
    received = performance.now();
    if (answer.time === null) throw foreign();
    node = answer;
    remember(node);
  } catch (error) {
    return fail(error);
  }
  tell('problem', '');
  offerNamespaces();
  const part = async (id, shows) => {
    try {
      await shows();
      tell(id, '');
    } catch (error) {
      if (!(error instanceof Failure)) console.error(error);
      tell(id, error instanceof Failure ? error.message : 'The answer cannot be shown.');
    }
  };
  const chosen = byId('namespace').value;
  await Promise.all([
    part('limited-problem', async () => { limited = await askLimited(askedNamespaces(chosen), nodeTime(), node.loaded_at); }),
    part('rules-problem', () => showRules(chosen ? [chosen] : node.namespaces.slice(0, ASKED).map(space => space.name), node.loaded_at)),
    part('key-problem', () => showKey(node.loaded_at, nodeTime())),
  ]);
  show();
}

/** Returns the namespaces whose limited keys are asked for. */
function askedNamespaces(chosen) {
  if (chosen) return [chosen];
  const recent = space => histories.namespaces.get(space.name).growth('rejected');
  const rejecting = node.namespaces.filter(space => space.rejected + space.rejected_dry_run > 0);
  return rejecting.sort((a, b) => recent(b) - recent(a)).slice(0, ASKED).map(space => space.name);
}

/** Shows what was polled. */
function show() {
  const now = nodeTime();
  const nginx = node.nginx ? `, nginx ${node.nginx}` : '';
  setText(byId('node'), `${location.host}, module ${node.version}${nginx}${node.loaded_at === null ? '' : `, configured ${duration(now - node.loaded_at)} ago`}`);
  for (const entry of limited) entry.isLimited &&= entry.until === null || entry.until > now;
  showTiles(node, limited.filter(entry => entry.isLimited).length);
  showTraffic();
  showNamespaces(node, chooseNamespace);
  showLimited(limited, now, openKey);
  showZones(node);
  showStores(node);
  showSyncs(node);
  setText(byId('rules-of'), byId('namespace').value ? `of ${byId('namespace').value}` : node.namespaces.length > ASKED ? `of the first ${ASKED} namespaces` : 'of all namespaces');
  byId('reset').hidden = !(node.write && shownKey);
  byId('lift').hidden = !(node.write && shownKey?.isBanned);
  showLive();
}

function showLive() {
  const isDown = node?.stores.some(store => store.up === false);
  setText(byId('live'), isPaused ? 'paused' : isDown ? 'store down' : `live, ${clock(node.time)}`, isPaused ? 'muted' : isDown ? 'bad' : 'ok');
}

/** Shows that the node's state is unknown. */
function fail(error) {
  if (!(error instanceof Failure)) console.error(error);
  const message = error instanceof Failure ? error.message : 'The answer cannot be shown.';
  const since = node ? ` The numbers below are of ${clock(node.time)}.` : '';
  tell('problem', `${message}${since} The page asks again.`);
  setText(byId('live'), 'no data', 'bad');
}

/** Polls now, and then again and again. */
async function go() {
  clearTimeout(timer);
  // A poll that is under way is followed by another.
  const mine = polling = (polling ?? Promise.resolve()).then(poll).catch(fail);
  await mine;
  if (mine !== polling) return;
  clearTimeout(timer);
  if (!isPaused) timer = setTimeout(go, Number(byId('interval').value) * 1000);
}

/** Offers the namespaces of the node in the two lists. */
function offerNamespaces() {
  for (const [id, first] of [['namespace', ['']], ['key-namespace', []]]) {
    const list = byId(id);
    const names = [...first, ...node.namespaces.map(space => space.name)];
    if (names.length === list.options.length && names.every((name, at) => list.options[at].value === name)) continue;
    const value = list.value || settings.get(id === 'namespace' ? 'in' : 'ns');
    list.replaceChildren(...names.map(name => make('option', { value: name }, name || 'all')));
    list.value = names.includes(value) ? value : names[0] ?? '';
  }
}

function chooseNamespace(name) {
  byId('namespace').value = name;
  if (name) byId('key-namespace').value = name;
  remind();
  go();
}

/** Shows a key, whose bytes are encoded as in a query. */
function openKey(key) {
  shownKey = key;
  byId('key').value = decoded(key.key);
  byId('key-namespace').value = key.namespace;
  byId('windows').replaceChildren();
  byId('others-part').hidden = true;
  setText(byId('verdict'), `Asking for ${decoded(key.key)}.`);
  remind();
  go();
  const motion = matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth';
  byId('key-section').scrollIntoView({ block: 'nearest', behavior: motion });
}

function openTypedKey() {
  const [namespace, text] = [byId('key-namespace').value, byId('key').value];
  if (!namespace || !text) return tell('key-problem', 'Type a key first.');
  // The bytes of a key that is shown may be no text.
  const key = shownKey && decoded(shownKey.key) === text ? shownKey.key : encodeURIComponent(text);
  openKey({ namespace, key });
}

/** The state in the address, so that it can be passed on: the chosen namespace, and the key. */
const settings = new URLSearchParams(location.hash.slice(1));

function remind() {
  const state = new URLSearchParams();
  if (byId('namespace').value) state.set('in', byId('namespace').value);
  if (shownKey) state.set('ns', shownKey.namespace), state.set('key', shownKey.key);
  history.replaceState(null, '', `#${state}`);
}

/** Keeps the colours where the browser allows it. */
function setTheme(theme) {
  setAttribute(document.documentElement, 'data-theme', theme || null);
  try {
    if (theme !== undefined) localStorage.setItem('ratelimit-theme', theme);
    else byId('theme').value = localStorage.getItem('ratelimit-theme') ?? '';
  } catch {
    // Without storage, the choice lasts as long as the page.
  }
  if (theme === undefined && byId('theme').value) setTheme(byId('theme').value);
}

byId('theme').onchange = () => setTheme(byId('theme').value);
byId('interval').onchange = go;
byId('namespace').onchange = () => chooseNamespace(byId('namespace').value);
byId('recent').onchange = () => node && showLimited(limited, nodeTime(), openKey);
byId('show').onclick = openTypedKey;
byId('key').onkeydown = event => { if (event.key === 'Enter') openTypedKey(); };
byId('pause').onclick = () => {
  isPaused = !isPaused;
  setAttribute(byId('pause'), 'aria-pressed', `${isPaused}`);
  if (isPaused) clearTimeout(timer);
  else go();
  if (node) showLive();
};
byId('lift').onclick = async () => {
  await liftBans(shownKey);
  go();
};
byId('reset').onclick = () => {
  setText(byId('confirm-key'), decoded(shownKey.key));
  setText(byId('confirm-namespace'), shownKey.namespace);
  byId('confirm').showModal();
};
byId('cancel').onclick = () => byId('confirm').close();
byId('do-reset').onclick = async () => {
  byId('confirm').close();
  await resetKey(shownKey);
  go();
};
new ResizeObserver(() => node && showTraffic()).observe(byId('traffic'));

setTheme();
if (settings.get('key') && settings.get('ns')) {
  shownKey = { namespace: settings.get('ns'), key: inQuery(settings.get('key')) };
  byId('key').value = decoded(shownKey.key);
}
go();
