// What the rows of both clients share: the cluster, which tests/cluster/clients.rs starts, tokens, and what a row is.
//
// A row is a name, what the client sees, and how it comes to see that. Rows wait for what they expect and never for time to pass;
// one that waits in vain is given up.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

const GIVE_UP = 15_000;

/** `{ url, pid }` each: two that stay, one to be stopped, and one to be killed. */
export const nodes = JSON.parse(process.env.NODES);

const closers = [];

export function row(name, sees, how) {
  test(name, { timeout: GIVE_UP }, async () => {
    try {
      assert.deepEqual(await how(), sees);
    } finally {
      for (const close of closers.splice(0)) close();
    }
  });
}

/** Does it when the row is over. */
export const afterwards = (close) => closers.push(close);

let rooms = 0;
/** A channel that no other row uses. */
export const room = () => `room:${++rooms}`;

/** A token, made as an operator makes one. */
export function token(rights = 'room:*=subscribe,publish,durable,presence', lifetime = '1h') {
  const made = ['token', '--sub', 'alice', '--channel', rights, '--expires-in', lifetime];
  return execFileSync(process.env.SWITCHBOARD, made, { encoding: 'utf8' }).trim();
}

/** Long enough to join with, short enough to wait for its end. */
export const brief = () => token(undefined, '3s');

export const everything = token();

/** Things that happen, to be waited for one by one. */
export function inbox() {
  const kept = [];
  const waiting = [];
  const put = (item) => (waiting.length > 0 ? waiting.shift()(item) : kept.push(item));
  const next = () => (kept.length > 0 ? Promise.resolve(kept.shift()) : new Promise((take) => waiting.push(take)));
  const take = async (count) => {
    const taken = [];
    while (taken.length < count) taken.push(await next());
    return taken;
  };
  return { put, next, take, waiting: () => kept };
}

/** Publishes as a service does, and answers the position. */
export async function publish(channel, event, payload) {
  const response = await fetch(`${nodes[0].url}/api/channels/${encodeURIComponent(channel)}/events`, {
    method: 'POST',
    headers: { authorization: `Bearer ${everything}`, 'content-type': 'application/json' },
    body: JSON.stringify({ event, payload }),
  });
  assert.equal(response.status, 201);
  return (await response.json()).position;
}

/** While a node neither answers nor hangs up. */
export async function frozen({ pid }, meanwhile) {
  process.kill(pid, 'SIGSTOP');
  try {
    const threads = () => readdirSync(`/proc/${pid}/task`);
    const stopped = (thread) => readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8').includes(') T ');
    while (!threads().every(stopped));
    return await meanwhile();
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

/** A transport that opens its first socket at one node, and all others at another. */
export const roaming = (WebSocket, first, then) => {
  const urls = [first.url];
  return class extends WebSocket {
    constructor(url, protocols) {
      const { host } = new URL(urls.pop() ?? then.url);
      super(Object.assign(new URL(url), { host }), protocols);
    }
  };
};

/** Metas as they were tracked, without what the server adds to them, in an order of their own. */
export const tracked = (metas) =>
  metas.map(({ phx_ref, phx_ref_prev, presence_ref, ...meta }) => JSON.stringify(meta)).sort();

export const bytes = (...values) => new Uint8Array(values).buffer;
/** What arrived as bytes, as it can be compared. */
export const readable = (payload) => (payload instanceof ArrayBuffer ? [...new Uint8Array(payload)] : payload);
