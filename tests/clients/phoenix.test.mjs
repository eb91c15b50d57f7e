// What npm `phoenix` sees of a cluster, row by row.
import { Presence, Socket } from 'phoenix';
import WebSocket from 'ws';
import {
  brief, bytes, everything, afterwards, frozen, inbox, nodes, publish, readable, roaming, room, row, token, tracked,
} from './cluster.mjs';

const json = {
  encode: (message, done) => done(JSON.stringify(message)),
  decode: (text, done) => done(JSON.parse(text)),
};

/** A socket to one node. Versions of the serializer before 2.0.0 are the user's to bring. */
function connect({ node = 0, vsn = '2.0.0', params = { token: everything }, ...options } = {}) {
  const endpoint = `${nodes[node].url.replace('http', 'ws')}/socket`;
  const serializer = vsn === '1.0.0' ? json : {};
  const again = { reconnectAfterMs: () => 20, rejoinAfterMs: () => 20 };
  const socket = new Socket(endpoint, { transport: WebSocket, vsn, params, ...serializer, ...again, ...options });
  afterwards(() => socket.disconnect());
  socket.connect();
  return socket;
}

/** What a push is answered: `{ ok }`, `{ timeout }`, or of an error its reason. */
const answer = (push) =>
  new Promise((resolve) => {
    push.receive('ok', (ok) => resolve({ ok }));
    push.receive('error', ({ reason }) => resolve({ error: reason }));
    push.receive('timeout', () => resolve({ timeout: true }));
  });

const join = (socket, topic, params) => answer(socket.channel(topic, params).join());

async function joined(socket, topic, params) {
  const channel = socket.channel(topic, params);
  await new Promise((resolve) => channel.join().receive('ok', resolve));
  return channel;
}

/** The next join that succeeds: a client repeats it with the same push. */
const rejoined = (channel) =>
  new Promise((resolve) => {
    let earlier = true;
    channel.joinPush.receive('ok', () => earlier || resolve());
    earlier = false;
  });

/** Payloads of an event, and the position that stands beside them. */
function heard(channel, event) {
  const box = inbox();
  channel.on(event, (payload, ref) => box.put([readable(payload), ref]));
  return { next: box.next, payloads: async (count) => (await box.take(count)).map(([payload]) => payload) };
}

/** What a message of no channel is answered. */
const raw = (socket, message) =>
  new Promise((resolve) => {
    const ref = socket.makeRef();
    socket.onMessage((reply) => reply.ref === ref && resolve([reply.event, reply.payload.status, reply.payload.response.reason]));
    socket.push({ join_ref: null, payload: {}, ref, ...message });
  });

const opened = (socket) => new Promise((resolve) => socket.onOpen(() => resolve('open')));
const closed = (socket) => new Promise((resolve) => socket.onClose(({ code, reason }) => resolve([code, reason])));
const failed = (socket) => new Promise((resolve) => socket.onError((error) => resolve(error.message)));
const errored = (channel) => new Promise((resolve) => channel.onError((error) => resolve(error.reason)));

/** Everybody who is there, once it is who `enough` waits for. */
const present = (presence, enough) =>
  new Promise((resolve) => {
    const look = () => {
      const all = Object.fromEntries(presence.list((key, { metas }) => [key, tracked(metas)]));
      if (enough(all)) resolve(all);
    };
    presence.onSync(look);
    look();
  });
const track = (channel, payload) => answer(channel.push('presence', { event: 'track', payload }));

// Connecting

row('a token in params opens the socket', 'open', () => opened(connect()));
row('a token in authToken opens the socket', { ok: {} }, () => join(connect({ params: {}, authToken: everything }), room()));
row('a socket opens without a token, and joins nothing', { error: 'missing' }, () => join(connect({ params: {} }), room()));
row('a token that is none does not open the socket', 'Unexpected server response: 401', () =>
  failed(connect({ params: { token: 'x.y.z' } })));
row('a version that is none does not open the socket', 'Unexpected server response: 422', () =>
  failed(connect({ vsn: '9.0.0' })));
row('a ping is answered', 'number', async () => {
  const socket = connect();
  await opened(socket);
  return new Promise((resolve) => socket.ping((milliseconds) => resolve(typeof milliseconds)));
});
row('heartbeats keep the socket, and are answered', ['phx_reply', 'phx_reply', 'phx_reply'], async () => {
  const socket = connect({ heartbeatIntervalMs: 300 });
  const beats = inbox();
  socket.onMessage(({ topic, event }) => topic === 'phoenix' && beats.put(event));
  return beats.take(3);
});
row('a heartbeat that is not answered closes the socket, which opens again and rejoins', ['errored', 'joined'], async () => {
  const socket = connect({ node: 1, heartbeatIntervalMs: 300 });
  const channel = await joined(socket, room());
  const again = rejoined(channel);
  const error = new Promise((resolve) => channel.onError(() => resolve(channel.state)));
  const seen = await frozen(nodes[1], () => error);
  await again;
  return [seen, channel.state];
});
row('a message that is too large closes the socket', 1009, async () => {
  const socket = connect();
  const channel = await joined(socket, room());
  const close = closed(socket);
  channel.push('large', { text: 'x'.repeat(2_000_000) });
  return (await close)[0];
});

// Joining and leaving

for (const vsn of ['1.0.0', '2.0.0']) {
  row(`a join is answered (${vsn})`, { ok: {} }, () => join(connect({ vsn }), room()));
  row(`a join without the right is refused (${vsn})`, { error: 'forbidden' }, () => join(connect({ vsn }), 'secret:1'));
  row(`a push without a join is unmatched (${vsn})`, ['phx_reply', 'error', 'unmatched topic'], () =>
    raw(connect({ vsn }), { topic: room(), event: 'hello' }));
  row(`a leave is answered, and closes (${vsn})`, [{ ok: {} }, 'closed'], async () => {
    const channel = await joined(connect({ vsn }), room());
    const close = new Promise((resolve) => channel.onClose(() => resolve(channel)));
    return [await answer(channel.leave()), (await close).state];
  });
}
row('a join brings a token of its own', { ok: {} }, () =>
  join(connect({ params: {} }), room(), { access_token: everything }));
row('a join with a token for something else is refused', { error: 'forbidden' }, () =>
  join(connect(), room(), { access_token: token('other:*=subscribe') }));
row('a join with params that do not fit is refused', { error: 'bad_payload' }, () => join(connect(), room(), { after: 7 }));
row('a topic that is no channel is refused', { error: 'bad_topic' }, () => join(connect(), 'x'.repeat(256)));
row('a join that is not answered times out, is repeated and succeeds', [{ timeout: true }, 'joined'], async () => {
  const socket = connect({ node: 1, timeout: 100 });
  await opened(socket);
  const channel = socket.channel(room());
  const again = rejoined(channel);
  const seen = await frozen(nodes[1], () => answer(channel.join()));
  await again;
  return [seen, channel.state];
});
row('a join that was refused is repeated, and succeeds with a better token', [{ error: 'forbidden' }, 'joined'], async () => {
  const socket = connect({ params: { token: token('other:*=subscribe') } });
  const channel = socket.channel(room());
  const first = await answer(channel.join());
  const again = rejoined(channel);
  await raw(socket, { topic: 'phoenix', event: 'access_token', payload: { access_token: everything } });
  await again;
  return [first, channel.state];
});
row('a second join of a topic closes the first, and works', ['closed', 'joined', { ok: {} }], async () => {
  const [socket, topic] = [connect(), room()];
  const first = await joined(socket, topic);
  const second = await joined(socket, topic);
  return [first.state, second.state, await answer(second.push('hello', {}))];
});
row('after a leave nothing arrives, and a push is unmatched', ['phx_reply', 'error', 'unmatched topic'], async () => {
  const [socket, topic] = [connect(), room()];
  await answer((await joined(socket, topic)).leave());
  return raw(socket, { topic, event: 'hello' });
});

// Pushing

for (const vsn of ['1.0.0', '2.0.0']) {
  row(`a push is answered, and seen on another node (${vsn})`, [{ ok: {} }, [{ x: 1, text: 'ä€𝄞' }, null]], async () => {
    const topic = room();
    const [one, other] = [await joined(connect({ vsn }), topic), await joined(connect({ vsn, node: 1 }), topic)];
    const hello = heard(other, 'hello');
    const reply = await answer(one.push('hello', { x: 1, text: 'ä€𝄞' }));
    const [payload, ref] = await hello.next();
    return [reply, [payload, ref ?? null]];
  });
}
row('pushes arrive in order', Array.from({ length: 50 }, (_, n) => ({ n })), async () => {
  const topic = room();
  const [one, other] = [await joined(connect(), topic), await joined(connect({ node: 1 }), topic)];
  const count = heard(other, 'count');
  for (let n = 0; n < 50; n++) one.push('count', { n });
  return count.payloads(50);
});
row('a push before the join is answered is sent after it', { ok: {} }, () => {
  const channel = connect().channel(room());
  channel.join();
  return answer(channel.push('hello', {}));
});
for (const [self, sees] of [[undefined, ['theirs']], [true, ['mine', 'theirs']]]) {
  row(`an event of one's own ${self ? 'comes back with' : 'does not come back without'} self`, sees, async () => {
    const topic = room();
    const [one, other] = [await joined(connect(), topic, { self }), await joined(connect({ node: 1 }), topic)];
    const [back, there] = [heard(one, 'hello'), heard(other, 'hello')];
    one.push('hello', 'mine');
    await there.next();
    other.push('hello', 'theirs');
    return back.payloads(sees.length);
  });
}
row('bytes arrive as bytes', [{ ok: {} }, [0, 127, 255]], async () => {
  const topic = room();
  const [one, other] = [await joined(connect(), topic), await joined(connect({ node: 1 }), topic)];
  const hello = heard(other, 'hello');
  return [await answer(one.push('hello', bytes(0, 127, 255))), (await hello.next())[0]];
});
row('bytes arrive as JSON where there are none (1.0.0)', { '$switchboard:base64': 'AH//' }, async () => {
  const topic = room();
  const [one, other] = [await joined(connect(), topic), await joined(connect({ vsn: '1.0.0', node: 1 }), topic)];
  const hello = heard(other, 'hello');
  one.push('hello', bytes(0, 127, 255));
  return (await hello.next())[0];
});
row('a push without the right is refused', { error: 'forbidden' }, async () =>
  answer((await joined(connect({ params: { token: token('room:*=subscribe') } }), room())).push('hello', {})));
row("a push under a word of the server's is refused", { error: 'reserved_event' }, async () =>
  answer((await joined(connect(), room())).push('presence_state', {})));
row('a push that is too large is refused', { error: 'rejected' }, async () =>
  answer((await joined(connect(), room())).push('hello', 'x'.repeat(65_536))));
row('a push that is not answered times out', [{ timeout: true }, { ok: {} }], async () => {
  const channel = await joined(connect({ node: 1 }), room());
  const seen = await frozen(nodes[1], () => answer(channel.push('hello', {}, 100)));
  return [seen, await answer(channel.push('hello', {}))];
});

// Durable events

const durable = (channel, event, payload, key) =>
  answer(channel.push('publish', { event, payload, durable: true, key }));
for (const vsn of ['1.0.0', '2.0.0']) {
  row(`a durable event is answered with the position that its subscribers see (${vsn})`, [{ n: 1 }, true], async () => {
    const topic = room();
    const [one, other] = [await joined(connect({ vsn }), topic), await joined(connect({ vsn, node: 1 }), topic)];
    const message = heard(other, 'message');
    const { ok } = await durable(one, 'message', { n: 1 });
    const [payload, ref] = await message.next();
    return [payload, ref === ok.position];
  });
}
row('a join resumes after a position', [{ n: 2 }, { n: 3 }], async () => {
  const topic = room();
  const after = await publish(topic, 'message', { n: 1 });
  await publish(topic, 'message', { n: 2 });
  const channel = connect({ node: 1 }).channel(topic, { after });
  const message = heard(channel, 'message');
  await answer(channel.join());
  await publish(topic, 'message', { n: 3 });
  return message.payloads(2);
});
row('a join begins with the oldest', [{ n: 1 }, { n: 2 }], async () => {
  const topic = room();
  for (const n of [1, 2]) await publish(topic, 'message', { n });
  const channel = connect().channel(topic, { after: 'oldest' });
  const message = heard(channel, 'message');
  channel.join();
  return message.payloads(2);
});
row('a durable event with a key is stored once', true, async () => {
  const channel = await joined(connect(), room());
  const [first, second] = [await durable(channel, 'message', 1, 'k'), await durable(channel, 'message', 1, 'k')];
  return first.ok.position === second.ok.position;
});
row('a durable event without the right is refused', { error: 'forbidden' }, async () =>
  durable(await joined(connect({ params: { token: token('room:*=subscribe,publish') } }), room()), 'message', 1));

// Presence

const here = (key) => ({ presence: { key } });
row('presence is the same on two nodes, and one key there twice has two metas',
  Array(2).fill({ ann: ['{"on":1}', '{"on":2}'], bob: ['{}'] }), async () => {
    const topic = room();
    const channels = [0, 1, 1].map((node, n) => connect({ node }).channel(topic, here(['ann', 'ann', 'bob'][n])));
    const presences = channels.map((channel) => new Presence(channel));
    for (const channel of channels) channel.join();
    await Promise.all([track(channels[0], { on: 1 }), track(channels[1], { on: 2 }), track(channels[2], {})]);
    const all = ({ ann, bob }) => ann?.length === 2 && bob;
    return Promise.all(presences.slice(0, 2).map((presence) => present(presence, all)));
  });
row('who comes later is told who is there', { ann: ['{"n":1}'] }, async () => {
  const topic = room();
  await track(await joined(connect(), topic, here('ann')), { n: 1 });
  const channel = connect({ node: 1 }).channel(topic, here('bob'));
  const state = heard(channel, 'presence_state');
  const presence = new Presence(channel);
  channel.join();
  await state.next();
  return present(presence, ({ ann }) => ann);
});
row('joins, updates and leaves are seen one by one',
  [['join', 'bob', ['{"n":1}']], ['join', 'bob', ['{"n":2}']], ['leave', 'bob', ['{"n":1}']], ['leave', 'bob', ['{"n":2}']]],
  async () => {
    const topic = room();
    const changes = inbox();
    const channel = connect().channel(topic, here('ann'));
    const presence = new Presence(channel);
    const state = heard(channel, 'presence_state');
    presence.onJoin((key, _current, { metas }) => changes.put(['join', key, tracked(metas)]));
    presence.onLeave((key, _current, { metas }) => changes.put(['leave', key, tracked(metas)]));
    channel.join();
    await state.next();
    const bob = await joined(connect({ node: 1 }), topic, here('bob'));
    await track(bob, { n: 1 });
    const seen = await changes.take(1);
    await track(bob, { n: 2 });
    seen.push(...(await changes.take(2)));
    await answer(bob.push('presence', { event: 'untrack' }));
    return [...seen, await changes.next()];
  });
for (const [how, go] of [['leaves', (channel) => channel.leave()], ['hangs up', (channel) => channel.socket.disconnect()]]) {
  row(`who ${how} is gone`, {}, async () => {
    const topic = room();
    const channel = connect().channel(topic, here('ann'));
    const presence = new Presence(channel);
    channel.join();
    const bob = await joined(connect({ node: 1 }), topic, here('bob'));
    await track(bob, {});
    await present(presence, (all) => all.bob);
    go(bob);
    return present(presence, (all) => !all.bob);
  });
}
row('presence without the right is refused', { error: 'forbidden' }, async () =>
  track(await joined(connect({ params: { token: token('room:*=subscribe') } }), room(), here('ann')), {}));

// Tokens

row('a token that expires ends its channels and then the socket', ['expired', [4401, 'token expired']], async () => {
  const socket = connect({ params: { token: brief() } });
  const close = closed(socket);
  const channel = await joined(socket, room());
  return [await errored(channel), await close];
});
row('a client that brings a fresh token after that is joined again by itself', 'joined', async () => {
  const tokens = [brief()];
  const socket = connect({ params: () => ({ token: tokens.shift() ?? everything }) });
  const channel = await joined(socket, room());
  const again = rejoined(channel);
  await closed(socket);
  await again;
  return channel.state;
});
for (const [where, topicOf] of [['a channel', (topic) => topic], ['the topic phoenix', () => 'phoenix']]) {
  row(`a fresh token sent in ${where} outlives the first`, ['ok', { ok: {} }], async () => {
    const [topic, params] = [room(), { token: brief() }];
    const [socket, other] = [connect({ params }), connect({ params })];
    const channel = await joined(socket, topic);
    const message = { topic: topicOf(topic), event: 'access_token', payload: { access_token: everything } };
    const [, status] = await raw(socket, message);
    await closed(other); // which has no other token
    return [status, await answer(channel.push('hello', {}))];
  });
}
row('a fresh token that is none is refused, and changes nothing', [{ error: 'invalid' }, { ok: {} }], async () => {
  const channel = await joined(connect(), room());
  return [await answer(channel.push('access_token', { access_token: 'x.y.z' })), await answer(channel.push('hello', {}))];
});
row('a fresh token without the right ends the channel', 'forbidden', async () => {
  const channel = await joined(connect(), room());
  const error = errored(channel);
  channel.push('access_token', { access_token: token('other:*=subscribe') });
  return error;
});

// The end of two nodes, and therefore the last rows

for (const [how, node, signal, code] of [['stopped', 2, 'SIGTERM', 1012], ['killed', 3, 'SIGKILL', 1006]]) {
  row(`when its node is ${how}, a client goes on at another and misses nothing`, [code, [1, 2, 3]], async () => {
    const topic = room();
    const socket = connect({ transport: roaming(WebSocket, nodes[node], nodes[0]) });
    let after;
    const channel = socket.channel(topic, () => ({ after }));
    const box = inbox();
    channel.on('message', (payload, position) => {
      after = position;
      box.put(payload);
    });
    await answer(channel.join());
    await publish(topic, 'message', 1);
    const seen = await box.take(1);
    const [close, again] = [closed(socket), rejoined(channel)];
    process.kill(nodes[node].pid, signal);
    const [why] = await close;
    await publish(topic, 'message', 2);
    await again;
    await publish(topic, 'message', 3);
    return [why, [...seen, ...(await box.take(2))]];
  });
}
