// P12: a plugin that uses each part of `host` as its types say, and what they refuse.

import type { Data, FetchResponse, HostError } from '../../host.d.ts';

export async function handler(input: { city: string }): Promise<Data> {
  const secret = await host.settings.getSecret('token');
  const tag: string = host.crypto.hmac('sha256', secret, input.city);
  const bytes: Uint8Array = host.crypto.hash('sha512', new Uint8Array(2), 'bytes');
  const text: string = host.crypto.base64.decode('YQ==', 'standard', 'utf8');
  const same: boolean = host.crypto.timingSafeEqual(tag, bytes);
  const { payload } = host.crypto.jwtVerify(text, { kty: 'RSA', n: 'n', e: 'e' }, { issuer: 'me' });
  const answer: FetchResponse = await host.fetch('https://example.com', { headers: [['a', 'b']], timeoutMs: 1000 });
  const other = await host.fetch({ url: 'https://example.com', responseEncoding: 'base64' });
  host.log('a', answer, same);
  host.log.error(new Error('e'));
  const { messages } = await host.session.messages({ limit: 10 });
  await host.session.timers.set({ name: 'n', afterMs: 1000, data: { a: [1, new Date()] } });
  const { text: said } = await host.llm.complete('say');
  const { answer: verdict } = await host.decide.noul('is it?');
  const { answer: chosen, index } = await host.decide.choose({ question: 'q', options: ['a', 'b'] });
  const { entries } = await host.workspace.list();
  const { exitCode } = await host.ssh.command({ command: 'ls', timeoutMs: 2000 });
  await host.connection.send(['a', { base64: 'YQ==' }]);
  try {
    await host.agents.ask('id', 'text');
  } catch (error) {
    const code: HostError['code'] = (error as HostError).code;
    host.log(code);
  }
  return {
    payload,
    when: new Date(),
    nothing: undefined,
    rest: [other.body, messages.length, said, verdict, chosen, index, entries[0]?.path ?? null, exitCode],
  };
}

// @ts-expect-error
setTimeout(() => {}, 1);
// @ts-expect-error
console.log(1);
// @ts-expect-error
new TextEncoder();
// @ts-expect-error
host.fetch = async () => ({});
// @ts-expect-error
host.crypto.hash('md5', 'a');
// @ts-expect-error
const wrong: string = host.crypto.hash('sha256', 'a', 'bytes');
// @ts-expect-error
host.session.timers.set({ name: 'n', atMs: 1, afterMs: 1000 });
// @ts-expect-error
const map: Data = new Map();
// @ts-expect-error
[1, 2].toSorted();
void [wrong, map];
