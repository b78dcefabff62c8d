// Streams of bytes: of processes, files, connections and answers. What they are called and do follows Node, as far
// as a plug needs it: they can be iterated, they emit events, and they give all of themselves at once.
'use strict';
{
  const { bulkhead } = globalThis;
  const { EventEmitter } = bulkhead;
  const CHUNK = 65536;

  class Readable extends EventEmitter {
    #pull;
    #close;
    #encoding = null;
    #decoder = null;
    #flowing = false;
    #taken = false;
    destroyed = false;
    readableEnded = false;
    errored = null;

    // `pull` gives the next bytes, or null at the end; `close` gives up what is left.
    constructor(pull, close = () => {}) {
      super();
      this.#pull = pull;
      this.#close = close;
    }

    get readable() { return !this.destroyed && !this.readableEnded; }

    setEncoding(encoding) {
      this.#encoding = bulkhead.encodingOf(encoding);
      this.#decoder = this.#encoding === 'utf8' ? new TextDecoder() : null;
      return this;
    }

    async #next() {
      if (this.destroyed) {
        if (this.errored) throw this.errored;
        return null;
      }
      const bytes = await this.#pull();
      if (bytes === null || bytes === undefined) {
        this.readableEnded = true;
        const rest = this.#decoder?.decode() ?? '';
        this.#decoder = null;
        return rest === '' ? null : rest;
      }
      const chunk = Buffer.view(bytes);
      if (this.#decoder) return this.#decoder.decode(chunk, { stream: true });
      return this.#encoding ? chunk.toString(this.#encoding) : chunk;
    }

    async *[Symbol.asyncIterator]() {
      this.#taken = true;
      try {
        for (let chunk = await this.#next(); chunk !== null; chunk = await this.#next()) yield chunk;
      } finally {
        this.destroy();
      }
    }

    on(name, listener) {
      super.on(name, listener);
      if (name === 'data') this.resume();
      return this;
    }

    resume() {
      if (this.#flowing || this.#taken) return this;
      this.#flowing = true;
      (async () => {
        try {
          for (let chunk = await this.#next(); chunk !== null; chunk = await this.#next()) this.emit('data', chunk);
          this.emit('end');
        } catch (error) {
          this.errored = error;
          this.emit('error', error);
        }
        this.destroy();
      })();
      return this;
    }

    // All that is left, as bytes.
    async bytes() {
      const chunks = [];
      for await (const chunk of this) chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
      return Buffer.concat(chunks);
    }

    async text() { return new TextDecoder().decode(await this.bytes()); }
    async json() { return JSON.parse(await this.text()); }

    // Line by line, without their ends.
    async *lines() {
      let rest = '';
      const decoder = new TextDecoder();
      for await (const chunk of this) {
        const lines = (rest + (typeof chunk === 'string' ? chunk : decoder.decode(chunk, { stream: true }))).split('\n');
        rest = lines.pop();
        for (const line of lines) yield line.endsWith('\r') ? line.slice(0, -1) : line;
      }
      rest += decoder.decode();
      if (rest !== '') yield rest;
    }

    // Writes all that is left, as fast as it is taken.
    async pipeTo(target, { end = true } = {}) {
      for await (const chunk of this) await target.write(chunk);
      if (end) await target.end();
    }

    // As Node's: errors are events, of this stream where reading failed.
    pipe(target, options) {
      this.pipeTo(target, options).catch((error) => {
        if (!target.errored) this.emit('error', error);
      });
      return target;
    }

    destroy(error) {
      if (this.destroyed) return this;
      this.destroyed = true;
      this.errored = error ?? this.errored;
      Promise.resolve(this.#close()).catch((failed) => { this.errored ??= failed; }).then(() => {
        if (error) this.emit('error', error);
        this.emit('close');
      });
      return this;
    }
    close(callback) {
      if (callback) this.once('close', callback);
      this.destroy();
    }
    async [Symbol.asyncDispose]() { this.destroy(); }
  }

  class Writable extends EventEmitter {
    #push;
    #finish;
    #last = Promise.resolve();
    #waiting = 0;
    writableEnded = false;
    writableFinished = false;
    destroyed = false;
    errored = null;

    // `push` writes bytes, `finish` says that there are no more. One after the other.
    constructor(push, finish = () => {}) {
      super();
      this.#push = push;
      this.#finish = finish;
    }

    get writable() { return !this.destroyed && !this.writableEnded; }

    #then(step) {
      const done = this.#last.then(step);
      this.#last = done.catch(() => {});
      return done;
    }

    // As Node's, and besides it gives a promise of the write's end. An error nobody awaits is an event.
    write(data, encodingOrCallback, callback) {
      const encoding = typeof encodingOrCallback === 'string' ? encodingOrCallback : undefined;
      const tell = typeof encodingOrCallback === 'function' ? encodingOrCallback : callback;
      if (this.writableEnded) {
        const error = Object.assign(new Error('write after end'), { code: 'ERR_STREAM_WRITE_AFTER_END' });
        tell?.(error);
        return this.#outcome(Promise.reject(error));
      }
      const bytes = bulkhead.toBytes(data, encoding);
      this.#waiting += bytes.length;
      const done = this.#then(async () => {
        for (let at = 0; at < bytes.length; at += CHUNK) await this.#push(bytes.subarray(at, at + CHUNK));
        this.#waiting -= bytes.length;
        if (this.#waiting === 0) this.emit('drain');
      });
      if (tell) done.then(() => tell(null), tell);
      return this.#outcome(done);
    }

    end(data, encodingOrCallback, callback) {
      const tell = [data, encodingOrCallback, callback].find((one) => typeof one === 'function');
      const encoding = typeof encodingOrCallback === 'string' ? encodingOrCallback : undefined;
      if (data !== undefined && data !== null && typeof data !== 'function') this.write(data, encoding);
      this.writableEnded = true;
      const done = this.#then(async () => {
        if (this.errored) throw this.errored;
        await this.#finish();
        this.writableFinished = true;
        this.emit('finish');
        this.emit('close');
      });
      if (tell) done.then(() => tell(null), tell);
      return this.#outcome(done);
    }

    #outcome(done) {
      done.catch((error) => {
        this.errored ??= error;
        if (this.listenerCount('error')) this.emit('error', error);
      });
      return done;
    }

    destroy(error) {
      if (this.destroyed) return this;
      this.destroyed = true;
      this.writableEnded = true;
      this.errored ??= error ?? null;
      this.#then(() => this.#finish()).catch(() => {}).then(() => {
        if (error) this.emit('error', error);
        this.emit('close');
      });
      return this;
    }
    close(callback) {
      if (callback) this.once('close', callback);
      if (!this.writableEnded) this.end().catch(() => {});
    }
    async [Symbol.asyncDispose]() { if (!this.writableEnded) await this.end(); }
  }

  bulkhead.readableOf = (id) => new Readable(
    () => bulkhead.call('streamRead', id, CHUNK),
    () => bulkhead.call('streamDrop', id),
  );
  bulkhead.writableOf = (id) => new Writable(
    (bytes) => bulkhead.call('streamWrite', id, bytes),
    () => bulkhead.call('streamEnd', id),
  );
  Object.assign(bulkhead, { Readable, Writable, CHUNK });
}
