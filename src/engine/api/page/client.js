
// Calls of the API. An answer that is not of the API is an error with a message for people.

/** The part of the paths that precedes the API's own. */
const base = `${location.pathname.replace(/\/+$/, '')}/`;

/** The time after which an answer is no longer awaited, in milliseconds. */
const PATIENCE = 10000;

/** An error with a message for people. */
class Failure extends Error {}

/** Asks the API. Returns the object that it answers; throws a Failure. */
async function ask(path, method = 'GET') {
  let response, text;
  try {
    response = await fetch(base + path, {
      method, headers: { Accept: 'application/json' }, cache: 'no-store', redirect: 'error',
      signal: AbortSignal.timeout(PATIENCE),
    });
    text = await response.text();
  } catch (error) {
    throw new Failure(error.name === 'TimeoutError'
      ? `The API has not answered within ${PATIENCE / 1000} s.`
      : 'The API does not answer: nginx may be down, or the connection is lost.');
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = undefined;
  }
  if (!response.ok) {
    const why = { 401: 'it asks for a password', 403: 'access is forbidden', 404: 'there is no such thing' }[response.status];
    const said = typeof answer?.error === 'string' ? answer.error : why ?? 'it gives no reason';
    throw new Failure(`The API refuses (status ${response.status}): ${said}.`);
  }
  if (answer === undefined) throw new Failure('The answer is not JSON: it is truncated, or not from this API.');
  if (typeof answer !== 'object' || !answer) throw foreign();
  return answer;
}

const foreign = () => new Failure('The answer is JSON, but not from this API.');

/** Returns a member that must be an array of objects. */
function objects(answer, name) {
  const array = answer[name];
  if (!Array.isArray(array) || array.some(item => typeof item !== 'object' || !item)) throw foreign();
  return array;
}

/** Returns the text, or null if the value is none. */
const textOf = value => typeof value === 'string' ? value : null;

/** Returns the number, or null if the value is none. */
/** Returns a window: its seconds, or the text of one of the calendar. */
const windowOf = value => textOf(value) || numberOf(value);
const numberOf = value => typeof value === 'number' && isFinite(value) ? value : null;

/** Returns the path of a namespace, and of what is below it. */
const inNamespace = (name, rest = '') => `namespaces/${encodeURIComponent(name)}${rest}`;

/** Returns an encoded key without bytes that would end it in a query. */
const inQuery = key => key.replace(/[&#+\s]/g, encodeURIComponent);

/** Returns an encoded key as text; as it is if its bytes are no text. */
function decoded(key) {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}

/** Returns a limit in words, such as `100 per 60 s, sliding`. */
function limitText(limit) {
  const hits = numberOf(limit.limit);
  const burst = numberOf(limit.burst) ? `, burst ${amount(limit.burst)}` : '';
  return `${hits == null ? 'a variable' : amount(hits)} per ${windowText(windowOf(limit.window))}, ${textOf(limit.window_type) ?? '–'}${burst}`;
}

/** Reads the answer about a node. Members that are missing are null. */
function readNode(answer) {
  if (textOf(answer.version) === null) throw foreign();
  const named = name => objects(answer, name).filter(item => textOf(item.name) !== null);
  const numbers = (from, ...names) => Object.fromEntries(names.map(name => [name, numberOf(from?.[name])]));
  return {
    version: answer.version, nginx: textOf(answer.nginx), write: answer.write === true,
    ...numbers(answer, 'time', 'loaded_at'),
    zones: named('zones').map(zone => ({
      name: zone.name, ...numbers(zone, 'size', 'keys', 'capacity'), ...numbers(zone.evicted, 'ended', 'sent', 'unsent'),
    })),
    namespaces: named('namespaces').map(space => ({
      name: space.name, zone: textOf(space.zone), store: textOf(space.store),
      sync_rate: space.sync_rate === 'off' ? 'off' : numberOf(space.sync_rate),
      ...numbers(space, 'keys', 'hits'), ...numbers(space.requests, 'passed', 'rejected', 'rejected_dry_run', 'error'),
      last_result: textOf(space.sync?.last_result),
      ...numbers(space.sync, 'last_at', 'last_success', 'duration', 'pushed_keys', 'fetched_keys', 'pending_keys', 'dropped_hits', 'excess_hits', 'nodes'),
    })),
    stores: named('stores').map(store => ({
      name: store.name, strategy: textOf(store.strategy), up: typeof store.up === 'boolean' ? store.up : null,
      ...numbers(store, 'clock_offset', 'connects', 'exchanges', 'exchange_seconds'),
    })),
  };
}
