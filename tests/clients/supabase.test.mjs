// What npm `@supabase/realtime-js` sees of a cluster, row by row.
import { RealtimeClient } from '@supabase/realtime-js';
import WebSocket from 'ws';
import {
  brief, bytes, everything, afterwards, frozen, inbox, nodes, publish, readable, roaming, room, row, token, tracked,
} from './cluster.mjs';

console.warn = () => {}; // `send` warns of falling back to REST, which is what some rows are about

/** A client of one node. */
function connect({ node = 0, apikey = everything, ...options } = {}) {
  const again = { reconnectAfterMs: () => 20 };
  const client = new RealtimeClient(`${nodes[node].url}/realtime/v1`, {
    transport: WebSocket, params: { apikey }, ...again, ...options,
  });
  afterwards(() => client.disconnect());
  return client;
}

/** What `subscribe` reports, one after the other: a status, or of an error its reason. */
function statuses(channel) {
  const box = inbox();
  channel.subscribe((status, error) => box.put(error ? [status, error.cause?.reason ?? error.message] : status));
  return box;
}
const subscribe = (client, topic, config = {}) => statuses(client.channel(topic, { config })).next();

async function subscribed(client, topic, config = {}) {
  const channel = client.channel(topic, { config });
  await new Promise((resolve) => channel.subscribe((status) => status === 'SUBSCRIBED' && resolve()));
  return channel;
}

/** Broadcasts: what they say, and `meta` where they have some. */
function heard(channel, event = '*') {
  const box = inbox();
  channel.on('broadcast', { event }, ({ type, event, payload, meta }) =>
    box.put([type, event, readable(payload), ...(meta ? [meta] : [])]));
  return box;
}

const send = (channel, event, payload, options) => channel.send({ type: 'broadcast', event, payload }, options);
const durable = (channel, event, payload) => channel.send({ type: 'publish', event, payload, durable: true });

/** A subscriber on each of two nodes. */
async function pair(config, options) {
  const topic = room();
  return [await subscribed(connect(options), topic, config), await subscribed(connect({ node: 1, ...options }), topic, config)];
}

/** Somebody who sees who is there: every change, and everybody once it is who `enough` waits for. */
async function attend(client, topic, key) {
  const channel = client.channel(topic, { config: { presence: { key } } });
  const syncs = inbox();
  const changes = inbox();
  channel.on('presence', { event: 'sync' }, syncs.put);
  for (const [event, which] of [['join', 'newPresences'], ['leave', 'leftPresences']]) {
    channel.on('presence', { event }, (change) => changes.put([event, change.key, tracked(change[which])]));
  }
  const present = async (enough) => {
    for (;;) {
      const state = Object.entries(channel.presenceState());
      const all = Object.fromEntries(state.map(([key, metas]) => [key, tracked(metas)]));
      if (enough(all)) return all;
      await syncs.next();
    }
  };
  channel.subscribe();
  await syncs.next(); // of everybody who was there before
  return { channel, changes, present };
}

// Subscribing

for (const vsn of ['1.0.0', '2.0.0']) {
  row(`a channel is subscribed (${vsn})`, 'SUBSCRIBED', () => subscribe(connect({ vsn }), room()));
  row(`a channel without the right is not (${vsn})`, ['CHANNEL_ERROR', 'forbidden'], () => subscribe(connect({ vsn }), 'secret:1'));
}
row('a private channel is subscribed with the right', 'SUBSCRIBED', () => subscribe(connect(), room(), { private: true }));
row('a private channel without the right is not', ['CHANNEL_ERROR', 'forbidden'], () =>
  subscribe(connect(), 'secret:1', { private: true }));
row('a channel says when it is ready', ['system', 'ok', 'Subscribed'], () => {
  const channel = connect().channel(room());
  const system = new Promise((resolve) =>
    channel.on('system', {}, ({ extension, status, message }) => resolve([extension, status, message])));
  channel.subscribe();
  return system;
});
row('changes of tables are refused', ['CHANNEL_ERROR', 'postgres_changes_unsupported'], () => {
  const channel = connect().channel(room());
  channel.on('postgres_changes', { event: '*', schema: 'public' }, () => {});
  return statuses(channel).next();
});
row('an apikey that is no token subscribes nothing', 'CHANNEL_ERROR', async () =>
  (await subscribe(connect({ apikey: 'x.y.z' }), room()))[0]);
row('a subscription that is not answered times out, is repeated and succeeds', ['TIMED_OUT', 'SUBSCRIBED'], async () => {
  const client = connect({ node: 1 });
  await subscribed(client, room()); // the socket is open
  const box = inbox();
  const first = await frozen(nodes[1], () => {
    client.channel(room()).subscribe(box.put, 100);
    return box.next();
  });
  return [first, await box.next()];
});
row('a channel that is left is closed', ['CLOSED', 'ok'], async () => {
  const channel = connect().channel(room());
  const box = statuses(channel);
  await box.next();
  const left = channel.unsubscribe();
  return [await box.next(), await left];
});
row('all channels are removed at once', [['ok', 'ok'], 0], async () => {
  const client = connect();
  for (const topic of [room(), room()]) await subscribed(client, topic);
  return [await client.removeAllChannels(), client.getChannels().length];
});
row('heartbeats are answered', ['sent', 'ok', 'sent', 'ok'], async () => {
  const beats = inbox();
  await subscribed(connect({ heartbeatIntervalMs: 300, heartbeatCallback: beats.put }), room());
  return beats.take(4);
});
row('a heartbeat that is not answered opens another socket, and subscribes again', ['timeout', 'SUBSCRIBED'], async () => {
  const timeout = inbox();
  const client = connect({
    node: 1, heartbeatIntervalMs: 300, heartbeatCallback: (status) => status === 'timeout' && timeout.put(status),
  });
  const box = statuses(client.channel(room()));
  await box.next();
  const seen = await frozen(nodes[1], timeout.next);
  while ((await box.next()) !== 'SUBSCRIBED');
  return [seen, 'SUBSCRIBED'];
});

// Broadcasts

for (const vsn of ['1.0.0', '2.0.0']) {
  row(`a broadcast is seen on another node (${vsn})`, ['ok', ['broadcast', 'hello', { x: 1, text: 'ä€𝄞' }]], async () => {
    const [one, other] = await pair({}, { vsn });
    const box = heard(other);
    return [await send(one, 'hello', { x: 1, text: 'ä€𝄞' }), await box.next()];
  });
}
row('bytes arrive as bytes', ['broadcast', 'hello', [0, 127, 255]], async () => {
  const [one, other] = await pair();
  const box = heard(other);
  await send(one, 'hello', bytes(0, 127, 255));
  return box.next();
});
row('bytes arrive as JSON where there are none (1.0.0)', ['broadcast', 'hello', { '$switchboard:base64': 'AH//' }], async () => {
  const topic = room();
  const one = await subscribed(connect(), topic);
  const box = heard(await subscribed(connect({ vsn: '1.0.0' }), topic));
  await send(one, 'hello', bytes(0, 127, 255));
  return box.next();
});
row('broadcasts arrive in order, and only those that were asked for', [1, 3, 5, 7, 9], async () => {
  const [one, other] = await pair();
  const box = heard(other, 'odd');
  for (let n = 0; n < 10; n++) send(one, n % 2 ? 'odd' : 'even', n);
  return (await box.take(5)).map(([, , payload]) => payload);
});
for (const [self, sees] of [[false, ['theirs']], [true, ['mine', 'theirs']]]) {
  row(`a broadcast of one's own ${self ? 'comes back with' : 'does not come back without'} self`, sees, async () => {
    const [one, other] = await pair({ broadcast: { self } });
    const [back, there] = [heard(one), heard(other)];
    await send(one, 'hello', 'mine');
    await there.next();
    await send(other, 'hello', 'theirs');
    return (await back.take(sees.length)).map(([, , payload]) => payload);
  });
}
const ack = { broadcast: { ack: true } };
const listener = token('room:*=subscribe');
row('with ack a broadcast is answered', 'ok', async () => send(await subscribed(connect(), room(), ack), 'hello', {}));
row('with ack a broadcast without the right is an error', 'error', async () =>
  send(await subscribed(connect({ apikey: listener }), room(), ack), 'hello', {}));
row('with ack a broadcast that is too large is an error', 'error', async () =>
  send(await subscribed(connect(), room(), ack), 'hello', 'x'.repeat(65_536)));
row('with ack a broadcast that is not answered times out', ['timed out', 'ok'], async () => {
  const channel = await subscribed(connect({ node: 1 }), room(), ack);
  const seen = await frozen(nodes[1], () => send(channel, 'hello', {}, { timeout: 100 }));
  return [seen, await send(channel, 'hello', {})];
});

// By HTTP

row('httpSend delivers JSON', [{ success: true }, ['broadcast', 'a/b', { n: 1 }]], async () => {
  const [one, other] = await pair();
  const box = heard(other);
  return [await one.httpSend('a/b', { n: 1 }), await box.next()];
});
row('httpSend delivers bytes', [{ success: true }, ['broadcast', 'hello', [0, 127, 255]]], async () => {
  const [one, other] = await pair();
  const box = heard(other);
  return [await one.httpSend('hello', bytes(0, 127, 255)), await box.next()];
});
row('httpSend without the right is refused', 'this needs the right `publish` in this channel', () =>
  connect({ apikey: listener }).channel(room()).httpSend('hello', {}).catch((error) => error.message));
row('send without a subscription goes by HTTP', ['ok', ['broadcast', 'hello', { n: 1 }]], async () => {
  const topic = room();
  const box = heard(await subscribed(connect({ node: 1 }), topic));
  return [await send(connect().channel(topic), 'hello', { n: 1 }), await box.next()];
});
row('send without a subscription and the right is an error', 'error', () =>
  send(connect({ apikey: listener }).channel(room()), 'hello', {}));

// Durable events

row('a durable event has its position in meta', ['ok', { n: 1 }, ['id', 'position', 'replayed'], false], async () => {
  const [one, other] = await pair();
  const box = heard(other);
  const reply = await durable(one, 'message', { n: 1 });
  const [, , payload, meta] = await box.next();
  return [reply, payload, Object.keys(meta).sort(), meta.replayed];
});
row('a durable event without the right is an error', 'error', async () =>
  durable(await subscribed(connect({ apikey: token('room:*=subscribe,publish') }), room()), 'message', {}));
row('replay brings the newest events since a time, and then goes on', [[2, true], [3, true], [4, false]], async () => {
  const topic = room();
  for (const n of [1, 2, 3]) await publish(topic, 'message', n);
  const broadcast = { replay: { since: Date.now() - 60_000, limit: 2 } };
  const channel = connect({ node: 1 }).channel(topic, { config: { private: true, broadcast } });
  const box = heard(channel);
  await statuses(channel).next();
  await publish(topic, 'message', 4);
  return (await box.take(3)).map(([, , payload, meta]) => [payload, meta.replayed]);
});
row('a subscription resumes after a position', [2, 3], async () => {
  const topic = room();
  const after = await publish(topic, 'message', 1);
  await publish(topic, 'message', 2);
  const channel = connect({ node: 1 }).channel(topic);
  channel.updateJoinPayload({ after });
  const box = heard(channel);
  await statuses(channel).next();
  await publish(topic, 'message', 3);
  return (await box.take(2)).map(([, , payload]) => payload);
});

// Presence

row('presence is the same on two nodes, and one key there twice has two metas',
  Array(2).fill({ ann: ['{"on":1}', '{"on":2}'], bob: ['{}'] }), async () => {
    const topic = room();
    const attending = await Promise.all([0, 1, 1].map((node, n) => attend(connect({ node }), topic, ['ann', 'ann', 'bob'][n])));
    await Promise.all([{ on: 1 }, { on: 2 }, {}].map((payload, n) => attending[n].channel.track(payload)));
    const all = ({ ann, bob }) => ann?.length === 2 && bob;
    return Promise.all(attending.slice(0, 2).map(({ present }) => present(all)));
  });
row('track and untrack are answered', ['ok', 'ok'], async () => {
  const { channel } = await attend(connect(), room(), 'ann');
  return [await channel.track({ n: 1 }), await channel.untrack()];
});
row('track without the right is an error', 'error', async () =>
  (await attend(connect({ apikey: listener }), room(), 'ann')).channel.track({}));
row('joins, updates and leaves are seen one by one',
  [['join', 'bob', ['{"n":1}']], ['join', 'bob', ['{"n":2}']], ['leave', 'bob', ['{"n":1}']], ['leave', 'bob', ['{"n":2}']]],
  async () => {
    const topic = room();
    const { changes } = await attend(connect(), topic, 'ann');
    const bob = await attend(connect({ node: 1 }), topic, 'bob');
    await bob.channel.track({ n: 1 });
    const seen = await changes.take(1);
    await bob.channel.track({ n: 2 });
    seen.push(...(await changes.take(2)));
    await bob.channel.untrack();
    return [...seen, await changes.next()];
  });
for (const [how, go] of [
  ['leaves', ({ channel }) => channel.unsubscribe()],
  ['hangs up', ({ channel }) => channel.socket.disconnect()],
]) {
  row(`who ${how} is gone`, {}, async () => {
    const topic = room();
    const ann = await attend(connect(), topic, 'ann');
    const bob = await attend(connect({ node: 1 }), topic, 'bob');
    await bob.channel.track({});
    await ann.present((all) => all.bob);
    await go(bob);
    return ann.present((all) => !all.bob);
  });
}

// Tokens

row('a token from setAuth counts, whatever the apikey may do', 'SUBSCRIBED', async () => {
  const client = connect({ apikey: token('other:*=subscribe') });
  await client.setAuth(everything);
  return subscribe(client, room());
});
row('a token from a callback counts as well', 'SUBSCRIBED', async () => {
  const client = connect({ apikey: token('other:*=subscribe'), accessToken: async () => everything });
  await client.setAuth();
  return subscribe(client, room());
});
row('a token that expires ends the channel, and a fresh one brings it back',
  ['SUBSCRIBED', ['CHANNEL_ERROR', 'expired'], 'SUBSCRIBED'], async () => {
    const client = connect();
    await client.setAuth(brief());
    const box = statuses(client.channel(room()));
    const seen = await box.take(2);
    await client.setAuth(everything);
    return [...seen, await box.next()];
  });
for (const [how, refresh] of [
  ['setAuth', (client) => client.setAuth()],
  ['a heartbeat', (_client, beats) => beats.next()],
]) {
  row(`a fresh token that ${how} sends outlives the first`, ['expired', 'ok', ['SUBSCRIBED']], async () => {
    const beats = inbox();
    const short = brief();
    let now = short;
    const client = connect({ accessToken: async () => now, heartbeatIntervalMs: 500, heartbeatCallback: beats.put });
    await client.setAuth();
    const channel = client.channel(room(), { config: ack });
    const status = statuses(channel);
    const other = statuses(connect({ apikey: short }).channel(room()));
    status.put(await status.next());
    now = everything;
    await refresh(client, beats);
    const [, [, reason]] = await other.take(2); // which has no other token
    return [reason, await send(channel, 'hello', {}), status.waiting()];
  });
}
row('a fresh token without the right ends the channel', ['CHANNEL_ERROR', 'forbidden'], async () => {
  const client = connect();
  await client.setAuth(everything);
  const box = statuses(client.channel(room()));
  await box.next();
  await client.setAuth(token('other:*=subscribe'));
  return box.next();
});

// The end of two nodes, and therefore the last rows

for (const [how, node, signal] of [['stopped', 2, 'SIGTERM'], ['killed', 3, 'SIGKILL']]) {
  row(`when its node is ${how}, a client goes on at another and misses nothing`, [1, 2, 3], async () => {
    const topic = room();
    const channel = connect({ transport: roaming(WebSocket, nodes[node], nodes[0]) }).channel(topic);
    const box = inbox();
    channel.on('broadcast', { event: 'message' }, ({ payload, meta }) => {
      channel.updateJoinPayload({ after: meta.position });
      box.put(payload);
    });
    const status = statuses(channel);
    await status.next();
    await publish(topic, 'message', 1);
    const seen = await box.take(1);
    process.kill(nodes[node].pid, signal);
    let now = await status.next();
    await publish(topic, 'message', 2);
    while (now !== 'SUBSCRIBED') now = await status.next();
    await publish(topic, 'message', 3);
    return [...seen, ...(await box.take(2))];
  });
}
