// URL and URLSearchParams. Parsing is the host's; these keep the pieces.
'use strict';
{
  const { bulkhead } = globalThis;
  const decode = (text) => bulkhead.native.urlDecode(text.replaceAll('+', ' '));
  const encode = (text) => bulkhead.native.urlEncode(text);
  const changed = Symbol('tells the URL that its parameters have changed');

  class URLSearchParams {
    #pairs = [];
    #owner = null;
    constructor(init = '') {
      if (init === null || typeof init !== 'object') this.#parse(String(init));
      else if (typeof init[Symbol.iterator] === 'function') {
        for (const pair of init) {
          const [name, value, ...more] = pair;
          if (value === undefined || more.length) throw new TypeError('Each query pair must be an iterable [name, value] tuple');
          this.#pairs.push([String(name), String(value)]);
        }
      } else for (const [name, value] of Object.entries(init)) this.#pairs.push([name, String(value)]);
    }
    #parse(text) {
      this.#pairs = text.replace(/^\?/, '').split('&').filter((part) => part !== '').map((part) => {
        const at = part.indexOf('=');
        return at < 0 ? [decode(part), ''] : [decode(part.slice(0, at)), decode(part.slice(at + 1))];
      });
    }
    static of(owner, text) {
      const parameters = new URLSearchParams(text);
      parameters.#owner = owner;
      return parameters;
    }
    static refill(parameters, text) { parameters.#parse(text); }
    #changed() { this.#owner?.[changed](this.toString()); }
    get size() { return this.#pairs.length; }
    append(name, value) {
      this.#pairs.push([String(name), String(value)]);
      this.#changed();
    }
    delete(name, value) {
      this.#pairs = this.#pairs.filter(([key, is]) => key !== String(name) || (value !== undefined && is !== String(value)));
      this.#changed();
    }
    get(name) { return this.#pairs.find(([key]) => key === String(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter(([key]) => key === String(name)).map(([, value]) => value); }
    has(name, value) { return this.#pairs.some(([key, is]) => key === String(name) && (value === undefined || is === String(value))); }
    set(name, value) {
      const at = this.#pairs.findIndex(([key]) => key === String(name));
      if (at < 0) this.#pairs.push([String(name), String(value)]);
      else this.#pairs = this.#pairs.filter(([key], i) => i <= at || key !== String(name)).with(at, [String(name), String(value)]);
      this.#changed();
    }
    sort() {
      this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      this.#changed();
    }
    forEach(callback, that) { for (const [name, value] of this.#pairs) callback.call(that, value, name, this); }
    *entries() { for (const [name, value] of this.#pairs) yield [name, value]; }
    *keys() { for (const [name] of this.#pairs) yield name; }
    *values() { for (const [, value] of this.#pairs) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&'); }
  }

  class URL {
    #parts;
    #search;
    constructor(url, base) {
      const parts = bulkhead.native.urlParse(String(url), base === undefined ? null : String(base));
      if (parts === null) throw Object.assign(new TypeError('Invalid URL'), { code: 'ERR_INVALID_URL', input: String(url) });
      this.#parts = parts;
      this.#search = URLSearchParams.of(this, parts.search);
    }
    static canParse(url, base) { return URL.parse(url, base) !== null; }
    static parse(url, base) {
      try {
        return new URL(url, base);
      } catch {
        return null;
      }
    }
    #set(name, value) {
      const parts = bulkhead.native.urlSet(this.#parts.href, name, String(value));
      if (parts === null) {
        if (name === 'href') throw Object.assign(new TypeError('Invalid URL'), { code: 'ERR_INVALID_URL' });
        return;
      }
      this.#parts = parts;
      if (name !== 'parameters') URLSearchParams.refill(this.#search, parts.search);
    }
    [changed](text) { this.#set('parameters', text); }
    get origin() { return this.#parts.origin; }
    get searchParams() { return this.#search; }
    toString() { return this.#parts.href; }
    toJSON() { return this.#parts.href; }
    static {
      for (const name of ['href', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        Object.defineProperty(URL.prototype, name, {
          get() { return this.#parts[name]; },
          set(value) { this.#set(name, value); },
          enumerable: true,
          configurable: true,
        });
      }
    }
  }

  // The path of a file: URL, as Node's functions take one.
  bulkhead.pathOfUrl = (url) => {
    if (url.protocol !== 'file:') throw Object.assign(new TypeError('The URL must be of scheme file'), { code: 'ERR_INVALID_URL_SCHEME' });
    return bulkhead.native.urlDecode(url.pathname);
  };
  bulkhead.define({ URL, URLSearchParams });
}
