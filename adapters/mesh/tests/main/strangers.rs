//! Who is not in the registry does not get in, and does not get in the way.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use switchboard_core::ports::{Member as Row, Registration, Registry};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Endpoint, Stats};
use switchboard_mesh::META_KEY;
use tokio::net::UdpSocket;

use crate::cluster::{Cluster, Member, next, nothing, socket, until};

/// What a row said when it was written.
fn again(row: Row) -> Registration {
    Registration { identity: row.identity, endpoint: row.endpoint, meta: row.meta, timing: Timing::default() }
}

async fn linked_pair(cluster: &Cluster) -> (Member, Member) {
    let (a, b) = (cluster.start("a").await, cluster.start("b").await);
    a.has_links(&["b"]).await;
    b.has_links(&["a"]).await;
    (a, b)
}

/// It knows the addresses, the names and the keys of all members, and speaks the protocol; only its own key is listed nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_registry_does_not_list_is_refused() {
    let cluster = Cluster::new();
    let (a, b) = linked_pair(&cluster).await;
    let elsewhere = Cluster::new();
    let mut sessions = Vec::new();
    for row in cluster.memory.registry().members().await.unwrap() {
        let session = elsewhere.memory.registry();
        session.register(&again(row)).await.unwrap();
        sessions.push(session);
    }
    // Lesser than all, so that it dials.
    let stranger = elsewhere.start("!").await;
    until("it is refused", || {
        let why = stranger.degraded().unwrap_or_default();
        why.contains("a is not reached by mesh (") && why.contains("b is not reached by mesh (")
    })
    .await;
    assert!(stranger.linked().is_empty());
    assert_eq!((a.linked(), b.linked()), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn b105_a_peer_that_proves_another_key_than_its_row_lists_is_reached_by_the_fallback() {
    let cluster = Cluster::new();
    let honest = cluster.start("b").await;
    for (name, facts) in
        [("a", json!({ "key": "0".repeat(64) })), ("c", socket(Ipv4Addr::LOCALHOST.into()).facts())]
    {
        let own = socket(Ipv4Addr::LOCALHOST.into());
        let endpoint =
            Endpoint::from_ip(Ipv4Addr::LOCALHOST.into(), own.local_addr().unwrap().port()).unwrap();
        let other = cluster.with_facts(name, own, endpoint, facts).await;
        for member in [&honest, &other] {
            until("they see each other", || member.node.membership().borrow().size() == 2).await;
            member.routed(1).await;
        }
        let (mut here, mut there) = (honest.subscribe("room:1").await, other.subscribe("room:1").await);
        until("somebody says why", || honest.degraded().is_some() && other.degraded().is_some()).await;
        for (speaker, text) in [(&honest, "1"), (&other, "2")] {
            speaker.say("room:1", text).await;
            assert_eq!(next(&mut here).await, text);
            assert_eq!(next(&mut there).await, text);
        }
        nothing(&mut here);
        nothing(&mut there);
        assert!(honest.linked().is_empty() && other.linked().is_empty());
        other.leave().await;
        honest.routed(0).await;
    }
}

/// A row that lists somebody else's key, to stand in for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_two_rows_list_proves_neither() {
    let cluster = Cluster::new();
    let (a, b) = linked_pair(&cluster).await;
    let members = cluster.memory.registry().members().await.unwrap();
    let mut meta = Stats::default();
    meta.0.insert(META_KEY.to_owned(), members[1].meta.0[META_KEY].clone());
    let session = cluster.memory.registry();
    let registration = Registration {
        identity: switchboard_core::types::Identity::fresh("c".parse().unwrap()),
        endpoint: members[1].endpoint.clone(),
        meta,
        timing: Timing::default(),
    };
    session.register(&registration).await.unwrap();
    until("it is seen", || a.node.membership().borrow().size() == 3).await;
    // The link that stands was proved before; no new one is made with that key.
    until("it is not linked", || a.degraded().is_some_and(|why| why.contains("c is not reached"))).await;
    assert_eq!((a.linked(), b.linked()), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

/// It has a registry of its own, which does not tell it that it was evicted; so it keeps dialling with the key that was good once.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_an_evicted_node_opens_nothing_and_its_old_row_cannot_be_written_again() {
    let (cluster, elsewhere) = (Cluster::new(), Cluster::new());
    let honest = cluster.start("b").await;
    let (here, there) = (cluster.memory.registry(), elsewhere.memory.registry());
    there.register(&again(here.members().await.unwrap().remove(0))).await.unwrap();
    let evicted = elsewhere.start("a").await;
    let rows = there.members().await.unwrap();
    let row = again(rows.into_iter().find(|row| row.identity.node_id.as_str() == "a").unwrap());
    here.register(&row).await.unwrap();
    honest.has_links(&["a"]).await;
    evicted.has_links(&["b"]).await;

    cluster.memory.delete(&row.identity.node_id);
    honest.has_links(&[]).await;
    let refused = || evicted.degraded().is_some_and(|why| why.contains("b is not reached by mesh ("));
    until("it is refused when it dials again", refused).await;

    let successor = cluster.start("a").await;
    honest.has_links(&["a"]).await;
    successor.has_links(&["b"]).await;
    assert!(cluster.memory.registry().register(&row).await.is_err(), "the successor holds the name");
    let mut events = successor.subscribe("room:1").await;
    for n in 0..100 {
        honest.say("room:1", n).await;
        assert_eq!(next(&mut events).await, n.to_string());
    }
    assert!(refused() && evicted.linked().is_empty());
    assert_eq!(evicted.count("received_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_and_unfinished_handshakes_get_in_nobodys_way() {
    let cluster = Cluster::new();
    let (a, b) = linked_pair(&cluster).await;
    let address = cluster.memory.registry().members().await.unwrap()[0].endpoint.to_string();
    let mut events = b.subscribe("room:1").await;
    let initial = first_packet().await;
    let noise = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for n in 0..10_000_usize {
        let mut datagram = initial.clone();
        // Another connection each time: the ids stand at the start.
        datagram[6..14].copy_from_slice(&n.to_be_bytes());
        let _ = noise.send_to(&datagram, &address).await;
        let garbage: Vec<u8> = (0..n % 1500).map(|_| rand::random()).collect();
        let _ = noise.send_to(&garbage, &address).await;
        if n % 100 == 0 {
            a.say("room:1", n).await;
            assert_eq!(next(&mut events).await, n.to_string());
        }
    }
    assert_eq!((a.linked(), b.linked()), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let late = cluster.start("c").await;
    tokio::time::timeout(Duration::from_secs(5), late.has_links(&["a", "b"]))
        .await
        .expect("the door is blocked");
}

/// What a mesh sends first when it dials.
async fn first_packet() -> Vec<u8> {
    let cluster = Cluster::new();
    let trap = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = trap.local_addr().unwrap();
    let target = socket(Ipv4Addr::LOCALHOST.into());
    let _dialler = cluster.start("a").await;
    let _dialled =
        cluster.member("b", target, Endpoint::from_ip(address.ip(), address.port()).unwrap()).await;
    let mut datagram = vec![0; 2000];
    let (length, _) = trap.recv_from(&mut datagram).await.unwrap();
    datagram.truncate(length);
    datagram
}
