// console, structuredClone and the little of crypto that needs no keys.
'use strict';
{
  const { bulkhead } = globalThis;
  const counts = new Map();
  const times = new Map();
  let indent = '';
  const say = (level, args) => bulkhead.native.log(level, `${indent}${bulkhead.format(args)}`.replaceAll('\n', `\n${indent}`));
  bulkhead.say = say;

  const console = {
    log: (...args) => say('info', args),
    info: (...args) => say('info', args),
    debug: (...args) => say('debug', args),
    warn: (...args) => say('warn', args),
    error: (...args) => say('error', args),
    trace: (...args) => say('debug', [`Trace: ${bulkhead.format(args)}\n${new Error().stack.split('\n').slice(2).join('\n')}`]),
    dir: (value) => say('info', [bulkhead.inspect(value, 1, [])]),
    table: (value) => say('info', [value]),
    assert: (holds, ...args) => {
      if (!holds) say('error', [`Assertion failed${args.length ? ':' : ''}`, ...args]);
    },
    group: (...args) => {
      if (args.length) say('info', args);
      indent += '  ';
    },
    groupEnd: () => { indent = indent.slice(2); },
    count: (label = 'default') => {
      counts.set(label, (counts.get(label) ?? 0) + 1);
      say('info', [`${label}: ${counts.get(label)}`]);
    },
    countReset: (label = 'default') => { counts.delete(label); },
    time: (label = 'default') => { times.set(label, bulkhead.native.now()); },
    timeLog: (label = 'default', ...args) => {
      if (times.has(label)) say('info', [`${label}: ${(bulkhead.native.now() - times.get(label)).toFixed(3)}ms`, ...args]);
    },
    timeEnd: (label = 'default') => {
      console.timeLog(label);
      times.delete(label);
    },
  };
  console.groupCollapsed = console.group;

  const refuse = (value) => new DOMException(`${bulkhead.inspect(value, 1, [])} could not be cloned.`, 'DataCloneError');
  const clone = (value, seen) => {
    if (typeof value === 'function' || typeof value === 'symbol') throw refuse(value);
    if (value === null || typeof value !== 'object') return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => {
      seen.set(value, copy);
      return copy;
    };
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Boolean || value instanceof Number || value instanceof String) return keep(Object(value.valueOf()));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (value instanceof DataView) return keep(new DataView(clone(value.buffer, seen), value.byteOffset, value.byteLength));
    if (ArrayBuffer.isView(value)) {
      const kind = value instanceof Uint8Array ? Uint8Array : value.constructor;
      return keep(new kind(clone(value.buffer, seen), value.byteOffset, value.length));
    }
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [key, item] of value) copy.set(clone(key, seen), clone(item, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const item of value) copy.add(clone(item, seen));
      return copy;
    }
    if (value instanceof Error) {
      const kinds = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
      const copy = keep(new (kinds[value.name] ?? Error)(value.message));
      copy.stack = value.stack;
      if ('cause' in value) copy.cause = clone(value.cause, seen);
      return copy;
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) throw refuse(value);
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  };

  bulkhead.define({
    console,
    structuredClone: (value) => clone(value, new Map()),
    crypto: {
      getRandomValues: (array) => {
        const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
        if (bytes.length > 65536) throw new DOMException('at most 65536 bytes at once', 'QuotaExceededError');
        bytes.set(bulkhead.native.random(bytes.length));
        return array;
      },
      randomUUID: () => {
        const bytes = bulkhead.native.random(16);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        const hex = Buffer.from(bytes).toString('hex');
        return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
      },
    },
  });
}
