
// Elements, tables, and numbers as text. Text of the API is only ever set as text: no function here parses HTML.

const byId = id => document.getElementById(id);

/** Sets the text of an element if it differs, so that screen readers hear only changes. */
function setText(element, text, kind) {
  if (element.textContent !== text) element.textContent = text;
  setAttribute(element, 'data-kind', kind);
}

/** Sets an attribute; removes it if the value is null, undefined or false. */
function setAttribute(element, name, value) {
  const text = value === true ? '' : value ?? false;
  if (text === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== `${text}`) element.setAttribute(name, text);
}

/** Makes an element with attributes and children: elements, or texts. */
function make(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Makes an element of a drawing. */
function draw(name, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(element, name, value);
  element.append(...children);
  return element;
}

/** Shows a message, or hides it if the text is empty. */
function tell(id, text, kind) {
  const element = byId(id);
  setText(element, text ?? '', kind);
  element.hidden = !text;
}

/** Shows the result of an action, until it is old. */
function say(text, kind) {
  tell('said', text, kind);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => tell('said', ''), 12000);
}

/**
 * A table whose rows keep their elements while their cells change, and so the focus. Columns are [label, class]. A cell is
 * a text, or an object: its `text` and `kind`; `press`, which makes it a button, `pressed` and `label`; or a `node`. Below
 * a width, its rows are blocks.
 */
class Table {
  static ROWS = 100;

  constructor(id, width, empty, ...columns) {
    Object.assign(this, { columns, empty, rows: new Map() });
    const heads = columns.map(([label, kind]) => make('th', { scope: 'col', role: 'columnheader', class: kind }, label));
    this.body = make('tbody', { role: 'rowgroup' });
    const head = make('thead', { role: 'rowgroup' }, make('tr', { role: 'row' }, ...heads));
    byId(id).setAttribute('role', 'table');
    byId(id).replaceChildren(head, this.body);
    this.show([]);
    const place = byId(id).parentElement;
    new ResizeObserver(() => byId(id).classList.toggle('stacked', place.clientWidth < width)).observe(place);
  }

  /** Shows a row for each item: `rowOf` returns its identifier and its cells. */
  show(items, rowOf) {
    const wanted = items.slice(0, Table.ROWS).map(item => {
      const [id, ...cells] = rowOf(item);
      return this.row(id, cells);
    });
    const rest = items.length - wanted.length;
    if (!wanted.length) wanted.push(this.note(this.empty));
    else if (rest) wanted.push(this.note(`${amount(rest)} more are not shown.`));
    const active = document.activeElement;
    for (const [id, row] of this.rows) if (!wanted.includes(row)) this.rows.delete(id);
    for (const row of [...this.body.children]) if (!wanted.includes(row)) row.remove();
    wanted.forEach((row, at) => {
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
    // A row that moves loses the focus.
    if (active !== document.activeElement && this.body.contains(active)) active.focus({ preventScroll: true });
  }

  row(id, cells) {
    let row = this.rows.get(id);
    if (!row) {
      const made = this.columns.map(([label, kind], at) =>
        make('td', { role: at ? 'cell' : 'rowheader', class: kind, 'data-label': label }));
      row = make('tr', { role: 'row' }, ...made);
      this.rows.set(id, row);
    }
    cells.forEach((cell, at) => Table.set(row.children[at], cell));
    return row;
  }

  note(text) {
    const cell = make('td', { role: 'cell', class: 'empty', colspan: this.columns.length }, text);
    const row = this.rows.get(this) ?? make('tr', { role: 'row' }, cell);
    this.rows.set(this, row);
    setText(row.firstChild, text);
    return row;
  }

  static set(cell, value) {
    if (value?.node) {
      if (cell.firstChild !== value.node) cell.replaceChildren(value.node);
    } else if (value?.press) {
      if (cell.firstChild?.nodeName !== 'BUTTON') cell.replaceChildren(make('button', { type: 'button' }));
      const button = cell.firstChild;
      setText(button, value.text);
      setAttribute(button, 'class', value.style);
      setAttribute(button, 'aria-pressed', value.pressed === undefined ? null : `${value.pressed}`);
      setAttribute(button, 'aria-label', value.label);
      button.onclick = value.press;
    } else {
      setText(cell, value?.text ?? value ?? '', value?.kind);
    }
  }
}

// Numbers as text. An unknown number is a dash.

const written = (number, digits) => number.toLocaleString('en-US', { maximumFractionDigits: digits });
const amount = number => number == null ? '–' : written(number, 3);
const perSecond = number => number == null ? '–' : written(number, number < 10 ? 2 : number < 1000 ? 1 : 0);
const percent = share => share == null ? '–' : `${written(share * 100, share < .1 ? 1 : 0)} %`;
const bytes = size => size == null ? '–' : size >= 1 << 20 ? `${written(size / (1 << 20), 1)} MB` : `${written(size / 1024, 0)} kB`;

/** Returns a duration in seconds as text with two digits or so. */
function duration(seconds) {
  if (seconds == null) return '–';
  const size = Math.abs(seconds);
  if (size === 0) return '0 s';
  if (size < .9995) return `${written(seconds * 1000, size < .01 ? 2 : 0)} ms`;
  if (size < 10) return `${written(seconds, 1)} s`;
  if (size < 119.5) return `${written(seconds, 0)} s`;
  for (const [unit, name, part, partName] of [[60, 'min', 1, 's'], [3600, 'h', 60, 'min'], [86400, 'd', 3600, 'h']]) {
    if (size >= unit * (unit === 3600 ? 24 : 60) && unit < 86400) continue;
    const rest = Math.floor(size % unit / part);
    return `${seconds < 0 ? '-' : ''}${Math.floor(size / unit)} ${name}${rest ? ` ${rest} ${partName}` : ''}`;
  }
}

/** Returns a Unix time as the time of this place, with the date if it is half a day away. */
function clock(time) {
  if (time == null) return '–';
  const date = new Date(time * 1000);
  if (isNaN(date)) return '–';
  const day = Math.abs(date - Date.now()) < 43200e3 ? '' : `${date.toLocaleDateString('sv-SE')} `;
  return day + date.toLocaleTimeString('en-GB');
}

/** Returns the seconds of a window, about those of one of the calendar. */
const secondsOf = window => ({ hour: 3600, day: 86400, week: 604800, month: 2678400 })[String(window).split(' ')[0]] ?? window;

/** Returns a window, such as `60 s`, in its largest whole unit; one of the calendar, such as `month`, as it is. */
function windowText(seconds) {
  if (seconds == null) return '–';
  if (typeof seconds === 'string') return seconds;
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min']];
  const [unit, name] = units.find(([unit]) => seconds >= unit && seconds % unit === 0) ?? [1, 's'];
  return `${amount(seconds / unit)} ${name}`;
}
