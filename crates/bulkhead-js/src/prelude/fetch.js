// fetch, from the runner: a plug is the runner owner's own code.
'use strict';
{
  const { bulkhead } = globalThis;
  const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

  class Headers {
    #list = [];
    constructor(init) {
      if (init === undefined || init === null) return;
      const pairs = typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init);
      for (const [name, value] of pairs) this.append(name, value);
    }
    #key(name) {
      if (!TOKEN.test(name)) throw new TypeError(`Header name must be a valid HTTP token ["${name}"]`);
      return String(name).toLowerCase();
    }
    append(name, value) { this.#list.push([this.#key(name), String(value).trim()]); }
    delete(name) { this.#list = this.#list.filter(([key]) => key !== this.#key(name)); }
    set(name, value) {
      this.delete(name);
      this.append(name, value);
    }
    has(name) { return this.#list.some(([key]) => key === this.#key(name)); }
    get(name) {
      const found = this.#list.filter(([key]) => key === this.#key(name)).map(([, value]) => value);
      return found.length ? found.join(', ') : null;
    }
    getSetCookie() { return this.#list.filter(([key]) => key === 'set-cookie').map(([, value]) => value); }
    forEach(callback, that) { for (const [name, value] of this) callback.call(that, value, name, this); }
    *entries() {
      for (const name of [...new Set(this.#list.map(([key]) => key))].sort()) {
        if (name === 'set-cookie') for (const value of this.getSetCookie()) yield [name, value];
        else yield [name, this.get(name)];
      }
    }
    *keys() { for (const [name] of this.entries()) yield name; }
    *values() { for (const [, value] of this.entries()) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    static {
      bulkhead.headerList = (headers) => headers.#list;
    }
  }

  // Bytes and the type that they have by themselves.
  const bodyOf = (body) => {
    if (body === undefined || body === null) return [null, null];
    if (typeof body === 'string') return [bulkhead.toBytes(body), 'text/plain;charset=UTF-8'];
    if (body instanceof URLSearchParams) return [bulkhead.toBytes(body.toString()), 'application/x-www-form-urlencoded;charset=UTF-8'];
    if (ArrayBuffer.isView(body) || body instanceof ArrayBuffer) return [bulkhead.toBytes(body), null];
    throw new TypeError('a body is text, bytes or URLSearchParams');
  };

  class Body {
    #stream;
    #used = false;
    constructor(stream) { this.#stream = stream; }
    get body() { return this.#stream; }
    get bodyUsed() { return this.#used; }
    async #take() {
      if (this.#used) throw new TypeError('Body is unusable: Body has already been read');
      this.#used = true;
      return this.#stream === null ? Buffer.alloc(0) : this.#stream.bytes();
    }
    async bytes() { return new Uint8Array(await this.#take()); }
    async arrayBuffer() { return (await this.bytes()).buffer; }
    async text() { return new TextDecoder().decode(await this.#take()); }
    async json() { return JSON.parse(await this.text()); }
  }

  const onceReadable = (bytes) => {
    let rest = bytes;
    return new bulkhead.Readable(async () => {
      const next = rest;
      rest = null;
      return next;
    });
  };

  class Response extends Body {
    constructor(body = null, { status = 200, statusText = '', headers } = {}) {
      const [bytes, type] = body instanceof bulkhead.Readable ? [body, null] : bodyOf(body);
      super(bytes === null || bytes instanceof bulkhead.Readable ? bytes : onceReadable(bytes));
      this.status = status;
      this.statusText = statusText;
      this.headers = new Headers(headers);
      if (type !== null && !this.headers.has('content-type')) this.headers.set('content-type', type);
      this.url = '';
      this.redirected = false;
      this.type = 'default';
    }
    get ok() { return this.status >= 200 && this.status < 300; }
    static json(data, init = {}) {
      const response = new Response(JSON.stringify(data), init);
      response.headers.set('content-type', 'application/json');
      return response;
    }
  }

  class Request extends Body {
    constructor(input, init = {}) {
      const from = input instanceof Request ? input : {};
      const [bytes, type] = bodyOf(init.body ?? from.bodyBytes);
      super(bytes === null ? null : onceReadable(bytes));
      this.url = new URL(input instanceof Request ? input.url : String(input)).href;
      this.method = String(init.method ?? from.method ?? 'GET').toUpperCase();
      this.headers = new Headers(init.headers ?? from.headers);
      this.redirect = init.redirect ?? from.redirect ?? 'follow';
      this.signal = init.signal ?? from.signal ?? null;
      this.bodyBytes = bytes;
      if (type !== null && !this.headers.has('content-type')) this.headers.set('content-type', type);
      if (bytes !== null && (this.method === 'GET' || this.method === 'HEAD')) throw new TypeError('Request with GET/HEAD method cannot have body');
    }
  }

  let next = 1;
  const fetch = async (input, init) => {
    const request = new Request(input, init);
    const id = next++;
    const sent = bulkhead.call('fetch', id, {
      method: request.method,
      url: request.url,
      headers: bulkhead.headerList(request.headers),
      body: request.bodyBytes,
      redirect: request.redirect,
    });
    let answer;
    try {
      answer = await bulkhead.abortable(request.signal, sent, () => bulkhead.native.fetchStop(id));
    } catch (error) {
      if (request.signal?.aborted) throw error;
      throw Object.assign(new TypeError('fetch failed'), { cause: error });
    }
    const stream = bulkhead.readableOf(answer.body);
    request.signal?.addEventListener('abort', () => stream.destroy(request.signal.reason), { once: true });
    const response = new Response(stream, answer);
    response.url = answer.url;
    response.redirected = answer.redirected;
    response.type = 'basic';
    return response;
  };

  bulkhead.define({ Headers, Request, Response, fetch });
}
