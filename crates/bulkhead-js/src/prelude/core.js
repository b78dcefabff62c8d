// The world that a plug finds is made by these files, in the order of `prelude.rs`, and kept as a snapshot.
// `bulkhead` is what they share; `plug.js` takes it away from the plug.
'use strict';
globalThis.bulkhead = (() => {
  const shared = {
    // The host functions: there only once an isolate has been made of the snapshot.
    native: null,
  };

  // An error that came from outside has no place in the plug. It is made anew where the plug waits for it, because
  // V8 then writes into its stack who waits.
  shared.renew = (outside) => {
    const kinds = { TypeError, RangeError };
    const error = new (kinds[outside?.name] ?? Error)(outside?.message ?? String(outside));
    if (outside !== null && typeof outside === 'object') {
      const { name, ...properties } = outside;
      Object.assign(error, properties);
      if (name === 'AbortError') error.name = name;
    }
    return error;
  };

  // Calls a host function that answers by a promise.
  shared.call = async (name, ...args) => {
    try {
      return await shared.native[name](...args);
    } catch (error) {
      throw shared.renew(error);
    }
  };

  shared.report = (error) => shared.native.report(shared.words(error));

  shared.words = (value) => {
    if (value instanceof Error) {
      const cause = value.cause === undefined ? '' : `\ncaused by: ${shared.words(value.cause)}`;
      return (value.stack ?? `${value.name}: ${value.message}`) + cause;
    }
    return shared.inspect(value, 0, []);
  };

  const MAX_ITEMS = 100;
  const quote = (text) => `'${text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll("'", "\\'")}'`;

  // A value in words, as console shows it.
  shared.inspect = (value, depth, above) => {
    switch (typeof value) {
      case 'string': return depth === 0 ? value : quote(value);
      case 'bigint': return `${value}n`;
      case 'function': return `[Function: ${value.name || '(anonymous)'}]`;
      case 'object': break;
      default: return String(value);
    }
    if (value === null) return 'null';
    if (value instanceof Error) return value.stack ?? String(value);
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return 'Promise {}';
    if (above.includes(value)) return '[Circular]';
    if (depth > 4) return Array.isArray(value) ? '[Array]' : '[Object]';
    const inner = (item) => shared.inspect(item, depth + 1, [...above, value]);
    if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
      const bytes = new Uint8Array(value.buffer ?? value, value.byteOffset ?? 0, Math.min(value.byteLength, 50));
      const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
      return `<${value.constructor.name} ${hex}${value.byteLength > 50 ? ' …' : ''}>`;
    }
    const some = (items) => {
      const list = Array.from(items);
      const more = list.length > MAX_ITEMS ? [`… ${list.length - MAX_ITEMS} more`] : [];
      return [...list.slice(0, MAX_ITEMS), ...more];
    };
    const listed = (open, items, close) => (items.length ? `${open} ${items.join(', ')} ${close}` : open + close);
    if (Array.isArray(value)) return listed('[', some(value).map((item, i) => (i < MAX_ITEMS ? inner(item) : item)), ']');
    if (value instanceof Map) {
      return listed(`Map(${value.size}) {`, some(value).map((item) => (Array.isArray(item) ? `${inner(item[0])} => ${inner(item[1])}` : item)), '}');
    }
    if (value instanceof Set) return listed(`Set(${value.size}) {`, some(value).map((item) => inner(item)), '}');
    const name = value.constructor?.name;
    const prefix = name && name !== 'Object' ? `${name} ` : '';
    const key = (text) => (/^[A-Za-z_$][\w$]*$/.test(text) ? text : quote(text));
    return listed(`${prefix}{`, some(Object.entries(value)).map((item) => (Array.isArray(item) ? `${key(item[0])}: ${inner(item[1])}` : item)), '}');
  };

  // The format directives of console.
  shared.format = (args) => {
    const rest = [...args];
    let text = '';
    if (typeof rest[0] === 'string' && rest[0].includes('%') && rest.length > 1) {
      text = rest.shift().replace(/%[sdifjoOc%]/g, (mark) => {
        if (mark === '%%') return '%';
        if (rest.length === 0) return mark;
        const value = rest.shift();
        switch (mark) {
          case '%d': return String(Number(value));
          case '%i': return String(Number.parseInt(value, 10));
          case '%f': return String(Number.parseFloat(value));
          case '%j': return JSON.stringify(value);
          case '%c': return '';
          case '%s': return typeof value === 'string' ? value : shared.inspect(value, 1, []);
          default: return shared.inspect(value, 1, []);
        }
      });
      if (rest.length) text += ' ';
    }
    return text + rest.map((value) => shared.inspect(value, 0, [])).join(' ');
  };

  shared.define = (names) => {
    for (const [name, value] of Object.entries(names)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    }
  };

  return shared;
})();
